"""The models that `AggregateRegressor` and `AggregateClassifier` try, each fitted with defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from bagwise.bags import Bags
from bagwise.estimators.boosting import AggregateBoostingClassifier, AggregateBoostingRegressor
from bagwise.estimators.glm import AggregateLogisticRegression
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.neural import AggregateMLPClassifier, AggregateMLPRegressor

FloatArray: TypeAlias = NDArray[np.float64]
#: levels of a column, the most frequent, that a linear model or a network tells apart
LEVELS = 100
#: boosted models whose predictions are averaged: they differ in held-out bags and columns
SEEDS = 3
#: bags below which a network is not tried
FEWEST = 50
#: rows that are predicted at a time
BLOCK = 2**16
#: many small steps, each with half of the columns and a little shrunk
BOOSTED = {
    "n_estimators": 1000,
    "learning_rate": 0.05,
    "colsample_bytree": 0.5,
    "reg_lambda": 1.0,
    "patience": 40,
}


@dataclass(frozen=True)
class Training:
    """What members learn from.

    Attributes
    ----------
    codes : array of shape (n_rows, n_columns)
        Numbers, and codes of categories; NaN where one is missing.
    means : array of shape (n_bags, K)
        Responses, or shares of classes: of the second alone where there are two.
    bags : Bags
    noise : array of shape (n_bags,) or None
        Laplace scale on each mean.
    """

    codes: FloatArray
    means: FloatArray
    bags: Bags
    noise: FloatArray | None

    def part(self, chosen: NDArray[np.bool_]) -> Self:
        """The rows of some of the bags."""
        rows = chosen[self.bags.codes]
        noise = None if self.noise is None else self.noise[chosen]
        # Bags are in order of their first rows, and stay so.
        bags = Bags(self.bags.codes[rows])
        return type(self)(self.codes[rows], self.means[chosen], bags, noise)

    def column(self, number: int) -> Self:
        """The same with one column of the means."""
        return replace(self, means=self.means[:, [number]])


@dataclass(frozen=True)
class Asked:
    """How members are to be fitted.

    Attributes
    ----------
    classes : bool
        Whether means are shares of classes.
    places : list of int
        Columns that are categories.
    seed, jobs
        As random_state and n_jobs of an estimator.
    """

    classes: bool
    places: list[int]
    seed: int
    jobs: int | None


@dataclass(frozen=True)
class Design:
    """Columns as linear models and networks take them: of one scale, and 0 or 1 for levels.

    Attributes
    ----------
    levels : list of None or list of int
        For each column the codes that are told apart, or None for a number.
    centre, scale : list of float
        For each column; a number that is missing counts as the mean.
    """

    levels: list[list[int] | None]
    centre: list[float]
    scale: list[float]

    @classmethod
    def of(cls, codes: FloatArray, places: list[int]) -> Design:
        """What these rows say of their columns, of which ``places`` are categories."""
        levels: list[list[int] | None] = []
        centre, scale = [], []
        for place, column in enumerate(codes.T):
            known = column[~np.isnan(column)]
            mean, spread = 0.0, 1.0
            if place in places:
                seen, counts = np.unique(known, return_counts=True)
                frequent = seen[np.argsort(-counts, kind="stable")[:LEVELS]]
                levels.append(sorted(int(level) for level in frequent))
            else:
                levels.append(None)
                mean = float(known.mean()) if len(known) else 0.0
                # Over all rows: those that are missing sit at the mean.
                spread = float((((known - mean) ** 2).sum() / len(column)) ** 0.5) or 1.0
            centre.append(mean)
            scale.append(spread)
        return cls(levels, centre, scale)

    def rows(self, codes: FloatArray) -> FloatArray:
        """Rows as numbers, shape (n_rows, …)."""
        parts = []
        for column, levels, mean, spread in zip(
            codes.T, self.levels, self.centre, self.scale, strict=True
        ):
            if levels is None:
                parts.append(np.nan_to_num((column - mean) / spread, nan=0.0)[:, None])
            else:
                parts.append((column[:, None] == np.array(levels)).astype(np.float64))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Member:
    """A fitted kind of model.

    Attributes
    ----------
    design : Design or None
        How it takes columns; None as they are.
    models : list of estimators
    by_column : bool
        Whether each of them predicts a column of the means; else each predicts all, and their mean
        is taken.
    """

    design: Design | None
    models: list[Any]
    by_column: bool = False

    def means(self, codes: FloatArray) -> FloatArray:
        """Predicted means of rows, shape (n_rows, K)."""
        blocks = (codes[first : first + BLOCK] for first in range(0, len(codes), BLOCK))
        return np.concatenate([self._block(block) for block in blocks])

    def _block(self, codes: FloatArray) -> FloatArray:
        X = codes if self.design is None else self.design.rows(codes)
        found = [_means(model, X) for model in self.models]
        return (
            np.concatenate(found, axis=1) if self.by_column else np.asarray(sum(found)) / len(found)
        )

    def again(self, training: Training) -> Member:
        """The same on other bags, with all that was chosen kept."""
        models = [clone(model).set_params(**_chosen(model)) for model in self.models]
        return self._fitted(models, training)

    def _fitted(self, models: list[Any], training: Training) -> Member:
        """Models fitted, each to what it predicts."""
        parts = [training] * len(models)
        if self.by_column:
            parts = [training.column(number) for number in range(len(models))]
        fitted = [_fit(model, part, self.design) for model, part in zip(models, parts, strict=True)]
        return replace(self, models=fitted)


def fit_linear(training: Training, asked: Asked) -> Member:
    """Linear regression of responses or of shares of classes, averaged over rho and ridge."""
    member = Member(Design.of(training.codes, asked.places), [], by_column=True)
    models = [
        AggregateLinearRegression("average", ridge="cv") for _ in range(training.means.shape[1])
    ]
    return member._fitted(models, training)


def fit_logistic(training: Training, asked: Asked) -> Member:
    """Logistic regression, with rho and ridge chosen."""
    member = Member(Design.of(training.codes, asked.places), [])
    return member._fitted([AggregateLogisticRegression()], training)


def fit_boosted(training: Training, asked: Asked) -> Member:
    """Boosted trees, several of them; the first chooses rho."""
    kind: Any = AggregateBoostingClassifier if asked.classes else AggregateBoostingRegressor
    models: list[Any] = []
    for more in range(SEEDS):
        rho = models[0].rho_ if models else "cv"
        model = kind(
            rho=rho,
            categorical_features=asked.places or None,
            random_state=asked.seed + more,
            n_jobs=asked.jobs,
            **BOOSTED,
        )
        models.append(_fit(model, training, None))
    return Member(None, models)


def fit_neural(training: Training, asked: Asked) -> Member:
    """A multilayer perceptron, with rho and epochs chosen."""
    member = Member(Design.of(training.codes, asked.places), [])
    kind: Any = AggregateMLPClassifier if asked.classes else AggregateMLPRegressor
    return member._fitted([kind(random_state=asked.seed)], training)


#: by the name that users know, the fit, and the package and extra that it needs
MEMBERS: dict[str, tuple[Callable[[Training, Asked], Member], str | None, str]] = {
    "linear": (fit_linear, None, ""),
    "logistic": (fit_logistic, None, ""),
    "boosted": (fit_boosted, "lightgbm", "boosting"),
    "neural": (fit_neural, "torch", "neural"),
}


def known(classes: bool) -> list[str]:
    """Names of the members for a response, or for classes."""
    return [name for name in MEMBERS if classes or name != "logistic"]


def lacking(name: str) -> str:
    """The extra that a member needs and that is not installed; empty where all is there."""
    _, package, extra = MEMBERS[name]
    return extra if package is not None and find_spec(package) is None else ""


def _fit(model: Any, training: Training, design: Design | None) -> Any:
    """An estimator fitted by its own contract."""
    X = training.codes if design is None else design.rows(training.codes)
    means, bags = training.means, training.bags
    noise: dict[str, Any] = {}
    if training.noise is not None:
        if isinstance(model, AggregateMLPClassifier | AggregateMLPRegressor):
            if is_classifier(model):
                means = np.clip(means, 0, 1)
                if means.shape[1] > 1:
                    # Of a bag whose shares are all 0, each class has as much.
                    means = np.maximum(means, 1e-9)
                    means = means / means.sum(axis=1, keepdims=True)
        else:
            noise["noise_scale"] = bags.expand(training.noise)
    y = bags.expand(means[:, 0] if means.shape[1] == 1 else means)
    return model.fit(X, y, bags, **noise)


def _chosen(model: Any) -> dict[str, Any]:
    """What a fit has chosen, as parameters."""
    if isinstance(model, AggregateLinearRegression):
        # An average is quickly made anew.
        return {}
    found = {"rho": model.rho_}
    if hasattr(model, "ridge_"):
        found["ridge"] = model.ridge_
    if hasattr(model, "n_estimators_"):
        # A booster may stop by itself where nothing is left to split.
        found |= {"n_estimators": max(model.n_estimators_, 1), "early_stopping": False}
    return found


def _means(model: Any, X: FloatArray) -> FloatArray:
    """Predicted means of rows, shape (n_rows, K)."""
    if not is_classifier(model):
        return np.asarray(model.predict(X))[:, None]
    shares: FloatArray = model.predict_proba(X)
    return shares[:, 1:] if shares.shape[1] == 2 else shares
