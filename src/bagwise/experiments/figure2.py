"""Figure 2 of the paper: the best bag size of 1..5 against log rho, under label privacy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bagwise import theory
from bagwise.experiments.figure import Claim, FigureData, listed

# The statements of the text hold from about psi = 10 on; docs/errata.md shows where they stop.
PSI = (10.0, 20.0, 50.0, 100.0)
SIZES = (1, 2, 3, 4, 5)
RHOS = np.geomspace(1e-4, 1, 2001)


def run() -> FigureData:
    """The bag size that minimises the limit of risk / log n."""
    psi, rho = (a.ravel() for a in np.meshgrid(PSI, RHOS, indexing="ij"))
    best = theory.limiting_bag_size(rho, psi, SIZES)
    columns = {"psi": psi, "rho": rho, "best_k": best}
    parameters = {"psi": PSI, "bag_sizes": SIZES, "rho": [RHOS[0], RHOS[-1], len(RHOS)]}
    data = FigureData("figure2", columns, parameters)
    return replace(data, claims=_claims(data))


def jump(data: FigureData, psi: float) -> float:
    """The first rho at which a single row is no longer the best bag."""
    curve = data.where(psi=psi)
    return float(curve["rho"][np.argmax(curve["best_k"] > 1)])


def _claims(data: FigureData) -> tuple[Claim, ...]:
    """What section 4 says of the figure."""
    curves = [data.where(psi=psi) for psi in PSI]
    between = [float(((c["best_k"] > 1) & (c["best_k"] < 5)).mean()) for c in curves]
    ends = all(c["best_k"][0] == 1 and c["best_k"][-1] == 5 for c in curves)
    rising = all((np.diff(c["best_k"]) >= 0).all() for c in curves)
    jumps = [jump(data, psi) for psi in PSI]
    rho, k = np.meshgrid(RHOS, SIZES)
    place = [np.argmin(theory.private_limit(rho, k, psi)) for psi in PSI]
    joint = {(float(rho.flat[i]), int(k.flat[i])) for i in place}
    return (
        Claim(
            "Below some rho bags of one are best, above it the largest bags are.",
            ends and rising and max(between) < 0.02,
            f"sizes between 1 and 5 are best on at most {max(between):.1%} of the axis",
        ),
        Claim(
            "The rho of the jump grows as psi falls.",
            bool((np.diff(jumps) < 0).all()),
            f"jump at rho = {listed(jumps, '.4f')} for psi = {listed(PSI, 'g')}",
        ),
        Claim(
            "Over bag size and rho jointly the risk is least at rho = 1 and k = 5.",
            joint == {(1.0, 5)},
            f"least at (rho, k) = {', '.join(map(str, sorted(joint)))}",
        ),
    )
