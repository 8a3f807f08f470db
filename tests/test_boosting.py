"""Boosted trees from bags: derivatives, LightGBM's own trees, steps, options, bad input."""

import json
import shutil

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score

lgb = pytest.importorskip("lightgbm")

from bagwise import (  # noqa: E402
    AggregateBoostingClassifier,
    AggregateBoostingRegressor,
    Bags,
    BagTable,
    interpolating_derivatives,
    interpolating_loss,
    probability_scores,
)
from bagwise.boosting import training as training_module  # noqa: E402
from bagwise.boosting.links import LINKS, POINTS, SCALES, mean_of  # noqa: E402
from bagwise.boosting.objective import Objective, Slopes  # noqa: E402
from bagwise.boosting.training import ALWAYS, Settings, bin_rows, grow  # noqa: E402
from bagwise.engines import cluster as cluster_module  # noqa: E402
from bagwise.estimators.categories import Categories  # noqa: E402
from bagwise.estimators.information import response_variance  # noqa: E402
from bagwise.estimators.models import load_model  # noqa: E402
from bagwise.estimators.saved_trees import check_trees  # noqa: E402
from bagwise.release import release  # noqa: E402

ONE = {"n_jobs": 1, "random_state": 0}
PLAIN = {"early_stopping": False, "rho": 0.0} | ONE


def bags_of(sizes):
    return Bags(np.repeat(np.arange(len(sizes)), sizes))


def smooth(X):
    return np.sin(2 * X[:, 0]) + np.abs(X[:, 1])


