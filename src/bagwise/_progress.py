"""A progress bar with the time that is left, where there is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.progress import track

errors = Console(stderr=True)


def bar(title: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A progress bar on the terminal's error stream, and none where there is no terminal."""
    hidden = not errors.is_terminal
    return lambda items: track(items, title, console=errors, transient=True, disable=hidden)
