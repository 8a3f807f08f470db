"""Variance of the interpolating estimator (Theorem 2.5, second part)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.theory._domain import FloatArray, check_domain, check_unique, over_arrays
from bagwise.theory.fixed_point import fixed_point


def variance(rho: ArrayLike, k: ArrayLike, psi: ArrayLike, sigma: ArrayLike = 1.0) -> Any:
    r"""Variance of the prediction, tr(Σ Cov θ̂).

    The paper's system in (u, v) is a quadratic in u, `fixed_point`, and an explicit v,

        v = [e − ψ(k−1) (1+u)² w²] / ψ,    variance = σ²/v

    Parameters
    ----------
    rho : in [0, 1]; above 0 where psi < k
    k : rows a bag, at least 1, not necessarily whole
    psi : rows per feature, above 1
    sigma : standard deviation of a response about its mean

    Notes
    -----
    Guarantees: falls with rho; σ²/(ψ − 1), that of least squares, when k = 1.
    Limits: infinite at rho = 0 and psi = k, where there are as many bags as features.

    Examples
    --------
    >>> round(variance(1.0, k=2, psi=3), 6)
    0.25
    >>> variance(0.0, k=2, psi=[2, 3, 4]).tolist()
    [inf, 2.0, 1.0]
    """
    check_domain(rho=rho, k=k, psi=psi, sigma=sigma)
    check_unique(rho, k, psi)
    return over_arrays(
        lambda r, k, p, s: noise_over(s, precision(k, p, *fixed_point(r, k, p))), rho, k, psi, sigma
    )


def noise_over(sigma: FloatArray, v: FloatArray) -> FloatArray:
    """σ²/v, and 0 without noise even where v = 0."""
    ratio = sigma * sigma / v
    return ratio if np.all(sigma) else np.where(sigma == 0, 0.0, ratio)


def precision(
    k: FloatArray, psi: FloatArray, u: FloatArray, w: FloatArray, e: FloatArray
) -> FloatArray:
    """v, from u, w and e of `fixed_point`."""
    return (e - (psi * (k - 1)) * np.square((1 + u) * w)) / psi
