"""What people hand in by mistake: one sentence, exit code 2, nothing half written."""

import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import AggregateLinearRegression
from bagwise.release import Ledger

N = 400


def table(**changes):
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=N), "b": rng.normal(size=N), "bag": np.arange(N) // 8}
    columns["y"] = np.repeat(rng.normal(size=N // 8), 8)
    return pa.table(columns | changes)


@pytest.fixture
def place(tmp_path):
    """A folder with a good file, a model, and every kind of bad input."""
    pq.write_table(table(), tmp_path / "good.parquet")
    pq.write_table(table().drop_columns("a"), tmp_path / "narrow.parquet")
    holes = pa.array([None if i == 77 else float(i) for i in range(N)])
    pq.write_table(table(a=holes), tmp_path / "holes.parquet")
    for hole in ("NaN", "inf"):
        numbers = np.arange(N, dtype=np.float32)
        numbers[77] = float(hole)
        pq.write_table(table(a=numbers), tmp_path / f"{hole}.parquet")
    for name, kind in (("0", pa.float64()), ("1", pa.int32())):
        part = table(a=pa.array(range(N)).cast(kind))
        (tmp_path / "mixed").mkdir(exist_ok=True)
        pq.write_table(part, tmp_path / "mixed" / f"{name}.parquet")
    (tmp_path / "lacking").mkdir()
    pq.write_table(table(), tmp_path / "lacking" / "0.parquet")
    pq.write_table(table().drop_columns("a"), tmp_path / "lacking" / "1.parquet")
    data = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    spoilt = bytearray(data)
    spoilt[4:3000] = bytes(2996)
    (tmp_path / "spoilt.parquet").write_bytes(spoilt)
    (tmp_path / "empty").mkdir()
    model = AggregateLinearRegression(rho=0.1).fit(tmp_path / "good.parquet", "y", "bag")
    model.save(tmp_path / "model")
    return tmp_path


def words(what, place, source, out):
    """A command line that would work on a good table."""
    release = (
        f"release {source} --response y --bag-size 8 --columns a,b --epsilon 1 --bounds -3 3 "
        f"--budget 5 --ledger {place}/ledger.db --out {out}"
    )
    lines = {
        "release": f"{release} --features means",
        "release rows": f"{release} --features rows",
        "fit": f"fit {source} --response y --bags bag --features a,b --out {out}",
        "predict": f"predict {place}/model {source} --out {out}.parquet",
        "evaluate": f"evaluate {place}/model {source} --response y --bags bag",
    }
    return lines[what].split()


def left_over(place, before):
    """Files that a failed command left, the ledger aside."""
    names = {p for p in place.rglob("*") if "ledger" not in p.name}
    return names - before


SENTENCES = {
    "narrow.parquet": "must be",
    "holes.parquet": "must be",
    "NaN.parquet": "must be",
    "inf.parquet": "must be",
    "mixed": "double and int32 in column 'a'",
    "lacking": "column 'a' in some alone",
    "cut.parquet": "must be",
    "spoilt.parquet": "must be",
    "empty": "the table must be of at least one file",
    "nowhere.parquet": "nowhere.parquet",
}


@pytest.mark.parametrize("what", ["release", "release rows", "fit", "predict", "evaluate"])
@pytest.mark.parametrize("source", SENTENCES)
def test_a_bad_table_is_one_sentence(place, command, what, source):
    before = set(place.rglob("*"))
    code, said, complaint = command(*words(what, place, place / source, place / "out"))
    assert code == 2, said
    assert SENTENCES[source] in complaint
    assert ".." not in complaint
    assert len(complaint.strip().splitlines()) <= 6, "a sentence, as a terminal breaks it"
    assert not left_over(place, before)
    assert not (place / "ledger.db").exists() or not Ledger(place / "ledger.db").datasets()


@pytest.mark.parametrize("what", ["release", "release rows", "fit", "predict", "evaluate"])
def test_the_good_table_is_taken(place, command, what):
    assert command(*words(what, place, place / "good.parquet", place / "out"))[0] == 0


@pytest.mark.parametrize("what", ["release", "fit", "predict", "evaluate"])
def test_columns_in_names_of_folders_are_told(place, command, what):
    (place / "parts" / "a=1").mkdir(parents=True)
    pq.write_table(table().drop_columns("a"), place / "parts" / "a=1" / "0.parquet")
    code, _, complaint = command(*words(what, place, place / "parts", place / "out"))
    assert code == 2
    if what != "fit":
        assert "Names of folders are not read" in complaint
    assert "'a'" in complaint


@pytest.mark.parametrize("what", ["release", "fit"])
@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ("spark://127.0.0.1:1", "engine must be a Spark master that answers"),
        ("dask", "engine must be local, spark or spark://host:port"),
    ],
)
def test_an_engine_that_is_not_there_is_told(place, command, what, engine, sentence):
    line = [*words(what, place, place / "good.parquet", place / "out"), "--engine", engine]
    code, _, complaint = command(*line)
    assert code == 2
    assert sentence in " ".join(complaint.split())
    assert not (place / "out").exists()


