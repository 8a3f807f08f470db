"""Laws of logistic and Poisson regression from bags."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, roc_auc_score

from bagwise import (
    AggregateLogisticRegression,
    AggregatePoissonRegressor,
    Bags,
    BagTable,
    bag_loss,
    count_loss,
    instance_loss,
    within_bag_variance,
)
from bagwise.estimators.calibration import fit_calibration
from bagwise.estimators.choice import _strongest
from bagwise.estimators.glm_problem import Problem, means_of
from bagwise.estimators.models import load_model
from bagwise.release import release

FAMILIES = [AggregateLogisticRegression, AggregatePoissonRegressor]
each = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)


def draw(family, n=400, k=4, seed=0, shift=5.0):
    """Rows off the origin, responses of rows, their means, and bags."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1, 10, 0.1] + [0, shift, -1]
    eta = (X - X.mean(axis=0)) @ [1.0, 0.05, -5.0]
    poisson = family is AggregatePoissonRegressor
    y = rng.poisson(np.exp(0.5 * eta)) if poisson else rng.uniform(size=n) < expit(eta)
    bags = Bags.random(n, k, random_state=seed)
    y = y.astype(float)
    return X, y, bags.expand(bags.mean(y)), bags


def problem(link="sigmoid", likelihood="mean", kind="instance", weights=None, noise=None, n=40):
    rng = np.random.default_rng(0)
    bags = Bags(rng.permutation(np.repeat(np.arange(4), [1, 4, n - 10, 5])))
    K = 3 if link == "softmax" else 1
    eta = rng.normal(size=(n, K))
    means = bags.mean(means_of(rng.normal(size=(n, K)), link))
    weights = np.ones(4) if weights is None else weights
    X = rng.normal(size=(n, 2))
    return eta, Problem(X, means, bags, link, likelihood, kind, True, weights, noise)


