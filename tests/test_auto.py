"""The names to type first: models are weighed by bags that they have not seen, in a time limit."""

import json
import shutil
from itertools import product

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax
from sklearn.base import clone, is_classifier
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bagwise import (
    AggregateClassifier,
    AggregateLinearRegression,
    AggregateLogisticRegression,
    AggregateRegressor,
    Bags,
    Release,
)
from bagwise.estimators import design as design_module
from bagwise.estimators import members as members_module
from bagwise.estimators import trial as trial_module
from bagwise.estimators.design import WAYS, Design
from bagwise.estimators.members import MEMBERS, Asked, Member, Training
from bagwise.estimators.models import load_model
from bagwise.estimators.stacking import error_products, expected_weights, simplex
from bagwise.estimators.trial import Trial
from bagwise.release import release

KINDS = ("linear", "boosted", "neural")
TREES = {"models": ["linear", "boosted"], "random_state": 0, "n_jobs": 1}


def draw(n=1200, size=6, seed=0):
    """Rows with text and holes, a response that is partly linear, and bags."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "visits": rng.poisson(3, n).astype(float),
            "town": rng.choice(["Ulm", "Bonn", "Graz"], n),
        }
    )
    response = frame["age"] / 10 + np.abs(frame["visits"] - 3) + 2.0 * (frame["town"] == "Ulm")
    frame.loc[rng.random(n) < 0.05, "visits"] = np.nan
    bags = Bags.random(n, size, random_state=seed)
    return frame, response.to_numpy() + 0.3 * rng.normal(size=n), bags


# Weights


def test_the_simplex_holds_every_way_to_part_a_whole():
    for parts, steps in ((2, 5), (3, 4), (4, 3)):
        known = [w for w in product(range(steps + 1), repeat=parts) if sum(w) == steps]
        np.testing.assert_allclose(simplex(parts, steps) * steps, known)
    assert simplex(1).tolist() == [[1.0]]


def test_the_quadratic_is_the_loss_of_joint_predictions():
    rng = np.random.default_rng(0)
    means, guesses = rng.normal(size=(50, 2)), rng.normal(size=(3, 50, 2))
    v, w = rng.random(50), rng.dirichlet([1, 1, 1])
    E = error_products(means - guesses, v)
    error = means - np.tensordot(w, guesses, 1)
    assert w @ E @ w == pytest.approx(np.average((error**2).sum(axis=1), weights=v))


def test_weights_are_the_mean_of_the_simplex_under_the_likelihood():
    """Two models: an integral over one number, by many points."""
    E = np.array([[1.0, 0.4], [0.4, 1.3]])
    w = np.linspace(0, 1, 100_001)
    losses = w**2 * E[0, 0] + 2 * w * (1 - w) * E[0, 1] + (1 - w) ** 2 * E[1, 1]
    for n_bags, prior in product((5, 50, 500), ([1.0, 1.0], [2.0, 1.0], [3.0, 2.0])):
        density = np.exp(-n_bags * (losses - losses.min()) / (2 * losses.min()))
        density *= w ** (prior[0] - 1) * (1 - w) ** (prior[1] - 1)
        exact = (density @ w) / density.sum()
        # The grid has steps of 1/20.
        found = expected_weights(E, n_bags, np.array(prior))
        assert found[0] == pytest.approx(exact, abs=0.012)


def test_many_bags_find_the_least_loss_and_few_stay_near_the_prior():
    E, even = np.diag([1.0, 4.0, 4.0]), np.ones(3)
    found = expected_weights(E, 1e5, even)
    np.testing.assert_allclose(found, [2 / 3, 1 / 6, 1 / 6], atol=0.05)
    np.testing.assert_allclose(expected_weights(E, 0, even), [1 / 3] * 3, atol=1e-12)
    preferred = expected_weights(E, 0, np.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(preferred, [1 / 4, 1 / 2, 1 / 4], atol=0.03)


def test_weights_know_no_units_and_treat_like_errors_alike():
    rng = np.random.default_rng(1)
    errors = rng.normal(size=(3, 40, 1))
    errors[1] = errors[2]
    E = error_products(errors, np.ones(40))
    found = expected_weights(E, 40, np.ones(3))
    np.testing.assert_allclose(expected_weights(1e6 * E, 40, np.ones(3)), found, rtol=1e-9)
    assert found[1] == pytest.approx(found[2])
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    assert expected_weights(np.diag([1.0, 0.0]), 5, np.ones(2)).tolist() == [0.0, 1.0]


# What members see


def test_a_part_keeps_means_and_noise_with_their_bags():
    rng = np.random.default_rng(0)
    codes, bags = rng.normal(size=(60, 2)), Bags(rng.integers(0, 12, 60))
    means = bags.mean(codes[:, :1])
    whole = Training(codes, means, bags, 10 * means[:, 0])
    part = whole.part(rng.random(bags.n_bags) < 0.5)
    np.testing.assert_allclose(part.bags.mean(part.codes[:, :1]), part.means)
    np.testing.assert_allclose(part.noise, 10 * part.means[:, 0])
    assert 0 < part.bags.n_bags < bags.n_bags


def test_columns_are_prepared_as_scikit_learn_would():
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.normal(5, 3, 80), rng.integers(0, 4, 80), rng.normal(size=80)])
    codes[rng.random(80) < 0.2, 0] = np.nan
    numbers = SimpleImputer().fit_transform(codes[:, [0]])
    levels = OneHotEncoder(sparse_output=False).fit_transform(codes[:, [1]])
    known = [StandardScaler().fit_transform(numbers), levels]
    known.append(StandardScaler().fit_transform(codes[:, [2]]))
    np.testing.assert_allclose(Design.of(codes, [1]).rows(codes), np.hstack(known), atol=1e-12)


def test_levels_that_are_missing_new_or_rare_are_none_of_those_told_apart(monkeypatch):
    monkeypatch.setattr(design_module, "LEVELS", 2)
    codes = np.array([[0.0], [0.0], [1.0], [1.0], [2.0], [np.nan]])
    design = Design.of(codes, [0])
    found = design.rows(np.array([[0.0], [1.0], [2.0], [7.0], [np.nan]]))
    assert found.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]


def test_constant_and_empty_columns_are_zero():
    codes = np.column_stack([np.full(5, 3.0), np.full(5, np.nan)])
    assert not Design.of(codes, []).rows(codes).any()


# The trial


class Clock:
    """Time that passes only when a model takes it."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(trial_module, "time", found)
    return found


