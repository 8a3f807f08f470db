"""bagwise release, ledger and audit as a shell sees them."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from bagwise import Release

CANARY = "8472.918273"


@pytest.fixture
def shell(command, monkeypatch, tmp_path):
    """Commands in a folder with a ledger of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAGWISE_LEDGER", str(tmp_path / "books" / "ledger.db"))
    return lambda line: command(*line.split())


@pytest.fixture
def flights(tmp_path):
    """A small table with the columns of the flights."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "dep_delay": rng.normal(10, 30, 500).round(),
            "carrier": rng.choice(["UA", "AA", "B6"], 500),
            "tailnum": rng.integers(0, 100, 500).astype(str),
        }
    )
    table["arr_delay"] = (table["dep_delay"] + rng.normal(-5, 15, 500)).round()
    table.to_parquet(tmp_path / "flights.parquet")
    table.to_csv(tmp_path / "flights.csv", index=False)
    return table


ASK = "--response arr_delay --epsilon 1 --bounds -60 180"


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_release_says_what_it_did_what_it_cost_and_what_is_left(shell, flights, tmp_path, ending):
    code, said, _ = shell(f"release flights.{ending} {ASK} --bag-size 20 --budget 3 --out released")
    assert code == 0
    assert "Released 500 rows in 25 bags of 20: released" in said
    assert "Label-private with epsilon = 1 for one label" in said
    assert "Features are not protected" in said
    assert f"Spent 1.0 of 3.0 on flights.{ending}:arr_delay; 2.0 left." in said
    made = Release.load(tmp_path / "released")
    assert made.statement.columns == ["dep_delay", "carrier", "tailnum"]


def test_csv_and_parquet_of_one_table_share_a_budget(shell, flights):
    assert shell(f"release flights.csv {ASK} --bag-size 20 --budget 1.5 --out one")[0] == 0
    code, said, errors = shell(f"release flights.parquet {ASK} --bag-size 5 --out two")
    assert (code, said) == (2, "")
    assert "got epsilon=1.0 with 0.5 of 1.5 left" in errors
    assert not os.path.exists("two")


def test_json(shell, flights):
    code, said, _ = shell(
        f"release flights.csv {ASK} --bags carrier --user tailnum --max-rows-per-user 2 "
        "--columns dep_delay,carrier --features rows --budget inf --out released --json"
    )
    assert code == 0
    told = json.loads(said)
    assert told["statement"]["unit"] == "all labels of one user (at most 2 rows of each)"
    assert told["statement"]["columns"] == ["dep_delay", "carrier"]
    assert (told["spent"], told["left"]) == (1.0, None)
    shown = json.loads(shell("ledger show --json")[1])
    assert shown["datasets"][0]["spent"] == 1
    assert [e["kind"] for e in shown["entries"]] == ["dataset", "release"]


def test_other_ways_to_say_it(shell, flights, tmp_path):
    code, said, _ = shell(
        "release flights.csv --response arr_delay --epsilon 0.5 --log-bound 30 --bags "
        "carrier,tailnum --features none --paper --step 0.5 --budget 5 --out released"
    )
    assert code == 0
    assert "costs 2 epsilon = 1" in said
    said = Release.load(tmp_path / "released").statement
    assert (said.bag_columns, said.step, said.epsilon) == (["carrier", "tailnum"], 0.5, 1.0)
    assert said.high == pytest.approx(30 * np.sqrt(np.log(500)))


def test_plain_means_are_said_to_be_so(shell, flights):
    line = "release flights.csv --response arr_delay --bag-size 20 --epsilon inf --bounds -60 180"
    code, _, errors = shell(f"{line} --budget 3 --out released")
    assert code == 2
    assert "got epsilon=Infinity with 3.0 of 3.0 left" in errors
    code, said, _ = shell(f"{line} --budget inf --out released")
    assert code == 0
    assert "Not private: these are plain means" in said


def test_the_ledger_commands(shell, flights):
    assert shell("ledger show")[0] == 2
    shell(f"release flights.csv {ASK} --bag-size 20 --budget 1 --out one")
    code, said, _ = shell("ledger show")
    assert code == 0
    assert "label" in said
    assert "1.0" in said
    code, said, _ = shell("ledger set-budget flights.csv:arr_delay 2.5")
    assert (code, said) == (0, "flights.csv:arr_delay: budget 2.5, spent 1.0, left 1.5.\n")
    assert json.loads(shell("ledger set-budget flights.csv:arr_delay 3 --json")[1])["left"] == 2
    code, said, _ = shell("ledger verify one")
    assert code == 0
    assert "is whole: 4 entries." in said
    assert "It paid for 1 of 1 releases." in said
    assert json.loads(shell("ledger verify --json")[1])["whole"]
    code, _, errors = shell("ledger verify one --ledger other.db")
    assert (code, errors.startswith("ledger must be a file; got")) == (2, True)


def test_verify_finds_a_release_that_nobody_paid_for(shell, flights, tmp_path):
    shell(f"release flights.csv {ASK} --bag-size 20 --budget 9 --out one")
    shutil.copytree("one", "same")
    assert shell("ledger verify one same")[0] == 0
    shell(f"release flights.csv {ASK} --bag-size 20 --out two")
    tokens = [
        json.loads((tmp_path / n / "release.json").read_text())["charge"] for n in ("one", "two")
    ]
    file = tmp_path / "two" / "release.json"
    text = file.read_text()
    file.write_text(text.replace(tokens[1], tokens[0]))
    code, _, errors = shell("ledger verify one two")
    assert code == 2
    assert "the release must be paid for by a charge of its own; got 'two'" in errors
    file.write_text(text.replace(tokens[1], "0" * 32))
    code, _, errors = shell("ledger verify two")
    assert code == 2
    assert "the release must be paid for by this ledger" in errors


@pytest.mark.filterwarnings("default:The ledger knows other responses")
def test_a_table_that_has_grown_is_told(shell, flights, tmp_path):
    """Other responses by a known name: a sentence, for what was released before adds up."""
    shell(f"release flights.csv {ASK} --bag-size 20 --budget 9 --out one")
    flights.iloc[:-1].to_csv(tmp_path / "flights.csv", index=False)
    code, _, errors = shell(f"release flights.csv {ASK} --bag-size 20 --budget 9 --out two")
    assert code == 0
    assert errors.startswith("The ledger knows other responses by the name 'flights.csv:arr_delay'")


def test_a_broken_ledger_is_told_with_the_way_out(shell, flights, tmp_path, monkeypatch):
    shell(f"release flights.csv {ASK} --bag-size 20 --budget 9 --out one")
    ledger = tmp_path / "books" / "ledger.db"
    moved = tmp_path / "moved.db"
    moved.write_bytes(ledger.read_bytes())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    code, _, errors = shell("ledger show --ledger moved.db")
    assert code == 2
    assert "it has no witness here" in errors
    way_out = errors.split("run 'bagwise ")[1].split("'.")[0].replace("\n", "")
    assert shell(way_out)[0] == 0
    assert shell("ledger show --ledger moved.db")[0] == 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("release none.csv --bag-size 20 --out x", "none.csv"),
        ("release flights.xls --bag-size 20 --out x", "the table must be there; got 'flights.xls'"),
        ("release notes.txt --bag-size 20 --out x", "rows must be of .csv or .parquet files"),
        ("release flights.csv --bag-size 0 --out x", "bag_size must be a whole number"),
        ("release flights.csv --out x", "bags must be given, or bag_size, not both"),
        ("release flights.csv --bag-size 20 --bags carrier --out x", "not both"),
        ("release flights.csv --bag-size 20 --features some --out x", "features must be one of"),
        ("release flights.csv --bag-size 20 --log-bound 3 --out x", "bounds must be given, or"),
        ("release flights.csv --bag-size 20 --out x", "budget must be given for responses"),
        ("release flights.csv --bag-size 20 --out flights.csv", "out must be a new or empty"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(shell, flights, line, sentence, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    code, said, errors = shell(f"{line} {ASK}")
    assert (code, said) == (2, "")
    assert sentence in errors
    assert not os.path.exists("x")


def test_a_bad_response_is_told_without_a_value(shell, tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text(f"x,y\n1,{CANARY}\n2,lots\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    line = "release rows.csv --response y --epsilon 1 --bounds 0 1 --bag-size 1 --budget 1 --out x"
    code, said, errors = shell(line)
    assert code == 2
    assert "the response must be a column of numbers" in errors
    for text in (said, errors):
        assert "8472" not in text
        assert "lots" not in text
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "rows.csv":
            assert CANARY.encode() not in file.read_bytes()


def test_an_audit_says_what_it_found(shell):
    code, said, _ = shell("audit --epsilon 1 --bounds -60 180 --bag-size 3 --draws 20000")
    assert code == 0
    assert "Promised epsilon = 1; spent at least 0." in said
    assert "No promise was found broken." in said
    told = json.loads(shell("audit --draws 20000 --paper --json")[1])
    assert told["passed"]
    assert told["epsilon"] == 2
    assert shell("audit --epsilon 0")[0] == 2


def test_an_audit_that_fails_has_exit_code_1(shell, monkeypatch):
    from bagwise.release.mechanism import Mechanism

    monkeypatch.setattr(Mechanism, "add_noise", lambda self, sums, *_: sums.copy())
    code, said, _ = shell("audit --draws 20000")
    assert code == 1
    assert "BROKEN: do not release." in said
