"""What a table engine does, and the expressions that every engine runs.

A *task* is a function of one piece of a table, run by whichever worker is free: a thread here, a
process on a cluster. Expressions over what the tasks give are written once, in Ibis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise._extras import need
from bagwise._progress import Progress, silent
from bagwise.engines.cluster import Clustering, Joined
from bagwise.row_groups import RowGroup
from bagwise.statistics import AggregateStatistics
from bagwise.tables import Piece, Table

Item = TypeVar("Item")
Found = TypeVar("Found")
Batches: TypeAlias = Callable[[Piece], Iterable[pa.RecordBatch]]
#: a table of Ibis -> an expression over it
Ask: TypeAlias = Callable[[Any], Any]


class Engine(ABC):
    """Tasks over the pieces of a table, and expressions over what they give.

    ``progress`` wraps results as they come back; it never counts what is only begun.

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
    def map(
        self,
        task: Callable[[Item], Found],
        items: Sequence[Item],
        progress: Progress = silent,
    ) -> Iterable[Found]:
        """What ``task`` gives for each item, in their order."""

    @abstractmethod
    def sum(
        self,
        task: Callable[[RowGroup], AggregateStatistics],
        groups: Sequence[RowGroup],
        progress: Progress = silent,
    ) -> AggregateStatistics:
        """The sum of what ``task`` gives for each row group."""

    @abstractmethod
    def cluster(
        self, clustering: Clustering, pieces: Sequence[Piece], progress: Progress = silent
    ) -> Joined:
        """Write rows.parquet: every piece split, every part joined; returns what is in it."""

    @abstractmethod
    def query(
        self,
        task: Batches,
        pieces: Sequence[Piece],
        schema: pa.Schema,
        ask: Ask,
        progress: Progress = silent,
    ) -> Iterator[pa.Table]:
        """What is asked of the rows that ``task`` gives for all pieces, some rows at a time.

        They are of the types that Ibis says.
        """

    def totals(
        self,
        task: Batches,
        pieces: Sequence[Piece],
        schema: pa.Schema,
        keys: Sequence[str],
        progress: Progress = silent,
        **how: str,
    ) -> pa.Table:
        """For each combination of keys its number of rows, and sums or extremes of whole columns.

        Sums of integers are exact, so every engine gives the same to the last bit.

        Parameters
        ----------
        task : callable
            Gives the keys and columns of a piece.
        pieces : sequence of Piece
        schema : Arrow schema
            Of what the task gives.
        keys : sequence of str
        progress : callable
        **how : {"sum", "min", "max"}
            For each result ``column_how`` the column, a whole number, and what becomes of it.
        """

        def ask(rows: Any) -> Any:
            made = {
                name: getattr(rows[name.rpartition("_")[0]], way)() for name, way in how.items()
            }
            return rows.group_by(list(keys)).aggregate(size=rows.count(), **made)

        return pa.concat_tables(self.query(task, pieces, schema, ask, progress))

    def bag_totals(
        self, task: Batches, pieces: Sequence[Piece], n_bags: int, progress: Progress = silent
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and sum of each of the bags 0, …, n − 1, where the task gives (bag, steps)."""
        schema = pa.schema([("bag", pa.int64()), ("steps", pa.int64())])
        found = self.totals(task, pieces, schema, ["bag"], progress, steps_sum="sum")
        sizes, sums = np.zeros(n_bags, dtype=np.int64), np.zeros(n_bags, dtype=np.int64)
        bags = found["bag"].to_numpy()
        sizes[bags], sums[bags] = found["size"].to_numpy(), found["steps_sum"].to_numpy()
        return sizes, sums

    def first_places(
        self,
        task: Batches,
        pieces: Sequence[Piece],
        schema: pa.Schema,
        most: int,
        progress: Progress = silent,
    ) -> Iterator[NDArray[np.int64]]:
        """The ``most`` lowest values of column "place" for each value of the column "user"."""
        ibis = need("ibis", "engines")

        def ask(rows: Any) -> Any:
            window = ibis.window(group_by="user", order_by="place")
            ranked = rows.mutate(rank=ibis.row_number().over(window))
            return ranked.filter(ranked.rank < most).select("place")

        for part in self.query(task, pieces, schema, ask, progress):
            yield part["place"].to_numpy()
