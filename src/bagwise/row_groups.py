"""Row groups of a Release: whole bags each, so that all learning is a sum over them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bagwise.encoding import Encoder
from bagwise.statistics import AggregateStatistics, sum_clustered

FloatArray: TypeAlias = NDArray[np.float64]
#: (task on a row group, row groups) -> the sum of what the task gives
Engine: TypeAlias = Callable[
    [Callable[["RowGroup"], AggregateStatistics], Iterable["RowGroup"]], AggregateStatistics
]
Found = TypeVar("Found")
ROWS = "rows.parquet"


@dataclass(frozen=True, eq=False)
class RowGroup:
    """A row group of rows.parquet with the bags in it: all that a worker needs to sum it.

    Attributes
    ----------
    folder : Path
        Of the Release, where the worker can read it.
    number : int
    ids : Arrow array
    sizes, means : ndarray
        Of its bags, in order.
    """

    folder: Path
    number: int
    ids: pa.Array
    sizes: NDArray[np.int64]
    means: FloatArray

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Features of its rows, when they are in the bags that are stated."""

        def read() -> pa.Table:
            names = None if columns is None else ["bag", *columns]
            # Mapped, not copied; a row group's pages are let go with its file.
            options = {"memory_map": True, "page_checksum_verification": True}
            known = footer(self.folder)
            with pq.ParquetFile(self.folder / ROWS, metadata=known, **options) as file:
                table = file.read_row_group(self.number, columns=names, use_threads=False)
            of_row = np.repeat(np.arange(len(self.sizes)), self.sizes)
            if not table["bag"].combine_chunks().equals(self.ids.take(pa.array(of_row))):
                raise ValueError("rows in other bags than stated")
            return table.drop_columns("bag")

        return checked(self.folder, read)


def sum_row_group(encoder: Encoder, group: RowGroup) -> AggregateStatistics:
    """A, W, c of one row group."""
    X = encoder.rows(group.read(list(encoder.columns)))
    return replace(sum_clustered(X, group.means, group.sizes), feature_names=encoder.names)


def on_cores(
    task: Callable[[RowGroup], AggregateStatistics], groups: Iterable[RowGroup]
) -> AggregateStatistics:
    """The sum of ``task`` over row groups, on every core of this machine, in their order."""
    cores = os.cpu_count() or 1
    totals: list[AggregateStatistics] = []

    def add(part: AggregateStatistics) -> None:
        totals[:] = [totals[0] + part] if totals else [part]

    # One thread of linear algebra to a core that has a row group of its own.
    with threadpool_limits(1), ThreadPoolExecutor(cores) as pool:
        waiting: deque[Future[AggregateStatistics]] = deque()
        for group in groups:
            waiting.append(pool.submit(task, group))
            if len(waiting) > 2 * cores:
                add(waiting.popleft().result())
        for left in waiting:
            add(left.result())
    return totals[0]


@lru_cache(maxsize=16)
def _footer_at(path: Path, size: int, changed: int) -> pq.FileMetaData:
    return pq.read_metadata(path)


def footer(folder: Path) -> pq.FileMetaData:
    """Where rows.parquet keeps what; it grows with the file, so it is read once."""
    path = folder / ROWS
    state = path.stat()
    return _footer_at(path, state.st_size, state.st_mtime_ns)


def checked(folder: Path, task: Callable[[], Found]) -> Found:
    """What ``task`` reads, or one sentence when the folder is not what `release` writes."""
    try:
        return task()
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
        MemoryError,
        OSError,
        pa.ArrowException,
    ) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(
            f"path must be a whole Release folder; got {str(folder)!r} ({reason}). "
            "Ask the curator for it again."
        ) from error
