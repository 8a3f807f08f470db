"""AggregateLinearRegression against independent solutions of the same problem."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp
from sklearn.linear_model import LinearRegression, Ridge

from bagwise import AggregateLinearRegression, AggregateStatistics, Bags
from bagwise.encoding import Encoder
from bagwise.estimators.information import response_variance
from bagwise.estimators.linear import RIDGES
from bagwise.estimators.tuning import RHOS, leave_one_out, log_evidence
from bagwise.release import release
from bagwise.spectrum import spectrum_of_rows, spectrum_of_statistics
from bagwise.statistics import Rows, sum_clustered
from tests.reference import left_out_errors, stacked_solution


def draw(n_rows=40, n_features=4, n_bags=12, seed=0, noise=1.0):
    """Correlated, off-origin rows in unsorted bags of unequal sizes, and bag means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features)) + 3
    bags = Bags(np.concatenate([np.arange(n_bags), rng.integers(0, n_bags, n_rows - n_bags)]))
    y = X @ rng.normal(size=n_features) - 7 + noise * rng.normal(size=n_rows)
    return X, bags.mean(y), bags


def fitted(X, means, bags, **parameters):
    return AggregateLinearRegression(**parameters).fit(X, bags.expand(means), bags)


def conditioned(n_rows, n_features, condition, seed=0):
    """Rows with singular values spread evenly on a log scale down to 1/condition."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.normal(size=(n_rows, n_features)))[0]
    right = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
    return left * np.geomspace(1, 1 / condition, n_features) @ right


def assert_close(model, reference, tolerance):
    coef, intercept = reference
    error = np.linalg.norm(model.coef_ - coef) / np.linalg.norm(coef)
    assert error < tolerance
    assert model.intercept_ == pytest.approx(intercept, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("rho", [0.0, 1e-3, 0.5, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 2.5])
def test_coefficients_solve_the_stacked_problem(rho, fit_intercept, ridge):
    X, means, bags = draw()
    model = fitted(X, means, bags, rho=rho, fit_intercept=fit_intercept, ridge=ridge)
    assert_close(model, stacked_solution(X, means, bags, rho, fit_intercept, ridge), 1e-10)


@pytest.mark.parametrize("rho", [1e-4, 0.1, 1.0])
def test_condition_number_of_1e8_keeps_six_digits(rho):
    _, means, bags = draw(60, 5, 20)
    X = conditioned(60, 5, 1e8)
    assert_close(fitted(X, means, bags, rho=rho), stacked_solution(X, means, bags, rho), 1e-6)


def test_nearly_singular_bag_means_keep_six_digits_at_rho_zero():
    """X itself is well-conditioned; only the bag means are not."""
    _, means, bags = draw(60, 5, 20)
    rows = np.random.default_rng(4).normal(size=(60, 5))
    X = rows - bags.expand(bags.mean(rows)) + bags.expand(conditioned(20, 5, 1e7))
    assert_close(fitted(X, means, bags, rho=0.0), stacked_solution(X, means, bags, 0.0), 1e-6)


@pytest.mark.parametrize("rho", [0.0, 1e-3, 1.0])
def test_more_features_than_bags(rho):
    """At rho = 0 the stated limit: the reference takes rho = 1e-20 in 60 digits."""
    X, means, bags = draw(30, 9, 5)
    reference = stacked_solution(X, means, bags, rho or 1e-20)
    assert_close(fitted(X, means, bags, rho=rho), reference, 1e-8)


def test_rho_zero_with_few_bags_varies_least_within_bags():
    X, means, bags = draw(30, 9, 5)
    model = fitted(X, means, bags, rho=0.0)
    np.testing.assert_allclose(bags.mean(model.predict(X)), means, rtol=1e-9)
    within = X - bags.expand(bags.mean(X))
    centred = bags.mean(X) - X.mean(axis=0)
    free = np.linalg.svd(centred)[2][4:]  # directions the bag means leave open
    gradient = free @ within.T @ (within @ model.coef_)
    np.testing.assert_allclose(gradient, 0, atol=1e-8)


@pytest.mark.parametrize("rho", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("n_bags", [14, 4])
def test_rank_deficient_rows_give_the_least_norm(rho, n_bags):
    X, means, bags = draw(40, 4, n_bags)
    X = np.round(64 * X) / 64  # so that the sums below are exact
    X = np.column_stack([X, X[:, 0], 2 * X[:, 1] - X[:, 2], np.full(40, 5.0)])
    reference = stacked_solution(X, means, bags, rho or 1e-20)
    assert_close(fitted(X, means, bags, rho=rho), reference, 1e-8)


@pytest.mark.parametrize("route", ["rows", "statistics"])
def test_huge_offsets_cost_no_digits(route):
    """A mean of 1e6 with a spread of 1 leaves 1e-10 in the entries themselves."""
    X, means, bags = draw(60, 3, 20)
    moved = X + np.array([1e6, -1e6, 3e6])
    model = AggregateLinearRegression(rho=0.1)
    if route == "rows":
        model.fit(moved, bags.expand(means), bags)
    else:
        model.fit_statistics(AggregateStatistics.from_rows(moved, bags.expand(means), bags))
    assert_close(model, stacked_solution(moved, means, bags, 0.1), 1e-8)
    np.testing.assert_allclose(model.coef_, fitted(X, means, bags, rho=0.1).coef_, rtol=1e-7)


@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse_rows_give_the_dense_answer(container):
    X, means, bags = draw(50, 5, 15)
    X[np.abs(X) < 2] = 0
    dense = fitted(X, means, bags)
    sparse = fitted(container(X), means, bags)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-10)
    np.testing.assert_allclose(sparse.predict(container(X)), dense.predict(X))
    assert sparse.rho_ == dense.rho_


def test_units_of_features_do_not_matter():
    X, means, bags = draw()
    units = np.array([1e-9, 1.0, 1e9, 1e4])
    plain, scaled = fitted(X, means, bags), fitted(X * units, means, bags)
    np.testing.assert_allclose(scaled.coef_ * units, plain.coef_, rtol=1e-9)
    assert scaled.rho_ == plain.rho_


@pytest.mark.parametrize("ridge", [0.0, 3.0])
@pytest.mark.parametrize("rho", [0.0, 0.4, "loo", "gcv"])
def test_bags_of_one_recover_least_squares(ridge, rho):
    X, means, _ = draw()
    y = means[np.arange(40) % 12] + X[:, 0]
    ours = AggregateLinearRegression(rho=rho, ridge=ridge).fit(X, y)
    theirs = (Ridge(alpha=ridge) if ridge else LinearRegression()).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y))


@pytest.mark.parametrize("shape", [(30, 3, 10), (24, 6, 5), (20, 6, 7)])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_leave_one_bag_out_scores_equal_refitting(shape, fit_intercept, ridge):
    X, means, bags = draw(*shape)
    path = fitted(X, means, bags, fit_intercept=fit_intercept, ridge=ridge).path_
    for place in (0, 40, 100):
        rho = RHOS[place] or 1e-22
        refit = left_out_errors(X, means, bags, rho, fit_intercept, ridge)
        assert path.scores[place] == pytest.approx(refit, rel=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_gcv_scores_equal_their_definition(fit_intercept, ridge):
    X, means, bags = draw()
    n, m = bags.n_rows, bags.n_bags
    model = fitted(X, means, bags, rho="gcv", fit_intercept=fit_intercept, ridge=ridge)
    extended = np.column_stack([X, np.ones(n)]) if fit_intercept else X
    roots = np.sqrt(bags.sizes)[:, None]
    between = roots * bags.mean(extended)
    within = extended - bags.expand(bags.mean(extended))
    penalty = ridge * np.eye(extended.shape[1])
    penalty[4:, 4:] = 0
    for place in (0, 30, 70, 100):
        rho = RHOS[place]
        inner = between.T @ between + rho * within.T @ within + penalty
        hat = between @ np.linalg.solve(inner, between.T)
        residual = roots[:, 0] * means - hat @ (roots[:, 0] * means)
        expected = residual @ residual / m / (1 - np.trace(hat) / m) ** 2
        assert model.path_.scores[place] == pytest.approx(expected)
    assert model.rho_source_ == "gcv"


def test_gcv_at_rho_zero_is_the_limit_when_bags_are_fewer_than_features():
    X, means, bags = draw(24, 6, 5)
    scores = fitted(X, means, bags, rho="gcv").path_.scores
    assert np.isfinite(scores).all()
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_the_path_holds_the_model_at_every_rho():
    X, means, bags = draw()
    model = fitted(X, means, bags)
    assert len(model.path_.rhos) == 101
    assert model.path_.rhos[[0, -1]].tolist() == [0.0, 1.0]
    assert model.rho_ == model.path_.rho == model.path_.rhos[np.argmin(model.path_.scores)]
    for place in (0, 17, 100):
        single = fitted(X, means, bags, rho=float(RHOS[place]))
        np.testing.assert_allclose(model.path_.coefficients[place], single.coef_, rtol=1e-10)
        assert model.path_.intercepts[place] == pytest.approx(single.intercept_)
        assert (single.rho_, single.rho_source_) == (RHOS[place], "given")


def test_leave_one_out_estimates_the_error_of_rows():
    """E[score] = σ² + E(xᵀθ̂ − xᵀθ0)² for random bags: 300 draws; alpha = 1e-4, two-sided."""
    rng = np.random.default_rng(7)
    theta, sigma, gaps = np.array([1.0, -1.0, 0.5, 0.0]), 1.5, []
    for seed in range(300):
        X = rng.normal(size=(120, 4))
        bags = Bags.random(120, 6, random_state=seed)
        y = X @ theta + sigma * rng.normal(size=120)
        path = fitted(X, bags.mean(y), bags).path_
        # The intercept's error is common to a bag, so it counts once a row: k times.
        risk = ((path.coefficients[60] - theta) ** 2).sum() + 6 * path.intercepts[60] ** 2
        gaps.append(path.scores[60] - sigma**2 - risk)
    gaps_array = np.array(gaps)
    standard_error = gaps_array.std() / np.sqrt(300)
    # A model of 19 bags errs a little more than one of 20: by about a twentieth of its variance.
    assert abs(gaps_array.mean()) < 3.9 * standard_error + 0.05 * sigma**2


def test_reordering_rows_and_relabelling_bags_changes_nothing():
    X, means, bags = draw()
    order = np.random.default_rng(5).permutation(40)
    labels = np.array([f"bag {i}" for i in bags.ids])[bags.codes]
    y = bags.expand(means)
    moved = AggregateLinearRegression().fit(X[order], y[order], labels[order])
    np.testing.assert_allclose(moved.coef_, fitted(X, means, bags).coef_, rtol=1e-9)


def test_duplicating_every_bag_keeps_coef():
    X, means, bags = draw()
    twice = Bags(np.concatenate([bags.codes, bags.codes + 100]))
    for rho in (0.0, 0.3, 1.0):
        one = fitted(X, means, bags, rho=rho)
        two = fitted(np.vstack([X, X]), np.concatenate([means, means]), twice, rho=rho)
        np.testing.assert_allclose(two.coef_, one.coef_, rtol=1e-10)


def test_shifting_and_scaling_the_response_shifts_and_scales_predictions():
    X, means, bags = draw()
    one, two = fitted(X, means, bags), fitted(X, 1e4 + 50 * means, bags)
    np.testing.assert_allclose(two.predict(X), 1e4 + 50 * one.predict(X), rtol=1e-9)
    assert one.rho_ == two.rho_


@settings(max_examples=60)
@given(
    shape=st.tuples(st.integers(2, 25), st.integers(1, 7), st.integers(2, 25)),
    dtype=st.sampled_from([np.float64, np.float32, np.int64, bool]),
    rho=st.sampled_from([0.0, 0.2, 1.0, "loo", "gcv"]),
    seed=st.integers(0, 1000),
)
def test_any_layout_satisfies_the_optimality_condition(shape, dtype, rho, seed):
    """(A + ρW)θ = c, whatever the shapes, the dtype and the rank."""
    n_rows, n_features, n_bags = shape[0], shape[1], min(shape[2], shape[0])
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n_rows, n_features)) * 3).astype(dtype)
    bags = Bags(np.concatenate([np.arange(n_bags), rng.integers(0, n_bags, n_rows - n_bags)]))
    means = rng.normal(size=n_bags)
    model = fitted(X, means, bags, rho=rho)
    statistics = AggregateStatistics.from_rows(X.astype(float), bags.expand(means), bags)
    A, W, c = statistics.between, statistics.within, statistics.cross
    size = np.abs(c).max() + np.abs((A + W) @ np.abs(model.coef_)).max()
    np.testing.assert_allclose((A + model.rho_ * W) @ model.coef_, c, atol=1e-7 * (1 + size))
    assert np.isfinite(model.predict(X)).all()


def test_statistics_alone_give_the_same_model():
    X, means, bags = draw()
    rows = fitted(X, means, bags, rho="gcv")
    statistics = AggregateStatistics.from_rows(X, bags.expand(means), bags)
    alone = AggregateLinearRegression(rho="gcv").fit_statistics(statistics)
    np.testing.assert_allclose(alone.coef_, rows.coef_, rtol=1e-9)
    np.testing.assert_allclose(alone.path_.scores, rows.path_.scores, rtol=1e-9)
    np.testing.assert_allclose(alone.predict(X), rows.predict(X))
    by_default = AggregateLinearRegression().fit_statistics(statistics)
    assert by_default.rho_source_ == "gcv"


def test_partial_fit_on_whole_bags_equals_one_fit():
    X, means, bags = draw()
    y = bags.expand(means)
    model = AggregateLinearRegression(rho="gcv")
    for few in (bags.codes < 3, (bags.codes >= 3) & (bags.codes < 7), bags.codes >= 7):
        model.partial_fit(X[few], y[few], bags.codes[few])
    np.testing.assert_allclose(model.coef_, fitted(X, means, bags, rho="gcv").coef_, rtol=1e-9)


def test_score_is_the_size_weighted_r2_of_bag_means():
    X, means, bags = draw()
    model = fitted(X, means, bags)
    predicted = bags.mean(model.predict(X))
    level = np.average(means, weights=bags.sizes)
    left = (bags.sizes * (means - predicted) ** 2).sum() / (bags.sizes * (means - level) ** 2).sum()
    assert model.score(X, bags.expand(means), bags) == pytest.approx(1 - left)
    ones = np.ones(len(X))
    assert model.score(X, bags.expand(means), bags, 2 * ones) == pytest.approx(1 - left)
    assert model.score(X, dict(zip(bags.ids.tolist(), means, strict=True)), bags) == pytest.approx(
        1 - left
    )


def test_the_path_plots():
    import matplotlib

    matplotlib.use("Agg")
    X, means, bags = draw()
    axes = fitted(X, means, bags).path_.plot()
    assert axes.get_xlabel() == "rho"
    assert axes.get_ylabel() == "leave-one-bag-out error"
    assert len(axes.lines[0].get_xdata()) == 100


@pytest.mark.parametrize(("route", "condition"), [("rows", 1e10), ("statistics", 1e4)])
def test_few_bags_bound_the_rank_where_no_tolerance_could(route, condition):
    """Rounding of weak directions must not pass for information between 5 bags."""
    _, means, bags = draw(40, 8, 5)
    X, model = conditioned(40, 8, condition), AggregateLinearRegression(rho=1e-12)
    if route == "rows":
        model.fit(X, bags.expand(means), bags)
    else:
        model.fit_statistics(AggregateStatistics.from_rows(X, bags.expand(means), bags))
    assert_close(model, stacked_solution(X, means, bags, 1e-12), 1e-5)


@pytest.mark.parametrize("constant", [0.1, 1e6 / 3, -7.3e-5])
def test_a_column_that_varies_by_rounding_alone_is_given_no_coefficient(constant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4999, 2))
    bags = Bags.random(4999, 5, random_state=0)
    means = bags.mean(X[:, 0] + rng.normal(size=4999))
    column = np.where(rng.random(4999) < 0.5, constant, np.nextafter(constant, 1))
    wide = np.column_stack([X, column])
    statistics = AggregateStatistics.from_rows(wide, bags.expand(means), bags)
    expected = [*fitted(X, means, bags, rho=0.1).coef_, 0.0]
    for model in (
        fitted(wide, means, bags, rho=0.1),
        AggregateLinearRegression(rho=0.1).fit_statistics(statistics),
    ):
        np.testing.assert_allclose(model.coef_, expected, rtol=1e-9)


def test_an_empty_column_does_not_blind_a_ridge():
    X, means, bags = draw(40, 7, 5)
    X = 1e4 * X
    narrow = fitted(X, means, bags, rho=0.1, ridge=1.0)
    wide = fitted(np.column_stack([X, np.zeros(40)]), means, bags, rho=0.1, ridge=1.0)
    np.testing.assert_allclose(wide.coef_, [*narrow.coef_, 0.0], rtol=1e-6, atol=1e-12)


def test_an_offset_hides_weak_directions_of_its_own_column_only():
    X, means, bags = draw(60, 3, 20)
    X = np.column_stack([X, X[:, 0] + 1e-6 * np.random.default_rng(1).normal(size=60)])
    clock = 1.7e9 + np.round(8 * np.random.default_rng(2).normal(size=60))
    X = np.column_stack([X, clock])
    assert_close(fitted(X, means, bags, rho=0.1), stacked_solution(X, means, bags, 0.1), 1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.1])
def test_rounding_of_large_offsets_is_not_taken_for_a_direction(rho):
    """A sum of two columns, all at 1e6, is collinear up to rounding: 1e-10 of its spread."""
    X, means, bags = draw(60, 2, 20)
    wide = np.column_stack([X, X.sum(axis=1)])
    plain = fitted(wide, means, bags, rho=rho)
    moved = fitted(wide + 1e6, means, bags, rho=rho)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-4)


@pytest.mark.parametrize("far", [1e2, 2e4])
def test_left_out_scores_hold_for_bags_of_high_leverage(far):
    X, means, bags = draw(48, 3, 12)
    X = X.copy()
    X[bags.codes == 0, 0] *= far
    path = fitted(X, means, bags).path_
    for place in (0, 5, 100):
        refit = left_out_errors(X, means, bags, RHOS[place])
        assert path.scores[place] == pytest.approx(refit, rel=1e-4)


@pytest.mark.parametrize("shape", [(25, 7, 5), (20, 6, 7)])
def test_small_ridges_with_few_bags_score_as_refitting_does(shape):
    """The ridge is 1e-8 of the scatter, and both 1 − h and the residual are as small."""
    X, means, bags = draw(*shape)
    X = 1e4 * X
    path = fitted(X, means, bags, ridge=1.0).path_
    for place in (0, 1, 60):
        refit = left_out_errors(X, means, bags, RHOS[place], ridge=1.0)
        assert path.scores[place] == pytest.approx(refit, rel=1e-4)
    gcv = fitted(X, means, bags, rho="gcv", ridge=1.0)
    assert (gcv.path_.scores > 0).all()
    alone = AggregateLinearRegression(rho="gcv", ridge=1.0).fit_statistics(
        AggregateStatistics.from_rows(X, bags.expand(means), bags)
    )
    known = np.isfinite(alone.path_.scores)
    assert known.sum() > 50
    np.testing.assert_allclose(alone.path_.scores[known], gcv.path_.scores[known], rtol=0.01)


def test_two_bags_tell_nothing_about_rho_and_the_largest_is_taken():
    for seed in range(10):
        X = np.random.default_rng(seed).normal(size=(40, 3)) + 3
        for rho in ("loo", "gcv"):
            model = AggregateLinearRegression(rho=rho)
            model.fit(X, np.repeat([1.0, 2.0], 20), np.repeat([0, 1], 20))
            assert model.rho_ == 1.0


# A ridge from the bags


@pytest.mark.parametrize("rho", ["loo", "gcv", "theory", 0.2])
def test_the_ridge_of_least_score_is_taken(rho):
    """Against a search by hand: one fit a ridge, and the score of each at its own rho."""
    X, means, bags = draw(n_rows=60, n_features=12, n_bags=20, noise=6.0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = fitted(X, means, bags, rho=rho, ridge="cv")
    alone = [fitted(X, means, bags, rho=rho, ridge=share * X.shape[1]) for share in RIDGES]
    scores = [np.interp(one.rho_, one.path_.rhos, one.path_.scores) for one in alone]
    best = alone[int(np.argmin(scores))]
    assert 0 < best.ridge < RIDGES[-1] * X.shape[1]
    assert model.ridge_ == pytest.approx(best.ridge)
    assert model.rho_ == best.rho_
    np.testing.assert_allclose(model.coef_, best.coef_)


def test_a_chosen_ridge_helps_where_wide_directions_tell_most(tmp_path):
    """A rho alone draws all directions in alike. Paired t-test of 12 draws, alpha = .001."""
    gains = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(800, 30)) / np.arange(1, 31)
        y = X @ rng.normal(size=30) + rng.normal(size=800)
        bags = Bags.random(800, 20, random_state=seed)
        both = [fitted(X, bags.mean(y), bags, ridge=ridge) for ridge in ("cv", 0.0)]
        gains.append(np.subtract(*[model.score(X, y) for model in both]))
    assert ttest_1samp(gains, 0, alternative="greater").pvalue < 0.001
    both[0].save(tmp_path / "m")
    assert AggregateLinearRegression.load(tmp_path / "m").ridge_ == both[0].ridge_ > 0


def test_one_bag_at_a_given_rho_has_no_score_and_takes_no_ridge():
    model = AggregateLinearRegression(rho=0.5, ridge="cv")
    assert model.fit(draw()[0], np.ones(40), np.zeros(40)).ridge_ == 0


def test_statistics_choose_a_ridge_too():
    X, means, bags = draw(n_rows=60, n_features=12, n_bags=20, noise=6.0)
    statistics = AggregateStatistics.from_rows(X, bags.expand(means), bags)
    model = AggregateLinearRegression(rho="gcv", ridge="cv")
    expected = fitted(X, means, bags, rho="gcv", ridge="cv")
    found = model.fit_statistics(statistics)
    assert found.ridge_ == pytest.approx(expected.ridge_)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)


def test_another_word_for_the_ridge_is_told():
    with pytest.raises(ValueError, match="ridge must be at least 0 or 'cv'; got ridge='auto'"):
        fitted(*draw(), ridge="auto")


# An average over all rhos


def evidence(X, means, bags, rho, ridge, fit_intercept):
    """By brute force: bag means are normal with θ integrated out; then the intercept and σ²."""
    root = np.sqrt(bags.sizes)
    Z = root[:, None] * bags.mean(X)
    within = X - bags.expand(bags.mean(X))
    spread = np.eye(len(root)) + Z @ np.linalg.solve(
        rho * within.T @ within + ridge * np.eye(X.shape[1]), Z.T
    )
    keep = np.eye(len(root))
    if fit_intercept:
        keep = np.linalg.svd(root[:, None])[0][:, 1:]
    spread, z = keep.T @ spread @ keep, keep.T @ (root * means)
    square = z @ np.linalg.solve(spread, z)
    return -np.linalg.slogdet(spread)[1] / 2 - len(z) / 2 * np.log(square)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("wide", [False, True], ids=["more bags", "more features"])
def test_evidence_is_that_of_normal_bag_means(fit_intercept, wide):
    X, means, bags = draw(n_rows=60, n_features=20 if wide else 5, n_bags=12, noise=3.0)
    statistics = AggregateStatistics.from_rows(X, bags.expand(means), bags)
    rhos, ridges = np.array([1e-3, 0.1, 1.0]), (0.0, 0.5, 30.0)
    found, expected = [], []
    for ridge in ridges:
        spectrum = spectrum_of_statistics(statistics, fit_intercept, ridge)
        found.append(log_evidence(spectrum, statistics, fit_intercept, rhos))
        expected.append([evidence(X, means, bags, r, ridge, fit_intercept) for r in rhos])
    found, expected = np.array(found), np.array(expected)
    # Models of one ridge are compared where there is none, and all others with each other.
    np.testing.assert_allclose(found[0] - found[0, 0], expected[0] - expected[0, 0], rtol=1e-6)
    found, expected = found[1:], expected[1:]
    np.testing.assert_allclose(found - found[0, 0], expected - expected[0, 0], rtol=1e-6)


def test_evidence_holds_features_against_others():
    """Not of one table alone: of fewer, more and other columns, for the same means."""
    X, means, bags = draw(n_rows=60, n_features=5, n_bags=12, noise=3.0)
    other = np.random.default_rng(3).normal(size=(60, 30))
    told, expected = [], []
    for features in (X, X[:, :1], np.hstack([X, X**3]), other):
        statistics = AggregateStatistics.from_rows(features, bags.expand(means), bags)
        spectrum = spectrum_of_statistics(statistics, True, 3.0)
        told.append(log_evidence(spectrum, statistics, True, np.array([0.1]))[0])
        expected.append(evidence(features, means, bags, 0.1, 3.0, True))
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(np.diff(told), np.diff(expected), rtol=1e-6)


def test_directions_that_do_not_vary_within_bags_have_a_flat_prior():
    """Doubled and constant columns too: they change no comparison of models."""
    X, means, bags = draw(n_rows=60, n_features=3, n_bags=20, noise=3.0)
    of_bag = bags.expand(np.random.default_rng(1).normal(size=20))
    for more in (X[:, :1], np.ones((60, 1)), of_bag[:, None]):
        wide = np.hstack([X, more])
        statistics = AggregateStatistics.from_rows(wide, bags.expand(means), bags)
        spectrum = spectrum_of_statistics(statistics, True, 0.0)
        assert np.isfinite(log_evidence(spectrum, statistics, True, RHOS[1:])).all()
        assert np.isfinite(fitted(wide, means, bags, rho="average").coef_).all()
    # ...and where each row is a bag, all rhos are one model.
    rows = fitted(X, X[:, 0], Bags(np.arange(60)), rho="average")
    np.testing.assert_allclose(rows.coef_, [1, 0, 0], atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, "cv"])
def test_an_average_weighs_models_by_their_evidence(ridge):
    """By hand, from the path of each ridge."""
    X, means, bags = draw(n_rows=60, n_features=12, n_bags=20, noise=6.0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = fitted(X, means, bags, rho="average", ridge=ridge)
    tried = [0.0] if ridge == 0.0 else [s * X.shape[1] for s in RIDGES if s]
    paths = [fitted(X, means, bags, rho="loo", ridge=each).path_ for each in tried]
    told = np.array(
        [
            [
                evidence(X, means, bags, rho or 1e-200, each, True) if rho or each else -np.inf
                for rho in RHOS
            ]
            for each in tried
        ]
    )
    weights = np.exp(told - told.max())
    weights /= weights.sum()
    expected = sum(w @ path.coefficients for w, path in zip(weights, paths, strict=True))
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-6)
    assert model.rho_ == pytest.approx(weights.sum(axis=0) @ RHOS)
    assert model.rho_source_ == "average"
    # Averaged intercepts put the mean of the rows on the mean response.
    np.testing.assert_allclose(model.predict(X).mean(), bags.sizes @ means / 60)


def test_an_average_of_few_bags_errs_less_than_by_their_errors():
    """Paired t-tests of 80 draws against the least left-out error, alpha = .001 each."""
    gains = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 15))
        y = X @ rng.normal(size=15) / 2 + 3 * rng.normal(size=600)
        bags = Bags.random(600, 60, random_state=seed)
        both = [fitted(X, bags.mean(y), bags, rho=rho, ridge="cv") for rho in ("average", "loo")]
        gains.append(np.subtract(*[model.score(X, y) for model in both]))
    assert ttest_1samp(gains, 0, alternative="greater").pvalue < 0.001


def test_an_average_errs_less_than_the_best_where_noise_is_large():
    """Paired t-test of 80 draws, alpha = .001."""
    gains = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 15))
        y = X @ rng.normal(size=15) / 7 + 3 * rng.normal(size=600)
        bags = Bags.random(600, 4, random_state=seed)
        both = [fitted(X, bags.mean(y), bags, rho=rho, ridge="cv") for rho in ("average", "loo")]
        gains.append(np.subtract(*[model.score(X, y) for model in both]))
    assert ttest_1samp(gains, 0, alternative="greater").pvalue < 0.001


def test_an_average_of_much_evidence_is_the_best_model(tmp_path):
    X, means, bags = draw(n_rows=3000, n_bags=600, noise=0.1)
    model = fitted(X, means, bags, rho="average", ridge="cv")
    np.testing.assert_allclose(model.coef_, fitted(X, means, bags, rho="loo").coef_, atol=0.01)
    model.save(tmp_path / "m")
    loaded = AggregateLinearRegression.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.rho_ == model.rho_


def test_an_average_over_exact_fits_and_over_nothing():
    X, means, bags = draw(n_rows=300, n_bags=60, noise=0.0)
    exact = fitted(X, means, bags, rho="average")
    np.testing.assert_allclose(exact.coef_, fitted(X, means, bags, rho=0.0).coef_, atol=1e-3)
    two = AggregateLinearRegression("average", ridge="cv")
    two.fit(X[:40], np.repeat([1.0, 2.0], 20), np.repeat([0, 1], 20))
    assert np.isfinite(two.coef_).all()


def test_statistics_are_averaged_as_their_rows():
    X, means, bags = draw(n_rows=60, n_features=12, n_bags=20, noise=6.0)
    statistics = AggregateStatistics.from_rows(X, bags.expand(means), bags)
    for ridge in (0.0, "cv"):
        model = AggregateLinearRegression("average", ridge=ridge).fit_statistics(statistics)
        rows = fitted(X, means, bags, rho="average", ridge=ridge)
        np.testing.assert_allclose(model.coef_, rows.coef_, rtol=1e-6)


# What a noisy bag is worth


def unequal(seed, scale=6.0):
    """Many small bags and some large ones, with noise of one scale on every bag's sum."""
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([np.full(300, 2), np.full(60, 60)])
    bags = Bags(rng.permutation(np.repeat(np.arange(360), sizes)))
    X = rng.normal(size=(bags.n_rows, 4)) + 3
    theta = np.array([1.0, -1.0, 0.5, 0.0])
    y = X @ theta + rng.normal(size=len(X)) + 7
    noise = scale / bags.sizes
    return X, bags.mean(y) + rng.laplace(scale=noise), bags, noise, theta


