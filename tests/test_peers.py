"""Peers in an environment of their own: refusals, limits, failures, and real fits if it is made.

BAGWISE_PEERS names a folder that `bagwise.benchmark.peers.make` has built.
"""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from bagwise import Bags, bag_loss, instance_loss
from bagwise.benchmark import peer_script
from bagwise.benchmark.peers import PEERS, VERSION, Peer, PeerFailed, available, make

MADE = os.environ.get("BAGWISE_PEERS")
real = pytest.mark.skipif(
    MADE is None, reason="BAGWISE_PEERS names no folder with the peers' environment"
)

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
CODES = np.arange(40) // 4
SHARES = rng.uniform(size=10)


def environment(folder, peer):
    """This Python as a peers' environment, with ``peer`` as the whole of llp-learn's EM."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    own = Path(np.__file__).parents[1]
    (packages / "own.pth").write_text(str(own))
    for place, text in {
        f"llp_learn-{VERSION}.dist-info/RECORD": "",
        "llp_learn/__init__.py": "",
        "llp_learn/em/__init__.py": textwrap.dedent(peer),
    }.items():
        (packages / place).parent.mkdir(exist_ok=True)
        (packages / place).write_text(text)
    return folder


def em(body):
    """Source of an EM whose fit is ``body``, and whose scores are the first column."""
    return f"""
        import os, signal, time
        class Model:
            def decision_function(self, X):
                return X[:, 0] * self.scale
        class EM:
            def __init__(self, model, random_state, **options):
                self.model = Model()
                self.model.scale = 1.0
            def fit(self, X, codes, shares):
                {body}
    """


def ask(folder, limit=60.0, name="EM"):
    return Peer(name, folder).fit_predict(X, SHARES, CODES, X[:7], 0, limit)


def test_scores_come_back_from_the_other_environment(tmp_path):
    checks = "assert shares.shape == (10,) and codes.max() == 9; print('an epoch')"
    np.testing.assert_array_equal(ask(environment(tmp_path / "peers", em(checks))), X[:7, 0])


def test_without_the_environment_one_sentence_says_how_to_make_it(tmp_path):
    assert not available(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"folder must have .* Make it once with .*make"):
        ask(tmp_path)


def test_an_environment_half_made_is_not_available(tmp_path):
    folder = environment(tmp_path / "peers", em("pass"))
    assert available(folder)
    next(folder.glob(f"lib/*/*/llp_learn-{VERSION}.dist-info/RECORD")).unlink()
    assert not available(folder)


def test_what_is_made_is_not_made_again(tmp_path, monkeypatch):
    folder = environment(tmp_path / "peers", em("pass"))
    monkeypatch.setattr(subprocess, "run", None)
    make(folder)


def test_making_that_fails_is_one_sentence(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="environment could not be made"):
        make(tmp_path / "file")


def test_names_that_are_no_peer_are_refused(tmp_path):
    with pytest.raises(ValueError, match="name must be one of 'MixBag'"):
        Peer("mixbag", tmp_path)
    with pytest.raises(ValueError, match="limit must be above 0"):
        ask(tmp_path, limit=0)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise ZeroDivisionError('share 0.25 of bag 3')", "ZeroDivisionError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("self.model.scale = float('nan')", "FloatingPointError"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os._exit(7)", "exit code 7"),
    ],
)
def test_a_failure_is_told_by_its_name_alone(tmp_path, body, kind):
    with pytest.raises(PeerFailed) as failed:
        ask(environment(tmp_path / "peers", em(body)))
    assert failed.value.kind == kind
    assert str(failed.value) == f"EM failed: {kind}."


def marks(tmp_path):
    """An environment whose EM never ends, and the file where it leaves its process number."""
    mark = tmp_path / "pid"
    body = f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    return environment(tmp_path / "peers", em(body)), mark


def gone(mark, patience=30.0):
    """Whether the process ends within a while."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            os.kill(int(mark.read_text()), 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_peer_over_time_is_killed(tmp_path):
    folder, mark = marks(tmp_path)
    with pytest.raises(TimeoutError, match="EM was stopped after 5 seconds"):
        ask(folder, limit=5.0)
    assert gone(mark, 0.5)


