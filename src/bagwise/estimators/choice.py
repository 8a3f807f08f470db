"""Choosing rho and ridge of generalised linear models by the loss of held-out bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise._extras import need
from bagwise._progress import Progress, silent
from bagwise.estimators.glm_problem import Problem, Solution
from bagwise.estimators.tuning import RHO_GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray: TypeAlias = NDArray[np.float64]
#: ridges that "cv" tries, over n times the mean variance of the features, strongest first
RIDGE_GRID = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-5)


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """What was tried on held-out bags, and what did best.

    Attributes
    ----------
    rhos, ridges : ndarray of shape (t,)
        The pairs that were tried.
    losses : ndarray of shape (folds, t)
        Bag-level loss a row on each fold of bags, in the likelihood of the model.
    rho, ridge : float
        The strongest ridge that loses no more than the best by one standard error of the gap over
        folds; and with it the rho of least mean loss.
    """

    rhos: FloatArray
    ridges: FloatArray
    losses: FloatArray
    rho: float
    ridge: float

    @property
    def scores(self) -> FloatArray:
        """Mean loss of each pair."""
        return np.asarray(self.losses.mean(axis=0))

    def __str__(self) -> str:
        told = []
        # Ridges were tried at the first rho, rhos at the best ridge.
        for name, values, same in (
            ("rho", self.rhos, self.ridges == self.ridge),
            ("ridge", self.ridges, self.rhos == self.rhos[0]),
        ):
            tried = np.flatnonzero(same)
            if len(tried) < 2:
                continue
            chosen = self.rho if name == "rho" else self.ridge
            best = tried[np.flatnonzero(values[tried] == chosen)[0]]
            words = [f"{name} = {values[best]:.3g} loses {self.scores[best]:.4g} a row"]
            for i in (tried[np.argmin(values[tried])], tried[np.argmax(values[tried])]):
                if i != best:
                    gap = self.losses[:, i] - self.losses[:, best]
                    error = gap.std(ddof=1) / len(gap) ** 0.5
                    more = "more" if gap.mean() >= 0 else "less"
                    words.append(
                        f"{values[i]:.3g} loses {abs(gap.mean()):.2g} ± {error:.1g} {more}"
                    )
            told.append(", ".join(words))
        return f"On bags held out in {len(self.losses)} folds, {'; '.join(told)}."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss of held-out bags against rho; needs bagwise[plot]."""
        pyplot = need("matplotlib.pyplot", "plot")
        axes: Axes = ax or pyplot.subplots(figsize=(6, 3.6), layout="constrained")[1]
        same = np.flatnonzero(self.ridges == self.ridge)
        same = same[np.argsort(self.rhos[same])]
        rhos, losses = self.rhos[same], self.losses[:, same]
        # 0 has no place on a logarithmic axis: it is drawn left of the smallest step.
        least = min(rhos[rhos > 0], default=1.0) / 3
        gaps = losses - losses.mean(axis=1, keepdims=True)
        errors = gaps.std(axis=0, ddof=1) / len(losses) ** 0.5 if len(losses) > 1 else None
        axes.errorbar(np.maximum(rhos, least), losses.mean(axis=0), errors, fmt="o-", capsize=3)
        axes.set_xscale("log")
        chosen = float(losses.mean(axis=0)[rhos == self.rho][0])
        axes.plot(max(self.rho, least), chosen, "o", color="#D55E00", label=f"rho = {self.rho:.2g}")
        axes.set_xticks(np.maximum(rhos, least), [f"{rho:g}" for rho in rhos])
        axes.minorticks_off()
        axes.set(xlabel="rho", ylabel="loss of held-out bags, a row")
        axes.legend(frameon=False)
        return axes


def cross_validate(
    problem: Problem,
    rho: float | str,
    ridge: float | str,
    max_iter: int,
    tol: float,
    progress: Progress = silent,
) -> CrossValidation:
    """Losses of held-out bags: over ridges at rho = 0 first, then over rhos at the best ridge.

    A pull within bags and a ridge both shrink, so the ridge is chosen where there is no other; each
    path goes from the strongest to the weakest and starts where the last fit ended.

    Parameters
    ----------
    problem : Problem
    rho, ridge : float or "cv"
    max_iter, tol
        Of each fit.
    progress : callable
        Wraps the loop over folds.
    """
    folds = list(problem.folds())
    pairs: list[tuple[float, float]] = []
    losses: list[FloatArray] = []

    def try_all(rhos: Sequence[float], ridges: Sequence[float]) -> None:
        tried = [(r, g) for g in ridges for r in rhos]
        rows = [
            _path(train, held, tried, max_iter, tol)
            for train, held, _ in progress(folds, len(folds))
        ]
        pairs.extend(tried)
        losses.append(np.array(rows))

    grid = sorted(RHO_GRID, reverse=True)
    chosen = ridge
    if isinstance(ridge, str):
        X = problem.screen.X
        X = X.toarray() if hasattr(X, "toarray") else X
        unit = problem.bags.n_rows * float(X.var(axis=0).mean()) or 1.0
        try_all([0.0 if isinstance(rho, str) else rho], [unit * share for share in RIDGE_GRID])
        chosen = pairs[_strongest(losses[0])][1]
    if isinstance(rho, str):
        known = {r for r, g in pairs if g == chosen}
        try_all([r for r in grid if r not in known], [float(chosen)])
    rhos, ridges = np.array(pairs).T
    table = np.concatenate(losses, axis=1)
    best = int(np.argmin(np.where(ridges == chosen, table.mean(axis=0), np.inf)))
    return CrossValidation(rhos, ridges, table, float(rhos[best]), float(ridges[best]))


def _strongest(losses: FloatArray) -> int:
    """The first, and so strongest, of a path that is as good as the best but for chance."""
    gaps = losses - losses[:, [int(np.argmin(losses.mean(axis=0)))]]
    errors = gaps.std(axis=0, ddof=1) / len(gaps) ** 0.5
    return int(np.argmax(gaps.mean(axis=0) <= errors))


def _path(
    train: Problem, held: Problem, pairs: list[tuple[float, float]], max_iter: int, tol: float
) -> list[float]:
    """Loss of held-out bags at each pair, each fit starting where the last one ended."""
    found, near = [], train.base()
    for rho, ridge in pairs:
        near = train.descend(rho, ridge / train.bags.n_rows, near, max_iter, tol)
        found.append(_loss(held, near))
    return found


def _loss(held: Problem, solution: Solution) -> float:
    return held.loss(held.linear(solution.coef, solution.intercept), 0.0)[0]