# What is minimised


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["instance", "variance"])
@pytest.mark.parametrize(
    ("link", "likelihood"),
    [("sigmoid", "mean"), ("sigmoid", "count"), ("exp", "mean"), ("softmax", "mean")],
)
def test_gradients_are_those_of_finite_differences(link, likelihood, kind, rho):
    weights = np.array([0.5, 2.0, 1.0, 0.7])
    eta, p = problem(link, likelihood, kind, weights)
    gradient, step = p.loss(eta, rho)[1], 1e-5
    for i in np.ndindex(*eta.shape):
        there = np.zeros_like(eta)
        there[i] = step
        slope = (p.loss(eta + there, rho)[0] - p.loss(eta - there, rho)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("likelihood", ["mean", "count"])
def test_the_objective_is_the_loss_of_predicted_means(likelihood):
    eta, p = problem(likelihood=likelihood)
    f, means, bags = expit(eta[:, 0]), p.means[:, 0], p.bags
    loss = bag_loss(means, f, bags, "log")
    if likelihood == "count":
        loss = count_loss(means, f, bags)
    assert p.loss(eta, 0.0)[0] == pytest.approx(float(loss))
    rows = float(instance_loss(means, f, bags, "log"))
    assert p.loss(eta, 1.0)[0] == pytest.approx(rows)
    assert p.loss(eta, 0.3)[0] == pytest.approx(0.7 * float(loss) + 0.3 * rows)
    apart = float(within_bag_variance(f, bags))
    varied = problem(likelihood=likelihood, kind="variance")[1]
    assert varied.loss(eta, 0.3)[0] == pytest.approx(float(loss) + 0.3 * apart)


def test_several_classes_have_the_cross_entropy_of_their_mean_shares():
    eta, p = problem("softmax")
    f = p.bags.mean(means_of(eta, "softmax"))
    expected = -(p.bags.sizes @ (p.means * np.log(f)).sum(axis=1)) / p.bags.n_rows
    assert p.loss(eta, 0.0)[0] == pytest.approx(expected)


def test_the_poisson_loss_at_bags_is_the_likelihood_of_their_totals():
    """Up to a constant: differences of losses are differences of log likelihoods."""
    from scipy.stats import poisson

    eta, p = problem("exp")
    totals = np.round(p.means[:, 0] * p.bags.sizes)
    p = p.__class__(**{**vars(p), "means": (totals / p.bags.sizes)[:, None]})
    found = [p.loss(e, 0.0)[0] for e in (eta, 0.5 * eta)]
    known = [
        -poisson.logpmf(totals, p.bags.sum(np.exp(e[:, 0]))).sum() / p.bags.n_rows
        for e in (eta, 0.5 * eta)
    ]
    assert found[1] - found[0] == pytest.approx(known[1] - known[0])


@pytest.mark.parametrize("rho", [0.0, 0.2])
@each
def test_a_fit_is_a_minimum_among_its_neighbours(family, rho):
    X, _, y, bags = draw(family)
    model = family(rho=rho, ridge=2.0, tol=1e-8).fit(X, y, bags)
    f = model.predict_proba(X)[:, 1] if family is AggregateLogisticRegression else model.predict(X)
    logistic = family is AggregateLogisticRegression
    coef, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])

    def objective(theta, intercept):
        f = means_of((X @ theta + intercept)[:, None], "sigmoid" if logistic else "exp")[:, 0]
        means = bags.align(y)
        at_bags = count_loss(means, f, bags) if logistic else bag_loss(means, f, bags, "poisson")
        name = "log" if logistic else "poisson"
        rows = instance_loss(means, f, bags, name)
        return (1 - rho) * at_bags + rho * rows + theta @ theta / bags.n_rows

    least = objective(coef, b)
    # The Poisson loss of rows has a constant that depends on responses alone.
    if logistic:
        assert least == pytest.approx(model.objective_)
    spread = X.std(axis=0)
    for i in range(3):
        for step in (1e-3, -1e-3):
            assert objective(coef + step / spread * (np.arange(3) == i), b) > least
    assert objective(coef, b + 1e-3) > least
    assert f.shape == (400,)


def test_bags_of_one_row_give_scikit_learns_logistic_regression():
    X, y, _, _ = draw(AggregateLogisticRegression)
    known = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y)
    for options in ({}, {"likelihood": "mean"}, {"rho": 0.0}, {"rho": 0.4, "kind": "variance"}):
        model = AggregateLogisticRegression(ridge=2.0, tol=1e-8, **options)
        for found in (model.fit(X, y), model.fit(X, y, np.arange(len(y)))):
            np.testing.assert_allclose(found.coef_, known.coef_, rtol=1e-4)
            np.testing.assert_allclose(found.intercept_, known.intercept_, rtol=1e-4)


def test_bags_of_one_row_give_scikit_learns_regression_of_several_classes():
    X, _, _, _ = draw(AggregateLogisticRegression)
    y = np.argmax(X @ np.diag([1, 0.1, 5]) + np.random.default_rng(1).gumbel(size=X.shape), axis=1)
    known = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y)
    model = AggregateLogisticRegression(ridge=2.0, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), known.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(model.coef_, known.coef_, atol=1e-3)


def test_bags_of_one_row_give_scikit_learns_poisson_regression():
    X, y, _, _ = draw(AggregatePoissonRegressor)
    known = PoissonRegressor(alpha=2.0 / len(y), tol=1e-10, max_iter=10_000).fit(X, y)
    model = AggregatePoissonRegressor(ridge=2.0, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-4)
    assert model.intercept_ == pytest.approx(known.intercept_, rel=1e-4)


def test_two_classes_as_a_table_of_shares_are_two_classes():
    X, _, y, bags = draw(AggregateLogisticRegression)
    options = {"rho": 0.1, "ridge": 1.0}
    one = AggregateLogisticRegression(**options).fit(X, y, bags)
    table = pd.DataFrame({"no": 1 - y, "yes": y})
    both = AggregateLogisticRegression(**options).fit(X, table, bags)
    assert both.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(both.coef_, one.coef_)


