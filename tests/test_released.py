"""A Release folder that was cut, altered or made to deceive is refused, and never executed."""

import io
import json
import os
import pickle
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import AggregateStatistics, Release
from bagwise import released as released_module
from bagwise.engines import cluster as write_module
from bagwise.release import release
from bagwise.released import file_mark

FORMS = ("rows", "means", "statistics", "none")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One release of each kind, of several row groups."""
    folder = tmp_path_factory.mktemp("originals")
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=300), "b": rng.normal(size=300), "y": rng.normal(size=300)}
    group, write_module.GROUP = write_module.GROUP, 70
    for features in FORMS:
        release(
            rows,
            response="y",
            epsilon=1.0,
            bounds=(-3, 3),
            bag_size=10,
            features=features,
            ledger=None,
            out=folder / features,
        )
    write_module.GROUP = group
    return folder


@pytest.fixture
def folder(originals, tmp_path):
    """A copy to break."""

    def copy(features="rows"):
        return shutil.copytree(originals / features, tmp_path / features)

    return copy


def read_all(path):
    """Everything a learner would read."""
    made = Release.load(path)
    if made.statement.features != "none":
        made.statistics()
    if made.statement.features in ("rows", "means"):
        made.training_set()
    return made


def restate(path, **changes):
    """Rewrite the statement, with true marks of the files as they are now."""
    said = json.loads((path / "release.json").read_text())
    said["files"] = {name: file_mark(path / name) for name in said["files"]}
    (path / "release.json").write_text(json.dumps(said | changes))


def refused(path):
    with pytest.raises(ValueError, match="path must be a whole Release folder; got") as refusal:
        read_all(path)
    assert "Ask the curator for it again." in str(refusal.value)


@pytest.mark.parametrize("features", FORMS)
def test_whole_folders_are_read(folder, features):
    made = read_all(folder(features))
    assert made.statement.n_bags == 30
    assert "epsilon=1" in repr(made)


@pytest.mark.parametrize("features", FORMS)
def test_every_file_is_missed_when_it_is_gone(folder, features, tmp_path):
    for name in sorted(os.listdir(folder(features))):
        broken = shutil.copytree(tmp_path / features, tmp_path / f"without-{name}")
        (broken / name).unlink()
        refused(broken)


@pytest.mark.parametrize("features", FORMS)
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_every_file_is_refused_when_it_is_cut(folder, features, keep, tmp_path):
    for name in sorted(os.listdir(folder(features))):
        broken = shutil.copytree(tmp_path / features, tmp_path / f"cut-{name}")
        data = (broken / name).read_bytes()
        (broken / name).write_bytes(data[: int(keep * len(data))])
        refused(broken)
        if name != "release.json":
            # Even when the statement was made to fit.
            restate(broken)
            refused(broken)


def test_a_flipped_byte_is_seen(folder):
    """In rows.parquet by Parquet's own checksums, for its size is all that load looks at."""
    path = folder()
    data = bytearray((path / "rows.parquet").read_bytes())
    data[len(data) // 3] ^= 255
    (path / "rows.parquet").write_bytes(bytes(data))
    refused(path)
    other = folder("means")
    data = bytearray((other / "bags.parquet").read_bytes())
    data[100] ^= 1
    (other / "bags.parquet").write_bytes(bytes(data))
    refused(other)


BAD_STATEMENTS = {
    "not JSON": "{",
    "a list": "[]",
    "a number": "3",
    "empty": "",
    "deep": "[" * 100_000,
    "other format": '{"format": "bagwise release 2"}',
    "no fields": '{"format": "bagwise release 1"}',
    "not text": "\udcff",
}


@pytest.mark.parametrize("kind", BAD_STATEMENTS)
def test_statements_that_are_none_are_refused(folder, kind):
    path = folder()
    (path / "release.json").write_bytes(BAD_STATEMENTS[kind].encode(errors="surrogateescape"))
    refused(path)


@pytest.mark.parametrize(
    "change",
    [
        {"n_bags": 31},
        {"n_bags": "30"},
        {"n_bags": True},
        {"n_bags": -30},
        {"n_rows": 301},
        {"n_rows": 10**400},
        {"epsilon": "1"},
        {"epsilon": [1]},
        {"private": 1},
        {"columns": ["a"]},
        {"columns": ["b", "a"]},
        {"columns": "ab"},
        {"columns": [1, 2]},
        {"features": "means"},
        {"features": "../../etc"},
        {"features": "none"},
        {"bag_columns": ["x", "y"]},
        {"files": {"bags.parquet": "0" * 64, "rows.parquet": "12 bytes"}},
        {"files": {}},
        {"files": {"../bags.parquet": "0" * 64}},
        {"versions": {"python": 3}},
        {"epsilon": None},
        {"epsilon": -5},
        {"epsilon": 0},
        {"private": False},
        {"scale": 0},
        {"scale": -1},
        {"scale": 1e3},
        {"low": 4.0},
        {"step": 0},
        {"rows_per_user": 0},
        {"smallest_bag": 9},
        {"largest_bag": 10**6},
        {"n_dropped": -1},
        {"extra": 1},
    ],
    ids=str,
)
def test_statements_that_do_not_fit_are_refused(folder, change):
    path = folder()
    restate(path, **change)
    refused(path)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(folder, constant):
    path = folder()
    text = (path / "release.json").read_text().replace('"low": -3.0', f'"low": {constant}')
    (path / "release.json").write_text(text)
    refused(path)


def test_a_huge_statement_is_not_read_whole(folder):
    path = folder()
    with (path / "release.json").open("ab") as file:
        file.truncate(2**30)
    refused(path)


def change_bags(path, **columns):
    table = pq.read_table(path / "bags.parquet")
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, [values])
    pq.write_table(table, path / "bags.parquet")
    restate(path)


