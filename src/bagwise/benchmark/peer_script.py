"""One fit of a method of llp-learn, run by the Python of the peers' environment.

    python -I peer_script.py NAME SEED ASKED ANSWER

ASKED is an npz file with X, shares, codes and X_test, ANSWER the npy file for the scores. What goes
wrong is told by the name of the error alone. It ends when its standard input does, which whoever
asks holds open. Only NumPy and the peer are at hand here.

Every method keeps one setting for all tables: networks one hidden layer of 100 (the package's own
default), 100 epochs of Adam at 0.001 with a bag a step; what else the methods ask for is that of
their papers. EM starts from the majority of each bag, for it stops after a few turns near where it
starts, and its default, a start at random, is no better than chance.

Two things in the package stand in the way and are stepped round, no more:

- it imports torchvision and PIL for pictures, which tables never reach: stand-ins take their place;
- LLPFC draws from a set by `random.sample`, which Python refuses since 3.11: it is sorted first.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Collection
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

NETWORK = {
    "lr": 0.001,
    "n_epochs": 100,
    "model_type": "simple-mlp",
    "hidden_layer_sizes": (100,),
    "device": "cpu",
    "n_jobs": 0,
}
VAT = {"xi": 1e-6, "eps": 6.0, "ip": 1}
MIXBAG = {"choice": "uniform", "confidence_interval": 0.005, "consistency": "none"}

# Module and class in llp_learn, and the class's arguments.
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "MixBag": ("mixbag", "MixBag", NETWORK | MIXBAG),
    "LLP-VAT": ("llpvat", "LLPVAT", NETWORK | VAT),
    "DLLP": ("dllp", "DLLP", NETWORK),
    "LLPFC": ("llpfc", "LLPFC", NETWORK),
    "EM": ("em", "EM", {"init_y": "majority"}),
    "alter-SVM": ("alter", "alterSVM", {}),
    "alter-SVM-RBF": ("alter", "alterSVMRBF", {}),
}


def fit_predict(
    name: str,
    X: NDArray[Any],
    shares: NDArray[Any],
    codes: NDArray[Any],
    X_test: NDArray[Any],
    seed: int,
) -> NDArray[Any]:
    """Scores of shape (n_test,): log odds of class 1, or the margin of a support vector machine."""
    np.random.seed(seed)  # noqa: NPY002 (the peer draws from the global state)
    random.seed(seed)
    model = make_model(name, seed)
    if not hasattr(model, "loss_train"):
        model.fit(X, codes, shares)
        return np.asarray(model.model.decision_function(X_test))
    torch = import_module("torch")
    model.fit(X.astype(np.float32), codes, shares.astype(np.float32))
    model.model.eval()
    with torch.no_grad():
        logits = model.model(torch.from_numpy(X_test.astype(np.float32))).double().numpy()
    return np.asarray(logits[:, 1] - logits[:, 0])


def make_model(name: str, seed: int) -> Any:
    """The peer's model, not fitted."""
    module, title, options = METHODS[name]
    kind = getattr(import_without_pictures(f"llp_learn.{module}"), title)
    if name == "EM":
        logistic = import_module("sklearn.linear_model").LogisticRegression(max_iter=1000)
        return kind(logistic, random_state=seed, **options)
    if name == "LLPFC":
        groups: Any = import_module("llp_learn.llpfc._make_groups")
        groups.random = SimpleNamespace(sample=_sample_sorted)
    return kind(random_state=seed, **options)


def import_without_pictures(module: str) -> Any:
    """A module of the peer, with stand-ins for what it imports for pictures alone."""
    pictures: Any = ModuleType("pictures")
    pictures.resnet18 = pictures.Image = None
    absent = [
        name for name in ("torchvision", "torchvision.models", "PIL") if name not in sys.modules
    ]
    sys.modules.update(dict.fromkeys(absent, pictures))
    try:
        return import_module(module)
    finally:
        for name in absent:
            del sys.modules[name]


def _sample_sorted(population: Collection[Any], k: int) -> list[Any]:
    return random.sample(sorted(population), k)


def main(name: str, seed: str, asked: str, answer: str) -> None:
    """Read, fit, write; or end with the name of the error."""
    # The peer prints a line an epoch.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            with np.load(asked) as data:
                scores = fit_predict(name, **data, seed=int(seed))
            if not np.isfinite(scores).all():
                raise FloatingPointError
            np.save(answer, scores)
        except Exception as error:
            failure = type(error).__name__
        else:
            return
    sys.exit(failure)


def _end_with_who_asks() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    Thread(target=_end_with_who_asks, daemon=True).start()
    main(*sys.argv[1:])
