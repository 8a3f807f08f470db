"""A real Spark cluster on this machine: the same numbers, with and without its workers."""

import math
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import AggregateLinearRegression, Bags, BagTable, Release
from bagwise.cli import learn
from bagwise.engines import cluster as cluster_module
from bagwise.engines import spark as spark_module
from bagwise.engines.cluster import Clustering
from bagwise.engines.layout import Permutation
from bagwise.engines.spark import Spark, connect
from bagwise.estimators.streaming import evaluate_table, predict_parts, predict_table
from bagwise.release import curator, release, release_in_rounds
from bagwise.release import mechanism as mechanism_module
from bagwise.row_groups import sum_row_group
from bagwise.tables import open_table

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
        for _ in range(2):
            self.start_worker()

    def start_worker(self):
        words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        words += ["--work-dir", str(self.folder / f"work{len(self.logs)}"), self.master]
        self.processes.append(self.start("worker.Worker", *words))

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
        """kill -9 of a worker, of the executors that it started, and of their Python."""
        worker = self.processes.pop()
        # Python's processes lead a group of their own, and would end their work in peace.
        for pid in [worker.pid, *descendants(worker.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait()

    def stop(self):
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        for log in self.logs:
            log.close()


def descendants(pid):
    """Processes that a process started, and those that they did."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            yield child
            yield from descendants(child)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release of forty row groups, with text among its features."""
    rng = np.random.default_rng(0)
    n = 4000
    rows = {"u": rng.normal(size=n) + 5, "town": rng.choice(["a", "b"], n)}
    rows["y"] = rows["u"] + (rows["town"] == "a") + rng.normal(size=n)
    group, cluster_module.GROUP = cluster_module.GROUP, 100
    made = release(
        rows,
        response="y",
        epsilon=5.0,
        bounds=(0, 12),
        bag_size=5,
        ledger=None,
        out=tmp_path_factory.mktemp("spark") / "released",
    )
    cluster_module.GROUP = group
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
    same(released.statistics(engine=Spark(session)), local)
    model = AggregateLinearRegression(rho="gcv").fit_release(released, engine=Spark(session))
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
    found = Spark(session).sum(task, released.row_groups())
    striker.join()
    made.start_worker()
    same(found, local)
    # What the dead worker had begun was begun again elsewhere.
    assert len(os.listdir(started)) > len(released.row_groups())


class Gated(Spark):
    """The engine with one stage that waits until both workers are at it and one of them is dead."""

    def __init__(self, session, stage, folder):
        super().__init__(session)
        self.stage, self.folder, self.calls = stage, folder, 0

    def wait(self, task):
        return partial(waiting, task, str(self.folder))

    def map(self, task, items, *shown):
        self.calls += 1
        stage = {1: "look", 2: "noise"}.get(self.calls)
        return super().map(self.wait(task) if stage == self.stage else task, items, *shown)

    def query(self, task, *rest):
        return super().query(self.wait(task) if self.stage == "sum" else task, *rest)

    def cluster(self, clustering, pieces, progress):
        if self.stage == "cluster":
            clustering = GatedClustering(**vars(clustering), place=str(self.folder))
        return super().cluster(clustering, pieces, progress)


@dataclass(frozen=True, eq=False)
class GatedClustering(Clustering):
    place: str

    def join(self, number, streams):
        """Waits when the first row group is in the file and others are not."""
        writer, place = pq.ParquetWriter, self.place

        class Waiting(writer):
            def write_table(self, *words):
                super().write_table(*words)
                waiting(lambda _: None, place, None)

        pq.ParquetWriter = Waiting
        try:
            return super().join(number, streams)
        finally:
            pq.ParquetWriter = writer


def waiting(task, folder, item):
    """A task that says that it began, waits for the gate, and writes what it gives beside it."""
    name = uuid.uuid4().hex
    (Path(folder) / f"began-{name}").touch()
    for _ in range(1200):
        if (Path(folder) / "gate").exists():
            break
        time.sleep(0.05)
    found = task(item)
    if isinstance(found, np.ndarray):
        np.save(Path(folder) / f"drew-{name}.npy", found)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows with responses in several files of many row groups."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(1)
    n = 20_000
    rows = {"u": rng.normal(size=n), "town": rng.choice(["a", "b"], n)}
    rows |= {"day": rng.integers(0, 300, n).astype(np.uint16), "person": rng.integers(0, 9000, n)}
    rows["y"] = rng.normal(size=n)
    table = pa.table(rows)
    for i in range(4):
        pq.write_table(table.slice(5000 * i, 5000), folder / f"{i}.parquet", row_group_size=700)
    return folder


@pytest.fixture
def known(monkeypatch):
    """Shuffles that are drawn again the same, small parts, and test noise."""
    monkeypatch.setattr(
        curator, "draw_shuffle", lambda n: Permutation.draw(n, np.random.default_rng(3))
    )
    monkeypatch.setattr(cluster_module, "GROUP", 500)
    monkeypatch.setattr(cluster_module, "PART", 2500)


def go(files, out, engine, **options):
    asked = {"response": "y", "epsilon": math.inf, "bounds": (-2, 2), "ledger": None}
    return release(files, out=out, engine=engine, **asked | options)


def test_two_rounds_on_a_cluster_put_every_row_in_one_bag(files, cluster, tmp_path):
    """And the means, before noise, are those of the rows in their bags."""
    engine = Spark(cluster[1])
    made = release_in_rounds(
        str(files / "*.parquet"),
        response="y",
        epsilon=math.inf,
        bounds=(-2, 2),
        ledger=None,
        bag_size=9,
        columns=["u", "town"],
        out=tmp_path / "rounds",
        engine=engine,
    )
    rows = pq.read_table(files)
    y = dict(zip(rows["u"].to_pylist(), np.clip(rows["y"].to_numpy(), -2, 2), strict=True))
    X, means, bags = made.training_set()
    assert sorted(X["u"].to_pylist()) == sorted(y)
    groups = Bags(bags)
    own = np.array([y[u] for u in X["u"].to_pylist()])
    np.testing.assert_allclose(groups.expand(groups.mean(own)), means, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"bag_size": 9},
        {"bags": "day"},
        {"bags": ["day", "town"]},
        {"bag_size": 4, "user": "person"},
    ],
    ids=str,
)
def test_a_release_on_a_cluster_is_that_of_one_machine(files, cluster, known, tmp_path, options):
    """Before noise: same bags, same integer sums, same rows."""
    options = options | ({} if "user" in options else {"columns": ["u", "town", "person"]})
    if "user" in options:
        options["columns"] = ["u", "town", "day"]
    local = go(files, tmp_path / "local", None, **options)
    spread = go(files, tmp_path / "spark", Spark(cluster[1]), **options)
    assert spread.statement.versions.keys() >= {"pyspark"}
    for name in ("n_rows", "n_bags", "n_dropped", "smallest_bag", "largest_bag", "columns"):
        assert getattr(local.statement, name) == getattr(spread.statement, name)
    if "bags" not in options:
        assert local.bags.equals(spread.bags)
        assert (local.path / "rows.parquet").is_dir()
        rows = [pq.read_table(made.path / "rows.parquet") for made in (local, spread)]
        assert rows[0].equals(rows[1])
        return
    keys = ["bag"] if options["bags"] == "day" else ["day", "town"]
    order = [(key, "ascending") for key in keys]
    tables = [
        made.bags.sort_by(order).select([*keys, "size", "response"]) for made in (local, spread)
    ]
    assert tables[0].equals(tables[1])
    assert same_rows(local) == same_rows(spread)


