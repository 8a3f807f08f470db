"""Sums on a real Spark cluster on this machine: the same numbers, with and without its workers."""

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bagwise import AggregateLinearRegression, Release
from bagwise.engines import cluster as write_module
from bagwise.engines.spark import connect, on_spark
from bagwise.release import release
from bagwise.row_groups import sum_row_group

pyspark = pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    # py4j and Spark's own Python leave sockets and files to the end of the process.
    pytest.mark.filterwarnings("ignore"),
]


class Cluster:
    """A master and two workers as processes of their own."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{self.port}"
        self.logs = []
        place = ["--host", "127.0.0.1", "--webui-port", "0"]
        self.processes = [
            self.start("master.Master", *place, "--port", str(self.port)),
        ]
        self.wait_for_master()
        limits = ["--cores", "1", "--memory", "1g"]
        for i in range(2):
            work = ["--work-dir", str(folder / f"work{i}")]
            self.processes.append(self.start("worker.Worker", *place, *limits, *work, self.master))

    def start(self, what, *words):
        home = Path(pyspark.__file__).parent
        log = (self.folder / f"{what}{len(self.logs)}.log").open("w")
        self.logs.append(log)
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *words],
            env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_for_master(self):
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the master did not come up")

    def kill_worker(self):
        """kill -9 of a worker and of the executors that it started."""
        os.killpg(self.processes.pop().pid, signal.SIGKILL)

    def stop(self):
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        for log in self.logs:
            log.close()


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release of forty row groups, with text among its features."""
    rng = np.random.default_rng(0)
    n = 4000
    rows = {"u": rng.normal(size=n) + 5, "town": rng.choice(["a", "b"], n)}
    rows["y"] = rows["u"] + (rows["town"] == "a") + rng.normal(size=n)
    group, write_module.GROUP = write_module.GROUP, 100
    made = release(
        rows,
        response="y",
        epsilon=5.0,
        bounds=(0, 12),
        bag_size=5,
        ledger=None,
        out=tmp_path_factory.mktemp("spark") / "released",
    )
    write_module.GROUP = group
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    session = connect(made.master)
    yield made, session
    session.stop()
    made.stop()


def same(one, other):
    for name in ("between", "within", "cross", "mean", "response_mean", "response_square"):
        found, expected = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    assert (one.n_rows, one.n_bags, one.feature_names) == (
        other.n_rows,
        other.n_bags,
        other.feature_names,
    )


def gated(gate, started, encoder, group):
    """A sum that waits, after it has said that it began, until a file opens the gate."""
    (Path(started) / f"{group.number}-{uuid.uuid4()}").touch()
    for _ in range(1200):
        if Path(gate).exists():
            break
        time.sleep(0.05)
    return sum_row_group(encoder, group)


def test_a_cluster_gives_the_same_sums_and_goes_on_without_a_worker(released, cluster, tmp_path):
    """First whole; then one of two workers is killed while its tasks are at work."""
    made, session = cluster
    local, encoder = released.statistics(), released.encoder()
    same(released.statistics(engine=on_spark(session)), local)
    model = AggregateLinearRegression(rho="gcv").fit_release(released, engine=on_spark(session))
    assert model.feature_names_in_.tolist() == ["u", "town=a", "town=b"]

    started, gate = tmp_path / "started", tmp_path / "gate"
    started.mkdir()

    def strike():
        """Beside the waiting job: once both workers are busy, one dies and the gate opens."""
        for _ in range(1200):
            if len(os.listdir(started)) >= 2:
                break
            time.sleep(0.05)
        made.kill_worker()
        gate.touch()

    striker = threading.Thread(target=strike)
    striker.start()
    # Workers cannot import the tests: what they run is sent to them.
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    task = partial(gated, str(gate), str(started), encoder)
    found = on_spark(session)(task, released._groups())
    striker.join()
    same(found, local)
    # What the dead worker had begun was begun again elsewhere.
    assert len(os.listdir(started)) > len(released._groups())


def test_the_command_runs_on_spark(released, tmp_path):
    """In a process of its own, with Spark inside it."""
    code = "from bagwise.cli import main; main()"
    words = ["fit", str(released.path), "--out", str(tmp_path / "m"), "--engine", "spark"]
    run = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    loaded = AggregateLinearRegression.load(tmp_path / "m")
    local = AggregateLinearRegression(rho="gcv").fit(released)
    np.testing.assert_allclose(loaded.coef_, local.coef_, rtol=1e-9)


def test_a_silent_master_and_a_strange_name_are_told():
    with pytest.raises(ValueError, match="engine must be a Spark master that answers; got"):
        connect("spark://127.0.0.1:1")
    with pytest.raises(ValueError, match="engine must be local, spark or spark://host:port"):
        connect("yarn")


def test_spark_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ImportError, match=r"pyspark must be installed .*bagwise\[spark\]"):
        connect()


def test_a_release_pickles_by_row_group(released):
    """What a worker is sent is its own bags, not all of them."""
    group = released._groups()[3]
    again = pickle.loads(pickle.dumps(group))
    assert len(pickle.dumps(group)) < 2000
    assert again.read().equals(group.read())
    assert isinstance(Release.load(released.path), Release)
