"""The curator's one act: rows with responses in, a Release out, and nothing else."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from bagwise import _check
from bagwise._disk import appearing, check_free
from bagwise._progress import Progress, silent
from bagwise.engines.cluster import Clustering
from bagwise.engines.engine import Engine
from bagwise.engines.layout import check_ids, refuse_changed
from bagwise.engines.local import Local
from bagwise.release import steps
from bagwise.release.layout import (
    check_bagging,
    draw_bags,
    draw_shuffle,
    keep_some,
    sum_bags,
)
from bagwise.release.ledger import Charge, Ledger
from bagwise.release.marks import Mark
from bagwise.release.mechanism import Mechanism
from bagwise.release.statement import Request, make_statement
from bagwise.release.table import (
    column,
    feature_columns,
    is_source,
    look_over,
    open_rows,
    refuse_copies,
)
from bagwise.release.write import write_bag_features, write_bags, write_statistics
from bagwise.released import FILES, STATEMENT, Release
from bagwise.tables import Table, is_number, plain_type

#: a title -> what wraps results to show how far they are
Titled: TypeAlias = Callable[[str], Progress]


def release(
    rows: Any,
    *,
    response: str,
    epsilon: float,
    bounds: tuple[float, float] | float,
    ledger: Ledger | str | PathLike[str] | None,
    out: str | PathLike[str],
    bags: str | Sequence[str] | None = None,
    bag_size: int | None = None,
    min_bag_size: int = 1,
    user: str | None = None,
    max_rows_per_user: int = 1,
    features: str = "rows",
    columns: Sequence[str] | None = None,
    budget: float | None = None,
    step: float | None = None,
    paper: bool = False,
    engine: Engine | None = None,
    progress: Titled = lambda title: silent,
) -> Release:
    """Release clipped, noisy means of a response over bags, with a statement of what that promises.

    Parameters
    ----------
    rows : table, or paths
        A data frame, an Arrow table or a mapping of columns; or a file, folder or glob of .csv or
        .parquet files, several of them, or "-" for CSV on standard input.
    response : str
        The column to protect: finite numbers.
    epsilon : float
        What to spend; infinity releases plain means, stamped "not private".
    bounds : (lo, hi), or C
        Public bounds to which responses are clipped, chosen without looking at them; a number C
        means ±C√log n, as in the paper.
    ledger : Ledger, path or None
        Where the cost is charged; made when it is not there. None keeps no account, and the
        statement says so.
    out : path
        The folder to make.
    bags : str or sequence of str
        Columns whose values make a bag. Or give
    bag_size : int
        Rows a bag, drawn at random; left-over rows are spread, so no bag is smaller.
    min_bag_size : int
        Refuse smaller bags.
    user : str
        Column that tells users apart: the unit of privacy is then all responses of one user. It is
        not released.
    max_rows_per_user : int
        Rows of a user that take part; the others are dropped at random before bagging.
    features : {"rows", "means", "statistics", "none"}
        What leaves of the features: rows with their bag, means over bags (rho = 0 only), the sums
        A, W, c (every rho), or nothing.
    columns : sequence of str
        Feature columns that leave; by default all but response and user, and for means and
        statistics those that make the bags.
    budget : float
        Total to spend on these responses, ever; needed at their first release.
    step : float
        Grid of the responses, a power of two; by default about a millionth of the bounds.
    paper : bool
        The noise that the paper prints, for experiments; it costs 2 epsilon.
    engine : Engine
        Where the work is done: by default this machine, a batch of rows at a time;
        `bagwise.engines.spark.Spark` has one for a cluster. Files must then lie where its workers
        can read them, and ``out`` where they can write.
    progress : callable
        For the title of a stage, what wraps its results to show a bar.

    Returns
    -------
    Release
        Read back from ``out``.

    Notes
    -----
    Formal guarantee: for tables that differ in the responses of one unit, the probabilities of
    any set of outcomes differ by a factor of at most e^epsilon.
    Guarantees: the cost is on disk before noise is drawn; ``out`` appears whole or not at all; no
    message holds a response, a row number or anything computed from responses.
    Limits: only responses are protected; features, sizes and bags are released as they are.
    See docs/privacy.md.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> rows = {"age": [31, 45, 28, 60], "voted": [0, 1, 1, 1]}
    >>> folder = mkdtemp()
    >>> release(rows, response="voted", bag_size=2, epsilon=1.0, bounds=(0, 1), budget=3,
    ...         ledger=f"{folder}/ledger.db", out=f"{folder}/released")
    Release(4 rows in 2 bags, epsilon=1, features='rows')
    """
    folder = Path(out).absolute()
    _check.choice("features", features, FILES)
    least = _check.whole("min_bag_size", min_bag_size, low=1, remedy="1 asks for nothing")
    # Bad arguments are told before a table is read; any number of rows will do for that.
    mechanism = Mechanism.of(_bounds(bounds, 10**9), epsilon, max_rows_per_user, step, paper)
    names = check_bagging(bags, bag_size, least)
    if user is None and mechanism.rows_per_user > 1:
        got = f"max_rows_per_user={max_rows_per_user} without user"
        _check.refuse("user", "given", got, "Name the column that tells users apart")
    check_free(folder)
    _refuse_ledger_in(folder, ledger)
    steps.reached("arguments checked")

    engine = Local() if engine is None else engine
    table = open_rows(rows, response, [*names, *([] if user is None else [user])])
    engine.check(table)
    state = table.state()
    _refuse_roles(table, response, user, names)
    stay = [response] if user is None else [response, user]
    check_ids(table, [*names, *stay[1:]], engine.map)
    others = [*names, *stay[1:], *_averaged(table, stay, columns, features)]
    pieces, look = look_over(table, engine, response, others, progress("Looking at responses"))
    for name in {*names, *stay} & look.missing:
        got = "missing ones"
        _check.refuse(f"column {name!r}", "an id in every row", got, "Name those rows")
    chosen = feature_columns(table, stay, names, columns, features, look.missing)
    refuse_copies(pieces, response, [*names, *chosen], _bounds(bounds, look.n_rows))
    request = Request(response, user, names, features, chosen)
    steps.reached("table read")

    book = Ledger(ledger) if ledger is not None and not isinstance(ledger, Ledger) else ledger
    shuffle, kept = draw_shuffle(look.n_rows), None
    if user is not None:
        most, shown = mechanism.rows_per_user, progress("Counting users")
        kept = keep_some(engine, table, pieces, shuffle, user, most, shown)
    layout = draw_bags(shuffle, kept, bag_size)
    steps.reached("bags drawn")

    limits = _bounds(bounds, layout.n_rows)
    mechanism = Mechanism.of(limits, epsilon, max_rows_per_user, step, paper)
    shown = progress("Summing responses")
    layout, sums = sum_bags(engine, table, pieces, layout, names, response, mechanism, shown)
    if layout.sizes.min() < least:
        got = f"one of {layout.sizes.min()} rows with min_bag_size={least}"
        _check.refuse("bags", "large enough", got, "Merge small ones first")
    # Calibrates the noise too: what OpenDP may refuse, it refuses before a charge.
    scales = mechanism.noise_scales(layout.sizes)
    steps.reached("responses summed")

    with appearing(folder, steps.reached) as place:
        steps.reached("folder made")
        clustered = place if features == "rows" else place / ".rows"
        if features != "none":
            clustered.mkdir(exist_ok=True)
            schema = pa.schema([table.schema.field(name) for name in chosen])
            shown = progress("Putting rows together")
            clustering = Clustering.of(layout, schema, clustered, pieces)
            joined = engine.cluster(clustering, pieces, shown)
            clustering.check(joined)
            _refuse_holes(chosen, joined.missing)
        if features == "means":
            write_bag_features(place, clustered, chosen, layout, engine)
        if table.state() != state:
            refuse_changed()
        steps.reached("features written")
        charge = _pay(book, look.mark, mechanism, request, budget, rows)
        # What follows is paid for; before, nothing was drawn.
        shown = progress("Drawing noise")
        means = mechanism.noisy_means(sums, layout.sizes, shown, engine.map)
        steps.reached("noise drawn")
        write_bags(place, layout, means, scales)
        if features == "statistics":
            write_statistics(place, clustered, chosen, layout, means, engine)
        if clustered != place and clustered.exists():
            shutil.rmtree(clustered)
        steps.reached("means written")
        statement = make_statement(request, layout, mechanism, charge, place, engine.package)
        (place / STATEMENT).write_text(statement.to_json())
        # A stray file would leave with the others.
        if {path.name for path in place.iterdir()} != {STATEMENT, *statement.files}:
            raise OSError(f"{place} must hold what was released alone; got other files.")
        steps.reached("statement written")
    steps.reached("release done")
    return Release.load(folder)


def _refuse_ledger_in(folder: Path, ledger: Any) -> None:
    """Refuse to keep the ledger in what is given away."""
    path = ledger.path if isinstance(ledger, Ledger) else ledger
    if path is not None and Path(path).resolve().is_relative_to(folder.resolve()):
        got = f"ledger={str(path)!r}"
        _check.refuse("ledger", "kept outside the release", got, "Choose another place for it")


def _bounds(bounds: Any, n_rows: int) -> Any:
    """Bounds as given, or ±C√log n for a number C."""
    if not isinstance(bounds, float | int) or isinstance(bounds, bool):
        return bounds
    remedy = "Pass (lo, hi), or C for bounds of C√log n"
    constant = _check.number("bounds", bounds, low=0, high=1e100, above=True, remedy=remedy)
    half = constant * math.sqrt(math.log(max(n_rows, 2)))
    return -half, half


def _averaged(
    table: Table, stay: Sequence[str], columns: Sequence[str] | None, features: str
) -> list[str]:
    """Columns of numbers that will be averaged, and so must be there in every row."""
    if features not in ("means", "statistics"):
        return []
    asked = table.names if columns is None else [columns] if isinstance(columns, str) else columns
    known = [name for name in asked if name in table.names and name not in stay]
    return [name for name in known if is_number(plain_type(table.schema.field(name).type))]


def _refuse_roles(table: Table, response: str, user: str | None, bags: list[str]) -> None:
    """Refuse columns that are missing, or that would have to leave and stay at once."""
    if user is not None:
        column(table, user, "user")
    if user == response:
        _check.refuse("user", "another column than the response", f"{user!r}", "Name another")
    for name in bags:
        column(table, name, "bags")
        if name in (response, user):
            rule = "other columns than response and user"
            _check.refuse("bags", rule, f"{name!r}", "Those stay home: name another")


def _refuse_holes(columns: Sequence[str], missing: Collection[str]) -> None:
    """Refuse features that a learner could not take, before they are paid for."""
    for name in columns:
        if name in missing:
            got = f"missing or infinite values in column {name!r}"
            remedy = "Fill it, or name the columns to release"
            _check.refuse("columns that leave", "there and finite in every row", got, remedy)


def _pay(
    book: Ledger | None,
    mark: Mark,
    mechanism: Mechanism,
    request: Request,
    budget: float | None,
    rows: Any,
) -> Charge | None:
    """The entry in the ledger that pays for the release; None where none is kept."""
    if book is None:
        return None
    name = request.response
    if is_source(rows):
        first = rows[0] if isinstance(rows, list | tuple) else rows
        name = f"{Path(first).name}:{name}"
    unit = "label" if request.user is None else f"user:{request.user}"
    return book.charge(book.fingerprint_of(mark), mechanism.cost, budget, name, unit)
