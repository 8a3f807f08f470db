"""Tables on disk: what opens, in which order it is read, and what is refused in a sentence."""

import io
import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bagwise import tables
from bagwise.encoding import Encoder
from bagwise.tables import open_table


def part(start, n=5):
    return pa.table({"x": np.arange(start, start + n), "town": [f"t{i % 3}" for i in range(n)]})


@pytest.fixture
def folder(tmp_path):
    for i in range(3):
        pq.write_table(part(5 * i), tmp_path / f"part-{i}.parquet")
        pyarrow.csv.write_csv(part(5 * i), tmp_path / f"part-{i}.csv")
    (tmp_path / "parquet").mkdir()
    for i in range(3):
        pq.write_table(part(5 * i), tmp_path / "parquet" / f"part-{i}.parquet")
    (tmp_path / "parquet" / "_SUCCESS").write_text("")
    (tmp_path / "parquet" / ".part-0.parquet.crc").write_text("")
    for hidden in (".ipynb_checkpoints", "_temporary"):
        (tmp_path / "parquet" / hidden).mkdir()
        pq.write_table(part(100), tmp_path / "parquet" / hidden / "part-0.parquet")
    return tmp_path


def values(source):
    return [v for batch in open_table(source).batches(["x"]) for v in batch["x"].to_pylist()]


@pytest.mark.parametrize(
    "name", ["*.parquet", "*.csv", "parquet", "part-?.csv", "part-[012].parquet"]
)
def test_files_folders_and_globs_are_read_in_the_order_of_names(folder, name, monkeypatch):
    monkeypatch.setattr(tables, "BATCH", 2)
    assert values(str(folder / name)) == list(range(15))


def test_small_row_groups_are_read_together(folder, monkeypatch):
    """So that what is done once a piece is not done a thousand times for a few rows."""
    pq.write_table(part(0, 100), folder / "small.parquet", row_group_size=7)
    monkeypatch.setattr(tables, "BATCH", 20)
    pieces = open_table(folder / "small.parquet").pieces()
    assert [piece.groups for piece in pieces[:2]] == [(0, 1), (2, 3)]
    assert [piece.n_rows for piece in pieces] == [14] * 6 + [16]
    assert [v for p in pieces for b in p.batches(["x"]) for v in b["x"].to_pylist()] == [
        *range(100)
    ]
    monkeypatch.setattr(tables, "BATCH", 3)
    assert len(open_table(folder / "small.parquet").pieces()) == 15


