"""Run cells on workers, one thread each, within a time limit a fit.

A worker is a process of its own, for nothing else ends a fit that takes too long. It prepares a
cell, says that it begins, fits, and sends the result; the process that asked keeps it.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise import _check
from bagwise._disk import locked
from bagwise._progress import Progress, silent
from bagwise.benchmark import cells, methods
from bagwise.benchmark.cells import ALL, Cell, Split
from bagwise.benchmark.results import FAILED, LATE, RAN, Results, keys
from bagwise.benchmark.tables import TABLES, load

if TYPE_CHECKING:
    import pandas as pd

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), "1"
)
# Seconds: how often to look at the clock, and what others' code may take beyond the limit to stop.
GLANCE, GRACE, LAST_MOMENT = 0.5, 30.0, 5.0


@dataclass(frozen=True)
class Grid:
    """Which cells to run.

    Attributes
    ----------
    tables, bags : sequence of str
    seeds : int
        How many: each draws its own split, bags and noise.
    rows : int or None
        At most so many rows of a table.
    limit : float
        Seconds a fit; the limits of what is possible have no limit.
    methods : list of str or None
        Names or families; None is all.
    peers : Path or None
        A folder with methods of others' code.
    """

    tables: tuple[str, ...]
    bags: tuple[str, ...]
    seeds: int
    rows: int | None = None
    limit: float = 120.0
    methods: list[str] | None = None
    peers: Path | None = None

    def check(self) -> None:
        """Refuse names and numbers that mean nothing."""
        for name in self.tables:
            _check.choice("table", name, tuple(TABLES))
        for kind in self.bags:
            _check.choice("bags", kind, cells.BAGS)
        _check.whole("seeds", self.seeds, low=1, remedy="Pass how many splits to draw")
        _check.number("limit", self.limit, low=0, above=True, remedy="Pass the seconds a fit")
        if self.rows is not None:
            _check.whole("rows", self.rows, low=100, remedy="Leave it out for every row")
        methods.check(self.methods or [], self.peers is not None)

    def cells(self) -> list[Cell]:
        """The cells in their order, seed after seed."""
        kinds, by_table = {}, {}
        for name in self.tables:
            table = load(name, self.rows)
            kinds[name] = cells.kinds_of_bags(table, self.bags)
            by_table[name] = methods.chosen(table.task, self.methods, self.peers is not None)
        return list(cells.plan(kinds, cells.PRIVACY, range(self.seeds), by_table, methods.LIMITS))


SIZES = {
    "small": Grid(("boston", "bike", "breast_cancer", "adult"), ("4", "64", "natural"), 2, 3000),
    "full": Grid(tuple(TABLES), cells.BAGS, 5, limit=600.0),
}


def run(
    grid: Grid,
    out: Path,
    jobs: int = 1,
    fresh: bool = False,
    redo: Sequence[str] = (),
    progress: Progress = silent,
) -> pd.DataFrame:
    """Fit what has not been fitted yet, and return the results of the grid.

    Parameters
    ----------
    grid : Grid
    out : Path
        Folder of the results, which a second call takes up where the first was ended.
    jobs : int
        Workers.
    fresh : bool
        Forget earlier results.
    redo : sequence of str
        Methods or families whose cells of this grid are fitted again.
    progress : Progress
    """
    grid.check()
    _check.whole("jobs", jobs, low=1, remedy="Pass the workers")
    methods.check(list(redo), grid.peers is not None)
    if grid.peers is not None and not methods.others().available(grid.peers):
        methods.others().make(grid.peers)
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out)
    with _alone(out):
        if fresh:
            results.clear()
        asked = grid.cells()
        if not any(cell.bags != ALL for cell in asked):
            got = "none that these tables have"
            _check.refuse("methods and bags", "some for each other", got, "Choose others")
        results.describe(describe(grid))
        again = [cell for cell in asked if {cell.method, family(cell.method)} & set(redo)]
        results.fold(without=again)
        done = results.done(grid.limit)
        waiting = [cell for cell in asked if astuple(cell) not in done]
        commit = commit_of_source()
        for result in progress(_results(grid, waiting, jobs), len(waiting)):
            results.add(result | {"commit": commit})
        return judged(results.fold(), asked, grid.limit)


def judged(found: pd.DataFrame, asked: Sequence[Cell], limit: float) -> pd.DataFrame:
    """The results of these cells; an earlier fit that took longer than the limit is late."""
    wanted = {astuple(cell) for cell in asked}
    found = found[[key in wanted for key in keys(found)]].reset_index(drop=True)
    late = (found["family"] != "limit") & (found["seconds"] > limit)
    found.loc[late, "status"] = LATE
    return found


def family(method: str) -> str:
    """To which family a method belongs."""
    if method in methods.LIMITS:
        return "limit"
    return next(
        (known[method] for task in methods.TASKS if method in (known := methods.methods(task))),
        "peer",
    )


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Of two runs for one folder, the second is refused."""
    held = locked(out, wait=False)
    try:
        held.__enter__()
    except BlockingIOError:
        got = f"{str(out)!r}, where another run is at work"
        _check.refuse("out", "free", got, "Wait, or choose another folder")
    try:
        yield
    finally:
        held.__exit__(None, None, None)


