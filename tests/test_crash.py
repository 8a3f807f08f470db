"""kill -9 at every step, full disks, two curators at once: never more out than was paid for."""

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow.parquet as pq
import pytest

from bagwise.release import Ledger, job, release, steps
from bagwise.release.steps import STEPS
from bagwise.released import Release

OPTIONS = {"response": "y", "epsilon": 1.0, "bounds": (-3.0, 3.0), "bag_size": 10, "budget": 3}
# A child that releases, and dies as by kill -9 when it comes to a step.
CHILD = textwrap.dedent(
    """
    import os, signal, sys
    import bagwise.release.steps as steps
    folder, features, target = sys.argv[1:]

    def reached(step):
        assert step in steps.STEPS, step
        print(step, flush=True)
        if step == target:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.reached = reached
    from bagwise.release import release
    from tests.test_crash import OPTIONS, rows
    release(rows(), features=features, ledger=f"{folder}/books/ledger.db",
            out=f"{folder}/out/released", **OPTIONS)
    """
)


def rows():
    rng = np.random.default_rng(0)
    return {"a": rng.normal(size=200), "b": rng.normal(size=200), "y": rng.normal(size=200)}


def run_child(folder, features, target):
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), features, target],
        capture_output=True,
        text=True,
        check=False,
    )


def noisy_files(folder):
    """Every file under the folder that holds means, published or not."""
    return list(folder.rglob("bags.parquet"))


def spent(folder):
    path = folder / "books" / "ledger.db"
    return sum(d.spent for d in Ledger(path).datasets()) if path.exists() else 0


def test_a_release_comes_by_every_step_in_order(tmp_path):
    run = run_child(tmp_path, "statistics", "none")
    assert run.returncode == 0, run.stderr
    assert tuple(run.stdout.split("\n")[:-1]) == STEPS
    assert len(STEPS) >= 12


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("features", ["rows", "statistics"])
def test_kill_at_every_step(tmp_path, step, features):
    """After each: nothing half written, nothing out unpaid, and the next release works."""
    first = run_child(tmp_path, features, step)
    assert first.returncode == -signal.SIGKILL
    assert first.stdout.split("\n")[-2] == step
    out = tmp_path / "out" / "released"
    if out.exists():
        Release.load(out).statistics()
    paid = spent(tmp_path)
    assert paid in (0, 1)
    drawn = STEPS.index(step) >= STEPS.index("noise drawn")
    assert paid == 1 or not (drawn or noisy_files(tmp_path) or out.exists())
    if STEPS.index(step) < STEPS.index("charge committed"):
        assert paid == 0, "nothing was drawn, so nothing need be paid"
    published = STEPS.index(step) >= STEPS.index("folder published")
    assert out.exists() == published

    before = Release.load(out).means.tolist() if published else None
    second = run_child(tmp_path, features, "none")
    if published:
        # The stored output stays, and a second draw is not to be had for nothing.
        assert second.returncode != 0
        assert "out must be a new or empty folder" in second.stderr
        assert Release.load(out).means.tolist() == before
        assert spent(tmp_path) == paid
    else:
        assert second.returncode == 0, second.stderr
        assert spent(tmp_path) == paid + 1
        Release.load(out).statistics()
    assert os.listdir(tmp_path / "out") == ["released"]
    assert Ledger(tmp_path / "books" / "ledger.db").verify() >= 2
    allowed = {"ledger.db", ".ledger.db.witness"}
    assert set(os.listdir(tmp_path / "books")) == allowed


def test_kills_add_up_until_the_budget_is_gone(tmp_path):
    """A curator who pulls the plug again and again to see other noise pays for each look."""
    for _ in range(3):
        assert run_child(tmp_path, "none", "means written").returncode == -signal.SIGKILL
    last = run_child(tmp_path, "none", "none")
    assert "epsilon must be at most what is left of the budget" in last.stderr
    assert spent(tmp_path) == 3


def test_what_a_killed_release_left_is_not_published_by_the_next(tmp_path):
    """The first wrote rows; the second, to the same place, was asked for none."""
    run_child(tmp_path, "rows", "statement written")
    assert run_child(tmp_path, "none", "none").returncode == 0
    published = os.listdir(tmp_path / "out" / "released")
    assert sorted(published) == ["bags.parquet", "release.json"]