class Fake(Member):
    """A member that predicts a column plus what it is off by, and notes what it saw."""

    def __new__(cls, *args):
        return object.__new__(cls)

    def __init__(self, log, off):
        object.__setattr__(self, "log", log)
        object.__setattr__(self, "off", off)

    def again(self, training):
        self.log.append(training)
        return self

    def means(self, codes):
        return codes[:, :1] + self.off * np.sin(1e3 * codes[:, 1:2])


def fake(monkeypatch, clock=None, offs=(0.0, 1.0, 1.0), costs=(0.0, 0.0, 0.0)):
    """Put fakes in place of the members; returns what their fits saw."""
    log = []

    def fit_of(off, cost):
        def fit(training, *rest):
            log.append(training)
            if clock is not None:
                clock.now += cost * training.bags.n_rows
            return Fake(log, off)

        return fit

    for name, off, cost in zip(KINDS, offs, costs, strict=False):
        monkeypatch.setitem(MEMBERS, name, (fit_of(off, cost), None, ""))
    return log


def trial_of(n=300, size=5, limit=100.0, **more):
    rng = np.random.default_rng(0)
    codes, bags = rng.normal(size=(n, 2)), Bags.random(n, size, random_state=0)
    means = bags.mean(codes[:, :1]) + 0.05 * rng.normal(size=(bags.n_bags, 1))
    training = Training(codes, means, bags, None)
    settings = {"names": ["linear", "boosted"], "asked": Asked(False, [], 0, 1)}
    settings |= {"time_limit": limit, "bag_weights": bags.sizes.astype(float)}
    made = Trial(training, **settings | more)
    list(made.steps())
    return made


