"""The curator's table: looked at a piece at a time, and refused before anything is charged.

Libraries quote cells in their messages. None of those messages leaves this module: an error is
raised anew, outside the handler of the first, so that no chain of tracebacks shows a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from os import PathLike
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise._progress import Progress, silent
from bagwise.engines.engine import Engine
from bagwise.release.marks import Mark, mark
from bagwise.tables import (
    ENDINGS,
    Piece,
    Table,
    files_of,
    is_number,
    is_text,
    numbered,
    open_table,
    plain,
    plain_type,
    refuse_mixed,
    schema_of,
)

FloatArray: TypeAlias = NDArray[np.float64]
Found = TypeVar("Found")
# Rows that tell a copy of the response from another column, and how far beyond chance it agrees.
GLANCE, ALIKE = 10_000, 0.9
# A number whose square, and a sum of many such, is a number still.
LARGEST = 1e140
# Pieces of the table that such rows are taken from.
GLANCES = 16


def is_source(rows: Any) -> bool:
    """Whether rows are given by the names of files."""
    many = isinstance(rows, list | tuple) and bool(rows)
    return all(isinstance(one, str | PathLike) for one in (rows if many else [rows]))


def open_rows(rows: Any, response: str = "", ids: Sequence[str] = ()) -> Table:
    """Rows as a table: CSV or Parquet files, a data frame or a mapping of columns."""
    if is_source(rows):
        return _checked(_open_files(rows, response, ids))
    if isinstance(rows, Mapping):
        rows = dict(rows)
    elif not hasattr(rows, "__arrow_c_stream__"):
        remedy = "Pass a data frame, an Arrow table, a mapping of columns, or a file"
        _check.refuse("rows", "a table", f"a {type(rows).__name__}", remedy)
    pandas = type(rows).__module__.partition(".")[0] == "pandas"
    table = (
        _quietly(pa.Table.from_pandas, rows, None, False) if pandas else _quietly(pa.table, rows)
    )
    if table is None:
        _check.refuse("rows", "columns of one type and length", _culprit(rows), "Mend it first")
    if len(set(table.column_names)) < table.num_columns:
        _refuse_twice()
    return _checked(Table.of(table))


def _open_files(source: Any, response: str, ids: Sequence[str]) -> Table:
    """The table in files, folders or globs, or on standard input."""
    sources = [str(one) for one in (source if isinstance(source, list | tuple) else [source])]
    files = [file for one in sources if one != "-" for file in files_of(one)]
    if any(file.suffix.lower() not in ENDINGS for file in files):
        remedy = "Their endings must say which"
        _check.refuse("rows", "of .csv or .parquet files", ", ".join(sources[:3]), remedy)
    # What the system says of a file that is not there holds no cell; what readers say may.
    for file in files:
        file.open("rb").close()
    table = _quietly(open_table, sources, {response: pa.float64()}, ids)
    if table is None:
        schemas = {str(file): _quietly(schema_of, file) for file in files}
        bad = [name for name, schema in schemas.items() if schema is None]
        if not bad and all(file.suffix.lower() == ".parquet" for file in files):
            # Names and types are no secret; of CSV without a line of names they may be cells.
            refuse_mixed(
                [one for one in schemas.values() if one is not None], ", ".join(sources[:3])
            )
        _refuse_unreadable(bad[0] if bad else ", ".join(sources[:3]))
    return table


def _refuse_unreadable(source: str) -> NoReturn:
    got = f"{source}, which cannot be read as one table"
    _check.refuse(
        "rows", "of readable files", got, "Write it again, of one kind, one type a column"
    )


def _refuse_twice() -> None:
    _check.refuse("rows", "of columns with different names", "one name twice", "Rename one")


def _quietly(task: Callable[..., Found], *arguments: Any) -> Found | None:
    """What ``task`` gives, or None: what went wrong may quote a response."""
    try:
        return task(*arguments)
    except Exception:
        # Also what other libraries raise, whose tables are read through Arrow.
        return None


def _culprit(rows: Any) -> str:
    """The first column that Arrow cannot take, by name."""
    named = isinstance(rows, Mapping) or type(rows).__module__.startswith("pandas")
    for name in rows if named else ():
        if _quietly(pa.array, rows[name]) is None:
            return f"others in column {name!r}"
    return "others"


def _checked(table: Table) -> Table:
    """The table, when its columns are not nested."""
    for field in table.schema:
        if _quietly(plain_type, field.type) is None:
            got = f"{field.type} in column {field.name!r}"
            _check.refuse("rows", "of plain columns", got, "Unpack or leave it out")
    return table


def column(table: Table, name: Any, role: str) -> pa.DataType:
    """The type of a column by name."""
    if name not in table.names:
        _check.refuse(role, "a column of the table", f"{name!r}", table.remedy(name))
    return table.schema.field(name).type


@dataclass(frozen=True)
class Look:
    """What one pass over a table tells.

    Attributes
    ----------
    n_rows : int
    mark : ndarray
        What the responses are known again by.
    missing : frozenset of str
        Columns with missing values, or with infinite ones where they are floating-point numbers.
    """

    n_rows: int
    mark: Mark
    missing: frozenset[str]

    def __add__(self, other: Look) -> Look:
        return Look(
            self.n_rows + other.n_rows, self.mark + other.mark, self.missing | other.missing
        )


def look_at(piece: Piece, response: str, others: Sequence[str]) -> Look | None:
    """One pass over a piece; None where it cannot be read."""
    return _quietly(_look_at, piece, response, others)


def _look_at(piece: Piece, response: str, others: Sequence[str]) -> Look:
    found = Look(0, mark(np.zeros(0)), frozenset())
    for batch in piece.batches(list(dict.fromkeys([response, *others]))):
        limits = dict.fromkeys(batch.schema.names, LARGEST) | {response: np.inf}
        missing = {name for name, most in limits.items() if not _whole(batch[name], most)}
        values = floats(batch[response])
        known = mark(values) if response not in missing else found.mark
        found += Look(batch.num_rows, known, frozenset(missing))
    return found


def look_over(
    table: Table,
    engine: Engine,
    response: str,
    others: Sequence[str],
    progress: Progress = silent,
) -> tuple[list[Piece], Look]:
    """The pieces of a table with their places in it, and what one pass over them tells."""
    kind = plain_type(column(table, response, "response"))
    pieces = _quietly(table.pieces)
    if pieces is None:
        _refuse_unreadable(table.source)
    if pieces and not is_number(kind):
        remedy = "Turn responses into numbers first"
        _check.refuse("the response", "a column of numbers", f"{kind} values", remedy)
    task = partial(look_at, response=response, others=others)
    looks = []
    for piece, one in zip(pieces, engine.map(task, pieces, progress), strict=True):
        if one is None:
            _refuse_text(table, response)
            _refuse_unreadable(piece.name)
        looks.append(one)
    total = reduce(Look.__add__, looks, Look(0, mark(np.zeros(0)), frozenset()))
    if not total.n_rows:
        _check.refuse("rows", "of at least one row", "none", "Check the file")
    if response in total.missing:
        remedy = "Drop those rows by a rule of your own"
        _check.refuse("the response", "finite in every row", "missing or infinite ones", remedy)
    return numbered(pieces, [one.n_rows for one in looks]), total


def _refuse_text(table: Table, response: str) -> None:
    """Refuse a CSV column of responses that reads well, but as something else than numbers."""
    guessed = _quietly(open_table, table.files) if table.files else None
    if guessed is not None and not is_number(kind := guessed.schema.field(response).type):
        remedy = "Turn responses into numbers first"
        _check.refuse("the response", "a column of numbers", f"{kind} values", remedy)


def feature_columns(
    table: Table,
    stay: Iterable[str],
    bag_columns: Sequence[str],
    columns: Sequence[str] | None,
    features: str,
    missing: Iterable[str],
) -> list[str]:
    """The columns that leave as features.

    Parameters
    ----------
    table : Table
    stay : iterable of str
        Columns that stay home: the response, the user.
    bag_columns : sequence of str
        Columns that make a bag; they leave with rows, from which a learner takes others by default,
        but are not averaged unless asked for. One called "bag" leaves as its id alone.
    columns : sequence of str or None
        Those asked for; None asks for all that will do.
    features : {"rows", "means", "statistics", "none"}
        Means and statistics need finite numbers.
    missing : iterable of str
        Columns with missing or infinite values.
    """
    if features == "none":
        return []
    averaged = features != "rows"

    def fits(name: str) -> bool:
        kind = plain_type(table.schema.field(name).type)
        return not averaged or (is_number(kind) and name not in missing)

    ids = {name for name in bag_columns if averaged or name == "bag"}
    if columns is None:
        chosen = [name for name in table.names if name not in {*stay, *ids}]
    else:
        chosen = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
    for name in chosen:
        column(table, name, "columns")
        if name in stay:
            remedy = "Response and user stay home"
            _check.refuse("columns", "columns that may leave", f"{name!r}", remedy)
        if name == "bag":
            _check.refuse("columns", "named otherwise than 'bag'", "'bag'", "Rename it")
        if not fits(name):
            remedy = "Encode it, or name the columns to release"
            _check.refuse("columns", "finite numbers for this", f"{name!r}", remedy)
    if not chosen:
        _check.refuse("columns", "at least one", "none", "Or pass features='none'")
    return chosen


def refuse_copies(
    pieces: Sequence[Piece], response: str, names: Iterable[str], bounds: tuple[float, float]
) -> None:
    """Refuse columns that would release the response under another name.

    A column is taken for a copy when, among rows where it is there and with both clipped, it agrees
    with the response nine tenths of the way from chance to always (Cohen's κ > 0.9): the raw column
    beside a filled or clipped one, a copy in single precision or as text. A glance over ten
    thousand rows tells.
    """
    some = pieces[:: -(-len(pieces) // GLANCES)]
    others = [name for name in dict.fromkeys(names) if name != response]
    table = _quietly(_glance, some, [response, *others])
    if table is None:
        unread = (
            f"column {name!r} of {piece.name}"
            for piece in some
            for name in (response, *others)
            if _quietly(_glance, [piece], [name]) is None
        )
        _refuse_unreadable(next(unread, "files"))
    values = np.clip(floats(table[response]), *bounds)
    for name in others:
        found = _quietly(_any_floats, table[name])
        if found is not None and _agreement(np.clip(found, *bounds), values) > ALIKE:
            remedy = "Leave it out: it would release the responses themselves"
            _check.refuse("columns that leave", "different from the response", f"{name!r}", remedy)


def _glance(pieces: Sequence[Piece], names: Sequence[str]) -> pa.Table:
    """Rows of these pieces, evenly spaced."""
    parts = []
    for piece in pieces:
        every, first = -(-(piece.n_rows or 0) * len(pieces) // GLANCE), 0
        for batch in piece.batches(names):
            rows = np.arange(-first % every, batch.num_rows, every)
            first += batch.num_rows
            columns = [plain(values).take(pa.array(rows)) for values in batch.columns]
            parts.append(pa.table(columns, list(names)))
    return pa.concat_tables(parts)


def _any_floats(values: pa.ChunkedArray) -> FloatArray:
    """A column as numbers, text too where it reads as one, NaN elsewhere."""
    if not is_text(values.type):
        return floats(values)
    return np.array([_number(text) for text in values.to_pylist()])


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return np.nan


def _agreement(a: FloatArray, b: FloatArray) -> float:
    """Cohen's κ of two columns where the first is there: 0 is chance, 1 is always."""
    there = np.isfinite(a)
    a, b = a[there], b[there]
    if len(a) < 2:
        return 0.0
    shares = [dict(zip(*np.unique(x, return_counts=True), strict=True)) for x in (a, b)]
    chance = sum(n * shares[1].get(v, 0) for v, n in shares[0].items()) / len(a) ** 2
    # Single precision is as good as double to who looks.
    alike = float(np.isclose(a, b, rtol=1e-6, atol=0).mean())
    return 0.0 if chance == 1 else float((alike - chance) / (1 - chance))


def _whole(values: pa.Array, most: float) -> bool:
    """Whether a column has no missing value, and none past ``most``."""
    if values.null_count:
        return False
    values = plain(values)
    if not pa.types.is_floating(values.type):
        return True
    return bool((np.abs(values.to_numpy(), dtype=np.float64) < most).all())


def floats(values: Any) -> FloatArray:
    """A column as float64, NaN where it is missing; ArrowInvalid where it is no number."""
    found = plain(values).cast(pa.float64(), safe=False)
    return np.asarray(
        found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found
    )
