"""Linear regression from bag means, with every rho from one decomposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise import _check
from bagwise._progress import Progress, silent
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.contract import TakesBags, source_of
from bagwise.estimators.information import read_noise, regression_weights, released_noise
from bagwise.estimators.saved import load_linear, save_linear
from bagwise.estimators.tuning import (
    RHOS,
    RhoPath,
    generalised_cross_validation,
    leave_one_out,
    log_evidence,
    theoretical_rho,
)
from bagwise.losses import check_rho
from bagwise.released import Release
from bagwise.row_groups import Sums
from bagwise.spectrum import Spectrum, spectrum_of_rows, spectrum_of_statistics
from bagwise.statistics import AggregateStatistics, FloatArray, Rows

CHOICES = ("loo", "gcv", "theory", "average")
#: ridges that "cv" tries, over the total variance of the features: noise over signal, were the
#: signal spread over all of them
RIDGES = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)


class AggregateLinearRegression(TakesBags, RegressorMixin, BaseEstimator):
    r"""Linear model for rows whose responses are known as means over bags.

    It minimises, over coefficients θ and intercept b,

        Σ_a k_a (ȳ_a − f̄_a)² + ρ Σ_i (f_i − f̄_a(i))² + ridge ‖θ‖²,    f_i = x_iᵀθ + b

    Parameters
    ----------
    rho : float in [0, 1], "loo", "gcv", "theory" or "average"
        0 is the bag-level loss (no bias, more variance), 1 the instance-level loss. "loo" chooses
        by exact leave-one-bag-out error, "gcv" by generalised cross-validation, "theory" by the
        least risk at the signal and noise that `estimate_snr` finds; "average" chooses none and
        averages the models of all, each as likely as the bag means make it (`log_evidence`). None
        sees a row's response.
    fit_intercept : bool
        Whether to fit b.
    ridge : float or "cv"
        Penalty on ‖θ‖², at least 0, in the units of scikit-learn's ``Ridge(alpha)``. "cv" tries
        six of them, 0 included, and takes the one of the least score, together with rho (or
        averages over both). It counts on features of one scale: put a ``StandardScaler`` before.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    rho_ : float
        The rho in use; of "average" the mean.
    rho_source_ : {"given", "loo", "gcv", "theory", "average"}
        Where `rho_` comes from. Statistics alone cannot leave a bag out, so after `fit_statistics`
        and `partial_fit` "loo" is answered by "gcv", and this says so.
    ridge_ : float
        The ridge in use; of "average" that of the least score, and so is the path.
    path_ : RhoPath
        Coefficients and scores at 101 rhos, at that ridge, with a ``plot()``.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    bag_weights_ : ndarray of shape (n_bags,) or None
        What a row of each bag weighed, where noise made bags differ; None where all weighed 1.
    encoder_ : Encoder
        After a fit from a Release: its columns, with the levels of text, for `predict`.

    Notes
    -----
    Guarantees: only the means of bags enter, in any order of rows; bags of one row give ordinary
    least squares (or ridge) at every rho. Directions of X are resolved down to a condition number
    of about 1e12.
    Limits: at rho = 0 with fewer bags than features the minimiser is not unique, and the limit
    ρ → 0⁺ is returned, which varies least within bags. Where X has no full rank, θ has the least
    norm.
    Reference: equation 7 of the paper, solved in closed form.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + 4.0
    >>> bags = Bags.random(1000, 10, random_state=0)
    >>> model = AggregateLinearRegression().fit(X, bags.expand(bags.mean(y)), bags)
    >>> model.coef_.round(2).tolist(), round(model.intercept_, 2)
    ([1.0, 2.0, 3.0], 4.0)
    """

    _accept_sparse = "csr"

    def __init__(
        self,
        rho: float | str = "loo",
        fit_intercept: bool = True,
        ridge: float | str = 0.0,
    ) -> None:
        self.rho = rho
        self.fit_intercept = fit_intercept
        self.ridge = ridge

    def fit(self, X: Any, y: Any = None, bags: Any = None, noise_scale: Any = None) -> Self:
        """Fit from rows and the means of their bags, from a Release, or from a table in files.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Or a Release, or its path, without y and bags; or the path of a table, with the names of
            its columns for both. Those are read in constant memory, text is one-hot encoded, and
            "loo" is answered by "gcv" as in `fit_statistics`.
        y : one mean a row, or a mapping or Series from bag id to mean
        bags : one id a row, or Bags; None makes every row its own bag
        noise_scale : number, one a row, or mapping or Series from bag id
            Scale of Laplace noise on the means, where they have any; a Release brings its own.
            Where it makes bags differ in what they tell beyond their size, they weigh by that.
        """
        self._check_parameters()
        self.__dict__.pop("encoder_", None)
        source = source_of(X, y, bags, noise_scale)
        if source is not None:
            return self.fit_release(source)
        X, responses, groups = self._validate(X, y, bags, reset=True)
        weights = regression_weights(responses, groups.sizes, read_noise(noise_scale, groups))
        self._fit_rows(Rows(X, responses, groups, weights))
        self.bag_weights_: FloatArray | None = weights
        return self

    def _fit_rows(self, rows: Rows) -> Self:
        """Fit to rows in memory."""
        statistics = rows.statistics
        self._refuse_one_bag(statistics)

        def spectrum_at(ridge: float) -> Spectrum:
            found = spectrum_of_statistics(statistics, self.fit_intercept, ridge)
            return found if found.trusted else spectrum_of_rows(rows, self.fit_intercept, ridge)

        def scores_of(spectrum: Spectrum) -> FloatArray:
            return leave_one_out(spectrum, rows, self.fit_intercept, RHOS)

        if self.rho == "gcv":
            return self._finish(statistics, spectrum_at, "gcv")
        return self._finish(statistics, spectrum_at, "loo", scores_of)

    def fit_release(
        self,
        release: Release | BagTable,
        features: Sequence[str] | None = None,
        progress: Progress = silent,
        engine: Sums | None = None,
    ) -> Self:
        """Fit from a Release or a BagTable, read once in constant memory.

        Parameters
        ----------
        release : Release or BagTable
        features : sequence of str
            Columns to take; by default all but those that make the bags. Text is one-hot encoded,
            its levels remembered.
        progress : callable
            Wraps the sums of row groups as they come back, to show a bar.
        engine : Engine
            What sums over the row groups of a Release; by default the cores of this machine.
        """
        self._check_parameters()
        if isinstance(release, BagTable):
            encoder = release.encoder(features)
            self.fit_statistics(release.statistics(encoder, progress))
            self.encoder_ = encoder
            return self
        whole = release.statement.features == "statistics" and features is None
        chosen = None if whole else release.encoder(features)
        weights = None
        if release.statement.features == "rows":
            noise = released_noise(release)
            weights = regression_weights(release.means, release.sizes, noise)
        self.fit_statistics(release.statistics(chosen, progress, engine, weights))
        self.bag_weights_ = weights
        if chosen is not None:
            self.encoder_ = chosen
        return self

    def fit_statistics(self, statistics: AggregateStatistics) -> Self:
        """Fit from A, W and c alone.

        Parameters
        ----------
        statistics : AggregateStatistics
            Of the training rows; directions of X are resolved down to a condition number of 1e6.
        """
        self._check_parameters()
        self._refuse_one_bag(statistics)
        self.__dict__.pop("encoder_", None)
        self.n_features_in_ = statistics.n_features
        self.__dict__.pop("feature_names_in_", None)
        if statistics.feature_names is not None:
            self.feature_names_in_ = np.array(statistics.feature_names, dtype=object)

        def spectrum_at(ridge: float) -> Spectrum:
            return spectrum_of_statistics(statistics, self.fit_intercept, ridge)

        return self._finish(statistics, spectrum_at, "gcv")

    def partial_fit(self, X: Any, y: Any, bags: Any = None) -> Self:
        """Add a batch of *whole* bags to those seen and fit again, in constant memory.

        Parameters as in `fit`. A bag split over two batches would count as two bags.
        """
        self._check_parameters()
        seen: AggregateStatistics | None = getattr(self, "statistics_", None)
        X, responses, groups = self._validate(X, y, bags, reset=seen is None)
        batch = Rows(X, responses, groups).statistics
        names = getattr(self, "feature_names_in_", None)
        batch = replace(batch, feature_names=None if names is None else tuple(names))
        statistics = batch if seen is None else seen + batch
        self.fit_statistics(statistics)
        self.statistics_ = statistics
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predicted response of each row, shape (n_rows,).

        After a fit from a Release, X may be a data frame or Arrow table with its columns.
        """
        check_is_fitted(self)
        if hasattr(self, "encoder_") and hasattr(X, "__arrow_c_stream__"):
            X = self.encoder_.encode_frame(X)
            if isinstance(X, np.ndarray):
                return self._forward(X)[:, 0]
        return self._forward(self._validate_features(X, reset=False))[:, 0]

    def _forward(self, X: Any) -> FloatArray:
        """Predicted means of rows that are numbers, shape (n_rows, 1)."""
        return np.asarray(X @ self.coef_ + self.intercept_)[:, None]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a new folder, as JSON and plain arrays."""
        save_linear(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in the folder is ever executed."""
        return load_linear(cls(), Path(path))

    def _check_parameters(self) -> None:
        if isinstance(self.rho, str):
            if self.rho not in CHOICES:
                got = f"rho={self.rho!r}"
                rule = "in [0, 1], 'loo', 'gcv', 'theory' or 'average'"
                _check.refuse("rho", rule, got, "Check the spelling")
        else:
            check_rho(self.rho)
        if not isinstance(self.fit_intercept, bool | np.bool_):
            got = f"fit_intercept={self.fit_intercept!r}"
            _check.refuse("fit_intercept", "True or False", got, "True is usual")
        if isinstance(self.ridge, str):
            if self.ridge != "cv":
                got = f"ridge={self.ridge!r}"
                _check.refuse("ridge", "at least 0 or 'cv'", got, "Check the spelling")
        else:
            _check.number("ridge", self.ridge, low=0, high=np.finfo(float).max, remedy="0 is none")

    def _refuse_one_bag(self, statistics: AggregateStatistics) -> None:
        if isinstance(self.rho, str) and statistics.n_bags < 2:
            got = f"rho={self.rho!r} with n_bags=1 (n_samples=1 where bags is None)"
            _check.refuse("rho", "a number when there is one bag", got, "Pass rho=1.0, say")

    def _finish(
        self,
        statistics: AggregateStatistics,
        spectrum_at: Callable[[float], Spectrum],
        method: str,
        scores_of: Callable[[Spectrum], FloatArray] | None = None,
    ) -> Self:
        """Fitted attributes from the decomposition at the best ridge and the scores of its path."""
        self.__dict__.pop("statistics_", None)
        self.bag_weights_ = None
        known: float | None = None if isinstance(self.rho, str) else float(self.rho)
        if self.rho == "theory":
            known = theoretical_rho(statistics)
        least = np.inf
        every: list[tuple[FloatArray, FloatArray]] = []
        for number, ridge in enumerate(self._ridges(statistics)):
            candidate = spectrum_at(ridge)
            if scores_of is None:
                tried = generalised_cross_validation(
                    candidate, statistics, self.fit_intercept, RHOS
                )
            else:
                tried = scores_of(candidate)
            if self.rho == "average":
                told = log_evidence(candidate, statistics, self.fit_intercept, RHOS)
                every.append((told, candidate.coef(RHOS)))
            reached = _least(tried, known)
            # The first is kept where nothing can be told.
            if number == 0 or reached < least:
                spectrum, scores, least, self.ridge_ = candidate, tried, reached, ridge
        coefficients = spectrum.coef(RHOS)
        path = RhoPath(
            RHOS, coefficients, self._intercept(statistics, coefficients), scores, method, np.nan
        )
        chosen = self.rho if self.rho in ("theory", "average") else method
        self.rho_source_ = str(chosen) if isinstance(self.rho, str) else "given"
        self.rho_ = path.best_rho if known is None else known
        if self.rho == "average":
            told = np.array([told for told, _ in every])
            #: how likely features make the bag means, to hold them against others
            self._log_evidence = float(logsumexp(told) - np.log(told.size))
            shares = _shares(told)
            self.coef_ = sum(
                share @ of_ridge for share, (_, of_ridge) in zip(shares, every, strict=True)
            )
            self.rho_ = float(sum(share @ RHOS for share in shares))
        else:
            self.coef_ = spectrum.coef(np.array([self.rho_]))[0]
        self.path_ = replace(path, rho=self.rho_)
        self.intercept_ = float(self._intercept(statistics, self.coef_))
        return self

    def _ridges(self, statistics: AggregateStatistics) -> list[float]:
        """The ridge that is given, or those to try, over the total variance of the features.

        An average leaves 0 out, for its evidence cannot be held against that of others.
        """
        if not isinstance(self.ridge, str):
            return [float(self.ridge)]
        unit = float(np.trace(statistics.between + statistics.within)) / statistics.n_rows
        return [share * (unit or 1.0) for share in RIDGES if share or self.rho != "average"]

    def _intercept(self, statistics: AggregateStatistics, coef: FloatArray) -> Any:
        """ȳ − x̄ᵀθ for one coefficient vector or one a row."""
        if not self.fit_intercept:
            return np.zeros(coef.shape[:-1])
        return statistics.response_mean - coef @ statistics.mean

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _least(scores: FloatArray, rho: float | None) -> float:
    """The score at a known rho, or the least of the path; infinite where nothing is told."""
    if np.isnan(scores).all():
        return np.inf
    return float(np.nanmin(scores) if rho is None else np.interp(rho, RHOS, scores))


def _shares(table: FloatArray) -> FloatArray:
    """Share of each model in an average by its evidence, of ridges in rows and rhos in columns."""
    best = table.max()
    # Where each row is its own bag, and there is no ridge, all rhos are one model.
    found = np.exp(table - best) if np.isfinite(best) else np.ones_like(table)
    return np.asarray(found / found.sum())
