"""The theory against the paper's printed equations in 50 digits, and against simulation."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bagwise import simulate, theory

K = (1, 1.0001, 1.5, 2, 3.976, 5, 20, 1000)
PSI = (1.0001, 1.2, 2, 3.976, 5, 20, 1e4)
RHO = (1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.999999, 1)


def nonnegative(coefficients):
    """The largest real root of a polynomial, which here is the one ≥ 0."""
    roots = mp.polyroots(coefficients, maxsteps=500, extraprec=400)
    return max(mp.re(r) for r in roots)


def printed_bias(rho, k, psi):
    """Theorem 2.5 as printed: the fixed point α* cleared of fractions, then the formula."""
    rho, k, psi = (mp.mpf(float(x)) for x in (rho, k, psi))
    if k == 1:
        return mp.mpf(0)
    # (ρ − 1 + ψ/(k(1−α))) α = ψρ(k−1)/k, times k(1−α)
    coefficients = [(1 - rho) * k, psi - (1 - rho) * k + psi * rho * (k - 1), -psi * rho * (k - 1)]
    alpha = nonnegative(coefficients if rho < 1 else coefficients[1:])
    left = rho + psi / (k * (1 - alpha)) - 1
    assert abs(left - psi * rho * (k - 1) / (k * alpha)) < mp.mpf(10) ** -30 * (1 + abs(left))
    inner = (k - 1) * psi / (k * (1 - alpha)) ** 2 - (alpha / (1 - alpha)) ** 2 / k - (k - 1) / k
    return alpha**2 + alpha**2 / inner


def printed_variance(rho, k, psi):
    """Theorem 2.5 as printed: u from the first equation of the system, v from the second."""
    rho, k, psi = (mp.mpf(float(x)) for x in (rho, k, psi))
    u = nonnegative([k, k * (1 + rho) - psi * (1 + rho * (k - 1)), -rho * k * (psi - 1)])
    first = psi / (1 + u) + rho * psi * (k - 1) / (rho + u)
    assert abs(first - k) < mp.mpf(10) ** -30 * k
    v = (k - rho**2 * psi * (k - 1) / (rho + u) ** 2) * (1 + u) ** 2 / psi - 1
    return 1 / v


@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("psi", PSI)
def test_bias_and_variance_equal_the_printed_equations(k, psi):
    with mp.workdps(50):
        for rho in RHO:
            expected = printed_bias(rho, k, psi), printed_variance(rho, k, psi)
            found = theory.bias(rho, k, psi), theory.variance(rho, k, psi)
            for ours, theirs in zip(found, expected, strict=True):
                assert ours == pytest.approx(float(theirs), rel=1e-10)


def test_the_fixed_point_of_the_bias_comes_from_that_of_the_variance():
    """α = wψ(k−1)/k solves the printed equation of the bias."""
    from bagwise.theory.fixed_point import fixed_point

    rho, k, psi = np.meshgrid(RHO[2:-1], K[2:], PSI[1:])
    alpha = fixed_point(rho, k, psi)[1] * psi * (k - 1) / k
    left = rho + psi / (k * (1 - alpha)) - 1
    np.testing.assert_allclose(left, psi * rho * (k - 1) / (k * alpha), rtol=1e-6)


def test_functions_broadcast_and_give_floats_for_floats():
    rho = np.linspace(0, 1, 7)[:, None, None]
    k, psi = np.array([1.0, 2.0, 5.0])[:, None], np.array([6.0, 30.0])
    cube = theory.risk(rho, k, psi, tau=2.0, sigma=0.5)
    assert cube.shape == (7, 3, 2)
    assert isinstance(theory.risk(0.3, 2, 6), float)
    for i, j, h in np.ndindex(7, 3, 2):
        one = theory.risk(float(rho[i, 0, 0]), float(k[j, 0]), float(psi[h]), 2.0, 0.5)
        assert cube[i, j, h] == pytest.approx(one)
    long = theory.risk(np.linspace(0, 1, 100_001), 2, 6)
    assert long[50_000] == pytest.approx(theory.risk(0.5, 2, 6))
    assert theory.risk(np.array([]), 2, 6).shape == (0,)


@given(k=st.floats(1, 50), psi=st.floats(1.05, 100), tau=st.floats(0, 9), sigma=st.floats(0, 9))
def test_closed_corollaries_are_the_ends_of_rho(k, psi, tau, sigma):
    end = theory.instance_level(k, psi, tau, sigma)
    assert end.bias == pytest.approx(theory.bias(1, k, psi, tau), rel=1e-9, abs=1e-12)
    assert end.variance == pytest.approx(theory.variance(1, k, psi, sigma), rel=1e-9)
    assert end.risk == pytest.approx(theory.risk(1, k, psi, tau, sigma), rel=1e-9, abs=1e-12)
    if psi > k * 1.001:
        end = theory.bag_level(k, psi, tau, sigma)
        assert end.bias == theory.bias(0, k, psi, tau) == 0
        assert end.variance == pytest.approx(theory.variance(0, k, psi, sigma), rel=1e-9)
    elif psi < k / 1.001:
        end = theory.ridgeless(k, psi, tau, sigma)
        assert end.bias == pytest.approx(theory.bias(1e-14, k, psi, tau), rel=1e-6, abs=1e-9)
        assert end.variance == pytest.approx(theory.variance(1e-14, k, psi, sigma), rel=1e-6)


@given(k=st.floats(1.01, 40), ratio=st.floats(1.01, 30), factor=st.floats(0.2, 5))
def test_instance_level_wins_exactly_below_the_snr_threshold(k, ratio, factor):
    psi = k * ratio
    snr = theory.snr_threshold(k, psi) * factor
    at_rows = theory.instance_level(k, psi, np.sqrt(snr), 1.0).risk
    at_bags = theory.bag_level(k, psi, np.sqrt(snr), 1.0).risk
    if abs(factor - 1) > 1e-6:
        assert (at_rows < at_bags) == (factor < 1)


@given(k=st.floats(1, 30), psi=st.floats(1.1, 60), snr=st.floats(1e-3, 1e3))
def test_no_rho_of_a_fine_grid_beats_the_best(k, psi, snr):
    tau = float(np.sqrt(snr))
    best = theory.best_rho(k, psi, tau, 1.0)
    grid = np.concatenate([np.geomspace(1e-13, 1, 3000), [1.0]])
    least = theory.risk(max(best, 1e-13), k, psi, tau, 1.0)
    assert least <= theory.risk(grid, k, psi, tau, 1.0).min() * (1 + 1e-6)


def test_best_rho_at_its_ends():
    assert theory.best_rho(1, 5) == 0.0
    assert theory.best_rho(3, 9, tau=0.0) == pytest.approx(1.0, abs=1e-6)
    assert theory.best_rho(3, 9, sigma=0.0) == 0.0
    assert theory.best_rho([2, 3], [[9], [10]]).shape == (2, 2)


def test_privacy_noise_acts_as_response_noise_of_the_right_scale():
    """Laplace noise of scale b has variance 2b²: 400,000 draws; alpha = 1e-4, both sides."""
    k, epsilon, width = 7, 0.8, 6.0
    draws = np.random.default_rng(0).laplace(scale=width / (k * epsilon), size=400_000)
    per_row = k * draws**2
    error = per_row.std() / np.sqrt(len(draws))
    expected = theory.privacy_variance(k, epsilon, width)
    assert abs(per_row.mean() - expected) < 3.9 * error < 0.02 * expected


def test_private_risk_is_the_risk_with_more_noise_where_bounds_clip_nothing():
    noise = np.sqrt(1.0 + theory.privacy_variance(4, 1.5, 60.0))
    assert theory.private_risk(0.2, 4, 9, 1.5, 60.0, 2.0, 1.0) == pytest.approx(
        theory.risk(0.2, 4, 9, 2.0, noise)
    )


@pytest.mark.parametrize("width", [0.5, 2.0, 5.0])
def test_clipped_responses_have_the_stated_moments(width):
    """Slope s and residual spread of clip(y) on the signal: 10⁶ draws; alpha = 1e-4, two-sided."""
    from bagwise.theory.private import clipping

    rng = np.random.default_rng(0)
    signal = 1.5 * rng.standard_normal(10**6)
    y = np.clip(signal + 0.7 * rng.standard_normal(10**6), -width / 2, width / 2)
    s, left = (float(v) for v in clipping(*map(np.asarray, (width, 1.5, 0.7))))
    slope = (signal @ y) / (signal @ signal)
    assert slope == pytest.approx(s, abs=3.9 * 0.8 / 1.5 / 1000)
    assert (y - s * signal).std() == pytest.approx(left, rel=0.005)


@pytest.mark.parametrize("rho", [0.02, 0.3, 1.0])
def test_private_risk_is_the_drawn_one_when_bounds_are_tight(rho):
    """Clipping two thirds of responses; alpha = 1e-4, and 3 % for the finite number of features."""
    drawn = simulate(
        *(100, [3] * 400, [rho], np.sqrt(2)), epsilon=1.0, bounds=(-0.8, 0.8), repeats=100
    )
    exact = theory.private_risk(rho, 3, 12, 1.0, 1.6, np.sqrt(2), 1.0)
    assert abs(drawn.risk[0] - exact) < 3.9 * drawn.risk_error[0] + 0.03 * exact
    assert exact > 1.5 * theory.risk(rho, 3, 12, np.sqrt(2), 1.0) or rho == 1.0


def test_unequal_bags_pay_for_privacy_by_their_harmonic_mean():
    """Bags of 1 and 7: the noise is that of the harmonic mean, 1.75; n/m would be half of it."""
    drawn = simulate(50, [1, 7] * 100, [0.3], epsilon=2.0, bounds=(-8, 8), repeats=200)
    sigma = np.sqrt(1 + theory.privacy_variance(2 / (1 + 1 / 7), 2.0, 16.0))
    exact = theory.risk(0.3, 4, 16, 1.0, sigma)
    assert abs(drawn.risk[0] - exact) < 3.9 * drawn.risk_error[0] + 0.05 * exact
    assert drawn.risk[0] > 1.5 * theory.private_risk(0.3, 4, 16, 2.0, 16.0)


def test_without_noise_variance_is_zero_even_where_bags_are_as_many_as_features():
    assert theory.variance(0, 3, 3, 0.0) == 0
    assert theory.risk(0, 3, 3, 1.0, 0.0) == 0
    assert theory.bag_level(3, 3, 1.0, 0.0).risk == 0
    assert theory.variance([0, 0.5], 3, 3, [0.0, 1.0])[0] == 0
    assert theory.best_rho(3, 3, 1.0, 0.0) == 0


def test_with_bags_of_one_row_the_best_rho_is_0():
    psi = np.random.default_rng(0).uniform(1.01, 50, 500)
    assert (theory.best_rho(1, psi) == 0).all()
    assert (theory.best_private_rho([1, 3], 5, 1.0, 8.0) > 0).tolist() == [False, True]


@pytest.mark.parametrize("k", [np.nextafter(1, 2), 1 + 1e-15, 1 + 1e-14])
def test_bags_of_next_to_one_row_have_next_to_no_bias(k):
    rho, psi = np.meshgrid(np.geomspace(1e-13, 1, 50), np.linspace(1.1, 60, 200))
    assert theory.bias(rho, k, psi).max() < 1e-11


@given(k=st.floats(1, 30), psi=st.floats(1.1, 60), snr=st.floats(1e-2, 1e2), eps=st.floats(0.1, 9))
@example(k=1.0000000000000002, psi=22.143792591497785, snr=1.0, eps=1.0)
def test_no_rho_of_a_fine_grid_beats_the_best_private_one(k, psi, snr, eps):
    tau, width = float(np.sqrt(snr)), 6 * float(np.sqrt(snr + 1))
    best = theory.best_private_rho(k, psi, eps, width, tau, 1.0)
    grid = np.geomspace(1e-13, 1, 2000)
    least = theory.private_risk(max(best, 1e-13), k, psi, eps, width, tau, 1.0)
    assert least <= theory.private_risk(grid, k, psi, eps, width, tau, 1.0).min() * (1 + 1e-6)


def test_private_risk_over_log_n_tends_to_the_limit():
    for n, tolerance in ((1e8, 0.2), (1e80, 0.02)):
        width = 2 * 1.7 * np.sqrt(np.log(n))
        scaled = theory.private_risk(0.3, 3, 8, 2.0, width) / np.log(n)
        assert scaled == pytest.approx(theory.private_limit(0.3, 3, 8, 2.0, 1.7), rel=tolerance)


def test_bag_sizes_are_the_least_of_their_risks():
    sizes = [1, 2, 3, 4, 5]
    for rho in (1e-6, 1e-2, 1.0):
        limits = [theory.private_limit(rho, k, 20) for k in sizes]
        assert theory.limiting_bag_size(rho, 20, sizes) == sizes[int(np.argmin(limits))]
        risks = [theory.private_risk(rho, k, 20, 1.0, 8.0) for k in sizes]
        best = theory.best_bag_size(rho, 20, sizes, epsilon=1.0, width=8.0)
        assert best == sizes[int(np.argmin(risks))]


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (
            lambda: theory.risk(0.5, 2, 1),
            r"psi must be above 1 and finite; got psi=1\. With no more rows",
        ),
        (lambda: theory.risk(0.5, 2, [3, 0.5]), "psi must be above 1 and finite; got psi=0.5"),
        (lambda: theory.risk(0, 3, 2), "rho must be above 0 where psi < k; .* ridgeless"),
        (lambda: theory.risk(-0.1, 2, 3), r"rho must be in \[0, 1\]; got rho=-0.1"),
        (lambda: theory.bias(np.nan, 2, 3), r"rho must be in \[0, 1\]; got rho=nan"),
        (lambda: theory.variance(0.5, 0.5, 3), "k must be at least 1 and finite; got k=0.5"),
        (lambda: theory.risk(0.5, 2, 3, tau=-1), "tau must be at least 0 and finite; got tau=-1"),
        (
            lambda: theory.risk(0.5, 2, 3, sigma=np.inf),
            "sigma must be at least 0 and finite; got sigma=inf",
        ),
        (lambda: theory.bag_level(3, 2), "psi must be at least k; .* ridgeless"),
        (lambda: theory.ridgeless(2, 3), "psi must be below k; .* bag_level"),
        (lambda: theory.snr_threshold(1, 3), "k must be above 1; got k=1"),
        (
            lambda: theory.private_risk(0.5, 2, 3, 0.0, 1.0),
            "epsilon must be above 0; got epsilon=0",
        ),
        (lambda: theory.private_risk(0.5, 2, 3, 1.0, -1.0), "width must be at least 0"),
        (lambda: theory.private_limit(0.5, 2, 3, np.nan), "epsilon must be above 0"),
        (lambda: theory.best_rho(2, 0.9), "psi must be above 1"),
        (lambda: theory.risk(0.5, 2, np.inf), "psi must be above 1 and finite; got psi=inf"),
        (lambda: theory.risk(None, 2, 3), r"rho must be in \[0, 1\]; got rho=nan"),
        (lambda: theory.risk(0.5, 2, None), "psi must be above 1"),
        (lambda: theory.limiting_bag_size(0.5, 3.0, []), "sizes must be at least one"),
        (lambda: theory.limiting_bag_size(0.5, 1.0, [1, 2]), "psi must be above 1"),
        (lambda: theory.best_bag_size(0.5, 3.0, [0.5], 1.0, 1.0), "k must be at least 1"),
    ],
)
def test_outside_the_theory_one_sentence_says_what_holds(task, sentence):
    with pytest.raises(ValueError, match=sentence):
        task()
