"""Boosted trees from bags, with scikit-learn's contract. Needs `bagwise[boosting]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from bagwise.engines.bag_table import BagTable
from bagwise.estimators.boosted import Boosting, FloatArray
from bagwise.estimators.categories import TakesCategories
from bagwise.estimators.classes import Classifies, released_shares
from bagwise.estimators.contract import source_of, whole_or_not
from bagwise.estimators.information import response_variance
from bagwise.released import Release


class AggregateBoostingRegressor(TakesCategories, RegressorMixin, Boosting):
    """Gradient boosting for responses that are known as means over bags, on LightGBM.

    Parameters
    ----------
    rho : float in [0, 1] or "cv"
        0 is the bag-level loss, 1 the instance-level loss; "cv" tries 0, .001, .01, .1 and 1 and
        keeps the one with the lowest bag-level loss on held-out bags.
    kind : {"instance", "variance"}
        How to interpolate, as in `interpolating_loss`.
    n_estimators : int
        Rounds, at most.
    learning_rate : float in (0, 1]
    num_leaves : int or "auto"
        Of a tree: by default √m / 6 for m bags, from 4 to 31, and 31 without bags.
    min_child_samples, reg_lambda, colsample_bytree
        As in LightGBM: rows of a leaf, the penalty on squared leaves, and the share of columns that
        a tree looks at.
    categorical_features : "auto", None, or sequence of names or places
        Columns whose values are levels without an order; "auto" takes those of text and pandas'
        categories. A level that was not seen counts as missing.
    monotone_constraints : sequence of -1, 0 and 1, or dict from name
        Whether predictions must fall or rise with a column.
    early_stopping : bool
        Hold bags out, stop after ``patience`` rounds without a lower bag-level loss on them, and
        grow as many rounds as were best on all bags.
    patience : int
    validation_share : float
        Of the bags.
    random_state : int, RandomState or None
    n_jobs : int
        Threads; by default all cores.
    progress : bool
        Show a bar.

    Attributes
    ----------
    rho_, rho_source_
        The rho in use, and where it comes from.
    held_out_losses_ : dict
        For each rho its bag-level loss on held-out bags.
    n_estimators_ : int
    importances_ : dict
        Share of each column in the gain of splits.

    Notes
    -----
    Guarantees: only means of bags enter; bags of one row give the trees of LightGBM's own
    objective; a step along which the bag-level loss would rise is shortened.
    Limits: squared loss. In bags that are not random, splits between whole bags look better than
    they are by up to their size.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> response = np.abs(X[:, 0]) + X[:, 1]
    >>> bags = Bags.random(4000, 10, random_state=0)
    >>> model = AggregateBoostingRegressor(rho=0.0, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(response)), bags).score(X, response) > 0.8
    True
    """

    def fit(self, X: Any, y: Any = None, bags: Any = None, noise_scale: Any = None) -> Self:
        """Fit from rows and the means of their bags, from a Release, or from a table in files.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            May have missing values and, in a frame, text. Or a Release or its path, without y and
            bags; or the path of a table, with the names of its columns for both.
        y : one mean a row, or a mapping or Series from bag id to mean
        bags : one id a row, or Bags; None makes every row its own bag
        noise_scale : None, number, one a row, or a mapping or Series from bag id
            Scale of the Laplace noise on each mean: noisy bags weigh less. A Release has its own.
        """
        self._check_parameters()
        source = source_of(X, y, bags, noise_scale)
        if source is not None:
            return self.fit_release(source)
        with whole_or_not(self):
            X, means, groups = self._validate(X, y, bags, reset=True)
            self._fit(X, means[:, None], groups, noise_scale)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted response of each row, shape (n_rows,)."""
        found: FloatArray = self._means(X)[:, 0]
        return found

    def _variance(self, means: FloatArray, sizes: Any, noise: FloatArray) -> float:
        return response_variance(means[:, 0], sizes, noise)


@dataclass(eq=False, repr=False, kw_only=True)
class AggregateBoostingClassifier(TakesCategories, Classifies, Boosting):
    """Gradient boosting for classes of which only shares in bags are known, on LightGBM.

    Predicted probabilities are averaged over bags, never scores.

    Parameters
    ----------
    rho, kind, …
        As in `AggregateBoostingRegressor`.
    calibrate : None or "bags"
        Stretch and shift the scores so that held-out bags lose least, as in
        `AggregateLogisticRegression`; bags are then held out in any case.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1 where y is a share.
    rho_, rho_source_, held_out_losses_, n_estimators_, importances_
        As in `AggregateBoostingRegressor`.

    Notes
    -----
    Guarantees: bags of one row give the trees of LightGBM's own objectives for two classes and for
    several.
    Limits: the bag-level loss is not convex in the scores; where its curvature is negative, what
    the link adds to it is left out.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> label = (X[:, 0] * X[:, 1] > 0).astype(float)
    >>> bags = Bags.random(4000, 5, random_state=0)
    >>> model = AggregateBoostingClassifier(rho=0.0, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.8
    True
    """

    calibrate: str | None = None

    _loss: ClassVar[str] = "log"

    def fit(self, X: Any, y: Any = None, bags: Any = None, noise_scale: Any = None) -> Self:
        """Fit from rows and the shares of classes in their bags, or from labels of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            As in `AggregateBoostingRegressor`. Noisy shares of a Release are clipped to [0, 1].
        y : sequence
            With bags, the share of class 1 in the bag of each row, or a mapping or Series from bag
            id to share; of shape (n_rows, K), the share of each of K classes, named by the columns
            of a data frame. Without bags, one label a row.
        bags : one id a row, or Bags; None makes every row its own bag
        noise_scale : None, number, one a row, or a mapping or Series from bag id
            Scale of the Laplace noise on each share: noisy bags weigh less. A Release has its own.
        """
        self._check_parameters()
        source = source_of(X, y, bags, noise_scale)
        if source is not None:
            return self.fit_release(source)
        with whole_or_not(self):
            X, shares, groups = self._validate_classes(X, y, bags, noise_scale is not None)
            self._fit(X, np.clip(shares, 0, 1), groups, noise_scale)
        return self

    def _variance(self, means: FloatArray, sizes: Any, noise: FloatArray) -> float:
        share = sizes @ means / sizes.sum()
        # σ² = p(1 − p) of a share, at most ¼.
        return float(max((share * (1 - share)).mean(), 1e-3))

    def _released_means(self, release: Release | BagTable) -> FloatArray:
        self.classes_ = np.array([0, 1])
        return released_shares(release)
