"""Which rows leave and in which bag: drawn or grouped without a look at any response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise import _check
from bagwise.bags import Bags
from bagwise.released import BAG_COLUMNS

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Which rows leave, in which order, and where a bag ends and the next begins.

    Attributes
    ----------
    order : int ndarray
        Rows of the table, bag after bag, at random within a bag: the order of a table may tell of
        its responses.
    sizes : int ndarray of shape (n_bags,)
    ids : Arrow array of shape (n_bags,)
        What each bag is called.
    labels : Arrow table with n_bags rows
        The values that make a bag, where several columns do.
    """

    order: Integers
    sizes: Integers
    ids: pa.Array
    labels: pa.Table


def check_bagging(bags: Any, bag_size: int | None, least: int) -> list[str]:
    """The columns that make a bag, none when bags are drawn; neither or both is refused."""
    if (bags is None) == (bag_size is None):
        got = f"bags={bags!r}, bag_size={bag_size!r}"
        remedy = "Name the columns that make a bag, or say how many rows to draw for each"
        _check.refuse("bags", "given, or bag_size, not both", got, remedy)
    if bag_size is not None:
        size = _check.whole("bag_size", bag_size, low=1, remedy="Pass the rows a bag")
        if size < least:
            got = f"bag_size={size}, min_bag_size={least}"
            _check.refuse("bag_size", "at least min_bag_size", got, "Choose larger bags")
        return []
    names = [bags] if isinstance(bags, str) else bags
    if not (isinstance(names, Sequence) and names and all(isinstance(n, str) for n in names)):
        # Ids handed in beside a table could come from anywhere, from its responses too.
        remedy = "Put the ids into a column of the table, and name it"
        _check.refuse("bags", "names of columns", f"a {type(bags).__name__}", remedy)
    taken = len(names) > 1 and set(names) & set(BAG_COLUMNS)
    if taken or len(set(names)) < len(names):
        rule = f"different names, and none of {', '.join(BAG_COLUMNS)}"
        _check.refuse("bags", rule, f"bags={list(names)!r}", "Rename the column")
    return list(names)


def lay_out(
    table: pa.Table, names: list[str], bag_size: int | None, user: str | None, cap: int
) -> Layout:
    """Shuffle rows, drop those past the cap of their user, and put bags together.

    Parameters
    ----------
    table : Arrow table
    names : list of str
        Columns that make a bag; where there are none,
    bag_size : int
        rows are drawn for bags of this size or a little more.
    user : str or None
    cap : int
        Rows of a user that stay, drawn at random.
    """
    # Entropy of the system, never a seed: who knew it could put rows back in the table's order.
    order = np.random.default_rng().permutation(table.num_rows)
    if user is not None:
        order = _capped(_ids(table, user), order, cap)
    n = len(order)
    if bag_size is not None:
        if bag_size > n:
            got = f"bag_size={bag_size}, n_rows={n}"
            _check.refuse("bag_size", "at most n_rows", got, "Choose a smaller bag_size")
        m = n // int(bag_size)
        return Layout(order, np.diff(np.arange(m + 1) * n // m), pa.array(range(m)), pa.table({}))
    for name in names:
        _ids(table, name)
    # Numbered as they come up in the shuffled rows, so not even the order of bags is the table's.
    groups = Bags(Bags.from_groups(table, names).codes[order])
    order = order[np.argsort(groups.codes, kind="stable")]
    sizes = groups.sizes.astype(np.int64)
    labels = table.select(names).take(order[np.cumsum(sizes) - sizes])
    if len(names) == 1:
        return Layout(order, sizes, labels[names[0]].combine_chunks(), pa.table({}))
    return Layout(order, sizes, pa.array(range(len(sizes))), labels)


def _ids(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of ids, none of them missing."""
    values = table[name]
    is_float = pa.types.is_floating(values.type)
    if values.null_count or (is_float and np.isnan(values.to_numpy()).any()):
        _check.refuse(f"column {name!r}", "an id in every row", "missing ones", "Name those rows")
    return values


def _capped(users: pa.ChunkedArray, order: Integers, cap: int) -> Integers:
    """Rows of ``order`` that are among the first ``cap`` of their user."""
    codes = Bags(users).codes[order]
    by_user = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    place = np.empty(len(order), dtype=np.int64)
    place[by_user] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[place < cap]
