r"""Clip, put on a grid, sum exactly, add noise: Algorithm 1 of the paper, mended.

A response is clipped to public bounds [lo, hi] and rounded to a whole number of public steps. Sums
over bags are then sums of integers: exact, the same in any order and on any machine. Replacing the
responses of one person, at most g rows, moves all sums together by at most

    Δ = g (hi − lo) / step    steps

in L1 norm, so discrete Laplace noise of scale Δ/ε steps makes the sums together ε-label-private.
Dividing by the public size of a bag changes nothing. The noise is OpenDP's, from the system's
secure source; it has no seed.

The paper prints half of that scale. ``paper=True`` draws it, for experiments, and says and charges
what it costs: 2ε.

Messages never hold a response, a row number tied to one, or anything computed from responses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise import _check
from bagwise._extras import need
from bagwise._parallel import on_threads
from bagwise._progress import Progress, silent

Integers: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
#: (task, items, progress) -> what the task gives for each, in their order
Workers: TypeAlias = Callable[
    [Callable[[int], Integers], Sequence[int], Progress], Iterable[Integers]
]
# Binary digits between the bounds: rounding moves a response by less than a millionth of them.
DIGITS = 20
# Sums stay far from the ends of int64, and so does noise: it exceeds 64 scales once in e⁶⁴ draws.
LARGEST_SUM = 2**61
LARGEST_SCALE = 2**61 / 64
# Past these a number is a slip of the pen.
LARGEST_BOUND, LARGEST_EPSILON, LARGEST_SHARE = 1e100, 1e6, 1e9
# Draws a call: about a tenth of a second.
CHUNK = 20_000


@dataclass(frozen=True)
class Mechanism:
    """ε-label-private sums of bounded responses.

    Attributes
    ----------
    low, high : float
        Public bounds, chosen without looking at the responses.
    epsilon : float
        Privacy budget of one release; infinite means plain sums, which are not private.
    rows_per_user : int
        g: the unit of privacy is all responses of one person with at most g rows; 1 is one label.
    step : float
        The grid, a power of two; at most the width of the bounds.
    paper : bool
        The paper's noise, half as wide: its cost is 2ε.
    test_seed : int or None
        Noise that anyone can draw again, for tests: nothing it makes is private.

    Notes
    -----
    Formal guarantee: for responses y, y' that differ in at most ``rows_per_user`` rows, and bags
    that do not depend on them, P[noisy sums(y) ∈ O] ≤ e^cost P[noisy sums(y') ∈ O] for every set O.
    Limits: bounds or bags chosen by looking at the responses void it; features are not protected.

    Examples
    --------
    >>> mechanism = Mechanism.of((0.0, 1.0), epsilon=1.0)
    >>> mechanism.sensitivity == 2**20, (mechanism.quantise([0.5, 7.0]) * mechanism.step).tolist()
    (True, [0.5, 1.0])
    """

    low: float
    high: float
    epsilon: float
    rows_per_user: int
    step: float
    paper: bool = False
    test_seed: int | None = None

    @classmethod
    def of(
        cls,
        bounds: tuple[float, float],
        epsilon: float,
        rows_per_user: int = 1,
        step: float | None = None,
        paper: bool = False,
    ) -> Mechanism:
        """A mechanism for these bounds, or one sentence about what is wrong with them."""
        low, high = _check.interval("bounds", bounds)
        if max(abs(low), abs(high)) > LARGEST_BOUND:
            got = f"bounds={bounds!r}"
            _check.refuse("bounds", f"within ±{LARGEST_BOUND:g}", got, "Change the unit")
        remedy = "Small is private, 1 is usual; infinity releases plain means"
        epsilon = _check.number("epsilon", epsilon, low=0, above=True, remedy=remedy)
        if LARGEST_EPSILON < epsilon < math.inf:
            got = f"epsilon={epsilon!r}"
            _check.refuse("epsilon", f"at most {LARGEST_EPSILON:g} or infinite", got, remedy)
        remedy = "1 protects one label, or one row of each user"
        g = _check.whole("max_rows_per_user", rows_per_user, low=1, remedy=remedy)
        if g > LARGEST_SHARE:
            got = f"max_rows_per_user={rows_per_user}"
            _check.refuse("max_rows_per_user", f"at most {LARGEST_SHARE:g}", got, remedy)
        if step is None:
            step = 2.0 ** (math.floor(math.log2(high - low)) - DIGITS)
        if not (isinstance(step, float | int) and step > 0 and math.frexp(step)[0] == 0.5):
            _check.refuse("step", "a power of two", f"step={step!r}", "0.125, say, or leave it out")
        mechanism = cls(low, high, epsilon, g, float(step), bool(paper))
        if mechanism.units[0] >= mechanism.units[1]:
            got = f"step={step!r} for bounds={bounds!r}"
            _check.refuse("step", "finer than the bounds are wide", got, "Choose a smaller step")
        if max(map(abs, mechanism.units)) > 2**52:
            got = f"bounds={bounds!r}"
            remedy = "Shift the responses, or take a larger step"
            _check.refuse("bounds", "wide for their distance from 0 and the step", got, remedy)
        if mechanism.sensitivity / mechanism.cost > LARGEST_SCALE:
            got = f"epsilon={epsilon!r} with step={mechanism.step!r}"
            _check.refuse("epsilon", "large enough for the grid", got, "Take a larger step")
        return mechanism

    @property
    def units(self) -> tuple[int, int]:
        """The bounds in steps, rounded inwards."""
        return math.ceil(self.low / self.step), math.floor(self.high / self.step)

    @property
    def sensitivity(self) -> int:
        """Δ: by how many steps one person can move all sums together."""
        return self.rows_per_user * (self.units[1] - self.units[0])

    @property
    def cost(self) -> float:
        """What a release spends: ε, or 2ε with the noise of the paper."""
        return 2 * self.epsilon if self.paper else self.epsilon

    @property
    def private(self) -> bool:
        """Whether the promise holds: noise is added, and nobody can draw it again."""
        return math.isfinite(self.epsilon) and self.test_seed is None

    @property
    def scale(self) -> float:
        """Scale of the noise on a bag's sum, in steps; 0 when epsilon is infinite."""
        return self._calibrated[0] if math.isfinite(self.epsilon) else 0.0

    @cached_property
    def _calibrated(self) -> tuple[float, Any]:
        """The least scale that OpenDP's privacy map accepts for the cost, and its measurement."""
        dp = need("opendp.prelude", "release")
        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        scale = self.sensitivity / self.cost
        while True:
            measurement = dp.m.make_laplace(*space, scale=scale)
            if measurement.map(self.sensitivity) <= self.cost:
                return scale, measurement
            # A quotient rounded down would spend more than it may: go up by the last digit.
            scale = math.nextafter(scale, math.inf)

    def quantise(self, responses: Any) -> Integers:
        """Responses clipped to the bounds, in whole steps; what is no finite number is refused."""
        values = np.asarray(responses)
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            _check.refuse("the response", "a column of numbers", "another kind", "Convert it first")
        values = values.astype(np.float64)
        if not np.isfinite(values).all():
            _check.refuse("the response", "finite", "missing or infinite values", "Drop those rows")
        low, high = self.units
        # Clip first: a huge response has no place on the grid, but a bound has.
        np.clip(values, low * self.step, high * self.step, out=values)
        values /= self.step
        # Half a step goes up, here and in any language.
        values += 0.5
        whole: Integers = np.floor(values, out=values).astype(np.int64)
        return whole

    def check_sizes(self, largest: int) -> None:
        """Refuse bags so large that a sum could leave the integers; sizes are public."""
        if largest * max(map(abs, self.units)) > LARGEST_SUM:
            got = f"one of {largest} rows with step={self.step!r}"
            _check.refuse("bags", "small enough to sum exactly", got, "Take a larger step")

    def sums(self, responses: Any, sizes: Integers) -> Integers:
        """Exact sums over bags, in steps, of responses that lie bag after bag."""
        self.check_sizes(int(sizes.max()))
        return np.add.reduceat(self.quantise(responses), np.cumsum(sizes) - sizes)

    def noisy_means(
        self,
        sums: Integers,
        sizes: Integers,
        progress: Progress = silent,
        workers: Workers = on_threads,
    ) -> FloatArray:
        """Means over bags from their exact sums: the noisy sum, back in units, over the size."""
        return self.add_noise(sums, progress, workers) * self.step / sizes

    def noise_scales(self, sizes: Integers) -> FloatArray:
        """Scale of the noise on each bag's mean, in the units of the response."""
        return self.scale * self.step / sizes

    def draw(self, count: int) -> Integers:
        """Noise for so many bags, in steps; it knows nothing of them."""
        return np.array(self._calibrated[1](np.zeros(count, dtype=np.int64)), dtype=np.int64)

    def add_noise(
        self, sums: Integers, progress: Progress = silent, workers: Workers = on_threads
    ) -> Integers:
        """Noisy sums, in steps; a fresh draw for every bag of every call.

        Workers draw noise and see no sum; each value is added to one sum, here, once. What a worker
        draws again, because its first answer was lost, is as if the first had never been.
        """
        if not math.isfinite(self.epsilon):
            return sums.copy()
        if self.test_seed is not None:
            # A difference of two geometric draws is discrete Laplace.
            chance = -math.expm1(-1 / self.scale)
            draws = np.random.default_rng(self.test_seed).geometric(chance, (2, len(sums)))
            return np.asarray(sums + draws[0] - draws[1])
        counts = [min(CHUNK, len(sums) - i) for i in range(0, len(sums), CHUNK)]
        noise = np.concatenate(list(workers(self.draw, counts, progress)))
        return np.asarray(sums + noise)

    def __getstate__(self) -> dict[str, Any]:
        """Without OpenDP's handle, which each process makes for itself."""
        return {name: value for name, value in vars(self).items() if name != "_calibrated"}