@pytest.mark.parametrize(
    "columns",
    [
        {"response": np.full(30, np.nan)},
        {"response": np.full(30, np.inf)},
        {"response": pa.array([None] * 30, pa.float64())},
        {"response": ["1"] * 30},
        {"size": np.full(30, 11)},
        {"size": np.r_[0, 20, np.full(28, 10)]},
        {"size": np.r_[-10, 30, np.full(28, 10)]},
        {"size": np.r_[2**62, 2**62, 2**62, 2**62, np.full(26, 10)]},
        {"size": np.r_[9, 11, np.full(28, 10)]},
        {"size": np.full(30, 10.0)},
        {"bag": np.zeros(30, dtype=int)},
        {"bag": np.arange(1, 31)},
        {"bag": np.arange(30)[::-1]},
        {"bag": pa.array([None, *range(1, 30)])},
        {"noise_scale": np.full(30, np.nan)},
        {"noise_scale": np.full(30, -0.6)},
        {"noise_scale": np.full(30, 0.01)},
    ],
    ids=lambda c: next(iter(c)),
)
def test_bags_that_contradict_themselves_or_the_rows_are_refused(folder, columns):
    path = folder()
    change_bags(path, **columns)
    refused(path)


def test_rows_that_hold_another_column_are_refused(folder):
    """A response slipped back in under its own name, say."""
    path = folder()
    table = pq.read_table(path / "rows.parquet")
    pq.write_table(table.append_column("y", [np.zeros(300)]), path / "rows.parquet")
    restate(path)
    refused(path)


@pytest.mark.parametrize("size", [7, 45, 300])
def test_row_groups_that_split_a_bag_are_refused(folder, size):
    path = folder()
    table = pq.read_table(path / "rows.parquet")
    pq.write_table(table, path / "rows.parquet", row_group_size=size)
    restate(path)
    if size == 300:
        assert len(read_all(path).training_set()[1]) == 300
    else:
        refused(path)


def test_fewer_or_more_rows_than_stated_are_refused(folder, tmp_path):
    for count, name in ((290, "fewer"), (310, "more")):
        path = folder() if name == "fewer" else tmp_path / "rows"
        table = pq.read_table(path / "rows.parquet")
        table = pa.concat_tables([table, table]).slice(0, count)
        pq.write_table(table, path / "rows.parquet")
        restate(path)
        refused(path)


@pytest.mark.parametrize("name", ["release.json", "bags.parquet", "rows.parquet"])
def test_links_are_not_followed(folder, tmp_path, name):
    path = folder()
    (path / name).rename(tmp_path / "elsewhere")
    (path / name).symlink_to(tmp_path / "elsewhere")
    refused(path)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return (os.mkdir, (self.mark,))