def test_weights_are_those_of_weighted_least_squares():
    """√w times rows, means and a column for the intercept, solved by hand; for every rho."""
    X, means, bags, _, _ = unequal(0)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(bags))
    weights *= bags.n_rows / (bags.sizes @ weights)
    rows = Rows(X, means, bags, weights)
    wide = np.column_stack([X, np.ones(len(X))])
    between = bags.mean(wide)
    apart = wide - bags.expand(between)
    root = np.sqrt(bags.expand(weights))[:, None]
    A = (between.T * (bags.sizes * weights)) @ between
    c = between.T @ (bags.sizes * weights * means)
    W = (root * apart).T @ (root * apart)
    for rho in (0.0, 0.1, 1.0):
        expected = np.linalg.solve(A + rho * W, c)
        for spectrum in (
            spectrum_of_statistics(rows.statistics, True, 0.0),
            spectrum_of_rows(rows, True, 0.0),
        ):
            found = spectrum.coef(np.array([rho]))[0]
            np.testing.assert_allclose(found, expected[:4], rtol=1e-7)


def test_weighted_leave_one_out_is_that_of_refits():
    X, means, bags, _, _ = unequal(0)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(bags))
    weights *= bags.n_rows / (bags.sizes @ weights)
    rows = Rows(X, means, bags, weights)
    spectrum = spectrum_of_statistics(rows.statistics, True, 0.0)
    found = leave_one_out(spectrum, rows, True, np.array([0.1]))[0]
    between, w = bags.mean(X), bags.sizes * weights
    centre = w @ between / w.sum()
    within = X - bags.expand(between)
    W = (within.T * bags.expand(weights)) @ within
    left = []
    for a in range(len(bags)):
        kept = np.arange(len(bags)) != a
        Z = np.column_stack([between - centre, np.ones(len(bags))])
        penalty = np.zeros((5, 5))
        penalty[:4, :4] = 0.1 * W
        theta = np.linalg.solve((Z[kept].T * w[kept]) @ Z[kept] + penalty,
                                Z[kept].T @ (w[kept] * means[kept]))  # fmt: skip
        left.append(w[a] * (means[a] - Z[a] @ theta) ** 2)
    assert found == pytest.approx(np.mean(left))


