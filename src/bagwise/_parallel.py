"""Every core of this machine, a few tasks ahead of who takes what they give."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import wraps
from threading import Event, local
from typing import ParamSpec, TypeVar

from bagwise._progress import Progress, silent

Item = TypeVar("Item")
Found = TypeVar("Found")
Arguments = ParamSpec("Arguments")
# Seconds after which a waiting thread looks whether it was interrupted.
GLANCE = 0.2
_here = local()


class Stopped(BaseException):
    """Ends a task for whose result nobody waits any more."""


def on_threads(
    task: Callable[[Item], Found], items: Sequence[Item], progress: Progress = silent
) -> Iterable[Found]:
    """What ``task`` gives for each item, in their order.

    Threads suffice: NumPy, Arrow and OpenDP let go of Python's lock while they work.
    """
    return progress(_results(task, items), len(items))


def _results(task: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    cores, stop = os.cpu_count() or 1, Event()
    with ThreadPoolExecutor(cores, initializer=_begin, initargs=(stop,)) as pool:
        waiting: deque[Future[Found]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(task, item))
                if len(waiting) > 2 * cores:
                    yield _awaited(waiting.popleft())
            while waiting:
                yield _awaited(waiting.popleft())
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _awaited(future: Future[Found]) -> Found:
    """What a task gives; a signal that another thread took ends the wait all the same."""
    while not wait([future], GLANCE).done:
        pass
    return future.result()


def _begin(stop: Event) -> None:
    """In a new thread: remember what tells it to end."""
    _here.stop = stop


def stoppable(
    items: Callable[Arguments, Iterator[Item]],
) -> Callable[Arguments, Iterator[Item]]:
    """The same items, as long as somebody waits for what this thread makes of them."""

    @wraps(items)
    def some(*words: Arguments.args, **options: Arguments.kwargs) -> Iterator[Item]:
        for item in items(*words, **options):
            if hasattr(_here, "stop") and _here.stop.is_set():
                raise Stopped
            yield item

    return some
