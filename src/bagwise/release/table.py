"""The curator's table: read, and refused before anything is charged.

Libraries quote cells in their messages. None of those messages leaves this module: an error is
raised anew, outside the handler of the first, so that no chain of tracebacks shows a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise.tables import ENDINGS, files_of, is_number, open_table

FloatArray: TypeAlias = NDArray[np.float64]
# Rows that tell a copy of the response from another column, and how far beyond chance it agrees.
GLANCE, ALIKE = 10_000, 0.9


def is_source(rows: Any) -> bool:
    """Whether rows are given by the names of files."""
    many = isinstance(rows, list | tuple) and bool(rows)
    return all(isinstance(one, str | PathLike) for one in (rows if many else [rows]))


def read_table(rows: Any, response: str = "") -> pa.Table:
    """Rows as an Arrow table: from CSV or Parquet files, a data frame or a mapping of columns."""
    if is_source(rows):
        return _checked(_read_files(rows, response))
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
    return _checked(table)


def _read_files(source: Any, response: str) -> pa.Table:
    """The table in files, folders or globs, or on standard input."""
    sources = [str(one) for one in (source if isinstance(source, list | tuple) else [source])]
    files = [file for one in sources if one != "-" for file in files_of(one)]
    if any(file.suffix.lower() not in ENDINGS for file in files):
        remedy = "Their endings must say which"
        _check.refuse("rows", "of .csv or .parquet files", ", ".join(sources[:3]), remedy)
    # What the system says of a file that is not there holds no cell; what readers say may.
    for file in files:
        file.open("rb").close()
    # In CSV a response is a number though its first lines look whole; failing that, it is guessed.
    table = _quietly(_read_whole, sources, {response: pa.float64()})
    if table is None and sources != ["-"]:
        table = _quietly(_read_whole, sources, {})
    if table is None:
        got = f"{', '.join(sources[:3])}, which cannot be read as one table"
        remedy = "Write it again, of one kind, with one type a column"
        _check.refuse("rows", "of readable files", got, remedy)
    return table


def _read_whole(sources: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    """All rows of all files."""
    table = open_table(sources, types)
    return pa.concat_tables([table.schema.empty_table(), *table.batches()])


def _quietly(task: Callable[..., Any], *arguments: Any) -> Any:
    """What ``task`` gives, or None: what went wrong may quote a response."""
    try:
        return task(*arguments)
    except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


def _culprit(rows: Any) -> str:
    """The first column that Arrow cannot take, by name."""
    for name in rows:
        if _quietly(pa.array, rows[name]) is None:
            return f"others in column {name!r}"
    return "others"


def _checked(table: pa.Table) -> pa.Table:
    """The table in plain columns, when it has rows and each column a name of its own."""
    if len(set(table.column_names)) < table.num_columns:
        _check.refuse("rows", "of columns with different names", "one name twice", "Rename one")
    if not table.num_rows:
        _check.refuse("rows", "of at least one row", "none", "Check the file")
    columns = []
    for name in table.column_names:
        plain = _quietly(_plain, table[name])
        if plain is None:
            got = f"{table[name].type} in column {name!r}"
            _check.refuse("rows", "of plain columns", got, "Unpack or leave it out")
        columns.append(plain)
    # Names alone: what a maker noted in the schema could be anything.
    return pa.table(columns, names=table.column_names)


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without nesting, dictionary or views.

    A dictionary lists values as they first came up in the table, and keeps those of rows that are
    dropped; Arrow cannot gather from views, in which polars hands out text.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        chunks = [
            pa.DictionaryArray.from_arrays(part.indices, _flat(part.dictionary)).dictionary_decode()
            for part in values.chunks
        ]
        return pa.chunked_array(chunks, type=_flat(pa.array([], kind.value_type)).type)
    return _flat(values)


def _flat(values: Any) -> Any:
    """Values that are not nested, views as what they show."""
    if pa.types.is_nested(values.type):
        raise TypeError("nested")
    if values.type == pa.string_view():
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if values.type == pa.binary_view() else values


def column(table: pa.Table, name: Any, role: str) -> pa.ChunkedArray:
    """A column by name."""
    if name not in table.column_names:
        some = ", ".join(table.column_names[:10])
        more = ", …" if table.num_columns > 10 else ""
        _check.refuse(role, "a column of the table", f"{name!r}", f"It has {some}{more}")
    return table[name]


def responses(table: pa.Table, name: str) -> FloatArray:
    """The response as numbers, all finite; what is wrong with it is told without a value or row."""
    values = column(table, name, "response")
    if not is_number(values.type):
        remedy = "Turn responses into numbers first"
        _check.refuse("the response", "a column of numbers", f"{values.type} values", remedy)
    if values.null_count or not np.isfinite(numbers := _floats(values)).all():
        remedy = "Drop those rows by a rule of your own"
        _check.refuse("the response", "finite in every row", "missing or infinite ones", remedy)
    return numbers


def feature_columns(
    table: pa.Table,
    stay: Iterable[str],
    bag_columns: Sequence[str],
    columns: Sequence[str] | None,
    features: str,
) -> list[str]:
    """The columns that leave as features.

    Parameters
    ----------
    table : Arrow table
    stay : iterable of str
        Columns that stay home: the response, the user.
    bag_columns : sequence of str
        Columns that make a bag; one called "bag" leaves as its id and not again as a feature.
    columns : sequence of str or None
        Those asked for; None asks for all that will do.
    features : {"rows", "means", "statistics", "none"}
        Means and statistics need finite numbers.
    """
    if features == "none":
        return []
    averaged = features != "rows"
    ids = {name for name in bag_columns if name == "bag" or (averaged and not _finite(table, name))}
    if columns is None:
        chosen = [name for name in table.column_names if name not in {*stay, *ids}]
    else:
        chosen = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
    for name in chosen:
        column(table, name, "columns")
        if name in stay:
            remedy = "Response and user stay home"
            _check.refuse("columns", "columns that may leave", f"{name!r}", remedy)
        if name == "bag":
            _check.refuse("columns", "named otherwise than 'bag'", "'bag'", "Rename it")
        if averaged and not _finite(table, name):
            remedy = "Encode it, or name the columns to release"
            _check.refuse("columns", "finite numbers for this", f"{name!r}", remedy)
    if not chosen:
        _check.refuse("columns", "at least one", "none", "Or pass features='none'")
    return chosen


def refuse_copies(
    table: pa.Table, names: Iterable[str], numbers: FloatArray, bounds: tuple[float, float]
) -> None:
    """Refuse columns that would release the response under another name.

    A column is taken for a copy when, among rows where it is there and with both clipped, it agrees
    with the response nine tenths of the way from chance to always (Cohen's κ > 0.9): the raw column
    beside a filled or clipped one, a copy in single precision or as text. A glance over ten
    thousand rows tells.
    """
    glance = slice(None, None, -(-len(numbers) // GLANCE))
    rows = np.arange(len(numbers))[glance]
    response = np.clip(numbers[glance], *bounds)
    for name in dict.fromkeys(names):
        values = _quietly(_floats, table[name].take(rows))
        if values is not None and _agreement(np.clip(values, *bounds), response) > ALIKE:
            remedy = "Leave it out: it would release the responses themselves"
            _check.refuse("columns that leave", "different from the response", f"{name!r}", remedy)


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


def _finite(table: pa.Table, name: str) -> bool:
    """Whether a column holds finite numbers and nothing else."""
    values = table[name] if name in table.column_names else pa.chunked_array([[None]])
    return (
        is_number(values.type)
        and not values.null_count
        and bool(np.isfinite(_floats(values)).all())
    )


def _floats(values: pa.ChunkedArray) -> FloatArray:
    """A column as float64, NaN where it is missing; ArrowInvalid where it is no number."""
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
