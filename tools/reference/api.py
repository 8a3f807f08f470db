"""A page for each public name: how it is called, what it promises, an example."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from tools.reference.prose import Link, prose, render, title

ROOMS = ("bagwise", "bagwise.release", "bagwise.baselines", "bagwise.theory")
#: where the names of a module are explained; of several prefixes the first that fits
GUIDES = {
    "bagwise.estimators.auto": "auto.md",
    "bagwise.estimators.linear": "linear.md",
    "bagwise.statistics": "linear.md",
    "bagwise.estimators.glm": "glm.md",
    "bagwise.counts": "glm.md",
    "bagwise.estimators.scores": "glm.md",
    "bagwise.estimators.neural": "neural.md",
    "bagwise.estimators.boosting": "boosting.md",
    "bagwise.bags": "losses.md",
    "bagwise.losses": "losses.md",
    "bagwise.released": "privacy.md",
    "bagwise.engines": "scale.md",
    "bagwise.planning": "planning.md",
    "bagwise.snr": "planning.md",
    "bagwise.diagnostics": "natural-bags.md",
    "bagwise.row_risk": "selection.md",
    "bagwise.simulate": "theory.md",
    "bagwise.theory": "theory.md",
    "bagwise.release": "privacy.md",
    "bagwise.baselines": "baselines.md",
    "bagwise.curated": "baselines.md",
}
EXAMPLE = re.compile(r"```pycon\n(.*?)```", flags=re.DOTALL)
IMPORTED = re.compile(r"^>>> (?:from \S+ )?import (.+)$", flags=re.MULTILINE)
INTRODUCTION = """\
# Python names

