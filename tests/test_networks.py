"""Laws of training: what a batch weighs, when it stops, what a user's module may be."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from bagwise import (  # noqa: E402
    AggregateMLPClassifier,
    AggregateMLPRegressor,
    AggregateTorchClassifier,
    AggregateTorchRegressor,
    Bags,
    BagTable,
)
from bagwise.engines import cluster as cluster_module  # noqa: E402
from bagwise.neural import training as training_module  # noqa: E402
from bagwise.neural.batches import BagData  # noqa: E402
from bagwise.neural.ensemble import Member, train_ensemble  # noqa: E402
from bagwise.neural.loss import aggregate_losses  # noqa: E402
from bagwise.neural.networks import StackedMLP, mlp  # noqa: E402
from bagwise.neural.training import Settings, Step, held_out_loss, train  # noqa: E402
from bagwise.release import release  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(n=300, k=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    bags = Bags.random(n, k, random_state=seed)
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    return X, bags.expand(bags.mean(y)), bags


def fitted(X, y, bags, **options):
    chosen = {"hidden": (8,), "rho": 0.1, "epochs": 6, "random_state": 0} | options
    return AggregateMLPRegressor(**chosen).fit(X, y, bags)


# What is minimised


@pytest.mark.parametrize("batch_size", [1000, 100, 10])
def test_bags_weigh_by_their_size_in_batches_of_any_size(batch_size):
    """One bag of 900 rows at 1, a hundred of one row at 0: nothing to learn but 0.9."""
    bags = Bags(np.repeat(np.arange(101), [900] + [1] * 100))
    y = np.where(bags.codes == 0, 1.0, 0.0)
    model = AggregateMLPRegressor(
        (), rho=0.0, batch_size=batch_size, epochs=300, learning_rate=0.02, weight_decay=0,
        early_stopping=False, random_state=0,
    )  # fmt: skip
    found = model.fit(np.zeros((1000, 1)), y, bags).predict(np.zeros((1, 1)))
    assert found[0] == pytest.approx(0.9, abs=0.03)


def test_batches_of_an_epoch_weigh_as_much_as_their_rows():
    bags = Bags(np.repeat(np.arange(4), [3, 30, 5, 2]))
    data = BagData.of(torch.zeros(40, 1), bags, np.zeros((4, 1)))
    batches = list(data.batches(torch.arange(4), 10))
    assert [b.X.shape[1] for b in batches] == [3, 30, 7]
    assert [b.weight.item() for b in batches] == pytest.approx([0.3, 3.0, 0.7])


def test_held_out_batches_weigh_by_their_rows():
    rng = np.random.default_rng(0)
    bags = Bags(np.repeat(np.arange(3), [2, 20, 7]))
    X = torch.tensor(rng.normal(size=(29, 2)), dtype=torch.float32)
    data = BagData.of(X, bags, rng.normal(size=(3, 1)))
    network, settings = StackedMLP((2, 4, 1), [0, 1]), Settings(epochs=1)
    parts = held_out_loss(network, data.batches(torch.arange(3), 10), settings)
    np.testing.assert_allclose(parts, held_out_loss(network, [data.whole()], settings), rtol=1e-5)


def test_several_classes_have_the_cross_entropy_of_their_shares():
    shares, f = np.array([[0.2, 0.3, 0.5]]), np.array([[0.1, 0.6, 0.3], [0.3, 0.2, 0.5]])
    batch = BagData.of(torch.zeros(2, 1, dtype=torch.float64), Bags([0, 0]), shares).whole()
    found = aggregate_losses(torch.tensor(f)[None], batch, torch.zeros(1).double(), "log")
    assert found.item() == pytest.approx(-(shares[0] @ np.log(f.mean(axis=0))))


# Parameters of an estimator, each of which must matter


@pytest.mark.parametrize(
    "change",
    [{"kind": "variance"}, {"weight_decay": 0.5}, {"schedule": "constant"}, {"standardise": False},
     {"precision": "bf16"}, {"learning_rate": 0.01}, {"rho": 0.9}, {"batch_size": 50}],
    ids=str,
)  # fmt: skip
def test_every_parameter_changes_what_is_learnt(change):
    X, _, bags = draw()
    share = bags.expand(bags.mean((X[:, 0] > 0).astype(float)))
    options = {"hidden": (8,), "rho": 0.3, "epochs": 6, "random_state": 0}
    models = [AggregateMLPClassifier(**options | more).fit(X, share, bags) for more in ({}, change)]
    base, other = (model.predict_proba(X)[:, 1] for model in models)
    assert np.abs(base - other).max() > 1e-5
    if "precision" in change:
        assert np.abs(base - other).max() < 0.05, "only rounded"


def test_the_learning_rate_falls_as_a_cosine():
    settings = Settings(epochs=10, schedule="cosine")
    found = [training_module._factor(settings, epoch) for epoch in range(10)]
    np.testing.assert_allclose(found, (1 + np.cos(np.pi * np.arange(10) / 10)) / 2)


def recorded(monkeypatch):
    """Every batch that is trained on, and every one that is looked at."""
    seen, looked = [], []
    step, look = Step.__call__, training_module.held_out_loss

    def take(self, batch, *others):
        seen.append(batch.means.clone())
        return step(self, batch, *others)

    def aside(network, batches, settings):
        some = list(batches)
        looked.extend(batch.means for batch in some)
        return look(network, some, settings)

    monkeypatch.setattr(Step, "__call__", take)
    monkeypatch.setattr(training_module, "held_out_loss", aside)
    return lambda: [set(torch.cat(x, 1).flatten().tolist()) for x in (seen, looked)]


@pytest.mark.parametrize("source", ["memory", "row groups"])
def test_held_out_bags_are_looked_at_and_never_trained_on(source, monkeypatch, tmp_path):
    X, y, bags = draw(2000)
    batches = recorded(monkeypatch)
    options = {"rho": 0.1, "epochs": 2, "validation_share": 0.2, "standardise": False}
    model = AggregateMLPRegressor((4,), random_state=0, **options)
    if source == "memory":
        model.fit(X, y, bags)
    else:
        monkeypatch.setattr(cluster_module, "GROUP", 300)
        frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, bag=bags.codes)
        frame.to_parquet(tmp_path / "rows.parquet")
        table = BagTable(tmp_path / "rows.parquet", "y", "bag")
        assert len(table.row_groups()) > 4
        model.fit_release(table, ["a", "b", "c"])
    trained, aside = batches()
    assert len(aside) == 80
    assert len(trained) == 320
    assert not trained & aside


def test_held_out_bags_of_a_large_table_come_from_all_of_it():
    model = AggregateMLPRegressor(random_state=0)
    sizes = np.full(10_000, 10)
    aside = model._hold_out(sizes, 0, most=1000)
    assert aside.sum() == 100
    assert np.flatnonzero(aside).mean() == pytest.approx(5000, abs=5 * 2900 / 10)


def test_a_network_stops_when_held_out_bags_do_not_improve_and_keeps_its_best():
    """Responses are noise: the held-out loss is lowest early."""
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(200, 5)), Bags.random(200, 2, random_state=0)
    y = bags.expand(bags.mean(rng.normal(size=200)))
    options = {"hidden": (64,), "learning_rate": 0.03, "epochs": 200, "patience": 5}
    model = fitted(X, y, bags, **options)
    assert model.n_epochs_ < 100
    # The last of an uninterrupted training is worse than what was kept.
    last = fitted(X, y, bags, **options, early_stopping=False, validation_share=0.15, rho="cv")
    assert last.n_epochs_ == 200
    assert min(last.held_out_losses_.values()) > min(model.held_out_losses_.values())


def test_without_early_stopping_the_last_weights_are_kept_and_rho_is_chosen_by_them():
    X, y, bags = draw()
    model = fitted(X, y, bags, rho="cv", early_stopping=False, epochs=30)
    alone = fitted(X, y, bags, rho=model.rho_, early_stopping=False, epochs=30)
    assert alone.n_epochs_ == model.n_epochs_ == 30
    assert len(model.held_out_losses_) == 8
    assert not alone.held_out_losses_


# Scales


def test_single_precision_is_standardised_like_double():
    rng = np.random.default_rng(0)
    X = rng.normal([1000, 0], size=(400_000, 2)).astype(np.float32)
    bags = Bags(np.arange(len(X)) // 20)
    y = bags.expand(bags.mean(X[:, 1].astype(float)))
    one, two = (fitted(A, y, bags, epochs=1, hidden=()) for A in (X, X.astype(float)))
    np.testing.assert_allclose(one.centre_, two.centre_, rtol=1e-6)
    np.testing.assert_allclose(one.scale_, two.scale_, rtol=1e-6)
    np.testing.assert_allclose(two.scale_, X.astype(float).std(axis=0), rtol=1e-9)


def test_a_constant_column_is_left_alone():
    X, y, bags = draw()
    model = fitted(np.column_stack([X, np.full(len(X), 0.1)]), y, bags)
    assert model.scale_[3] == 1.0


def test_responses_are_scaled_as_rows_vary_in_random_bags_and_in_sorted_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    response = X[:, 0] + 0.5 * rng.normal(size=4000)
    for order in (rng.permutation(4000), np.argsort(X[:, 0])):
        bags = Bags(np.argsort(order) // 200)
        model = fitted(X, bags.expand(bags.mean(response)), bags, epochs=1)
        assert 0.4 < model.response_scale_ / response.std() < 2


def test_row_groups_are_scaled_like_rows_in_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_module, "GROUP", 100)
    X, y, bags = draw(1000)
    X = X * [1, 10, 100] + [1e3, 0, -1e4]
    rows = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, bag=bags.codes)
    rows.to_parquet(tmp_path / "rows.parquet")
    table = BagTable(tmp_path / "rows.parquet", "y", "bag")
    names = ["a", "b", "c"]
    options = {"rho": 0.1, "epochs": 1, "random_state": 0}
    model = AggregateMLPRegressor(**options).fit_release(table, names)
    other = AggregateMLPRegressor(**options).fit(X, y, bags)
    for name in ("centre_", "scale_", "response_centre_", "response_scale_"):
        np.testing.assert_allclose(getattr(model, name), getattr(other, name), rtol=1e-9)


# What fails


class Stop(Exception):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
def test_a_fit_that_breaks_off_leaves_the_model_as_it_was(monkeypatch, error):
    X, y, bags = draw()
    model = fitted(X, y, bags)
    before = model.predict(X)
    new = AggregateMLPRegressor()

    def fail(*_):
        raise error

    monkeypatch.setattr(training_module, "aggregate_losses", fail)
    for one in (model, new):
        with pytest.raises(error):
            one.fit(X[:, :2] * 100, y + 7, bags)
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(NotFittedError):
        new.predict(X)
    with pytest.raises(error):
        AggregateMLPRegressor(precision="tf32").fit(X, y, bags)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_loss_that_is_no_number_is_told_where_only_the_end_is_looked_at(monkeypatch):
    """As on a GPU, which is not waited for after every epoch."""
    X, y, bags = draw()
    data = BagData.of(torch.tensor(X * 1e3, dtype=torch.float32), bags, bags.mean(y)[:, None])
    real, calls = training_module._refuse_nan, []

    def late(*arguments):
        calls.append(1)
        if len(calls) > 5:
            real(*arguments)

    monkeypatch.setattr(training_module, "_refuse_nan", late)
    whole, one, settings = [data.whole()], torch.ones(1), Settings(epochs=50, patience=5)
    network = StackedMLP((3, 8, 1), [0])
    with pytest.raises(ValueError, match="the loss must be finite after every epoch"):
        train(network, lambda _: whole, one, 1e30 * one, settings, lambda: whole)


def test_a_held_out_batch_larger_than_memory_is_told(monkeypatch):
    X, y, bags = draw()

    def fail(network, rows, settings):
        if not torch.is_grad_enabled():
            raise RuntimeError("CUDA out of memory")
        return network(rows)

    monkeypatch.setattr(training_module, "predict", fail)
    with pytest.raises(ValueError, match="a batch of whole bags must fit in memory"):
        fitted(X, y, bags)


@pytest.mark.parametrize("hidden", [100, "12", None])
def test_widths_are_a_sequence(hidden):
    with pytest.raises(ValueError, match="hidden must be a sequence of widths"):
        AggregateMLPRegressor(hidden).fit(*draw())


def test_a_checkpoint_in_no_folder_is_told_before_training(tmp_path):
    with pytest.raises(ValueError, match="checkpoint must be a file in a folder that is there"):
        fitted(*draw(), checkpoint=tmp_path / "none" / "run")


# A user's own module


class Module(nn.Module):
    """Dropout, normalisation, a frozen layer, a layer that is not used, tied weights."""

    def __init__(self, outputs=1):
        super().__init__()
        self.frozen = nn.Linear(3, 8).requires_grad_(False)
        self.mix, self.again = nn.Linear(8, 8), nn.Linear(8, 8)
        self.again.weight = self.mix.weight
        self.normal, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.unused, self.last = nn.Linear(2, 2), nn.Linear(8, outputs)
        self.seen = set()

    def forward(self, X):
        self.seen.add((self.training, torch.is_grad_enabled()))
        assert X.dtype == torch.float32
        h = self.again(torch.relu(self.mix(self.frozen(X))))
        return self.last(self.drop(self.normal(h)))


def module(outputs=1):
    torch.manual_seed(0)
    return Module(outputs)


def test_a_module_with_dropout_and_normalisation_is_reproducible_and_resumes(tmp_path, monkeypatch):
    X, y, bags = draw()
    options = {"rho": 0.1, "epochs": 8, "random_state": 3}
    torch.manual_seed(17)
    state = torch.get_rng_state()
    expected = AggregateTorchRegressor(module(), **options)
    torch.set_rng_state(state)
    expected.fit(X, y, bags)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is not touched"
    assert expected.network_.module.seen == {(True, True), (False, False)}
    again = AggregateTorchRegressor(module(), **options).fit(X, y, bags)
    np.testing.assert_array_equal(again.predict(X), expected.predict(X))

    store, written = training_module._store, []

    def stop(*arguments):
        store(*arguments)
        written.append(1)
        if len(written) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_module, "_store", stop)
    options["checkpoint"] = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        AggregateTorchRegressor(module(), **options).fit(X, y, bags)
    monkeypatch.setattr(training_module, "_store", store)
    resumed = AggregateTorchRegressor(module(), **options).fit(X, y, bags)
    np.testing.assert_array_equal(resumed.predict(X), expected.predict(X))

    expected.save(tmp_path / "m")
    loaded = AggregateTorchRegressor.load(tmp_path / "m", module())
    np.testing.assert_array_equal(loaded.predict(X), expected.predict(X))


def test_a_module_learns_shares_of_classes():
    X, _, bags = draw(2000)
    labels = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    shares = bags.mean(np.eye(3)[labels])[bags.codes]
    net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))
    model = AggregateTorchClassifier(net, rho=0.0, learning_rate=0.01, random_state=0)
    assert model.fit(X, shares, bags).score(X, labels) > 0.85
    assert 0.8 < model.score(X, shares, bags) <= 1


@pytest.mark.parametrize(
    ("net", "got"),
    [(nn.ReLU(), "none"), (nn.Linear(3, 1).requires_grad_(False), "none"),
     (nn.LazyLinear(1), "weights without a shape")],
    ids=["no weights", "frozen", "lazy"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_module_without_weights_to_learn_is_told(net, got):
    with pytest.raises(ValueError, match=f"module must be a network with weights .*; got {got}"):
        AggregateTorchRegressor(net, rho=0.1).fit(*draw())


# Checkpoints


def test_who_has_no_seed_goes_on_with_the_same_bags_held_out(tmp_path):
    X, y, bags = draw()
    options = {"random_state": None, "checkpoint": tmp_path / "run"}
    first = fitted(X, y, bags, **options)
    second = fitted(X, y, bags, **options)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    os.unlink(tmp_path / "run")
    np.testing.assert_array_equal(fitted(X, y, bags, **options).predict(X), first.predict(X))


# Classes


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_noisy_shares_of_a_release_are_clipped(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"u": rng.normal(size=3000)}
    rows["y"] = (rows["u"] > 0).astype(float)
    made = release(rows, response="y", bag_size=10, epsilon=1.0, bounds=(0, 1), ledger=None,
                   out=tmp_path / "released")  # fmt: skip
    assert made.means.min() < 0 or made.means.max() > 1
    options = {"rho": 0.0, "epochs": 40, "learning_rate": 0.01, "random_state": 0}
    model = AggregateMLPClassifier((8,), **options).fit_release(made, ["u"])
    frame = pd.DataFrame({"u": rows["u"]})
    assert (model.predict(frame) == rows["y"]).mean() > 0.9
    with pytest.raises(ValueError, match="features"):
        model.predict(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((2, 1), np.nan))


def test_shares_in_a_data_frame_name_the_classes_and_are_searched_and_scored():
    X, _, bags = draw(400)
    labels = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    shares = pd.DataFrame(bags.mean(np.eye(3)[labels])[bags.codes], columns=["red", "green", "ox"])
    model = AggregateMLPClassifier((8,), rho=0.1, epochs=30, learning_rate=0.02, random_state=0)
    model.fit(X, shares, bags)
    assert model.classes_.tolist() == ["red", "green", "ox"]
    assert set(model.predict(X)) <= {"red", "green", "ox"}
    predicted = bags.mean(model.predict_proba(X))
    known = bags.mean(shares.to_numpy())
    whole = np.average(known, axis=0, weights=bags.sizes)
    losses = [
        -(bags.sizes @ np.where(known > 0, known * np.log(np.maximum(p, 1e-7)), 0).sum(axis=1))
        for p in (predicted, whole[None], known)
    ]
    expected = 1 - (losses[0] - losses[2]) / (losses[1] - losses[2])
    assert model.score(X, shares, bags) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="y must be the shares of all classes"):
        model.score(X, shares.to_numpy()[:, :2] / 2 + 0.25, bags)


def test_a_search_over_shares_of_classes_has_scores():
    import sklearn

    X, _, bags = draw(200)
    labels = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    shares = bags.mean(np.eye(3)[labels])[bags.codes]
    with sklearn.config_context(enable_metadata_routing=True):
        model = AggregateMLPClassifier((4,), epochs=5, random_state=0)
        model.set_fit_request(bags=True).set_score_request(bags=True)
        search = GridSearchCV(model, {"rho": [0.0, 1.0]}, cv=GroupKFold(2))
        search.fit(X, shares, bags=bags.codes, groups=bags.codes)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# Many at once


def test_members_differ_in_their_rows_alone():
    X, _, _ = draw(200)
    bags = Bags(np.arange(100) // 5)
    means = bags.mean(X[:100, 0])
    members = [Member(bags, means, 0.1, 0, 0.01, rows=np.arange(a, a + 100)) for a in (0, 100)]
    together = train_ensemble(X, members, (8,), Settings(epochs=10)).predict(X)
    for member, found in zip(members, together, strict=True):
        alone = train_ensemble(X, [member], (8,), Settings(epochs=10)).predict(X)[0]
        np.testing.assert_allclose(found, alone, atol=1e-6)
    # By hand: the rows that a member names are all that it sees.
    own = Member(bags, means, 0.1, 0, 0.01)
    other = train_ensemble(X[100:], [own], (8,), Settings(epochs=10)).predict(X)[0]
    np.testing.assert_allclose(together[1], other, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_held_out_bags_are_for_all_members_or_none_whatever_the_chunk(chunk):
    X, y, bags = draw(50)
    some = [Member(bags, bags.mean(y), held_out=aside) for aside in ((0,), (1,), (), ())]
    with pytest.raises(ValueError, match="held_out must be given for every member or none"):
        train_ensemble(X, some, (4,), Settings(epochs=1), chunk=chunk)
    every = [Member(bags, bags.mean(y), held_out=range(len(bags)))]
    with pytest.raises(ValueError, match="held_out must be some of the bags"):
        train_ensemble(X, every, (4,), Settings(epochs=1))


# What a GPU runs, run here


@pytest.mark.parametrize("inputs", [3, 8])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_form_that_is_compiled_gives_the_same(inputs, outputs):
    torch.manual_seed(0)
    network = StackedMLP((inputs, 12, 8, outputs), [0, 1, 2]).double()
    X = torch.randn(3, 20, inputs, dtype=torch.float64)
    layers = list(network.weights), list(network.biases)
    np.testing.assert_allclose(mlp(*layers, X, compiled=True).detach(), network(X).detach())


@pytest.mark.filterwarnings("ignore:User provided device_type")
def test_the_losses_that_are_compiled_are_the_losses(monkeypatch):
    monkeypatch.setattr(training_module, "_compiled", lambda function: function)
    X, y, bags = draw()
    data = BagData.of(torch.tensor(X, dtype=torch.float32), bags, bags.mean(y)[:, None])
    network, rho = StackedMLP((3, 8, 1), [0, 1]), torch.tensor([0.1, 0.7])
    for batch in (data.whole(), next(data.batches(torch.arange(20), 30))):
        step = Step(network, rho, Settings(epochs=1), state=None)
        np.testing.assert_allclose(
            step._compiled_losses(batch).detach(), step._plain_losses(batch).detach(), rtol=1e-5
        )


def test_a_recorded_step_is_played_again_for_the_same_batch(monkeypatch):
    """The path of a GPU with a recorder that plays the step itself."""
    X, y, bags = draw()
    data = BagData.of(torch.tensor(X, dtype=torch.float32), bags, bags.mean(y)[:, None])
    whole, one = data.whole(), torch.ones(1)
    expected = StackedMLP((3, 8, 1), [0])
    train(expected, lambda _: [whole], 0 * one, 0.01 * one, Settings(epochs=7))

    recorded = []

    class Recorder(Step):
        def __call__(self, batch, rates, again):
            on_gpu = type("", (), {"type": "cuda"})
            self.rho = type("", (), {"device": on_gpu, "value": self.rho})
            try:
                return super().__call__(batch, rates, again)
            finally:
                self.rho = self.rho.value

        def _plain_losses(self, batch):
            rho, self.rho = self.rho, getattr(self.rho, "value", self.rho)
            try:
                return super()._plain_losses(batch)
            finally:
                self.rho = rho

        def _record(self, batch):
            recorded.append(batch)
            losses = torch.zeros(1)

            class Graph:
                def replay(graph):
                    losses.copy_(self._take(batch))

            return Graph(), losses

    monkeypatch.setattr(training_module, "Step", Recorder)
    found = StackedMLP((3, 8, 1), [0])
    run = train(found, lambda _: [whole], 0 * one, 0.01 * one, Settings(epochs=7))
    assert len(recorded) == 1
    assert run.step == 7
    for a, b in zip(found.parameters(), expected.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach(), b.detach())


# Files of strangers


@pytest.mark.parametrize(
    "change",
    [{"response_scale": float("nan")}, {"feature_names": ["a"]}, {"encoder": {"z": None}},
     {"parameters": {"hidden": [12000, 12000]}}, {"parameters": {"epochs": -3, "hidden": [8]}},
     {"parameters": {"rho": "nonsense", "hidden": [8]}}],
    ids=str,
)  # fmt: skip
def test_a_folder_that_does_not_fit_together_is_refused(tmp_path, change):
    X, y, bags = draw()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted(frame, y, bags).save(tmp_path / "m")
    AggregateMLPRegressor.load(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateMLPRegressor.load(tmp_path / "m")


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    X, y, bags = draw()
    fitted(X, y, bags).save(tmp_path / "m")
    os.unlink(tmp_path / "m" / "model.json")
    os.mkfifo(tmp_path / "m" / "model.json")
    with pytest.raises(ValueError, match="path must be a folder written by save"):
        AggregateMLPRegressor.load(tmp_path / "m")
