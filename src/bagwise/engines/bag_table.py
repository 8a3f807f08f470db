"""A learner's table: rows with features, the bag of each, and the mean of its bag beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagwise import _check
from bagwise._disk import enough_space
from bagwise._progress import Progress, silent
from bagwise.encoding import Encoder, choose_features
from bagwise.engines.cluster import Clustering
from bagwise.engines.engine import Engine
from bagwise.engines.layout import Layout, Permutation, check_ids, ids, placed
from bagwise.engines.local import Local
from bagwise.row_groups import RowGroup, find_groups, sum_row_group
from bagwise.statistics import AggregateStatistics, refuse_huge
from bagwise.tables import Piece, is_number, numbered, open_table, plain, plain_type


class BagTable:
    """A table in files, put together by bag in a folder of its own, for fits of any size.

    Parameters
    ----------
    source : path, or sequence of paths
        .csv or .parquet files, folders or globs, rows in any order.
    response : str
        Column with the mean of its bag in every row: what a join of the two tables gives.
    bags : str or sequence of str
        Columns whose values make a bag.
    engine : Engine
        Where the work is done; by default this machine.
    folder : path
        Where to keep the rows meanwhile: the system's own place by default. On a cluster it must be
        one that every worker can write to.
    progress : callable
        Wraps what comes back of pieces of the table, to show a bar.

    Notes
    -----
    Guarantees: memory grows with the number of bags, not of rows; the copy on disk holds features
    only and goes when the table does.
    Limits: standard input is read at once. Columns that make the bags are features only where they
    are named: a model could tell bags apart by them, and rows of other bags have other values.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> import pyarrow.parquet as pq
    >>> path = f"{mkdtemp()}/rows.parquet"
    >>> rows = {"age": [31, 45, 28, 60], "town": ["a", "b", "a", "b"], "share": [0.5, 1, 0.5, 1]}
    >>> pq.write_table(pa.table(rows), path)
    >>> table = BagTable(path, response="share", bags="town")
    >>> table.columns, table.sizes.tolist(), sorted(table.means.tolist())
    (['age', 'town'], [2, 2], [0.5, 1.0])
    >>> table.encoder().names
    ('age',)
    """

    def __init__(
        self,
        source: str | PathLike[str] | Sequence[str | PathLike[str]],
        response: str,
        bags: str | Sequence[str],
        engine: Engine | None = None,
        folder: str | PathLike[str] | None = None,
        progress: Progress = silent,
    ) -> None:
        self._engine = engine = Local() if engine is None else engine
        names = [bags] if isinstance(bags, str) else list(bags)
        table = open_table(source, ids=names)
        table.need([response], "response")
        table.need(names, "bags")
        kind = table.schema.field(response).type
        if response in names or pa.types.is_nested(kind) or not is_number(plain_type(kind)):
            got = f"{response!r}"
            _check.refuse("response", "a column of numbers beside the bags", got, "Name another")
        #: the column with the mean of its bag
        self.response = response
        #: columns that can be features
        self.columns = [
            field.name
            for field in table.schema
            if field.name not in (response, "bag") and not pa.types.is_nested(field.type)
        ]
        check_ids(table, names, engine.map)
        pieces = table.pieces()
        count = partial(_count, names=names, response=response)
        counts = list(engine.map(count, pieces, progress))
        pieces = numbered(pieces, counts)
        if not pieces:
            _check.refuse("the table", "of at least one row", "none", "Check the file")
        shuffle = Permutation.draw(sum(counts), np.random.default_rng())
        keys = [f"key{i}" for i in range(len(names))]
        kinds = [plain_type(table.schema.field(name).type) for name in names]
        schema = pa.schema([*zip(keys, kinds, strict=True), ("mean", pa.float64())])
        task = partial(_means, shuffle=shuffle, names=names, response=response, schema=schema)
        ways = {"mean_min": "min", "mean_max": "max"}
        found = engine.totals(task, pieces, schema, keys, progress, **ways)
        columns = [found[k].cast(t).combine_chunks() for k, t in zip(keys, kinds, strict=True)]
        labels = pa.table(columns, names=names)
        low, high = (found[name].to_numpy() for name in ("mean_min", "mean_max"))
        if not np.allclose(low, high, rtol=1e-9, atol=0):
            got = "different ones in one"
            remedy = "Give each row its bag's mean"
            _check.refuse(f"column {response!r}", "constant within a bag", got, remedy)
        #: of each bag its rows, its response and the values that make it
        self.sizes: NDArray[np.int64] = found["size"].to_numpy().astype(np.int64)
        self.means: NDArray[np.float64] = (low + high) / 2
        self.labels = labels
        layout = Layout(shuffle, None, self.sizes, pa.array(np.arange(len(found))), labels)
        place = Path(mkdtemp(prefix="bagwise-", dir=folder))
        finalize(self, shutil.rmtree, place, ignore_errors=True)
        self._schema = pa.schema([table.schema.field(name) for name in self.columns])
        clustering = Clustering.of(layout, self._schema, place, pieces)
        with enough_space(place):
            clustering.check(engine.cluster(clustering, pieces, progress))
        self._groups = find_groups(place, layout.ids, self.sizes, self.means)

    def row_groups(self) -> list[RowGroup]:
        """The row groups, of whole bags each."""
        return self._groups

    def batches(self) -> Iterator[tuple[pa.Table, NDArray[np.float64], NDArray[np.int64]]]:
        """Features, mean responses and bags of rows, a row group of whole bags at a time."""
        for group in self._groups:
            of_row = np.repeat(np.arange(len(group.sizes)), group.sizes)
            yield group.read(), group.means[of_row], group.ids.to_numpy()[of_row]

    def encoder(self, columns: Sequence[str] | None = None) -> Encoder:
        """How these columns become numbers: text as one column a level.

        By default all of them but those that make the bags.
        """
        chosen = choose_features(self.columns, self.labels.column_names, columns, "the table")
        kinds = {name: plain_type(self._schema.field(name).type) for name in chosen}
        text = [name for name, kind in kinds.items() if not is_number(kind)]
        return Encoder.learn(pa.schema(kinds), chosen, (g.read(text) for g in self._groups))

    def statistics(
        self, encoder: Encoder | None = None, progress: Progress = silent
    ) -> AggregateStatistics:
        """A, W, c of these features, by default those of `encoder`, in one pass over row groups."""
        chosen = self.encoder() if encoder is None else encoder
        return self._engine.sum(partial(sum_row_group, chosen), self._groups, progress)

    def __repr__(self) -> str:
        return f"BagTable({self.sizes.sum()} rows in {len(self.sizes)} bags)"


def _count(piece: Piece, names: list[str], response: str) -> int:
    """Rows of a piece, when each has a bag and a response."""
    count = 0
    for batch in piece.batches(list(dict.fromkeys([*names, response]))):
        for name in names:
            values = plain(batch[name])
            nan = pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()
            if values.null_count or nan:
                got = "missing ones"
                _check.refuse(f"column {name!r}", "a bag in every row", got, "Name those rows")
        responses = _floats(batch[response])
        if not np.isfinite(responses).all():
            got = "missing or infinite values"
            _check.refuse(f"column {response!r}", "finite in every row", got, "Drop those rows")
        refuse_huge(responses, f"column {response!r}")
        count += batch.num_rows
    return count


def _floats(values: Any) -> NDArray[np.float64]:
    """A column as float64, NaN where it is missing."""
    found = plain(values).cast(pa.float64(), safe=False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _means(
    piece: Piece, shuffle: Permutation, names: list[str], response: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """A task: the bag and the response of each row."""
    for table, _ in placed(piece, shuffle, None, list(dict.fromkeys([*names, response]))):
        keys = [ids(table[name]).combine_chunks() for name in names]
        yield pa.record_batch([*keys, _floats(table[response].combine_chunks())], schema=schema)
