"""How well predictions fit: sums that pieces of a table add up to, and the scores made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise import _check

FloatArray: TypeAlias = NDArray[np.float64]
# Steps of a probability that are told apart, and the groups in which they are held against shares.
STEPS, GROUPS = 20_000, 20
# Probabilities nearer to 0 or 1 count as this near, as in the losses.
SURE = 1e-15


@dataclass(frozen=True)
class Scores:
    """How well predictions fit.

    Attributes
    ----------
    n : int
        Rows, or bags.
    rmse, mae, r2 : float
        Of rows; for bags, of their means, a bag weighing as much as its rows.
    """

    n: int
    rmse: float
    mae: float
    r2: float


class Sums:
    """Sums from which scores are made, about a first guess at the mean so that no digit is lost."""

    def __init__(self) -> None:
        self.n, self.totals, self.near = 0, np.zeros(5), 0.0

    def add(self, y: FloatArray, predictions: FloatArray, weights: Any = None) -> None:
        """Take in responses and what was predicted for them."""
        if not self.n:
            self.near = float(y.mean())
        w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
        error, about = y - predictions, y - self.near
        terms = (np.ones(len(y)), error**2, np.abs(error), about, about**2)
        self.totals += [float(w @ term) for term in terms]
        self.n += len(y)

    def __add__(self, other: Sums) -> Sums:
        if not (self.n and other.n):
            return self if self.n else other
        both, step = Sums(), other.near - self.near
        weight, square, absolute, about, about_square = other.totals
        # The same sums about our own guess.
        moved = (about + weight * step, about_square + 2 * step * about + weight * step**2)
        both.near, both.n = self.near, self.n + other.n
        both.totals = self.totals + np.array([weight, square, absolute, *moved])
        return both

    def scores(self) -> Scores:
        """The scores of what was taken in."""
        weight, square, absolute, about, about_square = self.totals
        spread = about_square - about**2 / weight
        # Where nothing varies, scikit-learn's convention.
        r2 = 1 - square / spread if spread > 0 else float(square == 0)
        return Scores(self.n, float(np.sqrt(square / weight)), absolute / weight, r2)


@dataclass(frozen=True)
class ProbabilityScores:
    """How well probabilities fit labels of rows, 0 or 1.

    Attributes
    ----------
    n : int
    accuracy : float
        Share of rows whose likelier class is theirs.
    auc : float
        How often a 1 has a larger probability than a 0, to four digits; NaN with one class.
    log_loss : float
    calibration_error : float
        Rows are put in 20 groups by their probability: the mean over rows of how far the share of
        1 in their group is from the mean probability in it.
    """

    n: int
    accuracy: float
    auc: float
    log_loss: float
    calibration_error: float


class Labels:
    """Counts of labels by probability, in constant memory."""

    def __init__(self) -> None:
        self.binary, self.lost = True, 0.0
        # By step: how many 0, how many 1, and the sum of the probabilities; one 0 for none.
        self.table = np.zeros((3, 1))

    def add(self, y: FloatArray, p: FloatArray) -> None:
        """Take in labels and the probabilities of a 1; other responses are remembered as such."""
        if not (self.binary and np.isin(y, (0, 1)).all()):
            self.binary = False
            return
        p = np.clip(p, 0, 1)
        step = np.floor(p * STEPS).astype(np.int64)
        counts = [np.bincount(step, weights, minlength=STEPS + 1) for weights in (1 - y, y, p)]
        self.table = self.table + np.array(counts)
        right = np.where(y == 1, p, 1 - p)
        self.lost -= float(np.log(np.maximum(right, SURE)).sum())

    def __add__(self, other: Labels) -> Labels:
        both = Labels()
        both.binary = self.binary and other.binary
        both.lost, both.table = self.lost + other.lost, self.table + other.table
        return both

    def scores(self) -> ProbabilityScores | None:
        """The scores; None where labels were not 0 and 1, or there were none."""
        if not (self.binary and self.table.any()):
            return None
        zeros, ones, sums = self.table
        n = round(float(zeros.sum() + ones.sum()))
        half = STEPS // 2
        pairs = zeros.sum() * ones.sum()
        # A 1 beats the zeros below it, and half of those in its step.
        won = ones @ (np.cumsum(zeros) - zeros / 2)
        groups = np.minimum(np.arange(STEPS + 1) * GROUPS // STEPS, GROUPS - 1)
        apart = np.bincount(groups, ones - sums, minlength=GROUPS)
        return ProbabilityScores(
            n=n,
            accuracy=float((zeros[:half].sum() + ones[half:].sum()) / n),
            auc=float(won / pairs) if pairs else float("nan"),
            log_loss=self.lost / n,
            calibration_error=float(np.abs(apart).sum() / n),
        )


def probability_scores(y: Any, probabilities: Any) -> ProbabilityScores:
    """Accuracy, AUC, log loss and calibration error of probabilities against labels of rows.

    Parameters
    ----------
    y : sequence of 0 and 1
    probabilities : sequence of length n_rows
        Of a 1.

    Examples
    --------
    >>> found = probability_scores([0, 0, 1, 1], [0.1, 0.6, 0.5, 0.9])
    >>> found.accuracy, found.auc
    (0.75, 0.75)
    """
    labels = Labels()
    labels.add(np.asarray(y, dtype=np.float64), np.asarray(probabilities, dtype=np.float64))
    found = labels.scores()
    if found is None:
        _check.refuse("y", "labels 0 and 1", "others", "Compare with the class of interest")
    return found
