"""The command: ready for Ctrl-C and SIGTERM before the package, which takes a second to load."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run a command; until it has begun there is nothing to clear away, and the process ends."""
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in numbers}
    from bagwise import cli

    try:
        for number, handler in before.items():
            signal.signal(number, handler)
        cli.main()
    except KeyboardInterrupt:
        _end(signal.SIGINT, None)


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End at once, with the word that Typer has for it."""
    os.write(2, b"Aborted.\n")
    os._exit(128 + number)
