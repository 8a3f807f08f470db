"""The picture of the private flights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bagwise._extras import need
from bagwise.experiments.private_flights import PrivateErrors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLOURS = ("#D55E00", "#0072B2")


def summary(result: PrivateErrors) -> pd.DataFrame:
    """Median error in minutes, one line an epsilon: measured and forecast for each bounds."""
    table = need("pandas", "demo").DataFrame()
    for low, high in _bounds(result):
        by_epsilon = _within(result, low, high).groupby("epsilon")
        for kind in ("measured", "forecast"):
            table[f"{kind}, {low:g} to {high:g}"] = by_epsilon[kind].median()
    found: pd.DataFrame = table
    return found


def draw(result: PrivateErrors) -> Figure:
    """Measured error (median and range), and the planner's forecast, against epsilon."""
    pyplot = need("matplotlib.pyplot", "demo")
    figure: Figure
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    epsilons = sorted(result.errors["epsilon"].unique())
    places = np.arange(len(epsilons))
    for (low, high), colour, shift in zip(_bounds(result), COLOURS, (-0.06, 0.06), strict=True):
        by_epsilon = _within(result, low, high).groupby("epsilon")
        least, middle, most = (by_epsilon["measured"].quantile(q) for q in (0, 0.5, 1))
        name = f"{low:g} to {high:g} minutes".replace("-", "−")
        axes.errorbar(
            places + shift,
            middle,
            (middle - least, most - middle),
            fmt="o",
            color=colour,
            capsize=3,
            label=f"measured, delays clipped at {name}",
        )
        forecast = by_epsilon["forecast"].median()
        axes.plot(places, forecast, "--", marker="_", color=colour, label=f"forecast, {name}")
    axes.axhline(result.full, color="black", linewidth=0.8, label="full labels")
    axes.set_xticks(places, [f"{e:g}" if np.isfinite(e) else "none" for e in epsilons])
    axes.set(
        xlabel="epsilon (none: plain means)",
        ylabel="test error (RMSE, minutes)",
        title=f"Arrival delay from private means over bags of {result.bag_size} flights",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure


def _within(result: PrivateErrors, low: float, high: float) -> pd.DataFrame:
    """The errors of releases with these bounds."""
    errors = result.errors
    return errors[(errors["low"] == low) & (errors["high"] == high)]


def _bounds(result: PrivateErrors) -> list[tuple[float, float]]:
    """The bounds that were tried, in order."""
    found = result.errors[["low", "high"]].drop_duplicates()
    return list(found.itertuples(index=False, name=None))
