"""Two rounds: one charge, noise once for each bag, and no way from responses to bags but noise."""

import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import traceback

import numpy as np
import pandas as pd
import pytest

from bagwise import AggregateLinearRegression, Bags
from bagwise.cli import app
from bagwise.engines.layout import Permutation
from bagwise.release import (
    BudgetExceeded,
    Ledger,
    Mechanism,
    audit,
    release_in_rounds,
    rounds,
    steps,
)
from bagwise.release.audit import _chi_square
from bagwise.release.steps import ROUNDS
from bagwise.released import Release
from bagwise.statement import Statement

CANARY = 8472.918273
TRUTH = [1.0, -2.0]


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return pd.DataFrame(
        {
            "key": np.arange(n),
            "a": X[:, 0],
            "b": X[:, 1],
            "town": rng.choice(["north", "south"], n),
            "person": rng.integers(0, n // 3, n),
            "y": X @ TRUTH + 0.1 * rng.normal(size=n),
        }
    )


@pytest.fixture
def go(tmp_path):
    """A release in two rounds with what most tests ask for; options change it."""
    count = iter(range(10**6))

    def run(rows=None, **options):
        asked = {
            "response": "y",
            "epsilon": 1.0,
            "bounds": (-6.0, 6.0),
            "bag_size": 10,
            "ledger": tmp_path / "books" / "ledger.db",
            "budget": 100,
            "out": tmp_path / f"released{next(count)}",
        }
        return release_in_rounds(table() if rows is None else rows, **asked | options)

    return run


@pytest.fixture
def plain(go):
    """Releases without noise."""
    return lambda rows=None, **options: go(
        rows, **{"epsilon": math.inf, "budget": None, "ledger": None} | options
    )


def spent(tmp_path):
    path = tmp_path / "books" / "ledger.db"
    return sum(d.spent for d in Ledger(path).datasets()) if path.exists() else 0


def first_bags(made, k=10):
    """How many bags are of the first round: those of a half, with k rows or a little more."""
    return made.statement.n_rows // 2 // k


# What is released


@pytest.mark.parametrize(("n", "k"), [(400, 10), (403, 10), (41, 3), (8, 2), (4, 1)])
def test_every_row_is_in_one_bag_and_no_bag_is_small(plain, n, k):
    made = plain(table(n), bag_size=k)
    keys = made.training_set()[0]["key"].to_numpy()
    assert sorted(keys) == list(range(n))
    assert made.sizes.sum() == n
    assert k <= made.sizes.min() <= made.sizes.max() < max(2 * k, k + 2)
    assert made.sizes[: first_bags(made, k)].sum() == n // 2


def test_means_of_both_rounds_are_those_of_the_rows_in_their_bags(plain):
    rows = table().set_index("key")
    made = plain(rows.reset_index(), bounds=(-1.0, 2.0))
    X, y, bags = made.training_set()
    clipped = rows.loc[X["key"].to_numpy(), "y"].clip(-1, 2).to_numpy()
    groups = Bags(bags)
    np.testing.assert_allclose(groups.expand(groups.mean(clipped)), y, atol=4e-6)
    np.testing.assert_array_equal(rows.loc[X["key"].to_numpy(), "a"], X["a"])


def test_bags_of_the_second_round_hold_like_rows(go):
    made = go(table(4000), epsilon=4.0, columns=["a", "b", "key"])
    X, _, bags = made.training_set()
    truth = X["a"].to_numpy() * TRUTH[0] + X["b"].to_numpy() * TRUTH[1]
    within, m = Bags(bags).spread(truth), first_bags(made)
    assert within[m:].mean() < 0.3 * within[:m].mean()
    # Those of the first are random: means within n⁻¹ of the variance; α = 1e-6 is five errors.
    assert abs(within[:m].mean() / truth.var() - 0.9) < 5 * 0.9 * math.sqrt(2 / 9 / m) + 0.02


@pytest.mark.parametrize("features", ["rows", "means", "statistics"])
def test_a_model_is_fitted_to_both_rounds_together(go, features):
    made = go(table(4000), epsilon=20.0, columns=["a", "b"], features=features)
    coef = AggregateLinearRegression().fit(made).coef_
    np.testing.assert_allclose(coef, TRUTH, atol=0.3)


def test_of_each_user_no_more_rows_leave_than_the_cap(plain):
    made = plain(user="person", max_rows_per_user=2, bag_size=5)
    rows = table()
    keys = made.training_set()[0]["key"].to_numpy()
    assert len(np.unique(keys)) == len(keys)
    counts = rows.set_index("key").loc[keys, "person"].value_counts()
    assert counts.max() == 2
    assert len(keys) == rows["person"].value_counts().clip(upper=2).sum()
    assert made.statement.n_dropped == 400 - len(keys)


def test_the_order_of_the_table_does_not_leave_where_scores_are_equal(plain):
    """Sorted by response, with features that tell nothing: equal scores must not stay in line."""
    n = 2000
    rows = {"key": np.arange(n), "x": np.arange(n) % 2, "y": np.linspace(0, 1, n)}
    made = plain(rows, bag_size=100, bounds=(0, 1), columns=["x"])
    again = plain(rows, bag_size=100, bounds=(0, 1), columns=["x"])
    m = first_bags(made, 100)
    # A mean of 100 draws from U(0, 1); bags of neighbours in the table would spread to the ends.
    for means in (made.means[m:], again.means[m:]):
        assert np.abs(means - 0.5).max() < 6 * math.sqrt(1 / 12 / 100)


def test_the_statement_says_two_rounds_and_old_ones_still_load(go):
    said = go().statement
    assert said.rounds == 2
    assert "made in two rounds, which share this epsilon" in said.promise
    text = json.loads(said.to_json())
    text.pop("rounds")
    assert Statement.from_json(json.dumps(text)).rounds == 1
    for wrong in (0, 3, "2", None):
        with pytest.raises(ValueError, match="rounds"):
            Statement.from_json(json.dumps(text | {"rounds": wrong}))


# What it costs


def test_both_rounds_cost_one_epsilon_charged_before_any_noise(go, tmp_path, monkeypatch):
    seen = []
    draw = Mechanism.add_noise

    def watched(self, sums, *rest):
        seen.append((len(sums), float(spent(tmp_path))))
        return draw(self, sums, *rest)

    monkeypatch.setattr(Mechanism, "add_noise", watched)
    made = go(epsilon=0.75)
    m = first_bags(made)
    # Each bag's noise is drawn once: the first round's bags, then the others.
    assert seen == [(m, 0.75), (len(made.bags) - m, 0.75)]
    kinds = [e["kind"] for e in Ledger(tmp_path / "books" / "ledger.db").entries()]
    assert kinds == ["dataset", "release"]
    said = made.statement
    assert Ledger(tmp_path / "books" / "ledger.db").paid_for(said.ledger, said.charge, 0.75)


def test_past_the_budget_no_noise_is_drawn(go, tmp_path, monkeypatch):
    go(budget=1.5)
    monkeypatch.setattr(Mechanism, "add_noise", lambda *_: pytest.fail("noise without a charge"))
    with pytest.raises(BudgetExceeded):
        go(budget=1.5, out=tmp_path / "late")
    assert spent(tmp_path) == 1
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("options", [{}, {"user": "who", "max_rows_per_user": 3}])
def test_noise_has_the_scale_of_epsilon_in_both_rounds_on_both_sides(go, options):
    """Constant responses leave the noise alone; a tenth more or less is refused, α = 1e-6."""
    n, rng = 60_000, np.random.default_rng(0)
    rows = {"x": rng.normal(size=n), "who": np.arange(n), "y": np.full(n, 0.5)}
    made = go(rows, bounds=(0, 1), bag_size=2, columns=["x"], **options)
    said, m = made.statement, first_bags(made, 2)
    expected = options.get("max_rows_per_user", 1) * 2**20
    assert said.scale == pytest.approx(expected)
    noise = np.rint((made.means - 0.5) * made.sizes / said.step)
    for part in (noise[:m], noise[m:]):
        assert _chi_square(part, said.scale) > 1e-6
        assert _chi_square(part, 1.1 * said.scale) < 1e-6
        assert _chi_square(part, 0.9 * said.scale) < 1e-6
    shared = min(m, len(noise) - m)
    together = np.abs(np.corrcoef(noise[:shared], noise[m : m + shared])[0, 1])
    assert together < 5 / math.sqrt(shared)


# Which bags, and from what


@pytest.fixture
def known_shuffle(monkeypatch):
    """The same shuffle for every release, so that what else decides on bags shows."""
    monkeypatch.setattr(
        rounds, "draw_shuffle", lambda n: Permutation.draw(n, np.random.default_rng(3))
    )


def members(made):
    """The keys of each bag."""
    X, _, bags = made.training_set()
    return [frozenset(k) for _, k in X.to_pandas().groupby(bags)["key"]]


def test_bags_of_the_first_round_look_at_no_response(go, known_shuffle):
    m = first_bags(go())
    other = table().assign(y=np.random.default_rng(1).normal(size=400))
    assert members(go())[:m] == members(go(other, ledger=None))[:m]


def test_bags_of_the_second_round_are_a_function_of_the_first_round_s_release(
    go, known_shuffle, monkeypatch
):
    """Two tables without a label in common, one release of the first round: the same bags."""
    other = table().assign(y=np.random.default_rng(1).normal(size=400))
    honest, found = Mechanism.noisy_means, []
    for seed in (0, 1):
        calls = []

        def rigged(self, sums, sizes, *rest, calls=calls, seed=seed):
            calls.append(len(sums))
            if len(calls) > 1:
                return honest(self, sums, sizes, *rest)
            return np.random.default_rng(seed).normal(size=len(sums))

        monkeypatch.setattr(Mechanism, "noisy_means", rigged)
        one = members(go())
        calls.clear()
        two = members(go(other, ledger=None))
        assert one == two
        found.append(one)
    assert found[0] != found[1], "another release of the first round makes other bags"


def test_the_split_is_drawn_anew_for_each_release(plain):
    halves = [set().union(*members(made)[: first_bags(made)]) for made in (plain(), plain())]
    assert halves[0] != halves[1]


# Crashes


OPTIONS = {"response": "y", "epsilon": 1.0, "bounds": (-6.0, 6.0), "bag_size": 10, "budget": 3}
CHILD = textwrap.dedent(
    """
    import os, signal, sys
    import bagwise.release.steps as steps
    folder, target = sys.argv[1:]

    def reached(step):
        assert step in steps.ROUNDS, step
        print(step, flush=True)
        if step == target:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.reached = reached
    from bagwise.release import release_in_rounds
    from tests.test_rounds import OPTIONS, table
    release_in_rounds(table(), ledger=f"{folder}/books/ledger.db", out=f"{folder}/out/released",
                      **OPTIONS)
    """
)


def run_child(folder, target):
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), target],
        capture_output=True,
        text=True,
        check=False,
    )


