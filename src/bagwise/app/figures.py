"""Numbers -> pictures: dictionaries for plotly, quicker to make than its classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bagwise.app.curves import Curve, View
from bagwise.theory._domain import FloatArray

# Those of `Plan.plot`: colours that colour-blind readers tell apart, and lines of their own.
PARTS = {
    "bias": ("bias", "#0072B2", "dash"),
    "sampling": ("sampling noise", "#B36B00", "dashdot"),
    "privacy": ("privacy noise", "#A8487F", "dot"),
}
AT_RHO = "expected error at your rho"
INK, PALE = "#1f2933", "#e4e7eb"
# The map's colours end at ten times the least risk.
WORST = 1.0


def by_size(view: View) -> dict[str, Any]:
    """Parts of the risk against bag size, each at its best rho."""
    traces = _parts(view.by_size)
    along = _line(view.by_size.x, view.by_size_here, AT_RHO, "#7b8794", "solid", 1.5)
    marks = [_mark(view.here.bag_size, view.here.risk, "your choice", "circle")]
    best = _mark(view.plan.bag_size, view.plan.risk, "best", "star")
    figure = _figure([along, *traces, *marks, best], "rows a bag, each at its best rho", view)
    figure["layout"]["xaxis"] |= {"exponentformat": "none", "dtick": 1}
    return figure


def by_rho(view: View) -> dict[str, Any]:
    """Parts of the risk against rho, at the bag size that is looked at."""
    least = float(view.rhos[0])
    here, best = view.here, view.best_here
    marks = [
        _mark(max(here.rho, least), here.risk, "your choice", "circle"),
        _mark(max(best.rho, least), best.risk, "best", "star"),
    ]
    rows = f"{here.bag_size} rows" if here.bag_size > 1 else "one row"
    return _figure([*_parts(view.by_rho), *marks], f"rho, with bags of {rows}", view)


def risk_map(view: View) -> dict[str, Any]:
    """Risk over bag size and rho, as a multiple of the least."""
    least = min(view.plan.risk, float(np.nanmin(view.risks))) or 1e-300
    with np.errstate(all="ignore"):
        times = np.clip(np.log10(view.risks / least), 0, WORST)
    ticks = (1, 1.5, 2, 3, 5, 10)
    heat = {
        "type": "heatmap",
        "x": _tidy(np.log10(view.sizes)),
        "y": _tidy(np.log10(view.rhos)),
        "z": [_tidy(row) for row in times],
        "text": [_short(row) for row in view.risks],
        "customdata": [_short(view.sizes)] * len(view.rhos),
        "hovertemplate": "bags of %{customdata}<br>error %{text}<extra></extra>",
        "zmin": 0,
        "zmax": WORST,
        "zsmooth": "best",
        "colorscale": "Cividis",
        "reversescale": True,
        "colorbar": {
            "title": {"text": "error, times the least", "side": "top"},
            "orientation": "h",
            "y": 1.0,
            "yanchor": "bottom",
            "tickvals": [math.log10(t) for t in ticks],
            "ticktext": [*(f"{t:g}" for t in ticks[:-1]), "10+"],
            "thickness": 12,
            "outlinewidth": 0,
        },
    }
    floor = float(view.rhos[0])
    marks = [
        _mark(math.log10(line.bag_size), math.log10(max(line.rho, floor)), name, symbol)
        for line, name, symbol in (
            (view.here, "your choice", "circle"),
            (view.plan.best, "best", "star"),
        )
    ]
    figure = _figure([heat, *marks], "rows a bag", view)
    digits = range(math.floor(math.log10(view.sizes[-1])) + 1)
    figure["layout"]["xaxis"] |= {
        "type": "linear",
        "tickvals": list(digits),
        "ticktext": [f"{10**p:,}" for p in digits],
        "showgrid": False,
    }
    figure["layout"]["hovermode"] = "closest"
    powers = list(range(-6, 1))
    figure["layout"]["yaxis"] |= {
        "type": "linear",
        "title": {"text": "rho"},
        "tickvals": powers,
        "ticktext": ["1" if p == 0 else f"10<sup>{p}</sup>" for p in powers],
        "showgrid": False,
        "range": [math.log10(floor) - 0.1, 0.1],
    }
    return figure


def _parts(curve: Curve) -> list[dict[str, Any]]:
    """The risk and what it is made of; parts that are 0 throughout are left out."""
    lines = [
        _line(curve.x, getattr(curve, part), name, colour, dash, 2)
        for part, (name, colour, dash) in PARTS.items()
        if getattr(curve, part).any()
    ]
    return [*lines, _line(curve.x, curve.risk, "expected error", INK, "solid", 3)]


def _line(
    x: FloatArray, y: FloatArray, name: str, colour: str, dash: str, width: float
) -> dict[str, Any]:
    """A line, broken where a logarithmic axis has no place for it."""
    with np.errstate(all="ignore"):
        shown = [value if value is not None and value > 0 else None for value in _tidy(y)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _tidy(x),
        "y": shown,
        "name": name,
        "line": {"color": colour, "dash": dash, "width": width},
        "hovertemplate": "%{y:.3g}",
    }


def _mark(x: float, y: float, name: str, symbol: str) -> dict[str, Any]:
    """A point of its own: the choice, a ring, or the best, a star that fits into it."""
    ring = {"symbol": "circle-open", "size": 20, "color": INK, "line": {"width": 2}}
    star = {"symbol": "star", "size": 13, "color": "#D55E00", "line": {"color": INK, "width": 1}}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x],
        "y": [y if math.isfinite(y) else None],
        "name": name,
        "marker": ring if symbol == "circle" else star,
        "hoverinfo": "skip",
    }


def _figure(traces: list[dict[str, Any]], along: str, view: View) -> dict[str, Any]:
    """Traces on axes that all pictures share; errors far below or above the rest are cut off."""
    axis = {"gridcolor": PALE, "linecolor": "#9aa5b1", "zeroline": False, "automargin": True}
    low, high = _range(view)
    layout = {
        "xaxis": axis
        | {"type": "log", "title": {"text": along}, "dtick": 2, "exponentformat": "power"},
        "yaxis": axis
        | {
            "type": "log",
            "title": {"text": "expected error"},
            "range": [low, high],
            "exponentformat": "power",
            "dtick": max(1, round((high - low) / 5)),
        },
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "showlegend": False,
        "hovermode": "x unified",
        "plot_bgcolor": "#ffffff",
        "paper_bgcolor": "#ffffff",
        "dragmode": False,
        "uirevision": "kept",
    }
    return {"data": traces, "layout": layout}


def _range(view: View) -> tuple[float, float]:
    """Powers of ten between which errors are drawn: a thousandth of the best to well above it."""
    levels = [view.plan.risk, view.here.risk, view.best_here.risk]
    known = [level for level in levels if 0 < level < math.inf] or [1.0]
    tops = [*known, min(view.plan.signal**2, 1e3 * max(known))]
    low, high = math.log10(min(known)) - 1.5, math.log10(max(tops)) + 0.3
    return round(low, 3), round(high, 3)


def _tidy(values: FloatArray) -> list[float | None]:
    """Five digits, which no eye tells from more; None for what is no number."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist()]


def _short(values: FloatArray) -> list[str]:
    """Three digits, as texts."""
    return [f"{v:.3g}" for v in values.tolist()]
