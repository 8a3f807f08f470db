"""The planner's page and API without a browser: they say what `plan` and `theory` say."""

import json
import re
import shlex
import socket
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import AggregateStatistics, estimate_snr, plan, theory
from bagwise.app import figures
from bagwise.app.curves import answer, look
from bagwise.app.estimate import without
from bagwise.app.state import NAMES, State, field_of
from tests.served import served

pytest.importorskip("dash")
pytest.importorskip("waitress")
from bagwise.app import page
from bagwise.app.server import make_app

GOOD = {"rows": 20_000, "features": 20, "snr": 2, "epsilon": 0.5, "lo": -5, "hi": 5}
PLAN = {"snr": 2, "epsilon": 0.5, "bounds": (-5, 5)}


@pytest.fixture(scope="module")
def client():
    return make_app().test_client()


positive = st.floats(1e-6, 1e6)


@given(
    st.fixed_dictionaries(
        {"rows": st.integers(2, 10**15), "features": st.integers(1, 10**6), "snr": positive},
        optional={"noise": positive, "epsilon": positive, "rho": st.floats(0, 1)}
        | {"bag_size": st.integers(1, 10**6)},
    )
)
def test_a_link_holds_the_whole_state(words):
    state = State.parse(words)
    link = dict(part.split("=") for part in state.query().split("&"))
    assert State.parse(link) == state
    assert all(getattr(state, name) == value for name, value in words.items())


@pytest.mark.parametrize("more", [{}, {"bag_size": 7}, {"rho": 0.01}, {"noise": 3.0}])
def test_the_api_is_plan_and_the_point(client, more):
    known = PLAN | {"bounds": (-5, 5)}
    if "noise" in more:
        known |= {"snr": None, "signal": np.sqrt(2) * 3.0, "noise": 3.0}
    chosen = plan(20_000, 20, **known)
    found = client.get("/api/plan", query_string=GOOD | more).get_json()
    for name, value in chosen.to_dict().items():
        assert found[name] == value
    size = more.get("bag_size", chosen.bag_size)
    here = plan(20_000, 20, **known, bag_sizes=[size]).best
    assert found["best_rho_here"]["risk"] == here.risk
    assert (found["point"]["bag_size"], found["point"]["rho"]) == (size, more.get("rho", here.rho))
    direct = theory.private_risk(
        found["point"]["rho"], size, 1000, 0.5, 10.0, chosen.signal, chosen.noise
    )
    assert found["point"]["risk"] == pytest.approx(direct, rel=1e-12)


def test_curves_and_map_are_the_theory():
    view = look(State.parse(GOOD | {"bag_size": 30, "rho": 0.1}))
    rest = (1000, 0.5, 10.0, np.sqrt(2), 1.0)
    for i in (0, 9, -1):
        best = theory.best_private_rho(view.by_size.x[i], *rest)
        direct = theory.private_risk(best, view.by_size.x[i], *rest)
        assert view.by_size.risk[i] == pytest.approx(direct)
        assert view.by_rho.risk[i] == pytest.approx(theory.private_risk(view.rhos[i], 30, *rest))
        assert view.by_size_here[i] == pytest.approx(
            theory.private_risk(0.1, view.by_size.x[i], *rest)
        )
        for j in (0, 5, -1):
            cell = theory.private_risk(view.rhos[i], view.sizes[j], *rest)
            assert view.risks[i, j] == pytest.approx(cell)
    # The plan has fewer bag sizes than the map, and the map fewer rhos than the plan.
    assert view.plan.risk == pytest.approx(view.risks.min(), rel=0.01)


