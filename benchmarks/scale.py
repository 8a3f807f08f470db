"""Tables that do not fit in memory: a fit and a release against DuckDB's own work on the same file.

    python benchmarks/scale.py [--rows 50000000 --features 20 --bag-size 20 --repeats 3]

Makes a Parquet file of float32 rows with a response and a bag in random order, and prints, in turns
within one run:

    fit      the whole rho path from a Release / DuckDB's sum of the same columns
    release  before noise, bags alone / DuckDB's group-by of the response, written to Parquet
             before noise, with every row / DuckDB's sort by bag, written to Parquet

and for each command the peak of resident memory: at a fiftieth of the rows, at all of them in as
many bags, and at all of them in bags of the same size, of which there are fifty times as many.
"""

from __future__ import annotations

import argparse
import math
import shutil
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
from bagwise.release import release
from bagwise.row_groups import part_names

# A command in a process of its own, and its peak of resident memory in bytes.
PEAK = """
import resource, sys
from bagwise.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def write_rows(path, rows, features, bag_size, seed=0):
    """Normal rows, a linear response, and bags in random order."""
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(features)]
    schema = pa.schema([*((name, pa.float32()) for name in [*names, "y"]), ("bag", pa.int64())])
    coef = rng.standard_normal(features)
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for first in range(0, rows, 2**17):
            count = min(2**17, rows - first)
            X = rng.standard_normal((count, features), dtype=np.float32)
            y = (X @ coef + rng.standard_normal(count)).astype(np.float32)
            bag = rng.integers(0, rows // bag_size, count)
            writer.write_table(pa.table([*X.T.copy(), y, bag], schema=schema))


def run_release(path, out, how, columns, bag_size, named):
    """The task: all of a release but its noise."""

    def run():
        shutil.rmtree(out, ignore_errors=True)
        release(
            path,
            response="y",
            epsilon=math.inf,
            bounds=(-20, 20),
            ledger=None,
            out=out,
            features=how,
            columns=columns if how == "rows" else None,
            **({"bags": "bag"} if named else {"bag_size": bag_size}),
        )

    return run


def query(text, memory=None):
    """The reference: what DuckDB takes for it, from scratch."""

    def run():
        with duckdb.connect() as con, tempfile.TemporaryDirectory() as spill:
            con.execute(f"SET temp_directory = '{spill}'")
            if memory:
                con.execute(f"SET memory_limit = '{memory}'")
            con.execute(text).fetchall()

    return run


def peak(*words):
    """Peak resident gigabytes of a command."""
    run = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, words)], check=True, capture_output=True, text=True
    )
    return int(run.stdout.split()[-1]) / 1e9


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 5 * 10**7), ("features", 20), ("bag-size", 20), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print(f"{options.rows} rows, {options.features} float32 features, bags of {options.bag_size}")
    columns = [f"x{i}" for i in range(options.features)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = options.rows // 50
        for size, rows, k in (
            ("small", small, options.bag_size),
            ("large", options.rows, 50 * options.bag_size),
            ("large", options.rows, options.bag_size),
        ):
            path, made = folder / f"{size}.parquet", folder / f"{size}-rows"
            if not path.exists():
                write_rows(path, rows, options.features, options.bag_size)
            for name in ("bare", "rows", "model"):
                shutil.rmtree(folder / f"{size}-{name}", ignore_errors=True)
            words = ["release", path, "--response", "y", "--bag-size", k, "--epsilon", "inf"]
            words += ["--bounds", "-20", "20", "--budget", "inf", "--ledger", folder / "ledger.db"]
            bare = peak(*words, "--features", "none", "--out", folder / f"{size}-bare")
            full = peak(*words, "--columns", ",".join(columns), "--out", made)
            fit = peak("fit", made, "--out", folder / f"{size}-model")
            print(
                f"{rows} rows in bags of {k}, peak memory in GB: release of bags {bare:.2f}, "
                f"with rows {full:.2f}, fit {fit:.2f}",
                flush=True,
            )
        path, out, made = folder / "large.parquet", folder / "out", folder / "large-rows"
        sums = ", ".join(f"sum({name})" for name in columns)
        parts = [str(made / name) for name in part_names(made)]
        found = ratio(
            lambda: AggregateLinearRegression(rho="gcv").fit(made),
            query(f"SELECT {sums} FROM read_parquet({parts})"),
            options.repeats,
        )
        print(f"fit with path of 101 rhos / DuckDB's sum of the same columns: {found:.2f}")
        grouped = query(
            f"COPY (SELECT bag, count(*), sum(y) FROM '{path}' GROUP BY bag) "
            f"TO '{folder}/grouped.parquet'"
        )
        for named, what in ((False, "random bags"), (True, "named bags")):
            task = run_release(path, out, "none", columns, options.bag_size, named)
            found = ratio(task, grouped, options.repeats)
            print(f"release before noise, {what} / DuckDB's group-by: {found:.2f}", flush=True)
        sort = query(
            f"COPY (SELECT bag, {', '.join(columns)} FROM '{path}' ORDER BY bag) "
            f"TO '{folder}/sorted.parquet' (COMPRESSION zstd)",
            "1500MB",
        )
        task = run_release(path, out, "rows", columns, options.bag_size, named=False)
        found = ratio(task, sort, 1)
        print(f"release before noise, with rows / DuckDB's sort by bag: {found:.2f}")


if __name__ == "__main__":
    main()
