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
        r2 = 1 - square / spread if spread > 0 else float("nan")
        return Scores(self.n, float(np.sqrt(square / weight)), absolute / weight, r2)


def encoder_of(model: Any) -> Encoder:
    """How a fitted model takes the columns of a table."""
    found = getattr(model, "encoder_", None)
    if found is not None:
        return found  # type: ignore[no-any-return]
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
    encoder, kept = encoder_of(model), list(keep)
    table.need(kept, "keep")
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
    for table, y, ids in progress(release.batches()):
        groups = Bags(ids)
        predictions = _predictions(model, encoder, table, unknown)
        means.add(groups.mean(y), groups.mean(predictions), groups.sizes)
    return {"bags": means.scores()}


def _predictions(model: Any, encoder: Encoder, batch: pa.Table, unknown: str) -> FloatArray:
    return np.asarray(encoder.encode(batch, unknown) @ model.coef_ + model.intercept_)


def _responses(values: pa.ChunkedArray, name: str) -> FloatArray:
    """Labels of rows, for scores."""
    if not is_number(values.type) or values.null_count:
        got = f"others in column {name!r}"
        _check.refuse("the response", "a number in every row", got, "Drop or convert them")
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
