"""Pictures of the paper's figures and of our own three: one function each, and one that saves."""

from __future__ import annotations

import csv
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._disk import appearing_file
from bagwise._extras import need
from bagwise.experiments import chosen_rho, figure1, figure2, figure4
from bagwise.experiments.figure import FigureData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, with markers and dashes that tell them apart in grey.
LOOKS = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
)
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.92",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "bagwise",
}


def draw(data: FigureData) -> Figure:
    """The picture of an experiment."""
    pyplot = need("matplotlib.pyplot", "plot")
    with pyplot.rc_context(STYLE):
        figure: Figure = DRAWINGS[data.name](data, pyplot)
    return figure


def save(data: FigureData, out: Path) -> list[Path]:
    """Write picture (PNG and SVG), numbers (CSV), and parameters with versions (JSON)."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{data.name}.{ending}" for ending in ("png", "svg", "csv", "json")]
    figure = draw(data)
    with appearing_file(paths[0], over=True) as place:
        figure.savefig(place, format="png", dpi=200)
    with appearing_file(paths[1], over=True) as place:
        figure.savefig(place, format="svg", metadata={"Date": None})
    need("matplotlib.pyplot", "plot").close(figure)
    with appearing_file(paths[2], over=True) as place, place.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(data.columns)
        writer.writerows(zip(*(column.tolist() for column in data.columns.values()), strict=True))
    made_with = {name: version(name) for name in ("bagwise", "numpy", "scipy", "matplotlib")}
    made_with["python"] = platform.python_version()
    claims = [{"text": c.text, "holds": c.holds, "evidence": c.evidence} for c in data.claims]
    content = {"name": data.name, "parameters": data.parameters, "claims": claims}
    with appearing_file(paths[3], over=True) as place:
        place.write_text(json.dumps(content | {"versions": made_with}, indent=2) + "\n")
    return paths


def _figure1(data: FigureData, pyplot: Any) -> Figure:
    titles = {"snr": "SNR", "k": "bag size k", "psi": "ψ = n/d"}
    figure, grid = pyplot.subplots(3, 3, figsize=(7.2, 6.6), sharex=True, layout="constrained")
    for axes_row, (row, values) in zip(grid, figure1.VALUES.items(), strict=True):
        others = ", ".join(f"{titles[n]} = {v:g}" for n, v in figure1.BASE.items() if n != row)
        for axes, part in zip(axes_row, figure1.PARTS, strict=True):
            for value, (colour, dash, _) in zip(values, LOOKS, strict=False):
                curve = data.where(row=row, **{row: value})
                label = f"{titles[row]} = {value:g}"
                axes.plot(curve["rho"], curve[part], dash, color=colour, label=label)
                if part == "risk":
                    best = np.argmin(curve[part])
                    axes.plot(
                        curve["rho"][best], curve[part][best], "o", color=colour, markersize=4
                    )
            axes.set_ylim(bottom=0)
        axes_row[0].set_ylabel(f"effect of {titles[row]}\n({others})")
        axes_row[1].legend()
    for axes, part in zip(grid[0], figure1.PARTS, strict=True):
        axes.set_title(part + (" (dots: the best ρ)" if part == "risk" else ""))
    for axes in grid[-1]:
        axes.set_xlabel("ρ")
    return figure  # type: ignore[no-any-return]


def _figure2(data: FigureData, pyplot: Any) -> Figure:
    figure, axes = pyplot.subplots(figsize=(4.6, 3.2), layout="constrained")
    for place, (psi, look) in enumerate(zip(figure2.PSI, LOOKS, strict=True)):
        curve = data.where(psi=psi)
        # Lines that share 1 and 5 are set apart by a hair.
        shifted = curve["best_k"] + 0.05 * (place - 1.5)
        axes.step(np.log10(curve["rho"]), shifted, look[1], color=look[0], label=f"ψ = {psi:g}")
    axes.set_yticks(figure2.SIZES)
    axes.set(xlabel="log₁₀ ρ", ylabel="best bag size k of 1 … 5")
    axes.set_title("Label privacy, n → ∞: from single rows to the largest bags")
    axes.legend()
    return figure  # type: ignore[no-any-return]


def _figure3(data: FigureData, pyplot: Any) -> Figure:
    figure, grid = pyplot.subplots(1, 3, figsize=(7.2, 2.7), layout="constrained")
    for axes, part in zip(grid, ("bias", "variance", "risk"), strict=True):
        for k, (colour, dash, marker) in zip(np.unique(data.columns["k"]), LOOKS, strict=False):
            line = data.where(k=k)
            x, error = line["rho"], 2 * line[f"{part}_error"]
            axes.plot(x, line[f"{part}_theory"], dash, color=colour, label=f"k = {k}")
            axes.errorbar(x, line[part], error, fmt=marker, color=colour, markersize=4, capsize=2)
        axes.set(xlabel="ρ", title=part)
        axes.set_xscale("symlog", linthresh=0.01)
        axes.set_xticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
        axes.set_ylim(bottom=0)
    parameters = data.parameters
    figure.suptitle(
        f"Lines: theory. Dots: {parameters['repeats']} draws at d = {parameters['n_features']}, "
        f"ψ = {parameters['psi']:g}, SNR = {parameters['snr']:g}, ± 2 standard errors",
        fontsize=9,
    )
    grid[0].legend()
    return figure  # type: ignore[no-any-return]


def _double_descent(data: FigureData, pyplot: Any) -> Figure:
    figure, axes = pyplot.subplots(figsize=(5.4, 3.4), layout="constrained")
    psi = data.parameters["psi"]
    limit, best, dots = (data.where(kind=kind) for kind in ("limit", "best rho", "simulated"))
    for side in (limit["k"] < psi, limit["k"] > psi):
        label = "bag-level loss, ρ → 0" if side[0] else None
        axes.plot(limit["k"][side], limit["risk"][side], color=LOOKS[0][0], label=label)
    axes.errorbar(
        *(dots["k"], dots["risk"], 2 * dots["error"]),
        **{"fmt": "o", "color": LOOKS[0][0], "markersize": 4, "capsize": 2},
        label=f"simulated, d = {data.parameters['n_features']}",
    )
    axes.plot(best["k"], best["risk"], LOOKS[1][1], color=LOOKS[1][0], label="best ρ")
    axes.axhline(1, color="0.5", linestyle=":", label="predicting the mean")
    axes.axvline(psi, color="0.7", linewidth=0.8)
    axes.annotate("as many bags as features", (psi, 20), (1.15 * psi, 20), fontsize=8, color="0.3")
    axes.set(xscale="log", yscale="log", xlabel="bag size k", ylabel="risk / signal variance")
    axes.set_xticks([1, 2, 4, 10, 25], ["1", "2", "4", "10", "25"])
    axes.minorticks_off()
    axes.set_title(
        f"Double descent in the bag size (ψ = {psi:g}, SNR = {data.parameters['snr']:g})"
    )
    axes.legend()
    return figure  # type: ignore[no-any-return]


def _private_bags(data: FigureData, pyplot: Any) -> Figure:
    figure, grid = pyplot.subplots(1, 2, figsize=(7.2, 3.2), sharey=True, layout="constrained")
    titles = {"risk": "finite n: bias and sampling noise count", "limit": "the theorem's limit"}
    k, rho = np.unique(data.columns["k"]), np.unique(data.columns["rho"])
    for axes, (part, title) in zip(grid, titles.items(), strict=True):
        table = data.columns[part].reshape(len(k), len(rho)).T
        shown = axes.pcolormesh(k, rho, np.log10(table), cmap="cividis_r", shading="nearest")
        least = np.argmin(data.columns[part])
        spot = data.columns["k"][least], data.columns["rho"][least]
        axes.plot(
            *spot, "*", color="#D55E00", markersize=13, markeredgecolor="white", clip_on=False
        )
        where = f"best: k = {spot[0]:g}, ρ = {spot[1]:.2g}"
        axes.set(xscale="log", yscale="log", xlabel="bag size k", title=f"{title}\n{where}")
        axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axes.minorticks_off()
        axes.grid(visible=False)
        figure.colorbar(shown, ax=axes, label="log₁₀ risk")
    grid[0].set_ylabel("ρ")
    p = data.parameters
    text = f"n = {p['n_rows']:,}, d = {p['n_features']}, ε = {p['epsilon']:g}, SNR = {p['snr']:g}"
    figure.suptitle(f"Risk under label privacy ({text})", fontsize=9)
    return figure  # type: ignore[no-any-return]


def _chosen_rho(data: FigureData, pyplot: Any) -> Figure:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
    floor = 3e-6
    for method, (colour, _, marker) in zip(chosen_rho.METHODS, LOOKS, strict=False):
        lines = data.where(method=method)
        x, y = (np.maximum(lines[name], floor) for name in ("oracle_rho", "rho"))
        left.loglog(x, y, marker, color=colour, markersize=4, alpha=0.7, label=method)
    left.plot([floor, 1], [floor, 1], color="0.5", linewidth=0.8)
    ticks = [floor, 1e-4, 1e-2, 1]
    for axis in (left.xaxis, left.yaxis):
        axis.set_ticks(ticks, ["0", "10⁻⁴", "0.01", "1"])
        axis.set_minor_locator(pyplot.NullLocator())
    left.set(xlabel="rho of the oracle", ylabel="rho chosen from bags alone")
    left.legend()
    values = [100 * v for v in chosen_rho.excess(data).values()]
    boxes = right.boxplot(values, widths=0.5, showfliers=False, medianprops={"color": "black"})
    for line, (colour, _, _) in zip(boxes["boxes"], LOOKS, strict=False):
        line.set_color(colour)
    medians = [
        f"{m}\nmedian {np.median(v):.1f} %" for m, v in zip(chosen_rho.METHODS, values, strict=True)
    ]
    right.set_xticks(range(1, len(values) + 1), medians)
    right.set(ylabel="risk beyond the oracle's (%)")
    figure.suptitle(f"Choosing rho on {data.parameters['problems']} random problems", fontsize=9)
    return figure  # type: ignore[no-any-return]


def _figure4(data: FigureData, pyplot: Any) -> Figure:
    names = list(dict.fromkeys(data.columns["table"].tolist()))
    figure, grid = pyplot.subplots(
        3, len(names), figsize=(2.9 * len(names), 7.4), layout="constrained", squeeze=False
    )
    main = data.parameters["main_setting"]
    colours = pyplot.colormaps["viridis"](np.linspace(0.1, 0.85, len(figure4.SHARES)))
    for column, name in enumerate(names):
        part = data.where(table=name, **main)
        for colour, size in zip(colours, np.unique(part["bag_size"]), strict=True):
            rows = part["bag_size"] == size
            rho, error, spread = (part[key][rows] for key in ("rho", "error", "spread"))
            top, middle = grid[0, column], grid[1, column]
            top.plot(rho, error, color=colour, label=f"bags of {size}")
            top.plot(rho[np.argmin(error)], error.min(), "*", color=colour, markersize=11)
            middle.plot(rho, spread, "o-", color=colour, markersize=3)
        grid[0, column].set_title(f"{name}, {part['models'][0]} models a point")
        grid[0, column].legend(fontsize=7)
    grid[0, 0].set_ylabel("mean test error (★ best)")
    grid[1, 0].set_ylabel("standard deviation")
    for axes in grid[:2].flat:
        axes.set_xscale("symlog", linthresh=1e-3, linscale=0.4)
        axes.set_xlim(-2e-4, 1.2)
        axes.set_xticks([0, 1e-3, 1e-2, 1e-1, 1], ["0", ".001", ".01", ".1", "1"])
        axes.xaxis.minorticks_off()
        axes.set_yscale("log")
        _plain_numbers(axes)
        axes.set_xlabel("ρ")
    _sweep(data, names[0], grid[2])
    drawn: Figure = figure
    return drawn


def _plain_numbers(axes: Any) -> None:
    """Numbers on a logarithmic axis as people write them."""
    ticker = need("matplotlib.ticker", "plot")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(ticker.LogLocator(subs=(2, 5)))
    axes.yaxis.set_minor_formatter("{x:g}")


def _sweep(data: FigureData, name: str, grid: Any) -> None:
    """In which settings the two observations hold: best rho, and fall of the spread."""
    keys = ("scaling", "learning_rate", "epochs", "remainder")
    every = data.where(table=name)
    kinds = list(dict.fromkeys(zip(*(every[key].tolist() for key in keys), strict=True)))
    best, fall = grid[0], grid[1]
    for kind in kinds:
        part = data.where(table=name, **dict(zip(keys, kind, strict=True)))
        found = figure4.best_rhos(part)
        label = str(figure4.Setting(*kind))
        colour = "#0072B2" if kind[0] == "raw" else "#D55E00"
        look: dict[str, Any] = {"color": colour, "linestyle": "-" if kind[1] > 0.005 else ":"}
        look |= {"marker": {200: "v", 500: "o", 2000: "^"}.get(kind[2], "s"), "markersize": 4}
        look["fillstyle"] = "full" if kind[3] == "keep" else "none"
        best.plot(found.keys(), [max(rho, 3e-4) for rho in found.values()], label=label, **look)
        fall.plot(found.keys(), figure4.spread_falls(part), **look)
    best.set(yscale="log", xlabel="bag size", ylabel="best ρ", title=f"{name}, every setting")
    best.set_yticks([3e-4, 1e-3, 1e-2, 0.1, 1], ["0", ".001", ".01", ".1", "1"])
    best.minorticks_off()
    fall.set(xlabel="bag size", ylabel="spread at ρ = 1 over ρ = 0", yscale="log")
    _plain_numbers(fall)
    fall.axhline(1, color="0.6", linewidth=0.8)
    for axes in grid[2:]:
        axes.axis("off")
    handles, labels = best.get_legend_handles_labels()
    (grid[2] if len(grid) > 2 else fall).legend(
        handles, labels, fontsize=5.5 if len(labels) > 8 else 7, loc="center left"
    )


DRAWINGS = {
    "figure1": _figure1,
    "figure2": _figure2,
    "figure3": _figure3,
    "figure4": _figure4,
    "double_descent": _double_descent,
    "private_bags": _private_bags,
    "chosen_rho": _chosen_rho,
}
