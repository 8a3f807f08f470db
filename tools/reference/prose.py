"""Docstrings (numpydoc) as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

#: a link to the page of a public name, or None
Link: TypeAlias = Callable[[str], str | None]
SECTION = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}$", flags=re.MULTILINE)
# Sections of one entry after another; the others are prose.
FIELDS = ("Parameters", "Attributes", "Returns", "Yields", "Raises")
PROMISE = re.compile(r"^(Guarantees|Formal guarantee|Limits|Reference): ", flags=re.MULTILINE)
# What stays as it is: code, words in bold or italics, pages.
KEPT = re.compile(r"(``.+?``|`[^`]+`|\*\*[A-Z][a-z ]+:\*\*|\*[a-z]+\*|docs/[\w-]+\.md)")
# What Markdown would take for emphasis and no author meant so.
MARKS = re.compile(r"\*|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def title(page: Path) -> str:
    """The first heading of a page, up to a colon and without marks of code."""
    found = re.search(r"^# (.+)$", page.read_text(), flags=re.MULTILINE)
    assert found, f"{page.name} has no title"
    return found[1].partition(":")[0].replace("`", "")


def render(text: str, level: int, link: Link) -> str:
    """A docstring, its sections under headings of ``level``."""
    lead, *rest = SECTION.split(text)
    parts = [prose(lead, link)]
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        parts += ["#" * level + f" {name}", _section(name, body, link)]
    return "\n\n".join(part for part in parts if part)


def _section(name: str, body: str, link: Link) -> str:
    if name in FIELDS:
        return fields(body, link, named=name not in ("Returns", "Yields"))
    return examples(body) if name == "Examples" else prose(body, link)


def fields(body: str, link: Link, named: bool = True) -> str:
    """Entries of a section as a list: name, type, and what it is."""
    entries: list[list[str]] = []
    for line in body.strip("\n").splitlines():
        if line and not line.startswith(" "):
            entries.append([line])
        else:
            entries[-1].append(line.removeprefix("    "))
    return "\n\n".join(_entry(head, "\n".join(rest), link, named) for head, *rest in entries)


def _entry(head: str, text: str, link: Link, named: bool) -> str:
    names, colon, kind = head.partition(" : ")
    if not named and not colon:
        names, kind = "", head
    said = " ".join(f"`{name.strip()}`," for name in names.split(",") if name.strip())
    words = [f"**{said.rstrip(',')}**" if said else "", inline(kind, link)]
    # A type that runs on into the next line is one sentence with it.
    if kind and text[:1].islower():
        words[-1], text = inline(f"{kind}\n{text}", link), ""
    first = ": ".join(word for word in words if word)
    lines = [*first.splitlines(), *(["", *prose(text, link).splitlines()] if text.strip() else [])]
    return "- " + "\n".join(f"    {line}" if line else "" for line in lines).lstrip()


def examples(body: str) -> str:
    """A doctest as a block; the docstrings' tests run it."""
    return f"```pycon\n{body.strip()}\n```"


def prose(text: str, link: Link) -> str:
    """Paragraphs; indented ones are formulas and keep their shape."""
    text = PROMISE.sub(r"\n**\1:** ", text.strip("\n"))
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if block.startswith("    "):
            lines = "\n".join(line.removeprefix("    ") for line in block.splitlines())
            found.append(f"```text\n{lines}\n```")
        elif block.strip():
            found.append(inline(block.strip("\n"), link))
    return "\n\n".join(found)


def inline(text: str, link: Link) -> str:
    """Text with its code, names and pages as Markdown has them."""
    parts = KEPT.split(text)
    for place, part in enumerate(parts):
        if part.startswith("`"):
            name = part.strip("`")
            page = None if part.startswith("``") else link(name)
            parts[place] = f"[`{name}`]({page})" if page else f"`{name}`"
        elif part.startswith("docs/"):
            page = part.removeprefix("docs/")
            parts[place] = f"[{page.removesuffix('.md')}](../{page})"
        elif not KEPT.fullmatch(part):
            parts[place] = MARKS.sub(r"\\\g<0>", part).replace("<", "&lt;")
    return "".join(parts)
