"""The best rho, and the best bag size, by the theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise import _check
from bagwise.theory._domain import FloatArray, check_domain, over_arrays
from bagwise.theory.private import private_formula, private_limit, private_risk
from bagwise.theory.risk import risk_formula

# 0 and a logarithmic grid, which risk crosses smoothly; the best cell is then divided.
GRID = np.concatenate([[0.0], np.geomspace(1e-10, 1.0, 201)])
GOLDEN = (np.sqrt(5) - 1) / 2


def best_rho(k: ArrayLike, psi: ArrayLike, tau: ArrayLike = 1.0, sigma: ArrayLike = 1.0) -> Any:
    """The rho of least risk, to about six digits.

    Parameters as in `risk`. Where psi < k, 0 means the limit rho → 0⁺; where rho changes nothing
    (k = 1), 0 is returned.

    Examples
    --------
    >>> best = best_rho(k=5, psi=20, tau=1.0, sigma=2.0)
    >>> round(best, 4)
    0.2602
    """
    check_domain(k=k, psi=psi, tau=tau, sigma=sigma)
    return over_arrays(lambda *columns: _best_rho(risk_formula, columns), k, psi, tau, sigma)


def best_private_rho(
    k: ArrayLike,
    psi: ArrayLike,
    epsilon: ArrayLike,
    width: ArrayLike,
    tau: ArrayLike = 1.0,
    sigma: ArrayLike = 1.0,
) -> Any:
    """The rho of least `private_risk`; 0 as in `best_rho`.

    Examples
    --------
    >>> round(best_private_rho(k=5, psi=200, epsilon=1.0, width=8.0), 3)
    0.166
    """
    check_domain(k=k, psi=psi, epsilon=epsilon, width=width, tau=tau, sigma=sigma)
    return over_arrays(
        lambda *columns: _best_rho(private_formula, columns), k, psi, epsilon, width, tau, sigma
    )


def _best_rho(formula: Callable[..., FloatArray], arguments: tuple[Any, ...]) -> FloatArray:
    """Least point of a grid, then golden sections of the cells beside it."""
    columns = [np.atleast_1d(a)[:, None] for a in arguments]
    values = formula(GRID, *columns)
    # Risk may be infinite at rho = 0; the first of equal values is taken.
    place = np.argmin(np.where(np.isnan(values), np.inf, values), axis=1)
    low = GRID[np.maximum(place - 1, 0)]
    high = GRID[np.minimum(place + 1, len(GRID) - 1)]
    flat = [column[:, 0] for column in columns]
    for _ in range(40):
        step = GOLDEN * (high - low)
        left, right = high - step, low + step
        goes_left = formula(left, *flat) <= formula(right, *flat)
        low, high = np.where(goes_left, low, left), np.where(goes_left, right, high)
    middle = (low + high) / 2
    better = formula(middle, *flat) < values[np.arange(len(place)), place]
    # With bags of one row rho changes nothing, and rounding must not choose one.
    best = np.where(flat[0] == 1, 0.0, np.where(better, middle, GRID[place]))
    return np.asarray(best if len(best) > 1 else best[0])


def best_bag_size(
    rho: ArrayLike,
    psi: ArrayLike,
    sizes: ArrayLike,
    epsilon: float,
    width: float,
    tau: float = 1.0,
    sigma: float = 1.0,
) -> Any:
    """The bag size of least `private_risk` among ``sizes``, for each rho > 0 and psi.

    Examples
    --------
    >>> best_bag_size(0.01, 50, [1, 2, 5, 10], epsilon=1.0, width=8.0)
    1.0
    """
    sizes = _sizes(sizes)
    rho, psi = (np.asarray(a, dtype=np.float64)[..., None] for a in (rho, psi))
    return _least(private_risk(rho, sizes, psi, epsilon, width, tau, sigma), sizes)


def limiting_bag_size(rho: ArrayLike, psi: ArrayLike, sizes: ArrayLike) -> Any:
    """The bag size of least `private_limit` among ``sizes``: what the paper's Figure 2 shows.

    Examples
    --------
    >>> limiting_bag_size([1e-6, 1.0], 20, [1, 2, 3, 4, 5]).tolist()
    [1.0, 5.0]
    """
    sizes = _sizes(sizes)
    rho, psi = (np.asarray(a, dtype=np.float64)[..., None] for a in (rho, psi))
    return _least(private_limit(rho, sizes, psi), sizes)


def _sizes(sizes: ArrayLike) -> FloatArray:
    """Sizes to choose from."""
    array = np.atleast_1d(np.asarray(sizes, dtype=np.float64))
    if array.size == 0:
        _check.refuse("sizes", "at least one", "none", "Pass [1, 2, 5], say")
    return array


def _least(risks: FloatArray, sizes: FloatArray) -> Any:
    """The size of the least risk along the last axis; a float for a single line."""
    best = sizes[np.argmin(risks, axis=-1)]
    return float(best) if best.ndim == 0 else best
