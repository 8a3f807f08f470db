"""The mechanism: what one person can change, how much noise that asks for, and exact arithmetic."""

import math
import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from bagwise.release.mechanism import Mechanism

BOUNDS = st.tuples(
    st.floats(-1e6, 1e6, allow_nan=False), st.floats(1e-3, 1e6, allow_nan=False)
).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(
    BOUNDS, st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.integers(1, 4), st.data()
)
def test_one_person_moves_the_sums_by_at_most_the_sensitivity(bounds, responses, g, data):
    """Brute force over the neighbours: any g responses of one person, replaced by anything."""
    mechanism = Mechanism.of(bounds, 1.0, rows_per_user=g)
    y = np.array(responses)
    sizes = [1] * (len(y) % 3) + [3] * (len(y) // 3)
    sizes = np.array(sizes)
    other = y.copy()
    rows = data.draw(st.lists(st.integers(0, len(y) - 1), min_size=1, max_size=g))
    for row in rows:
        other[row] = data.draw(st.floats(-1e300, 1e300))
    moved = np.abs(mechanism.sums(y, sizes) - mechanism.sums(other, sizes)).sum()
    assert moved <= mechanism.sensitivity


def test_the_sensitivity_is_reached():
    """A smaller number would be wrong: two neighbours move the sums by all of it."""
    mechanism = Mechanism.of((-60.0, 180.0), 1.0, rows_per_user=2)
    one, two = np.array([-1e9, -1e9, 3.0]), np.array([1e9, 1e9, 3.0])
    sizes = np.array([2, 1])
    assert np.abs(mechanism.sums(one, sizes) - mechanism.sums(two, sizes)).sum() == (
        mechanism.sensitivity
    )


@given(BOUNDS, st.floats(1e-6, 1e3))
def test_the_scale_is_the_least_that_keeps_the_promise(bounds, epsilon):
    """Exact rationals: Δ/scale ≤ ε, and no float below the scale would do by more than rounding."""
    mechanism = Mechanism.of(bounds, epsilon)
    spent = Fraction(mechanism.sensitivity) / Fraction(mechanism.scale)
    assert spent <= Fraction(epsilon)
    assert spent >= Fraction(epsilon) * (1 - Fraction(1, 2**50))


def test_the_privacy_map_is_asked():
    """Where a quotient is rounded down, OpenDP's map refuses it and the scale goes up."""
    raised = [
        epsilon
        for epsilon in np.linspace(0.1, 3, 200)
        if Mechanism.of((0.0, 1.0), float(epsilon)).scale > 2**20 / float(epsilon)
    ]
    assert raised


def test_the_paper_prints_half_of_the_scale_and_pays_twice():
    right, printed = (Mechanism.of((-1.0, 1.0), 1.0, paper=paper) for paper in (False, True))
    assert printed.scale == pytest.approx(right.scale / 2, rel=1e-12)
    assert (right.cost, printed.cost) == (1.0, 2.0)
    # B/(kε), in the units of the response.
    assert printed.noise_scales(np.array([10]))[0] == pytest.approx(1.0 / (10 * 1.0), rel=1e-12)
    assert right.noise_scales(np.array([10]))[0] == pytest.approx(2.0 / (10 * 1.0), rel=1e-12)


@given(BOUNDS, st.lists(st.floats(-2e6, 2e6), min_size=1, max_size=20))
def test_sums_are_exact_and_close_to_those_of_clipped_responses(bounds, responses):
    mechanism = Mechanism.of(bounds, math.inf)
    y, k = np.array(responses), len(responses)
    mean = mechanism.noisy_means(mechanism.sums(y, np.array([k])), np.array([k]))[0]
    clipped = np.clip(y, *bounds)
    assert abs(mean - clipped.mean()) <= mechanism.step * (1 + 1e-9) + 1e-9 * abs(clipped).max()
    width = bounds[1] - bounds[0]
    assert mechanism.step <= width / 2**20
    order = np.random.default_rng(0).permutation(k)
    assert mechanism.sums(y[order], np.array([k])) == mechanism.sums(y, np.array([k]))


def test_clipping_comes_before_averaging():
    mechanism = Mechanism.of((0.0, 1.0), math.inf)
    sums = mechanism.sums(np.array([1e300, -1e300, 0.5]), np.array([3]))
    assert mechanism.noisy_means(sums, np.array([3]))[0] == pytest.approx(0.5, abs=1e-6)


def test_bounds_off_the_grid_are_rounded_inwards():
    mechanism = Mechanism.of((0.1, 0.9), 1.0, step=0.25)
    assert (mechanism.quantise(np.array([-5.0, 5.0])) * mechanism.step).tolist() == [0.25, 0.75]
    assert mechanism.sensitivity == 2


@pytest.mark.parametrize("epsilon", [0.3, 5.0])
def test_noise_has_the_scale_it_should_on_both_sides(epsilon):
    """Chi-square of |noise|, which is nearly exponential; α = 1e-6, and 3 % off is seen."""
    mechanism = Mechanism.of((0.0, 1.0), epsilon)
    noise = mechanism.add_noise(np.zeros(100_000, dtype=np.int64))
    statistic = 2 * np.abs(noise).sum() / mechanism.scale
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 2 * len(noise))
    assert low < statistic < high
    for wrong in (0.97, 1.03):
        assert not low < wrong * statistic < high
    assert abs(noise.mean()) < 5 * math.sqrt(2) * mechanism.scale / math.sqrt(len(noise))


