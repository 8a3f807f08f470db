"""What the papers of the baselines claim, and the contract they share with our estimators."""

from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise import AggregateLinearRegression, Bags, bag_loss, instance_loss
from bagwise.baselines import (
    BagCombinationClassifier,
    BagCombinationRegressor,
    ContaminationClassifier,
    EasyLLPClassifier,
    EasyLLPRegressor,
    InvCalClassifier,
    MeanMapClassifier,
    ProportionSVMClassifier,
    RidgeMeansClassifier,
    RidgeMeansRegressor,
    TransportClassifier,
    deep_llp,
    empirical_proportion_risk,
    feature_bags,
    score_bags,
)
from bagwise.baselines.bag_combination import combine
from bagwise.baselines.binary import minimise, platt
from bagwise.baselines.easy_llp import surrogate_labels
from bagwise.baselines.mean_map import class_means
from bagwise.baselines.mutual_contamination import bag_loss_of_rows, opposite_pairs
from bagwise.baselines.proportion_svm import relabel
from bagwise.baselines.transport import carried
from bagwise.estimators.glm_problem import Problem
from bagwise.row_risk import _estimate

CLASSIFIERS = [
    RidgeMeansClassifier(),
    MeanMapClassifier(),
    InvCalClassifier(),
    ProportionSVMClassifier(n_starts=2, n_steps=3, random_state=0),
    TransportClassifier(max_iter=5),
    EasyLLPClassifier(),
    ContaminationClassifier(groups="all"),
    BagCombinationClassifier(random_state=0),
]
REGRESSORS = [
    RidgeMeansRegressor(),
    EasyLLPRegressor(),
    BagCombinationRegressor(n_combinations=500, ridge=1e-3, random_state=0),
]


def name(estimator):
    return type(estimator).__name__


each = pytest.mark.parametrize("estimator", CLASSIFIERS + REGRESSORS, ids=name)
each_classifier = pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name)


@parametrize_with_checks([*CLASSIFIERS, *REGRESSORS, empirical_proportion_risk(ridge=1.0)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def draw(n=2000, k=5, seed=0):
    """Rows off the origin, labels, the share of each row's bag, and random bags."""
    rng = np.random.default_rng(seed)
    X, centre = rng.normal(size=(n, 3)), np.array([1.0, -2.0, 0.0])
    label = (X @ [3.0, -2.0, 1.0] + rng.logistic(size=n) > 0).astype(float)
    bags = Bags.random(n, k, random_state=seed)
    return X + centre, label, bags.expand(bags.mean(label)), bags


def pure_bags():
    """Two bags, one of each class."""
    X, label, _, _ = draw(300)
    return X, label, Bags(label)


# One contract


@each
def test_rows_in_any_order_with_any_names_of_bags_give_one_model(estimator):
    """But for what is drawn at random, of which only the accuracy stays."""
    X, label, share, bags = draw()
    names = np.array([f"bag {a}" for a in bags.codes])
    order = np.random.default_rng(1).permutation(len(X))
    one = clone(estimator).fit(X, share, bags)
    means = dict(zip(names.tolist(), share.tolist(), strict=True))
    other = clone(estimator).fit(pd.DataFrame(X[order]).to_numpy(), means, names[order])
    if "random_state" in estimator.get_params():
        assert abs(one.score(X, label) - other.score(X, label)) < 0.05
    else:
        np.testing.assert_allclose(np.ravel(other.coef_), np.ravel(one.coef_), rtol=1e-3)


@each
def test_moving_features_moves_the_intercept_alone(estimator):
    """In bags of unequal sizes."""
    X, label, _, _ = draw(600)
    bags = Bags(np.random.default_rng(0).integers(100, size=600))
    share, by = bags.expand(bags.mean(label)), np.array([10.0, -5.0, 3.0])
    one, other = (clone(estimator).fit(rows, share, bags) for rows in (X, X + by))
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-3)
    moved = one.intercept_ - np.dot(one.coef_, by)
    np.testing.assert_allclose(other.intercept_, moved, rtol=1e-3, atol=1e-3)


@each_classifier
def test_rows_are_told_apart_from_random_bags(estimator):
    X, label, share, bags = draw()
    model = clone(estimator).fit(X, share, bags)
    full = LogisticRegression().fit(X, label).score(X, label)
    assert model.score(X, label) > full - 0.05
    assert model.score(X, share, bags) > 0.2, "bag-level log loss, explained"
    assert model.classes_.tolist() == [0, 1]


@each_classifier
def test_more_than_two_classes_get_one_sentence(estimator):
    X, _, share, bags = draw(100)
    shares = np.column_stack([share / 2, share / 2, 1 - share])
    model = clone(estimator)
    with pytest.raises(ValueError, match=r"y must be of two classes; got 3 classes\. Only binary"):
        model.fit(X, shares, bags)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (RidgeMeansRegressor(ridge=-1.0), "ridge must be at least 0 and finite; got ridge=-1.0"),
        (MeanMapClassifier(ridge=0.0), "ridge must be above 0 and finite; got ridge=0.0"),
        (EasyLLPClassifier(ridge=-1.0), "ridge must be above 0"),
        (InvCalClassifier(C=0.0), "C must be above 0"),
        (InvCalClassifier(clip=0.5), "clip must be in"),
        (InvCalClassifier(calibrate="rows"), "calibrate must be one of 'bags'"),
        (ProportionSVMClassifier(n_starts=0), "n_starts must be a whole number of at least 1"),
        (TransportClassifier(blur=0.0), "blur must be"),
        (ContaminationClassifier(groups="some"), "groups must be one of 'pairs', 'all'"),
        (BagCombinationClassifier(n_combinations=0), "n_combinations must be a whole number"),
        (BagCombinationRegressor(n_combinations="x"), "n_combinations must be one of 'auto'"),
    ],
    ids=str,
)
def test_bad_parameters_get_one_sentence(estimator, sentence):
    X, _, share, bags = draw(50)
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(X, share, bags)


