"""The simulation against direct computation, and the theory against the simulation."""

import numpy as np
import pytest

from bagwise import simulate, theory


def test_exact_bias_and_variance_are_those_of_the_closed_form():
    """One replicate, with M = (A + ρW)⁻¹ written out."""
    d, sizes, rho, tau, sigma = 5, [3, 1, 4, 2, 6, 3], 0.3, 1.7, 0.6
    covariance = np.diag([1.0, 4.0, 9.0, 0.25, 2.0]) + 0.2
    drawn = simulate(d, sizes, [rho], tau, sigma, covariance, repeats=2, random_state=5)
    expected = []
    for seed in np.random.SeedSequence(5).spawn(2):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((sum(sizes), d)) @ np.linalg.cholesky(covariance).T
        P = np.zeros((sum(sizes), sum(sizes)))
        start = 0
        for size in sizes:
            P[start : start + size, start : start + size] = 1 / size
            start += size
        A, W = X.T @ P @ X, X.T @ (X - P @ X)
        M = np.linalg.inv(A + rho * W)
        values, axes = np.linalg.eigh(covariance)
        half, back = (axes * values**power @ axes.T for power in (0.5, -0.5))
        bias = tau**2 / d * np.linalg.norm(half @ (rho * M @ W) @ back) ** 2
        expected.append((bias, sigma**2 * np.trace(covariance @ M @ A @ M)))
    means = np.mean(expected, axis=0)
    assert drawn.bias[0] == pytest.approx(means[0], rel=1e-9)
    assert drawn.variance[0] == pytest.approx(means[1], rel=1e-9)


def test_drawn_risk_is_bias_plus_variance():
    """400 replicates; alpha = 1e-4, two-sided, and the error bars are small enough to tell."""
    drawn = simulate(30, [4] * 40, [0.05, 1.0], repeats=400, random_state=1)
    gap = drawn.risk - drawn.bias - drawn.variance
    assert (np.abs(gap) < 3.9 * drawn.risk_error).all()
    assert (drawn.risk_error < 0.05 * drawn.risk).all()


@pytest.mark.parametrize("covariance", ["independent", "correlated"])
@pytest.mark.parametrize("sizes", ["equal", "unequal", "few bags"])
def test_theory_matches_simulation(covariance, sizes):
    rng = np.random.default_rng(3)
    d = 100
    bags = {
        "equal": np.full(200, 3),
        "unequal": rng.integers(1, 8, 150),
        "few bags": np.full(40, 10),
    }[sizes]
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    matrix = None if covariance == "independent" else axes * np.geomspace(1, 400, d) @ axes.T
    rhos = np.array([0.03, 0.3, 1.0])
    drawn = simulate(d, bags, rhos, covariance=matrix, repeats=60)
    k, psi = bags.mean(), bags.sum() / d
    for found, error, exact in (
        (drawn.bias, drawn.bias_error, theory.bias(rhos, k, psi)),
        (drawn.variance, drawn.variance_error, theory.variance(rhos, k, psi)),
    ):
        gap = np.abs(found - exact)
        assert ((gap < 4 * error) | (gap < 0.03 * exact)).all()
    # The comparison has teeth: bags larger by half would be told apart.
    wrong = theory.variance(rhos, 1.5 * k, psi)
    assert (np.abs(drawn.variance - wrong) > 0.1 * wrong).any()


def test_drawn_responses_are_clipped():
    """Bounds that let almost nothing through leave nothing to learn: the risk is the signal's."""
    drawn = simulate(10, [2] * 200, [0.1], tau=2.0, bounds=(-0.01, 0.01), repeats=10)
    assert drawn.risk[0] == pytest.approx(4.0, rel=0.02)


def test_the_same_seed_draws_the_same():
    one, two, other = (simulate(5, [2] * 9, [0.5], repeats=4, random_state=s) for s in (1, 1, 2))
    assert one.risk[0] == two.risk[0] != other.risk[0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_features": 0}, "n_features must be a whole number"),
        ({"bag_sizes": []}, "bag_sizes must be whole rows of each bag"),
        ({"bag_sizes": [2, 0]}, "bag_sizes must be whole rows of each bag"),
        ({"bag_sizes": [2, 2]}, "bag_sizes must be of more rows than features; got 4 rows for 5"),
        ({"rhos": [1.5]}, r"rhos must be in \[0, 1\]"),
        ({"rhos": [0.0], "bag_sizes": [9, 9]}, "rhos must be above 0 where bags are few"),
        ({"sigma": -1.0}, "sigma must be at least 0"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": 1.0}, "bounds must be given with epsilon"),
        ({"bounds": (1.0, 0.0)}, r"bounds must be \(lo, hi\)"),
        ({"bounds": 3}, r"bounds must be \(lo, hi\)"),
        ({"bag_sizes": [2.5] * 9}, "bag_sizes must be whole rows"),
        ({"covariance": np.eye(4)}, "covariance must be symmetric and positive definite"),
        ({"covariance": -np.eye(5)}, "covariance must be symmetric and positive definite"),
        ({"covariance": np.triu(np.ones((5, 5)))}, "covariance must be symmetric"),
        ({"rhos": []}, r"rhos must be in \[0, 1\]"),
        ({"tau": np.inf}, "tau must be at least 0 and finite"),
        ({"repeats": 1}, "repeats must be a whole number of at least 2"),
    ],
)
def test_bad_settings_get_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        simulate(**({"n_features": 5, "bag_sizes": [3] * 10, "rhos": [0.5]} | changes))
