r"""Standard errors of coefficients from bags alone.

A fit is the zero of a sum over bags of scores, Σ_a g_a(θ) = 0, with H = −Σ_a ∂g_a/∂θ. Were other
bags drawn as these were, coefficients would vary about those of endlessly many bags by about

    cov θ̂ = H⁻¹ (Σ_a g_a g_aᵀ) H⁻¹

whatever the noise of a bag is: rows differ in theirs, privacy adds its own, and both are in g_a.
Linear models have H = A + ρW + ridge I and, with x̃_a and r_a mean features and residual of a bag
about the overall means and W_a its part of W,

    g_a = k_a w_a x̃_a r_a / (1 − h_a) − ρ W_a θ̂,    h_a = k_a w_a (1/n + x̃_aᵀ H⁻¹ x̃_a)

where r_a/(1 − h_a) is the residual of a bag that was left out, which takes back what fitting it
took from r_a. Generalised ones have gradients of their objective for g_a, differences of these for
H, and, for the same reason, m/(m − p) as a factor, p = Σ_a g_aᵀ H⁻¹ g_a being about the parameters
that the fit had to spend.

At rho > 0 or with a ridge coefficients are shrunken, and intervals are about the shrunken ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.estimators.glm import Generalised
from bagwise.estimators.glm_problem import Problem
from bagwise.estimators.information import regression_weights, released_noise
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.streaming import encoder_of
from bagwise.inspection.bag_fit import Source, features_of, some_bags
from bagwise.released import Release
from bagwise.spectrum import spectrum_of_statistics
from bagwise.statistics import AggregateStatistics

FloatArray: TypeAlias = NDArray[np.float64]
# Rows and features from which generalised models tell their scores and curvature.
ROWS, WIDE = 60_000, 200
# Standard errors that a model may lie from the optimum on these bags before it counts as not theirs
FAR = 4.0
# Curvature over the largest below which nothing is known of a direction, and 1 − h of a lone bag.
FLAT, ALONE = 1e-10, 1e-8


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients with standard errors.

    Attributes
    ----------
    names : tuple of str
    values, errors : ndarray of shape (n_features,)
        Errors are NaN where bags do not tell them.
    spreads : ndarray of shape (n_features,)
        Standard deviation of each feature over rows, to compare features of different units.
    left_out : ndarray of shape (n_bags,) or None
        Predicted mean of each bag by a linear model that did not see its response.
    why : str
        Why errors are missing; empty where they are not.
    """

    names: tuple[str, ...]
    values: FloatArray
    errors: FloatArray
    spreads: FloatArray
    left_out: FloatArray | None = None
    why: str = ""


def coefficients(model: Any, source: Source) -> Coefficients | None:
    """Coefficients of a linear or generalised linear model with standard errors from its bags.

    None for other models. The model must have been fitted to these bags.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from tempfile import mkdtemp
    >>> from bagwise import Bags, BagTable
    >>> rng, path = np.random.default_rng(0), f"{mkdtemp()}/rows.parquet"
    >>> x, bags = rng.normal(size=4000), Bags.random(4000, 10, random_state=0)
    >>> means = bags.expand(bags.mean(2 * x + rng.normal(size=4000)))
    >>> pq.write_table(pa.table({"x": x, "y": means, "bag": bags.codes}), path)
    >>> table = BagTable(path, "y", "bag")
    >>> found = coefficients(AggregateLinearRegression(rho=0.0).fit(table), table)
    >>> found.values.round(2).tolist(), found.errors.round(3).tolist()
    ([1.98], [0.049])
    """
    if isinstance(model, AggregateLinearRegression):
        return _linear(model, source)
    if isinstance(model, Generalised) and np.size(model.intercept_) == 1:
        return _generalised(model, source)
    return None


