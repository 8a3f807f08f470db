"""Networks from bags: the loss, the trainer, a thousand at once, and what is refused."""

import json
import multiprocessing
import os
import signal
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from bagwise import (  # noqa: E402
    AggregateLinearRegression,
    AggregateMLPClassifier,
    AggregateMLPRegressor,
    AggregateTorchClassifier,
    AggregateTorchRegressor,
    Bags,
    BagTable,
    interpolating_loss,
)
from bagwise.engines import cluster as cluster_module  # noqa: E402
from bagwise.neural import training as training_module  # noqa: E402
from bagwise.neural.batches import BagData, stacked  # noqa: E402
from bagwise.neural.ensemble import Member, find_device, train_ensemble  # noqa: E402
from bagwise.neural.loss import aggregate_losses  # noqa: E402
from bagwise.neural.networks import StackedMLP  # noqa: E402
from bagwise.neural.training import Settings, adam  # noqa: E402
from bagwise.release import release  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in one order, so that runs can be compared to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def bags_of(sizes):
    return Bags(np.repeat(np.arange(len(sizes)), sizes))


def draw(n=600, k=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    bags = Bags.random(n, k, random_state=seed)
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    return X, bags.expand(bags.mean(y)), bags, y


# The loss


@pytest.mark.parametrize("loss", ["squared", "log", "poisson"])
@pytest.mark.parametrize("kind", ["instance", "variance"])
@pytest.mark.parametrize("sizes", [[4, 4, 4], [1, 5, 2, 9], [1, 1, 1]])
@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_the_loss_of_a_stack_is_the_loss_of_the_library(loss, kind, sizes, rho):
    rng = np.random.default_rng(1)
    bags = bags_of(sizes)
    predictions, means = rng.uniform(0.1, 0.9, bags.n_rows), rng.uniform(0.1, 0.9, len(sizes))
    X = torch.zeros(bags.n_rows, 1, dtype=torch.float64)
    batch = BagData.of(X, bags, means[:, None]).whole()
    stack = torch.tensor(np.stack([predictions, predictions[::-1].copy()]))[:, :, None]
    found = aggregate_losses(
        stack, batch, torch.tensor([rho, rho], dtype=torch.float64), loss, kind
    )
    for value, p in zip(found, (predictions, predictions[::-1]), strict=True):
        assert value.item() == pytest.approx(
            float(interpolating_loss(means, p, bags, rho, kind, loss)), rel=1e-12
        )


@pytest.mark.parametrize("loss", ["squared", "log", "cross"])
@pytest.mark.parametrize("kind", ["instance", "variance"])
def test_gradients_through_a_network_are_those_of_finite_differences(loss, kind):
    K = 3 if loss == "cross" else 1
    link = {"squared": "identity", "log": "sigmoid", "cross": "softmax"}[loss]
    rng = np.random.default_rng(2)
    bags = bags_of([2, 5, 1, 4])
    X = torch.tensor(rng.normal(size=(12, 3)))
    means = rng.dirichlet(np.ones(K), 4) if K > 1 else rng.uniform(0.1, 0.9, (4, 1))
    batch = BagData.of(X, bags, means).whole()
    network = StackedMLP((3, 4, K), [0, 1]).double()
    rho = torch.tensor([0.2, 0.8]).double()
    name = "log" if loss == "cross" else loss

    def value():
        f = training_module.LINKS[link](network(batch.X))
        return aggregate_losses(f, batch, rho, name, kind).sum()

    gradients = torch.autograd.grad(value(), list(network.parameters()))
    for p, g in zip(network.parameters(), gradients, strict=True):
        flat = p.data.view(-1)
        for i in range(0, len(flat), 5):
            step = 1e-6
            flat[i] += step
            up = value().item()
            flat[i] -= 2 * step
            down = value().item()
            flat[i] += step
            assert g.reshape(-1)[i].item() == pytest.approx((up - down) / (2 * step), abs=1e-7)


def test_what_fills_up_a_stack_counts_for_nothing():
    rng = np.random.default_rng(3)
    X = torch.tensor(rng.normal(size=(9, 2)))
    parts = [
        BagData.of(X, bags_of([3, 3, 3]), rng.normal(size=(3, 1))).whole(),
        BagData.of(X[:4], bags_of([1, 3]), rng.normal(size=(2, 1))).whole(),
    ]
    both = stacked(parts)
    f = torch.tensor(rng.normal(size=(2, 9, 1)))
    rho = torch.tensor([0.4, 0.4]).double()
    for kind in ("instance", "variance"):
        found = aggregate_losses(f, both, rho, kind=kind)
        alone = [
            aggregate_losses(f[i : i + 1, : p.X.shape[1]], p, rho[:1], kind=kind)[0]
            for i, p in enumerate(parts)
        ]
        np.testing.assert_allclose(found, torch.stack(alone), rtol=1e-12)


def test_adam_is_pytorch_s_own():
    rng = np.random.default_rng(4)
    p = nn.Parameter(torch.tensor(rng.normal(size=(1, 5, 3))))
    q = nn.Parameter(p.detach().clone())
    reference = torch.optim.AdamW([q], lr=0.01, weight_decay=0.1)
    moments = [torch.zeros_like(p), torch.zeros_like(p)]
    for step in range(1, 20):
        g = torch.tensor(rng.normal(size=(1, 5, 3)))
        with torch.no_grad():
            adam(
                [p],
                [g],
                moments,
                torch.tensor(step).double(),
                torch.tensor([0.01], dtype=torch.float64),
                0.1,
            )
        q.grad = g
        reference.step()
    np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-9)


