"""One loop for every network: Adam over batches of whole bags, early stopping on held-out bags."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bagwise import _check
from bagwise._extras import need
from bagwise.losses import KINDS, LOSSES
from bagwise.neural.batches import Batch
from bagwise.neural.loss import aggregate_losses
from bagwise.neural.networks import StackedMLP, mlp

#: an epoch's number -> its batches
Source: TypeAlias = Callable[[int], Iterable[Batch]]
BETAS, TINY = (0.9, 0.999), 1e-8
# Epochs past which it pays to compile a step on a GPU, which takes half a minute.
WORTH_COMPILING = 1000


@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes
    ----------
    epochs : int
    weight_decay : float
        Decoupled from the gradient, as in AdamW.
    schedule : {"constant", "cosine"}
        Of the learning rate over the epochs.
    patience : int
        Epochs without a better held-out loss until a network stops and keeps its best weights; with
        0 all keep their last.
    loss, kind : str
        As in `bagwise.interpolating_loss`.
    link : {"identity", "sigmoid", "softmax", "exp"}
        From outputs to predicted means.
    precision : {"float32", "tf32", "bf16"}
        Of matrix products; tf32 is float32 on a CPU.
    """

    epochs: int
    weight_decay: float = 0.0
    schedule: str = "constant"
    patience: int = 0
    loss: str = "squared"
    kind: str = "instance"
    link: str = "identity"
    precision: str = "float32"

    def __post_init__(self) -> None:
        _check.whole("epochs", self.epochs, low=1, remedy="200 is usual")
        _check.whole("patience", self.patience, low=0, remedy="0 stops nobody")
        _check.number("weight_decay", self.weight_decay, low=0, remedy="0 is none")
        _check.choice("schedule", self.schedule, ("constant", "cosine"))
        _check.choice("loss", self.loss, LOSSES)
        _check.choice("kind", self.kind, KINDS)
        _check.choice("link", self.link, LINKS)
        _check.choice("precision", self.precision, ("float32", "tf32", "bf16"))


LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "sigmoid": torch.sigmoid,
    "softmax": lambda z: torch.softmax(z, -1),
    "exp": lambda z: torch.exp(z.clamp(max=30.0)),
}


@dataclass
class Run:
    """Where a training stands: all that is needed to go on with it.

    Attributes
    ----------
    epoch : int
        Epochs done.
    step : int
        Steps of the optimiser.
    moments : list of tensors
        Adam's, two a parameter.
    best : list of tensors
        Parameters and buffers at the best held-out loss of each network.
    best_loss, since : tensor of shape (M,)
        That loss, or the last without patience, and the epochs since.
    history : list of tensors of shape (M,)
        Held-out loss of each network after each epoch, or the training loss without held-out bags.
    """

    epoch: int
    step: int
    moments: list[Tensor]
    best: list[Tensor]
    best_loss: Tensor
    since: Tensor
    history: list[Tensor] = field(default_factory=list)