def _linear(model: AggregateLinearRegression, source: Source) -> Coefficients:
    whole = features_of(source) == "statistics"
    encoder = encoder_of(model)
    weights = None
    if features_of(source) == "rows":
        weights = regression_weights(source.means, source.sizes, released_noise(source))
    if isinstance(source, Release):
        sums = source.statistics(None if whole else encoder, weights=weights)
    else:
        sums = source.statistics(encoder)
    found = spectrum_of_statistics(sums, model.fit_intercept, model.ridge_)
    gain = 1 / (found.share + model.rho_ * (1 - found.share))
    inverse = (found.basis * gain) @ found.basis.T
    spreads = np.sqrt(np.diag(sums.between + sums.within) / sums._mass)
    names, theta = tuple(encoder.names), model.coef_
    step = found.coef(np.array([model.rho_]))[0] - theta
    if whole:
        spare = sums.n_bags - model.fit_intercept - float(found.share @ gain)
        left = float(found.misfit(np.array([model.rho_]))[0])
        cov = left / max(spare, ALONE) * inverse @ sums.between @ inverse
        errors, why = _errors(cov, step) if spare > 0.5 else _untold(len(theta), LONE)
        return Coefficients(names, theta, errors, spreads, None, why)
    meat, left_out = _scores(model, source, sums, inverse, weights)
    if left_out is None:
        errors, why = _untold(len(theta), LONE)
    else:
        errors, why = _errors(inverse @ meat @ inverse, step)
    return Coefficients(names, theta, errors, spreads, None if why else left_out, why)


def _scores(
    model: AggregateLinearRegression,
    source: Source,
    sums: AggregateStatistics,
    inverse: FloatArray,
    weights: FloatArray | None,
) -> tuple[FloatArray, FloatArray | None]:
    """Σ g_a g_aᵀ about their mean, and the prediction for each bag without its response."""
    m, theta = len(source.sizes), model.coef_
    centre = sums.mean if model.fit_intercept else np.zeros(len(theta))
    response = sums.response_mean if model.fit_intercept else 0.0
    meat, total = np.zeros_like(inverse), np.zeros(len(theta))
    left_out, first = np.empty(m), 0
    for means, within in _bags_of(model, source):
        part = slice(first, first + len(means))
        first = part.stop
        w = np.ones(len(means)) if weights is None else weights[part]
        mass = source.sizes[part] * w
        x = means - centre
        residual = source.means[part] - response - x @ theta
        h = mass * (np.einsum("ij,jk,ik->i", x, inverse, x) + model.fit_intercept / sums._mass)
        if (1 - h).min() < ALONE:
            return meat, None
        held = residual / (1 - h)
        left_out[part] = source.means[part] - held
        g = (mass * held)[:, None] * x - model.rho_ * w[:, None] * within
        meat += g.T @ g
        total += g.sum(axis=0)
    return meat - np.outer(total, total) / m, left_out


def _bags_of(model: AggregateLinearRegression, source: Source) -> Any:
    """Mean features of bags, and W_a θ of each, some bags at a time."""
    encoder, theta = encoder_of(model), model.coef_
    columns = list(encoder.columns)
    if features_of(source) == "means":
        X = encoder.encode(source.training_set(columns)[0])  # type: ignore[union-attr]
        yield X, np.zeros_like(X)
        return
    for group in source.row_groups():
        X = encoder.encode(group.read(columns), "ignore")
        means = group.average(X)
        X -= np.repeat(means, group.sizes, axis=0)
        yield means, group.average(X * (X @ theta)[:, None]) * group.sizes[:, None]


