r"""Probabilities that mean something, from bags alone.

Training against bag means pulls predictions towards the overall rate, the more the larger rho is,
until one class is predicted for all. What order rows have is learnt far better than how far apart
they are, and that is two numbers: with η the linear predictors of rows that the model did not
train on,

    η′ = a η + b,    a > 0

of the least bag-level loss. K classes share a and have a b each.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bagwise import _check
from bagwise.estimators.glm_problem import Problem

FloatArray: TypeAlias = NDArray[np.float64]
CALIBRATIONS = ("bags",)
# Past these factors a prediction says nothing of the row, or all.
STEEPEST = np.log(1e3)


def check_calibrate(calibrate: str | None) -> None:
    """Refuse what is neither None nor "bags"."""
    if calibrate is not None and calibrate not in CALIBRATIONS:
        got = f"calibrate={calibrate!r}"
        _check.refuse("calibrate", "None or 'bags'", got, "Labels of rows are not there to use")


def fit_calibration(eta: FloatArray, problem: Problem) -> tuple[float, FloatArray]:
    """a and b of the least bag-level loss.

    Parameters
    ----------
    eta : array of shape (n, K)
        Linear predictors of the rows of ``problem``, made without their bags.
    problem : Problem
        Of which bags, means and link are used.
    """
    K = eta.shape[1]

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        a = np.exp(z[0])
        value, slope = problem.loss(a * eta + z[1:], 0.0)
        return value, np.concatenate([[a * (slope * eta).sum()], slope.sum(axis=0)])

    bounds = [(-STEEPEST, STEEPEST), *[(None, None)] * K]
    found = minimize(objective, np.zeros(K + 1), jac=True, method="L-BFGS-B", bounds=bounds)
    return float(np.exp(found.x[0])), np.asarray(found.x[1:])
