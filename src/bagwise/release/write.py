"""The files of a Release: features in row groups of whole bags, means, sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise.encoding import Encoder
from bagwise.release.layout import Layout
from bagwise.released import BAG_COLUMNS, BAGS, MEANS, ROWS, STATISTICS
from bagwise.statistics import AggregateStatistics, sum_clustered

FloatArray: TypeAlias = NDArray[np.float64]
# Rows of a row group, unless a bag is larger: what a reader holds at once.
GROUP = 2**17


def write_rows(folder: Path, features: pa.Table, layout: Layout) -> None:
    """Features and bag of each row, bag after bag, no bag in two row groups."""
    schema = pa.schema([("bag", layout.ids.type), *features.schema])
    with pq.ParquetWriter(
        folder / ROWS, schema, compression="zstd", write_page_checksum=True
    ) as writer:
        for first, stop, rows in _whole_bags(layout):
            bag = layout.ids.take(
                pa.array(np.repeat(np.arange(first, stop), layout.sizes[first:stop]))
            )
            group = features.take(rows)
            writer.write_table(
                pa.table([bag, *group.columns], schema=schema), row_group_size=len(rows)
            )


def write_bag_features(folder: Path, features: pa.Table, layout: Layout) -> None:
    """Means of the features over bags."""
    encoder, parts = Encoder(dict.fromkeys(features.column_names)), []
    for first, stop, rows in _whole_bags(layout):
        sizes = layout.sizes[first:stop]
        values = encoder.encode(features.take(rows))
        sums = np.add.reduceat(values, np.cumsum(sizes) - sizes, axis=0)
        parts.append(sums / sizes[:, None])
    columns = dict(zip(features.column_names, np.concatenate(parts).T, strict=True))
    pq.write_table(pa.table({"bag": layout.ids, **columns}), folder / MEANS)


def write_statistics(folder: Path, features: pa.Table, layout: Layout, means: FloatArray) -> None:
    """A, W and c of the features with the noisy means: what was released, and nothing beside it."""
    encoder, parts = Encoder(dict.fromkeys(features.column_names)), []
    for first, stop, rows in _whole_bags(layout):
        X = encoder.rows(features.take(rows))
        parts.append(sum_clustered(X, means[first:stop], layout.sizes[first:stop]))
    total = reduce(AggregateStatistics.__add__, parts)
    replace(total, feature_names=encoder.names).save(folder / STATISTICS)


def write_bags(folder: Path, layout: Layout, means: FloatArray, scales: FloatArray) -> None:
    """The table of bags."""
    values = (layout.ids, layout.sizes, means, scales)
    table = pa.table(
        dict(zip(BAG_COLUMNS, values, strict=True))
        | {name: layout.labels[name] for name in layout.labels.column_names}
    )
    pq.write_table(table, folder / BAGS)


def _whole_bags(layout: Layout) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """First bag, the one past the last, and their rows, about GROUP rows at a time."""
    ends = np.cumsum(layout.sizes)
    first = row = 0
    while first < len(ends):
        stop = max(first + 1, int(np.searchsorted(ends, row + GROUP, side="right")))
        yield first, stop, layout.order[row : ends[stop - 1]]
        first, row = stop, int(ends[stop - 1])
