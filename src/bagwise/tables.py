"""Tables on disk or in memory, read a batch of rows at a time: CSV or Parquet, one file or many."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from glob import glob
from itertools import accumulate, islice
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise import _check
from bagwise._parallel import stoppable

# Rows and bytes of a batch, unless a file's own pieces are smaller.
BATCH, BATCH_BYTES = 2**17, 2**24
ENDINGS = {".csv": "csv", ".parquet": "parquet"}


@contextmanager
def _readable(source: str) -> Iterator[None]:
    """One sentence for what Arrow says of a table that it cannot read to its end."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"the table must be readable to its end; got {source}: {_reason(error)}. "
            "Write it again, with one type a column."
        ) from None


def _reason(error: Exception) -> str:
    """What a library says, as the end of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(". ")


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that one worker reads: row groups of a file, a CSV file, or a table in memory.

    Attributes
    ----------
    data : path, Arrow table, or Arrow buffer of CSV
    schema : Arrow schema
        Of the whole table.
    groups : tuple of int
        The row groups of a Parquet file, next to each other.
    n_rows : int or None
        None for CSV, which must be read to be counted.
    first : int
        Number of the first row in the whole table, once the pieces before it are counted.
    """

    data: Path | pa.Table | pa.Buffer
    schema: pa.Schema
    groups: tuple[int, ...] = ()
    n_rows: int | None = None
    first: int = 0

    @property
    def is_csv(self) -> bool:
        """Whether this is a CSV file, which cannot be cut."""
        return not self.groups and not isinstance(self.data, pa.Table)

    @property
    def name(self) -> str:
        """What messages call it."""
        if isinstance(self.data, pa.Table):
            return "the table"
        return str(self.data) if isinstance(self.data, Path) else "standard input"

    @stoppable
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows with these columns, in order."""
        names = list(columns)
        if isinstance(self.data, pa.Table):
            yield from self.data.select(names).to_batches(BATCH)
            return
        with _readable(self.name):
            if self.is_csv:
                kinds = {name: self.schema.field(name).type for name in names}
                types = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=names)
                with _open_csv(self.data, types) as reader:
                    yield from map(_missing_text, reader)
                return
            options = {"metadata": footer(self.data), "pre_buffer": False, "buffer_size": 2**20}
            with pq.ParquetFile(self.data, **options) as file:
                read = partial(
                    file.iter_batches, row_groups=self.groups, columns=names, use_threads=False
                )
                width = _fixed_width(self.schema.field(name).type for name in names)
                if width is None:
                    width = max(map(_width, islice(read(1000), 1)), default=1)
                for batch in read(max(1, min(BATCH, BATCH_BYTES // width))):
                    yield batch.select(names)


@dataclass(frozen=True)
class Table:
    """Rows that are read when they are asked for, in the order of files and lines.

    Attributes
    ----------
    schema : Arrow schema
    source : str
        What messages call it.
    files : tuple of Path
        Where they lie; none in memory and on standard input.
    """

    schema: pa.Schema
    source: str
    _data: pa.Table | pa.Buffer | None = None
    files: tuple[Path, ...] = ()

    @classmethod
    def of(cls, data: pa.Table) -> Table:
        """A table in memory."""
        return cls(data.schema, "the table", data)

    @property
    def is_csv(self) -> bool:
        """Whether its cells are text, which types are read from."""
        endings = {ENDINGS[file.suffix.lower()] for file in self.files}
        return endings == {"csv"} or isinstance(self._data, pa.Buffer)

    def state(self) -> list[tuple[int, int]]:
        """What changes when a file does: its size, and when it was written."""
        found = (file.stat() for file in self.files)
        return [(one.st_size, one.st_mtime_ns) for one in found]

    def pieces(self) -> list[Piece]:
        """The table in parts that workers read by themselves."""
        if isinstance(self._data, pa.Table):
            cuts = range(0, self._data.num_rows, 8 * BATCH)
            parts = (self._data.slice(cut, 8 * BATCH) for cut in cuts)
            return [Piece(part, self.schema, n_rows=part.num_rows) for part in parts]
        if self.is_csv:
            return [Piece(one, self.schema) for one in self.files or [self._data]]
        return [
            Piece(file, self.schema, groups, n_rows)
            for file in self.files
            for groups, n_rows in _runs(footer(file))
        ]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def need(self, columns: Sequence[str], role: str = "columns") -> None:
        """Refuse names that are not columns."""
        for name in columns:
            if name not in self.names:
                got = f"{name!r} for {self.source}"
                _check.refuse(role, "columns of the table", got, self.remedy(name))

    def remedy(self, name: str) -> str:
        """What to do about a column that is not there."""
        if any(part.startswith(f"{name}=") for file in self.files for part in file.parts):
            return "Names of folders are not read: write that column into the files"
        return f"It has {', '.join(self.names[:10])}" + (", …" if len(self.names) > 10 else "")

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Rows with these columns, a batch at a time, in constant memory."""
        chosen = self.names if columns is None else list(columns)
        self.need(chosen)
        with _readable(self.source):
            pieces = self.pieces()
        for piece in pieces:
            for batch in piece.batches(chosen):
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])


