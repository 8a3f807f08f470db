"""Optional parts: what each adds, whether it is there, and one sentence when it is not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Any

#: extra -> what it adds
EXTRAS = {
    "plot": "pictures",
    "neural": "neural networks",
    "boosting": "boosted trees",
    "release": "the curator's part: releases, ledger, audit",
    "engines": "tables read through DuckDB",
    "spark": "the same work on a Spark cluster (with Java 17)",
    "app": "bagwise app, the planner in the browser",
    "demo": "bagwise demo, on real flights",
    "experiments": "bagwise paper, every figure",
    "benchmark": "bagwise benchmark, on ten real tables",
}


def need(module: str, extra: str) -> Any:
    """The imported module, or an ImportError that names the extra which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        root = module.split(".")[0]
        raise ImportError(
            f"{root} must be installed for this. Run: pip install 'bagwise[{extra}]'."
        ) from error


@dataclass(frozen=True)
class Extra:
    """An extra of this installation.

    Attributes
    ----------
    name, adds : str
    found : dict from str to str
        Packages that are there, with their versions.
    missing : tuple of str
        Packages that are not.
    """

    name: str
    adds: str
    found: dict[str, str]
    missing: tuple[str, ...]


def core() -> dict[str, str]:
    """Versions of bagwise and of the packages that it always needs."""
    return {"bagwise": version("bagwise")} | _split(_requirements())[0]


def extras() -> list[Extra]:
    """Each extra, with what is there of it and what is not."""
    return [Extra(name, adds, *_split(_requirements(name))) for name, adds in EXTRAS.items()]


def _requirements(extra: str | None = None) -> list[str]:
    """Names of the packages that the core, or an extra, asks for."""
    names = []
    for line in metadata("bagwise").get_all("Requires-Dist") or []:
        asked = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if (asked[1] if asked else None) == extra:
            names.append(re.split(r"[^\w.-]", line, maxsplit=1)[0])
    return sorted(set(names) - {"bagwise"})


def _split(names: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Versions of the packages that are installed, and names of the others."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found, tuple(name for name in names if name not in found)