def test_no_model_is_scored_on_bags_that_it_saw(monkeypatch):
    seen = fake(monkeypatch)
    held = []
    real = Training.part

    def noted(self, chosen):
        held.append(chosen.copy())
        return real(self, chosen)

    monkeypatch.setattr(Training, "part", noted)
    made = trial_of()
    assert made.n_held_out == 60
    # Each fold: what is trained on, then what is held out; together all, and none twice.
    pairs = held[-10:]
    for train, aside in zip(pairs[::2], pairs[1::2], strict=True):
        assert (train ^ aside).all()
    np.testing.assert_array_equal(sum(aside.astype(int) for aside in pairs[1::2]), 1)
    assert [t.bags.n_bags for t in seen] == [60, 60] + [48] * 10


def test_the_model_that_errs_less_says_more(monkeypatch):
    fake(monkeypatch)
    made = trial_of()
    assert made.weights["linear"] > 0.75
    assert made.losses["linear"] < made.losses["boosted"]
    assert made.joint <= 1.05 * made.losses["linear"]


def test_heavier_bags_decide(monkeypatch):
    """A model that errs on light bags alone is as good as another."""
    fake(monkeypatch)
    even = trial_of().losses["boosted"]
    light = np.where(np.arange(60) < 30, 1e-9, 1.0)
    bags = trial_of(bag_weights=light)
    assert bags.losses["boosted"] != even
    rng = np.random.default_rng(0)
    codes, groups = rng.normal(size=(300, 2)), Bags.random(300, 5, random_state=0)
    means = groups.mean(codes[:, :1]) + 0.05 * rng.normal(size=(60, 1))
    error = means - groups.mean(codes[:, :1] + np.sin(1e3 * codes[:, 1:2]))
    assert bags.losses["boosted"] == pytest.approx(np.average(error[:, 0] ** 2, weights=light))


def test_one_fold_is_enough_for_thousands_of_bags(monkeypatch):
    fake(monkeypatch)
    monkeypatch.setattr(trial_module, "ENOUGH", 12)
    assert trial_of().n_held_out == 12
    monkeypatch.setattr(trial_module, "ENOUGH", 13)
    assert trial_of().n_held_out == 24


def test_the_first_model_is_fitted_however_long_it_takes(monkeypatch, clock):
    fake(monkeypatch, clock, costs=(10.0, 10.0))
    made = trial_of(limit=1.0)
    assert made.weights == {"linear": 1.0}
    assert made.left_out["boosted"] == "no time was left for it, with time_limit=1"


def test_a_pilot_tells_what_a_large_table_would_take(monkeypatch, clock):
    monkeypatch.setattr(trial_module, "PILOT", 50)
    seen = fake(monkeypatch, clock, costs=(0.0, 1.0))
    made = trial_of(limit=200.0)
    assert made.left_out["boosted"].startswith("it would take about 300 s")
    assert [t.bags.n_rows for t in seen] == [300, 50]
    assert clock.now == 50


def test_one_part_is_held_out_in_any_case_and_more_while_there_is_time(monkeypatch, clock):
    class Slow(Fake):
        def again(self, training):
            clock.now += 10
            return super().again(training)

    monkeypatch.setitem(globals(), "Fake", Slow)
    fake(monkeypatch, clock, costs=(0.0, 0.1))
    # 30 for fits, then 20 a part of 12 bags
    for limit, held_out in ((31.0, 12), (69.0, 12), (71.0, 24), (1000.0, 60), (np.inf, 60)):
        clock.now = 0.0
        made = trial_of(limit=limit)
        assert made.n_held_out == held_out
        assert made.weights.keys() == {"linear", "boosted", "mean"}
        assert not made.left_out


def test_where_no_bag_can_be_held_out_the_preference_decides(monkeypatch):
    fake(monkeypatch)
    made = trial_of(n=10)
    assert made.training.bags.n_bags == 2
    assert not made.losses
    assert made.weights == pytest.approx({"linear": 0.8, "boosted": 0.1, "mean": 0.1})


def test_of_classes_logistic_regression_is_preferred(monkeypatch):
    fake(monkeypatch)
    monkeypatch.setitem(MEMBERS, "logistic", MEMBERS["linear"])
    made = trial_of(n=10, names=["linear", "logistic"], asked=Asked(True, [], 0, 1))
    assert made.weights == pytest.approx({"linear": 0.1, "logistic": 0.8, "mean": 0.1})