def open_table(
    source: str | PathLike[str] | Sequence[str | PathLike[str]],
    types: Mapping[str, pa.DataType] | None = None,
    ids: Iterable[str] = (),
) -> Table:
    """A table from a file, a folder, a glob, a list of those, or "-" for CSV on standard input.

    Parameters
    ----------
    source : path, or sequence of paths
        .csv or .parquet files; all of one kind, with the same columns.
    types : mapping of str to Arrow type
        Of CSV columns that are known; others are guessed from the first lines. Numbers are
        float64, for a fraction may come late; true and false stay what they are.
    ids : iterable of str
        CSV columns in which whole numbers stay whole.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> folder = mkdtemp()
    >>> _ = Path(folder, "a.csv").write_text("x,y\\n1,2\\n3,4\\n")
    >>> [batch.to_pydict() for batch in open_table(f"{folder}/*.csv").batches(["y"])]
    [{'y': [2.0, 4.0]}]
    """
    sources = [source] if isinstance(source, str | PathLike) else list(source)
    known, whole = dict(types or {}), frozenset(ids)
    if sources == ["-"]:
        return _open_input(known, whole)
    files = [file for one in sources for file in files_of(str(one))]
    name = ", ".join(map(str, sources[:3]))
    if len({file.resolve() for file in files}) < len(files):
        _check.refuse("the table", "of different files", f"one of {name!r} twice", "Name it once")
    kinds = {ENDINGS.get(file.suffix.lower(), "") for file in files}
    if len(kinds) != 1 or not all(kinds):
        remedy = "Name files of one kind; their endings tell"
        _check.refuse("the table", "of .csv files or of .parquet files", repr(name), remedy)
    for file in files:
        file.open("rb").close()
    schemas = [schema_of(file, whole) for file in files]
    for schema in schemas:
        _refuse_twice(schema.names, name)
    if kinds == {"parquet"}:
        refuse_mixed(schemas, name)
        schema = schemas[0]
    else:
        refuse_mixed([pa.schema([(n, pa.null()) for n in s.names]) for s in schemas], name)
        schema = _csv_schema(schemas, known, whole)
    return Table(schema, name, files=tuple(file.absolute() for file in files))


def schema_of(file: Path, ids: Collection[str] = ()) -> pa.Schema:
    """Columns of a file; of CSV as its first lines show them."""
    try:
        if ENDINGS[file.suffix.lower()] == "parquet":
            return pq.read_schema(file)
        with _open_csv(file) as reader:
            return _glance(reader, ids)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"the table must be readable; got {str(file)!r}: {_reason(error)}. Write it again."
        ) from None


