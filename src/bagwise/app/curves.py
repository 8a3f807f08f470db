"""State -> numbers: the plan, the point that is looked at, and the curves and map about it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bagwise import _check, theory
from bagwise.app.state import State
from bagwise.planning import BAG_SIZES, UNBOUNDED, Plan, PlanLine
from bagwise.theory._domain import FloatArray
from bagwise.theory.private import private_parts

# Enough points for a smooth line, few enough for an answer in a tenth of a second.
POINTS, CELLS = 41, 33
LEAST_RHO = 1e-6


@dataclass(frozen=True, eq=False)
class Curve:
    """Parts of the risk along bag sizes or rhos."""

    x: FloatArray
    bias: FloatArray
    sampling: FloatArray
    privacy: FloatArray

    @property
    def risk(self) -> FloatArray:
        """Their sum."""
        return self.bias + self.sampling + self.privacy


@dataclass(frozen=True, eq=False)
class View:
    """All that the page shows.

    Attributes
    ----------
    state : State
    plan : Plan
    here : PlanLine
        The point that is looked at.
    best_here : PlanLine
        Its bag size at the best rho.
    by_size : Curve
        Each bag size at its best rho.
    by_size_here : ndarray
        Risk of each bag size at the rho that is looked at.
    by_rho : Curve
        Each rho at the bag size that is looked at.
    sizes, rhos, risks : ndarray
        The map: ``risks[i, j]`` is that of ``rhos[i]`` and ``sizes[j]``.
    """

    state: State
    plan: Plan
    here: PlanLine
    best_here: PlanLine
    by_size: Curve
    by_size_here: FloatArray
    by_rho: Curve
    sizes: FloatArray
    rhos: FloatArray
    risks: FloatArray


def look(state: State) -> View:
    """The numbers behind the page, from a few calls of `theory` over arrays."""
    plan, here, best_here = points(state)
    top = min(max(BAG_SIZES[-1], 2 * here.bag_size), int(state.rows) // 2)
    sizes = np.unique(np.round(np.geomspace(1, top, POINTS)))
    psi = state.rows / state.features
    rest = _rest(state, plan)
    best = np.atleast_1d(theory.best_private_rho(sizes, psi, *rest))
    rhos = np.geomspace(LEAST_RHO, 1, POINTS)
    cells = np.geomspace(1, top, CELLS)
    risks = theory.private_risk(rhos[:, None], cells, psi, *rest)
    # Where there are fewer bags than features rho = 0 is the limit of small ones.
    at = max(here.rho, LEAST_RHO**2)
    with np.errstate(all="ignore"):
        by_size = Curve(sizes, *_parts(best, sizes, state, plan))
        by_rho = Curve(rhos, *_parts(rhos, np.float64(here.bag_size), state, plan))
    along = theory.private_risk(at, sizes, psi, *rest)
    return View(state, plan, here, best_here, by_size, along, by_rho, cells, rhos, risks)


def points(state: State) -> tuple[Plan, PlanLine, PlanLine]:
    """The plan, the point that is looked at, and the best rho at its bag size."""
    plan = state.plan()
    size = plan.bag_size if state.bag_size is None else _check_size(state)
    known = {line.bag_size: line for line in plan.table}
    best_here = known.get(size) or state.plan([size]).best
    if state.rho is None:
        return plan, best_here, best_here
    rho = _check.number("rho", state.rho, low=0, high=1, remedy="Leave it out to follow the best")
    with np.errstate(all="ignore"):
        parts = _parts(np.float64(rho), np.float64(size), state, plan)
    return plan, PlanLine(size, int(state.rows) // size, rho, *map(float, parts)), best_here


def answer(state: State) -> dict[str, Any]:
    """The plan and the point as plain numbers and texts, for JSON; what is infinite is None."""
    plan, here, best_here = points(state)
    lines = {"point": here, "best_rho_here": best_here}
    named = {name: asdict(line) | {"risk": line.risk} for name, line in lines.items()}
    asked = {"asked": state.numbers()}
    commands = {"commands": list(state.commands(here))}
    found: dict[str, Any] = finite(asked | plan.to_dict() | named | commands)
    return found


def finite(value: Any) -> Any:
    """The same lists and dictionaries with None for what JSON cannot say."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check_size(state: State) -> int:
    """A bag size that leaves two bags."""
    remedy = "Leave it out to follow the best"
    size = _check.whole("bag_size", state.bag_size, low=1, remedy=remedy)
    if size > state.rows // 2:
        got = f"bag_size={size}, rows={state.rows:.16g}"
        _check.refuse("bag_size", "at most half of the rows", got, "Choose a smaller bag_size")
    return size


def _rest(state: State, plan: Plan) -> tuple[float, float, float, float]:
    """Epsilon, width, signal and noise, as `theory` takes them."""
    width = UNBOUNDED if state.bounds is None else state.bounds[1] - state.bounds[0]
    return plan.epsilon, width, plan.signal, plan.noise


def _parts(
    rho: Any, size: Any, state: State, plan: Plan
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bias, sampling noise and privacy noise over arrays of rho or bag size, of one shape."""
    rest = map(np.asarray, (state.rows / state.features, *_rest(state, plan)))
    bias, sampling, privacy = np.broadcast_arrays(*private_parts(rho, size, *rest))
    return bias, sampling, privacy
