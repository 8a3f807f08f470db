"""Monte Carlo over the linear model: what the theory predicts, drawn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from bagwise import _check

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Simulation:
    """Means over replicates at each rho, with their standard errors; arrays of shape (n_rhos,).

    Attributes
    ----------
    rhos : the rhos
    bias, variance : exact given the drawn features, averaged over θ0 and the noise
    risk : of one drawn θ0 and one drawn set of responses a replicate, clipping and privacy included
    bias_error, variance_error, risk_error : their standard errors
    repeats : number of replicates
    """

    rhos: FloatArray
    bias: FloatArray
    variance: FloatArray
    risk: FloatArray
    bias_error: FloatArray
    variance_error: FloatArray
    risk_error: FloatArray
    repeats: int


@dataclass(frozen=True)
class _Setting:
    """What every replicate shares."""

    sizes: NDArray[np.intp]
    rhos: FloatArray
    root: FloatArray
    tau: float
    sigma: float
    epsilon: float
    bounds: tuple[float, float] | None


def simulate(
    n_features: int,
    bag_sizes: ArrayLike,
    rhos: ArrayLike,
    tau: float = 1.0,
    sigma: float = 1.0,
    covariance: ArrayLike | None = None,
    epsilon: float = np.inf,
    bounds: tuple[float, float] | None = None,
    repeats: int = 30,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Simulation:
    r"""Draw Gaussian rows in bags, fit the interpolating estimator at every rho, and measure it.

    Given the rows, with M = (A + ρW)⁻¹ and Σ the covariance of the features,

        bias = (τ²/d) ‖Σ^½ ρMW Σ^-½‖²_F   (the mean over θ0 = τ Σ^-½ z/‖z‖, z Gaussian)
        variance = σ² tr(Σ M A M)

    Parameters
    ----------
    n_features : int
    bag_sizes : sequence of int
        The rows of each bag; [3] * 200 for 200 bags of three.
    rhos : sequence of floats in [0, 1]; above 0 when there are fewer bags than features
    tau, sigma : standard deviations of the true prediction and of the noise
    covariance : array of shape (n_features, n_features), identity by default
    epsilon, bounds : label privacy
        Drawn responses are clipped to ``bounds`` and bag means get Laplace noise of the right
        scale, (hi − lo)/(k ε). These draws are for study: they are not a private release.
    repeats : int
    random_state : int
    progress : callable that wraps the loop over replicates, to draw a bar

    Examples
    --------
    >>> drawn = simulate(20, [2] * 40, rhos=[0.1, 1.0], repeats=10)
    >>> bool((drawn.bias[0] < drawn.bias[1]) and (drawn.variance[0] > drawn.variance[1]))
    True
    """
    setting = _check_setting(n_features, bag_sizes, rhos, tau, sigma, covariance, epsilon, bounds)
    _check.whole("repeats", repeats, low=2, remedy="Standard errors take two")
    seeds = np.random.SeedSequence(random_state).spawn(repeats)
    workers = min(os.cpu_count() or 1, repeats)
    # One replicate a thread, each with a single-threaded BLAS, keeps every core at work.
    with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
        results = pool.map(lambda seed: _replicate(setting, np.random.default_rng(seed)), seeds)
        drawn = np.array([result for result in progress(_counted(results, repeats))])
    bias, variance, risk = drawn.mean(axis=0)
    errors = drawn.std(axis=0, ddof=1) / np.sqrt(repeats)
    return Simulation(setting.rhos, bias, variance, risk, errors[0], errors[1], errors[2], repeats)


class _counted:
    """An iterator of known length, so that a progress bar can tell how much is left."""

    def __init__(self, items: Iterable[Any], length: int) -> None:
        self._items, self._length = items, length

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return self._length


def _check_setting(
    n_features: int,
    bag_sizes: ArrayLike,
    rhos: ArrayLike,
    tau: float,
    sigma: float,
    covariance: ArrayLike | None,
    epsilon: float,
    bounds: tuple[float, float] | None,
) -> _Setting:
    """The setting, or one sentence about what is wrong with it."""
    d = _check.whole("n_features", n_features, low=1, remedy="Pass the number of features")
    wanted = np.atleast_1d(np.asarray(bag_sizes))
    if wanted.ndim != 1 or not len(wanted) or wanted.min() < 1 or (wanted % 1).any():
        _check.refuse("bag_sizes", "whole rows of each bag", f"{bag_sizes!r}", "[3] * 200, say")
    sizes = wanted.astype(np.intp)
    if sizes.sum() <= d:
        got = f"{sizes.sum()} rows for {d} features"
        _check.refuse("bag_sizes", "of more rows than features", got, "Add bags")
    at = np.atleast_1d(np.asarray(rhos, dtype=np.float64))
    if at.ndim != 1 or not len(at) or not (at.min() >= 0 and at.max() <= 1):
        _check.refuse("rhos", "in [0, 1]", f"rhos={rhos!r}", "0 is bag level, 1 instance level")
    if at.min() == 0 and len(sizes) < d:
        got = f"0 with {len(sizes)} bags for {d} features"
        _check.refuse("rhos", "above 0 where bags are few", got, "Take 1e-9 for the limit")
    remedy = "Pass a standard deviation"
    tau = _check.number("tau", tau, low=0, high=1e150, remedy=remedy)
    sigma = _check.number("sigma", sigma, low=0, high=1e150, remedy=remedy)
    epsilon = _check.number("epsilon", epsilon, low=0, above=True, remedy="1 is usual")
    if np.isfinite(epsilon) and bounds is None:
        _check.refuse("bounds", "given with epsilon", "none", "Pass (lo, hi) of the responses")
    bounds = None if bounds is None else _check.interval("bounds", bounds)
    return _Setting(sizes, at, _root(covariance, d), tau, sigma, epsilon, bounds)


def _root(covariance: ArrayLike | None, d: int) -> FloatArray:
    """Cholesky factor of a covariance of d features; the identity's when there is none."""
    if covariance is None:
        return np.eye(d)
    matrix = np.asarray(covariance, dtype=np.float64)
    try:
        if matrix.shape == (d, d) and np.allclose(matrix, matrix.T):
            return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        pass
    got = f"shape {matrix.shape} for {d} features, or another kind of matrix"
    rule = "symmetric and positive definite, of shape (n_features, n_features)"
    _check.refuse("covariance", rule, got, "Leave it out for independent features")


