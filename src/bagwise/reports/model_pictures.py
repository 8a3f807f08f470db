"""The pictures of a model's report, each with its caption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._extras import need
from bagwise.inspection.bag_fit import BagFit
from bagwise.inspection.calibration import NORMAL, Calibration, RowError, standardised
from bagwise.inspection.forecast import Forecast
from bagwise.inspection.importance import Importances
from bagwise.inspection.path import Path
from bagwise.inspection.uncertainty import Coefficients
from bagwise.reports.page import BLUE, GREY, ORANGE, PINK, Picture, number, plain, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 4.8, 3.3
# Lines of a picture of coefficients, and bags past which points become an image in it.
SHOWN, MANY = 16, 300


def blank(height: float = HEIGHT) -> Axes:
    """Empty axes of the size of the page's pictures."""
    pyplot = need("matplotlib.pyplot", "plot")
    axes: Axes = pyplot.subplots(figsize=(WIDTH, height), layout="constrained")[1]
    return axes


def finished(axes: Axes, title: str, caption: str, alt: str) -> Picture:
    """The picture that axes are of."""
    return Picture(title, axes.figure, caption, alt)  # type: ignore[arg-type]


def rho_axis(axes: Axes, least: float) -> None:
    """A logarithmic axis for rho, with 0 at ``least``, where it has no place."""
    axes.set_xscale("log")
    ticks = [10.0**i for i in range(-6, 1) if 10.0**i > 1.5 * least]
    axes.set_xticks([least, *ticks], ["0", *(f"{tick:g}" for tick in ticks)])
    axes.minorticks_off()
    axes.set_xlabel("rho: 0 bag-level loss, 1 instance-level loss")


def draw_path(path: Path, theory: Forecast | None, error: RowError | None = None) -> Picture:
    """How well each rho predicts bags that were left out, with the chosen one."""
    axes = blank()
    least = float(path.rhos[path.rhos > 0].min(initial=1.0)) / 3
    place = np.maximum(path.rhos, least)
    lines = len(place) > 20
    if path.errors is not None:
        axes.errorbar(place, path.scores, path.errors, color=BLUE, fmt="none", capsize=3)
    axes.plot(place, path.scores, "-" if lines else "o-", color=BLUE, label=path.label)
    if theory is not None and path.of_rows:
        risk = np.sqrt(theory.risk + theory.row_noise**2)
        axes.plot(theory.rhos, risk, "--", color=GREY, label="theory, at the estimated signal")
    score = float(np.interp(path.rho, path.rhos, path.scores))
    axes.plot(max(path.rho, least), score, "o", color=ORANGE, markersize=8, zorder=4)
    # Past the best, scores may grow without bound: what matters is near it.
    low, high = float(np.nanmin(path.scores)), float(np.nanmax(path.scores))
    if low > 0:
        axes.set_ylim(
            low - 0.08 * (min(high, 2 * low) - low) - 0.002 * low, min(high * 1.03, 2 * low)
        )
    axes.annotate(
        f"rho = {number(path.rho, 2)}", (max(path.rho, least), score), (4, -4),
        textcoords="offset points", va="top",
    )  # fmt: skip
    rho_axis(axes, least)
    axes.set_ylabel(path.unit)
    axes.legend(loc="upper left")
    alt = f"{path.label} against rho; rho = {number(path.rho, 2)} is in use, at {number(score)}."
    caption = path.caption
    if path.of_rows and error is not None and error.root_error > 0:
        level = number(error.root_error, 2)
        caption += f" How high the curve lies is known to ± {level}; its shape is what chooses."
    return finished(axes, "How rho was chosen", caption, alt)