def train(
    network: Any,
    source: Source,
    rho: Tensor,
    learning_rate: Tensor,
    settings: Settings,
    held_out: Callable[[], Iterable[Batch]] | None = None,
    checkpoint: Path | None = None,
    data: bytes = b"",
    seed: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Run:
    """Train a stack of M networks, each by itself though all at once.

    Parameters
    ----------
    network : StackedMLP or OwnModule
        Changed in place; at the end each has its best parameters when bags are held out.
    source : callable
        Gives the batches of an epoch, the same for the same number.
    rho, learning_rate : tensor of shape (M,)
    settings : Settings
    held_out : callable
        Gives batches of bags that are not trained on.
    checkpoint : Path
        File to write after each epoch, and to go on from when it is there.
    data : bytes
        What the bags are known again by: a checkpoint of others is refused.
    seed : int
        Of randomness in a user's module.
    progress : callable
        Wraps the loop over epochs.
    """
    parameters = trainable(network)
    # Buffers too, which a user's module may have; all share memory with the network.
    values = list(network.state_dict().values())
    M, device = len(network), parameters[0].device
    state = Run(
        epoch=0,
        step=0,
        moments=[torch.zeros_like(p) for p in parameters for _ in range(2)],
        best=[value.clone() for value in values],
        best_loss=torch.full((M,), math.inf, device=device),
        since=torch.zeros(M, dtype=torch.int64, device=device),
    )
    training = ""
    if checkpoint is not None:
        training = _identity(values, rho, learning_rate, settings, data)
        if checkpoint.exists():
            _restore(state, values, checkpoint, training)
    step, before = Step(network, rho, settings, state), None
    with _precision("high" if settings.precision == "tf32" else "highest"):
        for epoch in progress(range(state.epoch, settings.epochs)):
            active = state.since < (settings.patience or math.inf)
            if not active.any():
                break
            lost, weight = torch.zeros(M, device=device), torch.zeros(M, device=device)
            factor = _factor(settings, epoch)
            network.train()
            with _seeded(network, seed, epoch):
                for batch in source(epoch):
                    share = torch.ones(1, device=device) if batch.weight is None else batch.weight
                    lost += share * step(batch, learning_rate * factor, batch is before)
                    weight, before = weight + share, batch
            shown = lost / weight
            if held_out is not None:
                shown = held_out_loss(network, held_out(), settings)
                _remember(state, values, shown, active, settings.patience)
            state.history.append(shown)
            state.epoch = epoch + 1
            # To look at a number, a GPU must be waited for.
            if device.type == "cpu" or state.epoch % 50 == 0:
                _refuse_nan(torch.where(active, shown, 0.0), rho)
            if checkpoint is not None:
                _store(state, values, checkpoint, training)
    _refuse_nan(state.history[-1] if held_out is None else state.best_loss, rho)
    if held_out is not None and settings.patience:
        for value, best in zip(values, state.best, strict=True):
            value.copy_(best)
    return state


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """The parameters to change, or one sentence where there are none."""
    found = [p for p in network.parameters() if p.requires_grad]
    if not found or any(is_lazy(p) for p in network.parameters()):
        got = "none" if not found else "weights without a shape"
        remedy = "Give it some; call a lazy one on a few rows first"
        _check.refuse("module", "a network with weights to learn", got, remedy)
    return found


@contextmanager
def _seeded(network: nn.Module, seed: int, epoch: int) -> Iterator[None]:
    """Randomness of a user's module, dropout say: the same for the same seed and epoch."""
    if isinstance(network, StackedMLP):
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed((seed * 1_000_003 + epoch) % 2**63)
        yield


@contextmanager
def _precision(name: str) -> Iterator[None]:
    """Matrix products of this precision; the switch is PyTorch's, and one for all."""
    usual = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(usual)


def predict(network: Any, X: Tensor, settings: Settings) -> Tensor:
    """Predicted means, shape (M, n, K), in float32."""
    kind = X.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=settings.precision == "bf16"):
        outputs = network(X)
    return LINKS[settings.link](outputs.float())


def held_out_loss(network: Any, batches: Iterable[Batch], settings: Settings) -> Tensor:
    """Bag-level loss of each network over all batches, shape (M,)."""
    network.eval()
    lost, rows = torch.zeros(()), torch.zeros(())
    for batch in batches:
        bag_level = torch.zeros(len(network), device=batch.X.device)
        with torch.no_grad(), _in_memory(batch):
            predictions = predict(network, batch.X, settings)
            loss, n = (
                aggregate_losses(predictions, batch, bag_level, settings.loss),
                batch.sizes.sum(1),
            )
        lost, rows = lost.to(n.device) + n * loss, rows.to(n.device) + n
    return lost / rows


