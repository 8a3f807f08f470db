r"""Black-box audit: does what a mechanism puts out keep its promise?

Two data sets that differ in one response are released many times. For an event O chosen on one
half of the draws, Clopper-Pearson bounds on the other half give, with the stated confidence,

    ε ≥ log(lower bound of P[O | y] / upper bound of P[O | y'])

so a value above the promised ε is proof that the promise is broken; a value below is evidence, not
proof, that it is kept. Events are thresholds and sets of large likelihood ratio, on one bag and on
the difference and the sum of two. Two further checks look where events cannot: outputs off the grid
tell neighbours apart by their last digits, and a chi-square test compares the noise with the
discrete Laplace law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, chi2

from bagwise import _check
from bagwise.release.mechanism import Mechanism

FloatArray: TypeAlias = NDArray[np.float64]
#: (mechanism, responses of two bags (2, k), draws) -> released means (draws, 2)
Releaser: TypeAlias = Callable[[Mechanism, FloatArray, int], FloatArray]
# Bins from which events are made, rows released in one call, and the chance that the chi-square
# test rejects a right sampler.
BINS, ROWS, ALPHA = 200, 10**7, 1e-6
VIEWS: tuple[Callable[[FloatArray], FloatArray], ...] = (
    lambda means: means[:, 0],
    lambda means: means[:, 0] - means[:, 1],
    lambda means: means[:, 0] + means[:, 1],
)


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    epsilon : float
        What was promised.
    lower_bound : float
        What is spent at least, at the stated confidence.
    confidence : float
    on_grid : bool
        Whether every output lies on the public grid, so that no digit tells neighbours apart.
    p_value : float
        Of the chi-square test of the noise against the discrete Laplace law of the promise.
    draws : int
        Releases of each of the two data sets.
    """

    epsilon: float
    lower_bound: float
    confidence: float
    on_grid: bool
    p_value: float
    draws: int

    @property
    def passed(self) -> bool:
        """Whether no check found the promise broken."""
        return self.lower_bound <= self.epsilon and self.on_grid and self.p_value > ALPHA


