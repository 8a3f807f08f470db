"""The planner against the theory it speaks for, and signal and noise from statistics alone."""

import json
import re
import sys

import matplotlib
import numpy as np
import pytest

from bagwise import AggregateLinearRegression, AggregateStatistics, Bags, estimate_snr, plan, theory
from bagwise.simulate import simulate
from tests.test_demo import run_command

matplotlib.use("Agg")


def test_lines_are_the_private_risk_at_its_best_rho():
    chosen = plan(20_000, 40, signal=1.5, noise=2.0, epsilon=0.7, bounds=(-6, 9))
    for line in chosen.table:
        direct = theory.private_risk(line.rho, line.bag_size, 500, 0.7, 15.0, 1.5, 2.0)
        assert line.risk == pytest.approx(direct)
        rhos = np.geomspace(1e-8, 1, 400)
        others = theory.private_risk(rhos, line.bag_size, 500, 0.7, 15.0, 1.5, 2.0)
        assert line.risk <= others.min() * (1 + 1e-6)
    assert chosen.risk == min(line.risk for line in chosen.table)
    shares = re.findall(r"(\d+) % is", str(chosen))
    assert sum(map(int, shares)) == 100


def test_the_planned_error_is_the_drawn_one():
    """Clipping, Laplace noise and all; alpha = 1e-4 and 3 % for the finite number of features."""
    chosen = plan(1200, 100, snr=2, epsilon=4.0, bounds=(-8, 8), bag_sizes=[3])
    drawn = simulate(
        *(100, [3] * 400, [chosen.rho], np.sqrt(2)),
        epsilon=4.0,
        bounds=(-8, 8),
        repeats=200,
    )
    assert abs(drawn.risk[0] - chosen.risk) < 3.9 * drawn.risk_error[0] + 0.03 * chosen.risk


def test_the_planned_error_counts_what_clipping_does():
    chosen = plan(1200, 100, snr=2, epsilon=1.0, bounds=(-0.6, 0.6), bag_sizes=[3])
    drawn = simulate(
        *(100, [3] * 400, [max(chosen.rho, 1e-9)], np.sqrt(2)),
        epsilon=1.0,
        bounds=(-0.6, 0.6),
        repeats=100,
    )
    assert abs(drawn.risk[0] - chosen.risk) < 3.9 * drawn.risk_error[0] + 0.03 * chosen.risk
    assert chosen.best.bias > 0.9


def test_plans_without_noise_are_plans():
    chosen = plan(1000, 10, signal=1.0, noise=0.0)
    assert chosen.risk == 0
    assert json.loads(json.dumps(chosen.to_dict()))["risk"] == 0
    assert "nan" not in str(chosen)


def test_more_bags_than_features_are_not_needed():
    line = plan(300, 100, snr=1.0, bag_sizes=[10]).best
    assert line.rho > 0
    noiseless = plan(300, 100, signal=1.0, noise=0.0, bag_sizes=[10]).best
    assert noiseless.risk == pytest.approx(theory.risk(max(noiseless.rho, 1e-12), 10, 3, 1.0, 0.0))


def test_snr_stands_for_unit_noise():
    a = plan(1000, 10, snr=4.0)
    b = plan(1000, 10, signal=2.0, noise=1.0)
    assert a.to_dict() == b.to_dict()


def test_sentences_say_what_the_numbers_say():
    chosen = plan(1_000_000, 50, snr=2, epsilon=1, bounds=(-5, 5))
    text = str(chosen)
    line = next(line for line in chosen.table if line.bag_size == 20)
    more = line.risk / chosen.risk - 1
    assert f"Bags of 20 at rho = {line.rho:.2g} buy 20-anonymity for {more:.0%} more error." in text
    assert text.startswith("Bags of one row are best")
    assert "roughly Gaussian" in text
    assert "clip 0.4% of responses" in text
    poor = plan(2000, 50, snr=0.2, epsilon=1, bounds=(-5, 5))
    times = poor.per_label.risk / poor.risk
    assert f"would mean {times:.1f} times the error" in str(poor)
    hopeless = str(plan(200, 100, snr=0.02, min_bag_size=20))
    assert "no better than predicting the mean" in hopeless
    assert "do not trust them" in str(plan(52, 50, snr=1.0))
    assert "expect them to be off by 5% or so" in str(plan(121, 100, snr=1.0, bag_sizes=[1]))
    assert "wider bounds may serve better" in str(
        plan(1000, 10, snr=2, epsilon=1, bounds=(-0.5, 0.5))
    )
    assert "spend more" not in hopeless
    plain = str(plan(10_000, 10, snr=2))
    assert plain.startswith("Bags of one row are best")
    assert "Bags of 2 would mean 100% more error." in plain


