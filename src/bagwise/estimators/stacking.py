r"""How much each of several models should say, from bags that none of them has seen.

With weights w on the simplex the joint prediction errs on bag a by Σ_j w_j e_ja, e_ja = ȳ_a − f̄_ja,
so the loss is a quadratic of a matrix that is as small as there are models:

    L(w) = Σ_a v_a |Σ_j w_j e_ja|² / Σ_a v_a = wᵀEw,    E_jl = Σ_a v_a e_ja · e_la / Σ_a v_a

Its least point trusts chance when bags are few. Were errors of bags normal with variance L_min/v_a,
exp(−m (L(w) − L_min) / 2 L_min) would be the likelihood of w. The weights are the mean of the
simplex under it and a Dirichlet prior Π_j w_j^(α_j − 1): few bags leave them near α_j / Σα, many
give the least point.
"""

from __future__ import annotations

from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
#: parts into which the whole weight is cut
STEPS = 20


def error_products(errors: FloatArray, weights: FloatArray) -> FloatArray:
    """E of errors of shape (n_models, n_bags, K), for bags of these weights."""
    scaled = errors * np.sqrt(weights / weights.sum())[:, None]
    flat = scaled.reshape(len(errors), -1)
    return np.asarray(flat @ flat.T)


def simplex(n_models: int, steps: int = STEPS) -> FloatArray:
    """All weights in whole steps that add up to 1, shape (…, n_models).

    Examples
    --------
    >>> simplex(2, 2).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """
    # Each is a way to set bars between the steps.
    places = steps + n_models - 1
    bars = np.array(list(combinations(range(places), n_models - 1)), dtype=np.int64)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=(-1, places))
    return (np.diff(edges, axis=1) - 1) / steps


def expected_weights(products: FloatArray, n_bags: float, prior: FloatArray) -> FloatArray:
    """The mean of the simplex under likelihood and prior, shape (n_models,).

    Parameters
    ----------
    products : array of shape (n_models, n_models)
        E, from `error_products`.
    n_bags : float
        Bags that it is of, m; of unequal weights, as many of equal weight as tell as much.
    prior : array of shape (n_models,)
        α, at least 1: 1 for all prefers no weights beforehand.

    Notes
    -----
    Guarantees: at least 0, and 1 in all; the same for responses in other units; models of one α
    that err alike weigh alike.

    Examples
    --------
    >>> expected_weights(np.diag([1.0, 4.0]), 1000, np.ones(2)).round(1).tolist()
    [0.8, 0.2]
    """
    grid = simplex(len(products))
    losses = np.einsum("gj,jl,gl->g", grid, products, grid)
    least = losses.min()
    if least <= 0:
        density = (losses <= 0).astype(float)
    else:
        likelihood = np.exp(-n_bags * (losses - least) / (2 * least))
        # A point stands for what lies around it, and 0 is not ruled out.
        density = likelihood * np.prod((grid + 0.5 / STEPS) ** (prior - 1), axis=1)
    return np.asarray(density @ grid / density.sum())
