"""Logistic and Poisson regression from bag means."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from bagwise import _check
from bagwise._progress import bar, silent
from bagwise.bags import Bags
from bagwise.engines.bag_table import BagTable
from bagwise.estimators.calibration import check_calibrate, fit_calibration
from bagwise.estimators.choice import cross_validate
from bagwise.estimators.classes import Classifies, released_shares
from bagwise.estimators.contract import FloatArray, TakesBags, source_of, whole_or_not
from bagwise.estimators.glm_problem import Problem, Solution, means_of
from bagwise.estimators.information import bag_weights, read_noise, released_noise
from bagwise.estimators.ridge_average import average_ridges
from bagwise.estimators.saved import load_generalised, save_generalised
from bagwise.losses import KINDS, check_rho
from bagwise.released import Release
from bagwise.statistics import read_bags

LIKELIHOODS = ("count", "mean")
# Entries of X below which linear algebra keeps to one thread.
SMALL = 2**22


class Generalised(TakesBags, BaseEstimator):
    """What both share: the choice of rho and ridge, the fit, linear predictors, files."""

    _accept_sparse: ClassVar[str | bool] = "csr"
    _link: ClassVar[str]
    _ridges: ClassVar[tuple[str, ...]] = ("cv",)
    rho: float | str
    ridge: float | str
    kind: str
    fit_intercept: bool
    tol: float
    max_iter: int
    progress: bool

    def fit(self, X: Any, y: Any = None, bags: Any = None, noise_scale: Any = None) -> Self:
        """Fit from rows and the means of their bags, from a Release, or from a table in files.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Or a Release, or its path, without y and bags; or the path of a table, with the names of
            its columns for both. Their rows are read into memory, and text is one-hot encoded.
        y : one mean a row, or a mapping or Series from bag id to mean
            Of a classifier, shares: of class 1, or in shape (n_rows, K) of each of K classes, named
            by the columns of a data frame. Without bags, one label a row.
        bags : one id a row, or Bags; None makes every row its own bag
        noise_scale : number, one a row, or mapping or Series from bag id
            Scale of Laplace noise on the means, where they have any; a Release brings its own.
        """
        self._check_parameters()
        source = source_of(X, y, bags, noise_scale)
        if source is not None:
            return self.fit_release(source)
        with whole_or_not(self):
            self.__dict__.pop("encoder_", None)
            X, means, groups = self._read(X, y, bags, noise_scale is not None)
            self._fit(X, means, groups, read_noise(noise_scale, groups))
        return self

    def fit_release(
        self, release: Release | BagTable, features: Sequence[str] | None = None
    ) -> Self:
        """Fit from a Release or a BagTable, whose rows are read into memory.

        Parameters
        ----------
        release : Release or BagTable
        features : sequence of str
            Columns to take; by default all. Text is one-hot encoded, its levels remembered.
        """
        self._check_parameters()
        with whole_or_not(self):
            encoder, groups = release.encoder(features), release.row_groups()
            columns = list(encoder.columns)
            X = np.concatenate([encoder.encode(group.read(columns)) for group in groups])
            means = self._released(release)[:, None]
            bags = Bags(np.repeat(np.arange(len(release.sizes)), release.sizes))
            self.n_features_in_ = len(encoder.names)
            self.feature_names_in_ = np.array(encoder.names, dtype=object)
            self.encoder_ = encoder
            self._fit(X, means, bags, released_noise(release))
        return self

    def _read(self, X: Any, y: Any, bags: Any, noisy: bool) -> tuple[Any, FloatArray, Bags]:
        raise NotImplementedError

    def _released(self, release: Release | BagTable) -> FloatArray:
        raise NotImplementedError

    def _variance(self, problem: Problem) -> float:
        """Of a row's response at the overall means."""
        raise NotImplementedError

    def _fit(self, X: Any, means: FloatArray, bags: Bags, noise: FloatArray | None) -> None:
        # What fits in cache is slower on several threads than on one.
        entries = X.nnz if hasattr(X, "nnz") else X.size
        with threadpool_limits(1 if entries < SMALL else None):
            self._minimise(X, means, bags, noise)

    def _minimise(self, X: Any, means: FloatArray, bags: Bags, noise: FloatArray | None) -> None:
        if (isinstance(self.rho, str) or isinstance(self.ridge, str)) and bags.n_bags < 2:
            name = "rho" if isinstance(self.rho, str) else "ridge"
            got = f"{name}={getattr(self, name)!r} with n_bags=1 (n_samples=1 where bags is None)"
            _check.refuse(name, "a number when there is one bag", got, f"Pass {name}=1.0, say")
        single = bags.n_bags == bags.n_rows
        problem = self.problem(X, means, bags, noise)
        if self.ridge == "average":
            self._average(problem)
            return
        # Rows by themselves have the same loss at every rho, and at 1 it is known to be convex.
        rho: float | str = 1.0 if single and self.rho == "cv" else self.rho
        if isinstance(rho, str) or isinstance(self.ridge, str):
            show = bar("Trying rho and ridge") if self.progress else silent
            self.path_ = cross_validate(problem, rho, self.ridge, self.max_iter, self.tol, show)
            self.rho_, self.ridge_ = self.path_.rho, self.path_.ridge
        else:
            self.__dict__.pop("path_", None)
            self.rho_, self.ridge_ = float(rho), float(self.ridge)
        source = "cv" if isinstance(rho, str) else "given"
        self.rho_source_ = "bags of one row" if single and self.rho == "cv" else source
        penalty = self.ridge_ / bags.n_rows
        found = problem.solve(self.rho_, penalty, self.max_iter, self.tol)
        self.n_iter_, self.objective_ = found.n_iter, found.objective
        self._take(self._finished(problem, found, penalty))

    def _average(self, problem: Problem) -> None:
        """The fit that chooses no ridge."""
        self.__dict__.pop("path_", None)
        found = average_ridges(problem, self.max_iter, self.tol)
        self.rho_, self.rho_source_, self.ridge_ = 0.0, "given", found.ridge
        self.n_iter_, self.objective_ = found.solution.n_iter, found.solution.objective
        #: how likely features make the counts, to hold them against others
        self._log_evidence = found.total
        penalty = self.ridge_ / problem.bags.n_rows
        self._take(self._finished(problem, found.solution, penalty))

    def problem(self, X: Any, means: FloatArray, bags: Bags, noise: FloatArray | None) -> Problem:
        """What is minimised over rows X with means of shape (n_bags, K)."""
        single = bags.n_bags == bags.n_rows
        problem = Problem(
            X=X.astype(np.float64, copy=False),
            means=means,
            bags=bags,
            link="softmax" if means.shape[1] > 1 else self._link,
            likelihood=self._likelihood(means, single and noise is None),
            kind="instance" if single else self.kind,
            fit_intercept=bool(self.fit_intercept),
            weights=np.ones(bags.n_bags),
            noise=noise,
        )
        if noise is None:
            return problem
        return problem.weighted(bag_weights(bags.sizes, noise, self._variance(problem)))

    def _likelihood(self, means: FloatArray, plain: bool) -> str:
        """Of the bag-level part."""
        return "mean"

    def _finished(self, problem: Problem, found: Solution, penalty: float) -> Solution:
        """The solution as it is kept."""
        return found

    def _take(self, found: Solution) -> None:
        self.coef_: FloatArray = found.coef
        self.intercept_: Any = found.intercept

    def _eta(self, X: Any) -> FloatArray:
        """Linear predictors of rows that are numbers, shape (n_rows, K)."""
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_)

    def _forward(self, X: Any) -> FloatArray:
        """Predicted means of rows that are numbers, shape (n_rows, K)."""
        eta = self._eta(X)
        return means_of(eta, "softmax" if eta.shape[1] > 1 else self._link)

    def _means(self, X: Any) -> FloatArray:
        """Predicted means of rows, shape (n_rows, K)."""
        check_is_fitted(self)
        if hasattr(self, "encoder_") and hasattr(X, "__arrow_c_stream__"):
            X = self.encoder_.encode_frame(X)
            if isinstance(X, np.ndarray):
                return self._forward(X)
        return self._forward(self._validate_features(X, reset=False))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a new folder, as JSON and plain arrays."""
        check_is_fitted(self)
        save_generalised(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in the folder is ever executed."""
        return load_generalised(cls(), Path(path))

    def _check_parameters(self) -> None:
        if isinstance(self.rho, str) and self.rho != "cv":
            _check.refuse("rho", "in [0, 1] or 'cv'", f"rho={self.rho!r}", "Check the spelling")
        if isinstance(self.ridge, str) and self.ridge not in self._ridges:
            *some, last = ["at least 0", *(repr(word) for word in self._ridges)]
            rule = f"{', '.join(some)} or {last}"
            _check.refuse("ridge", rule, f"ridge={self.ridge!r}", "Check the spelling")
        if not isinstance(self.rho, str):
            check_rho(self.rho)
        if not isinstance(self.ridge, str):
            _check.number("ridge", self.ridge, low=0, high=1e100, remedy="0 is none")
        _check.choice("kind", self.kind, KINDS)
        if not isinstance(self.fit_intercept, bool | np.bool_):
            got = f"fit_intercept={self.fit_intercept!r}"
            _check.refuse("fit_intercept", "True or False", got, "True is usual")
        _check.number("tol", self.tol, low=0, above=True, remedy="1e-4 is usual")
        _check.whole("max_iter", self.max_iter, low=1, remedy="500 is usual")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class AggregateLogisticRegression(Classifies, Generalised):
    r"""Logistic regression for classes of which only shares in bags are known.

    It minimises, over coefficients θ and intercepts b,

        (1−ρ) L_bag + ρ L_ins + (ridge / 2n) ‖θ‖²,    p_i = 1 / (1 + exp(−x_iᵀθ − b))

    where L_bag is −(1/n) Σ_a log P(count of bag a), and L_ins the log loss of each row against the
    share of its bag. Probabilities are averaged or added up over bags, never logits.

    Parameters
    ----------
    rho : float in [0, 1] or "cv"
        0 is the bag-level loss, 1 the instance-level loss; "cv" tries eight of them on held-out
        bags, five times, by the bag-level loss.
    ridge : float, "cv" or "average"
        Penalty on ‖θ‖², in the units of scikit-learn's ``LogisticRegression(C=1 / ridge)``; "cv"
        tries seven of them at rho = 0 first, and takes the strongest that does as well as the best
        but for chance. "average" chooses none and averages nine, each as likely as it makes the
        counts of bags: faster, and better where bags are few; for two classes, with rho = 0.
        Both count on features of one scale: put a ``StandardScaler`` before.
    likelihood : {"count", "mean"}
        "count" is the probability of the bag's count (`count_loss`), in which bags of sure rows
        tell more, and noise of a release is part of the likelihood; "mean" is the log loss of the
        mean probability, also what more than two classes have.
    kind : {"instance", "variance"}
        How to interpolate, as in `interpolating_loss`.
    calibrate : None or "bags"
        Stretch and shift the logits so that rows a fit did not see have the least bag-level loss:
        a large rho draws probabilities to the middle, and this undoes it. Costs five more fits.
    fit_intercept : bool
    tol : float
        A fit stops where no scaled partial derivative of the objective is larger.
    max_iter : int
        Iterations at most, past which there is a warning.
    progress : bool
        Show a bar while rho and ridge are chosen.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1 where y is a share.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    rho_, ridge_ : float
        The ones in use; of an average the likeliest ridge.
    rho_source_ : {"given", "cv", "bags of one row"}
    path_ : CrossValidation
        What was tried and how it did, where something was chosen; ``print`` it for a sentence.
    n_iter_, objective_
        Of the last fit.

    Notes
    -----
    Guarantees: bags of one row give ordinary logistic regression. The objective is convex at
    rho = 1; below it need not be, and the best minimum from three starts is taken, each followed
    until its gradient is small.
    Limits: rows are held in memory as float64. The likelihood of counts has rows of a bag as
    independent given their features; where a bag acts on its rows (a day, a school), its counts
    vary more than that, which it takes for rows near one half: pass likelihood="mean" there.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> label = (X @ [2.0, -1.0] + rng.logistic(size=2000) > 0).astype(float)
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> model = AggregateLogisticRegression(rho=0.0, ridge=1.0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.8
    True
    """

    _link: ClassVar[str] = "sigmoid"
    _ridges: ClassVar[tuple[str, ...]] = ("cv", "average")

    def __init__(
        self,
        rho: float | str = "cv",
        ridge: float | str = "cv",
        likelihood: str = "count",
        kind: str = "instance",
        calibrate: str | None = None,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 500,
        progress: bool = False,
    ) -> None:
        self.rho = rho
        self.ridge = ridge
        self.likelihood = likelihood
        self.kind = kind
        self.calibrate = calibrate
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.progress = progress

    def _read(self, X: Any, y: Any, bags: Any, noisy: bool) -> tuple[Any, FloatArray, Bags]:
        X, shares, groups = self._validate_classes(X, y, bags, noisy)
        if self.ridge == "average" and shares.shape[1] > 1:
            got = f"'average' for {shares.shape[1]} classes"
            _check.refuse("ridge", "a number or 'cv' past two classes", got, "Pass 'cv'")
        return X, shares, groups

    def _released(self, release: Release | BagTable) -> FloatArray:
        self.classes_ = np.array([0, 1])
        # The likelihood of counts knows of noise, and needs no clipping.
        return released_shares(release, clip=self.likelihood == "mean")

    def _likelihood(self, means: FloatArray, plain: bool) -> str:
        return "mean" if plain or means.shape[1] > 1 else self.likelihood

    def _variance(self, problem: Problem) -> float:
        return float((problem.average * (1 - problem.average)).mean())

    def _finished(self, problem: Problem, found: Solution, penalty: float) -> Solution:
        if self.calibrate is None or problem.bags.n_bags < 2:
            return found
        # About the mean of the rows: intercepts of folds lean away from the bags they leave out.
        centre = np.asarray(problem.X.mean(axis=0)).ravel()
        eta = np.empty((problem.bags.n_rows, problem.means.shape[1]))
        for train, held, rows in problem.folds():
            fold = train.descend(self.rho_, penalty, found, self.max_iter, self.tol)
            eta[rows] = held.linear(fold.coef, -fold.coef @ centre)
        a, b = fit_calibration(eta, problem)
        coef = a * found.coef
        return Solution(coef, b - coef @ centre, found.objective, found.n_iter)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _check.choice("likelihood", self.likelihood, LIKELIHOODS)
        if self.ridge == "average":
            remedy = "An average is over what makes counts likely: pass rho=0.0 with it"
            if isinstance(self.rho, str) or self.rho != 0:
                _check.refuse("rho", "0 with ridge='average'", f"rho={self.rho!r}", remedy)
            if self.likelihood != "count":
                got = f"likelihood={self.likelihood!r}"
                _check.refuse("likelihood", "'count' with ridge='average'", got, "Or pass 'cv'")
        check_calibrate(self.calibrate)


