r"""Bag-level, instance-level and interpolating losses, and their derivatives.

For n rows in bags B_a of k_a rows, bag means ȳ_a, predicted *means* f_i and their averages f̄_a:

    L_bag = (1/n) Σ_a k_a ℓ(ȳ_a, f̄_a)
    L_ins = (1/n) Σ_a Σ_{i∈B_a} ℓ(ȳ_a, f_i)
    R     = (1/n) Σ_a Σ_{i∈B_a} (f_i − f̄_a)²

For squared loss L_ins = L_bag + R. For every ℓ convex in f with ∂²ℓ/∂f² ≤ C,
L_bag ≤ L_ins ≤ L_bag + (C/2) R. (Lemmas 2.1 and 2.2 of the paper, with their constants mended.)

One body serves NumPy arrays and torch tensors. Predictions are probabilities or rates, not logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from bagwise import _check
from bagwise.bags import Array, Bags, namespace

KINDS = ("instance", "variance")


@dataclass(frozen=True)
class PointLoss:
    """A loss ℓ(y, f) of one mean and one prediction, with its first two derivatives in f.

    ``value``, ``slope`` and ``curvature`` are functions of (y, f) that broadcast.
    """

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    curvature: Callable[[Array, Array], Array]


def _xlogy(x: Array, y: Array) -> Array:
    """X log y with 0 log 0 = 0, for either kind of array."""
    xp = namespace(y)
    return xlogy(x, y) if xp is np else xp.xlogy(x, y)


def _inside(f: Array, high: float | None) -> Array:
    """Predictions kept a rounding step inside (0, high), where the logs are finite; flat beyond."""
    xp = namespace(f)
    step = xp.finfo(f.dtype).eps
    return xp.clip(f, step, None if high is None else high - step)


def _log_value(y: Array, f: Array) -> Array:
    f = _inside(f, 1.0)
    return -_xlogy(y, f) - _xlogy(1 - y, 1 - f)


def _log_slope(y: Array, f: Array) -> Array:
    g = _inside(f, 1.0)
    return (f == g) * (g - y) / (g * (1 - g))


def _log_curvature(y: Array, f: Array) -> Array:
    g = _inside(f, 1.0)
    return (f == g) * (y / g**2 + (1 - y) / (1 - g) ** 2)


def _poisson_value(y: Array, f: Array) -> Array:
    f = _inside(f, None)
    return f - y - _xlogy(y, f) + _xlogy(y, y)


def _poisson_slope(y: Array, f: Array) -> Array:
    g = _inside(f, None)
    return (f == g) * (1 - y / g)


def _poisson_curvature(y: Array, f: Array) -> Array:
    g = _inside(f, None)
    return (f == g) * y / g**2


#: ℓ by name. squared: (y − f)². log: −y log f − (1−y) log(1−f), f a probability.
#: poisson: f − y − y log(f/y), half the Poisson deviance, f a rate.
LOSSES = {
    "squared": PointLoss(
        value=lambda y, f: (y - f) ** 2,
        slope=lambda y, f: 2 * (f - y),
        curvature=lambda y, f: 2 + 0 * (f + y),
    ),
    "log": PointLoss(_log_value, _log_slope, _log_curvature),
    "poisson": PointLoss(_poisson_value, _poisson_slope, _poisson_curvature),
}


def bag_loss(means: Array, predictions: Array, bags: Bags, loss: str = "squared") -> Array:
    """L_bag = (1/n) Σ_a k_a ℓ(ȳ_a, f̄_a): the loss of averaged predictions.

    Parameters
    ----------
    means : array or tensor of shape (n_bags,)
        Bag means in the order of ``bags.ids``; `Bags.align` makes them.
    predictions : array or tensor of shape (n_rows,)
        Predicted mean of each row.
    bags : Bags
        Which row sits in which bag.
    loss : {"squared", "log", "poisson"}
        The point loss ℓ.

    Returns
    -------
    scalar (a 0-d tensor, differentiable, when predictions are a tensor)

    Examples
    --------
    >>> float(bag_loss(np.array([2.0]), np.array([1.0, 5.0]), Bags([0, 0])))
    1.0
    """
    means, predictions = _matched(means, predictions, bags)
    value = _point_loss(loss).value(means, bags.mean(predictions))
    return (_like(bags.sizes, predictions) * value).sum() / bags.n_rows


def instance_loss(means: Array, predictions: Array, bags: Bags, loss: str = "squared") -> Array:
    """L_ins = (1/n) Σ_i ℓ(ȳ_a(i), f_i): every row held against its bag's mean.

    Parameters and return value as in `bag_loss`.

    Examples
    --------
    >>> float(instance_loss(np.array([2.0]), np.array([1.0, 5.0]), Bags([0, 0])))
    5.0
    """
    means, predictions = _matched(means, predictions, bags)
    return _point_loss(loss).value(bags.expand(means), predictions).mean()


def within_bag_variance(predictions: Array, bags: Bags) -> Array:
    """R = (1/n) Σ_i (f_i − f̄_a(i))²: how much predictions differ inside bags.

    The same as (1/n) Σ_a (1/2k_a) Σ_{i,j∈B_a} (f_i − f_j)². It needs no response.

    Examples
    --------
    >>> float(within_bag_variance(np.array([1.0, 5.0]), Bags([0, 0])))
    4.0
    """
    predictions = _floats(predictions)
    return ((predictions - bags.expand(bags.mean(predictions))) ** 2).mean()


def interpolating_loss(
    means: Array,
    predictions: Array,
    bags: Bags,
    rho: float,
    kind: str = "instance",
    loss: str = "squared",
) -> Array:
    """The loss between bag level (rho = 0) and instance level (rho = 1).

    ``kind="instance"``: (1−ρ) L_bag + ρ L_ins. ``kind="variance"``: L_bag + ρ R.

    Parameters
    ----------
    means, predictions, bags, loss
        As in `bag_loss`.
    rho : float in [0, 1]
        Strength of the pull of each row's prediction towards its bag's.
    kind : {"instance", "variance"}
        How to interpolate.

    Notes
    -----
    Guarantees: for squared loss the two kinds are equal at every rho; rho = 0 is `bag_loss` for
    both; with bags of one row rho changes nothing.

    Examples
    --------
    >>> data = np.array([2.0]), np.array([1.0, 5.0]), Bags([0, 0])
    >>> [float(interpolating_loss(*data, rho)) for rho in (0, 0.5, 1)]
    [1.0, 3.0, 5.0]
    """
    rho = check_rho(rho)
    at_bags = bag_loss(means, predictions, bags, loss)
    if _check.choice("kind", kind, KINDS) == "variance":
        return at_bags + rho * within_bag_variance(predictions, bags)
    return (1 - rho) * at_bags + rho * instance_loss(means, predictions, bags, loss)


@dataclass(frozen=True)
class Derivatives:
    """First and second derivatives of a loss in the predictions.

    The Hessian is a diagonal plus one constant a bag: H_ij = own_i δ_ij + shared_a when rows i and
    j sit in the same bag a, and 0 otherwise.

    Attributes
    ----------
    gradient : array of shape (n_rows,)
    own : array of shape (n_rows,)
    shared : array of shape (n_bags,)
    bags : Bags
    """

    gradient: Array
    own: Array
    shared: Array
    bags: Bags

    @property
    def diagonal(self) -> Array:
        """Exact diagonal of the Hessian, shape (n_rows,): what boosting needs."""
        return self.own + self.bags.expand(self.shared)

    def hessian_dot(self, vector: Array) -> Array:
        """H v, linear in rows: what Newton-CG needs."""
        return self.own * vector + self.bags.expand(self.shared * self.bags.sum(vector))


def interpolating_derivatives(
    means: Array,
    predictions: Array,
    bags: Bags,
    rho: float,
    kind: str = "instance",
    loss: str | PointLoss = "squared",
) -> Derivatives:
    """Gradient and Hessian of `interpolating_loss` in the predictions.

    Parameters as in `interpolating_loss`; rho = 0 gives those of `bag_loss`, and rho = 1 with
    ``kind="instance"`` those of `instance_loss`.

    Examples
    --------
    >>> d = interpolating_derivatives(np.array([2.0]), np.array([1.0, 5.0]), Bags([0, 0]), 0.5)
    >>> d.gradient.tolist(), d.diagonal.tolist()
    ([0.0, 2.0], [0.75, 0.75])
    """
    rho = check_rho(rho)
    means, predictions = _matched(means, predictions, bags)
    point = _point_loss(loss)
    averages = bags.mean(predictions)
    sizes = _like(bags.sizes, predictions)
    gradient = bags.expand(point.slope(means, averages))
    shared = point.curvature(means, averages) / sizes
    if _check.choice("kind", kind, KINDS) == "variance":
        gradient = gradient + 2 * rho * (predictions - bags.expand(averages))
        own = 2 * rho + 0 * predictions
        shared = shared - 2 * rho / sizes
    else:
        rows = bags.expand(means)
        gradient = (1 - rho) * gradient + rho * point.slope(rows, predictions)
        own = rho * point.curvature(rows, predictions)
        shared = (1 - rho) * shared
    n = bags.n_rows
    return Derivatives(gradient / n, own / n, shared / n, bags)


def check_rho(rho: float) -> float:
    """Rho as a float in [0, 1]."""
    remedy = "0 is the bag-level loss, 1 the instance-level loss"
    return _check.number("rho", rho, low=0, high=1, remedy=remedy)


def _point_loss(loss: str | PointLoss) -> PointLoss:
    """The point loss of that name, or the one that is given."""
    return loss if isinstance(loss, PointLoss) else LOSSES[_check.choice("loss", loss, LOSSES)]


def _matched(means: Array, predictions: Array, bags: Bags) -> tuple[Array, Array]:
    """Means as the kind of array that predictions are, or one sentence when shapes do not fit."""
    predictions = _floats(predictions)
    means = _like(means, predictions)
    if tuple(predictions.shape) != (bags.n_rows,):
        got = f"shape {tuple(predictions.shape)} for {bags.n_rows} rows"
        _check.refuse("predictions", "one number a row", got, "Squeeze a last axis of one")
    if tuple(means.shape) != (bags.n_bags,):
        got = f"shape {tuple(means.shape)} for {bags.n_bags} bags"
        _check.refuse("means", "one number a bag", got, "Bags.align makes them")
    return means, predictions


def _floats(values: Array) -> Array:
    """A torch tensor as it is, anything else as a NumPy array of floats."""
    if namespace(values) is not np:
        return values
    values = np.asarray(values)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _like(values: Array, model: Array) -> Array:
    """Values as an array of the kind, type and place of ``model``."""
    xp = namespace(model)
    if xp is np:
        return np.asarray(values, dtype=model.dtype)
    return xp.as_tensor(values, dtype=model.dtype, device=model.device)
