"""Neural networks from bags, with scikit-learn's contract. Needs `bagwise[neural]`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bagwise import _check
from bagwise._extras import need
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.contract import TakesBags
from bagwise.estimators.saved import load_network, save_network
from bagwise.losses import KINDS, check_rho
from bagwise.released import Release
from bagwise.statistics import read_bags

if TYPE_CHECKING:
    from torch import nn

    from bagwise.neural.training import Settings

FloatArray: TypeAlias = NDArray[np.float64]
#: rhos that "cv" tries: small ones matter, so the grid is logarithmic
RHO_GRID = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Past this many rows a table is predicted in parts.
PREDICT_ROWS = 2**17


@dataclass(eq=False, repr=False, kw_only=True)
class _Network(BaseEstimator):
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

    # Fitting

    def _fit(self, X: Any, means: FloatArray, bags: Bags) -> None:
        """Train on rows in memory, with means of shape (m, K)."""
        torch = need("torch", "neural")
        from bagwise.neural.batches import BagData
        from bagwise.neural.ensemble import find_device

        device = find_device(self.device)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._set_scales(
            np.asarray(X.mean(axis=0), dtype=np.float64), X.std(axis=0), means, bags.sizes
        )
        scaled = torch.as_tensor(self._scaled(X), dtype=torch.float32, device=device)
        data = BagData.of(scaled, bags, (means - self.response_centre_) / self.response_scale_)
        aside = self._hold_out(len(bags), seed)
        train, test = data.part(~aside), data.part(aside) if aside.any() else None
        rows = self._batch_rows(int(bags.sizes.sum()))

        def batches(epoch: int) -> Iterable[Any]:
            from bagwise.neural.training import shuffled

            order = shuffled(len(train.sizes), seed, epoch).to(device)
            return train.batches(order, rows)

        whole = None if test is None else [test.whole()]
        self._train(batches, whole, seed, device, means, bags.sizes)

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
        stacks = [networks]
        if len(networks) < len(rhos):
            # A user's module is trained once for each rho.
            stacks = [copy.deepcopy(networks) for _ in rhos]
        settings = self._settings(device, outputs)
        losses: list[float] = []
        for i, stack in enumerate(stacks):
            some = rhos if len(stacks) == 1 else rhos[i : i + 1]
            run = train(
                stack,
                batches,
                torch.tensor(some, dtype=torch.float32, device=device),
                torch.full((len(some),), float(self.learning_rate), device=device),
                settings,
                None if aside is None else lambda: aside,
                self._checkpoint(i if len(stacks) > 1 else None),
                b"".join(v.tobytes() for v in (means, sizes, self.centre_, self.scale_)),
                self._progress(),
            )
            losses.extend(run.best_loss.tolist())
        best = int(np.argmin(losses)) if search else 0
        stack = stacks[0] if len(stacks) == 1 else stacks[best]
        self.network_ = stack.one(best) if len(stacks) == 1 and len(rhos) > 1 else stack
        self.network_.cpu().eval()
        self.rho_ = float(rhos[best])
        self.rho_source_ = "cv" if search else "given" if self.rho != "cv" else "bags of one row"
        self.held_out_losses_ = dict(zip(rhos, losses, strict=True)) if aside is not None else {}
        self.n_epochs_ = run.epoch

    def fit_release(
        self, release: Release | BagTable, features: Sequence[str] | None = None
    ) -> Self:
        """Fit from a Release or a BagTable, a row group at a time.

        Parameters
        ----------
        release : Release or BagTable
        features : sequence of str
            Columns to take; by default all. Text is one-hot encoded, its levels remembered.
        """
        need("torch", "neural")
        from bagwise.neural.ensemble import find_device
        from bagwise.neural.stream import HELD_OUT_ROWS, Stream, moments

        self._check_parameters()
        encoder, groups = release.encoder(features), release.row_groups()
        sizes, means = release.sizes, release.means
        self._check_means(means)
        device = find_device(self.device)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._set_scales(*moments(groups, encoder), means[:, None], sizes)
        aside = self._hold_out(len(sizes), seed)
        # Held-out bags stay in memory, so not too many of them.
        kept = np.cumsum(np.where(aside, sizes, 0)) <= max(HELD_OUT_ROWS, sizes.max())
        ends = np.cumsum([len(group.sizes) for group in groups])
        stream = Stream(
            groups,
            encoder,
            self.centre_,
            self.scale_,
            (self.response_centre_, self.response_scale_),
            np.split(aside & kept, ends[:-1]),
            self._batch_rows(int(sizes.sum())),
            seed,
            device,
        )
        held_out = stream.aside() if aside.any() else None
        self.n_features_in_ = len(encoder.names)
        self.feature_names_in_ = np.array(encoder.names, dtype=object)
        self._train(stream.batches, held_out, seed, device, means[:, None], sizes)
        self.encoder_ = encoder
        return self

    def _hold_out(self, n_bags: int, seed: int) -> NDArray[np.bool_]:
        """Which bags early stopping and the choice of rho look at."""
        aside = np.zeros(n_bags, dtype=bool)
        if isinstance(self.rho, str) and n_bags < 2:
            got = f"rho={self.rho!r} with n_bags=1 (n_samples=1 where bags is None)"
            _check.refuse("rho", "a number when there is one bag", got, "Pass rho=1.0, say")
        wanted = self.early_stopping or self.rho == "cv"
        if wanted and n_bags >= 2:
            count = min(n_bags - 1, max(1, round(self.validation_share * n_bags)))
            aside[np.random.default_rng(seed).choice(n_bags, count, replace=False)] = True
        return aside

    def _set_scales(
        self, centre: FloatArray, scale: FloatArray, means: FloatArray, sizes: Any
    ) -> None:
        """Centre and scale of features and responses, from features and means alone."""
        d = len(centre)
        self.centre_, self.scale_ = np.zeros(d), np.ones(d)
        self.response_centre_, self.response_scale_ = 0.0, 1.0
        if not self.standardise:
            return
        scale = np.asarray(scale, dtype=np.float64)
        self.centre_, self.scale_ = np.asarray(centre), np.where(scale > 0, scale, 1.0)
        if self._link != "identity":
            return
        n, m = sizes.sum(), len(means)
        y = means[:, 0]
        self.response_centre_ = float(sizes @ y / n)
        # What rows vary by, if bags are random: k times what their means do.
        between = float(sizes @ (y - self.response_centre_) ** 2) / max(m - 1, 1)
        self.response_scale_ = between**0.5 if between > 0 else 1.0

    def _scaled(self, X: Any) -> NDArray[np.float32]:
        return np.asarray((X - self.centre_) / self.scale_, dtype=np.float32)

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
        return int(min(1024, max(32, n_rows // 16)))

    def _checkpoint(self, number: int | None) -> Path | None:
        if self.checkpoint is None:
            return None
        path = Path(self.checkpoint)
        return path if number is None else path.with_name(f"{path.name}.{number}")

    def _progress(self) -> Any:
        if not self.progress:
            return iter
        from bagwise._progress import bar

        return bar("Training")

    # Predicting

    def _means(self, X: Any) -> FloatArray:
        """Predicted means of rows, shape (n, K), in double precision."""
        check_is_fitted(self)
        torch = need("torch", "neural")
        from bagwise.neural.training import LINKS

        if hasattr(self, "encoder_") and hasattr(X, "__arrow_c_stream__"):
            X = self.encoder_.encode_frame(X)
        if not (hasattr(self, "encoder_") and isinstance(X, np.ndarray)):
            X = self._validate_features(X, reset=False)
        outputs = 1 if not hasattr(self, "classes_") else len(self.classes_)
        link = LINKS[self._link if outputs < 3 else "softmax"]
        network, parts = copy.deepcopy(self.network_).double(), []
        with torch.no_grad():
            for first in range(0, len(X), PREDICT_ROWS):
                block = (X[first : first + PREDICT_ROWS] - self.centre_) / self.scale_
                rows = torch.as_tensor(block.astype(np.float64))[None]
                parts.append(link(network(rows))[0].numpy())
        return np.asarray(np.concatenate(parts) * self.response_scale_ + self.response_centre_)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a new folder, as JSON and safetensors."""
        check_is_fitted(self)
        save_network(self, Path(path))

    # Parameters

    def _check_means(self, means: FloatArray) -> None:
        """Refuse responses that this model is not for."""

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


