"""Where the theory holds, said once, and evaluation over arrays in pieces that stay in cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise import _check

FloatArray: TypeAlias = NDArray[np.float64]
# Intermediate arrays of this many numbers fit the cache of one core.
PIECE = 2**14
BIG = 1e150
RULES = {
    "rho": (0, 1, "in [0, 1]", "0 is bag level, 1 instance level"),
    "k": (1, BIG, "at least 1 and finite", "Pass rows a bag, n/m"),
    "psi": (
        np.nextafter(1, 2),
        BIG,
        "above 1 and finite",
        "With no more rows than features no loss has a unique minimiser: add rows",
    ),
    "epsilon": (np.nextafter(0, 1), np.inf, "above 0", "Small is private, 1 is usual"),
}


def over_arrays(formula: Callable[..., FloatArray], *arguments: ArrayLike) -> Any:
    """formula(*arguments) with broadcasting; a float when every argument is one."""
    arrays = [np.asarray(a, dtype=np.float64) for a in arguments]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    # Numbers stay numbers, so that what depends on them alone is computed once.
    flat = [a[()] if a.ndim == 0 else np.broadcast_to(a, shape).reshape(-1) for a in arrays]
    out = np.empty(int(np.prod(shape)))
    with np.errstate(divide="ignore", invalid="ignore"):
        for start in range(0, len(out), PIECE):
            part = slice(start, start + PIECE)
            out[part] = formula(*(a if np.ndim(a) == 0 else a[part] for a in flat))
    return float(out[0]) if shape == () else out.reshape(shape)


def check_domain(**values: ArrayLike) -> None:
    """Refuse arguments outside the theory, in one sentence that says what holds instead."""
    for name, value in values.items():
        low, high, rule, remedy = RULES.get(
            name, (0, BIG, "at least 0 and finite", "Check the units")
        )
        _within(name, value, low, high, rule, remedy)


def check_unique(rho: ArrayLike, k: ArrayLike, psi: ArrayLike) -> None:
    """Refuse rho = 0 with fewer bags than features."""
    few_bags = np.asarray(psi) < np.asarray(k)
    if np.any(few_bags) and np.any((np.asarray(rho) == 0) & few_bags):
        _check.refuse(
            "rho",
            "above 0 where psi < k",
            "rho=0 there, where the bag-level loss has no unique minimiser",
            "ridgeless(k, psi) gives the limit as rho falls to 0",
        )


def _within(name: str, value: ArrayLike, low: float, high: float, rule: str, remedy: str) -> None:
    """Refuse an array of which an entry lies outside [low, high], naming the first that does."""
    array = np.asarray(np.nan if value is None else value, dtype=np.float64)
    # Two reductions, and NaN fails both; the entry is looked for only when there is one.
    if array.size and not (array.min() >= low and array.max() <= high):
        bad = array[~((array >= low) & (array <= high))][0]
        _check.refuse(name, rule, f"{name}={bad:g}", remedy)
