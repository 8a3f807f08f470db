"""Sums over the row groups of a Release on a Spark cluster.

A task gets row groups with their bags, reads the rows itself from storage that every worker can
reach, and sends back one sum. Sums of features and released means hold nothing private, so a task
that is lost is simply run again.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from bagwise import _check
from bagwise._extras import need
from bagwise.row_groups import Engine, RowGroup
from bagwise.statistics import AggregateStatistics

# Seconds to wait for a master to answer at all.
PATIENCE = 5


def connect(master: str = "local[*]") -> Any:
    """A Spark session: on this machine, or on the cluster at ``spark://host:port``."""
    sql = need("pyspark.sql", "spark")
    if master.startswith("spark://"):
        _refuse_silent(master)
    elif not master.startswith("local"):
        got = f"{master!r}"
        _check.refuse("engine", "local, spark or spark://host:port", got, "Check the spelling")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master(master).appName("bagwise")
    if urlsplit(master).hostname in (None, "localhost", "127.0.0.1"):
        # Everything is on this machine, whose own name need not lead anywhere.
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(name, "127.0.0.1")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def on_spark(session: Any) -> Engine:
    """An engine that sums over row groups on a Spark session.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        From `connect`, or the one of a notebook.
    """

    def run(
        task: Callable[[RowGroup], AggregateStatistics], groups: Iterable[RowGroup]
    ) -> AggregateStatistics:
        work = [(pickle.dumps(group),) for group in groups]

        def sums(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            total: AggregateStatistics | None = None
            for batch in batches:
                for row in batch.column(0):
                    part = task(pickle.loads(row.as_py()))
                    total = part if total is None else total + part
            if total is not None:
                yield pa.record_batch([[pickle.dumps(total)]], names=["sum"])

        # Several to a core: a worker that is lost leaves little to do again.
        parts = min(len(work), 4 * max(1, session.sparkContext.defaultParallelism))
        frame = session.createDataFrame(work, "work binary").repartition(parts)
        found = frame.mapInArrow(sums, "sum binary").collect()
        # Written by our own workers a moment ago.
        sums_found: list[AggregateStatistics] = [pickle.loads(bytes(row[0])) for row in found]
        return reduce(AggregateStatistics.__add__, sums_found)

    return run


def _refuse_silent(master: str) -> None:
    """Refuse a master that does not answer, which Spark itself would wait for long."""
    place = urlsplit(master)
    try:
        socket.create_connection((place.hostname or "", place.port or 7077), PATIENCE).close()
    except (OSError, ValueError) as error:
        got = f"{master!r}, which does not ({error})"
        _check.refuse("engine", "a Spark master that answers", got, "Start it, or check the port")