def _generalised(model: Generalised, source: Source) -> Coefficients:
    encoder = encoder_of(model)
    names, theta = tuple(encoder.names), np.ravel(model.coef_)
    table, chosen = some_bags(source, list(encoder.columns), ROWS)
    X = encoder.encode(table, "ignore")
    spreads = X.std(axis=0)
    if len(theta) > WIDE:
        words = f"Standard errors are left out past {WIDE} coefficients."
        return Coefficients(names, theta, *_untold(len(theta), words)[:1], spreads, None, words)
    bags = Bags(np.repeat(np.arange(len(chosen)), source.sizes[chosen]))
    noise = released_noise(source)
    means = model._released(source)[chosen][:, None]
    problem = model.problem(X, means, bags, None if noise is None else noise[chosen])
    # The whole table's penalty, spread over the rows that are looked at.
    share = bags.n_rows / source.sizes.sum()
    moves, H, g = _curvature(model, problem, model.ridge_ / bags.n_rows * share, spreads)
    inverse = _inverse(H)
    step = inverse @ g.sum(axis=0)
    g = g - g.mean(axis=0)
    meat, m = g.T @ g, len(g)
    spent = min(float(np.sum(inverse * meat)), m - 1.0)
    # Variances of a sum over all bags, not over those that were looked at.
    cov = inverse @ meat @ inverse * (m / (m - spent)) * share
    cov, step = moves @ cov @ moves.T, moves @ step
    errors, why = _errors(cov[1:, 1:], step[1:], 1 / share)
    return Coefficients(names, theta, errors, spreads, None, why)


def _curvature(
    model: Generalised, problem: Problem, penalty: float, spreads: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Moves of (b, θ) for a unit step in each direction, H of n times the objective, and g_a."""
    n, d = problem.X.shape
    scale = np.where(spreads > 0, spreads, 1.0)
    centre = problem.X.mean(axis=0)
    Z = (problem.X - centre) / scale
    if model.fit_intercept:
        Z = np.column_stack([np.ones(n), Z])
        moves = np.zeros((d + 1, d + 1))
        moves[0, 0], moves[0, 1:] = 1.0, -centre / scale
    else:
        Z = np.column_stack([np.zeros(n), problem.X / scale])
        moves = np.zeros((d + 1, d + 1))
    moves[1:, 1:] = np.diag(1 / scale)
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    eta = problem.linear(coef, intercept)

    def slopes(z: FloatArray) -> FloatArray:
        return np.asarray(n * problem.loss(eta + (Z @ z)[:, None], model.rho_)[1])

    H = np.zeros((d + 1, d + 1))
    for j, unit in enumerate(np.eye(d + 1)):
        if Z[:, j].any():
            H[:, j] = Z.T @ (slopes(1e-4 * unit) - slopes(-1e-4 * unit))[:, 0] / 2e-4
    ridge = n * penalty
    H = (H + H.T) / 2 + ridge * moves[1:].T @ moves[1:]
    g = -problem.bags.sum(Z * slopes(np.zeros(d + 1)))
    # The pull of the ridge is the same whatever the bags: each has its part.
    g -= ridge * moves[1:].T @ coef[0] / problem.bags.n_bags
    return moves, H, g


def _inverse(H: FloatArray) -> FloatArray:
    """Of curvature, in the directions that have any."""
    size, axes = np.linalg.eigh(H)
    kept = size > FLAT * size[-1]
    return np.asarray((axes[:, kept] / size[kept]) @ axes[:, kept].T)


LONE = "Bags are too few to tell how certain coefficients are."


def _errors(cov: FloatArray, step: FloatArray, times: float = 1.0) -> tuple[FloatArray, str]:
    """Roots of variances, unless the optimum on these bags lies far from the model."""
    errors = np.sqrt(np.maximum(np.diag(cov), 0))
    # Of a part of the bags the optimum is less certain than of all of them.
    if (np.abs(step) > FAR * np.sqrt(times) * errors + 1e-6 * np.abs(step).max()).any():
        return _untold(len(errors), STRANGE)
    return np.where(errors > 0, errors, np.nan), ""


STRANGE = (
    "The model is not the optimum of its loss on these bags (it was calibrated, averaged, or "
    "fitted to others), so they do not tell how certain its coefficients are."
)


def _untold(count: int, why: str) -> tuple[FloatArray, str]:
    return np.full(count, np.nan), why
