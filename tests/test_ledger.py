"""The ledger: budgets that hold, data sets known again, a closed door after tampering."""

import json
import math
import multiprocessing
import os
import pathlib
import shutil
import sqlite3
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.engines.local import Local
from bagwise.release import BudgetExceeded, Ledger, LedgerBroken
from bagwise.release.table import look_over, open_rows

Y = np.random.default_rng(0).normal(size=200)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "books" / "ledger.db"


def spend(path, epsilon=1.0, y=Y, **options):
    ledger = Ledger(path)
    return ledger.charge(ledger.fingerprint(y), epsilon, **options)


def test_a_release_that_would_exceed_the_budget_is_refused_with_numbers(path):
    assert spend(path, 1.0, budget=2.5).dataset.left == Decimal("1.5")
    assert spend(path, 1.0).dataset.left == Decimal("0.5")
    with pytest.raises(BudgetExceeded, match=r"got epsilon=1\.0 with 0\.5 of 2\.5 left") as refusal:
        spend(path, 1.0)
    assert (refusal.value.epsilon, refusal.value.left, refusal.value.budget) == (
        Decimal("1.0"),
        Decimal("0.5"),
        Decimal("2.5"),
    )
    assert spend(path, 0.5).dataset.left == 0
    with pytest.raises(BudgetExceeded):
        spend(path, 1e-9)
    assert Ledger(path).datasets()[0].spent == Decimal("2.5")


def test_amounts_are_decimals_as_typed(path):
    """Three times a tenth is three tenths, and not a digit more is to be had."""
    spend(path, 0.1, budget=0.3)
    spend(path, 0.1)
    spend(path, 0.1)
    with pytest.raises(BudgetExceeded):
        spend(path, 1e-300)


@given(st.lists(st.floats(1e-12, 10), min_size=1, max_size=30), st.floats(0, 20))
def test_what_is_spent_never_exceeds_the_budget(tmp_path_factory, epsilons, budget):
    path = tmp_path_factory.mktemp("ledger") / "l.db"
    paid = []
    for epsilon in epsilons:
        try:
            spend(path, epsilon, budget=budget)
            paid.append(Decimal(repr(epsilon)))
        except BudgetExceeded:
            assert sum(paid) + Decimal(repr(epsilon)) > Decimal(repr(budget))
    assert sum(paid) <= Decimal(repr(budget))


def test_an_infinite_epsilon_needs_an_infinite_budget(path):
    with pytest.raises(BudgetExceeded):
        spend(path, math.inf, budget=5)
    assert Ledger(path).entries() == []
    assert spend(path, math.inf, budget=math.inf).dataset.left == math.inf
    spend(path, 1.0)


def test_a_refused_release_leaves_no_trace(path):
    with pytest.raises(ValueError, match="budget must be given for responses that are new"):
        spend(path)
    with pytest.raises(BudgetExceeded):
        spend(path, 2.0, budget=1.0)
    assert Ledger(path).datasets() == []


def test_only_set_budget_changes_a_budget(path):
    spend(path, 1.0, budget=2)
    spend(path, 0.5, budget=2.0)
    with pytest.raises(ValueError, match=r"budget must be what the ledger has .* got budget=9\.0"):
        spend(path, 0.5, budget=9)
    ledger = Ledger(path)
    ledger.set_budget("responses", 3)
    spend(path, 1.5)
    ledger.set_budget(ledger.datasets()[0].id, 0)
    assert ledger.datasets()[0].left == 0
    with pytest.raises(BudgetExceeded):
        spend(path, 0.1)
    assert [e["kind"] for e in ledger.entries()].count("budget") == 2
    for budget in (-1, math.nan, "3"):
        with pytest.raises(ValueError, match="budget must be at least 0"):
            ledger.set_budget("responses", budget)
    with pytest.raises(ValueError, match="got 'nobody', which fits 0"):
        ledger.set_budget("nobody", 1)


def test_one_data_set_has_one_unit_of_privacy(path):
    spend(path, 1.0, budget=3, unit="label")
    with pytest.raises(ValueError, match="the unit of privacy must be that of earlier releases"):
        spend(path, 1.0, unit="user:id")


def test_other_responses_have_a_budget_of_their_own(path):
    spend(path, 1.0, budget=1)
    spend(path, 1.0, y=Y + 1e-3, budget=1, name="moved")
    with pytest.warns(UserWarning, match="The ledger knows other responses by the name 'moved'"):
        spend(path, 1.0, y=Y[1:], budget=1, name="moved")
    assert len(Ledger(path).datasets()) == 3
    with pytest.raises(ValueError, match="which fits 2"):
        Ledger(path).set_budget("moved", 9)