def as_released(mechanism: Mechanism, responses: FloatArray, draws: int) -> FloatArray:
    """Means of two bags, released ``draws`` times by the code of `release`: shape (draws, 2)."""
    size = responses.shape[1]
    parts, at_once = [], max(1, ROWS // (2 * size))
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        sizes = np.full(2 * count, size)
        sums = mechanism.sums(np.tile(responses.ravel(), count), sizes)
        parts.append(mechanism.noisy_means(sums, sizes).reshape(count, 2))
    return np.concatenate(parts)


def audit(
    mechanism: Mechanism,
    bag_size: int = 20,
    draws: int = 200_000,
    confidence: float = 0.99,
    releaser: Releaser = as_released,
) -> Audit:
    """Audit releases of bags of ``bag_size`` rows against what a mechanism promises.

    Parameters
    ----------
    mechanism : Mechanism
        The promise: bounds, grid and epsilon.
    bag_size : int
    draws : int
        Releases of each of two neighbouring data sets, at least 1000.
    confidence : float in (0, 1)
        A right mechanism fails by its lower bound at most this seldom.
    releaser : callable
        What makes the means; by default the code that `release` runs.

    Examples
    --------
    >>> audit(Mechanism.of((0, 1), epsilon=1.0), bag_size=3, draws=5000).passed
    True
    """
    bag_size = _check.whole("bag_size", bag_size, low=1, remedy="Pass the rows a bag")
    draws = _check.whole("draws", draws, low=1000, remedy="200,000 are usual")
    if not 0 < _check.number("confidence", confidence, low=0, high=1, remedy="0.99 is usual") < 1:
        _check.refuse("confidence", "between 0 and 1", f"{confidence!r}", "0.99 is usual")
    if not mechanism.private:
        _check.refuse("epsilon", "finite", f"epsilon={mechanism.epsilon!r}", "Nothing is promised")
    middle, width = (mechanism.low + mechanism.high) / 2, mechanism.high - mechanism.low
    one, two = np.full((2, 2, bag_size), middle)
    # One person's responses lie beyond the bounds: clipping that does not happen shows too.
    changed = slice(0, min(bag_size, mechanism.rows_per_user))
    one[0, changed], two[0, changed] = middle - 1000 * width, middle + 1000 * width
    first, second = (releaser(mechanism, responses, draws) for responses in (one, two))
    # Two ends, two directions, three views, three events each: the error is shared among them.
    share = (1 - confidence) / (2 * 2 * 3 * len(VIEWS))
    bounds = [
        _lower_bound(*pair, share)
        for view in VIEWS
        for pair in ((view(first), view(second)), (view(second), view(first)))
    ]
    outputs = np.concatenate([first, second])
    sums = np.rint(outputs * bag_size / mechanism.step)
    expected = mechanism.sums(one[1], np.array([bag_size]))[0]
    return Audit(
        epsilon=mechanism.cost,
        lower_bound=max(0.0, *bounds),
        confidence=confidence,
        on_grid=_on_grid(outputs, sums, mechanism.step, bag_size),
        p_value=_chi_square(sums[:, 1] - expected, mechanism.scale),
        draws=draws,
    )


def _on_grid(outputs: FloatArray, sums: FloatArray, step: float, size: int) -> bool:
    """Whether every output is a whole number of steps over the size, to the last digit."""
    found = np.zeros(outputs.shape, dtype=bool)
    # Where sums have more digits than a float, dividing back can miss by a few of the last.
    for off in range(-2, 3):
        whole = sums + off * np.maximum(1.0, np.spacing(np.abs(sums)))
        found |= whole * step / size == outputs
    return bool(found.all())


def _lower_bound(a: FloatArray, b: FloatArray, share: float) -> float:
    """Lower bound on log(P[O | a] / P[O | b]), O chosen on one half and judged on the other."""
    half = len(a) // 2
    pooled = np.concatenate([a[:half], b[:half]])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, BINS)))
    chosen, judged = (
        [np.bincount(np.searchsorted(edges, x[part]), minlength=len(edges) + 1) for x in (a, b)]
        for part in (slice(None, half), slice(half, None))
    )
    ratio = (chosen[0] + 0.5) / (chosen[1] + 0.5)
    places = np.arange(len(ratio))
    bounds = []
    for order in (np.argsort(-ratio, kind="stable"), places, places[::-1]):
        on_chosen = _log_ratio((np.cumsum(count[order]) for count in chosen), half, share)
        event = order[: int(np.argmax(on_chosen)) + 1]
        hits = (count[event].sum() for count in judged)
        bounds.append(float(_log_ratio(hits, len(a) - half, share)))
    return max(bounds)


def _log_ratio(hits: Iterable[Any], n: int, share: float) -> NDArray[Any]:
    """Log of a Clopper-Pearson lower over an upper bound, from hits among n draws."""
    a, b = (np.asarray(count) for count in hits)
    low = np.where(a > 0, beta.ppf(share, np.maximum(a, 1), n - a + 1), 0.0)
    high = np.where(b < n, beta.ppf(1 - share, b + 1, np.maximum(n - b, 1)), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(low / high))


def _chi_square(noise: FloatArray, scale: float) -> float:
    """p-value of the noise under the discrete Laplace law, in cells of about equal chance."""
    # Edges at quantiles of the continuous law, which need not be exact: chances below are.
    tail = scale * np.log(np.linspace(1, 20, 20))
    edges = np.unique(np.floor(np.concatenate([-tail, tail])))
    decay = np.exp(-1 / scale)
    # P[noise ≤ x] for whole x; the exponents are those of the nearer tail.
    below = np.where(
        edges < 0,
        decay ** np.abs(edges) / (1 + decay),
        1 - decay ** (np.abs(edges) + 1) / (1 + decay),
    )
    expected = np.diff(np.concatenate([[0.0], below, [1.0]])) * len(noise)
    seen = np.bincount(np.searchsorted(edges, noise, side="left"), minlength=len(expected))
    kept = expected > 5
    # Rare cells count together.
    expected, seen = (np.append(x[kept], x[~kept].sum()) for x in (expected, seen))
    statistic = np.sum((seen - expected) ** 2 / np.maximum(expected, 1e-9))
    return float(chi2.sf(statistic, len(seen) - 1))