def test_two_rounds_come_by_every_step_in_order(tmp_path):
    run = run_child(tmp_path, "none")
    assert run.returncode == 0, run.stderr
    assert tuple(run.stdout.split("\n")[:-1]) == ROUNDS
    assert set(steps.STEPS) < set(ROUNDS)


@pytest.mark.parametrize("step", ROUNDS)
def test_kill_at_every_step_gives_no_second_draw_for_nothing(tmp_path, step):
    first = run_child(tmp_path, step)
    assert first.returncode == -signal.SIGKILL
    out, noisy = tmp_path / "out" / "released", list(tmp_path.rglob("bags.parquet"))
    paid = spent(tmp_path)
    place = ROUNDS.index(step)
    assert paid == (place >= ROUNDS.index("charge committed"))
    assert paid or not (noisy or out.exists())
    published = place >= ROUNDS.index("folder published")
    assert out.exists() == published
    before = Release.load(out).means.tolist() if published else None

    second = run_child(tmp_path, "none")
    if published:
        assert second.returncode != 0
        assert "out must be a new or empty folder" in second.stderr
        assert Release.load(out).means.tolist() == before
        assert spent(tmp_path) == paid
    else:
        assert second.returncode == 0, second.stderr
        assert spent(tmp_path) == paid + 1
        assert Release.load(out).statement.rounds == 2
    assert os.listdir(tmp_path / "out") == ["released"]
    assert set(os.listdir(tmp_path / "books")) == {"ledger.db", ".ledger.db.witness"}


