"""Commands of those who plan and study: demo, plan, paper."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bagwise._disk import appearing_file
from bagwise.cli.shared import Json, app, bar, print_table


@app.command(epilog="Example: [bold]bagwise demo --out demo --bag-size 20[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path(
        "demo"
    ),
    bag_size: Annotated[int, typer.Option(help="Flights a bag.")] = 20,
    repeats: Annotated[int, typer.Option(help="Splits and draws of bags.")] = 20,
    as_json: Json = False,
) -> None:
    """Learn arrival delays of real flights from means over bags of them, plain and private."""
    from bagwise.experiments import flights, private_flights
    from bagwise.reports import flights as report
    from bagwise.reports import private_flights as private_report

    flights.check(bag_size, repeats)
    out.mkdir(parents=True, exist_ok=True)
    result = flights.run(bag_size=bag_size, repeats=repeats, progress=bar("Fitting flights"))
    table = report.summary(result)
    _keep(result.errors, report.draw(result), out / "flights")
    private = private_flights.run(
        bag_size=bag_size, repeats=min(repeats, 6), progress=bar("Releasing flights")
    )
    private_table = private_report.summary(private)
    _keep(private.errors, private_report.draw(private), out / "private_flights")
    if as_json:
        tables = {"rmse": table, "private_rmse": private_table}
        # Strictly JSON, which has no infinity: no epsilon is null.
        lines = {
            k: json.loads(t.reset_index().to_json(orient="records")) for k, t in tables.items()
        }
        print(json.dumps(lines | {"out": str(out)}))
        return
    title = f"Test error (RMSE in minutes, median of {repeats}), bags of {bag_size} flights"
    print_table(title, ["training flights", *table.columns], table.itertuples())
    title = f"The same with label privacy ({private.n_rows:,} flights), by bounds of a delay"
    print_table(title, ["epsilon", *private_table.columns], private_table.itertuples())
    for name in ("flights", "private_flights"):
        print(f"Picture: {out / name}.png, numbers: {out / name}.csv")


def _keep(errors: Any, figure: Any, path: Path) -> None:
    """Numbers and picture of an experiment, in place of those of an earlier run."""
    with appearing_file(path.with_suffix(".csv"), over=True) as place:
        errors.to_csv(place, index=False)
    with appearing_file(path.with_suffix(".png"), over=True) as place:
        figure.savefig(place, format="png", dpi=150)


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
        figure: Any = chosen.plot().figure
        with appearing_file(plot, over=True) as place:
            figure.savefig(place, format=plot.suffix[1:] or "png", dpi=150)
    if as_json:
        print(json.dumps(chosen.to_dict()))
        return
    columns = ["rows a bag", "bags", "best rho", "bias", "sampling", "privacy", "error"]
    lines = [
        (t.bag_size, t.n_bags, t.rho, t.bias, t.sampling, t.privacy, t.risk) for t in chosen.table
    ]
    print_table("Expected squared error beyond the noise", columns, lines)
    for sentence in chosen.sentences:
        Console().print(sentence, soft_wrap=True, highlight=False)


# Networks: a quarter of an hour on two cores.
SLOW = "figure4"
FIGURES = ("figure1", "figure2", "figure3", "double_descent", "private_bags", "chosen_rho")


@app.command(epilog="Example: [bold]bagwise paper all --out paper[/bold]")
def paper(
    figure: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(FIGURES)}, or all of these; or {SLOW}, which is slow."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for pictures and numbers.")] = Path("paper"),
    full: Annotated[
        bool, typer.Option("--full", help=f"Every setting of {SLOW}, for a GPU.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures and three of our own, with the numbers behind them."""
    from bagwise import _check
    from bagwise.reports.paper import save

    _check.choice("figure", figure, (*FIGURES, SLOW, "all"))
    if full and figure != SLOW:
        _check.refuse("full", f"asked of {SLOW} alone", f"figure={figure!r}", "Leave it out")
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name in FIGURES if figure == "all" else (figure,):
        run = import_module(f"bagwise.experiments.{name}").run
        slow = "progress" in signature(run).parameters
        options: dict[str, Any] = {"progress": bar(f"Drawing {name}")} if slow else {}
        data = run(**options, **({"full": True} if full else {}))
        paths = save(data, out)
        claims = [asdict(claim) for claim in data.claims]
        results[name] = {"files": [str(path) for path in paths], "claims": claims}
        if not as_json:
            print(f"{name}: {paths[0]}")
            for claim in data.claims:
                print(f"  {'holds' if claim.holds else 'fails'}: {claim.text} ({claim.evidence})")
    if as_json:
        print(json.dumps(results))