class AggregatePoissonRegressor(RegressorMixin, Generalised):
    r"""Poisson regression for counts or rates that are known as means over bags.

    It minimises, over coefficients θ and intercept b,

        (1−ρ) L_bag + ρ L_ins + (ridge / 2n) ‖θ‖²,    f_i = exp(x_iᵀθ + b)

    with the Poisson loss f − ȳ log f of mean rates (L_bag) and of each row's (L_ins).

    Parameters
    ----------
    rho, ridge, kind, fit_intercept, tol, max_iter, progress
        As in `AggregateLogisticRegression`; ridge is n times the ``alpha`` of scikit-learn's
        ``PoissonRegressor``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    rho_, ridge_, rho_source_, path_, n_iter_, objective_
        As in `AggregateLogisticRegression`.

    Notes
    -----
    Guarantees: bags of one row give ordinary Poisson regression. The sum of independent Poisson
    counts is one, so that at rho = 0 this is the likelihood of the bags' totals.
    Limits: means below 0, which noise may bring, count as 0, so that with much noise and rare
    events rates come out too large; for shares of 0 and 1 `AggregateLogisticRegression` has none
    of that.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> count = rng.poisson(np.exp(X @ [1.0, -0.5]))
    >>> bags = Bags.random(2000, 8, random_state=0)
    >>> model = AggregatePoissonRegressor(rho=0.0, ridge=1.0)
    >>> model.fit(X, bags.expand(bags.mean(count)), bags).coef_.round(1).tolist()
    [1.0, -0.5]
    """

    _link: ClassVar[str] = "exp"

    def __init__(
        self,
        rho: float | str = "cv",
        ridge: float | str = "cv",
        kind: str = "instance",
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 500,
        progress: bool = False,
    ) -> None:
        self.rho = rho
        self.ridge = ridge
        self.kind = kind
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.progress = progress

    def predict(self, X: Any) -> FloatArray:
        """Predicted rate of each row, shape (n_rows,)."""
        found: FloatArray = self._means(X)[:, 0]
        return found

    def score(self, X: Any, y: Any, bags: Any = None, sample_weight: Any = None) -> float:
        """Share of the Poisson deviance of bag means that is explained; of rows without bags.

        X, y and bags as in `fit`. A bag weighs as much as its rows: 1 each, or their
        ``sample_weight``.
        """
        predictions = self.predict(X)
        means, groups = read_bags(y, bags, len(predictions))
        weights = groups.sizes if sample_weight is None else groups.sum(sample_weight)
        rates = np.maximum(groups.mean(predictions), np.finfo(float).tiny)
        return float(d2_tweedie_score(means, rates, sample_weight=weights, power=1))

    def _read(self, X: Any, y: Any, bags: Any, noisy: bool) -> tuple[Any, FloatArray, Bags]:
        X, means, groups = self._validate(X, y, bags, reset=True)
        _check_rates(means, noisy)
        return X, means[:, None], groups

    def _released(self, release: Release | BagTable) -> FloatArray:
        _check_rates(release.means, released_noise(release) is not None)
        return release.means

    def _variance(self, problem: Problem) -> float:
        return float(problem.average[0])

    def _take(self, found: Solution) -> None:
        self.coef_, self.intercept_ = found.coef[0], float(found.intercept[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _check_rates(means: FloatArray, noisy: bool) -> None:
    if means.min() < 0 and not noisy:
        _check.refuse("y", "at least 0", "negative means", "Counts and rates have none")
    if not np.maximum(means, 0).any():
        _check.refuse("y", "above 0 in some bag", "0 in all", "Nothing is to be learnt")
