"""How far work is: a bar with the time that is left, where there is a terminal.

What is wrapped are *results*, as they come back: a bar never says more than what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")


class Progress(Protocol):
    """Hands on what comes back of ``total`` tasks, and shows how far they are."""

    def __call__(self, results: Iterable[Item], total: int | None = None) -> Iterable[Item]:
        """The results; without a total, as many as there are, where that is known."""


def silent(results: Iterable[Item], total: int | None = None) -> Iterable[Item]:
    """The results, and nothing to see."""
    return results


def bar(title: str, at_most: bool = False) -> Progress:
    """A bar on the terminal's error stream, and none where there is no terminal.

    It moves to and fro for one task or an unknown number of them, which tell nothing of time. Where
    the total is what there is *at most*, it counts, and foretells no time either.
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
        if at_most:
            return _counted(results, f"{title}, at most", known, console)
        return track(results, title, known, console=console, transient=True)

    return show


def _counted(
    results: Iterable[Item], title: str, total: int | None, console: Console
) -> Iterator[Item]:
    """The results, with how many there were and the time that has passed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        yield from shown.track(results, total)
