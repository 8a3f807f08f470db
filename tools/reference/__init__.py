"""Pages of the documentation that follow from the code: one a command, one a public name.

    prose       docstrings as Markdown
    api         public names -> docs/api
    commands    the command line -> docs/commands

`python -m tools.reference` (or `make reference`) writes them, with their part of mkdocs.yml. They
are committed, and a test compares them with what the code says now.
"""

from __future__ import annotations

from pathlib import Path

from tools.reference import api, commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = (DOCS / "api", DOCS / "commands")
START, END = "      # written by tools/reference: {}\n", "      # end of {}\n"


def pages() -> dict[Path, str]:
    """What each generated file should hold, mkdocs.yml among them."""
    found = {DOCS / "api" / name: text for name, text in api.pages(DOCS).items()}
    found |= {DOCS / "commands" / name: text for name, text in commands.pages(DOCS).items()}
    navigation = ROOT / "mkdocs.yml"
    found[navigation] = _navigation(navigation.read_text())
    return found


def written() -> dict[Path, str]:
    """What the generated files hold."""
    files = [ROOT / "mkdocs.yml", *(path for place in FOLDERS for path in place.rglob("*"))]
    return {path: path.read_text() for path in files}


def write() -> None:
    """Write the pages, and remove those of what is no more."""
    wanted = pages()
    for path in written().keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _navigation(text: str) -> str:
    """mkdocs.yml with a line for each command and name between its marks."""
    for part, lines in (("commands", commands.navigation()), ("api", api.navigation(DOCS))):
        start, end = START.format(part), END.format(part)
        before, rest = text.split(start)
        after = rest.split(end)[1]
        text = "".join([before, start, *(f"      {line}\n" for line in lines), end, after])
    return text
