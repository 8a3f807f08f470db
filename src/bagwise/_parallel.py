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


def apart(items: Iterator[Item], end: Callable[[], None]) -> Iterator[Item]:
    """The same items, made in a thread of their own; ``end`` ends it when nobody waits any more.

    A signal is heard in Python alone, and others' code may not come back there for long.
    """
    with ThreadPoolExecutor(1) as pool:
        try:
            while (item := _awaited(pool.submit(next, items, None))) is not None:
                yield item
        except BaseException:
            end()
            raise


def until(stop: Event, items: Iterable[Item]) -> Iterator[Item]:
    """The same items, for whichever threads ask for them, until ``stop`` is set."""
    _begin(stop)
    for item in items:
        _heed()
        yield item
        # Another thread may ask for the next.
        _begin(stop)


def _awaited(future: Future[Found]) -> Found:
    """What a task gives; a signal that another thread took ends the wait all the same."""
    _heed()
    while not wait([future], GLANCE).done:
        _heed()
    return future.result()


def _begin(stop: Event) -> None:
    """Remember what tells this thread to end."""
    _here.stop = stop


def _heed() -> None:
    """End here, where this thread was told to."""
    if hasattr(_here, "stop") and _here.stop.is_set():
        raise Stopped


def stoppable(
    items: Callable[Arguments, Iterator[Item]],
) -> Callable[Arguments, Iterator[Item]]:
    """The same items, as long as somebody waits for what this thread makes of them."""

    @wraps(items)
    def some(*words: Arguments.args, **options: Arguments.kwargs) -> Iterator[Item]:
        for item in items(*words, **options):
            _heed()
            yield item

    return some
