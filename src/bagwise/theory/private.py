"""Risk when bag means carry Laplace noise for label privacy (Theorem 4.3, its scale mended)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, erfc

from bagwise.theory._domain import FloatArray, check_domain, check_unique, over_arrays
from bagwise.theory.bias import bias_formula
from bagwise.theory.fixed_point import fixed_point
from bagwise.theory.variance import noise_over, precision


def privacy_variance(k: ArrayLike, epsilon: ArrayLike, width: ArrayLike) -> Any:
    r"""What privacy adds to the response variance: 2 width²/(k ε²).

    Replacing one response within [lo, hi], width = hi − lo, moves its bag's mean by at most
    width/k, so ε-label privacy takes Laplace noise of scale b = width/(kε), and noise of variance
    2b² on the mean of k rows weighs as 2kb² on each row. The printed Algorithm 1 takes half that
    scale.

    Notes
    -----
    Limits: 0 at an infinite epsilon. With bags of unequal sizes it is their harmonic mean that
    counts here, not n/m: small bags get more noise than large ones save.

    Examples
    --------
    >>> privacy_variance(k=10, epsilon=2.0, width=4.0)
    0.8
    """
    check_domain(k=k, epsilon=epsilon, width=width)
    return over_arrays(noise_formula, k, epsilon, width)


def noise_formula(k: FloatArray, epsilon: FloatArray, width: FloatArray) -> FloatArray:
    """2 width²/(k ε²)."""
    return 2 / k * np.square(width / epsilon)


def private_risk(
    rho: ArrayLike,
    k: ArrayLike,
    psi: ArrayLike,
    epsilon: ArrayLike,
    width: ArrayLike,
    tau: ArrayLike = 1.0,
    sigma: ArrayLike = 1.0,
) -> Any:
    r"""Risk at finite n from ε-label-private means of clipped responses.

    Clipping Gaussian responses to the middle of their range, ±width/2, leaves a share s of them as
    they are. It shrinks what can be learnt to s θ0 and changes the noise about it to
    σ_c² = Var(clipped y) − s²τ², so that with α of `bias`

        risk = s² bias + 2s(1−s) α τ² + (1−s)² τ² + (σ_c² + 2 width²/(k ε²))/v

    Parameters
    ----------
    rho, k, psi, tau, sigma
        As in `risk`; k is the size of equal bags.
    epsilon : above 0; infinite means no noise
    width : hi − lo of the public bounds to which responses are clipped; about their middle they are
        taken to be Gaussian with variance τ² + σ²

    Examples
    --------
    >>> round(private_risk(1.0, k=2, psi=3, epsilon=np.inf, width=40), 6)
    0.625
    >>> round(private_risk(0.0, k=1, psi=3, epsilon=np.inf, width=1e-9), 6)
    1.0
    """
    check_domain(rho=rho, k=k, psi=psi, epsilon=epsilon, width=width, tau=tau, sigma=sigma)
    check_unique(rho, k, psi)
    return over_arrays(private_formula, rho, k, psi, epsilon, width, tau, sigma)


def private_formula(
    rho: FloatArray,
    k: FloatArray,
    psi: FloatArray,
    epsilon: FloatArray,
    width: FloatArray,
    tau: FloatArray,
    sigma: FloatArray,
) -> FloatArray:
    """The formula itself; at rho = 0 with psi < k it is the limit rho → 0⁺."""
    bias, sampling, privacy = private_parts(rho, k, psi, epsilon, width, tau, sigma)
    return bias + sampling + privacy


def private_parts(
    rho: FloatArray,
    k: FloatArray,
    psi: FloatArray,
    epsilon: FloatArray,
    width: FloatArray,
    tau: FloatArray,
    sigma: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bias (of clipping too), sampling noise and privacy noise."""
    u, w, e = fixed_point(rho, k, psi)
    s, left = clipping(width, tau, sigma)
    alpha = w * psi * (1 - 1 / k)
    bias = s * s * bias_formula(k, psi, tau, u, w, e)
    bias = bias + (1 - s) * tau * tau * (2 * s * alpha + (1 - s))
    v = precision(k, psi, u, w, e)
    noise = np.sqrt(noise_formula(k, epsilon, width))
    return bias, noise_over(left, v), noise_over(noise, v)


def clipping(
    width: FloatArray, tau: FloatArray, sigma: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(s, σ_c): the share of Gaussian responses within ±width/2, and the noise about s θ0."""
    spread = np.hypot(tau, sigma)
    edge = width / 2 / np.where(spread > 0, spread, 1)
    s = np.where(spread > 0, erf(edge / np.sqrt(2)), 1.0)
    density = np.exp(-np.square(edge) / 2) / np.sqrt(2 * np.pi)
    # E clip² / spread² = s − 2 edge φ(edge) + edge² (1 − s)
    square = s - 2 * edge * density + np.square(edge) * erfc(edge / np.sqrt(2))
    return s, np.sqrt(np.maximum(np.square(spread) * square - np.square(s * tau), 0))


def private_limit(
    rho: ArrayLike, k: ArrayLike, psi: ArrayLike, epsilon: ArrayLike = 1.0, C: ArrayLike = 1.0
) -> Any:
    r"""Limit of risk / log n when responses are clipped to ±C√log n: 8C²/(k ε² v).

    Theorem 4.3 of the paper has 2C² for 8C², from half the noise that privacy takes. As n grows
    the bounds do, so privacy noise drowns bias and sampling noise; at finite n see `private_risk`.

    Examples
    --------
    >>> round(private_limit(1.0, k=2, psi=3), 6)
    1.0
    """
    check_domain(rho=rho, k=k, psi=psi, epsilon=epsilon, C=C)
    check_unique(rho, k, psi)
    return over_arrays(
        lambda r, k, p, e, c: 8 * c * c / (k * e * e * precision(k, p, *fixed_point(r, k, p))),
        *(rho, k, psi, epsilon, C),
    )