def test_weighted_sums_of_parts_add_up_to_the_whole():
    X, means, bags, _, _ = unequal(0)
    order = np.argsort(bags.codes, kind="stable")
    X, sizes = X[order], bags.sizes
    weights = np.random.default_rng(1).uniform(0.2, 3, len(bags))
    weights *= bags.n_rows / (sizes @ weights)
    whole = Rows(X, means, Bags(bags.codes[order]), weights).statistics
    frame = pa.table({f"x{i}": X[:, i] for i in range(4)})
    encoder = Encoder.learn(frame.schema, frame.column_names, [])
    cut = 100
    n = int(sizes[:cut].sum())
    parts = [
        sum_clustered(encoder.rows(table), means[part], sizes[part], weights[part])
        for table, part in ((frame.slice(0, n), slice(0, cut)), (frame.slice(n), slice(cut, None)))
    ]
    total = parts[0] + parts[1]
    assert total.weight == pytest.approx(sizes @ weights)
    for name in ("between", "within", "cross"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-6, atol=1e-6)
    back = total - parts[1]
    np.testing.assert_allclose(back.between, parts[0].between, rtol=1e-6, atol=1e-6)


def test_knowing_the_noise_helps_on_bags_of_unequal_size():
    """In ten draws the error falls in nine or more, which chance does with probability .011."""
    wins = 0
    for seed in range(10):
        X, means, bags, noise, theta = unequal(seed)
        y = bags.expand(means)
        plain = AggregateLinearRegression(rho=0.0).fit(X, y, bags).coef_
        knowing = AggregateLinearRegression(rho=0.0)
        knowing.fit(X, y, bags, noise_scale=bags.expand(noise))
        wins += np.linalg.norm(knowing.coef_ - theta) < np.linalg.norm(plain - theta)
    assert wins >= 9


