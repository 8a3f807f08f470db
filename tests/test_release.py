"""A release: what leaves, what must not, and what is refused before anything is charged."""

import io
import json
import logging
import math
import sys
import traceback
import types
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bagwise import AggregateLinearRegression, AggregateStatistics, Bags
from bagwise.engines import cluster as write_module
from bagwise.release import BudgetExceeded, Ledger, release
from bagwise.release.mechanism import Mechanism
from bagwise.released import Release
from bagwise.tables import open_table

# A response that no other computation would print.
CANARY = 8472.918273


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return pd.DataFrame(
        {
            "a": X[:, 0],
            "b": X[:, 1].astype(np.float32),
            "day": rng.integers(0, 9, n),
            "town": rng.choice(["north", "south", "east"], n),
            "person": rng.integers(0, n // 3, n),
            "y": X @ [1.0, -2.0] + rng.normal(size=n),
        }
    )


@pytest.fixture
def go(tmp_path):
    """A release with what most tests ask for; options change it."""
    count = iter(range(10**6))

    def run(rows=None, **options):
        asked = {
            "response": "y",
            "epsilon": 1.0,
            "bounds": (-6.0, 6.0),
            "ledger": tmp_path / "books" / "ledger.db",
            "budget": 100,
            "out": tmp_path / f"released{next(count)}",
        }
        if not {"bags", "bag_size"} & options.keys():
            asked["bag_size"] = 10
        return release(table() if rows is None else rows, **asked | options)

    return run


@pytest.fixture
def plain(go):
    """Releases without noise, to see what is averaged."""
    return lambda rows=None, **options: go(
        rows, **{"epsilon": math.inf, "budget": None, "ledger": None} | options
    )


def spent(tmp_path):
    path = tmp_path / "books" / "ledger.db"
    return sum(d.spent for d in Ledger(path).datasets()) if path.exists() else 0


# What is released


def test_means_are_those_of_clipped_responses_over_the_bags_that_are_named(plain):
    rows = table()
    made = plain(rows, bags="day", bounds=(-1.0, 2.0))
    expected = rows["y"].clip(-1, 2).groupby(rows["day"]).mean()
    got = dict(zip(made.bags["bag"].to_pylist(), made.means, strict=True))
    assert got.keys() == set(expected.index)
    for day, mean in expected.items():
        assert got[day] == pytest.approx(mean, abs=2e-6)
    sizes = dict(zip(made.bags["bag"].to_pylist(), made.sizes, strict=True))
    assert sizes == rows["day"].value_counts().to_dict()


def test_several_columns_make_bags_that_carry_their_values(plain):
    rows = table()
    made = plain(rows, bags=["day", "town"])
    expected = rows["y"].clip(-6, 6).groupby([rows["day"], rows["town"]]).mean()
    bags = made.bags.to_pandas().set_index(["day", "town"])["response"]
    pd.testing.assert_series_equal(
        bags.sort_index(), expected, check_names=False, atol=1e-5, check_dtype=False
    )


@pytest.mark.parametrize(("n", "k"), [(400, 10), (403, 10), (7, 7), (13, 7), (5, 1)])
def test_random_bags_are_of_the_size_asked_or_a_little_more(plain, n, k):
    made = plain(table(n), bag_size=k)
    assert made.sizes.min() >= k
    assert made.sizes.max() <= made.sizes.min() + 1
    assert made.sizes.sum() == n
    assert len(made.bags) == n // k


def test_rows_leave_with_their_own_features_in_their_own_bag(plain):
    """The join that a learner makes gives every row the mean of the bag it was averaged in."""
    rows = table().assign(key=lambda t: np.arange(len(t)))
    made = plain(rows, bag_size=7)
    X, y, bags = made.training_set()
    X = X.to_pandas()
    assert sorted(X["key"]) == list(range(400))
    back = rows.set_index("key").loc[X["key"]]
    np.testing.assert_array_equal(back["a"], X["a"])
    np.testing.assert_array_equal(back["town"], X["town"])
    groups = Bags(bags)
    clipped = back["y"].clip(-6, 6).to_numpy()
    np.testing.assert_allclose(groups.expand(groups.mean(clipped)), y, atol=8e-6)


def test_the_response_and_the_user_stay_home(go):
    made = go(user="person")
    assert made.statement.columns == ["a", "b", "day", "town"]
    file = pq.ParquetFile(made.path / "rows.parquet")
    assert file.schema_arrow.names == ["bag", "a", "b", "day", "town"]


def test_only_the_columns_that_are_named_leave(go):
    made = go(columns=["a", "town"])
    assert made.training_set()[0].column_names == ["a", "town"]


def test_row_groups_hold_whole_bags(go, monkeypatch):
    monkeypatch.setattr(write_module, "GROUP", 50)
    for options in ({"bag_size": 7}, {"bags": "town"}, {"bags": ["day", "town"]}):
        made = go(**options)
        file = pq.ParquetFile(made.path / "rows.parquet")
        assert file.num_row_groups > 2
        groups = [
            set(file.read_row_group(i)["bag"].to_pylist()) for i in range(file.num_row_groups)
        ]
        assert sum(map(len, groups)) == len(set().union(*groups)) == len(made.bags)
        assert sum(len(means) for _, means, _ in made.batches()) == 400


def test_the_order_of_the_table_does_not_leave(plain):
    """Rows sorted by response: neither bags nor places within a bag may tell who came first."""
    n = 2000
    rows = pd.DataFrame({"key": np.arange(n, dtype=float), "y": np.linspace(0, 1, n)})
    rows["half"] = np.arange(n) % 2
    for bagging in ({"bag_size": 1000}, {"bags": "half"}):
        made = plain(rows, bounds=(0, 1), **bagging)
        keys = made.training_set()[0]["key"].to_numpy()
        # Correlation of a random order is about N(0, 1/n): α = 1e-8.
        for part in (keys, keys[:1000], keys[1000:]):
            assert abs(np.corrcoef(part, np.arange(len(part)))[0, 1]) < 6 / math.sqrt(len(part))
    rows["town"] = np.arange(n) % 500
    order = plain(rows, bags="town", bounds=(0, 1)).bags["bag"].to_numpy()
    assert abs(np.corrcoef(order, np.arange(500))[0, 1]) < 6 / math.sqrt(500)


def test_bags_are_drawn_anew_each_time(plain):
    rows = pd.DataFrame({"key": np.arange(100.0), "y": np.arange(100.0) ** 2})
    first, second = (
        tuple(plain(rows, bag_size=10, bounds=(0, 100)).training_set()[0]["key"].to_numpy())
        for _ in range(2)
    )
    assert first != second


def test_features_as_means(plain):
    rows = table()
    made = plain(rows, features="means", bags="day", columns=["a", "b"])
    assert not (made.path / "rows.parquet").exists()
    X, y, bags = made.training_set()
    expected = rows.groupby("day")[["a", "b"]].mean().loc[bags]
    np.testing.assert_allclose(X["a"].to_numpy(), expected["a"], rtol=1e-12)
    np.testing.assert_allclose(X["b"].to_numpy(), expected["b"], atol=1e-6)
    np.testing.assert_array_equal(y, made.means)
    with pytest.raises(ValueError, match="the release must hold features='rows' for this"):
        next(made.batches())


@pytest.mark.parametrize("bags", [{"bag_size": 9}, {"bags": "town"}, {"bags": "day"}])
def test_statistics_are_those_of_the_rows(plain, bags):
    """A, W, c as released, and as a learner with the rows would sum them; means know A and c."""
    rows = table()
    made = {
        kind: plain(rows, features=kind, columns=["a", "b"], **bags)
        for kind in ("rows", "statistics", "means")
    }
    if "bag_size" in bags:
        # Random bags differ between releases: compare a release with itself.
        X, y, ids = made["rows"].training_set()
        expected = {kind: AggregateStatistics.from_rows(X, y, ids) for kind in ("rows",)}
    else:
        clipped = Bags(rows[bags["bags"]])
        means = clipped.expand(clipped.mean(rows["y"].clip(-6, 6).to_numpy()))
        direct = AggregateStatistics.from_rows(rows[["a", "b"]], means, rows[bags["bags"]])
        expected = dict.fromkeys(made, direct)
    for kind, direct in expected.items():
        found = made[kind].statistics()
        assert (found.n_rows, found.n_bags) == (direct.n_rows, direct.n_bags)
        assert found.feature_names == ("a", "b")
        np.testing.assert_allclose(found.between, direct.between, rtol=1e-6)
        np.testing.assert_allclose(found.cross, direct.cross, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(found.mean, direct.mean, rtol=1e-6)
        within = 0 * direct.within if kind == "means" else direct.within
        np.testing.assert_allclose(found.within, within, rtol=1e-6, atol=1e-12)


def test_a_learner_fits_from_each_kind_of_release(go):
    """Many rows and a large epsilon: rows and statistics find the truth at every rho."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 2))
    rows = {"a": X[:, 0], "b": X[:, 1], "y": X @ [1.0, -2.0]}
    made = {kind: go(rows, epsilon=30, features=kind) for kind in ("rows", "statistics", "means")}
    model = AggregateLinearRegression(rho=0.0).fit(*made["rows"].training_set())
    np.testing.assert_allclose(model.coef_, [1, -2], atol=0.05)
    for kind in ("statistics", "means"):
        model = AggregateLinearRegression(rho=0.0).fit_statistics(made[kind].statistics())
        np.testing.assert_allclose(model.coef_, [1, -2], atol=0.05)


def test_features_none_releases_bags_alone(go):
    made = go(features="none", bags=["day", "town"])
    assert sorted(p.name for p in made.path.iterdir()) == ["bags.parquet", "release.json"]
    assert made.statement.columns == []


def test_noise_scales_are_stated_for_each_bag(go):
    made = go(bags="town", epsilon=0.5)
    np.testing.assert_allclose(
        made.bags["noise_scale"].to_numpy(), 12 / 0.5 / made.sizes, rtol=1e-6
    )


def test_bounds_by_the_logarithm_of_the_rows(go):
    made = go(bounds=2.0)
    half = 2 * math.sqrt(math.log(400))
    assert (made.statement.low, made.statement.high) == (-half, half)
    capped = go(bounds=2.0, user="person", ledger=None)
    assert capped.statement.high == 2 * math.sqrt(math.log(capped.statement.n_rows))


@pytest.mark.parametrize("cap", [1, 2, 100])
def test_no_user_has_more_rows_than_the_cap(plain, cap):
    rows = table().assign(key=lambda t: np.arange(len(t)))
    made = plain(rows, user="person", max_rows_per_user=cap)
    keys = made.training_set()[0]["key"].to_numpy()
    kept = rows.loc[keys, "person"].value_counts()
    expected = rows["person"].value_counts().clip(upper=cap)
    assert kept.to_dict() == expected.to_dict()
    assert made.statement.n_dropped == 400 - expected.sum()
    assert made.statement.n_rows == expected.sum() == made.sizes.sum()


def test_rows_past_the_cap_are_dropped_at_random(plain):
    """Which of a user's two rows stays does not hang on its place: α = 1e-6."""
    rows = pd.DataFrame(
        {"person": np.tile(np.arange(500), 2), "late": np.repeat([0, 1], 500), "y": 0.5}
    )
    kept = plain(rows, user="person").training_set()[0]["late"].to_numpy()
    assert abs(kept.mean() - 0.5) < 5 * 0.5 / math.sqrt(500)


def test_the_noise_covers_all_rows_of_a_user(go):
    one, three = go(user="person", bags="town"), go(user="person", max_rows_per_user=3, bags="town")
    assert three.statement.scale == pytest.approx(3 * one.statement.scale)
    assert three.statement.unit == "all labels of one user (at most 3 rows of each)"


@pytest.mark.parametrize(
    "form", ["pandas", "polars", "arrow", "mapping", "csv", "parquet", "shouted"]
)
def test_tables_of_every_kind(plain, tmp_path, form):
    frame = table()[["a", "town", "y"]]
    arrow = pa.Table.from_pandas(frame)
    if form in ("csv", "shouted"):
        path = tmp_path / ("rows.csv" if form == "csv" else "ROWS.CSV")
        pyarrow.csv.write_csv(arrow, path)
        rows = str(path)
    elif form == "parquet":
        rows = tmp_path / "rows.parquet"
        pq.write_table(arrow, rows)
    else:
        rows = {
            "pandas": frame.set_index(frame.index + 7),
            "polars": pl.from_pandas(frame),
            "arrow": arrow,
            "mapping": {name: frame[name].to_numpy() for name in frame},
        }[form]
    made = plain(rows, bags="town")
    assert made.statement.columns == ["a", "town"]
    expected = frame["y"].clip(-6, 6).groupby(frame["town"]).mean()
    for town, mean in zip(made.bags["bag"].to_pylist(), made.means, strict=True):
        assert mean == pytest.approx(expected[town], abs=2e-5)


@pytest.mark.parametrize("how", ["folder", "glob", "list", "standard input"])
def test_many_files_are_one_table(plain, tmp_path, monkeypatch, how):
    frame = table()[["a", "town", "y"]]
    parts = tmp_path / "parts"
    parts.mkdir()
    for i in range(4):
        frame.iloc[i::4].to_csv(parts / f"{i}.csv", index=False)
    source = {
        "folder": str(parts),
        "glob": f"{parts}/*.csv",
        "list": [parts / f"{i}.csv" for i in range(4)],
        "standard input": "-",
    }[how]
    given = types.SimpleNamespace(buffer=io.BytesIO(frame.to_csv(index=False).encode()))
    monkeypatch.setattr(sys, "stdin", given)
    made = plain(source, bags="town")
    expected = frame["y"].clip(-6, 6).groupby(frame["town"]).mean()
    for town, mean in zip(made.bags["bag"].to_pylist(), made.means, strict=True):
        assert mean == pytest.approx(expected[town], abs=2e-5)


def test_files_that_do_not_fit_together_are_told_without_a_cell(go, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2.5\n" * 20)
    (tmp_path / "b.csv").write_text(f"x,y\n1,{CANARY}lots\n")
    with pytest.raises(
        ValueError, match=r"rows must be of readable files; got \S*b\.csv"
    ) as refusal:
        go([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert "8472" not in "".join(traceback.format_exception(refusal.value))
    assert refusal.value.__context__ is None


def test_a_column_called_bag_can_make_the_bags(plain):
    made = plain(table().rename(columns={"day": "bag"}), bags="bag")
    assert "bag" not in made.statement.columns
    assert set(made.bags["bag"].to_pylist()) == set(range(9))


def test_what_a_maker_noted_in_a_schema_does_not_leave(go):
    """Schemas carry metadata: pandas' own, and whatever a curator's tools put there."""
    arrow = pa.Table.from_pandas(table()[["a", "y"]]).replace_schema_metadata({"note": str(CANARY)})
    arrow = pa.Table.from_arrays(
        arrow.columns,
        schema=pa.schema(
            [pa.field("a", pa.float64(), metadata={"mean": str(CANARY)}), ("y", pa.float64())],
            metadata={"note": str(CANARY)},
        ),
    )
    for made in (go(arrow), go(arrow, bags="a")):
        schema = pq.read_schema(made.path / "rows.parquet")
        assert schema.metadata is None
        assert all(field.metadata is None for field in schema)
        schema = pq.read_schema(made.path / "bags.parquet")
        assert schema.metadata is None
        assert all(field.metadata is None for field in schema)


# What is said


def test_the_statement_says_what_was_done(go):
    said = go(epsilon=0.5).statement
    assert said.private
    assert (said.epsilon, said.unit, said.features) == (0.5, "one label", "rows")
    assert said.promise.startswith("Label-private with epsilon = 0.5 for one label")
    assert "Features are not protected" in said.promise
    assert said.versions.keys() == {"bagwise", "duckdb", "opendp", "numpy", "pyarrow", "python"}


def test_plain_means_are_stamped_not_private(plain):
    said = plain().statement
    assert not said.private
    assert said.epsilon is None
    assert said.promise.startswith("Not private")


def test_the_paper_s_noise_says_and_pays_twice_epsilon(go, tmp_path):
    made = go(epsilon=1.0, paper=True)
    assert made.statement.epsilon == 2.0
    assert "costs 2 epsilon = 2" in made.statement.promise
    assert spent(tmp_path) == 2
    assert made.statement.scale == pytest.approx(go(epsilon=1.0).statement.scale / 2)


def test_test_noise_is_stamped_not_private(go, monkeypatch):
    """No argument reaches it: a test has to put it in by force."""
    honest = Mechanism.of

    def rigged(*arguments):
        return replace(honest(*arguments), test_seed=1)

    monkeypatch.setattr(Mechanism, "of", rigged)
    first, second = go(bags="town"), go(bags="town")
    for made in (first, second):
        assert not made.statement.private
        assert made.statement.epsilon is None
        assert made.statement.promise == (
            "Not private: the noise is for tests, and anyone can draw it again."
        )


def test_without_opendp_nothing_is_charged_and_plain_means_are_released(go, tmp_path, monkeypatch):
    for name in [m for m in sys.modules if m.split(".")[0] == "opendp"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"opendp must be installed .*bagwise\[release\]"):
        go()
    assert spent(tmp_path) == 0
    assert not go(epsilon=math.inf, ledger=None, budget=None).statement.private


def test_no_seed_can_be_passed():
    import inspect

    names = set(inspect.signature(release).parameters)
    assert not {"seed", "random_state", "rng", "noise"} & names


def test_without_a_ledger_the_statement_says_so(go):
    made = go(ledger=None, budget=None)
    assert (made.statement.ledger, made.statement.charge) == (None, None)
    assert "No ledger was kept" in made.statement.promise


def test_the_ledger_is_charged_and_named(go, tmp_path):
    first, second = go(epsilon=1.0), go(epsilon=0.25)
    ledger = Ledger(tmp_path / "books" / "ledger.db")
    for made in (first, second):
        said = made.statement
        assert ledger.paid_for(said.ledger, said.charge, said.epsilon)
    assert spent(tmp_path) == Decimal("1.25")
    assert first.statement.charge != second.statement.charge


def test_a_release_past_the_budget_leaves_nothing(go, tmp_path):
    go(epsilon=1.0, budget=1.5)
    with pytest.raises(BudgetExceeded):
        go(epsilon=1.0, budget=1.5, out=tmp_path / "deep" / "late")
    assert not (tmp_path / "deep").exists()
    assert spent(tmp_path) == 1


def test_the_same_responses_in_other_rows_share_a_budget(go):
    go(epsilon=1.0, budget=1.5)
    again = table().sample(frac=1, random_state=1).rename(columns={"y": "z", "a": "q"})
    with pytest.raises(BudgetExceeded):
        go(again, response="z", epsilon=1.0, budget=1.5)


# Bad input: refused before anything is charged, without a value


def canary_table(bad):
    """Rows with one bad response and a canary beside it."""
    y = [*table(50)["y"], CANARY, bad]
    return {"x": list(range(52)), "y": y}


BAD_RESPONSES = {
    "nan": lambda: pd.DataFrame(canary_table(math.nan)),
    "null": lambda: canary_table(None),
    "infinity": lambda: canary_table(math.inf),
    "minus infinity": lambda: canary_table(-math.inf),
    "text": lambda: canary_table(0.0) | {"y": [str(v) for v in canary_table(0.0)["y"]]},
    "mixed": lambda: pd.DataFrame(canary_table("lots"), dtype=object),
    "objects": lambda: pd.DataFrame(
        {"x": range(3), "y": [{"value": CANARY}, object(), str(CANARY)]}
    ),
    "nested": lambda: pa.table({"x": [1, 2], "y": [[CANARY], [CANARY]]}),
    "dates": lambda: pd.DataFrame({"x": range(2), "y": pd.to_datetime(["2020-01-01"] * 2)}),
    "complex": lambda: pd.DataFrame({"x": range(2), "y": [complex(CANARY), 1j]}),
    "ragged": lambda: {"x": [1.0], "y": [CANARY, CANARY]},
    "categories": lambda: pd.DataFrame({"x": range(2), "y": pd.Categorical([str(CANARY), "a"])}),
    "decimals": lambda: pa.table({"x": [1], "y": pa.array([CANARY]).cast(pa.decimal128(20, 6))}),
}


@pytest.mark.parametrize("kind", BAD_RESPONSES)
def test_bad_responses_are_refused_without_a_word_of_them(go, kind, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ValueError, match=r"^(the response|rows) must be") as refusal:
        go(BAD_RESPONSES[kind](), out=tmp_path / "new" / "released")
    shown = "".join(traceback.format_exception(refusal.value))
    chained, link = [], refusal.value
    while link is not None:
        chained.append(str(link))
        link = link.__context__
    printed = "".join(capfd.readouterr())
    for text in (shown, *chained, caplog.text, printed):
        for secret in (str(CANARY), "8472", "lots"):
            assert secret not in text
        for place in ("row 50", "row 51", "index 50", "index 51", "position"):
            assert place not in text
    assert spent(tmp_path) == 0
    assert not (tmp_path / "new").exists()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            for secret in (str(CANARY).encode(), np.float64(CANARY).tobytes()):
                assert secret not in file.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        f"x,y\n1,{CANARY}\n2,{CANARY},3\n",
        f"x,y\n1,{CANARY}\n2,oops\n",
        f"x,y\n1,{CANARY}\n2,\n",
        f'x,y\n1,{CANARY}\n2,"{CANARY}\n',
        f"x,y\n1,{CANARY}\n2,\xff\xfe\n",
        f"x,y,y\n1,{CANARY},{CANARY}\n",
        "",
        "x,y\n",
    ],
    ids=["ragged", "text", "missing", "quote", "bytes", "twice", "empty", "no rows"],
)
def test_bad_files_are_refused_without_a_word_of_them(go, tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"^(the response|rows) must be") as refusal:
        go(path)
    assert "8472" not in "".join(traceback.format_exception(refusal.value))
    assert "8472" not in str(refusal.value.__context__)
    assert spent(tmp_path) == 0


def test_the_file_that_cannot_be_opened_is_named(go, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2.5\n")
    (tmp_path / "b.csv").write_text(f"x,y\n1,2\n{CANARY}\n")
    with pytest.raises(
        ValueError, match=r"rows must be of readable files; got \S*b\.csv, which"
    ) as no:
        go(tmp_path / "*.csv")
    assert "8472" not in "".join(traceback.format_exception(no.value))


def test_csv_files_whose_first_lines_look_otherwise_are_one_table(plain, tmp_path):
    """Whole numbers here and fractions there, nothing at first, and whole numbers as bags."""
    (tmp_path / "a.csv").write_text("x,z,g,y\n" + "1,,7,1\n" * 10)
    (tmp_path / "b.csv").write_text("x,z,g,y\n" + "0.5,2,8,2\n" * 10)
    made = plain(tmp_path / "*.csv", bags="g", columns=["x"])
    assert sorted(made.training_set()[0]["x"].to_pylist()) == [0.5] * 10 + [1.0] * 10
    assert made.bags.sort_by("bag")["bag"].to_pylist() == [7, 8]
    found = open_table(tmp_path / "*.csv", ids=["g"]).schema
    assert [found.field(name).type for name in ("z", "g")] == [pa.float64(), pa.int64()]


def test_a_parquet_file_cut_in_half_is_refused(go, tmp_path):
    path = tmp_path / "rows.parquet"
    table().to_parquet(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"rows must be of readable files; got .*rows\.parquet"):
        go(path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": -1.0}, "epsilon must be above 0"),
        ({"epsilon": math.nan}, "epsilon must be above 0"),
        ({"bounds": (1, 0)}, "bounds must be"),
        ({"bounds": (1, 1)}, "bounds must be"),
        ({"bounds": None}, "bounds must be"),
        ({"bounds": -2.0}, "bounds must be above 0"),
        ({"bounds": True}, "bounds must be"),
        ({"bounds": (-1e308, 1e308)}, r"bounds must be within ±1e\+100"),
        ({"epsilon": 1e308}, r"epsilon must be at most 1e\+06 or infinite"),
        ({"user": "person", "max_rows_per_user": 10**400}, "max_rows_per_user must be at most"),
        ({"step": 64.0}, "step must be finer than the bounds are wide"),
        ({"step": 0.3}, "step must be a power of two"),
        ({"response": "z"}, "response must be a column of the table; got 'z'"),
        ({"bag_size": 0}, "bag_size must be a whole number of at least 1"),
        ({"bag_size": 401}, "bag_size must be at most n_rows; got bag_size=401, n_rows=400"),
        ({"bag_size": 4, "min_bag_size": 5}, "bag_size must be at least min_bag_size"),
        ({"bag_size": 5, "bags": "day"}, "bags must be given, or bag_size, not both"),
        ({"bag_size": None}, "bags must be given, or bag_size, not both"),
        ({"bags": "hour"}, "bags must be a column of the table; got 'hour'"),
        ({"bags": "y"}, "bags must be other columns than response and user; got 'y'"),
        ({"bags": ["day", "y"]}, "bags must be other columns than response and user"),
        ({"bags": "person", "user": "person"}, "bags must be other columns than response and"),
        ({"bags": ["day", "day"]}, "bags must be different names"),
        ({"bags": []}, "bags must be names of columns"),
        ({"bags": np.zeros(400)}, "bags must be names of columns; got a ndarray"),
        ({"bags": Bags(np.zeros(400))}, "bags must be names of columns; got a Bags"),
        ({"bags": "person", "min_bag_size": 3}, "bags must be large enough; got one of 1 rows"),
        ({"user": "nobody"}, "user must be a column of the table; got 'nobody'"),
        ({"user": "y"}, "user must be another column than the response"),
        ({"max_rows_per_user": 2}, "user must be given; got max_rows_per_user=2 without user"),
        ({"max_rows_per_user": 0, "user": "person"}, "max_rows_per_user must be a whole number"),
        ({"features": "all"}, "features must be one of 'rows', 'means', 'statistics', 'none'"),
        ({"columns": ["a", "y"]}, "columns must be columns that may leave; got 'y'"),
        ({"columns": ["person"], "user": "person"}, "columns must be columns that may leave"),
        ({"columns": ["q"]}, "columns must be a column of the table; got 'q'"),
        ({"columns": []}, "columns must be at least one; got none"),
        ({"features": "means"}, "columns must be finite numbers for this; got 'town'"),
        ({"features": "statistics"}, "columns must be finite numbers for this; got 'town'"),
        ({"budget": None}, "budget must be given for responses that are new to the ledger"),
        ({"budget": -1}, "budget must be at least 0"),
        ({"budget": math.nan}, "budget must be at least 0"),
        ({"rows": [[1, 2], [3, 4]]}, "rows must be a table; got a list"),
        ({"rows": __file__}, r"rows must be of .csv or .parquet files; got"),
        ({"rows": {"a": [], "y": []}}, "rows must be of at least one row"),
    ],
)
def test_bad_arguments_are_one_sentence_and_cost_nothing(go, tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        go(**options, out=tmp_path / "out")
    assert spent(tmp_path) == 0
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_files_that_are_not_there_are_told_by_the_system(go, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        go(tmp_path / "none.csv")


@pytest.mark.parametrize("missing", [None, math.nan])
def test_missing_users_and_bags_are_refused(go, missing):
    rows = table()
    rows["who"] = rows["person"].astype(float)
    rows.loc[3, "who"] = missing
    for options in ({"user": "who"}, {"bags": "who"}, {"bags": ["who", "day"]}):
        with pytest.raises(ValueError, match="column 'who' must be an id in every row"):
            go(rows, **options)


COPIES = {
    "same": lambda y: y,
    "rounded": lambda y: y.round(6),
    "single precision": lambda y: y.astype(np.float32),
    "text": lambda y: y.astype(str),
    "categories": lambda y: pd.Categorical(y.astype(str)),
    "with gaps": lambda y: y.where(np.arange(len(y)) % 3 > 0),
    "mended here and there": lambda y: y.where(np.arange(len(y)) % 50 > 0, 0.0),
    "not clipped": lambda y: y.where(y.abs() < 2, 7 * y),
}


@pytest.mark.parametrize("shape", COPIES)
@pytest.mark.parametrize("place", ["features", "bags", "several bags"])
def test_a_copy_of_the_response_does_not_leave(go, tmp_path, shape, place):
    """Raw beside filled, unclipped beside clipped, re-saved: what a curator has by accident."""
    rows = table(3000)
    rows["y"] = rows["y"].clip(-3, 3)
    rows["copy"] = COPIES[shape](rows["y"])
    if place != "features":
        rows["copy"] = rows["copy"].astype(object).where(rows["copy"].notna(), 0.5)
        rows["copy"] = rows["copy"].astype(float if shape not in ("text", "categories") else str)
    options = {
        "features": {},
        "bags": {"bags": "copy", "features": "none"},
        "several bags": {"bags": ["day", "copy"], "columns": ["a"]},
    }[place]
    if shape == "with gaps" and place != "features":
        pytest.skip("ids of bags have no gaps")
    bounds = (-2.0, 2.0) if shape == "not clipped" else (-6.0, 6.0)
    with pytest.raises(ValueError, match="different from the response; got 'copy'"):
        go(rows, bounds=bounds, **options)
    assert spent(tmp_path) == 0
    go(rows, columns=["a"])


def test_copies_of_yes_and_no_are_known_and_features_that_predict_them_are_not_taken_for_one(go):
    """Agreement is counted beyond chance: rare events agree in most rows by being rare."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"y": rng.random(5000) < 0.02})
    rows["rare"] = rng.random(5000) < 0.01
    rows["predicts"] = rows["y"] ^ (rng.random(5000) < 0.01)
    rows["constant"] = False
    go(rows, bounds=(0, 1), ledger=None)
    rows["copy"] = rows["y"].astype(int)
    with pytest.raises(ValueError, match="different from the response; got 'copy'"):
        go(rows, bounds=(0, 1), ledger=None)


@pytest.mark.parametrize("features", ["rows", "means", "statistics"])
@pytest.mark.parametrize("hole", [None, math.nan, math.inf, -math.inf])
def test_features_with_holes_are_refused_before_a_charge(go, tmp_path, features, hole):
    rows = pa.Table.from_pandas(table()[["a", "b", "y"]])
    values = [hole, *rows["a"].to_pylist()[1:]]
    rows = rows.set_column(0, "a", pa.array(values, pa.float32()))
    with pytest.raises(ValueError, match=r"columns (that leave )?must be") as refusal:
        go(rows, features=features)
    assert "'a'" in str(refusal.value)
    assert spent(tmp_path) == 0
    assert not (tmp_path / "out").exists()
    assert go(rows, columns=["b"], features=features).statement.columns == ["b"]


def test_text_with_holes_is_refused_before_a_charge(go, tmp_path):
    rows = table()[["a", "town", "y"]]
    rows.loc[7, "town"] = None
    with pytest.raises(ValueError, match="missing or infinite values in column 'town'"):
        go(rows)
    assert spent(tmp_path) == 0


def test_a_row_is_in_one_bag(plain):
    """Bags partition the rows that leave: no row counts twice."""
    rows = table().assign(key=lambda t: np.arange(len(t)))
    for options in ({"bag_size": 7}, {"bags": "town"}, {"bags": ["day", "town"]}):
        keys = plain(rows, **options).training_set()[0]["key"].to_numpy()
        assert len(np.unique(keys)) == len(keys) == 400


def test_a_feature_called_bag_is_refused(go):
    with pytest.raises(ValueError, match="columns must be named otherwise than 'bag'"):
        go(table().rename(columns={"a": "bag"}))


def test_names_that_bags_parquet_needs_are_refused_as_labels(go):
    with pytest.raises(ValueError, match="bags must be different names, and none of bag, size"):
        go(table().rename(columns={"a": "size"}), bags=["size", "day"])


@pytest.mark.parametrize("kind", ["file", "full folder", "link"])
def test_out_is_never_written_over(go, tmp_path, kind):
    out = tmp_path / "taken"
    if kind == "file":
        out.write_text("mine")
    elif kind == "link":
        out.symlink_to(tmp_path)
    else:
        out.mkdir()
        (out / "mine").write_text("")
    with pytest.raises(ValueError, match="out must be a new or empty folder"):
        go(out=out)
    assert spent(tmp_path) == 0
    empty = tmp_path / "empty"
    empty.mkdir()
    assert go(out=empty).statement.private


def test_a_second_call_with_the_same_out_costs_nothing(go, tmp_path):
    made = go(out=tmp_path / "once")
    with pytest.raises(ValueError, match="out must be a new or empty folder"):
        go(out=tmp_path / "once")
    assert spent(tmp_path) == 1
    assert Release.load(tmp_path / "once").means.tolist() == made.means.tolist()


def test_sums_that_would_overflow_are_refused_before_a_charge(go, tmp_path):
    with pytest.raises(ValueError, match="bags must be small enough to sum exactly"):
        go(table(3000), bounds=(2.0**40, 2.0**40 + 1), step=2.0**-11, bag_size=3000)
    # Bags that are named are known to be large only once they are summed.
    with pytest.raises(ValueError, match="bags must be small enough to sum exactly"):
        go(table(3000).assign(g=1), bounds=(2.0**40, 2.0**40 + 1), step=2.0**-11, bags="g")
    assert spent(tmp_path) == 0


@pytest.mark.filterwarnings("ignore:The ledger knows other responses")
@pytest.mark.parametrize("known", [False, True])
def test_the_statement_holds_nothing_computed_from_responses(go, known):
    """Same rows, one other label, with a ledger that knows one of them or none."""
    if known:
        go(bags="town")
    other = table()
    other.loc[0, "y"] += 1
    said = [json.loads(go(rows, bags="town").statement.to_json()) for rows in (table(), other)]
    for statement in said:
        for random in ("files", "made", "charge"):
            statement.pop(random)
    assert said[0] == said[1]
    assert "entry" not in said[0]


def test_neither_the_order_of_a_table_nor_rows_past_the_cap_leave_by_a_dictionary(plain):
    """Arrow lists categories as they first come up: of a table sorted by response, in its order."""
    names = [f"n{i:03d}" for i in np.random.default_rng(0).permutation(300)]
    y = np.linspace(0, 1, 300)
    arrow = pa.table(
        {"name": pa.array(names).dictionary_encode(), "who": np.arange(300) % 50, "y": y}
    )
    for rows in (arrow, pl.DataFrame({"name": pl.Series(names, dtype=pl.Categorical), "y": y})):
        made = plain(rows, bag_size=30, columns=["name"], bounds=(0, 1))
        assert not pa.types.is_dictionary(made.training_set()[0]["name"].type)
        first = made.training_set()[0]["name"].to_pylist()
        place = np.array([names.index(n) for n in first])
        # A random order: α = 1e-8.
        assert abs(np.corrcoef(place, np.arange(300))[0, 1]) < 6 / math.sqrt(300)
    made = plain(arrow, bag_size=10, columns=["name"], user="who", bounds=(0, 1))
    kept = set(made.training_set()[0]["name"].to_pylist())
    data = (made.path / "rows.parquet").read_bytes()
    schema = pq.read_schema(made.path / "rows.parquet")
    assert not pa.types.is_dictionary(schema.field("name").type)
    assert len(kept) == 50
    file = pq.ParquetFile(made.path / "rows.parquet")
    assert file.metadata.row_group(0).column(1).statistics.min in kept
    assert data


@pytest.mark.parametrize("nested", [[{"v": 1.0}] * 2, [[1.0]] * 2], ids=["struct", "list"])
def test_nested_columns_are_refused(go, nested, tmp_path):
    rows = pa.table({"x": [1, 2], "deep": nested, "y": [0.1, 0.2]})
    with pytest.raises(ValueError, match=r"rows must be of plain columns; got .* in column 'deep'"):
        go(rows, bags="deep")
    assert spent(tmp_path) == 0


def test_bag_columns_of_text_are_left_out_where_features_are_averaged(plain):
    made = plain(table()[["a", "town", "y"]], bags="town", features="means")
    assert made.statement.columns == ["a"]


def test_a_ledger_does_not_lie_in_the_release(go, tmp_path):
    with pytest.raises(ValueError, match="ledger must be kept outside the release"):
        go(out=tmp_path / "r", ledger=tmp_path / "r" / "ledger.db")


def test_the_promise_names_epsilon_in_full(go):
    assert "epsilon = 1.0000004 for" in go(epsilon=1.0000004).statement.promise