def _results(grid: Grid, waiting: Sequence[Cell], jobs: int) -> Iterator[dict[str, Any]]:
    """The result of each cell, as they come."""
    left, workers = deque(waiting), [_Worker(grid) for _ in range(min(jobs, len(waiting)))]
    try:
        while left or any(worker.cell for worker in workers):
            for worker in workers:
                if worker.cell is None and left:
                    worker.take(left.popleft())
            ready = wait([w.pipe for w in workers if w.cell], GLANCE)
            for worker in workers:
                result = worker.look(worker.pipe in ready)
                if result is not None:
                    yield result
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that fits one cell at a time, as seen by the one that asks."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.cell: Cell | None = None
        self.begun: float | None = None
        self._start()

    def _start(self) -> None:
        spawn = get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, self.grid), daemon=True)
        with _environment(ONE_THREAD):
            self.process.start()
        theirs.close()

    def take(self, cell: Cell) -> None:
        """Begin a cell."""
        self.cell, self.begun = cell, None
        with suppress(OSError):
            self.pipe.send(cell)

    def look(self, ready: bool) -> dict[str, Any] | None:
        """What has become of the cell: its result, or None as long as there is none."""
        if self.cell is None:
            return None
        if ready:
            try:
                found = self.pipe.recv()
            except (EOFError, OSError):
                return self._give_up(f"{FAILED}: process ended")
            if found is None:
                self.begun = time.monotonic()
                return None
            self.cell = None
            result: dict[str, Any] = found
            return result
        if self.begun is not None and time.monotonic() - self.begun > self._allowed():
            return self._give_up(LATE)
        return None

    def _allowed(self) -> float:
        """Seconds for the cell at work."""
        kind = family(self.cell.method) if self.cell else ""
        return {"limit": np.inf, "peer": self.grid.limit + GRACE}.get(kind, self.grid.limit)

    def _give_up(self, status: str) -> dict[str, Any]:
        assert self.cell is not None
        result = result_of(self.cell, self.grid, status)
        if status == LATE:
            result["seconds"] = self.grid.limit
        self.end()
        self.cell = None
        self._start()
        return result

    def end(self) -> None:
        """End the process, whatever it does; others' code has a moment to end its own."""
        if self.cell and family(self.cell.method) == "peer":
            self.process.terminate()
            self.process.join(LAST_MOMENT)
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _environment(words: dict[str, str]) -> Iterator[None]:
    """These variables for processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in words}
    os.environ.update(words)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(pipe: Connection, grid: Grid) -> None:
    """Fit cells until nobody asks any more."""
    # Ctrl-C is for the process that asks; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    warnings.simplefilter("ignore")
    with suppress(EOFError, OSError):
        while True:
            cell = pipe.recv()
            pipe.send(fit(cell, grid, lambda: pipe.send(None)))


def fit(cell: Cell, grid: Grid, begin: Any = lambda: None) -> dict[str, Any]:
    """The result of one cell; an error is a result, and only its kind is kept."""
    facts: dict[str, Any] = {}
    try:
        split = _split(cell.table, grid.rows, cell.seed)
        facts = {"task": split.table.task, "n_train": len(split.rows[0])}
        if cell.bags == ALL:
            begin()
            started = time.perf_counter()
            scores = methods.limit_predictions(cell.method, split)
            seconds = time.perf_counter() - started
        else:
            problem = split.problem(cell.bags, cell.privacy)
            facts["n_bags"] = problem.bags.n_bags
            begin()
            started = time.perf_counter()
            if family(cell.method) == "peer":
                assert grid.peers is not None
                scores = methods.ask_peer(cell.method, problem, grid.peers, grid.limit)
                seconds = time.perf_counter() - started
            else:
                model = methods.fit(cell.method, problem)
                seconds = time.perf_counter() - started
                scores = methods.predict(cell.method, model, problem)
        facts |= {"seconds": seconds, "score": split.score(scores)}
        return result_of(cell, grid, RAN) | facts
    except (TimeoutError, subprocess.TimeoutExpired):
        return result_of(cell, grid, LATE) | facts | {"seconds": grid.limit}
    except Exception as error:
        # An error of others' code says its kind itself.
        kind = getattr(error, "kind", type(error).__name__)
        return result_of(cell, grid, f"{FAILED}: {kind}") | facts


def result_of(cell: Cell, grid: Grid, status: str) -> dict[str, Any]:
    """A result without numbers."""
    unknown: dict[str, Any] = dict.fromkeys(("score", "seconds"), float("nan"))
    return (
        asdict(cell)
        | {"family": family(cell.method), "status": status, "limit": grid.limit}
        | {"task": None, "n_train": None, "n_bags": None}
        | unknown
    )


@lru_cache(maxsize=1)
def _split(table: str, rows: int | None, seed: int) -> Split:
    """The split that a worker had last."""
    return Split(_table(table, rows), seed)


@lru_cache(maxsize=1)
def _table(name: str, rows: int | None) -> Any:
    return load(name, rows)


def describe(grid: Grid) -> dict[str, Any]:
    """What a reader needs to repeat a run: grid, commit, versions, machine."""
    packages = ("bagwise", "numpy", "scipy", "scikit-learn", "lightgbm", "torch")
    versions = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "rows": grid.rows,
        "limit": grid.limit,
        "seeds": grid.seeds,
        "commit": commit_of_source(),
        "versions": versions,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
    }


@lru_cache(maxsize=1)
def commit_of_source() -> str | None:
    """The commit of this checkout, or None outside of one."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.run(
            words, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        return found.stdout.strip()
    return None
