"""Laws of Bags: partitions, and averages over them."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags

layouts = st.lists(st.integers(-3, 6), min_size=1, max_size=40)


def by_hand(ids, values, reduce):
    """One loop over bags in order of first appearance."""
    order = list(dict.fromkeys(ids))
    return np.array(
        [reduce([v for i, v in zip(ids, values, strict=True) if i == bag]) for bag in order]
    )


@given(layouts, st.randoms(use_true_random=False))
def test_sum_mean_and_spread_match_a_loop_over_bags(ids, random):
    values = [random.uniform(1e3, 1e3 + 5) for _ in ids]
    bags = Bags(ids)
    np.testing.assert_allclose(bags.sum(values), by_hand(ids, values, np.sum), rtol=1e-12)
    np.testing.assert_allclose(bags.mean(values), by_hand(ids, values, np.mean), rtol=1e-12)
    np.testing.assert_allclose(bags.spread(values), by_hand(ids, values, np.var), atol=1e-9)


@given(layouts, st.integers(1, 3))
def test_two_dimensional_values_are_averaged_column_by_column(ids, width):
    values = np.random.default_rng(len(ids)).normal(size=(len(ids), width))
    bags = Bags(ids)
    for method in (bags.sum, bags.mean, bags.spread):
        columns = [method(values[:, j]) for j in range(width)]
        np.testing.assert_allclose(method(values), np.column_stack(columns), rtol=1e-12)


@given(layouts)
def test_torch_agrees_with_numpy(ids):
    bags = Bags(ids)
    values = np.random.default_rng(1).normal(3.0, size=(len(ids), 2))
    for name in ("sum", "mean", "spread"):
        for v in (values, values[:, 0]):
            ours = getattr(bags, name)(torch.tensor(v))
            np.testing.assert_allclose(ours.numpy(), getattr(bags, name)(v), atol=1e-12)


def test_torch_averages_are_differentiable():
    bags = Bags([5, 5, 7, 5])
    values = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    for method in (bags.sum, bags.mean, bags.spread):
        assert torch.autograd.gradcheck(method, values)
    assert bags.mean(torch.ones(4, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.parametrize(
    ("ids", "distinct"),
    [
        (["x", "y", "x"], ["x", "y"]),
        (np.array(["x", "y", "x"]), ["x", "y"]),
        ([10, -4, 10], [10, -4]),
        (np.array([2**63, 1, 2**63], dtype=np.uint64), [2**63, 1]),
        ([1.5, 0.5, 1.5], [1.5, 0.5]),
        ([True, False, True], [True, False]),
        ([("a", 1), ("b", 2), ("a", 1)], [("a", 1), ("b", 2)]),
        (["a", 1, "a"], ["a", 1]),
        (pd.Series(["u", "v", "u"]), ["u", "v"]),
        (pd.Series(["u", "v", "u"], dtype="category"), ["u", "v"]),
        (pl.Series(["u", "v", "u"]), ["u", "v"]),
        (pl.Series(["u", "v", "u"], dtype=pl.Categorical), ["u", "v"]),
        (pa.chunked_array([["u"], ["v", "u"]]), ["u", "v"]),
        ([datetime.date(2013, 1, 2), datetime.date(2013, 1, 1), datetime.date(2013, 1, 2)], None),
    ],
)
def test_ids_may_be_anything_hashable_and_keep_their_order(ids, distinct):
    bags = Bags(ids)
    assert bags.codes.tolist() == [0, 1, 0]
    assert bags.sizes.tolist() == [2, 1]
    if distinct is not None:
        assert bags.ids.tolist() == distinct


def test_one_bag_and_bags_of_one():
    assert Bags(["all"] * 4).mean([1, 2, 3, 6]).tolist() == [3.0]
    single = Bags([30, 10, 20])
    assert single.sum([1.0, 2.0, 3.0]).tolist() == [1.0, 2.0, 3.0]
    assert single.spread([1.0, 2.0, 3.0]).tolist() == [0.0, 0.0, 0.0]
    assert repr(single) == "Bags(3 rows in 3 bags of 1)"


def test_integer_sums_are_exact():
    big = np.array([2**60, 1, -(2**60), 2**60])
    assert Bags([0, 1, 0, 0]).sum(big).tolist() == [2**60, 1]


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(["spread", "drop", "keep"]))
def test_random_bags_cover_rows_with_the_stated_sizes(n_rows, bag_size, remainder):
    if bag_size > n_rows:
        with pytest.raises(ValueError, match="bag_size must be at most n_rows"):
            Bags.random(n_rows, bag_size)
        return
    bags = Bags.random(n_rows, bag_size, random_state=3, remainder=remainder)
    left = n_rows % bag_size
    sizes = sorted(bags.sizes.tolist())
    assert bags.ids.tolist() == list(range(bags.n_bags))
    assert len(set(bags.rows.tolist())) == bags.n_rows
    if remainder == "spread":
        assert bags.n_rows == n_rows
        assert sizes[0] >= bag_size
        assert sizes[-1] - sizes[0] <= 1
        assert bags.n_bags == n_rows // bag_size
    elif remainder == "drop":
        assert bags.n_rows == n_rows - left
        assert set(sizes) == {bag_size}
    else:
        assert bags.n_rows == n_rows
        assert sizes == sorted([bag_size] * (n_rows // bag_size) + [left] * (left > 0))


def test_random_bags_are_uniform_over_pairs():
    """Rows 0 and 1 share a bag of 3 out of 9 with probability 2/8; alpha = 1e-6, two-sided."""
    draws = 4000
    hits = 0
    for seed in range(draws):
        codes = Bags.random(9, 3, random_state=seed).codes
        hits += int(codes[0] == codes[1])
    assert abs(hits - draws / 4) < 4.9 * np.sqrt(draws * 3 / 16)


def test_the_same_random_state_gives_the_same_bags():
    a, b, c = (Bags.random(100, 7, random_state=s).codes.tolist() for s in (0, 0, 1))
    assert a == b != c


frame = pd.DataFrame({"carrier": ["UA", "AA", "UA", "UA"], "day": [1, 1, 2, 1], "x": [0, 1, 2, 3]})


@pytest.mark.parametrize(
    "table", [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), frame.to_dict("list")]
)
def test_groups_of_one_or_more_columns(table):
    assert Bags.from_groups(table, "carrier").ids.tolist() == ["UA", "AA"]
    bags = Bags.from_groups(table, ["carrier", "day"])
    assert bags.ids.tolist() == [("UA", 1), ("AA", 1), ("UA", 2)]
    assert bags.codes.tolist() == [0, 1, 2, 0]
    with pytest.raises(ValueError, match="columns must be names of the table; got 'nope'"):
        Bags.from_groups(table, ["carrier", "nope"])


@pytest.mark.parametrize(
    "ids",
    [
        [1, None, 2],
        [1.0, float("nan")],
        ["a", None],
        [("a",), None],
        pa.array(["a", None]),
        pl.Series(["a", None]),
        pd.Series(["a", None]),
    ],
)
def test_missing_ids_are_refused(ids):
    with pytest.raises(ValueError, match="bags must be an id for every row"):
        Bags(ids)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="bags must be of at least one row"):
        Bags([])
    with pytest.raises(ValueError, match="bags must be one-dimensional"):
        Bags(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="values must be 1-D or 2-D with one entry a row"):
        Bags([1, 2]).mean([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="remainder must be one of"):
        Bags.random(4, 2, remainder="lose")
    with pytest.raises(ValueError, match="bag_size must be a whole number of at least 1"):
        Bags.random(4, 0)
    with pytest.raises(ValueError, match="columns must be at least one name"):
        Bags.from_groups(frame, [])


def test_responses_align_from_rows_mappings_and_series():
    bags = Bags(["b", "a", "b"])
    by_bag = {"a": 1.0, "b": 2.0}
    for y in ([2.0, 1.0, 2.0], by_bag, pd.Series(by_bag), pd.Series([2.0, 1.0, 2.0])):
        assert bags.align(y).tolist() == [2.0, 1.0]
    groups = Bags.from_groups(frame, ["carrier", "day"])
    means = frame.groupby(["carrier", "day"])["x"].mean()
    assert groups.align(means).tolist() == [1.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([2.0, 1.0, 3.0], "y must be constant within a bag; got different entries in bag 'b'"),
        ([2.0, 1.0], "y must be one-dimensional with one entry a row"),
        ({"a": 1.0}, "y must be a mean for every bag; got none for bag 'b'"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, "a mean for bags that have rows; got one for bag 'c'"),
        ([2.0, np.nan, 2.0], "y must be finite"),
        ([2.0, 1.0, np.inf], "y must be finite"),
        ({"a": np.nan, "b": 2.0}, "y must be finite"),
        (pd.Series([1.0, 1.0], index=["a", "a"]), "a bag twice in its index"),
    ],
)
def test_responses_that_do_not_fit_get_one_sentence(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        Bags(["b", "a", "b"]).align(y)


def test_ids_are_told_as_they_are_written():
    mixed = np.array([np.int64(4), "b"], dtype=object)
    with pytest.raises(ValueError, match=r"got none for bag 4\."):
        Bags(mixed).align({"b": 0.0})
    with pytest.raises(ValueError, match=r"got one for bag 4\."):
        Bags(["b"]).align({"b": 0.0, np.int64(4): 0.0})
    with pytest.raises(ValueError, match="different entries in bag 4"):
        Bags(np.array([4, 4])).align([0.0, 1.0])


def test_a_series_that_could_be_read_both_ways_is_refused():
    y = pd.Series([1.0, 2.0, 3.0], index=["a", "b", "c"])
    with pytest.raises(ValueError, match="y must be unambiguous"):
        Bags(["c", "a", "b"]).align(y)
    assert Bags(["a", "b", "c"]).align(y).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int16, np.uint16, np.float16])
def test_short_types_neither_overflow_nor_stop_counting(dtype):
    n_rows = 70_000
    bags = Bags([0] * n_rows)
    assert bags.sum(np.ones(n_rows, dtype)).tolist() == [n_rows]
    assert bags.mean(np.ones(n_rows, dtype)).tolist() == [1.0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.bfloat16])
def test_short_torch_types_neither_overflow_nor_stop_counting(dtype):
    bags = Bags([0] * 3000)
    assert float(bags.mean(torch.ones(3000, dtype=dtype))[0]) == 1.0


def test_float32_means_keep_their_digits():
    values = np.full(100_000, 0.1, np.float32)
    assert Bags([0] * 100_000).mean(values)[0] == pytest.approx(values[0], rel=1e-9)


def test_sums_over_bags_of_one_are_not_the_values_themselves():
    values = np.array([1.0, 2.0])
    Bags([0, 1]).sum(values)[0] = 9.0
    assert values.tolist() == [1.0, 2.0]


def test_odd_ids():
    assert Bags(torch.tensor([4, 4, 9])).sizes.tolist() == [2, 1]
    assert Bags(np.array([0.0, -0.0])).n_bags == 1
    assert Bags([2**70, 2**70, 1]).sizes.tolist() == [2, 1]
    for missing in (pl.Series([1.0, float("nan")]), pd.Series([1, pd.NA, "a"], dtype=object)):
        with pytest.raises(ValueError, match="bags must be an id for every row"):
            Bags(missing)
    with pytest.raises(ValueError, match="bags must be hashable ids"):
        Bags([[1], {}])
    with pytest.raises(ValueError, match="columns must be of one length"):
        Bags.from_groups({"a": [1, 2], "b": [1]}, ["a", "b"])
    with pytest.raises(ValueError, match="values must be one entry a bag; got 3 entries for 2"):
        Bags([1, 2, 2]).expand(np.zeros(3))
    with pytest.raises(ValueError, match="y must be one number a bag"):
        Bags(["a", "b"]).align({"a": [1.0], "b": [2.0]})


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_dates_match_the_index_of_a_series(unit, zone):
    days = pd.Series(pd.to_datetime(["2013-01-01", "2013-01-02", "2013-01-01"])).dt.as_unit(unit)
    days = days.dt.tz_localize(zone)
    y = pd.Series([1.0, 2.0], index=pd.DatetimeIndex(days[:2]))
    assert Bags(days).align(y).tolist() == [1.0, 2.0]
    assert Bags(days).align(y.to_dict()).tolist() == [1.0, 2.0]
    pairs = Bags.from_groups({"day": days, "x": ["a", "a", "a"]}, ["day", "x"])
    assert pairs.align({(day, "a"): v for day, v in y.items()}).tolist() == [1.0, 2.0]
