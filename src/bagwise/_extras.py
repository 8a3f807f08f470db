"""Optional parts: one sentence when they are absent."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, extra: str) -> Any:
    """The imported module, or an ImportError that names the extra which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        root = module.split(".")[0]
        raise ImportError(
            f"{root} must be installed for this. Run: pip install 'bagwise[{extra}]'."
        ) from error
