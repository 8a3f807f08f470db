"""Risk of the interpolating estimator: bias plus variance."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from bagwise.theory._domain import FloatArray, check_domain, check_unique, over_arrays
from bagwise.theory.bias import bias_formula
from bagwise.theory.fixed_point import fixed_point
from bagwise.theory.variance import noise_over, precision


def risk(
    rho: ArrayLike, k: ArrayLike, psi: ArrayLike, tau: ArrayLike = 1.0, sigma: ArrayLike = 1.0
) -> Any:
    """Expected squared error of a prediction beyond the noise, E(xᵀθ̂ − xᵀθ0)² = bias + variance.

    Parameters as in `bias` and `variance`.

    Examples
    --------
    >>> round(risk(1.0, k=2, psi=3), 6)
    0.625
    """
    check_domain(rho=rho, k=k, psi=psi, tau=tau, sigma=sigma)
    check_unique(rho, k, psi)
    return over_arrays(risk_formula, rho, k, psi, tau, sigma)


def risk_formula(
    rho: FloatArray, k: FloatArray, psi: FloatArray, tau: FloatArray, sigma: FloatArray
) -> FloatArray:
    """The formula itself; at rho = 0 with psi < k it is the limit rho → 0⁺."""
    point = fixed_point(rho, k, psi)
    return bias_formula(k, psi, tau, *point) + noise_over(sigma, precision(k, psi, *point))
