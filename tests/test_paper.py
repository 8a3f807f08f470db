"""The figures: what they claim, what they write, and that the docs say the same."""

import csv
import json
from importlib import import_module
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy.stats import spearmanr

from bagwise import theory
from bagwise.cli.study import FIGURES
from bagwise.experiments import chosen_rho, double_descent, figure1, figure4, private_bags
from bagwise.reports.paper import save
from tests.test_demo import run_command

matplotlib.use("Agg")
DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["figure1", "figure2", "figure3"])
def test_the_figures_show_what_the_text_says_and_so_do_the_docs(name):
    page = (DOCS / "paper.md").read_text()
    claims = import_module(f"bagwise.experiments.{name}").run().claims
    assert claims
    for claim in claims:
        verdict = "holds" if claim.holds else "fails"
        assert f"| {claim.text} | {verdict} |" in page
        assert claim.holds


def test_a_claim_can_fail(monkeypatch):
    """With more noise than any balance can bear the best rho is an end."""
    monkeypatch.setitem(figure1.VALUES, "snr", (1e-6, 1.0, 2.0))
    assert not all(claim.holds for claim in figure1.run().claims)


def test_double_descent_is_drawn_where_theory_has_it():
    data = double_descent.run(repeats=20)
    dots = data.where(kind="simulated")
    for k, risk, error in zip(dots["k"], dots["risk"], dots["error"], strict=True):
        parts = theory.bag_level if k < 4 else theory.ridgeless
        exact = parts(k, round(400 / k) * k / 100, 1.0, 2**-0.5).risk
        assert abs(risk - exact) < 4 * error + 0.05 * exact
    limit = data.where(kind="limit")
    assert 3.9 < limit["k"][np.argmax(limit["risk"])] < 4.1
    best = data.where(kind="best rho")
    assert (best["risk"] <= limit["risk"] * (1 + 1e-9)).all()
    assert (np.diff(best["risk"]) > 0).all()


def test_finite_n_and_the_limit_disagree_about_the_bag_size():
    data = private_bags.run().columns
    at = {part: int(np.argmin(data[part])) for part in ("risk", "limit")}
    assert data["k"][at["limit"]] == 100
    assert data["rho"][at["limit"]] == 1
    assert data["k"][at["risk"]] < 10
    # Following the limit would cost as much as predicting the mean.
    assert data["risk"][at["limit"]] > 0.9 > 2 * data["risk"][at["risk"]]