def test_sizes_are_kept_within_the_table():
    assert [line.bag_size for line in plan(30, 5, snr=1, min_bag_size=4).table] == [4, 5, 10]
    assert [line.bag_size for line in plan(30, 5, snr=1, min_bag_size=13).table] == [13]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"snr": -1}, "snr must be above 0 and finite; got snr=-1"),
        ({"bag_sizes": 5}, "bag_sizes must be a list; got bag_sizes=5"),
        ({"bag_sizes": []}, "bag_sizes must be of two bags or more"),
        ({"bag_sizes": [700]}, r"bag_sizes must be of two bags or more.*got \[700\]"),
        ({"bounds": 5}, r"bounds must be \(lo, hi\), finite"),
        ({"bounds": (1, 2, 3)}, r"bounds must be \(lo, hi\), finite"),
        ({"epsilon": 1e-200, "bounds": (0, 1)}, "epsilon must be above 0"),
        ({"n_rows": 1e308}, "n_rows must be at most 1e15"),
        ({"snr": None}, "snr must be given, or signal and noise"),
        ({"signal": 1.0}, "snr must be given, or signal and noise, not both"),
        ({"snr": None, "signal": 1.0}, "noise must be at least 0 and finite; got noise=None"),
        ({"n_rows": 10}, "n_rows must be above n_features; got n_rows=10, n_features=20"),
        ({"n_rows": 2.5}, "n_rows must be a whole number"),
        ({"n_features": 0}, "n_features must be a whole number of at least 1"),
        ({"epsilon": 0, "bounds": (0, 1)}, "epsilon must be above 0; got epsilon=0"),
        ({"epsilon": float("nan"), "bounds": (0, 1)}, "epsilon must be above 0"),
        ({"epsilon": 1}, "bounds must be given with epsilon"),
        ({"epsilon": 1, "bounds": (1, 0)}, r"bounds must be \(lo, hi\), finite, with lo < hi"),
        ({"epsilon": 1, "bounds": (1, 1)}, r"bounds must be \(lo, hi\), finite"),
        ({"bag_sizes": [0]}, "bag_sizes must be a whole number of at least 1"),
        ({"min_bag_size": 600}, "bag_sizes must be of two bags or more"),
    ],
)
def test_bad_plans_get_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(**({"n_rows": 1000, "n_features": 20, "snr": 1.0} | changes))


