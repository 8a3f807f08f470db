"""The report of a model: standard errors, importances, calibration, forecast, and the page."""

import json
import re
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import (
    AggregateBoostingRegressor,
    AggregateClassifier,
    AggregateLinearRegression,
    AggregateLogisticRegression,
    AggregateMLPRegressor,
    AggregatePoissonRegressor,
    AggregateRegressor,
    Bags,
    BagTable,
    Release,
    row_risk,
    theory,
)
from bagwise.estimators.models import load_model
from bagwise.estimators.tuning import RHOS
from bagwise.inspection.bag_fit import BagFit, bag_fit
from bagwise.inspection.calibration import calibration, row_error, standardised
from bagwise.inspection.findings import look
from bagwise.inspection.forecast import forecast
from bagwise.inspection.importance import importances
from bagwise.inspection.uncertainty import coefficients
from bagwise.release import release
from bagwise.reports.model_report import report
from bagwise.reports.page import number, with_error
from tests.test_architecture import reachable, room

matplotlib.use("Agg")
HOSTILE = "<script>alert(1)</script>"


def table_of(path, X, y, bags):
    """A table in a file, with the mean of its bag in each row."""
    columns = {f"x{j}": x for j, x in enumerate(X.T)}
    pq.write_table(pa.table({**columns, "y": bags.expand(bags.mean(y)), "bag": bags.codes}), path)
    return BagTable(path, "y", "bag")


