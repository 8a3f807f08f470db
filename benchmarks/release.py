"""What a release costs beside its noise, and the memory of a large one.

    python benchmarks/release.py [--bags 1000000 --bag-size 10 --rows 10000000 --repeats 3]

Prints the time of a release over OpenDP's bare draw of as many values, measured in turns within one
run, for bags alone and with the features of every row; then the peak of resident memory of
`bagwise release` from one Parquet file to another.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import ratio

from bagwise.release import Mechanism, release

COLUMNS = 20


def bare_draw(bags):
    """OpenDP's own call for the noise of that many bags."""
    draw = Mechanism.of((-3.0, 3.0), 1.0)._calibrated[1]
    sums = np.zeros(bags, dtype=np.int64)
    return lambda: draw(sums)


def releases(table, bag_size, folder, features):
    """A task that releases the table to a new folder, with a charge to a ledger."""
    number = count()
    return lambda: release(
        table,
        response="y",
        epsilon=1.0,
        bounds=(-3.0, 3.0),
        bag_size=bag_size,
        features=features,
        ledger=folder / "ledger.db",
        budget=1000,
        out=folder / f"{features}{next(number)}",
    )


def write_rows(path, rows, seed=0):
    """A Parquet file of normal features and a normal response, a million rows at a time."""
    rng = np.random.default_rng(seed)
    schema = pa.schema([(f"x{i}", pa.float32()) for i in range(COLUMNS)] + [("y", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 10**6):
            n = min(10**6, rows - start)
            columns = [rng.standard_normal(n, dtype=np.float32) for _ in range(COLUMNS)]
            writer.write_table(pa.table([*columns, rng.standard_normal(n)], schema=schema))


def peak_memory(path, folder):
    """Peak resident bytes of the command in a process of its own."""
    line = "release {} --response y --epsilon 1 --bounds -3 3 --bag-size 10 --budget 3 --out {}"
    words = line.format(path, folder / "whole").split()
    code = "import sys; from bagwise.cli import main; main()"
    ledger = {"BAGWISE_LEDGER": str(folder / "whole.db")}
    subprocess.run(
        [sys.executable, "-c", code, *words],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | ledger,
    )
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        ("bags", 10**6),
        ("bag-size", 10),
        ("rows", 10**7),
        ("repeats", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        rng = np.random.default_rng(0)
        n = options.bags * options.bag_size
        table = pa.table({"x": rng.standard_normal(n), "y": rng.standard_normal(n)})
        draw = bare_draw(options.bags)
        print(f"{options.bags} bags of {options.bag_size} rows, {os.cpu_count()} cores")
        for features in ("none", "rows"):
            task = releases(table, options.bag_size, folder, features)
            found = ratio(task, draw, options.repeats)
            print(f"release, features={features!r} / OpenDP's bare draw: {found:.2f}")
        del table
        path = folder / "rows.parquet"
        write_rows(path, options.rows)
        peak = peak_memory(path, folder)
        print(f"{options.rows} rows of {COLUMNS} float32 features, file to folder: ", end="")
        print(f"peak memory {peak / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
