"""Laws of columns as linear models take them."""

import json

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from bagwise.estimators.design import KNOTS, WAYS, Design


def column(n=150, seed=0):
    return np.random.default_rng(seed).lognormal(size=n)


@pytest.mark.parametrize("way", WAYS)
def test_columns_have_mean_0_and_the_spread_of_their_way(way):
    codes = np.column_stack([column(), column(seed=1)])
    codes[::7, 0] = np.nan
    found = Design.of(codes, [], way).rows(codes)
    spreads = [1, 0.5, 0.5] if way == "curved" else [1]
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), spreads * 2)
    assert (found[::7, : len(spreads)] == 0).all(), "what is missing counts as the mean"


def test_ranks_are_normal_scores_of_the_middle_rank():
    x = np.round(column(), 1)
    found = Design.of(x[:, None], [], "rank").rows(x[:, None])[:, 0]
    u = norm.ppf((rankdata(x) - 0.5) / len(x))
    np.testing.assert_allclose(found, (u - u.mean()) / u.std())


@pytest.mark.parametrize("way", ["rank", "curved"])
def test_ranks_are_the_same_on_every_scale(way):
    x, new = column()[:, None], column(20, seed=1)[:, None]
    there = [each for each in new if each in x] or [x[3], x[70]]
    raw, logged = Design.of(x, [], way), Design.of(np.log(x), [], way)
    np.testing.assert_allclose(raw.rows(x), logged.rows(np.log(x)), atol=1e-9)
    np.testing.assert_allclose(raw.rows(np.array(there)), logged.rows(np.log(there)), atol=1e-9)


def test_curved_columns_span_the_powers_of_ranks():
    x = column()[:, None]
    u = Design.of(x, [], "rank").rows(x)[:, 0]
    known = np.column_stack([np.ones_like(u), u, u**2, u**3])
    found = Design.of(x, [], "curved").rows(x)
    left = found - known @ np.linalg.lstsq(known, found, rcond=None)[0]
    np.testing.assert_allclose(left, 0, atol=1e-9)


def test_past_the_ends_ranks_stay_and_between_values_they_rise():
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    low, a, mid, b, high, out = Design.of(x, [], "rank").rows(
        np.array([[-5.0], [2.0], [6.0], [10.0], [11.0], [1e9]])
    )[:, 0]
    assert low == Design.of(x, [], "rank").rows(x)[0, 0]
    assert a < mid < b == high == out
    assert mid == pytest.approx((a + b) / 2)


def test_many_values_keep_a_few_hundred_knots_that_tell_nearly_as_much():
    x = column(5000)[:, None]
    design = Design.of(x, [], "rank")
    assert len(design.columns[0].knots) == KNOTS
    u = norm.ppf((rankdata(x) - 0.5) / len(x))
    assert np.corrcoef(design.rows(x)[:, 0], u)[0, 1] > 0.9995


def test_two_values_have_no_curve():
    x = np.repeat([0.0, 1.0], 20)[:, None]
    assert Design.of(x, [], "curved").rows(x).shape == (40, 1)
    np.testing.assert_allclose(
        Design.of(x, [], "curved").rows(x), Design.of(x, [], "plain").rows(x)
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_design_is_the_same_after_json(way):
    codes = np.column_stack([column(), np.arange(150) % 4, np.full(150, np.nan)])
    design = Design.of(codes, [1], way)
    again = Design.from_list(json.loads(json.dumps(design.to_list())))
    np.testing.assert_array_equal(again.rows(codes), design.rows(codes))


@pytest.mark.parametrize(
    "change",
    [
        {"scale": [0.0]},
        {"scale": [float("nan")]},
        {"scale": [1.0, 1.0]},
        {"centre": [], "scale": []},
        {"knots": [1.0, 0.0], "ranks": [0.0, 1.0]},
        {"knots": [1.0]},
    ],
    ids=str,
)
def test_numbers_that_make_no_design_are_refused(change):
    said = {"knots": [], "ranks": [], "centre": [0.0], "scale": [1.0]} | change
    with pytest.raises(ValueError, match=r"lists|scales|knots"):
        Design.from_list([said])