@contextmanager
def _in_memory(batch: Batch) -> Iterator[None]:
    """One sentence for a batch that is too large."""
    try:
        yield
    except RuntimeError as error:
        if "memory" not in str(error).lower():
            raise
        got = f"{batch.X.shape[1]} rows at once"
        remedy = "Take a smaller batch_size, smaller bags or layers, or device='cpu'"
        sentence = f"a batch of whole bags must fit in memory; got {got}. {remedy}."
        raise ValueError(sentence) from None


class Step:
    """A step of Adam for every network of a stack.

    On a GPU a step over a batch that stays the same is recorded once and played again: its many
    small kernels would otherwise wait for Python.
    """

    def __init__(self, network: Any, rho: Tensor, settings: Settings, state: Run) -> None:
        self.network, self.rho, self.settings, self.state = network, rho, settings, state
        self.parameters = trainable(network)
        self._rates = torch.zeros_like(rho)
        self._count = torch.zeros((), device=rho.device)
        self._recorded: tuple[Batch, Any, Tensor] | None = None
        self._adam: Callable[..., None] = adam
        self._losses: Callable[[Batch], Tensor] = self._plain_losses

    def __call__(self, batch: Batch, rates: Tensor, again: bool) -> Tensor:
        """Losses before the step; ``again`` says that the batch will come again as it is."""
        self.state.step += 1
        self._rates.copy_(rates)
        self._count.fill_(self.state.step)
        with _in_memory(batch):
            if not (again and self.rho.device.type == "cuda"):
                return self._take(batch)
            if self._recorded is None or self._recorded[0] is not batch:
                stack = isinstance(self.network, StackedMLP)
                if self.settings.epochs >= WORTH_COMPILING and stack:
                    self._adam, self._losses = _compiled(adam), self._compiled_losses
                self._recorded = (batch, *self._record(batch))
            self._recorded[1].replay()
            return self._recorded[2].clone()

    def _plain_losses(self, batch: Batch) -> Tensor:
        settings = self.settings
        predictions = predict(self.network, batch.X, settings)
        return aggregate_losses(predictions, batch, self.rho, settings.loss, settings.kind)

    def _compiled_losses(self, batch: Batch) -> Tensor:
        tensors = (batch.X, batch.codes, batch.sizes, batch.means)
        layers = list(self.network.weights), list(self.network.biases)
        losses: Tensor = _compiled(_mlp_losses)(
            *layers, tensors, batch.size, self.rho, self.settings
        )
        return losses

    def _take(self, batch: Batch) -> Tensor:
        losses = self._losses(batch)
        total = losses.sum() if batch.weight is None else (losses * batch.weight).sum()
        # Zeros for parameters that a module does not use.
        gradients = torch.autograd.grad(total, self.parameters, materialize_grads=True)
        with torch.no_grad():
            decay, moments = self.settings.weight_decay, self.state.moments
            self._adam(self.parameters, gradients, moments, self._count, self._rates, decay)
        return losses.detach()

    def _record(self, batch: Batch) -> tuple[Any, Tensor]:
        """The step as a graph, and where it leaves the losses; parameters stay as they were."""
        kept = [t.detach().clone() for t in (*self.parameters, *self.state.moments)]
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._take(batch)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for t, before in zip((*self.parameters, *self.state.moments), kept, strict=True):
                t.copy_(before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = self._take(batch)
        return graph, losses


def _mlp_losses(
    weights: list[Tensor],
    biases: list[Tensor],
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    size: int | None,
    rho: Tensor,
    settings: Settings,
) -> Tensor:
    """Losses of perceptrons as a function of tensors alone, which is compiled once for a shape."""
    with torch.autocast("cuda", torch.bfloat16, enabled=settings.precision == "bf16"):
        outputs = mlp(weights, biases, tensors[0], compiled=True)
    predictions = LINKS[settings.link](outputs.float())
    batch = Batch(*tensors, size)
    return aggregate_losses(predictions, batch, rho, settings.loss, settings.kind)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def adam(
    parameters: list[nn.Parameter],
    gradients: Iterable[Tensor],
    moments: list[Tensor],
    step: Tensor,
    rates: Tensor,
    decay: float,
) -> None:
    """One step of AdamW, the ``step``-th, with a learning rate for each network of the stack."""
    near, far = 1 - BETAS[0] ** step, 1 - BETAS[1] ** step
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        first, second = moments[2 * i], moments[2 * i + 1]
        rate = rates.reshape(-1, *[1] * (p.ndim - 1)) if len(rates) > 1 else rates[0]
        first.lerp_(g, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        if decay:
            p.mul_(1 - rate * decay)
        p.sub_(rate / near * first / ((second / far).sqrt() + TINY))


def _factor(settings: Settings, epoch: int) -> float:
    """Share of the learning rate that an epoch has."""
    if settings.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * epoch / settings.epochs))


