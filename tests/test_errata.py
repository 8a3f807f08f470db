"""Each slip of the paper that docs/errata.md lists: what is printed fails, what is right holds."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bagwise import Bags, bag_loss, instance_loss, simulate, theory, within_bag_variance
from bagwise.theory.fixed_point import fixed_point

RNG = np.random.default_rng(0)
K, M = 4, 6
BAGS = Bags(np.repeat(np.arange(M), K))
F, Y = RNG.normal(size=M * K), RNG.normal(size=M)
PAIRS = sum(((F[BAGS.codes == a][:, None] - F[BAGS.codes == a]) ** 2).sum() for a in range(M))


def test_pairwise_identity_lacks_a_half():
    values = RNG.normal(size=K)
    squares = ((values - values.mean()) ** 2).sum()
    pairs = ((values[:, None] - values) ** 2).sum()
    assert squares == pytest.approx(pairs / (2 * K))
    assert squares != pytest.approx(pairs / K)


def test_regularization_is_normalised_by_2mk2():
    gap = instance_loss(Y, F, BAGS) - bag_loss(Y, F, BAGS)
    assert gap == pytest.approx(PAIRS / (2 * M * K**2))
    assert gap == pytest.approx(within_bag_variance(F, BAGS))
    assert gap != pytest.approx(PAIRS / K)


def test_general_loss_lemma_needs_only_half_of_C():
    """∂²ℓ/∂b² = C = 2 for squared loss, where the bound with C/2 is an equality."""
    gap = instance_loss(Y, F, BAGS) - bag_loss(Y, F, BAGS)
    assert gap == pytest.approx(2 / 2 * within_bag_variance(F, BAGS))


def test_bag_loss_is_normalised_by_m_in_the_proof():
    squares = ((Y - BAGS.mean(F)) ** 2).sum()
    assert bag_loss(Y, F, BAGS) == pytest.approx(squares / M)
    assert bag_loss(Y, F, BAGS) != pytest.approx(squares / K)


def test_linear_loss_has_a_harmless_half():
    """(1/2mk) Σ … is half of L_bag + ρR, with the same minimiser."""
    rho = 0.3
    printed = sum(
        (1 - rho) * (Y[a] - F[BAGS.codes == a].mean()) ** 2 + rho * (Y[a] - f) ** 2
        for a in range(M)
        for f in F[BAGS.codes == a]
    ) / (2 * M * K)
    assert printed == pytest.approx((bag_loss(Y, F, BAGS) + rho * within_bag_variance(F, BAGS)) / 2)


def test_instance_level_wins_below_the_threshold_not_above():
    k, psi = 3, 9
    threshold = theory.snr_threshold(k, psi)
    for snr, winner in ((threshold / 4, "instance"), (4 * threshold, "bag")):
        at_rows = theory.instance_level(k, psi, np.sqrt(snr)).risk
        at_bags = theory.bag_level(k, psi, np.sqrt(snr)).risk
        assert ("instance" if at_rows < at_bags else "bag") == winner


def test_the_two_definitions_of_snr_differ_by_a_square():
    """σ = 1/SNR of the experiments is SNR² by the lemma's ‖θ0‖²/σ²."""
    snr = 3.0
    sigma = 1 / snr
    assert 1.0 / sigma**2 == pytest.approx(snr**2)
    assert theory.variance(0.3, 3, 9, sigma) == pytest.approx(
        theory.variance(0.3, 3, 9, 1.0) / snr**2
    )


def test_algorithm_1_averages_what_it_did_not_clip():
    """One response moves the printed mean without bound, and the clipped one by 2B/k at most."""
    bound, y = 2.0, RNG.normal(size=K)
    for far in (1e3, 1e6):
        moved = y.copy()
        moved[0] = far
        assert abs(moved.mean() - y.mean()) > far / (2 * K)
        assert abs(np.clip(moved, -bound, bound).mean() - np.clip(y, -bound, bound).mean()) <= (
            2 * bound / K
        )


def test_sensitivity_is_2B_over_k_and_the_printed_scale_spends_2_epsilon():
    bound, epsilon = 2.0, 0.7
    low, high = np.full(K, 1.0), np.full(K, 1.0)
    low[0], high[0] = -bound, bound
    step = high.mean() - low.mean()
    assert step == pytest.approx(2 * bound / K)
    for scale, spent in (
        (bound / (K * epsilon), 2 * epsilon),
        (2 * bound / (K * epsilon), epsilon),
    ):
        # log density ratio of Laplace noise beyond both means
        z = high.mean() + 1
        ratio = (abs(z - low.mean()) - abs(z - high.mean())) / scale
        assert ratio == pytest.approx(spent)


