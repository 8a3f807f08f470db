"""What the baselines share: reading two classes or one response, and smooth linear fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise import _check
from bagwise.bags import Bags
from bagwise.estimators.calibration import fit_calibration
from bagwise.estimators.classes import Classifies
from bagwise.estimators.contract import FloatArray, TakesBags, whole_or_not
from bagwise.estimators.glm_problem import Problem

#: a loss of linear predictors (n,) and its gradient in them
EtaLoss = Callable[[FloatArray], tuple[float, FloatArray]]


class Binary(Classifies, BaseEstimator):
    """Two classes and a linear predictor; `_learn` says how it is found."""

    # "identity": the linear predictor, clipped to [0, 1], is the probability.
    _link: ClassVar[str] = "sigmoid"

    def fit(self, X: Any, y: Any = None, bags: Any = None) -> Self:
        """Fit from rows and the share of class 1 in their bags, or from labels of rows.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
        y : one share a row, or a mapping or Series from bag id to share
            Without bags, one label a row.
        bags : one id a row, or Bags; None makes every row its own bag
        """
        self._check_parameters()
        with whole_or_not(self):
            X, shares, groups = self._validate_classes(X, y, bags)
            if shares.shape[1] > 1:
                got = f"{shares.shape[1]} classes"
                _check.refuse("y", "of two classes", got, "Only binary classification is supported")
            coef, intercept = self._learn(X.astype(np.float64), shares[:, 0], groups)
            self.coef_, self.intercept_ = coef[None, :], np.array([intercept])
        return self

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        """Coefficients (d,) and intercept."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _means(self, X: Any) -> FloatArray:
        """Predicted probability of class 1, shape (n_rows, 1)."""
        check_is_fitted(self)
        eta = self._validate_features(X, reset=False) @ self.coef_.T + self.intercept_
        return np.asarray(expit(eta) if self._link == "sigmoid" else eta)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class Linear(TakesBags, RegressorMixin, BaseEstimator):
    """A response and a linear predictor; `_learn` says how it is found."""

    def fit(self, X: Any, y: Any = None, bags: Any = None) -> Self:
        """Fit from rows and the means of their bags.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
        y : one mean a row, or a mapping or Series from bag id to mean
        bags : one id a row, or Bags; None makes every row its own bag
        """
        self._check_parameters()
        with whole_or_not(self):
            X, means, groups = self._validate(X, y, bags, reset=True)
            self.coef_, self.intercept_ = self._learn(X.astype(np.float64), means, groups)
        return self

    def _learn(self, X: FloatArray, means: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        """Coefficients (d,) and intercept."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def predict(self, X: Any) -> FloatArray:
        """Predicted response of each row, shape (n_rows,)."""
        check_is_fitted(self)
        X = self._validate_features(X, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)


def overall(shares: FloatArray, bags: Bags) -> float:
    """The mean of all rows."""
    return float(bags.sizes @ shares / bags.n_rows)


def minimise(
    loss: EtaLoss,
    X: FloatArray,
    ridge: float,
    share: float,
    tilt: tuple[FloatArray, float] | None = None,
    start: tuple[FloatArray, float] | None = None,
) -> tuple[FloatArray, float]:
    """θ and b of the least loss(Xθ + b) − (uᵀθ + v b) + (ridge / 2n) ‖θ‖², by L-BFGS.

    ``tilt`` holds u and v, sums over rows divided by n. Without a ``start`` (θ, b) it is the rate
    ``share`` for all rows.
    """
    centre, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    Z, penalty = (X - centre) / scale, ridge / len(X)
    u, v = (np.zeros(X.shape[1]), 0.0) if tilt is None else tilt
    slope = np.append((u - v * centre) / scale, v)

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = loss(Z @ z[:-1] + z[-1])
        coef = z[:-1] / scale
        value += 0.5 * penalty * float(coef @ coef) - float(slope @ z)
        whole = np.append(Z.T @ gradient + penalty * coef / scale, gradient.sum()) - slope
        return value, whole

    if start is None:
        first = np.append(np.zeros(X.shape[1]), logit(np.clip(share, 1e-6, 1 - 1e-6)))
    else:
        first = np.append(start[0] * scale, start[1] + start[0] @ centre)
    options = {"maxiter": 2000, "maxfun": 4000, "gtol": 1e-8, "ftol": 1e-14}
    found = minimize(objective, first, jac=True, method="L-BFGS-B", options=options).x
    coef = found[:-1] / scale
    return coef, float(found[-1] - coef @ centre)


def platt(
    X: FloatArray, coef: FloatArray, intercept: float, shares: FloatArray, bags: Bags
) -> tuple[FloatArray, float]:
    """Platt's a and b in σ(a f + b), of the least bag-level log loss where he has labels."""
    ones = np.ones(bags.n_bags)
    problem = Problem(X, shares[:, None], bags, "sigmoid", "mean", "instance", True, ones)
    a, b = fit_calibration((X @ coef + intercept)[:, None], problem)
    return a * coef, float(a * intercept + b[0])
