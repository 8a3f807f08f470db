"""Risk of single rows: unbiased over every partition, honest in its errors, usable as a scorer."""

import itertools

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate

from bagwise import (
    AggregateLinearRegression,
    Bags,
    bag_loss,
    row_risk,
    row_risk_difference,
    row_scorer,
)

LOSSES = ("squared", "log", "poisson", "zero-one")
each_loss = pytest.mark.parametrize("loss", LOSSES)


def of_rows(loss, y, f):
    """Loss of each row, written out once more; Poisson's without its y log y."""
    return {
        "squared": lambda: (y - f) ** 2,
        "log": lambda: -y * np.log(f) - (1 - y) * np.log(1 - f),
        "poisson": lambda: f - y - y * np.log(f),
        "zero-one": lambda: (y != (f > 0.5)).astype(float),
    }[loss]()


def draw(loss, n, rng):
    """Responses and two sets of predictions, one better than the other."""
    x = rng.normal(size=n)
    rate = 1 / (1 + np.exp(-x))
    if loss == "squared":
        return x + rng.normal(size=n), 0.9 * x + 0.1, 0.6 * x
    if loss == "poisson":
        return rng.poisson(np.exp(x / 2)) * 1.0, np.exp(0.6 * x), np.exp(0.2 * x + 0.1)
    return (rng.random(n) < rate) * 1.0, rate, 1 / (1 + np.exp(0.3 - 0.4 * x))