def _open_csv(
    data: Path | pa.Buffer, types: pyarrow.csv.ConvertOptions | None = None
) -> pyarrow.csv.CSVStreamingReader:
    """A reader of batches; a cell in quotes may have lines."""
    form = pyarrow.csv.ParseOptions(newlines_in_values=True)
    source = data if isinstance(data, Path) else pa.BufferReader(data)
    return pyarrow.csv.open_csv(source, parse_options=form, convert_options=types)


def _glance(reader: pyarrow.csv.CSVStreamingReader, ids: Collection[str]) -> pa.Schema:
    """Columns as the first lines show them; whole numbers are float64 unless that costs digits."""
    schema = reader.schema
    for batch in islice(reader, 1):
        for i, field in enumerate(schema):
            if field.type == pa.int64() and field.name not in ids:
                low, high = pc.min_max(batch[i]).as_py().values()
                if low is None or -(2**53) < low <= high < 2**53:
                    schema = schema.set(i, field.with_type(pa.float64()))
    return schema


def _csv_schema(
    schemas: Sequence[pa.Schema], known: Mapping[str, pa.DataType], ids: Collection[str]
) -> pa.Schema:
    """Columns as they are known, or as the first file that has values in one shows it."""

    def kind_of(name: str) -> pa.DataType:
        every = [schema.field(name).type for schema in schemas]
        seen = [kind for kind in every if kind != pa.null()] or [pa.null()]
        if name in known and not (known[name] == pa.float64() and seen[0] == pa.bool_()):
            return known[name]
        if set(seen) == {pa.int64(), pa.float64()}:
            # Ids have fractions somewhere; in other columns a file has more digits than float64.
            return pa.float64() if name in ids else pa.int64()
        return seen[0]

    return pa.schema([(name, kind_of(name)) for name in schemas[0].names])


def _missing_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in which empty text is missing, as an empty number is."""
    for i, field in enumerate(batch.schema):
        if is_text(field.type):
            empty = pc.equal(batch[i], "")
            if pc.any(empty).as_py():
                batch = batch.set_column(i, field, pc.if_else(empty, None, batch[i]))
    return batch


@lru_cache(maxsize=64)
def _footer_at(path: Path, size: int, changed: int) -> pq.FileMetaData:
    return pq.read_metadata(path)


def footer(path: Path) -> pq.FileMetaData:
    """Where a Parquet file keeps what; it grows with the file, so it is read once."""
    state = path.stat()
    return _footer_at(path, state.st_size, state.st_mtime_ns)


def _runs(found: pq.FileMetaData) -> Iterator[tuple[tuple[int, ...], int]]:
    """Row groups that together are a batch at most, or one that is larger; and their rows.

    What is done once a piece would cost more than the rows of a tiny one.
    """
    run: tuple[int, ...] = ()
    held = 0
    for i in range(found.num_row_groups):
        rows = found.row_group(i).num_rows
        if run and held + rows > BATCH:
            yield run, held
            run, held = (), 0
        run, held = (*run, i), held + rows
    if run:
        yield run, held


def widths(pieces: Sequence[Piece], columns: Sequence[str]) -> Iterator[int]:
    """Bytes that a row takes in memory, about; where there is text, in a few of the pieces."""
    width = _fixed_width(pieces[0].schema.field(name).type for name in columns)
    if width is not None:
        yield width
        return
    for piece in pieces[:: -(-len(pieces) // 4)]:
        yield from map(_width, islice(piece.batches(columns), 1))


def _fixed_width(kinds: Iterable[pa.DataType]) -> int | None:
    """Bytes of a row of these types; None where that depends on the row."""
    try:
        return sum(max(1, int(kind.bit_width) // 8) for kind in kinds)
    except ValueError:
        return None


def _width(batch: pa.RecordBatch) -> int:
    """Bytes of a row in a batch, without dictionaries."""
    size = sum(int(plain(values).nbytes) for values in batch.columns)
    return 1 + size // max(1, int(batch.num_rows))


def numbered(pieces: Sequence[Piece], counts: Sequence[int]) -> list[Piece]:
    """Pieces with their numbers of rows and their places in the table; none that is empty."""
    firsts = accumulate(counts, initial=0)
    found = zip(pieces, counts, firsts, strict=False)
    return [replace(piece, n_rows=n, first=first) for piece, n, first in found if n]


def plain(values: Any) -> Any:
    """A column without dictionary or views; TypeError where it is nested.

    A dictionary lists values as they first came up in the table, and keeps those of rows that are
    dropped; Arrow cannot gather from views, in which polars hands out text.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        if isinstance(values, pa.ChunkedArray):
            chunks = [plain(part) for part in values.chunks]
            return pa.chunked_array(chunks, type=plain_type(kind))
        flat = plain(values.dictionary)
        return pa.DictionaryArray.from_arrays(values.indices, flat).dictionary_decode()
    return values if kind == (flat := plain_type(kind)) else values.cast(flat)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that `plain` gives."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_nested(kind):
        raise TypeError("nested")
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return views.get(kind, kind)


