"""The curator's table: read, and refused before anything is charged.

Libraries quote cells in their messages. None of those messages leaves this module: an error is
raised anew, outside the handler of the first, so that no chain of tracebacks shows a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise import _check

FloatArray: TypeAlias = NDArray[np.float64]
# Rows that tell most columns apart from the response.
GLANCE = 1000


def read_table(rows: Any) -> pa.Table:
    """Rows as an Arrow table: from a CSV or Parquet file, a data frame or a mapping of columns."""
    if isinstance(rows, str | PathLike):
        return _read_file(Path(rows))
    if isinstance(rows, Mapping):
        rows = dict(rows)
    elif not isinstance(rows, pa.Table) and not hasattr(rows, "__arrow_c_stream__"):
        got = f"a {type(rows).__name__}"
        remedy = "Pass a data frame, an Arrow table, a mapping of columns, or a file"
        _check.refuse("rows", "a table", got, remedy)
    pandas = type(rows).__module__.partition(".")[0] == "pandas"
    convert = (lambda: pa.Table.from_pandas(rows, preserve_index=False)) if pandas else None
    table = _quietly(convert or (lambda: pa.table(rows)))
    if table is None:
        remedy = "Give every column one type"
        _check.refuse("rows", "a table of plain columns of one length", "another kind", remedy)
    return _checked(table)


def _read_file(path: Path) -> pa.Table:
    """The table in a file; its ending tells how to read it."""
    readers: dict[str, Callable[[Path], pa.Table]] = {
        ".csv": pyarrow.csv.read_csv,
        ".parquet": pq.read_table,
    }
    if path.suffix.lower() not in readers:
        remedy = "Its name must say which"
        _check.refuse("rows", "a .csv or .parquet file", repr(str(path)), remedy)
    # What the system says of a file that is not there holds no cell.
    path.open("rb").close()
    table = _quietly(lambda: readers[path.suffix.lower()](path))
    if table is None:
        _check.refuse("rows", "a readable file", f"{str(path)!r}, which is not", "Write it again")
    return _checked(table)


def _quietly(task: Callable[[], pa.Table]) -> pa.Table | None:
    """What ``task`` gives, or None: what went wrong may quote a response."""
    try:
        return task()
    except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


def _checked(table: pa.Table) -> pa.Table:
    """The table when it has rows and each of its columns a name of its own."""
    if len(set(table.column_names)) < table.num_columns:
        _check.refuse("rows", "of columns with different names", "one name twice", "Rename one")
    if not table.num_rows:
        _check.refuse("rows", "of at least one row", "none", "Check the file")
    # Arrow has no way to gather from views, in which polars hands out text.
    plain = [
        field.with_type(pa.large_string()) if field.type == pa.string_view() else field
        for field in table.schema
    ]
    return table.cast(pa.schema(plain))


def column(table: pa.Table, name: Any, role: str) -> pa.ChunkedArray:
    """A column by name."""
    if name not in table.column_names:
        _check.refuse(role, "a column of the table", f"{name!r}", "Check the spelling")
    return table[name]


def responses(table: pa.Table, name: str) -> FloatArray:
    """The response as numbers, all finite; what is wrong with it is told without a value or row."""
    values = column(table, name, "response")
    if not _numeric(values.type):
        remedy = "Turn responses into numbers first"
        _check.refuse("the response", "a column of numbers", f"{values.type} values", remedy)
    if values.null_count or not np.isfinite(numbers := _floats(values)).all():
        remedy = "Drop or fill those rows by a rule of your own"
        _check.refuse("the response", "finite in every row", "missing or infinite ones", remedy)
    return numbers


def feature_columns(
    table: pa.Table,
    numbers: FloatArray,
    response: str,
    private: Sequence[str],
    columns: Sequence[str] | None,
    features: str,
) -> list[str]:
    """The columns that may leave, each known to be no copy of the response.

    Parameters
    ----------
    table : Arrow table
    numbers : ndarray of shape (n_rows,)
        The response.
    response : str
    private : sequence of str
        Columns that stay home besides the response: users, ids of bags.
    columns : sequence of str or None
        Those asked for; None asks for all.
    features : {"rows", "means", "statistics", "none"}
        Means and statistics need finite numbers.
    """
    if features == "none":
        return []
    numeric = features != "rows"
    stay = {response, *private}
    if columns is None:
        chosen = [name for name in table.column_names if name not in stay]
    else:
        if isinstance(columns, str):
            columns = [columns]
        chosen = list(dict.fromkeys(columns))
        for name in chosen:
            column(table, name, "columns")
            if name in stay:
                rule = "columns that may leave"
                _check.refuse("columns", rule, f"{name!r}", "Response and user stay home")
    if not chosen:
        _check.refuse("columns", "at least one", "none", "Or pass features='none'")
    if "bag" in chosen:
        _check.refuse("columns", "named otherwise than 'bag'", "'bag'", "Rename it")
    for name in chosen:
        values = table[name]
        if _is_copy(values, numbers):
            remedy = "Leave it out: it would release every response"
            _check.refuse("columns", "different from the response", f"{name!r}", remedy)
        if numeric and (
            not _numeric(values.type) or values.null_count or not np.isfinite(_floats(values)).all()
        ):
            remedy = "Encode or leave it out"
            _check.refuse("columns", "finite numbers for this", f"{name!r}", remedy)
    return chosen


def _is_copy(values: pa.ChunkedArray, numbers: FloatArray) -> bool:
    """Whether a column repeats the response, which more than one row must tell."""
    if not _numeric(values.type) or len(numbers) < 2:
        return False
    # NaN differs from everything, and missing features read as NaN.
    head = np.array_equal(_floats(values.slice(0, GLANCE)), numbers[:GLANCE])
    constant = bool(head and (numbers == numbers[0]).all())
    return head and not constant and np.array_equal(_floats(values), numbers)


def _numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _floats(values: pa.ChunkedArray) -> FloatArray:
    """A numeric column as float64, NaN where it is missing."""
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