def draw(kind, seed, n=1200, size=8):
    """Rows of a model of a kind, with noise that differs from row to row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 3
    eta = (X - 3) @ [0.8, -0.4]
    if kind == "exact":
        y = eta
    elif kind == "linear":
        y = eta + rng.normal(size=n) * (0.5 + np.abs(X[:, 0] - 3))
    elif kind == "poisson":
        y = rng.poisson(np.exp(eta / 2)).astype(float)
    else:
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    # Sizes differ, so that weights and leverages do.
    bags = Bags(np.minimum(rng.permutation(n) // size, n // size - 5 - rng.integers(0, 3)))
    return X, y, bags


# Standard errors


@pytest.mark.parametrize(("kind", "rho"), [("linear", 0.0), ("linear", 0.2), ("exact", 0.5)])
def test_linear_standard_errors_are_those_of_many_draws(tmp_path, kind, rho):
    """120 draws: their spread has a standard error of 6.5 %, so alpha is about 2e-3."""
    # In bags of two without noise, half of what varies is how rows lie within bags.
    sizes, found = 2 if kind == "exact" else 8, []
    for seed in range(120):
        table = table_of(tmp_path / "rows.parquet", *draw(kind, seed, size=sizes))
        found.append(coefficients(AggregateLinearRegression(rho=rho).fit(table), table))
    values = np.array([f.values for f in found])
    errors = np.array([f.errors for f in found])
    ratio = errors.mean(axis=0) / values.std(axis=0)
    assert ((ratio > 0.75) & (ratio < 1.3)).all(), ratio
    if rho == 0:
        covered = np.abs(values - [0.8, -0.4]) < 1.96 * errors
        # Binomial: fewer than 104 of 120 has probability below 1e-3 at 95 %.
        assert covered.sum(axis=0).min() >= 104


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("logistic", AggregateLogisticRegression(rho=0.1, ridge=1.0)),
        ("logistic", AggregateLogisticRegression(rho=0.0, ridge=1.0, likelihood="mean")),
        ("poisson", AggregatePoissonRegressor(rho=0.0, ridge=1.0)),
    ],
)
def test_generalised_standard_errors_are_those_of_many_draws(tmp_path, kind, model):
    """40 draws: their spread has a standard error of 11 %."""
    found = []
    for seed in range(40):
        table = table_of(tmp_path / "rows.parquet", *draw(kind, seed))
        found.append(coefficients(model.fit(table), table))
    assert not any(f.why for f in found)
    spread = np.array([f.values for f in found]).std(axis=0)
    ratio = np.array([f.errors for f in found]).mean(axis=0) / spread
    assert ((ratio > 0.65) & (ratio < 1.45)).all(), ratio


def test_noise_of_a_release_widens_standard_errors(tmp_path):
    """Of a release with noise of every size, against fits to its own rows drawn again."""
    rng = np.random.default_rng(0)
    X, y, bags = draw("linear", 0)
    rows = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y, "bag": bags.codes})
    options = {"response": "y", "bags": "bag", "bounds": (-9, 9), "ledger": None}
    errors = []
    for i, epsilon in enumerate((np.inf, 4.0)):
        made = release(rows, epsilon=epsilon, out=tmp_path / str(i), **options)
        fitted = AggregateLinearRegression(rho=0.0).fit(made)
        errors.append(coefficients(fitted, made).errors)
    again = []
    noise = made.bags["noise_scale"].to_numpy()
    means = np.array([y[bags.codes == b].mean() for b in made.bags["bag"].to_pylist()])
    features = rows[["x0", "x1"]].to_numpy()
    weights = {b: s for b, s in zip(made.bags["bag"].to_pylist(), noise, strict=True)}
    for _ in range(60):
        noisy = means + rng.laplace(scale=noise)
        told = dict(zip(made.bags["bag"].to_pylist(), noisy, strict=True))
        model = AggregateLinearRegression(rho=0.0)
        again.append(model.fit(features, told, bags.codes, noise_scale=weights).coef_)
    # Bags and rows are the same in all of these: only noise is drawn again.
    added = np.std(again, axis=0)
    assert (errors[1] > 1.2 * errors[0]).all()
    assert (errors[1] > 0.8 * added).all()


def test_left_out_bags_are_those_of_leave_one_bag_out(tmp_path):
    X, y, bags = draw("linear", 3)
    for rho in (0.0, 1.0):
        table = table_of(tmp_path / "rows.parquet", X, y, bags)
        found = coefficients(AggregateLinearRegression(rho=rho).fit(table), table)
        path = AggregateLinearRegression(rho="loo").fit(X, bags.expand(bags.mean(y)), bags).path_
        score = (table.sizes * (table.means - found.left_out) ** 2).mean()
        assert score == pytest.approx(float(np.interp(rho, path.rhos, path.scores)), rel=1e-8)


def test_left_out_bags_weigh_by_what_their_noise_leaves(tmp_path):
    """Of a noisy release of very unequal bags, against leave-one-bag-out of the same rows."""
    table = rows(900).assign(bag=np.repeat(np.arange(60), np.tile([2, 28], 30)))
    made = release(table[["u", "v", "y", "bag"]], response="y", bags="bag", epsilon=2.0,
                   bounds=(-9, 9), ledger=None, out=tmp_path / "out")  # fmt: skip
    # One of the path's own, so that nothing lies between.
    rho = float(RHOS[70])
    model = AggregateLinearRegression(rho=rho).fit(made)
    assert model.bag_weights_.max() > 2 * model.bag_weights_.min()
    found = coefficients(model, made)
    X, y, bags = made.training_set(["u", "v"])
    scales = dict(zip(made.bags["bag"].to_pylist(), made.bags["noise_scale"].to_pylist(), strict=1))
    path = AggregateLinearRegression().fit(X.to_pandas(), y, bags, noise_scale=scales).path_
    squares = (made.means - found.left_out) ** 2
    score = (made.sizes * model.bag_weights_ * squares).mean()
    assert score == pytest.approx(path.scores[70], rel=1e-9)


def test_units_of_features_and_of_the_response_pass_through(tmp_path):
    X, y, bags = draw("linear", 1)
    one = table_of(tmp_path / "a.parquet", X, y, bags)
    other = table_of(tmp_path / "b.parquet", X * [1e3, 1e-2] + 50, 7 * y - 4, bags)
    model = AggregateLinearRegression(rho=0.1)
    first, second = (coefficients(model.fit(table), table) for table in (one, other))
    np.testing.assert_allclose(second.errors * [1e3, 1e-2] / 7, first.errors, rtol=1e-6)


def test_sums_alone_give_standard_errors_too(tmp_path):
    X, y, _ = draw("linear", 2, n=4000)
    rows = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": (X - 3) @ [1, 1] + y % 1})
    made = [
        release(rows, response="y", bag_size=10, epsilon=np.inf, bounds=(-50, 50), ledger=None,
                features=kind, out=tmp_path / kind)
        for kind in ("statistics", "means")
    ]  # fmt: skip
    for one in made:
        found = coefficients(AggregateLinearRegression(rho=0.0).fit(one), one)
        assert not found.why
        assert (np.abs(found.values - 1) < 4 * found.errors).all()
        assert (found.errors < 0.2).all()


@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_a_model_of_other_bags_gets_no_standard_errors(tmp_path, kind):
    X, y, bags = draw(kind, 1, n=8000)
    table = table_of(tmp_path / "rows.parquet", X, y, bags)
    other = table_of(tmp_path / "other.parquet", -X, y, bags)
    model = AggregateLinearRegression() if kind == "linear" else AggregatePoissonRegressor()
    found = coefficients(model.fit(table), other)
    assert "not the optimum of its loss on these bags" in found.why
    assert np.isnan(found.errors).all()


def test_too_few_bags_are_told(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)), rng.normal(size=30)
    table = table_of(tmp_path / "rows.parquet", X, y, Bags(np.arange(30) // 6))
    found = coefficients(AggregateLinearRegression(rho=0.0).fit(table), table)
    assert "too few" in found.why


# Importances, calibration, forecast


def test_importance_is_of_what_the_model_uses(tmp_path):
    rng = np.random.default_rng(0)
    n = 6000
    town = rng.choice(["a", "b", "c"], n)
    x = rng.normal(size=(n, 2))
    y = 2 * x[:, 0] + 3 * (town == "a") + rng.normal(size=n)
    bags = Bags.random(n, 6, random_state=0)
    columns = {"used": x[:, 0], "idle": x[:, 1], "town": town}
    rows = pa.table({**columns, "y": bags.expand(bags.mean(y)), "bag": bags.codes})
    pq.write_table(rows, tmp_path / "rows.parquet")
    table = BagTable(tmp_path / "rows.parquet", "y", "bag")
    model = AggregateLinearRegression(rho=0.0).fit(table)
    found = importances(model, table)
    value = dict(zip(found.names, found.values, strict=True))
    error = dict(zip(found.names, found.errors, strict=True))
    assert found.names == ("used", "town", "idle")
    # Variances of 4, 2 and 0 of 7 in all, and a dealt-out column adds its own once more.
    assert abs(value["used"] - 8 / 7) < 5 * error["used"] + 0.05
    assert abs(value["town"] - 4 / 7) < 5 * error["town"] + 0.05
    assert abs(value["idle"]) < 5 * error["idle"] + 0.01


def test_calibration_is_flat_for_true_means_and_steep_for_shrunken_ones():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    sizes = rng.integers(5, 15, 2000)
    means = truth + rng.normal(size=2000) / np.sqrt(sizes)
    fit = BagFit(sizes, means, truth, np.zeros(2000))
    found = calibration(fit)
    assert abs(found.slope - 1) < 4 * found.slope_error < 0.1
    # Ten intervals of 95 %: four or more misses have probability 1e-3.
    assert (np.abs(found.observed - found.predicted) > found.half).sum() < 4
    assert found.n_bags.sum() == 2000
    shrunken = calibration(BagFit(sizes, means, truth / 2, np.zeros(2000)))
    assert abs(shrunken.slope - 2) < 4 * shrunken.slope_error
    z = standardised(fit, row_error(fit))
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.05, abs=0.02)


def test_the_error_of_a_row_is_that_of_row_risk_and_leaves_noise_out():
    rng = np.random.default_rng(0)
    sizes, noise = np.full(3000, 8), np.full(3000, 0.5)
    clean = rng.normal(size=3000) / np.sqrt(8)
    means = clean + rng.laplace(scale=0.5, size=3000)
    fit = BagFit(sizes, means, np.zeros(3000), noise)
    found = row_error(fit)
    of_row = np.repeat(np.arange(3000), 8)
    other = row_risk(means[of_row], np.zeros(24_000), of_row, noise_scale=0.5)
    assert (found.square, found.standard_error) == (other.value, other.standard_error)
    assert abs(found.square - 1) < 4 * found.standard_error
    assert found.root_error == pytest.approx(found.standard_error / (2 * found.root))


def test_the_forecast_is_the_theory_with_privacy_told_apart(tmp_path):
    X, y, bags = draw("linear", 0)
    sums = table_of(tmp_path / "rows.parquet", X, y, bags).statistics()
    plain, noisy = forecast(sums), forecast(sums, added=0.5)
    k, psi = sums.n_rows / sums.n_bags, (sums.n_rows - 1) / 2
    expected = theory.risk(plain.rhos, k, psi, plain.snr.signal, plain.snr.noise)
    np.testing.assert_allclose(plain.risk, expected)
    np.testing.assert_allclose(noisy.risk, expected)
    assert not plain.privacy.any()
    share = noisy.privacy / (noisy.privacy + noisy.sampling)
    np.testing.assert_allclose(share, 0.5 / noisy.snr.noise**2)
    assert noisy.row_noise**2 == pytest.approx(plain.row_noise**2 - 0.5)
    assert plain.at(plain.best_rho) == pytest.approx(plain.risk.min())


# The page


class Page(HTMLParser):
    """Tags, addresses and text of a page, every tag closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.addresses, self.text, self.open, self.ids = set(), [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        self.ids += [v for k, v in attrs if k == "id"]
        assert not [k for k, _ in attrs if k.startswith("on")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def read(html):
    """A page that needs nothing from elsewhere, runs nothing and is well formed."""
    page = Page(html)
    assert not page.tags & {"script", "iframe", "link", "object", "embed", "img", "form"}
    assert all(a.startswith(("#", "data:image/png;base64,")) for a in page.addresses)
    assert len(set(page.ids)) == len(page.ids), "ids are of the whole page"
    outside = set(re.findall(r"https?://[^\s\"'<]+", html))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "url(http" not in html
    assert "@import" not in html
    assert len(html) < 1_000_000
    return page, " ".join(" ".join(page.text).split())


def rows(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    town = rng.choice(["a", "b", "c"], n)
    y = np.clip(x @ [1.0, -0.5] + (town == "a") + rng.normal(size=n), -9, 9)
    return pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "town": town, "y": y})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    options = {"response": "y", "bag_size": 5, "ledger": None}
    real = {"epsilon": 20.0, "bounds": (-9, 9), **options}
    release(rows(), out=folder / "rows", **real)
    release(rows()[["u", "v", "y"]], out=folder / "means", features="means", **real)
    release(rows()[["u", "v", "y"]], out=folder / "statistics", features="statistics", **real)
    shares = rows().assign(y=lambda r: (r["y"] > 0).astype(float))
    release(shares, out=folder / "shares", epsilon=5.0, bounds=(0, 1), **options)
    bags = Bags.random(1500, 5, random_state=0)
    plain = rows().assign(y=lambda r: bags.expand(bags.mean(r["y"])), bag=bags.codes)
    plain.to_parquet(folder / "table.parquet", index=False)
    return folder


QUICK = {"rho": "cv", "random_state": 0}
KINDS = {
    "linear": (AggregateLinearRegression(rho="gcv"), "rows"),
    "given": (AggregateLinearRegression(rho=0.0), "rows"),
    "average": (AggregateLinearRegression(rho="average"), "rows"),
    "means": (AggregateLinearRegression(rho="gcv"), "means"),
    "statistics": (AggregateLinearRegression(rho="gcv"), "statistics"),
    "logistic": (AggregateLogisticRegression(), "shares"),
    "calibrated": (AggregateLogisticRegression(rho=0.3, ridge=9.0, calibrate="bags"), "shares"),
    "poisson": (AggregatePoissonRegressor(), "shares"),
    "mlp": (AggregateMLPRegressor(epochs=2, device="cpu", **QUICK), "rows"),
    "boosting": (AggregateBoostingRegressor(n_estimators=5, n_jobs=1, **QUICK), "rows"),
    "auto": (AggregateRegressor(models=["linear", "boosted"], random_state=0, n_jobs=1), "rows"),
    "auto-classifier": (AggregateClassifier(models=["linear"], random_state=0), "shares"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_every_kind_have_a_report_after_a_save(place, kind, tmp_path):
    model, data = KINDS[kind]
    made = Release.load(place / data)
    model.fit(made).save(tmp_path / "model")
    found = report(load_model(tmp_path / "model"), made)
    page, text = read(found.html)
    json.dumps(found.numbers, allow_nan=False)
    assert page.tags >= {"svg", "figure", "figcaption", "table"}
    assert "Label-private with epsilon" in text
    assert "bagwise release TABLE --response y --bag-size 5" in text
    assert "Bags look random" in text or kind == "means"
    n = found.numbers
    assert (n["coefficients"] is None) == (kind in ("mlp", "boosting", "auto", "auto-classifier"))
    assert (n["importances"] is None) == (n["coefficients"] is not None)
    assert (n["calibration"] is None) == (kind == "statistics")
    linear = kind in ("linear", "given", "average", "statistics")
    assert (n["forecast"] is not None) == linear
    # What is not there is told.
    assert linear or "Bias and variance, forecast" in n["left_out"]
    for name, reason in n["left_out"].items():
        assert name in text
        assert reason.endswith((".", ")"))
    assert "nan" not in text.lower().split()


def test_the_numbers_are_those_of_the_parts(place):
    made = Release.load(place / "rows")
    model = AggregateLinearRegression(rho="gcv").fit(made)
    found, said = look(model, made), report(model, made).numbers
    assert said["coefficients"]["values"] == model.coef_.tolist()
    assert said["coefficients"]["errors"] == found.coefficients.errors.tolist()
    assert said["row_rmse"] == found.error.root
    assert said["rho"] == model.rho_
    assert said["n_rows"] == 1500
    assert said["statement"]["epsilon"] == 20
    X, y, ids = made.training_set()
    bags = Bags(ids)
    fit = bag_fit(model, made)
    np.testing.assert_allclose(np.repeat(fit.means, fit.sizes), y)
    np.testing.assert_allclose(fit.fitted, bags.mean(model.predict(X)), rtol=1e-9)
    # σ² = 1 here, and a little of what the model cannot tell.
    assert abs(found.error.square - 1) < 4 * found.error.standard_error


def test_plain_means_are_told_to_promise_nothing_and_name_no_bag(place, tmp_path):
    table = BagTable(place / "table.parquet", "y", "bag")
    found = report(AggregateLinearRegression().fit(table), table, data_name="table.parquet")
    _, text = read(found.html)
    assert "Nothing was promised" in text
    assert "Bags to look at" not in text
    assert "bagwise fit table.parquet --response y --bags bag --out model" in text
    plain = release(rows(), response="y", bag_size=5, epsilon=np.inf, bounds=(-9, 9), ledger=None,
                    out=tmp_path / "plain")  # fmt: skip
    assert (
        "Bags to look at" not in report(AggregateLinearRegression(rho=0.0).fit(plain), plain).html
    )
    noisy = Release.load(place / "rows")
    assert "Bags to look at" in report(AggregateLinearRegression(rho="gcv").fit(noisy), noisy).html


def test_bags_of_nature_have_no_forecast_and_no_error_of_a_row(tmp_path):
    table = rows().assign(town=lambda r: pd.qcut(r["u"], 60, labels=False).astype(str))
    made = release(table, response="y", bags="town", epsilon=50.0, bounds=(-9, 9), ledger=None,
                   out=tmp_path / "out")  # fmt: skip
    found = report(AggregateLinearRegression(rho="gcv").fit(made), made)
    _, text = read(found.html)
    assert "these are not" in found.numbers["left_out"]["Bias and variance, forecast"]
    assert "bags are not random" in text


def test_what_comes_from_data_is_text_and_nothing_else(tmp_path):
    """Names of columns, levels, bags and the response that would be a script, a tag, or TeX."""
    table = rows().rename(columns={"u": HOSTILE, "v": "$x_$1}{ & 'quoted' \"twice\""})
    table["town"] = table["town"].map({"a": "<b>a</b>", "b": "]]>", "c": "-->"})
    table["<i>bag</i>"] = [f"</td><img src=x onerror=alert({i % 100})>" for i in range(len(table))]
    table = table.rename(columns={"y": '"><svg onload=alert(1)>'})
    made = release(table, response='"><svg onload=alert(1)>', bags="<i>bag</i>", epsilon=9.0,
                   bounds=(-9, 9), ledger=None, out=tmp_path / "out")  # fmt: skip
    for model in (
        AggregateLinearRegression(rho="gcv"),
        AggregateBoostingRegressor(rho=0.0, n_estimators=3, n_jobs=1),
    ):
        found = report(model.fit(made), made, model_name="<u>m</u>", data_name="a; rm <b>")
        page, text = read(found.html)
        assert HOSTILE in text
        assert "</td><img src=x" in text
        assert not page.tags & {"b", "i", "u", "img"}
        assert "'a; rm <b>'" in text


@pytest.mark.parametrize("name", ["reports.model_report", "cli.tell"])
def test_a_report_cannot_reach_individual_responses(name):
    assert "release" not in {room(other) for other in reachable(name)}


def test_a_browser_shows_it_offline_and_asks_for_nothing(browser, place, tmp_path):
    made = Release.load(place / "rows")
    report(AggregateLinearRegression(rho="gcv").fit(made), made).save(tmp_path / "report.html")
    asked, complaints = [], []
    for width in (1280, 390):
        view = {"width": width, "height": 900}
        with browser.new_context(viewport=view, offline=True) as context:
            page = context.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: complaints.append(message.text))
            page.goto((tmp_path / "report.html").as_uri())
            assert page.locator("figure svg").count() >= 5
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            tops = page.locator("figure").evaluate_all(
                "all => all.slice(0, 2).map(one => one.getBoundingClientRect().top)"
            )
            assert (tops[0] == tops[1]) == (width == 1280), "two columns, or one"
    assert asked == [(tmp_path / "report.html").as_uri()] * 2
    assert not complaints


def test_numbers_are_short_and_true():
    assert [number(v) for v in (1234567, -0.00012345, 12.345, 0, np.nan, 1e12)] == [
        "1,234,567", "−0.000123", "12.3", "0", "–", "1e+12",
    ]  # fmt: skip
    assert with_error(12.3456, 0.23) == "12.35 ± 0.23"
    assert with_error(1234.5, 56.0) == "1,234 ± 56" or with_error(1234.5, 56.0) == "1,235 ± 56"
    assert with_error(1.0, np.nan) == "1"


# The command


def test_the_command_writes_a_page_and_its_numbers(place, tmp_path, command):
    made = Release.load(place / "rows")
    AggregateLinearRegression(rho="gcv").fit(made).save(tmp_path / "model")
    words = ("report", str(tmp_path / "model"), "--data", str(place / "rows"))
    code, out, err = command(*words, "--out", str(tmp_path / "new" / "report.html"))
    assert (code, err) == (0, "")
    assert "Left out: Residuals by size." in out
    text = read((tmp_path / "new" / "report.html").read_text())[1]
    assert "Model model, data rows, response y" in text
    assert str(tmp_path) not in text
    code, out, _ = command(*words, "--out", str(tmp_path / "other.html"), "--json")
    assert code == 0
    assert json.loads(out)["n_bags"] == made.statement.n_bags
    table = ("--data", str(place / "table.parquet"), "--response", "y", "--bags", "bag")
    fit = ("fit", table[1], *table[2:], "--model", "poisson", "--rho", "2")
    assert command(*fit, "--out", str(tmp_path / "m2"))[0] == 2
    BagTable(place / "table.parquet", "y", "bag")
    code, out, _ = command("report", words[1], *table, "--out", str(tmp_path / "third.html"))
    assert code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data", "{place}/rows", "--out", "{here}/taken.html"], "a new file"),
        (["--data", "{place}/rows", "--out", "{here}/report.pdf"], "out must be a .html file"),
        (["--data", "{place}/rows", "--out", "r.html", "--response", "y"], "both given"),
        (["--data", "{place}/no", "--out", "{here}/r.html"], "must be a Release folder"),
        (["--data", "{place}/shares", "--data", "x", "--out", "{here}/r.html"], "one Release"),
    ],
)
def test_bad_input_is_one_sentence(place, tmp_path, command, words, sentence):
    AggregateLinearRegression(rho="gcv").fit(place / "rows").save(tmp_path / "model")
    (tmp_path / "taken.html").write_text("mine")
    filled = [word.format(place=place, here=tmp_path) for word in words]
    code, _, err = command("report", str(tmp_path / "model"), *filled)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert (tmp_path / "taken.html").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "taken.html"]
