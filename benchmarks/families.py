"""Families of models from bags against the same family on full labels.

    python benchmarks/families.py [--part boosting]

boosting  rounds over 1e6 rows of 50 columns in bags of 10, as estimators grow them, over rounds of
          LightGBM's built-in objective on full labels, in turns
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics

import lightgbm as lgb
import numpy as np
from timing import seconds

from bagwise import Bags
from bagwise.boosting.objective import Objective
from bagwise.boosting.training import ALWAYS, Settings, bin_rows, grow


def measure_boosting(rows=10**6, features=50, bag_size=10, rounds=5, repeats=7):
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
            grow(data, objective, Settings(rounds))

        def theirs(labelled=labelled, own=own):
            booster = lgb.Booster(ALWAYS | {"objective": own}, labelled)
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


PARTS = {"boosting": measure_boosting}


def main():
    """Print the figures with what they were measured on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS)
    chosen = parser.parse_args().part
    versions = f"numpy {np.__version__}, lightgbm {lgb.__version__}"
    print(f"{os.cpu_count()} cores, {platform.machine()}, {versions}")
    for name, measure in PARTS.items():
        if chosen in (None, name):
            measure()


if __name__ == "__main__":
    main()