def same_rows(made):
    """Every row with the size of its bag, sorted: what does not depend on how bags are numbered."""
    X, y, _ = made.training_set()
    frame = X.to_pandas().assign(y=y)
    return frame.sort_values(["u", "person"]).to_csv(index=False)


@pytest.mark.parametrize("stage", ["look", "sum", "cluster", "noise"])
def test_a_release_goes_on_without_a_worker(files, cluster, known, tmp_path, stage):
    """One of two workers is killed in the middle of a stage: the job ends, with the same numbers,
    and of noise that was drawn twice one draw is used and one is as if it had never been."""
    made, session = cluster
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    folder = tmp_path / "gate"
    folder.mkdir()
    gate = folder / "gate"

    begun = []

    def strike():
        for _ in range(1200):
            if len(list(folder.glob("began-*"))) >= 2:
                break
            time.sleep(0.05)
        begun.extend(path.name for path in tmp_path.rglob("*part-*"))
        made.kill_worker()
        gate.touch()

    striker = threading.Thread(target=strike)
    striker.start()
    private = {"epsilon": 1.0} if stage == "noise" else {}
    mechanism_module.CHUNK, before = 200, mechanism_module.CHUNK
    try:
        engine = Gated(session, stage, folder)
        found = go(files, tmp_path / "spark", engine, bag_size=9, **private)
    finally:
        mechanism_module.CHUNK = before
        striker.join()
        made.start_worker()
    began = len(list(folder.glob("began-*")))
    local = go(files, tmp_path / "local", None, bag_size=9)
    if stage == "cluster":
        # Both were at their files, and none of these had its name before it was whole.
        assert len(begun) >= 2
        assert all(name.startswith(".") for name in begun)
    assert not list((tmp_path / "spark").rglob(".*"))
    rows = [pq.read_table(one.path / "rows.parquet") for one in (local, found)]
    assert rows[0].equals(rows[1])
    if stage != "noise":
        assert local.bags.equals(found.bags)
        return
    # The noise of each bag, in steps, is that of one draw, and no draw serves two chunks.
    steps = np.rint((found.means - local.means) * found.sizes / found.statement.step)
    drawn = [tuple(np.load(path)) for path in folder.glob("drew-*.npy")]
    chunks = [tuple(steps[i : i + 200].astype(int)) for i in range(0, len(steps), 200)]
    assert began > len(chunks), "what the dead worker had begun was begun again"
    used = [drawn.index(chunk) for chunk in chunks]
    assert len(set(used)) == len(chunks)
    assert len(set(drawn)) == len(drawn)