def test_every_bag_of_every_call_has_noise_of_its_own():
    """More than one chunk and thread: no draw is used twice, and none is lost."""
    mechanism = Mechanism.of((0.0, 1.0), 1e-3)
    sums = np.arange(50_001, dtype=np.int64) * 0
    noise = np.concatenate([mechanism.add_noise(sums), mechanism.add_noise(sums)])
    assert len(noise) == 100_002
    # The law has more than 1e9 likely values: a repeat among 1e5 draws has a chance of a few each.
    assert len(np.unique(noise)) > 99_900
    shifted = mechanism.add_noise(sums + 10**15)
    assert (np.abs(shifted - 10**15) < 10**12).all()


def test_noise_is_never_repeated_after_fork():
    """Parent and children draw after the parent has drawn: a copied generator would agree."""
    mechanism = Mechanism.of((0.0, 1.0), 1e-3)
    zeros = np.zeros(50, dtype=np.int64)
    mechanism.add_noise(zeros)
    streams = []
    for _ in range(4):
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(sink, np.array(mechanism._calibrated[1](zeros), dtype=np.int64).tobytes())
            os._exit(0)
        os.close(sink)
        with os.fdopen(source, "rb") as pipe:
            streams.append(tuple(np.frombuffer(pipe.read(), dtype=np.int64)))
        os.waitpid(child, 0)
    streams.append(tuple(mechanism.add_noise(zeros)))
    assert all(len(stream) == 50 for stream in streams)
    assert len(set(streams)) == 5
    assert len({value for stream in streams for value in stream}) > 240


def test_test_noise_is_repeatable_and_never_called_private():
    mechanism = replace(Mechanism.of((0.0, 1.0), 1.0), test_seed=7)
    zeros = np.zeros(20_000, dtype=np.int64)
    noise = mechanism.add_noise(zeros)
    np.testing.assert_array_equal(noise, mechanism.add_noise(zeros))
    assert not mechanism.private
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 2 * len(noise))
    assert low < 2 * np.abs(noise).sum() / mechanism.scale < high


def test_an_infinite_epsilon_adds_nothing_and_is_not_private():
    mechanism = Mechanism.of((0.0, 1.0), math.inf)
    sums = np.array([3, 4])
    np.testing.assert_array_equal(mechanism.add_noise(sums), sums)
    assert not mechanism.private
    assert mechanism.scale == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (((0, 1), 0.0), "epsilon must be above 0; got epsilon=0.0"),
        (((0, 1), -1.0), "epsilon must be above 0"),
        (((0, 1), math.nan), "epsilon must be above 0"),
        (((0, 1), "1"), "epsilon must be above 0"),
        (((0, 1), 1e-12), "epsilon must be large enough for the grid"),
        (((1, 0), 1.0), "bounds must be .* with lo < hi"),
        (((1, 1), 1.0), "bounds must be .* with lo < hi"),
        (((0, math.inf), 1.0), "bounds must be .*finite"),
        (((1e15, 1e15 + 1), 1.0), "bounds must be wide for their distance from 0"),
        (((0, 1), 1.0, 0), "max_rows_per_user must be a whole number of at least 1"),
        (((0, 1), 1.0, 1, 0.3), "step must be a power of two"),
        (((0, 1), 1.0, 1, -0.5), "step must be a power of two"),
        (((0, 1), 1.0, 1, math.nan), "step must be a power of two"),
        (((0, 1), 1.0, 1, 2.0), "step must be finer than the bounds are wide"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Mechanism.of(*arguments)


def test_sums_that_could_leave_the_integers_are_refused_by_size_alone():
    """Sizes are public; the check must not wait for a response that overflows."""
    mechanism = Mechanism.of((2.0**40, 2.0**40 + 1), 1.0, step=2.0**-11)
    with pytest.raises(ValueError, match="bags must be small enough to sum exactly"):
        mechanism.sums(np.zeros(3000), np.array([3000]))
    mechanism.check_sizes(1023)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_responses_that_are_no_numbers_never_get_a_sum(bad):
    mechanism = Mechanism.of((0.0, 1.0), 1.0)
    with pytest.raises(ValueError, match="the response must be finite"):
        mechanism.quantise(np.array([0.5, bad]))
    with pytest.raises(ValueError, match="the response must be a column of numbers"):
        mechanism.quantise(np.array(["0.5"]))
