"""Averages over bags against numpy.add.reduceat on sorted rows, and growth with the rows.

    python benchmarks/bags.py [--rows 1000000 --features 20 --bag-size 10 --repeats 7]

Prints ratios of medians, measured in turns within one run.
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import ratio

from bagwise import Bags


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 10**6), ("features", 20), ("bag-size", 10), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    ids = np.arange(options.rows) // options.bag_size
    starts = np.arange(0, options.rows, options.bag_size)
    sorted_bags, mixed = Bags(ids), Bags(rng.permutation(ids))
    values = rng.standard_normal((options.rows, options.features))
    column = values[:, 0].copy()
    print(f"{options.rows} rows, {options.features} features, bags of {options.bag_size}")
    for label, v in (("1-D", column), ("2-D", values)):
        for order, bags in (("sorted", sorted_bags), ("unsorted", mixed)):
            bags.sum(v)
            found = ratio(
                lambda b=bags, v=v: b.sum(v),
                lambda v=v: np.add.reduceat(v, starts),
                options.repeats,
            )
            print(f"sum, {label}, {order} rows / numpy.add.reduceat on sorted rows: {found:.2f}")
    few = ids[: options.rows // 10]
    grown = ratio(lambda: Bags(ids), lambda: Bags(few), options.repeats)
    print(f"Bags(ids) for 10 times the rows / for the rows: {grown:.1f} (linear is 10)")


if __name__ == "__main__":
    main()