# What changes nothing


@each
def test_relabelling_and_reordering_change_nothing(family):
    X, _, y, bags = draw(family)
    options = {"rho": 0.1, "ridge": 1.0, "tol": 1e-8}
    model = family(**options).fit(X, y, bags)
    order = np.random.default_rng(1).permutation(len(X))
    names = np.array([f"bag {a}" for a in bags.codes])
    other = family(**options).fit(X[order], y[order], names[order])
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-5)


@each
def test_bags_twice_keep_the_coefficients(family):
    X, _, y, bags = draw(family)
    twice = np.concatenate([bags.codes, bags.codes + len(bags)])
    model = family(rho=0.1, ridge=1.0, tol=1e-8).fit(X, y, bags)
    both = family(rho=0.1, ridge=2.0, tol=1e-8)
    both.fit(np.vstack([X, X]), np.concatenate([y, y]), twice)
    np.testing.assert_allclose(both.coef_, model.coef_, rtol=1e-5)


@each
def test_an_offset_of_features_moves_the_intercept_alone(family):
    X, _, y, bags = draw(family)
    model = family(rho=0.1, ridge=1.0, tol=1e-8).fit(X, y, bags)
    moved = family(rho=0.1, ridge=1.0, tol=1e-8).fit(X + 1e4, y, bags)
    np.testing.assert_allclose(moved.coef_, model.coef_, rtol=1e-4)


@each
def test_sparse_rows_are_rows(family):
    X, _, y, bags = draw(family)
    X = np.where(np.abs(X) > 0.5, X, 0)
    dense = family(rho=0.1, ridge=1.0, tol=1e-8).fit(X, y, bags)
    sparse = family(rho=0.1, ridge=1.0, tol=1e-8).fit(sp.csr_array(X), y, bags)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-5)
    np.testing.assert_allclose(sparse._means(sp.csr_array(X)), dense._means(X), rtol=1e-5)


@each
def test_without_an_intercept_the_origin_has_the_middle_prediction(family):
    X, _, y, bags = draw(family, shift=0.0)
    model = family(rho=0.1, ridge=1.0, fit_intercept=False).fit(X, y, bags)
    assert model._means(np.zeros((1, 3)))[0, 0] == (1.0 if family is FAMILIES[1] else 0.5)


# Starts and stopping


def test_starts_lead_to_one_minimum_where_the_objective_is_convex():
    X, _, y, bags = draw(AggregateLogisticRegression)
    p = Problem(X, bags.align(y)[:, None], bags, "sigmoid", "mean", "instance", True,
                np.ones(len(bags)))  # fmt: skip
    found = [p.descend(1.0, 1e-3, s, 500, 1e-8) for s in [p.base(), *p._others(1e-3)]]
    for other in found[1:]:
        np.testing.assert_allclose(other.coef, found[0].coef, rtol=1e-4)


