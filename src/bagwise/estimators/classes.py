"""What every classifier shares: shares of classes in bags, labels of rows, and scores of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, column_or_1d

from bagwise import _check
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.contract import FloatArray, TakesBags
from bagwise.estimators.information import released_noise
from bagwise.released import Release
from bagwise.statement import Statement
from bagwise.statistics import read_bags


class Classifies(TakesBags, ClassifierMixin):
    """Reads shares and labels; predicts classes from `_means`, one column for two of them."""

    _y_numeric: ClassVar[bool] = False

    def _validate_classes(
        self, X: Any, y: Any, bags: Any, noisy: bool = False
    ) -> tuple[Any, FloatArray, Bags]:
        """Rows, shares of shape (m, K) (of class 1 alone when there are two), and bags."""
        if bags is None and not isinstance(y, Mapping):
            X, y = self._validate_features(X, True, y)
            check_classification_targets(y)
            self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
            _refuse_one_class(len(self.classes_))
            shares, groups = np.eye(len(self.classes_))[codes], Bags(np.arange(X.shape[0]))
        else:
            n_rows = _num_samples(X)
            if not n_rows:
                self._validate_features(X, True)
            shares, groups = read_shares(y, bags, n_rows, noisy)
            _refuse_one_class(int((shares.max(axis=0) > 0).sum()))
            self.classes_ = np.array(getattr(y, "columns", range(shares.shape[1])))
            X = self._validate_features(X, True)
        return X, shares[:, 1:] if shares.shape[1] == 2 else shares, groups

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class for each row, shape (n_rows, n_classes)."""
        found = np.clip(self._means(X), 0, 1)
        return np.column_stack([1 - found, found]) if found.shape[1] == 1 else found

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        found = self.predict_proba(X)
        return np.asarray(self.classes_[np.argmax(found, axis=1)])

    def score(self, X: Any, y: Any, bags: Any = None, sample_weight: Any = None) -> float:
        """Accuracy of rows; with bags, the share of the bag-level log loss that is explained.

        That is 1 − L / L₀, where L₀ has every bag at the overall shares, both less the loss of the
        shares themselves: 1 is perfect, 0 is no better than the overall shares. X, y and bags as in
        `fit`.
        """
        if bags is None:
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        predictions = self.predict_proba(X)
        shares, groups = read_shares(y, bags, len(predictions))
        if shares.shape[1] != predictions.shape[1]:
            got = f"{shares.shape[1]} for {predictions.shape[1]}"
            _check.refuse("y", "the shares of all classes", got, "Add those that lack")
        weights = groups.sizes if sample_weight is None else groups.sum(sample_weight)
        whole = np.broadcast_to(weights @ shares / weights.sum(), shares.shape)
        found, known, least = (
            float(_log_loss(shares, p) @ weights) for p in (groups.mean(predictions), whole, shares)
        )
        return 1 - (found - least) / max(known - least, 1e-12)


def read_shares(y: Any, bags: Any, n_rows: int, noisy: bool = False) -> tuple[FloatArray, Bags]:
    """Shares of all classes in each bag, shape (m, K), and the bags; noisy ones may be any."""
    columns = None
    if not isinstance(y, Mapping) and getattr(y, "ndim", 2) == 2:
        table = np.asarray(y)
        columns = table.T if table.ndim == 2 else None
    if columns is None:
        share, groups = read_bags(y, bags, n_rows)
        shares = np.column_stack([1 - share, share])
    else:
        groups = bags if isinstance(bags, Bags) else Bags(bags)
        shares = np.column_stack([read_bags(column, groups, n_rows)[0] for column in columns])
    if noisy:
        return shares, groups
    _check_shares(shares)
    if not np.allclose(shares.sum(axis=1), 1):
        got = "shares of classes that do not add up to 1"
        _check.refuse("y", "the shares of all classes", got, "Add the one that lacks")
    return shares, groups


def released_shares(release: Release | BagTable, clip: bool = True) -> FloatArray:
    """The share of class 1 in each bag of a Release or a table.

    Noise leads past the ends, where the log loss has no minimum: noisy shares are clipped.
    """
    if isinstance(release, Release):
        _check_bounds(release.statement)
    _refuse_one_class(2 - (release.means.max() <= 0) - (release.means.min() >= 1))
    if released_noise(release) is None:
        _check_shares(release.means)
        return release.means
    return np.clip(release.means, 0, 1) if clip else release.means


def _refuse_one_class(found: int) -> None:
    if found < 2:
        _check.refuse("y", "of at least two classes", "one class", "Nothing is to be learnt")


def _check_bounds(said: Statement) -> None:
    """Refuse a release of a response that is no class: clipped to [0, 1] it would mean nothing."""
    if said.low < 0 or said.high > 1:
        got = f"a release of {said.response!r} from {said.low:g} to {said.high:g}"
        remedy = "Fit a regression; or ask for a release of 0 and 1 with those bounds"
        _check.refuse("shares of a class", "within [0, 1]", got, remedy)


def _check_shares(shares: FloatArray) -> None:
    if shares.min() < 0 or shares.max() > 1:
        got = "others"
        _check.refuse("y", "shares from 0 to 1", got, "Divide counts by the size of the bag")


def _log_loss(y: FloatArray, p: FloatArray) -> FloatArray:
    """−Σ_c y_c log p_c of each bag."""
    return np.asarray(-(y * np.log(np.clip(p, 1e-7, 1))).sum(axis=1))
