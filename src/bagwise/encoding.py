"""Columns of a table as the numbers that a model takes, with the levels of text remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagwise import _check
from bagwise.tables import all_finite, is_number, is_text

FloatArray: TypeAlias = NDArray[np.float64]
# Past this many levels a column is an identifier and not a feature.
MOST_LEVELS = 1000


@dataclass(frozen=True)
class Encoder:
    """Which columns a model takes, and the levels of those that are text.

    Attributes
    ----------
    columns : dict of str to None or tuple of str
        For each column its levels, or None when it is a number.

    Notes
    -----
    Guarantees: numbers and truth values pass as they are; text becomes one column of 0 and 1 for
    each level that was seen, in the order of the alphabet.
    Limits: missing values are refused; so are dates, and text of more than 1000 levels.

    Examples
    --------
    >>> table = pa.table({"age": [31, 45], "town": ["b", "a"]})
    >>> encoder = Encoder.learn(table.schema, ["age", "town"], [table])
    >>> encoder.names
    ('age', 'town=a', 'town=b')
    >>> encoder.encode(table).tolist()
    [[31.0, 0.0, 1.0], [45.0, 1.0, 0.0]]
    """

    columns: dict[str, tuple[str, ...] | None]

    @classmethod
    def learn(
        cls, schema: pa.Schema, columns: Iterable[str], batches: Iterable[pa.Table]
    ) -> Encoder:
        """The encoder of these columns; ``batches`` are read only where a column is text."""
        found: dict[str, set[str] | None] = {}
        for name in columns:
            kind = _value_type(schema.field(name).type)
            if not (is_number(kind) or is_text(kind)):
                remedy = "Turn it into numbers or text, or leave it out"
                _check.refuse("features", "numbers or text", f"{kind} in {name!r}", remedy)
            found[name] = None if is_number(kind) else set()
        text = {name: seen for name, seen in found.items() if seen is not None}
        for batch in batches if text else ():
            for name, seen in text.items():
                seen.update(pc.unique(batch[name]).to_pylist())
                if len(seen) > MOST_LEVELS:
                    got = f"more in column {name!r}"
                    rule = f"text of at most {MOST_LEVELS} levels"
                    _check.refuse("features", rule, got, "Leave it out: it tells rows apart")
        for name, seen in text.items():
            if None in seen:
                _refuse_missing(name)
        return cls({n: None if s is None else tuple(sorted(s)) for n, s in found.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(
            encoded
            for name, levels in self.columns.items()
            for encoded in ([name] if levels is None else [f"{name}={level}" for level in levels])
        )

    def encode(self, table: pa.Table, unknown: str = "refuse") -> FloatArray:
        """Rows as numbers, shape (n_rows, len(names)).

        Parameters
        ----------
        table : Arrow table with the columns
        unknown : {"refuse", "ignore"}
            What to do with a level that was not seen: a sentence, or 0 in all its columns.
        """
        return self.rows(table, unknown)[:]

    def rows(self, table: pa.Table, unknown: str = "refuse") -> EncodedRows:
        """The same, encoded a block at a time when it is asked for; parameters as in `encode`."""
        parts: list[tuple[int, NDArray[Any]]] = []
        for name, levels in self.columns.items():
            if name not in table.column_names:
                _check.refuse("features", "columns of the table", f"no {name!r}", "Add it")
            values = table[name]
            if values.null_count:
                _refuse_missing(name)
            if levels is None:
                parts.append((0, _numbers(values, name)))
            else:
                parts.append((len(levels), _codes(values, levels, name, unknown)))
        return EncodedRows(parts, (table.num_rows, len(self.names)))

    def encode_frame(self, frame: Any) -> Any:
        """A data frame with the columns as numbers; one that is encoded already as it is."""
        names = tuple(getattr(frame, "column_names", None) or frame.columns)
        if names == self.names:
            return frame
        # Only what the model takes: another column may be of any kind.
        chosen = [name for name in self.columns if name in names]
        return self.encode(
            pa.table(frame.select(chosen) if hasattr(frame, "select") else frame[chosen])
        )

    def to_dict(self) -> dict[str, list[str] | None]:
        """The encoder as plain lists, for JSON."""
        return {n: None if s is None else list(s) for n, s in self.columns.items()}

    @classmethod
    def from_dict(cls, saved: Any) -> Encoder:
        """What `to_dict` gave; ValueError otherwise."""
        if not isinstance(saved, Mapping) or not saved:
            raise ValueError("no columns")
        for levels in saved.values():
            is_text = isinstance(levels, list) and all(isinstance(v, str) for v in levels)
            if levels is not None and not is_text:
                raise ValueError("levels that are no text")
        return cls({n: None if s is None else tuple(s) for n, s in saved.items()})


class EncodedRows:
    """A table as the matrix that an encoder makes of it; slices of rows give blocks of it."""

    def __init__(self, parts: list[tuple[int, NDArray[Any]]], shape: tuple[int, int]) -> None:
        self._parts, self.shape = parts, shape

    def __getitem__(self, rows: slice) -> FloatArray:
        """Rows as float64."""
        return self.columns_minus(np.zeros(self.shape[1]), rows).T

    def columns_minus(self, centre: FloatArray, rows: slice) -> FloatArray:
        """Columns minus ``centre`` over a slice of rows, shape (n_columns, rows), in C order."""
        out = np.empty((self.shape[1], len(range(*rows.indices(self.shape[0])))))
        place = 0
        for levels, values in self._parts:
            if not levels:
                np.subtract(values[rows], centre[place], out=out[place], dtype=np.float64)
                place += 1
                continue
            codes = values[rows]
            known = np.flatnonzero(codes >= 0)
            out[place : place + levels] = 0.0 - centre[place : place + levels, None]
            out[place + codes[known], known] += 1.0
            place += levels
        return out


def choose_features(
    columns: Sequence[str], bag_columns: Sequence[str], asked: Sequence[str] | None, source: str
) -> list[str]:
    """The columns of ``source`` to take: those asked for, or all but those that make the bags.

    What names the bag tells bags apart and nothing else, and other rows are in other bags.
    """
    others = [name for name in columns if name not in bag_columns]
    chosen = others if asked is None else list(asked)
    for name in chosen:
        if name not in columns:
            some = ", ".join(columns[:10])
            _check.refuse("features", f"columns of {source}", f"{name!r}", f"It has {some}")
    if not chosen:
        remedy = "Columns that make the bags are taken where they are named"
        _check.refuse("features", "at least one column", "none", remedy)
    return chosen


def _codes(values: Any, levels: tuple[str, ...], name: str, unknown: str) -> NDArray[Any]:
    """The place of each row's level among the levels, −1 where it is unknown."""
    if not is_text(_value_type(values.type)):
        _check.refuse("features", f"text in column {name!r}", str(values.type), "Convert it")
    known = pa.array(levels, pa.large_string())
    codes = pc.index_in(values.cast(pa.large_string()), known)
    if codes.null_count and unknown == "refuse":
        strange = values.filter(pc.is_null(codes))[0].as_py()
        got = f"{strange!r} in column {name!r}"
        remedy = "Go on without it with --unknown ignore, or Encoder.encode(…, unknown='ignore')"
        _check.refuse("features", "of levels that were seen in training", got, remedy)
    return np.asarray(pc.fill_null(codes, -1).to_numpy())


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """A numeric column, all of it finite."""
    if not is_number(_value_type(values.type)):
        _check.refuse("features", f"numbers in column {name!r}", str(values.type), "Convert it")
    plain = values.cast(_value_type(values.type)) if pa.types.is_dictionary(values.type) else values
    numbers = np.asarray(plain.to_numpy())
    if not all_finite(numbers):
        _refuse_missing(name)
    return numbers


def _refuse_missing(name: str) -> None:
    got = f"missing or infinite values in column {name!r}"
    _check.refuse("features", "there in every row", got, "Fill or leave it out")


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
