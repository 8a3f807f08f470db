"""The same flights, released with label privacy: what was forecast and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from bagwise import AggregateLinearRegression
from bagwise._extras import need
from bagwise.experiments.flights import load
from bagwise.planning import plan
from bagwise.release import release

if TYPE_CHECKING:
    import pandas as pd

EPSILONS = (0.5, 1.0, 2.0, 4.0, np.inf)
# Minutes: what anyone knows of flights, not of these. Narrow ones need less noise and clip more.
BOUNDS = ((-60.0, 180.0), (-100.0, 500.0))


@dataclass(frozen=True)
class PrivateErrors:
    """What `run` measured.

    Attributes
    ----------
    errors : DataFrame with columns low, high, epsilon, repeat, measured, forecast, rho
        Root mean squared error in minutes on flights that no model saw, one line a release.
    full, mean : float
        Median of the same error with full labels, and when predicting the mean.
    bag_size, n_rows : int
    """

    errors: pd.DataFrame
    full: float
    mean: float
    bag_size: int
    n_rows: int


def run(
    bag_size: int = 20,
    epsilons: Iterable[float] = EPSILONS,
    repeats: int = 6,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> PrivateErrors:
    """Release arrival delays at each epsilon and bounds, fit from the release alone, and compare.

    Each repeat splits the flights anew (a quarter for testing) and releases the others with real
    noise, as sums A, W, c. The planner is told the signal and noise that full labels of the
    training flights show, as a curator would know them from the year before; test labels serve to
    measure.

    Parameters
    ----------
    bag_size : int
        Flights a bag.
    epsilons : sequence of float
        Budgets; infinity for plain means.
    repeats : int
        Splits and releases.
    random_state : int
        Seed of the first split; noise and bags have none.
    progress : callable
        Wraps the loop over repeats, to draw a bar.
    """
    pandas = need("pandas", "demo")
    features, y = load()
    lines, full, mean = [], [], []
    for repeat in progress(range(repeats)):
        train, test = train_test_split(
            np.arange(len(y)), test_size=0.25, random_state=random_state + repeat
        )
        X, unseen = features.iloc[train], features.iloc[test]
        model = LinearRegression().fit(X, y[train])
        full.append(root_mean_squared_error(y[test], model.predict(unseen)))
        mean.append(root_mean_squared_error(y[test], np.full(len(test), y[train].mean())))
        predicted = model.predict(X)
        signal, noise = float(predicted.std()), float((y[train] - predicted).std())
        rows = X.assign(arr_delay=y[train])
        for (low, high), epsilon in product(BOUNDS, epsilons):
            fitted = _fit_released(rows, bag_size, epsilon, (low, high))
            expected = plan(
                len(train),
                X.shape[1],
                signal=signal,
                noise=noise,
                epsilon=epsilon if np.isfinite(epsilon) else None,
                bounds=(low, high),
                bag_sizes=[bag_size],
            )
            lines.append(
                {
                    "low": low,
                    "high": high,
                    "epsilon": epsilon,
                    "repeat": repeat,
                    "measured": root_mean_squared_error(y[test], fitted.predict(unseen)),
                    "forecast": float(np.sqrt(expected.risk + expected.noise**2)),
                    "rho": fitted.rho_,
                }
            )
    middle = float(np.median(full)), float(np.median(mean))
    return PrivateErrors(pandas.DataFrame(lines), *middle, bag_size, len(train))


def _fit_released(
    rows: pd.DataFrame, bag_size: int, epsilon: float, bounds: tuple[float, float]
) -> AggregateLinearRegression:
    """A model that saw a release and nothing else."""
    with TemporaryDirectory() as folder:
        made = release(
            rows,
            response="arr_delay",
            bag_size=bag_size,
            epsilon=epsilon,
            bounds=bounds,
            features="statistics",
            ledger=None,
            out=Path(folder) / "released",
        )
        return AggregateLinearRegression(rho="gcv").fit_statistics(made.statistics())
