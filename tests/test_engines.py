"""Bags, sums and clustering of tables: the same laws for a row, a piece and a whole table."""

import io
import traceback
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy import stats

from bagwise import AggregateLinearRegression, AggregateStatistics, Bags, BagTable
from bagwise import tables as tables_module
from bagwise._progress import silent
from bagwise.engines import cluster as cluster_module
from bagwise.engines import layout as layout_module
from bagwise.engines import open_engine
from bagwise.engines.cluster import Clustering
from bagwise.engines.engine import Engine
from bagwise.engines.layout import Kept, Layout, Permutation
from bagwise.engines.local import Local
from bagwise.release import Ledger, job, release, steps
from bagwise.release import layout as release_layout
from bagwise.release.layout import draw_bags, keep_some, sum_bags
from bagwise.release.mechanism import Mechanism
from bagwise.release.table import look_over, open_rows
from bagwise.tables import Table


def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "a": rng.normal(size=n),
            "place": rng.normal(size=n).astype(np.float32),
            "town": rng.choice(["north", "south", "east"], n),
            "day": rng.integers(0, 40, n).astype(np.int16),
            "person": rng.integers(0, n // 4, n),
            "y": rng.normal(size=n),
        }
    )


@pytest.fixture
def files(tmp_path):
    """The same rows in three Parquet files of many row groups."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(3):
        pq.write_table(rows().slice(1000 * i, 1000), folder / f"{i}.parquet", row_group_size=130)
    return folder


# Permutations


@pytest.mark.parametrize("n", [1, 2, 7, 65536, 65537, 100_000, 300_007])
def test_a_permutation_takes_every_place_once(n):
    shuffle = Permutation.draw(n, np.random.default_rng(n))
    np.testing.assert_array_equal(np.sort(shuffle(np.arange(n))), np.arange(n))


def test_a_permutation_is_computed_for_each_number_by_itself():
    """Workers that see other pieces of the table agree."""
    shuffle = Permutation.draw(200_000, np.random.default_rng(1))
    whole = shuffle(np.arange(200_000))
    some = np.array([3, 199_999, 77_777])
    np.testing.assert_array_equal(shuffle(some), whole[some])


@pytest.mark.parametrize("short", [2**16, 0], ids=["list", "cipher"])
def test_permutations_look_uniform(monkeypatch, short):
    """Where a number goes, and where two go together, over many keys; alpha = 1e-4 each."""
    monkeypatch.setattr(layout_module, "SHORT", short)
    n, draws = 10, 20_000
    rng = np.random.default_rng(2)
    found = np.array([Permutation.draw(n, rng)(np.arange(n)) for _ in range(draws)])
    for i in (0, 4, 9):
        assert stats.chisquare(np.bincount(found[:, i], minlength=n)).pvalue > 1e-4
    pairs = np.bincount(found[:, 0] * n + found[:, 1], minlength=n * n).reshape(n, n)
    assert np.diag(pairs).sum() == 0
    assert stats.chisquare(pairs[~np.eye(n, dtype=bool)]).pvalue > 1e-4


def test_neighbours_in_a_large_table_are_parted():
    """Differences of neighbours are those of strangers: a Kolmogorov-Smirnov test, alpha = 1e-4."""
    n = 10**6
    found = Permutation.draw(n, np.random.default_rng(3))(np.arange(20_000)) / n
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    apart = np.diff(found) % 1
    assert stats.kstest(apart, "uniform").pvalue > 1e-4


def test_kept_places_are_numbered_without_gaps():
    rng = np.random.default_rng(4)
    places = np.sort(rng.choice(1000, 300, replace=False))
    kept = Kept.of(1000, iter([places[100:], places[:100]]))
    stays, numbers = kept(np.arange(1000))
    np.testing.assert_array_equal(np.flatnonzero(stays), places)
    np.testing.assert_array_equal(numbers, np.arange(300))
    assert kept.count == 300


# Bags and sums


def laid_out(source, names=(), bag_size=None, user=None, cap=1, engine=None, seed=0):
    """A layout with its exact sums, as a release makes them, for a shuffle that is known."""
    engine = engine or Local()
    table = open_rows(source, "y")
    pieces, look = look_over(table, engine, "y", list(names))
    shuffle = Permutation.draw(look.n_rows, np.random.default_rng(seed))
    kept = keep_some(engine, table, pieces, shuffle, user, cap) if user else None
    drawn = draw_bags(shuffle, kept, bag_size)
    mechanism = Mechanism.of((-2.0, 1.0), 1.0)
    return table, pieces, *sum_bags(engine, table, pieces, drawn, list(names), "y", mechanism)


def quantised(y):
    step = Mechanism.of((-2.0, 1.0), 1.0).step
    return np.floor(np.clip(y, -2, 1) / step + 0.5).astype(np.int64)


@pytest.mark.parametrize("bag_size", [1, 7, 20, 3000])
def test_random_bags_have_the_sizes_of_bags_random_and_exact_sums(files, bag_size):
    _, pieces, layout, sums = laid_out(files, bag_size=bag_size)
    asked = Bags.random(3000, bag_size, random_state=0).sizes
    np.testing.assert_array_equal(np.sort(layout.sizes), np.sort(asked))
    bag_of = np.concatenate(
        [bags for piece in pieces for _, _, bags in layout.rows(piece, ["a"], most=100)]
    )
    np.testing.assert_array_equal(np.bincount(bag_of), layout.sizes)
    expected = np.zeros(len(sums), dtype=np.int64)
    np.add.at(expected, bag_of, quantised(rows()["y"].to_numpy()))
    np.testing.assert_array_equal(sums, expected)


def test_the_same_key_gives_the_same_bags_however_the_table_is_cut(files, tmp_path):
    pq.write_table(rows(), tmp_path / "whole.parquet")
    pyarrow.csv.write_csv(rows(), tmp_path / "whole.csv")
    first = laid_out(files, bag_size=11)[3]
    for other in (tmp_path / "whole.parquet", tmp_path / "whole.csv", rows()):
        np.testing.assert_array_equal(laid_out(other, bag_size=11)[3], first)
    assert not np.array_equal(laid_out(files, bag_size=11, seed=1)[3], first)


@pytest.mark.parametrize("names", [["town"], ["day"], ["town", "day"], ["day", "person", "town"]])
def test_named_bags_have_exact_sums(files, names):
    _, pieces, layout, sums = laid_out(files, names)
    frame = rows().to_pandas()
    frame["y"] = quantised(frame["y"])
    expected = frame.groupby(names)["y"].agg(["sum", "size"])
    found = layout.labels.to_pandas().assign(total=sums, size=layout.sizes).set_index(names)
    assert len(found) == len(expected)
    np.testing.assert_array_equal(found["total"].reindex(expected.index), expected["sum"])
    np.testing.assert_array_equal(found["size"].reindex(expected.index), expected["size"])
    # And each row finds its own bag again.
    for piece in pieces[:3]:
        for table, _, bags in layout.rows(piece, names):
            assert layout.labels.take(bags).to_pydict() == table.to_pydict()


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint32()])
@pytest.mark.parametrize("first", ["low", "high", "mixed", "near"])
def test_keys_near_and_far_are_added_up_as_duckdb_does(kind, first):
    """Keys from end to end of their type, whichever come first: an array has those close by."""
    info = np.iinfo(kind.to_pandas_dtype())
    near, ends = np.arange(5), np.array([info.min, info.min + 1, info.max - 1, info.max])
    rng = np.random.default_rng(3)
    keys = rng.choice(np.concatenate([near, ends]).astype(info.dtype), 400)
    if first != "mixed":
        places = {"low": [info.min], "high": [info.max], "near": near}[first]
        keys = keys[np.argsort(~np.isin(keys, places), kind="stable")]
    steps = rng.integers(-(2**40), 2**40, 400)
    table = pa.table({"key": pa.array(keys, kind), "steps": steps})
    pieces = Table.of(table).pieces()

    def task(piece):
        return [batch for part in piece.batches(table.column_names) for batch in cut(part)]

    def cut(batch):
        return [batch.slice(i, 20) for i in range(0, len(batch), 20)]

    asked = (task, pieces, table.schema, ["key"])
    found = Local().totals(*asked, steps_sum="sum")
    expected = Engine.totals(Local(), *asked, steps_sum="sum")
    assert found.sort_by("key").equals(expected.sort_by("key"))


def test_zeros_of_either_sign_are_one_bag(tmp_path):
    table = pa.table({"x": [1.0, 2.0, 3.0], "g": [0.0, -0.0, 1.0], "y": [0.1, 0.2, 0.3]})
    _, pieces, layout, _ = laid_out(table, ["g"])
    assert sorted(layout.sizes) == [1, 2]
    (found,) = layout.rows(pieces[0], ["x"])
    assert found[2][0] == found[2][1] != found[2][2]


@pytest.mark.parametrize("cap", [1, 3])
def test_users_keep_so_many_rows_and_bags_are_drawn_from_those(files, cap):
    _, pieces, layout, _ = laid_out(files, bag_size=5, user="person", cap=cap)
    people = rows()["person"].to_numpy()
    expected = np.minimum(np.bincount(people), cap)
    kept = [
        table["person"].to_numpy() for p in pieces for table, _, _ in layout.rows(p, ["person"])
    ]
    np.testing.assert_array_equal(np.bincount(np.concatenate(kept)), expected)
    assert layout.n_rows == expected.sum() == layout.sizes.sum()
    assert layout.sizes.min() >= 5


# Clustering


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("names", [(), ("town", "day")])
def test_clustered_rows_are_the_table_s_own_in_whole_bags(
    files, tmp_path, monkeypatch, parts, names
):
    monkeypatch.setattr(cluster_module, "GROUP", 90)
    monkeypatch.setattr(cluster_module, "PART", 3000 // parts)
    table, pieces, layout, _ = laid_out(files, names, bag_size=None if names else 7)
    clustering = Clustering.of(layout, table.schema.remove(5), tmp_path, pieces)
    Local().cluster(clustering, pieces)
    place = tmp_path / "rows.parquet"
    assert place.is_dir() == (parts > 1)
    assert not (tmp_path / ".moving").exists()
    found = pq.read_table(place)
    # Sorted by all columns, the rows are those that went in.
    keys = [(name, "ascending") for name in ("a", "person")]
    whole = rows().drop_columns("y").sort_by(keys)
    assert found.drop_columns("bag").sort_by(keys).equals(whole)
    # Bags lie together in the order of the table of bags, and no row group cuts one.
    codes = pa.compute.index_in(found["bag"], layout.ids).to_numpy()
    np.testing.assert_array_equal(codes, np.repeat(np.arange(len(layout.sizes)), layout.sizes))
    seen = set()
    for path in sorted(place.iterdir()) if parts > 1 else [place]:
        with pq.ParquetFile(path) as file:
            for i in range(file.num_row_groups):
                some = set(file.read_row_group(i)["bag"].to_pylist())
                assert not seen & some
                seen |= some


@pytest.mark.parametrize("kind", ["text", "text of one level", "numbers"])
def test_what_is_held_is_bounded_in_bytes(tmp_path, monkeypatch, kind):
    """A kilobyte a row, so a batch of 10, a cut of 30, row groups of 20 and parts of 100."""
    monkeypatch.setattr(tables_module, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(layout_module, "AT_ONCE", 30_000)
    monkeypatch.setattr(cluster_module, "GROUP_BYTES", 20_000)
    monkeypatch.setattr(cluster_module, "PART_BYTES", 100_000)
    n = 1000
    columns = {f"x{i}": np.arange(n) + i / 7 for i in range(125)}
    if kind != "numbers":
        columns = {"x0": [f"{i if kind == 'text' else 0:01000d}" for i in range(n)]}
    pq.write_table(pa.table(columns | {"y": np.arange(n) / n}), tmp_path / "in.parquet")
    table, pieces, layout, _ = laid_out(tmp_path / "in.parquet", bag_size=2)
    names = list(columns)
    assert max(batch.nbytes for batch in pieces[0].batches(names)) < 12_000
    assert max(some.nbytes for some, _, _ in layout.rows(pieces[0], names)) < 42_000
    schema = pa.schema([table.schema.field(name) for name in names])
    clustering = Clustering.of(layout, schema, tmp_path, pieces)
    assert 15 <= clustering.group <= 20
    assert len(clustering.parts) >= 10
    assert Local().cluster(clustering, pieces).rows == n


def test_every_type_of_column_comes_out_as_it_went_in(tmp_path):
    n = 50
    rng = np.random.default_rng(5)
    odd = {
        "half": pa.array(rng.normal(size=n).astype(np.float16)),
        "unsigned": pa.array(rng.integers(0, 2**63, n).astype(np.uint64) * 2),
        "when": pa.array(rng.integers(0, 2**60, n), pa.timestamp("ns", "Europe/Berlin")),
        "long": pa.array(rng.integers(0, 2**40, n), pa.duration("us")),
        "money": pa.array(rng.integers(0, 9**9, n)).cast(pa.decimal256(40, 3)),
        "bytes": pa.array([bytes([i]) for i in range(n)], pa.large_binary()),
        "text": pa.array(["" if i % 3 else f"{i}" for i in range(n)]),
        "truth": pa.array(rng.random(n) < 0.5),
    }
    table = pa.table(odd | {"key": np.arange(n), "y": rng.normal(size=n)})
    pq.write_table(table, tmp_path / "in.parquet")
    stored = pq.read_table(tmp_path / "in.parquet")
    made = release(
        tmp_path / "in.parquet",
        response="y",
        bag_size=5,
        epsilon=1.0,
        bounds=(-3, 3),
        ledger=None,
        out=tmp_path / "out",
    )
    X, _, _ = made.training_set()
    assert X.sort_by("key").equals(stored.drop_columns("y"))


# What may be written


def test_no_response_touches_the_disk(tmp_path, monkeypatch):
    """Every file that a release writes, also those that it takes away again, is looked at."""
    canary = 0.73125918273645
    table = rows(2000)
    y = table["y"].to_numpy().copy()
    y[7::50] = canary
    pq.write_table(table.set_column(5, "y", pa.array(y)), tmp_path / "in.parquet")
    values = {canary, float(quantised(np.array([canary]))[0])}
    secrets = [np.float64(v).tobytes() for v in values] + [
        int(v).to_bytes(8, "little") for v in values if v == int(v)
    ]
    seen = {}
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.chdir(folder)

    def look():
        for path in list(folder.rglob("*")):
            if path.is_file():
                seen[path.name] = path.read_bytes()

    join = Clustering.join

    def slow(self, number, streams):
        look()
        return join(self, number, streams)

    monkeypatch.setattr(Clustering, "join", slow)
    monkeypatch.setattr(steps, "reached", lambda step: look())
    release(
        tmp_path / "in.parquet",
        response="y",
        bag_size=10,
        epsilon=1.0,
        bounds=(-2, 1),
        ledger=None,
        out=folder / "out",
    )
    assert any(name.isdigit() for name in seen), "the pieces on their way were seen"
    for name, data in seen.items():
        assert not any(secret in data for secret in secrets), name


def test_duckdb_has_no_place_for_temporary_files(tmp_path, monkeypatch):
    """A group-by that does not fit stops with a sentence, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    schema = pa.schema([("key0", pa.int64()), ("steps", pa.int64())])
    engine = Local()

    def ask(table):
        con = table.get_backend().con
        (place,) = con.execute("SELECT current_setting('temp_directory')").fetchone()
        assert not place
        return table

    assert not any(map(len, engine.query(lambda _: [], [], schema, ask)))

    def wide(piece):
        keys = np.arange(piece * 10**6, (piece + 1) * 10**6)
        yield pa.record_batch([keys, keys], schema=schema)

    class Small(Local):
        def query(self, task, pieces, schema, ask, progress):
            def in_little(rows):
                rows.get_backend().con.execute("SET memory_limit = '20MB'")
                return ask(rows)

            return super().query(task, pieces, schema, in_little, progress)

    wide_pieces = [types.SimpleNamespace(is_csv=False, number=i) for i in range(8)]
    task = lambda piece: wide(piece.number)  # noqa: E731
    with pytest.raises(ValueError, match="bags must be small enough to sum exactly, and few"):
        Small().totals(task, wide_pieces, schema, ["key0"], steps_sum="sum")
    assert not list(tmp_path.iterdir())


