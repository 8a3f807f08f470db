"""The Release: a folder, all that crosses from curator to learner, and no individual response.

    release.json          what was done and what it promises: a `Statement`
    bags.parquet          bag, size, response (noisy mean), noise_scale
    rows.parquet          features and bag, in row groups of whole bags: a file, or a folder of
                          parts where there are many rows; or instead of it
    bag_features.parquet  means of the features over bags; or
    statistics.npz        A, W, c

This module reads such folders and says how they are laid out. It is the learner's: it knows nothing
of how means were made, and trusts no file. Names of files are fixed, nothing in them is executed,
and what does not fit together is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise import _check
from bagwise._progress import Progress, silent
from bagwise.encoding import Encoder, choose_features
from bagwise.row_groups import ROWS as ROWS
from bagwise.row_groups import (
    RowGroup,
    Sums,
    checked,
    find_groups,
    on_cores,
    part_names,
    sum_row_group,
    weighed,
)
from bagwise.statement import Statement
from bagwise.statistics import AggregateStatistics
from bagwise.tables import footer, is_number

FloatArray: TypeAlias = NDArray[np.float64]
STATEMENT, BAGS = "release.json", "bags.parquet"
MEANS, STATISTICS = "bag_features.parquet", "statistics.npz"
#: the file that each choice of features adds
FILES = {"rows": ROWS, "means": MEANS, "statistics": STATISTICS, "none": None}
#: columns of bags.parquet that are not labels of its bags
BAG_COLUMNS = ("bag", "size", "response", "noise_scale")
# A statement is names and numbers; ten thousand long names fit.
LARGEST_STATEMENT = 2**24


@dataclass(frozen=True, eq=False)
class Release:
    """Means over bags with their statement, and the features that came with them.

    Attributes
    ----------
    path : Path
    statement : Statement
    bags : Arrow table with columns bag, size, response, noise_scale
        Where a bag is made by several columns, their values follow.

    Notes
    -----
    Guarantees: a folder that is cut short, altered or made to deceive is refused with one sentence;
    nothing in it is executed. Of rows.parquet the size is checked at once, its rows when they are
    read.
    Limits: a statement is a claim. Whoever writes a folder from nothing can claim what they like.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from bagwise.release import release
    >>> rows = {"age": [31, 45, 28, 60], "precinct": ["a", "a", "b", "b"], "voted": [0, 1, 1, 1]}
    >>> folder = mkdtemp()
    >>> _ = release(rows, response="voted", bags="precinct", epsilon=1.0, bounds=(0, 1),
    ...             ledger=None, out=f"{folder}/released")
    >>> released = Release.load(f"{folder}/released")
    >>> released.statement.epsilon, sorted(released.bags["bag"].to_pylist())
    (1.0, ['a', 'b'])
    >>> X, y, bags = released.training_set()
    >>> X.column_names, len(y), len(bags)
    (['age'], 4, 4)
    """

    path: Path
    statement: Statement
    bags: pa.Table

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Release:
        """Read and check a folder that `bagwise.release.release` wrote."""
        # In full, for workers elsewhere have a working folder of their own.
        folder = Path(path).resolve()
        if not folder.is_dir():
            got = f"got {str(folder)!r}, which is none"
            raise FileNotFoundError(f"path must be a Release folder; {got}. Check it.")
        return checked(folder, lambda: cls._load(folder))

    @classmethod
    def _load(cls, folder: Path) -> Release:
        statement = Statement.from_json(_read(folder / STATEMENT, LARGEST_STATEMENT).decode())
        if statement.features not in FILES:
            raise ValueError("unknown kind of features")
        wanted = {BAGS, FILES[statement.features]} - {None}
        if statement.files.keys() != wanted:
            raise ValueError("files that do not fit the features")
        for name, mark in statement.files.items():
            if file_mark(folder / name) != mark:
                raise ValueError(f"{name} is not as it was written")
        return cls(folder, statement, _read_bags(folder / BAGS, statement))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each bag."""
        return np.asarray(self.bags["size"].to_numpy())

    @cached_property
    def means(self) -> FloatArray:
        """Released response of each bag."""
        return np.asarray(self.bags["response"].to_numpy())

    def batches(self) -> Iterator[tuple[pa.Table, FloatArray, NDArray[Any]]]:
        """Features, mean responses and bag ids of rows, a row group of whole bags at a time."""
        for group in self.row_groups():
            of_row = np.repeat(np.arange(len(group.sizes)), group.sizes)
            yield group.read(), group.means[of_row], table_ids(group.ids, of_row)

    def row_groups(self) -> list[RowGroup]:
        """The row groups with their bags, told apart by their numbers of rows."""
        self._need("rows")

        def read() -> list[RowGroup]:
            schemas = self._schemas()
            if any(s.names != ["bag", *self.statement.columns] for s in schemas):
                raise ValueError("other columns than stated")
            if any(not s.equals(schemas[0]) for s in schemas):
                raise ValueError("parts of different types")
            ids = self.bags["bag"].combine_chunks()
            return find_groups(self.path, ids, self.sizes, self.means)

        return checked(self.path, read)

    def _schemas(self) -> list[pa.Schema]:
        """Columns of each part of rows.parquet."""
        return [footer(self.path / name).schema.to_arrow_schema() for name in part_names(self.path)]

    def encoder(self, columns: Sequence[str] | None = None) -> Encoder:
        """How these features become numbers: text as one column a level.

        By default all of them but those that make the bags.
        """
        chosen = self._choose(columns)
        if self.statement.features == "means":
            return Encoder.learn(self._bag_features().schema, chosen, ())
        self._need("rows")
        schema = checked(self.path, self._schemas)[0]
        text = [name for name in chosen if not is_number(schema.field(name).type)]
        return Encoder.learn(schema, chosen, (group.read(text) for group in self.row_groups()))

    def training_set(
        self, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, FloatArray, NDArray[Any]]:
        """X, y and bags to fit an estimator with: features, the mean of its bag, and the bag.

        X has these columns, by default all but those that make the bags. With features "means"
        there is one entry a bag, which is all that rho = 0 needs when bags have one size;
        `statistics` weighs unequal ones.
        """
        chosen = self._choose(columns)
        if self.statement.features == "means":
            table = self._bag_features().select(chosen)
            return table, self.means, table_ids(self.bags["bag"].combine_chunks(), slice(None))
        tables, means, ids = zip(*self.batches(), strict=True)
        return pa.concat_tables(tables).select(chosen), np.concatenate(means), np.concatenate(ids)

    def _choose(self, columns: Sequence[str] | None) -> list[str]:
        """Features to take, in the order asked for."""
        said = self.statement
        return choose_features(said.columns, said.bag_columns, columns, "the release")

    def statistics(
        self,
        encoder: Encoder | None = None,
        progress: Progress = silent,
        engine: Sums | None = None,
        weights: FloatArray | None = None,
    ) -> AggregateStatistics:
        """A, W, c, as released or summed from what was: every rho, or with "means" rho = 0 alone.

        Rows are read once, a row group at a time on every core, in constant memory. Means of
        features know nothing of what varies within bags: W is 0 then, and all rhos give the fit of
        rho = 0.

        Parameters
        ----------
        encoder : Encoder
            Which features to take, from `encoder`.
        progress : callable
            Wraps the sums of row groups as they come back, to show a bar.
        engine : Engine
            What sums over row groups; by default the cores of this machine. `bagwise.engines.spark`
            has one for a cluster.
        weights : ndarray of shape (n_bags,)
            What a row of each bag weighs, when rows were released; 1 by default.
        """
        if self.statement.features == "statistics":
            if encoder is not None:
                got = "features to choose from sums"
                _check.refuse("features", "all, when sums were released", got, "Leave them out")
            return checked(self.path, self._statistics)
        chosen = self.encoder() if encoder is None else encoder
        if self.statement.features == "means":
            return self._statistics_of_means(chosen)
        add = on_cores if engine is None else engine.sum
        groups = self.row_groups()
        if weights is not None:
            groups = weighed(groups, weights)
        return add(partial(sum_row_group, chosen), groups, progress)

    def _statistics_of_means(self, encoder: Encoder) -> AggregateStatistics:
        """A and c of mean features, with the sizes of bags as weights."""
        X = encoder.encode(self._bag_features())
        n, sizes = self.statement.n_rows, self.sizes
        centre, response = sizes @ X / n, float(sizes @ self.means / n)
        X, y = X - centre, self.means - response
        return AggregateStatistics(
            n_rows=n,
            n_bags=len(X),
            mean=centre,
            response_mean=response,
            between=X.T @ (sizes[:, None] * X),
            within=np.zeros((X.shape[1], X.shape[1])),
            cross=X.T @ (sizes * y),
            response_square=float(sizes @ y**2),
            feature_names=encoder.names,
        )

    def _statistics(self) -> AggregateStatistics:
        """The released sums, when they are of the rows and columns that are stated."""
        found, said = AggregateStatistics.load(self.path / STATISTICS), self.statement
        stated = said.n_rows, said.n_bags, tuple(said.columns)
        if (found.n_rows, found.n_bags, found.feature_names) != stated:
            raise ValueError("sums of other rows than stated")
        mean = self.sizes @ self.means / said.n_rows
        square = self.sizes @ (self.means - mean) ** 2
        if not np.allclose((found.response_mean, found.response_square), (mean, square)):
            raise ValueError("sums of other responses than those of the bags")
        return found

    def _bag_features(self) -> pa.Table:
        """Mean features, a line a bag, in the order of ``bags``."""
        self._need("means")

        def read() -> pa.Table:
            table = pq.read_table(self.path / MEANS)
            if table.column_names != ["bag", *self.statement.columns]:
                raise ValueError("other columns than stated")
            if not table["bag"].combine_chunks().equals(self.bags["bag"].combine_chunks()):
                raise ValueError("other bags than stated")
            return table.drop_columns("bag")

        return checked(self.path, read)

    def _need(self, features: str) -> None:
        """Refuse what this release has no features for."""
        if self.statement.features != features:
            raise ValueError(
                f"the release must hold features={features!r} for this; "
                f"got features={self.statement.features!r}. Ask the curator for them."
            )

    def __repr__(self) -> str:
        s = self.statement
        spent = f"epsilon={s.epsilon:g}" if s.private else "not private"
        return f"Release({s.n_rows} rows in {s.n_bags} bags, {spent}, features={s.features!r})"


