"""Validators with one wording: ``{name} must be {rule}; got {name}={value!r}. {remedy}.``"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, NoReturn


def refuse(name: str, rule: str, got: str, remedy: str) -> NoReturn:
    """Raise the one sentence (and a remedy) that every bad argument gets."""
    raise ValueError(f"{name} must be {rule}; got {got}. {remedy}.")


def number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: bool = False,
    remedy: str,
) -> float:
    """Value as a float in [low, high], or in (low, high] when ``above``."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    inside = is_number and (low < value if above else low <= value) and value <= high
    if not inside:
        refuse(name, _interval(low, high, above), f"{name}={value!r}", remedy)
    return float(value)


def _interval(low: float, high: float, above: bool) -> str:
    """Words for the numbers in [low, high] or (low, high]."""
    if 0 < low < 1e-40:
        low, above = 0, True
    if high > 1e40:
        least = "a number" if low < -1e40 else f"{'above' if above else 'at least'} {low:g}"
        return least if math.isinf(high) else f"{least} and finite"
    return f"in {'(' if above else '['}{low:g}, {high:g}]"


def whole(name: str, value: Any, *, low: int, remedy: str) -> int:
    """Value as an int that is at least ``low``; 1e6 counts as whole, 2.5 does not."""
    is_whole = not isinstance(value, bool) and (
        isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    )
    if not (is_whole and value >= low):
        refuse(name, f"a whole number of at least {low}", f"{name}={value!r}", remedy)
    return int(value)


def interval(name: str, value: Any) -> tuple[float, float]:
    """Value as finite (lo, hi) with lo < hi."""
    rule, remedy = "(lo, hi), finite, with lo < hi", "Pass two public numbers in order"
    try:
        low, high = (float(v) for v in value)
    except (TypeError, ValueError):
        refuse(name, rule, f"{name}={value!r}", remedy)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        refuse(name, rule, f"{name}={value!r}", remedy)
    return low, high


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """Value when it is one of ``options``."""
    listed = ", ".join(repr(option) for option in options)
    if not (isinstance(value, str) and value in options):
        refuse(name, f"one of {listed}", f"{name}={value!r}", "Check the spelling")
    return str(value)
