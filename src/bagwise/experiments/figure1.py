"""Figure 1 of the paper: bias, variance and risk against rho, as SNR, bag size and psi change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bagwise import theory
from bagwise.experiments.figure import Claim, FigureData, listed

BASE = {"snr": 1.0, "k": 3, "psi": 8.0}
VALUES = {"snr": (0.5, 1.0, 2.0), "k": (2, 3, 5), "psi": (6.0, 8.0, 20.0)}
RHOS = np.linspace(0, 1, 201)
PARTS = ("bias", "variance", "risk")


def run() -> FigureData:
    """Theoretical curves; each row of the figure changes one parameter and keeps the others."""
    lines: dict[str, list[Any]] = {}
    for row, values in VALUES.items():
        for value in values:
            setting = BASE | {row: value}
            sigma = 1 / np.sqrt(setting["snr"])
            bias = theory.bias(RHOS, setting["k"], setting["psi"])
            variance = theory.variance(RHOS, setting["k"], setting["psi"], sigma)
            curve: dict[str, Any] = {"row": row, **setting, "rho": RHOS}
            curve |= {"bias": bias, "variance": variance, "risk": bias + variance}
            for name, column in curve.items():
                lines.setdefault(name, []).append(np.broadcast_to(column, RHOS.shape))
    columns = {name: np.concatenate(parts) for name, parts in lines.items()}
    data = FigureData("figure1", columns, {"base": BASE, "values": VALUES, "rhos": len(RHOS)})
    return replace(data, claims=_claims(data))


def _claims(data: FigureData) -> tuple[Claim, ...]:
    """What section 3.2 says of the figure."""
    curves = {
        row: [data.where(row=row, **{row: value}) for value in values]
        for row, values in VALUES.items()
    }
    every = [curve for row in curves.values() for curve in row]
    rises = np.concatenate([np.diff(c["bias"]) for c in every])
    falls = np.concatenate([np.diff(c["variance"]) for c in every])
    best = [float(c["rho"][np.argmin(c["risk"])]) for c in every]
    snr, k, psi = ({p: np.array([c[p] for c in curves[row]]) for p in PARTS} for row in VALUES)
    # Axis 0 runs over the values of a row, axis 1 over rho; at rho = 0 there is no bias at all.
    first, last = 1, -1
    small_rho, large_rho = np.diff(k["variance"][:, first]), np.diff(k["variance"][:, last])
    smaller = all((np.diff(psi[part][:, first:], axis=0) < 0).all() for part in PARTS)
    return (
        Claim(
            "Increasing rho increases the bias.",
            bool((rises > 0).all()),
            f"least step {rises.min():.1e}",
        ),
        Claim(
            "Increasing rho decreases the variance.",
            bool((falls < 0).all()),
            f"greatest step {falls.max():.1e}",
        ),
        Claim(
            "Risk curves have an optimal rho that balances the two.",
            all(0 < b < 1 for b in best),
            f"best rho from {min(best):.3f} to {max(best):.3f}",
        ),
        Claim(
            "Higher SNR reduces the variance, leaves the bias, and so reduces the risk.",
            bool(
                (np.diff(snr["variance"], axis=0) < 0).all()
                and not np.ptp(snr["bias"], axis=0).any()
            ),
            f"variance at rho = 0: {listed(snr['variance'][:, 0])}",
        ),
        Claim(
            "Larger bags induce more bias.",
            bool((np.diff(k["bias"][:, first:], axis=0) > 0).all()),
            f"bias at rho = 1: {listed(k['bias'][:, last])}",
        ),
        Claim(
            "For small rho larger bags increase the variance, for large rho they reduce it.",
            bool((small_rho > 0).all() and (large_rho < 0).all()),
            f"at rho = {RHOS[first]:g}: {listed(k['variance'][:, first])}; "
            f"at 1: {listed(k['variance'][:, last], '.3f')}",
        ),
        Claim(
            "Larger psi decreases bias, variance and risk.",
            smaller,
            f"least risk: {listed(psi['risk'].min(axis=1), '.3f')}",
        ),
    )
