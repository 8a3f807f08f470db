"""Bags of a Release or a table that does not fit in memory, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bagwise.encoding import Encoder
from bagwise.neural.batches import BagData, Batch
from bagwise.neural.training import shuffled
from bagwise.row_groups import RowGroup

# Rows of held-out bags that are kept in memory.
HELD_OUT_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Stream:
    """Row groups as batches, in an order that each epoch draws anew.

    Attributes
    ----------
    groups : sequence of RowGroup
    encoder : Encoder
    centre, scale : ndarray of shape (d,)
        What features are standardised with.
    response : (float, float)
        Centre and scale of the responses.
    held_out : list of ndarray
        Of each row group which bags are held out.
    rows : int
        Of a batch.
    seed : int
    device : torch.device
    """

    groups: Sequence[RowGroup]
    encoder: Encoder
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    response: tuple[float, float]
    held_out: list[NDArray[np.bool_]]
    rows: int
    seed: int
    device: torch.device

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Batches of an epoch: row groups in random order, and bags within each."""
        for number in shuffled(len(self.groups), self.seed, epoch).tolist():
            data = self.read(number, ~self.held_out[number])
            if len(data.sizes):
                order = shuffled(len(data.sizes), self.seed + number + 1, epoch)
                yield from data.batches(order.to(self.device), self.rows)

    def aside(self, rows: int) -> list[Batch]:
        """The held-out bags, as batches of about so many rows that stay in memory."""
        batches: list[Batch] = []
        for number, chosen in enumerate(self.held_out):
            if chosen.any():
                data = self.read(number, chosen)
                order = torch.arange(len(data.sizes), device=self.device)
                batches.extend(data.batches(order, rows))
        return batches

    def read(self, number: int, chosen: NDArray[np.bool_]) -> BagData:
        """Bags of a row group."""
        group = self.groups[number]
        values = self.encoder.encode(group.read(list(self.encoder.columns)))
        X = torch.as_tensor(((values - self.centre) / self.scale).astype(np.float32))
        means = (group.means - self.response[0]) / self.response[1]
        parts = (
            X,
            torch.arange(len(X)),
            torch.tensor(group.sizes),
            torch.as_tensor(means.astype(np.float32))[:, None],
        )
        return BagData(*(part.to(self.device) for part in parts)).part(chosen)
