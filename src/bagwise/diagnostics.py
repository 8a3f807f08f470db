"""How far bags are from random ones, what their means can tell, and what that means for rho."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.utils import gen_batches
from sklearn.utils.validation import _get_feature_names, check_array

from bagwise import _check
from bagwise._extras import need
from bagwise.bags import Bags
from bagwise.spectrum import directions
from bagwise.statistics import AggregateStatistics, FloatArray, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: bags count as not random when random ones give such features once in a thousand times or less
ALPHA = 0.001
# Where few rows make up a feature, random bags bring few together, and those make lumps that a
# beta distribution does not know: it takes so many pairs, and, for unequal bags, a variance of at
# most so many times that of normal features.
PAIRS, LUMPS = 30, 3
# Features drawn in a picture.
SHOWN = 25


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What bags are like; print it for a diagnosis in plain words.

    Attributes
    ----------
    n_rows, n_bags : int
    effective_bags : float
        n²/Σ k_a², the number of equal bags that tell as much; NaN where sizes are not known.
    feature_names : tuple of str
    share : ndarray of shape (n_features,)
        A_jj/(A_jj + W_jj), how much of each feature's variance lies between bags; NaN where a
        feature does not vary.
    chance : float
        (m−1)/(n−1), what random bags give on average.
    p_values : ndarray of shape (n_features,)
        How rarely random bags give a share as far from chance, on either side; a bound where few
        rows make up a feature's variance (a rare level, a far tail).
    p_value : float
        The same for all features and directions together.
    directions : ndarray of shape (rank,)
        λ_j, the share between bags of each direction in which rows vary, least first.
    loads : ndarray of shape (n_features,)
        How much each feature takes part in the directions that bag means do not see, or else in
        the one they see least; squares add up to 1.
    """

    n_rows: int
    n_bags: int
    effective_bags: float
    feature_names: tuple[str, ...]
    share: FloatArray
    chance: float
    p_values: FloatArray
    p_value: float
    directions: FloatArray
    loads: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """Variance of bag means over what chance gives, for each feature: 1 for random bags."""
        return self.share / self.chance if self.chance else np.full(len(self.share), np.nan)

    @property
    def random(self) -> bool:
        """Whether the features look as in random bags."""
        return self.p_value > ALPHA

    @property
    def n_unseen(self) -> int:
        """Directions in which rows vary and bag means do not."""
        return int((self.directions == 0).sum())

    @property
    def sampling(self) -> float:
        """Squared error of a row's prediction at rho = 0, in units of the noise of a response.

        (1/n) Σ_j 1/λ_j over the directions that bags see; with full labels it would be rank/n.
        """
        seen = self.directions[self.directions > 0]
        return float((1 / seen).sum() / self.n_rows)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The diagnosis, and what it means for rho, in plain words."""
        if self.n_bags == self.n_rows:
            return (self._size(), "Every row is its own bag: rho changes nothing.")
        if self.n_bags == 1:
            return (self._size(), "One bag tells a mean, and nothing about features.")
        return tuple(filter(None, (self._size(), *self._verdict(), *self._identified())))

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _size(self) -> str:
        rows, bags = f"{self.n_rows:,} rows", f"{self.n_bags:,} bag{'s' * (self.n_bags > 1)}"
        if self.effective_bags < 0.9 * self.n_bags:
            bags += f" of unequal size, which tell as much as {self.effective_bags:,.0f} equal ones"
        return f"{rows} in {bags}; {len(self.directions)} directions of features."

    def _verdict(self) -> tuple[str, ...]:
        if self.random:
            return (
                f"Bags look random (p = {self.p_value:.2g}), as far as features tell: "
                f"{np.nanmean(self.share):.2g} of a feature's variance lies between them, and "
                f"chance gives {self.chance:.2g}.",
                "rho trades bias for variance, as plan and theory say, and row_risk may be "
                "trusted.",
            )
        p = f"p = {self.p_value:.1g}" if self.p_value > 1e-16 else "p < 1e-16"
        return (
            f"Bags are not random ({p}): {self._farthest()}.",
            "plan, theory, rho='theory' and row_risk assume random bags and need not hold: choose "
            "rho on bags that are left out, and take the likelihood of means for shares.",
            "Where a bag itself acts on its rows' responses, features that differ between bags "
            "take the blame at every rho, and no score of bag means shows it: give what is known "
            "of the bag as features.",
        )

    def _farthest(self) -> str:
        """What differs most from chance among what chance does not explain."""
        odd = np.flatnonzero(self.p_values <= ALPHA)
        if not len(odd):
            return "not in one feature, but in combinations of them"
        far = odd[np.argmax(np.abs(np.log(np.maximum(self.ratio[odd], 1e-9))))]
        ratio = self.ratio[far]
        how = f"{ratio:,.3g} times" if ratio > 1 else f"only {ratio:.2g} of"
        return f"means of {self.feature_names[far]} vary {how} what chance gives"

    def _identified(self) -> tuple[str, ...]:
        seen = self.directions[self.directions > 0]
        kept = f"{seen.min():.2g} to {seen.max():.2g} of it" if len(seen) else "nothing of it"
        found = [
            f"At rho = 1 a coefficient shrinks to the share of its direction between bags: {kept}."
        ]
        top = np.argsort(-self.loads, kind="stable")[:3]
        names = ", ".join(self.feature_names[j] for j in top if self.loads[j] > 0.3)
        if self.n_unseen:
            found.append(
                f"Bag means cannot tell {self.n_unseen} of {len(self.directions)} directions "
                f"(most of all {names}): fits from them put nothing there."
            )
        elif not self.random:
            found.append(f"The direction they tell least is mostly {names}.")
        if self.sampling > 1:
            found.append(
                f"Bags are few for so many directions: at rho = 0 noise adds {self.sampling:.2g} "
                "times its variance to the squared error of a row; a larger rho or a ridge "
                "takes that down."
            )
        return tuple(found)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share between bags of features, and of directions; needs bagwise[plot]."""
        pyplot = need("matplotlib.pyplot", "plot")
        order = np.argsort(np.nan_to_num(self.share, nan=-1), kind="stable")
        order = order[~np.isnan(self.share[order])][-SHOWN:]
        height = 1.6 + 0.22 * len(order)
        axes: Axes = ax or pyplot.subplots(figsize=(6, height), layout="constrained")[1]
        seen = self.directions[self.directions > 0]
        least = min(self.share[order].min(), seen.min(initial=1), self.chance or 1.0)
        # 0 has no place on a logarithmic axis: it is drawn left of what is least.
        floor = max(least / 3, 1e-9)
        place = np.arange(1, len(order) + 1)
        axes.plot(np.maximum(self.share[order], floor), place, "o", color="#0072B2", markersize=4)
        spots = np.maximum(self.directions, floor)
        axes.plot(spots, np.zeros(len(spots)), "|", color="#D55E00", markersize=9)
        axes.set_yticks(
            [0, *place], ["directions", *(self.feature_names[j] for j in order)], fontsize="small"
        )
        if self.chance:
            axes.axvline(self.chance, color="0.6", linestyle="--", label="random bags")
            axes.legend(frameon=False, loc="best")
        axes.set_xscale("log")
        axes.set(xlabel="share of the variance between bags", xlim=(floor / 1.3, 1.3))
        return axes


