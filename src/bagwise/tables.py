"""Tables on disk or in memory, read a batch of rows at a time: CSV or Parquet, one file or many."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import glob
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bagwise import _check
from bagwise._parallel import stoppable

# Rows of a batch, unless a file's own pieces are smaller.
BATCH = 2**17
ENDINGS = {".csv": "csv", ".parquet": "parquet"}


@contextmanager
def _readable(source: str) -> Iterator[None]:
    """One sentence for what Arrow says of a table that it cannot read to its end."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(
            f"the table must be readable to its end; got {source}: {reason}. "
            "Write it again, with one type a column."
        ) from None


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that one worker reads: a row group of a file, a CSV file, or a table in memory.

    Attributes
    ----------
    data : path or Arrow table
    schema : Arrow schema
        Of the whole table.
    group : int or None
        The row group of a Parquet file.
    n_rows : int or None
        None for CSV, which must be read to be counted.
    first : int
        Number of the first row in the whole table, once the pieces before it are counted.
    """

    data: Path | pa.Table
    schema: pa.Schema
    group: int | None = None
    n_rows: int | None = None
    first: int = 0

    @property
    def is_csv(self) -> bool:
        """Whether this is a CSV file, which cannot be cut."""
        return self.group is None and isinstance(self.data, Path)

    @stoppable
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows with these columns, in order."""
        names = list(columns)
        if isinstance(self.data, pa.Table):
            yield from self.data.select(names).to_batches(BATCH)
            return
        with _readable(str(self.data)):
            if self.is_csv:
                types = pyarrow.csv.ConvertOptions(column_types=self.schema)
                form = ds.CsvFileFormat(convert_options=types)
                data = ds.dataset(str(self.data), schema=self.schema, format=form)
                yield from data.to_batches(columns=names, batch_size=BATCH, batch_readahead=4)
                return
            with pq.ParquetFile(self.data, metadata=footer(self.data)) as file:
                for batch in file.iter_batches(BATCH, [self.group], names, use_threads=False):
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
    _data: Any
    files: tuple[Path, ...] = ()

    @classmethod
    def of(cls, data: pa.Table) -> Table:
        """A table in memory."""
        return cls(data.schema, "the table", ds.dataset(data))

    def state(self) -> list[tuple[int, int]]:
        """What changes when a file does: its size, and when it was written."""
        found = (file.stat() for file in self.files)
        return [(one.st_size, one.st_mtime_ns) for one in found]

    def pieces(self) -> list[Piece]:
        """The table in parts that workers read by themselves; standard input is read at once."""
        if not self.files:
            data = self._data
            whole = data.to_table() if isinstance(data, ds.Dataset) else data.read_all()
            cuts = range(0, whole.num_rows, 8 * BATCH)
            return [
                Piece(part, self.schema, n_rows=part.num_rows)
                for part in (whole.slice(cut, 8 * BATCH) for cut in cuts)
            ]
        if ENDINGS[self.files[0].suffix.lower()] == "csv":
            return [Piece(file, self.schema) for file in self.files]
        return [
            Piece(file, self.schema, i, footer(file).row_group(i).num_rows)
            for file in self.files
            for i in range(footer(file).num_row_groups)
        ]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def need(self, columns: Sequence[str], role: str = "columns") -> None:
        """Refuse names that are not columns."""
        for name in columns:
            if name not in self.names:
                some = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
                got = f"{name!r} for {self.source}"
                _check.refuse(role, "columns of the table", got, f"It has {some}")

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Rows with these columns, a batch at a time, in constant memory."""
        chosen = self.names if columns is None else list(columns)
        self.need(chosen)
        with _readable(self.source):
            if isinstance(self._data, ds.Dataset):
                options = {"columns": chosen, "batch_size": BATCH, "batch_readahead": 4}
                found = self._data.to_batches(**options, fragment_readahead=1)
            else:
                found = iter(self._data)
            for batch in found:
                if batch.num_rows:
                    yield pa.Table.from_batches([batch]).select(chosen)


def open_table(
    source: str | PathLike[str] | Sequence[str | PathLike[str]],
    types: Mapping[str, pa.DataType] | None = None,
) -> Table:
    """A table from a file, a folder, a glob, a list of those, or "-" for CSV on standard input.

    Parameters
    ----------
    source : path, or sequence of paths
        .csv or .parquet files; all of one kind, with the same columns.
    types : mapping of str to Arrow type
        Of CSV columns that are known; others are guessed from the first lines.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> folder = mkdtemp()
    >>> _ = Path(folder, "a.csv").write_text("x,y\\n1,2\\n3,4\\n")
    >>> [batch.to_pydict() for batch in open_table(f"{folder}/*.csv").batches(["y"])]
    [{'y': [2, 4]}]
    """
    sources = [source] if isinstance(source, str | PathLike) else list(source)
    options = pyarrow.csv.ConvertOptions(column_types=dict(types or {}))
    if sources == ["-"]:
        return _open_input(options)
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
    try:
        if kinds == {"parquet"}:
            _refuse_mixed([pq.read_schema(file) for file in files], name)
            data = ds.dataset([str(file) for file in files], format="parquet")
        else:
            names = [pyarrow.csv.open_csv(file).schema.names for file in files]
            for some in names:
                _refuse_twice(some, name)
            _refuse_mixed([pa.schema([(n, pa.null()) for n in some]) for some in names], name)
            form = ds.CsvFileFormat(convert_options=options)
            data = ds.dataset([str(file) for file in files], _csv_schema(files, options), form)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(
            f"the table must be readable; got {name!r}: {reason}. Write it again."
        ) from None
    _refuse_twice(data.schema.names, name)
    return Table(data.schema, name, data, tuple(file.absolute() for file in files))


def _csv_schema(files: Sequence[Path], options: pyarrow.csv.ConvertOptions) -> pa.Schema:
    """Columns as the first file that has rows shows them."""
    for file in files:
        with pyarrow.csv.open_csv(file, convert_options=options) as reader:
            schema = reader.schema
            if any(batch.num_rows for batch in reader):
                return schema
    return schema


@lru_cache(maxsize=64)
def _footer_at(path: Path, size: int, changed: int) -> pq.FileMetaData:
    return pq.read_metadata(path)


def footer(path: Path) -> pq.FileMetaData:
    """Where a Parquet file keeps what; it grows with the file, so it is read once."""
    state = path.stat()
    return _footer_at(path, state.st_size, state.st_mtime_ns)


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


def _open_input(options: pyarrow.csv.ConvertOptions) -> Table:
    """CSV on standard input, which can be read once."""
    try:
        reader = pyarrow.csv.open_csv(sys.stdin.buffer, convert_options=options)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(
            f"standard input must be CSV with a line of names; got other text: {reason}. Check it."
        ) from None
    _refuse_twice(reader.schema.names, "standard input")
    return Table(reader.schema, "standard input", reader)


def files_of(source: str) -> list[Path]:
    """The files that a path, a folder or a glob stands for, in the order of their names."""
    path = Path(source)
    if path.is_dir():
        # Hidden files and folders, and those that engines keep for themselves, are no data.
        found = sorted(
            p
            for p in path.rglob("*")
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


def _refuse_mixed(schemas: list[pa.Schema], name: str) -> None:
    """Refuse files whose columns differ in name or type."""
    first = {field.name: field.type for field in schemas[0]}
    for schema in schemas[1:]:
        other = {field.name: field.type for field in schema}
        differ = [c for c in first | other if first.get(c) != other.get(c)]
        if differ:
            column = differ[0]
            got = f"{first.get(column)} and {other.get(column)} in column {column!r} of {name!r}"
            _check.refuse("the table", "of files with one type a column", got, "Write them alike")


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is of numbers or truth values."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is of text."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)
