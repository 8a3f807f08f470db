"""What an experiment hands to a report: columns, parameters, and the paper's claims judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Claim:
    """A statement of the paper's text, and whether the numbers show it.

    Attributes
    ----------
    text : str
    holds : bool
    evidence : str
        The number that decides it.
    """

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class FigureData:
    """The numbers behind a figure.

    Attributes
    ----------
    name : str
    columns : dict of str to array
        A table; every array has one entry a line.
    parameters : dict
        Everything that was chosen, the seed included.
    claims : tuple of Claim
    """

    name: str
    columns: dict[str, NDArray[Any]]
    parameters: dict[str, Any]
    claims: tuple[Claim, ...] = field(default=())

    def where(self, **values: Any) -> dict[str, NDArray[Any]]:
        """The lines in which columns have these values."""
        kept = True
        for name, value in values.items():
            kept = kept & (self.columns[name] == value)
        return {name: column[kept] for name, column in self.columns.items()}


def listed(values: Iterable[float], form: str = ".2f") -> str:
    """Numbers with commas between."""
    return ", ".join(format(float(value), form) for value in values)
