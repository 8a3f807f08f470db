"""Boosted models on disk: JSON beside LightGBM's own text, never pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bagwise._disk import appearing
from bagwise._extras import need
from bagwise.estimators.categories import Categories
from bagwise.estimators.saved import _check_folder, _read_json, said_of

TREES = "trees.txt"
Model = TypeVar("Model")


def save_trees(model: Any, path: Path) -> None:
    """Write a fitted model to a new folder, whole or not at all."""
    trees = model.booster_.model_to_string()
    stretch, shift = model.calibration_
    said = said_of(
        model,
        type(model).__name__,
        start=model.start_.tolist(),
        calibration=[stretch, shift.tolist()],
        n_estimators=model.n_estimators_,
        n_features=model.n_features_in_,
        held_out_losses=list(model.held_out_losses_.items()),
        trees=hashlib.sha256(trees.encode()).hexdigest(),
    )
    said["parameters"].pop("random_state")
    text = json.dumps(said, indent=1, default=_plain)
    with appearing(path.absolute()) as folder:
        (folder / "model.json").write_text(text)
        (folder / TREES).write_text(trees)


def load_trees(model: Model, path: Path) -> Model:
    """Fill in an unfitted model from a folder, or say in a sentence that it is none."""
    lightgbm = need("lightgbm", "boosting")
    _check_folder(path)
    try:
        said = _read_json(path, TREES, type(model).__name__)
        trees = (path / TREES).read_text()
        if hashlib.sha256(trees.encode()).hexdigest() != said["trees"]:
            raise ValueError("trees that are not as they were written")
        filled: Model = _fill(model, said, trees)
        return filled
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        lightgbm.basic.LightGBMError,
    ) as error:
        raise ValueError(
            f"path must be a folder written by save of a {type(model).__name__}; "
            f"got {str(path)!r}. Fit and save it again."
        ) from error


def _fill(model: Any, said: dict[str, Any], trees: str) -> Any:
    """Fitted attributes, when what was read fits together."""
    model.set_params(**said["parameters"])
    model._check_parameters()
    d, K = int(said["n_features"]), len(said["start"])
    classes = said["classes"]
    if (1 if classes is None or len(classes) == 2 else len(classes)) != K:
        raise ValueError("another number of classes")
    model.start_ = np.array(said["start"], dtype=np.float64)
    stretch, shift = said["calibration"]
    model.calibration_ = float(stretch), np.array(shift, dtype=np.float64)
    if len(shift) != K or not all(np.isfinite(v).all() for v in (model.start_, stretch, shift)):
        raise ValueError("scores that are no numbers")
    if classes is not None:
        model.classes_ = np.array(classes)
    check_trees(trees, d)
    model.booster_ = need("lightgbm", "boosting").Booster(model_str=trees)
    found = model.booster_
    shape = found.num_feature(), found.num_model_per_iteration(), found.current_iteration()
    if shape != (d, K, said["n_estimators"]):
        raise ValueError("other trees than stated")
    model.n_estimators_ = int(said["n_estimators"])
    model.rho_, model.rho_source_ = float(said["rho"]), str(said["rho_source"])
    model.held_out_losses_ = {float(k): float(v) for k, v in said["held_out_losses"]}
    fill_columns(model, said, d)
    return model


def fill_columns(model: Any, said: dict[str, Any], d: int) -> None:
    """Names of d columns, and which of them are categories."""
    model.n_features_in_, names = d, said["feature_names"]
    if names is not None:
        model.feature_names_in_ = np.array([str(n) for n in names], dtype=object)
        if len(names) != d:
            raise ValueError("another number of names")
    if said["encoder"] is not None:
        model.encoder_ = Categories.from_dict(said["encoder"])
        if len(model.encoder_.names) != d or names not in (None, list(model.encoder_.names)):
            raise ValueError("names that do not fit the encoder")


def check_trees(text: str, n_features: int) -> None:
    """Refuse trees whose nodes lead nowhere or round in circles: LightGBM would follow them."""
    for part in text.split("\nTree=")[1:]:
        lines = [line.partition("=") for line in part.split("\n\n")[0].splitlines()]
        said = {name: value.split() for name, _, value in lines}
        leaves = int(said["num_leaves"][0])
        if len(said["leaf_value"]) != leaves or not np.isfinite(_floats(said["leaf_value"])).all():
            raise ValueError("leaves without a value")
        if leaves == 1:
            continue
        sides = np.array([said["left_child"], said["right_child"]], dtype=np.int64)
        features = np.array(said["split_feature"], dtype=np.int64)
        kinds = np.array(said["decision_type"], dtype=np.int64)
        nodes = np.arange(leaves - 1)
        # A node comes before its children, and each leaf and node but the first is met once.
        met = np.sort(sides.ravel())
        whole = np.array_equal(met, np.sort(np.concatenate([-1 - np.arange(leaves), nodes[1:]])))
        if sides.shape[1] != leaves - 1 or not whole or ((sides >= 0) & (sides <= nodes)).any():
            raise ValueError("nodes that lead nowhere")
        if len(features) != leaves - 1 or features.min() < 0 or features.max() >= n_features:
            raise ValueError("splits of columns that are not there")
        if len(kinds) != leaves - 1 or len(said["threshold"]) != leaves - 1:
            raise ValueError("splits without a threshold")
        if kinds[kinds % 2 == 1].any():
            _check_categories(said, _floats(said["threshold"])[kinds % 2 == 1])


def _check_categories(said: dict[str, list[str]], places: Any) -> None:
    """Refuse splits of categories whose sets of levels lie outside of what there is."""
    bounds = np.array(said["cat_boundaries"], dtype=np.int64)
    inside = bounds[0] == 0 and bounds[-1] == len(said["cat_threshold"])
    if not inside or (np.diff(bounds) < 0).any() or len(bounds) != int(said["num_cat"][0]) + 1:
        raise ValueError("sets of levels that are not there")
    if places.min() < 0 or places.max() >= len(bounds) - 1:
        raise ValueError("sets of levels that are not there")


def _floats(values: list[str]) -> Any:
    return np.array(values, dtype=np.float64)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist()
