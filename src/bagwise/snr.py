"""Signal and noise, estimated from the sums of a release alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, f, ncf, norm

from bagwise import _check
from bagwise.spectrum import LOST, feature_rank, spectrum_of_statistics
from bagwise.statistics import AggregateStatistics

# Degrees of freedom from which the residuals of bag means tell the noise.
ENOUGH = 4
# Least share of a direction's variation within bags from which W tells its scale.
THIN = 1e-6


@dataclass(frozen=True)
class SnrEstimate:
    """Signal-to-noise ratio of the rows, with an interval.

    Attributes
    ----------
    signal, noise : float
        Standard deviations of the true prediction, and of a response about it. Privacy noise on bag
        means counts as noise of responses, as it does in the theory.
    snr : float
        signal²/noise².
    low, high : float
        Interval that covers the ratio with probability ``level`` for random bags of Gaussian rows.
    level : float
    method : {"residuals", "moments"}
        Residuals of bag means, or, with hardly more bags than features, moments of A, W and c.
    """

    signal: float
    noise: float
    snr: float
    low: float
    high: float
    level: float
    method: str


def estimate_snr(statistics: AggregateStatistics, level: float = 0.95) -> SnrEstimate:
    r"""Signal and noise from A, W, c and the spread of the bag means.

    With m bags about their mean, Σ k_a(ȳ_a − ȳ)² has mean (m−1)(τ² + σ²) for random bags. With more
    bags than features least squares of bag means leaves (m−1−d)σ², and the ratio of explained to
    left is a mixture of noncentral F whose quantiles give the interval. With fewer, the squared
    length of c in units of W tells signal from noise (Dicker 2014).

    Parameters
    ----------
    statistics : AggregateStatistics
        Of random bags; bags that nature made may hold more or less signal than rows do.
    level : float in (0, 1)
        Coverage of the interval.

    Examples
    --------
    >>> from bagwise import AggregateStatistics, Bags
    >>> rng = np.random.default_rng(0)
    >>> X, bags = rng.normal(size=(5000, 4)), Bags.random(5000, 10, random_state=0)
    >>> y = X @ [1.0, 1.0, 0.0, 0.0] + rng.normal(size=5000)
    >>> found = estimate_snr(AggregateStatistics.from_rows(X, bags.expand(bags.mean(y)), bags))
    >>> bool(found.low < 2 < found.high)
    True
    """
    if not 0 < _check.number("level", level, low=0, high=1, remedy="0.95 is usual") < 1:
        _check.refuse("level", "between 0 and 1", f"level={level!r}", "0.95 is usual")
    m = statistics.n_bags - 1
    d = feature_rank(statistics)
    if d == 0 or m < 1 or statistics.response_square <= 0:
        got = f"{statistics.n_bags} bags, {d} varying features"
        _check.refuse("statistics", "of varying bags", got, "Add bags whose means differ")
    if m - d >= ENOUGH:
        return _from_residuals(statistics, m, d, level)
    return _from_moments(statistics, m, d, level)


def _from_residuals(statistics: AggregateStatistics, m: int, d: int, level: float) -> SnrEstimate:
    """Explained and left of the least-squares fit of bag means."""
    spectrum = spectrum_of_statistics(statistics, True, 0.0)
    explained, spare = float(np.square(spectrum.target).sum()), m - d
    noise2 = max(spectrum.left, 1e-12 * explained) / spare
    signal2 = max(statistics.response_square / m - noise2, 0.0)
    ratio = explained / d / noise2
    # Given A the noncentrality is θ0ᵀAθ0/σ², which for random bags is snr times a χ² of m.
    nodes = chi2.ppf((np.arange(40) + 0.5) / 40, m)

    def tail(snr: float) -> float:
        return float(_noncentral(ratio, d, spare, snr * nodes).mean())

    snr = signal2 / noise2
    ends = (1 + level) / 2, (1 - level) / 2
    if snr > 1e5:
        # Then explained and left are multiples of χ², and their ratio is of F.
        low, high = (float(snr / f.ppf(p, m, spare)) for p in ends)
    else:
        low, high = (_crossing(tail, p) for p in ends)
    noise = float(np.sqrt(noise2))
    return SnrEstimate(float(np.sqrt(signal2)), noise, snr, low, high, level, "residuals")


def _noncentral(ratio: float, d: int, spare: int, lengths: Any) -> Any:
    """P(F' ≤ ratio) of noncentral F; where SciPy gives up, far out, Patnaik's approximation."""
    found = ncf.cdf(ratio, d, spare, lengths)
    total = d + lengths
    near = f.cdf(ratio * d / total, total**2 / (total + lengths), spare)
    return np.where(np.isnan(found), near, found)


def _crossing(tail: Callable[[float], float], probability: float) -> float:
    """The snr at which a falling tail passes a probability; 0 when it starts below."""
    if tail(0.0) < probability:
        return 0.0
    high = 1.0
    while tail(high) > probability and high < 1e12:
        high *= 4
    return float(brentq(lambda s: tail(s) - probability, 0.0, high, rtol=1e-6))


def _from_moments(statistics: AggregateStatistics, m: int, d: int, level: float) -> SnrEstimate:
    """Two moments, with W for the covariance: W is independent of the bag means."""
    inner = statistics.n_rows - statistics.n_bags
    if inner - d < 4:
        got = f"{statistics.n_rows} rows in {statistics.n_bags} bags for {d} features"
        remedy = "Too few rows to tell signal from noise: pass rho as a number, or 'loo'"
        _check.refuse("statistics", "of more rows within bags than features", got, remedy)
    square = statistics.response_square
    length = (inner - d - 1) * _squared_length(statistics)
    signal2 = max((length - d * square) / (m * (m + 1)), 0.0)
    noise2 = max(((m + d + 1) * square - length) / (m * (m + 1)), 1e-3 * square / m)
    # Variances of the two estimates in the limit, and of W's own inverse on top.
    total = (signal2 + noise2) ** 2
    of_noise = 2 * (d / m * total + noise2**2 + signal2**2) / m
    of_signal = 2 * ((1 + d / m) * total - noise2**2 + 3 * signal2**2) / m
    both = (2 * total / m - of_noise - of_signal) / 2
    inverse = 2 / (inner - d - 3) * (length / (m * (m + 1))) ** 2
    # The share of signal in the whole is bounded, and its estimate less skewed than the ratio's.
    whole = signal2 + noise2
    variance = (
        noise2**2 * (of_signal + inverse)
        + signal2**2 * (of_noise + inverse)
        - 2 * signal2 * noise2 * (both - inverse)
    ) / whole**4
    half = norm.ppf((1 + level) / 2) * np.sqrt(variance)
    low, high = (_ratio(signal2 / whole + side * half) for side in (-1, 1))
    found = float(np.sqrt(signal2)), float(np.sqrt(noise2)), float(signal2 / noise2)
    return SnrEstimate(*found, low, high, level, "moments")


def _ratio(share: float) -> float:
    """Signal over noise, from the share of signal in the whole; infinite where noise may be 0."""
    return float(np.inf if share >= 1 else max(share, 0.0) / (1 - share))


def _squared_length(statistics: AggregateStatistics) -> float:
    """cᵀW⁻¹c over the directions in which rows vary, or a sentence where W is too thin for it."""
    total = statistics.between + statistics.within
    length = np.sqrt(np.diag(total))
    scale = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0.0)
    size, axes = np.linalg.eigh(total * np.outer(scale, scale))
    kept = size > LOST * size[-1]
    to_unit = scale[:, None] * axes[:, kept] / np.sqrt(size[kept])
    inside, turn = np.linalg.eigh(to_unit.T @ statistics.within @ to_unit)
    if inside[0] < THIN:
        got = "a feature that is constant within bags, with few bags"
        remedy = "Such bags are not random: signal and noise cannot be told apart"
        _check.refuse("statistics", "of features that vary within bags", got, remedy)
    return float(np.square(turn.T @ (to_unit.T @ statistics.cross) / np.sqrt(inside)).sum())
