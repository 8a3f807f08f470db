"""A, W and c of the linear problem: all that a linear model needs of a table, and no row of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, TypeAlias
from zipfile import ZIP_STORED, BadZipFile

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import blas
from sklearn.utils.validation import _get_feature_names, check_array

from bagwise import _check
from bagwise.bags import Bags

FloatArray: TypeAlias = NDArray[np.float64]
# Entries of a block of rows: 2 MB of float64, so that centring and products stay in cache.
BLOCK = 2**18
# A response whose square, and a sum of many such, is a number still.
LARGEST = 1e140


@dataclass(frozen=True, eq=False)
class AggregateStatistics:
    r"""Sums over bags from which `AggregateLinearRegression` is fitted for every rho.

    With x̄_a, ȳ_a the means of bag a, x̄, ȳ those of all rows, and k_a the bag sizes:

        between  A = Σ_a k_a (x̄_a − x̄)(x̄_a − x̄)ᵀ
        within   W = Σ_a Σ_{i∈a} (x_i − x̄_a)(x_i − x̄_a)ᵀ
        cross    c = Σ_a k_a (x̄_a − x̄)(ȳ_a − ȳ)

    Attributes
    ----------
    n_rows, n_bags : int
    mean : ndarray of shape (n_features,)
        x̄, the mean of the rows.
    response_mean : float
        ȳ, the size-weighted mean of the responses.
    between, within : ndarray of shape (n_features, n_features)
    cross : ndarray of shape (n_features,)
    response_square : float
        Σ_a k_a (ȳ_a − ȳ)².
    feature_names : tuple of str or None
    weight : float or None
        What all rows weigh together where bags are weighed by more than their size; None is n_rows.

    Notes
    -----
    Guarantees: ``a + b`` describes the bags of both, ``(a + b) - b`` equals ``a`` up to rounding,
    and everything is held about the mean, so that an offset of 1e6 costs no digits.
    Limits: a sum of squares knows a direction of the features only down to 1e-6 or so of the
    largest; where rows are at hand, `AggregateLinearRegression.fit` looks closer.

    Examples
    --------
    >>> X = np.array([[0.0], [2.0], [4.0], [6.0]])
    >>> statistics = AggregateStatistics.from_rows(X, {"a": 1.0, "b": 3.0}, ["a", "a", "b", "b"])
    >>> statistics.between, statistics.within, statistics.cross
    (array([[16.]]), array([[4.]]), array([8.]))
    """

    n_rows: int
    n_bags: int
    mean: FloatArray
    response_mean: float
    between: FloatArray
    within: FloatArray
    cross: FloatArray
    response_square: float
    feature_names: tuple[str, ...] | None = None
    weight: float | None = None

    @property
    def _mass(self) -> float:
        """What all rows weigh together."""
        return self.n_rows if self.weight is None else self.weight

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.mean)

    @classmethod
    def from_rows(cls, X: Any, y: Any, bags: Any = None) -> AggregateStatistics:
        """Statistics of a table in memory.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
        y : one mean a row, or a mapping or Series from bag id to mean
        bags : one id a row, or Bags; None makes every row its own bag
        """
        names = _get_feature_names(X)
        X = check_array(X, accept_sparse="csr", dtype=(np.float64, np.float32))
        statistics = Rows(X, *read_bags(y, bags, X.shape[0])).statistics
        return replace(statistics, feature_names=None if names is None else tuple(names))

    @classmethod
    def from_batches(cls, batches: Iterable[tuple[Any, Any, Any]]) -> AggregateStatistics:
        """Statistics of a stream of (X, y, bags), each with *whole* bags, in constant memory."""
        total: AggregateStatistics | None = None
        for batch in batches:
            part = cls.from_rows(*batch)
            total = part if total is None else total + part
        if total is None:
            _check.refuse("batches", "at least one", "none", "Check what yields them")
        return total

    @classmethod
    def from_release(cls, release: Any) -> AggregateStatistics:
        """Statistics of a `Release`: read once, on every core, in constant memory."""
        found: AggregateStatistics = release.statistics()
        return found

    @classmethod
    def from_table(cls, table: Any) -> AggregateStatistics:
        """Statistics of a `BagTable`: rows in files, put together by bag on its engine."""
        found: AggregateStatistics = table.statistics()
        return found

    def __add__(self, other: AggregateStatistics) -> AggregateStatistics:
        self._match(other)
        return self._merged(other, 1)

    def __sub__(self, other: AggregateStatistics) -> AggregateStatistics:
        self._match(other)
        if not (other.n_rows < self.n_rows and other.n_bags < self.n_bags):
            got = f"{other.n_bags} bags from {self.n_bags}"
            _check.refuse("the subtracted part", "smaller than the whole", got, "Swap the two")
        rest = self._merged(other, -1)
        spreads = np.minimum(np.diag(rest.between), np.diag(rest.within))
        floor = -1e-6 * np.diag(self.between + self.within)
        if rest.n_rows < rest.n_bags or np.any(spreads < floor):
            got = "one with more variation than the whole"
            _check.refuse("the subtracted part", "a part of the whole", got, "Check its rows")
        return rest

    def _match(self, other: AggregateStatistics) -> None:
        if self.feature_names != other.feature_names or self.n_features != other.n_features:
            got = f"{self.n_features} and {other.n_features} features, or other names"
            _check.refuse("statistics", "of the same features", got, "Align the columns first")

    def _merged(self, other: AggregateStatistics, sign: int) -> AggregateStatistics:
        """Sums about the common mean: each part's own, and those of the two means about it."""
        mass = self._mass + sign * other._mass
        # n₁n₂/n (x̄₁−x̄₂)(x̄₁−x̄₂)ᵀ; with a minus, x̄₁ is the mean of the whole, and n and n₁ swap.
        weight = sign * other._mass * self._mass / mass
        step = other.mean - self.mean
        response_step = other.response_mean - self.response_mean
        share = sign * other._mass / mass
        plain = self.weight is None and other.weight is None
        return AggregateStatistics(
            n_rows=self.n_rows + sign * other.n_rows,
            n_bags=self.n_bags + sign * other.n_bags,
            mean=self.mean + share * step,
            response_mean=self.response_mean + share * response_step,
            between=self.between + sign * other.between + weight * np.outer(step, step),
            within=self.within + sign * other.within,
            cross=self.cross + sign * other.cross + weight * response_step * step,
            response_square=self.response_square
            + sign * other.response_square
            + weight * response_step**2,
            feature_names=self.feature_names,
            weight=None if plain else mass,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the statistics as an .npz file of plain arrays."""
        arrays: dict[str, Any] = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        for name in ("feature_names", "weight"):
            if getattr(self, name) is None:
                del arrays[name]
        with open(path, "wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> AggregateStatistics:
        """Read what `save` wrote. Nothing in the file is ever executed."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
                # We store members as they are: whatever unpacks to more is not ours.
                if any(m.compress_type != ZIP_STORED for m in saved.zip.infolist()):
                    raise ValueError("a packed file")
                arrays = {name: saved[name] for name in saved.files}
            names = arrays.pop("feature_names", None)
            d = len(arrays["mean"])
            shapes = _SHAPES | ({"weight": 0} if "weight" in arrays else {})
            for name, shape in shapes.items():
                arrays[name] = _number_array(arrays[name]).reshape([d] * shape)
            if not 1 <= arrays["n_bags"] <= arrays["n_rows"] or (
                names is not None and len(names) != d
            ):
                raise ValueError("sizes that do not fit together")
            return cls(
                feature_names=None if names is None else tuple(names.tolist()),
                **{k: v if v.ndim else v.item() for k, v in arrays.items()},
            )
        except FileNotFoundError:
            raise
        except (
            OSError,
            KeyError,
            TypeError,
            ValueError,
            EOFError,
            MemoryError,
            BadZipFile,
        ) as error:
            raise ValueError(
                f"path must be a file written by AggregateStatistics.save; got {str(path)!r}. "
                "Write it again."
            ) from error


#: the number of feature axes of each saved array
_SHAPES = {
    "n_rows": 0,
    "n_bags": 0,
    "mean": 1,
    "response_mean": 0,
    "between": 2,
    "within": 2,
    "cross": 1,
    "response_square": 0,
}


def _number_array(array: NDArray[Any]) -> NDArray[Any]:
    """The array when it holds finite numbers."""
    if array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise ValueError("not finite numbers")
    return array


def read_bags(y: Any, bags: Any, n_rows: int) -> tuple[FloatArray, Bags]:
    """Mean of each bag, and the bags of a table with n_rows rows; None makes every row a bag."""
    if bags is None:
        if isinstance(y, Mapping):
            got = "bags=None with a mapping"
            _check.refuse("bags", "given when y maps bags to means", got, "Pass one id a row")
        # One entry a row, whatever index a Series carries.
        groups = Bags(np.arange(n_rows))
        return refuse_huge(groups.align(np.asarray(y)), "y"), groups
    groups = bags if isinstance(bags, Bags) else Bags(bags)
    if groups.n_rows != n_rows:
        got = f"{groups.n_rows} ids for {n_rows} rows"
        _check.refuse("bags", "one id a row of X", got, "Check that both come from one table")
    return refuse_huge(groups.align(y), "y"), groups


def refuse_huge(responses: FloatArray, name: str) -> FloatArray:
    """The responses, unless a sum of their squares could be infinite."""
    if len(responses) and np.abs(responses).max() > LARGEST:
        got = "larger ones, whose squares overflow"
        _check.refuse(name, f"within ±{LARGEST:g}", got, "Rescale it: change the unit, say")
    return responses


class Rows:
    """Validated rows with the mean response of each bag, read in blocks that stay in cache.

    Attributes
    ----------
    statistics : AggregateStatistics
    responses : ndarray of shape (n_bags,)
        ȳ_a, as given.
    masses : ndarray of shape (n_bags,)
        What each bag weighs: its size, times its weight with Σ k_a w_a = n where there are weights.
    """

    def __init__(
        self, X: Any, responses: FloatArray, bags: Bags, weights: FloatArray | None = None
    ) -> None:
        self.X, self.responses, self.bags = X, responses, bags
        self.masses = bags.sizes if weights is None else bags.sizes * weights
        self._root = None if weights is None else np.sqrt(weights)
        n, d = X.shape
        # A point near the mean: sums about it lose no digits when they are moved to the mean.
        self._near = _dense(X[:: max(1, n // 1000)]).mean(axis=0)
        self._single = bags.n_bags == n
        total, scatter = np.zeros(d), np.zeros((d, d), order="F")
        self._bag_means = np.zeros((0 if self._single else bags.n_bags, d))
        for part in _slices(X):
            block = _dense(X[part]) - self._near
            if not self._single:
                local = Bags(bags.codes[part])
                self._bag_means[local.ids] += local.sum(block)
            root = self._roots(part)
            total += (np.ones(len(block)) if root is None else root**2) @ block
            scatter = _plus_gram(scatter, block if root is None else root[:, None] * block)
        if not self._single:
            self._bag_means /= bags.sizes[:, None]
        mean = total / n
        scatter = _mirrored(scatter) - n * np.outer(mean, mean)
        self.statistics = self._statistics(self._near + mean, scatter)

    def _roots(self, part: slice) -> FloatArray | None:
        """Roots of the weights of some rows."""
        return None if self._root is None else self._root[self.bags.codes[part]]

    def _statistics(self, mean: FloatArray, scatter: FloatArray) -> AggregateStatistics:
        """A and c from the bag means about ``mean``; W is what they leave of the scatter."""
        sizes = self.masses
        response_mean = float(sizes @ self.responses / self.bags.n_rows)
        responses = self.responses - response_mean
        between, cross = np.zeros(scatter.shape, order="F"), np.zeros_like(mean)
        for part, block in self.between_blocks(mean):
            cross += block.T @ (sizes[part] * responses[part])
            if not self._single:
                block *= np.sqrt(sizes[part, None])
                between = _plus_gram(between, block)
        between = _mirrored(between)
        return AggregateStatistics(
            n_rows=self.bags.n_rows,
            n_bags=self.bags.n_bags,
            mean=mean,
            response_mean=response_mean,
            between=scatter if self._single else between,
            within=np.zeros_like(scatter) if self._single else scatter - between,
            cross=cross,
            response_square=float(sizes @ responses**2),
        )

    def between_blocks(self, centre: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Slices over bags, and the mean features of those bags minus ``centre``."""
        means, centre = (self.X, centre) if self._single else (self._bag_means, centre - self._near)
        for part in _slices(means):
            yield part, _dense(means[part]) - centre

    def within_blocks(self) -> Iterator[FloatArray]:
        """Rows minus the mean of their bag; nothing when every row is its own bag."""
        for part in _slices(self.X) if not self._single else ():
            block = _dense(self.X[part]) - self._near
            block -= self._bag_means[self.bags.codes[part]]
            root = self._roots(part)
            yield block if root is None else root[:, None] * block


def sum_clustered(
    X: Any, responses: FloatArray, sizes: NDArray[np.int64], weights: FloatArray | None = None
) -> AggregateStatistics:
    """Statistics of rows that lie bag after bag, from columns that are handed out in blocks.

    Parameters
    ----------
    X : EncodedRows of shape (n_rows, n_features)
    responses : ndarray of shape (n_bags,)
    sizes : int ndarray of shape (n_bags,)
    weights : ndarray of shape (n_bags,)
        What a row of each bag weighs; 1 by default.
    """
    n, d = X.shape
    near = X[:: max(1, n // 1000)].mean(axis=0)
    masses = sizes if weights is None else sizes * weights
    of_row = None if weights is None else np.repeat(weights, sizes)
    mass = float(masses.sum())
    response_mean = float(masses @ responses / mass)
    about = responses - response_mean
    ends = np.cumsum(sizes)
    total, left = np.zeros(d), np.zeros(d)
    scatter, between, cross = np.zeros((d, d), order="F"), np.zeros((d, d)), np.zeros(d)
    first, step = 0, max(1, BLOCK // d)
    for row in range(0, n, step):
        stop = min(row + step, n)
        block = X.columns_minus(near, slice(row, stop))
        heavy = block
        if of_row is None:
            total += block.sum(axis=1)
        else:
            total += block @ of_row[row:stop]
            heavy = block * np.sqrt(of_row[row:stop])
        scatter = blas.dsyrk(1.0, heavy.T, beta=1.0, c=scatter, trans=1, overwrite_c=True)
        # Bags with rows in this block; the first may have begun before it, the last go on after.
        last = int(np.searchsorted(ends, stop))
        starts = np.maximum(ends[first : last + 1] - sizes[first : last + 1], row) - row
        sums = np.add.reduceat(block, starts, axis=1)
        sums[:, 0] += left
        done = last + 1 if ends[last] == stop else last
        left = sums[:, -1] if done == last else np.zeros(d)
        means = sums[:, : done - first] / sizes[first:done]
        between += (means * masses[first:done]) @ means.T
        cross += means @ (masses[first:done] * about[first:done])
        first = done
    mean = total / mass
    # About the mean: Σ k m mᵀ − n x̄ x̄ᵀ, where x̄ is all but 0, and Σ k (ȳ_a − ȳ) = 0.
    about_mean = mass * np.outer(mean, mean)
    scatter, between = _mirrored(scatter) - about_mean, between - about_mean
    return AggregateStatistics(
        n_rows=n,
        n_bags=len(sizes),
        mean=near + mean,
        response_mean=response_mean,
        between=between,
        within=scatter - between,
        cross=cross,
        response_square=float(masses @ about**2),
        weight=None if weights is None else mass,
    )


def _plus_gram(gram: FloatArray, block: FloatArray) -> FloatArray:
    """The upper triangle of gram + blockᵀblock, written over ``gram`` (Fortran order)."""
    return np.asarray(blas.dsyrk(1.0, block.T, beta=1.0, c=gram, overwrite_c=True))


def _mirrored(upper: FloatArray) -> FloatArray:
    """The symmetric matrix with that upper triangle."""
    return np.triu(upper) + np.triu(upper, 1).T


def _slices(X: Any) -> Iterator[slice]:
    """Blocks of rows of about BLOCK entries."""
    n, d = X.shape
    step = max(256, BLOCK // max(d, 1))
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _dense(block: Any) -> FloatArray:
    """A block of rows as float64."""
    return np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
