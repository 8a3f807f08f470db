"""A cell: table, bags, privacy, seed, method; and what a method may see of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bagwise.bags import Bags
from bagwise.benchmark.tables import Table
from bagwise.release.mechanism import Mechanism

FloatArray: TypeAlias = NDArray[np.float64]
BAGS = ("4", "16", "64", "256", "natural")
PRIVACY: dict[str, float] = {"none": math.inf, "epsilon 1": 1.0}
#: where a cell is of a table and a seed alone
ALL = "all"
TEST_SHARE = 0.25
#: fewer bags than this are no table to learn from
FEWEST_BAGS = 4


@dataclass(frozen=True, order=True)
class Cell:
    """One fit: the name of each of its parts."""

    table: str
    bags: str
    privacy: str
    seed: int
    method: str


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method may see: rows, means of their bags, and rows to score.

    Attributes
    ----------
    raw, raw_test : DataFrame
        Features, with text.
    numbers, numbers_test : ndarray
        The same as numbers of one scale.
    means : ndarray of shape (n_bags,)
    bags : Bags
    noise_scale : ndarray of shape (n_bags,) or None
        Scale of the noise on each mean, where there is any.
    """

    task: str
    raw: Any
    numbers: FloatArray
    raw_test: Any
    numbers_test: FloatArray
    means: FloatArray
    bags: Bags
    noise_scale: FloatArray | None
    seed: int


@dataclass(frozen=True, eq=False)
class Split:
    """A table parted by a seed into rows to learn from and rows to score."""

    table: Table
    seed: int

    @cached_property
    def rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Training and test rows."""
        places = np.arange(self.table.n_rows)
        train, test = train_test_split(places, test_size=TEST_SHARE, random_state=self.seed)
        return train, test

    @cached_property
    def raw(self) -> tuple[Any, Any]:
        """Features of both, with text."""
        train, test = (self.table.X.iloc[rows].reset_index(drop=True) for rows in self.rows)
        return train, test

    @cached_property
    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """The same as numbers: scikit-learn's usual recipe, learnt from the training rows."""
        recipe = make_column_transformer(
            (
                make_pipeline(SimpleImputer(), StandardScaler()),
                make_column_selector(dtype_include="float"),
            ),
            (
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                make_column_selector(dtype_exclude="float"),
            ),
        )
        train, test = self.raw
        return recipe.fit_transform(train), recipe.transform(test)

    @property
    def responses(self) -> FloatArray:
        """Responses of the training rows."""
        return self.table.y[self.rows[0]]

    def score(self, predictions: Any) -> float:
        """R² or area under the curve on the test rows."""
        measure = r2_score if self.table.task == "regression" else roc_auc_score
        return float(measure(self.table.y[self.rows[1]], predictions))

    def draw(self, bags: str) -> Bags:
        """Bags of the training rows: random ones of a size, or natural ones."""
        if bags != "natural":
            return Bags.random(len(self.rows[0]), int(bags), random_state=self.seed)
        return Bags.from_groups(self.raw[0], list(self.table.bag_columns or ()))

    def problem(self, bags: str, privacy: str) -> Problem:
        """What a method may see of a cell. Every method sees the same bags and the same noise."""
        drawn, noise = self.draw(bags), None
        means = drawn.mean(self.responses)
        if math.isfinite(PRIVACY[privacy]):
            # Of a known seed, so that a run can be repeated: this is the noise, not the promise.
            mechanism = replace(
                Mechanism.of(self.table.bounds, PRIVACY[privacy]),
                test_seed=crc32(f"{self.table.name} {bags} {self.seed}".encode()),
            )
            sums = drawn.sum(mechanism.quantise(self.responses))
            means = mechanism.noisy_means(sums, drawn.sizes)
            noise = mechanism.noise_scales(drawn.sizes)
        (raw, raw_test), (numbers, numbers_test) = self.raw, self.numbers
        return Problem(
            *(self.table.task, raw, numbers, raw_test, numbers_test),
            *(means, drawn, noise, self.seed),
        )


def kinds_of_bags(table: Table, bags: Iterable[str]) -> list[str]:
    """Those bags that a table has: enough of a size, natural ones where there are any."""
    n_train = table.n_rows - math.ceil(TEST_SHARE * table.n_rows)
    return [
        kind
        for kind in bags
        if (table.bag_columns if kind == "natural" else n_train // int(kind) >= FEWEST_BAGS)
    ]


def plan(
    kinds: Mapping[str, Iterable[str]],
    privacy: Iterable[str],
    seeds: Iterable[int],
    methods: Mapping[str, Iterable[str]],
    limits: Iterable[str],
) -> Iterator[Cell]:
    """Cells seed after seed, so that whatever has been fitted when one stops can be compared.

    ``kinds`` has the bags of each table, ``methods`` the methods for it.
    """
    limits, privacy = list(limits), list(privacy)
    for seed in seeds:
        for table in kinds:
            yield from (Cell(table, ALL, ALL, seed, limit) for limit in limits)
        for table, sizes in kinds.items():
            for size in sizes:
                for how in privacy:
                    yield from (Cell(table, size, how, seed, name) for name in methods[table])
