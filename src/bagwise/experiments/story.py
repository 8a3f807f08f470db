"""The whole way on real flights: plan, release, fit three models, compare with full labels.

Two parties in one run. The curator's half plans and releases; the learner's half opens the folder
that crosses and nothing else. Test flights measure what came of it and choose nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from bagwise import (
    AggregateBoostingRegressor,
    AggregateLinearRegression,
    AggregateMLPRegressor,
    Plan,
    Release,
    _check,
)
from bagwise._extras import need
from bagwise._progress import Progress, silent
from bagwise.experiments import flights
from bagwise.inspection.bag_fit import predicted
from bagwise.planning import plan
from bagwise.release import release

if TYPE_CHECKING:
    import pandas as pd

Found = TypeVar("Found")
RESPONSE = "arr_delay"
# Minutes: what anyone knows of flights, not of these. So wide that next to none is clipped, which
# a forecast for Gaussian delays would not know of.
BOUNDS = (-100.0, 500.0)
KINDS = ("linear", "boosted", "neural")
# A folder that has this file is a demo's, and may be made anew.
MARK = ".bagwise-demo"
MADE = ("released", "models", "report.html", "demo.json")
EPOCHS = 20


@dataclass(frozen=True, eq=False)
class Story:
    """What came of it; errors are root mean squared errors of test flights, in minutes.

    Attributes
    ----------
    plan : Plan
    released : Release
    models : dict
        The fitted model of each kind.
    private, full : dict
        For each kind (error, standard error) when fitted to the release, and to full labels.
    mean : float
        Error of predicting the mean of the training flights.
    forecast : float
        What the plan expected of the linear model.
    n_test, n_flights : int
        Flights that measure, and all there are.
    replaced : bool
        Whether an earlier demo was there.
    """

    plan: Plan
    released: Release
    models: dict[str, Any]
    private: dict[str, tuple[float, float]]
    full: dict[str, tuple[float, float]]
    mean: float
    forecast: float
    n_test: int
    n_flights: int
    replaced: bool


def run(
    out: Path,
    bag_size: int = 20,
    epsilon: float = 1.0,
    most: int | None = None,
    random_state: int = 0,
    progress: Callable[[str], Progress] = lambda title: silent,
) -> Story:
    """Tell the story in a folder: a Release, its ledger and three models are left there.

    Parameters
    ----------
    out : Path
        New, empty, or of an earlier demo, which is replaced.
    bag_size : int
        Least number of flights a bag: the anonymity that is asked for.
    epsilon : float
        Label-privacy budget.
    most : int or None
        Training flights at most; all by default.
    random_state : int
        Seed of the split, of trees and networks; noise and bags have none.
    progress : callable
        For the title of a stage, what wraps its one result to show a bar.
    """
    _check.whole("bag_size", bag_size, low=1, remedy="Pass the flights a bag")
    _check.number("epsilon", epsilon, low=0, high=1e6, above=True, remedy="1 is usual")
    if most is not None:
        _check.whole("flights", most, low=1000, remedy="Pass the training flights at most")
        if most < 2 * bag_size:
            got = f"bag_size={bag_size} for {most} flights"
            _check.refuse("bag_size", "at most half the training flights", got, "Pass fewer")
    replaced = _clear(out)

    def stage(title: str, task: Callable[[], Found]) -> Found:
        return next(iter(progress(title)(_once(task), 1)))

    for name in ("lightgbm", "torch"):
        need(name, "demo")
    # Threads wait for each other more than they help where others are at work, too.
    with threadpool_limits(1):
        table = stage("Reading flights", flights.read)
        train, test = train_test_split(table, test_size=0.25, random_state=random_state)
        train = train.iloc[:most]
        y = train[RESPONSE].to_numpy(float)
        chosen, linear = stage("Planning", lambda: _plan(train, y, bag_size, epsilon))
        made = stage("Releasing", lambda: _release(train, chosen.bag_size, epsilon, out))
        learner = Release.load(made.path)
        models = {
            kind: stage(f"Fitting {kind} model", partial(_fit, kind, learner, out))
            for kind in KINDS
        }
        truth = test[RESPONSE].to_numpy(float)
        unseen = pa.Table.from_pandas(test, preserve_index=False)
        private = {kind: _error(truth, predicted(model, unseen)) for kind, model in models.items()}
        full = {}
        for kind, model in models.items():
            task = partial(_full, kind, model, train, y, test, linear)
            full[kind] = _error(truth, stage(f"Full labels, {kind} model", task))
    return Story(
        plan=chosen,
        released=learner,
        models=models,
        private=private,
        full=full,
        mean=_error(truth, np.full(len(truth), y.mean()))[0],
        forecast=float(np.sqrt(chosen.risk + chosen.noise**2)),
        n_test=len(test),
        n_flights=len(table),
        replaced=replaced,
    )


def _once(task: Callable[[], Found]) -> Iterator[Found]:
    yield task()


def _clear(out: Path) -> bool:
    """Make way for a new run where an earlier one was; refuse a folder of anything else."""
    if not (out / MARK).exists():
        if out.is_dir() and any(out.iterdir()):
            got = f"{str(out)!r}, where other things lie"
            _check.refuse("out", "a new folder, or one of a demo", got, "Choose another place")
        out.mkdir(parents=True, exist_ok=True)
        (out / MARK).touch()
        return False
    for path in [*(out / name for name in MADE), *out.glob("ledger-*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return True


def _plan(train: pd.DataFrame, y: Any, bag_size: int, epsilon: float) -> tuple[Plan, Any]:
    """The curator's choice, at the signal and noise that a curator knows of past flights."""
    X = flights.encode(train)
    linear = LinearRegression().fit(X, y)
    fitted = linear.predict(X)
    chosen = plan(
        len(y),
        X.shape[1],
        signal=float(fitted.std()),
        noise=float((y - fitted).std()),
        epsilon=epsilon,
        bounds=BOUNDS,
        min_bag_size=bag_size,
    )
    return chosen, linear


