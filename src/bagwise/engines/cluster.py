"""Rows put together by bag: parts of a table are cut by bag, moved, and joined into row groups.

The columns travel as Arrow wrote them, so every type comes out as it went in. An engine moves the
pieces between the cut and the join: through files on one machine, by a shuffle on a cluster.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise import _check
from bagwise.engines.layout import Layout, refuse_changed
from bagwise.row_groups import ROWS, part_name
from bagwise.tables import Piece, all_finite, plain_type, widths

Integers: TypeAlias = NDArray[np.int64]
Item = TypeVar("Item")
# Rows and bytes of a row group, unless a bag is larger: what a reader holds at once.
GROUP, GROUP_BYTES = 2**17, 2**25
# Rows and bytes of a part, which a worker holds at once; and the most parts.
PART, PART_BYTES, MOST_PARTS = 2**20, 2**26, 4096


@dataclass(frozen=True)
class Joined:
    """What was written of a part, or of several.

    Attributes
    ----------
    rows : int
    missing : frozenset of str
        Features with missing values, or with infinite ones.
    """

    rows: int = 0
    missing: frozenset[str] = frozenset()

    def __add__(self, other: Joined) -> Joined:
        return Joined(self.rows + other.rows, self.missing | other.missing)


@dataclass(frozen=True, eq=False)
class Clustering:
    """How rows become parts of whole bags.

    Attributes
    ----------
    layout : Layout
    schema : Arrow schema
        Of the features.
    folder : Path
        Where rows.parquet is made: a file, or a folder of parts where there are several.
    starts : int ndarray
        First bag of each part.
    group : int
        Rows of a row group.
    """

    layout: Layout
    schema: pa.Schema
    folder: Path
    starts: Integers
    group: int

    @classmethod
    def of(
        cls, layout: Layout, schema: pa.Schema, folder: Path, pieces: Sequence[Piece]
    ) -> Clustering:
        """Parts that a worker can hold."""
        flat = pa.schema([(field.name, plain_type(field.type)) for field in schema])
        width = max(quietly(widths(pieces, flat.names))) + 16
        group = max(1, min(GROUP, GROUP_BYTES // width))
        rows = max(layout.n_rows // MOST_PARTS, min(PART, PART_BYTES // width), group)
        ends = np.cumsum(layout.sizes)
        part = (ends - layout.sizes) // rows
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        if len(starts) > 1:
            (folder / ROWS).mkdir()
        return cls(layout, flat, folder, starts, group)

    @property
    def parts(self) -> range:
        """Numbers of the parts."""
        return range(len(self.starts))

    def split(self, piece: Piece) -> Iterator[tuple[int, pa.Buffer]]:
        """The rows of a piece, cut by part: (part, Arrow stream of features, place and bag)."""
        # It was readable a moment ago, and what a reader says may quote a cell.
        yield from quietly(self._split(piece))

    def _split(self, piece: Piece) -> Iterator[tuple[int, pa.Buffer]]:
        for features, places, bags in self.layout.rows(piece, self.schema.names, 4 * GROUP):
            part = np.searchsorted(self.starts, bags, side="right") - 1
            order = np.argsort(part, kind="stable")
            columns = [*features.columns, pa.array(places), pa.array(bags)]
            # Numbers for names: a feature may be called anything.
            table = pa.table(columns, [f"{i}" for i in range(len(columns))])
            table = table.take(order).combine_chunks()
            cuts = np.searchsorted(part[order], np.arange(len(self.starts) + 1))
            for number in np.flatnonzero(np.diff(cuts)):
                some = table.slice(cuts[number], cuts[number + 1] - cuts[number])
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, some.schema) as writer:
                    writer.write_table(some)
                yield int(number), sink.getvalue()

    def join(self, number: int, streams: Iterable[pa.Buffer]) -> Joined:
        """Write a part from its rows, whatever order they come in; returns what they were.

        It appears whole under its name, and twice the same is written twice the same.
        """
        table: pa.Table = pa.concat_tables(_read_streams(streams))
        place, bag = (column.to_numpy() for column in table.columns[-2:])
        # Bags drawn at random are runs of places.
        by_name = self.layout.labels.num_columns > 0
        order: Integers = np.lexsort((place, bag)) if by_name else np.argsort(place)
        features = table.select(range(len(self.schema))).combine_chunks()
        ids = self.layout.ids
        schema = pa.schema([("bag", ids.type), *self.schema])
        path = self.folder / part_name(number, len(self.starts))
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        packed = [f.name for f in schema if not pa.types.is_floating(f.type)]
        with pq.ParquetWriter(
            partial, schema, compression="zstd", use_dictionary=packed, write_page_checksum=True
        ) as writer:
            for rows in _whole_bags(bag[order], self.group):
                some = features.take(order[rows])
                of_row = ids.take(pa.array(bag[order[rows]]))
                writer.write_table(pa.table([of_row, *some.columns], schema=schema), len(some))
        os.replace(partial, path)
        columns = zip(self.schema.names, features.columns, strict=True)
        return Joined(len(order), frozenset(name for name, v in columns if not _there(v)))

    def check(self, joined: Joined) -> None:
        """Refuse rows that were lost, or files beside the parts; what killed tasks left goes."""
        for left in (*self.folder.glob(f"{ROWS}/.*"), *self.folder.glob(f".{ROWS}.*")):
            left.unlink()
        if joined.rows != self.layout.n_rows:
            refuse_changed()
        made = {self.folder / part_name(number, len(self.starts)) for number in self.parts}
        if made != set((self.folder / ROWS).iterdir() if len(made) > 1 else made):
            _check.refuse(ROWS, "made of its own parts alone", "other files", "Start again")


def quietly(items: Iterable[Item]) -> Iterator[Item]:
    """The items; where a reader fails on the way, one sentence without what it says."""
    found = iter(items)
    while True:
        try:
            item = next(found)
        except StopIteration:
            return
        except (ValueError, IndexError, TypeError, OSError, pa.ArrowException):
            failed = True
        else:
            failed = False
        if failed:
            refuse_changed()
        yield item


def _there(values: pa.ChunkedArray) -> bool:
    """Whether a feature is there in every row, and finite."""
    if values.null_count or not pa.types.is_floating(values.type):
        return not values.null_count
    return all_finite(values.to_numpy())


def _whole_bags(bag: Integers, group: int) -> Iterator[slice]:
    """Runs of about ``group`` rows that end where a bag does."""
    ends = np.append(np.flatnonzero(np.diff(bag)) + 1, len(bag))
    first = 0
    while first < len(bag):
        fits = np.searchsorted(ends, first + group, side="right")
        stop = int(ends[max(fits - 1, np.searchsorted(ends, first, side="right"))])
        yield slice(first, stop)
        first = stop


def _read_streams(streams: Iterable[pa.Buffer]) -> Iterator[pa.Table]:
    """The tables of Arrow streams that lie one after the other."""
    for stream in streams:
        source = pa.BufferReader(stream)
        while source.tell() < source.size():
            yield pa.ipc.open_stream(source).read_all()
