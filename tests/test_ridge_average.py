"""Laws of logistic regression averaged over ridges."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logsumexp
from scipy.stats import ttest_1samp
from sklearn.metrics import log_loss

from bagwise import AggregateLogisticRegression, AggregatePoissonRegressor, Bags, count_loss
from bagwise.estimators import glm_problem
from bagwise.estimators.ridge_average import SIGNALS, average_ridges


def draw(n=400, k=4, d=3, seed=0, scale=1.0):
    """Features off the origin, labels, the share of each bag, and bags."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + np.arange(d)
    eta = scale * (X - np.arange(d)) @ rng.normal(size=d) - 0.5
    label = (rng.uniform(size=n) < expit(eta)).astype(float)
    bags = Bags.random(n, k, random_state=seed)
    return X, label, bags.mean(label), bags


def fitted(X, shares, bags, noise=None, **options):
    model = AggregateLogisticRegression(rho=0.0, ridge="average", **options)
    scale = None if noise is None else bags.expand(noise)
    return model.fit(X, bags.expand(shares), bags, noise_scale=scale)


def averaged(X, shares, bags, noise=None, fit_intercept=True):
    model = AggregateLogisticRegression(rho=0.0, ridge=1.0, fit_intercept=fit_intercept)
    return average_ridges(model.problem(X, shares[:, None], bags, noise), 500, 1e-6)


def integral(x, shares, bags, ridge, noise=None):
    """Log of the likelihood of counts, one coefficient and the intercept integrated out."""
    points = np.linspace(-1, 1, 61)
    scale = np.array([2.5, 2.0])
    theta, b = np.meshgrid(scale[0] * points, scale[1] * points, indexing="ij")
    told = [
        -bags.n_rows * count_loss(shares, expit(t * x + c), bags, noise) - ridge * t**2 / 2
        for t, c in zip(theta.ravel(), b.ravel(), strict=True)
    ]
    return logsumexp(told) + np.log(ridge) / 2


@pytest.mark.parametrize("noise", [None, 0.2], ids=["plain", "noise"])
def test_evidence_is_the_integral_over_coefficients(noise):
    """Of ridges among each other, and of one feature against another."""
    rng = np.random.default_rng(1)
    X, _, shares, bags = draw(n=600, d=1, seed=1)
    X -= X.mean(axis=0)
    scale = None if noise is None else np.full(bags.n_bags, noise)
    if noise is not None:
        shares = shares + noise * rng.laplace(size=bags.n_bags)
    blurred = X + rng.normal(size=X.shape)
    found, exact = [], []
    for feature in (X, blurred):
        average = averaged(feature, shares, bags, scale)
        # The strongest ridges, at which the posterior is that of the prior, need no grid so wide.
        for i in (2, 4, 6):
            found.append(average.log_evidence[i])
            exact.append(integral(feature[:, 0], shares, bags, average.ridges[i], scale))
    found, exact = np.array(found), np.array(exact)
    assert np.ptp(exact) > 3, "there is something to tell apart"
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=0.15)


def curvature(X, p, bags, noise, ridge):
    """Expected, bag by bag; the intercept comes first and has no ridge."""
    X = np.column_stack([np.ones(len(X)), X])
    total = ridge * np.diag([0.0] + [1.0] * (X.shape[1] - 1))
    for a in range(bags.n_bags):
        rows = np.flatnonzero(bags.codes == a)
        own = p[rows] * (1 - p[rows])
        pull = own @ X[rows]
        total += np.outer(pull, pull) / (own.sum() + (len(rows) * noise[a]) ** 2)
    return total, X


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_an_average_is_the_mean_of_moderated_fits_by_their_evidence(noise):
    X, label, _, _ = draw(n=300, d=4)
    # Bags that differ in what they tell.
    bags = Bags(np.random.default_rng(2).permutation(np.repeat(np.arange(50), [2, 10] * 25)))
    shares, scale = bags.mean(label), 5 * noise / bags.sizes
    if noise:
        shares = shares + scale * np.random.default_rng(0).laplace(size=bags.n_bags)
    told, coefs = [], []
    for signal in SIGNALS:
        ridge = X.var(axis=0).sum() / signal
        one = AggregateLogisticRegression(rho=0.0, ridge=ridge, tol=1e-7)
        one.fit(X, bags.expand(shares), bags, noise_scale=bags.expand(scale) if noise else None)
        p = one.predict_proba(X)[:, 1]
        H, ones = curvature(X, p, bags, scale, ridge)
        lost = 300 * count_loss(shares, p, bags, scale if noise else None)
        lost += ridge * np.square(one.coef_).sum() / 2
        told.append(2 * np.log(ridge) - np.linalg.slogdet(H)[1] / 2 - lost)
        variance = np.mean([x @ np.linalg.solve(H, x) for x in ones])
        coefs.append(one.coef_[0] / np.sqrt(1 + np.pi * variance / 8))
    weights = np.exp(np.array(told) - max(told))
    model = fitted(X, shares, bags, scale if noise else None, tol=1e-7)
    np.testing.assert_allclose(model.coef_[0], weights @ coefs / weights.sum(), rtol=1e-3)
    assert model._log_evidence == pytest.approx(logsumexp(told) - np.log(len(SIGNALS)), abs=1e-3)
    assert model.ridge_ == pytest.approx(X.var(axis=0).sum() / SIGNALS[np.argmax(told)])
    assert (model.rho_, model.rho_source_) == (0.0, "given")