# Laws of the estimators


def test_bags_of_one_row_are_supervised_training_at_every_rho():
    X, _, _, y = draw(200)
    expected = None
    for rho in (0.0, 1.0):
        model = AggregateMLPRegressor((8,), rho=rho, epochs=5, random_state=0).fit(X, y)
        found = model.predict(X)
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, atol=1e-5)
    # And that is plain full-batch Adam on the rows.
    model = AggregateMLPRegressor(
        (8,), rho=1.0, epochs=7, batch_size=200, early_stopping=False, random_state=0,
        schedule="constant", weight_decay=0.0,
    ).fit(X, y)  # fmt: skip
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    network = StackedMLP((3, 8, 1), [seed])
    rows = torch.tensor(((X - X.mean(0)) / X.std(0)).astype(np.float32))[None]
    scale = y.std(ddof=1)
    target = torch.tensor(((y - y.mean()) / scale).astype(np.float32))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(7):
        optimiser.zero_grad()
        ((network(rows)[0, :, 0] - target) ** 2).mean().backward()
        optimiser.step()
    expected = network(rows)[0, :, 0].detach().numpy() * scale + y.mean()
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-3, atol=1e-4)


def test_the_order_of_rows_within_bags_changes_nothing():
    X, y, bags, _ = draw(300)
    shuffle = np.random.default_rng(1).permutation(300)
    # Bags keep their order of first appearance, rows within them do not.
    order = shuffle[np.argsort(bags.codes[shuffle], kind="stable")]
    base = np.argsort(bags.codes, kind="stable")
    options = {"rho": 0.1, "epochs": 5, "random_state": 0}
    one = AggregateMLPRegressor((8,), **options).fit(X[base], y[base], bags.codes[base])
    two = AggregateMLPRegressor((8,), **options).fit(X[order], y[order], bags.codes[order])
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-4)


