"""The benchmark's page for the docs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise._disk import appearing_file
from bagwise._extras import need
from bagwise.benchmark import standing
from bagwise.benchmark.results import RAN
from bagwise.reports.benchmark import by_task, candidate, draw, lines_of, place_of, plain_words

if TYPE_CHECKING:
    import pandas as pd

MEASURES = {"regression": "R²", "classification": "AUC"}


def save(results: pd.DataFrame, described: dict[str, Any], page: Path, command: str) -> list[Path]:
    """Write the page, and its pictures to ``images`` beside it; returns all paths."""
    table = standing.recovered(results)
    paths = [page]
    for name, figure in draw(table).items():
        paths.append(page.parent / "images" / f"{name}.png")
        with appearing_file(paths[-1], over=True) as place:
            figure.savefig(place, format="png", dpi=200)
        need("matplotlib.pyplot", "plot").close(figure)
    with appearing_file(page, over=True) as place:
        place.write_text(text(table, described, command, standing.without_limits(results)))
    return paths


def text(
    table: pd.DataFrame, described: dict[str, Any], command: str, lost: Sequence[str] = ()
) -> str:
    """The page in Markdown; ``lost`` names tables and seeds without limits."""
    parts = [INTRODUCTION, _how(table, described, command), METHOD]
    if lost:
        parts.append(f"Left out, for full labels could not be fitted there: {', '.join(lost)}.")
    found = standing.summary(table)
    for task, part in by_task(table):
        parts += [f"## {task.capitalize()}", _summary(found[found["task"] == task])]
        parts += [_verdicts(part)]
    parts += [PICTURES, _not_run(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


INTRODUCTION = """\
# Benchmark

Every method of this package and of the literature, with default settings, on real tables whose
labels are known: how much of what full labels give is left when only means over bags are known?"""

METHOD = """\
- *A cell* is a table, its bags (random ones of a size, or natural ones such as carrier and day),
  privacy (plain means, or means with the noise of ε = 1 for public bounds of the response), a
  seed and a method. A quarter of the rows, drawn by the seed, is scored and seen by no fit; bags
  are made of the others. Every method sees the same split, bags and noise.
- *Recovery* is (score − floor) / (ceiling − floor), with R² or AUC as score. The floor predicts
  the mean of the training bags. The ceiling has every label: boosting or a linear model,
  whichever five folds of the training rows prefer. A fit that fails or takes longer than the
  limit counts as the floor.
- *Features.* Methods that take text get the table as it is. All others get the same numbers:
  means for what is missing, one scale, text one-hot, learnt from the training rows. Methods that
  know of noise are told its scale; for others noisy shares are clipped to [0, 1].
- *Level* means: best, or behind the best of the others' methods by no more than a standard error
  of their difference over seeds. The best is picked for each cell after the fact, which no user
  could do: a bar above any single method. Of two or three seeds the error itself is uncertain.
- *Ranks* are over cells in which all were measured, of recoveries averaged over seeds. Cells of
  one table are alike, so the critical difference (Friedman, Nemenyi, 5 %) says less than it would
  of as many tables."""

PICTURES = """\
## Pictures

Our methods are in bold. Medians are over tables and seeds.

![Median recovery by method, bags and privacy](images/benchmark_heat_map.png)

![Mean ranks and critical difference](images/benchmark_ranks.png)

![Median recovery against bag size](images/benchmark_bag_size.png)

![Time of a fit against recovery](images/benchmark_time.png)"""


def _how(table: pd.DataFrame, described: dict[str, Any], command: str) -> str:
    """What was run, where, and the command that runs it again."""
    versions = ", ".join(f"{name} {number}" for name, number in described["versions"].items())
    commits = sorted({str(commit) for commit in table["commit"].dropna()}) or ["unknown"]
    rows = "every row" if described["rows"] is None else f"at most {described['rows']:,} rows each"
    seeds = table["seed"].nunique()
    return (
        f"`{command}` makes this page: {len(table):,} fits on {table['table'].nunique()} tables "
        f"({', '.join(sorted(set(table['table'])))}; {rows}), {seeds} seed{'s' * (seeds != 1)}, "
        f"at most {described['limit']:g} seconds a fit on one thread. Commit "
        f"{', '.join(commits)}; {versions}; {described['machine']}."
    )


def _summary(lines: pd.DataFrame) -> str:
    """One line a method of a task."""
    rows = [
        (
            f"**{line.method}**" if line.family == "ours" else line.method,
            *(line.family, f"{line.recovery:.2f}", f"{line.rank:.1f}", f"{line.time:.3g}"),
            *(line.cells, line.not_run),
        )
        for line in lines_of(lines)
    ]
    heads = ("method", "family", "median recovery", "mean rank", "time / ridge on means")
    return _markdown((*heads, "fits", "did not run"), rows)


def _verdicts(part: pd.DataFrame) -> str:
    """Verdicts on all of ours, and the cells that the chief one loses, by name."""
    ours = sorted(set(part["method"][part["family"] == "ours"]), key=place_of)
    found = {name: standing.verdicts(part, name) for name in ours}
    rows = [
        (name, f"{v['level'].sum()} of {len(v)}", f"{v['above_floor'].sum()} of {len(v)}")
        for name, v in found.items()
        if len(v)
    ]
    chief = candidate(part)
    if chief is None or not len(found[chief]):
        return ""
    heads = ("ours", "level with the best of the others", "not below the floor")
    return "\n\n".join([_markdown(heads, rows), _lost(chief, found[chief])])


def _lost(chief: str, cells: pd.DataFrame) -> str:
    """The cells in which a method is not level, or below the floor."""
    lost = cells[~cells["level"]].sort_values("behind", ascending=False)
    below = cells[~cells["above_floor"]]
    measure = MEASURES[cells["task"].iloc[0]]
    said = [f"`{chief}` is behind in {len(lost)} of {len(cells)} cells{':' if len(lost) else '.'}"]
    if len(lost):
        rows = [
            (
                *(line.table, line.bags, plain_words(line.privacy), f"{line.ours:.3f}", line.best),
                *(f"{line.theirs:.3f}", f"{line.behind:.3f} ± {line.error:.3f}"),
                *(f"{line.floor:.3f}", f"{line.ceiling:.3f}"),
            )
            for line in lines_of(lost)
        ]
        heads = ("table", "bags", "means", f"its {measure}", "best of the others", f"its {measure}")
        said.append(_markdown((*heads, "behind", "floor", "ceiling"), rows))
    if len(below):
        names = ", ".join(
            f"{line.table} {line.bags} {plain_words(line.privacy)} ({line.ours:.3f})"
            for line in lines_of(below)
        )
        said.append(_minus(f"Below the floor: {names}."))
    return "\n\n".join(said)


def _not_run(table: pd.DataFrame) -> str:
    """Fits that did not run, by method and reason."""
    lost = table[table["status"] != RAN]
    if not len(lost):
        return ""
    counts = lost.groupby(["method", "status"]).size().rename("fits").reset_index()
    rows = [
        (line.method, line.status, line.fits)
        for line in lines_of(counts.sort_values("fits", ascending=False))
    ]
    return "## Fits that did not run\n\n" + _markdown(("method", "what happened", "fits"), rows)


def _markdown(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown, with proper minus signs."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return _minus("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))


def _minus(words: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<=[ (])-(?=\d)", "−", words)
