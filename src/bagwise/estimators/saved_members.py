"""Models made of models on disk: JSON, and a folder for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bagwise._disk import appearing
from bagwise.estimators.boosting import AggregateBoostingClassifier, AggregateBoostingRegressor
from bagwise.estimators.design import Design
from bagwise.estimators.glm import AggregateLogisticRegression
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.members import MEMBERS, Member, Part
from bagwise.estimators.neural import AggregateMLPClassifier, AggregateMLPRegressor
from bagwise.estimators.saved import _check_folder, _read_json, said_of, to_json
from bagwise.estimators.saved_trees import fill_columns
from bagwise.estimators.trial import MEAN

Model = TypeVar("Model")
#: what a member may be made of
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        AggregateLinearRegression,
        AggregateLogisticRegression,
        AggregateBoostingRegressor,
        AggregateBoostingClassifier,
        AggregateMLPRegressor,
        AggregateMLPClassifier,
    )
}


def save_members(model: Any, path: Path) -> None:
    """Write a fitted model to a new folder, whole or not at all."""
    members = {
        name: [
            {
                "model": type(part.model).__name__,
                "design": None if part.design is None else part.design.to_list(),
                "share": part.share,
                "column": part.column,
            }
            for part in member.parts
        ]
        for name, member in model.members_.items()
    }
    said = said_of(
        model,
        type(model).__name__,
        n_features=model.n_features_in_,
        members=members,
        weights=model.weights_,
        mean=model.mean_.tolist(),
        held_out_losses=model.held_out_losses_,
        report=model.report_,
    )
    said["parameters"].pop("random_state")
    with appearing(path.absolute()) as folder:
        (folder / "model.json").write_text(to_json(said))
        for name, member in model.members_.items():
            for number, one in enumerate(member.models):
                one.save(folder / _folder(name, number))


def load_members(model: Model, path: Path) -> Model:
    """Fill in an unfitted model from a folder, or say in a sentence that it is none."""
    _check_folder(path)
    try:
        said = _read_json(path, "model.json", type(model).__name__)
        filled: Model = _fill(model, said, path)
        return filled
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"path must be a folder written by save of a {type(model).__name__}; "
            f"got {str(path)!r}. Fit and save it again."
        ) from error


def _fill(model: Any, said: dict[str, Any], path: Path) -> Any:
    """Fitted attributes, when what was read fits together."""
    model.set_params(**said["parameters"])
    model._check_parameters()
    d, classes = int(said["n_features"]), said["classes"]
    if (classes is not None) != model._classes:
        raise ValueError("classes of a response, or none")
    if classes is not None:
        model.classes_ = np.array(classes)
    weights = {str(name): float(weight) for name, weight in said["weights"].items()}
    total = sum(weights.values())
    if weights.keys() - {MEAN} != said["members"].keys() or not said["members"].keys() <= (
        MEMBERS.keys()
    ):
        raise ValueError("weights of other models")
    if not abs(total - 1) < 1e-6 or min(weights.values()) < 0:
        raise ValueError("weights that are no shares")
    model.weights_, model.report_ = weights, str(said["report"])
    model.held_out_losses_ = {str(k): float(v) for k, v in said["held_out_losses"].items()}
    outputs = 1 if classes is None or len(classes) == 2 else len(classes)
    model.mean_ = np.array(said["mean"], dtype=np.float64)
    if model.mean_.shape != (outputs,) or not np.isfinite(model.mean_).all():
        raise ValueError("a mean of other classes")
    model.members_ = {
        name: _member(path, name, member, d, outputs) for name, member in said["members"].items()
    }
    fill_columns(model, said, d)
    return model


def _member(path: Path, name: str, said: list[Any], d: int, outputs: int) -> Member:
    """One of the models, when it takes the columns and gives the classes of the whole."""
    parts = tuple(
        _part(path / _folder(name, number), one, d, outputs) for number, one in enumerate(said)
    )
    shares = np.zeros(outputs)
    for part in parts:
        shares[slice(None) if part.column is None else part.column] += part.share
    if not np.allclose(shares, 1) or min(part.share for part in parts) < 0:
        raise ValueError("shares of another whole")
    return Member(parts, outputs)


def _part(folder: Path, said: dict[str, Any], d: int, outputs: int) -> Part:
    """One of its parts."""
    design, width, column = None, d, said["column"]
    if said["design"] is not None:
        design = Design.from_list(said["design"])
        width = design.rows(np.zeros((1, d))).shape[1]
    model = KINDS[said["model"]].load(folder)
    if column is not None and not 0 <= int(column) < outputs:
        raise ValueError("a column that is none")
    classes = len(getattr(model, "classes_", ()))
    wanted = outputs if column is None else 1
    if model.n_features_in_ != width or (1 if classes in (0, 2) else classes) != wanted:
        raise ValueError("a model of other columns or classes")
    return Part(model, design, float(said["share"]), None if column is None else int(column))


def _folder(name: str, number: int) -> str:
    """Where a model lies."""
    return f"{name}-{number}"