def test_a_seed_gives_the_same_network_again():
    X, y, bags, _ = draw(300)
    options = {"rho": 0.1, "epochs": 4}
    runs = [
        AggregateMLPRegressor((8,), random_state=s, **options).fit(X, y, bags).predict(X)
        for s in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.allclose(runs[0], runs[2])


def test_a_network_learns_what_no_line_can():
    X, means, bags, y = draw(4000)
    model = AggregateMLPRegressor((32, 32), learning_rate=5e-3, random_state=0)
    assert model.fit(X, means, bags).score(X, y) > 0.9
    assert model.rho_ in model.held_out_losses_
    assert len(model.held_out_losses_) == 8
    assert model.held_out_losses_[model.rho_] == min(model.held_out_losses_.values())


def test_several_classes_are_learnt_from_their_shares():
    X, label = make_classification(
        3000, 6, n_informative=4, n_classes=3, n_clusters_per_class=1, class_sep=2, random_state=0
    )
    bags = Bags.random(3000, 5, random_state=0)
    shares = bags.expand(bags.mean(np.eye(3)[label]))
    model = AggregateMLPClassifier((32,), rho=0.0, learning_rate=5e-3, random_state=0)
    model.fit(X, shares, bags.codes)
    assert model.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.score(X, label) > 0.9


def test_a_classifier_s_score_of_bags_is_the_share_of_loss_explained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    label = (X[:, 0] > 0).astype(float)
    bags = Bags.random(1000, 4, random_state=0)
    share = bags.expand(bags.mean(label))
    model = AggregateMLPClassifier((16,), rho=0.0, learning_rate=1e-2, random_state=0)
    model.fit(X, share, bags)
    assert 0.8 < model.score(X, share, bags) <= 1
    worse = AggregateMLPClassifier((16,), rho=1.0, learning_rate=1e-2, random_state=0)
    assert worse.fit(X, share, bags).score(X, share, bags) < model.score(X, share, bags)


@pytest.mark.parametrize("sizes", [[1, 700, 3], [5] * 60], ids=["larger than a batch", "equal"])
def test_bags_of_any_size(sizes):
    bags = bags_of(sizes)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(bags.n_rows, 2))
    y = bags.expand(bags.mean(X[:, 0]))
    model = AggregateMLPRegressor((4,), rho=0.5, batch_size=64, epochs=3, random_state=0)
    assert np.isfinite(model.fit(X, y, bags).predict(X)).all()


def test_batches_hold_whole_bags_and_all_of_them():
    rng = np.random.default_rng(5)
    bags = bags_of(rng.integers(1, 40, 30))
    X = torch.arange(bags.n_rows, dtype=torch.float32)[:, None]
    means = bags.mean(X.numpy()[:, 0])
    data = BagData.of(X, bags, means[:, None])
    seen = []
    for batch in data.batches(torch.randperm(30), 50):
        averages = torch.zeros(batch.sizes.shape[1]).scatter_reduce(
            0, batch.codes[0], batch.X[0, :, 0], "mean", include_self=False
        )
        np.testing.assert_allclose(averages, batch.means[0, :, 0], rtol=1e-5)
        assert batch.X.shape[1] <= 50 or batch.sizes.shape[1] == 1
        seen.extend(batch.X[0, :, 0].tolist())
    assert sorted(seen) == list(range(bags.n_rows))


# A thousand at once


@pytest.mark.parametrize("batch_size", [None, 60])
def test_an_ensemble_is_its_networks_one_by_one(batch_size):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(240, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + X[:, 0] ** 2
    sizes = [10] if batch_size else [5, 20, 80]
    members = [
        Member(b := Bags.random(240, k, random_state=seed), b.mean(y), rho, seed, rate,
               held_out=(0, 2))
        for k in sizes
        for seed, rho, rate in ((0, 0.0, 1e-3), (1, 0.1, 1e-2), (2, 1.0, 3e-3))
    ]  # fmt: skip
    settings = Settings(epochs=30, patience=4, weight_decay=1e-3, schedule="cosine")
    together = train_ensemble(X, members, (16, 16), settings, batch_size, "cpu")
    for i, member in enumerate(members):
        alone = train_ensemble(X, [member], (16, 16), settings, batch_size, "cpu")
        np.testing.assert_allclose(together.predict(X)[i], alone.predict(X)[0], atol=1e-5)
        assert together.held_out_loss[i] == pytest.approx(alone.held_out_loss[0], rel=1e-4)
    # In chunks too.
    pieces = train_ensemble(X, members, (16, 16), settings, batch_size, "cpu", chunk=2)
    np.testing.assert_allclose(pieces.predict(X), together.predict(X), atol=1e-5)
    one = pieces.network(len(members) - 1)
    rows = torch.tensor(X, dtype=torch.float32)[None]
    np.testing.assert_allclose(one(rows).detach(), pieces.predict(X)[-1:], atol=1e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"means": np.zeros(7)}, "means must be one entry a bag; got 7 for 8 bags"),
        ({"learning_rate": -0.1}, "learning_rate must be above 0"),
        ({"bags": Bags.random(80, 10, random_state=0)}, "bags must be of rows of X; got 80 rows"),
        ({"rows": np.arange(39)}, "bags must be of rows of X"),
        ({"rows": np.arange(1, 41)}, "bags must be of rows of X"),
    ],
)
def test_members_that_do_not_fit_are_refused(change, sentence):
    asked = {"bags": Bags.random(40, 5, random_state=0), "means": np.zeros(8)} | change
    with pytest.raises(ValueError, match=sentence):
        train_ensemble(np.zeros((40, 2)), [Member(**asked)], (4,), Settings(epochs=1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"loss": "foo"}, "loss must be one of 'squared'"),
        ({"kind": "foo"}, "kind must be one of"),
        ({"link": "foo"}, "link must be one of"),
        ({"precision": "auto"}, "precision must be one of"),
        ({"schedule": "foo"}, "schedule must be one of"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"patience": -1}, "patience must be a whole number of at least 0"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
    ],
)
def test_bad_settings_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**({"epochs": 1} | options))


