"""The demo on real flights: what it claims, its command, and its bad input."""

import json
import math
import sys

import matplotlib
import pytest

from bagwise import cli
from bagwise.experiments import flights, private_flights

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


def test_the_command_writes_a_picture_and_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(flights.run, "__defaults__", (20, (500, 2000), 2, 0, iter))
    out = tmp_path / "new" / "demo"
    assert run_command(monkeypatch, "demo", "--out", str(out), "--repeats", "2") == 0
    printed = capsys.readouterr().out
    assert "flights.png" in printed
    assert "2,000" in printed
    assert (out / "flights.png").stat().st_size > 10_000
    assert (out / "flights.csv").read_text().count("\n") == 1 + 2 * 2 * 4
    assert "The same with label privacy (245,509 flights)" in printed
    assert (out / "private_flights.png").stat().st_size > 10_000
    assert (out / "private_flights.csv").read_text().count("\n") == 1 + 2 * 2 * 5
    assert run_command(monkeypatch, "demo", "--out", str(out), "--repeats", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rmse"]) == 2
    assert [line["epsilon"] for line in told["private_rmse"]] == [0.5, 1, 2, 4, None]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--bag-size", "400"], "bag_size must be at most half the training flights; got"),
        (["--bag-size", "0"], "bag_size must be a whole number of at least 1; got bag_size=0"),
        (["--repeats", "0"], "repeats must be a whole number of at least 1"),
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