def test_the_mean_prediction_is_the_overall_share():
    X, _, shares, bags = draw(k=8, scale=3.0)
    model = fitted(X, shares, bags)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1].mean(), bags.sizes @ shares / len(X))
    without = fitted(X, shares, bags, fit_intercept=False)
    assert without.intercept_.tolist() == [0.0]


def test_where_bags_are_few_an_average_errs_less_than_a_choice():
    """Log loss of rows, against a ridge from held-out bags: t-test of 40 pairs, alpha .001."""
    gains = []
    for seed in range(40):
        X, label, shares, bags = draw(n=900, k=30, d=40, seed=seed, scale=0.3)
        chosen = AggregateLogisticRegression(rho=0.0).fit(X, bags.expand(shares), bags)
        both = [log_loss(label, m.predict_proba(X)) for m in (chosen, fitted(X, shares, bags))]
        gains.append(np.subtract(*both))
    assert ttest_1samp(gains, 0, alternative="greater").pvalue < 0.001


def test_where_features_say_nothing_an_average_says_little():
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(2000, 20)), Bags.random(2000, 5, random_state=0)
    shares = bags.mean((rng.uniform(size=2000) < 0.3).astype(float))
    assert fitted(X, shares, bags).predict_proba(X)[:, 1].std() < 0.03
    # A single choice of a weak ridge would spread them by 0.3.
    noisy = shares + rng.laplace(size=bags.n_bags)
    assert fitted(X, noisy, bags, np.ones(bags.n_bags)).predict_proba(X)[:, 1].std() < 0.07


def test_much_evidence_leaves_one_model():
    X, _, shares, bags = draw(n=20_000, k=2)
    alone = AggregateLogisticRegression(rho=0.0, ridge=1.0).fit(X, bags.expand(shares), bags)
    np.testing.assert_allclose(fitted(X, shares, bags).coef_, alone.coef_, atol=0.02)


def test_bags_of_one_row_are_labels():
    X, label, *_ = draw(n=500)
    alone = AggregateLogisticRegression(rho=0.0, ridge="average").fit(X, label)
    np.testing.assert_allclose(alone.coef_, fitted(X, label, Bags(np.arange(500))).coef_, rtol=1e-6)
    assert alone.score(X, label) > 0.6


def test_order_and_kind_of_rows_change_nothing():
    X, _, shares, bags = draw()
    first = fitted(X, shares, bags)
    np.testing.assert_allclose(fitted(sp.csr_matrix(X), shares, bags).coef_, first.coef_, rtol=1e-3)
    order = np.random.default_rng(1).permutation(len(X))
    turned = AggregateLogisticRegression(rho=0.0, ridge="average")
    turned.fit(X[order], bags.expand(shares)[order], bags.codes[order])
    np.testing.assert_allclose(turned.coef_, first.coef_, rtol=1e-3)


def test_some_bags_stand_for_all_of_a_large_table(monkeypatch):
    X, _, shares, bags = draw(n=8000, k=4, d=20, scale=0.3)
    whole = averaged(X, shares, bags)
    monkeypatch.setattr(glm_problem, "SCREEN", 2000)
    part = averaged(X, shares, bags)
    np.testing.assert_allclose(part.ridges, whole.ridges, rtol=0.05)
    gaps = [each.log_evidence - each.log_evidence[0] for each in (part, whole)]
    np.testing.assert_allclose(*gaps, rtol=0.015)
    np.testing.assert_allclose(part.solution.coef, whole.solution.coef, rtol=0.02)


def test_a_saved_average_predicts_the_same(tmp_path):
    X, _, shares, bags = draw()
    model = fitted(X, shares, bags, calibrate="bags")
    model.save(tmp_path / "m")
    loaded = AggregateLogisticRegression.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.ridge_ == model.ridge_
    assert not hasattr(model, "path_")


def test_equal_shares_and_constant_features_leave_the_overall_share():
    X, _, shares, bags = draw()
    same = fitted(X, np.full(bags.n_bags, 0.25), bags).predict_proba(X)[:, 1]
    np.testing.assert_allclose(same, 0.25, atol=0.02)
    flat = fitted(np.ones((400, 2)), shares, bags).predict_proba(X[:, :2])[:, 1]
    np.testing.assert_allclose(flat, bags.sizes @ shares / 400, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rho": "cv"}, "rho must be 0 with ridge='average'; got rho='cv'. An average is over"),
        ({"rho": 0.1}, "rho must be 0 with ridge='average'; got rho=0.1"),
        ({"likelihood": "mean"}, "likelihood must be 'count' with ridge='average'; got"),
        ({"ridge": "mean"}, "ridge must be at least 0, 'cv' or 'average'; got ridge='mean'"),
    ],
    ids=str,
)
def test_what_cannot_be_averaged_is_refused(options, sentence):
    X, _, shares, bags = draw()
    model = AggregateLogisticRegression(**{"rho": 0.0, "ridge": "average"} | options)
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, bags.expand(shares), bags)


def test_more_classes_counts_and_one_bag_have_no_average():
    X, _, shares, bags = draw()
    model = AggregateLogisticRegression(rho=0.0, ridge="average")
    thirds = np.full((400, 3), 1 / 3)
    with pytest.raises(ValueError, match="ridge must be a number or 'cv' past two classes; got"):
        model.fit(X, thirds, bags)
    with pytest.raises(ValueError, match="ridge must be at least 0 or 'cv'; got ridge='average'"):
        AggregatePoissonRegressor(ridge="average").fit(X, bags.expand(shares), bags)
    with pytest.raises(ValueError, match="got ridge='average' with n_bags=1"):
        model.fit(X, np.full(400, 0.3), np.zeros(400))