def _remember(
    state: Run, values: list[Tensor], loss: Tensor, active: Tensor, patience: int
) -> None:
    """Keep what networks are that did better than before and had not stopped."""
    if not patience:
        state.best_loss = loss
        return
    better = (loss < state.best_loss) & active
    state.best_loss = torch.where(better, loss, state.best_loss)
    state.since = torch.where(better, 0, state.since + 1)
    for value, best in zip(values, state.best, strict=True):
        if len(better) > 1:
            best[better] = value[better]
        elif better[0]:
            best.copy_(value)


def _refuse_nan(loss: Tensor, rho: Tensor) -> None:
    if not torch.isfinite(loss).all():
        bad = int((~torch.isfinite(loss)).nonzero()[0, 0])
        got = f"no number at rho={rho[bad].item():.3g}"
        remedy = "Take a smaller learning_rate, or standardise=True"
        _check.refuse("the loss", "finite after every epoch", got, remedy)


def _identity(
    values: list[Tensor],
    rho: Tensor,
    learning_rate: Tensor,
    settings: Settings,
    data: bytes,
) -> str:
    """What a training is known again by: its bags, its settings and its first weights."""
    found = hashlib.sha256(data)
    found.update(repr((settings, rho.tolist(), learning_rate.tolist())).encode())
    for value in values:
        found.update(value.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _store(state: Run, values: list[Tensor], path: Path, training: str) -> None:
    """Write a checkpoint, whole or not at all."""
    save = need("safetensors.torch", "neural").save_file
    tensors = {"best_loss": state.best_loss, "since": state.since}
    for name, some in (("v", values), ("m", state.moments), ("b", state.best)):
        # Cloned: weights of a module may be tied, and share memory.
        tensors |= {f"{name}{i}": v.clone().contiguous() for i, v in enumerate(some)}
    tensors["history"] = torch.stack(state.history)
    told = json.dumps({"epoch": state.epoch, "step": state.step, "training": training})
    partial = path.with_name(f".{path.name}.partial")
    save(tensors, partial, {"run": told})
    os.replace(partial, path)


def _restore(state: Run, values: list[Tensor], path: Path, training: str) -> None:
    """Go on from a checkpoint, or say in a sentence that it is of another training."""
    tools = need("safetensors", "neural")
    try:
        with tools.safe_open(path, "pt") as file:
            told = json.loads(file.metadata()["run"])
            if told["training"] != training:
                raise ValueError("another training")
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, some in (("v", values), ("m", state.moments), ("b", state.best)):
            for i, value in enumerate(some):
                value.copy_(found[f"{name}{i}"])
        device = state.since.device
        state.best_loss, state.since = found["best_loss"].to(device), found["since"].to(device)
        state.history = list(found["history"].to(device))
        state.epoch, state.step = told["epoch"], told["step"]
    except (KeyError, ValueError, TypeError, OSError, tools.SafetensorError):
        got = f"{str(path)!r}, which is of another training or cut short"
        sentence = f"checkpoint must be one of this training; got {got}. Remove it to start anew."
        raise ValueError(sentence) from None


def shuffled(n: int, seed: int, epoch: int) -> Tensor:
    """An order of n bags for an epoch, the same for the same seed."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(n, generator=generator)
