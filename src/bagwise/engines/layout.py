"""Which row sits in which bag, told from its number alone: no table is sorted or held for it.

Rows are numbered through the whole table. A keyed *permutation* of those numbers, one that can be
computed for each number by itself, says where a row stands in a shuffled table, and random bags are
runs of that table. So workers agree on the bags without a word between them, bags have exactly the
size that is asked for, and nothing is sorted. Whether a response is high or low plays no part: this
module never sees one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagwise import _check
from bagwise.tables import Piece, Table, is_number, plain, plain_type

Integers: TypeAlias = NDArray[np.int64]
Run: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
# Text of a number that other text stands for, too; float64 does not keep every digit of long ones.
ODD = r"^\s*(\+|-?0[0-9xX])"
LONG = ODD + r"|^\s*-?[0-9]{16}"
# Up to this many numbers a permutation is a list; past it, rounds of a cipher.
SHORT, ROUNDS = 2**16, 8
# Bytes of rows that are held at once.
AT_ONCE = 2**25


@dataclass(frozen=True, eq=False)
class Permutation:
    """A permutation of 0, …, n − 1 that is computed for each number by itself.

    Attributes
    ----------
    n : int
    sides : (int, int)
        A number is a pair (left, right) of digits to these bases; their product is at least n.
    rounds : tuple of uint32 ndarray
        Round by round a random number for each digit of one side, which shifts the other.

    Notes
    -----
    Guarantees: a bijection, the same on every machine. Past 65,536 numbers it is the construction
    of Luby and Rackoff with eight rounds of functions drawn by ``rng``; a pair that leads past
    n − 1 is enciphered again. Below, it is a list that ``rng`` draws.

    Examples
    --------
    >>> shuffle = Permutation.draw(5, np.random.default_rng(0))
    >>> sorted(shuffle(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    n: int
    sides: tuple[int, int]
    rounds: tuple[NDArray[np.uint32], ...]

    @classmethod
    def draw(cls, n: int, rng: np.random.Generator) -> Permutation:
        """One at random."""
        if n <= SHORT:
            return cls.listed(rng.permutation(n))
        a = math.isqrt(n - 1) + 1
        b = -(-n // a)
        bases = [(a, b), (b, a)] * (ROUNDS // 2)
        return cls(n, (a, b), tuple(rng.integers(0, x, y, dtype=np.uint32) for x, y in bases))

    @classmethod
    def listed(cls, places: Integers) -> Permutation:
        """The one that sends 0, 1, … to these places: 4 bytes a row."""
        return cls(len(places), (len(places), 1), (places.astype(np.uint32),))

    def __call__(self, numbers: Integers) -> Integers:
        """Where each number goes."""
        if len(self.rounds) == 1:
            return self.rounds[0][numbers].astype(np.int64)
        found = self._encipher(numbers)
        # A pair or two in √n lead outside; walking on from there ends inside, and is one to one.
        while len(outside := np.flatnonzero(found >= self.n)):
            found[outside] = self._encipher(found[outside])
        return found

    def _encipher(self, numbers: Integers) -> Integers:
        a, b = self.sides
        left, right = (digit.astype(np.uint32) for digit in np.divmod(numbers, b))
        for r, shifts in enumerate(self.rounds):
            side, other, base = (left, right, a) if r % 2 == 0 else (right, left, b)
            side += shifts.take(other, mode="clip")
            # The remainder: one step back, unless that would wrap around to a large number.
            np.minimum(side, side - np.uint32(base), out=side)
        return left.astype(np.int64) * b + right


@dataclass(frozen=True, eq=False)
class Kept:
    """Which places of the shuffled table stay, and how many stay before each: n / 4 bytes.

    Attributes
    ----------
    words : uint64 ndarray
        A bit a place.
    before : int ndarray
        Of each word, the places that stay before it.
    """

    words: NDArray[np.uint64]
    before: Integers

    @classmethod
    def of(cls, n: int, places: Iterator[Integers]) -> Kept:
        """Those that are listed."""
        bits = np.zeros(-(-n // 64) * 8, dtype=np.uint8)
        for some in places:
            np.bitwise_or.at(bits, some >> 3, np.uint8(1) << (some & 7).astype(np.uint8))
        words = bits.view("<u8")
        counts = np.bitwise_count(words).astype(np.int64)
        return cls(words, np.cumsum(counts) - counts)

    @property
    def count(self) -> int:
        """Places that stay."""
        return int(self.before[-1]) + int(np.bitwise_count(self.words[-1]))

    def __call__(self, places: Integers) -> tuple[NDArray[np.bool_], Integers]:
        """Which of these stay, and for those that do the number of places that stay before."""
        word, bit = places >> 6, (places & 63).astype(np.uint64)
        stays = (self.words[word] >> bit) & np.uint64(1) == 1
        word, bit = word[stays], bit[stays]
        below = self.words[word] & ((np.uint64(1) << bit) - np.uint64(1))
        return stays, self.before[word] + np.bitwise_count(below)


@dataclass(frozen=True, eq=False)
class Layout:
    """Which rows take part, in which bag, and where a bag ends and the next begins.

    Attributes
    ----------
    shuffle : Permutation
        Of the rows of the table: its order may tell of its responses.
    kept : Kept or None
        Which of them take part, where not all do.
    sizes : int ndarray of shape (n_bags,)
    ids : Arrow array of shape (n_bags,)
        What each bag is called.
    labels : Arrow table with n_bags rows
        The values that make a bag; no columns when bags are drawn at random.
    """

    shuffle: Permutation
    kept: Kept | None
    sizes: Integers
    ids: pa.Array
    labels: pa.Table

    @property
    def n_rows(self) -> int:
        """Rows that take part."""
        return self.shuffle.n if self.kept is None else self.kept.count

    def rows(
        self, piece: Piece, columns: Sequence[str], most: int = 2**17
    ) -> Iterator[tuple[pa.Table, Integers, Integers]]:
        """Rows of a piece that take part, their places in the shuffled table, and their bags."""
        names = list(dict.fromkeys([*columns, *self.labels.column_names]))
        for table, places in placed(piece, self.shuffle, self.kept, names, most):
            yield table.select(list(columns)), places, self.bags(table, places)

    def bags(self, table: pa.Table, places: Integers) -> Integers:
        """The bag of each row."""
        if not self.labels.num_columns:
            if not self._even:
                return np.searchsorted(np.cumsum(self.sizes), places, side="right")
            size, larger = divmod(self.n_rows, len(self.sizes))
            run = larger * (size + 1)
            inside = places < run
            return np.where(inside, places // (size + 1), larger + (places - run) // size)
        codes, bag_of_code = self._codes
        code = np.zeros(table.num_rows, dtype=np.int64)
        for name, levels, known in codes:
            code = np.searchsorted(known, _longer(code, table[name], levels))
        return bag_of_code[code]

    @cached_property
    def _even(self) -> bool:
        """Whether the first so many bags have a row more than the others, as bags drawn have."""
        size, larger = divmod(self.n_rows, len(self.sizes))
        return np.array_equal(self.sizes, size + (np.arange(len(self.sizes)) < larger))

    @cached_property
    def _codes(self) -> tuple[list[tuple[str, pa.Array, Integers]], Integers]:
        """Column by column its values and the codes that arise with it; and the bag of a code.

        A code numbers the combinations of values so far; the last one numbers the bags.
        """
        steps = []
        code = np.zeros(len(self.sizes), dtype=np.int64)
        for name in self.labels.column_names:
            levels = pc.unique(self.labels[name])
            known, code = np.unique(_longer(code, self.labels[name], levels), return_inverse=True)
            steps.append((name, levels, known))
        return steps, np.argsort(code)


def _longer(code: Integers, values: Any, levels: pa.Array) -> Integers:
    """A code with a further digit: the place of each value among its levels."""
    found = pc.index_in(ids(values), levels)
    if found.null_count:
        refuse_changed()
    place: Integers = found.to_numpy().astype(np.int64)
    return code * len(levels) + place


def refuse_changed() -> NoReturn:
    """Refuse a table that is not what it was in an earlier pass."""
    got = "a table that changed while it was read"
    _check.refuse("rows", "the same from first to last", got, "Start again")


def check_ids(table: Table, names: Sequence[str], run: Run) -> None:
    """Refuse columns that an engine would not keep apart as finely as Arrow does, or CSV does.

    ``run`` is the engine's map: CSV files are read for this, where ids in them look like numbers.
    """
    for name in names:
        kind = table.schema.field(name).type
        kind = kind if pa.types.is_nested(kind) else plain_type(kind)
        narrow = kind in (pa.float16(), pa.time64("ns")) or pa.types.is_decimal(kind)
        narrow = narrow and not pa.types.is_decimal128(kind)
        zoned = pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None
        strange = isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind)
        others = (pa.types.is_duration, pa.types.is_interval, pa.types.is_null)
        if narrow or zoned or strange or any(test(kind) for test in others):
            got = f"{kind} in column {name!r}"
            _check.refuse("ids", "numbers, text, dates or times", got, "Turn it into text")
    numbers = [name for name in names if is_number(plain_type(table.schema.field(name).type))]
    if not (numbers and table.is_csv):
        return
    for name in run(partial(_merged, names=numbers), table.pieces()):
        if name is not None:
            got = "cells with a leading zero or plus, or with more digits than a number keeps"
            remedy = "Write the table as Parquet, with this column as text"
            _check.refuse(f"column {name!r}", "of ids that stay apart as numbers", got, remedy)


def _merged(piece: Piece, names: Sequence[str]) -> str | None:
    """The first of these columns of a CSV file in which two texts could be one number."""
    text = replace(piece, schema=pa.schema([(name, pa.string()) for name in names]))
    try:
        for batch in text.batches(names):
            for name in names:
                whole = pa.types.is_integer(piece.schema.field(name).type)
                if pc.any(pc.match_substring_regex(batch[name], ODD if whole else LONG)).as_py():
                    return name
    except ValueError:
        # What cannot be read is refused by who reads it for its own sake.
        pass
    return None


def placed(
    piece: Piece,
    shuffle: Permutation | None,
    kept: Kept | None,
    columns: Sequence[str],
    most: int = 2**17,
) -> Iterator[tuple[pa.Table, Integers]]:
    """Rows of a piece that take part, and their places in the shuffled table; ``most`` at once.

    Fewer where rows are wide. Without a shuffle, places are those in the table.
    """
    waiting: list[pa.RecordBatch] = []
    first, held, size = piece.first, 0, 0

    def give() -> tuple[pa.Table, Integers]:
        nonlocal first, held, size
        batches = pa.Table.from_batches(waiting)
        table = pa.table([plain(values) for values in batches.columns], batches.column_names)
        if piece.n_rows is not None and first + held > piece.first + piece.n_rows:
            refuse_changed()
        places = np.arange(first, first + held)
        places = places if shuffle is None else shuffle(places)
        first, held, size = first + held, 0, 0
        waiting.clear()
        if kept is None:
            return table, places
        stays, places = kept(places)
        return table.filter(pa.array(stays)), places

    for batch in piece.batches(columns):
        waiting.append(batch)
        held, size = held + batch.num_rows, size + batch.nbytes
        if held >= most or size >= AT_ONCE:
            yield give()
    if held:
        yield give()


def ids(values: Any) -> Any:
    """A plain column with one zero: −0.0 and 0.0 are one id."""
    return pc.add(values, 0.0).cast(values.type) if pa.types.is_floating(values.type) else values
