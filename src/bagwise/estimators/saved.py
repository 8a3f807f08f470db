"""Models on disk: JSON and plain arrays, never pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZIP_STORED, BadZipFile

import numpy as np

from bagwise._disk import appearing
from bagwise._extras import need
from bagwise.encoding import Encoder
from bagwise.estimators.choice import CrossValidation
from bagwise.estimators.glm_problem import Solution
from bagwise.estimators.tuning import RhoPath

FORMAT = "bagwise model 1"
LARGEST = 2**26
#: arrays of a path, and how many of its rhos and features each has
PATH = ("rhos", "coefficients", "intercepts", "scores")
#: arrays and numbers of a generalised linear model
TRIED = ("rhos", "ridges", "losses")
GENERALISED = ("ridge", "n_iter", "objective")
Model = TypeVar("Model")


def said_of(model: Any, kind: str, **more: Any) -> dict[str, Any]:
    """What every model folder says of its model, for JSON."""
    names = getattr(model, "feature_names_in_", None)
    encoder = getattr(model, "encoder_", None)
    classes = getattr(model, "classes_", None)
    return {
        "format": FORMAT,
        "kind": kind,
        "parameters": model.get_params(deep=False),
        "rho": getattr(model, "rho_", None),
        "rho_source": getattr(model, "rho_source_", None),
        "classes": None if classes is None else classes.tolist(),
        "feature_names": None if names is None else list(names),
        "encoder": None if encoder is None else encoder.to_dict(),
        **more,
    }


def to_json(said: dict[str, Any]) -> str:
    """The text of model.json; parameters may be NumPy's numbers."""
    return json.dumps(said, indent=1, default=lambda value: value.item())


def save_linear(model: Any, path: Path) -> None:
    """Write a fitted linear model to a new folder, whole or not at all."""
    more = {"intercept": model.intercept_, "ridge": model.ridge_, "method": model.path_.method}
    said = said_of(model, "linear", **more)
    arrays = {name: getattr(model.path_, name) for name in PATH}
    _write_arrays(path, said, coef=model.coef_, **arrays)


def save_generalised(model: Any, path: Path) -> None:
    """Write a fitted generalised linear model to a new folder, whole or not at all."""
    more = {name: getattr(model, f"{name}_") for name in GENERALISED}
    tried = getattr(model, "path_", None)
    arrays = {} if tried is None else {name: getattr(tried, name) for name in TRIED}
    said = said_of(model, type(model).__name__, **more, chosen=tried is not None)
    _write_arrays(path, said, coef=model.coef_, intercept=model.intercept_, **arrays)


def _write_arrays(path: Path, said: dict[str, Any], **arrays: Any) -> None:
    with appearing(path.absolute()) as folder:
        (folder / "model.json").write_text(to_json(said))
        np.savez(folder / "arrays.npz", **arrays)


def load_linear(model: Model, path: Path) -> Model:
    """Fill in an unfitted linear model from a folder, or say in a sentence that it is none."""
    return _load_arrays(model, path, "linear", _fill)


def load_generalised(model: Model, path: Path) -> Model:
    """Fill in an unfitted generalised linear model likewise."""
    return _load_arrays(model, path, type(model).__name__, _fill_generalised)


def _load_arrays(model: Model, path: Path, kind: str, fill: Callable[..., Model]) -> Model:
    """Fill in a model from its JSON and its plain arrays."""
    _check_folder(path)
    try:
        said = _read_json(path, "arrays.npz", kind)
        with (path / "arrays.npz").open("rb") as file, np.load(file, allow_pickle=False) as saved:
            if any(m.compress_type != ZIP_STORED for m in saved.zip.infolist()):
                raise ValueError("packed arrays")
            arrays = {name: np.asarray(saved[name], dtype=np.float64) for name in saved.files}
        return fill(model, said, arrays)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        EOFError,
        MemoryError,
        RecursionError,
        BadZipFile,
    ) as error:
        raise ValueError(
            f"path must be a folder written by save; got {str(path)!r}. Fit and save it again."
        ) from error


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise FileNotFoundError(
            f"path must be a model folder; got {str(path)!r}, which is none. Check it."
        )


def _read_json(path: Path, arrays: str, kind: str) -> dict[str, Any]:
    """What a model folder says of itself, when it is of this kind and of plain files."""
    if not all((path / name).is_file() for name in ("model.json", arrays)):
        raise ValueError("no plain files")
    with (path / "model.json").open("rb") as file:
        said: dict[str, Any] = json.loads(file.read(LARGEST))
    if said["format"] != FORMAT or said["kind"] != kind:
        raise ValueError("another kind of model")
    return said


def save_network(model: Any, path: Path) -> None:
    """Write a fitted network to a new folder, whole or not at all."""
    save = need("safetensors.torch", "neural").save_file
    torch = need("torch", "neural")
    said = said_of(
        model,
        type(model).__name__,
        response_centre=model.response_centre_,
        response_scale=model.response_scale_,
        n_epochs=model.n_epochs_,
        held_out_losses=list(model.held_out_losses_.items()),
    )
    for name in ("module", "checkpoint", "random_state"):
        said["parameters"].pop(name, None)
    # Cloned: weights of a module may be tied, and share memory.
    weights = model.network_.state_dict().items()
    tensors = {f"network.{k}": v.clone().contiguous() for k, v in weights}
    tensors |= {name: torch.as_tensor(getattr(model, f"{name}_")) for name in ("centre", "scale")}
    with appearing(path.absolute()) as folder:
        (folder / "model.json").write_text(to_json(said))
        save(tensors, folder / "network.safetensors")