def test_a_list_is_read_in_its_own_order(folder):
    paths = [folder / "part-1.csv", folder / "part-0.csv"]
    assert values(paths) == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_standard_input_is_csv(monkeypatch):
    given = types.SimpleNamespace(buffer=io.BytesIO(b"x,y\n1,2\n3,4\n"))
    monkeypatch.setattr(sys, "stdin", given)
    assert values("-") == [1, 3]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none/*.csv", "the table must be of at least one file; got none in"),
        ("*", "the table must be of .csv files or of .parquet files"),
        ("empty", "the table must be of at least one file; got none in"),
        ("notes.txt", "the table must be of .csv files or of .parquet files"),
        ("mixed", "the table must be of files with one type a column; got int64 and string in"),
        (
            "other",
            "the table must be of files with one type a column; got column 'x' in some alone",
        ),
        ("cut.parquet", "the table must be readable; got"),
    ],
)
def test_what_is_no_table_is_told_in_a_sentence(folder, name, sentence):
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("x")
    for kind, second in (("mixed", {"x": ["a"], "town": ["b"]}), ("other", {"town": ["b"]})):
        (folder / kind).mkdir()
        pq.write_table(part(0), folder / kind / "a.parquet")
        pq.write_table(pa.table(second), folder / kind / "b.parquet")
    data = (folder / "part-0.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(data[: len(data) // 2])
    if name == "*":
        (folder / "cut.parquet").unlink()
    with pytest.raises(ValueError, match=sentence):
        open_table(str(folder / name))


def test_csv_files_with_other_columns_are_told(folder):
    (folder / "a.csv").write_text("x,y\n1,2\n")
    (folder / "b.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match="one type a column; got column 'y' in some alone"):
        open_table([folder / "a.csv", folder / "b.csv"])


def test_a_file_whose_name_looks_like_a_glob_is_a_file(folder):
    (folder / "a[1].csv").write_text("x\n7\n")
    assert values(str(folder / "a[1].csv")) == [7]


def test_a_path_that_is_not_there_is_told(folder):
    with pytest.raises(FileNotFoundError, match="the table must be there; got"):
        open_table("nowhere.csv")


def test_a_csv_whose_types_change_on_the_way_is_told(folder):
    (folder / "a.csv").write_text("x\n" + "1\n" * 10)
    (folder / "b.csv").write_text("x\nlots\n")
    table = open_table([folder / "a.csv", folder / "b.csv"])
    with pytest.raises(ValueError, match="the table must be readable to its end; got"):
        list(table.batches())


CELLS = {
    "fractions in a later file": (["x\n1\n2\n", "x\n0.5\n"], [1, 2, 0.5]),
    "fractions in a later line": (["x\n" + "1\n" * 600_000 + "0.5\n"], [1] * 600_000 + [0.5]),
    "nothing in the first file": (["x,t\n,a\n", "x,t\n1.5,a\n"], [None, 1.5]),
    "no row in the first file": (["x\n", "x\n1.5\n"], [1.5]),
    "more digits than a float has": ([f"x\n{2**53 + 1}\n"], [2**53 + 1]),
    "such digits in a later file": (["x\n1\n", f"x\n{2**53 + 1}\n"], [1, 2**53 + 1]),
    "true and false": (["x\ntrue\nfalse\n", "x\n1\n"], [True, False, True]),
    "lines in a cell": (["x,t\n" + ('1,"' + "a\n" * 500 + '"\n') * 3000], [1] * 3000),
}


@pytest.mark.parametrize("case", CELLS)
def test_csv_numbers_are_read_whatever_comes_first(tmp_path, case):
    texts, expected = CELLS[case]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.csv").write_text(text)
    assert values(tmp_path) == expected


def test_whole_numbers_that_are_ids_stay_whole(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    assert [str(kind) for kind in open_table(tmp_path, ids=["y"]).schema.types] == [
        "double",
        "int64",
    ]
    (tmp_path / "b.csv").write_text("x,y\n1,2.5\n")
    assert [str(kind) for kind in open_table(tmp_path, ids=["y"]).schema.types] == ["double"] * 2


def test_types_that_are_known_are_not_guessed_but_for_true_and_false(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,true,7\n")
    known = {"x": pa.string(), "y": pa.float64(), "z": pa.float64()}
    kinds = open_table(tmp_path, known).schema.types
    assert kinds == [pa.string(), pa.bool_(), pa.float64()]


def test_an_empty_cell_of_text_is_missing(tmp_path, monkeypatch):
    text = 'x,town\n1,a\n2,\n3,""\n4,NA\n'
    (tmp_path / "a.csv").write_text(text)
    given = types.SimpleNamespace(buffer=io.BytesIO(text.encode()))
    monkeypatch.setattr(sys, "stdin", given)
    for source in (tmp_path / "a.csv", "-"):
        (batch,) = open_table(source).batches(["town"])
        assert batch["town"].to_pylist() == ["a", None, None, "NA"]
        with pytest.raises(ValueError, match="features must be there in every row; got missing"):
            learn(batch)


@pytest.mark.parametrize("text", ["", "x,y\n1,2,3\n", "x,y\nlots,1\n"])
def test_the_csv_file_that_cannot_be_read_is_named(tmp_path, text):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(ValueError, match=r"the table must be readable.*got .*b\.csv"):
        list(open_table(tmp_path).batches())


def test_a_missing_column_is_told_with_those_there_are(folder):
    with pytest.raises(
        ValueError, match=r"columns must be columns of the table; got 'z' for .*x, t"
    ):
        list(open_table(folder / "part-0.csv").batches(["z"]))


# The encoder


def learn(table, columns=None):
    return Encoder.learn(table.schema, columns or table.column_names, [table])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), "dictionary", pa.string_view()])
def test_text_becomes_one_column_a_level(kind):
    town = pa.array(["b", "a", "b", "c"])
    town = town.dictionary_encode() if kind == "dictionary" else town.cast(kind)
    table = pa.table({"town": town, "x": [1.5, 2, 3, 4], "yes": [True, False, True, True]})
    encoder = learn(table)
    assert encoder.names == ("town=a", "town=b", "town=c", "x", "yes")
    expected = [[0, 1, 0, 1.5, 1], [1, 0, 0, 2, 0], [0, 1, 0, 3, 1], [0, 0, 1, 4, 1]]
    assert encoder.encode(table).tolist() == expected
    assert encoder.encode(table.slice(1, 1)).tolist() == expected[1:2]
    assert Encoder.from_dict(encoder.to_dict()) == encoder


def test_levels_are_gathered_over_batches():
    parts = [pa.table({"t": ["b"]}), pa.table({"t": ["a"]})]
    assert Encoder.learn(parts[0].schema, ["t"], parts).names == ("t=a", "t=b")


def test_unknown_levels_are_refused_or_ignored():
    encoder = learn(pa.table({"t": ["a", "b"]}))
    strange = pa.table({"t": ["b", "z"]})
    with pytest.raises(ValueError, match="got 'z' in column 't'"):
        encoder.encode(strange)
    assert encoder.encode(strange, unknown="ignore").tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([1.0, None], "features must be there in every row; got missing or infinite values"),
        ([1.0, np.nan], "features must be there in every row"),
        ([1.0, np.inf], "features must be there in every row"),
        (["a", None], "features must be there in every row"),
        (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), "features must be numbers or text; got"),
        ([str(i) for i in range(1001)], "features must be text of at most 1000 levels; got more"),
    ],
)
def test_columns_that_cannot_be_encoded_are_told(column, sentence):
    table = pa.table({"c": column})
    with pytest.raises(ValueError, match=sentence):
        learn(table).encode(table)


def test_a_column_of_another_kind_than_in_training_is_told():
    encoder = learn(pa.table({"t": ["a"], "x": [1.0]}))
    with pytest.raises(ValueError, match="features must be text in column 't'; got int64"):
        encoder.encode(pa.table({"t": [1], "x": [1.0]}))
    with pytest.raises(ValueError, match="features must be numbers in column 'x'; got string"):
        encoder.encode(pa.table({"t": ["a"], "x": ["1"]}))
    with pytest.raises(ValueError, match="features must be columns of the table; got no 'x'"):
        encoder.encode(pa.table({"t": ["a"]}))


def test_missing_text_is_refused_even_where_unknown_levels_are_not():
    encoder = learn(pa.table({"t": ["a", "b"]}))
    with pytest.raises(ValueError, match="features must be there in every row"):
        encoder.encode(pa.table({"t": ["a", None]}), unknown="ignore")


@pytest.mark.parametrize("saved", [[], {}, {"t": 3}, {"t": [1]}, None])
def test_what_is_no_encoder_is_refused(saved):
    with pytest.raises(ValueError, match=r"no columns|levels that are no text"):
        Encoder.from_dict(saved)
