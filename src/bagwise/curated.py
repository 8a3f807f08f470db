r"""Curated bags: rows that are alike put together, by what is public, so that means tell more.

The bias of the instance-level loss is the variance of the true means within bags, and bags of like
rows have little of it. A score that a first model gives, or the features themselves, say which rows
are alike; responses may not, or a release of their means promises nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise import _check
from bagwise.bags import Bags


def score_bags(score: Any, bag_size: int) -> Bags:
    r"""Bags of at least ``bag_size`` rows whose scores vary least within bags.

    It minimises, over all partitions of the rows into bags of k rows or more,

        Σ_a Σ_{i∈a} (s_i − s̄_a)²

    Parameters
    ----------
    score : array of shape (n_rows,)
        One number a row, made without the responses of these rows: a public column, or predictions
        of a model fitted to other means.
    bag_size : int
        Rows a bag at least, from 1 to n_rows.

    Notes
    -----
    Guarantees: the minimum, exactly: on the line some optimum has bags of consecutive scores of k
    to 2k − 1 rows, and all such are searched in n k steps.
    Limits: the order of rows with equal scores is theirs in the table.
    Reference: size-constrained k-means on the line, as in Javanmard, Fahrbach, Mirrokni,
    "PriorBoost: an adaptive algorithm for learning from aggregate responses" (2024).

    Examples
    --------
    >>> score_bags([0.0, 5.0, 0.1, 5.2, 0.2], 2).codes.tolist()
    [0, 1, 0, 1, 0]
    """
    found = np.asarray(score, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        got = f"shape {found.shape}" if found.ndim != 1 else "NaN or infinity"
        _check.refuse("score", "one finite number a row", got, "Predictions of a model will do")
    n, k = len(found), _size(bag_size, len(found))
    order = np.argsort(found, kind="stable")
    # About the mean, so that squares lose few digits.
    values = found[order] - found.mean()
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values**2)])
    least, first = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=np.intp)
    least[0] = 0.0
    lengths = np.arange(k, 2 * k)
    for end in range(k, n + 1):
        here = lengths[: end - k + 1]
        starts = end - here
        cost = least[starts] + squares[end] - squares[starts]
        cost -= (sums[end] - sums[starts]) ** 2 / here
        best = int(np.argmin(cost))
        least[end], first[end] = cost[best], starts[best]
    ids, end, bag = np.empty(n, dtype=np.intp), n, 0
    while end:
        ids[order[first[end] : end]] = bag
        end, bag = int(first[end]), bag + 1
    return Bags(ids)


def feature_bags(X: Any, bag_size: int) -> Bags:
    """Bags of bag_size to 2 bag_size − 1 rows with features that are alike.

    Rows are halved again and again, along the line from the row farthest from the mean to the row
    farthest from that one.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Public features, of one scale.
    bag_size : int
        Rows a bag at least, from 1 to n_rows.

    Notes
    -----
    Guarantees: no responses and no chance; cost n d log(n / k).
    Limits: greedy, so not the least variance there is.

    Examples
    --------
    >>> feature_bags([[0.0, 0.0], [9.0, 9.0], [0.1, 0.0], [9.0, 8.0]], 2).codes.tolist()
    [0, 1, 0, 1]
    """
    table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        got = f"shape {table.shape}" if table.ndim != 2 else "NaN or infinity"
        _check.refuse("X", "two-dimensional and finite", got, "Encode and fill columns first")
    k = _size(bag_size, len(table))
    ids, bag, waiting = np.empty(len(table), dtype=np.intp), 0, [np.arange(len(table))]
    while waiting:
        rows = waiting.pop()
        if len(rows) < 2 * k:
            ids[rows], bag = bag, bag + 1
            continue
        part = table[rows] - table[rows].mean(axis=0)
        far = part[np.argmax((part**2).sum(axis=1))]
        farther = part[np.argmax(((part - far) ** 2).sum(axis=1))]
        order = np.argsort(part @ (farther - far), kind="stable")
        half = len(rows) // 2
        waiting += [rows[order[:half]], rows[order[half:]]]
    return Bags(ids)


def _size(bag_size: int, n: int) -> int:
    k = _check.whole("bag_size", bag_size, low=1, remedy="Pass the rows a bag at least")
    if k > n:
        got = f"bag_size={k}, n_rows={n}"
        _check.refuse("bag_size", "at most n_rows", got, "Choose a smaller bag_size")
    return k
