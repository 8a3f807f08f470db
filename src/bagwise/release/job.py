"""What every release does before its bags are drawn and after its means are noisy."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise._disk import check_free
from bagwise._progress import Progress
from bagwise.engines.cluster import Clustering
from bagwise.engines.engine import Engine
from bagwise.engines.layout import Kept, Layout, Permutation, check_ids, refuse_changed
from bagwise.engines.local import Local
from bagwise.release import steps
from bagwise.release.layout import Integers, check_bagging, keep_some, sum_bags
from bagwise.release.ledger import Charge, Ledger
from bagwise.release.mechanism import Mechanism
from bagwise.release.statement import Request, make_statement
from bagwise.release.table import (
    Look,
    column,
    feature_columns,
    is_source,
    look_over,
    open_rows,
    refuse_copies,
)
from bagwise.release.write import write_bags, write_statistics
from bagwise.released import FILES, STATEMENT
from bagwise.tables import Piece, Table, is_number, plain_type

FloatArray: TypeAlias = NDArray[np.float64]
#: a title -> what wraps results to show how far they are
Titled: TypeAlias = Callable[[str], Progress]


@dataclass(frozen=True)
class Terms:
    """What is promised, but for bounds that depend on the number of rows.

    Attributes
    ----------
    bounds : (lo, hi), or C
    epsilon : float
    rows_per_user : int
    step : float or None
    paper : bool
    """

    bounds: Any
    epsilon: float
    rows_per_user: int
    step: float | None
    paper: bool

    def limits(self, n_rows: int) -> Any:
        """Bounds as given, or ±C√log n for a number C."""
        bounds = self.bounds
        if not isinstance(bounds, float | int) or isinstance(bounds, bool):
            return bounds
        remedy = "Pass (lo, hi), or C for bounds of C√log n"
        constant = _check.number("bounds", bounds, low=0, high=1e100, above=True, remedy=remedy)
        half = constant * math.sqrt(math.log(max(n_rows, 2)))
        return -half, half

    def mechanism(self, n_rows: int) -> Mechanism:
        """The mechanism for a table of so many rows."""
        limits = self.limits(n_rows)
        return Mechanism.of(limits, self.epsilon, self.rows_per_user, self.step, self.paper)


@dataclass(frozen=True)
class Job:
    """A release that may begin: arguments checked, the table looked over, nothing charged.

    Attributes
    ----------
    folder : Path
        The folder to make.
    request : Request
    terms : Terms
    least : int
        Rows that a bag must have.
    engine, table, state, pieces, look
        Where the work is done, the rows, what tells that they changed, their pieces, what one pass
        over them told.
    book, budget, name
        The ledger, the budget of these responses, and what to call them.
    progress : callable
    """

    folder: Path
    request: Request
    terms: Terms
    least: int
    engine: Engine
    table: Table
    state: Any
    pieces: list[Piece]
    look: Look
    book: Ledger | None
    budget: float | None
    name: str
    progress: Titled

    @classmethod
    def of(
        cls,
        rows: Any,
        terms: Terms,
        *,
        response: str,
        ledger: Ledger | str | PathLike[str] | None,
        out: str | PathLike[str],
        bags: str | Sequence[str] | None,
        bag_size: int | None,
        min_bag_size: int,
        user: str | None,
        features: str,
        columns: Sequence[str] | None,
        budget: float | None,
        engine: Engine | None,
        progress: Titled,
    ) -> Job:
        """Arguments of `release`, or one sentence about what is wrong with them or with the table.

        Bad arguments are told before a table is read.
        """
        folder = Path(out).absolute()
        _check.choice("features", features, FILES)
        least = _check.whole("min_bag_size", min_bag_size, low=1, remedy="1 asks for nothing")
        # Any number of rows will do to tell bad bounds.
        most = terms.mechanism(10**9).rows_per_user
        names = check_bagging(bags, bag_size, least)
        if user is None and most > 1:
            got = f"max_rows_per_user={most} without user"
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
        refuse_copies(pieces, response, [*names, *chosen], terms.limits(look.n_rows))
        request = Request(response, user, names, features, chosen)
        steps.reached("table read")

        book = Ledger(ledger) if ledger is not None and not isinstance(ledger, Ledger) else ledger
        return cls(
            folder=folder,
            request=request,
            terms=terms,
            least=least,
            engine=engine,
            table=table,
            state=state,
            pieces=pieces,
            look=look,
            book=book,
            budget=budget,
            name=_name(rows, response),
            progress=progress,
        )

    def keep(self, shuffle: Permutation) -> Kept | None:
        """Which rows take part, where users have a cap."""
        user, shown = self.request.user, self.progress
        if user is None:
            return None
        most, title = self.terms.rows_per_user, "Counting users"
        return keep_some(self.engine, self.table, self.pieces, shuffle, user, most, shown(title))

    def sum(
        self, layout: Layout, mechanism: Mechanism, title: str = "Summing responses"
    ) -> tuple[Layout, Integers]:
        """The layout with its bags, and their exact sums in steps."""
        names, response, shown = self.request.bag_columns, self.request.response, self.progress
        return sum_bags(
            self.engine, self.table, self.pieces, layout, names, response, mechanism, shown(title)
        )

    def put_together(self, layout: Layout, folder: Path, title: str) -> None:
        """Write rows.parquet to a folder: features by bag."""
        folder.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([self.table.schema.field(name) for name in self.request.columns])
        clustering = Clustering.of(layout, schema, folder, self.pieces)
        joined = self.engine.cluster(clustering, self.pieces, self.progress(title))
        clustering.check(joined)
        _refuse_holes(self.request.columns, joined.missing)

    def refuse_change(self) -> None:
        """Refuse a table that is not as it was at first."""
        if self.table.state() != self.state:
            refuse_changed()

    def pay(self, mechanism: Mechanism) -> Charge | None:
        """The entry in the ledger that pays for the release; None where none is kept."""
        if self.book is None:
            return None
        unit = "label" if self.request.user is None else f"user:{self.request.user}"
        mark = self.book.fingerprint_of(self.look.mark)
        return self.book.charge(mark, mechanism.cost, self.budget, self.name, unit)

    def draw(
        self, mechanism: Mechanism, sums: Integers, sizes: Integers, title: str = "Drawing noise"
    ) -> FloatArray:
        """Noisy means; to be called once for each bag, after the charge."""
        return mechanism.noisy_means(sums, sizes, self.progress(title), self.engine.map)

    def write(
        self,
        place: Path,
        clustered: Path,
        layout: Layout,
        mechanism: Mechanism,
        means: FloatArray,
        charge: Charge | None,
        rounds: int = 1,
    ) -> None:
        """Means and statement, beside the features that are there already."""
        request = self.request
        write_bags(place, layout, means, mechanism.noise_scales(layout.sizes))
        if request.features == "statistics":
            write_statistics(place, clustered, request.columns, layout, means, self.engine)
        if clustered != place and clustered.exists():
            shutil.rmtree(clustered)
        steps.reached("means written")
        package = self.engine.package
        statement = make_statement(request, layout, mechanism, charge, place, package, rounds)
        (place / STATEMENT).write_text(statement.to_json())
        # A stray file would leave with the others.
        if {path.name for path in place.iterdir()} != {STATEMENT, *statement.files}:
            raise OSError(f"{place} must hold what was released alone; got other files.")
        steps.reached("statement written")


def _refuse_ledger_in(folder: Path, ledger: Any) -> None:
    """Refuse to keep the ledger in what is given away."""
    path = ledger.path if isinstance(ledger, Ledger) else ledger
    if path is not None and Path(path).resolve().is_relative_to(folder.resolve()):
        got = f"ledger={str(path)!r}"
        _check.refuse("ledger", "kept outside the release", got, "Choose another place for it")


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


def _name(rows: Any, response: str) -> str:
    """What to call the responses in a ledger."""
    if not is_source(rows):
        return response
    first = rows[0] if isinstance(rows, list | tuple) else rows
    return f"{Path(first).name}:{response}"
