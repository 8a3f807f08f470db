"""The audit: it passes the mechanism that users get, and fails every mutant of it."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bagwise.release import Mechanism, audit
from bagwise.release.audit import _chi_square, as_released

DRAWS = 100_000
HONEST = Mechanism.of((-60.0, 180.0), 1.0)


@pytest.mark.parametrize(
    "mechanism",
    [
        HONEST,
        Mechanism.of((-60.0, 180.0), 0.25),
        Mechanism.of((0.0, 1.0), 4.0),
        Mechanism.of((0.0, 1.0), 1.0, step=1.0),
        Mechanism.of((0.1, 0.9), 1.0, rows_per_user=3),
        Mechanism.of((-60.0, 180.0), 1.0, paper=True),
        Mechanism.of((1e9, 1e9 + 1), 1.0),
    ],
    ids=[
        "flights",
        "small epsilon",
        "large epsilon",
        "coarse",
        "users",
        "paper at 2 epsilon",
        "more digits than a float",
    ],
)
def test_what_users_get_passes_and_spends_most_of_its_epsilon(mechanism):
    """A right mechanism fails with probability at most 1 %; by far less, for bounds are shared."""
    found = audit(mechanism, bag_size=5, draws=DRAWS)
    assert found.passed
    assert found.epsilon == mechanism.cost
    # A bound that says little would pass everything.
    assert found.lower_bound > 0.75 * mechanism.cost


@dataclass(frozen=True)
class Unclipped(Mechanism):
    """Averages what it was given."""

    def quantise(self, responses):
        return np.rint(np.asarray(responses) / self.step).astype(np.int64)


@dataclass(frozen=True)
class Shared(Mechanism):
    """One draw for two bags."""

    def add_noise(self, sums, *_):
        noise = super().add_noise(np.zeros(len(sums) // 2, dtype=np.int64))
        return sums + np.repeat(noise, 2)


@dataclass(frozen=True)
class Opposite(Mechanism):
    """One draw for two bags, with its sign turned."""

    def add_noise(self, sums, *_):
        noise = super().add_noise(np.zeros(len(sums) // 2, dtype=np.int64))
        return sums + np.column_stack([noise, -noise]).ravel()


@dataclass(frozen=True)
class Silent(Mechanism):
    """No noise."""

    def add_noise(self, sums, *_):
        return sums.copy()


@dataclass(frozen=True)
class Floating(Mechanism):
    """numpy's floating-point Laplace on the mean of the clipped responses."""

    def noisy_means(self, sums, sizes, *_):
        noise = np.random.default_rng().laplace(scale=self.noise_scales(sizes))
        return sums * self.step / sizes + noise


@dataclass(frozen=True)
class ScaleOfMore(Mechanism):
    """Noise for a bag of one row more: the sensitivity (hi − lo)/(k + 1)."""

    rows: int = 5

    def add_noise(self, sums, *_):
        k = self.rows
        narrow = replace(HONEST, epsilon=self.epsilon * (k + 1) / k)
        return narrow.add_noise(sums)


@dataclass(frozen=True)
class DividesByMore(Mechanism):
    """Divides by k + 1."""

    def noisy_means(self, sums, sizes, *_):
        return super().noisy_means(sums, sizes + 1)


@dataclass(frozen=True)
class Lazy(Mechanism):
    """Every hundredth bag goes without noise."""

    def add_noise(self, sums, *_):
        noisy = super().add_noise(sums)
        noisy[::100] = sums[::100]
        return noisy


def mutant(kind):
    """Releases made by another mechanism that promises the same."""

    def releaser(mechanism, responses, draws):
        fields = {name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__}
        return as_released(kind(**fields), responses, draws)

    return releaser


def printed(mechanism, responses, draws):
    """The paper's scale B/(kε), promised as ε."""
    return as_released(replace(mechanism, paper=True), responses, draws)


