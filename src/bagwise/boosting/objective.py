r"""The interpolating loss as boosting sees it: in the scores of rows, through a link.

With means f_i = link(z_i) and weights w_a of bags, the objective is n L(f) for log and Poisson loss
and n/2 L(f) for squared loss, so that bags of one row have LightGBM's own. With the gradient g and
the Hessian own_i δ_ij + shared_a of `losses` in f, for a link of one score

    ∂/∂z_i = g_i f_i′,    ∂²/∂z_i² = (own_i + shared_a) f_i′² + g_i f_i″.

Each link is that of its loss: there ℓ(ȳ, f) of one row has f − ȳ and f′, and nothing cancels.

LightGBM takes a diagonal and knows nothing of the coupling between rows of one bag. Where a tree
moves all rows of a bag alike, the curvature is k_a times its diagonal: with a learning rate of .1
and bags past 20 rows the constant alone grows without end. So each tree's step v is held against
the curvature that it has in earnest, along itself and along the constants:

    min over a in [0, 1] and c of  gᵀu + ½ uᵀH u,  u = a v + c.

Two sums over bags tell it. In bags of one row a = 1 and c = 0, for v is the best step there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.boosting.links import LINKS, POINTS, mean_of, row_sums, score_of

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Objective:
    """The interpolating loss of means over bags, in the scores of rows.

    Attributes
    ----------
    means : ndarray of shape (m, K)
        ȳ_a; one column unless the loss is "cross".
    bags : Bags
    weights : ndarray of shape (m,)
        Of bags, beside their sizes: 0 leaves a bag out.
    rho, kind
        As in `interpolating_loss`.
    loss : {"squared", "log", "poisson", "cross"}
        With the identity, the sigmoid, the exponential and the softmax for a link.
    """

    means: FloatArray
    bags: Bags
    weights: FloatArray
    rho: float
    kind: str = "instance"
    loss: str = "squared"

    @cached_property
    def coupled(self) -> bool:
        """Whether rows of one bag have anything to do with each other."""
        return bool(self.bags.sizes.max() > 1 and (self.rho < 1 or self.kind == "variance"))

    @cached_property
    def _row_weights(self) -> FloatArray:
        """The weight of each row, as a column."""
        return self.weights[self.bags.codes][:, None]

    def start(self) -> FloatArray:
        """The score of the overall mean, shape (K,): the best constant."""
        weights = self.bags.sizes * self.weights
        return score_of(weights @ self.means / weights.sum(), self.loss)

    def loss_of_bags(self, scores: FloatArray, weights: FloatArray) -> float:
        """L_bag of the bags that ``weights``, of shape (m,), leave in."""
        averages = sum_columns(self.bags, mean_of(scores, self.loss)) / self.bags.sizes[:, None]
        value = POINTS[self.loss].value(self.means, averages).sum(axis=1)
        weights = weights * self.bags.sizes
        return float(weights @ value / weights.sum())

    @cached_property
    def _constant(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of squared loss what stays the same: Hessian and own of rows, shared of bags."""
        own, shared = self.rho * self.weights, (1 - self.rho) * self.weights / self.bags.sizes
        hessian, of_rows = ((v[self.bags.codes])[:, None] for v in (own + shared, own))
        return hessian, of_rows, shared[:, None]

    def at(self, scores: FloatArray) -> Slopes:
        """Gradient and Hessian at scores of shape (n, K)."""
        return self._at_squared(scores) if self.loss == "squared" else self._at_any(scores)

    def _at_squared(self, scores: FloatArray) -> Slopes:
        """w ((1−ρ) f̄ − ȳ) + wρ f and w ((1−ρ)/k + ρ): of both kinds, and quick."""
        hessian, own, shared = self._constant
        averages = sum_columns(self.bags, scores) / self.bags.sizes[:, None]
        of_bags = self.weights[:, None] * ((1 - self.rho) * averages - self.means)
        gradient = own * scores
        gradient += of_bags[self.bags.codes]
        return Slopes(gradient, hessian, own, shared, scores, scores, self)

    def _at_any(self, scores: FloatArray) -> Slopes:
        """What couples rows by the chain rule of the link; kind "instance" adds ρ (f − ȳ), ρ f′."""
        link, w, codes = LINKS[self.loss], self.weights[:, None], self.bags.codes
        f = link.mean(scores)
        sizes, point = self.bags.sizes[:, None], POINTS[self.loss]
        averages = sum_columns(self.bags, f) / sizes
        slope, curve = (d(self.means, averages) for d in (point.slope, point.curvature))
        # Of kind "instance" rows answer for themselves, of kind "variance" to their bag's average.
        direct, pull = (self.rho, 0.0) if self.kind == "instance" else (0.0, 2 * self.rho)
        shared = w * ((1 - direct) * curve - pull) / sizes
        g = (w * ((1 - direct) * slope - pull * averages))[codes]
        if pull:
            g += pull * self._row_weights * f
        first = link.first(f)
        gradient = link.back(g, f, first)
        bend = gradient * link.turn(f)
        if pull:
            alone = link.squares(pull * self._row_weights, f, first)
        else:
            alone = direct * self._row_weights * first
            gradient += direct * self._row_weights * f
            gradient -= (direct * w * self.means)[codes]
        whole = alone + link.squares(shared[codes], f, first)
        hessian = whole + bend
        # LightGBM's own factor, for all classes move at once.
        factor = f.shape[1] / (f.shape[1] - 1) if link.several else 1.0
        # Where the loss is not convex in the score, what the link's bend adds is left out.
        hessian = factor * np.where(hessian > 0, hessian, whole)
        # Never negative as a whole: with kind "variance" shared is, by what alone has too much.
        own = factor * np.maximum(alone + bend, alone if pull else 0.0)
        return Slopes(gradient, hessian, own, shared, f, first, self)


