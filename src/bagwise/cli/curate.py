"""Commands of the curator: release, ledger, audit."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.shared import Json, app, bar, names, print_table

if TYPE_CHECKING:
    from bagwise.release import Ledger

LedgerPath = Annotated[
    Path | None,
    typer.Option(envvar="BAGWISE_LEDGER", help="SQLite file. Default: one for each account."),
]


@app.command(
    "release",
    epilog="Example: [bold]bagwise release flights.parquet --response arr_delay --bag-size 20 "
    "--epsilon 1 --bounds -60 180 --budget 3 --out released[/bold]\n\n"
    "With like rows in half of the bags, for the same epsilon: [bold]bagwise release "
    "flights.parquet --response arr_delay --bag-size 20 --rounds 2 --epsilon 1 "
    "--bounds -60 180 --budget 3 --out released[/bold]",
)
def release_command(
    data: Annotated[
        list[str],
        typer.Argument(help="Rows with responses: CSV or Parquet files, folders, globs, or -."),
    ],
    response: Annotated[str, typer.Option(help="Column to protect.")],
    epsilon: Annotated[float, typer.Option(help="What to spend; inf releases plain means.")],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Public bounds of the response, chosen without looking at it."),
    ] = None,
    log_bound: Annotated[
        float | None, typer.Option(help="Instead of bounds: C of plus or minus C sqrt(log n).")
    ] = None,
    bag_size: Annotated[int | None, typer.Option(help="Rows a bag, drawn at random.")] = None,
    bags: Annotated[
        str | None, typer.Option(help="Or columns that make a bag, with commas between.")
    ] = None,
    min_bag_size: Annotated[int, typer.Option(help="Refuse smaller bags.")] = 1,
    rounds: Annotated[
        int, typer.Option(help="2: bags of one half put rows together that the other finds alike.")
    ] = 1,
    user: Annotated[
        str | None, typer.Option(help="Column of users: protect all labels of one.")
    ] = None,
    max_rows_per_user: Annotated[int, typer.Option(help="Others are dropped.")] = 1,
    features: Annotated[
        str, typer.Option(help="What leaves of the features: rows, means, statistics or none.")
    ] = "rows",
    columns: Annotated[
        str | None, typer.Option(help="Features that leave, with commas between. Default: all.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Total to spend on these responses, ever.")
    ] = None,
    ledger: LedgerPath = None,
    step: Annotated[float | None, typer.Option(help="Grid, a power of two.")] = None,
    paper: Annotated[bool, typer.Option(help="The paper's noise, which costs 2 epsilon.")] = False,
    engine: Annotated[
        str, typer.Option(help="Where to work: local, spark, or spark://host:port.")
    ] = "local",
    as_json: Json = False,
) -> None:
    """CURATOR: release clipped, noisy means over bags, and charge the ledger for it."""
    from bagwise import _check
    from bagwise.engines import open_engine
    from bagwise.release import Ledger, default_ledger, release, release_in_rounds

    if (bounds is None) == (log_bound is None):
        got = f"bounds={bounds}, log_bound={log_bound}"
        _check.refuse("bounds", "given, or log_bound, not both", got, "--bounds -60 180, say")
    if rounds not in (1, 2):
        remedy = "More rounds would part the rows further"
        _check.refuse("rounds", "1 or 2", f"rounds={rounds}", remedy)
    if rounds == 2 and bags is not None:
        remedy = "Say how many rows with --bag-size: the rounds make the bags"
        _check.refuse("bags", "left out in two rounds", f"bags={bags!r}", remedy)
    path = ledger or default_ledger()
    bagging: dict[str, Any] = {"bag_size": bag_size}
    if rounds == 1:
        bagging["bags"] = names(bags)
    made = (release if rounds == 1 else release_in_rounds)(
        data,
        response=response,
        epsilon=epsilon,
        bounds=bounds if log_bound is None else log_bound,  # type: ignore[arg-type]
        ledger=path,
        out=out,
        min_bag_size=min_bag_size,
        user=user,
        max_rows_per_user=max_rows_per_user,
        features=features,
        columns=names(columns),
        budget=budget,
        step=step,
        paper=paper,
        engine=open_engine(engine),
        progress=bar,
        **bagging,
    )
    said, book = made.statement, Ledger(path)
    account = book.dataset_of(said.charge)
    if as_json:
        money = {"dataset": account.id, "spent": account.spent, "left": account.left}
        print(json.dumps({"out": str(out), "statement": asdict(said), **_plain(money)}))
        return
    sizes = f"{said.smallest_bag}" + (
        f" to {said.largest_bag}" if said.largest_bag > said.smallest_bag else ""
    )
    dropped = f" ({said.n_dropped:,} past the cap were dropped)" if said.n_dropped else ""
    noise = 2**0.5 * said.scale * said.step / said.smallest_bag
    print(f"Released {said.n_rows:,} rows in {said.n_bags:,} bags of {sizes}{dropped}: {out}")
    print(f"Noise on a mean: standard deviation {noise:.3g} in the smallest bag.")
    print(said.promise)
    print(f"Spent {account.spent} of {account.budget} on {account.name}; {account.left} left.")


ledger_app = typer.Typer(help="What was spent on which responses.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")


@ledger_app.command("show", epilog="Example: [bold]bagwise ledger show --ledger ledger.db[/bold]")
def ledger_show(ledger: LedgerPath = None, as_json: Json = False) -> None:
    """List data sets, their budgets and what is left."""
    book = _ledger(ledger)
    found = book.datasets()
    if as_json:
        lines = [_plain(asdict(d) | {"left": d.left}) for d in found]
        print(json.dumps({"ledger": str(book.path), "datasets": lines, "entries": book.entries()}))
        return
    columns = ["id", "data set", "unit", "budget", "spent", "left", "releases"]
    rows = [(d.id, d.name, d.unit, d.budget, d.spent, d.left, d.releases) for d in found]
    print_table(f"Ledger {book.path}", columns, rows)


@ledger_app.command(
    "set-budget",
    epilog="Example: [bold]bagwise ledger set-budget flights.parquet:arr_delay 5[/bold]",
)
def ledger_set_budget(
    dataset: Annotated[str, typer.Argument(help="Id or name, as 'bagwise ledger show' lists.")],
    budget: Annotated[float, typer.Argument(help="Total to spend on it, ever.")],
    ledger: LedgerPath = None,
    as_json: Json = False,
) -> None:
    """Change the total that may ever be spent on a data set."""
    changed = _ledger(ledger).set_budget(dataset, budget)
    if as_json:
        print(json.dumps(_plain(asdict(changed) | {"left": changed.left})))
        return
    print(f"{changed.name}: budget {changed.budget}, spent {changed.spent}, left {changed.left}.")


@ledger_app.command(
    "verify", epilog="Example: [bold]bagwise ledger verify released --ledger ledger.db[/bold]"
)
def ledger_verify(
    releases: Annotated[
        list[Path] | None, typer.Argument(help="Release folders that it must have paid for.")
    ] = None,
    ledger: LedgerPath = None,
    accept: Annotated[
        bool, typer.Option(help="Take it as it is, after a look: it was moved, say.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that the ledger is whole, and that it paid for these releases."""
    from bagwise import _check
    from bagwise.released import Release

    book = _ledger(ledger, trust=accept)
    entries = book.verify(accept=accept)
    claims: dict[str | None, dict[str, str]] = {}
    for folder in releases or ():
        said = Release.load(folder).statement
        if not book.paid_for(said.ledger, said.charge, said.epsilon):
            got = f"{str(folder)!r}, for which it has no entry"
            _check.refuse("the release", "paid for by this ledger", got, "Ask for its ledger")
        if claims.setdefault(said.charge, said.files) != said.files:
            got = f"{str(folder)!r}, whose charge another one claims too"
            _check.refuse("the release", "paid for by a charge of its own", got, "One is forged")
    if as_json:
        print(json.dumps({"ledger": str(book.path), "entries": entries, "whole": True}))
        return
    print(f"{book.path} is whole: {entries} entries.")
    if releases:
        print(f"It paid for {len(releases)} of {len(releases)} releases.")


