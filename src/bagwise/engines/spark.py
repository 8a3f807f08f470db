"""A Spark cluster: tasks and expressions in its executors, nothing but results on the driver.

Tasks read their pieces themselves, from storage that every worker can reach; that is several times
quicker than rows that Spark hands over. A task that is lost is run again and gives the same: what
it reads does not change, where a row goes depends on its number alone, and files appear whole under
a name of their own. Noise is the exception, and `Mechanism.add_noise` says why it may be.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial, reduce
from itertools import groupby, repeat
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from bagwise import _check
from bagwise._extras import need
from bagwise._progress import Progress, silent
from bagwise.engines.cluster import Clustering, Joined
from bagwise.engines.engine import Ask, Batches, Engine, Found, Item
from bagwise.row_groups import RowGroup
from bagwise.statistics import AggregateStatistics
from bagwise.tables import Piece, Table

# Seconds to wait for a master to answer at all.
PATIENCE = 5
# Seconds between looks at how far a job is.
GLANCE = 0.2
# Cut pieces that Spark hands to a task at a time: each may be of some megabytes.
AT_ONCE = 16
ENCRYPTED = "spark.io.encryption.enabled"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def connect(master: str = "local[*]") -> Any:
    """A Spark session: on this machine, or on the cluster at ``spark://host:port``.

    Several masters, of which one leads, have commas between: ``spark://host:port,host:port``.
    """
    sql = need("pyspark.sql", "spark")
    hosts = []
    if master.startswith("spark://"):
        hosts = _hosts(master)
        _refuse_silent(master, hosts)
    elif not master.startswith("local"):
        got = f"{master!r}"
        _check.refuse("engine", "local, spark or spark://host:port", got, "Check the spelling")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master(master).appName("bagwise")
    if {host for host, _ in hosts} <= {"localhost", "127.0.0.1"}:
        # Everything is on this machine, whose own name need not lead anywhere.
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(name, "127.0.0.1")
    # Workers keep what they exchange in files.
    builder = builder.config(ENCRYPTED, "true")
    # One bar is enough.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.ui.enabled", "false")
    errors = need("pyspark.errors", "spark"), need("py4j.protocol", "spark")
    try:
        return builder.getOrCreate()
    except (errors[0].PySparkException, errors[1].Py4JError, OSError):
        pass
    got = f"{master!r}, where it did not start"
    remedy = "It needs Java 17, in JAVA_HOME or on the path, and a master of Spark 4.0"
    _check.refuse("engine", "where Spark starts", got, remedy)


class Spark(Engine):
    """The engine of a cluster.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        From `connect`, or the one of a notebook. To release, it must have been started with
        ``spark.io.encryption.enabled``: workers keep what they exchange in files.
    """

    package = "pyspark"

    def __init__(self, session: Any) -> None:
        self.session = session

    def check(self, table: Table) -> None:
        """Refuse a session whose files could be read, and rows that workers could not."""
        if self.session.sparkContext.getConf().get(ENCRYPTED) != "true":
            got = "one that does not"
            remedy = f"Start it with {ENCRYPTED}=true"
            _check.refuse("the Spark session", "one that encrypts its files", got, remedy)
        if not table.files:
            remedy = "Write it to Parquet files that every worker can read"
            _check.refuse("rows", "files, on Spark", "a table in memory", remedy)

    def map(
        self,
        task: Callable[[Item], Found],
        items: Sequence[Item],
        progress: Progress = silent,
    ) -> Iterable[Found]:
        """In the executors; results come in order, once each."""
        ended = self._ended()

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, item in _items(batches):
                yield _answer(number, partial(task, item))
                ended.add({number})

        return self._answers(run, items, ended, progress)

    def sum(
        self,
        task: Callable[[RowGroup], AggregateStatistics],
        groups: Sequence[RowGroup],
        progress: Progress = silent,
    ) -> AggregateStatistics:
        """In the executors; each sends one sum for all its row groups."""
        ended = self._ended()

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            mine = dict(_items(batches))
            if mine:
                found = map(task, mine.values())
                yield _answer(min(mine), partial(reduce, AggregateStatistics.__add__, found))
                ended.add(set(mine))

        sums: list[AggregateStatistics] = self._answers(run, groups, ended, progress)
        return reduce(AggregateStatistics.__add__, sums)

    def cluster(
        self, clustering: Clustering, pieces: Sequence[Piece], progress: Progress = silent
    ) -> Joined:
        """By a shuffle of pieces that are cut by part; whoever gets a part writes its file."""
        ended = self._ended()

        def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for i, piece in _items(batches):
                for number, stream in clustering.split(piece):
                    yield pa.record_batch([[number], [stream.to_pybytes()]], names=["part", "rows"])
                ended.add({i})

        def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = (pair for batch in batches for pair in zip(*batch.columns, strict=True))
            for number, pairs in groupby(rows, key=lambda pair: pair[0].as_py()):
                made = clustering.join(number, (pair[1].as_buffer() for pair in pairs))
                missing = pa.array([sorted(made.missing)], pa.list_(pa.string()))
                yield pa.record_batch([[made.rows], missing], names=["count", "missing"])
                ended.add({("part", number)})

        parts = min(len(clustering.parts), self._tasks)
        before = self.session.conf.get(RECORDS)
        self.session.conf.set(RECORDS, AT_ONCE)
        try:
            cut = self._frame(pieces).mapInArrow(split, "part long, rows binary")
            together = cut.repartition(parts, "part").sortWithinPartitions("part")
            written = together.mapInArrow(join, "count long, missing array<string>")
            work = len(pieces) + len(clustering.parts)
            found = self._finished(written.collect, ended, work, progress)
        finally:
            self.session.conf.set(RECORDS, before)
        return sum((Joined(count, frozenset(missing)) for count, missing in found), Joined())

    def query(
        self,
        task: Batches,
        pieces: Sequence[Piece],
        schema: pa.Schema,
        ask: Ask,
        progress: Progress = silent,
    ) -> Iterator[pa.Table]:
        """Of a view of what tasks give; all at once, on the driver."""
        types = need("pyspark.sql.pandas.types", "spark")
        ibis = need("ibis", "engines")
        known = pa.schema([(field.name, _known_type(field)) for field in schema])
        ended = self._ended()

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, piece in _items(batches):
                for batch in task(piece):
                    yield batch.cast(known)
                ended.add({number})

        name = f"pieces_{uuid.uuid4().hex}"
        frame = self._frame(pieces).mapInArrow(run, types.from_arrow_schema(known))
        frame.createOrReplaceTempView(name)
        try:
            expression = ask(ibis.pyspark.connect(self.session).table(name))
            asked = self.session.sql(expression.get_backend().compile(expression))
            found = self._finished(asked.toArrow, ended, len(pieces), progress)
            yield found.cast(expression.schema().to_pyarrow())
        finally:
            self.session.catalog.dropTempView(name)

    @property
    def _tasks(self) -> int:
        """Several to a core: a worker that is lost leaves little to do again."""
        return 4 * max(1, int(self.session.sparkContext.defaultParallelism))

    def _frame(self, items: Iterable[Any]) -> Any:
        """Numbered items for tasks to take."""
        work = [(i, pickle.dumps(item)) for i, item in enumerate(items)]
        frame = self.session.createDataFrame(work, "number long, item binary")
        return frame.repartition(max(1, min(len(work), self._tasks)))

    def _answers(self, run: Any, items: Sequence[Any], ended: Any, progress: Progress) -> list[Any]:
        """What tasks answered, in order; what one refused is refused here."""
        frame = self._frame(items).mapInArrow(run, "number long, answer binary")
        rows = self._finished(frame.collect, ended, len(items), progress)
        # Written by our own workers a moment ago.
        found = [pickle.loads(bytes(row[1])) for row in sorted(rows)]
        for sentence, _ in found:
            if sentence is not None:
                raise ValueError(sentence)
        return [answer for _, answer in found]

    def _ended(self) -> Any:
        """A set that tasks add to, and that reaches the driver when they have come to their end."""
        return self.session.sparkContext.accumulator(set(), _Union())

    def _finished(
        self, job: Callable[[], Found], ended: Any, total: int, progress: Progress
    ) -> Found:
        """What a job gives, or one sentence: what Spark says is long, and may quote a value.

        It runs in a thread of its own, so that this one can show how far it is, or call it off.
        """
        context, group = self.session.sparkContext, uuid.uuid4().hex
        inherit = need("pyspark.util", "spark").inheritable_thread_target(self.session)
        errors = need("pyspark.errors", "spark"), need("py4j.protocol", "spark")

        def run() -> Found:
            context.setJobGroup(group, "bagwise", interruptOnCancel=True)
            return job()

        with ThreadPoolExecutor(1) as pool:
            future: Future[Found] = pool.submit(inherit(run))
            try:
                # The job's own end counts too: no bar is full before.
                deque(progress(_ticks(future, ended, total), total + 1), maxlen=0)
                return future.result()
            except (errors[0].PySparkException, errors[1].Py4JError):
                pass
            finally:
                while not wait([future], GLANCE).done:
                    context.cancelJobGroup(group)
        remedy = "Its workers' logs say more: can all of them read and write the files?"
        raise ValueError(f"the Spark job must come to its end; got a failure. {remedy}")


class _Union:
    """How Spark adds up sets; a task that is run twice counts once."""

    def zero(self, value: set[Any]) -> set[Any]:
        return set()

    def addInPlace(self, one: set[Any], other: set[Any]) -> set[Any]:
        return one | other


def _ticks(job: Future[Any], ended: Any, total: int) -> Iterator[None]:
    """One for each item whose task has come to its end, as they do, and one for the job."""
    shown = 0
    while not wait([job], GLANCE).done:
        found = len(ended.value)
        yield from repeat(None, found - shown)
        shown = found
    # What failed did not come to its end.
    job.result()
    yield from repeat(None, total + 1 - shown)


def _items(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """Numbers and items that a task was sent."""
    for batch in batches:
        for number, item in zip(*batch.columns, strict=True):
            yield number.as_py(), pickle.loads(item.as_py())


def _answer(number: int, task: Callable[[], Any]) -> pa.RecordBatch:
    """An answer for the driver: what the task gives, or the sentence that it refused with."""
    answer: tuple[str | None, Any]
    try:
        answer = None, task()
    except ValueError as error:
        answer = str(error), None
    return pa.record_batch([[number], [pickle.dumps(answer)]], names=["number", "answer"])


def _known_type(field: pa.Field) -> pa.DataType:
    """The type by which Spark keeps a column apart as finely as Arrow does."""
    kind = field.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pa.int64()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if kind in (pa.float32(), pa.float64(), pa.bool_(), pa.date32()):
        return kind
    remedy = "Turn it into numbers or text"
    _check.refuse("ids", "whole numbers, text or dates, on Spark", str(kind), remedy)


def _hosts(master: str) -> list[tuple[str, int]]:
    """Hosts and ports of the masters."""
    try:
        places = [urlsplit(f"//{one}") for one in master.removeprefix("spark://").split(",")]
        return [(place.hostname or "", place.port or 7077) for place in places]
    except ValueError:
        pass
    _check.refuse("engine", "spark://host:port", f"{master!r}", "Check the port")


def _refuse_silent(master: str, hosts: list[tuple[str, int]]) -> None:
    """Refuse masters of which none answers, which Spark itself would wait for long."""
    reasons = []
    for place in hosts:
        try:
            return socket.create_connection(place, PATIENCE).close()
        except OSError as error:
            reasons.append(str(error))
    got = f"{master!r}, which does not ({reasons[0]})"
    _check.refuse("engine", "a Spark master that answers", got, "Start it, or check the port")
