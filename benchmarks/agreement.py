"""Theory against simulation over a grid of settings.

    python benchmarks/agreement.py [--features 200 --repeats 100]

Bags of 1 to 20 rows (equal, and unequal with a mean that is not whole), 1.2 to 20 rows a feature,
rho from 0 to 1, independent and correlated features. A setting agrees when theory and simulation
differ by at most 4 standard errors or 3 %. The simulation gives the exact bias and variance for the
rows it draws, so standard errors are small and what remains is the finite number of features.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from bagwise import theory
from bagwise.simulate import simulate

SIZES = (1, 2, 3, 5, 10, 20, "1 to 4", "1 to 7", "5 to 15")
PSI = (1.2, 1.5, 2, 3, 4, 7.5, 12, 20)
RHOS = (0.0, 0.003, 0.03, 0.3, 1.0)


def draw_sizes(size, n_rows, rng):
    """Sizes of bags with n_rows rows in all, but for the last few of equal bags."""
    if isinstance(size, int):
        return np.full(round(n_rows / size), size)
    low, high = (int(word) for word in size.split(" to "))
    sizes = rng.integers(low, high + 1, n_rows)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), n_rows)]
    return np.append(sizes, n_rows - sizes.sum())


def correlated(d, rng):
    """A covariance of condition number 400."""
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return axes * np.geomspace(1, 400, d) @ axes.T


def main():
    """Simulate, compare, print; exit code 1 when risk agrees in fewer than 99 % of settings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    d, lines = options.features, []
    for place, (size, psi) in enumerate((s, p) for s in SIZES for p in PSI):
        sizes = draw_sizes(size, round(psi * d), rng)
        k, psi = sizes.mean(), sizes.sum() / d
        # With bags of one row every rho is the same setting.
        rhos = np.array([r for r in RHOS if r > 0 or psi > 1.2 * k][: 1 if k == 1 else None])
        covariance = correlated(d, rng) if place % 2 else None
        drawn = simulate(
            d, sizes, rhos, covariance=covariance, repeats=options.repeats, random_state=place
        )
        parts = {
            "bias": (theory.bias(rhos, k, psi), drawn.bias, drawn.bias_error),
            "variance": (theory.variance(rhos, k, psi), drawn.variance, drawn.variance_error),
            "risk": (
                theory.risk(rhos, k, psi),
                drawn.bias + drawn.variance,
                np.hypot(drawn.bias_error, drawn.variance_error),
            ),
        }
        for part, columns in parts.items():
            for rho, exact, found, error in zip(rhos, *columns, strict=True):
                lines.append((part, size, psi, rho, place % 2, exact, found, error))
    print(f"{d} features, {options.repeats} replicates a setting")
    for part in ("bias", "variance", "risk"):
        mine = [line for line in lines if line[0] == part]
        gaps = np.array([abs(exact - found) for *_, exact, found, _ in mine])
        bases = np.array([(exact, error) for *_, exact, _, error in mine])
        relative = gaps / np.where(bases[:, 0] > 0, bases[:, 0], np.inf)
        good = (gaps <= 4 * bases[:, 1]) | (relative <= 0.03) | (gaps < 1e-12)
        agreed = bool(good.mean() >= 0.99)  # of the last part, the risk
        print(f"{part}: {good.sum()} of {len(mine)} settings agree ({good.mean():.1%});", end=" ")
        print(f"median gap {np.median(relative):.2%}")
        _, size, psi, rho, mixed, exact, found, error = mine[int(np.argmax(relative))]
        features = "correlated" if mixed else "independent"
        print(f"  worst: bags of {size}, psi {psi:.3g}, rho {rho}, {features} features:", end=" ")
        print(f"theory {exact:.4g}, simulation {found:.4g} ± {error:.2g}")
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
