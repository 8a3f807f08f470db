"""How far work is: a bar with the time that is left, where there is a terminal.

What is wrapped are *results*, as they come back: a bar never says more than what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Hands on what comes back of ``total`` tasks, and shows how far they are."""

    def __call__(self, results: Iterable[Item], total: int | None = None) -> Iterable[Item]:
        """The results; without a total, as many as there are, where that is known."""


def silent(results: Iterable[Item], total: int | None = None) -> Iterable[Item]:
    """The results, and nothing to see."""
    return results


def bar(title: str) -> Progress:
    """A bar on the terminal's error stream, and none where there is no terminal.

    It moves to and fro for one task or an unknown number of them, which tell nothing of time.
    """

    def show(results: Iterable[Item], total: int | None = None) -> Iterable[Item]:
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        if not console.is_terminal:
            return results
        known = len(results) if total is None and isinstance(results, Sized) else total
        if known == 1:
            results, known = (result for result in results), None
        return track(results, title, known, console=console, transient=True)

    return show
