"""What a model uses of each column to tell bags apart: permutation importance on bag means.

A column's values are dealt out anew among rows of some bags, and predictions averaged over bags
again. With r_a and r'_a the residual of a bag before and after, k_a (r'_a² − r_a²) is what the
column spared that bag; over the variance of bag means in the same units it is a loss of R².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise._progress import Progress, silent
from bagwise.bags import Bags
from bagwise.estimators.streaming import encoder_of
from bagwise.inspection.bag_fit import Source, predicted, some_bags

FloatArray: TypeAlias = NDArray[np.float64]
# Rows of the bags that are looked at, and how often a column is dealt out.
ROWS, TIMES = 20_000, 3


@dataclass(frozen=True, eq=False)
class Importances:
    """Loss of R² of bag means without each column, the largest first.

    Attributes
    ----------
    names : tuple of str
    values, errors : ndarray of shape (n_columns,)
        With standard errors over bags.
    n_bags, n_rows : int
        Those that were looked at.
    """

    names: tuple[str, ...]
    values: FloatArray
    errors: FloatArray
    n_bags: int
    n_rows: int


def importances(model: Any, source: Source, progress: Progress = silent) -> Importances:
    """Permutation importance of each column that a model takes, on means of its bags.

    It says what the model uses, not what acts on the response; of columns that tell the same, each
    seems dispensable. On the bags of the fit it flatters columns that were fitted to noise.
    """
    columns = list(encoder_of(model).columns)
    table, chosen = some_bags(source, columns, ROWS)
    bags = Bags(np.repeat(np.arange(len(chosen)), source.sizes[chosen]))
    means, sizes = source.means[chosen], bags.sizes
    residual = means - bags.mean(predicted(model, table))
    rng = np.random.default_rng(0)
    spread = float(sizes @ (means - sizes @ means / sizes.sum()) ** 2) / len(sizes)

    def lost(name: str) -> FloatArray:
        place, found = table.column_names.index(name), np.zeros(len(sizes))
        for _ in range(TIMES):
            dealt = table[name].take(rng.permutation(table.num_rows))
            f = bags.mean(predicted(model, table.set_column(place, name, dealt)))
            found += sizes * ((means - f) ** 2 - residual**2)
        return found / TIMES / (spread or 1.0)

    losses = np.array(list(progress((lost(name) for name in columns), len(columns))))
    values, errors = losses.mean(axis=1), losses.std(axis=1, ddof=1) / len(sizes) ** 0.5
    order: Sequence[int] = np.argsort(-values, kind="stable").tolist()
    named = tuple(columns[i] for i in order)
    return Importances(named, values[order], errors[order], len(sizes), table.num_rows)