@pytest.mark.parametrize("missing", ["pyspark.sql", "ibis"])
def test_an_extra_that_is_not_installed_is_told(place, command, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    engine = "spark" if missing == "pyspark.sql" else "local"
    line = words("release", place, place / "good.parquet", place / "out")
    # Bags by name are summed by DuckDB through Ibis.
    line = [{"--bag-size": "--bags", "8": "bag"}.get(word, word) for word in line]
    code, _, complaint = command(*line, "--engine", engine)
    assert code == 2
    assert "must be installed" in complaint
    assert not (place / "out").exists()


def run_limited(line, limit):
    """A command in a process that a limit is laid on first."""
    code = "from bagwise.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *line],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )


@pytest.mark.parametrize("what", ["release", "release rows", "fit", "predict"])
def test_no_space_left_is_told_and_nothing_stays(place, what):
    """Files may not grow past a kilobyte, which a process sees as a disk that is full."""
    before = set(place.rglob("*"))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    source = place / "good.parquet"
    run = run_limited(words(what, place, source, place / "out"), limit)
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    if "ledger" not in run.stderr:
        assert "No space left at '/" in run.stderr
        assert "free some, or choose another place" in run.stderr
    assert not left_over(place, before)


def test_no_space_left_leaves_no_half_of_a_picture(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    run = run_limited(["paper", "figure1", "--out", str(tmp_path / "paper")], limit)
    assert run.returncode == 2, run.stderr
    assert "No space left at '/" in run.stderr
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("what", ["release", "predict"])
def test_no_permission_is_told(place, what, tmp_path_factory):
    """To read what is not ours, or to write where we may not."""
    reachable = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", "import bagwise"],
        capture_output=True, check=False,
    )  # fmt: skip
    if reachable.returncode:
        pytest.skip("nobody cannot run this Python here")
    os.chmod(place / "good.parquet", 0o600)
    line = words(what, place, place / "good.parquet", place / "out")
    prefix = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c"]
    code = "from bagwise.cli import main; main()"
    run = subprocess.run([*prefix, code, *line], capture_output=True, text=True, check=False)
    assert run.returncode == 2, run.stderr
    assert "Permission denied" in run.stderr or "permission" in run.stderr.lower()
    assert "Traceback" not in run.stderr


def test_a_folder_that_may_not_be_read_is_not_called_empty(place, command, monkeypatch):
    """Nor is one deeper down passed over."""
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("empty"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (place / "above").mkdir()
    (place / "empty").rename(place / "above" / "empty")
    pq.write_table(table(), place / "above" / "0.parquet")
    code, _, complaint = command(*words("fit", place, place / "above", place / "out"))
    assert code == 2
    assert "Permission denied" in complaint