def diagnose(source: Any, bags: Any = None) -> Diagnosis:
    r"""How far bags are from random ones and what their means can tell, from features alone.

    With A and W the scatter of features between and within bags, λ_j and b_j of A b = λ (A + W) b:
    uniformly random bags of any sizes give each feature, and each direction fixed beforehand,
    λ = (m−1)/(n−1) on average.

    Parameters
    ----------
    source : AggregateStatistics, Release, BagTable, or array or data frame (n_rows, n_features)
        Features, or the sums of them over bags.
    bags : one id a row, or Bags
        Needed for rows; beside AggregateStatistics it only tells sizes.

    Returns
    -------
    Diagnosis
        Print it; its fields hold the numbers, `plot` draws them.

    Notes
    -----
    p-values take A_jj/(A_jj + W_jj) of a feature, and the trace of (A + W)⁺A for all of them, for
    beta variables with the mean and variance that random bags give. The variance grows with
    kurtosis where bags are unequal; statistics alone know that of 0/1 features, and only beside
    sizes. Of features that few rows make up, Chebyshev's bound is taken.

    Guarantees: neither responses nor units of features matter. Limits: bags that were sorted by
    something which no feature shows look random. Statistics take features other than 0/1 for
    normal ones: where tails are far heavier, p-values of small tables are too small.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> found = diagnose(X, Bags.random(1000, 10, random_state=0))
    >>> found.random, round(found.p_value, 2), found.ratio.round(2).tolist()
    (True, 0.54, [0.81, 0.8, 1.13])
    >>> print(found.sentences[2])
    rho trades bias for variance, as plan and theory say, and row_risk may be trusted.
    >>> diagnose(X, np.argsort(np.argsort(X[:, 0])) // 10).random
    False
    """
    statistics, sizes, kurtosis = _read(source, bags)
    n, m = statistics.n_rows, statistics.n_bags
    share, basis = directions(statistics)
    if not len(share):
        _check.refuse("X", "of features that vary", "constant ones", "Add one that varies")
    between, within = np.diag(statistics.between), np.maximum(np.diag(statistics.within), 0)
    if kurtosis is None and 1 < m < n and not within.any():
        remedy = "Pass rows or their sums; means alone do not tell what varies inside bags"
        _check.refuse("statistics", "of rows", "sums that know no scatter within bags", remedy)
    varies = np.any(basis != 0, axis=1)
    of_features = np.full(len(between), np.nan)
    of_features[varies] = (between / np.where(varies, between + within, 1))[varies]
    p_values, p_value = _tests(statistics, of_features, sizes, _excess(statistics, kurtosis))
    return Diagnosis(
        n_rows=n,
        n_bags=m,
        effective_bags=np.nan if sizes is None else float(n**2 / (sizes * 1.0 @ sizes)),
        feature_names=statistics.feature_names or tuple(f"x{j}" for j in range(len(between))),
        share=of_features,
        chance=(m - 1) / (n - 1) if n > 1 else 1.0,
        p_values=p_values,
        p_value=p_value,
        directions=share,
        loads=_loads(statistics, basis, max(int((share == 0).sum()), 1)),
    )


