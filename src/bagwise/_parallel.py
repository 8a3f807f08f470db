"""Every core of this machine, a few tasks ahead of who takes what they give."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bagwise._progress import Progress, silent

Item = TypeVar("Item")
Found = TypeVar("Found")


def on_threads(
    task: Callable[[Item], Found], items: Sequence[Item], progress: Progress = silent
) -> Iterable[Found]:
    """What ``task`` gives for each item, in their order.

    Threads suffice: NumPy, Arrow and OpenDP let go of Python's lock while they work.
    """
    return progress(_results(task, items), len(items))


def _results(task: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        waiting: deque[Future[Found]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(task, item))
                if len(waiting) > 2 * cores:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
