"""The picture of the flights experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bagwise._extras import need
from bagwise.experiments.flights import METHODS, FlightErrors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by colour-blind readers, and in grey by their markers.
LOOKS = dict(
    zip(
        METHODS,
        [("#000000", "s"), ("#0072B2", "o"), ("#E69F00", "^"), ("#D55E00", "D")],
        strict=True,
    )
)


def summary(result: FlightErrors) -> pd.DataFrame:
    """Median test error in minutes, one line a training size and one column a method."""
    table = result.errors.pivot_table(
        index="rows", columns="method", values="rmse", aggfunc="median"
    )
    table = table[list(METHODS)]
    chosen = result.errors[result.errors["method"] == "chosen rho"]
    table["rho"] = chosen.groupby("rows")["rho"].median()
    return table


def draw(result: FlightErrors) -> Figure:
    """Errors against the number of training flights, and against rho where flights are few."""
    pyplot = need("matplotlib.pyplot", "demo")
    figure: Figure
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    _draw_sizes(left, result)
    _draw_rhos(right, result)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    return figure


def _draw_sizes(axes: Axes, result: FlightErrors) -> None:
    """Median and quartiles of the test error of each method."""
    for method, (colour, marker) in LOOKS.items():
        chosen = result.errors[result.errors["method"] == method]
        by_size = chosen.groupby("rows")["rmse"]
        low, middle, high = (by_size.quantile(q) for q in (0.25, 0.5, 0.75))
        axes.plot(middle.index, middle, color=colour, marker=marker, markersize=5, label=method)
        axes.fill_between(middle.index, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set(
        xlabel=f"training flights, in bags of {result.bag_size}",
        ylabel="test error (RMSE, minutes)",
        title="Arrival delay learnt from bag means",
    )
    axes.legend(frameon=False)


def _draw_rhos(axes: Axes, result: FlightErrors) -> None:
    """The error of a row as bags tell it, and as test labels tell it, with the chosen rhos."""
    middle = result.paths.groupby("rho")[["estimated", "measured"]].median()
    rhos = np.asarray(middle.index)
    place = np.maximum(rhos, rhos[1] / 2)
    axes.plot(place, middle["measured"], color="black", label="measured on test labels")
    axes.plot(place, middle["estimated"], "--", color="#D55E00", label="estimated from bags alone")
    rows = result.errors["rows"].min()
    chosen = result.errors[
        (result.errors["method"] == "chosen rho") & (result.errors["rows"] == rows)
    ]
    bottom = 0.93 * min(middle.min())
    spots = np.maximum(chosen["rho"], place[0])
    axes.plot(spots, np.full(len(spots), bottom), "|", color="#D55E00", label="chosen, each draw")
    axes.set_xscale("log")
    axes.set_xticks(
        [place[0], 1e-4, 1e-3, 1e-2, 1e-1, 1], ["0", "10⁻⁴", "10⁻³", "0.01", "0.1", "1"]
    )
    axes.minorticks_off()
    axes.set_ylim(0.9 * min(middle.min()), 1.3 * float(middle["measured"].iloc[-1]))
    axes.set(xlabel="rho", ylabel="error of a flight (RMSE, minutes)")
    axes.set_title(f"Rho with {rows} flights: chosen without a label")
    axes.legend(frameon=False)
