"""The command line: one thin function a command."""

from __future__ import annotations

import signal
import sqlite3
import sys
import warnings
from typing import NoReturn

from bagwise.cli import compare, curate, doctor, learn, serve, study, tell
from bagwise.cli.shared import app, errors

__all__ = ["app", "compare", "curate", "doctor", "learn", "main", "serve", "study", "tell"]


def main() -> None:
    """Run a command; bad input is one sentence and exit code 2, a warning one sentence.

    SIGTERM ends it as Ctrl-C does, with everything cleared away.
    """
    asked: list[int] = []

    def end(number: int, _: object) -> NoReturn:
        asked.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    warnings.showwarning = lambda message, *_, **__: errors.print(
        str(message), style="yellow", markup=False, soft_wrap=True
    )
    try:
        app()
    except SystemExit as stop:
        # Typer says 130 for either.
        sys.exit(128 + asked[0] if asked else stop.code)
    except (ValueError, ImportError, OSError) as error:
        errors.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except sqlite3.Error as error:
        sentence = f"the ledger must be a file that can be read and written; got: {error}."
        errors.print(sentence, style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    finally:
        signal.signal(signal.SIGTERM, before)