def _limited(folder, features, size, result):
    """A release in a process that may write no file larger than ``size``: as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = Ledger(folder / "books" / "ledger.db")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        release(rows(), features=features, ledger=ledger, out=folder / "released", **OPTIONS)
        result.put("done")
    except OSError as error:
        result.put(f"OSError {error.errno}: {error}")


@pytest.mark.parametrize("size", [0, 1000, 3000])
def test_a_disk_that_fills_up_leaves_nothing_half_written(tmp_path, size):
    """The system refuses to write on: in the features (nothing is charged) or later (it is)."""
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    for features in ("rows", "none"):
        worker = context.Process(target=_limited, args=(tmp_path, features, size, result))
        worker.start()
        said = result.get(timeout=60)
        worker.join()
        if said != "done":
            assert said.startswith(f"OSError {errno.EFBIG}") or "ledger must be open" in said
            assert not (tmp_path / "released").exists()
        assert not list(tmp_path.glob(".released*"))
        if features == "rows":
            assert said != "done"
            assert spent(tmp_path) == 0
        assert spent(tmp_path) >= len(noisy_files(tmp_path))


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 200 kB, where the system lets us make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a file system here; RLIMIT_FSIZE stands in for it above")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_file_system(tiny_disk, tmp_path):
    """Rows do not fit: the disk is as it was, and nothing was charged."""
    rng = np.random.default_rng(0)
    many = {"a": rng.normal(size=100_000), "y": rng.normal(size=100_000)}
    with pytest.raises(OSError, match=r"No space left|Errno 28") as full:
        release(many, ledger=tmp_path / "books" / "ledger.db", out=tiny_disk / "out", **OPTIONS)
    assert full.value.errno == errno.ENOSPC or "No space left" in str(full.value)
    assert os.listdir(tiny_disk) == []
    assert spent(tmp_path) == 0


def _race(folder, number, start, result):
    start.wait()
    try:
        release(rows(), ledger=folder / "books" / "ledger.db", out=folder / f"r{number}", **OPTIONS)
        result.put("done")
    except ValueError as error:
        result.put(type(error).__name__)


def test_curators_at_once_never_release_more_than_the_budget(tmp_path):
    """Six at once at a budget of three: three releases, three refusals, no ledger broken."""
    context = multiprocessing.get_context("spawn")
    start, result = context.Event(), context.Queue()
    workers = [context.Process(target=_race, args=(tmp_path, i, start, result)) for i in range(6)]
    for worker in workers:
        worker.start()
    start.set()
    said = sorted(result.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert said == ["BudgetExceeded"] * 3 + ["done"] * 3
    assert spent(tmp_path) == 3
    assert len(noisy_files(tmp_path)) == 3
    tables = [pq.read_table(p)["response"].to_pylist() for p in noisy_files(tmp_path)]
    assert tables[0] != tables[1] != tables[2]


def test_two_releases_to_one_place_cannot_mix(tmp_path, monkeypatch):
    """The second finds the first at work, is told so, and pays nothing."""
    told = []

    def meddle(step):
        if step == "features written":
            with pytest.raises(ValueError, match=r"out must be free; got .* at work"):
                monkeypatch.undo() or release(
                    rows(), ledger=tmp_path / "books" / "ledger.db", out=tmp_path / "r", **OPTIONS
                )
            told.append(step)

    monkeypatch.setattr(steps, "reached", meddle)
    release(rows(), ledger=tmp_path / "books" / "ledger.db", out=tmp_path / "r", **OPTIONS)
    assert told == ["features written"]
    assert spent(tmp_path) == 1


def test_an_error_after_the_charge_keeps_the_charge(tmp_path, monkeypatch):
    """What was paid for is never paid back, even when nothing came of it."""

    def fail(*_):
        raise RuntimeError("no paper")

    monkeypatch.setattr(job, "write_bags", fail)
    with pytest.raises(RuntimeError, match="no paper"):
        release(rows(), ledger=tmp_path / "books" / "ledger.db", out=tmp_path / "r", **OPTIONS)
    assert spent(tmp_path) == 1
    assert not (tmp_path / "r").exists()
    assert not list(tmp_path.glob(".r*"))
