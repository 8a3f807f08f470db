"""What neural estimators share: scales, held-out bags, training, predictions."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise import _check
from bagwise._extras import need
from bagwise._progress import Progress, bar, silent
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.contract import whole_or_not
from bagwise.estimators.saved import load_network, save_network
from bagwise.estimators.tuning import RHO_GRID
from bagwise.losses import KINDS, check_rho
from bagwise.released import Release

if TYPE_CHECKING:
    from torch import nn

    from bagwise.neural.training import Settings

FloatArray: TypeAlias = NDArray[np.float64]
# Rows that are standardised or predicted at a time, and held-out rows of a batch.
BLOCK, HELD_OUT_BATCH = 2**13, 2**12


@dataclass(eq=False, repr=False, kw_only=True)
class Network(BaseEstimator):
    """What all networks share; subclasses say what they predict and how the network looks."""

    rho: float | str = "cv"
    kind: str = "instance"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    schedule: str = "cosine"
    batch_size: int | str = "auto"
    epochs: int = 200
    early_stopping: bool = True
    patience: int = 20
    validation_share: float = 0.15
    standardise: bool = True
    device: str = "auto"
    precision: str = "auto"
    random_state: Any = None
    checkpoint: str | PathLike[str] | None = None
    progress: bool = False

    _link: ClassVar[str] = "identity"
    _loss: ClassVar[str] = "squared"

    def _network(self, inputs: int, outputs: int, seeds: Sequence[int]) -> Any:
        """Untrained networks, one a seed."""
        raise NotImplementedError

    def _try_out(self, network: Any, inputs: int, device: Any) -> None:
        """Refuse a network that could not be trained; ours can."""

    # Fitting

    def _fit(self, X: Any, means: FloatArray, bags: Bags) -> None:
        """Train on rows in memory, with means of shape (m, K)."""
        torch = need("torch", "neural")
        from bagwise.neural.batches import BagData
        from bagwise.neural.ensemble import find_device
        from bagwise.neural.training import shuffled

        device, seed = find_device(self.device), self._seed(means, bags.sizes)
        parts = zip_longest(map(_floats, _blocks(X)), [bags.mean(X)], [bags.sizes])
        self._set_scales(parts, means, bags.sizes)
        scaled = np.concatenate([self._scaled(block) for block in _blocks(X)])
        known = (means - self.response_centre_) / self.response_scale_
        data = BagData.of(torch.as_tensor(scaled, device=device), bags, known)
        aside = self._hold_out(bags.sizes, seed)
        train, test = data.part(~aside), data.part(aside) if aside.any() else None
        rows = self._batch_rows(len(train.rows))

        def batches(epoch: int) -> Iterable[Any]:
            return train.batches(shuffled(len(train.sizes), seed, epoch).to(device), rows)

        order = torch.arange(int(aside.sum()), device=device)
        kept = None if test is None else list(test.batches(order, max(rows, HELD_OUT_BATCH)))
        self._train(batches, kept, seed, device, means, bags.sizes)

    def fit_release(
        self, release: Release | BagTable, features: Sequence[str] | None = None
    ) -> Self:
        """Fit from a Release or a BagTable, a row group at a time.

        Parameters
        ----------
        release : Release or BagTable
        features : sequence of str
            Columns to take; by default all but those that make the bags. Text is one-hot encoded,
            its levels remembered.
        """
        need("torch", "neural")
        from bagwise.neural.ensemble import find_device
        from bagwise.neural.stream import HELD_OUT_ROWS, Stream

        self._check_parameters()
        with whole_or_not(self):
            encoder, groups, sizes = release.encoder(features), release.row_groups(), release.sizes
            means = self._released_means(release)[:, None]
            device, seed = find_device(self.device), self._seed(means, sizes)
            values = (encoder.encode(group.read(list(encoder.columns))) for group in groups)
            parts = ((v, g.average(v), g.sizes) for v, g in zip(values, groups, strict=True))
            self._set_scales(parts, means, sizes)
            # Held-out bags stay in memory, so not too many of them.
            aside = self._hold_out(sizes, seed, HELD_OUT_ROWS)
            ends = np.cumsum([len(group.sizes) for group in groups])
            stream = Stream(
                groups,
                encoder,
                self.centre_,
                self.scale_,
                (self.response_centre_, self.response_scale_),
                np.split(aside, ends[:-1]),
                self._batch_rows(int(sizes[~aside].sum())),
                seed,
                device,
            )
            self.n_features_in_ = len(encoder.names)
            self.feature_names_in_ = np.array(encoder.names, dtype=object)
            self.encoder_ = encoder
            kept = stream.aside(HELD_OUT_BATCH) if aside.any() else None
            self._train(stream.batches, kept, seed, device, means, sizes)
        return self

    def _train(
        self, batches: Any, aside: Any, seed: int, device: Any, means: FloatArray, sizes: Any
    ) -> None:
        """Train one network, or one for each rho of the grid."""
        torch = need("torch", "neural")
        from bagwise.neural.training import train

        inputs, outputs = len(self.centre_), means.shape[1]
        # At rho = 0 and at rho = 1 alike, a bag of one row is a row.
        search = self.rho == "cv" and sizes.max() > 1
        rhos = RHO_GRID if search else (0.0 if self.rho == "cv" else float(self.rho),)
        networks: Any = self._network(inputs, outputs, [seed] * len(rhos)).to(device)
        self._try_out(networks, inputs, device)
        # Perceptrons are trained side by side; of a user's module a copy for each rho.
        many = len(networks) < len(rhos)
        stacks = [copy.deepcopy(networks) for _ in rhos] if many else [networks]
        runs = [
            train(
                stack,
                batches,
                torch.tensor(rhos[i : i + len(stack)], dtype=torch.float32, device=device),
                torch.full((len(stack),), float(self.learning_rate), device=device),
                self._settings(device, outputs),
                None if aside is None else lambda: aside,
                self._checkpoint(i if many else None),
                _bytes(means, sizes, self.centre_, self.scale_),
                seed,
                self._progress(),
            )
            for i, stack in enumerate(stacks)
        ]
        losses = [loss for run in runs for loss in run.best_loss.tolist()]
        best = int(np.argmin(losses)) if search else 0
        chosen = stacks[best if many else 0]
        self.network_ = (chosen.one(best) if len(chosen) > 1 else chosen).cpu().eval()
        self.rho_ = float(rhos[best])
        self.rho_source_ = "cv" if search else "given" if self.rho != "cv" else "bags of one row"
        self.held_out_losses_ = dict(zip(rhos, losses, strict=True)) if aside is not None else {}
        self.n_epochs_ = runs[best if many else 0].epoch

    def _seed(self, means: FloatArray, sizes: Any) -> int:
        """Of weights, held-out bags and batches."""
        if self.random_state is None and self.checkpoint is not None:
            # Who goes on from a checkpoint must hold out the same bags: the seed is of the data.
            return int.from_bytes(hashlib.sha256(_bytes(means, sizes)).digest()[:4], "big") >> 1
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _hold_out(self, sizes: Any, seed: int, most: int | None = None) -> NDArray[np.bool_]:
        """Which bags early stopping and the choice of rho look at; ``most`` of their rows."""
        n_bags = len(sizes)
        aside = np.zeros(n_bags, dtype=bool)
        if isinstance(self.rho, str) and n_bags < 2:
            got = f"rho={self.rho!r} with n_bags=1 (n_samples=1 where bags is None)"
            _check.refuse("rho", "a number when there is one bag", got, "Pass rho=1.0, say")
        if n_bags < 2 or not (self.early_stopping or self.rho == "cv"):
            return aside
        count = min(n_bags - 1, max(1, round(self.validation_share * n_bags)))
        chosen = np.random.default_rng(seed).choice(n_bags, count, replace=False)
        if most is not None:
            chosen = chosen[: max(1, np.searchsorted(np.cumsum(sizes[chosen]), most, "right"))]
        aside[chosen] = True
        return aside

    def _set_scales(
        self, parts: Iterable[tuple[Any, Any, Any]], means: FloatArray, sizes: Any
    ) -> None:
        """Centre and scale of features and responses, from features and means alone.

        ``parts`` gives features of rows, and with some of them averages over bags and their sizes.
        """
        of_rows, of_bags = StandardScaler(), StandardScaler()
        for rows, averages, weights in parts:
            of_rows.partial_fit(rows)
            if averages is not None:
                of_bags.partial_fit(averages, sample_weight=weights)
        d = of_rows.n_features_in_
        self.centre_, self.scale_ = np.zeros(d), np.ones(d)
        self.response_centre_, self.response_scale_ = 0.0, 1.0
        if not self.standardise:
            return
        self.centre_, self.scale_ = of_rows.mean_, of_rows.scale_
        if self._link != "identity":
            return
        n, m, y = sizes.sum(), len(means), means[:, 0]
        self.response_centre_ = float(sizes @ y / n)
        if m < 2:
            return
        # What rows vary by, if bags are random: k times what their means do.
        between = float(sizes @ (y - self.response_centre_) ** 2) / (m - 1)
        # Features tell when bags are not: their means then vary by more than chance, and so will
        # those of the response.
        effect = of_bags.var_ * n / (m - 1) / of_rows.scale_**2
        effect = effect[effect > 1 + 4 * (2 / (m - 1)) ** 0.5]
        between /= max(effect, default=1.0)
        self.response_scale_ = between**0.5 if between > 0 else 1.0

    def _scaled(self, block: Any) -> NDArray[np.float32]:
        return np.asarray((_floats(block) - self.centre_) / self.scale_, dtype=np.float32)

    def _settings(self, device: Any, outputs: int) -> Settings:
        from bagwise.neural.training import Settings

        precision = self.precision
        if precision == "auto":
            wide = max(self._widths(), default=0) >= 128
            precision = "float32" if device.type == "cpu" else "bf16" if wide else "tf32"
        return Settings(
            epochs=self.epochs,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            patience=self.patience if self.early_stopping else 0,
            loss=self._loss if outputs == 1 else "log",
            kind=self.kind,
            link=self._link if outputs == 1 else "softmax",
            precision=precision,
        )

    def _widths(self) -> Sequence[int]:
        return ()

    def _batch_rows(self, n_rows: int) -> int:
        """Rows of a batch: few in small tables, so that an epoch has some steps."""
        if self.batch_size != "auto":
            return int(self.batch_size)
        return max(32, min(1024, n_rows // 16), min(4096, n_rows // 64))

    def _checkpoint(self, number: int | None) -> Path | None:
        if self.checkpoint is None:
            return None
        path = Path(self.checkpoint)
        return path if number is None else path.with_name(f"{path.name}.{number}")

    def _progress(self) -> Progress:
        return bar("Training", at_most=self.early_stopping) if self.progress else silent

    # Predicting

    def _means(self, X: Any) -> FloatArray:
        """Predicted means of rows, shape (n, K)."""
        check_is_fitted(self)
        encoded = False
        if hasattr(self, "encoder_") and hasattr(X, "__arrow_c_stream__"):
            X = self.encoder_.encode_frame(X)
            encoded = isinstance(X, np.ndarray)
        if not encoded:
            X = self._validate_features(X, reset=False)
        return self._forward(X)

    def _forward(self, X: Any) -> FloatArray:
        """Predicted means of rows that are numbers, in the order of the features."""
        torch = need("torch", "neural")
        from bagwise.neural.training import LINKS

        outputs = len(getattr(self, "classes_", ()))
        link = LINKS[self._link if outputs < 3 else "softmax"]
        network, kind = self._predictor()
        parts = []
        with torch.no_grad():
            for block in _blocks(X):
                rows = (_floats(block) - self.centre_) / self.scale_
                parts.append(link(network(torch.as_tensor(rows, dtype=kind)[None]))[0].numpy())
        found = np.concatenate(parts).astype(np.float64)
        return np.asarray(found * self.response_scale_ + self.response_centre_)

    def _predictor(self) -> tuple[Any, Any]:
        """The network and the precision to predict with: a user's module is for float32."""
        return self.network_, need("torch", "neural").float32

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a new folder, as JSON and safetensors."""
        check_is_fitted(self)
        save_network(self, Path(path))

    # Parameters

    def _released_means(self, release: Release | BagTable) -> FloatArray:
        """Means of a Release or a table, when this model is for them."""
        return release.means

    def _check_parameters(self) -> None:
        if isinstance(self.rho, str):
            if self.rho != "cv":
                got = f"rho={self.rho!r}"
                _check.refuse("rho", "in [0, 1] or 'cv'", got, "Check the spelling")
        else:
            check_rho(self.rho)
        _check.choice("kind", self.kind, KINDS)
        _check.choice("schedule", self.schedule, ("constant", "cosine"))
        _check.choice("precision", self.precision, ("auto", "float32", "tf32", "bf16"))
        _check.whole("epochs", self.epochs, low=1, remedy="200 is usual")
        _check.whole("patience", self.patience, low=1, remedy="20 is usual")
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size, low=1, remedy="Or 'auto'")
        remedy = "1e-3 is usual"
        _check.number("learning_rate", self.learning_rate, low=0, above=True, remedy=remedy)
        _check.number("weight_decay", self.weight_decay, low=0, remedy="0 is none")
        share = self.validation_share
        _check.number("validation_share", share, low=0, high=1, above=True, remedy="0.15, say")
        if self.checkpoint is not None and not Path(self.checkpoint).absolute().parent.is_dir():
            got = f"checkpoint={str(self.checkpoint)!r}"
            _check.refuse("checkpoint", "a file in a folder that is there", got, "Make it first")


@dataclass(eq=False, repr=False)
class Perceptron(Network):
    """A network of layers with ReLU."""

    hidden: Sequence[int] = (100,)

    def _network(self, inputs: int, outputs: int, seeds: Sequence[int]) -> Any:
        from bagwise.neural.networks import StackedMLP

        return StackedMLP((inputs, *self.hidden, outputs), seeds)

    def _widths(self) -> Sequence[int]:
        return tuple(self.hidden)

    def _predictor(self) -> tuple[Any, Any]:
        # In double precision a prediction does not depend on the rows beside it.
        return copy.deepcopy(self.network_).double(), need("torch", "neural").float64

    def _check_parameters(self) -> None:
        super()._check_parameters()
        remedy = "Pass widths of layers, (100,) say"
        if isinstance(self.hidden, str) or not np.iterable(self.hidden):
            _check.refuse("hidden", "a sequence of widths", f"hidden={self.hidden!r}", remedy)
        for width in self.hidden:
            _check.whole("hidden", width, low=1, remedy=remedy)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in the folder is ever executed."""
        return load_network(cls(), Path(path))


