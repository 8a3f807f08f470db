"""What the user set: read from a link or from fields, written as a link or as commands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

from bagwise import _check
from bagwise.planning import Plan, PlanLine, plan

# No number takes more characters, and a message may quote it whole.
LONGEST = 40
#: parameters by the names that `plan` has for them
PARAMETER = {
    "n_rows": "rows",
    "n_features": "features",
    "signal": "snr",
    "bounds": "lo",
    "bag_sizes": "bag_size",
    "min_bag_size": "bag_size",
}


@dataclass(frozen=True)
class State:
    """What is asked: a table, its noise, a budget, and a point on the plane of bag size and rho.

    Attributes
    ----------
    rows, features, snr
        As `plan` takes them.
    noise : float
        Standard deviation of a response about its truth, in the units of the bounds.
    epsilon : float or None
        None when means are released as they are.
    lo, hi : float or None
        Public bounds of a response.
    bag_size, rho : or None
        The point to look at; None follows the best.

    Examples
    --------
    >>> state = State.parse({"rows": "1e6", "features": 50, "snr": 2, "rho": ""})
    >>> state.query(), state.rho
    ('rows=1000000&features=50&snr=2', None)
    """

    rows: float
    features: float
    snr: float
    noise: float = 1
    epsilon: float | None = None
    lo: float | None = None
    hi: float | None = None
    bag_size: float | None = None
    rho: float | None = None

    @classmethod
    def parse(cls, words: Mapping[str, object]) -> State:
        """The state that texts or numbers by name stand for; what is empty is not given."""
        for name in words:
            if name not in NAMES:
                got = repr(name[:LONGEST])
                _check.refuse("every parameter", f"one of {', '.join(NAMES)}", got, "Check it")
        numbers = {name: _number(name, value) for name, value in words.items()}
        given = {name: value for name, value in numbers.items() if value is not None}
        for name in ("rows", "features", "snr"):
            if name not in given:
                _check.refuse(name, "given", "none", "A plan needs rows, features and snr")
        if ("lo" in given) != ("hi" in given):
            missing = "hi" if "lo" in given else "lo"
            _check.refuse(missing, "given with its other end", "none", "Bounds are (lo, hi)")
        state = cls(**given)
        _check.number("snr", state.snr, low=1e-100, high=1e100, remedy="2 is a common snr")
        _check.number("noise", state.noise, low=1e-20, high=1e20, remedy="Change the unit, say")
        return state

    def numbers(self) -> dict[str, float]:
        """What was given, by name; a noise of 1 is left out."""
        named = {name: getattr(self, name) for name in NAMES}
        return {k: v for k, v in named.items() if v is not None and (k, v) != ("noise", 1)}

    def query(self) -> str:
        """The part of a link behind its question mark, from which `parse` makes the same state."""
        return urlencode({name: plain(value) for name, value in self.numbers().items()})

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Both bounds, or None."""
        return None if self.lo is None or self.hi is None else (self.lo, self.hi)

    @property
    def deviations(self) -> dict[str, float]:
        """Signal and noise as `plan` takes them."""
        if self.noise == 1:
            return {"snr": self.snr}
        return {"signal": math.sqrt(self.snr) * self.noise, "noise": self.noise}

    def plan(self, bag_sizes: list[float] | None = None) -> Plan:
        """What `plan` says of it."""
        options: dict[str, Any] = {"bag_sizes": bag_sizes, **self.deviations}
        return plan(
            self.rows,  # type: ignore[arg-type]
            self.features,  # type: ignore[arg-type]
            epsilon=self.epsilon,
            bounds=self.bounds,
            **options,
        )

    def commands(self, here: PlanLine) -> tuple[str, str, str]:
        """How to plan this, and to release and fit a point, on the command line."""
        end = "" if self.bounds is None else " --bounds {} {}".format(*map(plain, self.bounds))
        spent = "" if self.epsilon is None else f" --epsilon {plain(self.epsilon)}"
        known = " ".join(f"--{name} {plain(v)}" for name, v in self.deviations.items())
        table = f"--rows {plain(self.rows)} --features {plain(self.features)} {known}"
        # The best rho is flat about its minimum: four digits do, where none were typed.
        rho = f"{here.rho:.4g}" if self.rho is None else plain(here.rho)
        budget = (
            f"{spent} --budget {plain(self.epsilon)}"
            if self.epsilon
            else " --epsilon inf --budget inf"
        )
        return (
            f"bagwise plan {table}{spent}{end}",
            f"bagwise release DATA --response RESPONSE --bag-size {here.bag_size}{budget}"
            f"{end or ' --bounds LO HI'} --out released",
            f"bagwise fit released --out model --rho {rho}",
        )


NAMES = tuple(field.name for field in fields(State))


def plain(number: float) -> str:
    """A number that reads back as itself, whole ones without a point."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else repr(number)


def field_of(sentence: str) -> str:
    """Which parameter a refusal is about: it begins with its name."""
    name = sentence.split(" ", 1)[0]
    return PARAMETER.get(name, name)


def _number(name: str, value: object) -> float | None:
    """A number from a field or a link; None where it is empty."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TypeError
        if isinstance(value, str) and len(value) > LONGEST:
            raise ValueError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        got = repr(value) if isinstance(value, str | int | float | bool) else "something else"
        got = got if len(got) <= LONGEST else "something longer"
        _check.refuse(name, "a finite number", f"{name}={got}", "Write 1000000 or 1e6, say")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