def _refuse_twice(names: Sequence[str], source: str) -> None:
    """Refuse columns that share a name."""
    if len(set(names)) < len(names):
        got = f"one name twice in {source!r}"
        _check.refuse("the table", "of columns with different names", got, "Rename one")


def _open_input(known: Mapping[str, pa.DataType], ids: Collection[str]) -> Table:
    """CSV on standard input, held in memory."""
    data = pa.py_buffer(sys.stdin.buffer.read())
    try:
        with _open_csv(data) as reader:
            schema = _glance(reader, ids)
    except pa.ArrowException as error:
        raise ValueError(
            "standard input must be CSV with a line of names; "
            f"got other text: {_reason(error)}. Check it."
        ) from None
    _refuse_twice(schema.names, "standard input")
    return Table(_csv_schema([schema], known, ids), "standard input", data)


def files_of(source: str) -> list[Path]:
    """The files that a path, a folder or a glob stands for, in the order of their names."""
    path = Path(source)
    if path.is_dir():
        # Hidden files and folders, and those that engines keep for themselves, are no data.
        found = sorted(
            p
            for folder, _, names in os.walk(path, onerror=_fail)
            for p in (Path(folder, name) for name in names)
            if p.is_file() and not any(x[0] in "._" for x in p.relative_to(path).parts)
        )
    elif not path.exists() and any(mark in source for mark in "*?["):
        found = sorted(map(Path, glob(source, recursive=True)))
    elif not path.exists():
        raise FileNotFoundError(f"the table must be there; got {source!r}. Check the path.")
    else:
        return [path]
    if not found:
        _check.refuse("the table", "of at least one file", f"none in {source!r}", "Check the path")
    return found


def _fail(error: OSError) -> NoReturn:
    """A folder that may not be read is not an empty one."""
    raise error


def refuse_mixed(schemas: Sequence[pa.Schema], name: str) -> None:
    """Refuse files whose columns differ in name or type."""
    first = {field.name: field.type for field in schemas[0]}
    for schema in schemas[1:]:
        other = {field.name: field.type for field in schema}
        differ = [c for c in first | other if first.get(c) != other.get(c)]
        if differ:
            column = differ[0]
            kinds = f"{first.get(column)} and {other.get(column)} in column {column!r}"
            both = column in first and column in other
            got = f"{kinds if both else f'column {column!r} in some alone'} of {name!r}"
            _check.refuse("the table", "of files with one type a column", got, "Write them alike")


def all_finite(numbers: NDArray[Any]) -> bool:
    """Whether every one of these is finite."""
    # A sum is finite when its terms are, and quicker to look at than each of them.
    with np.errstate(all="ignore"):
        total = numbers.sum(dtype=np.float64)
    return bool(np.isfinite(total) or np.isfinite(numbers).all())


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is of numbers or truth values."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is of text."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)
