"""One contract for every estimator: scikit-learn's, data frames, and one sentence for bad input."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone, is_regressor
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise import (
    AggregateBoostingClassifier,
    AggregateBoostingRegressor,
    AggregateClassifier,
    AggregateLinearRegression,
    AggregateLogisticRegression,
    AggregateMLPClassifier,
    AggregateMLPRegressor,
    AggregatePoissonRegressor,
    AggregateRegressor,
    AggregateStatistics,
    Bags,
)

NETWORK = AggregateMLPRegressor((16,), learning_rate=0.02, epochs=60, random_state=0)
BOOSTING = AggregateBoostingRegressor(
    n_estimators=60, min_child_samples=2, early_stopping=False, random_state=0, n_jobs=1
)
AUTO = AggregateRegressor(models=["linear", "boosted"], random_state=0, n_jobs=1)
ESTIMATORS = [
    AggregateLinearRegression(),
    NETWORK,
    BOOSTING,
    AUTO,
    AggregateLogisticRegression(tol=1e-7),
    AggregatePoissonRegressor(tol=1e-7),
]


def name(estimator):
    return type(estimator).__name__


def at(estimator, rho):
    """A copy at this rho, where the estimator does not choose by itself."""
    copy = clone(estimator)
    return copy.set_params(rho=rho) if "rho" in copy.get_params() else copy


each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)


@parametrize_with_checks(
    [
        AggregateLinearRegression(),
        NETWORK,
        AggregateLinearRegression(rho="theory"),
        AggregateLinearRegression(rho="average", ridge="cv"),
        AggregateLinearRegression(rho="gcv"),
        AggregateLinearRegression(rho=0.3),
        AggregateMLPClassifier(epochs=100, random_state=0),
        AggregateLogisticRegression(),
        AggregateLogisticRegression(rho=0.3, ridge=1.0, likelihood="mean", calibrate="bags"),
        AggregatePoissonRegressor(),
        AggregateBoostingRegressor(random_state=0, n_jobs=1),
        AggregateBoostingClassifier(random_state=0, n_jobs=1),
        AUTO,
        AggregateClassifier(models=["linear", "boosted"], random_state=0, n_jobs=1),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def draw(n_rows=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) + 1
    bags = Bags.random(n_rows, 5, random_state=seed)
    # Between 0 and 1, where every family has a use for them.
    y = 0.5 + (X @ [1.0, -2.0, 0.5] + 0.5 + 0.1 * rng.normal(size=n_rows)) / 20
    return X, bags.expand(bags.mean(y)), bags.codes


@each
def test_data_frames_give_the_answer_of_arrays_and_remember_names(estimator):
    X, y, bags = draw()
    expected = clone(estimator).fit(X, y, bags).predict(X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for table in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        model = clone(estimator).fit(table, y, bags)
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        np.testing.assert_allclose(model.predict(table), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


@each
def test_means_may_be_joined_or_mapped(estimator):
    X, y, bags = draw()
    names = np.array([f"bag {b}" for b in bags])
    by_bag = pd.Series(y, index=names).groupby(level=0).first()
    expected = clone(estimator).fit(X, y, bags).predict(X)
    for response in (by_bag, by_bag.to_dict()):
        for ids in (names, pd.Series(names), pl.Series(names), names.tolist(), Bags(names)):
            model = clone(estimator).fit(X, response, ids)
            np.testing.assert_allclose(model.predict(X), expected, rtol=1e-5)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@each
@pytest.mark.usefixtures("routing")
def test_bags_are_routed_through_pipelines_searches_and_cross_validation(estimator):
    X, y, bags = draw()
    routed = clone(estimator).set_fit_request(bags=True).set_score_request(bags=True)
    # Not moved: LightGBM has a bin of its own for 0.
    pipeline = make_pipeline(StandardScaler(with_mean=False), routed)
    pipeline.fit(X, y, bags=bags)
    scaled = StandardScaler(with_mean=False).fit_transform(X)
    by_hand = clone(estimator).fit(scaled, y, bags)
    np.testing.assert_allclose(pipeline.predict(X), by_hand.predict(scaled), rtol=1e-6)
    step = pipeline.steps[-1][0]
    if "rho" in estimator.get_params():
        search = GridSearchCV(pipeline, {f"{step}__rho": [0.0, 0.5, 1.0]}, cv=GroupKFold(3))
        search.fit(X, y, bags=bags, groups=bags)
        assert search.best_params_[f"{step}__rho"] < 1.0
    given = {"bags": bags, "groups": bags}
    folds = cross_validate(pipeline, X, y, cv=GroupKFold(3), params=given)["test_score"]
    for (seen, new), score in zip(GroupKFold(3).split(X, y, bags), folds, strict=True):
        fold = clone(pipeline).fit(X[seen], y[seen], bags=bags[seen])
        assert score == fold.score(X[new], y[new], bags=bags[new])
        if is_regressor(estimator):
            assert score != fold[-1].score(fold[:-1].transform(X[new]), y[new]), "rows, not bags"


@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if is_regressor(e)], ids=name)
@pytest.mark.usefixtures("routing")
def test_routed_scores_are_those_of_bags(estimator):
    """Without the bags the score would be that of rows against means, which is far lower."""
    X, y, bags = draw()
    model = at(estimator, 0.0).fit(X, y, bags)
    assert model.score(X, y, bags) > 0.95 > model.score(X, y)


X, Y, B = draw()
TEXT = pd.DataFrame({"x": X[:, 0], "carrier": ["UA"] * len(X)})
NOT_CONSTANT = Y + 1.0 * (np.arange(len(Y)) == 7)
NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[3, 1] = np.nan, np.inf
MAPPED = dict(zip(B.tolist(), Y.tolist(), strict=True))


@each
@pytest.mark.parametrize(
    ("rows", "response", "bags", "sentence"),
    [
        (X, NOT_CONSTANT, B, "y must be constant within a bag; got different entries in bag"),
        (X, {k: v for k, v in MAPPED.items() if k != 4}, B, "y must be a mean for every bag"),
        (X, MAPPED | {99: 1.0}, B, "y must be a mean for bags that have rows; got one for bag 99"),
        (NAN, Y, B, "Input X contains NaN"),
        (INF, Y, B, "Input X contains infinity"),
        (X, np.where(B == 2, np.nan, Y), B, "y must be finite; got NaN or infinity"),
        (X, np.where(B == 2, np.inf, Y), B, "y must be finite; got NaN or infinity"),
        (X, Y[:-1], B, "y must be one-dimensional with one entry a row"),
        (X, Y[:-1], None, "inconsistent numbers of samples"),
        (X, Y, B[:-1], r"bags must be one id a row of X; got 89 ids for 90 rows"),
        (X[:0], Y[:0], B[:0], r"Found array with 0 sample\(s\)"),
        (X[:, :0], Y, B, r"Found array with 0 feature\(s\)"),
        (TEXT, Y, B, r"X must be numeric; got text\. Encode text columns first"),
        (X, Y, np.zeros(90), "constant within a bag"),
        (X, np.full(90, 0.5), np.zeros(90), "a number when there is one bag|two or more; got one"),
        (X, Y, np.column_stack([B, B]), "bags must be one-dimensional"),
        (X, Y, [None] * 90, "bags must be an id for every row"),
        (X, None, B, "y must be one-dimensional with one entry a row"),
        (X, np.array(["x"] * 90), B, "y must be numeric; got text or objects"),
        (X, Y, "x" * 90, "bags must be one id a row; got a single text"),
        (X, MAPPED, None, "bags must be given when y maps bags to means"),
    ],
)
def test_bad_tables_get_one_sentence_and_leave_the_model_unfitted(
    estimator, rows, response, bags, sentence
):
    tags = estimator.__sklearn_tags__().input_tags
    if (rows is NAN and tags.allow_nan) or (rows is TEXT and tags.categorical):
        pytest.skip("it takes such rows")
    model = clone(estimator)
    with pytest.raises(ValueError, match=sentence) as caught:
        model.fit(rows, response, bags)
    assert "\n\n" not in str(caught.value)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"rho": -0.1}, r"rho must be in \[0, 1\]; got rho=-0.1\."),
        ({"rho": 1.1}, r"rho must be in \[0, 1\]; got rho=1.1\."),
        ({"rho": float("nan")}, r"rho must be in \[0, 1\]"),
        ({"rho": None}, r"rho must be in \[0, 1\]"),
        (
            {"rho": "lo"},
            r"rho must be in \[0, 1\], 'loo', 'gcv', 'theory' or 'average'; got rho='lo'\.",
        ),
        ({"ridge": -1.0}, "ridge must be at least 0 and finite; got ridge=-1.0"),
        ({"ridge": float("inf")}, "ridge must be at least 0 and finite; got ridge=inf"),
    ],
)
def test_bad_parameters_get_one_sentence(parameters, sentence):
    model = AggregateLinearRegression(**parameters)
    statistics = AggregateStatistics.from_rows(X, Y, B)
    for task in (
        lambda: model.fit(X, Y, B),
        lambda: model.partial_fit(X, Y, B),
        lambda: model.fit_statistics(statistics),
    ):
        with pytest.raises(ValueError, match=sentence):
            task()


def test_a_failed_batch_leaves_what_was_learnt():
    model = AggregateLinearRegression(rho=0.1).partial_fit(X, Y, B)
    before = model.coef_
    with pytest.raises(ValueError, match="y must be constant"):
        model.partial_fit(X, NOT_CONSTANT, B)
    assert model.coef_ is before
    assert model.statistics_.n_rows == 90


def test_one_bag_with_a_given_rho_predicts_its_mean():
    model = AggregateLinearRegression(rho=0.5).fit(X, np.full(90, 2.0), np.zeros(90))
    np.testing.assert_allclose(model.predict(X), 2.0)


def test_a_new_fit_forgets_the_batches_before_it():
    model = AggregateLinearRegression(rho=0.1).partial_fit(X, Y, B)
    model.fit(X, Y, B)
    assert not hasattr(model, "statistics_")
    assert model.partial_fit(X, Y, B).statistics_.n_rows == 90


@each
def test_a_refused_fit_leaves_the_fitted_model_whole(estimator):
    model = at(estimator, 0.1).fit(X, Y, B)
    expected = model.predict(X)
    with pytest.raises(ValueError, match="y must be constant"):
        model.fit(X[:, :2], NOT_CONSTANT, B)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_names_of_columns_go_with_the_statistics():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = AggregateLinearRegression(rho=0.1).partial_fit(frame, Y, B)
    assert model.statistics_.feature_names == ("a", "b", "c")
    model.fit_statistics(AggregateStatistics.from_rows(X, Y, B))
    assert not hasattr(model, "feature_names_in_")


def test_without_bags_the_index_of_a_series_means_nothing():
    y = pd.Series(X[:, 0]).sample(frac=1, random_state=0)
    rows = X[y.index]
    model = AggregateLinearRegression(rho=0.1).fit(rows, y)
    assert model.score(rows, y) == pytest.approx(1.0)
    assert AggregateStatistics.from_rows(rows, y).n_bags == 90


def test_fit_intercept_is_true_or_false():
    with pytest.raises(ValueError, match=r"fit_intercept must be True or False; got .*'no'"):
        AggregateLinearRegression(fit_intercept="no").fit(X, Y, B)
