r"""EasyLLP: labels of rows, without bias from the shares of random bags.

In a random bag the k−1 others of a row have the overall mean, but for the row's own absence from
the table: E(ȳ_a | row i in a) = ȳ + (y_i − ȳ)(n−k) / (k(n−1)). So

    ỹ_i = ȳ + k_a (n−1)/(n−k_a) (ȳ_a − ȳ)

has expectation y_i over all partitions, given the row's bag size. It is k ȳ_a − (k−1) ȳ of the
paper but for a factor near 1, which the paper, drawing from a population, does not need.
"""

from __future__ import annotations

import numpy as np

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, Linear, overall
from bagwise.baselines.mean_map import check_positive_ridge, fit_moments
from bagwise.baselines.ridge_means import ridge_of_means
from bagwise.estimators.contract import FloatArray


class EasyLLPClassifier(Binary):
    r"""Logistic regression on surrogate labels, whose loss has the rows' loss as expectation.

    It minimises, with surrogate labels ỹ_i of the overall share and the bag's,

        (1/n) Σ_i (log(1 + exp f_i) − ỹ_i f_i) + (ridge / 2n) ‖θ‖²,    f_i = x_iᵀθ + b

    Parameters
    ----------
    ridge : float
        Above 0, in the units of scikit-learn's ``LogisticRegression(C=1 / ridge)``: surrogates lie
        outside of [0, 1], and without it there may be no minimum.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in scikit-learn.

    Notes
    -----
    Assumes that bags are drawn at random.
    Guarantees: over random bags the expectation of the loss at any (θ, b) is that of the labels of
    rows; bags of one row give ordinary logistic regression.
    Limits: two classes. The variance of surrogate labels grows as k; bags that are not random give
    a wrong model.
    Reference: Busa-Fekete, Choi, Dick, Gentile, Muñoz Medina, "Easy learning from label
    proportions" (2023). `row_risk` has the same expectation for a loss, but the
    noise of residuals alone.

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> EasyLLPClassifier().fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        moment = X.T @ surrogate_labels(shares, bags) / len(X)
        centre, share = X.mean(axis=0), overall(shares, bags)
        # Surrogates of unequal bags need not add up to the known sum; about the mean they may.
        average = float(surrogate_labels(shares, bags).mean())
        return fit_moments(X, moment + (share - average) * centre, share, self.ridge)

    def _check_parameters(self) -> None:
        check_positive_ridge(self.ridge)


class EasyLLPRegressor(Linear):
    r"""Linear regression of the debiased squared loss.

    It minimises Σ_i (ỹ_i − x_iᵀθ − b)² + ridge ‖θ‖², with surrogate responses ỹ_i.

    Parameters
    ----------
    ridge : float
        At least 0, in the units of scikit-learn's ``Ridge(alpha)``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float

    Notes
    -----
    Assumes that bags are drawn at random.
    Guarantees: over random bags θ without a ridge has that of the rows' responses as expectation.
    In equal bags it is the instance-level θ (rho = 1), times k (n−1)/(n−k).
    Limits: its variance grows as k; bags that are not random give a wrong model.
    Reference: Busa-Fekete et al. (2023), with squared loss.

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> bags = Bags.random(5000, 4, random_state=0)
    >>> model = EasyLLPRegressor().fit(X, bags.expand(bags.mean(X @ [1.0, 2.0])), bags)
    >>> bool(np.abs(model.coef_ - [1.0, 2.0]).max() < 0.2)
    True
    """

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def _learn(self, X: FloatArray, means: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        found = surrogate_labels(means, bags)
        coef, _ = ridge_of_means(X, found, np.ones(len(X)), self.ridge)
        # Surrogates of unequal bags need not add up to the known sum; the constant does.
        return coef, float(overall(means, bags) - X.mean(axis=0) @ coef)

    def _check_parameters(self) -> None:
        _check.number("ridge", self.ridge, low=0, high=1e100, remedy="0 is none")


def surrogate_labels(means: FloatArray, bags: Bags) -> FloatArray:
    """ỹ_i = ȳ + k_a (n−1)/(n−k_a) (ȳ_a − ȳ) of each row, shape (n_rows,)."""
    n, mean = bags.n_rows, overall(means, bags)
    # One bag of all rows tells of none of them.
    stretch = bags.sizes * (n - 1) / np.maximum(n - bags.sizes, 1)
    return np.asarray(bags.expand(mean + stretch * (means - mean)))
