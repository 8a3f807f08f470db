r"""Mutual contamination: which bag a row comes from, told by a classifier of the classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, minimise, overall
from bagwise.baselines.mean_map import check_positive_ridge
from bagwise.estimators.contract import FloatArray

GROUPS = ("pairs", "all")


class ContaminationClassifier(Binary):
    r"""Logistic regression whose probabilities, contaminated by the shares, predict the bag.

    Rows of bag a are drawn from γ_a P₁ + (1−γ_a) P₀. With p the probability of class 1 under the
    overall share π, Bayes' rule gives the probability that a row of a group G of bags is of bag a,

        q_a(p) = u_a(p) / Σ_{c∈G} u_c(p),    u_a(p) = k_a (γ_a p/π + (1−γ_a)(1−p)/(1−π))

    and the log loss of the bags, forward corrected, is minimised over p_i = σ(x_iᵀθ + b):

        −(1/n) Σ_i log q_a(i)(p_i) + (ridge / 2n) ‖θ‖²

    Parameters
    ----------
    groups : {"pairs", "all"}
        "pairs" sorts bags by share and joins the lowest with the highest, the second with the last
        but one, and so on, which makes Σ (γ − γ′)² greatest; pairs of equal shares are left out.
        "all" is one group.
    ridge : float
        Above 0, in the units of scikit-learn's ``LogisticRegression(C=1 / ridge)``.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in scikit-learn.

    Notes
    -----
    Assumes that features are independent of the bag given the class.
    Guarantees: with the shares of the population the true probabilities have the least expected
    loss; two pure bags give logistic regression; so do bags of one row with "all".
    Limits: two classes; linear; not convex, started at no effect.
    Reference: Scott and Zhang, "Learning from label proportions: a mutual contamination framework"
    (2020), for the pairs; Zhang, Wang and Scott, "Learning from label proportions by learning with
    label noise" (2022), for forward correction, here normalised for groups of any shares.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> label = (rng.uniform(size=2000) < np.repeat([0.1, 0.4, 0.6, 0.9], 500)).astype(float)
    >>> X = rng.normal(size=(2000, 2)) + 3 * label[:, None]
    >>> bags = Bags(np.repeat(np.arange(4), 500))
    >>> model = ContaminationClassifier().fit(X, bags.expand(bags.mean(label)), bags)
    >>> model.score(X, label) > 0.95
    True
    """

    def __init__(self, groups: str = "pairs", ridge: float = 1.0) -> None:
        self.groups = groups
        self.ridge = ridge

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        share = overall(shares, bags)
        if np.ptp(shares) < 1e-9:
            remedy = "Draw smaller bags"
            _check.refuse("y", "of shares that differ between bags", "one share", remedy)
        of_bag = opposite_pairs(shares) if self.groups == "pairs" else np.zeros(len(shares), int)
        rows = np.flatnonzero(of_bag[bags.codes] >= 0)
        kept = Bags(bags.codes[rows])
        of_bag, shares = of_bag[kept.ids], shares[kept.ids]

        def loss(eta: FloatArray) -> tuple[float, FloatArray]:
            return bag_loss_of_rows(eta, shares, kept, of_bag, share)

        return minimise(loss, X[rows], self.ridge, share)

    def _check_parameters(self) -> None:
        check_positive_ridge(self.ridge)
        _check.choice("groups", self.groups, GROUPS)


def opposite_pairs(shares: FloatArray) -> NDArray[np.intp]:
    """The pair of each bag, lowest with highest; −1 where shares are equal or a bag is over."""
    order, m = np.argsort(shares, kind="stable"), len(shares)
    low, high = order[: m // 2], order[::-1][: m // 2]
    of_bag = np.full(m, -1)
    apart = shares[high] - shares[low] > 1e-9
    of_bag[low[apart]] = of_bag[high[apart]] = np.arange(apart.sum())
    return of_bag


def bag_loss_of_rows(
    eta: FloatArray, shares: FloatArray, bags: Bags, groups: NDArray[np.intp], share: float
) -> tuple[float, FloatArray]:
    """−(1/n) Σ_i log q_a(i)(σ(η_i)), and its gradient; ``groups`` has one number a bag."""
    p, n = expit(eta), len(eta)
    ones, zeros = shares / share, (1 - shares) / (1 - share)
    totals = [np.bincount(groups, bags.sizes * part) for part in (ones, zeros)]
    own_one, own_zero = bags.expand(ones), bags.expand(zeros)
    all_one, all_zero = (bags.expand(total[groups]) for total in totals)
    own = np.maximum(own_one * p + own_zero * (1 - p), 1e-300)
    whole = all_one * p + all_zero * (1 - p)
    value = np.log(whole) - np.log(own) - np.log(bags.expand(bags.sizes))
    slope = (all_one - all_zero) / whole - (own_one - own_zero) / own
    return float(value.mean()), slope * p * (1 - p) / n
