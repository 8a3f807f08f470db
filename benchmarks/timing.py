"""Ratios of times measured in turns within one run; machines are shared, so nothing else counts."""

from __future__ import annotations

import statistics
import time


def seconds(task):
    """Wall time of one call."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def ratio(task, reference, repeats):
    """Median time of ``task`` over that of ``reference``, measured in turns."""
    times = [(seconds(task), seconds(reference)) for _ in range(repeats)]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    return ours / theirs
