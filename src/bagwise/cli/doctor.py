"""Command for whoever wonders what is installed: doctor."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import asdict

from rich.console import Console

from bagwise._extras import Extra, core, extras
from bagwise.cli.shared import Json, app, print_table


@app.command(epilog="Example: [bold]bagwise doctor[/bold]")
def doctor(as_json: Json = False) -> None:
    """Say what is installed, and what each missing extra would add."""
    here, found = core(), extras()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    java = shutil.which("java")
    if as_json:
        said = {"python": platform.python_version(), "machine": machine, "java": java is not None}
        print(json.dumps(said | {"core": here, "extras": [asdict(extra) for extra in found]}))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"Python {platform.python_version()}; {machine}.")
    console.print(f"Here: {_listed(here)}.")
    optional = {name: number for extra in found for name, number in extra.found.items()}
    console.print(f"Optional parts: {_listed(optional) or 'none'}.")
    print_table(
        "Extras",
        ("extra", "adds", "here"),
        [(extra.name, extra.adds, _state(extra, java is not None)) for extra in found],
    )
    lacking = ",".join(extra.name for extra in found if extra.missing)
    remedy = f"To add what is missing: pip install 'bagwise[{lacking}]'"
    console.print(remedy if lacking else "Every extra is here.", markup=False)


def _listed(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(packages.items()))


def _state(extra: Extra, java: bool) -> str:
    """Whether an extra is there, or what of it is not."""
    if extra.missing:
        return f"no, without {', '.join(extra.missing)}"
    return "no, without Java" if extra.name == "spark" and not java else "yes"