class Counted:
    """A progress that counts, and looks each time at how many items were worked on."""

    def __init__(self, folder):
        self.folder, self.shown, self.total = folder, 0, 0

    def __call__(self, results, total):
        self.total = total
        for result in results:
            self.shown += 1
            if self.shown < total:
                assert self.shown <= len(list(self.folder.glob("ended-*")))
            (self.folder / "moved").touch()
            yield result


def last_waits(folder, item):
    """The last item is not done before the bar has moved; none before it begins, either."""
    for _ in range(1200):
        if item < 15 or (Path(folder) / "moved").exists():
            break
        time.sleep(0.05)
    (Path(folder) / f"ended-{item}-{uuid.uuid4().hex}").touch()
    return item


def test_a_bar_on_a_cluster_moves_as_tasks_end(cluster, files, known, tmp_path):
    """Before the job is over, and never ahead of the work."""
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    bar = Counted(tmp_path)
    found = Spark(cluster[1]).map(partial(last_waits, str(tmp_path)), range(16), bar)
    assert found == list(range(16))
    # The end of the job is one more.
    assert bar.shown == bar.total == 17
    titles = {}

    def titled(title):
        def count(results, total):
            done = list(results)
            titles[title] = len(done), total
            return done

        return count

    options = {"bag_size": 9, "epsilon": 1.0, "progress": titled}
    go(files, tmp_path / "out", Spark(cluster[1]), user="person", **options)
    assert set(titles) == {
        "Looking at responses",
        "Counting users",
        "Summing responses",
        "Putting rows together",
        "Drawing noise",
    }
    assert all(shown == total > 1 for shown, total in titles.values())


def test_a_job_that_is_interrupted_is_called_off(cluster, tmp_path):
    """Ctrl-C while tasks wait for what never comes."""
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def interrupted(results, total):
        for _ in results:
            raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        Spark(cluster[1]).map(partial(last_waits, str(tmp_path)), range(16), interrupted)
    tracker = cluster[1].sparkContext.statusTracker()
    assert not tracker.getActiveJobsIds()


def test_spark_needs_files_and_encryption(cluster, files, tmp_path):
    table = {"u": [1.0, 2.0], "y": [1.0, 2.0]}
    with pytest.raises(ValueError, match="rows must be files, on Spark; got a table in memory"):
        go(table, tmp_path / "a", Spark(cluster[1]), bag_size=1)
    plain = types.SimpleNamespace(
        sparkContext=types.SimpleNamespace(getConf=lambda: {"spark.io.encryption.enabled": None})
    )
    with pytest.raises(ValueError, match="the Spark session must be one that encrypts its files"):
        go(files, tmp_path / "b", Spark(plain), bag_size=1)
    odd = pa.table({"t": pa.array([1, 2], pa.time64("us")), "y": [1.0, 2.0]})
    pq.write_table(odd, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="ids must be whole numbers, text or dates, on Spark"):
        go(tmp_path / "t.parquet", tmp_path / "c", Spark(cluster[1]), bags="t")
    assert not list(tmp_path.glob("*/release.json"))


def test_a_job_that_fails_is_one_sentence(cluster, files, tmp_path):
    """Files that a worker cannot read to their end; nothing of a cell is told."""
    bad = tmp_path / "bad"
    bad.mkdir()
    pq.write_table(pq.read_table(files / "0.parquet"), bad / "a.parquet")
    data = bytearray((bad / "a.parquet").read_bytes())
    data[1000:60000] = bytes(59000)
    (bad / "a.parquet").write_bytes(data)
    with pytest.raises(ValueError, match="rows must be of readable files"):
        go(bad, tmp_path / "out", Spark(cluster[1]), bag_size=5)
    assert not (tmp_path / "out").exists()


