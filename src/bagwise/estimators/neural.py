"""Neural networks from bags, with scikit-learn's contract. Needs `bagwise[neural]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, column_or_1d

from bagwise import _check
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.contract import TakesBags, source_of, whole_or_not
from bagwise.estimators.network import FloatArray, Network, OwnNetwork, Perceptron
from bagwise.released import Release
from bagwise.statistics import read_bags


class _Regressor(TakesBags, RegressorMixin, Network):
    def fit(self, X: Any, y: Any = None, bags: Any = None) -> Self:
        """Fit from rows and the means of their bags, from a Release, or from a table in files.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
            Or a Release or its path, without y and bags; or the path of a table, with the names of
            its columns for both.
        y : one mean a row, or a mapping or Series from bag id to mean
        bags : one id a row, or Bags; None makes every row its own bag
        """
        self._check_parameters()
        source = source_of(X, y, bags)
        if source is not None:
            return self.fit_release(source)
        with whole_or_not(self):
            self.__dict__.pop("encoder_", None)
            X, means, groups = self._validate(X, y, bags, reset=True)
            self._fit(X, means[:, None], groups)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted response of each row, shape (n_rows,)."""
        found: FloatArray = self._means(X)[:, 0]
        return found


class _Classifier(TakesBags, ClassifierMixin, Network):
    _link: ClassVar[str] = "sigmoid"
    _loss: ClassVar[str] = "log"
    _y_numeric: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None, bags: Any = None) -> Self:
        """Fit from rows and the shares of classes in their bags, or from labels of rows.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
            Or a Release or its path, without y and bags; or the path of a table, with the names of
            its columns for both. Noisy shares of a Release are clipped to [0, 1].
        y : sequence
            With bags, the share of class 1 in the bag of each row, or a mapping or Series from bag
            id to share; of shape (n_rows, K), the share of each of K classes, named by the columns
            of a data frame. Without bags, one label a row.
        bags : one id a row, or Bags; None makes every row its own bag
        """
        self._check_parameters()
        source = source_of(X, y, bags)
        if source is not None:
            return self.fit_release(source)
        with whole_or_not(self):
            self.__dict__.pop("encoder_", None)
            if bags is None and not isinstance(y, Mapping):
                X, y = self._validate_features(X, True, y)
                check_classification_targets(y)
                self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
                if len(self.classes_) < 2:
                    got = "one class"
                    _check.refuse("y", "of at least two classes", got, "Nothing is to be learnt")
                shares, groups = np.eye(len(self.classes_))[codes], Bags(np.arange(len(X)))
            else:
                shares, groups = _shares(y, bags, _num_samples(X))
                self.classes_ = np.array(getattr(y, "columns", range(shares.shape[1])))
                X = self._validate_features(X, True)
            self._fit(X, shares[:, 1:] if shares.shape[1] == 2 else shares, groups)
        return self

    def _released_means(self, release: Release | BagTable) -> FloatArray:
        means = release.means
        if isinstance(release, Release) and release.statement.scale > 0:
            # Noise leads past the ends, where the log loss has no minimum.
            means = np.clip(means, 0, 1)
        _check_shares(means)
        self.classes_ = np.array([0, 1])
        return means

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
        shares, groups = _shares(y, bags, len(predictions))
        if shares.shape[1] != predictions.shape[1]:
            got = f"{shares.shape[1]} for {predictions.shape[1]}"
            _check.refuse("y", "the shares of all classes", got, "Add those that lack")
        weights = groups.sizes if sample_weight is None else groups.sum(sample_weight)
        whole = np.broadcast_to(weights @ shares / weights.sum(), shares.shape)
        found, known, least = (
            float(_log_loss(shares, p) @ weights) for p in (groups.mean(predictions), whole, shares)
        )
        return 1 - (found - least) / max(known - least, 1e-12)


def _shares(y: Any, bags: Any, n_rows: int) -> tuple[FloatArray, Bags]:
    """Shares of all classes in each bag, shape (m, K), and the bags."""
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
    _check_shares(shares)
    if not np.allclose(shares.sum(axis=1), 1):
        got = "shares of classes that do not add up to 1"
        _check.refuse("y", "the shares of all classes", got, "Add the one that lacks")
    return shares, groups


def _check_shares(shares: FloatArray) -> None:
    if shares.min() < 0 or shares.max() > 1:
        got = "others"
        _check.refuse("y", "shares from 0 to 1", got, "Divide counts by the size of the bag")


def _log_loss(y: FloatArray, p: FloatArray) -> FloatArray:
    """−Σ_c y_c log p_c of each bag."""
    return np.asarray(-(y * np.log(np.clip(p, 1e-7, 1))).sum(axis=1))


