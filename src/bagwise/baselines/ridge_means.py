r"""Ridge regression on the means of bags: the plainest of all methods."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, Linear
from bagwise.estimators.contract import FloatArray


class RidgeMeansRegressor(Linear):
    r"""Ridge regression of bag means on means of features.

    It minimises, over coefficients θ and intercept b,

        Σ_a k_a (ȳ_a − x̄_aᵀθ − b)² + ridge ‖θ‖²

    Parameters
    ----------
    ridge : float
        At least 0, in the units of scikit-learn's ``Ridge(alpha)``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float

    Notes
    -----
    Assumes that the mean response is linear in the features; nothing of the bags, but that features
    differ between them.
    Guarantees: it is `AggregateLinearRegression` at rho = 0 with the same ridge above 0, and rows
    are not needed, only their means.
    Limits: what varies within bags is not used; with few bags the ridge matters much.
    Reference: equation 7 of Javanmard et al. (2024) at rho = 0; the usual floor of comparisons.

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> bags = Bags.random(1000, 10, random_state=0)
    >>> model = RidgeMeansRegressor(ridge=0.1)
    >>> model.fit(X, bags.expand(bags.mean(X @ [1.0, 2.0])), bags).coef_.round(1).tolist()
    [1.0, 2.0]
    """

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def _learn(self, X: FloatArray, means: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        return ridge_of_means(bags.mean(X), means, bags.sizes, self.ridge)

    def _check_parameters(self) -> None:
        _check.number("ridge", self.ridge, low=0, high=1e100, remedy="0 is none")


class RidgeMeansClassifier(Binary):
    """The same for the share of class 1: a linear probability, clipped to [0, 1].

    Parameters
    ----------
    ridge : float
        As in `RidgeMeansRegressor`.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in scikit-learn.

    Notes
    -----
    Guarantees: rows are ordered as by `RidgeMeansRegressor`; a row is of class 1 above 1/2.
    Limits: two classes. Probabilities are clipped, and linear only in between.

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> RidgeMeansClassifier().fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """

    _link: ClassVar[str] = "identity"

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        return ridge_of_means(bags.mean(X), shares, bags.sizes, self.ridge)

    def _check_parameters(self) -> None:
        _check.number("ridge", self.ridge, low=0, high=1e100, remedy="0 is none")


def ridge_of_means(
    X: FloatArray, y: FloatArray, weights: NDArray[Any], ridge: float
) -> tuple[FloatArray, float]:
    """θ and b of the least Σ_a w_a (y_a − x_aᵀθ − b)² + ridge ‖θ‖²."""
    found = Ridge(alpha=ridge, solver="svd").fit(X, y, sample_weight=weights)
    return found.coef_, float(found.intercept_)
