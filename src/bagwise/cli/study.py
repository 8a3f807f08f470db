"""Commands of those who plan and study: demo, plan, paper."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bagwise._disk import appearing_file
from bagwise.cli.shared import Json, app, bar, print_table


@app.command(epilog="Example: [bold]bagwise demo --out demo --epsilon 1[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for all that it makes.")] = Path("demo"),
    bag_size: Annotated[int, typer.Option(help="Least number of flights a bag.")] = 20,
    epsilon: Annotated[float, typer.Option(help="Label-privacy budget.")] = 1.0,
    flights: Annotated[
        int | None, typer.Option(help="Training flights at most; default: all 245,509.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan, release and learn delays of real flights, and see what came of it on one page."""
    from bagwise.experiments import story
    from bagwise.reports import story as page

    start = time.perf_counter()
    told = story.run(out, bag_size=bag_size, epsilon=epsilon, most=flights, progress=bar)
    made = page.report(told, time.perf_counter() - start, bar("Looking at bags"))
    made.save(out / "report.html", over=True)
    with appearing_file(out / "demo.json", over=True) as place:
        place.write_text(json.dumps(made.numbers))
    if as_json:
        print(json.dumps({"out": str(out), **made.numbers}))
        return
    if told.replaced:
        print(f"Replaced what an earlier demo made in {out}.")
    for line in page.lines(told):
        print(line)
    print(f"Report: {out / 'report.html'} ({time.perf_counter() - start:.0f} s)")


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


# Our own, of real flights: half a minute each on two cores.
STUDIES = ("flights", "private_flights")


@app.command(epilog="Example: [bold]bagwise paper all --out paper[/bold]")
def paper(
    figure: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(FIGURES)}, or all of these; {' or '.join(STUDIES)}, of real "
            f"flights; or {SLOW}, which is slow."
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

    _check.choice("figure", figure, (*FIGURES, *STUDIES, SLOW, "all"))
    if full and figure != SLOW:
        _check.refuse("full", f"asked of {SLOW} alone", f"figure={figure!r}", "Leave it out")
    out.mkdir(parents=True, exist_ok=True)
    if figure in STUDIES:
        _study(figure, out, as_json)
        return
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


def _study(name: str, out: Path, as_json: bool) -> None:
    """An experiment on flights: a table of medians, the picture, and the numbers behind it."""
    result = import_module(f"bagwise.experiments.{name}").run(progress=bar(f"Drawing {name}"))
    report = import_module(f"bagwise.reports.{name}")
    table = report.summary(result)
    _keep(result.errors, report.draw(result), out / name)
    files = [str(out / f"{name}.{kind}") for kind in ("png", "csv")]
    if as_json:
        # Strictly JSON, which has no infinity: no epsilon is null.
        rows = json.loads(table.reset_index().to_json(orient="records"))
        print(json.dumps({name: {"files": files, "rmse": rows}}))
        return
    title = f"Test error (RMSE in minutes, medians), bags of {result.bag_size} flights"
    print_table(title, [str(table.index.name), *table.columns], table.itertuples())
    print(f"{name}: {files[0]}")