def test_private_limit_has_8_for_2():
    """Noise of the right scale has four times the variance of the printed one."""
    k, rho, psi, epsilon, C = 3, 0.3, 8, 2.0, 1.7
    printed = 2 * C**2 / (k * epsilon**2) * theory.variance(rho, k, psi)
    assert theory.private_limit(rho, k, psi, epsilon, C) == pytest.approx(4 * printed)


def test_psi_below_one_leaves_no_unique_minimiser():
    X = RNG.normal(size=(30, 40))
    assert np.linalg.matrix_rank(X.T @ X) < 40
    with pytest.raises(ValueError, match="psi must be above 1"):
        theory.risk(0.5, 2, 0.75)


def test_rows_over_bags_is_k():
    assert BAGS.n_rows / BAGS.n_bags == K
    assert BAGS.n_bags / BAGS.n_rows == pytest.approx(1 / K)


def test_minimum_over_a_direction_is_minus_the_norm():
    """min over ‖α‖ = η of hᵀα is −η‖h‖; the auxiliary problem of the bias has a plus."""
    h, eta = RNG.normal(size=5), 1.3
    directions = RNG.normal(size=(20_000, 5))
    directions *= eta / np.linalg.norm(directions, axis=1, keepdims=True)
    values = directions @ h
    assert values.min() >= -eta * np.linalg.norm(h) - 1e-12
    assert values.min() < -0.9 * eta * np.linalg.norm(h)


def test_the_condition_on_eta_has_beta_2_for_eta():
    """∂/∂η of the deterministic problem of the variance, by finite differences."""
    b1, b2, rho, psi, k, norm, eta = 0.7, 1.9, 0.3, 6.0, 3.0, 0.8, 1.3

    def objective(eta):
        first = b1 * np.sqrt(norm + eta**2 * psi / k)
        second = b2 * np.sqrt(rho) * eta * np.sqrt(psi * (1 - 1 / k))
        return first + second - eta * np.sqrt(b1**2 + rho * b2**2)

    slope = (objective(eta + 1e-6) - objective(eta - 1e-6)) / 2e-6
    common = b1 * eta * psi / k / np.sqrt(norm + eta**2 * psi / k) - np.sqrt(b1**2 + rho * b2**2)
    middle = np.sqrt(rho * psi * (1 - 1 / k))
    assert slope == pytest.approx(common + b2 * middle, rel=1e-6)
    assert slope != pytest.approx(common + eta * middle, rel=1e-2)


def test_half_the_square_not_half_the_norm():
    x = RNG.normal(size=4)
    best = max(float(t * x @ x - (t * x) @ (t * x) / 2) for t in np.linspace(0, 2, 2001))
    assert best == pytest.approx(x @ x / 2, rel=1e-6)
    assert best != pytest.approx(np.linalg.norm(x) / 2, rel=1e-2)


def test_cauchy_schwarz_takes_the_root_of_the_probability():
    """Z² = 1 on an event of probability p and 0 elsewhere breaks the printed bound."""
    p = 0.01
    left, fourth = p, p
    assert left > np.sqrt(fourth) * p
    assert left <= np.sqrt(fourth) * np.sqrt(p)


def test_rho_zero_is_unbiased_only_with_more_bags_than_features():
    """psi = 2 < k = 5, rho → 0: the drawn bias is that of `ridgeless`, far from 0."""
    drawn = simulate(100, [5] * 40, [1e-9], repeats=40)
    limit = theory.ridgeless(5, 2)
    assert limit.bias > 0.5
    assert drawn.bias[0] == pytest.approx(limit.bias, rel=0.05)
    assert drawn.variance[0] == pytest.approx(limit.variance, rel=0.05)


def test_the_jump_of_figure_2_needs_enough_rows_a_feature():
    rhos = np.geomspace(1e-9, 1, 4001)
    best = {p: theory.limiting_bag_size(rhos, p, [1, 2, 3, 4, 5]) for p in (2, 5, 7.4, 10, 20)}
    assert (best[2] == 5).all()
    jump = {p: rhos[np.argmax(best[p] > 1)] for p in (5, 7.4, 10, 20)}
    assert jump[5] < jump[7.4] > jump[10] > jump[20]
    # 4ψ² + 25ψ − 125 = 0 is where bags of one and of five tie as rho → 0
    edge = (np.sqrt(625 + 2000) - 25) / 8
    for psi, winner in ((edge - 0.02, 5), (edge + 0.02, 1)):
        assert theory.limiting_bag_size(1e-12, psi, [1, 2, 3, 4, 5]) == winner


