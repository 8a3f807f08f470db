"""Command of those who show what was learnt: report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli.shared import BagsOfTable, Json, MeansOfTable, app, bar, check_source, names


@app.command(
    "report", epilog="Example: [bold]bagwise report model --data released --out report.html[/bold]"
)
def report_command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[
        list[str], typer.Option(help="What it was fitted to: a Release, or a table's files.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .html.")],
    response: MeansOfTable = None,
    bags: BagsOfTable = None,
    as_json: Json = False,
) -> None:
    """Write a page that says what a model learnt from bags, and how far to trust it."""
    from bagwise import BagTable, Release, _check
    from bagwise._disk import refuse_there
    from bagwise.estimators.models import load_model
    from bagwise.reports.model_report import report

    if out.suffix.lower() not in (".html", ".htm"):
        _check.refuse("out", "a .html file", repr(str(out)), "A browser goes by its name")
    refuse_there(out)
    check_source(data, response, bags)
    fitted = load_model(model)
    source: Any = (
        Release.load(data[0])
        if response is None
        else BagTable(data, response, names(bags) or [], progress=bar("Reading rows"))
    )
    called = {"model_name": model.name, "data_name": " ".join(Path(one).name for one in data)}
    made = report(fitted, source, **called, progress=bar("Looking at bags"))
    made.save(out)
    if as_json:
        print(json.dumps({"out": str(out), **made.numbers}))
        return
    print(f"Report: {out}")
    for name, reason in made.numbers["left_out"].items():
        print(f"Left out: {name}. {reason}")
