"""Row groups of a Release: whole bags each, so that all learning is a sum over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bagwise._parallel import on_threads
from bagwise._progress import Progress, silent
from bagwise.encoding import Encoder
from bagwise.statistics import AggregateStatistics, sum_clustered
from bagwise.tables import footer

FloatArray: TypeAlias = NDArray[np.float64]
Found = TypeVar("Found")
ROWS = "rows.parquet"


class Sums(Protocol):
    """An engine, as far as sums go."""

    def sum(
        self,
        task: Callable[[RowGroup], AggregateStatistics],
        groups: Sequence[RowGroup],
        progress: Progress = silent,
    ) -> AggregateStatistics:
        """The sum of what ``task`` gives for each row group."""


@dataclass(frozen=True, eq=False)
class RowGroup:
    """A row group of rows.parquet with the bags in it: all that a worker needs to sum it.

    Attributes
    ----------
    folder : Path
        Of the Release, where the worker can read it.
    file : str
        The part of rows.parquet that it lies in.
    number : int
    ids : Arrow array
    sizes, means : ndarray
        Of its bags, in order.
    weights : ndarray or None
        What a row of each bag weighs, where bags weigh by more than their size.
    """

    folder: Path
    file: str
    number: int
    ids: pa.Array
    sizes: NDArray[np.int64]
    means: FloatArray
    weights: FloatArray | None = None

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Features of its rows, when they are in the bags that are stated."""

        def read() -> pa.Table:
            names = None if columns is None else ["bag", *columns]
            # Mapped, not copied; a row group's pages are let go with its file.
            options = {"memory_map": True, "page_checksum_verification": True}
            path = self.folder / self.file
            with pq.ParquetFile(path, metadata=footer(path), **options) as file:
                table = file.read_row_group(self.number, columns=names, use_threads=False)
            of_row = np.repeat(np.arange(len(self.sizes)), self.sizes)
            if not table["bag"].combine_chunks().equals(self.ids.take(pa.array(of_row))):
                raise ValueError("rows in other bags than stated")
            return table.drop_columns("bag")

        return checked(self.folder, read)

    def average(self, values: FloatArray) -> FloatArray:
        """Averages over its bags of values that it has one row of for each of its rows."""
        sums = np.add.reduceat(values, np.cumsum(self.sizes) - self.sizes, axis=0)
        return np.asarray(sums / self.sizes[:, None])


def sum_row_group(encoder: Encoder, group: RowGroup) -> AggregateStatistics:
    """A, W, c of one row group."""
    X = encoder.rows(group.read(list(encoder.columns)))
    return replace(
        sum_clustered(X, group.means, group.sizes, group.weights), feature_names=encoder.names
    )


def weighed(groups: Sequence[RowGroup], weights: FloatArray) -> list[RowGroup]:
    """The row groups with what a row of each bag weighs."""
    ends = np.cumsum([len(group.sizes) for group in groups])
    parts = np.split(weights, ends[:-1])
    return [replace(group, weights=part) for group, part in zip(groups, parts, strict=True)]


def on_cores(
    task: Callable[[RowGroup], AggregateStatistics],
    groups: Sequence[RowGroup],
    progress: Progress = silent,
) -> AggregateStatistics:
    """The sum of ``task`` over row groups, on every core of this machine, in their order."""
    # One thread of linear algebra to a core that has a row group of its own.
    with threadpool_limits(1):
        return reduce(AggregateStatistics.__add__, on_threads(task, groups, progress))


def part_name(number: int, parts: int) -> str:
    """Where a part of rows.parquet lies in its folder: it is a file, or a folder of several."""
    return ROWS if parts == 1 else f"{ROWS}/part-{number:05d}.parquet"


def part_names(folder: Path) -> list[str]:
    """The parts of rows.parquet, in order; none may be a link, missing, or called otherwise."""
    whole = folder / ROWS
    parts = len(list(whole.iterdir())) if whole.is_dir() and not whole.is_symlink() else 1
    names = [part_name(i, parts) for i in range(parts)]
    if parts == 0 or any((folder / n).is_symlink() or not (folder / n).is_file() for n in names):
        raise ValueError(f"no file {ROWS}, or strange ones in it")
    return names


def find_groups(
    folder: Path, ids: pa.Array, sizes: NDArray[np.int64], means: FloatArray
) -> list[RowGroup]:
    """The row groups with their bags, told apart by their numbers of rows."""
    known = [(name, footer(folder / name)) for name in part_names(folder)]
    places = [(name, i) for name, found in known for i in range(found.num_row_groups)]
    counts = [
        found.row_group(i).num_rows for _, found in known for i in range(found.num_row_groups)
    ]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.concatenate([[0], np.cumsum(counts)])
    bags = np.searchsorted(ends, cuts)
    if cuts[-1] != ends[-1] or not np.array_equal(ends[bags], cuts):
        raise ValueError("a bag in two row groups, or other rows than stated")
    return [
        # Taken, not sliced: a slice would be sent to a worker with all that it is cut from.
        RowGroup(folder, name, i, ids.take(pa.array(np.arange(a, b))), sizes[a:b], means[a:b])
        for (name, i), (a, b) in zip(places, pairwise(bags.tolist()), strict=True)
        if b > a
    ]


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
