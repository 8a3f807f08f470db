r"""Risk of predictions for single rows, estimated without bias from the means of random bags.

Log loss, Poisson loss, 0-1 loss, and differences of squared losses are affine in the response:
ℓ(y, f) = b(f) + y s(f). Features are known, so with any number g_i known for each row

    (1/n) Σ ℓ(y_i, f_i) = (1/n) Σ (b_i + g_i s_i) + (1/n) Σ r_i s_i,    r = y − g

has one unknown part, and that one is a product of two row values whose bag means are known:

    (1/n) Σ r_i s_i  ≈  r̄ s̄ + (n−1)/n · 1/(m−1) Σ_a k_a (r̄_a − r̄)(s̄_a − s̄)

Over uniformly random bags of given sizes the right side has the left one as expectation. For a bag
is a sample of k_a of n rows without replacement, and so E (r̄_a − r̄)(s̄_a − s̄) = (1/k_a − 1/n) C with
C = Σ (r_i − r̄)(s_i − s̄)/(n−1) of the table; times k_a and summed over bags that is (m−1) C. Nothing
is assumed of the table, and with bags of one row both sides are equal.

Any g is right. We take the predictions themselves (g = f), so that only residuals are noise: with
g = 0 the estimate is that of EasyLLP (Busa-Fekete et al. 2023) about the means of the sample, and
varies as the responses do. For squared loss r = s = y − f, and the whole loss is the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.metadata_routing import MetadataRequest

from bagwise import _check
from bagwise.bags import Bags
from bagwise.losses import LOSSES
from bagwise.statistics import FloatArray, read_bags

ROW_LOSSES = (*LOSSES, "zero-one")
#: the ranges of predictions
RANGES = {"log": (0.0, 1.0), "zero-one": (0.0, 1.0), "poisson": (0.0, np.inf)}


@dataclass(frozen=True)
class RowRisk:
    """Mean loss of a row, as bags tell it.

    Attributes
    ----------
    value : float
        The mean loss of a row, or the first minus the second where two are compared. An unbiased
        estimate: for a loss next to 0 it may be negative.
    standard_error : float
        By leaving out one bag at a time. NaN with two bags.
    bag_level : float
        The loss of averaged predictions against bag means, beside it.
    loss : str
    n_bags : int
    compares : bool
        Whether this is a difference of two risks.
    """

    value: float
    standard_error: float
    bag_level: float
    loss: str
    n_bags: int
    compares: bool = False

    def __str__(self) -> str:
        name = self.loss.capitalize() + " loss of a row"
        if self.compares:
            name += ", first minus second"
        return (
            f"{name}: {self.value:.4g} ± {self.standard_error:.2g} (standard error), "
            f"from {self.n_bags:,} bags, if random.\nLoss of bag means: {self.bag_level:.4g}."
        )


def row_risk(
    y: Any, predictions: Any, bags: Any, loss: str = "squared", noise_scale: Any = None
) -> RowRisk:
    r"""Mean loss of single rows, from responses known as means over random bags.

    With r̄_a = ȳ_a − f̄_a, and s the slope of the loss in y (for squared loss s = r, without the
    first part):

        (1/n) Σ ℓ(f_i, f_i) + r̄ s̄ + (n−1)/(n(m−1)) Σ_a k_a (r̄_a − r̄)(s̄_a − s̄)

    Parameters
    ----------
    y : one mean a row, or a mapping or Series from bag id to mean
        For log loss of K classes an array of shape (n_rows, K) of shares.
    predictions : array of shape (n_rows,), or (n_rows, K) for log loss of classes
        Predicted means, of a model that did not see these bags.
    bags : one id a row, or Bags
        Bags drawn at random; None makes every row its own bag.
    loss : {"squared", "log", "poisson", "zero-one"}
        As in `bag_loss`; "poisson" is f − y − y log f, half the deviance but for y log y, which
        does not depend on predictions. "zero-one" predicts 1 above 1/2; its bag-level loss is the
        mean of |ȳ_a − share of rows predicted 1|.
    noise_scale : None, number, or one a bag in a form that y takes
        Scale of the Laplace noise on the means. It only adds to squared loss, where it is
        taken out.

    Notes
    -----
    Guarantees: over uniformly random bags of any sizes the expectation is the mean loss of the
    rows, exactly; bags of one row give that mean itself, and its usual standard error.
    Limits: bags that are not random (`diagnose` tells) give a wrong value, and so do rows on which
    the model was trained. Where a release clipped responses, the risk is that of clipped ones. The
    standard error is that of the loss of new rows; with few bags it is rough.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, bags = rng.normal(size=4000), Bags.random(4000, 10, random_state=0)
    >>> y = x + rng.normal(size=4000)
    >>> print(row_risk(bags.expand(bags.mean(y)), x, bags))
    Squared loss of a row: 1.039 ± 0.065 (standard error), from 400 bags, if random.
    Loss of bag means: 0.1039.
    """
    means, f, groups = _read(y, predictions, bags, loss)
    averages = groups.mean(f)
    residuals, noise = means - averages, np.zeros(groups.n_bags)
    if loss == "squared":
        fixed, slopes = np.zeros(groups.n_bags), residuals
        noise += 2 * _scales(noise_scale, groups) ** 2
    else:
        base, slope = _affine(loss, f)
        fixed, slopes = groups.mean((base + f * slope).sum(axis=1)), groups.mean(slope)
    value, error = _estimate(groups.sizes, fixed, residuals, slopes, noise)
    return RowRisk(value, error, _bag_level(loss, means, f, groups), loss, groups.n_bags)


def row_risk_difference(
    y: Any, first: Any, second: Any, bags: Any, loss: str = "squared"
) -> RowRisk:
    """Mean loss of rows under ``first`` predictions minus that under ``second``.

    Two models share most of the noise of the responses, so the standard error of the difference is
    far below that of either risk. Here g = (f₁ + f₂)/2 for both, which for squared loss gives the
    difference of the two values of `row_risk`, and for others a more certain one.

    Parameters
    ----------
    y, bags, loss
        As in `row_risk`. Laplace noise on the means adds nothing to a difference.
    first, second : arrays of shape (n_rows,), or (n_rows, K) for log loss of classes

    Notes
    -----
    Guarantees and limits as in `row_risk`; swapping the two changes the sign.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, bags = rng.normal(size=4000), Bags.random(4000, 10, random_state=0)
    >>> means = bags.expand(bags.mean(x + rng.normal(size=4000)))
    >>> found = row_risk_difference(means, x, 0.8 * x, bags)
    >>> round(found.value, 3), round(found.standard_error, 3)
    (-0.034, 0.021)
    """
    means, f, groups = _read(y, first, bags, loss)
    _, other, _ = _read(y, second, groups, loss)
    (base, slope), (other_base, other_slope) = _affine(loss, f), _affine(loss, other)
    middle, base, slope = (f + other) / 2, base - other_base, slope - other_slope
    fixed = groups.mean((base + middle * slope).sum(axis=1))
    residuals, slopes = means - groups.mean(middle), groups.mean(slope)
    value, error = _estimate(groups.sizes, fixed, residuals, slopes, np.zeros(groups.n_bags))
    beside = _bag_level(loss, means, f, groups) - _bag_level(loss, means, other, groups)
    return RowRisk(value, error, beside, loss, groups.n_bags, compares=True)


@dataclass(frozen=True)
class RowScorer:
    """Minus the row risk of an estimator's predictions: what `row_scorer` makes."""

    loss: str

    def __call__(self, estimator: Any, X: Any, y: Any, bags: Any = None) -> float:
        """Score of held-out rows of whole bags; ``bags`` is required."""
        if bags is None:
            remedy = (
                "Turn on scikit-learn's metadata routing and pass params={'bags': bags}; where "
                "rows have responses of their own, use scikit-learn's scorers"
            )
            _check.refuse("bags", "one id a row", "none", remedy)
        if is_classifier(estimator):
            predictions = estimator.predict_proba(X)
            predictions = predictions if np.ndim(y) == 2 else predictions[:, 1]
        else:
            predictions = estimator.predict(X)
        return -row_risk(y, predictions, bags, self.loss).value

    def get_metadata_routing(self) -> MetadataRequest:
        """A request for ``bags``, made for you."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="bags", alias=True)
        return request


def row_scorer(loss: str = "squared") -> RowScorer:
    """A scikit-learn scorer: minus `row_risk`, so that greater is better.

    It asks for ``bags`` by itself when metadata routing is on. Regressors are asked for `predict`,
    classifiers for the probability of their second class (of all, when y holds shares).

    Parameters
    ----------
    loss : {"squared", "log", "poisson", "zero-one"}

    Notes
    -----
    Limits: folds must hold whole bags, at least two each: split with GroupKFold. Noise of a release
    is not taken out of squared loss; it is the same for every model.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.model_selection import GroupKFold, cross_validate
    >>> from bagwise import AggregateLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X, ids = rng.normal(size=(4000, 3)), Bags.random(4000, 10, random_state=0)
    >>> y = ids.expand(ids.mean(X @ [1.0, 2.0, 0.0] + rng.normal(size=4000)))
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     model = AggregateLinearRegression().set_fit_request(bags=True)
    ...     found = cross_validate(
    ...         model, X, y, scoring=row_scorer("squared"), cv=GroupKFold(5),
    ...         params={"bags": ids.codes, "groups": ids.codes},
    ...     )
    >>> bool(-1.3 < found["test_score"].mean() < -0.8)
    True
    """
    return RowScorer(_check.choice("loss", loss, ROW_LOSSES))


def _affine(loss: str, f: FloatArray) -> tuple[FloatArray, FloatArray]:
    """b(f) and s(f) of ℓ = b + y s, but for what depends on y alone."""
    if loss == "zero-one":
        ones = (f > 0.5).astype(np.float64)
        return ones, 1 - 2 * ones
    value = LOSSES[loss].value
    if f.shape[1] > 1:
        # One term −y_j log f_j a class.
        return np.zeros_like(f), value(np.ones_like(f), f)
    base = value(np.zeros_like(f), f)
    return base, value(np.ones_like(f), f) - base


def _bag_level(loss: str, means: FloatArray, f: FloatArray, groups: Bags) -> float:
    """Size-weighted loss of averaged predictions; noisy means may lie outside of the range."""
    averages = groups.mean(f)
    if loss == "zero-one":
        losses = np.abs(means - groups.mean(_affine(loss, f)[0]))
    elif loss == "squared":
        losses = (means - averages) ** 2
    else:
        base, slope = _affine(loss, averages)
        losses = base + means * slope
    return float(groups.sizes @ losses.sum(axis=1) / groups.n_rows)


def _estimate(
    sizes: Any, fixed: FloatArray, left: FloatArray, right: FloatArray, noise: FloatArray
) -> tuple[float, float]:
    """Mean over rows of fixed + left · right, and its standard error, from means over bags.

    ``left`` and ``right`` have shape (n_bags, p); ``noise`` is the part of left · right in each bag
    that is noise of both.
    """
    n, m = sizes.sum(), len(sizes)
    # About the means nothing cancels: lr = (l−l̄)(r−r̄) + l̄(r−r̄) + r̄(l−l̄) + l̄r̄.
    l_mean, r_mean = sizes @ left / n, sizes @ right / n
    left, right = left - l_mean, right - r_mean
    fixed = fixed + left @ r_mean + right @ l_mean + l_mean @ r_mean
    product = (left * right).sum(axis=1) - noise
    columns = [sizes, np.ones(m), sizes * fixed, sizes * product, sizes**2 * noise]
    columns += [sizes[:, None] * left, sizes[:, None] * right]
    totals = [column.sum(axis=0) for column in columns]
    value = float(_from_sums(*totals))
    if m < 3:
        return value, np.nan
    others = _from_sums(*(total - part for total, part in zip(totals, columns, strict=True)))
    return value, float(np.sqrt((m - 1) / m * np.square(others - others.mean()).sum()))


def _from_sums(
    n: Any, m: Any, fixed: Any, product: Any, noise: Any, left: Any, right: Any
) -> FloatArray:
    """The estimate from sums over rows; noise of means of all is noise/n²."""
    of_means = ((left * right).sum(axis=-1) - noise) / n**2
    spread = product - n * of_means
    return np.asarray(fixed / n + of_means + (n - 1) / (n * (m - 1)) * spread)


def _read(y: Any, predictions: Any, bags: Any, loss: str) -> tuple[FloatArray, FloatArray, Bags]:
    """Means of shape (n_bags, p), predictions of shape (n_rows, p) and bags, or one sentence."""
    _check.choice("loss", loss, ROW_LOSSES)
    f = np.asarray(predictions, dtype=np.float64)
    if f.ndim == 2 and loss == "log" and f.shape[1] > 1:
        y = np.asarray(y, dtype=np.float64)
        if y.shape != f.shape:
            got = f"shape {y.shape} for predictions of shape {f.shape}"
            _check.refuse("y", "one share a row and class", got, "Give each row its bag's shares")
        columns = [read_bags(column, bags, len(f)) for column in y.T]
        means, groups = np.column_stack([column for column, _ in columns]), columns[0][1]
    elif f.ndim == 1:
        means, groups = read_bags(y, bags, len(f))
        means, f = means[:, None], f[:, None]
    else:
        got = f"shape {f.shape} with loss={loss!r}"
        _check.refuse("predictions", "one number a row", got, "Only log loss knows several classes")
    low, high = RANGES.get(loss, (-np.inf, np.inf))
    if not (np.isfinite(f).all() and f.min() >= low and f.max() <= high):
        rule = "finite" if loss == "squared" else f"finite and in [{low:g}, {high:g}]"
        got = f"values from {f.min():.3g} to {f.max():.3g}"
        _check.refuse("predictions", rule, got, "Predict means, not logits")
    if groups.n_bags < 2:
        _check.refuse("bags", "at least two", "one", "One bag does not tell rows apart")
    return means, f, groups


def _scales(noise_scale: Any, groups: Bags) -> FloatArray:
    """The noise scale of each bag."""
    if noise_scale is None:
        return np.zeros(groups.n_bags)
    if np.ndim(noise_scale) == 0 and not isinstance(noise_scale, dict):
        scales = np.full(groups.n_bags, _check.number("noise_scale", noise_scale, remedy=_SCALE))
    else:
        scales = groups.align(noise_scale)
    if scales.min() < 0 or not np.isfinite(scales).all():
        _check.refuse("noise_scale", "at least 0 and finite", f"{scales.min():g}", _SCALE)
    return scales


_SCALE = "A release states the scale of its noise"
