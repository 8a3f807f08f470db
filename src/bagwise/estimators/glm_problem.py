r"""The objective of generalised linear models from bags, its exact gradient, and its minimum.

    J(θ, b) = L(ρ) + (ridge / 2n) ‖θ‖²,    f_i = link(x_iᵀθ + b)

with L the interpolating loss of predicted *means*, of which the bag-level part may be the
likelihood of counts. Instance-level parts are written in the linear predictor η, where they are
exact at any size: softplus(η) − ȳη, exp(η) − ȳη, logsumexp(η) − ȳᵀη.

It is minimised by L-BFGS in coordinates in which the expected Hessian at the start is the identity;
the first step from zero is then about the linear fit. At ρ = 1 the objective is convex. Below it is
not, for averages of links are not convex in θ: then the minimum is that of the best of three
starts, zero and two fixed random ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from bagwise.bags import Bags
from bagwise.counts import Counts
from bagwise.losses import LOSSES

FloatArray: TypeAlias = NDArray[np.float64]
# Rows on which starts are compared, and features past which scales are all that is evened out.
SCREEN, WIDE = 50_000, 2000
# Rates past e³⁰ are told from nothing by no table.
LARGEST = 30.0
RESTARTS = 2
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Solution:
    """A minimum: coefficients (K, d), intercepts (K,), the objective there, and iterations."""

    coef: FloatArray
    intercept: FloatArray
    objective: float
    n_iter: int


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, means and what is minimised over them.

    Attributes
    ----------
    X : float64 array or CSR matrix of shape (n, d)
    means : ndarray of shape (m, K)
        K is 1 for two classes and for rates.
    bags : Bags
    link : {"sigmoid", "softmax", "exp"}
    likelihood : {"mean", "count"}
        Of the bag-level part; "count" is for two classes.
    kind : {"instance", "variance"}
    fit_intercept : bool
    weights : ndarray of shape (m,)
        What bags count for beside their size, with Σ k_a w_a = n.
    noise : ndarray of shape (m,) or None
        Laplace scale on each mean, for the likelihood of counts.
    """

    X: Any
    means: FloatArray
    bags: Bags
    link: str
    likelihood: str
    kind: str
    fit_intercept: bool
    weights: FloatArray
    noise: FloatArray | None = None

    def part(self, chosen: NDArray[np.bool_]) -> Problem:
        """The same over some of the bags."""
        rows = np.flatnonzero(chosen[self.bags.codes])
        bags = Bags(self.bags.codes[rows])
        return replace(
            self,
            X=self.X[rows],
            means=self.means[bags.ids],
            bags=bags,
            weights=self.weights[bags.ids],
            noise=None if self.noise is None else self.noise[bags.ids],
        )

    def weighted(self, weights: FloatArray) -> Problem:
        """The same with other weights of bags."""
        return replace(self, weights=weights)

    def folds(self) -> Iterator[tuple[Problem, Problem, NDArray[np.intp]]]:
        """Training and held-out bags, five times or as often as there are bags, and rows held out.

        Bags are dealt out at random, but always in the same way.
        """
        m = self.bags.n_bags
        count = min(FOLDS, m)
        fold = np.random.default_rng(0).permutation(m) % count
        for i in range(count):
            rows = np.flatnonzero((fold == i)[self.bags.codes])
            yield self.part(fold != i), self.part(fold == i), rows

    def linear(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """η of each row, shape (n, K)."""
        return np.asarray(self.X @ coef.T + intercept)

    def loss(self, eta: FloatArray, rho: float) -> tuple[float, FloatArray]:
        """The interpolating loss of linear predictors (n, K), and its gradient in them."""
        f = means_of(eta, self.link)
        value, gradient = 0.0, np.zeros_like(eta)
        whole_rows = rho == 1 and self.kind == "instance"
        if not whole_rows:
            share = 1.0 if self.kind == "variance" else 1 - rho
            value, gradient = self._bag_level(f)
            value, gradient = share * value, share * gradient
        if rho == 0:
            return value, gradient
        extra, slope = self._spread(f) if self.kind == "variance" else self._rows(eta, f)
        return value + rho * extra, gradient + rho * slope

    def _bag_level(self, f: FloatArray) -> tuple[float, FloatArray]:
        if self.likelihood == "count":
            value, gradient = self._counts.loss(f[:, 0])
            return value, gradient[:, None]
        averages = self.bags.mean(f)
        if self.link == "softmax":
            safe = np.maximum(averages, np.finfo(float).eps)
            value, slope = -(self.means * np.log(safe)).sum(axis=1), -self.means / safe
        else:
            point = LOSSES["log" if self.link == "sigmoid" else "poisson"]
            value = point.value(self._bounded, averages)[:, 0]
            slope = point.slope(self._bounded, averages)
        weights = self.weights / self.bags.n_rows
        of_rows = self.bags.expand(slope * weights[:, None])
        return float(weights * self.bags.sizes @ value), self._chain(f, of_rows)

    def _rows(self, eta: FloatArray, f: FloatArray) -> tuple[float, FloatArray]:
        y, w = self._expanded
        if self.link == "sigmoid":
            value = -log_expit(-eta) - y * eta
        elif self.link == "exp":
            value = f - y * eta
        else:
            value = logsumexp(eta, axis=1, keepdims=True) - (y * eta).sum(axis=1, keepdims=True)
        return float((w * value).sum()), w * (f - y)

    def _spread(self, f: FloatArray) -> tuple[float, FloatArray]:
        w = self._expanded[1]
        apart = f - self.bags.expand(self.bags.mean(f))
        return float((w * apart**2).sum()), self._chain(f, 2 * w * apart)

    def _chain(self, f: FloatArray, slope: FloatArray) -> FloatArray:
        """From a gradient in predicted means to one in linear predictors."""
        if self.link == "exp":
            return slope * f
        if self.link == "sigmoid":
            return slope * f * (1 - f)
        return np.asarray(f * (slope - (f * slope).sum(axis=1, keepdims=True)))

    @cached_property
    def _counts(self) -> Counts:
        return Counts(self.means[:, 0], self.bags, self.noise)

    @cached_property
    def _bounded(self) -> FloatArray:
        """Means where losses have a minimum: noise may lead past the ends."""
        return np.clip(self.means, 0, 1 if self.link != "exp" else None)

    @cached_property
    def _expanded(self) -> tuple[FloatArray, FloatArray]:
        """Means and weights of rows, shapes (n, K) and (n, 1), the weights summing to 1."""
        weights = self.bags.expand(self.weights)[:, None] / self.bags.n_rows
        return self.bags.expand(self._bounded), weights

    @cached_property
    def average(self) -> FloatArray:
        """Overall means, shape (K,), within bounds."""
        share = self.weights * self.bags.sizes / self.bags.n_rows
        found = share @ self._bounded
        return np.asarray(np.clip(found, 1e-6, None if self.link == "exp" else 1 - 1e-6))

    def base(self) -> Solution:
        """No features: every row at the overall means."""
        d, K = self.X.shape[1], self.means.shape[1]
        intercept = np.log(self.average)
        if self.link == "sigmoid":
            intercept = intercept - np.log1p(-self.average)
        return Solution(np.zeros((K, d)), intercept * self.fit_intercept, np.inf, 0)

    def basis(self, rho: float, penalty: float, at: Solution) -> FloatArray:
        """T with θ = T z, in which the curvature at ``at`` is about 1 in every direction.

        Expected curvature (Gauss–Newton) of some bags stands for that of all.
        """
        some = self.screen
        f = means_of(some.linear(at.coef, at.intercept), self.link)
        slope = (f if self.link == "exp" else f * (1 - f)).mean(axis=1)
        w = some.bags.expand(some.weights)
        X = self.dense_screen - self.dense_screen.mean(axis=0)
        if X.shape[1] > WIDE:
            scales = (w * slope) @ X**2 / some.bags.n_rows + penalty
            return np.diag(np.where(scales > 0, scales, 1.0) ** -0.5)
        scaled = np.sqrt(rho * w * slope)[:, None] * X
        pulls = some.bag_pulls(at, X)
        curvature = scaled.T @ scaled + (1 - rho) * (pulls.T @ pulls)
        curvature /= some.bags.n_rows
        scales = np.diag(curvature) + penalty
        root = np.sqrt(np.where(scales > 0, scales, 1.0))
        even = (curvature + penalty * np.eye(len(root))) / np.outer(root, root)
        # A little of the identity, for directions that no bag tells of.
        lower = np.linalg.cholesky(even + 1e-4 * np.eye(len(root)))
        inverse = scipy.linalg.solve_triangular(lower, np.eye(len(root)), lower=True)
        return np.asarray(inverse.T / root[:, None])

    def bag_pulls(self, at: Solution, X: FloatArray) -> FloatArray:
        """Rows of G with GᵀG the expected curvature in θ of n L_bag at a solution, shape (m, d).

        A bag's is √w_a Σ_i (∂f_i/∂η_i) x_i times the root of the information on its total.
        """
        f = means_of(self.linear(at.coef, at.intercept), self.link)
        slope = (f if self.link == "exp" else f * (1 - f)).mean(axis=1)
        if self.likelihood == "count":
            # Noise is part of this likelihood, and no weight beside it.
            weights, variance = np.ones(len(self.weights)), self.bags.sum(slope)
            if self.noise is not None:
                # Of a Laplace scale b the information on a shift is 1/b², of a variance v 1/v.
                variance = variance + (self.bags.sizes * self.noise) ** 2
        else:
            averages = self.bags.mean(f)
            averages = averages if self.link == "exp" else averages * (1 - averages)
            weights, variance = self.weights, self.bags.sizes * averages.mean(axis=1)
        strength = np.sqrt(weights / np.maximum(variance, 1e-9))
        return np.asarray(self.bags.sum(slope[:, None] * X) * strength[:, None])

    def descend(
        self, rho: float, penalty: float, start: Solution, max_iter: int, tol: float
    ) -> Solution:
        """A minimum near a start, by L-BFGS; ``penalty`` is ridge / n, the same for all parts."""
        K, d = self.means.shape[1], self.X.shape[1]
        T = self.basis(rho, penalty, start)
        # Any point near the mean parts the intercept from the coefficients.
        centre = self.centre if self.fit_intercept else np.zeros(d)
        width = float(np.sqrt(np.mean(1 / self.average))) if self.fit_intercept else 0.0

        def unpack(z: FloatArray) -> tuple[FloatArray, FloatArray]:
            parts = z.reshape(K, d + 1)
            coef = parts[:, 1:] @ T.T
            return coef, width * parts[:, 0] - coef @ centre

        def objective(z: FloatArray) -> tuple[float, FloatArray]:
            coef, intercept = unpack(z)
            eta = self.linear(coef, intercept)
            if self.link == "exp":
                eta = np.minimum(eta, LARGEST)
            value, slope = self.loss(eta, rho)
            value += 0.5 * penalty * float((coef**2).sum())
            sums = slope.sum(axis=0)
            in_coef = (self.X.T @ slope).T - np.outer(sums, centre) + penalty * coef
            return value, np.column_stack([width * sums, in_coef @ T]).ravel()

        offset = start.intercept + start.coef @ centre
        first = np.linalg.solve(T, start.coef.T).T
        z0 = np.column_stack([offset / width if width else np.zeros(K), first]).ravel()
        options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0.0}
        found = minimize(objective, z0, jac=True, method="L-BFGS-B", options=options)
        return Solution(*unpack(found.x), float(found.fun), int(found.nit))

    def solve(self, rho: float, penalty: float, max_iter: int, tol: float) -> Solution:
        """The minimum from the best of several starts; of one where the objective is convex."""
        start = self.base()
        if rho < 1 or self.kind == "variance":
            some, starts = self.screen, [start, *self._others(penalty)]
            found = [some.descend(rho, penalty, each, max_iter, tol) for each in starts]
            start = min(found, key=lambda solution: solution.objective)
            if some is self:
                return _warned(start, max_iter)
        return _warned(self.descend(rho, penalty, start, max_iter, tol), max_iter)

    @cached_property
    def screen(self) -> Problem:
        """Some whole bags, from which scales are taken and on which starts are compared."""
        if self.bags.n_rows <= SCREEN:
            return self
        order = np.random.default_rng(0).permutation(self.bags.n_bags)
        chosen = np.zeros(self.bags.n_bags, dtype=bool)
        chosen[order[: max(2, np.searchsorted(np.cumsum(self.bags.sizes[order]), SCREEN))]] = True
        return self.part(chosen)

    @cached_property
    def dense_screen(self) -> FloatArray:
        """The rows of the screen, none of them sparse."""
        X = self.screen.X
        return np.asarray(X.toarray() if hasattr(X, "toarray") else X)

    @cached_property
    def centre(self) -> FloatArray:
        """A point near the mean of the rows."""
        return np.asarray(self.screen.X.mean(axis=0)).ravel()

    def _others(self, penalty: float) -> list[Solution]:
        """Starts that differ: linear predictors of about unit variance in random directions."""
        base, rng = self.base(), np.random.default_rng(0)
        T = self.basis(1.0, penalty, base)
        found = []
        for _ in range(RESTARTS):
            z = rng.normal(size=base.coef.shape) / np.sqrt(base.coef.shape[1])
            coef = z @ T.T
            shift = coef @ self.centre if self.fit_intercept else 0.0
            found.append(Solution(coef, base.intercept - shift, np.inf, 0))
        return found


def means_of(eta: FloatArray, link: str) -> FloatArray:
    """Predicted means of linear predictors, both of shape (n, K)."""
    if link == "exp":
        return np.asarray(np.exp(np.minimum(eta, LARGEST)))
    return np.asarray(expit(eta) if link == "sigmoid" else softmax(eta, axis=1))


def _warned(found: Solution, max_iter: int) -> Solution:
    if found.n_iter >= max_iter:
        text = f"no minimum after max_iter={max_iter} iterations. Scale the features, or raise it."
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    return found
