"""A page for each command: how it is called, its options, an example."""

from __future__ import annotations

import re
import types
import typing
from pathlib import Path
from typing import Any

import typer

from bagwise import cli
from bagwise.cli.shared import GROUPS

GUIDES = {
    "plan": ("planning.md", "choosing.md"),
    "app": ("app.md", "planning.md"),
    "release": ("privacy.md", "tutorial.md"),
    "ledger": ("privacy.md",),
    "audit": ("privacy.md",),
    "fit": ("tutorial.md", "choosing.md", "auto.md", "linear.md", "scale.md"),
    "predict": ("tutorial.md", "scale.md"),
    "evaluate": ("tutorial.md", "glm.md"),
    "report": ("report.md",),
    "demo": ("index.md",),
    "paper": ("paper.md",),
    "benchmark": ("benchmark.md",),
}
KINDS = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH", bool: ""}
INTRODUCTION = """\
# Commands

`bagwise NAME --help` says in the terminal what these pages say; both are written from the code.
Results go to standard output, bars and warnings to standard error; `--json` prints the numbers as
JSON instead. Bad input is one sentence and exit code 2, a promise that `audit` finds broken is exit
code 1, Ctrl-C is 130 and SIGTERM 143.
"""


def commands(group: Any = None, before: str = "") -> dict[str, Any]:
    """Commands by the words that call them, those of groups too."""
    group = typer.main.get_command(cli.app) if group is None else group
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{before}{name} ")
        elif not command.hidden:
            found[before + name] = command
    return found


def groups() -> dict[str, list[str]]:
    """Commands by group, as `bagwise --help` has them."""
    there = list(commands())
    return {
        head: [name for member in members for name in there if name.split()[0] == member]
        for head, members in GROUPS.items()
    }


def pages(docs: Path) -> dict[str, str]:
    """Files of docs/commands with their text."""
    found = commands()
    return {_file(name): _page(name, found[name], docs) for name in found} | {
        "index.md": _index(found)
    }


def navigation() -> list[str]:
    """Lines of mkdocs.yml."""
    lines = [f"- {name}: commands/{_file(name)}" for names in groups().values() for name in names]
    return ["- commands/index.md", *lines]


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.md"


def _index(found: dict[str, Any]) -> str:
    parts = [INTRODUCTION]
    for head, names in groups().items():
        lines = [f"## {head}", "", "| command | |", "|---|---|"]
        for name in names:
            lines.append(f"| [`bagwise {name}`]({_file(name)}) | {_cell(found[name].help)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _page(name: str, command: Any, docs: Path) -> str:
    # Types stand in the function's own annotations, whatever Typer makes of them.
    kinds = typing.get_type_hints(command.callback)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    parts = [f"# bagwise {name}", _plain(command.help), usage(name, arguments, options, kinds)]
    parts += _examples(command.epilog or "")
    if arguments:
        lines = [f"| `{_argument(p)}` | {_cell(p.help)} |" for p in arguments]
        parts.append("\n".join(["## Arguments", "", "| argument | |", "|---|---|", *lines]))
    if options:
        lines = [
            f"| `{_option(p, kinds)}` | {_cell(p.help)} | {_default(p)} |"
            for p in sorted(options, key=lambda p: not p.required)
        ]
        head = ["## Options", "", "| option | | default |", "|---|---|---|"]
        parts.append("\n".join([*head, *lines]))
    guides = [page for page in GUIDES.get(name.split()[0], ()) if (docs / page).exists()]
    if guides:
        said = ", ".join(f"[{page.removesuffix('.md')}](../{page})" for page in guides)
        parts.append(f"More: {said.replace('[index]', '[home]')}. [All commands](index.md).")
    else:
        parts.append("[All commands](index.md).")
    return "\n\n".join(parts) + "\n"


def usage(name: str, arguments: list[Any], options: list[Any], kinds: dict[str, Any]) -> str:
    """One line: what has to be given, and that there is more."""
    words = [_argument(p) if p.required else f"[{_argument(p)}]" for p in arguments]
    words += [_option(p, kinds) for p in options if p.required]
    words += ["[OPTIONS]"] if any(not p.required for p in options) else []
    return f"```text\nbagwise {' '.join([name, *words])}\n```"


def _examples(epilog: str) -> list[str]:
    """Examples of an epilog, each with the words before it."""
    parts = ["## Example"]
    for text in epilog.split("\n\n"):
        words, _, line = text.partition("[bold]")
        if words.strip() not in ("", "Example:"):
            parts.append(_plain(words.strip()))
        pieces = re.split(r" (?=--)", _plain(line))
        lines = [pieces[0]]
        for piece in pieces[1:]:
            fits = len(lines[-1]) + len(piece) < 84
            lines = [*lines[:-1], f"{lines[-1]} {piece}"] if fits else [*lines, f"    {piece}"]
        parts.append("```console\n$ " + " \\\n".join(lines) + "\n```")
    return parts


def _argument(each: Any) -> str:
    return str(each.name).upper() + ("..." if each.nargs == -1 else "")


def _option(each: Any, kinds: dict[str, Any]) -> str:
    names = "/".join([*each.opts, *each.secondary_opts])
    more = "..." if each.multiple else ""
    return f"{names} {_kind(kinds[each.name])}".strip() + more


def _kind(kind: Any) -> str:
    """What is typed after an option."""
    inner = [part for part in typing.get_args(kind) if part is not type(None)]
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return _kind(inner[0])
    return " ".join(map(_kind, inner)) if inner else KINDS.get(kind, "TEXT")


def _default(each: Any) -> str:
    if each.required:
        return "needed"
    if each.default is None or each.is_flag:
        return f"`{each.envvar}`" if each.envvar else ""
    return f"`{each.default}`"


def _plain(text: str) -> str:
    """Without the marks of the terminal."""
    return re.sub(r"\[/?bold\]", "", text).strip()


def _cell(text: str | None) -> str:
    return " ".join(_plain(text or "").split()).replace("|", "\\|")