def test_the_overall_mean_is_that_of_the_other_bags(monkeypatch):
    """Its error is of bags that it has not seen, too."""
    fake(monkeypatch)
    made = trial_of()
    means, bags = made.training.means, made.training.bags
    of_bag = np.random.default_rng(0).permutation(np.arange(60) % 5)
    left = np.array([means[of_bag != fold].mean() for fold in of_bag])
    assert made.losses["mean"] == pytest.approx(((means[:, 0] - left) ** 2).mean())
    np.testing.assert_allclose(made.centre, bags.sizes @ means / bags.n_rows)


def test_where_nothing_is_to_be_learnt_the_mean_says_most():
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(1000, 5)), Bags.random(1000, 5, random_state=0)
    y = bags.expand(bags.mean(rng.normal(size=1000)))
    model = AggregateRegressor(**TREES).fit(X, y, bags)
    assert model.weights_["mean"] > model.weights_["boosted"]
    assert np.std(model.predict(X)) < 0.2
    assert "mean: weight" in model.report_


def test_a_network_is_not_tried_on_few_bags(monkeypatch):
    fake(monkeypatch)
    assert trial_of(n=250, names=KINDS).weights.keys() == {*KINDS, "mean"}
    made = trial_of(n=245, names=KINDS)
    assert made.left_out == {"neural": "it is not tried on fewer than 50 bags"}


# Estimators


def test_each_kind_of_model_wins_where_it_is_right():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    bags = Bags.random(1500, 5, random_state=0)
    for response, winner in ((X[:, 0] + X[:, 1], "linear"), (np.abs(X[:, 0]), "boosted")):
        noisy = response + 0.5 * rng.normal(size=1500)
        model = AggregateRegressor(**TREES).fit(X, bags.expand(bags.mean(noisy)), bags)
        assert max(model.weights_, key=model.weights_.get) == winner
        assert model.score(X, response) > 0.8
        assert f"{winner}: weight 0.{100 * model.weights_[winner]:.0f}" in model.report_


def test_predictions_are_the_weighted_mean_of_members():
    frame, response, bags = draw()
    model = AggregateRegressor(**TREES).fit(frame, bags.expand(bags.mean(response)), bags)
    codes = model.encoder_.encode_frame(frame)
    parts = [model.weights_[n] * m.means(codes)[:, 0] for n, m in model.members_.items()]
    mean = model.weights_["mean"] * (bags.sizes @ bags.mean(response)) / len(frame)
    np.testing.assert_allclose(model.predict(frame), sum(parts) + mean)
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert len(model.members_["boosted"].models) == 3


def test_text_and_holes_are_taken_and_new_levels_are_missing():
    frame, response, bags = draw()
    model = AggregateRegressor(**TREES).fit(frame, bags.expand(bags.mean(response)), bags)
    assert model.score(frame, response) > 0.8
    new = frame.assign(town="Wien")
    assert np.isfinite(model.predict(new)).all()
    assert not np.array_equal(model.predict(new), model.predict(frame))


def by_evidence(model, codes, y, bags):
    """Predictions of a model of columns prepared in each way, weighed by evidence, by hand."""
    designs = [Design.of(codes, [2], way).rows(codes) for way in WAYS]
    alone = [clone(model).fit(Z, y, bags) for Z in designs]
    shares = softmax([one._log_evidence for one in alone])
    shares = np.where(shares < 0.01, 0, shares) / shares[shares >= 0.01].sum()
    guesses = [(o.predict_proba(Z)[:, 1] if is_classifier(o) else o.predict(Z))
               for o, Z in zip(alone, designs, strict=True)]  # fmt: skip
    return shares @ guesses, shares


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_a_simple_member_is_its_model_of_columns_in_each_way_by_evidence(name):
    frame, _, bags = draw(300)
    response = frame["age"].to_numpy() + 5 * np.random.default_rng(1).normal(size=300)
    kind, alone = AggregateRegressor, AggregateLinearRegression("average", ridge="cv")
    if name == "logistic":
        response = (response > 40).astype(float)
        kind, alone = AggregateClassifier, AggregateLogisticRegression(rho=0.0, ridge="average")
    y = bags.expand(bags.mean(response))
    model = kind(models=[name]).fit(frame, y, bags)
    found, shares = by_evidence(alone, model.encoder_.encode_frame(frame), y, bags)
    np.testing.assert_allclose(model._means(frame)[:, 0], found)
    kept = [part.share for part in model.members_[name].parts]
    np.testing.assert_allclose(kept, shares[shares > 0])
    assert len(kept) > 1, "more than one way has a say"
    assert model.weights_ == {name: 1.0}
    assert model.held_out_losses_ == {}, "nothing was to be weighed"


