"""Bars count what has come back, never what was only begun."""

import io
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from bagwise import _progress, tables
from bagwise._parallel import on_threads
from bagwise.engines.bag_table import BagTable
from bagwise.release import release


def test_epochs_that_may_end_early_are_counted_and_foretell_nothing(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    assert list(_progress.bar("Training", at_most=True)(range(7))) == list(range(7))
    said = shown.getvalue()
    assert "Training, at most" in said
    assert "7/7" in said


def test_a_bar_moves_when_a_task_has_ended():
    """The last of many tasks waits until all others are shown as done."""
    ended, shown, gate = set(), [], Event()

    def task(item):
        if item == 49:
            assert gate.wait(60)
        ended.add(item)
        return item

    def count(results, total):
        assert total == 50
        for result in results:
            shown.append(result)
            assert result in ended
            if len(shown) == 49:
                assert 49 not in ended
                gate.set()
            yield result

    assert list(on_threads(task, range(50), count)) == shown == list(range(50))


@pytest.fixture
def screen(monkeypatch):
    """A terminal's error stream."""
    text = io.StringIO()
    terminal = Console(file=text, force_terminal=True, width=80)
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    return text


def test_a_bar_on_a_terminal_says_how_much_is_done(screen):
    for done in _progress.bar("Working")(iter(range(4)), 4):
        assert "100%" not in screen.getvalue(), done
    assert "Working" in screen.getvalue()
    assert "100%" in screen.getvalue()


@pytest.mark.parametrize("work", [["one file"], (part for part in "abc")])
def test_one_task_or_an_unknown_number_tells_no_time(screen, work):
    assert list(_progress.bar("Working")(work))
    assert "Working" in screen.getvalue()
    assert "%" not in screen.getvalue()


def test_every_stage_of_a_release_and_of_a_table_counts_to_its_end(tmp_path, monkeypatch):
    # A piece for each row group.
    monkeypatch.setattr(tables, "BATCH", 50)
    rng = np.random.default_rng(0)
    rows = {"u": rng.normal(size=600), "town": np.repeat(np.arange(60), 10)}
    table = pa.table(rows | {"y": rows["town"] / 60})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    counts = []

    def count(results, total):
        before = len(counts)
        counts.append(0)
        for result in results:
            counts[before] += 1
            yield result
        assert counts[before] == total > 0

    BagTable(tmp_path / "rows.parquet", "y", "town", progress=count).statistics(progress=count)
    assert counts == [12, 12, 13, 1]
    counts.clear()
    options = {"response": "y", "epsilon": 1.0, "bounds": (0, 1), "ledger": None}
    options |= {"user": "u", "progress": lambda title: count}
    release(tmp_path / "rows.parquet", bag_size=10, out=tmp_path / "released", **options)
    assert counts == [12, 12, 12, 13, 1]