def test_the_best_of_several_starts_is_taken():
    """Few bags of many rows: minima differ, and a fit is no worse than any start leads to."""
    rng = np.random.default_rng(9)
    X, bags = 3 * rng.normal(size=(60, 3)), Bags(np.arange(60) // 15)
    means = bags.mean((X[:, 0] ** 2 > 9).astype(float))[:, None]
    p = Problem(X, means, bags, "sigmoid", "mean", "instance", True, np.ones(4))
    starts = [p.base(), *p._others(1e-4)]
    found = [p.descend(0.0, 1e-4, s, 500, 1e-6).objective for s in starts]
    assert p.solve(0.0, 1e-4, 500, 1e-6).objective == pytest.approx(min(found))
    assert found[0] > 1.05 * min(found), "zero alone would not do"


def test_starts_of_a_large_table_are_compared_on_some_bags(monkeypatch):
    X, _, y, bags = draw(AggregateLogisticRegression, n=2000)
    model = AggregateLogisticRegression(rho=0.0, ridge=1.0, tol=1e-8)
    whole = model.fit(X, y, bags).coef_
    monkeypatch.setattr("bagwise.estimators.glm_problem.SCREEN", 300)
    np.testing.assert_allclose(model.fit(X, y, bags).coef_, whole, rtol=1e-4)


def test_a_fit_that_is_cut_short_warns_with_a_remedy():
    X, _, y, bags = draw(AggregateLogisticRegression)
    with pytest.warns(ConvergenceWarning, match="no minimum after max_iter=1 iterations"):
        AggregateLogisticRegression(rho=0.1, ridge=1.0, max_iter=1, tol=1e-8).fit(X, y, bags)


# The choice of rho and ridge


def test_cv_is_the_loss_of_bags_held_out_by_hand():
    X, _, y, bags = draw(AggregateLogisticRegression)
    model = AggregateLogisticRegression(ridge=1.0, tol=1e-7).fit(X, y, bags)
    path = model.path_
    assert path.losses.shape == (5, 8)
    assert model.rho_ == path.rhos[np.argmin(path.scores)]
    fold = np.random.default_rng(0).permutation(len(bags)) % 5
    for i in range(5):
        held = (fold == i)[bags.codes]
        kept = AggregateLogisticRegression(rho=0.1, ridge=1.0, tol=1e-7)
        kept.fit(X[~held], y[~held], bags.codes[~held])
        out = Bags(bags.codes[held])
        p = kept.predict_proba(X[held])[:, 1]
        lost = count_loss(out.align(y[held]), p, out)
        assert path.losses[i, path.rhos == 0.1] == pytest.approx(lost, rel=1e-3)


@each
def test_ridge_is_chosen_before_rho_and_both_are_told(family):
    X, _, y, bags = draw(family)
    model = family().fit(X, y, bags)
    assert model.path_.losses.shape == (5, 14)
    assert (model.rho_, model.ridge_) in set(zip(model.path_.rhos, model.path_.ridges, strict=True))
    assert str(model.path_).startswith("On bags held out in 5 folds, rho = ")
    assert "ridge = " in str(model.path_)


def test_the_strongest_ridge_is_taken_that_does_as_well_but_for_chance():
    """From the strongest on: beyond an error of its gap, within one, best."""
    best = np.zeros(5)
    wide = np.array([-1.0, 3.0, -1.0, 3.0, 0.0])  # 0.8, with a standard error of 0.92
    sure = np.array([0.9, 1.1, 0.9, 1.1, 1.0])  # 1.0, with one of 0.045
    assert _strongest(np.column_stack([sure, wide, best])) == 1
    assert _strongest(np.column_stack([sure, sure, best])) == 2
    assert _strongest(np.column_stack([wide, sure, best])) == 0
    loose = np.array([-0.5, 2.5, -0.5, 2.5, 1.0])  # 1.0, with a spread of 1.5 but an error of 0.67
    assert _strongest(np.column_stack([loose, sure, best])) == 2


def test_strong_noise_of_labels_asks_for_a_strong_ridge():
    """Where features say nothing, less of them is better."""
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(600, 30)), Bags.random(600, 6, random_state=0)
    y = bags.expand(bags.mean((rng.uniform(size=600) < 0.5).astype(float)))
    model = AggregateLogisticRegression(rho=0.0).fit(X, y, bags)
    assert model.ridge_ == model.path_.ridges.max()


def test_a_path_is_drawn():
    pytest.importorskip("matplotlib")
    X, _, y, bags = draw(AggregateLogisticRegression)
    axes = AggregateLogisticRegression(ridge=1.0).fit(X, y, bags).path_.plot()
    assert axes.get_xlabel() == "rho"


# Probabilities that mean something


