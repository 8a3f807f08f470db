"""Which row sits in which bag, ways to draw bags, and averages over them."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bagwise import _check

#: a NumPy array or a torch tensor
Array: TypeAlias = Any
REMAINDERS = ("spread", "drop", "keep")


def namespace(values: Array) -> ModuleType:
    """NumPy or torch, whichever ``values`` belongs to; torch is never imported here."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(values, torch.Tensor) else np


class Bags:
    """A partition of rows into bags.

    Parameters
    ----------
    ids : sequence of length n_rows
        The bag of each row: integers, strings, dates, tuples, anything hashable; any order, any
        sizes. A NumPy array, a list, a pandas or polars Series or an Arrow array.

    Attributes
    ----------
    ids : ndarray of shape (n_bags,)
        The distinct ids, in order of first appearance. Every array over bags follows this order.
    codes : int ndarray of shape (n_rows,)
        For each row the position of its bag in ``ids``.
    sizes : int ndarray of shape (n_bags,)
        The number of rows of each bag, at least 1.
    rows : int ndarray of shape (n_rows,)
        Which rows of the table are bagged: all, unless `random` dropped a remainder.

    Notes
    -----
    Guarantees: cost is linear in rows; permuting rows within bags changes sums by rounding only.
    Limits: a missing id (None, NaN) is refused, and so is an empty table.

    Examples
    --------
    >>> bags = Bags(["b", "a", "b"])
    >>> bags.ids.tolist(), bags.sizes.tolist()
    (['b', 'a'], [2, 1])
    >>> bags.mean([1.0, 5.0, 3.0]).tolist()
    [2.0, 5.0]
    """

    def __init__(self, ids: Any) -> None:
        codes, distinct = _encode(ids)
        if len(codes) == 0:
            _check.refuse("bags", "of at least one row", "no rows", "Pass one id a row")
        self._set(codes, distinct)

    def _set(
        self, codes: NDArray[np.intp], ids: NDArray[Any], rows: NDArray[np.intp] | None = None
    ) -> Self:
        """Fill in the fields from codes in order of first appearance."""
        self.ids, self.codes, self._rows = ids, codes, rows
        self.sizes: NDArray[np.intp] = np.bincount(codes, minlength=len(ids))
        return self

    @classmethod
    def random(
        cls, n_rows: int, bag_size: int, random_state: Any = None, remainder: str = "spread"
    ) -> Self:
        """Bags of ``bag_size`` rows drawn uniformly at random.

        Parameters
        ----------
        n_rows : int
            Rows of the table.
        bag_size : int
            Rows a bag, from 1 to n_rows.
        random_state : None, int or numpy RandomState
            As in scikit-learn.
        remainder : {"spread", "drop", "keep"}
            What becomes of the n_rows mod bag_size rows left over. Spread them, so that some bags
            are larger and none is smaller than bag_size; drop them, then `rows` lists those that
            stay; or keep them as one smaller bag.

        Examples
        --------
        >>> Bags.random(11, 5, random_state=0).sizes.tolist()
        [5, 6]
        >>> Bags.random(11, 5, random_state=0, remainder="keep").sizes.tolist()
        [5, 5, 1]
        """
        n_rows = _check.whole("n_rows", n_rows, low=1, remedy="Pass the number of rows")
        bag_size = _check.whole("bag_size", bag_size, low=1, remedy="Pass the rows a bag")
        _check.choice("remainder", remainder, REMAINDERS)
        if bag_size > n_rows:
            got = f"bag_size={bag_size}, n_rows={n_rows}"
            _check.refuse("bag_size", "at most n_rows", got, "Choose a smaller bag_size")
        order = check_random_state(random_state).permutation(n_rows)
        whole_bags, left = divmod(n_rows, bag_size)
        place = np.arange(n_rows)
        code = place * whole_bags // n_rows if remainder == "spread" else place // bag_size
        if remainder == "drop" and left:
            order, code = order[:-left], code[:-left]
        rows = np.sort(order)
        of_row = np.empty(n_rows, dtype=np.intp)
        of_row[order] = code
        codes, distinct = _encode(of_row[rows])
        return cls.__new__(cls)._set(codes, np.arange(len(distinct)), rows)

    @classmethod
    def from_groups(cls, table: Any, columns: str | Sequence[str]) -> Self:
        """Bags of rows that agree in ``columns``: one bag a carrier and day, say.

        Parameters
        ----------
        table : mapping of columns, or pandas, polars or Arrow table
            The rows.
        columns : str or sequence of str
            One column gives its values as ids, several give tuples.

        Examples
        --------
        >>> table = {"carrier": ["UA", "AA", "UA", "UA"], "day": [1, 1, 2, 1]}
        >>> Bags.from_groups(table, ["carrier", "day"]).ids.tolist()
        [('UA', 1), ('AA', 1), ('UA', 2)]
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        if not names:
            _check.refuse("columns", "at least one name", "none", "Name the columns to group by")
        parts = [cls(_column(table, name)) for name in names]
        if len({part.n_rows for part in parts}) > 1:
            _check.refuse("columns", "of one length", "different lengths", "Check the table")
        if len(parts) == 1:
            return parts[0]
        joint = parts[0].codes
        for part in parts[1:]:
            # Re-encoding after each column keeps the product of the code ranges below n_rows².
            joint = _encode(joint * part.n_bags + part.codes)[0]
        first = _first_rows(joint)
        labels = [part.ids[part.codes[first]].tolist() for part in parts]
        ids = _as_objects(list(zip(*labels, strict=True)))
        return cls.__new__(cls)._set(joint, ids)

    @property
    def rows(self) -> NDArray[np.intp]:
        """Which rows of the table are bagged: all, unless `random` dropped a remainder."""
        return np.arange(self.n_rows) if self._rows is None else self._rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.codes)

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.sizes)

    def __len__(self) -> int:
        return self.n_bags

    def __repr__(self) -> str:
        low, high = self.sizes.min(), self.sizes.max()
        sizes = f"{low}" if low == high else f"{low} to {high}"
        return f"Bags({self.n_rows} rows in {self.n_bags} bags of {sizes})"

    @cached_property
    def _indicator(self) -> sp.csr_array:
        """S of shape (n_bags, n_rows): S[a, i] = 1 when row i sits in bag a."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        ones = np.ones(self.n_rows, dtype=np.int8)
        places: NDArray[Any] = np.arange(self.n_rows)
        if np.any(self.codes[1:] < self.codes[:-1]):
            # A counting sort: scipy turns columns into rows in linear time.
            by_column = (ones, self.codes, np.arange(self.n_rows + 1))
            places = sp.csc_array(by_column, shape=(self.n_bags, self.n_rows)).tocsr().indices
        return sp.csr_array((ones, places, starts), shape=(self.n_bags, self.n_rows))

    @cached_property
    def _of_single_rows(self) -> bool:
        """Whether bag a is row a, so that sums and means are the values themselves."""
        return self.n_bags == self.n_rows

    def sum(self, values: Array) -> Array:
        """Sum of ``values`` over each bag, in the order of `ids`.

        Parameters
        ----------
        values : array or tensor of shape (n_rows,) or (n_rows, p)
            Torch tensors give tensors, differentiable; integers give exact integers, NumPy floats
            of any width give float64.

        Returns
        -------
        array or tensor of shape (n_bags,) or (n_bags, p)
        """
        torch = namespace(values)
        values = _wide(values) if torch is np else values
        if values.ndim not in (1, 2) or len(values) != self.n_rows:
            got = f"shape {tuple(values.shape)} for {self.n_rows} rows"
            _check.refuse("values", "1-D or 2-D with one entry a row", got, "Check the bags' rows")
        if torch is not np:
            codes = torch.as_tensor(self.codes, device=values.device)
            # Short types would overflow or stop counting; sums of halves come back as halves.
            exact = not values.is_floating_point()
            wide = torch.int64 if exact else torch.promote_types(values.dtype, torch.float32)
            zeros = values.new_zeros((self.n_bags, *values.shape[1:]), dtype=wide)
            sums = zeros.index_add(0, codes, values.to(wide))
            return sums if exact else sums.to(values.dtype)
        return values.copy() if self._of_single_rows else self._indicator @ values

    def mean(self, values: Array) -> Array:
        """Mean of ``values`` over each bag; shapes as in `sum`."""
        sums = self.sum(values)
        sizes = self.sizes if sums.ndim == 1 else self.sizes[:, None]
        xp = namespace(sums)
        return sums / (sizes if xp is np else xp.as_tensor(sizes, device=sums.device))

    def spread(self, values: Array) -> Array:
        """Variance of ``values`` within each bag: the mean of (v_i − v̄_a)²; shapes as in `sum`."""
        xp = namespace(values)
        values = values if xp is not np else np.asarray(values)
        return self.mean((values - self.expand(self.mean(values))) ** 2)

    def expand(self, values: Array) -> Array:
        """Each row's entry of an array over bags: from shape (n_bags, …) to (n_rows, …)."""
        if len(values) != self.n_bags:
            got = f"{len(values)} entries for {self.n_bags} bags"
            _check.refuse("values", "one entry a bag", got, "Bags.mean makes them from rows")
        return values[self.codes]

    def align(self, y: Any) -> NDArray[np.float64]:
        """The response of each bag, from either form in which users hold it.

        Parameters
        ----------
        y : sequence of length n_rows, or mapping or pandas Series from bag id to mean
            One entry a row must be constant within a bag (what a join of the two tables gives).

        Returns
        -------
        float ndarray of shape (n_bags,)

        Examples
        --------
        >>> Bags(["b", "a", "b"]).align({"a": 1.0, "b": 2.0}).tolist()
        [2.0, 1.0]
        """
        mapping = _as_mapping(y, self)
        means = self._from_rows(y) if mapping is None else self._from_mapping(mapping)
        _refuse_unless_finite(means)
        return means

    def _from_rows(self, y: Any) -> NDArray[np.float64]:
        """Means of a response with one entry a row, constant within bags."""
        try:
            y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            _check.refuse("y", "numeric", "text or objects", "Turn responses into numbers first")
        if y.shape != (self.n_rows,):
            got = f"shape {y.shape} for {self.n_rows} rows"
            _check.refuse(
                "y", "one-dimensional with one entry a row", got, "Or map each bag to its mean"
            )
        _refuse_unless_finite(y)
        means: NDArray[np.float64] = y[_first_rows(self.codes)]
        expected = means[self.codes]
        # A mean that went through a file or float32 may differ in the last digits.
        apart = np.abs(y - expected) > 1e-6 * np.abs(expected)
        if apart.any():
            bag = self.ids[self.codes[np.argmax(apart)]]
            _check.refuse(
                "y",
                "constant within a bag",
                f"different entries in bag {_plain(bag)!r}",
                "Give each row its bag's mean, or map each bag to its mean",
            )
        return means

    def _from_mapping(self, means: Mapping[Hashable, Any]) -> NDArray[np.float64]:
        """Means of a response given as a mapping from bag id."""
        known = self.ids.tolist()
        lost = next((bag for bag in known if bag not in means), None)
        if lost is not None:
            _check.refuse("y", "a mean for every bag", f"none for bag {_plain(lost)!r}", "Add it")
        if len(means) > len(known):
            extra = next(iter(set(means) - set(known)))
            _check.refuse(
                "y", "a mean for bags that have rows", f"one for bag {_plain(extra)!r}", "Drop it"
            )
        aligned = np.array([means[bag] for bag in known], dtype=np.float64)
        if aligned.ndim != 1:
            got = f"{aligned.ndim} dimensions"
            _check.refuse("y", "one number a bag", got, "Map each bag to its mean")
        return aligned