class AggregateMLPRegressor(_Regressor, Perceptron):
    """Multilayer perceptron for responses that are known as means over bags.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers, with ReLU.
    rho : float in [0, 1] or "cv"
        0 is the bag-level loss, 1 the instance-level loss; "cv" trains one network for each of
        eight rhos at once and keeps the one with the lowest bag-level loss on held-out bags.
    kind : {"instance", "variance"}
        How to interpolate, as in `interpolating_loss`.
    learning_rate, weight_decay : float
        Of AdamW.
    schedule : {"cosine", "constant"}
        Of the learning rate.
    batch_size : int or "auto"
        Rows of a batch of whole bags; a larger bag is a batch of its own.
    epochs : int
        At most.
    early_stopping : bool
        Hold bags out, stop after ``patience`` epochs without a lower bag-level loss on them, and
        keep the best weights.
    patience : int
    validation_share : float
        Of the bags.
    standardise : bool
        Scale features, and for regression responses, from features and bag means alone.
    device : {"auto", "cpu", "cuda"}
    precision : {"auto", "float32", "tf32", "bf16"}
        Of matrix products; by default float32 on a CPU, and on a GPU bf16 with layers of at least
        128 and tf32 with smaller ones.
    random_state : int, RandomState or None
        Reproducible on a CPU.
    checkpoint : path
        File to write after each epoch and to go on from; remove it to start anew.
    progress : bool
        Show a bar.

    Attributes
    ----------
    rho_, rho_source_
        The rho in use, and where it comes from.
    held_out_losses_ : dict
        For each rho its bag-level loss on held-out bags, in standardised units.
    n_epochs_ : int

    Notes
    -----
    Guarantees: only means of bags enter; bags are never cut over two batches; bags of one row give
    ordinary training at every rho.
    Limits: squared loss. Rows of X are held in memory unless it is a Release or a table in files.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> bags = Bags.random(2000, 5, random_state=0)
    >>> means = bags.expand(bags.mean(np.abs(X[:, 0])))
    >>> model = AggregateMLPRegressor((32,), rho=0.01, learning_rate=0.01, random_state=0)
    >>> model.fit(X, means, bags).score(X, np.abs(X[:, 0])) > 0.9
    True
    """


class AggregateMLPClassifier(_Classifier, Perceptron):
    """Multilayer perceptron for classes of which only shares in bags are known.

    Predicted probabilities are averaged over bags, never logits.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers, with ReLU.
    rho, kind, …
        As in `AggregateMLPRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1 where y is a share.
    rho_, rho_source_, held_out_losses_, n_epochs_
        As in `AggregateMLPRegressor`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> label = (X[:, 0] * X[:, 1] > 0).astype(float)
    >>> bags = Bags.random(2000, 5, random_state=0)
    >>> model = AggregateMLPClassifier((32,), rho=0.0, learning_rate=0.01, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """


class AggregateTorchRegressor(_Regressor, OwnNetwork):
    """A network of your own for responses that are known as means over bags.

    Parameters
    ----------
    module : torch.nn.Module
        From float32 rows of shape (n, d) to (n,) or (n, 1). A copy is trained.
    rho, kind, …
        As in `AggregateMLPRegressor`.

    Notes
    -----
    Limits: "cv" trains a copy for each rho, one after the other. Layers that mix rows of a batch,
    batch normalisation say, mix bags too.

    Examples
    --------
    >>> from torch import nn
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    >>> bags = Bags.random(500, 5, random_state=0)
    >>> y = bags.expand(bags.mean(X.sum(axis=1)))
    >>> model = AggregateTorchRegressor(nn.Linear(3, 1), rho=0.0, learning_rate=0.05, epochs=50,
    ...                                 random_state=0)
    >>> model.fit(X, y, bags).score(X, y, bags) > 0.99
    True
    """


class AggregateTorchClassifier(_Classifier, OwnNetwork):
    """A network of your own for classes of which only shares in bags are known.

    Parameters
    ----------
    module : torch.nn.Module
        From float32 rows of shape (n, d) to logits: (n,) or (n, 1) for two classes, else (n, K).
    rho, kind, …
        As in `AggregateMLPRegressor`.

    Examples
    --------
    >>> from torch import nn
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    >>> bags = Bags.random(500, 5, random_state=0)
    >>> share = bags.expand(bags.mean((X[:, 0] > 0).astype(float)))
    >>> model = AggregateTorchClassifier(nn.Linear(3, 1), rho=0.0, learning_rate=0.05, epochs=50,
    ...                                  random_state=0)
    >>> model.fit(X, share, bags).score(X, (X[:, 0] > 0).astype(int)) > 0.9
    True
    """
