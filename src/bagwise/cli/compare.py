"""Command of those who compare methods: benchmark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli.shared import Json, app, bar, names, print_table


@app.command(epilog="Example: [bold]bagwise benchmark --out benchmark --size small --jobs 2[/bold]")
def benchmark(
    out: Annotated[Path, typer.Option(help="Folder of the results; a second run goes on.")] = Path(
        "benchmark"
    ),
    size: Annotated[str, typer.Option(help="small: minutes; full: every table and bag.")] = "small",
    tables: Annotated[str | None, typer.Option(help="Tables, with commas between.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, or families: ours, baseline, peer.")
    ] = None,
    bags: Annotated[str | None, typer.Option(help="Bag sizes, and natural.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Splits of rows and draws of bags.")] = None,
    rows: Annotated[int | None, typer.Option(help="Most rows of a table.")] = None,
    jobs: Annotated[int, typer.Option(help="Workers, of one thread each.")] = 1,
    limit: Annotated[float | None, typer.Option(help="Seconds a fit may take.")] = None,
    peers: Annotated[
        Path | None, typer.Option(help="Folder of others' code; run that, too.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results.")] = False,
    redo: Annotated[str | None, typer.Option(help="Methods or families to fit again.")] = None,
    page: Annotated[Path | None, typer.Option(help="Also write a page with pictures.")] = None,
    as_json: Json = False,
) -> None:
    """Fit every method on real tables from bags, and see who stands where."""
    from bagwise import _check
    from bagwise.benchmark import standing
    from bagwise.benchmark.run import SIZES, run

    _check.choice("size", size, tuple(SIZES))
    given: dict[str, Any] = {"seeds": seeds, "rows": rows, "limit": limit, "peers": peers}
    given |= {"methods": names(methods), "tables": names(tables), "bags": names(bags)}
    grid = replace(SIZES[size], **{k: v for k, v in given.items() if v is not None})
    found = run(grid, out, jobs, fresh, names(redo) or (), bar("Fitting"))
    table = standing.recovered(found)
    if page is not None:
        from bagwise.benchmark.results import Results
        from bagwise.reports.benchmark_page import save

        save(found, Results(out).description(), page, _command(size, given))
    lines = standing.summary(table)
    if as_json:
        print(json.dumps({"out": str(out), "methods": json.loads(lines.to_json(orient="records"))}))
        return
    columns = ["method", "recovery", "mean rank", "time", "fits", "failed"]
    print("Median recovery of what full labels give; time of a fit over that of ridge on means")
    for task, part in lines.groupby("task"):
        shown = part.drop(columns=["task", "family"]).itertuples(index=False)
        print_table(str(task), columns, shown)
    for path in (out / "results.parquet", *([] if page is None else [page])):
        print(path)


def _command(size: str, given: dict[str, Any]) -> str:
    """The command that makes the same page elsewhere, without places of this machine."""
    words = ["bagwise benchmark", f"--size {size}"]
    for name, value in given.items():
        if name == "peers" and value is not None:
            words.append("--peers peers")
        elif value is not None:
            words.append(f"--{name} {','.join(value) if isinstance(value, list) else value}")
    return " ".join([*words, "--page docs/benchmark.md"])
