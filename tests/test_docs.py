"""Docs that run: every Python block, every command's help, every example in it."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from bagwise import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(group, before=""):
    """Commands by the words that call them, those of groups too."""
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{before}{name} ")
        else:
            found[before + name] = command
    return found


COMMANDS = commands(typer.main.get_command(cli.app))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_blocks_run(page):
    names = {"np": np}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_ends_in_an_example(name):
    command = COMMANDS[name]
    assert command.help
    assert command.epilog
    assert command.epilog.startswith(f"Example: [bold]bagwise {name}")
    assert any(f"bagwise {name}" in page.read_text() for page in PAGES)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_parses(name, monkeypatch):
    """The example's options exist; the commands themselves run in their own tests."""
    example = re.search(r"\[bold\]bagwise (.*)\[/bold\]", COMMANDS[name].epilog)
    assert example
    words = shlex.split(example[1])
    with COMMANDS[name].make_context(name, words[len(name.split()) :]):
        pass


def test_no_arguments_show_help():
    result = CliRunner().invoke(cli.app, [])
    assert "demo" in result.output