@pytest.mark.parametrize("form", ["csv", "float32", "reordered", "renamed", "chunked", "polars"])
def test_the_same_responses_in_another_form_are_known_again(path, tmp_path, form):
    table = pa.table({"x": np.arange(200), "y": Y})
    if form == "csv":
        pyarrow.csv.write_csv(table, tmp_path / "again.csv")
        again = tmp_path / "again.csv"
    elif form == "float32":
        pq.write_table(
            table.set_column(1, "y", table["y"].cast(pa.float32(), safe=False)),
            tmp_path / "again.parquet",
        )
        again = tmp_path / "again.parquet"
    elif form == "reordered":
        again = table.take(np.random.default_rng(1).permutation(200))
    elif form == "renamed":
        again = table.rename_columns(["a", "y"])
    elif form == "chunked":
        again = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    else:
        again = pytest.importorskip("polars").from_arrow(table)
    ledger = Ledger(path)
    assert ledger.fingerprint_of(mark_of(again)) == ledger.fingerprint(Y)


def mark_of(rows):
    """As a release reads it: a piece at a time."""
    return look_over(open_rows(rows, "y"), Local(), "y", [])[1].mark


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float16])
def test_types_do_not_matter(path, kind):
    y = np.array([0, 1, 1, 0], dtype=kind)
    ledger = Ledger(path)
    as_table = mark_of(pa.table({"y": y}))
    assert ledger.fingerprint_of(as_table) == ledger.fingerprint(np.array([1.0, 1.0, -0.0, 0.0]))


def test_fingerprints_are_keyed(tmp_path):
    """Nobody without the key can test a guess about the responses."""
    marks = {Ledger(tmp_path / name).fingerprint(Y) for name in ("a.db", "b.db")}
    assert len(marks) == 2
    assert (tmp_path / "a.db").stat().st_mode & 0o077 == 0


def test_it_is_written_ahead_and_synchronously(path):
    """WAL, and synchronous FULL (2) on the connection that commits."""
    with Ledger(path)._journal.write() as connection:
        for name, value in (("journal_mode", "wal"), ("synchronous", 2)):
            assert connection.execute(f"PRAGMA {name}").fetchone()[0] == value


# Tampering: each of these must close the door.


def delete(path):
    for file in path.parent.glob("ledger.db*"):
        file.unlink()


def delete_folder(path):
    shutil.rmtree(path.parent)


def truncate(path):
    delete_wal(path)
    os.truncate(path, 0)