# A learner's table


def learner_table(folder, n=4000, seed=0):
    """Rows with the mean of their bag beside them, in files and in any order."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"u": rng.normal(size=n), "v": rng.normal(size=n) + 3})
    frame["town"] = rng.choice(["a", "b"], n)
    frame["bag"] = rng.integers(0, n // 10, n)
    frame["y"] = frame["u"] - frame["v"] + (frame["town"] == "a") + rng.normal(size=n) / 10
    frame["y"] = frame.groupby("bag")["y"].transform("mean")
    folder.mkdir()
    for i in range(3):
        frame.iloc[i::3].to_parquet(folder / f"{i}.parquet", row_group_size=300)
    return frame


def test_statistics_of_a_table_are_those_of_its_rows(tmp_path):
    frame = learner_table(tmp_path / "in")
    table = BagTable(tmp_path / "in", response="y", bags="bag")
    assert table.columns == ["u", "v", "town"]
    found = AggregateStatistics.from_table(table)
    X = table.encoder().encode(pa.Table.from_pandas(frame))
    expected = AggregateStatistics.from_rows(X, frame["y"], frame["bag"])
    for name in ("between", "within", "cross", "mean", "response_square"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    total = sum(len(y) for _, y, _ in table.batches())
    assert total == len(frame)
    assert repr(table) == f"BagTable(4000 rows in {len(table.sizes)} bags)"


def test_a_table_leaves_nothing_behind(tmp_path):
    learner_table(tmp_path / "in")
    (tmp_path / "work").mkdir()
    table = BagTable(tmp_path / "in", "y", "bag", folder=tmp_path / "work")
    assert list((tmp_path / "work").iterdir())
    del table
    assert not list((tmp_path / "work").iterdir())


def test_a_fit_on_a_path_is_the_fit_on_its_rows(tmp_path):
    frame = learner_table(tmp_path / "in")
    model = AggregateLinearRegression(rho="gcv").fit(str(tmp_path / "in"), "y", "bag")
    X = model.encoder_.encode(pa.Table.from_pandas(frame))
    same = AggregateLinearRegression(rho="gcv").fit(X, frame["y"], frame["bag"])
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-6)
    assert model.predict(frame[["u", "v", "town"]]).shape == (4000,)
    with pytest.raises(ValueError, match="y and bags must be both left out, or both given"):
        AggregateLinearRegression().fit(str(tmp_path / "in"), "y")


def test_a_table_from_the_command_line(tmp_path, command):
    learner_table(tmp_path / "in")
    words = [str(tmp_path / "in"), "--out", str(tmp_path / "m"), "--response", "y", "--bags", "bag"]
    code, said, _ = command("fit", *words)
    assert code == 0
    assert "4,000 rows" in said
    assert command("fit", *words[:5])[0] == 2


def test_a_table_of_several_files_or_on_standard_input(tmp_path, command, monkeypatch):
    """As a shell expands a glob, or a pipe brings them."""
    frame = learner_table(tmp_path / "in")
    options = ["--response", "y", "--bags", "bag", "--out"]
    files = [str(tmp_path / "in" / f"{i}.parquet") for i in range(3)]
    assert "4,000 rows" in command("fit", *files, *options, str(tmp_path / "m"))[1]
    text = frame.to_csv(index=False).encode()
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))
    assert "4,000 rows" in command("fit", "-", *options, str(tmp_path / "n"))[1]
    one, other = (AggregateLinearRegression.load(tmp_path / name) for name in "mn")
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"y": "not constant"}, "column 'y' must be constant within a bag"),
        ({"y": np.nan}, "column 'y' must be finite in every row"),
        ({"y": 1e300}, r"column 'y' must be within ±1e\+140; got larger ones"),
        ({"bag": None}, "column 'bag' must be a bag in every row"),
        ({"response": "z"}, "response must be columns of the table; got 'z'"),
        ({"bags": "z"}, "bags must be columns of the table; got 'z'"),
        ({"response": "town"}, "response must be a column of numbers beside the bags"),
        ({"response": "bag"}, "response must be a column of numbers beside the bags"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path, change, sentence):
    frame = learner_table(tmp_path / "in", 300)
    options = {"response": "y", "bags": "bag"}
    for name, value in change.items():
        if name in options:
            options[name] = value
        elif value == "not constant":
            frame.loc[5, name] += 1
        else:
            frame[name] = frame[name].astype(float)
            frame.loc[5, name] = np.nan if value is None else value
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=sentence):
        BagTable(path, **options)


def test_engines_by_name():
    assert isinstance(open_engine("local"), Local)
    with pytest.raises(ValueError, match="engine must be local, spark or spark://host:port"):
        open_engine("hadoop")


def test_standard_input_is_a_table_too(monkeypatch):
    text = rows(200).to_pandas().to_csv(index=False).encode()
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))
    _, _, layout, _ = laid_out("-", ["town"])
    assert layout.n_rows == 200
    assert isinstance(layout, Layout)


CHANGES = {
    "fewer rows": lambda path: rows(150).to_pandas().to_csv(path, index=False),
    "more rows": lambda path: rows(250).to_pandas().to_csv(path, index=False),
    "other values": lambda path: rows(200, seed=1).to_pandas().to_csv(path, index=False),
    "a bad cell": lambda path: path.write_text(path.read_text() + "1,1,north,1,1,SECRET777\n"),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("bagging", [{"bag_size": 10}, {"bags": "town"}], ids=str)
@pytest.mark.parametrize("features", ["rows", "none"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changes_while_it_is_read_is_refused(
    tmp_path, monkeypatch, change, features, bagging
):
    """Between the first look and the sums; nothing is charged, left behind, or quoted."""
    path = tmp_path / "in.csv"
    rows(200).to_pandas().to_csv(path, index=False)
    refuse_copies = job.refuse_copies

    def change_it(*arguments):
        refuse_copies(*arguments)
        CHANGES[change](path)

    monkeypatch.setattr(job, "refuse_copies", change_it)
    with pytest.raises((ValueError, FileNotFoundError)) as refusal:
        release(path, response="y", epsilon=1.0, bounds=(-1, 1), ledger=tmp_path / "ledger.db",
                budget=3, features=features, out=tmp_path / "out", **bagging)  # fmt: skip
    if change != "gone":
        assert "rows must be the same from first to last" in str(refusal.value)
    shown = "".join(traceback.format_exception(refusal.value))
    assert "SECRET777" not in shown + str(refusal.value.__context__)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))
    assert not Ledger(tmp_path / "ledger.db").datasets()


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "text"])
def test_a_feature_that_goes_bad_after_the_sums_is_not_quoted(tmp_path, monkeypatch, text):
    """Rows are put together last; a reader's own words would show the cell."""
    path = tmp_path / "in.csv"
    frame = rows(200).to_pandas() if text else rows(200).to_pandas().drop(columns="town")
    frame.to_csv(path, index=False)
    good = path.read_text()

    def change(step):
        if step == "responses summed":
            path.write_text(
                "\n".join([*good.splitlines()[:-1], "SECRET777" + "," * good.count(",")])
            )

    monkeypatch.setattr(steps, "reached", change)
    with pytest.raises(ValueError, match="rows must be the same from first to last") as refusal:
        release(path, **options(tmp_path))
    shown = "".join(traceback.format_exception(refusal.value))
    assert "SECRET777" not in shown + str(refusal.value.__context__)
    assert not Ledger(tmp_path / "ledger.db").datasets()


