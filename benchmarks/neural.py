"""Networks from bags against plain training: the cost of a step, many at once, bags one by one.

    python benchmarks/neural.py [--device cuda] [--part step|boston|epoch]

step    on a GPU: a step with the aggregate loss over a supervised one of the same network and batch
        (1e6 rows, 64 features, two layers of 256; bags of 10, and of mixed sizes 1 to 19)
boston  on a GPU: 1,100 networks of four layers of 64, 2,000 epochs over 404 rows of 13 features
epoch   on a CPU: an epoch over 150,000 rows in bags of 16, one hidden layer of 100, over one
        optimiser step a bag; and the held-out loss of both after the same time
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import time

import numpy as np
import torch
from timing import seconds
from torch import nn

from bagwise import AggregateMLPRegressor, Bags
from bagwise.neural.batches import BagData
from bagwise.neural.ensemble import Member, train_ensemble
from bagwise.neural.loss import bag_means
from bagwise.neural.networks import StackedMLP
from bagwise.neural.training import Run, Settings, Step, predict, train


def wait(device):
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


class Supervised(Step):
    """The same step with the plain squared loss of rows."""

    def _take(self, batch):
        rows = predict(self.network, batch.X, self.settings)
        loss = ((rows[:, :, 0] - self.labels) ** 2).mean()
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            self._adam(
                self.parameters, gradients, self.state.moments, self._count, self._rates, 0.0
            )
        return loss.detach()[None]


def make_step(kind, batch, device, precision):
    """A step over one batch, ready to be timed."""
    network = StackedMLP((batch.X.shape[2], 256, 256, 1), [0]).to(device)
    moments = [torch.zeros_like(p) for p in network.parameters() for _ in range(2)]
    empty = torch.zeros(1, device=device)
    state = Run(0, 0, moments, [], empty, empty.long())
    step = kind(
        network, torch.full((1,), 0.1, device=device), Settings(1, precision=precision), state
    )
    step.labels = torch.randn(batch.X.shape[1], device=device)
    rates = torch.full((1,), 1e-3, device=device)
    return lambda: step(batch, rates, False)


def measure_step(device, rows=10**6, features=64, repeats=40):
    """Ratios of steps, measured in turns."""
    rng = np.random.default_rng(0)
    X = torch.randn(rows, features, device=device)
    mixed = rng.integers(1, 20, rows)
    mixed = mixed[: np.searchsorted(np.cumsum(mixed), rows)]
    mixed = np.append(mixed, rows - mixed.sum())
    torch.set_float32_matmul_precision("high")
    for precision in ("tf32", "bf16"):
        for name, sizes in (("bags of 10", np.full(rows // 10, 10)), ("mixed 1 to 19", mixed)):
            bags = Bags(np.repeat(np.arange(len(sizes)), sizes))
            batch = BagData.of(X, bags, rng.normal(size=(len(sizes), 1))).whole()
            ours, plain = (make_step(kind, batch, device, precision) for kind in (Step, Supervised))
            for _ in range(5):
                ours(), plain()
            times = []
            for _ in range(repeats):
                pair = []
                for task in (ours, plain):
                    wait(device)
                    start = time.perf_counter()
                    for _ in range(5):
                        task()
                    wait(device)
                    pair.append((time.perf_counter() - start) / 5)
                times.append(pair)
            medians = [statistics.median(column) for column in zip(*times, strict=True)]
            print(
                f"{precision}, {name}: aggregate {medians[0] * 1e3:.3f} ms, supervised "
                f"{medians[1] * 1e3:.3f} ms, ratio {medians[0] / medians[1]:.4f}",
                flush=True,
            )


def measure_boston(device, networks=1100, epochs=2000):
    """Seconds for many networks at once, in several precisions, with the time to make ready."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(404, 13)).astype(np.float32)
    y = X @ rng.normal(size=13) + rng.normal(size=404)
    members = []
    for i in range(networks):
        bags = Bags.random(404, (80, 120, 160, 200, 240)[i % 5], random_state=i, remainder="keep")
        members.append(Member(bags, bags.mean(y), (0.0, 1e-3, 1e-2, 0.1, 1.0)[i // 5 % 5], i))
    found = {}
    for precision in ("float32", "tf32"):
        settings = Settings(epochs, precision=precision)
        short = Settings(3, precision=precision)
        start = time.perf_counter()
        train_ensemble(X, members, (64,) * 4, short, device=device.type)
        wait(device)
        print(f"three epochs, the making ready with them: {time.perf_counter() - start:.2f} s")
        train_ensemble(X, members, (64,) * 4, settings, device=device.type)
        times = []
        for _ in range(3):
            wait(device)
            start = time.perf_counter()
            ensemble = train_ensemble(X, members, (64,) * 4, settings, device=device.type)
            wait(device)
            times.append(time.perf_counter() - start)
        found[precision] = ensemble.predict(X)
        print(f"{networks} networks x {epochs} epochs, {precision}: {min(times):.2f} s", times)
    apart = np.abs(found["tf32"] - found["float32"]).mean() / np.abs(found["float32"]).std()
    print(f"tf32 against float32 after {epochs} epochs: {apart:.2e} of a standard deviation")


def per_bag_epoch(data, network, optimiser):
    """One optimiser step a bag: what packages that loop over bags do."""
    rows = 0
    for a in range(len(data.sizes)):
        size = int(data.sizes[a])
        block = data.X[data.rows[rows : rows + size]]
        rows += size
        optimiser.zero_grad()
        ((network(block).mean() - data.means[a, 0]) ** 2).backward()
        optimiser.step()


def measure_epoch(rows=150_000, k=16, repeats=5):
    """The ratio of an epoch, in turns, and losses after the same time."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows * 5 // 4, 20)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=len(X))
    bags = Bags(np.arange(len(X)) // k)
    data = BagData.of(torch.as_tensor(X), bags, bags.mean(y)[:, None])
    first = np.arange(len(bags)) < rows // k
    seen, new = data.part(first), data.part(~first)
    # What the estimator takes by default.
    at_once = AggregateMLPRegressor()._batch_rows(rows)

    def ours(epochs):
        network = StackedMLP((20, 100, 1), [0])
        source = lambda epoch: seen.batches(torch.randperm(len(seen.sizes)), at_once)  # noqa: E731
        one = torch.ones(1)
        train(network, source, 0 * one, 1e-3 * one, Settings(epochs=epochs))
        return network

    def one_by_one():
        network = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 1))
        per_bag_epoch(seen, network, torch.optim.Adam(network.parameters(), lr=1e-3))
        return network

    print(f"{torch.get_num_threads()} threads, batches of {at_once} rows")
    ours(1)
    times = [(seconds(one_by_one), seconds(lambda: ours(1))) for _ in range(repeats)]
    found = [slow / quick for slow, quick in times]
    print(
        f"an epoch, one step a bag / batches of whole bags: median {statistics.median(found):.0f}, "
        f"{min(found):.0f} to {max(found):.0f}"
    )
    batch, losses = new.whole(), []
    for slow, quick in times[:3]:
        networks = ours(max(1, int(slow / quick))), one_by_one()
        with torch.no_grad():
            outputs = networks[0](batch.X), networks[1](batch.X[0])[None]
        losses.append([(bag_means(f, batch) - batch.means).square().mean() for f in outputs])
    for name, column in zip(("ours", "one step a bag"), zip(*losses, strict=True), strict=True):
        shown = ", ".join(f"{value:.4f}" for value in column)
        print(f"held-out bag loss after the same time, {name}: {shown}")


def about(device):
    """What this ran on."""
    print(f"Python {platform.python_version()}, PyTorch {torch.__version__}, {platform.machine()}")
    if device.type == "cuda":
        query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
        words = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        print(subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip())


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--part", choices=["step", "boston", "epoch"])
    options = parser.parse_args()
    device = torch.device(options.device)
    about(device)
    parts = [options.part] if options.part else ["step", "boston"]
    for part in ["epoch"] if device.type == "cpu" and not options.part else parts:
        {"step": measure_step, "boston": measure_boston}.get(part, lambda _: measure_epoch())(
            device
        )


if __name__ == "__main__":
    main()
