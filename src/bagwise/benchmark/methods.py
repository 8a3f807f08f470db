"""Methods by name, with default settings: ours, those of the literature, and the two limits."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score

import bagwise
from bagwise import _check, baselines
from bagwise.benchmark.cells import FloatArray, Problem, Split

TASKS = ("regression", "classification")
FAMILIES = ("ours", "baseline", "limit", "peer")
#: takes a table as it is
AUTOMATIC = {"regression": "AggregateRegressor", "classification": "AggregateClassifier"}
OURS = {
    "regression": (
        AUTOMATIC["regression"],
        "AggregateLinearRegression",
        "AggregateBoostingRegressor",
        "AggregateMLPRegressor",
    ),
    "classification": (
        AUTOMATIC["classification"],
        "AggregateLogisticRegression",
        "AggregateBoostingClassifier",
        "AggregateMLPClassifier",
    ),
}
ENDINGS = {"regression": "Regressor", "classification": "Classifier"}
#: those that are a setting of ours under another name
SETTINGS = ("empirical_proportion_risk", "deep_llp")
CEILING, FLOOR = "full labels", "mean"
LIMITS = (CEILING, FLOOR)
#: what time is measured in
YARDSTICK = {"regression": "RidgeMeansRegressor", "classification": "RidgeMeansClassifier"}


def methods(task: str, peers: bool = False) -> dict[str, str]:
    """The family of each method for a task, by name; limits are not among them."""
    found = {name: "ours" for name in OURS[task] if hasattr(bagwise, name)}
    found |= {name: "baseline" for name in vars(baselines) if name.endswith(ENDINGS[task])}
    if task == "classification":
        found |= dict.fromkeys(SETTINGS, "baseline")
        if peers:
            found |= dict.fromkeys(others().PEERS, "peer")
    return found


def chosen(task: str, wanted: list[str] | None, peers: bool = False) -> dict[str, str]:
    """Those methods that are wanted, by their own name or by that of their family."""
    known = methods(task, peers)
    if wanted is None:
        return known
    return {name: family for name, family in known.items() if {name, family} & set(wanted)}


def check(wanted: list[str], peers: bool = False) -> None:
    """Refuse names that are neither a method nor a family."""
    known = {name for task in TASKS for name in methods(task, peers)}
    for name in wanted:
        _check.choice("method", name, (*FAMILIES, *LIMITS, *sorted(known)))


def make(name: str, seed: int) -> Any:
    """An estimator with default settings, and the seed where it takes one."""
    found = getattr(bagwise, name, None) or getattr(baselines, name)
    estimator = found()
    takes_seed = "random_state" in estimator.get_params()
    return estimator.set_params(random_state=seed) if takes_seed else estimator


def fit(name: str, problem: Problem) -> Any:
    """The fitted estimator, from what a problem shows of bags."""
    estimator = make(name, problem.seed)
    means, noise = problem.means, {}
    if problem.noise_scale is not None:
        if "noise_scale" in signature(estimator.fit).parameters:
            noise = {"noise_scale": problem.bags.expand(problem.noise_scale)}
        elif problem.task == "classification":
            means = np.clip(means, 0, 1)
    X = problem.raw if takes_text(name, estimator) else problem.numbers
    return estimator.fit(X, problem.bags.expand(means), problem.bags, **noise)


def predict(name: str, estimator: Any, problem: Problem) -> FloatArray:
    """Predictions for the test rows, of classes the probability of 1."""
    X = problem.raw_test if takes_text(name, estimator) else problem.numbers_test
    if problem.task == "regression":
        return np.asarray(estimator.predict(X))
    return np.asarray(estimator.predict_proba(X)[:, 1])


def takes_text(name: str, estimator: Any) -> bool:
    """Whether a method wants the table as it is."""
    return name in AUTOMATIC.values() or bool(estimator.__sklearn_tags__().input_tags.categorical)


def others() -> Any:
    """The module that speaks to others' code; loaded when it is asked for, and not before."""
    return import_module("bagwise.benchmark.peers")


def ask_peer(name: str, problem: Problem, folder: Path, limit: float) -> FloatArray:
    """Scores of test rows by a method of someone else's code."""
    shares, codes = np.clip(problem.means, 0, 1), problem.bags.codes
    found = (
        others()
        .Peer(name, folder)
        .fit_predict(problem.numbers, shares, codes, problem.numbers_test, problem.seed, limit)
    )
    return np.asarray(found)


def limit_predictions(name: str, split: Split) -> FloatArray:
    """Test predictions of a limit: the mean of the training bags, or a model of every label.

    The ceiling is boosting or a linear model, whichever does better in five folds of the training
    rows.
    """
    if name == FLOOR:
        return np.full(len(split.rows[1]), split.responses.mean())
    (raw, raw_test), (numbers, numbers_test) = split.raw, split.numbers
    kinds = {column: "category" for column in raw.select_dtypes(exclude="float")}
    y, linear, trees, measure = split.responses, *_full_label_models(split.table.task, split.seed)
    linear.fit(numbers, y)
    trees_score = cross_val_score(trees, raw.astype(kinds), y, cv=5, scoring=measure).mean()
    if linear.best_score_ >= trees_score:
        model, X = linear, numbers_test
    else:
        # Categories of the training rows: others are missing.
        known = raw.astype(kinds)
        model = trees.fit(known, y)
        X = raw_test.astype({column: known[column].dtype for column in kinds})
    if split.table.task == "regression":
        return np.asarray(model.predict(X))
    return np.asarray(model.predict_proba(X)[:, 1])


def _full_label_models(task: str, seed: int) -> tuple[Any, Any, str]:
    """A linear model that chooses its ridge in five folds, trees, and what both are scored by."""
    trees: dict[str, Any] = {"categorical_features": "from_dtype", "random_state": seed}
    if task == "regression":
        linear = GridSearchCV(Ridge(), {"alpha": np.logspace(-3, 3, 7)}, cv=5, scoring="r2")
        return linear, HistGradientBoostingRegressor(**trees), "r2"
    grid = {"C": np.logspace(-3, 3, 7)}
    linear = GridSearchCV(LogisticRegression(max_iter=500), grid, cv=5, scoring="roc_auc")
    return linear, HistGradientBoostingClassifier(**trees), "roc_auc"