def test_instance_level_training_predicts_one_class_and_calibration_undoes_it():
    X, labels, y, bags = draw(AggregateLogisticRegression, n=8000, k=16)
    plain = AggregateLogisticRegression(rho=1.0, ridge=1.0).fit(X, y, bags)
    mended = AggregateLogisticRegression(rho=1.0, ridge=1.0, calibrate="bags").fit(X, y, bags)
    before, after = plain.predict_proba(X)[:, 1], mended.predict_proba(X)[:, 1]
    assert before.std() < 0.1 < after.std()
    assert log_loss(labels, after) < log_loss(labels, before) - 0.05
    assert roc_auc_score(labels, after) == pytest.approx(roc_auc_score(labels, before))
    full = LogisticRegression().fit(X, labels).predict_proba(X)[:, 1]
    assert log_loss(labels, after) < log_loss(labels, full) + 0.02


def test_calibration_finds_the_stretch_and_shift_of_logits():
    rng = np.random.default_rng(0)
    eta = rng.normal(size=(20_000, 1))
    bags = Bags(np.arange(20_000) // 5)
    labels = (rng.uniform(size=20_000) < expit(2 * eta[:, 0] - 1)).astype(float)
    p = Problem(eta, bags.mean(labels)[:, None], bags, "sigmoid", "count", "instance", True,
                np.ones(len(bags)))  # fmt: skip
    a, b = fit_calibration(eta, p)
    # Five of these standard errors: about 0.08 for a and 0.03 for b.
    assert a == pytest.approx(2, abs=0.4)
    assert b[0] == pytest.approx(-1, abs=0.15)


# Noise of a release


def test_knowing_the_noise_helps_on_bags_of_unequal_size():
    """Means of small bags are mostly noise: over ten draws the error falls in nine or more.

    Under a coin's chance that has probability .011.
    """
    wins = {name: 0 for name in ("count", "mean", "poisson")}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sizes = np.concatenate([np.full(300, 2), np.full(30, 60)])
        bags = Bags(np.repeat(np.arange(len(sizes)), sizes))
        X = rng.normal(size=(bags.n_rows, 4))
        theta = np.array([1.0, -1.0, 0.5, 0.0])
        for name in wins:
            poisson = name == "poisson"
            rates = np.exp(0.5 * X @ theta) if poisson else expit(X @ theta)
            y = rng.poisson(rates) if poisson else rng.uniform(size=len(X)) < rates
            scale = 2.0 / sizes
            noisy = bags.mean(y.astype(float)) + rng.laplace(scale=scale)
            if poisson:
                model = AggregatePoissonRegressor(rho=0.0, ridge=1.0)
                target = 0.5 * theta
                plain = np.maximum(noisy, 0)
            else:
                model = AggregateLogisticRegression(rho=0.0, ridge=1.0, likelihood=name)
                target, plain = theta, np.clip(noisy, 0, 1)
            ignorant = np.ravel(model.fit(X, bags.expand(plain), bags).coef_)
            knowing = np.ravel(
                model.fit(X, bags.expand(noisy), bags, noise_scale=bags.expand(scale)).coef_
            )
            wins[name] += np.linalg.norm(knowing - target) < np.linalg.norm(ignorant - target)
    assert min(wins.values()) >= 9, wins


def test_noise_may_come_as_a_number_a_column_or_a_mapping():
    X, _, y, bags = draw(AggregateLogisticRegression)
    names = [f"bag {a}" for a in bags.codes]
    options = {"rho": 0.0, "ridge": 1.0}
    found = [
        AggregateLogisticRegression(**options).fit(X, y, names, noise_scale=noise).coef_
        for noise in (0.2, np.full(len(X), 0.2), dict.fromkeys(names, 0.2))
    ]
    np.testing.assert_allclose(found[1], found[0])
    np.testing.assert_allclose(found[2], found[0])
    plain = AggregateLogisticRegression(**options).fit(X, y, names).coef_
    assert np.abs(plain - found[0]).max() > 1e-3


@pytest.mark.parametrize(
    ("noise", "sentence"),
    [
        (-1.0, "noise_scale must be at least 0"),
        (np.full(400, np.nan), "noise_scale must be finite"),
        (np.arange(400.0), "noise_scale must be constant within a bag"),
        ({"x": 1.0}, "noise_scale must be a mean for every bag"),
    ],
)
def test_bad_noise_is_told(noise, sentence):
    X, _, y, bags = draw(AggregateLogisticRegression)
    with pytest.raises(ValueError, match=sentence):
        AggregateLogisticRegression(rho=0.0, ridge=1.0).fit(X, y, bags, noise_scale=noise)


def curated(folder, epsilon, n=1200, unequal=True):
    """A table, and a Release of it."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 60, n) if unequal else np.full(n, 10)
    ids = np.repeat(np.arange(n), sizes)[:n]
    table = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "group": ids})
    table["town"] = np.where(rng.uniform(size=n) < 0.5, "x", "y")
    table["y"] = (rng.uniform(size=n) < expit(2 * table["a"])).astype(float)
    made = release(table, response="y", bags="group", epsilon=epsilon, bounds=(0, 1),
                   ledger=None, out=folder / "released", features="rows")  # fmt: skip
    return table, made


@each
def test_a_release_brings_its_noise(family, tmp_path):
    curated(tmp_path, epsilon=1.0)
    model = family(rho=0.0, ridge=1.0).fit(tmp_path / "released")
    from bagwise import Release

    released = Release.load(tmp_path / "released")
    X, y, bags = released.training_set()
    encoded = model.encoder_.encode(X)
    scale = dict(zip(released.bags["bag"].to_pylist(),
                     released.bags["noise_scale"].to_pylist(), strict=True))  # fmt: skip
    again = family(rho=0.0, ridge=1.0).fit(encoded, y, bags, noise_scale=scale)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-3, atol=1e-6)


@each
def test_noise_beside_a_release_and_releases_of_one_class_are_refused(family, tmp_path):
    table, made = curated(tmp_path, epsilon=1.0)
    with pytest.raises(ValueError, match="noise_scale must be left out; got one beside a Release"):
        family(rho=0.0, ridge=1.0).fit(made, noise_scale=1.0)
    none = release(table.assign(y=0), response="y", bags="group", bounds=(0, 1), epsilon=np.inf,
                   ledger=None, out=tmp_path / "none")  # fmt: skip
    with pytest.raises(ValueError, match=r"y must be (of at least two classes|above 0)"):
        family(rho=0.0, ridge=1.0).fit(none)


def test_a_table_in_files_is_read(tmp_path):
    X, _, y, bags = draw(AggregateLogisticRegression)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, bag=bags.codes)
    frame.to_parquet(tmp_path / "rows.parquet")
    options = {"rho": 0.1, "ridge": 1.0, "tol": 1e-7}
    model = AggregateLogisticRegression(**options)
    model.fit_release(BagTable(tmp_path / "rows.parquet", "y", "bag"), ["a", "b", "c"])
    known = AggregateLogisticRegression(**options).fit(X, y, bags)
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-4)
    np.testing.assert_allclose(model.predict_proba(frame), known.predict_proba(X), rtol=1e-4)


# Files


@pytest.mark.parametrize("options", [{}, {"rho": 0.1, "ridge": 1.0}], ids=["chosen", "given"])
@each
def test_a_saved_model_is_the_model(family, options, tmp_path):
    X, _, y, bags = draw(family)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = family(**options).fit(frame, y, bags)
    model.save(tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"model.json", "arrays.npz"}
    for loaded in (family.load(tmp_path / "model"), load_model(tmp_path / "model")):
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        assert vars(loaded).keys() == vars(model).keys()
        assert loaded.get_params() == model.get_params()


def test_several_classes_are_saved(tmp_path):
    X, _, y, bags = draw(AggregateLogisticRegression)
    shares = pd.DataFrame({"a": y / 2, "b": y / 2, "c": 1 - y})
    model = AggregateLogisticRegression(rho=0.1, ridge=1.0).fit(X, shares, bags)
    model.save(tmp_path / "model")
    loaded = AggregateLogisticRegression.load(tmp_path / "model")
    assert loaded.predict(X).tolist() == model.predict(X).tolist()


@pytest.mark.parametrize(
    "change",
    [{"rho": "x"}, {"classes": [0, 1, 2]}, {"classes": None}, {"objective": float("nan")},
     {"parameters": {"rho": 7.0}}, {"parameters": {"spoon": 1}}, {"feature_names": ["a"]}],
    ids=str,
)  # fmt: skip
def test_a_folder_that_contradicts_itself_is_refused(change, tmp_path):
    X, _, y, bags = draw(AggregateLogisticRegression)
    AggregateLogisticRegression(rho=0.1, ridge=1.0).fit(X, y, bags).save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateLogisticRegression.load(tmp_path / "model")


# Bad input

X, Y, Z, B = draw(AggregateLogisticRegression)


@pytest.mark.parametrize(
    ("family", "y", "bags", "sentence"),
    [
        (FAMILIES[0], Z * 1.5, B, "y must be shares from 0 to 1; got others"),
        (FAMILIES[0], -Z, B, "y must be shares from 0 to 1; got others"),
        (FAMILIES[0], 0 * Z, B, "y must be of at least two classes; got one class"),
        (FAMILIES[0], np.ones(400), B, "y must be of at least two classes; got one class"),
        (FAMILIES[0], np.ones(400), None, "y must be of at least two classes; got one class"),
        (FAMILIES[0], np.column_stack([Z, Z]), B, "y must be the shares of all classes"),
        (FAMILIES[1], Z - 1, B, "y must be at least 0; got negative means"),
        (FAMILIES[1], 0 * Z, B, "y must be above 0 in some bag; got 0 in all"),
    ],
)
def test_responses_of_no_sense_get_one_sentence(family, y, bags, sentence):
    model = family(rho=0.1, ridge=1.0)
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, y, bags)
    assert not hasattr(model, "coef_")


@each
def test_a_constant_response_is_predicted_for_every_row(family):
    model = family().fit(X, np.full(400, 0.3), B)
    np.testing.assert_allclose(model._means(X), 0.3, atol=0.02)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rho": 1.5}, r"rho must be in \[0, 1\]; got rho=1.5"),
        ({"rho": "loo"}, r"rho must be in \[0, 1\] or 'cv'; got rho='loo'"),
        ({"ridge": -1.0}, "ridge must be at least 0"),
        ({"ridge": "loo"}, "ridge must be at least 0, 'cv' or 'average'; got ridge='loo'"),
        ({"kind": "x"}, "kind must be one of 'instance', 'variance'"),
        ({"tol": 0.0}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"fit_intercept": "no"}, "fit_intercept must be True or False"),
        ({"likelihood": "x"}, "likelihood must be one of 'count', 'mean'"),
        ({"calibrate": "rows"}, "calibrate must be None or 'bags'; got calibrate='rows'"),
    ],
)
def test_bad_parameters_get_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        AggregateLogisticRegression(**options).fit(X, Z, B)


@each
def test_one_bag_needs_numbers(family):
    with pytest.raises(ValueError, match="ridge must be a number when there is one bag"):
        family(rho=0.5).fit(X, np.full(400, 0.3), np.zeros(400))
    model = family(rho=0.5, ridge=1.0).fit(X, np.full(400, 0.3), np.zeros(400))
    np.testing.assert_allclose(model._means(X).mean(), 0.3, atol=1e-2)
