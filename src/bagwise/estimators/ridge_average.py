r"""Logistic regression averaged over ridges, each as likely as it makes the counts of the bags.

A ridge is a prior, θ ~ N(0, I / ridge). Laplace's approximation integrates θ and the intercept,
whose prior is flat, out of the likelihood of counts: at the minimum of J, the penalised loss,

    log P(counts | ridge) ≈ −n J + (d/2) log ridge − ½ log |H|,    H = Σ_a g_a g_aᵀ / v_a + ridge

up to what ridges and features share. g_a = Σ_{i∈a} p_i (1 − p_i) (1, x_i), and 1/v_a is what a bag
tells of its expected count, v_a = Σ_{i∈a} p_i (1 − p_i) + (k_a b_a)² with noise of scale b_a on the
mean: H is the expected curvature, and the intercept has no ridge.

What few bags hardly know of a row is drawn to the middle, as MacKay (1992) does: with s² the mean
of (1, x_i)ᵀ H⁻¹ (1, x_i), the variance of a row's logit, and w the shares of the ridges,

    θ = Σ w κ θ(ridge),    κ = (1 + π s² / 8)^(−½)

The intercept is then that at which the mean of all predictions is the overall share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax

from bagwise.estimators.glm_problem import Problem, Solution

FloatArray: TypeAlias = NDArray[np.float64]
#: variances of the logits that the ridges expect, were the features' whole variance signal
SIGNALS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True, eq=False)
class RidgeAverage:
    """What an average over ridges is made of.

    Attributes
    ----------
    ridges, log_evidence : ndarray of shape (t,)
        Strongest first, and how likely each makes the counts.
    solution : Solution
        The average, with all iterations; its objective is that of the likeliest ridge.
    """

    ridges: FloatArray
    log_evidence: FloatArray
    solution: Solution

    @property
    def ridge(self) -> float:
        """The likeliest one."""
        return float(self.ridges[np.argmax(self.log_evidence)])

    @property
    def total(self) -> float:
        """Log of how likely all together, each as likely beforehand, make the counts."""
        return float(logsumexp(self.log_evidence) - np.log(len(self.ridges)))


def average_ridges(problem: Problem, max_iter: int, tol: float) -> RidgeAverage:
    """Fits at each ridge, from the strongest on, each from where the last one ended."""
    X, n = problem.dense_screen, problem.bags.n_rows
    unit = float(X.var(axis=0).sum()) or 1.0
    ridges, near = unit / np.array(SIGNALS), problem.base()
    fits, looks = [], []
    for ridge in ridges:
        near = problem.descend(0.0, ridge / n, near, max_iter, tol)
        fits.append(near)
        looks.append(_look(problem, X, near, ridge))
    paid, variances = np.array(looks).T
    told = paid - n * np.array([fit.objective for fit in fits])
    shares = softmax(told) / np.sqrt(1 + np.pi * variances / 8)
    coef = shares @ np.concatenate([fit.coef for fit in fits])
    intercept = _intercept(X @ coef, float(problem.average[0])) if problem.fit_intercept else 0.0
    objective = fits[int(np.argmax(told))].objective
    steps = sum(fit.n_iter for fit in fits)
    whole = Solution(coef[None], np.array([intercept]), objective, steps)
    return RidgeAverage(ridges, told, whole)


def _look(problem: Problem, X: FloatArray, fit: Solution, ridge: float) -> tuple[float, float]:
    """What evidence charges for a fit, and the mean variance of a row's logit.

    The bags of the screen stand for all.
    """
    some = problem.screen
    if problem.fit_intercept:
        X = np.column_stack([np.ones(len(X)), X])
    pulls = some.bag_pulls(fit, X)
    whole = pulls.T @ pulls * (problem.bags.n_rows / some.bags.n_rows)
    penalty = np.full(len(whole), ridge)
    if problem.fit_intercept:
        # Rows at 0 or 1 for sure leave nothing to know; of rounding, nothing is told either.
        penalty[0] = 1e-9 * max(whole[0, 0], 1.0)
    lower = np.linalg.cholesky(whole + np.diag(penalty))
    inverse = np.linalg.inv(lower).T
    paid = fit.coef.size / 2 * np.log(ridge) - np.log(np.diag(lower)).sum()
    return float(paid), float(np.square(X @ inverse).sum() / len(X))


def _intercept(eta: FloatArray, share: float) -> float:
    """b at which the mean of σ(η + b) is the share."""
    middle = np.log(share) - np.log1p(-share)
    ends = middle - eta.max() - 1e-3, middle - eta.min() + 1e-3
    return float(brentq(lambda b: expit(eta + b).mean() - share, *ends))
