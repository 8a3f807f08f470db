"""The files of a Release beside its rows: means of features, sums, the table of bags."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise.encoding import Encoder
from bagwise.engines.engine import Engine
from bagwise.engines.layout import Layout
from bagwise.released import BAG_COLUMNS, BAGS, MEANS, STATISTICS
from bagwise.row_groups import RowGroup, find_groups, sum_row_group

FloatArray: TypeAlias = NDArray[np.float64]


def write_bag_features(
    place: Path, rows: Path, columns: list[str], layout: Layout, engine: Engine
) -> None:
    """Means of the features over bags, from clustered rows."""
    encoder = Encoder(dict.fromkeys(columns))
    groups = find_groups(rows, layout.ids, layout.sizes, np.zeros(len(layout.sizes)))
    means = np.concatenate(list(engine.map(partial(_mean_features, encoder), groups)))
    table = {"bag": layout.ids, **dict(zip(columns, means.T, strict=True))}
    pq.write_table(pa.table(table), place / MEANS)


def _mean_features(encoder: Encoder, group: RowGroup) -> FloatArray:
    """Of each bag of a row group."""
    return group.average(encoder.encode(group.read(list(encoder.columns))))


def write_statistics(
    place: Path, rows: Path, columns: list[str], layout: Layout, means: FloatArray, engine: Engine
) -> None:
    """A, W and c of the features with the noisy means: what was released, and nothing beside it."""
    encoder = Encoder(dict.fromkeys(columns))
    groups = find_groups(rows, layout.ids, layout.sizes, means)
    total = engine.sum(partial(sum_row_group, encoder), groups)
    replace(total, feature_names=encoder.names).save(place / STATISTICS)


def write_bags(place: Path, layout: Layout, means: FloatArray, scales: FloatArray) -> None:
    """The table of bags."""
    values = (layout.ids, layout.sizes, means, scales)
    table = dict(zip(BAG_COLUMNS, values, strict=True))
    if layout.labels.num_columns > 1:
        table |= {name: layout.labels[name] for name in layout.labels.column_names}
    pq.write_table(pa.table(table), place / BAGS)