def test_chosen_rhos_are_close_to_the_oracle_and_the_docs_have_the_figures():
    data = chosen_rho.run()
    page = (DOCS / "planning.md").read_text()
    for method, values in chosen_rho.excess(data).items():
        assert (values > -1e-3).all()
        assert np.median(values) < 0.05
        assert f'{100 * np.median(values):.1f} % for `"{method}"`' in page


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_saved_with_its_numbers(name, tmp_path):
    run = import_module(f"bagwise.experiments.{name}").run
    few = {
        "figure3": {"repeats": 3},
        "double_descent": {"repeats": 3},
        "chosen_rho": {"problems": 3},
    }
    data = run(**few.get(name, {}))
    paths = save(data, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv", ".json"]
    assert paths[0].read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in paths[1].read_text()
    with paths[2].open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(next(iter(data.columns.values())))
    assert set(lines[0]) == set(data.columns)
    content = json.loads(paths[3].read_text())
    assert content["parameters"]
    assert "numpy" in content["versions"]


def test_the_command_draws_one_figure_and_refuses_others(tmp_path, monkeypatch, capsys):
    assert run_command(monkeypatch, "paper", "figure2", "--out", str(tmp_path / "p")) == 0
    assert "holds: The rho of the jump grows as psi falls." in capsys.readouterr().out
    assert (tmp_path / "p" / "figure2.svg").exists()
    assert run_command(monkeypatch, "paper", "figure2", "--out", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["figure2"]["claims"]
    assert run_command(monkeypatch, "paper", "figure9", "--out", str(tmp_path / "q")) == 2
    assert "figure must be one of 'figure1'" in capsys.readouterr().err
    assert not (tmp_path / "q").exists()


# Figure 4


def small_tables():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = 20 + X @ [3.0, -2.0, 1.0] + rng.normal(size=120)
    return [figure4.Data("small", X, y, (0.0, 40.0)), figure4.Data("other", X, y**2, (0.0, 1600.0))]


def test_figure_4_measures_every_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "HIDDEN", (4,))
    monkeypatch.setattr(figure4, "MAIN", figure4.Setting(epochs=3))
    monkeypatch.setattr(
        figure4,
        "settings",
        lambda full: [figure4.MAIN, figure4.Setting("scaled", 0.1, 2, "spread")],
    )
    data = figure4.run(models=3, tables=small_tables())
    points = len(figure4.SHARES) * len(figure4.RHOS)
    assert len(data.columns["error"]) == 3 * points
    assert np.isfinite(data.columns["error"]).all()
    assert len(data.claims) == 6
    paths = save(data, tmp_path)
    assert paths[0].read_bytes()[:4] == b"\x89PNG"


def test_figure_4_measures_rows_that_were_not_trained_on(monkeypatch):
    """Rows that are trained on, and those that errors are measured on, share none."""
    from bagwise.neural import ensemble

    data, members = small_tables()[0], []

    class Untrained:
        def __init__(self, X, some, *_, **__):
            members.extend(some)

        def predict(self, X):
            """Each network is right on its training rows and wrong by one elsewhere."""
            wrong = np.ones((len(members), len(data.y), 1))
            for row, member in zip(wrong, members, strict=True):
                row[member.rows] = 0
            return (wrong[:, :, 0] + data.y)[:, :, None]

    monkeypatch.setattr(ensemble, "train_ensemble", Untrained)
    found = figure4.errors(data, figure4.Setting(), 2, 0)
    np.testing.assert_allclose(found, 1.0)
    for member in members:
        assert len(member.rows) == int(figure4.TRAINING * len(data.y))
        np.testing.assert_allclose(member.means, member.bags.mean(data.y[member.rows]))


def test_settings_cover_what_the_paper_leaves_open():
    every = figure4.settings(full=True)
    assert len(set(every)) == len(every) == 24
    assert every[0] == figure4.MAIN
    assert set(figure4.settings(full=False)) <= set(every)


def test_the_observations_are_judged():
    sizes = np.repeat([80, 160, 240], 2)
    rho = np.tile([0.0, 1.0], 3)
    table = {"bag_size": sizes, "rho": rho, "spread": np.array([2.0, 1, 4, 1, 8, 2])}
    assert figure4.spread_falls(table) == [0.5, 0.25, 0.25]
    table["error"] = np.array([1.0, 2, 2, 1, 3, 1])
    assert figure4.best_rhos(table) == {80: 0.0, 160: 1.0, 240: 1.0}
    assert figure4.growth({80: 1.0, 160: 1.0, 240: 1.0}) == (0.0, 1.0)
    assert figure4.growth({80: 1.0, 160: 0.1, 240: 0.0}) == pytest.approx((-1.0, 1.0))
    # One order in six has a correlation of one.
    assert figure4.growth({80: 0.0, 160: 0.1, 240: 1.0}) == pytest.approx((1.0, 1 / 6))
    five = dict(zip((80, 120, 160, 200, 240), (0.0, 0.1, 0.01, 0.3, 1.0), strict=True))
    correlation, chance = figure4.growth(five)
    assert correlation == pytest.approx(spearmanr(list(five), list(five.values())).statistic)
    # Five of the 120 orders are as good: the right one, and four that swap two neighbours.
    assert chance == pytest.approx(5 / 120)


def test_the_docs_have_the_verdicts_that_were_measured():
    stored = json.loads((DOCS.parent / "benchmarks/results/figure4.json").read_text())
    page = (DOCS / "paper.md").read_text()
    for claim in stored["claims"]:
        where = claim["text"].split(": spread is")[0].split(": the best rho")[0]
        line = next(line for line in page.splitlines() if line.startswith(f"| {where} |"))
        verdicts = [cell.strip() for cell in line.split("|")][2::2]
        verdict = verdicts["best rho" in claim["text"]]
        assert verdict == ("holds" if claim["holds"] else "fails")
        if "best rho" in claim["text"]:
            assert claim["evidence"].split(";")[0] in line


def test_full_is_asked_of_figure_4_alone(tmp_path, monkeypatch, capsys):
    assert run_command(monkeypatch, "paper", "figure2", "--full", "--out", str(tmp_path)) == 2
    assert "full must be asked of figure4 alone" in capsys.readouterr().err
