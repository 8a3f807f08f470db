"""The demo on real flights: what it claims, its command, and its bad input."""

import json
import math
import sys

import matplotlib
import numpy as np
import pytest

from bagwise import Release, cli
from bagwise.estimators.models import load_model
from bagwise.experiments import flights, private_flights, story
from bagwise.release import Ledger, default_ledger
from tests.test_report import read

matplotlib.use("Agg")


def run_command(monkeypatch, *words):
    """Exit code of the command line as a shell would see it."""
    monkeypatch.setattr(sys, "argv", ["bagwise", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_the_table_has_the_rows_and_columns_it_should():
    X, y = flights.load()
    assert X.shape == (327_346, 25)
    assert len(y) == 327_346


def test_the_claims_of_the_readme_hold():
    """Many bags: bag loss as good as full labels. Few: the chosen rho beats both ends."""
    result = flights.run(sizes=(500, 100_000), repeats=5)
    error = result.errors.groupby(["rows", "method"])["rmse"].median()
    many, few = error[100_000], error[500]
    assert many["bag loss (rho = 0)"] < 1.01 * many["full labels"]
    assert few["chosen rho"] < 0.8 * few["bag loss (rho = 0)"]
    assert few["chosen rho"] < 0.8 * few["instance loss (rho = 1)"]
    curves = result.paths.groupby("rho")[["estimated", "measured"]].median()
    measured = curves["measured"]
    assert measured[curves["estimated"].idxmin()] < 1.1 * measured.min()


def test_the_planner_forecasts_what_privacy_costs_on_real_flights():
    """Squared error beyond that of plain means, over twelve releases: α about 1e-5.

    Noise has no seed. Its share of a release's error is a mean of some 23 squares, so twelve have a
    standard error of 9 %. Bounds that clip little, or the bias of clipping would blur it.
    """
    errors = private_flights.run(epsilons=(0.5, 1.0, math.inf), repeats=6).errors
    wide = errors[errors["high"] == 500].set_index(["repeat", "epsilon"])
    square = (wide[["measured", "forecast"]] ** 2).unstack()
    measured, forecast = (
        square[kind].sub(square[kind][math.inf], axis=0)[[0.5, 1.0]]
        for kind in ("measured", "forecast")
    )
    assert 0.6 < (measured / forecast).to_numpy().mean() < 1.5
    plain = errors[errors["epsilon"] == math.inf].groupby("high")["measured"].median()
    assert plain[180.0] > 1.03 * plain[500.0], "clipping at three hours costs what it should"


def test_the_pictures_of_the_docs_are_drawn_by_paper(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(flights.run, "__defaults__", (20, (500, 2000), 2, 0, iter))
    monkeypatch.setattr(private_flights.run, "__defaults__", (20, (1.0, math.inf), 1, 0, iter))
    out = tmp_path / "new" / "paper"
    assert run_command(monkeypatch, "paper", "flights", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "flights.png" in printed
    assert "2,000" in printed
    assert (out / "flights.png").stat().st_size > 10_000
    assert (out / "flights.csv").read_text().count("\n") == 1 + 2 * 2 * 4
    words = ("paper", "private_flights", "--out", str(out), "--json")
    assert run_command(monkeypatch, *words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [line["epsilon"] for line in told["private_flights"]["rmse"]] == [1, None]
    assert (out / "private_flights.png").stat().st_size > 10_000
    assert (out / "private_flights.csv").read_text().count("\n") == 1 + 2 * 2


SMALL = ("--flights", "4000", "--bag-size", "10", "--epsilon", "5")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A small demo, and what it found."""
    out = tmp_path_factory.mktemp("demo") / "new" / "demo"
    return out, story.run(out, bag_size=10, epsilon=5.0, most=4000)


def test_the_demo_tells_the_whole_story(told):
    out, found = told
    said = found.released.statement
    assert (said.private, said.epsilon, said.response) == (True, 5.0, "arr_delay")
    assert said.n_rows == 4000
    assert said.smallest_bag == found.plan.bag_size >= 10
    assert found.n_test == 81_837
    assert set(found.models) == set(found.private) == set(found.full) == set(story.KINDS)
    # Every label tells more than noisy means, and these tell more than nothing.
    for kind in story.KINDS:
        assert found.full[kind][0] < found.private[kind][0] * 1.02
        assert found.private[kind][0] < found.mean
    assert found.forecast < found.mean
    assert not found.replaced
    # What a learner finds there are models of what crossed.
    loaded = load_model(out / "models" / "linear")
    np.testing.assert_array_equal(loaded.coef_, found.models["linear"].coef_)


def test_the_release_is_paid_for_by_the_demos_own_ledger(told):
    out, found = told
    (place,) = out.glob("ledger-*/ledger.db")
    book, said = Ledger(place), found.released.statement
    assert book.paid_for(said.ledger, said.charge, said.epsilon)
    assert book.dataset_of(said.charge).left == 0
    assert place != default_ledger()


def test_a_second_demo_replaces_the_first_and_nothing_else(told, monkeypatch, capsys):
    out, before = told
    (out / "mine.txt").write_text("mine")
    assert run_command(monkeypatch, "demo", "--out", str(out), *SMALL) == 0
    printed = capsys.readouterr().out
    assert f"Replaced what an earlier demo made in {out}." in printed
    now = Release.load(out / "released")
    assert now.statement.charge != before.released.statement.charge
    assert len(list(out.glob("ledger-*"))) == 1
    assert (out / "mine.txt").read_text() == "mine"
    # Three lines that say what was learnt, with the numbers of the run, and where the page is.
    numbers = json.loads((out / "demo.json").read_text())
    lines = " ".join(printed.split())
    for line in numbers["lines"]:
        assert line in lines
    assert len(numbers["lines"]) == 3
    for error in (*numbers["rmse"].values(), numbers["rmse_mean"], numbers["rmse_forecast"]):
        assert f"{error:.1f}" in lines
    assert "Report:" in lines
    text = read((out / "report.html").read_text())[1]
    for words in ("What was learnt", "What was planned", "How rho was chosen", "Label-private"):
        assert words in text
    # And once more, for machines.
    assert run_command(monkeypatch, "demo", "--out", str(out), *SMALL, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["replaced"]
    assert said["report"]["statement"]["epsilon"] == 5


def test_a_folder_of_something_else_is_left_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "released").mkdir()
    assert run_command(monkeypatch, "demo", "--out", str(tmp_path)) == 2
    assert "out must be a new folder, or one of a demo" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["released"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--bag-size", "0"], "bag_size must be a whole number of at least 1; got bag_size=0"),
        (["--bag-size", "600", "--flights", "1000"], "at most half the training flights; got"),
        (["--epsilon", "0"], "epsilon must be in (0, 1e+06]"),
        (["--flights", "10"], "flights must be a whole number of at least 1000"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words, sentence, monkeypatch, capsys, tmp_path):
    assert run_command(monkeypatch, "demo", "--out", str(tmp_path / "x"), *words) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "x").exists()


def test_an_unwritable_folder_is_told_before_the_work(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert run_command(monkeypatch, "demo", "--out", str(tmp_path / "file" / "x")) == 2
    assert "Not a directory" in capsys.readouterr().err
