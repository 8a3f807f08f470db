"""A figure of our own: rho chosen from bags alone against the rho that an oracle would choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bagwise import AggregateLinearRegression, Bags
from bagwise.experiments.figure import FigureData, listed

METHODS = ("loo", "gcv", "theory")


def run(
    problems: int = 50,
    random_state: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> FigureData:
    """Excess risk of each choice over the best of the path, on random problems."""
    rng = np.random.default_rng(random_state)
    names = (
        "problem",
        "d",
        "k",
        "psi",
        "snr",
        "method",
        "rho",
        "oracle_rho",
        "risk",
        "oracle_risk",
    )
    lines: dict[str, list[Any]] = {name: [] for name in names}
    for problem in progress(range(problems)):
        d, k = int(rng.integers(10, 101)), int(rng.integers(2, 21))
        psi, snr = (
            float(np.exp(rng.uniform(np.log(2), np.log(60)))),
            float(10 ** rng.uniform(-1, 1)),
        )
        n = max(round(psi * d), 3 * k)
        X = rng.standard_normal((n, d))
        theta = rng.standard_normal(d)
        theta *= np.sqrt(snr) / np.linalg.norm(theta)
        bags = Bags.random(n, k, random_state=int(rng.integers(2**31)))
        means = bags.expand(bags.mean(X @ theta + rng.standard_normal(n)))
        for method in METHODS:
            model = AggregateLinearRegression(rho=method).fit(X, means, bags)
            risks = np.square(model.path_.coefficients - theta).sum(axis=1)
            oracle = int(np.argmin(risks))
            risk = float(np.square(model.coef_ - theta).sum())
            found = (float(model.path_.rhos[oracle]), risk, float(risks[oracle]))
            values = (problem, d, k, n / d, snr, method, model.rho_, *found)
            for name, value in zip(names, values, strict=True):
                lines[name].append(value)
    columns = {name: np.array(values) for name, values in lines.items()}
    parameters = {"problems": problems, "random_state": random_state}
    return FigureData("chosen_rho", columns, parameters)


def excess(data: FigureData) -> dict[str, Any]:
    """Risk over the oracle's, less 1, for each method."""
    return {
        method: c["risk"] / c["oracle_risk"] - 1
        for method in METHODS
        for c in [data.where(method=method)]
    }


def summary(data: FigureData) -> str:
    """Median excess risk of each method, in words."""
    medians = [100 * float(np.median(values)) for values in excess(data).values()]
    return f"median excess risk of {', '.join(METHODS)}: {listed(medians, '.1f')} %"
