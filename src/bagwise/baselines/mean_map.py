r"""Mean Map: class means from bag means by least squares, then the exponential family."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, minimise, overall
from bagwise.estimators.contract import FloatArray


class MeanMapClassifier(Binary):
    r"""Logistic regression from the mean operator that bag means imply.

    Where features do not depend on the bag once the class is known, E x̄_a = γ_a μ₁ + (1−γ_a) μ₀
    for shares γ_a. Least squares over bags gives the class means μ₁ and μ₀, and these with the
    overall share π are all that the log likelihood has of the labels: minimise

        (1/n) Σ_i log(1 + exp f_i) − π (μ₁ᵀθ + b) + (ridge / 2n) ‖θ‖²,    f_i = x_iᵀθ + b

    Parameters
    ----------
    ridge : float
        Above 0, in the units of scikit-learn's ``LogisticRegression(C=1 / ridge)``: an estimated
        mean may lie where without it there is no minimum.

    Attributes
    ----------
    class_means_ : ndarray of shape (2, n_features)
        μ₀ and μ₁.
    classes_, coef_, intercept_
        As in scikit-learn.

    Notes
    -----
    Assumes that features are independent of the bag given the class.
    Guarantees: under that assumption class means are unbiased; with two pure bags, or bags of one
    row, the fit is ordinary logistic regression.
    Limits: two classes; shares that do not differ between bags tell nothing and are refused. Bags
    weigh by their size.
    Reference: Quadrianto, Smola, Caetano, Le, "Estimating labels from label proportions" (2008).

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> label = (rng.uniform(size=2000) < np.repeat([0.1, 0.4, 0.6, 0.9], 500)).astype(float)
    >>> X = rng.normal(size=(2000, 2)) + 3 * label[:, None]
    >>> bags = Bags(np.repeat(np.arange(4), 500))
    >>> model = MeanMapClassifier().fit(X, bags.expand(bags.mean(label)), bags)
    >>> model.score(X, label) > 0.95
    True
    """

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        share = overall(shares, bags)
        self.class_means_ = class_means(bags.mean(X), shares, bags)
        return fit_moments(X, share * self.class_means_[1], share, self.ridge)

    def _check_parameters(self) -> None:
        check_positive_ridge(self.ridge)


def class_means(means: FloatArray, shares: FloatArray, bags: Bags) -> FloatArray:
    """μ₀ and μ₁ of the least Σ_a k_a ‖x̄_a − γ_a μ₁ − (1−γ_a) μ₀‖², shape (2, d)."""
    centre, share = bags.sizes @ means / bags.n_rows, overall(shares, bags)
    apart = bags.sizes * (shares - share)
    spread = float(apart @ (shares - share))
    if spread <= 1e-12 * bags.n_rows:
        _check.refuse("y", "of shares that differ between bags", "one share", "Draw smaller bags")
    difference = apart @ (means - centre) / spread
    return np.stack([centre - share * difference, centre + (1 - share) * difference])


def fit_moments(
    X: FloatArray,
    moment: FloatArray,
    share: float,
    ridge: float,
    start: tuple[FloatArray, float] | None = None,
) -> tuple[FloatArray, float]:
    """Logistic regression that knows labels by (1/n) Σ y_i x_i and (1/n) Σ y_i alone."""

    def loss(eta: FloatArray) -> tuple[float, FloatArray]:
        return float(np.logaddexp(0, eta).mean()), expit(eta) / len(eta)

    return minimise(loss, X, ridge, share, (moment, share), start)


def check_positive_ridge(ridge: float) -> None:
    """Refuse a ridge with which there may be no minimum."""
    remedy = "A little, 1e-3 say, keeps the minimum finite"
    _check.number("ridge", ridge, low=1e-100, high=1e100, remedy=remedy)
