"""Fit and predict of estimators that take tables with text and holes, and means with noise."""

from __future__ import annotations

from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from bagwise.engines.bag_table import BagTable
from bagwise.estimators.categories import TakesCategories
from bagwise.estimators.classes import Classifies, released_shares
from bagwise.estimators.contract import source_of, whole_or_not
from bagwise.estimators.information import response_variance, share_variance
from bagwise.released import Release

FloatArray: TypeAlias = NDArray[np.float64]


class TabularRegressor(TakesCategories, RegressorMixin):
    """For responses; what it is mixed into has `_fit`, `fit_release` and `_means`."""

    def fit(self, X: Any, y: Any = None, bags: Any = None, noise_scale: Any = None) -> Self:
        """Fit from rows and the means of their bags, from a Release, or from a table in files.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
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
            found: Self = self.fit_release(source)
            return found
        with whole_or_not(self):
            X, means, groups = self._validate(X, y, bags, reset=True)
            self._fit(X, means[:, None], groups, noise_scale)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted response of each row, shape (n_rows,)."""
        found: FloatArray = self._means(X)[:, 0]
        return found

    def _variance(self, means: FloatArray, sizes: Any, noise: FloatArray) -> float:
        """σ² of rows about what features say of them."""
        return response_variance(means[:, 0], sizes, noise)

    def _released_means(self, release: Release | BagTable) -> FloatArray:
        """Means of a Release or a table, when this model is for them."""
        return release.means


class TabularClassifier(TakesCategories, Classifies):
    """The same for shares of classes."""

    def fit(self, X: Any, y: Any = None, bags: Any = None, noise_scale: Any = None) -> Self:
        """Fit from rows and the shares of classes in their bags, or from labels of rows.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
            May have missing values and, in a frame, text. Or a Release or its path, without y and
            bags; or the path of a table, with the names of its columns for both.
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
            found: Self = self.fit_release(source)
            return found
        with whole_or_not(self):
            X, shares, groups = self._validate_classes(X, y, bags, noise_scale is not None)
            self._fit(X, shares, groups, noise_scale)
        return self

    def _variance(self, means: FloatArray, sizes: Any, noise: FloatArray) -> float:
        return share_variance(means, sizes)

    def _released_means(self, release: Release | BagTable) -> FloatArray:
        self.classes_ = np.array([0, 1])
        return released_shares(release, clip=False)