def _loads(statistics: AggregateStatistics, basis: FloatArray, count: int) -> FloatArray:
    """Standardised coefficients of the first directions together, squares adding up to 1."""
    total = statistics.between + statistics.within
    spread = np.sqrt(np.diag(total))
    scaled = (total @ basis) / np.where(spread > 0, spread, 1)[:, None]
    # Of collinear features each takes its part: coefficients of least norm, whatever the units.
    axes = np.linalg.qr(scaled)[0]
    loads = axes @ (axes.T @ (spread[:, None] * basis[:, :count]))
    return np.asarray(np.linalg.norm(loads, axis=1) / np.linalg.norm(loads))


def _tests(
    statistics: AggregateStatistics,
    share: FloatArray,
    sizes: NDArray[Any] | None,
    excess: FloatArray,
) -> tuple[FloatArray, float]:
    """p-values of features, and one of all: twice the lesser of that of the trace of (A + W)⁺A and
    of the least times their number.
    """
    n, m = statistics.n_rows, statistics.n_bags
    a, q = m - 1, n - 1
    # A row alone in a bag weighs more than one among many: that matters where tails are heavy.
    uneven = 0.0 if sizes is None else max(float((1 / sizes).sum()) - m**2 / n, 0.0) / n**2
    more = np.maximum(excess, -1) * uneven
    lumpy = n * (n / m - 1) / (2 * (excess + 6) ** 2) < PAIRS
    lumpy |= more > LUMPS * 2 * a * (n - m) / max(q, 1) ** 3
    lumpy &= excess > 3
    p_values = _tails(share, 1, a, q, more, lumpy)
    least = (~np.isnan(share)).sum() * np.nanmin(p_values)
    judged = ~np.isnan(share) & ~lumpy
    if not judged.any():
        return p_values, float(min(1.0, least))
    part = replace(
        statistics,
        mean=statistics.mean[judged],
        between=statistics.between[np.ix_(judged, judged)],
        within=statistics.within[np.ix_(judged, judged)],
    )
    shares = directions(part)[0]
    whole = float(_tails(shares.sum(), len(shares), a, q, max(more[judged].sum(), 0.0)))
    return p_values, min(1.0, 2 * whole, 2 * float(least))


