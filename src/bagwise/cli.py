"""The command line: one thin function a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib import import_module
from inspect import signature
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


@app.command(
    "plan",
    epilog="Example: [bold]bagwise plan --rows 1e6 --features 50 --snr 2 --epsilon 1 "
    "--bounds -5 5[/bold]",
)
def plan_command(
    rows: Annotated[float, typer.Option(help="Rows of the training table.")],
    features: Annotated[float, typer.Option(help="Its features.")],
    snr: Annotated[float | None, typer.Option(help="Signal variance over noise variance.")] = None,
    signal: Annotated[float | None, typer.Option(help="Standard deviation of the signal.")] = None,
    noise: Annotated[float | None, typer.Option(help="Standard deviation of the noise.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Label-privacy budget.")] = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Public bounds of the responses.")
    ] = None,
    bag_sizes: Annotated[
        str | None, typer.Option(help="Sizes to choose from: 1,10,100. Default 1, 2, 5, … 1000.")
    ] = None,
    min_bag_size: Annotated[int, typer.Option(help="Anonymity that is asked for.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Also draw the plan to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Choose bag size and rho before anything is released, and see what they cost."""
    from bagwise.planning import plan

    try:
        sizes: Any = None if bag_sizes is None else [float(word) for word in bag_sizes.split(",")]
    except ValueError:
        raise ValueError(
            f"bag_sizes must be whole numbers with commas between; got {bag_sizes!r}. "
            "Pass 1,10,100, say."
        ) from None
    chosen = plan(
        rows,  # type: ignore[arg-type]
        features,  # type: ignore[arg-type]
        snr=snr,
        signal=signal,
        noise=noise,
        epsilon=epsilon,
        bounds=bounds,
        bag_sizes=sizes,
        min_bag_size=min_bag_size,
    )
    if plot is not None:
        chosen.plot().figure.savefig(plot, dpi=150)  # type: ignore[union-attr]
    if as_json:
        print(json.dumps(chosen.to_dict()))
        return
    columns = ["rows a bag", "bags", "best rho", "bias", "sampling", "privacy", "error"]
    lines = [
        (t.bag_size, t.n_bags, t.rho, t.bias, t.sampling, t.privacy, t.risk) for t in chosen.table
    ]
    _print_table("Expected squared error beyond the noise", columns, lines)
    for sentence in chosen.sentences:
        Console().print(sentence, soft_wrap=True, highlight=False)


FIGURES = ("figure1", "figure2", "figure3", "double_descent", "private_bags", "chosen_rho")


@app.command(epilog="Example: [bold]bagwise paper all --out paper[/bold]")
def paper(
    figure: Annotated[str, typer.Argument(help=f"One of {', '.join(FIGURES)}, or all.")],
    out: Annotated[Path, typer.Option(help="Folder for pictures and numbers.")] = Path("paper"),
    as_json: Json = False,
) -> None:
    """Draw the paper's figures and three of our own, with the numbers behind them."""
    from bagwise import _check
    from bagwise.reports.paper import save

    _check.choice("figure", figure, (*FIGURES, "all"))
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name in FIGURES if figure == "all" else (figure,):
        run = import_module(f"bagwise.experiments.{name}").run
        slow = "progress" in signature(run).parameters
        data = run(progress=_bar(f"Drawing {name}")) if slow else run()
        paths = save(data, out)
        claims = [asdict(claim) for claim in data.claims]
        results[name] = {"files": [str(path) for path in paths], "claims": claims}
        if not as_json:
            print(f"{name}: {paths[0]}")
            for claim in data.claims:
                print(f"  {'holds' if claim.holds else 'fails'}: {claim.text} ({claim.evidence})")
    if as_json:
        print(json.dumps(results))


def _bar(title: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A progress bar on the terminal's error stream, and none where there is no terminal."""
    hidden = not errors.is_terminal
    return lambda items: track(items, title, console=errors, transient=True, disable=hidden)


def _print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table on standard output: whole numbers with commas, others with three digits."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(str(column), justify="right")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else f"{v:.3g}" for v in row))
    Console().print(table)


def main() -> None:
    """Run a command; bad input is one sentence and exit code 2."""
    try:
        app()
    except (ValueError, ImportError, OSError) as error:
        errors.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(2)
