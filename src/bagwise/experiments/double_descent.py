"""A figure of our own: with fewer bags than features the bag-level risk falls again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bagwise import simulate, theory
from bagwise.experiments.figure import FigureData

D, PSI, SNR = 100, 4.0, 2.0
DOTS = (1, 2, 3, 5, 6, 8, 10, 16, 20, 25)
TINY = 1e-9


def run(
    repeats: int = 50,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> FigureData:
    """Risk against bag size: the limit rho → 0⁺, the best rho, and simulated dots of the first."""
    sigma = SNR**-0.5
    curve = np.concatenate([np.geomspace(1, 0.995 * PSI, 150), np.geomspace(1.005 * PSI, 25, 200)])
    best = theory.best_rho(curve, PSI, 1.0, sigma)
    lines: dict[str, list[Any]] = {name: [] for name in ("kind", "k", "rho", "risk", "error")}

    def add(kind: str, k: Any, rho: Any, risk: Any, error: Any) -> None:
        size = np.shape(k)
        for name, value in zip(lines, (kind, k, rho, risk, error), strict=True):
            lines[name].append(np.broadcast_to(value, size))

    few = curve > PSI
    limit = np.empty(len(curve))
    limit[~few] = theory.bag_level(curve[~few], PSI, 1.0, sigma).risk
    limit[few] = theory.ridgeless(curve[few], PSI, 1.0, sigma).risk
    add("limit", curve, 0.0, limit, np.nan)
    # Where the limit itself is best, best_rho gives 0; risk there is the limit's.
    at_best = np.where(best > 0, theory.risk(np.maximum(best, TINY), curve, PSI, 1.0, sigma), limit)
    add("best rho", curve, best, at_best, np.nan)
    for k in progress(DOTS):
        m = round(PSI * D / k)
        rho = TINY if m < D else 0.0
        drawn = simulate(D, [k] * m, [rho], 1.0, sigma, repeats=repeats, random_state=random_state)
        error = np.hypot(drawn.bias_error, drawn.variance_error)
        add("simulated", np.array([k]), rho, drawn.bias + drawn.variance, error)
    columns = {name: np.concatenate(parts) for name, parts in lines.items()}
    parameters = {"n_features": D, "psi": PSI, "snr": SNR, "dots": DOTS, "repeats": repeats}
    return FigureData("double_descent", columns, parameters | {"random_state": random_state})
