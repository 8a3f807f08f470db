r"""Proportion-SVM: labels of rows and the machine, found in turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from bagwise import _check
from bagwise.bags import Bags
from bagwise.baselines.binary import Binary, platt
from bagwise.estimators.contract import FloatArray

# What the penalty of liblinear on the intercept is divided by, and where annealing starts.
SCALE, COLD = 10.0, 1e-5


class ProportionSVMClassifier(Binary):
    r"""A support vector machine whose own labels meet the shares of bags.

    Over coefficients θ, intercept b and labels t_i of −1 and 1, with r_a the share of 1 among the
    labels of bag a, it minimises by turns

        ½ ‖θ‖² + C Σ_i max(0, 1 − t_i f_i)² + share_penalty Σ_a |r_a − γ_a|,    f_i = x_iᵀθ + b

    For given labels that is a support vector machine. For a given machine the best labels are read
    off by sorting: in each bag the rows that gain most become 1, and each count is tried.

    Parameters
    ----------
    C : float
        Above 0. Turns begin with a weak C, which grows to this one.
    share_penalty : float
        At least 0; infinite makes labels meet shares as closely as whole rows can.
    n_starts : int
        Random labels from which to begin; the least objective is kept.
    n_steps : int
        Steps in which C grows.
    random_state : int, RandomState or None

    Attributes
    ----------
    objective_ : float
        Of the start that is kept.
    objectives_ : list of ndarray
        For each step, the objective after each turn of that start.
    labels_ : ndarray of shape (n_rows,)
        The labels found, −1 and 1.
    classes_, coef_, intercept_
        As in scikit-learn; stretched and shifted as Platt does, by the least bag-level log loss.

    Notes
    -----
    Assumes that a wide margin separates the classes.
    Guarantees: at one C no turn raises the objective; bags of one row give the support vector
    machine of their labels.
    Limits: two classes; linear; not convex. Slack is squared where the paper has it plain, and the
    intercept is penalised, by b² / 200 about the mean of the rows.
    Reference: Yu, Liu, Kumar, Jebara, Chang, "∝SVM for learning with label proportions" (2013).

    Examples
    --------
    >>> from bagwise import Bags
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(1000, 4, random_state=0)
    >>> model = ProportionSVMClassifier(random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.95
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        share_penalty: float = np.inf,
        n_starts: int = 3,
        n_steps: int = 10,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.share_penalty = share_penalty
        self.n_starts = n_starts
        self.n_steps = n_steps
        self.random_state = random_state

    def _learn(self, X: FloatArray, shares: FloatArray, bags: Bags) -> tuple[FloatArray, float]:
        # About the mean, since liblinear penalises the intercept too.
        centre = X.mean(axis=0)
        X = X - centre
        rng, self.objective_, best = check_random_state(self.random_state), np.inf, np.zeros(0)
        steps = self.C * np.geomspace(COLD, 1, self.n_steps) if self.n_steps > 1 else [self.C]
        for _ in range(self.n_starts):
            labels, trace = relabel(rng.uniform(size=len(X)), shares, bags, np.inf), []
            for C in steps:
                machine, labels, values = self._turns(X, labels, shares, bags, float(C))
                trace.append(values)
            if trace[-1][-1] < self.objective_:
                self.objective_, self.objectives_ = float(trace[-1][-1]), trace
                best, self.labels_ = machine, labels
        coef, intercept = platt(X, best[:-1], float(best[-1]), shares, bags)
        return coef, intercept - float(coef @ centre)

    def _turns(
        self, X: FloatArray, labels: NDArray[Any], shares: FloatArray, bags: Bags, C: float
    ) -> tuple[FloatArray, NDArray[Any], FloatArray]:
        """Machine, labels and objectives, once neither changes."""
        values: list[float] = []
        for _ in range(50):
            machine = _machine(X, labels, C)
            f = X @ machine[:-1] + machine[-1]
            here = _objective(machine, f, labels, C)
            gain = C * (np.maximum(0, 1 + f) ** 2 - np.maximum(0, 1 - f) ** 2)
            found = relabel(gain, shares, bags, self.share_penalty)
            apart = [np.abs(bags.mean(t == 1) - shares).sum() for t in (labels, found)]
            p = self.share_penalty
            fees = [p * each if np.isfinite(p) else 0.0 for each in apart]
            values += [here + fees[0], _objective(machine, f, found, C) + fees[1]]
            if (found == labels).all() or values[-1] >= values[-2] - 1e-9 * abs(values[-2]):
                break
            labels = found
        return machine, labels, np.array(values)

    def _check_parameters(self) -> None:
        _check.number("C", self.C, low=0, high=1e100, above=True, remedy="1 is usual")
        remedy = "Infinite makes labels meet shares"
        _check.number("share_penalty", self.share_penalty, low=0, remedy=remedy)
        _check.whole("n_starts", self.n_starts, low=1, remedy="3 is usual")
        _check.whole("n_steps", self.n_steps, low=1, remedy="10 is usual")


def relabel(gain: FloatArray, shares: FloatArray, bags: Bags, share_penalty: float) -> Any:
    """Labels −1 and 1 of the least −Σ gain of rows labelled 1 + share_penalty Σ_a |r_a − γ_a|.

    For r rows of a bag the best are those of the greatest gain; each r is tried, in one sort. An
    infinite penalty takes the r nearest to k_a γ_a, of two as near the one that gains more.
    """
    order = np.lexsort((-gain, bags.codes))
    starts = np.concatenate([[0], np.cumsum(bags.sizes)[:-1]])
    bag = bags.codes[order]
    total = np.cumsum(gain[order])
    before = np.concatenate([[0.0], total])[starts]
    rank = np.arange(len(gain)) - starts[bag] + 1
    apart, none = np.abs(rank / bags.sizes[bag] - shares[bag]), np.abs(shares)
    cost, empty = before[bag] - total, np.zeros(len(shares))
    if np.isfinite(share_penalty):
        cost, empty = cost + share_penalty * apart, share_penalty * none
    else:
        least = np.minimum(np.minimum.reduceat(apart, starts), none) + 1e-9
        cost = np.where(apart <= least[bag], cost, np.inf)
        empty = np.where(none <= least, empty, np.inf)
    best = np.minimum.reduceat(cost, starts)
    at = np.minimum.reduceat(np.where(cost == best[bag], rank, len(gain) + 1), starts)
    counts = np.where(best < empty, at, 0)
    labels = np.empty(len(gain), dtype=np.int64)
    labels[order] = np.where(rank <= counts[bag], 1, -1)
    return labels


def _machine(X: FloatArray, labels: NDArray[Any], C: float) -> FloatArray:
    """θ and b of the least objective for given labels."""
    if (labels == labels[0]).all():
        return np.append(np.zeros(X.shape[1]), float(labels[0]))
    options = {"dual": False, "tol": 1e-6, "max_iter": 10_000, "intercept_scaling": SCALE}
    found = LinearSVC(C=C, **options).fit(X, labels)
    return np.append(found.coef_[0], found.intercept_[0])


def _objective(machine: FloatArray, f: FloatArray, labels: NDArray[Any], C: float) -> float:
    """The part that does not depend on shares, with liblinear's penalty on the intercept."""
    weight = 0.5 * float(machine[:-1] @ machine[:-1]) + 0.5 * float(machine[-1] / SCALE) ** 2
    return weight + C * float((np.maximum(0, 1 - labels * f) ** 2).sum())
