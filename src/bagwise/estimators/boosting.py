"""Boosted trees from bags, with scikit-learn's contract. Needs `bagwise[boosting]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bagwise.estimators.boosted import Boosting
from bagwise.estimators.tabular import TabularClassifier, TabularRegressor


class AggregateBoostingRegressor(TabularRegressor, Boosting):
    """Gradient boosting for responses that are known as means over bags, on LightGBM.

    Parameters
    ----------
    rho : float in [0, 1] or "cv"
        0 is the bag-level loss, 1 the instance-level loss; "cv" tries 0, .001, .01, .1 and 1 and
        keeps the one with the lowest bag-level loss on held-out bags.
    kind : {"instance", "variance"}
        How to interpolate, as in `interpolating_loss`.
    n_estimators : int
        Rounds, at most.
    learning_rate : float in (0, 1]
    num_leaves : int or "auto"
        Of a tree: by default √m / 6 for m bags, from 4 to 31, and 31 without bags.
    min_child_samples, reg_lambda, colsample_bytree
        As in LightGBM: rows of a leaf, the penalty on squared leaves, and the share of columns that
        a tree looks at.
    categorical_features : "auto", None, or sequence of names or places
        Columns whose values are levels without an order; "auto" takes those of text and pandas'
        categories. A level that was not seen counts as missing.
    monotone_constraints : sequence of -1, 0 and 1, or dict from name
        Whether predictions must fall or rise with a column.
    early_stopping : bool
        Hold bags out, stop after ``patience`` rounds without a lower bag-level loss on them, and
        grow as many rounds as were best on all bags.
    patience : int
    validation_share : float
        Of the bags.
    random_state : int, RandomState or None
    n_jobs : int
        Threads; by default all cores.
    progress : bool
        Show a bar.

    Attributes
    ----------
    rho_, rho_source_
        The rho in use, and where it comes from.
    held_out_losses_ : dict
        For each rho its bag-level loss on held-out bags.
    n_estimators_ : int
    importances_ : dict
        Share of each column in the gain of splits.

    Notes
    -----
    Guarantees: only means of bags enter; bags of one row give the trees of LightGBM's own
    objective; a step along which the bag-level loss would rise is shortened.
    Limits: squared loss. In bags that are not random, splits between whole bags look better than
    they are by up to their size.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> response = np.abs(X[:, 0]) + X[:, 1]
    >>> bags = Bags.random(4000, 10, random_state=0)
    >>> model = AggregateBoostingRegressor(rho=0.0, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(response)), bags).score(X, response) > 0.8
    True
    """


@dataclass(eq=False, repr=False, kw_only=True)
class AggregateBoostingClassifier(TabularClassifier, Boosting):
    """Gradient boosting for classes of which only shares in bags are known, on LightGBM.

    Predicted probabilities are averaged over bags, never scores.

    Parameters
    ----------
    rho, kind, …
        As in `AggregateBoostingRegressor`.
    calibrate : None or "bags"
        Stretch and shift the scores so that held-out bags lose least, as in
        `AggregateLogisticRegression`; bags are then held out in any case.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1 where y is a share.
    rho_, rho_source_, held_out_losses_, n_estimators_, importances_
        As in `AggregateBoostingRegressor`.

    Notes
    -----
    Guarantees: bags of one row give the trees of LightGBM's own objectives for two classes and for
    several.
    Limits: noisy shares are clipped to [0, 1]. The bag-level loss is not convex in the scores;
    where its curvature is negative, what the link adds to it is left out.

    Examples
    --------
    >>> from bagwise import Bags
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> label = (X[:, 0] * X[:, 1] > 0).astype(float)
    >>> bags = Bags.random(4000, 5, random_state=0)
    >>> model = AggregateBoostingClassifier(rho=0.0, random_state=0)
    >>> model.fit(X, bags.expand(bags.mean(label)), bags).score(X, label) > 0.8
    True
    """

    calibrate: str | None = None

    _loss: ClassVar[str] = "log"
