r"""How much a bag's released mean tells: its size, less what the noise of a release hides.

A mean of k_a rows whose responses vary by σ² about what features say has variance σ²/k_a; Laplace
noise of scale b_a adds 2b_a². Weighted least squares weighs a bag by the inverse of the sum. Losses
here weigh it by k_a already, so what is left is

    w_a = σ² / (σ² + 2 k_a b_a²)

A release has noise of one scale s on every bag's *sum*, b_a = s/k_a: then w_a grows with the size
of the bag, and bags smaller than 2s²/σ² rows are mostly noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from bagwise import _check
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.released import Release

FloatArray: TypeAlias = NDArray[np.float64]
# Weights that differ by less are alike; a share of the noise below which no variance is told.
ALIKE, LEAST = 1.1, 1e-3


def read_noise(noise_scale: Any, bags: Bags) -> FloatArray | None:
    """Laplace scale on the mean of each bag, shape (n_bags,), or None when there is no noise.

    Parameters
    ----------
    noise_scale : None, number, sequence of length n_rows, or mapping or Series from bag id
    bags : Bags
    """
    if noise_scale is None:
        return None
    if isinstance(noise_scale, Mapping) or np.ndim(noise_scale):
        try:
            scales = bags.align(noise_scale)
        except ValueError as error:
            raise ValueError(str(error).replace("y must", "noise_scale must", 1)) from None
    else:
        remedy = "A Release has it in its column noise_scale"
        scales = np.full(bags.n_bags, _check.number("noise_scale", noise_scale, remedy=remedy))
    if not (np.isfinite(scales).all() and scales.min() >= 0):
        _check.refuse("noise_scale", "at least 0 and finite", "others", "0 is no noise")
    return scales if scales.any() else None


def released_noise(release: Release | BagTable) -> FloatArray | None:
    """Scale of the noise on the mean of each bag of a Release; None without noise."""
    if not isinstance(release, Release) or release.statement.scale == 0:
        return None
    return np.asarray(release.bags["noise_scale"].to_numpy())


def response_variance(means: FloatArray, sizes: Any, noise: FloatArray) -> float:
    """σ² of Σ_a k_a (ȳ_a − ȳ)² / (σ² + 2 k_a b_a²) = m − 1: means vary as much as they should.

    That is the variance of responses, not of what features leave of them, so that weights err on
    the side of those without noise; where bags differ in more than chance, they do so the more.
    """
    own = 2 * sizes * noise**2

    def excess(variance: float) -> float:
        weights = sizes / (variance + own)
        centre = weights @ means / weights.sum()
        return float(weights @ (means - centre) ** 2) - (len(means) - 1)

    # Past this the sum is below m − 1; where it is below at the least, noise is all there is.
    largest = 2 * float(sizes @ (means - means.mean()) ** 2) + float(own.max())
    least = LEAST * float(own.max())
    if len(means) < 2 or excess(least) <= 0:
        return least
    return float(brentq(excess, least, largest))


def share_variance(shares: FloatArray, sizes: Any) -> float:
    """σ² = p(1 − p) of a row of class or not, at the overall shares; at most ¼."""
    overall = sizes @ shares / sizes.sum()
    return float(max((overall * (1 - overall)).mean(), 1e-3))


def bag_weights(sizes: Any, noise: FloatArray | None, variance: float) -> FloatArray:
    """w_a of each bag, in units in which rows weigh 1 on average: Σ k_a w_a = n.

    Parameters
    ----------
    sizes : int array of shape (n_bags,)
    noise : array of shape (n_bags,) or None
        Laplace scale on each bag's mean.
    variance : float
        σ², above 0.

    Examples
    --------
    >>> bag_weights(np.array([10, 10]), np.array([1.0, 1.0]), 2.0).round(3).tolist()
    [1.0, 1.0]
    >>> bag_weights(np.array([10, 20]), np.array([2.0, 1.0]), 40.0).round(3).tolist()
    [0.75, 1.125]
    """
    if noise is None:
        return np.ones(len(sizes))
    found = variance / (variance + 2 * sizes * noise**2)
    return np.asarray(found * (sizes.sum() / (sizes @ found)))


def regression_weights(
    means: FloatArray, sizes: Any, noise: FloatArray | None
) -> FloatArray | None:
    """w_a for responses of unknown variance; None where bags tell what their size says."""
    if noise is None:
        return None
    weights = bag_weights(sizes, noise, response_variance(means, sizes, noise))
    return weights if weights.max() > ALIKE * weights.min() else None