@pytest.mark.parametrize("name", ["fit", "score", "curate", "second_means"])
def test_an_error_between_the_rounds_keeps_the_charge_and_leaves_nothing(
    go, tmp_path, monkeypatch, name
):
    def fail(*_):
        raise RuntimeError("no paper")

    monkeypatch.setattr(rounds, name, fail)
    with pytest.raises(RuntimeError, match="no paper"):
        go(out=tmp_path / "r")
    assert spent(tmp_path) == 1
    assert not list(tmp_path.glob("*r"))
    assert not list(tmp_path.glob(".r*"))


# Bad input


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"features": "none"}, "features must be released in two rounds; got features='none'"),
        ({"bag_size": 101}, "bag_size must be at most a quarter of n_rows in two rounds; got"),
        ({"bag_size": None}, "bag_size must be a whole number of at least 1"),
        ({"bag_size": 0}, "bag_size must be a whole number of at least 1"),
        ({"min_bag_size": 11}, "bag_size must be at least min_bag_size"),
        ({"columns": []}, "columns must be at least one; got none"),
        ({"columns": ["day"]}, "features must be numbers or text; got .* in 'day'"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"budget": None}, "budget must be given for responses that are new to the ledger"),
        ({"bounds": (2.0**40, 2.0**40 + 1), "step": 2.0**-11, "bag_size": 600}, "small enough"),
    ],
)
def test_bad_arguments_are_one_sentence_and_cost_nothing(go, tmp_path, options, sentence):
    n = 4 * options["bag_size"] if options.get("step") else 400
    rows = table(n).assign(day=pd.Timestamp("2020-01-01"))
    with pytest.raises(ValueError, match=sentence):
        go(rows, **{"columns": ["a"]} | options, out=tmp_path / "out")
    assert spent(tmp_path) == 0
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_text_that_tells_rows_apart_is_refused_before_a_charge(go, tmp_path):
    rows = table(4100).assign(name=[f"n{i}" for i in range(4100)])
    with pytest.raises(ValueError, match="text of at most 1000 levels; got more in column 'name'"):
        go(rows)
    assert spent(tmp_path) == 0