@pytest.mark.parametrize("way", WAYS)
def test_the_way_in_which_numbers_tell_has_the_evidence(way):
    rng = np.random.default_rng(0)
    X = rng.lognormal(sigma=1.5, size=(4000, 2))
    u = Design.of(X, [], "rank").rows(X)
    response = {"plain": X[:, 0], "rank": u[:, 0], "curved": u[:, 0] ** 2}[way]
    bags = Bags.random(4000, 4, random_state=0)
    model = AggregateRegressor(models=["linear"]).fit(X, bags.expand(bags.mean(response)), bags)
    assert len(model.members_["linear"].parts) == 1
    assert model.score(X, response) > 0.98


def test_a_release_is_fitted_as_its_rows_with_their_noise(tmp_path):
    frame, response, _ = draw(2000)
    frame["visits"] = frame["visits"].fillna(3.0)
    frame["y"] = response
    made = release(frame, response="y", epsilon=2.0, bounds=(0, 12), bag_size=10, ledger=None,
                   out=tmp_path / "released")  # fmt: skip
    model = AggregateRegressor(**TREES).fit(made)
    table, means, bags = Release.load(tmp_path / "released").training_set(["age", "town", "visits"])
    scale = pd.Series(made.bags["noise_scale"].to_numpy(), index=made.bags["bag"].to_pylist())
    by_hand = AggregateRegressor(**TREES)
    by_hand.fit(table.to_pandas()[model.feature_names_in_], means, bags, noise_scale=scale)
    test = frame.drop(columns="y")
    np.testing.assert_allclose(model.predict(test), by_hand.predict(test), rtol=1e-6)
    assert model.score(test, response) > 0.5
    assert AggregateRegressor(**TREES).fit(tmp_path / "released").weights_ == model.weights_


def test_bags_of_much_noise_do_not_decide():
    """Half of the means are noise, and said to be: the error that weights are made of is low."""
    frame, response, bags = draw(2000, 5)
    rng = np.random.default_rng(1)
    scale = np.where(rng.random(bags.n_bags) < 0.5, 50.0, 1e-3)
    means = bags.mean(response) + rng.laplace(size=bags.n_bags) * scale
    model = AggregateRegressor(**TREES)
    model.fit(frame, bags.expand(means), bags, noise_scale=bags.expand(scale))
    assert max(model.held_out_losses_.values()) < 50
    assert model.score(frame, response) > 0.7


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_each_of_three_classes_has_simple_models_of_its_share(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    label = np.argmax(X, axis=1)
    bags = Bags.random(600, 4, random_state=0)
    shares = bags.mean(np.eye(3)[label])
    model = AggregateClassifier(models=[name]).fit(X, bags.expand(shares), bags)
    found = np.zeros((600, 3))
    for part in model.members_[name].parts:
        alone = clone(part.model).fit(
            part.design.rows(X), bags.expand(shares[:, part.column]), bags
        )
        Z = part.design.rows(X)
        guess = alone.predict(Z) if name == "linear" else alone.predict_proba(Z)[:, 1]
        found[:, part.column] += part.share * guess
    found = np.maximum(found, 1e-9)
    found /= found.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), found)
    assert model.score(X, label) > 0.9


