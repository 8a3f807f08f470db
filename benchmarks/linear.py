"""Time and memory of the whole rho path against one ridge fit of scikit-learn.

    python benchmarks/linear.py [--rows 500000 --features 100 --bag-size 10 --repeats 7]

Prints the ratio of medians, measured in turns within one run, and the peak of resident memory
beyond X itself as a share of X.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge
from timing import ratio

from bagwise import AggregateLinearRegression


def problem(rows, features, bag_size, seed=0):
    """Gaussian rows, and means over bags of neighbouring rows, repeated for each row."""
    rng = np.random.default_rng(seed)
    X = np.empty((rows, features))
    rng.standard_normal(out=X)
    y = X @ rng.standard_normal(features) + rng.standard_normal(rows)
    bags = np.arange(rows) // bag_size
    means = np.bincount(bags, y) / np.bincount(bags)
    return X, means[bags], bags


def resident(field):
    """VmRSS (now) or VmHWM (peak) in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status must have {field}; got none. Run this on Linux.")


def peak_beyond(task):
    """Bytes by which resident memory rose above its level before the call."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident("VmRSS")
    task()
    return resident("VmHWM") - before


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 500_000), ("features", 100), ("bag-size", 10), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    X, y, bags = problem(options.rows, options.features, options.bag_size)
    ours = AggregateLinearRegression(rho="loo")
    theirs = Ridge(solver="cholesky")
    ours.fit(X[:1000], y[:1000], bags[:1000])  # libraries take their own buffers once
    memory = peak_beyond(lambda: ours.fit(X, y, bags)) / X.nbytes
    found = ratio(lambda: ours.fit(X, y, bags), lambda: theirs.fit(X, y), options.repeats)
    print(f"rows {options.rows}, features {options.features}, bags of {options.bag_size}")
    print(f"path of {len(ours.path_.rhos)} rhos, left-out bags / one Ridge fit: {found:.2f}")
    print(f"peak memory beyond X / X: {memory:.2f}")


if __name__ == "__main__":
    main()