def partitions(sizes):
    """Every assignment of rows to bags of these sizes, as codes."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return set(itertools.permutations(codes.tolist()))


@each_loss
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 2, 3), (1, 4), (1, 1, 1, 2)])
def test_the_mean_over_all_partitions_is_the_mean_loss_of_rows(loss, sizes):
    """Exactly, whatever the table and the sizes; the bag-level loss is far from it."""
    y, first, second = draw(loss, sum(sizes), np.random.default_rng(3))
    found, differences = [], []
    for codes in partitions(sizes):
        bags = Bags(codes)
        means = bags.expand(bags.mean(y))
        found.append(row_risk(means, first, bags, loss))
        differences.append(row_risk_difference(means, first, second, bags, loss).value)
    truth = of_rows(loss, y, first).mean()
    assert np.mean([risk.value for risk in found]) == pytest.approx(truth, rel=1e-12)
    if loss == "squared":
        assert np.mean([risk.bag_level for risk in found]) < 0.9 * truth
    gap = truth - of_rows(loss, y, second).mean()
    assert np.mean(differences) == pytest.approx(gap, rel=1e-11)


def test_the_same_holds_for_log_loss_of_classes():
    rng = np.random.default_rng(0)
    y, f = np.eye(3)[[0, 2, 1, 1, 0]], rng.dirichlet(np.ones(3), size=5)
    other = rng.dirichlet(np.ones(3), size=5)
    values, gaps = [], []
    for codes in partitions((2, 3)):
        bags = Bags(codes)
        means = bags.expand(bags.mean(y))
        values.append(row_risk(means, f, bags, "log").value)
        gaps.append(row_risk_difference(means, f, other, bags, "log").value)
    truth = log_loss(y, f)
    assert np.mean(values) == pytest.approx(truth)
    assert np.mean(gaps) == pytest.approx(truth - log_loss(y, other))


def test_two_classes_are_log_loss():
    y, f, g = draw("log", 60, np.random.default_rng(4))
    bags = Bags.random(60, 6, random_state=0)
    means = bags.expand(bags.mean(y))

    def both(p):
        return np.column_stack([1 - p, p])

    one = row_risk(means, f, bags, "log"), row_risk_difference(means, f, g, bags, "log")
    two = row_risk(both(means), both(f), bags, "log")
    assert (two.value, two.standard_error, two.bag_level) == pytest.approx(
        (one[0].value, one[0].standard_error, one[0].bag_level)
    )
    gap = row_risk_difference(both(means), both(f), both(g), bags, "log")
    assert gap.value == pytest.approx(one[1].value)


@each_loss
def test_bags_of_one_give_the_mean_loss_and_its_usual_error(loss):
    y, f, other = draw(loss, 40, np.random.default_rng(1))
    for bags in (None, np.arange(40)):
        risk = row_risk(y, f, bags, loss)
        losses = of_rows(loss, y, f)
        assert risk.value == pytest.approx(losses.mean(), rel=1e-13)
        assert risk.bag_level == pytest.approx(losses.mean())
        assert risk.standard_error == pytest.approx(losses.std(ddof=1) / np.sqrt(40))
        gap = row_risk_difference(y, f, other, bags, loss)
        apart = losses - of_rows(loss, y, other)
        assert gap.value == pytest.approx(apart.mean())
        assert gap.standard_error == pytest.approx(apart.std(ddof=1) / np.sqrt(40))


def test_bags_of_one_agree_with_scikit_learn():
    y, f, _ = draw("log", 40, np.random.default_rng(1))
    assert row_risk(y, f, None, "log").value == pytest.approx(log_loss(y, f))
    assert row_risk(y, f, None).value == pytest.approx(mean_squared_error(y, f))


@pytest.mark.parametrize("loss", ["squared", "log", "poisson"])
def test_the_bag_level_loss_beside_it_is_that_of_losses(loss):
    y, f, _ = draw(loss, 30, np.random.default_rng(1))
    bags = Bags.random(30, 4, random_state=0)
    means = bags.mean(y)
    beside = row_risk(bags.expand(means), f, bags, loss).bag_level
    constant = 0.0
    if loss == "poisson":
        constant = bags.sizes @ (means * np.log(np.where(means > 0, means, 1))) / 30
    assert beside + constant == pytest.approx(float(bag_loss(means, f, bags, loss)))


def test_noise_of_the_means_is_taken_out_of_squared_loss():
    """Over all signs of noise of the right variance, and over all partitions: no error is left."""
    y, f, g = draw("squared", 5, np.random.default_rng(2))
    scales = np.array([0.3, 1.0, 2.0])
    corrected, raw, gaps = [], [], []
    for codes in partitions((1, 2, 2)):
        bags = Bags(codes)
        by_code = dict(enumerate(scales))
        for signs in itertools.product([-1, 1], repeat=3):
            shift = np.array(signs) * np.sqrt(2) * scales  # a Laplace variable has variance 2b²
            means = bags.expand(bags.mean(y)) + shift[np.array(codes)]
            corrected.append(row_risk(means, f, bags, noise_scale=by_code).value)
            raw.append(row_risk(means, f, bags).value)
            gaps.append(row_risk_difference(means, f, g, bags).value)
    truth = of_rows("squared", y, f).mean()
    assert np.mean(corrected) == pytest.approx(truth)
    assert np.mean(raw) > truth + 1
    assert np.mean(gaps) == pytest.approx(truth - of_rows("squared", y, g).mean())


def test_noise_changes_no_other_loss_and_a_number_is_one_for_all():
    rng = np.random.default_rng(2)
    bags = Bags.random(50, 5, random_state=0)
    for loss in LOSSES:
        y, f, _ = draw(loss, 50, rng)
        means = bags.expand(bags.mean(y)) + 0.1
        without, given = row_risk(means, f, bags, loss), row_risk(means, f, bags, loss, 0.5)
        every = row_risk(means, f, bags, loss, np.full(50, 0.5))
        assert given == every
        assert (given == without) == (loss != "squared")


@each_loss
def test_the_error_is_that_of_leaving_out_one_bag_at_a_time(loss):
    """By fitting each time anew, with unequal bags and noise."""
    y, f, other = draw(loss, 30, np.random.default_rng(5))
    codes = np.repeat(np.arange(6), [1, 3, 4, 6, 7, 9])
    means = Bags(codes).expand(Bags(codes).mean(y))
    scale = 0.1 + 0.1 * codes

    def left_out(estimate):
        kept = [codes != a for a in range(6)]
        values = np.array([estimate(k).value for k in kept])
        return np.sqrt(5 / 6 * ((values - values.mean()) ** 2).sum())

    risk = row_risk(means, f, codes, loss, scale)
    again = left_out(lambda k: row_risk(means[k], f[k], codes[k], loss, scale[k]))
    assert risk.standard_error == pytest.approx(again)
    gap = row_risk_difference(means, f, other, codes, loss)
    again = left_out(lambda k: row_risk_difference(means[k], f[k], other[k], codes[k], loss))
    assert gap.standard_error == pytest.approx(again)


@each_loss
def test_intervals_cover_the_risk_of_new_rows(loss):
    """400 tables of 60 bags: 95 % intervals hold .95, and .92 for squared loss, which is skewed. Of
    400, chance takes a true .95 out of the band once in a thousand, and errors 30 % too small or
    too large (coverage .83 and .99) nearly always.
    """
    rng = np.random.default_rng(0)
    y, first, second = draw(loss, 400_000, rng)
    truth = of_rows(loss, y, first).mean()
    gap = truth - of_rows(loss, y, second).mean()
    inside, inside_gap = [], []
    for _ in range(400):
        y, first, second = draw(loss, 600, rng)
        bags = Bags(rng.permutation(600) // 10)
        means = bags.expand(bags.mean(y))
        for found, target, hits in (
            (row_risk(means, first, bags, loss), truth, inside),
            (row_risk_difference(means, first, second, bags, loss), gap, inside_gap),
        ):
            hits.append(abs(found.value - target) < 1.96 * found.standard_error)
    for hits in (inside, inside_gap):
        assert 0.89 <= np.mean(hits) <= 0.982


def spread(estimates):
    return np.std(np.array(estimates), axis=0)


def test_residuals_vary_less_than_responses_and_these_less_than_uncentred_ones():
    """Three unbiased estimates of the mean log loss at one table with rare ones: ours, EasyLLP's
    about the sample's mean, and EasyLLP's about a rate known from elsewhere.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    f = 1 / (1 + np.exp(2.5 - 2.5 * x))
    y = (rng.random(2000) < f) * 1.0
    slope = np.log(1 - f) - np.log(f)
    estimates = []
    for _ in range(300):
        bags = Bags(rng.permutation(2000) // 20)
        means, slopes = bags.mean(y), bags.mean(slope)

        def about(rate, means=means, slopes=slopes):
            fixed = -np.log(1 - f).mean() + rate * slope.mean()
            return fixed + 20 * ((means - rate) * slopes).mean()

        ours = row_risk(bags.expand(means), f, bags, "log").value
        # Rows of other tables: the rate of these is known to an error of 1.5 %.
        estimates.append([ours, about(y.mean()), about(y.mean() + 0.015 * rng.choice([-1, 1]))])
    ours, centred, uncentred = spread(estimates)
    assert ours < 0.75 * centred
    assert centred < 0.75 * uncentred


@pytest.mark.parametrize("loss", LOSSES)
def test_a_difference_is_surer_than_either_risk(loss):
    y, f, _ = draw(loss, 2000, np.random.default_rng(0))
    near = np.clip(0.95 * f + 0.02, None, None if loss in ("squared", "poisson") else 0.99)
    bags = Bags.random(2000, 10, random_state=0)
    means = bags.expand(bags.mean(y))
    gap = row_risk_difference(means, f, near, bags, loss)
    assert gap.standard_error < 0.5 * row_risk(means, f, bags, loss).standard_error
    assert "first minus second" in str(gap)
    back = row_risk_difference(means, near, f, bags, loss)
    assert (back.value, back.bag_level) == pytest.approx((-gap.value, -gap.bag_level))
    assert row_risk_difference(means, f, f, bags, loss).value == 0


def test_for_squared_loss_the_difference_is_that_of_the_values():
    y, f, g = draw("squared", 100, np.random.default_rng(0))
    bags = Bags.random(100, 7, random_state=0)
    means = bags.expand(bags.mean(y))
    apart = row_risk(means, f, bags).value - row_risk(means, g, bags).value
    assert row_risk_difference(means, f, g, bags).value == pytest.approx(apart)


@each_loss
def test_order_and_names_of_bags_and_form_of_y_change_nothing(loss):
    y, f, _ = draw(loss, 40, np.random.default_rng(7))
    bags = Bags(np.random.default_rng(0).integers(6, size=40))
    means = bags.mean(y)
    before = row_risk(bags.expand(means), f, bags, loss)
    order = np.random.default_rng(1).permutation(40)
    names = np.array([f"bag {i}" for i in bags.ids])
    by_name = pd.Series(means, index=names)
    for form in (by_name, by_name.to_dict()):
        after = row_risk(form, f[order], names[bags.codes[order]], loss)
        assert after.value == pytest.approx(before.value)
        assert after.standard_error == pytest.approx(before.standard_error)


def test_an_offset_of_responses_costs_no_digits():
    y, f, _ = draw("squared", 60, np.random.default_rng(7))
    bags = Bags.random(60, 5, random_state=0)
    means = bags.expand(bags.mean(y))
    here, far = row_risk(means, f, bags), row_risk(means + 1e6, f + 1e6, bags)
    assert far.value == pytest.approx(here.value, rel=1e-8)
    wrong = row_risk(means + 1e6, f, bags)
    assert wrong.value == pytest.approx(1e12, rel=1e-5)


def test_bags_that_are_not_random_give_a_wrong_value():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    y, f = x + rng.normal(size=4000), 0.5 * x
    truth = of_rows("squared", y, f).mean()
    for codes, wrong in (
        (rng.permutation(4000) // 20, False),
        (np.argsort(np.argsort(x)) // 20, True),
    ):
        bags = Bags(codes)
        found = row_risk(bags.expand(bags.mean(y)), f, bags)
        assert (abs(found.value - truth) > 4 * found.standard_error) == wrong


def picks(y, better, worse, loss, rng, bag_size):
    """Which of two scores sees, from 100 random bags, that the first predictions are better."""
    bags = Bags(rng.permutation(len(y)) // bag_size)
    found = row_risk_difference(bags.expand(bags.mean(y)), better, worse, bags, loss)
    return [found.value < 0, found.bag_level < 0]


def test_the_bag_level_score_prefers_right_shares_of_wrong_rows():
    """Half of the docs' table: 0-1 loss, 100 bags of 50. Row risk was right .98 of 400 times, and
    the bag-level score never; thresholds leave both with less than 1e-3 of failing by chance.
    """
    rng = np.random.default_rng(0)
    right = []
    for _ in range(40):
        x, noise = rng.normal(size=(2, 5000))
        y = (rng.random(5000) < 1 / (1 + np.exp(-1.5 * x))) * 1.0
        leaning, noisy = (1 / (1 + np.exp(-z)) for z in (x + 0.25, x - 1.5 * noise))
        right.append(picks(y, leaning, noisy, "zero-one", rng, 50))
    at_rows, at_bags = np.mean(right, axis=0)
    assert at_rows > 0.85
    assert at_bags < 0.15


def test_the_bag_level_score_weighs_an_offset_as_often_as_a_bag_has_rows():
    """An offset of .3 costs less than a slope of .6; bags of 10 hold it against the offset."""
    rng = np.random.default_rng(0)
    right = []
    for _ in range(60):
        x = rng.normal(size=1000)
        right.append(picks(x + rng.normal(size=1000), x + 0.3, 0.6 * x, "squared", rng, 10))
    at_rows, at_bags = np.mean(right, axis=0)
    assert at_rows > 0.65
    assert at_bags < 0.1


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 60))
    y = X[:, 0] + rng.normal(size=2000)
    bags = Bags(rng.permutation(2000) // 20)
    return X, y, bags.expand(bags.mean(y)), bags.codes


@pytest.mark.usefixtures("routing")
def test_the_scorer_is_routed_its_bags_by_cross_validation_and_searches():
    X, y, means, codes = table()
    model = AggregateLinearRegression().set_fit_request(bags=True)
    given = {"bags": codes, "groups": codes}
    found = cross_validate(
        model, X, means, cv=GroupKFold(4), params=given, scoring=row_scorer(), return_estimator=True
    )
    folds = list(GroupKFold(4).split(X, means, codes))
    for score, fitted, (_, new) in zip(found["test_score"], found["estimator"], folds, strict=True):
        risk = row_risk(means[new], fitted.predict(X[new]), codes[new])
        assert score == -risk.value
        truth = mean_squared_error(y[new], fitted.predict(X[new]))
        assert abs(risk.value - truth) < 4 * risk.standard_error
    rhos = [0.0, 0.1, 1.0]
    several = {"rows": row_scorer("squared"), "bags": "r2"}
    search = GridSearchCV(model, {"rho": rhos}, scoring=several, refit="rows", cv=GroupKFold(4))
    search.fit(X, means, **given)
    errors = [
        mean_squared_error(y, AggregateLinearRegression(rho=r).fit(X, means, codes).predict(X))
        for r in rhos
    ]
    assert search.best_params_ == {"rho": rhos[np.argmin(errors)]}


def test_classifiers_are_asked_for_probabilities():
    X, y, _, codes = table()
    labels = (y > 0).astype(int)
    model = LogisticRegression().fit(X, labels)
    shares = Bags(codes).expand(Bags(codes).mean(labels))
    chances = model.predict_proba(X)
    for loss in ("log", "zero-one", "squared"):
        score = row_scorer(loss)(model, X, shares, bags=codes)
        assert score == -row_risk(shares, chances[:, 1], codes, loss).value
    both = np.column_stack([1 - shares, shares])
    score = row_scorer("log")(model, X, both, bags=codes)
    assert score == pytest.approx(row_scorer("log")(model, X, shares, bags=codes))


def test_a_scorer_without_bags_says_how_to_pass_them():
    X, _, means, _ = table()
    with pytest.raises(ValueError, match=r"bags must be one id a row; got none\. Turn on scikit"):
        row_scorer("squared")(LinearRegression().fit(X, means), X, means)
    with pytest.raises(ValueError, match="loss must be one of 'squared', 'log', 'poisson', 'zero"):
        row_scorer("hinge")


def test_the_result_reads_as_a_sentence():
    text = str(row_risk({0: 0.5, 1: 0.2, 2: 0.1}, [0.4, 0.3, 0.2, 0.1], [0, 0, 1, 2], "log"))
    assert text.startswith("Log loss of a row: ")
    assert "± " in text
    assert "from 3 bags, if random.\nLoss of bag means: " in text
    assert np.isnan(row_risk({0: 0.5, 1: 0.2}, [0.4, 0.3, 0.2], [0, 0, 1]).standard_error)


def test_bad_arguments_get_one_sentence():
    means, f, bags = {0: 0.5, 1: 0.2}, np.array([0.4, 0.3, 0.2]), [0, 0, 1]
    for arguments, sentence in (
        ((means, f, bags, "hinge"), "loss must be one of 'squared', 'log', 'poisson', 'zero-one'"),
        ((means, f, [0, 0, 0]), "y must be a mean for bags that have rows"),
        (({0: 0.5}, f, [0, 0, 0]), r"bags must be at least two; got one\. One bag does not tell"),
        ((means, f + 1, bags, "log"), r"predictions must be finite and in \[0, 1\]; got values fr"),
        ((means, -f, bags, "poisson"), r"predictions must be finite and in \[0, inf\]; got values"),
        ((means, f * np.nan, bags), "predictions must be finite; got values from nan to nan"),
        ((means, f[:2], bags), "bags must be one id a row of X; got 3 ids for 2 rows"),
        ((means, f[:, None], bags), r"predictions must be one number a row; got shape \(3, 1\)"),
        ((means, np.ones((3, 2)), bags), r"predictions must be one number a row; got shape \(3, 2"),
        ((f, np.full((3, 2), 0.5), bags, "log"), r"y must be one share a row and class; got shape"),
        ((means, f, bags, "squared", -1.0), "noise_scale must be at least 0 and finite; got -1"),
        ((means, f, bags, "squared", "b"), "noise_scale must be a number; got noise_scale='b'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            row_risk(*arguments)
    shares = np.array([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8]])
    with pytest.raises(ValueError, match=r"y must be one share a row and class; got shape"):
        row_risk_difference(shares, shares, np.full((3, 3), 1 / 3), bags, "log")
