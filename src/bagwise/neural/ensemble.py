"""Many networks of one shape, trained as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagwise import _check
from bagwise.bags import Bags
from bagwise.losses import check_rho
from bagwise.neural.batches import BagData, Batch, stacked
from bagwise.neural.networks import StackedMLP
from bagwise.neural.training import Settings, Source, predict, shuffled, train

# Networks at once: on a CPU more of them would leave its cache.
CPU_CHUNK = 20


@dataclass(frozen=True, eq=False)
class Member:
    """One network of an ensemble: what may differ from the others.

    Attributes
    ----------
    bags : Bags
        Of the rows it is trained on.
    means : ndarray of shape (n_bags,) or (n_bags, K)
    rho : float
    seed : int
        Of its first weights and of the order of its batches.
    learning_rate : float
    held_out : sequence of int
        Bags that early stopping looks at instead of training on them.
    rows : int ndarray
        Rows of the table that are bagged; None for all of them.
    """

    bags: Bags
    means: NDArray[np.float64]
    rho: float = 0.0
    seed: int = 0
    learning_rate: float = 1e-3
    held_out: Sequence[int] = ()
    rows: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained networks, in the order of their members.

    Attributes
    ----------
    chunks : list of StackedMLP
    settings : Settings
    held_out_loss : ndarray of shape (n_members,)
        The bag-level loss on held-out bags, the best with patience; NaN without any.
    history : list of list
        For each member the loss after each epoch.
    """

    chunks: list[StackedMLP]
    settings: Settings
    held_out_loss: NDArray[np.float64]
    history: list[list[float]] = field(repr=False)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Predicted means of every network, shape (n_members, n_rows, K)."""
        device = self.chunks[0].weights[0].device
        rows = torch.as_tensor(np.asarray(X, dtype=np.float32), device=device)[None]
        with torch.no_grad():
            parts = [predict(chunk, rows, self.settings) for chunk in self.chunks]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def network(self, number: int) -> StackedMLP:
        """One of the networks, by itself."""
        for chunk in self.chunks:
            if number < len(chunk):
                return chunk.one(number)
            number -= len(chunk)
        raise IndexError("no such member")


def find_device(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = None
    with suppress(RuntimeError, TypeError):
        device = torch.device(name)
    # Others, of Apple say, have not been tried.
    if device is None or device.type not in ("cpu", "cuda"):
        _check.refuse("device", "'auto', 'cpu' or 'cuda'", f"device={name!r}", "Pass 'auto'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        got = f"device={name!r}, and PyTorch finds none"
        _check.refuse("device", "there", got, "Pass device='auto'")
    return device


def train_ensemble(
    X: Any,
    members: Sequence[Member],
    hidden: Sequence[int] = (64,),
    settings: Settings | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    chunk: int | None = None,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Ensemble:
    """Train many networks of one shape at once; each comes out as if trained alone.

    Parameters
    ----------
    X : array of shape (n_rows, d)
        Shared by all; scale it first.
    members : sequence of Member
        What differs: bags, split, rho, seed, learning rate.
    hidden : sequence of int
        Widths of the hidden layers.
    settings : Settings
        Epochs, weight decay, schedule, patience, loss, link: the same for all.
    batch_size : int
        Rows of a batch of whole bags; None takes all of them in every step.
    device : {"auto", "cpu", "cuda"}
    chunk : int
        Networks at once; by default 20 on a CPU and all of them on a GPU.
    progress : callable
        Wraps the loop over epochs of each chunk.

    Notes
    -----
    Guarantees: a network does not depend on which others it is trained with, up to rounding.
    Limits: with patience, members that stop early keep their best weights, but their chunk goes on
    until all have stopped; without, all keep their last.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> bags = Bags.random(200, 10, random_state=0)
    >>> means = bags.mean(X @ [1.0, 2.0, 3.0])
    >>> members = [Member(bags, means, rho, learning_rate=1e-2) for rho in (0.0, 0.1, 1.0)]
    >>> found = train_ensemble(X, members, (8,), Settings(epochs=5))
    >>> found.predict(X).shape
    (3, 200, 1)
    """
    if not members:
        _check.refuse("members", "at least one", "none", "Pass a Member for each network")
    aside_of = [len(set(member.held_out)) for member in members]
    if 0 in aside_of and any(aside_of):
        got = f"{sum(map(bool, aside_of))} of {len(members)}"
        _check.refuse("held_out", "given for every member or none", got, "Give all some")
    if any(n >= len(member.bags) for n, member in zip(aside_of, members, strict=True)):
        _check.refuse("held_out", "some of the bags", "all of them", "Leave some to train on")
    for member in members:
        _refuse_misfit(member, len(X))
    settings = Settings(epochs=100) if settings is None else settings
    place = find_device(device)
    # All bags in every step are put together here and sent once.
    home = torch.device("cpu") if batch_size is None else place
    rows = torch.as_tensor(np.asarray(X, dtype=np.float32), device=home)
    size = chunk or (CPU_CHUNK if place.type == "cpu" else len(members))
    outputs = 1 if members[0].means.ndim == 1 else members[0].means.shape[1]
    widths = (rows.shape[1], *hidden, outputs)
    chunks: list[StackedMLP] = []
    losses: list[float] = []
    history: list[list[float]] = []
    for first in range(0, len(members), size):
        some = members[first : first + size]
        network = StackedMLP(widths, [member.seed for member in some]).to(place)
        sides = [_sides(rows, member) for member in some]
        if batch_size is not None:
            _refuse_unlike([side[0] for side in sides], batch_size)
        source = _source([side[0] for side in sides], some, batch_size, place)
        aside = [side[1] for side in sides if side[1] is not None]
        held_out = None
        if aside:
            whole = stacked([data.whole() for data in aside]).to(place)
            held_out = _always(whole)
        rho = torch.tensor([check_rho(m.rho) for m in some], device=place)
        rates = torch.tensor([m.learning_rate for m in some], device=place)
        run = train(network, source, rho, rates, settings, held_out, progress=progress)
        chunks.append(network)
        losses.extend(run.best_loss.tolist() if aside else [float("nan")] * len(some))
        history.extend(torch.stack(run.history).T.tolist())
    return Ensemble(chunks, settings, np.array(losses), history)


def _refuse_misfit(member: Member, n_rows: int) -> None:
    """Refuse a member that does not fit its bags, or the table."""
    remedy = "1e-3 is usual"
    _check.number("learning_rate", member.learning_rate, low=0, above=True, remedy=remedy)
    if len(member.means) != len(member.bags):
        got = f"{len(member.means)} for {len(member.bags)} bags"
        _check.refuse("means", "one entry a bag", got, "Bags.mean makes them from rows")
    bagged = member.bags.n_rows
    count, last = bagged, bagged - 1
    if member.rows is not None:
        count, last = len(member.rows), int(np.max(member.rows))
    if count != bagged or last >= n_rows:
        got = f"{bagged} rows in bags, and {n_rows} rows of X"
        remedy = "Check that both come from one table, or pass rows=…"
        _check.refuse("bags", "of rows of X", got, remedy)


def _sides(X: Tensor, member: Member) -> tuple[BagData, BagData | None]:
    """Bags to train on, and those held out."""
    means = member.means.reshape(len(member.means), -1)
    data = BagData.of(X, member.bags, means, member.rows)
    if not len(member.held_out):
        return data, None
    aside = np.zeros(len(means), dtype=bool)
    aside[list(member.held_out)] = True
    return data.part(~aside), data.part(aside)


def _refuse_unlike(datas: list[BagData], batch_size: int) -> None:
    """Refuse members that would take different numbers of steps an epoch."""
    steps = {-(-len(data.sizes) // data.bags_of(batch_size)) for data in datas}
    if len(steps) > 1:
        got = f"{min(steps)} to {max(steps)} batches an epoch"
        remedy = "Train those of one bag size together, or batch_size=None"
        _check.refuse("members", "of as many batches each", got, remedy)


def _always(batch: Batch) -> Callable[[], list[Batch]]:
    return lambda: [batch]


def _source(
    datas: list[BagData], members: Sequence[Member], batch_size: int | None, place: torch.device
) -> Source:
    """Batches of all networks side by side: all bags in every step, or shuffled for each."""
    if batch_size is None:
        alike = {(id(m.bags), id(m.means), id(m.rows), tuple(m.held_out)) for m in members}
        same = len(alike) == 1
        whole = (datas[0].whole() if same else stacked([data.whole() for data in datas])).to(place)
        return lambda epoch: [whole]

    def batches(epoch: int) -> Iterator[Batch]:
        streams = []
        for data, member in zip(datas, members, strict=True):
            order = shuffled(len(data.sizes), member.seed, epoch).to(data.sizes.device)
            take = partial(data.take, rows=batch_size)
            streams.append(map(take, torch.split(order, data.bags_of(batch_size))))
        for some in zip(*streams, strict=True):
            yield stacked(some)

    return batches