def _read(
    source: Any, bags: Any
) -> tuple[AggregateStatistics, NDArray[Any] | None, FloatArray | None]:
    """Statistics, sizes of bags and kurtosis of features, as far as they are known."""
    groups = bags if bags is None or isinstance(bags, Bags) else Bags(bags)
    if isinstance(source, AggregateStatistics):
        if groups is not None and (groups.n_rows, groups.n_bags) != (source.n_rows, source.n_bags):
            got = f"{groups.n_rows} rows in {groups.n_bags} bags"
            _check.refuse("bags", "those of the statistics", got, "Or leave them out")
        return source, None if groups is None else groups.sizes, None
    sums: Callable[[], AggregateStatistics] | None = getattr(source, "statistics", None)
    if callable(sums):
        return sums(), source.sizes, None
    X = check_array(source, accept_sparse="csr", dtype=(np.float64, np.float32), input_name="X")
    if groups is None or groups.n_rows != X.shape[0]:
        got = "none" if groups is None else f"{groups.n_rows} ids for {X.shape[0]} rows"
        _check.refuse("bags", "one id a row of X", got, "Check that both come from one table")
    names = _get_feature_names(source)
    found = Rows(X, np.zeros(groups.n_bags), groups).statistics
    found = replace(found, feature_names=None if names is None else tuple(names))
    return found, groups.sizes, _kurtosis(X, found)


def _kurtosis(X: Any, statistics: AggregateStatistics) -> FloatArray:
    """n Σ (x − x̄)⁴ / (Σ (x − x̄)²)² of each column; 3 for constant ones."""
    fourth = np.zeros(X.shape[1])
    for part in gen_batches(X.shape[0], 2**13):
        block = X[part].toarray() if sp.issparse(X) else X[part]
        fourth += np.power(block - statistics.mean, 4).sum(axis=0)
    square = np.diag(statistics.between + statistics.within)
    return np.where(
        square > 0, statistics.n_rows * fourth / np.where(square > 0, square, 1) ** 2, 3.0
    )


def _excess(statistics: AggregateStatistics, kurtosis: FloatArray | None) -> FloatArray:
    """Kurtosis less 3; without rows that of 0/1 features, as mean and variance show, and else 0."""
    if kurtosis is not None:
        return kurtosis - 3
    variance = np.diag(statistics.between + statistics.within) / statistics.n_rows
    binary = np.isclose(variance, statistics.mean * (1 - statistics.mean), rtol=1e-9, atol=0)
    return np.where(binary & (variance > 0), 1 / np.where(variance > 0, variance, 1) - 6, 0.0)


def _tails(trace: Any, p: int, a: int, q: int, more: Any = 0.0, lumpy: Any = False) -> FloatArray:
    """How rarely tr(P Q) lies as far out, for random projections P and Q of ranks p, a in q dims.

    Its mean is pa/q and its variance 2pa(q−p)(q−a)/(q²(q−1)(q+2)), and ``more`` for rows with heavy
    tails. For p = 1 without more it is a beta variable; lumpy ones get Chebyshev's bound.
    """
    low, high = max(0, p + a - q), min(p, a)
    if low >= high:
        return np.where(np.isnan(trace), np.nan, 1.0)
    width = high - low
    x, mean = (trace - low) / width, (p * a / q - low) / width
    variance = (2 * p * a * (q - p) * (q - a) / (q**2 * (q - 1) * (q + 2)) + more) / width**2
    both = mean * (1 - mean) / np.minimum(variance, 0.9 * mean * (1 - mean)) - 1
    law = beta(mean * both, (1 - mean) * both)
    bound = variance / np.maximum((x - mean) ** 2, variance)
    return np.asarray(np.where(lumpy, bound, np.minimum(1, 2 * np.minimum(law.cdf(x), law.sf(x)))))