def test_a_peer_ends_with_a_caller_that_is_killed(tmp_path):
    folder, mark = marks(tmp_path)
    code = f"""
import numpy as np
from bagwise.benchmark.peers import Peer
Peer("EM", {str(folder)!r}).fit_predict(
    np.ones((4, 1)), np.ones(1), np.zeros(4, int), np.ones((1, 1)), 0, 600)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as caller:
        until = time.monotonic() + 60
        while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        caller.kill()
    assert gone(mark)


# The package itself


def cancer(seed=0):
    """Breast cancer in random bags of 16: what a peer sees, and labels for the test."""
    parts = train_test_split(
        *load_breast_cancer(return_X_y=True), test_size=0.25, random_state=seed
    )
    train, test, label, truth = parts
    scale = StandardScaler().fit(train)
    bags = Bags.random(len(label), 16, random_state=seed)
    seen = (scale.transform(train), bags.mean(label), bags.codes, scale.transform(test))
    return seen, truth


@real
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("MixBag", 0.95),
        ("LLP-VAT", 0.95),
        ("alter-SVM", 0.95),
        ("alter-SVM-RBF", 0.9),
        ("LLPFC", 0.85),
        # Neither follows bags that are drawn at random; what they give is finite.
        ("DLLP", 0.0),
        ("EM", 0.0),
    ],
)
def test_peers_learn_rows_from_random_bags(name, least):
    seen, truth = cancer()
    scores = Peer(name, MADE).fit_predict(*seen, seed=0, limit=300)
    assert scores.shape == truth.shape
    assert roc_auc_score(truth, scores) >= least


def test_every_peer_is_tried_above():
    tried = test_peers_learn_rows_from_random_bags.pytestmark[0].args[1]
    assert {name for name, _ in tried} == set(PEERS)


@real
def test_the_same_seed_gives_the_same_scores():
    seen, _ = cancer()
    for name in ("MixBag", "LLPFC"):
        first, again = (Peer(name, MADE).fit_predict(*seen, 0, 300) for _ in range(2))
        np.testing.assert_array_equal(first, again)


LOSS = """
import sys
import numpy as np
import torch
import importlib.util
spec = importlib.util.spec_from_file_location("peer_script", sys.argv[1])
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
data = np.load(sys.argv[2])
scores = torch.tensor(data["scores"], requires_grad=True)
logits = torch.stack([torch.zeros_like(scores), scores], 1)
share, k = data["share"], len(scores)
both = torch.tensor([1 - share, share])
if sys.argv[3] == "DLLP":
    loss = script.make_model("DLLP", 0).loss_train(logits, both)
elif sys.argv[3] == "LLP-VAT":
    model = script.make_model("LLP-VAT", 0)
    model.model = lambda rows: rows
    loss = model.compute_kl_loss_on_bagbatch(logits[None], both[None])
else:
    model = script.make_model("MixBag", 0)
    nowhere = -torch.ones(1, 2)
    loss = model.loss_train(model.calculate_prop(logits, 1, k), both[None], nowhere, nowhere)
loss.backward()
print(repr(loss.item()), *map(repr, scores.grad.tolist()))
"""


def peer_loss(name, scores, share, folder):
    """Value and gradient, in log odds of rows, of a peer's own loss of one bag."""
    np.savez(folder / "bag.npz", scores=scores, share=share)
    python = Path(MADE).absolute() / "bin" / "python"
    arguments = [peer_script.__file__, str(folder / "bag.npz"), name]
    run = [str(python), "-I", "-c", LOSS, *arguments]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    value, *slope = map(float, done.stdout.split())
    return value, np.array(slope)


def loss_and_slope(loss, scores, share):
    """The same for a loss of ours."""
    bags = Bags(np.zeros(len(scores), dtype=int))

    def value(scores):
        return float(loss(np.array([share]), 1 / (1 + np.exp(-scores)), bags, "log"))

    steps = 1e-5 * np.eye(len(scores))
    slope = [(value(scores + step) - value(scores - step)) / 2e-5 for step in steps]
    return value(scores), np.array(slope)


@real
@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_dllp_of_the_package_is_half_the_instance_level_loss_less_an_entropy(share, tmp_path):
    scores = 2 * np.random.default_rng(1).normal(size=5)
    found, slope = peer_loss("DLLP", scores, share, tmp_path)
    value, expected = loss_and_slope(instance_loss, scores, share)
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert found == pytest.approx((value - entropy) / 2)
    np.testing.assert_allclose(slope, expected / 2, atol=1e-8)
    # Deep LLP as published is another loss, and asks for another step.
    assert np.abs(slope - loss_and_slope(bag_loss, scores, share)[1] / 2).max() > 1e-2


@real
@pytest.mark.parametrize("name", ["LLP-VAT", "MixBag"])
def test_peers_that_average_probabilities_have_the_bag_level_loss(name, tmp_path):
    scores = 2 * np.random.default_rng(1).normal(size=5)
    found, slope = peer_loss(name, scores, 0.3, tmp_path)
    value, expected = loss_and_slope(bag_loss, scores, 0.3)
    assert found == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(slope, expected, atol=1e-6)
