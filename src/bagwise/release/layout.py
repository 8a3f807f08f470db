"""Which rows leave and in which bag, and the exact sum of each: one pass, on any engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise._progress import Progress, silent
from bagwise.engines.cluster import quietly
from bagwise.engines.engine import Engine
from bagwise.engines.layout import Kept, Layout, Permutation, ids, placed, refuse_changed
from bagwise.release.mechanism import Mechanism
from bagwise.release.table import floats
from bagwise.released import BAG_COLUMNS
from bagwise.tables import Piece, Table, plain_type

Integers: TypeAlias = NDArray[np.int64]


def check_bagging(bags: Any, bag_size: int | None, least: int) -> list[str]:
    """The columns that make a bag, none when bags are drawn; neither or both is refused."""
    if (bags is None) == (bag_size is None):
        got = f"bags={bags!r}, bag_size={bag_size!r}"
        remedy = "Name the columns that make a bag, or say how many rows to draw for each"
        _check.refuse("bags", "given, or bag_size, not both", got, remedy)
    if bag_size is not None:
        size = _check.whole("bag_size", bag_size, low=1, remedy="Pass the rows a bag")
        if size < least:
            got = f"bag_size={size}, min_bag_size={least}"
            _check.refuse("bag_size", "at least min_bag_size", got, "Choose larger bags")
        return []
    names = [bags] if isinstance(bags, str) else bags
    if not (isinstance(names, Sequence) and names and all(isinstance(n, str) for n in names)):
        # Ids handed in beside a table could come from anywhere, from its responses too.
        remedy = "Put the ids into a column of the table, and name it"
        _check.refuse("bags", "names of columns", f"a {type(bags).__name__}", remedy)
    taken = len(names) > 1 and set(names) & set(BAG_COLUMNS)
    if taken or len(set(names)) < len(names):
        rule = f"different names, and none of {', '.join(BAG_COLUMNS)}"
        _check.refuse("bags", rule, f"bags={list(names)!r}", "Rename the column")
    return list(names)


def draw_shuffle(n_rows: int) -> Permutation:
    """A shuffle of the rows.

    From the entropy of the system, never a seed: who knew it could put rows back in the table's
    order.
    """
    return Permutation.draw(n_rows, np.random.default_rng())


def keep_some(
    engine: Engine,
    table: Table,
    pieces: Sequence[Piece],
    shuffle: Permutation,
    user: str,
    cap: int,
    progress: Progress = silent,
) -> Kept:
    """The first ``cap`` rows of each user in the shuffled table."""
    schema = pa.schema([("user", plain_type(table.schema.field(user).type)), ("place", pa.int64())])
    task = partial(_users, shuffle=shuffle, user=user, schema=schema)
    return Kept.of(shuffle.n, engine.first_places(task, pieces, schema, cap, progress))


def _users(
    piece: Piece, shuffle: Permutation, user: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for table, places in quietly(placed(piece, shuffle, None, [user])):
        users = ids(table[user]).combine_chunks()
        yield pa.record_batch([users, pa.array(places)], schema=schema)


@dataclass(frozen=True)
class Quantised:
    """A task: the bag and the clipped response, in steps, of each row that takes part.

    Attributes
    ----------
    layout : Layout
        With bags drawn at random, or none yet where columns name them.
    mechanism : Mechanism
    response : str
    names : list of str
        Columns that make a bag; none when bags are drawn.
    schema : Arrow schema
        Of what it gives.
    """

    layout: Layout
    mechanism: Mechanism
    response: str
    names: list[str]
    schema: pa.Schema

    def __call__(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Batches of a piece."""
        wanted = list(dict.fromkeys([self.response, *self.names]))
        yield from quietly(self._batches(piece, wanted))

    def _batches(self, piece: Piece, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        layout = self.layout
        # Places matter only to who takes part and to bags that are drawn.
        shuffle = layout.shuffle if layout.kept is not None or not self.names else None
        for table, places in placed(piece, shuffle, layout.kept, wanted):
            steps = pa.array(self.mechanism.quantise(floats(table[self.response])))
            keys = [ids(table[name]).combine_chunks() for name in self.names]
            keys = keys or [pa.array(layout.bags(table, places))]
            yield pa.record_batch([*keys, steps], schema=self.schema)


def draw_bags(shuffle: Permutation, kept: Kept | None, bag_size: int | None) -> Layout:
    """Bags of this size or a little more, for what is left over is spread; or none as yet."""
    n = shuffle.n if kept is None else kept.count
    if bag_size is None:
        return Layout(shuffle, kept, np.zeros(0, dtype=np.int64), pa.array([]), pa.table({}))
    if bag_size > n:
        got = f"bag_size={bag_size}, n_rows={n}"
        _check.refuse("bag_size", "at most n_rows", got, "Choose a smaller bag_size")
    m = n // int(bag_size)
    size, larger = divmod(n, m)
    sizes = np.full(m, size, dtype=np.int64)
    sizes[:larger] += 1
    return Layout(shuffle, kept, sizes, pa.array(np.arange(m)), pa.table({}))


def sum_bags(
    engine: Engine,
    table: Table,
    pieces: Sequence[Piece],
    layout: Layout,
    names: list[str],
    response: str,
    mechanism: Mechanism,
    progress: Progress = silent,
) -> tuple[Layout, Integers]:
    """The layout with its bags, and their exact sums in steps.

    Parameters
    ----------
    engine : Engine
    table : Table
    pieces : sequence of Piece
    layout : Layout
        From `draw_bags`; where ``names`` make the bags, they are found here.
    names : list of str
    response : str
    mechanism : Mechanism
    progress : callable
    """
    if not names:
        schema = pa.schema([("bag", pa.int64()), ("steps", pa.int64())])
        task = Quantised(layout, mechanism, response, names, schema)
        mechanism.check_sizes(int(layout.sizes.max()))
        sizes, sums = engine.bag_totals(task, pieces, len(layout.sizes), progress)
        if not np.array_equal(sizes, layout.sizes):
            refuse_changed()
        return layout, sums
    kinds = [plain_type(table.schema.field(name).type) for name in names]
    # A column of the table may itself be called "steps".
    keys = [f"key{i}" for i in range(len(names))]
    schema = pa.schema([*zip(keys, kinds, strict=True), ("steps", pa.int64())])
    task = Quantised(layout, mechanism, response, names, schema)
    found = engine.totals(task, pieces, schema, keys, progress, steps_sum="sum")
    # Bags leave in an order of their own, which tells nothing of the table's.
    found = found.take(np.random.default_rng().permutation(len(found)))
    columns = [found[k].cast(t).combine_chunks() for k, t in zip(keys, kinds, strict=True)]
    labels = pa.table(columns, names=names)
    called = columns[0] if len(names) == 1 else pa.array(np.arange(len(found)))
    sizes = found["size"].to_numpy().astype(np.int64)
    if sizes.sum() != layout.n_rows:
        refuse_changed()
    mechanism.check_sizes(int(sizes.max()))
    made = Layout(layout.shuffle, layout.kept, sizes, called, labels)
    return made, found["steps_sum"].to_numpy().astype(np.int64)
