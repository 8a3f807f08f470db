"""The models that `AggregateRegressor` and `AggregateClassifier` try, each fitted with defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone, is_classifier

from bagwise.bags import Bags
from bagwise.estimators.boosting import AggregateBoostingClassifier, AggregateBoostingRegressor
from bagwise.estimators.design import WAYS, Design
from bagwise.estimators.glm import AggregateLogisticRegression
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.neural import AggregateMLPClassifier, AggregateMLPRegressor

FloatArray: TypeAlias = NDArray[np.float64]
#: below this share of the prediction a model is left out of its member
LEAST_SHARE = 0.01
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
class Part:
    """One fitted model of a member.

    Attributes
    ----------
    model : estimator
    design : Design or None
        How it takes columns; None as they are.
    share : float
        What its predictions count.
    column : int or None
        The column of the means that it predicts; None where it predicts all.
    """

    model: Any
    design: Design | None = None
    share: float = 1.0
    column: int | None = None

    def add(self, codes: FloatArray, found: FloatArray) -> None:
        """Add its share of predicted means to those of other parts, shape (n_rows, K)."""
        X = codes if self.design is None else self.design.rows(codes)
        place = slice(None) if self.column is None else [self.column]
        found[:, place] += self.share * _means(self.model, X)

    def again(self, training: Training) -> Part:
        """The same on other bags, with all that was chosen kept."""
        model = clone(self.model).set_params(**_chosen(self.model))
        asked = training if self.column is None else training.column(self.column)
        return replace(self, model=_fit(model, asked, self.design))


@dataclass(frozen=True)
class Member:
    """A fitted kind of model: parts whose predictions add up by their shares.

    Attributes
    ----------
    parts : tuple of Part
    n_outputs : int
        K, columns of the means.
    """

    parts: tuple[Part, ...]
    n_outputs: int

    @property
    def models(self) -> list[Any]:
        """The fitted estimators."""
        return [part.model for part in self.parts]

    def means(self, codes: FloatArray) -> FloatArray:
        """Predicted means of rows, shape (n_rows, K)."""
        found = np.zeros((len(codes), self.n_outputs))
        for first in range(0, len(codes), BLOCK):
            some = slice(first, first + BLOCK)
            for part in self.parts:
                part.add(codes[some], found[some])
        return found

    def again(self, training: Training) -> Member:
        """The same on other bags, with all that was chosen kept."""
        return replace(self, parts=tuple(part.again(training) for part in self.parts))


def fit_linear(training: Training, asked: Asked) -> Member:
    """Linear regression of responses or of shares of classes, averaged over rho and ridge."""
    return _by_evidence(AggregateLinearRegression("average", ridge="cv"), training, asked)


def fit_logistic(training: Training, asked: Asked) -> Member:
    """Logistic regression averaged over ridges, of more than two classes each against the rest."""
    return _by_evidence(AggregateLogisticRegression(rho=0.0, ridge="average"), training, asked)


def _by_evidence(model: Any, training: Training, asked: Asked) -> Member:
    """A model for each way to prepare columns, counted as far as bag means make it likely."""
    designs = [Design.of(training.codes, asked.places, way) for way in WAYS]
    parts, K = [], training.means.shape[1]
    for column in range(K):
        of_column = training.column(column)
        fitted = [_fit(clone(model), of_column, design) for design in designs]
        told = np.array([one._log_evidence for one in fitted])
        # Equal evidence, infinite or not, is no reason to prefer.
        shares = softmax(told) if np.isfinite(told).all() else np.full(len(told), 1 / len(told))
        shares = np.where(shares < LEAST_SHARE, 0, shares)
        parts += [
            Part(one, design, float(share), column)
            for one, design, share in zip(fitted, designs, shares / shares.sum(), strict=True)
            if share
        ]
    return Member(tuple(parts), K)


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
    parts = tuple(Part(model, share=1 / SEEDS) for model in models)
    return Member(parts, training.means.shape[1])


def fit_neural(training: Training, asked: Asked) -> Member:
    """A multilayer perceptron, with rho and epochs chosen."""
    design = Design.of(training.codes, asked.places)
    kind: Any = AggregateMLPClassifier if asked.classes else AggregateMLPRegressor
    part = Part(_fit(kind(random_state=asked.seed), training, design), design)
    return Member((part,), training.means.shape[1])


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
    if hasattr(model, "_log_evidence"):
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
