"""Diagnosis of bags: exact on average, rarely wrong about random bags, and what it says of rho."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.stats import ortho_group

from bagwise import AggregateLinearRegression, AggregateStatistics, Bags, diagnose, theory
from bagwise.diagnostics import _tails
from bagwise.release import release


def blocks(key, size):
    """Bags of rows that are neighbours in ``key``."""
    return np.argsort(np.argsort(key, kind="stable"), kind="stable") // size


def mixed(n, rng):
    """Normal and skewed features, and levels of which some are rare."""
    level = rng.choice(6, p=[0.5, 0.3, 0.15, 0.04, 0.008, 0.002], size=n)
    skewed = rng.exponential(size=n), rng.standard_t(3, size=n)
    return np.column_stack([rng.normal(size=(n, 2)), *skewed, np.eye(6)[level]])


def test_random_bags_give_each_feature_and_all_directions_the_chance_share():
    """The mean over every partition of a table into bags of 1, 2 and 3 rows, to the last digit."""
    X = np.random.default_rng(0).exponential(size=(6, 2)) @ [[1, 2], [0, 3]]
    found = [diagnose(X, c) for c in set(itertools.permutations([0, 1, 1, 2, 2, 2]))]
    assert found[0].chance == 2 / 5
    np.testing.assert_allclose(np.mean([d.share for d in found], axis=0), 2 / 5)
    np.testing.assert_allclose(np.mean([d.ratio for d in found], axis=0), 1)
    assert np.mean([d.directions.sum() for d in found]) == pytest.approx(2 * 2 / 5)


def test_directions_are_the_joint_eigenvalues():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4)) @ rng.normal(size=(4, 4)) + 1e4
    bags = Bags(rng.integers(12, size=90))
    found = diagnose(X, bags)
    X = X - X.mean(axis=0)
    means = bags.expand(bags.mean(X))
    values, vectors = eigh(means.T @ means, X.T @ X)
    np.testing.assert_allclose(found.directions, values, rtol=1e-7)
    least = np.abs(vectors[:, 0]) * X.std(axis=0)
    np.testing.assert_allclose(found.loads, least / np.linalg.norm(least), rtol=1e-5)
    np.testing.assert_allclose(found.share, means.var(axis=0) / X.var(axis=0))
    assert found.effective_bags == pytest.approx(90**2 / (bags.sizes**2).sum())


def test_units_of_features_change_nothing():
    rng = np.random.default_rng(0)
    X, bags = mixed(300, rng), Bags.random(300, 7, random_state=0)
    here, there = diagnose(X, bags), diagnose(X * 10.0 ** np.arange(-5, 5), bags)
    assert there.p_value == pytest.approx(here.p_value)
    np.testing.assert_allclose(there.directions, here.directions, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(there.loads, here.loads, rtol=1e-4, atol=1e-8)


def test_variance_of_the_trace_is_that_of_random_projections():
    """4,000 rotations in 9 dimensions: mean and variance as in `_tails`, hence flat p-values. The
    bounds on both leave out 1 in 1000; a variance 15 % off would break them nearly always.
    """
    p, a, q = 2, 4, 9
    turns = ortho_group.rvs(q, size=4000, random_state=0)
    trace = np.square(turns[:, :a, :p]).sum(axis=(1, 2))
    variance = 2 * p * a * (q - p) * (q - a) / (q**2 * (q - 1) * (q + 2))
    assert trace.mean() == pytest.approx(p * a / q, abs=3.3 * np.sqrt(variance / 4000))
    assert trace.var() == pytest.approx(variance, rel=3.3 * np.sqrt(2 / 4000))
    tails = _tails(trace, p, a, q)
    for level in (0.02, 0.1, 0.5):
        assert np.mean(tails < level) == pytest.approx(level, abs=0.02)


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("as_sums", [False, True])
def test_random_bags_are_rarely_called_otherwise(unequal, as_sums):
    """200 tables of 3,000 rows. Were p-values below .001 as rare as they should be, two or more of
    200 would come once in 57 times, four once in 20,000. Where it is forgotten that heavy tails
    make shares of unequal bags vary, nine of ten tables in bags of 1 to 200 are called not random.
    """
    rng = np.random.default_rng(1)
    codes = np.arange(3000) // 10
    if unequal:
        codes = np.repeat(np.arange(84), np.tile([1, 1, 2, 5, 20, 200], 14))[:3000]
    p_values = []
    for _ in range(200):
        X, bags = mixed(3000, rng), Bags(rng.permutation(codes))
        if as_sums:  # sums do not know of heavy tails but of 0/1 features
            X = AggregateStatistics.from_rows(X[:, [0, 1, 4, 5, 6, 7, 8, 9]], np.zeros(3000), bags)
        p_values.append(diagnose(X, bags).p_value)
    assert np.sum(np.array(p_values) <= 0.001) <= 3
    assert np.mean(np.array(p_values) < 0.1) < 0.17


def test_one_feature_among_many_gives_bags_away():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 50))
    found = diagnose(X, blocks(X[:, 7] + 2 * rng.normal(size=2000), 10))
    assert not found.random
    assert np.nanargmin(found.p_values) == 7
    assert "means of x7 vary " in str(found)


def test_a_combination_of_features_gives_bags_away():
    """Two features that are all but one: bags sorted by their difference show in neither."""
    rng = np.random.default_rng(0)
    both, apart = rng.normal(size=(2, 1000))
    found = diagnose(np.column_stack([both + 0.05 * apart, both - 0.05 * apart]), blocks(apart, 5))
    assert found.p_values.min() > 0.001
    assert not found.random
    assert "combinations of them" in str(found)


def test_bags_that_are_more_alike_than_chance_gives_are_not_random():
    """Every bag holds one row of each tenth of a feature."""
    x = np.sort(np.random.default_rng(0).normal(size=500))
    found = diagnose(x[:, None], np.arange(500) % 50)
    assert not found.random
    assert "means of x0 vary only 0.26 of what chance gives" in str(found)


def test_a_rare_level_needs_more_than_chance_meetings():
    """Two of five rows meet by chance at .9 %, which is 1e-15 or so for a normal feature."""
    X = np.zeros((10_000, 2))
    X[:, 0] = np.random.default_rng(0).normal(size=10_000)
    codes = np.random.default_rng(1).permutation(10_000) // 10
    bags = Bags(codes)
    first = [np.flatnonzero(codes == a)[0] for a in range(5)]
    X[[*first[:4], np.flatnonzero(codes == 0)[1]], 1] = 1
    found = diagnose(X, bags)
    assert found.random
    assert found.p_values[1] > 0.001
    X[:, 1] = codes == 0  # a level that is a bag, though: ten rows together
    assert diagnose(X, bags).p_values[1] < 0.01


def grouped(rng, n_bags=100, size=10, d=4):
    """Rows whose features lie half between bags."""
    bags = Bags(np.repeat(np.arange(n_bags), size))
    return bags.expand(rng.normal(size=(n_bags, d))) + rng.normal(size=(n_bags * size, d)), bags


def test_at_rho_1_a_coefficient_keeps_the_share_of_its_direction():
    rng = np.random.default_rng(0)
    X, bags = grouped(rng)
    statistics = AggregateStatistics.from_rows(X, np.zeros(1000), bags)
    found = diagnose(statistics)
    values, vectors = eigh(statistics.between, statistics.between + statistics.within)
    truth = vectors @ [1.0, 2.0, 3.0, 4.0]
    model = AggregateLinearRegression(rho=1.0).fit(X, bags.expand(bags.mean(X @ truth)), bags)
    np.testing.assert_allclose(model.coef_, vectors @ (values * [1, 2, 3, 4]), rtol=1e-6)
    assert f"{values.min():.2g} to {values.max():.2g} of it" in str(found)


def test_sampling_is_the_error_that_noise_adds_at_rho_0():
    """Against 400 fits to pure noise, with unequal bags; 3 sd of their mean is 10 %."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) * [1, 1, 1, 1, 9]
    bags = Bags(np.repeat(np.arange(12), [1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 30, 25]))
    X = X - X.mean(axis=0)
    found = diagnose(X, bags)
    errors = []
    for noise in rng.normal(size=(400, 200)):
        model = AggregateLinearRegression(rho=0.0).fit(X, bags.expand(bags.mean(noise)), bags)
        errors.append(np.square(X @ model.coef_).mean())
    assert np.mean(errors) == pytest.approx(found.sampling, rel=0.1)
    assert ("Bags are few" in str(found)) == (found.sampling > 1)