def draw_forecast(found: Forecast, rho: float) -> Picture:
    """What the error is made of at each rho, by the theory."""
    axes, rhos = blank(), found.rhos
    parts = [("bias", found.bias, BLUE), ("sampling noise", found.sampling, ORANGE)]
    if found.privacy.any():
        parts.append(("privacy noise", found.privacy, PINK))
    colours = [colour for *_, colour in parts]
    labels = [name for name, *_ in parts]
    axes.stackplot(rhos, [v for _, v, _ in parts], labels=labels, colors=colours, linewidth=0)
    least, here = rhos[0], found.at(rho)
    axes.axvline(max(rho, least), color="black", linewidth=1)
    axes.set_ylim(0, min(1.1 * float(found.risk.max()), 6 * max(here, float(found.risk.min()))))
    right = rho < 0.1
    axes.annotate(
        f"rho = {number(rho, 2)}",
        (max(rho, least), 0.95),
        (5 if right else -5, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        ha="left" if right else "right",
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"},
    )
    axes.set_xscale("log")
    ticks = [10.0**i for i in range(-5, 1)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="rho", ylabel="expected squared error beyond the noise", xlim=(least, 1))
    axes.figure.legend(loc="outside upper left", ncols=3)
    snr = found.snr
    caption = (
        f"Theory for random bags and a linear truth, at the ratio of signal to noise that the bags "
        f"show: {number(snr.snr)} (95 % interval {number(snr.low)} to {number(snr.high)}). At rho "
        f"= {number(rho, 2)} it expects an error of {number(here**0.5)} (root mean square) beyond "
        f"what no model can tell; least is rho = {number(found.best_rho, 2)}."
    )
    alt = f"Bias grows with rho and noise falls; together {number(here)} at rho = {number(rho, 2)}."
    return finished(axes, "Bias and variance, forecast", caption, alt)


def draw_coefficients(found: Coefficients, response: str) -> Picture:
    """Effects of one standard deviation of each feature, with intervals."""
    effects, errors = found.values * found.spreads, found.errors * found.spreads
    order = np.argsort(-np.abs(effects), kind="stable")[:SHOWN][::-1]
    axes = _bars([found.names[i] for i in order], effects[order], errors[order])
    axes.set_xlabel(plain(f"change of {short(response)} for one standard deviation more"))
    more = len(effects) - len(order)
    caption = (
        "Coefficient times the standard deviation of its feature, so that features of different "
        "units compare, with 95 % intervals from how bags differ. "
        + (found.why or "Where rho or ridge shrink coefficients, intervals are about the shrunken.")
        + (f" The {len(order)} largest of {len(effects)} are shown." if more else "")
    )
    alt = "Largest effects: " + ", ".join(
        f"{found.names[i]} {number(effects[i])}" for i in order[::-1][:5]
    )
    return finished(axes, "What moves the prediction", caption, alt)


def draw_importances(found: Importances) -> Picture:
    """What bag means lose without each column."""
    total = len(found.names)
    count = min(SHOWN, total)
    names, values = list(found.names[:count])[::-1], found.values[:count][::-1]
    axes = _bars(names, values, found.errors[:count][::-1])
    axes.set_xlabel("loss of R² of bag means when the column is shuffled")
    caption = (
        f"What the model uses of each column to tell bags apart: the column is dealt out anew "
        f"among {found.n_rows:,} rows of {found.n_bags:,} bags, three times. Whiskers are 95 % "
        "intervals over bags. Columns that tell the same share what they tell."
        + (
            f" The {count} largest of {len(found.names)} are shown."
            if count < len(found.names)
            else ""
        )
    )
    alt = "Losses: " + ", ".join(
        f"{name} {number(value)}"
        for name, value in zip(found.names[:5], found.values, strict=False)
    )
    return finished(axes, "What the model uses", caption, alt)


def _bars(names: list[str], values: Any, errors: Any) -> Axes:
    """Points with intervals, a line a name."""
    axes = blank(max(1.6, 0.75 + 0.19 * len(names)))
    place = np.arange(len(names))
    axes.axvline(0, color="0.45", linewidth=0.8)
    axes.errorbar(
        values, place, xerr=NORMAL * np.nan_to_num(errors), fmt="o", color=BLUE, markersize=4.5,
        elinewidth=1.4,
    )  # fmt: skip
    axes.set_yticks(place, [plain(short(name)) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.margins(x=0.08)
    return axes


def draw_calibration(found: Calibration, fit: BagFit) -> Picture:
    """Groups of bags: what was predicted and what they are."""
    axes = blank()
    ends = np.array([
        min(found.predicted.min(), (found.observed - found.half).min()),
        max(found.predicted.max(), (found.observed + found.half).max()),
    ])  # fmt: skip
    axes.plot(ends, ends, "--", color=GREY, linewidth=1, label="as predicted")
    axes.errorbar(
        found.predicted, found.observed, found.half, fmt="o", color=BLUE, markersize=5,
        label="bags, 95 % interval",
    )  # fmt: skip
    axes.set(xlabel="predicted mean of a group of bags", ylabel="known mean")
    axes.legend(loc="upper left")
    noise = ", the noise of the release in them" if fit.noise.any() else ""
    caption = (
        f"Bags in {len(found.predicted)} groups by their predicted mean, about "
        f"{int(np.median(found.n_bags)):,} a group; intervals are from how bags differ{noise}. "
        f"Slope of known on predicted means: {number(found.slope)} ± {number(found.slope_error, 2)}"
        "; 1 is as it should be, more says that predictions lie too close together."
    )
    alt = (
        f"Known means of {len(found.predicted)} groups over predicted ones: {number(found.slope)}."
    )
    return finished(axes, "Calibration on bags", caption, alt)


def draw_residuals(fit: BagFit, error: RowError, by_size: bool) -> Picture:
    """Standardised residuals of bags against their predictions, or against their sizes."""
    axes, z = blank(), standardised(fit, error)
    x = fit.sizes if by_size else fit.fitted
    axes.axhspan(-NORMAL, NORMAL, color="0.94", zorder=0)
    axes.axhline(0, color="0.45", linewidth=0.8)
    many = len(z) > MANY
    axes.plot(
        x, z, "o", color=BLUE, markersize=2.2 if many else 3.5, alpha=0.35 if many else 0.7,
        markeredgewidth=0, rasterized=many,
    )  # fmt: skip
    axes.figure.set_dpi(170)
    place, middle, half = _trend(x, z)
    axes.errorbar(place, middle, half, fmt="o-", color=ORANGE, markersize=4, label="mean, 95 %")
    if by_size and x.max() > 10 * x.min():
        axes.set_xscale("log")
    far = 0 if by_size else _keep_near(axes, x)
    axes.set_xlabel("rows of a bag" if by_size else "predicted mean of a bag")
    axes.set_ylabel("residual, in standard deviations")
    axes.legend(loc="upper left")
    outside = float((np.abs(z) > NORMAL).mean())
    noise = " and the noise of the release" if fit.noise.any() else ""
    title = "Residuals by size" if by_size else "Residuals of bags"
    caption = (
        f"Known minus predicted mean, over what the error of rows, the size of a bag{noise} give "
        f"it. {outside:.1%} of bags lie outside of the band, where 5 % are expected."
    )
    if far:
        caption += f" {far:,} with predictions far outside are not drawn."
    if by_size:
        caption = "The same against the size of a bag: a slope would say that large bags differ."
    alt = f"{len(z):,} bags; {outside:.1%} outside of ±1.96 standard deviations."
    return finished(axes, title, caption, alt)


def _keep_near(axes: Axes, x: Any) -> int:
    """Leave out the few bags that would squeeze all others together; returns how many."""
    low, high = np.quantile(x, (0.005, 0.995))
    edge = 0.5 * (high - low)
    far = (x < low - edge) | (x > high + edge)
    if far.any():
        axes.set_xlim(low - edge, high + edge)
    return int(far.sum())


def _trend(x: Any, z: Any) -> tuple[Any, Any, Any]:
    """Means of z with intervals, in up to ten groups of x."""
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, max(1, min(10, len(x) // 10)))
    middle = np.array([z[part].mean() for part in parts])
    half = np.array([NORMAL * z[part].std() / len(part) ** 0.5 for part in parts])
    return np.array([x[part].mean() for part in parts]), middle, half