def test_nothing_is_ever_unpickled(folder, tmp_path):
    mark = tmp_path / "executed"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists(), "the bomb must work for this test to mean anything"
    mark.rmdir()
    path = folder("statistics")
    with zipfile.ZipFile(path / "statistics.npz") as saved:
        members = {name: saved.read(name) for name in saved.namelist()}
    evil = io.BytesIO()
    np.save(evil, np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    for name in ("mean.npy", "n_rows.npy", "feature_names.npy"):
        with zipfile.ZipFile(path / "statistics.npz", "w") as saved:
            for member, data in (members | {name: evil.getvalue()}).items():
                saved.writestr(member, data)
        restate(path)
        refused(path)
        assert not mark.exists()
    (path / "statistics.npz").write_bytes(pickle.dumps(Bomb(mark)))
    restate(path)
    refused(path)
    for name in ("bags.parquet", "release.json"):
        other = folder("none") if name == "bags.parquet" else tmp_path / "none"
        (other / name).write_bytes(pickle.dumps(Bomb(mark)))
        if name == "bags.parquet":
            restate(other)
        refused(other)
    assert not mark.exists()


def test_packed_statistics_are_refused_unread(folder):
    """Ours are stored as they are; a packed member could unpack to any size."""
    path = folder("statistics")
    with np.load(path / "statistics.npz") as saved:
        np.savez_compressed(path / "packed.npz", **saved)
    (path / "packed.npz").replace(path / "statistics.npz")
    restate(path)
    refused(path)
    with pytest.raises(ValueError, match="must be a file written by"):
        AggregateStatistics.load(path / "statistics.npz")


def test_a_tiny_file_of_very_many_bags_is_refused_unread(folder, monkeypatch):
    """Equal values pack to nothing: a kilobyte could fill the memory."""
    path = folder("none")
    n = 10**6
    columns = {"bag": 0, "size": 1, "response": 0.5, "noise_scale": 6.0}
    table = pa.table({k: np.full(n, v) for k, v in columns.items()})
    pq.write_table(table, path / "bags.parquet", compression="zstd")
    assert (path / "bags.parquet").stat().st_size < n / 20
    restate(path, n_bags=n, n_rows=n, smallest_bag=1, largest_bag=1)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_: pytest.fail("it was read"))
    refused(path)


def test_an_array_that_claims_to_be_huge_is_refused(folder):
    path = folder("statistics")
    with zipfile.ZipFile(path / "statistics.npz") as saved:
        members = {name: saved.read(name) for name in saved.namelist()}
    mean = members["mean.npy"]
    huge = mean.replace(b"(2,), }" + b" " * 14, b"(10000000000000,), }" + b" ")
    assert huge != mean
    assert len(huge) == len(mean)
    with zipfile.ZipFile(path / "statistics.npz", "w") as saved:
        for name, data in (members | {"mean.npy": huge}).items():
            saved.writestr(name, data)
    restate(path)
    refused(path)


def test_statistics_of_other_responses_than_the_bags_are_refused(folder):
    path = folder("statistics")
    found = AggregateStatistics.load(path / "statistics.npz")
    replace(found, response_mean=found.response_mean + 0.1).save(path / "statistics.npz")
    restate(path)
    refused(path)


def test_statistics_of_other_features_or_rows_are_refused(folder):
    path = folder("statistics")
    statistics = AggregateStatistics.from_rows(np.zeros((4, 3)), [1.0, 1, 2, 2], [0, 0, 1, 1])
    statistics.save(path / "statistics.npz")
    restate(path)
    refused(path)


def test_bag_features_of_other_bags_are_refused(folder):
    path = folder("means")
    table = pq.read_table(path / "bag_features.parquet")
    pq.write_table(table.slice(1), path / "bag_features.parquet")
    restate(path)
    refused(path)


@pytest.mark.parametrize("kind", ["nothing", "file"])
def test_what_is_no_folder_is_told(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("")
    with pytest.raises(FileNotFoundError, match="path must be a Release folder; got"):
        Release.load(path)


@pytest.mark.parametrize("ids", [[3, 1, 2], ["b", "a", "c"], [-1, 2**62, 0]])
def test_an_id_that_is_there_twice_is_found(ids):
    """Wherever the second one stands, and over chunks."""
    assert not released_module._has_twins(pa.chunked_array([ids[:1], ids[1:]]))
    for again in ids:
        assert released_module._has_twins(pa.chunked_array([ids, [again]]))