def _plain(bag: Hashable) -> Any:
    """An id as it is written down: 4, and not np.int64(4)."""
    return bag.item() if isinstance(bag, np.generic) else bag


def _as_mapping(y: Any, bags: Bags) -> Mapping[Hashable, Any] | None:
    """Y as a mapping from bag id to mean, or None when it holds one entry a row."""
    if isinstance(y, Mapping):
        return y
    index = getattr(y, "index", None)
    if index is None or callable(index) or getattr(y, "ndim", None) != 1:
        return None
    by_bag = dict(zip(index.tolist(), np.asarray(y).tolist(), strict=True))
    if len(y) != bags.n_rows:
        if len(by_bag) != len(y):
            _check.refuse("y", "one mean a bag", "a bag twice in its index", "Drop the repeats")
        return by_bag
    ids = bags.ids.tolist()
    if bags.n_bags == bags.n_rows and by_bag.keys() == set(ids) and list(by_bag) != ids:
        got = "a Series that is both as long as X and indexed by bag"
        _check.refuse("y", "unambiguous", got, "Pass y.to_numpy() or y.to_dict()")
    return None


def _refuse_unless_finite(y: NDArray[np.float64]) -> None:
    if not np.isfinite(y).all():
        _check.refuse("y", "finite", "NaN or infinity", "Drop or fill those bags first")