def test_a_user_that_goes_bad_is_not_quoted_by_a_worker(tmp_path):
    """What a task says ends up in the logs of a cluster."""
    path = tmp_path / "in.csv"
    path.write_text("who,y\n1,0.5\n2,0.25\n")
    table = open_rows(path, "y", ["who"])
    (piece,), _ = look_over(table, Local(), "y", ["who"], silent)
    path.write_text("who,y\n1,0.5\nSECRET777,0.25\n")
    schema = pa.schema([("user", pa.int64()), ("place", pa.int64())])
    shuffle = Permutation.draw(2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="rows must be the same from first to last") as refusal:
        list(release_layout._users(piece, shuffle, "who", schema))
    shown = "".join(traceback.format_exception(refusal.value))
    assert "SECRET777" not in shown + str(refusal.value.__context__)


def options(tmp_path, **changes):
    asked = {"response": "y", "epsilon": 1.0, "bounds": (-1, 1), "bag_size": 5, "budget": 3}
    return asked | {"ledger": tmp_path / "ledger.db", "out": tmp_path / "out"} | changes


def test_categories_with_gaps_are_refused_before_a_charge(tmp_path):
    x = pa.array([1.0, None] * 20).dictionary_encode()
    table = pa.table({"x": x, "y": np.arange(40) / 40})
    with pytest.raises(ValueError, match="columns must be finite numbers for this; got 'x'"):
        release(table, **options(tmp_path, features="statistics"))
    huge = pa.table({"x": np.full(40, 1e200), "y": np.arange(40) / 40})
    with pytest.raises(ValueError, match="columns must be finite numbers for this; got 'x'"):
        release(huge, **options(tmp_path, features="statistics"))
    assert not (tmp_path / "ledger.db").exists() or not Ledger(tmp_path / "ledger.db").datasets()


