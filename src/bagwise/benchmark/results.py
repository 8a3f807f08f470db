"""What has been measured so far: one file of results, and a journal that a kill cannot spoil."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise import _check
from bagwise._disk import appearing_file
from bagwise._extras import need
from bagwise.benchmark.cells import Cell

if TYPE_CHECKING:
    import pandas as pd

KEY = tuple(field.name for field in fields(Cell))
RAN, LATE, FAILED = "ran", "over time", "failed"


@dataclass(frozen=True)
class Results:
    """The results in a folder: ``results.parquet``, and in ``journal.jsonl`` those of this run.

    Notes
    -----
    Guarantees: a result that was added outlasts the death of the process; of two for one cell, the
    later counts.
    """

    folder: Path

    @property
    def _file(self) -> Path:
        return self.folder / "results.parquet"

    @property
    def _journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def read(self) -> pd.DataFrame:
        """Every result, one line a cell."""
        pandas = need("pandas", "benchmark")
        parts = [pandas.read_parquet(self._file)] if self._file.exists() else []
        lines = _whole_lines(self._journal)
        if lines:
            parts.append(pandas.DataFrame(lines))
        if not parts:
            return pandas.DataFrame(columns=[*KEY, "status", "limit"])  # type: ignore[no-any-return]
        found = pandas.concat(parts, ignore_index=True)
        found = found.drop_duplicates(list(KEY), keep="last").sort_values(list(KEY))
        return found.reset_index(drop=True)  # type: ignore[no-any-return]

    def add(self, result: dict[str, Any]) -> None:
        """Keep the result of one cell."""
        with self._journal.open("a") as file:
            file.write(json.dumps(result) + "\n")

    def fold(self, without: Iterable[Cell] = ()) -> pd.DataFrame:
        """Put the journal into the one file, leave some cells out, and return what there is."""
        found, left_out = self.read(), {astuple(cell) for cell in without}
        if left_out:
            found = found[[key not in left_out for key in keys(found)]]
        if len(found) or self._file.exists():
            with appearing_file(self._file, over=True) as place:
                found.to_parquet(place, index=False)
        self._journal.unlink(missing_ok=True)
        return found

    def done(self, limit: float) -> set[tuple[Any, ...]]:
        """Keys of cells that need no other fit: those over an earlier, shorter limit do."""
        found = self.read()
        found = found[(found["status"] != LATE) | (found["limit"] >= limit)]
        return set(keys(found))

    def clear(self) -> None:
        """Forget everything."""
        for path in (self._file, self._journal, self.folder / "run.json"):
            path.unlink(missing_ok=True)

    def describe(self, words: dict[str, Any]) -> None:
        """Say of what the results are; those of other rows or versions cannot be joined to them."""
        path = self.folder / "run.json"
        if path.exists():
            before = self.description()
            # Our own version is told by the commit of each result.
            ours = {"bagwise": words["versions"].get("bagwise")}
            asked = {"rows": (before["rows"], words["rows"])}
            asked["versions"] = (before["versions"] | ours, words["versions"])
            for name, (old, new) in asked.items():
                if old != new:
                    got = f"{name}={new} where results of {name}={old} lie"
                    _check.refuse(name, "as before", got, "Choose another folder, or --fresh")
        with appearing_file(path, over=True) as place:
            place.write_text(json.dumps(words, indent=2) + "\n")

    def description(self) -> dict[str, Any]:
        """What `describe` wrote."""
        found: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return found


def keys(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The key of each result."""
    return list(table[list(KEY)].itertuples(index=False, name=None))


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Lines of a journal; the last may have been cut short."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines
