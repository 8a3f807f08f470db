"""A million points of the risk formula against numpy.exp over the same array.

python benchmarks/theory.py [--points 1000000 --repeats 9]
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import ratio

from bagwise import theory


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10**6)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rho, k, psi = (rng.uniform(a, b, options.points) for a, b in ((0.001, 1), (1, 9), (1.1, 30)))
    for name, task in {
        "bias": lambda: theory.bias(rho, 5, 20),
        "variance": lambda: theory.variance(rho, 5, 20),
        "risk": lambda: theory.risk(rho, 5, 20),
        "risk, arrays of k and psi too,": lambda: theory.risk(rho, k, psi),
    }.items():
        found = ratio(task, lambda: np.exp(rho), options.repeats)
        print(
            f"theory.{name} at {options.points} rhos / numpy.exp over the same array: {found:.1f}"
        )


if __name__ == "__main__":
    main()
