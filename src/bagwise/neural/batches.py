"""Whole bags as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagwise.bags import Bags


@dataclass(frozen=True)
class Batch:
    """Rows of whole bags for E networks, or for all of them alike when E is 1.

    Attributes
    ----------
    X : tensor of shape (E, n, d)
    codes : int tensor of shape (E, n)
        The bag of each row; rows that only fill up have the number of bags for a code.
    sizes : tensor of shape (E, m)
        Rows of each bag; 0 for bags that only fill up.
    means : tensor of shape (E, m, K)
    size : int or None
        The size of all bags, when they have one and lie one after the other.
    weight : tensor of shape (E,) or None
        What the batch counts for: its rows over those of a usual batch, so that bags weigh by their
        size over an epoch; None is 1.
    """

    X: Tensor
    codes: Tensor
    sizes: Tensor
    means: Tensor
    size: int | None = None
    weight: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        parts = (self.X, self.codes, self.sizes, self.means)
        X, codes, sizes, means = (part.to(device) for part in parts)
        weight = None if self.weight is None else self.weight.to(device)
        return Batch(X, codes, sizes, means, self.size, weight)


@dataclass(frozen=True)
class BagData:
    """Bags in memory.

    Attributes
    ----------
    X : tensor of shape (n, d)
    rows : int tensor
        Rows of X, bag after bag.
    sizes : int tensor of shape (m,)
    means : tensor of shape (m, K)
    """

    X: Tensor
    rows: Tensor
    sizes: Tensor
    means: Tensor

    @classmethod
    def of(
        cls,
        X: Tensor,
        bags: Bags,
        means: NDArray[np.float64],
        rows: NDArray[np.int64] | None = None,
    ) -> BagData:
        """Rows of X in bags, with means of shape (m, K); ``rows`` lists those that are bagged."""
        order = bags.rows[np.argsort(bags.codes, kind="stable")]
        order = order if rows is None else rows[order]
        parts = (torch.as_tensor(np.asarray(v, dtype=np.int64)) for v in (order, bags.sizes))
        known = torch.as_tensor(np.asarray(means), dtype=X.dtype)
        places, sizes, known = (part.to(X.device) for part in (*parts, known))
        return cls(X, places, sizes, known)

    def part(self, chosen: NDArray[np.bool_]) -> BagData:
        """Some of the bags."""
        bags = torch.as_tensor(chosen, device=self.sizes.device)
        rows = torch.repeat_interleave(bags, self.sizes)
        return BagData(self.X, self.rows[rows], self.sizes[bags], self.means[bags])

    def take(self, bags: Tensor, rows: int) -> Batch:
        """Some bags, for one network, where a usual batch has so many rows."""
        starts, size = self._starts
        sizes, starts = self.sizes[bags], starts[bags]
        if size is not None:
            places = (starts[:, None] + torch.arange(size, device=bags.device)).reshape(-1)
            codes = torch.arange(len(bags), device=bags.device).repeat_interleave(size)
        else:
            codes = torch.repeat_interleave(torch.arange(len(bags), device=bags.device), sizes)
            first = torch.cumsum(sizes, 0) - sizes
            places = (starts - first)[codes] + torch.arange(len(codes), device=bags.device)
        X = self.X[self.rows[places]]
        usual = min(rows, len(self.rows))
        weight = X.new_full((1,), len(codes) / usual)
        means = self.means[bags][None]
        return Batch(X[None], codes[None], sizes[None].to(X.dtype), means, size, weight)

    @cached_property
    def _starts(self) -> tuple[Tensor, int | None]:
        """First row of each bag, and the size of all bags when they have one."""
        low, high = int(self.sizes.min()), int(self.sizes.max())
        return torch.cumsum(self.sizes, 0) - self.sizes, low if low == high else None

    def whole(self) -> Batch:
        """All bags."""
        m = len(self.sizes)
        codes = torch.repeat_interleave(torch.arange(m, device=self.sizes.device), self.sizes)
        sizes = self.sizes.to(self.X.dtype)
        size = self._starts[1]
        return Batch(self.X[self.rows][None], codes[None], sizes[None], self.means[None], size)

    def batches(self, order: Tensor, rows: int) -> Iterator[Batch]:
        """Bags in this order, about so many rows at a time; a larger bag is a batch of its own."""
        ends = torch.cumsum(self.sizes[order], 0).cpu().numpy()
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + rows, side="right")))
            yield self.take(order[first:stop], rows)
            first = stop

    def bags_of(self, rows: int) -> int:
        """Bags that have about so many rows."""
        return max(1, round(rows * len(self.sizes) / int(self.sizes.sum())))


def stacked(batches: Sequence[Batch]) -> Batch:
    """Batches of several networks side by side, filled up to one shape."""
    n = max(batch.X.shape[1] for batch in batches)
    m = max(batch.sizes.shape[1] for batch in batches)
    first, count = batches[0], len(batches)
    filled = Batch(
        first.X.new_zeros(count, n, first.X.shape[2]),
        first.codes.new_full((count, n), m),
        first.sizes.new_zeros(count, m),
        first.means.new_zeros(count, m, first.means.shape[2]),
    )
    for i, batch in enumerate(batches):
        rows, bags = batch.X.shape[1], batch.sizes.shape[1]
        filled.X[i, :rows] = batch.X[0]
        filled.codes[i, :rows] = batch.codes[0]
        filled.sizes[i, :bags] = batch.sizes[0]
        filled.means[i, :bags] = batch.means[0]
    weights = [batch.weight for batch in batches if batch.weight is not None]
    sizes = {batch.size for batch in batches}
    alike = all(b.X.shape[1] == n and b.sizes.shape[1] == m for b in batches)
    return replace(
        filled,
        size=sizes.pop() if len(sizes) == 1 and alike else None,
        weight=torch.cat(weights) if weights else None,
    )