class Odd(nn.Module):
    """A linear layer with something done to what it gives."""

    def __init__(self, change=lambda z: z, inputs=3):
        super().__init__()
        self.change, self.layer = change, nn.Linear(inputs, 1)

    def forward(self, X):
        return self.change(self.layer(X))


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (lambda: Odd(lambda z: (z, z)), "a network that gives real numbers; got tuple"),
        (lambda: Odd(lambda z: None), "a network that gives real numbers; got NoneType"),
        (lambda: Odd(lambda z: z.long()), r"gives real numbers; got torch\.int64"),
        (lambda: Odd(lambda z: z + 1j), r"gives real numbers; got torch\.complex64"),
        (lambda: Odd(lambda z: z.detach()), "whose outputs follow its weights"),
        (lambda: Odd(inputs=5), "takes rows of 3 float32 numbers; got RuntimeError"),
        (lambda: Odd().double(), "takes rows of 3 float32 numbers; got RuntimeError"),
        (lambda: Odd(lambda z: z.expand(-1, 2)), "a network with 1 outputs a row"),
    ],
)
@pytest.mark.parametrize("rho", [0.0, "cv"])
def test_modules_that_cannot_be_trained_are_one_sentence(module, sentence, rho):
    X, y, bags, _ = draw(50)
    model = AggregateTorchRegressor(module(), rho=rho)
    with pytest.raises(ValueError, match=f"module must be .*{sentence}"):
        model.fit(X, y, bags)


@pytest.mark.parametrize("model", [AggregateLinearRegression, AggregateMLPRegressor])
def test_responses_whose_squares_overflow_are_refused(model):
    X, y, bags, _ = draw(50)
    with pytest.raises(ValueError, match=r"y must be within ±1e\+140; .* Rescale it"):
        model().fit(X, 1e300 * np.asarray(y), bags)


def test_members_that_would_step_differently_are_refused():
    X = np.zeros((40, 2))
    members = [Member(b := Bags.random(40, k, random_state=0), b.mean(X[:, 0])) for k in (2, 20)]
    with pytest.raises(ValueError, match="members must be of as many batches each"):
        train_ensemble(X, members, (4,), Settings(epochs=1), batch_size=10)
    with pytest.raises(ValueError, match="members must be at least one"):
        train_ensemble(X, [], (4,))


# Checkpoints, files, releases


def test_a_resumed_training_is_one_that_was_never_interrupted(tmp_path, monkeypatch):
    X, y, bags, _ = draw(300)
    options = {"hidden": (8,), "rho": 0.1, "epochs": 12, "patience": 20, "random_state": 3}
    expected = AggregateMLPRegressor(**options).fit(X, y, bags)
    store, written = training_module._store, []

    def stop(*arguments):
        store(*arguments)
        written.append(1)
        if len(written) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_module, "_store", stop)
    options["checkpoint"] = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        AggregateMLPRegressor(**options).fit(X, y, bags)
    monkeypatch.setattr(training_module, "_store", store)
    found = AggregateMLPRegressor(**options).fit(X, y, bags)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
    others = [{"hidden": (9,)}, {"rho": 0.2}, {"learning_rate": 0.1}, {"random_state": 4}]
    for change in [*others, {"epochs": 13}, {"weight_decay": 0.0}]:
        with pytest.raises(ValueError, match="checkpoint must be one of this training"):
            AggregateMLPRegressor(**options | change).fit(X, y, bags)
    for changed in ((X + 1, y), (X, y + 1)):
        with pytest.raises(ValueError, match="checkpoint must be one of this training"):
            AggregateMLPRegressor(**options).fit(*changed, bags)


