"""Predictions and scores over tables that need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise import _check
from bagwise._parallel import on_threads
from bagwise._progress import Progress, silent
from bagwise.bags import Bags
from bagwise.encoding import Encoder
from bagwise.engines.engine import Engine
from bagwise.engines.layout import ids
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.estimators.scores import Labels, ProbabilityScores, Scores, Sums
from bagwise.released import Release
from bagwise.statistics import BLOCK
from bagwise.tables import Piece, Table, is_number, plain, plain_type

FloatArray: TypeAlias = NDArray[np.float64]


def csv_types(model: Any, response: str | None = None, keep: Iterable[str] = ()) -> dict[str, Any]:
    """Types of CSV columns that need no guess: numbers of the model, and text as it stands.

    What is true or false stays that, and counts as 1 or 0.
    """
    types = dict.fromkeys(keep, pa.string())
    for name, levels in encoder_of(model).columns.items():
        types[name] = pa.float64() if levels is None else pa.string()
    return types if response is None else types | {response: pa.float64()}


def encoder_of(model: Any) -> Encoder:
    """How a fitted model takes the columns of a table."""
    found: Encoder | None = getattr(model, "encoder_", None)
    if found is not None:
        return found
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        got = "one fitted on unnamed columns"
        _check.refuse("the model", "one that knows its columns", got, "Fit it on a table")
    return Encoder(dict.fromkeys(names))


@dataclass(frozen=True)
class Predicting:
    """A task: predictions for rows, with the columns to keep beside them.

    Attributes
    ----------
    model : fitted estimator
    keep : sequence of str
    unknown : {"refuse", "ignore"}
        Levels of text that training did not see.
    """

    model: Any
    keep: tuple[str, ...] = ()
    unknown: str = "refuse"

    def check(self, table: Table) -> None:
        """Refuse a table without the columns that are needed."""
        _check.choice("unknown", self.unknown, ("refuse", "ignore"))
        table.need(self.keep, "keep")
        if "prediction" in self.keep:
            _check.refuse("keep", "named otherwise than 'prediction'", "it", "Rename that column")
        table.need(list(encoder_of(self.model).columns), "features")

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return list(dict.fromkeys([*encoder_of(self.model).columns, *self.keep]))

    def batch(self, batch: pa.Table) -> pa.Table:
        """The columns to keep and a column ``prediction``."""
        found = _predictions(self.model, encoder_of(self.model), batch, self.unknown)
        return batch.select(list(self.keep)).append_column("prediction", [found])

    def part(self, numbered: tuple[int, Piece], folder: Path) -> int:
        """Write the predictions for a piece to a file of a folder; returns its rows."""
        number, piece = numbered
        path, writer, rows = folder / f"part-{number:05d}.parquet", None, 0
        partial = path.with_name(f".{path.name}.{uuid4().hex}")
        for batch in piece.batches(self.columns):
            made = self.batch(pa.Table.from_batches([batch]))
            writer = writer or pq.ParquetWriter(partial, made.schema)
            writer.write_table(made)
            rows += len(made)
        if writer is not None:
            writer.close()
            partial.replace(path)
        return rows


def predict_table(
    model: Any,
    table: Table,
    keep: Iterable[str] = (),
    unknown: str = "refuse",
    progress: Progress = silent,
) -> Iterator[pa.Table]:
    """The columns to keep and a column ``prediction``, a batch at a time in the table's order."""
    task = Predicting(model, tuple(dict.fromkeys(keep)), unknown)
    task.check(table)
    if table.files:
        for piece in progress(table.pieces()):
            for batch in piece.batches(task.columns):
                if batch.num_rows:
                    yield task.batch(pa.Table.from_batches([batch]))
        return
    yield from map(task.batch, progress(table.batches(task.columns)))


def predict_parts(
    model: Any,
    table: Table,
    folder: Path,
    engine: Engine,
    keep: Iterable[str] = (),
    unknown: str = "refuse",
    progress: Progress = silent,
) -> int:
    """Predictions by an engine, a Parquet file for each piece of the table; returns the rows."""
    task = Predicting(model, tuple(dict.fromkeys(keep)), unknown)
    task.check(table)
    pieces = list(enumerate(table.pieces()))
    rows = sum(engine.map(partial(task.part, folder=folder), pieces, progress))
    for left in folder.glob(".part-*"):
        left.unlink()
    return rows


class _Tally:
    """Sums over rows, and over the rows of each bag."""

    def __init__(self) -> None:
        self.rows, self.labels = Sums(), Labels()
        self.bags: dict[Any, Any] = {}

    def add(
        self, model: Any, batch: pa.Table, response: str, bags: str | None, unknown: str
    ) -> None:
        """Take in a batch."""
        y = _responses(batch[response], response)
        predictions = _predictions(model, encoder_of(model), batch, unknown)
        self.rows.add(y, predictions)
        if hasattr(model, "classes_"):
            self.labels.add(y, predictions)
        if bags is not None:
            groups = Bags(batch[bags])
            sums = groups.sum(np.column_stack([np.ones(len(y)), y, predictions]))
            self.take(zip(groups.ids.tolist(), sums, strict=True))

    def take(self, bags: Iterable[tuple[Any, FloatArray]]) -> None:
        """Take in sums of bags."""
        for bag, part in bags:
            self.bags[bag] = self.bags.get(bag, 0.0) + part


