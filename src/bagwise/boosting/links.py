"""Losses as boosting knows them: from scores to means, each loss with the link that is its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from bagwise.losses import LOSSES, PointLoss

FloatArray: TypeAlias = NDArray[np.float64]
#: what the loss is in units of n L
SCALES = {"squared": 0.5, "log": 1.0, "poisson": 1.0, "cross": 1.0}
# Shares of 0 and 1 have scores without end; LightGBM's own bound.
EDGE = 1e-15


def _cross_slope(y: FloatArray, f: FloatArray) -> FloatArray:
    return np.asarray(-y / np.maximum(f, EDGE))


def _cross_curvature(y: FloatArray, f: FloatArray) -> FloatArray:
    return np.asarray(y / np.maximum(f, EDGE) ** 2)


def _cross_value(y: FloatArray, f: FloatArray) -> FloatArray:
    return np.asarray(-y * np.log(np.maximum(f, EDGE)))


# −Σ_c y_c log f_c, a class at a time.
POINTS = LOSSES | {"cross": PointLoss(_cross_value, _cross_slope, _cross_curvature)}


def _sigmoid(z: FloatArray) -> FloatArray:
    # Quicker than scipy's; past −709 the exponential is infinite, and the answer 0 all the same.
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-z)))


@dataclass(frozen=True)
class Link:
    """From scores to means, and back; with f_c′ = ∂f_c/∂z_c.

    ``turn`` is f″ / f′. A link of several scores has off its Jacobian's diagonal −f_b f_c.
    """

    mean: Callable[[FloatArray], FloatArray]
    score: Callable[[FloatArray], FloatArray]
    first: Callable[[FloatArray], FloatArray]
    turn: Callable[[FloatArray], FloatArray]
    several: bool = False

    def back(self, g: FloatArray, f: FloatArray, first: FloatArray) -> FloatArray:
        """A gradient in means as one in scores: the Jacobian, which is symmetric, times it."""
        return np.asarray(f * (g - row_sums(g * f)) if self.several else g * first)

    def squares(self, o: FloatArray, f: FloatArray, first: FloatArray) -> FloatArray:
        """The diagonal of JᵀOJ in scores, of a diagonal O in means."""
        if self.several:
            return np.asarray(f**2 * (o * (1 - 2 * f) + row_sums(o * f**2)))
        return np.asarray(o * first * first)


#: the link of each loss
LINKS = {
    "squared": Link(lambda z: z, lambda f: f, np.ones_like, np.zeros_like),
    "log": Link(
        _sigmoid, lambda f: np.log(f) - np.log1p(-f), lambda f: f * (1 - f), lambda f: 1 - 2 * f
    ),
    "poisson": Link(np.exp, np.log, lambda f: f, np.ones_like),
    "cross": Link(
        lambda z: np.asarray(softmax(z, axis=1)),
        np.log,
        lambda f: f * (1 - f),
        lambda f: 1 - 2 * f,
        several=True,
    ),
}
#: means that have a finite score
INSIDE = {
    "squared": (-np.inf, np.inf),
    "log": (EDGE, 1 - EDGE),
    "poisson": (EDGE, np.inf),
    "cross": (EDGE, np.inf),
}


def mean_of(scores: FloatArray, loss: str) -> FloatArray:
    """Predicted means of scores of shape (n, K)."""
    return LINKS[loss].mean(scores)


def score_of(means: FloatArray, loss: str) -> FloatArray:
    """Scores of overall means of shape (K,)."""
    return LINKS[loss].score(np.clip(means, *INSIDE[loss]))


def row_sums(values: FloatArray) -> FloatArray:
    """Sums over scores, shape (n, 1)."""
    return np.asarray(values.sum(axis=1, keepdims=True))