def test_what_another_library_says_of_a_table_is_not_passed_on(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    text = duckdb.sql("SELECT 1.5 AS x, 'SECRET777' AS y UNION ALL SELECT 2.5, '3'")
    bad = text.query("t", "SELECT x, CAST(y AS DOUBLE) AS y FROM t")
    with pytest.raises(ValueError, match="rows must be") as refusal:
        release(bad, **options(tmp_path))
    assert "SECRET777" not in "".join(traceback.format_exception(refusal.value))


@pytest.mark.parametrize("how", ["twice", "by a glob"])
def test_a_file_is_taken_once(tmp_path, how):
    pq.write_table(rows(50), tmp_path / "a.parquet")
    again = tmp_path / ("a.parquet" if how == "twice" else "*.parquet")
    with pytest.raises(ValueError, match="rows must be of"):
        release([tmp_path / "a.parquet", again], **options(tmp_path))


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns", "UTC"),
        pa.duration("us"),
        pa.float16(),
        pa.time64("ns"),
        pa.decimal32(5, 2),
        pa.decimal64(12, 2),
        pa.decimal256(40, 2),
        pa.uuid(),
    ],
    ids=str,
)
def test_ids_that_an_engine_would_blur_are_refused(tmp_path, kind):
    if kind == pa.uuid():
        values = pa.ExtensionArray.from_storage(
            kind, pa.array([b"0123456789abcdef"] * 4, pa.binary(16))
        )
    else:
        values = pa.array([1.0, 2.0, 3.0, 4.0] if kind == pa.float16() else [1, 2, 3, 4])
        values = (values.cast(pa.decimal128(25)) if pa.types.is_decimal(kind) else values).cast(
            kind
        )
    table = pa.table({"g": values, "x": [1.0, 2, 3, 4], "y": [0.1, 0.2, 0.3, 0.4]})
    for change in ({"bags": "g", "bag_size": None}, {"user": "g"}):
        with pytest.raises(ValueError, match="ids must be numbers, text, dates or times"):
            release(table, **options(tmp_path, **change))


