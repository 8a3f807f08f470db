"""The likelihood of counts against all ways to label a bag, and against finite differences."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from bagwise import Bags, bag_loss, count_loss
from bagwise.counts import EXACT, Counts


def all_labels(p, fits):
    """−log of the probability of what is known, over every way to label the rows of one bag."""
    return -np.log(
        sum(
            np.prod(np.where(labels, p, 1 - p)) * fits(sum(labels))
            for labels in itertools.product([0, 1], repeat=len(p))
        )
    )


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_it_is_the_sum_over_all_labels_with_that_count(k):
    p = np.random.default_rng(k).uniform(0.05, 0.95, k)
    for count in range(k + 1):
        expected = all_labels(p, lambda s, c=count: s == c)
        assert k * count_loss([count / k], p, Bags([0] * k)) == pytest.approx(expected)


@pytest.mark.parametrize("mean", [-0.4, 0.0, 0.37, 0.5, 1.2])
def test_laplace_noise_mixes_the_counts_up_to_a_constant(mean):
    k, scale = 6, 0.3
    bags = Bags([0] * k)
    draws = np.random.default_rng(0).uniform(0.05, 0.95, (2, k))

    def fits(s):
        return np.exp(-abs(k * mean - s) / (k * scale))

    ours = [k * count_loss([mean], p, bags, [scale]) for p in draws]
    theirs = [all_labels(p, fits) for p in draws]
    assert ours[1] - ours[0] == pytest.approx(theirs[1] - theirs[0])


def test_bags_of_one_row_have_the_log_loss():
    rng = np.random.default_rng(0)
    p, y, bags = rng.uniform(size=50), rng.integers(0, 2, 50).astype(float), Bags(np.arange(50))
    assert count_loss(y, p, bags) == pytest.approx(float(bag_loss(y, p, bags, "log")))


@pytest.mark.parametrize("noise", [None, 0.1])
def test_the_gradient_is_that_of_finite_differences(noise):
    """Over bags of one size, of another, and of those past the exact ones."""
    rng = np.random.default_rng(0)
    bags = Bags(rng.permutation(np.repeat(np.arange(5), [1, 3, 3, EXACT, EXACT + 8])))
    eta = rng.normal(size=bags.n_rows)
    means = np.round(bags.mean(expit(eta)) * bags.sizes) / bags.sizes
    scales = None if noise is None else np.full(len(bags), noise)
    counts = Counts(means, bags, scales)
    gradient = counts.loss(expit(eta))[1]
    step = 1e-5
    for i in range(bags.n_rows):
        ends = [counts.loss(expit(eta + sign * step * (np.arange(len(eta)) == i)))[0]
                for sign in (1, -1)]  # fmt: skip
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


def test_the_gradient_is_the_probability_less_that_given_the_count():
    """Of two rows with one 1 between them, the likelier has it with the odds of both."""
    p, bags = np.array([0.8, 0.3]), Bags([0, 0])
    gradient = 2 * Counts(np.array([0.5]), bags).loss(p)[1]
    has_it = p[0] * 0.7 / (p[0] * 0.7 + 0.2 * p[1])
    np.testing.assert_allclose(gradient, p - [has_it, 1 - has_it])


def test_the_normal_approximation_is_near_the_exact_one(monkeypatch):
    rng = np.random.default_rng(0)
    bags = Bags(np.repeat(np.arange(200), EXACT))
    p = expit(rng.normal(size=bags.n_rows))
    y = (rng.uniform(size=bags.n_rows) < p).astype(float)
    exact = count_loss(bags.mean(y), p, bags)
    monkeypatch.setattr("bagwise.counts.EXACT", 1)
    about = count_loss(bags.mean(y), p, bags)
    assert about == pytest.approx(exact, rel=2e-3)
    assert about != exact


@pytest.mark.parametrize("noise", [None, 0.05])
def test_large_bags_have_the_density_of_a_normal_with_all_that_varies(noise):
    """The count, its being whole (1/12), and Laplace noise of scale k b, of variance 2 (k b)²."""
    k = EXACT + 8
    p, bags = np.random.default_rng(0).uniform(0.2, 0.9, k), Bags([0] * k)
    variance = (p * (1 - p)).sum() + 1 / 12 + (0 if noise is None else 2 * (k * noise) ** 2)
    expected = -norm.logpdf(20, p.sum(), variance**0.5)
    scales = None if noise is None else [noise]
    assert k * count_loss([20 / k], p, bags, scales) == pytest.approx(expected)


def test_the_true_probabilities_lose_least_on_average():
    """The likelihood is proper: stretched, shrunk and shifted logits lose more on 4,000 bags."""
    rng = np.random.default_rng(0)
    bags = Bags(np.repeat(np.arange(4000), 8))
    p = expit(1.5 * rng.normal(size=bags.n_rows))
    means = bags.mean((rng.uniform(size=len(p)) < p).astype(float))
    true = count_loss(means, p, bags)
    for a, b in ((0.5, 0), (1.5, 0), (1, 0.2), (1, -0.2)):
        assert count_loss(means, expit(a * logit(p) + b), bags) > true


def test_the_order_of_rows_and_bags_changes_nothing():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(6), [1, 2, 4, 4, EXACT + 1, EXACT + 2])
    p, order = rng.uniform(size=len(ids)), rng.permutation(len(ids))
    known = {a: round(s / 3) / s for a, s in zip(*np.unique(ids, return_counts=True), strict=True)}
    losses = [
        count_loss(bags.align(known), q, bags)
        for bags, q in ((Bags(ids), p), (Bags(ids[order]), p[order]))
    ]
    assert losses[0] == pytest.approx(losses[1])


def test_a_mean_that_was_rounded_is_its_count():
    p, bags = np.array([0.2, 0.6, 0.7]), Bags([0, 0, 0])
    assert count_loss([1 / 3], p, bags) == count_loss([np.float32(1 / 3)], p, bags)


def test_sure_rows_that_are_wrong_lose_much_but_not_infinitely():
    bags = Bags([0] * EXACT)
    lost = count_loss([1.0], np.zeros(EXACT), bags)
    assert np.isfinite(lost)
    assert lost > 10


def test_probabilities_outside_0_and_1_are_refused():
    with pytest.raises(ValueError, match=r"probabilities must be one number from 0 to 1 a row"):
        count_loss([0.5], [0.5, 1.5], Bags([0, 0]))
