"""What every estimator takes and how it is scored: scikit-learn's contract, with bags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils.validation import _num_samples, validate_data

from bagwise import _check
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.released import Release
from bagwise.statistics import read_bags

FloatArray: TypeAlias = NDArray[np.float64]


class TakesBags:
    """Rows, bag means and bags, checked; scores of bag means."""

    _accept_sparse: ClassVar[str | bool] = False
    _y_numeric: ClassVar[bool] = True
    _finite: ClassVar[bool | str] = True

    def _validate(self, X: Any, y: Any, bags: Any, reset: bool) -> tuple[Any, FloatArray, Bags]:
        """Rows, bag means and bags, or one sentence about what is wrong with them."""
        n_rows = _num_samples(X)
        if bags is None and not isinstance(y, Mapping):
            X, y = self._validate_features(X, reset, y)
            return X, *read_bags(y, None, n_rows)
        # What can fail without touching the model goes first; an empty X has the better sentence.
        if n_rows:
            y, bags = read_bags(y, bags, n_rows)
        return self._validate_features(X, reset), y, bags

    def _validate_features(self, X: Any, reset: bool, y: Any = "no_validation") -> Any:
        """X (and y) as scikit-learn checks them, with a remedy for text."""
        options: dict[str, Any] = {"accept_sparse": self._accept_sparse, "reset": reset}
        options |= {"dtype": (np.float64, np.float32), "ensure_all_finite": self._finite}
        if not isinstance(y, str):
            options["y_numeric"] = self._y_numeric
        try:
            return validate_data(self, X, y, **options)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            remedy = "Encode text columns first, with sklearn.preprocessing.OneHotEncoder, say"
            raise ValueError(f"X must be numeric; got text. {remedy}.") from None

    def score(self, X: Any, y: Any, bags: Any = None, sample_weight: Any = None) -> float:
        """R² of bag means, or of rows when bags is None; X, y and bags as in `fit`.

        A bag weighs as much as its rows: 1 each, or their ``sample_weight``.
        """
        predictions = self.predict(X)  # type: ignore[attr-defined]
        means, groups = read_bags(y, bags, len(predictions))
        weights = groups.sizes if sample_weight is None else groups.sum(sample_weight)
        return float(r2_score(means, groups.mean(predictions), sample_weight=weights))


@contextmanager
def whole_or_not(estimator: Any) -> Iterator[None]:
    """A fit that fails leaves the estimator as it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def source_of(X: Any, y: Any, bags: Any, noise_scale: Any = None) -> Release | BagTable | None:
    """A Release or a table in files, when X is one; None for rows in memory."""
    named = isinstance(X, str | PathLike) and y is not None and bags is not None
    if not (named or isinstance(X, Release | BagTable | str | PathLike)):
        return None
    if noise_scale is not None:
        got = "one beside a Release or a table in files"
        _check.refuse("noise_scale", "left out", got, "A Release has its own")
    if named:
        return BagTable(X, y, bags)
    if y is not None or bags is not None:
        got = "one beside a Release, or without the other"
        _check.refuse("y and bags", "both left out, or both given", got, "A Release has them")
    return Release.load(X) if isinstance(X, str | PathLike) else X
