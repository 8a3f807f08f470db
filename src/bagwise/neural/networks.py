"""Networks that the trainer knows: many perceptrons of one shape as one, or a user's module."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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
        weights, biases = [], []
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        for a, b in pairwise(widths):
            drawn = [torch.rand(a + 1, b, generator=g) for g in generators]
            # Uniform within ±1/√a: 2u − 1 has the right range, a the right width.
            stack = (2 * torch.stack(drawn) - 1) / a**0.5
            weights.append(nn.Parameter(stack[:, :a].contiguous()))
            biases.append(nn.Parameter(stack[:, a:].contiguous()))
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)

    def __len__(self) -> int:
        return len(self.weights[0])

    def forward(self, X: Tensor) -> Tensor:
        """Outputs of shape (M, n, K) for inputs of shape (1, n, d) or (M, n, d)."""
        h = X.expand(len(self), -1, -1)
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            h = h if i == last else torch.relu(h)
        return h

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
        found: Tensor = self.module(X[0])
        n, K = len(X[0]), self.outputs
        if tuple(found.shape) == (n,) and K == 1:
            found = found[:, None]
        if tuple(found.shape) != (n, K):
            got = f"shape {tuple(found.shape)} for {n} rows"
            _check.refuse(
                "module", f"a network with {K} outputs a row", got, "Change its last layer"
            )
        return found[None]
