"""Models by name: which a command can fit, and which lies in a folder."""

from __future__ import annotations

import json
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from bagwise.estimators.auto import AggregateClassifier, AggregateRegressor
from bagwise.estimators.boosting import AggregateBoostingClassifier, AggregateBoostingRegressor
from bagwise.estimators.glm import AggregateLogisticRegression, AggregatePoissonRegressor
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.neural import AggregateMLPClassifier, AggregateMLPRegressor
from bagwise.estimators.saved import LARGEST

#: what a command calls a model
MODELS: dict[str, Any] = {
    "linear": AggregateLinearRegression,
    "logistic": AggregateLogisticRegression,
    "poisson": AggregatePoissonRegressor,
    "mlp": AggregateMLPRegressor,
    "mlp-classifier": AggregateMLPClassifier,
    "boosting": AggregateBoostingRegressor,
    "boosting-classifier": AggregateBoostingClassifier,
    "auto": AggregateRegressor,
    "auto-classifier": AggregateClassifier,
}


def load_model(path: str | PathLike[str]) -> Any:
    """The model that `save` wrote to a folder, of whatever kind; a user's module needs its own.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> folder = f"{mkdtemp()}/model"
    >>> AggregateLinearRegression(rho=0.0).fit([[0.0], [1.0]], [1.0, 3.0]).save(folder)
    >>> load_model(folder).coef_.round(6).tolist()
    [2.0]
    """
    kinds = {model.__name__: model for model in MODELS.values()}
    file, kind = Path(path) / "model.json", None
    with suppress(OSError, ValueError, KeyError, TypeError):
        kind = json.loads(file.read_bytes()[:LARGEST])["kind"] if file.is_file() else None
    # What is no model at all is told by the one that reads it in earnest.
    return kinds.get(str(kind), AggregateLinearRegression).load(path)