@pytest.mark.parametrize("estimator", [MeanMapClassifier(), ContaminationClassifier()], ids=name)
def test_equal_shares_tell_nothing_and_are_refused(estimator):
    X = draw(100)[0]
    with pytest.raises(ValueError, match="y must be of shares that differ between bags"):
        estimator.fit(X, np.full(100, 0.3), np.arange(100) // 10)


# Smooth fits


def test_minimise_follows_its_gradient_to_where_logistic_regression_is():
    X, label, _, _ = draw(300)
    full = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, label)

    calls = []

    def loss(eta):
        calls.append(len(eta))
        value = np.logaddexp(0, eta) - label * eta
        return float(value.mean()), (expit(eta) - label) / len(eta)

    for start in (None, (np.array([1.0, 2.0, 3.0]), -1.0)):
        coef, intercept = minimise(loss, X, 2.0, 0.5, start=start)
        np.testing.assert_allclose(coef, full.coef_[0], rtol=1e-4)
        assert intercept == pytest.approx(full.intercept_[0], rel=1e-4)
    calls.clear()
    minimise(loss, X, 2.0, 0.5, start=(coef, intercept))
    assert len(calls) < 5, "what starts at the minimum is there"


def test_platt_from_bags_of_one_row_is_platt():
    X, label, _, _ = draw(300)
    score = X @ [1.0, -0.5, 0.1]
    known = LogisticRegression(C=np.inf, tol=1e-10).fit(score[:, None], label)
    coef, intercept = platt(X, np.array([1.0, -0.5, 0.1]), 0.0, label, Bags(np.arange(300)))
    np.testing.assert_allclose(coef, known.coef_[0, 0] * np.array([1.0, -0.5, 0.1]), rtol=1e-3)
    assert intercept == pytest.approx(known.intercept_[0], rel=1e-3)