def _replicate(setting: _Setting, rng: np.random.Generator) -> FloatArray:
    """Bias, variance and drawn risk of one set of rows, shape (3, n_rhos)."""
    sizes, d = setting.sizes, len(setting.root)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    X = rng.standard_normal((int(sizes.sum()), d)) @ setting.root.T
    means = np.add.reduceat(X, starts) / sizes[:, None]
    roots = np.sqrt(sizes)[:, None] * means
    A = roots.T @ roots
    total = X.T @ X
    # Vᵀ(A+W)V = I and VᵀAV = diag(λ): M = V diag(g) Vᵀ, g = 1/(λ + ρ(1−λ)).
    lower = np.linalg.cholesky(total)
    halfway = np.linalg.solve(lower, np.linalg.solve(lower, A).T)
    share, turn = np.linalg.eigh((halfway + halfway.T) / 2)
    # Directions beyond the number of bags have no share; rounding must not give them one.
    share[: max(d - len(sizes), 0)] = 0
    share = np.clip(share, 0, 1)[:, None]
    V = np.linalg.solve(lower.T, turn)
    gain = 1 / (share + setting.rhos * (1 - share))
    loss = setting.rhos * (1 - share) * gain
    G = (setting.root.T @ V).T @ (setting.root.T @ V)
    mixed = G * np.linalg.inv(G)
    bias = setting.tau**2 / d * np.einsum("ir,ij,jr->r", loss, mixed, loss)
    variance = setting.sigma**2 * (np.diag(G)[:, None] * share * gain**2).sum(axis=0)

    z = rng.standard_normal(d)
    theta = setting.tau * np.linalg.solve(setting.root.T, z / np.linalg.norm(z))
    y = X @ theta + setting.sigma * rng.standard_normal(len(X))
    noisy = _means(setting, y, starts, rng)
    estimates = V @ (gain * (V.T @ (roots.T @ (np.sqrt(sizes) * noisy)))[:, None])
    misses = setting.root.T @ (estimates - theta[:, None])
    return np.array([bias, variance, np.square(misses).sum(axis=0)])


def _means(
    setting: _Setting, y: FloatArray, starts: NDArray[np.intp], rng: np.random.Generator
) -> FloatArray:
    """Means of responses over bags, clipped and with Laplace noise where the setting asks."""
    if setting.bounds is not None:
        y = np.clip(y, *setting.bounds)
    means: FloatArray = np.add.reduceat(y, starts) / setting.sizes
    if setting.bounds is not None and np.isfinite(setting.epsilon):
        width = setting.bounds[1] - setting.bounds[0]
        means = means + rng.laplace(scale=width / (setting.sizes * setting.epsilon))
    return means
