"""The benchmark's pictures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._extras import need
from bagwise.benchmark import standing
from bagwise.benchmark.cells import BAGS, PRIVACY
from bagwise.benchmark.methods import AUTOMATIC
from bagwise.reports.paper import STYLE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TASKS = ("regression", "classification")
LOOKS = (
    ("#D55E00", "o", "-"),
    ("#0072B2", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
)
OTHERS = "0.55"
# Recoveries further down are drawn here: beyond, all are worse than useless.
LOWEST = -0.5


def short(method: str) -> str:
    """A method's name without what all names share.

    >>> short("AggregateBoostingRegressor"), short("RidgeMeansClassifier"), short("deep_llp")
    ('Boosting', 'RidgeMeans', 'deep_llp')
    """
    if method in AUTOMATIC.values():
        return "Automatic"
    return re.sub("^Aggregate|Regressor$|Classifier$|Regression$", "", method)


def candidate(table: pd.DataFrame) -> str | None:
    """Of a task's methods, ours of the best mean rank; the automatic one where it was measured."""
    ours = set(table["method"][table["family"] == "ours"])
    automatic = ours & set(AUTOMATIC.values())
    if automatic:
        return str(automatic.pop())
    ranks = standing.ranking(table).ranks
    return next((str(name) for name in ranks.index if name in ours), None)


# Pictures


def draw(table: pd.DataFrame) -> dict[str, Figure]:
    """Pictures of what `standing.recovered` gives, by name."""
    pyplot = need("matplotlib.pyplot", "plot")
    drawings = {
        "heat_map": _heat_map,
        "ranks": _ranks,
        "bag_size": _bag_size,
        "time": _time,
    }
    with pyplot.rc_context(STYLE):
        return {f"benchmark_{name}": drawn(table, pyplot) for name, drawn in drawings.items()}


def lines_of(table: pd.DataFrame) -> Any:
    """The lines of a table, each with its columns as fields."""
    return table.itertuples()


