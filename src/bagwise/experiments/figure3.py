"""Figure 3 of the paper: theory and simulation at 100 features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise import simulate, theory
from bagwise.experiments.figure import Claim, FigureData

FloatArray: TypeAlias = NDArray[np.float64]
D, PSI, SNR = 100, 8.0, 1.0
SIZES = (2, 3, 5)
DOTS = np.concatenate([[0.0], np.geomspace(0.01, 1, 9)])
LINE = np.unique(np.concatenate([DOTS, np.linspace(0, 0.01, 20), np.geomspace(0.01, 1, 60)]))


def run(
    repeats: int = 50,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> FigureData:
    """Bias, variance and risk at each rho, predicted and drawn, with standard errors."""
    lines: dict[str, list[Any]] = {}
    for k in progress(SIZES):
        m = round(PSI * D / k)
        psi = m * k / D
        drawn = simulate(
            D, [k] * m, DOTS, 1.0, SNR**-0.5, repeats=repeats, random_state=random_state
        )
        risk_error = np.hypot(drawn.bias_error, drawn.variance_error)
        columns = {
            "k": np.full(len(LINE), k),
            "psi": np.full(len(LINE), psi),
            "rho": LINE,
            "bias_theory": theory.bias(LINE, k, psi),
            "bias": _at_dots(drawn.bias),
            "bias_error": _at_dots(drawn.bias_error),
            "variance_theory": theory.variance(LINE, k, psi, SNR**-0.5),
            "variance": _at_dots(drawn.variance),
            "variance_error": _at_dots(drawn.variance_error),
            "risk_theory": theory.risk(LINE, k, psi, 1.0, SNR**-0.5),
            "risk": _at_dots(drawn.bias + drawn.variance),
            "risk_error": _at_dots(risk_error),
        }
        for name, column in columns.items():
            lines.setdefault(name, []).append(column)
    table = {name: np.concatenate(parts) for name, parts in lines.items()}
    parameters = {
        "n_features": D,
        "psi": PSI,
        "snr": SNR,
        "bag_sizes": SIZES,
        "rhos": DOTS.tolist(),
        "repeats": repeats,
        "random_state": random_state,
    }
    gaps = np.abs(table["risk"] / table["risk_theory"] - 1)
    gaps = gaps[np.isfinite(gaps)]
    claim = Claim(
        "At 100 features theory and simulation match.",
        bool(gaps.max() < 0.03),
        f"risk apart by {np.median(gaps):.2%} in the median and {gaps.max():.1%} at most",
    )
    return FigureData("figure3", table, parameters, (claim,))


def _at_dots(values: FloatArray) -> FloatArray:
    """A column along the line, with numbers at the dots and gaps between them."""
    column = np.full(len(LINE), np.nan)
    column[np.searchsorted(LINE, DOTS)] = values
    return column
