"""The losses of `bagwise.losses` for many networks at once, over padded bags."""

from __future__ import annotations

import torch
from torch import Tensor

from bagwise.losses import LOSSES, PointLoss
from bagwise.neural.batches import Batch

# −Σ_c ȳ_c log f_c: for several classes, each with a column.
_cross = PointLoss(
    value=lambda y, f: -torch.xlogy(y, f.clamp_min(torch.finfo(f.dtype).eps)),
    slope=lambda y, f: -y / f,
    curvature=lambda y, f: y / f**2,
)


def bag_means(predictions: Tensor, batch: Batch) -> Tensor:
    """Averages over bags, shape (M, m, K)."""
    M, _, K = predictions.shape
    m = batch.sizes.shape[1]
    if batch.size is not None:
        return predictions.reshape(M, m, batch.size, K).mean(2)
    codes = batch.codes[:, :, None].expand(M, -1, K)
    sums = predictions.new_zeros(M, m + 1, K).scatter_add(1, codes, predictions)
    return sums[:, :m] / batch.sizes.clamp_min(1)[:, :, None]


def aggregate_losses(
    predictions: Tensor, batch: Batch, rho: Tensor, loss: str = "squared", kind: str = "instance"
) -> Tensor:
    """The interpolating loss of each network, shape (M,).

    Parameters
    ----------
    predictions : tensor of shape (M, n, K)
        Predicted means: responses, rates, or probabilities of K classes (one column for two).
    batch : Batch
    rho : tensor of shape (M,)
    loss : {"squared", "log", "poisson"}
        Of one column; several classes always have cross-entropy.
    kind : {"instance", "variance"}
        As in `bagwise.interpolating_loss`.
    """
    K = predictions.shape[2]
    point = LOSSES[loss] if K == 1 or loss != "log" else _cross
    averages = bag_means(predictions, batch)
    weights = batch.sizes / batch.sizes.sum(1, keepdim=True)
    at_bags: Tensor = (weights[:, :, None] * point.value(batch.means, averages)).sum((1, 2))
    if kind == "variance":
        spread = _row_mean((predictions - _of_rows(averages, batch)) ** 2, batch)
        return torch.addcmul(at_bags, rho, spread)
    at_rows = _row_mean(point.value(_of_rows(batch.means, batch), predictions), batch)
    return torch.lerp(at_bags, at_rows, rho)


def _of_rows(values: Tensor, batch: Batch) -> Tensor:
    """Each row's entry of values over bags."""
    E, m, K = values.shape
    if batch.size is not None:
        return values[:, :, None].expand(E, m, batch.size, K).reshape(E, m * batch.size, K)
    filled = torch.nn.functional.pad(values, (0, 0, 0, 1))
    codes = batch.codes[:, :, None].expand(max(E, len(batch.codes)), -1, K)
    return filled.expand(len(codes), -1, K).gather(1, codes)


def _row_mean(values: Tensor, batch: Batch) -> Tensor:
    """Mean over the rows that count, summed over columns."""
    if batch.size is None:
        values = values * (batch.codes < batch.sizes.shape[1])[:, :, None]
    return values.sum((1, 2)) / batch.sizes.sum(1)
