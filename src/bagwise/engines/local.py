"""This machine: threads for tasks, DuckDB for expressions, files in between.

DuckDB is given no place for temporary files: what it groups stays in memory, or it stops.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise._extras import need
from bagwise._parallel import apart, on_threads, until
from bagwise._progress import Progress, silent
from bagwise.engines.cluster import Clustering, Joined
from bagwise.engines.engine import Ask, Batches, Engine, Found, Item
from bagwise.engines.layout import refuse_changed
from bagwise.row_groups import RowGroup, on_cores
from bagwise.statistics import AggregateStatistics
from bagwise.tables import Piece, Table

# Whole numbers next to each other that have a place in an array.
SPAN = 2**22


class Local(Engine):
    """The engine of one machine: nothing to start, constant memory but for what is grouped."""

    package = "duckdb"

    def check(self, table: Table) -> None:
        """Nothing leaves this process."""

    def map(
        self,
        task: Callable[[Item], Found],
        items: Sequence[Item],
        progress: Progress = silent,
    ) -> Iterable[Found]:
        """On every core."""
        return on_threads(task, items, progress)

    def sum(
        self,
        task: Callable[[RowGroup], AggregateStatistics],
        groups: Sequence[RowGroup],
        progress: Progress = silent,
    ) -> AggregateStatistics:
        """On every core."""
        return on_cores(task, groups, progress)

    def cluster(
        self, clustering: Clustering, pieces: Sequence[Piece], progress: Progress = silent
    ) -> Joined:
        """Through a file for each part, in a folder beside it that is gone at the end."""
        folder = clustering.folder / ".moving"
        folder.mkdir()
        locks: defaultdict[int, Lock] = defaultdict(Lock)

        def split(piece: Piece) -> Joined:
            for number, stream in clustering.split(piece):
                with locks[number], (folder / f"{number}").open("ab") as file:
                    file.write(stream)
            # Rows are counted where they are joined.
            return Joined()

        join = partial(_join, clustering, folder)
        work = chain(on_threads(split, pieces), on_threads(join, clustering.parts))
        # No loop of our own, in which an interrupt would find threads still at their files.
        joined = sum(progress(work, len(pieces) + len(clustering.parts)), Joined())
        shutil.rmtree(folder)
        return joined

    def bag_totals(
        self, task: Batches, pieces: Sequence[Piece], n_bags: int, progress: Progress = silent
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Without a table of groups: bags that are numbers are places in an array."""
        sizes, sums = np.zeros(n_bags, dtype=np.int64), np.zeros(n_bags, dtype=np.int64)
        for batch in _flow(task, pieces, progress):
            bags, steps = (column.to_numpy() for column in batch.columns)
            np.add.at(sums, bags, steps)
            np.add.at(sizes, bags, 1)
        return sizes, sums

    def totals(
        self,
        task: Batches,
        pieces: Sequence[Piece],
        schema: pa.Schema,
        keys: Sequence[str],
        progress: Progress = silent,
        **how: str,
    ) -> pa.Table:
        """Likewise where whole numbers name the bags and lie close; DuckDB has the others.

        A sum past 64 bits wraps around, so who asks for sums checks sizes.
        """
        summed = [name.rpartition("_")[0] for name in how]
        kinds = [schema.field(name).type for name in (*keys, *summed)]
        exact = all(pa.types.is_integer(kind) and kind != pa.uint64() for kind in kinds)
        if len(keys) > 1 or set(how.values()) != {"sum"} or not exact:
            return super().totals(task, pieces, schema, keys, progress, **how)
        near = _Near(keys[0], summed)
        far = super().totals(near.without(task), pieces, schema, keys, progress, **how)
        return pa.concat_tables(
            [far, near.totals().rename_columns(far.schema.names).cast(far.schema)]
        )

    def query(
        self,
        task: Batches,
        pieces: Sequence[Piece],
        schema: pa.Schema,
        ask: Ask,
        progress: Progress = silent,
    ) -> Iterator[pa.Table]:
        """Of a stream that DuckDB reads once; in batches, as it gives them."""
        ibis, stop = need("ibis", "engines"), Event()
        con = ibis.duckdb.connect(temp_directory="")

        def end() -> None:
            stop.set()
            con.con.interrupt()

        try:
            flow = until(stop, _flow(task, pieces, progress))
            stream = pa.RecordBatchReader.from_batches(schema, flow)
            # A capsule is read by DuckDB's threads. A reader would be by Arrow's, for which only
            # the process waits when it ends: for ever, if one of them is then still in Python.
            con.con.register("pieces", stream.__arrow_c_stream__())
            yield from _collect(ask(con.table("pieces")), end)
        except BaseException:
            # A connection that closes leaves a query at work while its answer is held somewhere;
            # another query ends it, without Python's lock, which threads need to leave the stream.
            end()
            with suppress(need("duckdb", "engines").Error):
                con.con.execute("SELECT 1")
            raise
        finally:
            con.disconnect()