def test_shares_of_three_classes_and_their_names():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    label = np.argmax(X + 0.3 * rng.normal(size=X.shape), axis=1)
    bags = Bags.random(1500, 4, random_state=0)
    shares = pd.DataFrame(bags.expand(bags.mean(np.eye(3)[label])), columns=["a", "b", "c"])
    model = AggregateClassifier(**TREES).fit(X, shares, bags)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.mean(model.predict(X) == np.array(["a", "b", "c"])[label]) > 0.8
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_noisy_shares_past_the_ends_are_taken():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    bags = Bags.random(1000, 5, random_state=0)
    share = bags.mean((X[:, 0] > 0).astype(float)) + rng.laplace(size=bags.n_bags) * 0.3
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        AggregateClassifier(**TREES).fit(X, bags.expand(share), bags)
    model = AggregateClassifier(**TREES)
    model.fit(X, bags.expand(share), bags, noise_scale=0.3)
    assert model.score(X, (X[:, 0] > 0).astype(int)) > 0.8


def test_noisy_shares_of_a_release_reach_the_likelihood_as_they_are(tmp_path, monkeypatch):
    seen, (fit, *more) = [], MEMBERS["linear"]
    noted = lambda training, asked: seen.append(training) or fit(training, asked)  # noqa: E731
    monkeypatch.setitem(MEMBERS, "linear", (noted, *more))
    frame, response, _ = draw(600)
    frame = frame.drop(columns="visits").assign(y=(response > 6).astype(float))
    made = release(frame, response="y", epsilon=0.5, bounds=(0, 1), bag_size=4, ledger=None,
                   out=tmp_path / "released")  # fmt: skip
    assert made.means.min() < 0
    AggregateClassifier(models=["linear"]).fit(made)
    np.testing.assert_array_equal(seen[0].means[:, 0], made.means)


def test_networks_take_noisy_shares_of_three_classes():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    bags = Bags.random(300, 5, random_state=0)
    shares = bags.mean(np.eye(3)[np.argmax(np.c_[X, X[:, :1] * 0], axis=1)])
    noisy = shares + rng.laplace(size=shares.shape) * 0.2
    model = AggregateClassifier(models=["neural"], random_state=0)
    model.fit(X, bags.expand(noisy), bags, noise_scale=0.2)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_a_rare_class_that_some_folds_lack():
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(100, 2)), np.zeros(100)
    label[3] = 1.0
    bags = Bags.random(100, 10, random_state=0)
    model = AggregateClassifier(**TREES).fit(X, bags.expand(bags.mean(label)), bags)
    assert model.weights_.keys() == {"linear", "boosted", "mean"}
    assert np.isfinite(model.predict_proba(X)).all()


def test_two_bags_are_the_fewest():
    X = np.arange(8.0)[:, None]
    model = AggregateRegressor(**TREES).fit(X, [1.0] * 4 + [5.0] * 4, [0] * 4 + [1] * 4)
    assert np.isfinite(model.predict(X)).all()
    with pytest.raises(ValueError, match="bags must be two or more; got one bag"):
        model.fit(X, [1.0] * 8, [0] * 8)


@pytest.mark.parametrize("kind", [AggregateRegressor, AggregateClassifier])
def test_equal_means_leave_nothing_to_explain(kind):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = kind(**TREES).fit(X, np.full(60, 0.5), np.arange(60) // 5)
    np.testing.assert_allclose(model._means(X), 0.5, atol=1e-6)
    assert "explains nothing, for all means are equal" in model.report_


def test_time_without_end_is_taken():
    X = np.arange(40.0)[:, None]
    model = AggregateRegressor(**TREES, time_limit=np.inf).fit(X, X[:, 0] // 4, X[:, 0] // 4)
    assert "weight" in model.report_


def test_categories_of_polars_are_text():
    polars = pytest.importorskip("polars")
    words = ["x", "y", None, "y"] * 10
    frames = [
        polars.DataFrame({"n": np.arange(40.0), "w": polars.Series(words, dtype=kind)})
        for kind in (polars.String, polars.Categorical, polars.Enum(["y", "x"]))
    ]
    y = np.arange(40.0) + np.array([word == "x" for word in words])
    plain, *others = (AggregateRegressor(**TREES).fit(f, y) for f in frames)
    for other, frame in zip(others, frames[1:], strict=True):
        np.testing.assert_array_equal(other.predict(frame), plain.predict(frames[0]))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pd.cut(np.arange(6.0), 3), "categories must be of levels that are text, numbers or dates"),
        ([1, "a", 2] * 2, "X must be a table whose columns hold one kind of value"),
    ],
    ids=["intervals", "mixed"],
)
def test_columns_that_are_no_categories_get_a_sentence(column, sentence):
    with pytest.raises(ValueError, match=sentence):
        AggregateRegressor(**TREES).fit(pd.DataFrame({"c": column}), np.arange(6.0))


