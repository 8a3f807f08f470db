r"""Bags against what was predicted for them: the error of a row, groups, standardised residuals.

A mean of k_a rows with error σ² each, and Laplace noise of scale b_a on it, lies about its
prediction with variance σ²/k_a + 2b_a². For random bags k_a r_a² − 2k_a b_a² estimates σ², the
squared error of a row (`row_risk`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise.inspection.bag_fit import BagFit
from bagwise.row_risk import row_risk

FloatArray: TypeAlias = NDArray[np.float64]
GROUPS = 10
NORMAL = 1.96


@dataclass(frozen=True, eq=False)
class Calibration:
    """Bags in groups by their predicted means.

    Attributes
    ----------
    predicted, observed : ndarray of shape (n_groups,)
        Means over the rows of each group.
    half : ndarray of shape (n_groups,)
        Half the width of a 95 % interval for what would be observed without chance and noise, from
        how bags of the group differ.
    n_bags : ndarray of shape (n_groups,)
    slope, slope_error : float
        Of known means on predicted ones, bags weighing as their rows: 1 where predictions are as
        far apart as what they predict.
    """

    predicted: FloatArray
    observed: FloatArray
    half: FloatArray
    n_bags: NDArray[np.int64]
    slope: float
    slope_error: float


def calibration(fit: BagFit) -> Calibration | None:
    """Ten groups of bags, or fewer where there are few bags; None where there are too few."""
    count = min(GROUPS, len(fit.sizes) // 5)
    if count < 2 or np.ptp(fit.fitted) == 0:
        return None
    order = np.argsort(fit.fitted, kind="stable")
    lines = []
    for part in np.array_split(order, count):
        k, f, y = fit.sizes[part], fit.fitted[part], fit.means[part]
        apart = y - f - k @ (y - f) / k.sum()
        error = np.sqrt(np.square(k * apart).sum() * len(part) / max(len(part) - 1, 1)) / k.sum()
        lines.append((k @ f / k.sum(), k @ y / k.sum(), NORMAL * error, len(part)))
    predicted, observed, half, n_bags = np.array(lines).T
    return Calibration(predicted, observed, half, n_bags.astype(np.int64), *_slope(fit))


def _slope(fit: BagFit) -> tuple[float, float]:
    """Of least squares of known on predicted means, with an error that any noise may have."""
    k = fit.sizes
    x, y = (v - k @ v / k.sum() for v in (fit.fitted, fit.means))
    spread = float(k @ x**2)
    slope = float(k @ (x * y)) / spread
    return slope, float(np.sqrt(np.square(k * x * (y - slope * x)).sum())) / spread


@dataclass(frozen=True)
class RowError:
    """Squared error of a row, as bags tell it.

    Attributes
    ----------
    square, standard_error : float
        May be negative where noise is all there is.
    left_out : bool
        Whether each bag was predicted by a model that had not seen it.
    """

    square: float
    standard_error: float
    left_out: bool

    @property
    def root(self) -> float:
        """Root mean squared error; NaN where the square is not above 0."""
        return float(np.sqrt(self.square)) if self.square > 0 else float("nan")

    @property
    def root_error(self) -> float:
        """Standard error of the root."""
        return self.standard_error / (2 * self.root)


def row_error(fit: BagFit, left_out: FloatArray | None = None) -> RowError:
    """The squared error of a row from residuals of random bags, the noise of a release taken out.

    Parameters
    ----------
    fit : BagFit
    left_out : ndarray of shape (n_bags,)
        Predictions that did not see a bag's response, where there are such.
    """
    of_row = np.repeat(np.arange(len(fit.sizes)), fit.sizes)
    f = fit.fitted if left_out is None else left_out
    noise = fit.noise[of_row] if fit.noise.any() else None
    found = row_risk(fit.means[of_row], f[of_row], of_row, noise_scale=noise)
    return RowError(found.value, found.standard_error, left_out is not None)


def standardised(fit: BagFit, error: RowError) -> FloatArray:
    """Residuals of bags over the standard deviation that size and noise give them."""
    variance = max(error.square, 0.0) / fit.sizes + 2 * fit.noise**2
    return np.asarray((fit.means - fit.fitted) / np.sqrt(np.maximum(variance, 1e-300)))