def test_few_bags_are_told_and_a_larger_rho_takes_their_noise_down():
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(400, 16)), Bags.random(400, 20, random_state=0)
    found = diagnose(X, bags)
    assert found.sampling > 1
    assert "Bags are few for so many directions: at rho = 0 noise adds " in str(found)
    noise = bags.expand(bags.mean(rng.normal(size=400)))
    lengths = [
        np.square((X - X.mean(axis=0)) @ AggregateLinearRegression(**k).fit(X, noise, bags).coef_)
        for k in ({"rho": 0.0}, {"rho": 0.1}, {"rho": 0.0, "ridge": 100.0})
    ]
    assert lengths[0].mean() > 2 * max(lengths[1].mean(), lengths[2].mean())


def test_fits_put_nothing_on_directions_that_bag_means_do_not_see():
    """Two features whose sum is the same in every bag, and fewer bags than directions."""
    rng = np.random.default_rng(0)
    X, bags = grouped(rng, d=3)
    inner = rng.normal(size=1000)
    X[:, 2] = inner - bags.expand(bags.mean(inner)) - X[:, 1]
    found = diagnose(X, bags)
    assert found.n_unseen == 1
    assert found.directions[0] == 0 < found.directions[1]
    unseen = X @ eigh(*scatters(X, bags))[1][:, 0]
    means = bags.expand(bags.mean(rng.normal(size=1000)))
    for rho in (0.0, 0.3):
        model = AggregateLinearRegression(rho=rho).fit(X, means, bags)
        fitted = model.predict(X) - model.predict(X).mean()
        assert abs(np.corrcoef(fitted, unseen)[0, 1]) < 1e-6
    assert "Bag means cannot tell 1 of 3 directions (most of all x2, x1)" in str(found)
    few = diagnose(rng.normal(size=(60, 8)), np.arange(60) % 5)
    assert few.n_unseen == 8 - 4
    assert np.isfinite(few.sampling)