class _Regressor(TakesBags, RegressorMixin, _Network):
    def fit(self, X: Any, y: Any = None, bags: Any = None) -> Self:
        """Fit from rows and the means of their bags, from a Release, or from a table in files.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
            Or a Release or its path, without y and bags; or the path of a table, with the names of
            its columns for both.
        y : one mean a row, or a mapping or Series from bag id to mean
        bags : one id a row, or Bags; None makes every row its own bag
        """
        self._check_parameters()
        self.__dict__.pop("encoder_", None)
        source = _source(X, y, bags)
        if source is not None:
            return self.fit_release(source)
        X, means, groups = self._validate(X, y, bags, reset=True)
        self._check_means(means)
        self._fit(X, means[:, None], groups)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted response of each row, shape (n_rows,)."""
        found: FloatArray = self._means(X)[:, 0]
        return found


class _Classifier(TakesBags, ClassifierMixin, _Network):
    _link: ClassVar[str] = "sigmoid"
    _loss: ClassVar[str] = "log"

    def fit(self, X: Any, y: Any = None, bags: Any = None) -> Self:
        """Fit from rows and the shares of classes in their bags, or from labels of rows.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
            Or a Release or its path, without y and bags; or the path of a table, with the names of
            its columns for both.
        y : sequence
            With bags, the share of class 1 in the bag of each row, or a mapping or Series from bag
            id to share; of shape (n_rows, K), the share of each of K classes. Without bags, one
            label a row.
        bags : one id a row, or Bags; None makes every row its own bag
        """
        self._check_parameters()
        self.__dict__.pop("encoder_", None)
        source = _source(X, y, bags)
        if source is not None:
            self.classes_ = np.array([0, 1])
            return self.fit_release(source)
        if bags is None:
            X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
            check_classification_targets(y)
            self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
            if len(self.classes_) < 2:
                got = "one class"
                _check.refuse("y", "of at least two classes", got, "Nothing is to be learnt")
            means = np.eye(len(self.classes_))[codes]
            groups = Bags(np.arange(len(X)))
        else:
            table = np.asarray(y) if not hasattr(y, "items") else None
            if table is not None and table.ndim == 2:
                columns = [read_bags(column, bags, len(table)) for column in table.T]
                means, groups = np.column_stack([c[0] for c in columns]), columns[0][1]
                X = self._validate_features(X, True)
                if not np.allclose(means.sum(axis=1), 1):
                    got = "shares of classes that do not add up to 1"
                    _check.refuse("y", "the shares of all classes", got, "Add the one that lacks")
            else:
                X, share, groups = self._validate(X, y, bags, reset=True)
                means = np.column_stack([1 - share, share])
            self._check_means(means)
            self.classes_ = np.arange(means.shape[1])
        self._fit(X, means[:, 1:] if len(self.classes_) == 2 else means, groups)
        return self

    def _check_means(self, means: FloatArray) -> None:
        if means.min() < 0 or means.max() > 1:
            got = "others"
            _check.refuse("y", "shares from 0 to 1", got, "Divide counts by the size of the bag")

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class for each row, shape (n_rows, n_classes)."""
        found = np.clip(self._means(X), 0, 1)
        return np.column_stack([1 - found, found]) if found.shape[1] == 1 else found

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        found = self.predict_proba(X)
        return np.asarray(self.classes_[np.argmax(found, axis=1)])

    def score(self, X: Any, y: Any, bags: Any = None, sample_weight: Any = None) -> float:
        """Accuracy of rows; with bags, the share of the bag-level log loss that is explained.

        That is 1 − L / L₀, where L₀ has every bag at the overall share: 1 is perfect, 0 is no
        better than the share. X, y and bags as in `fit`, with two classes.
        """
        if bags is None:
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        predictions = self.predict_proba(X)[:, 1]
        share, groups = read_bags(y, bags, len(predictions))
        weights = groups.sizes if sample_weight is None else groups.sum(sample_weight)
        whole = np.full(len(share), weights @ share / weights.sum())
        found, known, least = (
            float(_log_loss(share, p) @ weights) for p in (groups.mean(predictions), whole, share)
        )
        return 1 - (found - least) / max(known - least, 1e-12)