BROKEN_PROMISES = {
    "the paper's scale": printed,
    "clipping unused": mutant(Unclipped),
    "one draw for two bags": mutant(Shared),
    "one draw, opposite signs": mutant(Opposite),
    "zero noise": mutant(Silent),
}
OTHER_DEFECTS = {
    "scale of k + 1": mutant(ScaleOfMore),
    "divides by k + 1": mutant(DividesByMore),
    "numpy's Laplace": mutant(Floating),
    "more noise than stated": lambda m, y, n: as_released(replace(m, epsilon=0.9), y, n),
    "some bags without noise": mutant(Lazy),
}


@pytest.mark.parametrize("name", [*BROKEN_PROMISES, *OTHER_DEFECTS])
def test_every_mutant_fails(name):
    releaser = (BROKEN_PROMISES | OTHER_DEFECTS)[name]
    found = audit(HONEST, bag_size=5, draws=DRAWS, releaser=releaser)
    assert not found.passed
    if name in BROKEN_PROMISES:
        assert found.lower_bound > 1.5
    if name == "numpy's Laplace":
        assert not found.on_grid
        assert found.lower_bound <= 1, "only the support tells"


def test_the_paper_s_scale_spends_twice_what_it_says():
    found = audit(HONEST, bag_size=20, draws=DRAWS, releaser=printed)
    assert 1.9 < found.lower_bound < 2


def test_floating_point_noise_makes_outputs_that_the_neighbour_cannot():
    """Why the support is tested: last digits tell which of two data sets a float came from."""
    means = [mutant(Floating)(HONEST, np.full((2, 5), y), 20_000)[:, 0] for y in (0.1, 0.7)]
    both = set(means[0].tolist()) & set(means[1].tolist())
    assert len(both) < 100
    grid = [as_released(HONEST, np.full((2, 5), y), 20_000)[:, 0] for y in (0.1, 0.7)]
    steps = [g * 5 / HONEST.step for g in grid]
    assert all(np.array_equal(s, np.rint(s)) for s in steps)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.3, 1e6])
def test_the_chi_square_test_has_the_size_it_should(scale):
    """p-values of right noise are uniform: of 300 none is below 1e-5, about 30 below 0.1."""
    rng = np.random.default_rng(0)
    chance = -math.expm1(-1 / scale)
    values = []
    for _ in range(300):
        draws = rng.geometric(chance, (2, 5000))
        values.append(_chi_square((draws[0] - draws[1]).astype(float), scale))
    assert min(values) > 1e-5
    assert 10 < sum(value < 0.1 for value in values) < 60
    wrong = (draws[0] - draws[1] + 1).astype(float) if scale < 10 else 1.2 * (draws[0] - draws[1])
    assert _chi_square(wrong, scale) < 1e-6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bag_size": 0}, "bag_size must be a whole number of at least 1"),
        ({"draws": 10}, "draws must be a whole number of at least 1000"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1"),
        ({"mechanism": Mechanism.of((0, 1), math.inf)}, "epsilon must be finite"),
    ],
)
def test_bad_arguments_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        audit(**{"mechanism": HONEST} | options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "broken"), [("honest", False), ("the paper's scale", True)])
def test_an_outside_suite_agrees(name, broken):
    """privacy-estimates on the best threshold attack: its bound keeps to ε, or proves a breach."""
    estimates = pytest.importorskip("privacy_estimates")
    releaser = BROKEN_PROMISES.get(name, as_released)
    draws, size = 50_000, 5
    middle = np.full((2, size), 60.0)
    outputs = []
    for extreme in (-1e6, 1e6):
        data = middle.copy()
        data[0, 0] = extreme
        outputs.append(releaser(HONEST, data, draws)[:, 0])
    # The attacker says "high" past the mean that the high neighbour would have without noise.
    threshold = (4 * 60 + 180) / size
    high = [int((out >= threshold).sum()) for out in outputs]
    counts = estimates.AttackResults(FN=draws - high[1], FP=high[0], TN=draws - high[0], TP=high[1])
    for method in ("beta", "joint-beta"):
        low = estimates.compute_eps_lo(count=counts, delta=0.0, alpha=1e-3, method=method)
        assert (low > 1) == broken, f"{method}: {low}"
        assert low > 0.85 * (2 if broken else 1)
