"""What was tried to choose rho, whatever the model: one shape for every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise.estimators.choice import CrossValidation
from bagwise.estimators.information import regression_weights, released_noise
from bagwise.estimators.tuning import RhoPath
from bagwise.inspection.bag_fit import Source, features_of

FloatArray: TypeAlias = NDArray[np.float64]
METHODS = {"loo": "bags left out one at a time", "gcv": "generalised cross-validation"}
CHOSEN = {
    "given": "given, not chosen",
    "loo": "chosen by bags left out one at a time",
    "gcv": "chosen by generalised cross-validation",
    "theory": "chosen by theory",
    "average": "a mean over many",
    "cv": "chosen on bags held out",
    "bags of one row": "bags of one row leave no choice",
}


@dataclass(frozen=True, eq=False)
class Path:
    """Scores of rhos on bags that a fit did not see.

    Attributes
    ----------
    rhos, scores : ndarray of shape (t,)
    errors : ndarray of shape (t,) or None
        Standard errors over folds.
    rho : float
        The one in use.
    label, unit, caption : str
        What the scores are, in words.
    of_rows : bool
        Whether scores are root mean squared errors of rows, the noise of a release taken out.
    """

    rhos: FloatArray
    scores: FloatArray
    errors: FloatArray | None
    rho: float
    label: str
    unit: str
    caption: str
    of_rows: bool = False


def how_chosen(model: Any) -> str:
    """Where the rho of a model comes from, in words."""
    return CHOSEN.get(model.rho_source_, str(model.rho_source_))


def path_of(model: Any, source: Source) -> Path | None:
    """The rhos that a model tried on the bags of a Release or table; None where it tried none."""
    found, rho = getattr(model, "path_", None), getattr(model, "rho_", None)
    if rho is None:
        return None
    words = f"rho = {rho:.2g} is in use: {how_chosen(model)}."
    if isinstance(found, RhoPath):
        return _of_linear(found, rho, words, source)
    if isinstance(found, CrossValidation):
        return _of_folds(found, rho, words)
    losses: dict[float, float] = getattr(model, "held_out_losses_", {})
    if len(losses) < 2:
        return None
    rhos = np.array(sorted(losses))
    scores = np.array([losses[r] for r in rhos])
    caption = f"Each rho was tried on bags held out of the fit. {words}"
    return Path(rhos, scores, None, rho, "bags held out", "loss of held-out bags", caption)


def _of_linear(found: RhoPath, rho: float, words: str, source: Source) -> Path | None:
    if np.isnan(found.scores).all():
        return None
    noise, added, unit_weight = released_noise(source), 0.0, 1.0
    if noise is not None:
        # A mean of k rows with Laplace noise of scale b has variance σ²/k + 2b²; bags weigh wk.
        weights = None
        if features_of(source) == "rows":
            weights = regression_weights(source.means, source.sizes, noise)
        weights = np.ones(len(noise)) if weights is None else weights
        unit_weight = float(weights.mean())
        added = float((2 * weights * source.sizes * noise**2).mean()) / unit_weight
    squares = found.scores / unit_weight - added
    # Where noise is all there is, the error of rows cannot be told from it.
    clean = bool(np.nanmin(squares) > 0)
    scores = np.sqrt(squares if clean else np.maximum(squares + added, 0))
    less = ", the noise of the release taken out," if clean and added else ""
    caption = (
        f"Error of a row at each of {len(found.rhos)} rhos{less} as bags alone tell it if they are "
        f"random ({METHODS[found.method]}). {words}"
    )
    unit = "error of a row (root mean square)"
    return Path(found.rhos, scores, None, rho, "estimated from bags", unit, caption, clean)


def _of_folds(found: CrossValidation, rho: float, words: str) -> Path | None:
    same = np.flatnonzero(found.ridges == found.ridge)
    same = same[np.argsort(found.rhos[same])]
    if len(same) < 2:
        return None
    losses = found.losses[:, same]
    gaps = losses - losses.mean(axis=1, keepdims=True)
    errors = gaps.std(axis=0, ddof=1) / len(losses) ** 0.5 if len(losses) > 1 else None
    caption = (
        f"Each rho was tried on bags held out in {len(losses)} folds, at ridge = {found.ridge:.3g};"
        f" whiskers are standard errors over folds. {words}"
    )
    scores, unit = losses.mean(axis=0), "loss of held-out bags, a row"
    return Path(found.rhos[same], scores, errors, rho, "bags held out", unit, caption)
