r"""InvCal: support vector regression of bag means on shares, calibrated backwards."""

from __future__ import annotations

import numpy as np
from scipy.special import logit
from sklearn.svm import LinearSVR

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, platt
from bagwise.estimators.contract import FloatArray


class InvCalClassifier(Binary):
    r"""Support vector regression whose value at the mean of a bag is the logit of its share.

    If σ(f) turns scores into probabilities, its inverse turns shares into scores that f should have
    at bag means. With s_a = logit γ_a, it minimises over θ and b

        ½ ‖θ‖² + C Σ_a (k_a / k̄) max(0, |x̄_aᵀθ + b − s_a| − epsilon)²

    Parameters
    ----------
    C : float
        Weight of what lies outside of the tube, above 0.
    epsilon : float
        Half width of the tube, in logits, at least 0.
    clip : float
        Shares are drawn into [clip, 1 − clip], where logits are finite; in (0, 0.5).
    calibrate : {"bags", None}
        Platt's stretch and shift of f, of the least bag-level log loss, before probabilities are
        read off; None is the paper's σ(f). The order of rows is the same.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in scikit-learn; of the logit of predicted probabilities.

    Notes
    -----
    Assumes that the mean of a bag behaves as a row of which the share is the probability, which is
    the less true the larger bags and the wider spread their rows.
    Guarantees: shares whose logits fit a tube around a constant give θ = 0; shares that are the
    logistic function of bag means are met as C grows.
    Limits: two classes; linear. Slack is squared, where the paper has it plain: that is smooth, and
    as fast as the bags are many. Features should be of one scale.
    Reference: Rüping, "SVM classifier estimation from group probabilities" (2010).

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> InvCalClassifier().fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        epsilon: float = 0.1,
        clip: float = 0.01,
        calibrate: str | None = "bags",
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.clip = clip
        self.calibrate = calibrate

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        means, targets = bags.mean(X), logit(np.clip(shares, self.clip, 1 - self.clip))
        weights = bags.sizes * bags.n_bags / bags.n_rows
        # About the means, since liblinear penalises the intercept too.
        centre = weights @ means / bags.n_bags
        middle = float(weights @ targets) / bags.n_bags
        machine = LinearSVR(
            C=self.C,
            epsilon=self.epsilon,
            loss="squared_epsilon_insensitive",
            dual=False,
            tol=1e-8,
            max_iter=10_000,
            intercept_scaling=100.0,
        ).fit(means - centre, targets - middle, sample_weight=weights)
        coef = machine.coef_
        intercept = middle + float(machine.intercept_[0]) - float(coef @ centre)
        if self.calibrate is None:
            return coef, intercept
        return platt(X, coef, intercept, shares, bags)

    def _check_parameters(self) -> None:
        _check.number("C", self.C, low=0, high=1e100, above=True, remedy="1 is usual")
        _check.number("epsilon", self.epsilon, low=0, high=1e100, remedy="0.1 is usual")
        _check.number("clip", self.clip, low=0, high=0.499, above=True, remedy="0.01 is usual")
        if self.calibrate is not None:
            _check.choice("calibrate", self.calibrate, ("bags",))
