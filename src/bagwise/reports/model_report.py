"""The report of a model: one page that says what was learnt from bags, and how far to trust it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._disk import appearing_file
from bagwise._extras import need
from bagwise._progress import Progress, silent
from bagwise.diagnostics import Diagnosis
from bagwise.estimators.streaming import encoder_of
from bagwise.inspection.bag_fit import BagFit, Source
from bagwise.inspection.calibration import RowError, standardised
from bagwise.inspection.findings import Findings, is_automatic, look
from bagwise.inspection.path import how_chosen
from bagwise.inspection.uncertainty import Coefficients
from bagwise.released import Release
from bagwise.reports import model_pictures, wording
from bagwise.reports.page import (
    STYLE,
    Fact,
    Picture,
    commands,
    folded,
    listed,
    number,
    page,
    pairs,
    prose,
    section,
    table,
    with_error,
)

WORST = 5
UNEVEN = 1.2


@dataclass(frozen=True)
class Report:
    """A page, and the numbers behind it.

    Attributes
    ----------
    html : str
        One file that needs no other: no script, no address.
    numbers : dict
        For JSON.
    """

    html: str
    numbers: dict[str, Any]

    def save(self, path: str | PathLike[str], over: bool = False) -> None:
        """Write the page to a new file, or with ``over`` in place of what is there."""
        with appearing_file(Path(path), over=over) as place:
            place.write_text(self.html, encoding="utf-8")


def report(
    model: Any,
    source: Source,
    *,
    model_name: str = "model",
    data_name: str = "released",
    progress: Progress = silent,
) -> Report:
    """What a fitted model learnt from a Release or a BagTable, as a page.

    Only the means of bags enter, as they were released, and features.

    Parameters
    ----------
    model : fitted estimator of `bagwise`
    source : Release or BagTable
        What it was fitted to.
    model_name, data_name : str
        What the page calls them.
    progress : callable
        Wraps the parts as they are done, to show a bar.
    """
    need("matplotlib.pyplot", "plot")
    found = look(model, source, progress)
    title = f"{type(model).__name__} from {'a release' if isinstance(source, Release) else 'bags'}"
    under = f"Model {model_name}, data {data_name}, response {_response(source)}"
    html = page(
        title, under, facts(found), pictures(found), body(found, model_name, data_name), END
    )
    return Report(html, numbers(found))


END = (
    "Made by bagwise from means over bags and features alone. No response of a single row was "
    "known to the model or to this page."
)


def facts(found: Findings) -> list[Fact]:
    """The headline."""
    sizes = found.source.sizes
    low, high = int(sizes.min()), int(sizes.max())
    span = f"{low:,} rows each" if low == high else f"{low:,} to {high:,} rows each"
    columns = len(encoder_of(found.model).columns)
    shown = [
        Fact("rows", f"{int(sizes.sum()):,}", f"{columns} column{'s' * (columns > 1)} of features"),
        Fact("bags", f"{len(sizes):,}", span),
        _epsilon(found.source),
    ]
    if not is_automatic(found.model):
        shown.append(Fact("rho", _rho(found.model), how_chosen(found.model)))
    if found.error is not None:
        shown.append(_error(found.error, found.diagnosis))
    if found.fit is not None:
        note = "by averaged predictions" + (
            ", noise counts as error" if found.fit.noise.any() else ""
        )
        shown.append(Fact("R² of bag means", number(_r2(found.fit)), note))
    return shown


def _epsilon(source: Source) -> Fact:
    if isinstance(source, Release) and source.statement.private:
        return Fact("epsilon", f"{source.statement.epsilon:g}", f"for {source.statement.unit}")
    return Fact("epsilon", "none", "no privacy was promised")


def _error(error: RowError, bags: Diagnosis | None) -> Fact:
    if bags is not None and not bags.random:
        return Fact("error of a row", "not told", "bags are not random")
    seen = "each bag left out in turn" if error.left_out else "on the bags of the fit: rather low"
    if error.root != error.root:
        return Fact("error of a row", "not told", "the noise of the release is larger")
    value = with_error(error.root, error.root_error)
    return Fact("error of a row", value, f"root mean square ± standard error, {seen}")


def _r2(fit: BagFit) -> float:
    k, y = fit.sizes, fit.means
    spread = float(k @ (y - k @ y / k.sum()) ** 2)
    return 1 - float(k @ (y - fit.fitted) ** 2) / spread if spread else float("nan")


def pictures(found: Findings) -> list[Picture]:
    """The pictures that apply, all of one style."""
    with need("matplotlib.pyplot", "plot").rc_context(STYLE):
        return _pictures(found)


def _pictures(found: Findings) -> list[Picture]:
    shown: list[Picture] = []
    draw = model_pictures
    if found.path is not None:
        shown.append(draw.draw_path(found.path, found.forecast, found.error))
    if found.forecast is not None:
        shown.append(draw.draw_forecast(found.forecast, found.model.rho_))
    if found.coefficients is not None:
        shown.append(draw.draw_coefficients(found.coefficients, _response(found.source)))
    if found.importances is not None:
        shown.append(draw.draw_importances(found.importances))
    if found.fit is None:
        return shown
    if found.calibration is not None:
        shown.append(draw.draw_calibration(found.calibration, found.fit))
    if found.error is not None:
        shown.append(draw.draw_residuals(found.fit, found.error, by_size=False))
        if found.fit.sizes.max() > UNEVEN * found.fit.sizes.min():
            shown.append(draw.draw_residuals(found.fit, found.error, by_size=True))
        else:
            found.left_out["Residuals by size"] = "All bags are of about one size."
    return shown


def body(found: Findings, model_name: str, data_name: str) -> str:
    """All that comes below the pictures."""
    private = isinstance(found.source, Release)
    parts = [section("What was released, and what was promised", _promise(found.source))]
    if found.diagnosis is not None:
        parts.append(section("What the bags can tell", listed(found.diagnosis.sentences)))
    if is_automatic(found.model):
        parts.append(section("What was tried", commands(*found.model.report_.split("\n"))))
    if found.coefficients is not None:
        parts.append(section("Coefficients", folded("Table", _table(found.coefficients))))
    worst = _worst(found)
    if worst:
        words = "Bags that lie farthest from their prediction; noisy means and ids are public."
        parts.append(section("Bags to look at", prose(words), worst))
    if found.left_out:
        reasons = [f"{name}: {reason}" for name, reason in found.left_out.items()]
        parts.append(section("Left out, and why", listed(reasons)))
    lines = wording.steps(found.model, found.source, model_name, data_name)
    used = [*wording.versions(found.model)]
    with_this = [f"{name} {text}" for name, text in used]
    again = [commands(*lines), prose(f"This page was made with {', '.join(with_this)}.")]
    if private:
        made = found.source.statement.versions  # type: ignore[union-attr]
        with_what = ", ".join(f"{name} {text}" for name, text in made.items())
        again.append(prose(f"The release was made with {with_what}."))
    return "\n".join([*parts, section("How to do it again", *again)])


def _promise(source: Source) -> str:
    if not isinstance(source, Release):
        return prose(wording.NOT_PROMISED)
    return prose(source.statement.promise) + pairs(wording.promises(source.statement))


def _table(found: Coefficients) -> str:
    rows = [
        (name, number(value, 4), number(error), number(spread))
        for name, value, error, spread in zip(
            found.names, found.values, found.errors, found.spreads, strict=True
        )
    ]
    columns = ("feature", "coefficient", "standard error", "standard deviation of the feature")
    return table(columns, rows)


def _worst(found: Findings) -> str:
    """The bags of largest residual, where their means are noisy: else they tell of people."""
    source = found.source
    if not (isinstance(source, Release) and source.statement.private) or found.error is None:
        return ""
    assert found.fit is not None
    z = standardised(found.fit, found.error)
    names = [n for n in source.bags.column_names if n not in ("size", "response", "noise_scale")]
    names = names[1:] or names
    rows = []
    for i in np.argsort(-np.abs(z), kind="stable")[:WORST].tolist():
        bag = ", ".join(str(source.bags[name][i].as_py()) for name in names)
        numbers = (found.fit.means[i], found.fit.fitted[i], z[i])
        rows.append((bag, f"{found.fit.sizes[i]:,}", *map(number, numbers)))
    columns = ("bag", "rows", "released mean", "predicted mean", "standard deviations apart")
    return table(columns, rows)


def _rho(model: Any) -> str:
    return number(float(model.rho_), 2)


def _response(source: Source) -> str:
    return source.statement.response if isinstance(source, Release) else source.response


def numbers(found: Findings) -> dict[str, Any]:
    """The numbers behind the page, of plain types; what is no number is None."""
    source = found.source
    said: dict[str, Any] = {
        "model": type(found.model).__name__,
        "n_rows": int(source.sizes.sum()),
        "n_bags": len(source.sizes),
        "statement": asdict(source.statement) if isinstance(source, Release) else None,
        "rho": getattr(found.model, "rho_", None),
        "rho_source": getattr(found.model, "rho_source_", None),
        "row_rmse": None if found.error is None else found.error.root,
        "row_rmse_error": None if found.error is None else found.error.root_error,
        "bags_r2": None if found.fit is None else _r2(found.fit),
        "path": _lists(found.path, "rhos", "scores"),
        "coefficients": _lists(found.coefficients, "names", "values", "errors"),
        "importances": _lists(found.importances, "names", "values", "errors"),
        "calibration": _lists(
            found.calibration, "predicted", "observed", "half", "slope", "slope_error"
        ),
        "forecast": _lists(found.forecast, "rhos", "bias", "sampling", "privacy", "best_rho"),
        "diagnosis": None if found.diagnosis is None else list(found.diagnosis.sentences),
        "left_out": found.left_out,
    }
    plain: dict[str, Any] = _plain(said)
    return plain


def _lists(found: Any, *names: str) -> dict[str, Any] | None:
    return None if found is None else {name: getattr(found, name) for name in names}


def _plain(value: Any) -> Any:
    """Python's own types, and None for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
