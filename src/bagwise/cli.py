"""The command line: one thin function a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

app = typer.Typer(
    name="bagwise",
    help="Learn about individuals from responses known only as averages over bags.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
errors = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")]


@app.callback()
def group() -> None:
    """Learn about individuals from responses known only as averages over bags."""


@app.command(epilog="Example: [bold]bagwise demo --out demo --bag-size 20[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path(
        "demo"
    ),
    bag_size: Annotated[int, typer.Option(help="Flights a bag.")] = 20,
    repeats: Annotated[int, typer.Option(help="Splits and draws of bags.")] = 20,
    as_json: Json = False,
) -> None:
    """Learn arrival delays of real flights from means over bags of them."""
    from bagwise.experiments import flights
    from bagwise.reports import flights as report

    flights.check(bag_size, repeats)
    out.mkdir(parents=True, exist_ok=True)
    result = flights.run(bag_size=bag_size, repeats=repeats, progress=_bar("Fitting flights"))
    table = report.summary(result)
    result.errors.to_csv(out / "flights.csv", index=False)
    report.draw(result).savefig(out / "flights.png", dpi=150)
    if as_json:
        print(json.dumps({"rmse": table.reset_index().to_dict("records"), "out": str(out)}))
        return
    title = f"Test error (RMSE in minutes, median of {repeats}), bags of {bag_size} flights"
    _print_table(title, ["training flights", *table.columns], table.itertuples())
    print(f"Picture: {out / 'flights.png'}\nNumbers: {out / 'flights.csv'}")


def _bar(title: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A progress bar on the terminal's error stream, and none where there is no terminal."""
    hidden = not errors.is_terminal
    return lambda items: track(items, title, console=errors, transient=True, disable=hidden)


def _print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table on standard output: whole numbers with commas, others with three digits or so."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(str(column), justify="right")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else f"{v:.4g}" for v in row))
    Console().print(table)


def main() -> None:
    """Run a command; bad input is one sentence and exit code 2."""
    try:
        app()
    except (ValueError, ImportError, OSError) as error:
        errors.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(2)