def secret_table(**columns):
    """Rows whose responses no other computation would print."""
    rows = table(100)
    return rows.assign(y=CANARY + rows["key"] / 1024).assign(**columns)


FAILURES = {
    "a response that is missing": {"y": [math.nan] + [CANARY] * 99},
    "a response that is infinite": {"y": [math.inf] + [CANARY] * 99},
    "a response that is text": {"y": [str(CANARY)] * 100},
    "a copy": {"copy": CANARY + np.arange(100) / 1024},
    "a feature with a hole": {"a": [math.nan] * 100},
    "features past all numbers": {"a": np.geomspace(1e300, 1e308, 100)},
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", [*FAILURES, "bags that are too large", "a changed table"])
def test_no_message_holds_a_response(go, tmp_path, monkeypatch, caplog, capfd, kind):
    caplog.set_level(logging.DEBUG)
    options = {"bounds": (8000.0, 9000.0), "columns": None}
    if kind == "bags that are too large":
        options |= {"bag_size": 26}
    if kind == "a changed table":
        sums = rounds.Job.sum
        # Off by one in the second pass.
        monkeypatch.setattr(
            rounds.Job,
            "sum",
            lambda self, *given: (lambda found: (found[0], found[1] + (len(given) > 2)))(
                sums(self, *given)
            ),
        )
    with pytest.raises(Exception) as refusal:
        go(secret_table(**FAILURES.get(kind, {})), out=tmp_path / "r", **options)
    told = ["".join(traceback.format_exception(refusal.value)), caplog.text, *capfd.readouterr()]
    for text in told:
        # The table itself, in this file, says where they come from.
        assert not re.search(r"8[45]\d\d\.\d", text)
    assert not (tmp_path / "r").exists()
    assert not list(tmp_path.glob(".r*"))
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert np.float64(CANARY).tobytes() not in file.read_bytes()


def test_no_file_on_the_way_holds_a_response(go, tmp_path, monkeypatch):
    """Files that come and go between the rounds hold features."""
    looked = []

    def look(step):
        for file in (tmp_path / "out").rglob("*"):
            if file.is_file():
                looked.append(step)
                data = file.read_bytes()
                assert np.float64(CANARY).tobytes() not in data
                assert str(CANARY).encode() not in data

    monkeypatch.setattr(steps, "reached", look)
    (tmp_path / "out").mkdir()
    go(secret_table(y=CANARY), bounds=(8000.0, 9000.0), out=tmp_path / "out" / "r")
    assert {"features written", "first noise drawn", "statement written"} <= set(looked)


# The command


@pytest.fixture
def shell(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAGWISE_LEDGER", str(tmp_path / "books" / "ledger.db"))
    rows = table().rename(columns={"y": "arr_delay"}).drop(columns="key")
    rows.to_parquet("flights.parquet")
    return lambda line: command(*line.split())


def test_the_example_in_the_help_of_release_runs(shell):
    epilog = next(c.epilog for c in app_commands() if c.name == "release")
    line = re.findall(r"\[bold\]bagwise (.*?)\[/bold\]", epilog)[1]
    assert "--rounds 2" in line
    code, said, _ = shell(line)
    assert code == 0
    assert "Released 400 rows in" in said
    assert "made in two rounds" in said
    assert "Spent 1.0 of 3.0 on flights.parquet:arr_delay; 2.0 left." in said
    assert Release.load("released").statement.rounds == 2


def app_commands():
    return app.registered_commands


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--rounds 3 --bag-size 10", "rounds must be 1 or 2; got rounds=3"),
        ("--rounds 0 --bag-size 10", "rounds must be 1 or 2; got rounds=0"),
        ("--rounds 2 --bags town", "bags must be left out in two rounds; got bags='town'"),
        ("--rounds 2", "bag_size must be a whole number of at least 1"),
        ("--rounds 2 --bag-size 10 --features none", "features must be released in two rounds"),
    ],
)
def test_the_command_refuses_in_one_sentence(shell, options, sentence):
    ask = "release flights.parquet --response arr_delay --epsilon 1 --bounds -6 6 --budget 3"
    code, said, errors = shell(f"{ask} {options} --out x")
    assert (code, said) == (2, "")
    assert sentence in errors
    assert not os.path.exists("x")