def _log_loss(y: FloatArray, p: FloatArray) -> FloatArray:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return -y * np.log(p) - (1 - y) * np.log1p(-p)


def _source(X: Any, y: Any, bags: Any) -> Release | BagTable | None:
    """A Release or a table in files, when X is one; None for rows in memory."""
    if isinstance(X, str | PathLike) and y is not None and bags is not None:
        return BagTable(X, y, bags)
    if not isinstance(X, Release | BagTable | str | PathLike):
        return None
    if y is not None or bags is not None:
        got = "one beside a Release, or without the other"
        _check.refuse("y and bags", "both left out, or both given", got, "A Release has them")
    return Release.load(X) if isinstance(X, str | PathLike) else X


@dataclass(eq=False, repr=False)
class _MLP(_Network):
    hidden: Sequence[int] = (100,)

    def _network(self, inputs: int, outputs: int, seeds: Sequence[int]) -> Any:
        from bagwise.neural.networks import StackedMLP

        return StackedMLP((inputs, *self.hidden, outputs), seeds)

    def _widths(self) -> Sequence[int]:
        return tuple(self.hidden)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for width in self.hidden:
            _check.whole("hidden", width, low=1, remedy="Pass widths of layers, (100,) say")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in the folder is ever executed."""
        return load_network(cls(), Path(path))


@dataclass(eq=False, repr=False)
class _OwnModule(_Network):
    module: nn.Module | None = None

    def _network(self, inputs: int, outputs: int, seeds: Sequence[int]) -> Any:
        torch = need("torch", "neural")
        from bagwise.neural.networks import OwnModule

        if not isinstance(self.module, torch.nn.Module):
            got = f"a {type(self.module).__name__}"
            _check.refuse("module", "a torch.nn.Module", got, "Pass module=nn.Sequential(…), say")
        return OwnModule(copy.deepcopy(self.module), outputs)

    @classmethod
    def load(cls, path: str | PathLike[str], module: Any) -> Self:
        """Read what `save` wrote into a copy of ``module``, one of the same shape."""
        return load_network(cls(module=module), Path(path))


class AggregateMLPRegressor(_Regressor, _MLP):
    """Multilayer perceptron for responses that are known as means over bags.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers, with ReLU.
    rho : float in [0, 1] or "cv"
        0 is the bag-level loss, 1 the instance-level loss; "cv" trains one network for each of
        eight rhos at once and keeps the one with the lowest bag-level loss on held-out bags.
    kind : {"instance", "variance"}
        How to interpolate, as in `interpolating_loss`.
    learning_rate, weight_decay : float
        Of AdamW.
    schedule : {"cosine", "constant"}
        Of the learning rate.
    batch_size : int or "auto"
        Rows of a batch of whole bags; a larger bag is a batch of its own.
    epochs : int
        At most.
    early_stopping : bool
        Hold bags out, stop after ``patience`` epochs without a lower bag-level loss on them, and
        keep the best weights.
    patience : int
    validation_share : float
        Of the bags.
    standardise : bool
        Scale features, and for regression responses, from features and bag means alone.
    device : {"auto", "cpu", "cuda"}
    precision : {"auto", "float32", "tf32", "bf16"}
        Of matrix products; by default float32 on a CPU, and on a GPU bf16 with layers of at least
        128 and tf32 with smaller ones.
    random_state : int, RandomState or None
        Reproducible on a CPU.
    checkpoint : path
        File to write after each epoch and to go on from; remove it to start anew.
    progress : bool
        Show a bar.

    Attributes
    ----------
    rho_, rho_source_
        The rho in use, and where it comes from.
    held_out_losses_ : dict
        For each rho its bag-level loss on held-out bags, in standardised units.
    n_epochs_ : int

    Notes
    -----
    Guarantees: only means of bags enter; bags are never cut over two batches; bags of one row give
    ordinary training at every rho.
    Limits: squared loss. Rows of X are held in memory unless it is a Release or a table in files.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> bags = Bags.random(2000, 5, random_state=0)
    >>> means = bags.expand(bags.mean(np.abs(X[:, 0])))
    >>> model = AggregateMLPRegressor((32,), rho=0.01, learning_rate=0.01, random_state=0)
    >>> model.fit(X, means, bags).score(X, np.abs(X[:, 0])) > 0.9
    True
    """


class AggregateMLPClassifier(_Classifier, _MLP):
    """Multilayer perceptron for classes of which only shares in bags are known.

    Predicted probabilities are averaged over bags, never logits.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers, with ReLU.
    rho, kind, …
        As in `AggregateMLPRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1 where y is a share.
    rho_, rho_source_, held_out_losses_, n_epochs_
        As in `AggregateMLPRegressor`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> label = (X[:, 0] * X[:, 1] > 0).astype(float)
    >>> bags = Bags.random(2000, 5, random_state=0)
    >>> model = AggregateMLPClassifier((32,), rho=0.0, learning_rate=0.01, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """


class AggregateTorchRegressor(_Regressor, _OwnModule):
    """A network of your own for responses that are known as means over bags.

    Parameters
    ----------
    module : torch.nn.Module
        From float32 rows of shape (n, d) to (n,) or (n, 1). A copy is trained.
    rho, kind, …
        As in `AggregateMLPRegressor`.

    Notes
    -----
    Limits: "cv" trains a copy for each rho, one after the other. Layers that mix rows of a batch,
    batch normalisation say, mix bags too.

    Examples
    --------
    >>> from torch import nn
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    >>> bags = Bags.random(500, 5, random_state=0)
    >>> y = bags.expand(bags.mean(X.sum(axis=1)))
    >>> model = AggregateTorchRegressor(nn.Linear(3, 1), rho=0.0, learning_rate=0.05, epochs=50,
    ...                                 random_state=0)
    >>> model.fit(X, y, bags).score(X, y, bags) > 0.99
    True
    """


class AggregateTorchClassifier(_Classifier, _OwnModule):
    """A network of your own for classes of which only shares in bags are known.

    Parameters
    ----------
    module : torch.nn.Module
        From float32 rows of shape (n, d) to logits: (n,) or (n, 1) for two classes, else (n, K).
    rho, kind, …
        As in `AggregateMLPRegressor`.

    Examples
    --------
    >>> from torch import nn
    >>> X = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    >>> bags = Bags.random(500, 5, random_state=0)
    >>> share = bags.expand(bags.mean((X[:, 0] > 0).astype(float)))
    >>> model = AggregateTorchClassifier(nn.Linear(3, 1), rho=0.0, learning_rate=0.05, epochs=50,
    ...                                  random_state=0)
    >>> model.fit(X, share, bags).score(X, (X[:, 0] > 0).astype(int)) > 0.9
    True
    """