class _Near:
    """Sums for keys that lie close to each other, in arrays with a place for each whole number."""

    def __init__(self, key: str, columns: Sequence[str]) -> None:
        self.key, self.columns, self.first = key, columns, 0
        self.sizes = np.zeros(SPAN, dtype=np.int64)
        self.sums = [np.zeros(SPAN, dtype=np.int64) for _ in columns]
        self._lock, self._begun = Lock(), False

    def without(self, task: Batches) -> Batches:
        """The task, less the rows that are added up here."""

        def rest(piece: Piece) -> Iterator[pa.RecordBatch]:
            for batch in task(piece):
                far = batch if batch[self.key].null_count or not len(batch) else self._add(batch)
                if far is not None:
                    yield far

        return rest

    def _add(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Add up the rows of a batch that are near; gives back the others."""
        keys = batch[self.key].to_numpy().astype(np.int64)
        with self._lock:
            if not self._begun:
                # Around the first that come; all places are whole numbers of 64 bits.
                first = (int(keys.min()) + int(keys.max()) - SPAN) // 2
                self.first, self._begun = min(max(first, -(2**63)), 2**63 - 1 - SPAN), True
            # Below the first, a place wraps around to a large one.
            places = (keys - self.first).view(np.uint64)
            near = places < SPAN
            whole = bool(near.all())
            some = places if whole else places[near]
            np.add.at(self.sizes, some, 1)
            for sums, name in zip(self.sums, self.columns, strict=True):
                values = batch[name].to_numpy()
                np.add.at(sums, some, values if whole else values[near])
        return None if whole else batch.filter(pa.array(~near))

    def totals(self) -> pa.Table:
        """Keys, rows and sums."""
        there = np.flatnonzero(self.sizes)
        found = [there + self.first, *(values[there] for values in (self.sizes, *self.sums))]
        return pa.table(found, [f"{i}" for i in range(len(found))])


def _join(clustering: Clustering, folder: Path, number: int) -> Joined:
    """Join a part from its file, and let go of that."""
    path = folder / f"{number}"
    with pa.memory_map(str(path)) as file:
        joined = clustering.join(number, [file.read_buffer()])
    path.unlink()
    return joined


def _flow(task: Batches, pieces: Sequence[Piece], progress: Progress) -> Iterator[pa.RecordBatch]:
    """What the task gives for all pieces, from threads that keep a little ahead."""

    def run(piece: Piece) -> Iterable[pa.RecordBatch]:
        # A CSV file may be too large to hold, and Arrow reads it on several cores by itself.
        return task(piece) if piece.is_csv else list(task(piece))

    for batches in on_threads(run, pieces, progress):
        yield from batches


def _collect(expression: Any, end: Callable[[], None]) -> Iterator[pa.Table]:
    """The rows of an expression, or one sentence: what DuckDB says may quote a sum."""
    duckdb, backend = need("duckdb", "engines"), expression.get_backend()
    kinds = expression.schema().to_pyarrow()
    # So that there is a table also where no row is.
    yield kinds.empty_table()

    def rows() -> Iterator[pa.Table]:
        for batch in backend.con.execute(backend.compile(expression)).to_arrow_reader():
            yield pa.Table.from_batches([batch]).cast(kinds)

    try:
        yield from apart(rows(), end)
        return
    except (duckdb.OutOfMemoryException, duckdb.ConversionException, pa.ArrowInvalid):
        rule = "small enough to sum exactly, and few enough for memory"
    except (duckdb.Error, RuntimeError) as error:
        # A task of ours that fails reads what was readable a moment ago.
        rule = "" if "Python exception" in str(error) else "of a type that DuckDB can group"
    if not rule:
        refuse_changed()
    remedy = "Take a larger step, or larger bags; or turn ids into text"
    _check.refuse("bags", rule, "others", remedy)
