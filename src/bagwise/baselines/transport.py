r"""Pseudo-labels by entropic optimal transport of the rows of a bag to its classes."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, overall
from bagwise.baselines.mean_map import check_positive_ridge, fit_moments
from bagwise.estimators.contract import FloatArray


class TransportClassifier(Binary):
    r"""Logistic regression on labels that are carried to rows at the least cost.

    By turns: given probabilities p_i, each bag's labels q_i solve

        min_q  −Σ_i (q_i log p_i + (1−q_i) log(1−p_i)) − blur Σ_i H(q_i),    Σ_i q_i = k_a γ_a

    with H the entropy: a transport plan from rows, 1 each, to classes, k_a γ_a and k_a (1−γ_a).
    Then the model is fitted to the q_i by logistic regression.

    Parameters
    ----------
    blur : float
        Weight of the entropy, above 0. Small ones give hard labels; at 1 they are
        the nearest to p in relative entropy of those that meet the share.
    ridge : float
        Above 0, in the units of scikit-learn's ``LogisticRegression(C=1 / ridge)``.
    max_iter : int
        Turns at most.
    tol : float
        Turns end once labels move less than this on average.

    Attributes
    ----------
    n_iter_ : int
        Turns.
    labels_ : ndarray of shape (n_rows,)
        q_i of the last.
    classes_, coef_, intercept_
        As in scikit-learn.

    Notes
    -----
    Assumes that probabilities, once roughly right, order the rows of a bag.
    Guarantees: labels of each bag add up to its share; as blur → 0 they are 1 for the rows of
    greatest probability; no half of a turn raises that cost plus (ridge / 2) ‖θ‖²; bags of one row
    give ordinary logistic regression.
    Limits: two classes, for which the plan is σ(logit(p_i) / blur + λ_a) with one number a bag,
    found by bisection in place of Sinkhorn's turns; linear. It starts at the instance-level fit.
    Reference: Dulac-Arnold, Zeghidour, Cuturi, Beyer, Vert, "Deep multi-class learning from label
    proportions" (2019).

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(1000, 4, random_state=0)
    >>> model = TransportClassifier().fit(X, bags.expand(bags.mean(label)), bags)
    >>> model.score(X, label) > 0.95
    True
    """

    def __init__(
        self, blur: float = 1.0, ridge: float = 1.0, max_iter: int = 30, tol: float = 1e-3
    ) -> None:
        self.blur = blur
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        share, labels = overall(shares, bags), bags.expand(shares)
        model = fit_moments(X, X.T @ labels / len(X), share, self.ridge)
        for turn in range(1, self.max_iter + 1):
            found = carried(X @ model[0] + model[1], shares, bags, self.blur)
            moved = float(np.abs(found - labels).mean())
            self.n_iter_, self.labels_, labels = turn, found, found
            model = fit_moments(X, X.T @ labels / len(X), share, self.ridge, model)
            if moved < self.tol:
                break
        return model

    def _check_parameters(self) -> None:
        check_positive_ridge(self.ridge)
        _check.number("blur", self.blur, low=1e-6, high=1e6, remedy="1 is usual")
        _check.number("tol", self.tol, low=0, remedy="1e-3 is usual")
        _check.whole("max_iter", self.max_iter, low=1, remedy="30 is usual")


def carried(eta: FloatArray, shares: FloatArray, bags: Bags, blur: float) -> FloatArray:
    """q_i = σ(η_i / blur + λ_a) with the share of each bag as mean; η are logits of rows."""
    score = eta / blur
    inside = (shares > 0) & (shares < 1)
    target = logit(np.where(inside, shares, 0.5))
    # With λ = target − max score no q exceeds the share, with target − min none is below.
    order = np.argsort(bags.codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(bags.sizes)[:-1]])
    low = target - np.maximum.reduceat(score[order], starts)
    high = target - np.minimum.reduceat(score[order], starts)
    for _ in range(60):
        middle = (low + high) / 2
        above = bags.mean(expit(score + bags.expand(middle))) > shares
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found = expit(score + bags.expand((low + high) / 2))
    return np.asarray(np.where(bags.expand(inside), found, bags.expand(shares)))
