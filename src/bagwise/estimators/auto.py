"""The two names to type first: several kinds of models, weighed by bags that they have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise import _check
from bagwise._extras import need
from bagwise._progress import bar, silent
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.categories import (
    Categories,
    check_categorical_features,
    refuse_named_categories,
)
from bagwise.estimators.contract import whole_or_not
from bagwise.estimators.information import bag_weights, read_noise, released_noise
from bagwise.estimators.members import MEMBERS, Asked, Member, Training, known, lacking
from bagwise.estimators.saved_members import load_members, save_members
from bagwise.estimators.tabular import TabularClassifier, TabularRegressor
from bagwise.estimators.trial import MEAN, Trial
from bagwise.released import Release

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class Automatic(BaseEstimator):
    """What both share; subclasses say what they predict."""

    models: Sequence[str] | None = None
    time_limit: float = 120.0
    categorical_features: str | Sequence[str | int] | None = "auto"
    random_state: Any = None
    n_jobs: int | None = None
    progress: bool = False

    _classes: ClassVar[bool] = False

    # Fitting

    def _fit(self, X: Any, means: FloatArray, bags: Bags, noise_scale: Any) -> None:
        """Try models on rows in memory, with means of shape (m, K)."""
        self._try(X, means, bags, read_noise(noise_scale, bags))

    def _try(self, X: Any, means: FloatArray, bags: Bags, noise: FloatArray | None) -> None:
        """The same, with the scale of the noise on each mean, shape (m,)."""
        if bags.n_bags < 2:
            got = "one bag (n_samples=1 where bags is None)"
            _check.refuse("bags", "two or more", got, "A single mean says nothing of features")
        weights = bags.sizes.astype(np.float64)
        if noise is not None:
            weights *= bag_weights(bags.sizes, noise, self._variance(means, bags.sizes, noise))
        encoder: Categories | None = getattr(self, "encoder_", None)
        names = known(self._classes) if self.models is None else list(self.models)
        lacks = {name: lacking(name) for name in names if lacking(name)}
        trial = Trial(
            Training(np.asarray(X, dtype=np.float64), means, bags, noise),
            [name for name in names if name not in lacks],
            Asked(
                self._classes,
                [] if encoder is None else encoder.places,
                int(check_random_state(self.random_state).randint(2**30)),
                self.n_jobs,
            ),
            float(self.time_limit),
            weights,
        )
        trial.left_out = {name: f"it needs bagwise[{extra}]" for name, extra in lacks.items()}
        show = bar("Trying models", at_most=True) if self.progress else silent
        for _ in show(trial.steps(), len(trial.names) * 6):
            pass
        self.members_, self.weights_, self.mean_ = trial.members, trial.weights, trial.centre
        self.held_out_losses_ = trial.losses
        self.report_ = _report(trial)

    def fit_release(
        self, release: Release | BagTable, features: Sequence[str] | None = None
    ) -> Self:
        """Fit from a Release or a BagTable, whose rows are read into memory.

        Parameters
        ----------
        release : Release or BagTable
            The noise of a Release weighs its bags.
        features : sequence of str
            Columns to take; by default all. Text becomes categories.
        """
        self._check_parameters()
        refuse_named_categories(self.categorical_features)
        with whole_or_not(self):
            encoder = Categories(release.encoder(features).columns)
            self.encoder_ = encoder
            self.feature_names_in_ = np.array(encoder.names, dtype=object)
            self.n_features_in_ = len(encoder.names)
            means, columns = self._released_means(release)[:, None], list(encoder.columns)
            X = np.concatenate([encoder.encode(g.read(columns)) for g in release.row_groups()])
            bags = Bags(np.repeat(np.arange(len(means)), release.sizes))
            self._try(X, means, bags, released_noise(release))
        return self

    # Predicting

    def _means(self, X: Any) -> FloatArray:
        """Predicted means of rows, shape (n, K)."""
        check_is_fitted(self)
        return self._forward(self._validate_features(X, reset=False))

    def _forward(self, X: Any) -> FloatArray:
        """Predicted means of rows that are numbers, in the order of the features."""
        codes = np.asarray(X, dtype=np.float64)
        parts = [self.weights_[name] * one.means(codes) for name, one in self.members_.items()]
        found = np.sum(parts, axis=0) + self.weights_.get(MEAN, 0.0) * self.mean_
        if found.shape[1] > 1:
            # Linear models of shares, and noisy shares, need not add up to 1.
            found = np.maximum(found, 1e-9)
            found = found / found.sum(axis=1, keepdims=True)
        return np.asarray(found)

    # Files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a new folder: JSON, and a folder for each model it is made of."""
        check_is_fitted(self)
        save_members(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in the folder is ever executed."""
        return load_members(cls(), Path(path))

    # Parameters

    def _check_parameters(self) -> None:
        names = known(self._classes)
        chosen = names if self.models is None else self.models
        remedy = f"Known are {', '.join(names)}"
        if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not chosen:
            _check.refuse("models", "a list of names", f"models={self.models!r}", remedy)
        for name in chosen:
            _check.choice("models", name, names)
            if self.models is not None and lacking(name):
                need(str(MEMBERS[name][1]), lacking(name))
        limit = self.time_limit
        _check.number("time_limit", limit, low=0, above=True, remedy="120 is usual, in seconds")
        check_categorical_features(self.categorical_features)


class AggregateRegressor(TabularRegressor, Automatic):
    """The model to start with, for responses that are known as means over bags.

    It fits a linear model, boosted trees and a neural network, lets each predict bags that it has
    not seen, and averages their predictions and the overall mean with weights that those bags speak
    for. `report_` says in words what was tried.

    Parameters
    ----------
    models : sequence of {"linear", "boosted", "neural"}
        What to try, in this order; by default all that is installed.
    time_limit : float
        Seconds after which no more work is begun, so about what a fit takes: a model that would
        take longer is left out, and the report says so. The first model is fitted in any case.
        Where time decides, fits of one seed may differ; with ``inf`` they never do.
    categorical_features : "auto", None, or sequence of names or places
        Columns whose values are levels without an order; "auto" takes those of text and pandas'
        categories. A level that was not seen counts as missing.
    random_state : int, RandomState or None
    n_jobs : int
        Threads of boosting; by default all cores.
    progress : bool
        Show a bar.

    Attributes
    ----------
    report_ : str
        What was tried, how well it did on bags held out, and what each model says.
    weights_ : dict
        For each model its share in the prediction; with more than one also for "mean".
    held_out_losses_ : dict
        For each of them the mean squared error of the means of bags that it had not seen.
    mean_ : ndarray of shape (1,)
        The overall mean.
    members_ : dict
        For each model a `Member`, whose ``models`` are the fitted estimators.

    Notes
    -----
    Guarantees: only means of bags enter; weights are at least 0 and 1 in all.
    Limits: rows are held in memory. Where bags are not random, what predicts bags best need not
    predict rows best.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> response = np.abs(X[:, 0]) + X[:, 1]
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> model = AggregateRegressor(models=["linear", "boosted"], random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(response)), bags).score(X, response) > 0.8
    True
    """

    _accept_sparse: ClassVar[str | bool] = False


class AggregateClassifier(TabularClassifier, Automatic):
    """The model to start with, for classes of which only shares in bags are known.

    Linear regression of shares, logistic regression, boosted trees and a neural network, weighed as
    in `AggregateRegressor`; it averages their probabilities.

    Parameters
    ----------
    models : sequence of {"linear", "logistic", "boosted", "neural"}
    time_limit, categorical_features, random_state, n_jobs, progress
        As in `AggregateRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1 where y is a share.
    report_, weights_, held_out_losses_, mean_, members_
        As in `AggregateRegressor`.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> label = (X[:, 0] > 0).astype(float)
    >>> bags = Bags.random(2000, 5, random_state=0)
    >>> model = AggregateClassifier(models=["linear", "boosted"], random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.9
    True
    """

    _accept_sparse: ClassVar[str | bool] = False
    _classes: ClassVar[bool] = True


def _report(trial: Trial) -> str:
    """What was tried, in words."""
    bags, losses = trial.training.bags, trial.losses
    lines = [f"Tried on {bags.n_bags:,} bags of {bags.n_rows:,} rows."]
    if losses:
        lines = [
            f"Tried on {bags.n_bags:,} bags of {bags.n_rows:,} rows; {trial.n_held_out:,} bags "
            "were held out in turn, and how much of their means each explains decides its weight."
        ]
    for name, weight in trial.weights.items():
        words = f"  {name}: weight {weight:.2f}"
        if name == MEAN:
            words += ", the same for every row"
        else:
            if losses:
                words += f", explains {_explained(losses[name], losses[MEAN])}"
            words += f" ({_said(trial.members[name])})"
        lines.append(f"{words}.")
    lines += [f"  {name}: left out; {reason}." for name, reason in trial.left_out.items()]
    if losses:
        lines.append(f"Together they explain {_explained(trial.joint, losses[MEAN])}.")
    return "\n".join(lines)


def _explained(loss: float, of_mean: float) -> str:
    """How much less than the overall mean something errs."""
    return f"{1 - loss / of_mean:.1%}" if of_mean > 0 else "nothing, for all means are equal"


def _said(member: Member) -> str:
    """What a member is, and the rho that it chose."""
    first, count = member.models[0], len(member.models)
    times = f"{count} " if count > 1 else ""
    return f"{times}{type(first).__name__}, rho = {first.rho_:.3g}"