def test_a_stray_file_stops_a_release(tmp_path, monkeypatch):
    reached = steps.reached

    def litter(step):
        if step == "means written":
            (tmp_path / ".out.partial" / "stray").write_text("x")
        reached(step)

    monkeypatch.setattr(steps, "reached", litter)
    with pytest.raises(OSError, match="must hold what was released alone"):
        release(rows(50), **options(tmp_path))
    assert not (tmp_path / "out").exists()


class Losing(Local):
    """An engine that forgets a piece on the way."""

    def cluster(self, clustering, pieces, *shown):
        return super().cluster(clustering, pieces[1:], *shown)


class Littering(Local):
    """One that leaves a file of its own among the parts, as a task that was killed does."""

    name = "stray"

    def cluster(self, clustering, pieces, *shown):
        joined = super().cluster(clustering, pieces, *shown)
        (clustering.folder / "rows.parquet" / self.name).write_text("x")
        return joined


@pytest.mark.parametrize("bagging", [{}, {"bag_size": None, "bags": "day"}], ids=str)
@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (Losing, "rows must be the same from first to last"),
        (Littering, "rows.parquet must be made of its own parts alone"),
    ],
)
def test_rows_that_are_lost_and_strays_are_refused_before_a_charge(
    files, tmp_path, monkeypatch, engine, sentence, bagging
):
    monkeypatch.setattr(cluster_module, "GROUP", 90)
    monkeypatch.setattr(cluster_module, "PART", 1000)
    for features in ("rows", "means"):
        asked = {"columns": ["a"], "features": features, "engine": engine()} | bagging
        with pytest.raises(ValueError, match=sentence):
            release(files, **options(tmp_path, **asked))
    assert not Ledger(tmp_path / "ledger.db").datasets()
    assert not (tmp_path / "out").exists()
    learner_table(tmp_path / "bags")
    (tmp_path / "work").mkdir()
    with pytest.raises(ValueError, match=sentence):
        BagTable(tmp_path / "bags", "y", "bag", engine(), tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())


