"""Scores of probabilities against scikit-learn's, whole and in pieces."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from bagwise import probability_scores
from bagwise.estimators.scores import Labels


def draw(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    p = expit(2 * rng.normal(size=n))
    return (rng.uniform(size=n) < p).astype(float), p


def test_they_are_those_of_scikit_learn():
    y, p = draw()
    found = probability_scores(y, p)
    assert found.n == len(y)
    assert found.accuracy == pytest.approx(accuracy_score(y, p >= 0.5))
    assert found.auc == pytest.approx(roc_auc_score(y, p), abs=1e-5)
    assert found.log_loss == pytest.approx(log_loss(y, p))


def test_probabilities_all_alike_have_an_auc_of_one_half():
    assert probability_scores([0, 1, 1], [0.3, 0.3, 0.3]).auc == 0.5
    assert np.isnan(probability_scores([1, 1], [0.3, 0.4]).auc)


def test_pieces_add_up_to_the_whole():
    y, p = draw()
    total = Labels()
    for part in np.array_split(np.arange(len(y)), 3):
        piece = Labels()
        piece.add(y[part], p[part])
        total = total + piece
    whole = probability_scores(y, p)
    assert astuple(total.scores()) == pytest.approx(astuple(whole), rel=1e-12)


def test_true_probabilities_are_calibrated_and_stretched_ones_are_not():
    """Chance leaves about 20 √(p(1−p)/n)/√20 ≈ .01 at most."""
    y, p = draw()
    assert probability_scores(y, p).calibration_error < 0.015
    assert probability_scores(y, np.clip(1.5 * p - 0.25, 0, 1)).calibration_error > 0.05


def test_calibration_error_is_the_gap_of_groups():
    found = probability_scores([1, 0, 0, 1], [0.11, 0.13, 0.86, 0.88])
    assert found.calibration_error == pytest.approx((abs(1 - 0.24) + abs(1 - 1.74)) / 4)


def test_other_responses_have_no_such_scores():
    with pytest.raises(ValueError, match="y must be labels 0 and 1; got others"):
        probability_scores([0, 2], [0.3, 0.4])