@dataclass(eq=False, repr=False)
class OwnNetwork(Network):
    """A user's module."""

    module: nn.Module | None = None

    def _network(self, inputs: int, outputs: int, seeds: Sequence[int]) -> Any:
        torch = need("torch", "neural")
        from bagwise.neural.networks import OwnModule

        if not isinstance(self.module, torch.nn.Module):
            got = f"a {type(self.module).__name__}"
            _check.refuse("module", "a torch.nn.Module", got, "Pass module=nn.Sequential(…), say")
        return OwnModule(copy.deepcopy(self.module), outputs)

    def _try_out(self, network: Any, inputs: int, device: Any) -> None:
        from bagwise.neural.training import trainable

        trainable(network)
        # A copy, for a forward pass may leave something behind.
        copy.deepcopy(network).try_out(inputs, device)

    @classmethod
    def load(cls, path: str | PathLike[str], module: Any) -> Self:
        """Read what `save` wrote into a copy of ``module``, one of the same shape."""
        return load_network(cls(module=module), Path(path))


def _blocks(X: Any) -> Iterator[Any]:
    """Rows of an array, some at a time."""
    return (X[first : first + BLOCK] for first in range(0, len(X), BLOCK))


def _floats(block: Any) -> FloatArray:
    return np.asarray(block, dtype=np.float64)


def _bytes(*arrays: Any) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
