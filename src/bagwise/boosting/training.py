"""Rounds of LightGBM over one binned table, each tree's step held against the coupling of bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from bagwise._progress import Progress, silent
from bagwise.boosting.objective import FloatArray, Objective
from bagwise.encoding import Encoder
from bagwise.row_groups import RowGroup

# The same trees on every run, and not a word.
ALWAYS = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "feature_pre_filter": False,
}


@dataclass(frozen=True)
class Settings:
    """How trees are grown.

    Attributes
    ----------
    rounds : int
        At most.
    patience : int
        Rounds without a lower loss of held-out bags after which to stop; 0 is never.
    learning_rate : float
    options : dict
        Further parameters by LightGBM's names.
    """

    rounds: int
    patience: int = 0
    learning_rate: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Grown:
    """What came of it.

    Attributes
    ----------
    booster : lightgbm.Booster
    start : ndarray of shape (K,)
        The score before the first tree, with all the constants that rounds added.
    losses : list of float
        Of held-out bags after each round, where some were held out.
    scores : ndarray of shape (n, K)
        Of all rows, after the round of the least loss of held-out bags where that ends the growth.
    """

    booster: Any
    start: FloatArray
    losses: list[float]
    scores: FloatArray


class GroupRows(lgb.Sequence):
    """Rows of a row group, for LightGBM to read twice: some to choose bins, then all of them."""

    def __init__(self, group: RowGroup, encoder: Encoder, kept: dict[str, Any]) -> None:
        self._group, self._encoder, self._kept = group, encoder, kept

    def __len__(self) -> int:
        return int(self._group.sizes.sum())

    def __getitem__(self, rows: Any) -> FloatArray:
        if self._kept.get("of") is not self:
            # One row group at a time is held.
            self._kept.clear()
            table = self._group.read(list(self._encoder.columns))
            self._kept.update(of=self, rows=self._encoder.encode(table))
        return np.asarray(self._kept["rows"][rows])


def bin_rows(
    rows: Any, n_rows: int, categorical: Sequence[int], options: dict[str, Any]
) -> lgb.Dataset:
    """Rows in bins, all that LightGBM keeps of them: an array, or a list of `GroupRows`."""
    data = lgb.Dataset(
        rows,
        label=np.zeros(n_rows, dtype=np.float32),
        categorical_feature=list(categorical),
        params=ALWAYS | options,
    )
    return data.construct()


def grow(
    data: lgb.Dataset,
    objective: Objective,
    settings: Settings,
    held_out: FloatArray | None = None,
    progress: Progress = silent,
) -> Grown:
    """Trees that lower the objective; those of bags with no weight look at ``held_out`` of them."""
    start, K = objective.start(), objective.means.shape[1]
    options = {"objective": "none", "metric": "none", "num_class": K}
    options |= {"learning_rate": settings.learning_rate}
    booster = lgb.Booster(ALWAYS | options | settings.options, data)
    scores = np.tile(start, (objective.bags.n_rows, 1)).reshape(-1, K, order="F")
    found, before = Grown(booster, start, [], scores), np.zeros_like(scores)
    for _ in progress(range(settings.rounds), settings.rounds):
        at = objective.at(scores)
        given = (_flat(at.gradient), _flat(at.hessian))
        if booster.update(fobj=lambda *_, given=given: given):
            break
        now = _train_scores(booster).reshape(-1, K, order="F")
        np.subtract(now, before, out=before)
        step, before = before, now
        part, constant = at.length(step / settings.learning_rate)
        if part < 1:
            _shorten(booster, part)
        constant *= settings.learning_rate
        step *= part
        scores += step
        scores += constant
        found.start = found.start + constant
        if held_out is not None:
            found.losses.append(objective.loss_of_bags(scores, held_out))
            worse = len(found.losses) - 1 - int(np.argmin(found.losses))
            if settings.patience and not worse:
                found.scores = scores.copy()
            if settings.patience and worse >= settings.patience:
                break
    return found


def _flat(values: FloatArray) -> NDArray[np.float32]:
    """As LightGBM takes it."""
    found = values.astype(np.float32)
    return found[:, 0] if found.shape[1] == 1 else found


def _train_scores(booster: lgb.Booster) -> FloatArray:
    """What LightGBM holds for the scores of its rows: sums of trees as it grew them."""
    seen: list[FloatArray] = []

    def look(scores: FloatArray, _: Any) -> tuple[str, float, bool]:
        seen.append(scores.copy())
        return "", 0.0, False

    booster.eval_train(look)
    return seen[0]


def _shorten(booster: lgb.Booster, part: float) -> None:
    """Multiply the leaves of the last round's trees."""
    number, per_round = booster.current_iteration() - 1, booster.num_model_per_iteration()
    trees = booster.dump_model(start_iteration=number, num_iteration=1)["tree_info"]
    for i, tree in enumerate(trees, start=number * per_round):
        for leaf in range(tree["num_leaves"]):
            booster.set_leaf_output(i, leaf, part * booster.get_leaf_output(i, leaf))
