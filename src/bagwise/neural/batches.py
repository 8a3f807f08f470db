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
    """

    X: Tensor
    codes: Tensor
    sizes: Tensor
    means: Tensor
    size: int | None = None


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
    def of(cls, X: Tensor, bags: Bags, means: NDArray[np.float64]) -> BagData:
        """Rows of X in bags, whose ``rows`` say which of X they are; means of shape (m, K)."""
        order = bags.rows[np.argsort(bags.codes, kind="stable")]
        parts = (torch.as_tensor(np.asarray(v, dtype=np.int64)) for v in (order, bags.sizes))
        known = torch.as_tensor(np.asarray(means), dtype=X.dtype)
        rows, sizes, known = (part.to(X.device) for part in (*parts, known))
        return cls(X, rows, sizes, known)

    def part(self, chosen: NDArray[np.bool_]) -> BagData:
        """Some of the bags."""
        bags = torch.as_tensor(chosen, device=self.sizes.device)
        rows = torch.repeat_interleave(bags, self.sizes)
        return BagData(self.X, self.rows[rows], self.sizes[bags], self.means[bags])

    def take(self, bags: Tensor) -> Batch:
        """Some bags, for one network."""
        starts, size = self._starts
        sizes, starts = self.sizes[bags], starts[bags]
        if size is not None:
            places = (starts[:, None] + torch.arange(size, device=bags.device)).reshape(-1)
            codes = torch.arange(len(bags), device=bags.device).repeat_interleave(size)
            rows = self.X[self.rows[places]]
            return Batch(
                rows[None], codes[None], sizes[None].to(rows.dtype), self.means[bags][None], size
            )
        codes = torch.repeat_interleave(torch.arange(len(bags), device=bags.device), sizes)
        first = torch.cumsum(sizes, 0) - sizes
        places = (starts - first)[codes] + torch.arange(len(codes), device=bags.device)
        return Batch(
            self.X[self.rows[places]][None],
            codes[None],
            sizes[None].to(self.X.dtype),
            self.means[bags][None],
        )

    @cached_property
    def _starts(self) -> tuple[Tensor, int | None]:
        """First row of each bag, and the size of all bags when they have one."""
        low, high = int(self.sizes.min()), int(self.sizes.max())
        return torch.cumsum(self.sizes, 0) - self.sizes, low if low == high else None

    def whole(self) -> Batch:
        """All bags."""
        return self.take(torch.arange(len(self.sizes), device=self.sizes.device))

    def batches(self, order: Tensor, rows: int) -> Iterator[Batch]:
        """Bags in this order, about so many rows at a time; a larger bag is a batch of its own."""
        ends = torch.cumsum(self.sizes[order], 0).cpu().numpy()
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + rows, side="right")))
            yield self.take(order[first:stop])
            first = stop

    def bags_of(self, rows: int) -> int:
        """Bags that have about so many rows."""
        return max(1, round(rows * len(self.sizes) / int(self.sizes.sum())))


def stacked(batches: Sequence[Batch]) -> Batch:
    """Batches of several networks side by side, filled up to one shape."""
    n = max(batch.X.shape[1] for batch in batches)
    m = max(batch.sizes.shape[1] for batch in batches)
    filled = [_filled(batch, n, m) for batch in batches]
    sizes = {batch.size for batch in batches}
    whole = all(b.X.shape[1] == n and b.sizes.shape[1] == m for b in batches)
    return Batch(
        torch.cat([b.X for b in filled]),
        torch.cat([b.codes for b in filled]),
        torch.cat([b.sizes for b in filled]),
        torch.cat([b.means for b in filled]),
        sizes.pop() if len(sizes) == 1 and whole else None,
    )


def _filled(batch: Batch, n: int, m: int) -> Batch:
    pad = torch.nn.functional.pad
    rows, bags = n - batch.X.shape[1], m - batch.sizes.shape[1]
    known = batch.sizes.shape[1]
    codes = torch.where(batch.codes < known, batch.codes, m)
    return replace(
        batch,
        X=pad(batch.X, (0, 0, 0, rows)),
        codes=pad(codes, (0, rows), value=m),
        sizes=pad(batch.sizes, (0, bags)),
        means=pad(batch.means, (0, 0, 0, bags)),
    )