def test_pictures_are_strict_json_and_mark_the_points():
    view = look(State.parse(GOOD | {"bag_size": 30, "rho": 0.1}))
    for draw in (figures.by_size, figures.by_rho, figures.risk_map):
        figure = draw(view)
        json.dumps(figure, allow_nan=False)
        marks = {trace["name"]: trace for trace in figure["data"] if "name" in trace}
        assert {"your choice", "best"} <= marks.keys()
    assert marks["your choice"]["x"] == [np.log10(30)]
    assert marks["best"]["x"] == [np.log10(view.plan.bag_size)]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rows": ""}, "rows"),
        ({"rows": "10"}, "rows"),
        ({"features": "2.5"}, "features"),
        ({"snr": "-1"}, "snr"),
        ({"noise": "0"}, "noise"),
        ({"epsilon": "0"}, "epsilon"),
        ({"lo": "6"}, "lo"),
        ({"hi": "x"}, "hi"),
        ({"lo": ""}, "lo"),
        ({"lo": "", "hi": ""}, "lo"),
        ({"bag_size": "10001"}, "bag_size"),
        ({"bag_size": "0"}, "bag_size"),
        ({"rho": "1.01"}, "rho"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_nothing_else_changes(client, changes, name):
    words = dict.fromkeys(NAMES, "") | {k: str(v) for k, v in GOOD.items()} | {"noise": "1"}
    found = page.changed(*(words | changes).values(), ["yes"])
    shown, (trouble, *errors) = found[: len(page.IDS)], found[len(page.IDS) :]
    assert all(value is page.no_update for value in shown)
    assert "the last plan that worked" in trouble
    said = {field: text for field, text in zip(NAMES, errors, strict=True) if text}
    assert said.keys() == {name}
    asked = {k: v for k, v in (words | changes).items() if v}
    refused = client.get("/api/plan", query_string=asked)
    assert (refused.status_code, refused.get_json()) == (400, {"error": said[name]})
    assert field_of(said[name]) == name


def test_the_interval_knows_of_the_noise_that_was_added():
    """Of 60 seeds at most 7 miss (alpha = 0.01); most would, were the added noise left in."""
    inside = plain = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(4000, 3))
        y = X @ np.ones(3) + rng.normal(size=4000)
        means = y.reshape(-1, 4).mean(axis=1) + rng.laplace(scale=0.5, size=1000)
        found = AggregateStatistics.from_rows(X, np.repeat(means, 4), np.arange(4000) // 4)
        found = estimate_snr(found, 0.975)
        # Scale 0.5 on the mean of 4 rows has variance 0.5, which weighs as 2 on each.
        _, low, high = without(found, 2.0, 1000 - 4)
        inside += low < 3 < (np.inf if high is None else high)
        plain += found.low < 3 < found.high
    assert inside >= 53
    assert plain < 10


def test_commands_do_what_was_planned(tmp_path, monkeypatch, command):
    """Run for real, on rows of the planned kind."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    lines = ["a,b,y", *(f"{p},{q},{p + q + rng.normal()}" for p, q in x)]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    for words in ({"epsilon": 4, "lo": -6, "hi": 6, "bag_size": 5}, {"lo": -6, "hi": 6}):
        state = State.parse({"rows": 400, "features": 2, "snr": 2} | words)
        where = tmp_path / state.query()
        where.mkdir()
        monkeypatch.chdir(where)
        monkeypatch.setenv("BAGWISE_LEDGER", str(where / "ledger.db"))
        for line in answer(state)["commands"]:
            line = line.replace("DATA", "../rows.csv").replace("RESPONSE", "y")
            code, said, errors = command(*shlex.split(line)[1:])
            assert code == 0, errors
        assert "rho = " in said


def test_the_page_names_no_other_host(client):
    found = client.get("/")
    text = found.get_data(as_text=True)
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    policy = found.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "bagwise" not in found.headers.get("Server", "")


def test_a_taken_port_is_one_sentence(command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, errors = command("app", "--port", port, "--no-open")
    assert code == 2
    assert f"port must be free at the host; got host='127.0.0.1', port={port}" in errors
    assert len(errors.splitlines()) == 1


def test_an_open_host_is_warned_of():
    with served("--host", "0.0.0.0") as (_, process):
        process.said.seek(0)
        assert "Anyone who can reach 0.0.0.0 can use this page" in process.said.read()
    with served() as (_, process):
        process.said.seek(0)
        assert process.said.read() == ""


def test_without_the_extra_the_command_names_it(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "dash", None)
    code, _, errors = command("app", "--no-open")
    assert code == 2
    assert "bagwise[app]" in errors
