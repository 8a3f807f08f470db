"""The two lemmas of the paper as laws, and derivatives against numeric ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagwise import (
    Bags,
    bag_loss,
    instance_loss,
    interpolating_derivatives,
    interpolating_loss,
    within_bag_variance,
)

NAMES = ("squared", "log", "poisson")
KINDS = ("instance", "variance")


def draw(loss, seed, n_rows=17):
    """Unequal, unsorted bags, means and predictions in the range of the loss."""
    rng = np.random.default_rng(seed)
    bags = Bags(rng.choice([3, 11, -2, 8, 50], size=n_rows))
    low, high = {"squared": (-4, 9), "log": (0.02, 0.98), "poisson": (0.1, 7)}[loss]
    return rng.uniform(low, high, bags.n_bags), rng.uniform(low, high, n_rows), bags


def point(loss, y, f):
    """The point losses written out once more."""
    return {
        "squared": lambda: (y - f) ** 2,
        "log": lambda: -y * np.log(f) - (1 - y) * np.log(1 - f),
        "poisson": lambda: f - y + y * np.log(y / f),
    }[loss]()


@pytest.mark.parametrize("loss", NAMES)
@given(seed=st.integers(0, 10_000))
def test_losses_are_their_defining_sums(loss, seed):
    means, f, bags = draw(loss, seed)
    members = [np.flatnonzero(bags.codes == a) for a in range(bags.n_bags)]
    at_bags = sum(len(i) * point(loss, y, f[i].mean()) for y, i in zip(means, members, strict=True))
    at_rows = sum(point(loss, y, f[i]).sum() for y, i in zip(means, members, strict=True))
    pairs = sum(((f[i][:, None] - f[i]) ** 2).sum() / (2 * len(i)) for i in members)
    assert bag_loss(means, f, bags, loss) == pytest.approx(at_bags / 17)
    assert instance_loss(means, f, bags, loss) == pytest.approx(at_rows / 17)
    assert within_bag_variance(f, bags) == pytest.approx(pairs / 17)


@given(seed=st.integers(0, 10_000))
def test_squared_instance_loss_is_bag_loss_plus_variance(seed):
    means, f, bags = draw("squared", seed)
    total = bag_loss(means, f, bags) + within_bag_variance(f, bags)
    assert instance_loss(means, f, bags) == pytest.approx(total)


@pytest.mark.parametrize("loss", NAMES)
@given(seed=st.integers(0, 10_000))
def test_convex_instance_loss_lies_between_bag_loss_and_half_its_curvature(loss, seed):
    means, f, bags = draw(loss, seed)
    y, low, high = bags.expand(means), f.min(), f.max()
    curvature = {
        "squared": 2.0,
        "log": (y / low**2 + (1 - y) / (1 - high) ** 2).max(),
        "poisson": (y / low**2).max(),
    }[loss]
    at_bags, at_rows = bag_loss(means, f, bags, loss), instance_loss(means, f, bags, loss)
    assert at_bags <= at_rows + 1e-12
    assert at_rows <= at_bags + curvature / 2 * within_bag_variance(f, bags) + 1e-12


def test_half_the_curvature_is_sharp():
    """For squared loss the bound is an equality, so any smaller constant would fail."""
    means, f, bags = draw("squared", 1)
    gap = instance_loss(means, f, bags) - bag_loss(means, f, bags)
    assert gap > 0.99 * within_bag_variance(f, bags) > 0


@pytest.mark.parametrize("loss", NAMES)
def test_ends_of_the_interpolation(loss):
    means, f, bags = draw(loss, 5)
    at_bags, at_rows = bag_loss(means, f, bags, loss), instance_loss(means, f, bags, loss)
    for kind in KINDS:
        assert interpolating_loss(means, f, bags, 0, kind, loss) == at_bags
    assert interpolating_loss(means, f, bags, 1, "instance", loss) == pytest.approx(at_rows)
    whole = at_bags + within_bag_variance(f, bags)
    assert interpolating_loss(means, f, bags, 1, "variance", loss) == pytest.approx(whole)


@given(seed=st.integers(0, 1000), rho=st.floats(0, 1))
def test_both_kinds_agree_for_squared_loss(seed, rho):
    means, f, bags = draw("squared", seed)
    a, b = (interpolating_loss(means, f, bags, rho, kind) for kind in KINDS)
    assert a == pytest.approx(b)


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_derivatives_match_automatic_ones(loss, kind, rho):
    means, f, bags = draw(loss, 8)
    tensors = torch.tensor(means), torch.tensor(f, requires_grad=True)

    def value(predictions):
        return interpolating_loss(tensors[0], predictions, bags, rho, kind, loss)

    (gradient,) = torch.autograd.grad(value(tensors[1]), tensors[1])
    hessian = torch.autograd.functional.hessian(value, tensors[1]).numpy()
    ours = interpolating_derivatives(means, f, bags, rho, kind, loss)
    np.testing.assert_allclose(ours.gradient, gradient.numpy(), atol=1e-12)
    np.testing.assert_allclose(ours.diagonal, np.diag(hessian), atol=1e-12)
    vector = np.arange(17.0) - 3
    np.testing.assert_allclose(ours.hessian_dot(vector), hessian @ vector, atol=1e-10)
    theirs = interpolating_derivatives(*tensors, bags, rho, kind, loss)
    np.testing.assert_allclose(theirs.gradient.detach().numpy(), ours.gradient, atol=1e-12)
    np.testing.assert_allclose(theirs.diagonal.detach().numpy(), ours.diagonal, atol=1e-12)


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_matches_finite_differences(loss, kind):
    means, f, bags = draw(loss, 2)
    ours = interpolating_derivatives(means, f, bags, 0.4, kind, loss).gradient
    step = 1e-6
    for i in range(17):
        up, down = f.copy(), f.copy()
        up[i] += step
        down[i] -= step
        rise = interpolating_loss(means, up, bags, 0.4, kind, loss) - interpolating_loss(
            means, down, bags, 0.4, kind, loss
        )
        assert ours[i] == pytest.approx(rise / (2 * step), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("loss", NAMES)
def test_rows_of_a_bag_may_be_reordered_and_bags_relabelled(loss):
    means, f, bags = draw(loss, 3)
    order = np.random.default_rng(0).permutation(17)
    moved = Bags([f"bag {i}" for i in bags.ids[bags.codes[order]]])
    moved_means = moved.align({f"bag {i}": m for i, m in zip(bags.ids, means, strict=True)})
    for rho in (0.0, 0.5, 1.0):
        before = interpolating_loss(means, f, bags, rho, loss=loss)
        assert interpolating_loss(moved_means, f[order], moved, rho, loss=loss) == pytest.approx(
            before
        )


@pytest.mark.parametrize("loss", NAMES)
def test_bags_of_one_make_rho_irrelevant(loss):
    means, f, _ = draw(loss, 4)
    f, bags = f[: len(means)], Bags(np.arange(len(means)))
    ends = [interpolating_loss(means, f, bags, r, k, loss) for r in (0, 0.7, 1) for k in KINDS]
    np.testing.assert_allclose(ends, ends[0])


def test_saturated_predictions_stay_finite():
    bags = Bags([0, 0])
    for dtype in (torch.float32, torch.float64):
        f = torch.tensor([0.0, 1.0], dtype=dtype, requires_grad=True)
        for loss in ("log", "poisson"):
            value = instance_loss(torch.tensor([0.3], dtype=dtype), f, bags, loss)
            value.backward()
            assert torch.isfinite(value)
            assert torch.isfinite(f.grad).all()


def test_bad_arguments_get_one_sentence():
    data = np.array([0.5]), np.array([0.1, 0.4]), Bags([0, 0])
    with pytest.raises(ValueError, match=r"rho must be in \[0, 1\]; got rho=1.5\. 0 is the bag"):
        interpolating_loss(*data, 1.5)
    with pytest.raises(ValueError, match=r"rho must be in \[0, 1\]; got rho=nan"):
        interpolating_derivatives(*data, float("nan"))
    with pytest.raises(ValueError, match="kind must be one of 'instance', 'variance'"):
        interpolating_loss(*data, 0.5, "other")
    with pytest.raises(ValueError, match="loss must be one of 'squared', 'log', 'poisson'"):
        bag_loss(*data, "hinge")


@pytest.mark.parametrize("as_torch", [False, True])
def test_shapes_that_would_broadcast_are_refused(as_torch):
    bags = Bags(["a", "a", "b"])
    make = torch.tensor if as_torch else np.array
    means, f = make([0.5, 0.2]), make([0.9, 0.3, 0.1])
    for loss in (bag_loss, instance_loss):
        with pytest.raises(ValueError, match=r"predictions must be one number a row; got shape"):
            loss(means, f[:, None], bags)
        with pytest.raises(ValueError, match=r"predictions must be one number a row"):
            loss(means, f[:1], bags)
        with pytest.raises(ValueError, match=r"means must be one number a bag; got shape \(3,\)"):
            loss(make([0.5, 0.5, 0.2]), f, bags)
        with pytest.raises(ValueError, match=r"means must be one number a bag"):
            loss(means[:1], f, bags)


def test_means_are_taken_in_the_form_at_hand():
    bags, f = Bags(["a", "a", "b"]), [0.9, 0.3, 0.1]
    expected = float(bag_loss(np.array([0.5, 0.2]), np.array(f), bags))
    assert float(bag_loss([0.5, 0.2], f, bags)) == pytest.approx(expected)
    for dtype in (torch.float32, torch.float64):
        predictions = torch.tensor(f, dtype=dtype)
        found = bag_loss(bags.align({"a": 0.5, "b": 0.2}), predictions, bags)
        assert found.dtype == dtype
        assert float(found) == pytest.approx(expected, rel=1e-5)
    assert instance_loss([1.0, 0.0], np.array([1, 0, 1]), bags, "poisson") > 0


@pytest.mark.parametrize("loss", ["log", "poisson"])
def test_derivatives_of_saturated_predictions_agree_with_automatic_ones(loss):
    bags, means = Bags([0, 1, 1]), torch.tensor([0.4, 0.5], dtype=torch.float64)
    f = torch.tensor([0.0, 0.5, 0.7], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(interpolating_loss(means, f, bags, 0.3, loss=loss), f)
    ours = interpolating_derivatives(means, f.detach(), bags, 0.3, loss=loss)
    np.testing.assert_allclose(ours.gradient.numpy(), gradient.numpy(), atol=1e-12)


def test_second_derivatives_of_double_tensors_are_double():
    means, f, bags = draw("squared", 8)
    ours = interpolating_derivatives(means, f, bags, 0.3, "variance")
    theirs = interpolating_derivatives(means, torch.tensor(f), bags, 0.3, "variance")
    np.testing.assert_allclose(theirs.shared.numpy(), ours.shared, rtol=1e-14)
