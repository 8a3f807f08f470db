"""Risk when bag means carry Laplace noise for label privacy (Theorem 4.3, its scale mended)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise import _check
from bagwise.theory._domain import check_domain, check_unique, over_arrays
from bagwise.theory.fixed_point import fixed_point
from bagwise.theory.risk import risk_formula
from bagwise.theory.variance import precision


def privacy_variance(k: ArrayLike, epsilon: ArrayLike, width: ArrayLike) -> Any:
    r"""What privacy adds to the response variance: 2 width²/(k ε²).

    Replacing one response within [lo, hi], width = hi − lo, moves its bag's mean by at most
    width/k, so ε-label privacy takes Laplace noise of scale b = width/(kε), and noise of variance
    2b² on the mean of k rows weighs as 2kb² on each row. The printed Algorithm 1 takes half that
    scale.

    Examples
    --------
    >>> privacy_variance(k=10, epsilon=2.0, width=4.0)
    0.8
    """
    check_domain(k=k, width=width)
    _check_epsilon(epsilon)
    return over_arrays(lambda k, e, w: 2 * w * w / (k * e * e), k, epsilon, width)


def private_risk(
    rho: ArrayLike,
    k: ArrayLike,
    psi: ArrayLike,
    epsilon: ArrayLike,
    width: ArrayLike,
    tau: ArrayLike = 1.0,
    sigma: ArrayLike = 1.0,
) -> Any:
    r"""Risk at finite n from ε-label-private bag means: bias + (σ² + 2 width²/(k ε²))/v.

    Parameters
    ----------
    rho, k, psi, tau, sigma
        As in `risk`.
    epsilon : above 0; infinite means no noise
    width : hi − lo of the public bounds to which responses are clipped

    Notes
    -----
    Limits: the bias that clipping itself brings is not included; choose bounds that clip little.

    Examples
    --------
    >>> round(private_risk(1.0, k=2, psi=3, epsilon=np.inf, width=4), 6)
    0.625
    """
    check_domain(rho, k, psi, tau=tau, sigma=sigma)
    check_unique(rho, k, psi)
    noise = np.sqrt(np.square(sigma) + privacy_variance(k, epsilon, width))
    return over_arrays(risk_formula, rho, k, psi, tau, noise)


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
    check_domain(rho, k, psi, C=C)
    check_unique(rho, k, psi)
    _check_epsilon(epsilon)
    return over_arrays(
        lambda r, k, p, e, c: 8 * c * c / (k * e * e * precision(k, p, *fixed_point(r, k, p))),
        *(rho, k, psi, epsilon, C),
    )


def _check_epsilon(epsilon: ArrayLike) -> None:
    values = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
    if not np.all(values > 0):
        bad = values[~(values > 0)][0]
        _check.refuse("epsilon", "above 0", f"epsilon={bad:g}", "Small is private, 1 is usual")