def load_network(model: Model, path: Path) -> Model:
    """Fill in an unfitted network from a folder, or say in a sentence that it is none."""
    tools = need("safetensors", "neural")
    _check_folder(path)
    try:
        said = _read_json(path, "network.safetensors", type(model).__name__)
        with tools.safe_open(path / "network.safetensors", "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        filled: Model = _fill_network(model, said, tensors)
        return filled
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        tools.SafetensorError,
    ) as error:
        raise ValueError(
            f"path must be a folder written by save of a {type(model).__name__}; "
            f"got {str(path)!r}. Fit and save it again."
        ) from error


def _fill_network(model: Any, said: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """Fitted attributes of a network, when what was read fits together."""
    known = said["parameters"]
    model.set_params(**{k: tuple(v) if isinstance(v, list) else v for k, v in known.items()})
    model._check_parameters()
    model.centre_, model.scale_ = (tensors.pop(name).numpy() for name in ("centre", "scale"))
    numbers = (model.centre_, model.scale_, said["response_centre"], said["response_scale"])
    if not all(np.isfinite(value).all() for value in numbers):
        raise ValueError("scales that are no numbers")
    classes = said["classes"]
    if classes is not None:
        model.classes_ = np.array(classes)
    outputs = 1 if classes is None or len(classes) == 2 else len(classes)
    widths = (len(model.centre_), *model._widths(), outputs)
    if model._widths() and sum((a + 1) * b for a, b in pairwise(widths)) != sum(
        tensor.numel() for tensor in tensors.values()
    ):
        raise ValueError("other weights than the widths of layers say")
    model.network_ = model._network(len(model.centre_), outputs, [0])
    model.network_.load_state_dict({k.removeprefix("network."): v for k, v in tensors.items()})
    model.network_.eval()
    model.rho_, model.rho_source_ = float(said["rho"]), str(said["rho_source"])
    model.response_centre_ = float(said["response_centre"])
    model.response_scale_ = float(said["response_scale"])
    model.n_epochs_ = int(said["n_epochs"])
    model.held_out_losses_ = {float(k): float(v) for k, v in said["held_out_losses"]}
    _fill_names(model, said, len(model.centre_))
    return model


def _fill(model: Any, said: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Fitted attributes, when what was read fits together."""
    d, m = len(arrays["coef"]), len(arrays["rhos"])
    shapes = {
        "coef": (d,),
        "rhos": (m,),
        "coefficients": (m, d),
        "intercepts": (m,),
        "scores": (m,),
    }
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("arrays of other shapes")
    if not np.isfinite(arrays["coef"]).all() or not np.isfinite(said["intercept"]):
        raise ValueError("coefficients that are no numbers")
    model.set_params(**said["parameters"])
    model.coef_, model.intercept_ = arrays["coef"], float(said["intercept"])
    model.rho_, model.rho_source_ = float(said["rho"]), str(said["rho_source"])
    model.ridge_ = float(said["ridge"])
    path = {name: arrays[name] for name in PATH}
    model.path_ = RhoPath(**path, method=str(said["method"]), rho=model.rho_)
    _fill_names(model, said, d)
    return model


def _fill_generalised(model: Any, said: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Fitted attributes, when what was read fits together."""
    model.set_params(**said["parameters"])
    model._check_parameters()
    coef, intercept = arrays["coef"], arrays["intercept"]
    classes, d = said["classes"], coef.shape[-1]
    if classes is not None:
        model.classes_ = np.array(classes)
        rows = 1 if len(classes) == 2 else len(classes)
        shapes: tuple[tuple[int, ...], tuple[int, ...]] = (rows, d), (rows,)
    else:
        shapes = (d,), ()
    if (coef.shape, intercept.shape) != shapes or len(classes or "ab") < 2:
        raise ValueError("arrays of other shapes")
    numbers = [said[name] for name in ("rho", *GENERALISED)]
    if not (
        np.isfinite(coef).all() and np.isfinite(intercept).all() and np.isfinite(numbers).all()
    ):
        raise ValueError("coefficients that are no numbers")
    model._take(Solution(np.atleast_2d(coef), np.atleast_1d(intercept), 0.0, 0))
    model.rho_, model.rho_source_ = float(said["rho"]), str(said["rho_source"])
    model.n_iter_, model.objective_ = int(said["n_iter"]), float(said["objective"])
    model.ridge_ = float(said["ridge"])
    if said["chosen"]:
        rhos, ridges, losses = (arrays[name] for name in TRIED)
        if not rhos.shape == ridges.shape == losses.shape[1:]:
            raise ValueError("arrays of other shapes")
        model.path_ = CrossValidation(rhos, ridges, losses, model.rho_, model.ridge_)
    _fill_names(model, said, d)
    return model


def _fill_names(model: Any, said: dict[str, Any], d: int) -> None:
    """Names of columns and how they become numbers."""
    model.n_features_in_ = d
    names = said["feature_names"]
    if names is not None:
        model.feature_names_in_ = np.array([str(n) for n in names], dtype=object)
        if len(names) != d:
            raise ValueError("another number of names")
    if said["encoder"] is not None:
        model.encoder_ = Encoder.from_dict(said["encoder"])
        if list(model.encoder_.names) != names:
            raise ValueError("names that do not fit the encoder")