def test_statements_on_figure_1_need_more_bags_than_features():
    """They hold on random settings with psi ≥ k, and fail at the printed numbers."""
    rng = np.random.default_rng(0)
    k = rng.uniform(1.01, 20, 2000)
    psi = k * rng.uniform(1.001, 20, 2000)
    rho, more = rng.uniform(0.001, 0.5, 2000), 1.0 + rng.uniform(0.01, 1, 2000)
    assert (theory.bias(rho, k, psi) < theory.bias(rho * more, k, psi)).all()
    wider = psi * more
    assert (theory.risk(rho, k, psi) > theory.risk(rho, k, wider)).all()
    roomy = psi >= k * more
    assert roomy.sum() > 1000
    larger = theory.bias(rho, k * more, psi)
    assert (theory.bias(rho, k, psi)[roomy] < larger[roomy]).all()
    assert theory.ridgeless(3, 1.2).bias == pytest.approx(1.80)
    assert theory.instance_level(3, 1.2).bias == pytest.approx(1.556, abs=1e-3)
    falling = theory.bias(1, [2, 3, 5, 10], 1.05)
    np.testing.assert_allclose(falling, [5.25, 4.89, 3.84, 2.61], atol=0.005)
    assert theory.risk(1e-6, 5, 4.5) > theory.risk(1e-6, 5, 3.5)


def test_the_stationary_point_of_the_mended_problem_is_the_theorem():
    """Conditions in α, η, β₁, β₂ with −η√(β₁² + ρβ₂²), at the theorem's α and η."""
    rho, k, psi = 0.3, 3.0, 8.0
    u, w, _ = (float(v) for v in fixed_point(*map(np.asarray, (rho, k, psi))))
    alpha = w * psi * (k - 1) / k
    eta = np.sqrt(theory.bias(rho, k, psi) - alpha**2)
    first = np.sqrt((alpha**2 + eta**2) * psi / k)
    second = np.sqrt(rho * ((alpha - 1) ** 2 + eta**2) * psi * (1 - 1 / k))
    # ∂β: first = β₁(1 + η/c), second = β₂(1 + ρη/c), c = √(β₁² + ρβ₂²) = ηu
    c = eta * u
    b1, b2 = first / (1 + eta / c), second / (1 + rho * eta / c)
    assert np.sqrt(b1**2 + rho * b2**2) == pytest.approx(c)
    by_alpha = b1 * alpha * psi / k / first + b2 * rho * (alpha - 1) * psi * (1 - 1 / k) / second
    by_eta = b1 * eta * psi / k / first + b2 * rho * eta * psi * (1 - 1 / k) / second - c
    assert by_alpha == pytest.approx(0, abs=1e-12)
    assert by_eta == pytest.approx(0, abs=1e-12)


def test_change_of_variables_scales_the_square():
    d, beta = 50.0, 1.7
    term = 2 / d * beta**2 / 2
    assert term == pytest.approx((beta / np.sqrt(d)) ** 2)
    assert term == pytest.approx((2 * beta / np.sqrt(d)) ** 2 / 4)
    assert term != pytest.approx((2 * beta / np.sqrt(d)) ** 2 / 2)


def test_the_fourth_moment_is_at_least_the_squared_risk():
    errors = RNG.normal(size=(2000, 5)) * RNG.exponential(size=(2000, 1))
    norms = (errors**2).sum(axis=1)
    assert (norms**2).mean() >= norms.mean() ** 2
    at = [theory.private_risk(0.3, 3, 8, 2.0, 3.4 * np.sqrt(np.log(n))) for n in (1e4, 1e8, 1e16)]
    assert at[0] < at[1] < at[2]


def test_heavy_tails_are_truncated_at_every_n():
    """P(some |y_i| > C√log n) tends to 0 for Gaussian y with C² > 2(1+σ²), and to 1 for t of 3."""
    scale, C = np.sqrt(2.0), 2.1
    for law, chances in (
        (stats.norm(scale=scale), []),
        (stats.t(3, scale=scale / np.sqrt(3)), []),
    ):
        for n in (1e4, 1e8, 1e12):
            tail = 2 * law.sf(C * np.sqrt(np.log(n)))
            chances.append(-np.expm1(n * np.log1p(-tail)))
        if law.dist.name == "norm":
            assert chances[0] > chances[1] > chances[2]
        else:
            assert chances[-1] > 0.999


def test_every_slip_on_the_page_names_a_test_that_exists():
    page = (Path(__file__).parent.parent / "docs" / "errata.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    here = {name for name in globals() if name.startswith("test_")}
    assert named <= here
    assert here - named == {"test_every_slip_on_the_page_names_a_test_that_exists"}