# The audit


def released_in_rounds(folder):
    """Releases for the audit: bags of whole tables in two rounds, as `release_in_rounds` does them.

    The rows of the two bags that the audit asks for and as many again that say nothing: two bags a
    round. Which row is the one that changes is public; its bag comes first, then one of the others.
    """
    count = iter(range(10**9))

    def releaser(mechanism, responses, draws):
        size = responses.shape[1]
        y = np.concatenate([responses.ravel(), np.repeat(responses[1], 2)])
        found = np.empty((draws, 2))
        for i in range(draws):
            rows = {
                "x": np.random.default_rng(i).normal(size=len(y)),
                "mine": np.arange(len(y)) == 0,
            }
            made = release_in_rounds(
                rows | {"y": y},
                response="y",
                epsilon=mechanism.epsilon,
                bounds=(mechanism.low, mechanism.high),
                bag_size=size,
                ledger=None,
                out=folder / f"{next(count)}",
            )
            X, _, bags = made.training_set()
            mine = bags[X["mine"].to_numpy(zero_copy_only=False)][0]
            other = np.random.default_rng(i).choice(np.delete(np.arange(4), mine))
            found[i] = made.means[mine], made.means[other]
        return found

    return releaser


@pytest.mark.slow
def test_two_rounds_pass_the_audit(tmp_path):
    """End to end, so with few draws: a bound above 1 would still find noise half as wide."""
    mechanism = Mechanism.of((0.0, 1.0), 1.0)
    found = audit(mechanism, bag_size=2, draws=1000, releaser=released_in_rounds(tmp_path))
    assert found.passed
    assert found.lower_bound > 0.3


@pytest.mark.slow
def test_the_audit_finds_two_rounds_that_share_too_little_noise(tmp_path, monkeypatch):
    """A quarter of the scale in each round: the audit of two rounds is no formality."""
    honest = Mechanism.of

    def loud(bounds, epsilon, *rest):
        return honest(bounds, 4 * epsilon, *rest)

    mechanism = Mechanism.of((0.0, 1.0), 1.0)
    monkeypatch.setattr(Mechanism, "of", loud)
    found = audit(mechanism, bag_size=2, draws=1000, releaser=released_in_rounds(tmp_path))
    assert found.lower_bound > 1