@pytest.mark.parametrize(
    "estimator",
    [
        MeanMapClassifier(),
        EasyLLPClassifier(),
        TransportClassifier(),
        ContaminationClassifier(groups="all"),
        empirical_proportion_risk(ridge=1.0, tol=1e-7),
    ],
    ids=name,
)
def test_bags_of_one_row_give_logistic_regression(estimator):
    X, label, _, _ = draw(300)
    full = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, label)
    model = estimator.fit(X, label)
    np.testing.assert_allclose(model.coef_, full.coef_, rtol=1e-3)
    np.testing.assert_allclose(model.intercept_, full.intercept_, rtol=1e-3)


@pytest.mark.parametrize("estimator", [MeanMapClassifier(), ContaminationClassifier()], ids=name)
def test_two_pure_bags_give_logistic_regression(estimator):
    X, label, bags = pure_bags()
    full = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, label)
    model = estimator.fit(X, label, bags)
    np.testing.assert_allclose(model.coef_, full.coef_, rtol=1e-3)
    np.testing.assert_allclose(model.intercept_, full.intercept_, rtol=1e-3)


# Ridge on means


@pytest.mark.parametrize("n", [60, 2000], ids=["fewer bags than features", "more"])
def test_ridge_on_means_is_the_linear_model_at_rho_0(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20)) + 3
    ids = np.sort(rng.integers(n // 6, size=n))
    bags = Bags(ids)
    y = bags.expand(bags.mean(X[:, 0] + rng.normal(size=n)))
    one = RidgeMeansRegressor(ridge=2.0).fit(X, y, bags)
    ours = AggregateLinearRegression(rho=0.0, ridge=2.0).fit(X, y, bags)
    np.testing.assert_allclose(one.coef_, ours.coef_, rtol=1e-6, atol=1e-9)
    assert one.intercept_ == pytest.approx(ours.intercept_)


def test_the_ridge_classifier_is_the_clipped_regressor():
    X, _, share, bags = draw(200)
    line = RidgeMeansRegressor().fit(X, share, bags).predict(X)
    found = RidgeMeansClassifier().fit(X, share, bags)
    np.testing.assert_allclose(found.predict_proba(X)[:, 1], np.clip(line, 0, 1))
    np.testing.assert_array_equal(found.predict(X), (line > 0.5).astype(int))
    assert line.max() > 1, "something is clipped"


# Mean Map


def test_class_means_are_unbiased_where_features_know_the_bag_through_the_class_alone():
    """Four standard errors over 400 draws; where the bag shifts features too, far outside."""
    sizes, shares = np.array([10, 20, 40]), np.array([0.2, 0.5, 0.9])
    bags, truth = Bags(np.repeat([0, 1, 2], sizes)), np.array([[0.0, 1.0], [2.0, -1.0]])
    label = np.concatenate([np.arange(k) < g * k for k, g in zip(sizes, shares, strict=True)])
    rng = np.random.default_rng(0)
    for shift, rejects in ((0.0, False), (1.0, True)):
        found = []
        for _ in range(400):
            X = truth[label.astype(int)] + rng.normal(size=(70, 2)) + shift * bags.codes[:, None]
            found.append(class_means(bags.mean(X), shares, bags))
        z = (np.mean(found, axis=0) - truth) / (np.std(found, axis=0) / 20)
        assert (np.abs(z).max() > 4) == rejects


def test_class_means_are_those_of_least_squares_and_of_pure_bags():
    X, label, bags = pure_bags()
    found = class_means(bags.mean(X), bags.mean(label), bags)
    np.testing.assert_allclose(found, [X[label == 0].mean(axis=0), X[label == 1].mean(axis=0)])
    _, label, _, _ = draw(300)
    bags = Bags(np.random.default_rng(0).integers(9, size=300))
    shares, root = bags.mean(label), np.sqrt(bags.sizes)[:, None]
    design = np.column_stack([1 - shares, shares])
    known = np.linalg.lstsq(root * design, root * bags.mean(X), rcond=None)[0]
    np.testing.assert_allclose(class_means(bags.mean(X), shares, bags), known)


# InvCal


def test_shares_that_are_logistic_in_bag_means_are_inverted():
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(600, 2)) + 1, Bags(np.arange(600) // 6)
    share = expit(bags.mean(X) @ [1.0, -2.0] + 0.5)
    model = InvCalClassifier(C=1e6, epsilon=0.0, clip=1e-6, calibrate=None)
    model.fit(X, bags.expand(share), bags)
    np.testing.assert_allclose(model.coef_, [[1.0, -2.0]], rtol=1e-3)
    np.testing.assert_allclose(model.intercept_, 0.5, rtol=1e-3)


def test_shares_that_fit_in_the_tube_need_no_slope():
    X, bags = draw(600)[0], Bags(np.arange(600) // 6)
    score = -1 + 0.2 * np.sign(bags.mean(X)[:, 0] - 1)
    score -= score.mean() + 1
    options = {"C": 1e3, "calibrate": None}
    narrow, wide = (
        InvCalClassifier(epsilon=e, **options).fit(X, bags.expand(expit(score)), bags)
        for e in (0.0, 0.5)
    )
    np.testing.assert_allclose(wide.coef_, 0, atol=1e-8)
    assert np.abs(narrow.coef_).max() > 0.1
    np.testing.assert_allclose(wide.predict_proba(X)[:, 1], expit(-1), rtol=1e-3)


def test_calibration_keeps_the_order_of_rows():
    X, _, share, bags = draw()
    plain = InvCalClassifier(calibrate=None).fit(X, share, bags).predict_proba(X)[:, 1]
    mended = InvCalClassifier().fit(X, share, bags).predict_proba(X)[:, 1]
    np.testing.assert_array_equal(np.argsort(plain), np.argsort(mended))
    means = bags.align(share)
    assert bag_loss(means, mended, bags, "log") < bag_loss(means, plain, bags, "log")


# Proportion-SVM


@pytest.mark.parametrize("penalty", [0.0, 0.7, 3.0, np.inf])
def test_labels_are_the_best_of_all(penalty):
    """Every labelling of bags of up to five rows; an infinite penalty is a very large one."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        bags = Bags(rng.permutation([0, 0, 0, 1, 1, 1, 1, 1, 2]))
        gain, shares = rng.normal(size=9), rng.uniform(size=3).round(1)

        def cost(labels, shares=shares, bags=bags, gain=gain):
            apart = np.abs(bags.mean((labels == 1).astype(float)) - shares).sum()
            return -gain @ (labels == 1) + min(penalty, 1e4) * apart

        least = min(cost(np.array(t)) for t in product([-1, 1], repeat=9))
        assert cost(relabel(gain, shares, bags, penalty)) == pytest.approx(least)


@pytest.mark.parametrize("penalty", [np.inf, 2.0])
def test_no_turn_raises_the_objective(penalty):
    X, _, share, bags = draw(300)
    model = ProportionSVMClassifier(share_penalty=penalty, random_state=0).fit(X, share, bags)
    for values in model.objectives_:
        assert (np.diff(values) <= 1e-6 * np.abs(values[:-1])).all()
    assert max(len(values) for values in model.objectives_) > 2
    assert model.objective_ == model.objectives_[-1][-1]


def test_labels_meet_the_shares_and_more_starts_are_never_worse():
    X, _, share, bags = draw(60, 6)
    found = [
        ProportionSVMClassifier(n_starts=s, n_steps=2, random_state=0).fit(X, share, bags)
        for s in range(1, 8)
    ]
    np.testing.assert_allclose(bags.expand(bags.mean(found[1].labels_ == 1)), share)
    values = [model.objective_ for model in found]
    assert (np.diff(values) <= 0).all()
    assert values[-1] < values[0]


# Empirical proportion risk and DLLP


def test_empirical_proportion_risk_is_our_bag_level_loss():
    X, _, share, bags = draw(400)
    model = empirical_proportion_risk(ridge=2.0, tol=1e-7).fit(X, share, bags)
    p = model.predict_proba(X)[:, 1]
    loss = bag_loss(bags.align(share), p, bags, "log")
    assert model.objective_ == pytest.approx(loss + (model.coef_**2).sum() / 400)


def test_dllp_is_our_network_at_rho_0():
    X, label, share, bags = draw(400)
    model = deep_llp((16,), learning_rate=0.02, epochs=30, random_state=0)
    assert model.fit(X, share, bags).rho_ == 0
    assert model.score(X, label) > 0.8


def test_averaging_log_probabilities_is_the_instance_level_loss():
    """The loss of llp-learn's DLLP: value and gradient are those of rho = 1, not of rho = 0."""
    rng = np.random.default_rng(0)
    bags, eta = Bags(np.arange(40) // 5), rng.normal(size=(40, 1))
    means = rng.uniform(size=8)

    def averaged_logs(eta):
        p = expit(eta[:, 0])
        ones, zeros = bags.mean(np.log(p)), bags.mean(np.log(1 - p))
        return -float((bags.sizes * (means * ones + (1 - means) * zeros)).sum()) / 40

    p = expit(eta[:, 0])
    assert averaged_logs(eta) == pytest.approx(float(instance_loss(means, p, bags, "log")))
    assert averaged_logs(eta) > float(bag_loss(means, p, bags, "log"))
    steps = 1e-5 * np.eye(40)[:, :, None]
    slope = [(averaged_logs(eta + s) - averaged_logs(eta - s)) / 2e-5 for s in steps]
    problem = Problem(eta, means[:, None], bags, "sigmoid", "mean", "instance", True, np.ones(8))
    np.testing.assert_allclose(problem.loss(eta, 1.0)[1][:, 0], slope, atol=1e-8)
    assert np.abs(problem.loss(eta, 0.0)[1][:, 0] - slope).max() > 1e-3


# Optimal transport


@pytest.mark.parametrize("blur", [1e-3, 0.3, 1.0, 10.0])
def test_carried_labels_add_up_to_the_shares(blur):
    rng = np.random.default_rng(0)
    bags, eta = Bags(rng.integers(6, size=60)), 5 * rng.normal(size=60)
    shares = np.array([0.0, 1.0, 0.25, 0.5, 0.01, 0.9])
    found = carried(eta, shares, bags, blur)
    np.testing.assert_allclose(bags.mean(found), shares, atol=1e-9)
    assert found.min() >= 0
    assert found.max() <= 1


def test_carried_labels_are_those_of_sinkhorn():
    rng = np.random.default_rng(0)
    p, k, share, blur = rng.uniform(size=7), 7, 0.3, 0.4
    kernel = np.column_stack([1 - p, p]) ** (1 / blur)
    columns = np.ones(2)
    for _ in range(5000):
        rows = 1 / (kernel @ columns)
        columns = k * np.array([1 - share, share]) / (kernel.T @ rows)
    plan = rows[:, None] * kernel * columns
    found = carried(logit(p), np.array([share]), Bags(np.zeros(7)), blur)
    np.testing.assert_allclose(found, plan[:, 1], rtol=1e-6)


def test_without_blur_labels_are_sorted():
    rng = np.random.default_rng(0)
    bags, eta = Bags(rng.permutation(np.arange(40) % 4)), rng.normal(size=40)
    counts = np.array([0, 3, 7, 10])
    found = carried(eta, counts / 10, bags, 1e-4)
    expected = relabel(eta, counts / 10, bags, np.inf) == 1
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("blur", [0.5, 1.0])
def test_no_half_of_a_turn_raises_the_cost(blur):
    X, _, share, bags = draw(300)
    costs = []
    for turns in (1, 2, 3):
        model = TransportClassifier(blur=blur, ridge=2.0, max_iter=turns, tol=0.0)
        q, coef = model.fit(X, share, bags).labels_, model.coef_[0]
        eta = X @ coef + model.intercept_[0]
        for labels in (q, carried(eta, bags.align(share), bags, blur)):
            inside = np.clip(labels, 1e-12, 1 - 1e-12)
            entropy = -(inside * np.log(inside) + (1 - inside) * np.log(1 - inside)).sum()
            costs.append((np.logaddexp(0, eta) - labels * eta).sum() - blur * entropy + coef @ coef)
    assert (np.diff(costs) < 0).all()


# EasyLLP


def partitions(sizes):
    """All ways to give n rows to bags of given sizes, each as one bag a row."""
    return sorted(set(permutations(np.repeat(np.arange(len(sizes)), sizes).tolist())))


def test_surrogate_labels_are_unbiased_over_all_partitions():
    """Given the size of a row's bag; the paper's k ȳ_a − (k−1) ȳ is not, in a finite table."""
    y, sizes = np.array([0.0, 1.0, 1.0, 3.0, -2.0, 0.5]), np.array([1, 2, 3])
    sums, papers, times = np.zeros((3, 6)), np.zeros((3, 6)), np.zeros((3, 6))
    for ids in partitions(sizes):
        bags = Bags(list(ids))
        means = bags.mean(y)
        of_row = bags.expand(bags.sizes)
        at = (of_row - 1, np.arange(6))
        sums[at] += surrogate_labels(means, bags)
        papers[at] += of_row * bags.expand(means) - (of_row - 1) * y.mean()
        times[at] += 1
    np.testing.assert_allclose(sums / times, np.tile(y, (3, 1)), atol=1e-12)
    assert np.abs(papers / times - y).max() > 0.1


def test_the_moment_of_surrogates_is_the_estimate_of_row_risk_about_nothing():
    """(1/n) Σ ỹ_i s_i over equal bags is what row_risk has with g = 0."""
    rng = np.random.default_rng(0)
    bags, y, s = Bags.random(60, 5, random_state=0), rng.normal(size=60), rng.normal(size=60)
    means = bags.mean(y)
    value, _ = _estimate(
        bags.sizes, np.zeros(12), means[:, None], bags.mean(s)[:, None], np.zeros(12)
    )
    assert value == pytest.approx(float(surrogate_labels(means, bags) @ s) / 60)


@pytest.mark.parametrize("sizes", [[2, 2, 2], [1, 2, 3]], ids=str)
def test_the_debiased_fit_has_that_of_the_rows_as_expectation(sizes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 1)) + 2, rng.normal(size=6)
    found = []
    for ids in partitions(sizes):
        bags = Bags(list(ids))
        means = bags.expand(bags.mean(y))
        found.append(EasyLLPRegressor(ridge=0.0).fit(X, means, bags).coef_)
    np.testing.assert_allclose(np.mean(found, axis=0), LinearRegression().fit(X, y).coef_)


def test_the_debiased_fit_is_the_instance_level_one_stretched():
    X, _, share, bags = draw(500)
    ours = AggregateLinearRegression(rho=1.0).fit(X, share, bags)
    found = EasyLLPRegressor(ridge=0.0).fit(X, share, bags)
    np.testing.assert_allclose(found.coef_, ours.coef_ * 5 * 499 / 495)


# Mutual contamination


def population():
    """A feature of four values whose counts in three bags are what the shares say, exactly."""
    one, zero, sizes = (
        np.array([0.1, 0.2, 0.3, 0.4]),
        np.array([0.4, 0.3, 0.2, 0.1]),
        [100, 200, 100],
    )
    shares = np.array([0.2, 0.5, 0.9])
    mixed = shares[:, None] * one + (1 - shares[:, None]) * zero
    counts = np.round(np.array(sizes)[:, None] * mixed).astype(int)
    x = np.concatenate([np.repeat(np.arange(4), row) for row in counts])
    share = float(np.array(sizes) @ shares / 400)
    truth = logit(share * one / (share * one + (1 - share) * zero))
    return x, Bags(np.repeat([0, 1, 2], sizes)), shares, share, truth, counts


@pytest.mark.parametrize("groups", [[0, 0, 0], [0, 1, 0]], ids=["all", "a pair"])
def test_true_probabilities_have_the_least_loss_of_the_population(groups):
    x, bags, shares, share, truth, _ = population()
    groups = np.array(groups)
    best, slope = bag_loss_of_rows(truth[x], shares, bags, groups, share)
    np.testing.assert_allclose(np.bincount(x, slope), 0, atol=1e-12)
    for step in np.vstack([0.2 * np.eye(4), -0.2 * np.eye(4)]):
        assert bag_loss_of_rows((truth + step)[x], shares, bags, groups, share)[0] > best + 1e-5


def test_contaminated_probabilities_are_how_often_rows_come_from_bags():
    """exp(−loss) of a single row is q_a: counts of its value in its bag over those in all."""
    x, bags, shares, share, truth, counts = population()
    for row in (0, 150, 399):
        step, at = 1e-3, truth[x].copy()
        base = bag_loss_of_rows(at, shares, bags, np.zeros(3, int), share)[0]
        at[row] += step
        moved = bag_loss_of_rows(at, shares, bags, np.zeros(3, int), share)[0]
        p = expit(np.array([truth[x[row]], truth[x[row]] + step]))
        a = bags.codes[row]
        u = bags.sizes[:, None] * (
            np.outer(shares, p) / share + np.outer(1 - shares, 1 - p) / (1 - share)
        )
        q = u[a] / u.sum(axis=0)
        assert q[0] == pytest.approx(counts[a, x[row]] / counts[:, x[row]].sum())
        assert 400 * (moved - base) == pytest.approx(-np.log(q[1] / q[0]))


def test_the_gradient_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    bags, eta = Bags(rng.integers(4, size=30)), rng.normal(size=30)
    given = (rng.uniform(size=4), bags, np.array([0, 1, 1, 0]), 0.4)
    slope = [
        (bag_loss_of_rows(eta + s, *given)[0] - bag_loss_of_rows(eta - s, *given)[0]) / 2e-5
        for s in 1e-5 * np.eye(30)
    ]
    np.testing.assert_allclose(bag_loss_of_rows(eta, *given)[1], slope, atol=1e-9)


def test_opposite_pairs_differ_most_of_all_pairings():
    rng = np.random.default_rng(0)
    for _ in range(5):
        shares = rng.uniform(size=6).round(1)
        of_bag = opposite_pairs(shares)
        found = sum(np.ptp(shares[of_bag == g]) ** 2 for g in range(of_bag.max() + 1))
        every = (np.array(order).reshape(3, 2) for order in permutations(range(6)))
        most = max((np.diff(shares[pairs], axis=1) ** 2).sum() for pairs in every)
        assert found == pytest.approx(most)
    assert opposite_pairs(np.array([0.5, 0.2, 0.5, 0.5])).tolist() == [-1, 0, -1, 0]


# Bag combination


def test_combinations_keep_norms():
    """Exactly in expectation, by all signs of four bags; nearly, with many combinations."""
    v = np.random.default_rng(0).normal(size=(4, 2))
    signs = np.array(list(product([-1.0, 1.0], repeat=4)))
    np.testing.assert_allclose(((signs @ v) ** 2).mean(axis=0), (v**2).sum(axis=0))
    rng = np.random.RandomState(0)
    single = np.array([(combine(v, 3, rng) ** 2).sum(axis=0) for _ in range(4000)])
    error = single.std(axis=0) / np.sqrt(4000)
    assert (np.abs(single.mean(axis=0) - (v**2).sum(axis=0)) < 4 * error).all()
    assert (np.abs(single.mean(axis=0) - 1.2 * (v**2).sum(axis=0)) > 4 * error).all()
    many = combine(v, 200_000, rng)
    np.testing.assert_allclose(many.T @ many, v.T @ v, atol=0.05)


def test_combinations_made_in_blocks_are_those_made_at_once(monkeypatch):
    v = np.random.default_rng(0).normal(size=(40, 3))
    whole = combine(v, 30, np.random.RandomState(0))
    monkeypatch.setattr("bagwise.baselines.bag_combination.ENTRIES", 160)
    np.testing.assert_allclose(combine(v, 30, np.random.RandomState(0)), whole)


def test_many_combinations_give_ridge_on_means():
    X, _, share, bags = draw(500)
    known = RidgeMeansRegressor().fit(X, share, bags)
    found = BagCombinationRegressor(n_combinations=100_000, random_state=0).fit(X, share, bags)
    np.testing.assert_allclose(found.coef_, known.coef_, atol=0.02)
    assert found.intercept_ == pytest.approx(known.intercept_, abs=0.02)
    few = BagCombinationRegressor(n_combinations=5, random_state=0).fit(X, share, bags)
    assert np.abs(few.coef_ - known.coef_).max() > 0.02


# Curated bags


def groupings(rows, k):
    """All partitions of rows into bags of at least k."""
    if not rows:
        yield []
    for size in range(k, len(rows) + 1):
        for others in combinations(rows[1:], size - 1):
            rest = [row for row in rows[1:] if row not in others]
            for more in groupings(rest, k):
                yield [[rows[0], *others], *more]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_score_bags_vary_least_of_all_partitions(k):
    rng = np.random.default_rng(0)
    for n in (3, 5, 6, 7, 7, 7, 7, 8):
        score = rng.normal(size=n).round(1) + 100
        bags = score_bags(score, k)
        found = bags.sum((score - bags.expand(bags.mean(score))) ** 2).sum()
        every = groupings(list(range(n)), k)
        least = min(sum(len(part) * np.var(score[part]) for part in parts) for parts in every)
        assert found == pytest.approx(least, abs=1e-9)
        assert bags.sizes.min() >= k


def test_feature_bags_are_alike_and_of_the_sizes_that_were_asked_for():
    X = np.random.default_rng(0).normal(size=(203, 3))
    bags = feature_bags(X, 10)
    assert 10 <= bags.sizes.min() <= bags.sizes.max() < 20
    random = Bags.random(203, 10, random_state=0)
    assert bags.spread(X).mean() < 0.4 * random.spread(X).mean()
    shifted = feature_bags(3 * X + 5, 10)
    np.testing.assert_array_equal(shifted.codes, bags.codes)


def test_bags_by_a_good_score_lower_the_bias_of_the_instance_level_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    truth = np.array([1.0, -2.0, 0.5])
    y = X @ truth + 0.1 * rng.normal(size=2000)
    errors = []
    for bags in (score_bags(X @ truth, 10), Bags.random(2000, 10, random_state=0)):
        means = bags.expand(bags.mean(y))
        coef = AggregateLinearRegression(rho=1.0).fit(X, means, bags).coef_
        errors.append(np.abs(coef - truth).max())
    assert errors[0] < 0.1 < 1 < errors[1]


@pytest.mark.parametrize(
    ("make", "given", "size", "sentence"),
    [
        (score_bags, [[1.0, 2.0]], 1, "score must be one finite number a row; got shape"),
        (score_bags, [1.0, np.nan], 1, "score must be one finite number a row; got NaN"),
        (score_bags, [1.0, 2.0], 3, "bag_size must be at most n_rows; got bag_size=3, n_rows=2"),
        (feature_bags, [1.0, 2.0], 1, "X must be two-dimensional and finite; got shape"),
        (feature_bags, [[1.0], [2.0]], 0, "bag_size must be a whole number of at least 1"),
    ],
)
def test_bad_curation_gets_one_sentence(make, given, size, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(given, size)


def test_the_mean_prediction_is_the_known_mean_also_in_unequal_bags():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.uniform(size=120)
    bags = Bags(np.r_[np.zeros(100), np.arange(1, 21)].astype(int))
    model = EasyLLPRegressor().fit(X, bags.expand(bags.mean(y)), bags)
    assert model.predict(X).mean() == pytest.approx(y.mean())