@app.command(
    "audit", epilog="Example: [bold]bagwise audit --epsilon 1 --bounds -60 180 --bag-size 20[/bold]"
)
def audit_command(
    epsilon: Annotated[float, typer.Option(help="What is promised.")] = 1.0,
    bounds: Annotated[tuple[float, float], typer.Option(help="Public bounds.")] = (0.0, 1.0),
    bag_size: Annotated[int, typer.Option(help="Rows a bag.")] = 20,
    max_rows_per_user: Annotated[int, typer.Option(help="Rows of one person.")] = 1,
    step: Annotated[float | None, typer.Option(help="Grid, a power of two.")] = None,
    paper: Annotated[bool, typer.Option(help="The paper's noise.")] = False,
    draws: Annotated[int, typer.Option(help="Releases of each of two neighbours.")] = 200_000,
    confidence: Annotated[float, typer.Option(help="Of the lower bound.")] = 0.99,
    as_json: Json = False,
) -> None:
    """Attack the mechanism that a release would use; exit code 1 when a promise is broken."""
    from bagwise.release import Mechanism, audit

    mechanism = Mechanism.of(bounds, epsilon, max_rows_per_user, step, paper)
    found = audit(mechanism, bag_size, draws, confidence)
    if as_json:
        print(json.dumps(asdict(found) | {"passed": found.passed}))
    else:
        print(
            f"Promised epsilon = {found.epsilon:g}; spent at least {found.lower_bound:.3f} "
            f"({found.confidence:.0%} confidence, {found.draws:,} releases of each neighbour)."
        )
        print(f"Outputs on the public grid: {'all' if found.on_grid else 'NOT ALL'}.")
        print(f"Noise against the discrete Laplace law: p = {found.p_value:.3g} (chi-square).")
        print("No promise was found broken." if found.passed else "BROKEN: do not release.")
    if not found.passed:
        raise typer.Exit(1)


def _ledger(path: Path | None, trust: bool = False) -> Ledger:
    """The ledger at a path, or the account's own; it must be there."""
    from bagwise.release import Ledger, default_ledger

    return Ledger(path or default_ledger(), create=False, trust=trust)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Amounts as JSON has them: numbers, and null for no limit."""
    return {
        k: (float(v) if v.is_finite() else None) if isinstance(v, Decimal) else v
        for k, v in values.items()
    }
