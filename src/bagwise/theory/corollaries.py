"""The two ends of rho in closed form, the limit between them, and when one end beats the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise import _check
from bagwise.theory._domain import check_domain, over_arrays
from bagwise.theory.variance import noise_over


@dataclass(frozen=True)
class RiskParts:
    """A risk and what it is made of: floats, or arrays of one shape.

    Attributes
    ----------
    bias, variance
    """

    bias: Any
    variance: Any

    @property
    def risk(self) -> Any:
        """Bias plus variance."""
        return self.bias + self.variance


def bag_level(
    k: ArrayLike, psi: ArrayLike, tau: ArrayLike = 1.0, sigma: ArrayLike = 1.0
) -> RiskParts:
    """Risk of the bag-level loss (rho = 0) for psi ≥ k: bias 0, variance σ²/(ψ/k − 1).

    Corollary 3.1 of the paper, first part.

    Examples
    --------
    >>> bag_level(k=2, psi=6).risk
    0.5
    """
    check_domain(k=k, psi=psi, tau=tau, sigma=sigma)
    _refuse_few_bags(k, psi)
    return RiskParts(
        over_arrays(lambda k, p, t: 0 * (k + p + t), k, psi, tau),
        over_arrays(lambda k, p, s: noise_over(s, (p - k) / k), k, psi, sigma),
    )


def instance_level(
    k: ArrayLike, psi: ArrayLike, tau: ArrayLike = 1.0, sigma: ArrayLike = 1.0
) -> RiskParts:
    """Risk of the instance-level loss (rho = 1), for every psi > 1.

    bias = τ²(1 − 1/k)(1 + (2 − ψ)/(k(ψ − 1))), variance = σ²/(k(ψ − 1)): Corollary 3.1, second.

    Examples
    --------
    >>> instance_level(k=2, psi=3).bias, instance_level(k=2, psi=3).variance
    (0.375, 0.25)
    """
    check_domain(k=k, psi=psi, tau=tau, sigma=sigma)
    return RiskParts(
        over_arrays(
            lambda k, p, t: t * t * (1 - 1 / k) * (1 + (2 - p) / (k * (p - 1))), k, psi, tau
        ),
        over_arrays(lambda k, p, s: s * s / (k * (p - 1)), k, psi, sigma),
    )


def ridgeless(
    k: ArrayLike, psi: ArrayLike, tau: ArrayLike = 1.0, sigma: ArrayLike = 1.0
) -> RiskParts:
    r"""Risk in the limit rho → 0⁺ with fewer bags than features, 1 < psi < k.

    There α of `bias` is 1 − ψ/k and D = (k−ψ)(ψ−1)/k², so that

        bias = τ² (k−ψ)(kψ − k + ψ)/(k²(ψ−1)),    variance = σ² ψ²(k−1)/(k(ψ−1)(k−ψ))

    Risk peaks where psi passes k: double descent in the bag size. Not in the paper.

    Examples
    --------
    >>> round(ridgeless(k=5, psi=3).variance, 12)
    1.8
    """
    check_domain(k=k, psi=psi, tau=tau, sigma=sigma)
    if np.any(np.asarray(psi) >= np.asarray(k)):
        _check.refuse(
            "psi", "below k", "psi >= k", "There bag_level(k, psi) holds: the minimiser is unique"
        )
    return RiskParts(
        over_arrays(
            lambda k, p, t: t * t * (k - p) * (k * (p - 1) + p) / (k * k * (p - 1)), k, psi, tau
        ),
        over_arrays(
            lambda k, p, s: s * s * p * p * (k - 1) / (k * (p - 1) * (k - p)), k, psi, sigma
        ),
    )


def snr_threshold(k: ArrayLike, psi: ArrayLike) -> Any:
    r"""The signal-to-noise ratio τ²/σ² up to which instance level beats bag level (psi ≥ k > 1).

        ((k+1)ψ − k) / ((ψ − k)(ψ(1 − 1/k) − 1 + 2/k))

    Lemma 3.2 of the paper. Infinite at psi = k, where the bag-level variance is.

    Examples
    --------
    >>> round(snr_threshold(k=2, psi=4), 6)
    2.5
    """
    check_domain(k=k, psi=psi)
    _refuse_few_bags(k, psi)
    if np.any(np.asarray(k) <= 1):
        _check.refuse("k", "above 1", "k=1", "With bags of one row the two losses are one")
    return over_arrays(
        lambda k, p: ((k + 1) * p - k) / ((p - k) * (p * (1 - 1 / k) - 1 + 2 / k)), k, psi
    )


def _refuse_few_bags(k: ArrayLike, psi: ArrayLike) -> None:
    if np.any(np.asarray(psi) < np.asarray(k)):
        _check.refuse(
            "psi",
            "at least k",
            "psi < k, where the bag-level loss has no unique minimiser",
            "ridgeless(k, psi) gives the limit as rho falls to 0",
        )