def _tally(
    piece: Piece, model: Any, columns: list[str], response: str, bags: str | None, unknown: str
) -> _Tally:
    """A task: the sums of a piece."""
    found = _Tally()
    for batch in piece.batches(columns):
        if batch.num_rows:
            found.add(model, pa.Table.from_batches([batch]), response, bags, unknown)
    return found


def _scored(
    piece: Piece,
    model: Any,
    columns: list[str],
    response: str,
    bags: str,
    unknown: str,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """A task: the bag, the response and the prediction of each row."""
    for batch in piece.batches(columns):
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            y = _responses(table[response], response)
            predictions = _predictions(model, encoder_of(model), table, unknown)
            yield pa.record_batch([ids(plain(batch[bags])), y, predictions], schema=schema)


def _sum_bags(
    engine: Engine, task: Any, pieces: Sequence[Piece], kind: pa.DataType, progress: Progress
) -> list[FloatArray]:
    """Sizes and sums of bags by the engine's group-by: what comes back is a line a bag."""
    schema = pa.schema([("bag", kind), ("y", pa.float64()), ("prediction", pa.float64())])
    ways = {"y_sum": "sum", "prediction_sum": "sum"}
    found = engine.totals(partial(task, schema=schema), pieces, schema, ["bag"], progress, **ways)
    # Refuses one that is missing.
    Bags(found["bag"])
    return [found[name].to_numpy().astype(np.float64) for name in ("size", *ways)]


def evaluate_table(
    model: Any,
    table: Table,
    response: str,
    bags: str | None = None,
    unknown: str = "refuse",
    progress: Progress = silent,
    engine: Engine | None = None,
) -> dict[str, Scores | ProbabilityScores]:
    """Scores of rows, and of bags where a column makes them; on an engine where one is given.

    Of a classifier and labels 0 and 1 also the scores of its probabilities.
    """
    _check.choice("unknown", unknown, ("refuse", "ignore"))
    extra = [response, *([] if bags is None else [bags])]
    table.need(extra, "response and bags")
    table.need(list(encoder_of(model).columns), "features")
    columns = list(dict.fromkeys([*encoder_of(model).columns, *extra]))
    total = _Tally()
    asked = {"model": model, "columns": columns, "response": response, "unknown": unknown}
    by_engine = engine if table.files and bags is not None else None
    if table.files:
        task = partial(_tally, bags=bags if by_engine is None else None, **asked)
        work = on_threads if engine is None else engine.map
        for found in work(task, table.pieces(), progress):
            total.rows = total.rows + found.rows
            total.labels = total.labels + found.labels
            total.take(found.bags.items())
    else:
        for batch in progress(table.batches(columns)):
            total.add(model, batch, response, bags, unknown)
    rows, of_bags = total.rows, total.bags
    if not rows.n:
        _check.refuse("the table", "of at least one row", "none", "Check the files")
    scores: dict[str, Scores | ProbabilityScores] = {"rows": rows.scores()}
    probabilities = total.labels.scores()
    if probabilities is not None:
        scores["probabilities"] = probabilities
    if bags is not None:
        if by_engine is not None:
            kind = plain_type(table.schema.field(bags).type)
            scored = partial(_scored, bags=bags, **asked)
            sizes, y, predictions = _sum_bags(by_engine, scored, table.pieces(), kind, progress)
        else:
            sizes, y, predictions = np.array(list(of_bags.values())).T
        means = Sums()
        means.add(y / sizes, predictions / sizes, sizes)
        scores["bags"] = means.scores()
    return scores


def evaluate_release(
    model: Any, release: Release, unknown: str = "refuse", progress: Progress = silent
) -> dict[str, Scores]:
    """Scores of the released means of bags, whose noise is part of the error."""
    _check.choice("unknown", unknown, ("refuse", "ignore"))
    encoder, means = encoder_of(model), Sums()
    if release.statement.features == "means":
        if not isinstance(model, AggregateLinearRegression):
            got = "another, and means of features"
            remedy = "Ask for a Release with rows"
            _check.refuse("the model", "linear for a Release without rows", got, remedy)
        # A linear model predicts the mean of a bag from the mean of its features.
        table, y, _ = release.training_set(list(encoder.columns))
        means.add(y, _predictions(model, encoder, table, unknown), release.sizes)
        return {"bags": means.scores()}
    for table, y, of_row in progress(release.batches()):
        groups = Bags(of_row)
        predictions = _predictions(model, encoder, table, unknown)
        means.add(groups.mean(y), groups.mean(predictions), groups.sizes)
    return {"bags": means.scores()}


def _predictions(model: Any, encoder: Encoder, batch: pa.Table, unknown: str) -> FloatArray:
    """Predictions for a batch, encoded a block at a time."""
    rows = encoder.rows(batch, unknown)
    step = max(1, BLOCK // rows.shape[1])
    blocks = (slice(start, start + step) for start in range(0, rows.shape[0], step))
    return np.concatenate([_means(model, rows[block]) for block in blocks])


def _means(model: Any, X: FloatArray) -> FloatArray:
    """Predicted means of rows that are numbers: responses, or the share of the second class."""
    found: FloatArray = model._forward(X)
    if found.shape[1] > 1:
        got = f"{found.shape[1]} classes"
        _check.refuse("the model", "one of a response or of two classes", got, "Predict in Python")
    return found[:, 0]


def _responses(values: pa.ChunkedArray, name: str) -> FloatArray:
    """Labels of rows, for scores."""
    if is_number(values.type) and not values.null_count:
        numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
        if np.isfinite(numbers).all():
            return numbers
    got = f"others in column {name!r}"
    _check.refuse("the response", "a number in every row", got, "Drop or convert them")
