"""What a model says of each bag, beside what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise._progress import Progress, silent
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.information import released_noise
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.streaming import encoder_of
from bagwise.released import Release

FloatArray: TypeAlias = NDArray[np.float64]
Source: TypeAlias = Release | BagTable
# Numbers that are encoded at a time.
BLOCK = 2**22


@dataclass(frozen=True, eq=False)
class BagFit:
    """Bags with their known and their predicted means.

    Attributes
    ----------
    sizes : ndarray of shape (n_bags,)
    means, fitted : ndarray of shape (n_bags,)
        Responses as released, and predictions averaged over the rows of each bag.
    noise : ndarray of shape (n_bags,)
        Laplace scale of the noise on each mean; 0 where there is none.
    """

    sizes: NDArray[np.int64]
    means: FloatArray
    fitted: FloatArray
    noise: FloatArray

    @property
    def added(self) -> FloatArray:
        """2 k_a b_a²: what the noise adds to size times the squared error of each bag."""
        return np.asarray(2 * self.sizes * self.noise**2)


def bag_fit(model: Any, source: Source, progress: Progress = silent) -> BagFit | None:
    """The bags of a Release or table under a model, in their order; None where no row is known."""
    noise = released_noise(source)
    noise = np.zeros(len(source.sizes)) if noise is None else noise
    fitted = _fitted(model, source, progress)
    return None if fitted is None else BagFit(source.sizes, source.means, fitted, noise)


def _fitted(model: Any, source: Source, progress: Progress) -> FloatArray | None:
    """Mean prediction of each bag."""
    kind = features_of(source)
    columns = list(encoder_of(model).columns)
    if kind == "statistics":
        return None
    if kind == "means":
        if not isinstance(model, AggregateLinearRegression):
            remedy = "Ask for a Release with rows"
            _check.refuse("the model", "linear for a Release without rows", "another", remedy)
        # A linear model predicts the mean of a bag from the mean of its features.
        return predicted(model, source.training_set(columns)[0])  # type: ignore[union-attr]
    groups = source.row_groups()
    tables = (g.read(columns) for g in groups)
    parts = [
        g.average(predicted(model, table)[:, None])[:, 0]
        for g, table in progress(zip(groups, tables, strict=True), len(groups))
    ]
    return np.concatenate(parts)


def features_of(source: Source) -> str:
    """What is known of features: rows, means or statistics."""
    return source.statement.features if isinstance(source, Release) else "rows"


def predicted(model: Any, table: pa.Table) -> FloatArray:
    """Predicted means of rows, encoded a block at a time."""
    rows = encoder_of(model).rows(table, "ignore")
    step = max(1, BLOCK // max(rows.shape[1], 1))
    found = [model._forward(rows[i : i + step]) for i in range(0, rows.shape[0], step)]
    if found[0].shape[1] > 1:
        got = f"{found[0].shape[1]} classes"
        _check.refuse("the model", "one of a response or of two classes", got, "Inspect in Python")
    return np.concatenate(found)[:, 0]


def some_bags(source: Source, columns: list[str], most: int) -> tuple[pa.Table, NDArray[np.intp]]:
    """Rows of whole bags drawn at random, about ``most`` of them, and the numbers of those bags.

    The draw is always the same; all bags are taken where they have no more rows than that.
    """
    order = np.random.default_rng(0).permutation(len(source.sizes))
    count = max(2, int(np.searchsorted(np.cumsum(source.sizes[order]), most, side="right")))
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[:count]] = True
    tables, first = [], 0
    for group in source.row_groups():
        here = chosen[first : first + len(group.sizes)]
        first += len(group.sizes)
        if here.any():
            tables.append(group.read(columns).filter(pa.array(np.repeat(here, group.sizes))))
    return pa.concat_tables(tables), np.flatnonzero(chosen)
