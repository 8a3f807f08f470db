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

from bagwise import _check
from bagwise.bags import Bags

FloatArray: TypeAlias = NDArray[np.float64]


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


def response_variance(means: FloatArray, sizes: Any, noise: FloatArray | None) -> float:
    """σ² of rows, from how bag means vary beyond their noise; above 0.

    In random bags a mean of k_a rows varies by σ²/k_a + 2b_a². So each bag's
    k_a (ȳ_a − ȳ)² − 2k_a b_a² tells σ², and counts by the square of the bag's weight.

    Parameters
    ----------
    means, sizes, noise : arrays of shape (n_bags,)

    Notes
    -----
    Limits: in bags that are not random it holds what varies between them too, and is too large:
    weights are then more alike than they need be.

    Examples
    --------
    >>> response_variance(np.array([1.0, 3.0]), np.array([4, 4]), None)
    8.0
    """
    noises = np.zeros(len(means)) if noise is None else 2 * sizes * noise**2
    # So that σ² is above 0 where noise hides all, or nothing varies.
    least = 1e-3 * float(noises.mean()) or 1e-12
    found = 0.0
    for _ in range(20):
        weights = 1 / (max(found, least) + noises)
        weights /= weights.max()
        centre = (sizes * weights) @ means / (sizes @ weights)
        squares = sizes * (means - centre) ** 2 * len(means) / max(len(means) - 1, 1)
        found = float(weights**2 @ (squares - noises) / (weights**2).sum())
    return max(found, least)
