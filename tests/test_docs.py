"""Docs that run: every block of Python and of commands, every command's help and page."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from tools import reference
from tools.reference.commands import commands
from typer.testing import CliRunner

from bagwise import cli

matplotlib.use("Agg")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [page for page in PAGES if page.parent not in reference.FOLDERS]
BLOCKS = re.compile(r"```(python|console)\n(.*?)```", flags=re.DOTALL)
COMMANDS = commands()

RELEASED = (
    "bagwise release flights.parquet --response arr_delay --bag-size 20 --epsilon 4 "
    "--bounds -100 500 --budget 4 --out released"
)
#: commands that a page takes as done
BEFORE = {"linear.md": [RELEASED]}
#: commands of which only the options are checked, by how they begin or what they say
NOT_RUN = {
    "bagwise demo": "minutes; test_demo.py runs it",
    "bagwise paper": "minutes; test_paper.py runs it",
    "bagwise benchmark": "minutes; test_benchmark.py runs it",
    "bagwise app": "serves until it is stopped; tests of its own",
    "--model auto": "minutes, and what it takes is not there; test_auto.py runs it",
    "--engine spark": "starts a cluster; test_spark.py does",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """What the pages' commands read: small, with the columns that they name."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    n = 2000
    flights = pd.DataFrame({"hour": rng.integers(5, 23, n), "dep_delay": rng.gamma(1, 20, n) - 10})
    flights["carrier"] = rng.choice(["UA", "AA", "DL"], n)
    flights["arr_delay"] = (flights["dep_delay"] + rng.normal(scale=15, size=n)).round()
    flights.to_parquet(folder / "flights.parquet")
    (folder / "clicks").mkdir()
    for part in range(2):
        clicks = pd.DataFrame({"visits": rng.poisson(3, n), "bought": rng.integers(0, 2, n)})
        clicks.to_parquet(folder / "clicks" / f"{part}.parquet")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_blocks_run_in_the_order_of_the_page(page, tables, tmp_path, command, monkeypatch):
    """In a folder of the page's own, with the tables beside it; commands must end with 0."""
    blocks = BLOCKS.findall(page.read_text())
    folder = shutil.copytree(tables, tmp_path / "page")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BAGWISE_LEDGER", str(tmp_path / "ledger.db"))
    names = {}
    # Tests of their own run the examples of commands' pages.
    run = command if page in GUIDES else None
    for line in BEFORE.get(page.name, ()) if run else ():
        check_line(line, run)
    for language, block in blocks:
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
        else:
            for line in lines_of(block):
                check_line(line, run)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_block_says_whether_it_runs(page):
    """Examples of names (pycon) are docstrings, which test_architecture.py runs."""
    kinds = set(re.findall(r"^```(.*)\n", page.read_text(), flags=re.MULTILINE)[::2])
    assert kinds <= {"python", "console", "text", *([] if page in GUIDES else ["pycon"])}


def lines_of(block):
    """Commands of a console block: what follows a dollar, joined where lines go on."""
    joined = re.sub(r"\\\n\s*", "", block)
    return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def check_line(line, run):
    """Run a command of the docs, or see that all it names exists."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(words[1:]) <= set(targets), line
    elif words[0] == "python":
        assert (ROOT / words[1]).exists(), line
    elif words[0] == "curl":
        ask(words[-1], "POST" if "--data-binary" in words else "GET")
    else:
        assert words[0] == "bagwise", f"{line}: a word that no test knows"
        parse(words[1:])
        if run and not any(mark in " ".join(words) for mark in NOT_RUN):
            code, _, errors = run(*words[1:])
            assert code == 0, f"{line}: {errors}"


def ask(address, method):
    """See that the planner answers a question of the docs; what is posted has tests of its own."""
    from bagwise.app.server import make_app

    server, path = make_app(), address.removeprefix("http://127.0.0.1:8050")
    if method == "GET":
        assert server.test_client().get(path).status_code == 200, address
    else:
        assert server.url_map.bind("").test(path, method), address


def parse(words):
    """See that a command has these options and arguments."""
    found = [name for name in COMMANDS if words[: len(name.split())] == name.split()]
    assert found, f"no command in {words}"
    with COMMANDS[found[0]].make_context(found[0], words[len(found[0].split()) :]):
        pass


def test_a_wrong_option_in_a_page_is_found():
    """The check above would pass on a parser that takes anything."""
    with pytest.raises(Exception, match="bag-sise"):
        check_line("bagwise release flights.parquet --bag-sise 20", None)
    with pytest.raises(AssertionError):
        check_line("make nothing", None)
    with pytest.raises(AssertionError):
        check_line("curl anything", None)


def test_generated_pages_say_what_the_code_says():
    wanted, there = reference.pages(), reference.written()
    paths = sorted(wanted.keys() | there.keys())
    stale = [path.name for path in paths if wanted.get(path) != there.get(path)]
    assert not stale, f"{', '.join(stale)} must follow the code. Run make reference."


def test_the_site_builds_without_a_warning(tmp_path):
    """Also of places within pages that links name; pictures and pages are all there."""
    pytest.importorskip("zensical")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = (tmp_path / "mkdocs.yml").read_text()
    assert not [page for page in PAGES[1:] if str(page.relative_to(ROOT / "docs")) not in listed]


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
    assert any(f"bagwise {name}" in page.read_text() for page in GUIDES)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_parses(name, monkeypatch):
    """The example's options exist; the commands themselves run in their own tests."""
    example = re.search(r"\[bold\]bagwise (.*)\[/bold\]", COMMANDS[name].epilog)
    assert example
    parse(shlex.split(example[1]))


def test_no_arguments_show_help():
    result = CliRunner().invoke(cli.app, [])
    assert "demo" in result.output