def _release(train: pd.DataFrame, bag_size: int, epsilon: float, out: Path) -> Release:
    """The curator's act, with a ledger of this demo alone, which counts from 0 each time."""
    return release(
        train,
        response=RESPONSE,
        bag_size=bag_size,
        epsilon=epsilon,
        bounds=BOUNDS,
        budget=epsilon,
        # A ledger that is gone is missed at its place: each run has a place of its own.
        ledger=out / f"ledger-{token_hex(4)}" / "ledger.db",
        out=out / "released",
    )


def _made(kind: str, rho: str | float | None = None) -> Any:
    """An estimator of a kind, at its own choice of rho or a given one."""
    if kind == "linear":
        return AggregateLinearRegression(rho="gcv" if rho is None else rho)
    choice: Any = "cv" if rho is None else rho
    if kind == "boosted":
        return AggregateBoostingRegressor(rho=choice, n_jobs=1, random_state=0)
    return AggregateMLPRegressor(rho=choice, epochs=EPOCHS, device="cpu", random_state=0)


def _fit(kind: str, released: Release, out: Path) -> Any:
    """The learner's half: a model that saw a Release and nothing else."""
    model = _made(kind).fit(released)
    model.save(out / "models" / kind)
    return model


def _full(
    kind: str, model: Any, train: pd.DataFrame, y: Any, test: pd.DataFrame, linear: Any
) -> Any:
    """Predictions of the same kind of model when every label is known."""
    if kind == "linear":
        # Of few flights some carriers are missing.
        columns = linear.feature_names_in_
        return linear.predict(flights.encode(test).reindex(columns=columns, fill_value=0.0))
    if kind == "boosted":
        X, unseen = train[flights.COLUMNS], test[flights.COLUMNS]
    else:
        tables = (pa.Table.from_pandas(rows, preserve_index=False) for rows in (train, test))
        X, unseen = (model.encoder_.encode(rows, "ignore") for rows in tables)
    return _made(kind, 0.0).fit(X, y).predict(unseen)


def _error(truth: Any, predictions: Any) -> tuple[float, float]:
    """Root mean squared error, and its standard error over flights."""
    squares = np.square(truth - predictions)
    root = float(np.sqrt(squares.mean()))
    return root, float(squares.std() / np.sqrt(len(squares)) / (2 * root))