def test_the_command_prints_draws_and_gives_json(tmp_path, monkeypatch, capsys):
    words = ["plan", "--rows", "1e6", "--features", "50", "--snr", "2", "--epsilon", "1"]
    words += ["--bounds", "-5", "5"]
    picture = tmp_path / "plan.png"
    assert run_command(monkeypatch, *words, "--plot", str(picture)) == 0
    assert picture.stat().st_size > 5000
    assert "20-anonymity" in capsys.readouterr().out
    assert run_command(monkeypatch, *words, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    expected = plan(10**6, 50, snr=2, epsilon=1, bounds=(-5, 5)).to_dict()
    assert printed == json.loads(json.dumps(expected))
    assert run_command(monkeypatch, *words, "--bag-sizes", "1,x") == 2
    assert "bag_sizes must be whole numbers with commas" in capsys.readouterr().err
    assert run_command(monkeypatch, *words[:-3], "--bounds", "5", "-5") == 2
    assert "Traceback" not in capsys.readouterr().err
    assert "bagwise" in sys.argv[0]


def released(rng, n_bags, size, d, snr, sizes=None):
    """Statistics of random bags of Gaussian rows with that ratio of signal to noise."""
    sizes = np.full(n_bags, size) if sizes is None else sizes
    X = rng.normal(size=(sizes.sum(), d))
    theta = rng.normal(size=d)
    theta *= np.sqrt(snr) / np.linalg.norm(theta)
    bags = Bags(np.repeat(np.arange(len(sizes)), sizes))
    y = X @ theta + rng.normal(size=len(X)) + 5
    return AggregateStatistics.from_rows(X * 3 + 7, bags.expand(bags.mean(y)), bags)


@pytest.mark.parametrize(
    ("n_bags", "size", "d", "snr", "method"),
    [
        (60, 4, 8, 2.0, "residuals"),
        (12, 4, 3, 2.0, "residuals"),
        (400, 5, 30, 0.5, "residuals"),
        (80, 3, 10, 0.0, "residuals"),
        (120, 8, 150, 2.0, "moments"),
        (200, 5, 200, 0.5, "moments"),
    ],
)
def test_snr_intervals_cover(n_bags, size, d, snr, method):
    """Coverage of 95 % intervals over 200 draws; alpha = 1e-3 for less than 90 %."""
    rng = np.random.default_rng(d)
    found = [estimate_snr(released(rng, n_bags, size, d, snr)) for _ in range(200)]
    assert {f.method for f in found} == {method}
    covered = np.mean([f.low <= snr <= f.high for f in found])
    assert covered >= 0.90
    if snr > 0:
        assert covered < 1
        assert np.median([f.snr for f in found]) == pytest.approx(snr, rel=0.25)
        assert np.median([f.noise for f in found]) == pytest.approx(1.0, rel=0.15)


def test_snr_of_unequal_bags_and_many_rows_is_sharp():
    rng = np.random.default_rng(0)
    found = estimate_snr(released(rng, 0, 0, 5, 2.0, sizes=rng.integers(1, 8, 20_000)))
    assert found.snr == pytest.approx(2.0, rel=0.06)
    assert found.low < 2.0 < found.high < 1.1 * found.low
    assert found.signal == pytest.approx(np.sqrt(2), rel=0.03)


def test_snr_needs_something_to_vary():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="statistics must be of more rows within bags"):
        estimate_snr(released(rng, 20, 2, 30, 1.0))
    flat = AggregateStatistics.from_rows(rng.normal(size=(20, 2)), np.ones(20), np.arange(20) // 2)
    with pytest.raises(ValueError, match="statistics must be of varying bags"):
        estimate_snr(flat)
    for level in (0, 1, 1.5):
        with pytest.raises(ValueError, match="level must be"):
            estimate_snr(released(rng, 60, 4, 8, 2.0), level=level)


def test_bags_that_share_a_covariate_are_refused_rather_than_misjudged():
    """With few bags a feature that is constant within them leaves no scale to measure by."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        bags = Bags(np.repeat(np.arange(8), 25))
        X = np.column_stack([rng.normal(size=(200, 8)), bags.expand(rng.normal(size=8))])
        means = bags.expand(bags.mean(X[:, 0] + rng.normal(size=200)))
        with pytest.raises(ValueError, match="statistics must be of features that vary within"):
            estimate_snr(AggregateStatistics.from_rows(X, means, bags))
        with pytest.raises(ValueError, match=r"rho='theory' needs signal and noise.*rho='loo'"):
            AggregateLinearRegression(rho="theory").fit(X, means, bags)


def test_noiseless_responses_have_a_high_ratio_and_the_least_rho():
    statistics = released(np.random.default_rng(1), 100, 5, 6, 1e9)
    found = estimate_snr(statistics)
    assert found.low < 1e9 < found.high
    assert AggregateLinearRegression(rho="theory").fit_statistics(statistics).rho_ < 1e-6


def test_rho_by_theory_is_the_best_at_the_estimated_snr():
    statistics = released(np.random.default_rng(3), 200, 6, 40, 0.7)
    model = AggregateLinearRegression(rho="theory").fit_statistics(statistics)
    found = estimate_snr(statistics)
    expected = theory.best_rho(6, 1199 / 40, found.signal, found.noise)
    assert model.rho_ == pytest.approx(expected)
    assert model.rho_source_ == "theory"


def test_many_bags_have_an_interval():
    """Quantiles of noncentral F lie so far out there that SciPy gives none."""
    rng = np.random.default_rng(0)
    found = estimate_snr(released(rng, 12_000, 10, 20, 0.15))
    assert found.low < 0.15 < found.high < 1.3 * found.low


@pytest.mark.parametrize("seed", range(6))
def test_an_interval_exists_where_scipy_loses_the_tail(seed):
    """Its noncentral F is NaN far out for snr near 1, three features and 1,500 bags."""
    rng = np.random.default_rng(seed)
    X, bags = rng.normal(size=(6000, 3)), Bags.random(6000, 4, random_state=seed)
    y = X.sum(axis=1) + np.sqrt(3) * rng.normal(size=6000)
    found = estimate_snr(AggregateStatistics.from_rows(X, bags.expand(bags.mean(y)), bags))
    # alpha = 1e-4 for an estimate whose relative standard deviation is about 0.06
    assert 0.7 < found.low < found.snr < found.high < 1.4