def draw(n=4000, k=10, seed=0, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    bags = Bags.random(n, k, random_state=seed)
    y = smooth(X) + 0.3 * rng.normal(size=n)
    return X, bags.expand(bags.mean(y)), bags, y


# The objective


def an_objective(loss, kind, rho, seed=0):
    """Unequal bags with unequal weights, and scores for their rows."""
    rng = np.random.default_rng(seed)
    bags = bags_of([1, 3, 5, 2])
    means = {
        "squared": rng.normal(size=(4, 1)),
        "log": rng.uniform(0.1, 0.9, (4, 1)),
        "poisson": rng.uniform(0.5, 3, (4, 1)),
        "cross": rng.dirichlet(np.ones(3), 4),
    }[loss]
    objective = Objective(means, bags, rng.uniform(0.5, 1.5, 4), rho, kind, loss)
    return objective, rng.normal(size=(11, means.shape[1]))


def value(objective, scores):
    """What is differentiated, written down once more."""
    w, bags, rho = objective.weights, objective.bags, objective.rho
    total = 0.0
    for y, f in zip(objective.means.T, mean_of(scores, objective.loss).T, strict=True):
        point, averages = POINTS[objective.loss].value, bags.mean(f)
        at_bags = (w * bags.sizes) @ point(y, averages)
        at_rows = w[bags.codes] @ point(y[bags.codes], f)
        spread = w[bags.codes] @ (f - averages[bags.codes]) ** 2
        variance = objective.kind == "variance"
        total += at_bags + rho * (spread if variance else at_rows - at_bags)
    return total * SCALES[objective.loss]


@pytest.mark.parametrize("loss", SCALES)
@pytest.mark.parametrize("kind", ["instance", "variance"])
@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_derivatives_are_those_of_finite_differences(loss, kind, rho):
    objective, scores = an_objective(loss, kind, rho)
    at, step, bent = objective.at(scores), 1e-4, 0
    factor = 1.5 if loss == "cross" else 1.0
    for place in np.ndindex(scores.shape):
        move = np.zeros_like(scores)
        move[place] = step
        up, middle, down = (value(objective, scores + s * move) for s in (1, 0, -1))
        assert at.gradient[place] == pytest.approx((up - down) / (2 * step), abs=1e-5)
        curvature = (up - 2 * middle + down) / step**2
        if curvature > 1e-5:
            assert at.hessian[place] == pytest.approx(factor * curvature, abs=1e-5)
        else:
            bent += 1
            assert at.hessian[place] >= 0
    assert bent == 0 or loss != "squared"
    assert bent < scores.size


@pytest.mark.parametrize("loss", ["squared", "log", "poisson"])
@pytest.mark.parametrize("kind", ["instance", "variance"])
def test_the_objective_is_the_library_s_loss(loss, kind):
    objective, scores = an_objective(loss, kind, 0.4)
    objective = Objective(objective.means, objective.bags, np.ones(4), 0.4, kind, loss)
    found = interpolating_loss(
        objective.means[:, 0], mean_of(scores, loss)[:, 0], objective.bags, 0.4, kind, loss
    )
    assert value(objective, scores) == pytest.approx(SCALES[loss] * 11 * float(found))


@pytest.mark.parametrize("loss", ["squared", "log", "poisson"])
@pytest.mark.parametrize("kind", ["instance", "variance"])
def test_derivatives_are_the_library_s_through_the_link(loss, kind):
    objective, scores = an_objective(loss, kind, 0.4)
    objective = Objective(objective.means, objective.bags, np.ones(4), 0.4, kind, loss)
    f, link, at = mean_of(scores, loss)[:, 0], LINKS[loss], objective.at(scores)
    found = interpolating_derivatives(objective.means[:, 0], f, objective.bags, 0.4, kind, loss)
    first, scale = link.first(f), 11 * SCALES[loss]
    gradient = scale * found.gradient * first
    np.testing.assert_allclose(at.gradient[:, 0], gradient, rtol=1e-9, atol=1e-12)
    hessian = scale * found.diagonal * first**2 + gradient * link.turn(f)
    convex = hessian > 0
    np.testing.assert_allclose(at.hessian[convex, 0], hessian[convex], rtol=1e-9)


@pytest.mark.parametrize("loss", SCALES)
def test_no_constant_is_better_than_the_start(loss):
    objective, _ = an_objective(loss, "instance", 0.5)
    start = np.tile(objective.start(), (11, 1))
    best = value(objective, start)
    for change in np.eye(start.shape[1]):
        for size in (-0.01, 0.01):
            assert value(objective, start + size * change) > best


@pytest.mark.parametrize("loss", ["squared", "log", "cross"])
def test_a_step_is_as_long_as_the_exact_curvature_along_it_says(loss):
    """Against the whole Hessian in the means, written as a matrix, and LightGBM's diagonal."""
    objective, scores = an_objective(loss, "instance", 0.2)
    at, K = objective.at(scores), scores.shape[1]
    rng = np.random.default_rng(3)
    step = -at.gradient * rng.uniform(20, 30, at.gradient.shape)
    part, constants = at.length(step)
    f, n = mean_of(scores, loss), len(scores)
    # Of rows i, j in one bag: J_iᵀ diag(shared) J_j, and what is of a row alone.
    slopes = {"squared": np.ones_like(f), "log": f * (1 - f), "cross": f}[loss]
    jacobian = [np.diag(s) - (K > 1) * np.outer(s, s) for s in slopes]
    H = np.diag(at.own.ravel())
    for i in range(n):
        for j in range(n):
            a = objective.bags.codes[i]
            if a == objective.bags.codes[j]:
                block = jacobian[i].T @ np.diag(at.shared[a]) @ jacobian[j]
                H[i * K : (i + 1) * K, j * K : (j + 1) * K] += block

    def model(part, constants):
        u = (part * step + constants).ravel()
        return at.gradient.ravel() @ u + u @ H @ u / 2

    best = model(part, constants)
    assert 0 < part < 1
    for change in (-0.01, 0.01):
        assert model(part + change, constants) > best
        for e in np.eye(K):
            assert model(part, constants + change * e) > best


# LightGBM's own trees


@pytest.mark.parametrize("own", ["regression", "binary", "multiclass"])
@pytest.mark.parametrize("rho", [0.0, 0.4, 1.0])
def test_bags_of_one_give_the_trees_of_lightgbm(own, rho):
    X, _, _, y = draw(1500)
    label = {"regression": y, "binary": (y > 1) * 1, "multiclass": np.digitize(y, [0.3, 1.2])}[own]
    options = {"n_estimators": 25, "num_leaves": 12, "min_child_samples": 20, "reg_lambda": 0.0}
    kind = AggregateBoostingRegressor if own == "regression" else AggregateBoostingClassifier
    model = kind(**PLAIN | options | {"rho": rho}).fit(X, label)
    given = ALWAYS | {"objective": own, "num_leaves": 12, "num_threads": 1}
    given |= {"num_class": 3} if own == "multiclass" else {}
    theirs = lgb.train(given, lgb.Dataset(X, label, params=ALWAYS), 25)
    ours, trees = model.booster_.trees_to_dataframe(), theirs.trees_to_dataframe()
    for name in ("tree_index", "node_index", "split_feature", "threshold", "count"):
        pd.testing.assert_series_equal(ours[name], trees[name])
    # LightGBM adds the start to the leaves of the first trees.
    K = len(model.start_)
    for i in range(K):
        first = trees["tree_index"] == i
        trees.loc[first, "value"] -= model.start_[i]
    leaf = trees["left_child"].isna()
    np.testing.assert_allclose(ours["value"][leaf], trees["value"][leaf], rtol=1e-5, atol=1e-6)
    expected = theirs.predict(X) if K > 1 else theirs.predict(X)[:, None]
    np.testing.assert_allclose(model._means(X), expected, rtol=1e-6, atol=1e-6)


def test_rho_of_one_is_boosting_on_the_bag_means_of_rows():
    X, means, bags, _ = draw()
    options = PLAIN | {"num_leaves": 31}
    together = AggregateBoostingRegressor(**options | {"rho": 1.0}).fit(X, means, bags)
    alone = AggregateBoostingRegressor(**options).fit(X, means)
    np.testing.assert_allclose(together.predict(X), alone.predict(X), rtol=1e-5, atol=1e-6)


# Steps


def losses_of(X, means, bags, loss, monkeypatch, rho=0.0, rate=0.1, rounds=60):
    """The training loss at the start of each round."""
    objective = Objective(means, bags, np.ones(bags.n_bags), rho, "instance", loss)
    found, real = [], Objective.at

    def noted(self, scores):
        f = mean_of(scores, loss)
        found.append(interpolating_loss(means[:, 0], f[:, 0], bags, rho, "instance", loss))
        return real(self, scores)

    monkeypatch.setattr(Objective, "at", noted)
    data = bin_rows(X, len(X), [], {"num_threads": 1})
    grow(data, objective, Settings(rounds, 0, rate, {"num_leaves": 15, "num_threads": 1}))
    return np.array(found, dtype=float)


@pytest.mark.parametrize("loss", ["squared", "log"])
@pytest.mark.parametrize("natural", [False, True], ids=["random", "natural"])
@pytest.mark.parametrize("k", [4, 64, 256])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_loss_never_rises(loss, natural, k, rate, monkeypatch):
    X, _, bags, y = draw(4096, k)
    if natural:
        bags = Bags(np.argsort(np.argsort(X[:, 0])) // k)
    response = y if loss == "squared" else (y > 1).astype(float)
    found = losses_of(X, bags.mean(response)[:, None], bags, loss, monkeypatch, rate=rate)
    # But for rounding, where bags are few and all is fitted.
    assert (np.diff(found) <= 1e-12 * found[0]).all()
    assert found[-1] < found[0]


@pytest.mark.parametrize("natural", [False, True], ids=["random", "natural"])
def test_with_the_diagonal_alone_it_grows_without_end(natural, monkeypatch):
    """What the law above guards against: 64 rows that move together have 64 times the curvature."""
    X, _, bags, y = draw(4096, 64)
    if natural:
        bags = Bags(np.argsort(np.argsort(X[:, 0])) // 64)
    monkeypatch.setattr(Slopes, "length", lambda self, step: (1.0, np.zeros(1)))
    found = losses_of(X, bags.mean(y)[:, None], bags, "squared", monkeypatch, rounds=20)
    assert found[-1] > 1e3 * found[0]


@pytest.mark.parametrize("loss", ["squared", "log"])
def test_the_model_predicts_what_was_trained(loss, monkeypatch):
    """Leaves that were multiplied, and constants: their loss is that of the scores in training."""
    X, _, _, y = draw(4096)
    bags = Bags(np.argsort(np.argsort(X[:, 0])) // 64)
    parts, real = [], Slopes.length

    def noted(self, step):
        found = real(self, step)
        parts.append(found[0])
        return found

    monkeypatch.setattr(Slopes, "length", noted)
    response = y if loss == "squared" else (y > 1).astype(float)
    objective = Objective(bags.mean(response)[:, None], bags, np.ones(64), 0.0, loss=loss)
    data = bin_rows(X, len(X), [], {"num_threads": 1})
    settings = Settings(20, options={"num_threads": 1})
    found = grow(data, objective, settings, np.ones(64))
    assert min(parts) < 0.9
    # Squared loss in bags of one size needs no constant, but for rounding.
    assert loss == "squared" or abs(found.start - objective.start()) > 1e-4
    scores = found.booster.predict(X)[:, None] + found.start
    assert found.losses[-1] == pytest.approx(objective.loss_of_bags(scores, np.ones(64)), rel=1e-9)


# What is learnt


@pytest.mark.parametrize("k", [4, 10, 32])
def test_rows_are_learnt_from_bags_where_label_propagation_learns_little(k):
    X, means, bags, _ = draw(20_000, k)
    new = np.random.default_rng(9).normal(size=(5000, 4))
    options = ONE | {"learning_rate": 0.2, "patience": 10}
    model = AggregateBoostingRegressor(rho=0.0, **options).fit(X, means, bags)
    spread = AggregateBoostingRegressor(rho=1.0, **options).fit(X, means, bags)
    ours, theirs = (r2_score(smooth(new), m.predict(new)) for m in (model, spread))
    assert ours > 0.8
    assert theirs < ours - 0.1 - 0.4 * (k > 4)


def test_natural_bags_are_learnt_too():
    X, _, _, y = draw(20_000)
    bags = Bags(np.argsort(np.argsort(X[:, 0] + 0.3 * X[:, 2])) // 50)
    means = bags.expand(bags.mean(y))
    model = AggregateBoostingRegressor(**ONE).fit(X, means, bags)
    assert model.score(X, means, bags) > 0.95
    assert r2_score(smooth(X), model.predict(X)) > 0.6


def test_classes_are_learnt_from_shares():
    X, _, bags, y = draw(10_000, 8)
    label = (y > 0.8).astype(float)
    model = AggregateBoostingClassifier(**ONE).fit(X, bags.expand(bags.mean(label)), bags)
    assert model.score(X, label) > 0.8
    assert model.score(X, bags.expand(bags.mean(label)), bags) > 0.3
    assert model.rho_ < 1
    assert list(model.held_out_losses_) == [0.0, 0.001, 0.01, 0.1, 1.0]


def test_three_classes_are_learnt_from_shares():
    X, _, bags, y = draw(10_000, 5)
    label = np.digitize(y, [0.3, 1.2])
    shares = pd.DataFrame(bags.expand(bags.mean(np.eye(3)[label])), columns=["a", "b", "c"])
    model = AggregateBoostingClassifier(rho=0.0, learning_rate=0.2, **ONE)
    model.fit(X, shares, bags)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict_proba(X).shape == (10_000, 3)
    assert model.score(X, np.array(["a", "b", "c"])[label]) > 0.7
    assert model.score(X, shares, bags) > 0.4


@pytest.mark.parametrize("kind", ["instance", "variance"])
def test_kinds_agree_for_squared_loss_and_differ_for_shares(kind):
    X, means, bags, _ = draw(1000)
    options = PLAIN | {"rho": 0.3, "n_estimators": 10}
    base = AggregateBoostingRegressor(**options).fit(X, means, bags).predict(X)
    other = AggregateBoostingRegressor(kind=kind, **options).fit(X, means, bags).predict(X)
    np.testing.assert_allclose(base, other, rtol=1e-6)
    share = expit(means - 1)
    base = AggregateBoostingClassifier(**options).fit(X, share, bags).predict_proba(X)
    other = AggregateBoostingClassifier(kind=kind, **options).fit(X, share, bags).predict_proba(X)
    assert np.allclose(base, other) == (kind == "instance")


# What changes nothing


def test_order_of_rows_and_names_of_bags_change_nothing():
    X, means, bags, _ = draw()
    model = AggregateBoostingRegressor(n_estimators=40, **ONE).fit(X, means, bags)
    order = np.random.default_rng(1).permutation(len(X))
    names = np.array([f"bag {-c}" for c in bags.codes])
    # Held-out bags follow the order of bags, which follows the rows: rho and rounds are given.
    options = PLAIN | {"rho": 0.01, "n_estimators": 40}
    one = AggregateBoostingRegressor(**options).fit(X, means, bags)
    two = AggregateBoostingRegressor(**options).fit(X[order], means[order], names[order])
    np.testing.assert_allclose(one.predict(X), two.predict(X), rtol=1e-6, atol=1e-6)
    renamed = AggregateBoostingRegressor(n_estimators=40, **ONE).fit(X, means, names)
    np.testing.assert_array_equal(model.predict(X), renamed.predict(X))


def test_bags_that_come_twice_keep_predictions_when_leaves_are_twice_as_large():
    X, means, bags, _ = draw(2000)
    options = PLAIN | {"rho": 0.01, "n_estimators": 30, "reg_lambda": 0.0}
    one = AggregateBoostingRegressor(min_child_samples=10, **options).fit(X, means, bags)
    twice = np.concatenate([bags.codes, bags.codes + bags.n_bags])
    two = AggregateBoostingRegressor(min_child_samples=20, **options)
    two.fit(np.vstack([X, X]), np.concatenate([means, means]), twice)
    found = two.predict(X)
    assert r2_score(one.predict(X), found) > 0.999


def test_responses_may_be_moved_and_scaled():
    X, means, bags, _ = draw(2000)
    options = PLAIN | {"rho": 0.01, "n_estimators": 20}
    one = AggregateBoostingRegressor(**options).fit(X, means, bags).predict(X)
    two = AggregateBoostingRegressor(**options).fit(X, 64 * means + 1e4, bags).predict(X)
    np.testing.assert_allclose(two, 64 * one + 1e4, rtol=1e-5)


def test_the_same_seed_gives_the_same_model():
    X, means, bags, _ = draw(2000)
    options = {"n_estimators": 20, "colsample_bytree": 0.5, "n_jobs": 1}
    one, two, three = (
        AggregateBoostingRegressor(random_state=seed, **options).fit(X, means, bags).predict(X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - three).max() > 1e-3


# Held-out bags


def test_rounds_are_those_of_the_least_held_out_loss_grown_on_all_bags(monkeypatch):
    X, means, bags, _ = draw(1000, 5)
    seen, real = [], training_module.grow

    def noted(data, objective, settings, held_out=None, progress=None):
        found = real(data, objective, settings, held_out)
        seen.append((objective, settings, held_out, found))
        return found

    monkeypatch.setattr(training_module, "grow", noted)
    model = AggregateBoostingRegressor(patience=5, **ONE).fit(X, means, bags)
    *tried, last = seen
    assert [o.rho for o, *_ in tried] == [0.0, 0.001, 0.01, 0.1, 1.0]
    for objective, _, held_out, found in tried:
        assert (held_out > 0).sum() == 30
        assert not (held_out * objective.weights).any()
        assert model.held_out_losses_[objective.rho] == min(found.losses)
        assert len(found.losses) - np.argmin(found.losses) - 1 == 5
    best = min(tried, key=lambda t: min(t[3].losses))
    assert last[0].rho == model.rho_ == best[0].rho
    assert last[0].weights.all()
    assert last[2] is None
    assert model.n_estimators_ == last[1].rounds == np.argmin(best[3].losses) + 1


def test_held_out_bags_teach_nothing():
    """Their responses may be anything: the same trees come of it."""
    X, means, bags, _ = draw(2000)
    weights = (np.arange(bags.n_bags) % 4 > 0).astype(float)
    found = []
    for noise in (0, 100):
        y = bags.mean(means) + noise * (weights == 0)
        objective = Objective(y[:, None], bags, weights, 0.1)
        data = bin_rows(X, len(X), [], {})
        grown = grow(data, objective, Settings(10, options={"num_threads": 1}), 1 - weights)
        found.append(grown.booster.predict(X) + grown.start[0])
        assert len(grown.losses) == 10
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_without_early_stopping_all_rounds_are_grown():
    X, means, bags, _ = draw(500)
    model = AggregateBoostingRegressor(n_estimators=7, early_stopping=False, **ONE)
    assert model.fit(X, means, bags).n_estimators_ == 7
    assert len(model.held_out_losses_) == 5
    given = clone(model).set_params(rho=0.1).fit(X, means, bags)
    assert given.held_out_losses_ == {}
    assert given.rho_source_ == "given"
    assert clone(model).fit(X, means).rho_source_ == "bags of one row"


# Noise


def test_noisy_bags_weigh_less_and_rows_are_predicted_better():
    """Half of the rows are in bags of 2 whose means are mostly noise."""
    rng = np.random.default_rng(0)
    errors = []
    for seed in range(5):
        X, _, _, y = draw(12_000, seed=seed)
        sizes = np.concatenate([np.full(3000, 2), np.full(150, 40)])
        bags = Bags(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))
        scale = 6 / bags.sizes
        noisy = bags.mean(y) + rng.laplace(0, scale)
        new = np.random.default_rng(100 + seed).normal(size=(3000, 4))
        model = AggregateBoostingRegressor(rho=0.01, learning_rate=0.2, patience=10, **ONE)
        for noise in (None, bags.expand(scale)):
            found = clone(model).fit(X, bags.expand(noisy), bags, noise)
            errors.append(np.mean((found.predict(new) - smooth(new)) ** 2))
    blind, aware = np.array(errors).reshape(5, 2).T
    assert np.mean(aware) < 0.9 * np.mean(blind)
    assert (aware < blind).sum() >= 4


def test_the_variance_of_rows_shows_through_the_noise():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 60, 20_000)
    noise = 6 / sizes
    means = 3 + rng.normal(size=len(sizes)) * 2 / np.sqrt(sizes)
    # Estimated standard errors are about 0.05.
    noisy = means + rng.laplace(0, noise)
    assert response_variance(noisy, sizes, noise) == pytest.approx(4, abs=0.25)
    assert response_variance(np.full(5, 2.0), np.ones(5), np.ones(5)) > 0


def test_a_release_weighs_its_bags_by_its_own_noise(tmp_path):
    X, _, _, y = draw(3000)
    sizes = np.concatenate([np.full(500, 2), np.full(50, 40)])
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, g=bags_of(sizes).codes)
    made = release(frame, response="y", bags="g", epsilon=5.0, bounds=(-2, 4), ledger=None,
                   columns=list("abcd"), out=tmp_path / "r")  # fmt: skip
    options = PLAIN | {"n_estimators": 20}
    model = AggregateBoostingRegressor(**options).fit(made)
    rows, means, ids = made.training_set()
    noise = dict(zip(made.bags["bag"].to_pylist(), made.bags["noise_scale"].to_pylist()))  # noqa: B905
    same = AggregateBoostingRegressor(**options).fit(rows, means, ids, noise)
    blind = AggregateBoostingRegressor(**options).fit(rows, means, ids)
    np.testing.assert_allclose(model.predict(rows), same.predict(rows), rtol=1e-6, atol=1e-6)
    assert np.abs(model.predict(rows) - blind.predict(rows)).max() > 0.01


# Options


def test_predictions_are_monotone_where_they_must_be():
    X, _, _, y = draw(6000)
    bags = Bags(np.argsort(np.argsort(X[:, 2] + X[:, 3])) // 30)
    frame = pd.DataFrame(X, columns=list("abcd"))
    means = bags.expand(bags.mean(y - 0.5 * X[:, 1]))
    for signs in ([1, -1, 0, 0], {"a": 1, "b": -1}):
        model = AggregateBoostingRegressor(
            rho=0.0, n_estimators=60, monotone_constraints=signs, early_stopping=False, **ONE
        ).fit(frame, means, bags)
        for name, sign in (("a", 1), ("b", -1)):
            rows = frame.iloc[np.zeros(200, dtype=int)].reset_index(drop=True)
            rows[name] = np.linspace(-3, 3, 200)
            change = sign * np.diff(model.predict(rows))
            assert change.min() >= -1e-9
            assert change.sum() > 0.05
    free = AggregateBoostingRegressor(**PLAIN | {"n_estimators": 60}).fit(frame, means, bags)
    assert np.diff(free.predict(rows)).max() > 1e-3


def towns(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    town = rng.choice(["oslo", "bergen", "tromsø", "bodø"], n)
    age = rng.normal(size=n)
    y = np.where(np.isin(town, ["oslo", "bodø"]), 2.0, -2.0) + age
    bags = Bags.random(n, 5, random_state=seed)
    return pd.DataFrame({"age": age, "town": town}), bags.expand(bags.mean(y)), bags, y


@pytest.mark.parametrize("form", ["text", "category", "polars", "named number"])
def test_categories_are_levels_without_an_order(form):
    frame, means, bags, y = towns()
    options = PLAIN | {"n_estimators": 40}
    if form == "category":
        frame["town"] = frame["town"].astype("category")
    if form == "polars":
        frame = pl.from_pandas(frame)
    if form == "named number":
        frame["town"] = frame["town"].map({"oslo": 1, "bergen": 2, "bodø": 3, "tromsø": 4})
        options["categorical_features"] = ["town"]
    model = AggregateBoostingRegressor(num_leaves=2, **options).fit(frame, means, bags)
    assert model.feature_names_in_.tolist() == ["age", "town"]
    assert model.n_features_in_ == 2
    # One split of two leaves takes both towns out of four.
    first = model.booster_.dump_model()["tree_info"][0]["tree_structure"]
    assert first["decision_type"] == "=="
    assert r2_score(y, model.predict(frame)) > 0.9
    assert list(model.importances_) == ["town", "age"]
    assert list(model.encoder_.columns["town"]) == sorted(model.encoder_.columns["town"])
    assert sum(model.importances_.values()) == pytest.approx(1)


def test_a_level_that_was_not_seen_counts_as_missing():
    frame, means, bags, _ = towns()
    model = AggregateBoostingRegressor(n_estimators=20, **PLAIN).fit(frame, means, bags)
    new = pd.DataFrame({"age": [0.0, 0.0, 0.0], "town": ["oslo", "paris", None]})
    found = model.predict(new)
    assert found[1] == found[2] != found[0]
    # Other levels in another order, and columns too: names decide.
    new = pd.DataFrame({"town": ["tromsø", "oslo"], "age": [1.0, 2.0], "more": [1, 2]})
    old = pd.DataFrame({"age": [1.0, 2.0], "town": ["tromsø", "oslo"]})
    np.testing.assert_array_equal(model.predict(new), model.predict(old))


def test_columns_of_an_array_may_be_categories():
    frame, means, bags, y = towns()
    codes = frame["town"].map({"oslo": 10, "bergen": -3, "bodø": 2.5, "tromsø": 7})
    X = np.column_stack([frame["age"], codes])
    options = PLAIN | {"n_estimators": 40}
    model = AggregateBoostingRegressor(categorical_features=[1], **options).fit(X, means, bags)
    assert r2_score(y, model.predict(X)) > 0.9
    text = AggregateBoostingRegressor(**options).fit(frame, means, bags)
    np.testing.assert_allclose(model.predict(X), text.predict(frame), rtol=0.05, atol=0.05)
    labels = AggregateBoostingClassifier(categorical_features=[1], **options).fit(X, y > 0)
    assert labels.score(X, y > 0) > 0.9


def test_missing_values_are_taken():
    X, means, bags, y = draw(6000, 5)
    rng = np.random.default_rng(0)
    gaps = X.copy()
    gaps[rng.random(X.shape) < 0.1] = np.nan
    model = AggregateBoostingRegressor(**PLAIN).fit(gaps, means, bags)
    assert r2_score(y, model.predict(gaps)) > 0.5
    assert np.isfinite(model.predict(np.full((2, 4), np.nan))).all()
    frame = pd.DataFrame(gaps, columns=list("abcd")).convert_dtypes()
    np.testing.assert_allclose(
        AggregateBoostingRegressor(**PLAIN).fit(frame, means, bags).predict(frame),
        model.predict(gaps),
    )


def test_sparse_rows_are_dense_rows():
    X, means, bags, _ = draw(2000)
    X[np.abs(X) < 1] = 0
    options = PLAIN | {"n_estimators": 20}
    expected = AggregateBoostingRegressor(**options).fit(X, means, bags).predict(X)
    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_array):
        model = AggregateBoostingRegressor(**options).fit(kind(X), means, bags)
        np.testing.assert_allclose(model.predict(kind(X)), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [{"num_leaves": 16}, {"min_child_samples": 200}, {"reg_lambda": 50.0}, {"learning_rate": 0.3},
     {"colsample_bytree": 0.5}, {"rho": 0.5}, {"n_estimators": 5},
     {"monotone_constraints": [-1, 0, 0, 0]}, {"categorical_features": [3]}],
    ids=str,
)  # fmt: skip
def test_every_parameter_changes_what_is_learnt(change):
    X, means, bags, _ = draw(2000)
    X = X.round(1)
    options = PLAIN | {"n_estimators": 20}
    base, other = (
        AggregateBoostingRegressor(**options | more).fit(X, means, bags).predict(X)
        for more in ({}, change)
    )
    assert np.abs(base - other).max() > 1e-3


@pytest.mark.parametrize(("k", "leaves"), [(1, 31), (4, 12), (16, 6), (64, 4), (400, 4)])
def test_trees_are_smaller_where_bags_are_fewer(k, leaves):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    bags = Bags.random(20_000, k, random_state=0)
    model = AggregateBoostingRegressor(n_estimators=1, min_child_samples=1, **ONE | {"rho": 0.0})
    model.fit(X, bags.expand(bags.mean(X[:, 0])), bags)
    assert model.booster_.dump_model()["tree_info"][0]["num_leaves"] == leaves


# Tables and files


@pytest.mark.parametrize("kind", [AggregateBoostingRegressor, AggregateBoostingClassifier])
def test_row_groups_give_the_model_of_rows_in_memory(kind, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_module, "GROUP", 500)
    frame, means, bags, _ = towns(3000)
    means = means if kind is AggregateBoostingRegressor else expit(means)
    frame.assign(y=means, bag=bags.codes).to_parquet(tmp_path / "rows.parquet")
    table = BagTable(tmp_path / "rows.parquet", "y", "bag")
    assert len(table.row_groups()) > 4
    options = PLAIN | {"n_estimators": 20, "rho": 0.01}
    streamed = kind(**options).fit_release(table, ["age", "town"])
    held = kind(**options).fit(frame, means, bags)
    np.testing.assert_allclose(streamed._means(frame), held._means(frame), rtol=1e-6, atol=1e-6)
    by_name = kind(**options).fit(tmp_path / "rows.parquet", "y", "bag")
    assert by_name.feature_names_in_.tolist() == ["age", "town"]


def test_one_row_group_at_a_time_is_held(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_module, "GROUP", 500)
    frame, means, bags, _ = towns(3000)
    frame.assign(y=means, bag=bags.codes).to_parquet(tmp_path / "rows.parquet")
    table = BagTable(tmp_path / "rows.parquet", "y", "bag")
    seen, read = [], []
    real, encode = training_module.GroupRows.__init__, Categories.encode

    def noted(self, group, encoder, kept):
        seen.append(kept)
        real(self, group, encoder, kept)

    def checked(self, rows, unknown="ignore"):
        assert not seen[0], "the one before is let go first"
        read.append(rows.num_rows)
        return encode(self, rows, unknown)

    monkeypatch.setattr(training_module.GroupRows, "__init__", noted)
    monkeypatch.setattr(Categories, "encode", checked)
    AggregateBoostingRegressor(**PLAIN | {"n_estimators": 2}).fit_release(table)
    assert len({id(kept) for kept in seen}) == 1
    # Once to choose bins, once for all rows.
    assert len(read) == 2 * len(seen)
    assert max(read) < 700


@pytest.mark.parametrize("kind", [AggregateBoostingRegressor, AggregateBoostingClassifier])
def test_a_saved_model_predicts_the_same_to_the_last_bit(kind, tmp_path):
    frame, means, bags, _ = towns(2000)
    means = means if kind is AggregateBoostingRegressor else expit(means)
    model = kind(n_estimators=20, monotone_constraints={"age": 1}, **ONE)
    model.fit(frame, means, bags)
    model.save(tmp_path / "model")
    for found in (kind.load(tmp_path / "model"), load_model(tmp_path / "model")):
        np.testing.assert_array_equal(found._means(frame), model._means(frame))
        for name in ("rho_", "rho_source_", "held_out_losses_", "n_estimators_"):
            assert getattr(found, name) == getattr(model, name)
        # LightGBM writes gains with six digits.
        assert found.importances_ == pytest.approx(model.importances_, rel=1e-4)
        assert found.get_params() == model.get_params() | {"random_state": None}
    assert not list((tmp_path / "model").glob("*.pkl"))


@pytest.fixture
def saved(tmp_path):
    frame, means, bags, _ = towns(2000)
    AggregateBoostingRegressor(**PLAIN | {"n_estimators": 5}).fit(frame, means, bags).save(
        tmp_path / "m"
    )
    return tmp_path / "m"


def rewrite(folder, trees=None, **said):
    """Other trees with a digest of their own, and other words about them."""
    import hashlib

    found = json.loads((folder / "model.json").read_text()) | said
    if trees is not None:
        (folder / "trees.txt").write_text(trees)
        found["trees"] = hashlib.sha256(trees.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    "said",
    [{"n_features": 3}, {"n_estimators": 6}, {"start": [0.0, 0.0]}, {"start": [float("nan")]},
     {"feature_names": ["age"]}, {"encoder": {"age": None}}, {"classes": [0, 1, 2]},
     {"format": "bagwise model 0"}, {"kind": "AggregateBoostingClassifier"}, {"rho": "x"},
     {"parameters": {"num_leaves": 1}}, {"parameters": {"alpha": 1}}, {"trees": "0"}],
    ids=str,
)  # fmt: skip
def test_a_folder_that_does_not_fit_together_is_refused(said, saved):
    rewrite(saved, **said)
    with pytest.raises(ValueError, match="path must be a folder written by save of a Aggregate"):
        AggregateBoostingRegressor.load(saved)


@pytest.mark.parametrize(
    ("name", "other"),
    [("left_child", "7"), ("left_child", "-90"), ("left_child", "0"), ("split_feature", "9"),
     ("leaf_value", "nan"), ("cat_boundaries", "5"), ("threshold", None), ("right_child", None),
     ("num_leaves", "2000"), ("cat_threshold", None)],
)  # fmt: skip
def test_trees_that_lead_nowhere_are_refused(name, other, saved):
    """LightGBM follows what it reads, into memory that is not its own."""
    text = (saved / "trees.txt").read_text()
    before, _, rest = text.partition(f"\n{name}=")
    line, _, after = rest.partition("\n")
    words = line.split()
    words = words[:-1] if other is None else [other, *words[1:]]
    rewrite(saved, f"{before}\n{name}={' '.join(words)}\n{after}")
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateBoostingRegressor.load(saved)


def test_trees_that_go_round_in_circles_are_refused():
    """Each node is met once, and yet nodes 1 and 2 lead to each other for ever."""
    tree = ("\nTree=0\nnum_leaves=4\nsplit_feature=0 0 0\nthreshold=0 0 0\ndecision_type=2 2 2\n"
            "left_child={}\nright_child={}\nleaf_value=1 2 3 4\n\n")  # fmt: skip
    check_trees(tree.format("1 2 -1", "-2 -3 -4"), 1)
    with pytest.raises(ValueError, match="lead nowhere"):
        check_trees(tree.format("-1 2 1", "-2 -3 -4"), 1)


def test_a_file_that_is_cut_short_or_missing_is_refused(saved):
    text = (saved / "trees.txt").read_text()
    (saved / "trees.txt").write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateBoostingRegressor.load(saved)
    (saved / "trees.txt").unlink()
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateBoostingRegressor.load(saved)
    shutil.rmtree(saved)
    with pytest.raises(FileNotFoundError, match="path must be a model folder"):
        AggregateBoostingRegressor.load(saved)


# What is refused


X, Y, B, _ = draw(200, 5)
SHARE = B.expand(B.mean((X[:, 0] > 0).astype(float)))
FRAME = pd.DataFrame({"x": X[:, 0], "t": ["a", "b"] * 100, "d": pd.to_datetime(["2020"] * 200)})


@pytest.mark.parametrize(
    ("options", "rows", "y", "sentence"),
    [
        ({}, X, Y, "y must be shares from 0 to 1; got others"),
        ({}, X, np.zeros(200), "y must be of at least two classes; got one class"),
        ({}, X, np.ones(200), "y must be of at least two classes; got one class"),
        ({}, X, np.where(B.codes == 1, np.nan, SHARE), "y must be finite"),
        ({}, FRAME, SHARE, "features must be numbers, text or categories; got timestamp"),
        ({"rho": 2}, X, SHARE, r"rho must be in \[0, 1\]; got rho=2"),
        ({"rho": "best"}, X, SHARE, r"rho must be in \[0, 1\] or 'cv'; got rho='best'"),
        ({"kind": "both"}, X, SHARE, "kind must be one of 'instance', 'variance'"),
        ({"n_estimators": 0}, X, SHARE, "n_estimators must be a whole number of at least 1"),
        ({"num_leaves": "all"}, X, SHARE, "num_leaves must be a whole number of at least 2"),
        ({"num_leaves": 1}, X, SHARE, "num_leaves must be a whole number of at least 2"),
        ({"min_child_samples": 0}, X, SHARE, "min_child_samples must be a whole number"),
        ({"patience": 0}, X, SHARE, "patience must be a whole number of at least 1"),
        ({"learning_rate": 0}, X, SHARE, r"learning_rate must be in \(0, 1\]"),
        ({"reg_lambda": -1}, X, SHARE, "reg_lambda must be at least 0"),
        ({"colsample_bytree": 0}, X, SHARE, r"colsample_bytree must be in \(0, 1\]"),
        ({"validation_share": 0}, X, SHARE, r"validation_share must be in \(0, 1\]"),
        ({"categorical_features": "x"}, X, SHARE, "categorical_features must be 'auto', None, or"),
        ({"categorical_features": ["q"]}, X, SHARE, "categorical_features must be names or places"),
        ({"categorical_features": [9]}, X, SHARE, "categorical_features must be names or places"),
        ({"monotone_constraints": [1]}, X, SHARE, "monotone_constraints must be -1, 0 or 1 for"),
        ({"monotone_constraints": [2, 0, 0, 0]}, X, SHARE, "monotone_constraints must be -1, 0"),
        ({"monotone_constraints": {"q": 1}}, X, SHARE, "monotone_constraints must be of columns"),
        (
            {"monotone_constraints": [0, 1], "categorical_features": ["t"]},
            FRAME[["x", "t"]],
            SHARE,
            "monotone_constraints must be of numbers; got one of a category",
        ),
        ({"categorical_features": None}, FRAME[["x", "t"]], SHARE, "X must be numeric; got text"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_leaves_the_model_unfitted(options, rows, y, sentence):
    model = AggregateBoostingClassifier(**{"n_estimators": 3} | options)
    with pytest.raises(ValueError, match=sentence):
        model.fit(rows, y, B)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_one_bag_needs_a_rho():
    for model in (AggregateBoostingRegressor(**ONE), AggregateBoostingClassifier(**ONE)):
        with pytest.raises(ValueError, match="rho must be a number when there is one bag"):
            model.fit(X, np.full(200, 0.5), np.zeros(200))
        model.set_params(rho=1.0, n_estimators=3).fit(X, np.full(200, 0.5), np.zeros(200))
        np.testing.assert_allclose(model._means(X), 0.5, atol=1e-9)


def test_a_constant_response_is_predicted():
    model = AggregateBoostingRegressor(**ONE).fit(X, np.full(200, 7.0), B)
    np.testing.assert_allclose(model.predict(X), 7.0)
    assert set(model.importances_.values()) == {0.0}


def test_columns_that_do_not_vary_teach_nothing():
    model = AggregateBoostingRegressor(**ONE).fit(np.ones((200, 2)), Y, B)
    np.testing.assert_allclose(model.predict(np.ones((1, 2))), B.mean(Y) @ B.sizes / 200)


@pytest.mark.parametrize("scale", [-1.0, np.nan, "x", [1.0]])
def test_noise_is_a_scale_for_each_bag(scale):
    with pytest.raises(ValueError, match="noise_scale must be"):
        AggregateBoostingRegressor(**PLAIN).fit(X, Y, B, scale)


def test_a_release_has_its_own_noise(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=Y)
    made = release(frame, response="y", bag_size=5, epsilon=1.0, bounds=(-2, 4), ledger=None,
                   out=tmp_path / "r")  # fmt: skip
    with pytest.raises(ValueError, match="noise_scale must be left out; got one beside a Release"):
        AggregateBoostingRegressor(**ONE).fit(made, noise_scale=1.0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_fit_that_breaks_off_leaves_the_model_as_it_was(error, monkeypatch):
    frame, means, bags, _ = towns(500)
    model = AggregateBoostingRegressor(**PLAIN | {"n_estimators": 5}).fit(frame, means, bags)
    expected = model.predict(frame)

    def fail(*_):
        raise error

    monkeypatch.setattr(Slopes, "length", fail)
    with pytest.raises(error):
        model.fit(X[:, :2], Y, B)
    np.testing.assert_array_equal(model.predict(frame), expected)


def test_rows_with_text_are_not_predicted_from_an_array():
    frame, means, bags, _ = towns(500)
    model = AggregateBoostingRegressor(**PLAIN | {"n_estimators": 5}).fit(frame, means, bags)
    with pytest.raises(ValueError, match="X must be a data frame; got an array"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="features must be columns of the table; got no 'town'"):
        model.predict(frame[["age"]])
    with pytest.raises(ValueError, match="features must be numbers in column 'age'; got"):
        model.predict(frame.assign(age="x"))


def test_text_is_told_apart_from_an_identifier():
    frame = pd.DataFrame({"x": np.arange(2000.0), "id": [f"row {i}" for i in range(2000)]})
    with pytest.raises(ValueError, match="categories must be of at most 1000 levels; got more in"):
        AggregateBoostingRegressor(**PLAIN).fit(frame, frame["x"])


def test_instance_level_training_is_calibrated_on_bags(tmp_path):
    """At rho = 1 all are near the overall rate; their order stays, their spread comes back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    label = (rng.uniform(size=6000) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(float)
    bags = Bags.random(6000, 12, random_state=0)
    share = bags.expand(bags.mean(label))
    found = {}
    for calibrate in (None, "bags"):
        model = AggregateBoostingClassifier(
            rho=1.0, calibrate=calibrate, random_state=0, n_jobs=1, num_leaves=4
        ).fit(X, share, bags)
        found[calibrate] = probability_scores(label, model.predict_proba(X)[:, 1])
    assert found[None].log_loss > 0.6 > 0.5 > found["bags"].log_loss
    assert found["bags"].auc == pytest.approx(found[None].auc, abs=1e-3)
    assert model.calibration_[0] > 2
    model.save(tmp_path / "model")
    loaded = AggregateBoostingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="calibrate must be None or 'bags'"):
        AggregateBoostingClassifier(calibrate="rows").fit(X, share, bags)
