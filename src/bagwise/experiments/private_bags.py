"""A figure of our own: the best bag size at finite n is not that of the theorem's limit."""

from __future__ import annotations

import numpy as np

from bagwise import theory
from bagwise.experiments.figure import FigureData

N, D, EPSILON, SNR = 20_000, 100, 2.0, 1.0
SIZES = np.unique(np.geomspace(1, 100, 60).round())
RHOS = np.geomspace(1e-4, 1, 120)


def run() -> FigureData:
    """Risk over (k, rho): at n rows, and as the limit of risk / log n times log n."""
    sigma = SNR**-0.5
    # The least truncation level of the theorem, C² = 2(1 + σ²).
    C = np.sqrt(2 * (1 + sigma**2))
    width = 2 * C * np.sqrt(np.log(N))
    k, rho = (a.ravel() for a in np.meshgrid(SIZES, RHOS, indexing="ij"))
    columns = {
        "k": k,
        "rho": rho,
        "risk": theory.private_risk(rho, k, N / D, EPSILON, width, 1.0, sigma),
        "limit": np.log(N) * theory.private_limit(rho, k, N / D, EPSILON, C),
    }
    parameters = {"n_rows": N, "n_features": D, "epsilon": EPSILON, "snr": SNR, "C": float(C)}
    return FigureData("private_bags", columns, parameters | {"bounds": [-width / 2, width / 2]})
