"""Neural networks from bags, with scikit-learn's contract. Needs `bagwise[neural]`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from bagwise.engines.bag_table import BagTable
from bagwise.estimators.classes import Classifies, released_shares
from bagwise.estimators.contract import TakesBags, source_of, whole_or_not
from bagwise.estimators.network import FloatArray, Network, OwnNetwork, Perceptron
from bagwise.released import Release


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


class _Classifier(Classifies, Network):
    _link: ClassVar[str] = "sigmoid"
    _loss: ClassVar[str] = "log"

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
            self._fit(*self._validate_classes(X, y, bags))
        return self

    def _released_means(self, release: Release | BagTable) -> FloatArray:
        self.classes_ = np.array([0, 1])
        return released_shares(release)


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
    >>> from bagwise import Bags
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
    >>> from bagwise import Bags
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
    >>> from bagwise import Bags
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
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    >>> bags = Bags.random(500, 5, random_state=0)
    >>> share = bags.expand(bags.mean((X[:, 0] > 0).astype(float)))
    >>> model = AggregateTorchClassifier(nn.Linear(3, 1), rho=0.0, learning_rate=0.05, epochs=50,
    ...                                  random_state=0)
    >>> model.fit(X, share, bags).score(X, (X[:, 0] > 0).astype(int)) > 0.9
    True
    """
