"""Ctrl-C and SIGTERM in the middle of a pass: a clean exit, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bagwise import AggregateLinearRegression
from bagwise._parallel import Stopped, apart, on_threads, until
from bagwise.engines.local import Local
from bagwise.tables import Piece

# A command over a CSV file whose so-and-so-many-th pass never comes to its end.
CHILD = textwrap.dedent(
    """
    import sys
    from bagwise import cli, tables

    passes, open_csv = int(sys.argv.pop(1)), tables._open_csv

    class Endless:
        def __init__(self, reader):
            self.reader = reader

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.reader.close()

        def __iter__(self):
            global passes
            passes -= 1
            mine = passes
            for batch in self.reader:
                yield batch
            if mine < 0:
                print("at work", flush=True)
                while True:
                    yield batch.slice(0, 0)

    def open_endless(data, types=None):
        # Without types, it is for a glance.
        reader = open_csv(data, types)
        return reader if types is None else Endless(reader)

    tables._open_csv = open_endless
    cli.main()
    """
)
# The same with a group-by that never ends.
GROUPING = textwrap.dedent(
    """
    from bagwise import cli
    from bagwise.engines import bag_table

    def endless(piece, **options):
        found = list(means(piece, **options))
        print("at work", flush=True)
        while True:
            yield from found

    means, bag_table._means = bag_table._means, endless
    cli.main()
    """
)
RELEASE = (
    "release rows.csv --response y --bag-size 5 --epsilon 1 --bounds 0 1 --budget 3 --out new/x "
    "--ledger books/ledger.db"
)
# Bags that are whole numbers are added up on the way to a group-by that is given no row of them.
RELEASE_NAMED = RELEASE.replace("--bag-size 5", "--bags town")
FIT = "fit rows.csv --response y --bags town --out new/x"
PREDICT = "predict model rows.csv --out new/x.parquet"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"u": rng.normal(size=100), "town": np.repeat(np.arange(10), 10)})
    rows["y"] = rows["town"] / 10
    rows.to_csv(tmp_path / "rows.csv", index=False)
    AggregateLinearRegression(rho=1.0).fit(rows[["u"]], rows["y"]).save(tmp_path / "model")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "books").mkdir()
    return tmp_path


def start(folder, code, *words):
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(folder, child, number):
    """It ends by itself, says nothing, and leaves only what was there."""
    child.send_signal(number)
    try:
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 128 + number, said
    assert "Traceback" not in said
    assert os.listdir(folder / "tmp") == []
    assert {path.name for path in folder.iterdir()} - {"new"} == {
        "rows.csv",
        "model",
        "tmp",
        "books",
    }
    assert not list(folder.glob("new/*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("line", "passes"),
    [
        (RELEASE, 0),
        (RELEASE, 2),
        (RELEASE, 3),
        (RELEASE_NAMED, 3),
        (FIT, 0),
        (FIT, 3),
        (PREDICT, 0),
    ],
)
def test_an_interrupted_command_ends_at_once_and_leaves_nothing(folder, line, passes, number):
    """While it looks, adds up and puts rows together; a group-by has a test of its own."""
    child = start(folder, CHILD, str(passes), *line.split())
    assert child.stdout.readline() == "at work\n", child.stderr.read()
    check(folder, child, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_group_by_ends_at_once_and_leaves_nothing(folder, number):
    child = start(folder, GROUPING, *FIT.split())
    assert child.stdout.readline() == "at work\n", child.stderr.read()
    check(folder, child, number)


def test_a_group_by_is_read_by_no_thread_that_outlives_it(monkeypatch):
    """With one thread, DuckDB reads in that of who asks; Arrow would read ahead in its own.

    For Arrow's threads only the process waits when it ends, and one in Python never comes back.
    """
    import ibis

    readers, schema = [], pa.schema([("bag", pa.string()), ("y", pa.int64())])

    def task(_):
        readers.append(threading.current_thread())
        yield pa.record_batch([["a", "b", "a"], [1, 2, 3]], schema=schema)

    monkeypatch.setattr(ibis.duckdb, "connect", partial(ibis.duckdb.connect, threads=1))
    piece = Piece(pa.py_buffer(b""), schema)
    found = Local().totals(task, [piece] * 2, schema, ["bag"], y_max="max")
    assert found.sort_by("bag")["y_max"].to_pylist() == [3, 2]
    assert len(readers) == 2
    assert not any(isinstance(reader, threading._DummyThread) for reader in readers)


def test_whoever_is_told_to_stop_begins_no_further_piece():
    """Also where pieces give nothing, and who waits for something never gets a turn."""
    begun, stop = [], threading.Event()

    def task(number):
        begun.append(number)
        if number == 5:
            stop.set()
        return []

    nothing = (item for found in on_threads(task, range(10_000)) for item in found)
    with pytest.raises(Stopped):
        list(apart(until(stop, nothing), stop.set))
    assert 5 in begun
    assert len(begun) < 10_000


# The command, struck while it loads the module that is named first.
LOADING = textwrap.dedent(
    """
    import os, sys

    class Strike:
        def find_spec(self, name, path=None, target=None):
            if name == module:
                os.kill(os.getpid(), number)

    module, number = sys.argv.pop(1), int(sys.argv.pop(1))
    sys.meta_path.insert(0, Strike())
    from bagwise_command import main
    main()
    """
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["bagwise", "numpy", "sklearn.base", "typer", "bagwise.cli"])
def test_a_command_interrupted_while_it_loads_ends_in_a_word(folder, module, number):
    child = start(folder, LOADING, module, str(int(number)), *FIT.split())
    out, said = child.communicate(timeout=60)
    assert (child.returncode, out, said) == (128 + number, "", "Aborted.\n")


def test_the_command_runs_what_it_is_asked(folder):
    code = "from bagwise_command import main; main()"
    child = start(folder, code, *FIT.split())
    assert "Fitted" in child.communicate(timeout=60)[0]
    assert child.returncode == 0
