"""What a newcomer types first: the command alone, its help, doctor, completion, the version."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

import bagwise
from bagwise import _extras, cli
from bagwise.cli.shared import GROUPS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = set(typer.main.get_command(cli.app).commands)


def test_every_command_is_in_one_group():
    named = [name for group in GROUPS.values() for name in group]
    assert sorted(named) == sorted(COMMANDS)


def test_help_lists_groups_in_the_order_of_the_pipeline():
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    places = [shown.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert re.search(rf"│ {name} ", shown)


def test_the_command_alone_says_where_to_start(command):
    code, shown, _ = command()
    assert code == 0
    told = set(re.findall(r"^  bagwise (\w+)", shown, flags=re.MULTILINE))
    assert {"demo", "plan", "release", "fit", "doctor"} <= told <= COMMANDS


def test_the_version_is_one_everywhere(command):
    number = PROJECT["version"]
    assert bagwise.__version__ == number == metadata.version("bagwise")
    assert command("--version")[1] == f"bagwise {number}\n"
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(cited["version"]) == number
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## (\S+) \((\S+)\)", changes, flags=re.MULTILINE).groups() == (
        number,
        str(cited["date-released"]),
    )


def test_the_package_runs_as_a_module():
    words = [sys.executable, "-m", "bagwise", "--version"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown == f"bagwise {bagwise.__version__}\n"


# doctor


def test_doctor_knows_every_extra():
    assert list(_extras.EXTRAS) == list(PROJECT["optional-dependencies"])


def test_doctor_says_what_is_installed(command):
    code, shown, _ = command("doctor", "--json")
    said = json.loads(shown)
    assert code == 0
    assert said["core"]["numpy"] == metadata.version("numpy")
    assert {"numpy", "scipy", "scikit-learn", "typer"} <= said["core"].keys()
    by_name = {extra["name"]: extra for extra in said["extras"]}
    assert by_name["boosting"]["found"] == {"lightgbm": metadata.version("lightgbm")}
    # Extras of extras are told by their packages.
    assert {"opendp", "duckdb"} <= by_name["release"]["found"].keys()
    assert "Every extra is here." in command("doctor")[1]


def test_doctor_says_what_is_missing_and_how_to_add_it(command, monkeypatch):
    real = _extras.version

    def version(name):
        if name in ("torch", "opendp"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(_extras, "version", version)
    _, shown, _ = command("doctor")
    assert re.search(r"neural │ +neural networks │ +no, without torch", shown)
    assert re.search(r"boosting │ +boosted trees │ +yes", shown)
    asked = re.search(r"pip install 'bagwise\[(.*)\]'", shown)[1].split(",")
    assert {"neural", "release"} <= set(asked)
    assert "boosting" not in asked


def test_doctor_says_that_spark_needs_java(command, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert re.search(r"spark │.*no, without Java", command("doctor")[1])


# Completion


@pytest.mark.parametrize(
    ("typed", "offered"), [("bagwise rel", "release"), ("bagwise fit --resp", "--response")]
)
def test_a_shell_completes_commands_and_options(typed, offered):
    asked = {"_BAGWISE_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    asked["COMP_CWORD"] = str(len(typed.split()) - 1)
    code = "import sys; sys.argv = ['bagwise']; from bagwise_command import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | asked
    ).stdout
    assert shown.split() == [offered]


def test_a_shell_is_told_how_to_complete():
    found = CliRunner().invoke(cli.app, ["--show-completion", "bash"], prog_name="bagwise")
    assert "_BAGWISE_COMPLETE=complete_bash" in found.output
