"""The command line's app, and what its commands share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from bagwise import _check
from bagwise._progress import bar as bar

errors = Console(stderr=True)

#: the commands in the order of the pipeline
GROUPS = {
    "Start": ("demo", "doctor"),
    "Plan": ("plan", "app"),
    "Release, as a curator": ("release", "ledger", "audit"),
    "Fit and use, as a learner": ("fit", "predict", "evaluate", "report"),
    "Compare": ("benchmark", "paper"),
}
START = """\
[bold]Learn about individuals from responses known only as averages over bags.[/bold]

  bagwise demo      the whole story on real flights, in two minutes
  bagwise plan      what a bag size and an epsilon will cost, beforehand
  bagwise release   CURATOR: give away noisy means over bags, privately
  bagwise fit       LEARNER: a model for rows, from such means
  bagwise doctor    what is installed, and what is not

bagwise --help lists every command, and each one's help ends in an example."""


class Pipeline(TyperGroup):
    """The commands in the order and the groups of the pipeline."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in that order, each told its group."""
        names = [name for group in GROUPS.values() for name in group if name in self.commands]
        for group, members in GROUPS.items():
            for name in set(members) & set(names):
                self.commands[name].rich_help_panel = group  # type: ignore[attr-defined]
        return names


app = typer.Typer(
    name="bagwise",
    cls=Pipeline,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

MeansOfTable = Annotated[
    str | None, typer.Option(help="Of a table: the column with its bag's mean in each row.")
]
BagsOfTable = Annotated[
    str | None, typer.Option(help="Of a table: columns that make a bag, commas between.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"bagwise {version('bagwise')}")
        raise typer.Exit


@app.callback()
def group(
    context: typer.Context,
    show: Annotated[
        bool,
        typer.Option("--version", help="Say which it is.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Learn about individuals from responses known only as averages over bags."""
    if context.invoked_subcommand is None:
        Console().print(START, highlight=False)


def check_source(data: Sequence[str], response: str | None, bags: str | None) -> None:
    """Refuse what is neither one Release nor a table with means and bags."""
    if (response is None) != (bags is None):
        got = "one without the other"
        _check.refuse("response and bags", "both given, for a table", got, "A Release has both")
    if response is None and len(data) > 1:
        got = f"{len(data)} paths"
        _check.refuse("data", "one Release folder", got, "Give response and bags for a table")


def names(text: str | None) -> list[str] | None:
    """Names with commas between."""
    return None if text is None else [word.strip() for word in text.split(",")]


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table on standard output."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(str(column), justify="right", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    Console().print(table)


def cell(value: Any) -> str:
    """Whole numbers with commas, others with three digits, amounts and texts as they are."""
    if isinstance(value, str | Decimal):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
