"""The one quadratic behind Theorem 2.5.

The paper states a fixed point α for the bias and a system (u, v) for the variance. They are one.
Let u ≥ 0 be the root of

    ψ/(1+u) + ρψ(k−1)/(ρ+u) = k,  that is,  k u² + [(k−ψ) + ρ(k − ψ(k−1))] u − ρk(ψ−1) = 0

and w = ρ/(ρ+u); then the bias has α = w ψ(k−1)/k. (The two terms of the equation, over k, are the
shares tr(MA)/d and ρ tr(MW)/d of M = (A + ρW)⁻¹, which add up to 1; α is the second.) All that
follows is written in u, w and e = k(1+u)² − ψ, so that nothing cancels even at psi = k or near 1.
"""

from __future__ import annotations

import numpy as np

from bagwise.theory._domain import FloatArray


def fixed_point(
    rho: FloatArray, k: FloatArray, psi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(u, w, e) with e = k(1+u)² − ψ; at rho = 0 with psi < k, w is its limit as rho → 0⁺."""
    few, outer = k - psi, psi * (k - 1)
    linear = few + rho * (k - outer)
    constant = rho * (k * (psi - 1))
    # The root is 2c/s or s/(2k), whichever does not subtract.
    s = np.abs(linear) + np.sqrt(linear * linear + (4 * k) * constant)
    falls = linear > 0
    if np.all(falls):
        u = 2 * constant / s
    elif not np.any(falls):
        u = s / (2 * k)
    else:
        u = np.where(falls, 2 * constant, s) / np.where(falls, s, 2 * k)
    w = rho / (rho + u)
    if not np.all(rho):
        # u = ρt as ρ → 0 with psi < k, where 1 + t = ψ(k−1)/(k−ψ).
        w = np.where(rho > 0, w, np.maximum(few, 0) / (outer + (k == 1)))
    return u, w, few + k * u * (2 + u)
