"""Laws of AggregateStatistics: additive, subtractable, storable."""

import numpy as np
import pandas as pd
import pytest

from bagwise import AggregateStatistics, Bags

FIELDS = ("mean", "response_mean", "between", "within", "cross", "response_square")


def draw(offset=0.0, n_rows=60, n_bags=15, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) + offset
    codes = np.concatenate([np.arange(n_bags), rng.integers(0, n_bags, n_rows - n_bags)])
    return X, Bags(codes).expand(rng.normal(size=n_bags) + offset), codes


def assert_same(one, two, rtol=1e-9):
    assert (one.n_rows, one.n_bags) == (two.n_rows, two.n_bags)
    for field in FIELDS:
        np.testing.assert_allclose(getattr(one, field), getattr(two, field), rtol=rtol, atol=1e-9)


def test_statistics_are_their_defining_sums():
    X, y, codes = draw(offset=2.0)
    statistics = AggregateStatistics.from_rows(X, y, codes)
    A, W, c, square = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3), 0.0
    for bag in range(15):
        rows = X[codes == bag]
        step = rows.mean(axis=0) - X.mean(axis=0)
        A += len(rows) * np.outer(step, step)
        W += (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
        c += len(rows) * step * (y[codes == bag][0] - y.mean())
        square += len(rows) * (y[codes == bag][0] - y.mean()) ** 2
    np.testing.assert_allclose(statistics.between, A)
    np.testing.assert_allclose(statistics.within, W)
    np.testing.assert_allclose(statistics.cross, c)
    assert statistics.response_square == pytest.approx(square)
    assert statistics.n_features == 3


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_batches_of_whole_bags_add_up_and_subtract(offset):
    X, y, codes = draw(offset)
    whole = AggregateStatistics.from_rows(X, y, codes)
    masks = [codes < 4, (codes >= 4) & (codes < 11), codes >= 11]
    batches = [(X[mask], y[mask], codes[mask]) for mask in masks]
    assert_same(AggregateStatistics.from_batches(batches), whole)
    parts = [AggregateStatistics.from_rows(*batch) for batch in batches]
    assert_same(whole - parts[1], parts[0] + parts[2], rtol=1e-7)


def test_many_blocks_give_the_sums_of_one(monkeypatch):
    X, y, codes = draw(5.0, n_rows=2000, n_bags=100)
    whole = AggregateStatistics.from_rows(X, y, codes)
    monkeypatch.setattr("bagwise.statistics.BLOCK", 1)
    assert_same(AggregateStatistics.from_rows(X, y, codes), whole)
    single = AggregateStatistics.from_rows(X, y)
    np.testing.assert_allclose(single.within, 0)
    np.testing.assert_allclose(single.between, np.cov(X.T) * 1999)


def test_saved_statistics_come_back_whole_and_without_pickle(tmp_path):
    X, y, codes = draw()
    for table in (X, pd.DataFrame(X, columns=["a", "b", "ü"])):
        statistics = AggregateStatistics.from_rows(table, y, codes)
        statistics.save(tmp_path / "statistics.npz")
        loaded = AggregateStatistics.load(tmp_path / "statistics.npz")
        assert_same(loaded, statistics, rtol=0)
        assert loaded.feature_names == statistics.feature_names
        assert isinstance(loaded.n_rows, int)
    assert loaded.feature_names == ("a", "b", "ü")


def test_what_save_did_not_write_is_refused(tmp_path):
    path = tmp_path / "bad.npz"
    X, y, codes = draw()
    good = AggregateStatistics.from_rows(X, y, codes)
    good.save(path)
    arrays = dict(np.load(path))
    spoilt = [
        b"not a zip file",
        path.read_bytes()[:-40],
        {k: v for k, v in arrays.items() if k != "cross"},
        arrays | {"cross": np.zeros(2)},
        arrays | {"between": np.full((3, 3), np.nan)},
        arrays | {"mean": np.array([object()] * 3)},
        arrays | {"more": np.zeros(1)},
        arrays | {"n_rows": np.array(-5.5)},
        arrays | {"feature_names": np.array(["only one"])},
    ]
    for content in spoilt:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **content)
        with pytest.raises(ValueError, match=r"path must be a file written by AggregateStatistics"):
            AggregateStatistics.load(path)
    with pytest.raises(FileNotFoundError):
        AggregateStatistics.load(tmp_path / "absent.npz")


def test_statistics_that_do_not_fit_together_are_refused():
    X, y, codes = draw()
    whole = AggregateStatistics.from_rows(X, y, codes)
    with pytest.raises(ValueError, match="statistics must be of the same features"):
        whole + AggregateStatistics.from_rows(X[:, :2], y, codes)
    with pytest.raises(ValueError, match="the subtracted part must be smaller than the whole"):
        AggregateStatistics.from_rows(X[codes < 3], y[codes < 3], codes[codes < 3]) - whole
    half = codes < 8
    other = AggregateStatistics.from_rows(100 * X[half], y[half], codes[half])
    with pytest.raises(ValueError, match="the subtracted part must be a part of the whole"):
        whole - other
    with pytest.raises(ValueError, match="batches must be at least one"):
        AggregateStatistics.from_batches([])
