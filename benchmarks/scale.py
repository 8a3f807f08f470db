"""A fit from a Release that does not fit in memory, against DuckDB's sum of the same columns.

    python benchmarks/scale.py [--rows 50000000 --features 20 --bag-size 20 --repeats 3]

Writes a Release of float32 rows, then prints the time of a fit with its whole rho path over the
time that DuckDB takes to sum every column of the same file, in turns within one run, and the peak
of resident memory of the fit, here and at a fiftieth of the rows.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import ratio

from bagwise import AggregateLinearRegression
from bagwise.released import BAGS, ROWS, STATEMENT, file_mark
from bagwise.statement import Statement

GROUP = 2**17


def write_release(folder, rows, features, bag_size, seed=0):
    """A Release of normal rows with a linear response, a row group at a time."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(features)]
    schema = pa.schema([("bag", pa.int64()), *((name, pa.float32()) for name in names)])
    coef, per_group, means = rng.standard_normal(features), GROUP // bag_size, []
    bags = rows // bag_size
    with pq.ParquetWriter(folder / ROWS, schema) as writer:
        for first in range(0, bags, per_group):
            count = min(per_group, bags - first)
            X = rng.standard_normal((count * bag_size, features), dtype=np.float32)
            y = X @ coef + rng.standard_normal(len(X))
            means.append(y.reshape(count, bag_size).mean(axis=1))
            ids = np.repeat(np.arange(first, first + count), bag_size)
            writer.write_table(pa.table([ids, *X.T.copy()], schema=schema), row_group_size=len(X))
    table = {"bag": np.arange(bags), "size": np.full(bags, bag_size)}
    table |= {"response": np.concatenate(means), "noise_scale": np.zeros(bags)}
    pq.write_table(pa.table(table), folder / BAGS)
    statement = Statement(
        promise="Not private: a benchmark.", private=False, epsilon=None, unit="one label",
        user=None, rows_per_user=1, response="y", low=-1.0, high=1.0, step=1.0, scale=0.0,
        paper=False, n_rows=bags * bag_size, n_dropped=0, n_bags=bags, smallest_bag=bag_size,
        largest_bag=bag_size, bag_columns=[], features="rows", columns=names, ledger=None,
        charge=None, made="", versions={},
        files={name: file_mark(folder / name) for name in (BAGS, ROWS)},
    )  # fmt: skip
    (folder / STATEMENT).write_text(statement.to_json())


def fit(folder):
    """The task: the whole path, from the folder."""
    return lambda: AggregateLinearRegression(rho="gcv").fit(folder)


def sum_columns(folder, features):
    """The reference: DuckDB reads the same columns and adds them up."""
    columns = ", ".join(f"sum(x{i})" for i in range(features))
    return lambda: duckdb.sql(f"SELECT {columns} FROM '{folder / ROWS}'").fetchall()


def peak_memory(folder):
    """Peak resident bytes of the command in a process of its own."""
    code = "import sys; from bagwise.cli import main; main()"
    words = ["fit", str(folder), "--out", str(folder.with_name(f"{folder.name}-model"))]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return after * 1024 if after > before else float("nan")


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 5 * 10**7), ("features", 20), ("bag-size", 20), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small", Path(name) / "large"
        print(
            f"{options.rows} rows, {options.features} float32 features, bags of {options.bag_size}"
        )
        # The smaller first: the peak of children only rises.
        for folder, rows in ((small, options.rows // 50), (large, options.rows)):
            write_release(folder, rows, options.features, options.bag_size)
            peak = peak_memory(folder)
            print(f"fit of {rows} rows, peak memory: {peak / 1e9:.2f} GB", flush=True)
        found = ratio(fit(large), sum_columns(large, options.features), options.repeats)
        print(f"fit with path of 101 rhos / DuckDB's sum of the same columns: {found:.2f}")


if __name__ == "__main__":
    main()
