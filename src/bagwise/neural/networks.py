"""Networks that the trainer knows: many perceptrons of one shape as one, or a user's module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from bagwise import _check


class StackedMLP(nn.Module):
    """M multilayer perceptrons with ReLU, as one batched network.

    Parameters
    ----------
    widths : sequence of int
        Inputs, hidden layers, outputs.
    seeds : sequence of int
        One a network: its first weights, as PyTorch draws those of a linear layer.
    """

    def __init__(self, widths: Sequence[int], seeds: Sequence[int]) -> None:
        super().__init__()
        for width in widths:
            _check.whole("hidden", width, low=1, remedy="Pass widths of layers, (100,) say")
        shapes = [(a + 1, b) for a, b in pairwise(widths)]
        ends = list(accumulate(a * b for a, b in shapes))
        # Adam keeps two more numbers for each weight.
        if 12 * ends[-1] * len(seeds) > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            got = f"{ends[-1]:.2g} weights for each of {len(seeds)} networks"
            _check.refuse("hidden", "layers that fit in memory", got, "Take smaller widths")
        # One draw a network, cut into its layers.
        generators = (torch.Generator().manual_seed(seed) for seed in seeds)
        drawn = torch.stack([torch.rand(ends[-1], generator=g) for g in generators])
        weights, biases = [], []
        for (a, b), end in zip(shapes, ends, strict=True):
            # Uniform within ±1/√inputs: 2u − 1 has the right range.
            layer = (2 * drawn[:, end - a * b : end] - 1).reshape(-1, a, b) / (a - 1) ** 0.5
            weights.append(nn.Parameter(layer[:, :-1].contiguous()))
            biases.append(nn.Parameter(layer[:, -1:].contiguous()))
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)

    def __len__(self) -> int:
        return len(self.weights[0])

    def forward(self, X: Tensor) -> Tensor:
        """Outputs of shape (M, n, K) for inputs of shape (1, n, d) or (M, n, d)."""
        return mlp(list(self.weights), list(self.biases), X)

    def one(self, number: int) -> StackedMLP:
        """One of the networks, by itself."""
        alone = StackedMLP.__new__(StackedMLP)
        nn.Module.__init__(alone)
        for name in ("weights", "biases"):
            parts = [
                nn.Parameter(p[number : number + 1].detach().clone()) for p in getattr(self, name)
            ]
            setattr(alone, name, nn.ParameterList(parts))
        return alone


def mlp(
    weights: Sequence[Tensor], biases: Sequence[Tensor], X: Tensor, compiled: bool = False
) -> Tensor:
    """Outputs of M perceptrons, shape (M, n, K), for inputs of shape (1, n, d) or (M, n, d)."""
    h = X.expand(len(weights[0]), -1, -1)
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        if compiled and (odd := -h.shape[2] % 8):
            # Tensor cores take inputs in eights.
            pad = nn.functional.pad
            h, weight = pad(h, (0, odd)), pad(weight, (0, 0, 0, odd))
        h = torch.relu(torch.baddbmm(bias, h, weight))
    if compiled and weights[-1].shape[2] == 1:
        # A product with one column is a sum, which can be fused with what is beside it.
        return torch.add((h * weights[-1].mT).sum(2, keepdim=True), biases[-1])
    return torch.baddbmm(biases[-1], h, weights[-1])


class OwnModule(nn.Module):
    """A user's module as a stack of one.

    Parameters
    ----------
    module : nn.Module
        From rows of shape (n, d) to outputs of shape (n, K), or (n,) for K = 1.
    outputs : int
        K.
    """

    def __init__(self, module: nn.Module, outputs: int) -> None:
        super().__init__()
        self.module, self.outputs = module, outputs

    def __len__(self) -> int:
        return 1

    def forward(self, X: Tensor) -> Tensor:
        """Outputs of shape (1, n, K)."""
        return self._shaped(self.module(X[0]), len(X[0]))

    def try_out(self, inputs: int, device: torch.device) -> None:
        """Refuse in a sentence what a training would stumble over, on a few rows."""
        reason = ""
        self.eval()
        try:
            found = self.module(torch.zeros(2, inputs, device=device))
        except Exception as error:
            reason = f"{type(error).__name__} ({str(error).splitlines()[0] if str(error) else ''})"
        if reason:
            rule = f"a network that takes rows of {inputs} float32 numbers"
            _check.refuse("module", rule, reason, "Change its first layer, or call .float() on it")
        if not (isinstance(found, Tensor) and found.is_floating_point()):
            kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
            remedy = "Return one tensor of real numbers from forward"
            _check.refuse("module", "a network that gives real numbers", f"{kind}", remedy)
        self._shaped(found, 2)
        if not found.requires_grad:
            remedy = "Leave out detach() and no_grad() in forward"
            got = "outputs without a gradient"
            _check.refuse("module", "a network whose outputs follow its weights", got, remedy)

    def _shaped(self, found: Tensor, n: int) -> Tensor:
        """Outputs with a column for each of K, or one sentence."""
        K = self.outputs
        if tuple(found.shape) == (n,) and K == 1:
            found = found[:, None]
        if tuple(found.shape) != (n, K):
            got = f"shape {tuple(found.shape)} for {n} rows"
            _check.refuse(
                "module", f"a network with {K} outputs a row", got, "Change its last layer"
            )
        return found[None]