@pytest.mark.parametrize("wanted", [None, ["age"]])
def test_categories_of_a_release_are_its_text(wanted, tmp_path):
    made = release(
        {"age": np.arange(40), "y": np.arange(40.0) ** 2},
        response="y", bag_size=4, epsilon=np.inf, bounds=(0, 1600), ledger=None, out=tmp_path / "r",
    )  # fmt: skip
    with pytest.raises(ValueError, match="categorical_features must be 'auto' for a Release"):
        AggregateRegressor(**TREES, categorical_features=wanted).fit(made)


def test_what_is_not_installed_is_left_out_and_named(monkeypatch):
    frame, response, bags = draw(300)
    y = bags.expand(bags.mean(response))
    monkeypatch.setattr(members_module, "find_spec", lambda name: None)
    model = AggregateRegressor(random_state=0).fit(frame, y, bags)
    assert model.weights_ == {"linear": 1.0}
    assert "boosted: left out; it needs bagwise[boosting]" in model.report_
    assert "neural: left out; it needs bagwise[neural]" in model.report_


def test_a_model_that_is_asked_for_and_not_installed_is_refused(monkeypatch):
    from bagwise import _extras

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(members_module, "find_spec", lambda name: None)
    monkeypatch.setattr(_extras, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'bagwise\[neural\]'"):
        AggregateRegressor(models=["linear", "neural"]).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"models": "linear"}, "models must be a list of names; got models='linear'"),
        ({"models": []}, "models must be a list of names"),
        ({"models": {"linear"}}, "models must be a list of names"),
        ({"models": ["tree"]}, "models must be one of 'linear', 'boosted', 'neural'; got"),
        ({"models": ["logistic"]}, "models must be one of 'linear', 'boosted', 'neural'; got"),
        ({"time_limit": 0}, "time_limit must be above 0; got time_limit=0"),
        ({"time_limit": "1"}, "time_limit must be above 0; got time_limit='1'"),
        ({"categorical_features": "town"}, "Put one name in a list"),
    ],
    ids=str,
)
def test_bad_parameters_get_one_sentence(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        AggregateRegressor(**parameters).fit([[0.0], [1.0]], [0.0, 1.0])


def test_a_network_takes_part_where_there_is_torch():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    label = (X[:, 0] * X[:, 1] > 0).astype(float)
    bags = Bags.random(600, 4, random_state=0)
    model = AggregateClassifier(models=["linear", "neural"], random_state=0)
    model.fit(X, bags.expand(bags.mean(label)), bags)
    assert model.weights_["neural"] > model.weights_["linear"]
    assert "AggregateMLPClassifier" in model.report_


# Files


@pytest.mark.parametrize("kind", [AggregateRegressor, AggregateClassifier])
def test_a_saved_model_predicts_the_same(kind, tmp_path):
    frame, response, bags = draw(600)
    response = response if kind is AggregateRegressor else (response > 6).astype(float)
    model = kind(**TREES).fit(frame, bags.expand(bags.mean(response)), bags)
    model.save(tmp_path / "m")
    for found in (kind.load(tmp_path / "m"), load_model(tmp_path / "m")):
        np.testing.assert_array_equal(found._means(frame), model._means(frame))
        for name in ("weights_", "held_out_losses_", "report_"):
            assert getattr(found, name) == getattr(model, name)
        assert found.get_params() == model.get_params() | {"random_state": None}
    assert not list((tmp_path / "m").rglob("*.pkl"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    frame, response, bags = draw(400)
    model = AggregateRegressor(**TREES).fit(frame, bags.expand(bags.mean(response)), bags)
    folder = tmp_path_factory.mktemp("saved") / "m"
    model.save(folder)
    return folder


@pytest.mark.parametrize(
    "said",
    [{"n_features": 2}, {"weights": {"linear": 1.0}}, {"weights": {"linear": 2, "boosted": -1}},
     {"weights": {"linear": float("nan"), "boosted": 1}}, {"weights": {"linear": 0.5, "x": 0.5}},
     {"feature_names": ["age"]}, {"encoder": {"age": None}}, {"classes": [0, 1]},
     {"format": "bagwise model 0"}, {"kind": "AggregateClassifier"}, {"members": {}},
     {"mean": [1.0, 2.0]}, {"mean": ["x"]}, {"mean": [float("inf")]},
     {"parameters": {"models": ["x"]}}, {"parameters": {"alpha": 1}}],
    ids=str,
)  # fmt: skip
def test_a_folder_that_does_not_fit_together_is_refused(said, saved, tmp_path):
    shutil.copytree(saved, tmp_path / "m")
    found = json.loads((tmp_path / "m" / "model.json").read_text()) | said
    (tmp_path / "m" / "model.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match="path must be a folder written by save of a AggregateReg"):
        AggregateRegressor.load(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [lambda m: m["linear"][0].update(model="Popen"), lambda m: m["linear"].clear(),
     lambda m: m["linear"][0].update(design=None),
     lambda m: m["linear"][0]["design"].pop(),
     lambda m: m["linear"][0]["design"][0].update(scale=[0.0]),
     lambda m: m["linear"][0]["design"][0].update(centre=[1.0, 2.0]),
     lambda m: m["linear"][0].update(share=2.0), lambda m: m["linear"][0].update(column=1),
     lambda m: m["boosted"].append(m["boosted"][0])],
)  # fmt: skip
def test_members_that_do_not_fit_are_refused(change, saved, tmp_path):
    shutil.copytree(saved, tmp_path / "m")
    found = json.loads((tmp_path / "m" / "model.json").read_text())
    change(found["members"])
    (tmp_path / "m" / "model.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateRegressor.load(tmp_path / "m")


# From a shell


@pytest.fixture
def shell(command, monkeypatch, tmp_path):
    """Commands in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line: command(*line.split())


def test_a_shell_fits_predicts_and_evaluates(shell, tmp_path):
    frame, response, bags = draw(800)
    frame["visits"] = frame["visits"].fillna(3.0)
    frame.assign(bag=bags.codes, y=bags.expand(bags.mean(response))).to_parquet(
        tmp_path / "rows.parquet"
    )
    frame.assign(y=response).to_parquet(tmp_path / "test.parquet")
    asked = "fit rows.parquet --response y --bags bag --model auto --seed 0 --time-limit 60"
    code, told, _ = shell(f"{asked} --out m --json")
    assert code == 0
    said = json.loads(told)
    assert sum(said["weights"].values()) == pytest.approx(1)
    assert said["rho"] is None
    assert "Together they explain" in shell(f"{asked} --out m2")[1]
    assert shell("predict m test.parquet --out p.parquet")[0] == 0
    found = pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    np.testing.assert_allclose(found, load_model(tmp_path / "m").predict(frame))
    scores = json.loads(shell("evaluate m test.parquet --response y --json")[1])
    assert scores["rows"]["r2"] == pytest.approx(load_model("m").score(frame, response))
    assert "rho must be for models that have one" in shell(f"{asked} --rho 0 --out m3")[2]
    assert (
        "time_limit must be for models that have one"
        in shell("fit rows.parquet --response y --bags bag --time-limit 3 --out m3")[2]
    )


def test_a_classifier_from_a_shell_is_for_shares(shell, tmp_path):
    frame, response, bags = draw(600)
    label = (response > 6).astype(float)
    frame = frame[["age", "town"]]
    frame.assign(bag=bags.codes, y=bags.expand(bags.mean(label))).to_parquet(tmp_path / "r.parquet")
    code, told, _ = shell(
        "fit r.parquet --response y --bags bag --model auto-classifier --seed 0 --out m"
    )
    assert code == 0
    assert "AggregateLogisticRegression" in told
    found = load_model(tmp_path / "m").members_["logistic"].models[0]
    assert isinstance(found, AggregateLogisticRegression)
