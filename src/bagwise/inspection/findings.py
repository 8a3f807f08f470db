"""Everything that can be said of a model from its bags, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bagwise._progress import Progress, silent
from bagwise.bags import Bags
from bagwise.diagnostics import Diagnosis, diagnose
from bagwise.estimators.information import released_noise
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.streaming import encoder_of
from bagwise.inspection.bag_fit import BagFit, Source, bag_fit, features_of
from bagwise.inspection.calibration import Calibration, RowError, calibration, row_error
from bagwise.inspection.forecast import Forecast, forecast
from bagwise.inspection.importance import Importances, importances
from bagwise.inspection.path import Path, path_of
from bagwise.inspection.uncertainty import Coefficients, coefficients


@dataclass(eq=False)
class Findings:
    """What a report shows; what is None has its reason in ``left_out``."""

    model: Any
    source: Source
    fit: BagFit | None = None
    error: RowError | None = None
    path: Path | None = None
    coefficients: Coefficients | None = None
    importances: Importances | None = None
    calibration: Calibration | None = None
    diagnosis: Diagnosis | None = None
    forecast: Forecast | None = None
    left_out: dict[str, str] = field(default_factory=dict)


def look(model: Any, source: Source, progress: Progress = silent) -> Findings:
    """Everything that a report shows, part by part."""
    found = Findings(model, source)
    parts = [_bags, _path, _coefficients, _calibration, _diagnosis, _forecast]
    for _ in progress(_one_by_one(found, parts), len(parts)):
        pass
    return found


def _one_by_one(
    found: Findings, parts: Sequence[Callable[[Findings], None]]
) -> Iterator[Callable[[Findings], None]]:
    """Each part when it is done."""
    for part in parts:
        part(found)
        yield part


def _bags(found: Findings) -> None:
    found.fit = bag_fit(found.model, found.source)
    if found.fit is None:
        reason = "The release holds sums over bags, so no bag can be held against its prediction."
        for name in ("Calibration and residuals", "Error of a row, bag by bag"):
            found.left_out[name] = reason


def _path(found: Findings) -> None:
    found.path = path_of(found.model, found.source)
    if found.path is None:
        words = "Each member of this model chose its own." if is_automatic(found.model) else (
            f"No other rho was tried: {found.model.rho_:.3g} was given."
        )  # fmt: skip
        found.left_out["How rho was chosen"] = words


def _coefficients(found: Findings) -> None:
    found.coefficients = coefficients(found.model, found.source)
    left_out = None if found.coefficients is None else found.coefficients.left_out
    if found.fit is not None:
        if len(found.fit.sizes) > 1:
            found.error = row_error(found.fit, left_out)
        if found.coefficients is None:
            found.importances = importances(found.model, found.source)


def _calibration(found: Findings) -> None:
    if found.fit is None:
        return
    found.calibration = calibration(found.fit)
    if found.calibration is None:
        reason = "Too few bags, or all with one prediction."
        found.left_out["Calibration"] = reason


def _diagnosis(found: Findings) -> None:
    def task() -> None:
        sums = _sums(found)
        bags = Bags(np.repeat(np.arange(len(found.source.sizes)), found.source.sizes))
        found.diagnosis = diagnose(sums, bags)

    _try(found, "Diagnosis of the bags", task)


def _forecast(found: Findings) -> None:
    name = "Bias and variance, forecast"
    if not isinstance(found.model, AggregateLinearRegression):
        found.left_out[name] = "The theory is that of linear models with squared loss."
    elif found.diagnosis is None:
        found.left_out[name] = "It needs to be known that bags are random."
    elif not found.diagnosis.random:
        found.left_out[name] = "The theory is that of random bags, and these are not."
    elif found.diagnosis.n_bags == found.diagnosis.n_rows:
        found.left_out[name] = "Every row is its own bag: there is no rho to choose."
    else:
        noise = released_noise(found.source)
        added = 0.0 if noise is None else float((2 * found.source.sizes * noise**2).mean())

        def task() -> None:
            found.forecast = forecast(_sums(found), added)

        _try(found, name, task)


def _try(found: Findings, name: str, task: Callable[[], None]) -> None:
    """Do what may be refused with a sentence, and keep the sentence."""
    try:
        task()
    except ValueError as error:
        found.left_out[name] = str(error)


def _sums(found: Findings) -> Any:
    """A, W and c of the columns of the model, text one-hot encoded."""
    if features_of(found.source) == "statistics":
        return found.source.statistics()
    columns = list(encoder_of(found.model).columns)
    return found.source.statistics(found.source.encoder(columns))


def is_automatic(model: Any) -> bool:
    """Whether a model is made of several, which chose their own rho."""
    return hasattr(model, "report_")
