"""What boosting estimators share: binned rows, rho and rounds from held-out bags, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise import _check
from bagwise._extras import need
from bagwise._progress import Progress, bar, silent
from bagwise.bags import Bags
from bagwise.boosting.links import mean_of
from bagwise.boosting.objective import Objective
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.calibration import check_calibrate, fit_calibration
from bagwise.estimators.categories import (
    Categories,
    check_categorical_features,
    refuse_named_categories,
)
from bagwise.estimators.contract import whole_or_not
from bagwise.estimators.glm_problem import Problem
from bagwise.estimators.information import bag_weights, read_noise, released_noise
from bagwise.estimators.saved_trees import load_trees, save_trees
from bagwise.losses import KINDS, check_rho
from bagwise.released import Release

FloatArray: TypeAlias = NDArray[np.float64]
#: rhos that "cv" tries
RHO_GRID = (0.0, 0.001, 0.01, 0.1, 1.0)
#: fewest and most leaves that "auto" gives a tree; the most are LightGBM's own
LEAVES = (4, 31)


@dataclass(eq=False, repr=False, kw_only=True)
class Boosting(BaseEstimator):
    """What boosting estimators share; subclasses say what they predict."""

    rho: float | str = "cv"
    kind: str = "instance"
    n_estimators: int = 500
    learning_rate: float = 0.1
    num_leaves: int | str = "auto"
    min_child_samples: int = 20
    reg_lambda: float = 0.0
    colsample_bytree: float = 1.0
    categorical_features: str | Sequence[str | int] | None = "auto"
    monotone_constraints: Sequence[int] | Mapping[str, int] | None = None
    early_stopping: bool = True
    patience: int = 20
    validation_share: float = 0.15
    random_state: Any = None
    n_jobs: int | None = None
    progress: bool = False

    _loss: ClassVar[str] = "squared"

    # Fitting

    def _fit(self, X: Any, means: FloatArray, bags: Bags, noise_scale: Any) -> None:
        """Grow trees on rows in memory, with means of shape (m, K)."""
        noise = read_noise(noise_scale, bags)
        encoder: Categories | None = getattr(self, "encoder_", None)
        self._train(X, means, bags, noise, [] if encoder is None else encoder.places)

    def fit_release(
        self, release: Release | BagTable, features: Sequence[str] | None = None
    ) -> Self:
        """Fit from a Release or a BagTable, whose rows are read a row group at a time.

        Parameters
        ----------
        release : Release or BagTable
            The noise of a Release weighs its bags.
        features : sequence of str
            Columns to take; by default all. Text becomes categories.
        """
        need("lightgbm", "boosting")
        from bagwise.boosting.training import GroupRows

        self._check_parameters()
        refuse_named_categories(self.categorical_features)
        with whole_or_not(self):
            encoder = Categories(release.encoder(features).columns)
            self.encoder_ = encoder
            self.feature_names_in_ = np.array(encoder.names, dtype=object)
            self.n_features_in_ = len(encoder.names)
            noise = released_noise(release)
            means = self._released_means(release)[:, None]
            kept: dict[str, Any] = {}
            bags = Bags(np.repeat(np.arange(len(means)), release.sizes))
            rows = [GroupRows(group, encoder, kept) for group in release.row_groups()]
            self._train(rows, means, bags, noise, encoder.places)
        return self

    def _train(
        self,
        rows: Any,
        means: FloatArray,
        bags: Bags,
        noise: FloatArray | None,
        categorical: Sequence[int],
    ) -> None:
        """Bin rows once; choose rho and rounds on held-out bags; grow trees on all bags."""
        need("lightgbm", "boosting")
        from bagwise.boosting.training import Settings, bin_rows, grow

        if self._loss == "log":
            # Noise leads past the ends, where the log loss has no minimum.
            means = np.clip(means, 0, 1)
        loss = self._loss if means.shape[1] == 1 else "cross"
        weights = np.ones(bags.n_bags)
        if noise is not None:
            weights = bag_weights(bags.sizes, noise, self._variance(means, bags.sizes, noise))
        # At rho = 0 and at rho = 1 alike, a bag of one row is a row.
        search = self.rho == "cv" and bags.sizes.max() > 1
        rhos = RHO_GRID if search else (0.0 if self.rho == "cv" else float(self.rho),)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        aside = self._hold_out(bags.n_bags, seed)
        options = self._options(bags, seed, categorical)
        data = bin_rows(_plain(rows), bags.n_rows, categorical, options)
        patience = self.patience if self.early_stopping else 0
        settings = Settings(self.n_estimators, patience, self.learning_rate, options)
        losses, rounds, held_scores = {}, self.n_estimators, None
        best = rhos[0]
        if aside.any():
            lowest = np.inf
            for rho in rhos:
                objective = Objective(means, bags, weights * ~aside, rho, self.kind, loss)
                grown = grow(data, objective, settings, weights * aside, self._progress(rho))
                held = grown.losses
                last = int(np.argmin(held)) if self.early_stopping and held else len(held) - 1
                losses[rho] = held[last] if held else np.inf
                if losses[rho] < lowest:
                    lowest, best, rounds = losses[rho], rho, max(last + 1, 1)
                    held_scores = grown.scores
        objective = Objective(means, bags, weights, best, self.kind, loss)
        settings = Settings(rounds, 0, self.learning_rate, options)
        found = grow(data, objective, settings, None, self._progress(best))
        self.booster_, self.start_ = found.booster.free_dataset(), found.start
        self.rho_, self.held_out_losses_ = float(best), losses
        self.rho_source_ = "cv" if search else "given" if self.rho != "cv" else "bags of one row"
        self.n_estimators_ = int(self.booster_.current_iteration())
        self.calibration_ = self._calibrated(held_scores, means, bags, noise, aside)

    def _calibrated(
        self,
        scores: FloatArray | None,
        means: FloatArray,
        bags: Bags,
        noise: FloatArray | None,
        aside: NDArray[np.bool_],
    ) -> tuple[float, FloatArray]:
        """Stretch and shift of the scores by which held-out bags lose least, where asked for."""
        K = means.shape[1]
        if self._calibrate is None or scores is None:
            return 1.0, np.zeros(K)
        link = "sigmoid" if K == 1 else "softmax"
        # That of counts knows of noise; where bags act on their rows, that of means errs less.
        likelihood = "count" if K == 1 and noise is not None else "mean"
        whole = Problem(
            X=scores,
            means=means,
            bags=bags,
            link=link,
            likelihood=likelihood,
            kind="instance",
            fit_intercept=True,
            weights=np.ones(bags.n_bags),
            noise=noise,
        )
        held = whole.part(aside)
        return fit_calibration(held.X, held)

    @property
    def _calibrate(self) -> str | None:
        found: str | None = getattr(self, "calibrate", None)
        return found

    def _hold_out(self, n_bags: int, seed: int) -> NDArray[np.bool_]:
        """Which bags early stopping and the choice of rho look at."""
        aside = np.zeros(n_bags, dtype=bool)
        if isinstance(self.rho, str) and n_bags < 2:
            got = f"rho={self.rho!r} with n_bags=1 (n_samples=1 where bags is None)"
            _check.refuse("rho", "a number when there is one bag", got, "Pass rho=1.0, say")
        if n_bags < 2 or not (self.early_stopping or self.rho == "cv" or self._calibrate):
            return aside
        count = min(n_bags - 1, max(1, round(self.validation_share * n_bags)))
        aside[np.random.default_rng(seed).choice(n_bags, count, replace=False)] = True
        return aside

    def _options(self, bags: Bags, seed: int, categorical: Sequence[int]) -> dict[str, Any]:
        """Parameters by LightGBM's names."""
        found = {
            "num_leaves": self._leaves(bags),
            "min_data_in_leaf": self.min_child_samples,
            "lambda_l2": self.reg_lambda,
            "feature_fraction": self.colsample_bytree,
            "seed": seed,
            "num_threads": max(self.n_jobs or 0, 0),
        }
        signs = self.monotone_constraints
        if signs is None:
            return found
        if isinstance(signs, Mapping):
            names = list(getattr(self, "feature_names_in_", ()))
            for name in signs:
                if name not in names:
                    got = repr(name)
                    _check.refuse("monotone_constraints", "of columns of X", got, "Check it")
            signs = [signs.get(name, 0) for name in names]
        signs = [int(sign) for sign in signs]
        if len(signs) != self.n_features_in_ or not set(signs) <= {-1, 0, 1}:
            got = f"{len(signs)} entries for {self.n_features_in_} columns, or others"
            rule = "-1, 0 or 1 for each column"
            _check.refuse("monotone_constraints", rule, got, "Or map names to them")
        if any(signs[place] for place in categorical):
            got = "one of a category"
            _check.refuse("monotone_constraints", "of numbers", got, "Levels have no order")
        return found | {"monotone_constraints": signs}

    def _leaves(self, bags: Bags) -> int:
        """Leaves of a tree: bags are what is observed, and few of them bear small trees only."""
        if self.num_leaves != "auto":
            return int(self.num_leaves)
        alone = bags.n_bags == bags.n_rows
        return LEAVES[1] if alone else int(np.clip(round(bags.n_bags**0.5 / 6), *LEAVES))

    def _progress(self, rho: float) -> Progress:
        return bar(f"Boosting, rho = {rho:g}") if self.progress else silent

    # Predicting

    def _means(self, X: Any) -> FloatArray:
        """Predicted means of rows, shape (n, K)."""
        check_is_fitted(self)
        return self._forward(self._validate_features(X, reset=False))

    def _forward(self, X: Any) -> FloatArray:
        """Predicted means of rows that are numbers, in the order of the features."""
        threads = max(self.n_jobs or 0, 0)
        scores = self.booster_.predict(_plain(X), raw_score=True, num_threads=threads)
        K = len(self.start_)
        loss = self._loss if K == 1 else "cross"
        a, b = self.calibration_
        return mean_of(a * (np.asarray(scores).reshape(-1, K) + self.start_) + b, loss)

    @property
    def importances_(self) -> dict[str, float]:
        """Share of each feature in the gain of all splits, the largest first."""
        check_is_fitted(self)
        gain = self.booster_.feature_importance("gain")
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(len(gain))])
        shares = gain / max(gain.sum(), 1e-300)
        order = np.argsort(-shares, kind="stable")
        return {str(names[i]): float(shares[i]) for i in order}

    # Files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a new folder, as JSON and LightGBM's own text."""
        check_is_fitted(self)
        save_trees(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in the folder is ever executed."""
        return load_trees(cls(), Path(path))

    # Parameters

    def _check_parameters(self) -> None:
        if isinstance(self.rho, str):
            if self.rho != "cv":
                got = f"rho={self.rho!r}"
                _check.refuse("rho", "in [0, 1] or 'cv'", got, "Check the spelling")
        else:
            check_rho(self.rho)
        _check.choice("kind", self.kind, KINDS)
        check_calibrate(self._calibrate)
        _check.whole("n_estimators", self.n_estimators, low=1, remedy="500 is usual")
        if self.num_leaves != "auto":
            _check.whole("num_leaves", self.num_leaves, low=2, remedy="Or 'auto'")
        _check.whole("min_child_samples", self.min_child_samples, low=1, remedy="20 is usual")
        _check.whole("patience", self.patience, low=1, remedy="20 is usual")
        remedy, rate = "0.1 is usual", self.learning_rate
        _check.number("learning_rate", rate, low=0, high=1, above=True, remedy=remedy)
        _check.number("reg_lambda", self.reg_lambda, low=0, remedy="0 is none")
        part = self.colsample_bytree
        _check.number("colsample_bytree", part, low=0, high=1, above=True, remedy="1 is all")
        share = self.validation_share
        _check.number("validation_share", share, low=0, high=1, above=True, remedy="0.15, say")
        check_categorical_features(self.categorical_features)


def _plain(X: Any) -> Any:
    """Rows as LightGBM takes them: of sparse ones it knows matrices only."""
    return sp.csr_matrix(X) if sp.issparse(X) else X