def _first_rows(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The first row of each bag."""
    first = np.empty(codes.max() + 1, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def _column(table: Any, name: str) -> Any:
    """One column of a pandas, polars or Arrow table or of a mapping."""
    # An Arrow table's `columns` are the data; its names have a name of their own.
    names = getattr(table, "column_names", None)
    if name not in (getattr(table, "columns", table) if names is None else names):
        _check.refuse("columns", "names of the table", repr(name), "Check the spelling")
    return table[name]


def _encode(ids: Any) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Codes in order of first appearance and the distinct ids, by hashing: linear in rows."""
    if isinstance(ids, str | bytes):
        _check.refuse("bags", "one id a row", "a single text", "Pass the column, not its name")
    if namespace(ids) is not np:
        ids = ids.detach().cpu().numpy()
    if hasattr(ids, "to_arrow"):
        ids = ids.to_arrow()
    if getattr(ids, "ndim", 1) != 1:
        got = f"{ids.ndim} dimensions"
        _check.refuse("bags", "one-dimensional", got, "Use Bags.from_groups for several columns")
    try:
        array = (
            ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, from_pandas=True)
        )
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        if pa.types.is_floating(array.type):
            array = pc.add(array.cast(pa.float64()), 0.0)  # −0.0 and 0.0 are one id
            array = pc.if_else(pc.is_nan(array), None, array)
        if array.null_count:
            _refuse_missing()
        encoded = array.dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return _encode_objects(list(ids))
    codes = encoded.indices.to_numpy().astype(np.intp, copy=False)
    distinct = encoded.dictionary
    if pa.types.is_temporal(distinct.type):
        # As objects, for NumPy's dates do not hash like those of a table's index.
        return codes, _as_objects(distinct.to_pylist())
    return codes, distinct.to_numpy(zero_copy_only=False)


def _encode_objects(ids: list[Hashable]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """The same for what Arrow has no one type for: tuples, mixed types, huge integers."""
    if any(_is_missing(i) for i in ids):
        _refuse_missing()
    seen: dict[Hashable, int] = {}
    try:
        codes = np.array([seen.setdefault(i, len(seen)) for i in ids], dtype=np.intp)
    except TypeError:
        _check.refuse("bags", "hashable ids", "others", "Turn lists into tuples, say")
    return codes, _as_objects(list(seen))


def _is_missing(value: Any) -> bool:
    """None, NaN, or pandas' NA, which has no truth value."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _wide(values: Any) -> NDArray[Any]:
    """NumPy values as int64 or float64, in which sums neither overflow nor stop counting."""
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind in "bi" or array.dtype in (np.uint8, np.uint16, np.uint32):
        return array.astype(np.int64, copy=False)
    return array if array.dtype.kind in "uO" else array.astype(np.float64, copy=False)


def _as_objects(items: list[Any]) -> NDArray[Any]:
    """A 1-D object array; np.array would turn tuples into a second axis."""
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def _refuse_missing() -> None:
    _check.refuse("bags", "an id for every row", "a missing one", "Drop or name those rows")
