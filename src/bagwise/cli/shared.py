"""The command line's app, and what its commands share."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bagwise._progress import bar as bar

errors = Console(stderr=True)

app = typer.Typer(
    name="bagwise",
    help="Learn about individuals from responses known only as averages over bags.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Json = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")]


@app.callback()
def group() -> None:
    """Learn about individuals from responses known only as averages over bags."""


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