def test_ranks_are_those_of_bags_and_rows_where_rounding_hides_them():
    """Columns of all but one direction: rounding of shares is 1e-8 or so."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) @ (1e-4 * np.eye(4) + np.ones((4, 4)))
    few, many = diagnose(X, np.arange(60) % 3), diagnose(X[:12], np.arange(12) % 10)
    assert few.n_unseen == 2
    np.testing.assert_array_equal(many.directions[-2:], 1)
    assert many.directions[-3] < 1


def scatters(X, bags):
    """Scatter between bags, and in all."""
    centred = X - X.mean(axis=0)
    means = bags.expand(bags.mean(centred))
    return means.T @ means, centred.T @ centred


def test_a_bag_that_acts_on_responses_biases_every_rho_and_no_score_shows_it():
    """A cause z of bags goes along with x₀. Given as a feature it does no harm."""
    rng = np.random.default_rng(0)
    X, bags = grouped(rng, n_bags=400)
    cause = bags.expand(bags.mean(X[:, 0]) + 0.3 * rng.normal(size=400))
    clean = X @ [1.0, 1.0, 0.0, 0.0] + rng.normal(size=4000)
    y, y_clean = (bags.expand(bags.mean(v)) for v in (clean + cause, clean))
    truth = np.array([1.0, 1.0, 0.0, 0.0])

    def errors(X, y):
        path = AggregateLinearRegression(rho="loo").fit(X, y, bags).path_
        wrong = path.coefficients[:, :4] - truth
        return np.square(wrong).sum(axis=1), np.nanmin(path.scores)

    hurt, score = errors(X, y)
    alone, clean_score = errors(X, y_clean)
    given, _ = errors(np.column_stack([X, cause]), y)
    assert not diagnose(X, bags).random
    assert hurt.min() > 0.2
    assert alone.min() < 0.01
    assert given.min() < 0.02
    # 1 is the noise of a row; bags of 10 rows with .3² of their own add .9 to it, and no more.
    assert clean_score == pytest.approx(1, rel=0.15)
    assert score == pytest.approx(1.9, rel=0.15)


def test_forecasts_of_theory_fail_where_bags_share_features():
    """At rho = 1 random bags would leave 1/k of a coefficient, and these leave half of it."""
    rng = np.random.default_rng(0)
    X, bags = grouped(rng)
    y = X @ np.full(4, 0.5) + rng.normal(size=1000)
    for codes, holds in ((bags.codes, False), (rng.permutation(bags.codes), True)):
        groups = Bags(codes)
        model = AggregateLinearRegression(rho=1.0).fit(X, groups.expand(groups.mean(y)), groups)
        error = np.square((X - X.mean(axis=0)) @ (model.coef_ - 0.5)).mean()
        forecast = theory.risk(1.0, 10, 250, np.sqrt(2.0), 1.0)
        assert (0.9 < error / forecast < 1.1) == holds
        found = diagnose(X, groups)
        assert found.random == holds
        assert ("row_risk may be trusted" in str(found)) == holds
        assert ("choose rho on bags that are left out" in str(found)) == (not holds)


def test_rows_sums_and_releases_tell_the_same(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 9, 800), "town": rng.choice(["a", "b"], 800)})
    frame["y"] = frame["age"] / 10
    made = release(
        frame, response="y", bag_size=8, epsilon=5, bounds=(0, 9), ledger=None, out=tmp_path / "out"
    )
    from_release = diagnose(made)
    table, _, bags = made.training_set()
    rows = pd.get_dummies(table.to_pandas(), dtype=float)
    from_rows, from_sums = diagnose(rows, bags), diagnose(made.statistics())
    assert from_release.feature_names == ("age", "town=a", "town=b")
    assert from_rows.feature_names == tuple(rows.columns)
    assert from_release.effective_bags == from_rows.effective_bags == 100
    assert np.isnan(from_sums.effective_bags)
    for other in (from_rows, from_sums):
        np.testing.assert_allclose(other.share, from_release.share)
        np.testing.assert_allclose(other.directions, from_release.directions, atol=1e-12)
        assert other.p_value == pytest.approx(from_release.p_value)
    assert from_release.random
    assert len(from_release.directions) == 2


def test_sparse_rows_are_taken_as_they_are():
    X = np.random.default_rng(0).poisson(0.3, size=(500, 4)).astype(float)
    bags = Bags.random(500, 9, random_state=0)
    dense, sparse = diagnose(X, bags), diagnose(sp.csr_array(X), bags)
    np.testing.assert_allclose(sparse.p_values, dense.p_values)


def test_bags_of_one_row_and_one_bag_say_so():
    X = np.random.default_rng(0).normal(size=(30, 2))
    alone = diagnose(X, np.arange(30))
    assert str(alone) == (
        "30 rows in 30 bags; 2 directions of features.\n"
        "Every row is its own bag: rho changes nothing."
    )
    assert alone.random
    np.testing.assert_allclose(alone.directions, 1)
    np.testing.assert_allclose(alone.ratio, 1)
    together = diagnose(X, np.zeros(30))
    assert str(together) == (
        "30 rows in 1 bag; 2 directions of features.\n"
        "One bag tells a mean, and nothing about features."
    )
    assert together.random
    assert together.n_unseen == 2
    alone.plot()
    together.plot()


def test_constant_and_collinear_features_are_passed_over():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[:, 1], X[:, 3] = 7.0, X[:, 0] - X[:, 2]
    found = diagnose(X, Bags.random(300, 10, random_state=0))
    assert np.isnan(found.share[1])
    assert np.isnan(found.p_values[1])
    assert np.isfinite(found.share[[0, 2, 3]]).all()
    assert found.loads[1] == 0
    assert len(found.directions) == 2
    assert found.random
    # Bags that a feature is constant within: nothing of it is left inside.
    groups = np.repeat(np.arange(30), 10)
    X[:, 0] = groups
    assert diagnose(X, groups).directions[-1] == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(diagnose(X[:, :1], groups).directions, 1, rtol=1e-12)


def test_unequal_bags_count_as_fewer():
    sizes = [1] * 50 + [100]
    X = np.random.default_rng(0).normal(size=(150, 2))
    found = diagnose(X, np.repeat(np.arange(51), sizes))
    assert found.effective_bags == pytest.approx(150**2 / (50 + 100**2))
    assert "51 bags of unequal size, which tell as much as 2 equal ones" in str(found)


def test_the_picture_shows_features_chance_and_directions():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 40)), columns=[f"f{j}" for j in range(40)])
    X["f5"] = np.repeat(np.arange(40), 10)
    axes = diagnose(X, np.repeat(np.arange(40), 10)).plot()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == "directions"
    assert labels[-1] == "f5"
    assert len(labels) == 1 + 25
    assert axes.get_legend_handles_labels()[1] == ["random bags"]


def test_bad_arguments_get_one_sentence():
    X = np.random.default_rng(0).normal(size=(6, 2))
    codes = np.array([0, 0, 1, 1, 2, 2])
    sums = AggregateStatistics.from_rows(X, np.zeros(6), codes)
    no_rows = replace(sums, within=np.zeros((2, 2)))
    for arguments, sentence in (
        ((X,), "bags must be one id a row of X; got none"),
        ((X, codes[:5]), "bags must be one id a row of X; got 5 ids for 6 rows"),
        ((sums, [0, 0, 1]), "bags must be those of the statistics; got 3 rows in 2 bags"),
        ((no_rows,), "statistics must be of rows; got sums that know no scatter within bags"),
        ((np.ones((6, 2)), codes), "X must be of features that vary; got constant ones"),
        ((X * np.nan, codes), "Input X contains NaN"),
    ):
        with pytest.raises(ValueError, match=sentence):
            diagnose(*arguments)
