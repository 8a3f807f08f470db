"""From a release to scores: fit, save, predict, evaluate, in Python and from a shell."""

import io
import json
import os
import pickle
import shutil
import types
import zipfile
from contextlib import nullcontext
from dataclasses import asdict, astuple, replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from bagwise import (
    AggregateBoostingRegressor,
    AggregateLinearRegression,
    AggregateMLPClassifier,
    AggregateMLPRegressor,
    AggregateStatistics,
    Bags,
    BagTable,
    Release,
    probability_scores,
    tables,
)
from bagwise._disk import appearing_file
from bagwise.cli.learn import _linear_scores
from bagwise.engines import cluster as write_module
from bagwise.engines.local import Local
from bagwise.estimators.models import load_model
from bagwise.estimators.streaming import evaluate_release, evaluate_table, predict_table
from bagwise.release import release
from bagwise.tables import open_table


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    x[:, 0] += 3
    town = rng.choice(["a", "b", "c"], n)
    y = x @ [1.0, -2.0] + (town == "a") * 3.0 + rng.normal(size=n)
    return pd.DataFrame({"u": x[:, 0], "v": x[:, 1].astype("f4"), "town": town, "y": y})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A release of several row groups, its table on disk, and a model of it."""
    folder = tmp_path_factory.mktemp("pipeline")
    group, write_module.GROUP = write_module.GROUP, 500
    for features in ("rows", "means", "statistics"):
        columns = None if features == "rows" else ["u", "v"]
        options = {"features": features, "columns": columns, "ledger": None}
        made = release(
            table(), response="y", epsilon=20.0, bounds=(-9, 15), bag_size=5,
            out=folder / features, **options,
        )  # fmt: skip
        AggregateLinearRegression(rho="gcv").fit(made).save(folder / f"model-{features}")
    write_module.GROUP = group
    shares = table().assign(y=lambda rows: rows["y"] > 0)
    release(shares, response="y", epsilon=5.0, bounds=(0, 1), bag_size=5, ledger=None,
            out=folder / "shares")  # fmt: skip
    table().to_parquet(folder / "rows.parquet")
    table().to_csv(folder / "rows.csv", index=False)
    return folder


def encoded(X):
    return pd.get_dummies(X, prefix_sep="=", dtype=float)


# In Python


def test_a_fit_from_a_release_is_the_fit_of_its_rows(place):
    """One pass over row groups on threads, against all rows at once in memory."""
    made = Release.load(place / "rows")
    assert pq.ParquetFile(place / "rows" / "rows.parquet").num_row_groups > 4
    X, y, bags = made.training_set()
    X = encoded(X.to_pandas())
    direct = AggregateStatistics.from_rows(X, y, bags)
    streamed = AggregateStatistics.from_release(made)
    assert streamed.feature_names == ("u", "v", "town=a", "town=b", "town=c") == tuple(X.columns)
    for name in ("between", "within", "cross", "mean", "response_mean", "response_square"):
        found, expected = getattr(streamed, name), getattr(direct, name)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)
    for rho in (0.0, 0.01, "gcv"):
        one = AggregateLinearRegression(rho=rho).fit(made)
        path = AggregateLinearRegression(rho=rho).fit(str(place / "rows"))
        other = AggregateLinearRegression(rho=rho).fit(X, y, bags)
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(path.coef_, one.coef_, rtol=1e-12)


def test_predictions_take_the_columns_of_the_release(place):
    model = AggregateLinearRegression(rho=0.0).fit(place / "rows")
    rows = table(100, seed=1)
    expected = encoded(rows[["u", "v", "town"]]).to_numpy() @ model.coef_ + model.intercept_
    for X in (rows, pa.Table.from_pandas(rows), rows[["town", "v", "u", "y"]]):
        np.testing.assert_allclose(model.predict(X), expected)
    assert r2_score(rows["y"], model.predict(rows)) > 0.7
    np.testing.assert_allclose(model.predict(encoded(rows[["u", "v", "town"]])), expected)


@pytest.mark.parametrize("epsilon", [5.0, np.inf])
@pytest.mark.parametrize("bounds", [(-9, 15), (0, 1.5), (-0.5, 1)])
def test_a_classifier_refuses_a_release_of_another_response(tmp_path, epsilon, bounds):
    made = release(table(100), response="y", epsilon=epsilon, bounds=bounds, bag_size=5,
                   ledger=None, out=tmp_path / "out")  # fmt: skip
    with pytest.raises(ValueError, match=r"within \[0, 1\]; got a release of 'y' from"):
        AggregateMLPClassifier(epochs=1, rho=0.0).fit(made)


def test_a_fit_on_rows_forgets_the_release(place):
    model = AggregateLinearRegression().fit(place / "rows")
    assert hasattr(model, "encoder_")
    model.fit(np.eye(4), [1.0, 2, 3, 4])
    assert not hasattr(model, "encoder_")
    with pytest.raises(ValueError, match="y and bags must be both left out, or both given"):
        model.fit(place / "rows", [1.0])


def test_features_can_be_chosen_where_rows_or_means_were_released(place):
    for kind in ("rows", "means"):
        made = Release.load(place / kind)
        model = AggregateLinearRegression(rho=0.0).fit_release(made, ["v"])
        assert model.feature_names_in_.tolist() == ["v"]
    made = Release.load(place / "statistics")
    with pytest.raises(ValueError, match="the release must hold features='rows' for this"):
        AggregateLinearRegression(rho=0.0).fit_release(made, ["v"])


def voters(n=2000):
    """Rows in precincts that differ: what names a precinct says all of its mean."""
    rng = np.random.default_rng(1)
    precinct = rng.integers(0, 100, n)
    a, b = rng.normal(size=(2, n)) + rng.normal(size=(2, 100))[:, precinct]
    rows = pd.DataFrame({"a": a, "b": b, "number": precinct, "ward": np.char.mod("w%d", precinct)})
    return rows.assign(y=a - 2 * b + 0.1 * rng.normal(size=n))


@pytest.mark.parametrize("model", [AggregateLinearRegression, AggregateMLPRegressor])
@pytest.mark.parametrize("bags", ["number", "ward", ["number", "ward"]])
@pytest.mark.parametrize("source", ["release", "table"])
def test_what_names_the_bag_is_a_feature_only_where_it_is_named(tmp_path, model, bags, source):
    rows, names = voters(), [bags] if isinstance(bags, str) else bags
    if source == "release":
        made = release(rows, response="y", bags=bags, epsilon=np.inf, bounds=(-20, 20),
                       ledger=None, out=tmp_path / "out")  # fmt: skip
        assert made.statement.columns == ["a", "b", "number", "ward"]
        assert set(made.training_set()[0].column_names).isdisjoint(names)
        assert made.training_set(["a", *names])[0].column_names == ["a", *names]
    else:
        means = rows.assign(y=rows.groupby(names)["y"].transform("mean"))
        means.to_parquet(tmp_path / "rows.parquet")
        made = BagTable(tmp_path / "rows.parquet", "y", bags)
    others = [name for name in ("a", "b", "number", "ward") if name not in names]
    assert list(made.encoder().columns) == others
    quick = {"epochs": 2, "rho": 0.1} if model is AggregateMLPRegressor else {}
    assert list(model(**quick).fit(made).encoder_.columns) == others
    both = ["a", "b"]
    assert list(model(**quick).fit_release(made, [*both, *names]).encoder_.columns)[2:] == names
    fitted = AggregateLinearRegression(rho=0.0).fit_release(made, both)
    new = rows[both].assign(number=-1, ward="unseen")
    assert r2_score(rows["y"], fitted.predict(new)) > 0.9
    with pytest.raises(ValueError, match="features must be at least one column; got none"):
        made.encoder([])


@pytest.mark.parametrize("features", ["means", "statistics"])
def test_what_names_the_bag_is_averaged_only_where_it_is_named(tmp_path, features):
    def go(columns, out):
        return release(voters()[["a", "number", "y"]], response="y", bags="number", ledger=None,
                       epsilon=np.inf, bounds=(-20, 20), features=features, columns=columns,
                       out=tmp_path / out)  # fmt: skip

    made = go(None, "some")
    assert made.statement.columns == ["a"]
    assert AggregateLinearRegression(rho=0.0).fit(made).n_features_in_ == 1
    assert go(["a", "number"], "all").statement.columns == ["a", "number"]


@pytest.mark.parametrize("features", ["rows", "means"])
def test_a_model_that_takes_the_bag_is_scored_on_its_release(tmp_path, features):
    made = release(voters()[["a", "number", "y"]], response="y", bags="number", ledger=None,
                   epsilon=np.inf, bounds=(-20, 20), features=features,
                   columns=["a", "number"], out=tmp_path / "out")  # fmt: skip
    model = AggregateLinearRegression(rho=0.0).fit_release(made, ["number", "a"])
    assert evaluate_release(model, made)["bags"].r2 > 0.1


@pytest.mark.parametrize("kind", ["rows", "means", "statistics"])
def test_a_saved_model_predicts_the_same(place, kind, tmp_path):
    model = AggregateLinearRegression.load(place / f"model-{kind}")
    rows = table(50, seed=2)
    fresh = AggregateLinearRegression(rho="gcv").fit(place / kind)
    X = rows if kind != "statistics" else rows[["u", "v"]]
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    assert model.get_params() == fresh.get_params()
    assert (model.rho_, model.rho_source_) == (fresh.rho_, fresh.rho_source_)
    np.testing.assert_array_equal(model.path_.scores, fresh.path_.scores)
    model.save(tmp_path / "again")
    first, second = (
        (folder / "model.json").read_text()
        for folder in (place / f"model-{kind}", tmp_path / "again")
    )
    assert first == second
    with pytest.raises(ValueError, match="out must be a new or empty folder"):
        model.save(tmp_path / "again")


def test_models_fitted_on_arrays_are_saved_too(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    model = AggregateLinearRegression(rho=0.5).fit(X, y)
    model.save(tmp_path / "m")
    loaded = AggregateLinearRegression.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        AggregateLinearRegression().predict(X)


def corrupt(path, what):
    said = json.loads((path / "model.json").read_text())
    if what == "not JSON":
        (path / "model.json").write_text("{")
    elif what == "no arrays":
        (path / "arrays.npz").unlink()
    elif what == "cut arrays":
        (path / "arrays.npz").write_bytes((path / "arrays.npz").read_bytes()[:100])
    elif what == "packed arrays":
        with np.load(path / "arrays.npz") as saved:
            np.savez_compressed(path / "p.npz", **saved)
        (path / "p.npz").replace(path / "arrays.npz")
    elif what == "objects":
        with zipfile.ZipFile(path / "arrays.npz", "a") as saved:
            np.save(path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
            saved.write(path / "o.npy", "extra.npy")
        with np.load(path / "arrays.npz", allow_pickle=True) as arrays:
            arrays = {**arrays, "coef": arrays["extra"]}
        np.savez(path / "arrays.npz", **arrays)
    else:
        changes = {
            "other format": {"format": "x"},
            "other kind": {"kind": "tree"},
            "fewer names": {"feature_names": ["u"]},
            "other encoder": {"encoder": {"u": None}},
            "no intercept": {"intercept": None},
            "huge rho": {"rho": 10**400},
            "encoder in another order": {
                "encoder": {"town": ["a", "b", "c"], "u": None, "v": None}
            },
            "strange parameters": {"parameters": {"rho": 0.1, "system": "rm"}},
        }
        (path / "model.json").write_text(json.dumps(said | changes[what]))


@pytest.mark.parametrize(
    "what",
    [
        "not JSON", "no arrays", "cut arrays", "packed arrays", "objects", "other format",
        "other kind", "fewer names", "other encoder", "no intercept", "strange parameters",
        "huge rho", "encoder in another order",
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused(place, tmp_path, what):
    model = AggregateLinearRegression.load(place / "model-rows")
    model.save(tmp_path / "m")
    corrupt(tmp_path / "m", what)
    with pytest.raises(ValueError, match="path must be a folder written by save; got"):
        AggregateLinearRegression.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv"])
def test_tables_are_predicted_and_scored_in_batches(place, name, monkeypatch):
    monkeypatch.setattr(tables, "BATCH", 700)
    model = AggregateLinearRegression.load(place / "model-rows")
    rows = table()
    expected = model.predict(rows)
    parts = list(predict_table(model, open_table(place / name), keep=["y"]))
    if name.endswith("parquet"):
        assert len(parts) > 3
    found = pa.concat_tables(parts)
    assert found.column_names == ["y", "prediction"]
    np.testing.assert_allclose(found["prediction"].to_numpy(), expected, atol=1e-5)
    scores = evaluate_table(model, open_table(place / name), "y", bags="town")
    assert scores["rows"].n == 3000
    for score, measure in (
        ("rmse", root_mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)
    ):  # fmt: skip
        assert getattr(scores["rows"], score) == pytest.approx(
            measure(rows["y"], expected), rel=1e-6
        )
    groups = Bags(rows["town"])
    means = groups.mean(rows["y"].to_numpy()), groups.mean(expected)
    weights = {"sample_weight": groups.sizes}
    assert scores["bags"].n == 3
    assert scores["bags"].r2 == pytest.approx(r2_score(*means, **weights), rel=1e-6)
    assert scores["bags"].rmse == pytest.approx(
        root_mean_squared_error(*means, **weights), rel=1e-5
    )


def test_a_release_is_scored_by_its_means(place, tmp_path):
    """Unequal bags, weighed by their sizes; means of features tell a linear model the same."""
    model = AggregateLinearRegression.load(place / "model-means")
    rows = table()[["u", "v", "y"]].assign(day=np.arange(3000) ** 2 % 997 % 60)
    options = {
        "response": "y",
        "epsilon": np.inf,
        "bounds": (-9, 15),
        "bags": "day",
        "ledger": None,
    }
    options["columns"] = ["u", "v"]
    made = release(rows, out=tmp_path / "rows", **options)
    assert made.sizes.max() > 2 * made.sizes.min()
    means = release(rows, out=tmp_path / "means", features="means", **options)
    for one, other in zip(
        evaluate_release(model, made)["bags"].__dict__.values(),
        evaluate_release(model, means)["bags"].__dict__.values(),
        strict=True,
    ):
        assert one == pytest.approx(other, rel=1e-6)
    X, y, bags = made.training_set()
    found = evaluate_release(model, made)["bags"]
    assert found.n == len(made.bags)
    assert found.r2 == pytest.approx(model.score(X, y, bags), rel=1e-9)


# From a shell


@pytest.fixture
def shell(place, command, monkeypatch, tmp_path):
    """Commands in an empty folder, with @ for where the release and its table lie."""
    monkeypatch.chdir(tmp_path)
    return lambda line: command(*(word.replace("@", str(place)) for word in line.split()))


def test_a_classifier_is_scored_by_its_probabilities(shell, place):
    """From a shell what `probability_scores` says, with bags and without."""
    rows = table().assign(y=lambda rows: (rows["y"] > 0).astype(float), bag=np.arange(3000) // 5)
    rows.to_parquet("labels.parquet")
    assert shell("fit @/shares --model logistic --ridge 1 --rho 0 --out m")[0] == 0
    known = probability_scores(rows["y"], load_model("m").predict_proba(rows)[:, 1])
    for more in ("", " --bags bag"):
        told = json.loads(shell(f"evaluate m labels.parquet --response y{more} --json")[1])
        assert told["probabilities"] == pytest.approx(asdict(known))
    assert "calibration error" in shell("evaluate m labels.parquet --response y")[1]
    other = shell("evaluate m @/rows.parquet --response y --json")[1]
    assert "probabilities" not in json.loads(other), "responses that are no labels"


def test_fit_predict_and_evaluate(shell, place):
    code, said, _ = shell("fit @/rows --out model --rho 0.001 --features u,town")
    assert code == 0
    assert "Fitted 4 features to 600 bags of 3,000 rows in" in said
    assert "rho = 0.001 (given)." in said
    assert "Error of a row, estimated from bags:" in said
    told = json.loads(shell("fit @/rows --out other --json")[1])
    assert told["rho_source"] == "gcv"
    # σ = 1; the noise of the release is told apart.
    assert 0.8 < told["row_rmse_estimate"] < 1.2
    noise = told["row_rmse_with_noise"] ** 2 - told["row_rmse_estimate"] ** 2
    # Laplace noise of scale 24 / (20 · 5) on means of 5 rows.
    assert noise == pytest.approx(5 * 2 * 0.24**2, rel=1e-4)
    assert shell("predict other @/rows.parquet --out p.csv --keep y")[1] == "3,000 rows: p.csv\n"
    assert pd.read_csv("p.csv").columns.tolist() == ["y", "prediction"]
    shutil.copy(place / "rows.csv", "more.csv")
    assert shell("predict other @/rows.csv more.csv --out p.parquet --json")[0] == 0
    assert len(pd.read_parquet("p.parquet")) == 6000
    scores = json.loads(shell("evaluate other @/rows.csv --response y --bags town --json")[1])
    assert scores["rows"]["r2"] > 0.7
    assert scores["bags"]["n"] == 3
    code, said, _ = shell("evaluate other @/rows")
    assert code == 0
    assert "600" in said


def test_networks_are_fitted_and_used_from_a_shell(shell, place):
    code, said, _ = shell("fit @/rows --out net --model mlp --rho 0.01 --features u,town")
    assert code == 0
    assert "Loss of held-out bags, in standard units:" in said
    assert shell("predict net @/rows.parquet --out p.parquet")[0] == 0
    model = AggregateMLPRegressor.load("net")
    expected = model.predict(pd.read_parquet(place / "rows.parquet")[["u", "town"]])
    np.testing.assert_allclose(pd.read_parquet("p.parquet")["prediction"], expected, rtol=1e-9)
    scores = json.loads(shell("evaluate net @/rows.csv --response y --json")[1])
    y = pd.read_csv(place / "rows.csv")["y"]
    assert scores["rows"]["r2"] == pytest.approx(r2_score(y, expected))
    assert shell("evaluate net @/rows")[0] == 0
    told = json.loads(shell("fit @/shares --out c --model mlp-classifier --rho 0.1 --json")[1])
    assert told["rho"] == 0.1
    assert shell("predict c @/rows.parquet --out q.parquet")[0] == 0
    assert pd.read_parquet("q.parquet")["prediction"].between(0, 1).all()


def test_boosted_trees_are_fitted_and_used_from_a_shell(shell, place):
    pytest.importorskip("lightgbm")
    code, said, _ = shell("fit @/rows --out trees --model boosting --rho cv --features u,town")
    assert code == 0
    assert "Fitted 2 features to 600 bags of 3,000 rows in" in said
    assert "Loss of held-out bags:" in said
    assert " rounds." in said
    # A level of text that is new, and missing values, which trees take.
    table(5).assign(town="z").to_csv("new.csv", index=False)
    assert "got 'z' in column 'town'" in shell("predict trees new.csv --out n.csv")[2]
    assert shell("predict trees new.csv --out n.csv --unknown ignore")[0] == 0
    table(5).assign(u=None).to_csv("gaps.csv", index=False)
    assert shell("predict trees gaps.csv --out g.csv")[0] == 0
    assert shell("predict trees @/rows.parquet --out p.parquet")[0] == 0
    model = AggregateBoostingRegressor.load("trees")
    expected = model.predict(pd.read_parquet(place / "rows.parquet")[["u", "town"]])
    np.testing.assert_allclose(pd.read_parquet("p.parquet")["prediction"], expected, rtol=1e-9)
    scores = json.loads(shell("evaluate trees @/rows.csv --response y --json")[1])
    y = pd.read_csv(place / "rows.csv")["y"]
    assert scores["rows"]["r2"] == pytest.approx(r2_score(y, expected))
    assert shell("evaluate trees @/rows")[0] == 0
    told = json.loads(shell("fit @/shares --out c --model boosting-classifier --rho 0.1 --json")[1])
    assert told["rho"] == 0.1
    assert told["n_estimators"] >= 1
    assert shell("predict c @/rows.parquet --out q.parquet")[0] == 0
    assert pd.read_parquet("q.parquet")["prediction"].between(0, 1).all()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("fit @/rows --out x --model boosting --rho gcv", "rho must be in [0, 1] or 'cv'"),
        ("fit @/rows --out x --model boosting --ridge 1", "ridge must be for models that have one"),
        ("fit @/means --out x --model boosting", "the release must hold features='rows'"),
        ("fit @/nothing --out x", "path must be a Release folder"),
        ("fit @/rows --out x --model forest", "model must be one of 'linear', 'logistic'"),
        ("fit @/rows --out x --model mlp --rho gcv", "rho must be in [0, 1] or 'cv'"),
        ("fit @/rows --out x --model mlp --ridge 1", "ridge must be for models that have one"),
        ("fit @/rows --out x --rho 2", "rho must be in [0, 1]"),
        (
            "fit @/rows --out x --rho best",
            "rho must be in [0, 1], 'loo', 'gcv', 'theory' or 'average'",
        ),
        ("fit @/rows --out x --features w", "features must be columns of the release; got 'w'"),
        ("fit @/rows --out @/rows", "out must be a new or empty folder"),
        ("predict @/rows @/rows.csv --out x.csv", "path must be a folder written by save"),
        ("predict @/model-rows @/rows.csv --out x.txt", "out must be a .csv or .parquet file"),
        ("predict @/model-rows none.csv --out x.csv", "the table must be there; got 'none.csv'"),
        ("predict @/model-rows @/other.csv --out x.csv", "got 'z' in column 'town'"),
        (
            "predict @/model-rows @/rows.csv --keep q --out x.csv",
            "keep must be columns of the table",
        ),
        ("predict @/model-rows @/rows.csv --unknown so --out x.csv", "unknown must be one of"),
        ("predict @/model-rows @/gaps.csv --out x.csv", "features must be there in every row"),
        ("evaluate @/model-rows @/rows.csv", "response must be given; got none for a table"),
        ("evaluate @/model-rows @/rows.csv --response q", "response and bags must be columns"),
        ("evaluate @/model-rows @/rows --response y", "response and bags must be left out"),
        ("evaluate @/model-rows @/rows --engine nonsense", "engine must be local, spark or"),
        ("fit @/rows @/rows --out x", "data must be one Release folder; got 2 paths"),
        ("evaluate @/model-rows @/nan.parquet --response y", "the response must be a number in"),
        ("predict @/model-rows @/twice.csv --out x.csv", "the table must be of columns with diff"),
        ("predict @/model-rows @/rows.csv --out @/rows.parquet", "out must be a new file; got"),
        (
            "predict @/model-rows @/named.csv --keep prediction --out x.csv",
            "keep must be named oth",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_left(shell, place, line, sentence, tmp_path):
    (place / "other.csv").write_text("u,v,town,y\n1.0,1.0,z,1.0\n")
    (place / "gaps.csv").write_text("u,v,town,y\n1.0,1.0,a,1.0\n1.0,,a,1.0\n")
    (place / "twice.csv").write_text("u,u,v,town\n1,1,1,a\n")
    (place / "named.csv").write_text("u,v,town,prediction\n1,1,a,1\n")
    table(5).assign(y=[1, 2, np.nan, 3, 4]).to_parquet(place / "nan.parquet")
    code, said, errors = shell(line)
    assert (code, said) == (2, "")
    assert sentence in errors
    assert os.listdir(tmp_path) == []


def test_csv_columns_are_read_as_the_model_takes_them(shell, place, tmp_path):
    """Whole numbers first and fractions later; ids with leading zeros kept as they stand."""
    lines = ["u,v,town,id", *["1,0,a,007"] * 100_000, "1.5,0.25,b,008"]
    (place / "late.csv").write_text("\n".join(lines) + "\n")
    assert shell("predict @/model-rows @/late.csv --keep id --out deep/x.csv")[0] == 0
    found = pd.read_csv(tmp_path / "deep" / "x.csv", dtype={"id": str})
    assert found["id"].iloc[[0, -1]].tolist() == ["007", "008"]


@pytest.mark.parametrize("how", ["file", "standard input"])
def test_a_csv_with_truths_goes_all_the_way(shell, tmp_path, monkeypatch, how):
    """Released, fitted, predicted and scored, as feature and as response."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"u": rng.normal(size=200), "yes": rng.random(200) < 0.5})
    rows["y"] = rng.random(200) < 0.5
    (tmp_path / "t.csv").write_text(rows.to_csv(index=False).lower())
    for features in ("rows", "means"):
        options = {"epsilon": 1.0, "bounds": (0, 1), "bag_size": 5, "ledger": None}
        release(tmp_path / "t.csv", response="y", features=features, out=tmp_path / features,
                **options)  # fmt: skip
        assert shell(f"fit {features} --rho 0.1 --out m-{features}")[0] == 0
        source = "t.csv" if how == "file" else "-"
        for line in ("predict {} {} --out {}.csv", "evaluate {} {} --response y"):
            given = io.BytesIO((tmp_path / "t.csv").read_bytes())
            monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=given))
            assert shell(line.format(f"m-{features}", source, features))[0] == 0
    model = AggregateLinearRegression.load(tmp_path / "m-rows")
    found = pd.read_csv(tmp_path / "rows.csv")["prediction"]
    np.testing.assert_allclose(found, model.predict(rows), rtol=1e-9)


