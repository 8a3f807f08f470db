r"""Columns as linear models and networks take them: numbers of one scale, and 0 or 1 for levels.

A number x is taken in one of three ways:

    plain    x
    rank     u = Φ⁻¹(rank of x / n), so that a long tail pulls no harder than its ranks
    curved   u, and at half the scale u² and u³

each less its mean and over its spread. Ranks are those of the training rows, the middle one for
values that are equal; between them u is linear, and past the ends it stays.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

FloatArray: TypeAlias = NDArray[np.float64]
WAYS = ("plain", "rank", "curved")
#: levels of a column, the most frequent, that are told apart
LEVELS = 100
#: values of a column at which its ranks are remembered
KNOTS = 200
#: scale of the square and the cube beside the rank
CURVED = 0.5


@dataclass(frozen=True)
class Number:
    """A column of numbers as one or three columns.

    Attributes
    ----------
    knots, ranks : list of float
        Values and their u; both empty where x is taken as it is.
    centre, scale : list of float
        Of each column made of it.
    """

    knots: list[float]
    ranks: list[float]
    centre: list[float]
    scale: list[float]

    @classmethod
    def of(cls, column: FloatArray, way: str) -> Self:
        """What the rows of a column say."""
        known = column[~np.isnan(column)]
        knots, ranks = ([], []) if way == "plain" else _normal_ranks(known)
        terms = 3 if way == "curved" and len(knots) > 2 else 1
        bare = cls(knots, ranks, [0.0] * terms, [1.0] * terms)
        found = bare.rows(known)
        centre = found.mean(axis=0) if len(known) else np.zeros(terms)
        # Over all rows: those that are missing sit at the mean.
        spread = np.sqrt(((found - centre) ** 2).sum(axis=0) / max(len(column), 1))
        spread = np.where(spread > 0, spread, 1.0)
        spread[1:] /= CURVED
        return cls(knots, ranks, centre.tolist(), spread.tolist())

    def rows(self, column: FloatArray) -> FloatArray:
        """The columns made of it, shape (n_rows, 1 or 3); 0 where a number is missing."""
        u = np.interp(column, self.knots, self.ranks) if self.knots else column
        powers = u[:, None] ** np.arange(1, len(self.centre) + 1)
        scaled = (powers - self.centre) / self.scale
        return np.where(np.isnan(scaled), 0.0, scaled)


@dataclass(frozen=True)
class Levels:
    """A column of codes as one column for each level that is told apart."""

    codes: list[int]

    @classmethod
    def of(cls, column: FloatArray) -> Self:
        """The most frequent levels of a column."""
        seen, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        frequent = seen[np.argsort(-counts, kind="stable")[:LEVELS]]
        return cls(sorted(int(level) for level in frequent))

    def rows(self, column: FloatArray) -> FloatArray:
        """0 or 1 for each level, shape (n_rows, n_levels)."""
        return np.asarray(column[:, None] == np.array(self.codes), dtype=np.float64)


@dataclass(frozen=True)
class Design:
    """Every column, prepared."""

    columns: list[Number | Levels]

    @classmethod
    def of(cls, codes: FloatArray, places: list[int], way: str = "plain") -> Self:
        """What these rows say of their columns, of which ``places`` are categories."""
        return cls(
            [
                Levels.of(column) if place in places else Number.of(column, way)
                for place, column in enumerate(codes.T)
            ]
        )

    def rows(self, codes: FloatArray) -> FloatArray:
        """Rows as numbers, shape (n_rows, …)."""
        pairs = zip(self.columns, codes.T, strict=True)
        return np.concatenate([one.rows(column) for one, column in pairs], axis=1)

    def to_list(self) -> list[dict[str, Any]]:
        """The same for JSON."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_list(cls, said: list[dict[str, Any]]) -> Self:
        """What `to_list` gave, when its numbers make sense."""
        found: list[Number | Levels] = []
        for one in said:
            if "codes" in one:
                found.append(Levels([int(code) for code in one["codes"]]))
                continue
            lists = {name: [float(x) for x in one[name]] for name in Number.__annotations__}
            found.append(Number(**lists))
            pairs = (("knots", "ranks"), ("centre", "scale"))
            if any(len(lists[a]) != len(lists[b]) for a, b in pairs) or not lists["centre"]:
                raise ValueError("lists of other lengths")
            if not np.isfinite(np.concatenate(list(lists.values()))).all() or 0 in lists["scale"]:
                raise ValueError("scales that are no numbers")
            if (np.diff(lists["knots"]) <= 0).any():
                raise ValueError("knots out of order")
        return cls(found)


def _normal_ranks(known: FloatArray) -> tuple[list[float], list[float]]:
    """Values, at most ``KNOTS`` of them, and Φ⁻¹ of the middle of their ranks."""
    values, counts = np.unique(known, return_counts=True)
    if len(values) == 0:
        return [], []
    u = ndtri((np.cumsum(counts) - counts / 2) / len(known))
    kept = np.unique(np.linspace(0, len(values) - 1, KNOTS).round().astype(int))
    return values[kept].tolist(), u[kept].tolist()
