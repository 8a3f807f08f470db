"""Bias of the interpolating estimator (Theorem 2.5, first part)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.theory._domain import FloatArray, check_domain, check_unique, over_arrays
from bagwise.theory.fixed_point import fixed_point


def bias(rho: ArrayLike, k: ArrayLike, psi: ArrayLike, tau: ArrayLike = 1.0) -> Any:
    r"""Squared bias of the prediction, ‖Σ^½(E θ̂ − θ0)‖².

    The paper's fixed point is α = w ψ(k−1)/k with u, w, e of `fixed_point`, and its formula becomes

        bias = τ² α² (1 + ψ² / ((ψ−1)e − ψu²))

    Parameters
    ----------
    rho : in [0, 1]; above 0 where psi < k
    k : rows a bag, at least 1, not necessarily whole
    psi : rows per feature, above 1
    tau : standard deviation of the true prediction

    Notes
    -----
    Guarantees: 0 when k = 1, and when rho = 0 and psi ≥ k; where psi ≥ k it grows with rho.
    Limits: diverges as psi → 1; with fewer bags than features it may fall with rho, and with k.

    Examples
    --------
    >>> round(bias(1.0, k=2, psi=3), 6)
    0.375
    >>> bias([0.0, 0.1], k=2, psi=3).round(4).tolist()
    [0.0, 0.0774]
    """
    check_domain(rho=rho, k=k, psi=psi, tau=tau)
    check_unique(rho, k, psi)
    return over_arrays(
        lambda r, k, p, t: bias_formula(k, p, t, *fixed_point(r, k, p)), rho, k, psi, tau
    )


def bias_formula(
    k: FloatArray, psi: FloatArray, tau: FloatArray, u: FloatArray, w: FloatArray, e: FloatArray
) -> FloatArray:
    """The formula itself, from u, w and e of `fixed_point`."""
    left = (psi - 1) * e - psi * u * u
    if not np.all(left > 0):
        # 0 only where α = 0: bags of one row, or rho = 0 at psi = k. Where k is a rounding error
        # above 1 so is this, and α² is smaller still.
        least = np.finfo(np.float64).eps * (psi - 1) * e
        left = np.where((k == 1) | (w == 0), 1.0, np.maximum(left, least))
    alpha = (tau * psi * (1 - 1 / k)) * w
    return alpha * alpha * (1 + psi * psi / left)