def cut_in_half(path):
    delete_wal(path)
    os.truncate(path, path.stat().st_size // 2)


def delete_wal(path):
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def overwrite(path):
    delete_wal(path)
    path.write_bytes(os.urandom(5000))


def sql(statement):
    def change(path):
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()

    return change


def rolled_back(path):
    shutil.rmtree(path.parent)
    shutil.copytree(path.parent.with_name("backup"), path.parent)


def file_rolled_back(path):
    delete(path)
    shutil.copy(path.parent.with_name("backup") / path.name, path)


def another(path):
    """A new ledger, made where nobody knows of the old one."""
    delete(path)
    (path.parent / ".ledger.db.witness").unlink()
    with pytest.MonkeyPatch.context() as other_home:
        other_home.setenv("XDG_STATE_HOME", str(path.parent / "elsewhere"))
        spend(path, 0.1, budget=100)


def copy_goes_on(path):
    """The whole folder copied, hidden witness and all, and the copy used."""
    copied = shutil.copytree(path.parent, path.parent.with_name("copied"))
    with pytest.raises(LedgerBroken, match="it was copied or moved from"):
        spend(copied / path.name, 0.5)
    Ledger(copied / path.name, trust=True).verify(accept=True)
    spend(copied / path.name, 0.5)


def copied_alone(path):
    """The file alone copied within one account, and the copy used: then the first one is stale."""
    shutil.copy(path, path.with_name("copied.db"))
    spend(path.with_name("copied.db"), 0.5)


def graft(path):
    """A charge of a fork, with its own true digest, put in place of a larger one."""
    fork = shutil.copy(path.parent.with_name("backup") / path.name, path.with_name("fork.db"))
    with pytest.MonkeyPatch.context() as other_home:
        other_home.setenv("XDG_STATE_HOME", str(path.parent / "elsewhere"))
        Ledger(fork, trust=True)._journal._witness(2, _digest_of(fork, 2))
        spend(fork, 0.01)
    spend(path, 0.25)
    with sqlite3.connect(path) as connection:
        connection.execute("ATTACH ? AS fork", (str(fork),))
        connection.execute("DELETE FROM entries WHERE entry = 3")
        connection.execute("INSERT INTO entries SELECT * FROM fork.entries WHERE entry = 3")
    connection.close()


def _digest_of(path, entry):
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT digest FROM entries WHERE entry = ?", (entry,)).fetchone()[0]
    connection.close()
    return found


def damaged_witness(path):
    (path.parent / ".ledger.db.witness").write_text('{"ledger": ')


def future_witness(path):
    witness = path.parent / ".ledger.db.witness"
    witness.write_text(json.dumps(json.loads(witness.read_text()) | {"entries": 10**6}))


TAMPERING = {
    "deleted": delete,
    "folder deleted": delete_folder,
    "truncated": truncate,
    "cut in half": cut_in_half,
    "overwritten": overwrite,
    "file rolled back": file_rolled_back,
    "folder rolled back": rolled_back,
    "another ledger in its place": another,
    "a copy of the folder went on": copy_goes_on,
    "a copy of the file went on": copied_alone,
    "charge of a fork grafted in": graft,
    "charge lowered": sql("UPDATE entries SET amount = '0.1' WHERE kind = 'release'"),
    "budget raised": sql("UPDATE entries SET amount = '100' WHERE kind = 'dataset'"),
    "last charge removed": sql(
        "DELETE FROM entries WHERE entry = (SELECT max(entry) FROM entries)"
    ),
    "first charge removed": sql("DELETE FROM entries WHERE entry = 2"),
    "fingerprint changed": sql("UPDATE entries SET fingerprint = 'x' WHERE kind = 'dataset'"),
    "key changed": sql("UPDATE ledger SET key = x'00'"),
    "identity removed": sql("DELETE FROM ledger"),
    "journal emptied": sql("DELETE FROM entries"),
    "tables dropped": sql("DROP TABLE entries"),
    "witness damaged": damaged_witness,
    "witness ahead": future_witness,
}


@pytest.mark.parametrize("how", TAMPERING)
@pytest.mark.filterwarnings("ignore:The ledger knows other responses")
def test_a_ledger_that_was_tampered_with_fails_closed(path, how):
    spend(path, 1.0, budget=2)
    shutil.copytree(path.parent, path.parent.with_name("backup"))
    spend(path, 0.5)
    TAMPERING[how](path)
    for budget in (None, 2, 100):
        with pytest.raises(LedgerBroken, match="ledger must be whole and up to date"):
            spend(path, 0.5, budget=budget)
        with pytest.raises(LedgerBroken):
            spend(path, 0.5, y=Y + 1, budget=budget)


def test_a_moved_ledger_waits_for_a_person_and_keeps_a_note(path, monkeypatch, tmp_path):
    """On another machine nobody can say whether it was rolled back on the way."""
    spend(path, 1.0, budget=2)
    moved = tmp_path / "moved.db"
    shutil.copy(path, moved)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    with pytest.raises(LedgerBroken, match="it has no witness here"):
        spend(moved, 1.0)
    Ledger(moved, trust=True).verify(accept=True)
    assert spend(moved, 1.0).dataset.left == 0
    assert [e["kind"] for e in Ledger(moved).entries()] == [
        "dataset",
        "release",
        "accepted",
        "release",
    ]


def test_accepting_does_not_accept_an_edited_journal(path):
    spend(path, 1.0, budget=2)
    TAMPERING["charge lowered"](path)
    with pytest.raises(LedgerBroken, match="entry 2 is not as it was written"):
        Ledger(path, trust=True)


def test_one_witness_is_enough_to_see_a_rollback(path):
    """A home that cannot be written to must not open the door."""
    spend(path, 1.0, budget=2)
    shutil.copytree(path.parent, path.parent.with_name("backup"))
    spend(path, 0.5)
    for witness in Ledger(path)._journal._in_state:
        witness.unlink()
    file_rolled_back(path)
    with pytest.raises(LedgerBroken, match="rolled back or cut"):
        spend(path, 0.5)


def test_a_state_folder_that_cannot_be_written_to_is_done_without(path, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    spend(path, 1.0, budget=2)
    assert spend(path, 1.0).dataset.left == 0


def test_an_account_without_a_home_is_served(path, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(pathlib.Path, "home", homeless)
    spend(path, 1.0, budget=2)
    assert spend(path, 1.0).dataset.left == 0
    delete(path)
    with pytest.raises(LedgerBroken, match="it is gone"):
        spend(path, 1.0)


def test_a_ledger_that_never_held_a_charge_may_be_deleted(path):
    """There is nothing to protect, and a curator who starts over must not be locked out."""
    with pytest.raises(BudgetExceeded):
        spend(path, 2.0, budget=1.0)
    delete(path)
    assert spend(path, 1.0, budget=1.0).dataset.left == 0


def _read_on(path, stop, result):
    count = 0
    try:
        while not stop.is_set():
            Ledger(path).datasets()
            count += 1
        result.put(count)
    except LedgerBroken as error:
        result.put(str(error))


def test_readers_are_not_alarmed_by_a_writer_at_work(path):
    """A witness newer than what was read of the journal must not look like a rollback."""
    spend(path, 0.0, budget=1)
    context = multiprocessing.get_context("spawn")
    stop, result = context.Event(), context.Queue()
    reader = context.Process(target=_read_on, args=(path, stop, result))
    reader.start()
    for _ in range(150):
        spend(path, 0.0)
    stop.set()
    assert isinstance(said := result.get(timeout=60), int), said
    reader.join()


def test_a_ledger_made_by_another_process_in_between_is_taken(path, monkeypatch):
    """Not there when first looked for, there and charged when the lock is had: no alarm."""
    looks = iter([False])
    real = pathlib.Path.exists

    def exists(self):
        if self == path and next(looks, True) is False:
            monkeypatch.undo()
            spend(path, 1.0, budget=2)
            return False
        return real(self)

    monkeypatch.setattr(pathlib.Path, "exists", exists)
    assert len(Ledger(path).datasets()) == 1


def test_a_ledger_is_not_made_by_looking(path):
    with pytest.raises(FileNotFoundError, match="ledger must be a file; got"):
        Ledger(path, create=False)
    assert not path.exists()


def _spend_all(path, start):
    start.wait()
    paid = 0
    for _ in range(12):
        try:
            spend(path, 0.25, budget=3)
            paid += 1
        except BudgetExceeded:
            pass
    os._exit(paid)


def test_processes_at_once_never_spend_more_than_the_budget(path):
    """Four processes, from the making of the ledger on: 48 tries at 12 charges."""
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    workers = [context.Process(target=_spend_all, args=(path, start)) for _ in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join()
    assert sum(worker.exitcode for worker in workers) == 12
    assert Ledger(path).datasets()[0].spent == 3
    assert Ledger(path).verify() == 13


def test_a_full_disk_is_told_and_nothing_is_charged(path, monkeypatch):
    spend(path, 1.0, budget=3)
    ledger = Ledger(path)
    with sqlite3.connect(path) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()
    original = sqlite3.connect

    def full(*args, **kwargs):
        connection = original(*args, **kwargs)
        connection.execute(f"PRAGMA max_page_count={pages}")
        return connection

    def fill():
        for _ in range(200):
            ledger.charge(ledger.fingerprint(Y), 0.0)

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(OSError, match=r"ledger must be open to writing; got .* full"):
        fill()
    monkeypatch.undo()
    assert Ledger(path).datasets()[0].spent == 1


def test_a_ledger_that_may_not_be_written_is_told(path, monkeypatch):
    spend(path, 1.0, budget=3)
    original = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda name, **k: original(name.replace("mode=rw", "mode=ro"), **k)
    )
    with pytest.raises(OSError, match="readonly database"):
        spend(path, 1.0)


def test_verify_counts_and_finds_damage(path):
    """Damage that no query meets: a free page is claimed that is not there."""
    spend(path, 1.0, budget=3)
    assert Ledger(path).verify() == 2
    data = bytearray(path.read_bytes())
    data[36:40] = (7).to_bytes(4, "big")
    delete_wal(path)
    path.write_bytes(bytes(data))
    assert len(Ledger(path).datasets()) == 1
    with pytest.raises(LedgerBroken, match="SQLite finds it damaged"):
        Ledger(path).verify()


def test_the_journal_shows_no_fingerprint(path):
    spend(path, 1.0, budget=3)
    assert Ledger(path).fingerprint(Y) not in json.dumps(Ledger(path).entries())


def test_paid_for_means_this_entry_and_this_amount(path):
    charge = spend(path, 1.0, budget=3)
    ledger = Ledger(path)
    assert ledger.paid_for(charge.ledger, charge.token, 1.0)
    assert not ledger.paid_for(charge.ledger, charge.token, 0.5)
    assert not ledger.paid_for(charge.ledger, charge.token[::-1], 1.0)
    assert not ledger.paid_for("other", charge.token, 1.0)
    assert not ledger.paid_for(None, None, 1.0)