@dataclass(frozen=True, eq=False)
class Slopes:
    """An objective's derivatives in the scores, at one place.

    Attributes
    ----------
    gradient, hessian : ndarray of shape (n, K)
        The Hessian's diagonal, without what would make it negative.
    own : ndarray of shape (n, K)
        What of the Hessian is of a row alone, at least 0.
    shared : ndarray of shape (m, K)
        What couples the means of a bag.
    mean : ndarray of shape (n, K)
        f.
    first : ndarray of shape (n, K)
        f′.
    objective : Objective
    """

    gradient: FloatArray
    hessian: FloatArray
    own: FloatArray
    shared: FloatArray
    mean: FloatArray
    first: FloatArray
    objective: Objective

    def length(self, step: FloatArray) -> tuple[float, FloatArray]:
        """How much of a step to go, from 0 to 1, and constants to add, shape (K,)."""
        K = step.shape[1]
        if not self.objective.coupled:
            return 1.0, np.zeros(K)
        # The step first, then a constant for each score.
        sums = self._sums(step)
        both = np.einsum("nk,nk->k", self.own, step)
        slope = np.append(np.einsum("nk,nk", self.gradient, step), self.gradient.sum(axis=0))
        bend = np.einsum("amk,mk,bmk->ab", sums, self.shared, sums)
        bend[0, 0] += np.einsum("nk,nk,nk", self.own, step, step)
        bend[0, 1:] += both
        bend[1:, 0] += both
        bend[1:, 1:] += np.diag(self.own.sum(axis=0))
        whole = _solve(bend, -slope)[0]
        part = float(np.clip(whole, 0, 1)) if np.isfinite(whole) else 0.0
        return part, _solve(bend[1:, 1:], -slope[1:] - part * bend[1:, 0])

    def _sums(self, step: FloatArray) -> FloatArray:
        """Sums over bags of how means change, by a step and by constants, shape (1 + K, m, K)."""
        bags, f = self.objective.bags, self.mean
        if self.objective.loss == "squared":
            return np.stack([sum_columns(bags, step), bags.sizes[:, None].astype(np.float64)])
        if LINKS[self.objective.loss].several:
            moved = [f * (step - row_sums(f * step))]
            moved += [f * (e - f[:, c : c + 1]) for c, e in enumerate(np.eye(f.shape[1]))]
        else:
            moved = [self.first * step, self.first]
        return np.stack([sum_columns(bags, m) for m in moved])


def sum_columns(bags: Bags, values: FloatArray) -> FloatArray:
    """Sums over bags of each column, shape (m, K)."""
    sums = [np.bincount(bags.codes, c, minlength=bags.n_bags) for c in values.T]
    return _columns(sums)


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The least solution, for constants of all classes together change nothing."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    found = np.linalg.lstsq(matrix / np.outer(scale, scale), right / scale, rcond=1e-10)[0]
    return np.asarray(found / scale)


def _columns(columns: list[NDArray[Any]]) -> FloatArray:
    """Columns side by side, each of them in one piece."""
    return columns[0][:, None] if len(columns) == 1 else np.stack(columns).T