Every public name on a page of its own, written from the code: how it is called, what it promises,
what it cannot do, and an example that the tests run. A learner needs `bagwise` alone;
`bagwise.release` is the curator's, and needs `bagwise[release]`.
"""


@dataclass(frozen=True)
class Name:
    """A public name and where it is imported from."""

    room: str
    name: str
    value: Any

    @property
    def guide(self) -> str | None:
        """The page that explains it."""
        fits = (page for module, page in GUIDES.items() if self.value.__module__.startswith(module))
        return next(fits, None)

    @cached_property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.value) or "").splitlines()[0]


def names() -> list[Name]:
    """Public names of all rooms, in the order of their imports."""
    return [
        Name(room, name, value)
        for room in ROOMS
        for name, value in vars(import_module(room)).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    ]


def slugs(found: list[Name]) -> dict[str, str]:
    """Files of names: a disk or a web server may not tell `Plan` from `plan`."""
    small = [each.name.lower() for each in found]
    return {
        each.name: each.name
        + ("-class" if inspect.isclass(each.value) and small.count(each.name.lower()) > 1 else "")
        + ".md"
        for each in found
    }


def pages(docs: Path) -> dict[str, str]:
    """Files of docs/api with their text."""
    found = names()
    files = slugs(found)
    assert len(files) == len(found), "two rooms export one name"
    made = {files[each.name]: _page(each, files, docs) for each in found}
    return made | {"index.md": _index(found, files, docs)}


def navigation(docs: Path) -> list[str]:
    """Lines of mkdocs.yml, names in the order of the index."""
    found = names()
    files = slugs(found)
    lines = ["- api/index.md"]
    for heading, group in _groups(found, docs):
        lines.append(f"- {heading.replace('`', '')}:")
        lines += [f"    - {each.name}: api/{files[each.name]}" for each in group]
    return lines


def _groups(found: list[Name], docs: Path) -> list[tuple[str, list[Name]]]:
    """Names of the first room by the page that explains them, others by room."""
    order = list(dict.fromkeys(GUIDES.values()))
    own = sorted(
        (each for each in found if each.room == ROOMS[0]),
        key=lambda each: order.index(each.guide) if each.guide else len(order),
    )
    groups: dict[str, list[Name]] = {}
    for each in own:
        heading = title(docs / each.guide) if each.guide else "Others"
        groups.setdefault(heading, []).append(each)
    for room in ROOMS[1:]:
        groups[f"`{room}`"] = [each for each in found if each.room == room]
    return list(groups.items())


def _index(found: list[Name], files: dict[str, str], docs: Path) -> str:
    """Every name with its summary."""
    parts = [INTRODUCTION]
    for heading, group in _groups(found, docs):
        lines = [f"## {heading}", "", "| name | |", "|---|---|"]
        for each in group:
            said = prose(each.summary, lambda name: files.get(name)).replace("|", "\\|")
            lines.append(f"| [`{each.name}`]({files[each.name]}) | {said} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _page(each: Name, files: dict[str, str], docs: Path) -> str:
    """How a name is called, its docstring, and its members."""

    def link(name: str) -> str | None:
        last = name.rpartition(".")[2]
        return None if last == each.name else files.get(last)

    said = inspect.getdoc(each.value) or ""
    first, _, rest = said.partition("\n\n")
    parts = [f"# {each.name}", prose(first, link)]
    parts.append(f"```python\nfrom {each.room} import {each.name}\n```")
    called = signature(each.value)
    if called is not None:
        parts.append(f"```text\n{each.name}{called}\n```")
    parts += [render(rest, 2, link), *_members(each.value, link)]
    parts = [EXAMPLE.sub(lambda found: _imports(found[1], each), part) for part in parts]
    if each.guide:
        parts.append(f"Explained in [{title(docs / each.guide)}](../{each.guide}).")
    return "\n\n".join(part for part in [*parts, "[All names](index.md)"] if part) + "\n"


def _imports(example: str, each: Name) -> str:
    """An example with the imports that its docstring leaves to its module."""
    there = {word for line in IMPORTED.findall(example) for word in re.split(r",? +", line)}
    needed = [
        f">>> from {other.room} import {other.name}\n"
        for other in names()
        if other.name not in there | {each.name} and re.search(rf"\b{other.name}[(.]", example)
    ]
    shorts = {"np": "numpy", "pa": "pyarrow"}
    first = [
        f">>> import {package} as {short}\n"
        for short, package in shorts.items()
        if short not in there and re.search(rf"\b{short}\.", example)
    ]
    return f"```pycon\n{''.join(first + needed)}{example}```"


def _members(kind: Any, link: Link) -> list[str]:
    """Methods and properties of a class that are ours and have a docstring."""
    if not inspect.isclass(kind):
        return []
    found: dict[str, Any] = {}
    for owner in kind.__mro__:
        if owner.__module__.startswith("bagwise"):
            found = found | {k: v for k, v in vars(owner).items() if k not in found}
    parts: list[str] = []
    for name, member in found.items():
        text = inspect.getdoc(member)
        ours = isinstance(member, FunctionType | classmethod | staticmethod | property)
        if name.startswith("_") or not text or not (ours or isinstance(member, cached_property)):
            continue
        value = getattr(kind, name)
        called = signature(value) if callable(value) else None
        parts.append(f"### `{name}`")
        if called is not None:
            before = f"{kind.__name__}." if isinstance(member, classmethod) else ""
            parts.append(f"```text\n{before}{name}{called}\n```")
        parts.append(render(text, 4, link))
    return ["## Members", *parts] if parts else []


def signature(value: Any) -> str | None:
    """Names of parameters with their defaults, over several lines where they are many."""
    if inspect.isclass(value) and not any("__init__" in vars(k) for k in _own(value)):
        return None
    known = inspect.signature(value).parameters.values()
    words, starred = [], False
    for each in known:
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        words.append(str(each.replace(annotation=each.empty, default=each.empty)) + _default(each))
    line = f"({', '.join(words)})"
    return line if len(line) < 64 else "(\n" + "".join(f"    {word},\n" for word in words) + ")"


def _own(kind: type) -> list[type]:
    return [owner for owner in kind.__mro__ if owner.__module__.startswith("bagwise")]


def _default(each: inspect.Parameter) -> str:
    """A default as it is typed: functions by name, for their repr has an address."""
    if each.default is each.empty:
        return ""
    return "=" + getattr(each.default, "__name__", repr(each.default))
