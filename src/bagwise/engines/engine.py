"""What a table engine does, and the expressions that every engine runs.

A *task* is a function of one piece of a table, run by whichever worker is free: a thread here, a
process on a cluster. Expressions over what the tasks give are written once, in Ibis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise._extras import need
from bagwise.engines.cluster import Clustering
from bagwise.row_groups import RowGroup
from bagwise.statistics import AggregateStatistics
from bagwise.tables import Piece, Table

Item = TypeVar("Item")
Found = TypeVar("Found")
Batches: TypeAlias = Callable[[Piece], Iterable[pa.RecordBatch]]


class Engine(ABC):
    """Tasks over the pieces of a table, and expressions over what they give.

    Attributes
    ----------
    package : str
        What runs the expressions.
    """

    package: str

    @abstractmethod
    def check(self, table: Table) -> None:
        """Refuse a table with responses that it cannot read, or could not keep to itself."""

    @abstractmethod
    def map(self, task: Callable[[Item], Found], items: Iterable[Item]) -> Iterable[Found]:
        """What ``task`` gives for each item, in their order."""

    @abstractmethod
    def sum(
        self, task: Callable[[RowGroup], AggregateStatistics], groups: Iterable[RowGroup]
    ) -> AggregateStatistics:
        """The sum of what ``task`` gives for each row group."""

    @abstractmethod
    def cluster(self, clustering: Clustering, pieces: Iterable[Piece]) -> int:
        """Write rows.parquet: every piece split, every part joined; returns the rows in it."""

    @abstractmethod
    def table(
        self, task: Batches, pieces: Iterable[Piece], schema: pa.Schema
    ) -> AbstractContextManager[Any]:
        """The rows that ``task`` gives for all pieces, as a table of Ibis."""

    @abstractmethod
    def collect(self, expression: Any) -> Iterator[pa.Table]:
        """The rows of an expression of Ibis, some at a time, of the types that Ibis says."""

    def totals(
        self,
        task: Batches,
        pieces: Iterable[Piece],
        schema: pa.Schema,
        keys: Sequence[str],
        **how: str,
    ) -> pa.Table:
        """For each combination of keys its number of rows, and sums or extremes of whole columns.

        Sums of integers are exact, so every engine gives the same to the last bit.

        Parameters
        ----------
        task : callable
            Gives the keys and columns of a piece.
        pieces : iterable of Piece
        schema : Arrow schema
            Of what the task gives.
        keys : sequence of str
        **how : {"sum", "min", "max"}
            For each result ``column_how`` the column, a whole number, and what becomes of it.
        """
        with self.table(task, pieces, schema) as rows:
            made = {
                name: getattr(rows[name.rpartition("_")[0]], way)() for name, way in how.items()
            }
            found = rows.group_by(list(keys)).aggregate(size=rows.count(), **made)
            return pa.concat_tables(self.collect(found))

    def bag_totals(
        self, task: Batches, pieces: Iterable[Piece], n_bags: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and sum of each of the bags 0, …, n − 1, where the task gives (bag, steps)."""
        schema = pa.schema([("bag", pa.int64()), ("steps", pa.int64())])
        found = self.totals(task, pieces, schema, ["bag"], steps_sum="sum")
        sizes, sums = np.zeros(n_bags, dtype=np.int64), np.zeros(n_bags, dtype=np.int64)
        bags = found["bag"].to_numpy()
        sizes[bags], sums[bags] = found["size"].to_numpy(), found["steps_sum"].to_numpy()
        return sizes, sums

    def first_places(
        self, task: Batches, pieces: Iterable[Piece], schema: pa.Schema, most: int
    ) -> Iterator[NDArray[np.int64]]:
        """The ``most`` lowest values of column "place" for each value of the column "user"."""
        ibis = need("ibis", "engines")
        with self.table(task, pieces, schema) as rows:
            window = ibis.window(group_by="user", order_by="place")
            ranked = rows.mutate(rank=ibis.row_number().over(window))
            first = ranked.filter(ranked.rank < most).select("place")
            for part in self.collect(first):
                yield part["place"].to_numpy()