def file_mark(path: Path) -> str:
    """What tells that a file is as it was written: its digest, or its size where it is large."""
    if path.name == ROWS:
        parts = part_names(path.parent)
        return f"{sum((path.parent / name).stat().st_size for name in parts)} bytes"
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"no file {path.name}")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def table_ids(ids: pa.Array, of_row: Any) -> NDArray[Any]:
    """Ids of bags as `Bags` takes them, for each place in ``of_row``."""
    values: NDArray[Any] = ids.to_numpy(zero_copy_only=False)
    chosen: NDArray[Any] = values[of_row]
    return chosen


def _read_bags(path: Path, said: Statement) -> pa.Table:
    """The table of bags, when it contradicts neither itself nor the statement."""
    with pq.ParquetFile(path) as file:
        kinds = {field.name: field.type for field in file.schema_arrow}
        labels = said.bag_columns if len(said.bag_columns) > 1 else []
        if list(kinds) != [*BAG_COLUMNS, *labels]:
            _fail("other columns of bags than stated")
        numbers = {"size": pa.int64(), "response": pa.float64(), "noise_scale": pa.float64()}
        if not numbers.items() <= kinds.items() or any(map(pa.types.is_nested, kinds.values())):
            _fail("bags of a wrong type")
        # Different ids do not pack well: more rows than this per byte are made to fill memory.
        if not 0 < file.metadata.num_rows == said.n_bags <= 1000 + 10 * path.stat().st_size:
            _fail("another number of bags than stated")
        bags = file.read()
    if any(column.null_count for column in bags.columns):
        _fail("missing values in bags")
    if _has_twins(bags["bag"]):
        _fail("one bag twice")
    sizes, means, scales = (bags[name].to_numpy() for name in BAG_COLUMNS[1:])
    ends = int(sizes.min()), int(sizes.max())
    safe = ends[1] * len(sizes) < 2**63
    if ends != (said.smallest_bag, said.largest_bag) or not safe or sizes.sum() != said.n_rows:
        _fail("other sizes of bags than stated")
    if not np.isfinite(means).all() or not np.allclose(scales, said.scale * said.step / sizes):
        _fail("impossible responses, or other noise than stated")
    return bags


def _has_twins(ids: pa.ChunkedArray) -> bool:
    """Whether an id is there twice; whole numbers are sorted, which is far quicker than hashing."""
    if not pa.types.is_integer(ids.type):
        return len(pc.unique(ids)) < len(ids)
    values = np.sort(ids.to_numpy())
    return bool((values[1:] == values[:-1]).any())


def _read(path: Path, largest: int) -> bytes:
    """The bytes of a file that is not a link and not larger than it may be."""
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"no file {path.name}")
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{path.name} is too large")
    return data


def _fail(reason: str) -> None:
    raise ValueError(reason)
