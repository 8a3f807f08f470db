r"""Random combinations of bags: generalised bags, and squared loss on them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.utils import check_random_state

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, Linear, overall
from bagwise.estimators.contract import FloatArray

# Combinations at most where their number is not given, and signs in memory at a time.
MOST, ENTRIES = 2000, 2**22


class BagCombinationRegressor(Linear):
    r"""Ridge regression on random combinations of bags.

    A generalised bag g gives bag a the weight w_ga = ±1/√q, at random. It minimises, over θ,

        Σ_g (Σ_a w_ga √k_a ((ȳ_a − ȳ) − (x̄_a − x̄)ᵀθ))² + ridge ‖θ‖²

    Parameters
    ----------
    n_combinations : int or "auto"
        q, at least 1; "auto" is as many as there are bags, and 2,000 at most.
    ridge : float
        At least 0, in the units of scikit-learn's ``Ridge(alpha)``.
    random_state : int, RandomState or None

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float

    Notes
    -----
    Assumes nothing of the bags but that features differ between them.
    Guarantees: combinations keep norms, E Σ_g (Σ_a w_ga v_a)² = Σ_a v_a², so that the loss has the
    bag-level loss as expectation, and that of rows where bags have one row.
    Limits: as q grows it becomes `RidgeMeansRegressor`. The paper solves for weights that make the
    covariance of generalised bags near the identity over *rows*, which it needs overlapping bags
    for; where bags part the rows no weights can, and signs at random are what is left.
    Reference: Saket, Raghuveer, Ravindran, "On combining bags to better learn from label
    proportions" (2022).

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> bags = Bags.random(1000, 10, random_state=0)
    >>> model = BagCombinationRegressor(ridge=0.1, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(X @ [1.0, 2.0])), bags).coef_.round(1).tolist()
    [1.0, 2.0]
    """

    def __init__(
        self, n_combinations: int | str = "auto", ridge: float = 1.0, random_state: Any = None
    ) -> None:
        self.n_combinations = n_combinations
        self.ridge = ridge
        self.random_state = random_state

    def _learn(self, X: FloatArray, means: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        return _fit(X, means, bags, self.n_combinations, self.ridge, self.random_state)

    def _check_parameters(self) -> None:
        _check_combination(self.n_combinations, self.ridge)


class BagCombinationClassifier(Binary):
    """The same for the share of class 1: a linear probability, clipped to [0, 1].

    Parameters
    ----------
    n_combinations, ridge, random_state
        As in `BagCombinationRegressor`.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in scikit-learn.

    Notes
    -----
    Guarantees and limits as of `BagCombinationRegressor`; two classes.

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> model = BagCombinationClassifier(random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """

    _link: ClassVar[str] = "identity"

    def __init__(
        self, n_combinations: int | str = "auto", ridge: float = 1.0, random_state: Any = None
    ) -> None:
        self.n_combinations = n_combinations
        self.ridge = ridge
        self.random_state = random_state

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        return _fit(X, shares, bags, self.n_combinations, self.ridge, self.random_state)

    def _check_parameters(self) -> None:
        _check_combination(self.n_combinations, self.ridge)


def combine(values: FloatArray, n_combinations: int, rng: Any) -> FloatArray:
    """Σ_a w_ga v_a of each g, with w_ga = ±1/√q: from shape (m, …) to (q, …)."""
    found = np.empty((n_combinations, *values.shape[1:]))
    block = max(1, ENTRIES // len(values))
    for start in range(0, n_combinations, block):
        count = min(block, n_combinations - start)
        signs = 2.0 * rng.randint(2, size=(count, len(values))) - 1
        found[start : start + count] = signs @ values
    return np.asarray(found / np.sqrt(n_combinations))


def _fit(
    X: FloatArray, means: FloatArray, bags: Bags, count: int | str, ridge: float, seed: Any
) -> tuple[FloatArray, float]:
    centre, middle = X.mean(axis=0), overall(means, bags)
    table = np.column_stack([bags.mean(X) - centre, means - middle]) * np.sqrt(bags.sizes)[:, None]
    count = min(bags.n_bags, MOST) if isinstance(count, str) else int(count)
    both = combine(table, count, check_random_state(seed))
    coef = (
        Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(both[:, :-1], both[:, -1]).coef_
    )
    return coef, float(middle - coef @ centre)


def _check_combination(count: int | str, ridge: float) -> None:
    if isinstance(count, str):
        _check.choice("n_combinations", count, ("auto",))
    else:
        _check.whole("n_combinations", count, low=1, remedy="As many as bags is usual")
    _check.number("ridge", ridge, low=0, high=1e100, remedy="0 is none")