def _train_and_die(path):
    torch.set_num_threads(1)
    X, y, bags, _ = draw(300)
    store, written = training_module._store, []

    def die(*arguments):
        store(*arguments)
        written.append(1)
        if len(written) == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    training_module._store = die
    AggregateMLPRegressor((8,), rho=0.1, epochs=9, random_state=3, checkpoint=path).fit(X, y, bags)


def test_a_kill_costs_the_epoch_it_falls_in(tmp_path):
    path = tmp_path / "run.safetensors"
    process = multiprocessing.get_context("spawn").Process(target=_train_and_die, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    X, y, bags, _ = draw(300)
    options = {"rho": 0.1, "epochs": 9, "random_state": 3}
    found = AggregateMLPRegressor((8,), checkpoint=path, **options).fit(X, y, bags)
    expected = AggregateMLPRegressor((8,), **options).fit(X, y, bags)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


@pytest.mark.parametrize("kind", ["regressor", "classifier", "module"])
def test_a_saved_network_predicts_the_same(tmp_path, kind):
    X, y, bags, _ = draw(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    options = {"rho": 0.1, "epochs": 2, "random_state": 0}
    if kind == "classifier":
        share = bags.expand(bags.mean((X[:, 0] > 0).astype(float)))
        model = AggregateMLPClassifier((8,), **options).fit(frame, share, bags)
        model.save(tmp_path / "m")
        again = AggregateMLPClassifier.load(tmp_path / "m")
        np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    elif kind == "module":
        model = AggregateTorchRegressor(module, **options).fit(frame, y, bags)
        model.save(tmp_path / "m")
        again = AggregateTorchRegressor.load(tmp_path / "m", module)
        with pytest.raises(ValueError, match="path must be a folder written by save"):
            AggregateTorchRegressor.load(tmp_path / "m", nn.Linear(3, 1))
    else:
        model = AggregateMLPRegressor((8,), **options).fit(frame, y, bags)
        model.save(tmp_path / "m")
        again = AggregateMLPRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    assert again.rho_ == model.rho_
    names = {p.name for p in (tmp_path / "m").iterdir()}
    assert names == {"model.json", "network.safetensors"}
    with pytest.raises(ValueError, match="path must be a folder written by save of a"):
        AggregateTorchClassifier.load(tmp_path / "m", module)
    said = json.loads((tmp_path / "m" / "model.json").read_text())
    assert said["format"] == "bagwise model 1"


def test_networks_are_trained_from_row_groups(tmp_path, monkeypatch):
    """A Release and a table in files, as well as from memory."""
    monkeypatch.setattr(cluster_module, "GROUP", 500)
    rng = np.random.default_rng(0)
    n = 6000
    rows = pd.DataFrame({"u": rng.normal(size=n), "town": rng.choice(["a", "b"], n)})
    rows["y"] = rows["u"] ** 2 + 2 * (rows["town"] == "a")
    made = release(rows, response="y", bag_size=5, epsilon=np.inf, bounds=(0, 12), ledger=None,
                   out=tmp_path / "released")  # fmt: skip
    model = AggregateMLPRegressor((32,), rho=0.0, learning_rate=5e-3, epochs=40, random_state=0)
    model.fit(made)
    assert model.feature_names_in_.tolist() == ["u", "town=a", "town=b"]
    predictions = model.predict(rows[["u", "town"]])
    assert np.corrcoef(predictions, rows["y"])[0, 1] ** 2 > 0.9
    model.save(tmp_path / "m")
    again = AggregateMLPRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(rows[["u", "town"]]), predictions)
    X, y, ids = made.training_set()
    joined = X.append_column("y", pa.array(y)).append_column("bag", pa.array(ids))
    pa.parquet.write_table(joined, tmp_path / "rows.parquet")
    table = BagTable(tmp_path / "rows.parquet", "y", "bag")
    other = clone(model).fit(table)
    found = other.predict(rows[["u", "town"]])
    assert np.corrcoef(found, rows["y"])[0, 1] ** 2 > 0.9
    by_path = clone(model).set_params(epochs=1).fit(str(tmp_path / "rows.parquet"), "y", "bag")
    assert hasattr(by_path, "encoder_")


# What is refused


class Wide(nn.Module):
    def forward(self, X):
        return torch.stack([X[:, 0], X[:, 1]], dim=1)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda: AggregateMLPRegressor(rho=2.0), r"rho must be in \[0, 1\]"),
        (lambda: AggregateMLPRegressor(rho="loo"), r"rho must be in \[0, 1\] or 'cv'"),
        (lambda: AggregateMLPRegressor(kind="bag"), "kind must be one of"),
        (lambda: AggregateMLPRegressor(epochs=0), "epochs must be a whole number"),
        (lambda: AggregateMLPRegressor(hidden=(0,)), "hidden must be a whole number"),
        (lambda: AggregateMLPRegressor(learning_rate=0.0), "learning_rate must be above 0"),
        (lambda: AggregateMLPRegressor(batch_size=0), "batch_size must be a whole number"),
        (lambda: AggregateMLPRegressor(schedule="step"), "schedule must be one of"),
        (lambda: AggregateMLPRegressor(precision="half"), "precision must be one of"),
        (lambda: AggregateMLPRegressor(validation_share=0.0), "validation_share must be in"),
        (lambda: AggregateMLPRegressor(device="tpu9"), "device must be 'auto', 'cpu' or 'cuda'"),
        (lambda: AggregateMLPRegressor(device="mps"), "device must be 'auto', 'cpu' or 'cuda'"),
        (lambda: AggregateMLPRegressor(device=7.5), "device must be 'auto', 'cpu' or 'cuda'"),
        (lambda: AggregateMLPRegressor((10**9, 10**9)), "hidden must be layers that fit in memory"),
        (lambda: AggregateTorchRegressor(), "module must be a torch.nn.Module; got a NoneType"),
        (lambda: AggregateTorchRegressor(Wide(), rho=0.0), "module must be a network with 1 out"),
        (
            lambda: AggregateMLPRegressor(rho=0.0, learning_rate=1e30, standardise=False),
            "the loss must be finite after every epoch; got no number at rho=0. Take a smaller",
        ),
    ],
)
def test_bad_parameters_are_one_sentence(model, sentence):
    X, y, bags, _ = draw(100)
    if "Wide" in sentence or "1 out" in sentence:
        made = model()
        made.module.weight = nn.Parameter(torch.zeros(1))
    else:
        made = model()
    with pytest.raises(ValueError, match=sentence):
        made.fit(X * 1e3 if "finite" in sentence else X, y, bags)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there_is_told():
    X, y, bags, _ = draw(50)
    with pytest.raises(ValueError, match="device must be there; got device='cuda', and PyTorch"):
        AggregateMLPRegressor(device="cuda").fit(X, y, bags)
    assert find_device("auto").type == "cpu"


def test_a_bag_larger_than_memory_is_told(monkeypatch):
    X, y, bags, _ = draw(50)

    def fail(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(training_module, "aggregate_losses", fail)
    with pytest.raises(ValueError, match="a batch of whole bags must fit in memory; got"):
        AggregateMLPRegressor(rho=0.0, early_stopping=False).fit(X, y, bags)


@pytest.mark.parametrize("y", [[1.2, -0.1], [2.0, 0.5]])
def test_shares_outside_0_and_1_are_refused(y):
    with pytest.raises(ValueError, match="y must be shares from 0 to 1"):
        AggregateMLPClassifier().fit(np.eye(4), np.repeat(y, 2), [0, 0, 1, 1])


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="y must be the shares of all classes"):
        AggregateMLPClassifier().fit(np.eye(4), np.full((4, 3), 0.5), [0, 0, 1, 1])


def test_without_torch_the_extra_is_named(monkeypatch):
    X, y, bags, _ = draw(50)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"torch must be installed .*bagwise\[neural\]"):
        AggregateMLPRegressor().fit(X, y, bags)