def test_a_table_on_a_cluster_gives_the_same_statistics(files, cluster, tmp_path):
    table = pq.read_table(files)
    frame = table.to_pandas()
    frame["y"] = frame.groupby("day")["y"].transform("mean")
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=1000)
    tables = [
        BagTable(tmp_path / "in.parquet", "y", "day", engine, tmp_path)
        for engine in (Spark(cluster[1]), None)
    ]
    found, local = (table.statistics(table.encoder(["u", "town"])) for table in tables)
    same(found, local)


def test_predictions_and_scores_on_a_cluster_are_those_of_one_machine(files, cluster, tmp_path):
    model = AggregateLinearRegression(rho="gcv").fit(
        release(files, response="y", epsilon=math.inf, bounds=(-3, 3), bag_size=5, ledger=None,
                columns=["u", "town"], out=tmp_path / "released")
    )  # fmt: skip
    table = open_table(files)
    engine = Spark(cluster[1])
    for found, local in zip(
        evaluate_table(model, table, "y", "day", engine=engine).values(),
        evaluate_table(model, table, "y", "day").values(),
        strict=True,
    ):
        np.testing.assert_allclose(list(vars(found).values()), list(vars(local).values()))
    (tmp_path / "out").mkdir()
    assert predict_parts(model, table, tmp_path / "out", engine, ["person"]) == 20_000
    local = pa.concat_tables(predict_table(model, table, ["person"]))
    assert pq.read_table(tmp_path / "out").equals(local)


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


def test_a_fit_of_a_table_keeps_its_rows_beside_the_model(files, cluster, tmp_path, monkeypatch):
    """Where workers can write, and only as long as it takes."""
    frame = pq.read_table(files).to_pandas()
    frame["y"] = frame.groupby("day")["y"].transform("mean")
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=5000)
    places = []

    class Watched(Spark):
        def cluster(self, clustering, *rest):
            places.append(clustering.folder)
            return super().cluster(clustering, *rest)

    monkeypatch.setattr("bagwise.engines.open_engine", lambda _: Watched(cluster[1]))
    learn.fit_command(
        [str(tmp_path / "in.parquet")],
        tmp_path / "new" / "m",
        response="y",
        bags="day",
        features="u,town",
        engine="spark://…",
    )
    (place,) = places
    assert place.is_relative_to(tmp_path)
    assert place.relative_to(tmp_path).parts[0].startswith(".m.")
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", "new"]
    assert os.listdir(tmp_path / "new") == ["m"]


def test_the_curator_s_command_runs_on_spark(files, tmp_path):
    code = "from bagwise.cli import main; main()"
    words = ["release", str(files), "--response", "y", "--bag-size", "9", "--epsilon", "1"]
    words += ["--bounds", "-2", "2", "--budget", "3", "--out", str(tmp_path / "released")]
    words += ["--ledger", str(tmp_path / "ledger.db"), "--engine", "spark", "--json"]
    run = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert Release.load(tmp_path / "released").statement.n_rows == 20_000


def test_a_silent_master_and_a_strange_name_are_told():
    with pytest.raises(ValueError, match="engine must be a Spark master that answers; got"):
        connect("spark://127.0.0.1:1")
    with pytest.raises(ValueError, match="engine must be local, spark or spark://host:port"):
        connect("yarn")


def test_every_master_of_several_is_tried():
    """The one that leads may be any of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        masters = f"spark://127.0.0.1:1,127.0.0.1:{port}"
        hosts = spark_module._hosts(masters)
        assert hosts == [("127.0.0.1", 1), ("127.0.0.1", port)]
        spark_module._refuse_silent(masters, hosts)
    with pytest.raises(ValueError, match=r"a Spark master that answers; got .*:1,127"):
        connect("spark://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(ValueError, match="engine must be spark://host:port; got"):
        connect("spark://127.0.0.1:seven")


def test_spark_without_java_is_one_sentence(files, tmp_path):
    code = "from bagwise.cli import main; main()"
    words = ["release", str(files), "--response", "y", "--bag-size", "9", "--epsilon", "inf"]
    words += ["--bounds", "-2", "2", "--out", str(tmp_path / "x"), "--engine", "spark"]
    run = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "engine must be where Spark starts; got 'local[*]', where it did not" in run.stderr
    assert "Traceback" not in run.stderr
    assert not list(tmp_path.iterdir())


def test_spark_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ImportError, match=r"pyspark must be installed .*bagwise\[spark\]"):
        connect()


def test_a_release_pickles_by_row_group(released):
    """What a worker is sent is its own bags, not all of them."""
    group = released.row_groups()[3]
    again = pickle.loads(pickle.dumps(group))
    assert len(pickle.dumps(group)) < 2000
    assert again.read().equals(group.read())
    assert isinstance(Release.load(released.path), Release)
