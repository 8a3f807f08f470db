"""What a release says of itself: the file release.json, read as a claim and not as a fact."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

FORMAT = "bagwise release 1"


@dataclass(frozen=True)
class Statement:
    """What was done and what it promises, as release.json holds it.

    Attributes
    ----------
    promise : str
        The guarantee in plain words, with its limits.
    private : bool
        False for plain means and for test noise.
    epsilon : float or None
        What the release spends; None when nothing is promised.
    unit : str
        Whose responses are protected together.
    user : str or None
        The column that told users apart; it is not released.
    rows_per_user : int
    response : str
    low, high, step, scale : float
        Public bounds, grid, and the scale of the noise on a bag's sum in steps.
    paper : bool
        Whether the noise is the paper's, half as wide.
    n_rows, n_dropped, n_bags, smallest_bag, largest_bag : int
        Sizes; rows are dropped where a user has too many.
    bag_columns : list of str
        The columns whose values make a bag; none when bags were drawn at random.
    features : {"rows", "means", "statistics", "none"}
    columns : list of str
        Feature columns that were released.
    ledger, charge : str or None
        The ledger that paid for this, and a random token that it knows the charge by; the number of
        an entry would tell what else was charged.
    made : str
        Date and time, UTC.
    versions : dict
    files : dict
        SHA-256 of each file but rows.parquet, whose size in bytes is kept instead.
    rounds : int
        2 where bags of a second round follow from what the first released; statements from before
        there were rounds do not say, and mean 1.
    """

    promise: str
    private: bool
    epsilon: float | None
    unit: str
    user: str | None
    rows_per_user: int
    response: str
    low: float
    high: float
    step: float
    scale: float
    paper: bool
    n_rows: int
    n_dropped: int
    n_bags: int
    smallest_bag: int
    largest_bag: int
    bag_columns: list[str]
    features: str
    columns: list[str]
    ledger: str | None
    charge: str | None
    made: str
    versions: dict[str, str]
    files: dict[str, str]
    rounds: int = 1

    def to_json(self) -> str:
        """The text of release.json."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Statement:
        """The statement that a text holds, every field of its type; ValueError otherwise."""
        found = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError("not of this format")
        hints = get_type_hints(cls)
        # Statements from before there were rounds.
        found.setdefault("rounds", 1)
        if found.keys() != hints.keys():
            raise ValueError("fields missing or unknown")
        for name, hint in hints.items():
            if not _is(found[name], hint):
                raise ValueError(f"{name} of a wrong type")
        said = cls(**found)
        _check_numbers(said)
        return said


def _check_numbers(said: Statement) -> None:
    """Refuse a statement that contradicts itself."""
    if said.private != (said.epsilon is not None) or (said.private and not said.scale > 0):
        raise ValueError("a promise without noise, or noise without a promise")
    if not (said.epsilon is None or said.epsilon > 0) or said.scale < 0:
        raise ValueError("an impossible epsilon or scale")
    if not (said.low < said.high and said.step > 0 and said.rows_per_user >= 1):
        raise ValueError("impossible bounds, grid or unit")
    if said.rounds not in (1, 2):
        raise ValueError("an impossible number of rounds")
    if not 1 <= said.smallest_bag <= said.largest_bag <= said.n_rows or said.n_dropped < 0:
        raise ValueError("impossible sizes")


def _is(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON is of an annotated type."""
    if isinstance(hint, UnionType):
        return any(_is(value, one) for one in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_is(v, get_args(hint)[0]) for v in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(_is(v, get_args(hint)[1]) for v in value.values())
    if hint is NoneType:
        return value is None
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