def test_the_variance_of_responses_is_told_apart_from_noise():
    """10,000 bags tell it to 3 %; three such standard errors."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([np.full(9000, 4), np.full(1000, 50)])
    noise = 4.0 / sizes
    means = 5 + rng.normal(size=10_000) * 3 / np.sqrt(sizes) + rng.laplace(scale=noise)
    assert response_variance(means, sizes, noise) == pytest.approx(9, rel=0.09)
    assert response_variance(np.full(10_000, 5.0), sizes, noise) < 0.1


def test_a_release_with_unequal_bags_is_weighed_by_its_noise(tmp_path):
    rng = np.random.default_rng(0)
    sizes = np.concatenate([np.full(200, 2), np.full(20, 60)])
    table = {"x": rng.normal(size=1600), "z": rng.normal(size=1600),
             "g": np.repeat(np.arange(220), sizes)}  # fmt: skip
    table["y"] = np.clip(0.3 * table["x"] + 0.5 + 0.1 * rng.normal(size=1600), 0, 1)
    made = release(table, response="y", bags="g", epsilon=2.0, bounds=(0, 1), ledger=None,
                   out=tmp_path / "released")  # fmt: skip
    found = AggregateLinearRegression(rho=0.1).fit_release(made, ["x", "z"])
    X, y, bags = made.training_set()
    scale = dict(zip(made.bags["bag"].to_pylist(), made.bags["noise_scale"].to_pylist(),
                     strict=True))  # fmt: skip
    rows = np.column_stack([X["x"], X["z"]])
    known = AggregateLinearRegression(rho=0.1).fit(rows, y, bags, noise_scale=scale)
    np.testing.assert_allclose(found.coef_, known.coef_, rtol=1e-6)
    ignorant = AggregateLinearRegression(rho=0.1).fit(rows, y, bags)
    assert np.abs(ignorant.coef_ - known.coef_).max() > 1e-3


def test_noise_that_every_bag_has_alike_changes_nothing():
    X = unequal(0)[0]
    bags = Bags.random(len(X), 10, random_state=0)
    y = bags.expand(bags.mean(X[:, 0]))
    plain = AggregateLinearRegression().fit(X, y, bags).coef_
    found = AggregateLinearRegression().fit(X, y, bags, noise_scale=0.1).coef_
    np.testing.assert_array_equal(found, plain)
