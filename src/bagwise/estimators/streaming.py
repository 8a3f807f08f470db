"""Predictions and scores over tables that need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise.bags import Bags
from bagwise.encoding import Encoder
from bagwise.released import Release
from bagwise.statistics import BLOCK
from bagwise.tables import Table, is_number

FloatArray: TypeAlias = NDArray[np.float64]
Progress: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Scores:
    """How well predictions fit.

    Attributes
    ----------
    n : int
        Rows, or bags.
    rmse, mae, r2 : float
        Of rows; for bags, of their means, a bag weighing as much as its rows.
    """

    n: int
    rmse: float
    mae: float
    r2: float


class _Sums:
    """Sums from which scores are made, about a first guess at the mean so that no digit is lost."""

    def __init__(self) -> None:
        self.n, self.totals, self.near = 0, np.zeros(5), 0.0

    def add(self, y: FloatArray, predictions: FloatArray, weights: Any = None) -> None:
        """Take in responses and what was predicted for them."""
        if not self.n:
            self.near = float(y.mean())
        w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
        error, about = y - predictions, y - self.near
        terms = (np.ones(len(y)), error**2, np.abs(error), about, about**2)
        self.totals += [float(w @ term) for term in terms]
        self.n += len(y)

    def scores(self) -> Scores:
        """The scores of what was taken in."""
        weight, square, absolute, about, about_square = self.totals
        spread = about_square - about**2 / weight
        # Where nothing varies, scikit-learn's convention.
        r2 = 1 - square / spread if spread > 0 else float(square == 0)
        return Scores(self.n, float(np.sqrt(square / weight)), absolute / weight, r2)


def csv_types(model: Any, response: str | None = None, keep: Iterable[str] = ()) -> dict[str, Any]:
    """Types of CSV columns that need no guess: numbers of the model, and text as it stands."""
    types = dict.fromkeys(keep, pa.string())
    for name, levels in encoder_of(model).columns.items():
        types[name] = pa.float64() if levels is None else pa.string()
    return types if response is None else types | {response: pa.float64()}


def encoder_of(model: Any) -> Encoder:
    """How a fitted model takes the columns of a table."""
    found: Encoder | None = getattr(model, "encoder_", None)
    if found is not None:
        return found
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        got = "one fitted on unnamed columns"
        _check.refuse("the model", "one that knows its columns", got, "Fit it on a table")
    return Encoder(dict.fromkeys(names))


def predict_table(
    model: Any, table: Table, keep: Iterable[str] = (), unknown: str = "refuse"
) -> Iterator[pa.Table]:
    """The columns to keep and a column ``prediction``, a batch at a time in the table's order."""
    _check.choice("unknown", unknown, ("refuse", "ignore"))
    encoder, kept = encoder_of(model), list(dict.fromkeys(keep))
    table.need(kept, "keep")
    if "prediction" in kept:
        _check.refuse("keep", "named otherwise than 'prediction'", "it", "Rename that column")
    table.need(list(encoder.columns), "features")
    for batch in table.batches(list(dict.fromkeys([*encoder.columns, *kept]))):
        predictions = _predictions(model, encoder, batch, unknown)
        yield batch.select(kept).append_column("prediction", [predictions])


def evaluate_table(
    model: Any,
    table: Table,
    response: str,
    bags: str | None = None,
    unknown: str = "refuse",
    progress: Progress = iter,
) -> dict[str, Scores]:
    """Scores of rows, and of bags where a column makes them."""
    _check.choice("unknown", unknown, ("refuse", "ignore"))
    encoder, extra = encoder_of(model), [response, *([] if bags is None else [bags])]
    table.need(extra, "response and bags")
    table.need(list(encoder.columns), "features")
    rows = _Sums()
    of_bags: dict[Any, Any] = {}
    for batch in progress(table.batches(list(dict.fromkeys([*encoder.columns, *extra])))):
        y = _responses(batch[response], response)
        predictions = _predictions(model, encoder, batch, unknown)
        rows.add(y, predictions)
        if bags is not None:
            groups = Bags(batch[bags])
            sums = groups.sum(np.column_stack([np.ones(len(y)), y, predictions]))
            for bag, part in zip(groups.ids.tolist(), sums, strict=True):
                of_bags[bag] = of_bags.get(bag, 0.0) + part
    if not rows.n:
        _check.refuse("the table", "of at least one row", "none", "Check the files")
    found = {"rows": rows.scores()}
    if bags is not None:
        sizes, y, predictions = np.array(list(of_bags.values())).T
        means = _Sums()
        means.add(y / sizes, predictions / sizes, sizes)
        found["bags"] = means.scores()
    return found


def evaluate_release(
    model: Any, release: Release, unknown: str = "refuse", progress: Progress = iter
) -> dict[str, Scores]:
    """Scores of the released means of bags, whose noise is part of the error."""
    _check.choice("unknown", unknown, ("refuse", "ignore"))
    encoder, means = encoder_of(model), _Sums()
    if release.statement.features == "means":
        # A linear model predicts the mean of a bag from the mean of its features.
        table, y, _ = release.training_set()
        means.add(y, _predictions(model, encoder, table, unknown), release.sizes)
        return {"bags": means.scores()}
    for table, y, ids in progress(release.batches()):
        groups = Bags(ids)
        predictions = _predictions(model, encoder, table, unknown)
        means.add(groups.mean(y), groups.mean(predictions), groups.sizes)
    return {"bags": means.scores()}


def _predictions(model: Any, encoder: Encoder, batch: pa.Table, unknown: str) -> FloatArray:
    """Predictions for a batch, encoded a block at a time."""
    rows = encoder.rows(batch, unknown)
    step = max(1, BLOCK // rows.shape[1])
    blocks = (slice(start, start + step) for start in range(0, rows.shape[0], step))
    return np.concatenate([rows[block] @ model.coef_ + model.intercept_ for block in blocks])


def _responses(values: pa.ChunkedArray, name: str) -> FloatArray:
    """Labels of rows, for scores."""
    if is_number(values.type) and not values.null_count:
        numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
        if np.isfinite(numbers).all():
            return numbers
    got = f"others in column {name!r}"
    _check.refuse("the response", "a number in every row", got, "Drop or convert them")
