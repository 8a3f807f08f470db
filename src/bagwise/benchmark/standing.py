"""Who stands where: recovery, ranks and verdicts. Everything here is arithmetic on results.

A fit that failed or was over time counts as the floor: a user would be left with the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import friedmanchisquare, studentized_range

from bagwise import _check
from bagwise._extras import need
from bagwise.benchmark.methods import CEILING, FLOOR, YARDSTICK
from bagwise.benchmark.results import RAN

if TYPE_CHECKING:
    import pandas as pd

PLACE = ["table", "bags", "privacy"]
ALPHA = 0.05
# Below this difference of ceiling and floor a table tells nothing.
LEAST_RANGE = 1e-6


def recovered(results: pd.DataFrame) -> pd.DataFrame:
    """Results of methods with ``floor``, ``ceiling`` and, where both are known,

        recovery = (score − floor) / (ceiling − floor)

    of their table and seed. The score of a fit that did not run is the floor.
    """
    at = ["table", "seed"]
    limits = results[(results["family"] == "limit") & (results["status"] == RAN)]
    limits = limits.pivot(index=at, columns="method", values="score")
    limits = limits.reindex(columns=[FLOOR, CEILING]).set_axis(["floor", "ceiling"], axis=1)
    found = results[results["family"] != "limit"].merge(limits, left_on=at, right_index=True)
    found = found.dropna(subset=["floor", "ceiling"]).reset_index(drop=True)
    if not len(found):
        remedy = "Fit them again with --redo limit"
        _check.refuse("results", "of tables whose limits are known", "none", remedy)
    # A task is that of the table, also where a fit died before it could say so.
    found["task"] = found.groupby("table")["task"].transform("first")
    found["score"] = found["score"].where(found["status"] == RAN, found["floor"])
    whole = found["ceiling"] - found["floor"]
    found["recovery"] = (found["score"] - found["floor"]) / whole.where(whole > LEAST_RANGE)
    return found


def without_limits(results: pd.DataFrame) -> list[str]:
    """Tables and seeds whose floor or ceiling could not be fitted, so that no cell counts."""
    limits = results[results["family"] == "limit"]
    lost = limits[limits["status"] != RAN]
    names = [f"{t} (seed {s})" for t, s in zip(lost["table"], lost["seed"], strict=True)]
    return sorted(set(names))


def critical_difference(n_methods: int, n_cells: int, alpha: float = ALPHA) -> float:
    """Nemenyi's: mean ranks further apart than this differ, q_α √(k(k+1) / 6n) (Demšar, 2006).

    >>> round(critical_difference(5, 30), 3)
    1.114
    """
    q = studentized_range.ppf(1 - alpha, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_cells)))


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over cells in which every method was measured; 1 is best.

    Attributes
    ----------
    ranks : Series
        Mean rank by method, the best first; methods that tie share the mean of their ranks.
    n_cells : int
        A cell is a table, bags and privacy, its recovery the mean over seeds.
    p_value : float
        Friedman's test of no difference; NaN below three methods or two cells.
    critical_difference : float
    """

    ranks: pd.Series[float]
    n_cells: int
    p_value: float
    critical_difference: float


def ranking(table: pd.DataFrame) -> Ranking:
    """Ranks of the methods measured in at least half of the cells, over the cells that have all."""
    wide = table.pivot(index=[*PLACE, "seed"], columns="method", values="recovery")
    wide = wide.loc[:, wide.notna().mean() >= 0.5].dropna()
    means = wide.groupby(level=PLACE).mean()
    n_cells, n_methods = means.shape
    ranks = means.rank(axis=1, ascending=False).mean().sort_values()
    if n_cells < 2 or n_methods < 3:
        return Ranking(ranks, n_cells, float("nan"), float("nan"))
    p_value = friedmanchisquare(*(means[name] for name in means)).pvalue
    return Ranking(ranks, n_cells, float(p_value), critical_difference(n_methods, n_cells))


def verdicts(table: pd.DataFrame, candidate: str) -> pd.DataFrame:
    """One line a cell: a candidate of ours against the best of the others' methods there.

    The best is that of the highest mean score over the seeds. With d the differences best − ours
    over seeds, and their standard error (0 for a single seed), the candidate is

        level        mean d ≤ standard error: best, or within one standard error of it
        above floor  mean (floor − ours) ≤ 2 standard errors of it
    """
    pandas = need("pandas", "benchmark")
    if candidate not in set(table["method"]):
        _check.choice("candidate", candidate, sorted(set(table["method"])))
    lines: list[dict[str, Any]] = []
    for place, cell in table.groupby(PLACE, sort=False):
        scores = cell.pivot(index="seed", columns="method", values="score")
        others = set(cell["method"][cell["family"].isin(("baseline", "peer"))]) & set(scores)
        if candidate not in scores or not others:
            continue
        scores = scores[[candidate, *sorted(others)]].dropna()
        if not len(scores):
            continue
        limits = cell.groupby("seed")[["floor", "ceiling"]].first().loc[scores.index]
        ours, rest = scores[candidate], scores.drop(columns=candidate)
        best = str(rest.mean().idxmax())
        behind, error = _mean_and_error(rest[best] - ours)
        below, floor_error = _mean_and_error(limits["floor"] - ours)
        line = dict(zip(PLACE, place, strict=True)) | {
            "task": cell["task"].iloc[0],
            "seeds": len(scores),
            "ours": float(ours.mean()),
            "best": best,
            "theirs": float(rest[best].mean()),
            "behind": behind,
            "error": error,
            "level": behind <= error,
            "above_floor": below <= 2 * floor_error,
            "floor": float(limits["floor"].mean()),
            "ceiling": float(limits["ceiling"].mean()),
        }
        lines.append(line)
    return pandas.DataFrame(lines)  # type: ignore[no-any-return]


def _mean_and_error(differences: pd.Series[float]) -> tuple[float, float]:
    """Mean over seeds and its standard error, 0 for one seed."""
    n = len(differences)
    error = float(differences.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    return float(differences.mean()), error


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One line a method of a task: family, median recovery, mean rank, time, fits that did not run.

    Time is the median, over cells where both ran, of a fit's seconds over those of ridge on bag
    means.
    """
    pandas = need("pandas", "benchmark")
    parts = []
    for task, cells in table.groupby("task"):
        by_method = cells.groupby("method")
        part = pandas.DataFrame(
            {
                "task": task,
                "family": by_method["family"].first(),
                "recovery": by_method["recovery"].median(),
                "rank": ranking(cells).ranks,
                "time": times(cells, YARDSTICK[str(task)]),
                "cells": by_method.size(),
                "not_run": by_method["status"].agg(lambda statuses: int((statuses != RAN).sum())),
            }
        )
        parts.append(part.rename_axis("method").reset_index().sort_values("rank"))
    return pandas.concat(parts, ignore_index=True)  # type: ignore[no-any-return]


def times(table: pd.DataFrame, yardstick: str) -> pd.Series[float]:
    """Median ratio of a fit's seconds to those of the yardstick in the same cell and seed."""
    ran = table[table["status"] == RAN]
    seconds = ran.pivot(index=[*PLACE, "seed"], columns="method", values="seconds")
    if yardstick not in seconds:
        return seconds.median() * np.nan
    return seconds.div(seconds[yardstick], axis=0).median()
