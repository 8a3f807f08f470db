"""Models tried on bags: each is fitted, predicts bags that it has not seen, and is weighed by that.

What time there is goes to whole fits first, in the order of the names, then to held-out bags. The
first model is fitted however long it takes, and one part of the bags is held out in any case: what
the fits have chosen is kept, so that takes less time than they did.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise.estimators.members import FEWEST, MEMBERS, Asked, Member, Training
from bagwise.estimators.stacking import error_products, expected_weights

FloatArray: TypeAlias = NDArray[np.float64]
#: parts into which bags are cut, and how many bags held out are enough
FOLDS, ENOUGH = 5, 1000
#: the overall mean, as a model among others
MEAN = "mean"
#: α of what is preferred before any bag has been held out, for responses and for classes
PRIOR = ({"linear": 8.0}, {"logistic": 8.0})
#: rows on which a model's time is measured before it is given a table of more than twice as many
PILOT = 20_000


@dataclass
class Trial:
    """What is tried, and what came of it.

    Attributes
    ----------
    training : Training
    names : sequence of str
        Of `MEMBERS`.
    asked : Asked
    time_limit : float
        Seconds.
    bag_weights : array of shape (n_bags,)
        What a bag's error counts: its rows, less what noise hides.
    members, weights, losses : dict from name
        Fitted models, what each says, and the squared error of its means of held-out bags; where
        there is more than one, the overall "mean" has a say, too.
    left_out : dict from name
        Why a model is not among them.
    joint : float
        That error of all together.
    n_held_out : int
        Bags.
    """

    training: Training
    names: Sequence[str]
    asked: Asked
    time_limit: float
    bag_weights: FloatArray
    members: dict[str, Member] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    joint: float = float("nan")
    n_held_out: int = 0

    @property
    def centre(self) -> FloatArray:
        """The overall mean, shape (K,)."""
        return self._centre(np.ones(len(self.bag_weights), dtype=bool))

    def _centre(self, chosen: NDArray[np.bool_]) -> FloatArray:
        weights = self.bag_weights[chosen]
        return np.asarray(weights @ self.training.means[chosen] / weights.sum())

    def steps(self) -> Iterator[str]:
        """Do it all; gives a name whenever a fit is done."""
        self._start = time.monotonic()
        for name in self.names:
            if name == "neural" and self.training.bags.n_bags < FEWEST:
                self.left_out[name] = f"it is not tried on fewer than {FEWEST} bags"
                continue
            if self.members and not self._has_time(name):
                continue
            self.members[name] = self._fit(name, self.training)
            yield name
        if len(self.members) == 1:
            self.weights = dict.fromkeys(self.members, 1.0)
            return
        yield from self._hold_out(self._folds())

    def _left(self) -> float:
        return self.time_limit - (time.monotonic() - self._start)

    def _fit(self, name: str, training: Training) -> Member:
        return MEMBERS[name][0](training, self.asked)

    def _has_time(self, name: str) -> bool:
        """Whether there is time for one more model, by a pilot where there are many rows."""
        left, limit = self._left(), f"time_limit={self.time_limit:g}"
        if left <= 0:
            self.left_out[name] = f"no time was left for it, with {limit}"
        elif (needed := self._foretold(name)) > self._left():
            self.left_out[name] = f"it would take about {needed:.0f} s, with {limit}"
        return name not in self.left_out

    def _foretold(self, name: str) -> float:
        """Seconds that a fit to all rows will take, from one to some of them; 0 for few rows."""
        bags = self.training.bags
        if bags.n_rows <= 2 * PILOT:
            return 0.0
        order = np.random.default_rng(self.asked.seed).permutation(bags.n_bags)
        chosen = np.zeros(bags.n_bags, dtype=bool)
        # At least two, for one bag tells nothing.
        count = max(2, int(np.searchsorted(np.cumsum(bags.sizes[order]), PILOT, "right")))
        chosen[order[:count]] = True
        part = self.training.part(chosen)
        if not self._tells(part):
            return 0.0
        began = time.monotonic()
        self._fit(name, part)
        return (time.monotonic() - began) * bags.n_rows / part.bags.n_rows

    def _folds(self) -> list[NDArray[np.bool_]]:
        """Which bags each fold leaves out, as many folds as there is use for."""
        n_bags = self.training.bags.n_bags
        parts = min(FOLDS, n_bags)
        use = min(parts, ceil(parts * ENOUGH / n_bags))
        of_bag = np.random.default_rng(self.asked.seed).permutation(np.arange(n_bags) % parts)
        folds = [of_bag == fold for fold in range(use)]
        return [aside for aside in folds if self._tells(self.training.part(~aside))]

    def _tells(self, part: Training) -> bool:
        """Whether a model could be fitted: to two bags or more, and of classes to two."""
        shares = part.means
        if part.bags.n_bags < 2 or not self.asked.classes:
            return part.bags.n_bags > 1
        if shares.shape[1] == 1:
            return bool(shares.max() > 0 and shares.min() < 1)
        return int((shares.max(axis=0) > 0).sum()) > 1

    def _hold_out(self, folds: list[NDArray[np.bool_]]) -> Iterator[str]:
        """Weigh the members by what they predict for bags that they have not seen."""
        names = [*self.members, MEAN]
        preferred = PRIOR[self.asked.classes]
        prior = np.array([preferred.get(name, 1.0) for name in names])
        errors: list[FloatArray] = []
        weights: list[FloatArray] = []
        took = 0.0
        for aside in folds:
            # One like the last must fit in what is left.
            if errors and took > self._left():
                break
            began = time.monotonic()
            train, held = self.training.part(~aside), self.training.part(aside)
            of_fold = []
            for name, member in self.members.items():
                guess = held.bags.mean(member.again(train).means(held.codes))
                of_fold.append(held.means - guess)
                yield name
            of_fold.append(held.means - self._centre(~aside))
            errors.append(np.array(of_fold))
            weights.append(self.bag_weights[aside])
            took = time.monotonic() - began
        if not errors:
            # No bag has spoken.
            self.weights = dict(zip(names, (prior / prior.sum()).tolist(), strict=True))
            return
        v = np.concatenate(weights)
        products = error_products(np.concatenate(errors, axis=1), v)
        found = expected_weights(products, float(v.sum() ** 2 / (v**2).sum()), prior)
        self.weights = dict(zip(names, found.tolist(), strict=True))
        self.losses = dict(zip(names, np.diag(products).tolist(), strict=True))
        self.joint = float(found @ products @ found)
        self.n_held_out = len(v)