def test_bags_of_a_csv_are_scored_as_they_stand(shell, place, tmp_path):
    (place / "zeros.csv").write_text("u,v,town,g,y\n1,1,a,7,1\n1,2,a,007,2\n1,3,b,007,2\n")
    line = "evaluate @/model-rows @/zeros.csv --response y --bags g --json"
    assert json.loads(shell(line)[1])["bags"]["n"] == 2


def test_sums_are_about_the_mean_and_not_about_a_guess_at_it():
    """More rows than the guess looks at, with a trend so that it is off."""
    from bagwise.encoding import Encoder
    from bagwise.statistics import sum_clustered

    frame = pa.table({"p": np.sqrt(np.arange(5001.0)) + 1e3})
    X = Encoder.learn(frame.schema, ["p"], []).rows(frame)
    bags = Bags(np.arange(5001) // 5)
    responses = np.random.default_rng(0).normal(size=1001)
    found = sum_clustered(X, responses, bags.sizes)
    expected = AggregateStatistics.from_rows(X[:], bags.expand(responses), bags)
    for name in ("between", "within", "cross", "mean"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)


class Narrow(Local):
    """An engine from whose tasks little comes back, however many bags there are."""

    def map(self, task, items, *shown):
        for found in super().map(task, items, *shown):
            assert len(pickle.dumps(found)) < 1000
            yield found


def test_an_engine_groups_what_is_scored_by_bag(place, tmp_path):
    rows = table().assign(bag=lambda t: np.arange(len(t)) % 1500)
    rows.to_parquet(tmp_path / "t.parquet", row_group_size=700)
    model, source = AggregateLinearRegression.load(place / "model-rows"), tmp_path / "t.parquet"
    found, local = (
        evaluate_table(model, open_table(source), "y", "bag", engine=engine)
        for engine in (Narrow(), None)
    )
    assert found["bags"].n == 1500
    for level in ("rows", "bags"):
        np.testing.assert_allclose(astuple(found[level]), astuple(local[level]), rtol=1e-9)
    for gap in (np.nan, None):
        rows["bag"] = pd.Series([gap, *np.arange(2999.0)])
        rows.to_parquet(source)
        for engine in (Narrow(), None):
            with pytest.raises(ValueError, match="bags must be"):
                evaluate_table(model, open_table(source), "y", "bag", engine=engine)


def test_scores_of_a_table_in_pieces_are_those_of_the_whole(place, tmp_path, monkeypatch):
    """Sorted by response, so that each piece is about a mean of its own."""
    monkeypatch.setattr(tables, "BATCH", 700)
    rows = table().sort_values("y")
    rows.to_parquet(tmp_path / "t.parquet", row_group_size=700)
    source = open_table(tmp_path / "t.parquet")
    assert len(source.pieces()) == 5
    model = AggregateLinearRegression.load(place / "model-rows")
    found = evaluate_table(model, source, "y")["rows"]
    assert found.r2 == pytest.approx(r2_score(rows["y"], model.predict(rows)), rel=1e-9)


def test_scores_of_responses_far_from_zero_lose_no_digits(place, tmp_path):
    rows = table()
    rows["y"] += 1e9
    rows.to_parquet(tmp_path / "far.parquet")
    model = AggregateLinearRegression.load(place / "model-rows")
    model.intercept_ += 1e9
    found = evaluate_table(model, open_table(tmp_path / "far.parquet"), "y")["rows"]
    assert found.r2 == pytest.approx(r2_score(rows["y"], model.predict(rows)), abs=1e-6)


def test_a_failure_after_the_first_batch_leaves_no_file(shell, place, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH", 100)
    table(500).assign(u=lambda t: t["u"].where(t.index < 450)).to_parquet(place / "late.parquet")
    assert shell("predict @/model-rows @/late.parquet --out x.parquet")[0] == 2
    assert os.listdir(tmp_path) == []


def test_constant_responses_are_scored_as_scikit_learn_does(place, tmp_path):
    table(20).assign(y=1.0).to_parquet(tmp_path / "c.parquet")
    model = AggregateLinearRegression.load(place / "model-rows")
    assert evaluate_table(model, open_table(tmp_path / "c.parquet"), "y")["rows"].r2 == 0.0


def test_noise_that_drowns_the_error_is_told(place):
    """Where the error of bags is less than their noise explains."""
    made = Release.load(place / "rows")
    model = AggregateLinearRegression(rho=0.0).fit(made)
    scales = pa.array(100 * made.bags["noise_scale"].to_numpy())
    loud = replace(made, bags=made.bags.set_column(3, "noise_scale", scales))
    told, sentence = _linear_scores(model, loud)
    assert told["row_rmse_estimate"] is None
    assert told["row_rmse_with_noise"] > 1
    assert sentence == "Error of a row: the noise of the release is too large to tell."


def test_a_seed_gives_the_same_network_from_a_shell(shell, place):
    quick = "fit @/rows --model mlp --rho 0.1 --features u,v --seed 3 --device cpu"
    for out in ("one", "two"):
        assert shell(f"{quick} --out {out}")[0] == 0
    one, two = (load_model(out).predict(table(50)) for out in ("one", "two"))
    np.testing.assert_array_equal(one, two)
    for option in ("--seed 3", "--device cpu"):
        code, _, said = shell(f"fit @/rows {option} --out m")
        assert code == 2
        assert "must be for models that have one" in said
    assert "seed must be in" in shell("fit @/rows --model mlp --seed -1 --out m")[2]


def test_noise_is_a_word_of_releases_alone(shell, place, tmp_path):
    rows = table().assign(bag=np.arange(3000) // 5)
    rows.assign(y=rows.groupby("bag")["y"].transform("mean")).to_parquet(tmp_path / "t.parquet")
    said = shell("fit t.parquet --response y --bags bag --out m")[1]
    assert "Error of a row, estimated from bags:" in said
    assert "noise" not in said


def test_one_bag_tells_no_error(shell, tmp_path):
    release(table(10), response="y", epsilon=1.0, bounds=(0, 1), bag_size=10, ledger=None,
            out=tmp_path / "one")  # fmt: skip
    told = json.loads(shell("fit one --rho 1 --out m --json")[1])
    assert told["row_rmse_estimate"] is None
    assert told["row_rmse_with_noise"] is None
    assert "too few bags to tell" in shell("fit one --rho 1 --out m2")[1]


def test_a_model_of_numpy_parameters_is_saved(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20.0)
    model = AggregateLinearRegression(rho=np.float32(0.5), ridge=np.int64(1)).fit(X, y)
    model.save(tmp_path / "m")
    assert AggregateLinearRegression.load(tmp_path / "m").rho == 0.5


def test_columns_that_a_model_does_not_take_may_be_anything(place):
    model = AggregateLinearRegression(rho=0.0).fit(place / "rows")
    rows = table(4)
    strange = rows.assign(note=["a", 1, None, object()])
    np.testing.assert_array_equal(model.predict(strange), model.predict(rows))


def test_a_relative_path_is_kept_in_full(place, monkeypatch):
    monkeypatch.chdir(place)
    made = Release.load("rows")
    monkeypatch.chdir("/")
    assert len(made.training_set()[1]) == 3000


def test_a_link_in_the_way_is_not_followed(place, tmp_path):
    """What it leads to is someone's own."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("mine")
    (tmp_path / ".m.partial").symlink_to(precious)
    with pytest.raises(ValueError, match="out must be free; got a link at"):
        AggregateLinearRegression.load(place / "model-rows").save(tmp_path / "m")
    assert (precious / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("sizes", [[1] * 50, [50], [3, 40, 7], [1, 2, 47], [25, 25]], ids=str)
@pytest.mark.parametrize("block", [4, 12, 40, 10**6])
def test_sums_do_not_depend_on_where_blocks_end(sizes, block, monkeypatch):
    """Bags that begin before a block, end after it, or fill several."""
    from bagwise import statistics as module
    from bagwise.encoding import Encoder

    rng = np.random.default_rng(0)
    frame = pa.table({"p": rng.normal(size=50) + 1e6, "t": rng.choice(["a", "b"], 50)})
    X = Encoder.learn(frame.schema, ["p", "t"], [frame]).rows(frame)
    responses = rng.normal(size=len(sizes))
    monkeypatch.setattr(module, "BLOCK", block)
    found = module.sum_clustered(X, responses, np.array(sizes))
    bags = Bags(np.repeat(np.arange(len(sizes)), sizes))
    expected = AggregateStatistics.from_rows(X[:], bags.expand(responses), bags)
    for name in ("between", "within", "cross", "mean", "response_mean", "response_square"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-7
        )


def test_unknown_levels_can_be_ignored(shell, place):
    (place / "other.csv").write_text("u,v,town,y\n1.0,1.0,z,1.0\n")
    assert shell("predict @/model-rows @/other.csv --unknown ignore --out x.csv")[0] == 0


def test_an_interrupted_prediction_leaves_nothing(shell, place, tmp_path, monkeypatch):
    """Ctrl-C in the middle of a file."""
    from bagwise.estimators import streaming

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "_predictions", interrupt)
    assert shell("predict @/model-rows @/rows.csv --out x.csv")[0] != 0
    assert os.listdir(tmp_path) == []


def test_two_writers_to_one_place_do_not_meet(tmp_path):
    """Each has a file of its own, and the first to end is not written over."""
    out = tmp_path / "x.csv"

    def write_slowly():
        with appearing_file(out) as place, place.open("w") as slow:
            with appearing_file(out) as other:
                other.write_text("quick")
            slow.write("slow, and on")

    with pytest.raises(ValueError, match="out must be a new file; got"):
        write_slowly()
    assert out.read_text() == "quick"
    assert os.listdir(tmp_path) == ["x.csv"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_file_appears_where_a_disk_knows_no_links(tmp_path, monkeypatch, taken):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError("no links")))
    out = tmp_path / "x.csv"
    asked = pytest.raises(ValueError, match="out must be a new file") if taken else nullcontext()
    with asked, appearing_file(out) as place:
        place.write_text("late")
        if taken:
            out.write_text("mine")
    assert out.read_text() == ("mine" if taken else "late")
    assert os.listdir(tmp_path) == ["x.csv"]


def test_folders_made_for_a_file_go_when_it_fails(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(OSError, match="full"), appearing_file(tmp_path / "old/new/er/x.csv"):
        raise OSError("full")
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