def by_task(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Each task with its results."""
    return [(task, table[table["task"] == task]) for task in TASKS if task in set(table["task"])]


def _heat_map(table: pd.DataFrame, pyplot: Any) -> Figure:
    tasks = by_task(table)
    heights = [part["method"].nunique() + 2 for _, part in tasks]
    figure, grid = pyplot.subplots(
        *(len(tasks), 1),
        **{"figsize": (7.2, 0.27 * sum(heights) + 0.8), "layout": "constrained"},
        **{"height_ratios": heights, "squeeze": False},
    )
    picture = None
    for axes, (task, part) in zip(grid[:, 0], tasks, strict=True):
        wide = part.pivot_table("recovery", "method", ["privacy", "bags"], "median")
        columns = [(p, b) for p in PRIVACY for b in BAGS if (p, b) in wide.columns]
        order = wide[columns].clip(lower=-1).mean(axis=1).sort_values(ascending=False).index
        values = wide.loc[order, columns].to_numpy()
        picture = axes.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                text = f"{value:z.2f}" if value > -10 else "< −10"
                colour = "white" if abs(value) > 0.65 else "black"
                axes.text(
                    j, i, text.replace("-", "−"), ha="center", va="center", color=colour, fontsize=8
                )
        ours = _ours(part)
        for place in range(1, len(columns)):
            if columns[place][0] != columns[place - 1][0]:
                axes.axvline(place - 0.5, color="white", linewidth=4)
        axes.set_yticks(range(len(order)), [short(name) for name in order])
        for label, name in zip(axes.get_yticklabels(), order, strict=True):
            label.set_fontweight("bold" if name in ours else "normal")
        axes.set_xticks(range(len(columns)), [f"{b}\n{plain_words(p)}" for p, b in columns])
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(f"{task.capitalize()}: bags of …", loc="left")
    figure.colorbar(picture, ax=grid, shrink=0.6, label="median recovery", extend="min")
    return figure  # type: ignore[no-any-return]


def plain_words(privacy: str) -> str:
    """What means are like, for a reader."""
    return {"none": "plain", "epsilon 1": "ε = 1"}.get(privacy, privacy)


def _ranks(table: pd.DataFrame, pyplot: Any) -> Figure:
    tasks = by_task(table)
    heights = [part["method"].nunique() / 2 + 3 for _, part in tasks]
    figure, grid = pyplot.subplots(
        *(len(tasks), 1),
        **{"figsize": (7.2, 0.24 * sum(heights)), "layout": "constrained"},
        **{"height_ratios": heights, "squeeze": False},
    )
    for axes, (task, part) in zip(grid[:, 0], tasks, strict=True):
        _rank_axis(axes, task, standing.ranking(part), part)
    return figure  # type: ignore[no-any-return]


def _rank_axis(axes: Any, task: str, found: standing.Ranking, part: pd.DataFrame) -> None:
    """Demšar's plot: mean ranks on a line, bars over those that the test cannot tell apart."""
    ranks, n = found.ranks, len(found.ranks)
    ours = _ours(part)
    half = (n + 1) // 2
    axes.set(xlim=(1 - 0.42 * n, n + 0.42 * n), ylim=(-(half + 1.6), 1.7))
    axes.axis("off")
    axes.plot((1, n), (0, 0), color="black", linewidth=1)
    for tick in range(1, n + 1):
        axes.plot((tick, tick), (0, 0.2), color="black", linewidth=1)
        axes.text(tick, 0.35, str(tick), ha="center", va="bottom", fontsize=8)
    bars = _indistinct(ranks.to_numpy(), found.critical_difference)
    for place, (low, high) in enumerate(bars):
        y = -0.35 - 0.9 * place / max(len(bars), 1)
        axes.plot((low - 0.05, high + 0.05), (y, y), color="0.25", linewidth=2.2)
    for i, (name, rank) in enumerate(ranks.items()):
        left = i < half
        y = -1.9 - (i if left else n - 1 - i)
        end, side = (1 - 0.03 * n, "right") if left else (n + 0.03 * n, "left")
        colour = ours[str(name)][0] if name in ours else "0.35"
        axes.plot((rank, rank, end), (0, y, y), color=colour, linewidth=0.9)
        label = f"{short(str(name))}  {rank:.1f}" if left else f"{rank:.1f}  {short(str(name))}"
        weight = "bold" if name in ours else "normal"
        axes.text(end, y, f" {label} ", ha=side, va="center", color=colour, fontweight=weight)
    said = f"{task.capitalize()}: mean rank over {found.n_cells} cells (1 is best)"
    if np.isfinite(found.critical_difference):
        said += f"; critical difference {found.critical_difference:.2f}"
    axes.set_title(said, loc="left")


def _indistinct(ranks: Any, critical: float) -> list[tuple[float, float]]:
    """Longest runs of sorted ranks no wider than the critical difference.

    >>> _indistinct([1.0, 1.5, 3.0, 3.4], 1.0)
    [(1.0, 1.5), (3.0, 3.4)]
    """
    runs: list[tuple[float, float]] = []
    for i, low in enumerate(ranks):
        high = max((rank for rank in ranks[i:] if rank - low <= critical), default=low)
        if high > low and not (runs and runs[-1][1] >= high):
            runs.append((float(low), float(high)))
    return runs


def _ours(part: pd.DataFrame) -> dict[str, tuple[str, str, str]]:
    """Our methods with colour, marker and dash, the same for a family of models in each picture."""
    ours = sorted(set(part["method"][part["family"] == "ours"]), key=place_of)
    return {name: LOOKS[place_of(name) % len(LOOKS)] for name in ours}


def place_of(method: str) -> int:
    """A family of models by its place in an order that both tasks share."""
    words = ("Automatic", "Linear", "Logistic", "Boosting", "MLP")
    place = words.index(short(method)) if short(method) in words else len(words)
    return place - (place > 1)


def _bag_size(table: pd.DataFrame, pyplot: Any) -> Figure:
    tasks = by_task(table)
    sizes = [b for b in BAGS if b in set(table["bags"]) and b != "natural"]
    figure, grid = pyplot.subplots(
        *(len(tasks), len(PRIVACY)),
        **{"figsize": (7.8, 2.7 * len(tasks)), "layout": "constrained", "squeeze": False},
        **{"sharey": True, "sharex": True},
    )
    for row, (task, part) in zip(grid, tasks, strict=True):
        ours, best = _ours(part), _best_other(part)
        for axes, privacy in zip(row, PRIVACY, strict=True):
            chosen = part[(part["privacy"] == privacy) & part["bags"].isin(sizes)]
            wide = chosen.pivot_table("recovery", "method", "bags", "median").reindex(columns=sizes)
            wide = wide.clip(lower=LOWEST)
            for name, curve in sorted(wide.iterrows(), key=lambda line: place_of(str(line[0]))):
                label, look = short(str(name)), {"color": "0.8", "linewidth": 1.0, "zorder": 1}
                if name in ours:
                    colour, marker, dash = ours[str(name)]
                    look = {"color": colour, "marker": marker, "linestyle": dash, "markersize": 4}
                elif name == best:
                    label, look = f"{label}\n(best of others)", {"color": "black"}
                else:
                    label = "_nolegend_"
                axes.plot(sizes, curve, label=label, **look)
            axes.axhline(1, color="black", linewidth=0.8)
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_title(f"{task.capitalize()}, {plain_words(privacy)}", loc="left")
            axes.set_ylim(LOWEST - 0.05, 1.1)
            axes.set_yticks([LOWEST, 0, 0.5, 1], [f"≤ {LOWEST:g}".replace("-", "−"), 0, 0.5, 1])
        row[0].set_ylabel("median recovery")
        row[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for axes in grid[-1]:
        axes.set_xlabel("rows a bag (grey: the other methods)")
    return figure  # type: ignore[no-any-return]


def _best_other(part: pd.DataFrame) -> str:
    """The others' method of the best mean rank."""
    others = set(part["method"][part["family"] != "ours"])
    ranks = standing.ranking(part).ranks
    return next((str(name) for name in ranks.index if name in others), "")


def _time(table: pd.DataFrame, pyplot: Any) -> Figure:
    tasks = by_task(table)
    figure, grid = pyplot.subplots(
        *(1, len(tasks)),
        **{"figsize": (3.9 * len(tasks), 3.8), "layout": "constrained", "squeeze": False},
    )
    found = standing.summary(table)
    for axes, (task, part) in zip(grid[0], tasks, strict=True):
        lines = found[(found["task"] == task) & (found["time"] > 0)].dropna(subset="recovery")
        if len(lines):
            _time_axis(axes, lines.sort_values("recovery"), _ours(part))
        else:
            words = "ridge on bag means was not measured"
            axes.text(0.5, 0.5, words, ha="center", transform=axes.transAxes)
        axes.set_title(task.capitalize(), loc="left")
        axes.set_xlabel("seconds of a fit over those of ridge on bag means")
    grid[0][0].set_ylabel("median recovery")
    return figure  # type: ignore[no-any-return]


def _time_axis(axes: Any, lines: pd.DataFrame, ours: dict[str, tuple[str, str, str]]) -> None:
    """Dots with their names, which keep their distance from those below."""
    heights = lines["recovery"].clip(lower=LOWEST)
    lowest = float(heights.min())
    axes.set_xscale("log")
    axes.set_ylim(lowest - 0.04 * (1 - lowest), 1.05)
    fast, slow = np.log10([lines["time"].min(), lines["time"].max()])
    # Names take about half of the axis.
    axes.set_xlim(10 ** (fast - 0.3), 10 ** (slow + 0.6 * (slow - fast) + 0.3))
    width, gap = 0.03 * (1.6 * (slow - fast) + 0.6), 0.045 * (1.05 - lowest)
    # Boxes that are taken, by their ends and height: the dots, then names as they are written.
    dots = zip(np.log10(lines["time"]), heights, strict=True)
    taken = [(x - width / 3, x + width / 3, y) for x, y in dots]
    for line, height in zip(lines_of(lines), heights, strict=True):
        name, left = short(line.method), np.log10(line.time) + width
        right, y = left + width * len(name), height
        for begin, end, other in sorted(taken, key=lambda box: box[2]):
            if begin < right and left < end and abs(other - y) < gap:
                y = other + gap
        taken.append((left, right, y))
        colour = ours[line.method][0] if line.method in ours else OTHERS
        axes.plot(line.time, height, "o", color=colour, markersize=5)
        axes.annotate(
            name if line.recovery >= LOWEST else f"{name} ({line.recovery:.1f})".replace("-", "−"),
            *((line.time, height), (10**left, y)),
            **{"va": "center", "fontsize": 7.5},
            fontweight="bold" if line.method in ours else "normal",
            arrowprops={"arrowstyle": "-", "color": "0.75", "linewidth": 0.6, "shrinkA": 0},
        )