def test_what_a_killed_task_left_is_cleared_away(files, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "GROUP", 90)
    monkeypatch.setattr(cluster_module, "PART", 1000)
    monkeypatch.setattr(Littering, "name", ".part-00001.parquet.cut")
    made = release(files, **options(tmp_path, engine=Littering()))
    assert all(path.name.startswith("part") for path in (made.path / "rows.parquet").iterdir())
    learner_table(tmp_path / "bags")
    assert BagTable(tmp_path / "bags", "y", "bag", Littering()).sizes.sum() == 4000


def test_a_csv_file_without_rows_may_come_first(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n")
    (tmp_path / "b.csv").write_text("a,y\n" + "".join(f"{i}.5,{i}\n" for i in range(20)))
    made = release(tmp_path / "*.csv", **options(tmp_path, bounds=(0, 20)))
    assert made.statement.n_rows == 20


@pytest.mark.parametrize("copy", ["blanks", "a space before"])
def test_text_that_repeats_the_response_is_known_by_the_cells_that_read(tmp_path, copy):
    y = rows(400)["y"].to_numpy()
    text = [
        f" {v}" if copy != "blanks" else ("NA" if i % 50 == 0 else f"{v}") for i, v in enumerate(y)
    ]
    with pytest.raises(ValueError, match="different from the response; got 'copy'"):
        release({"copy": text, "y": y}, **options(tmp_path))


def test_nested_columns_of_a_learner_s_table_are_left_alone(tmp_path):
    table = pa.table({"x": [1.0, 2.0], "l": [[1], [2]], "b": [0, 1], "y": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert BagTable(tmp_path / "t.parquet", "y", "b").columns == ["x", "b"]
    with pytest.raises(ValueError, match="response must be a column of numbers beside the bags"):
        BagTable(tmp_path / "t.parquet", "l", "b")
    with pytest.raises(ValueError, match=r"ids must be numbers, .* got list.* in column 'l'"):
        BagTable(tmp_path / "t.parquet", "y", "l")


@pytest.mark.parametrize("gap", [np.nan, None])
@pytest.mark.parametrize("categories", [False, True])
def test_a_bag_that_is_no_number_is_missing(tmp_path, gap, categories):
    bags = pa.array([1.5, gap, 2.5, 2.5])
    bags = bags.dictionary_encode() if categories else bags
    pq.write_table(
        pa.table({"x": [1.0, 2, 3, 4], "b": bags, "y": [1.0] * 4}), tmp_path / "t.parquet"
    )
    with pytest.raises(ValueError, match="column 'b' must be a bag in every row; got missing"):
        BagTable(tmp_path / "t.parquet", "y", "b")


def test_what_duckdb_cannot_do_is_not_called_a_change(tmp_path):
    """Only a task of ours that fails tells of one."""
    schema = pa.schema([("key0", pa.int64()), ("steps", pa.int64())])

    def ask(pieces):
        pieces.get_backend().con.execute("DROP VIEW pieces")
        return pieces

    with pytest.raises(
        ValueError, match="bags must be of a type that DuckDB can group; got others"
    ):
        list(Local().query(lambda _: [], [], schema, ask))


@pytest.mark.parametrize(
    "pair", [("007", "7"), ("+7", "7"), ("0x1F", "31"), (f"{10**19 + 1}", "7")]
)
def test_ids_of_a_csv_that_would_merge_as_numbers_are_refused(tmp_path, monkeypatch, pair):
    """In a later file, as bags and as users, from files and standard input."""
    lines = [f"{pair[i % 2]},{i}.5,{i % 2}" for i in range(40)]
    (tmp_path / "a.csv").write_text("g,x,y\n" + "7,0.5,1\n" * 20)
    (tmp_path / "b.csv").write_text("\n".join(["g,x,y", *lines]))
    sentence = "column 'g' must be of ids that stay apart as numbers; got cells with a leading zero"
    for change in ({"bags": "g", "bag_size": None}, {"user": "g"}):
        for source in (tmp_path / "*.csv", "-"):
            given = io.BytesIO((tmp_path / "b.csv").read_bytes())
            monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=given))
            with pytest.raises(ValueError, match=sentence) as refusal:
                release(source, **options(tmp_path, **change))
            assert pair[0] not in str(refusal.value)
    assert not (tmp_path / "ledger.db").exists()
    with pytest.raises(ValueError, match=sentence):
        BagTable(tmp_path / "*.csv", "y", "g")
    # As text in Parquet they are what they are.
    table = pa.table(
        {"g": [pair[i % 2] for i in range(40)], "y": [float(i % 2) for i in range(40)]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert sorted(BagTable(tmp_path / "t.parquet", "y", "g").sizes) == [20, 20]


def test_whole_numbers_text_and_fractions_are_ids_of_a_csv(tmp_path):
    for ids in (["-7", "0", "10"], ["007", "7", "a7"], ["0.5", "-0.25", "100"], [f"{10**17 + 1}"]):
        lines = [f"{one},{i},1" for one in ids for i in range(3)]
        (tmp_path / "a.csv").write_text("\n".join(["g,x,y", *lines]))
        assert BagTable(tmp_path / "a.csv", "y", "g").sizes.tolist() == [3] * len(ids)
