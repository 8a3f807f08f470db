"""The command line: one thin function a command."""

from __future__ import annotations

import sqlite3
import sys
import warnings

from bagwise.cli import curate, learn, study
from bagwise.cli.shared import app, errors

__all__ = ["app", "curate", "learn", "main", "study"]


def main() -> None:
    """Run a command; bad input is one sentence and exit code 2, a warning one sentence."""
    warnings.showwarning = lambda message, *_, **__: errors.print(
        str(message), style="yellow", markup=False, soft_wrap=True
    )
    try:
        app()
    except (ValueError, ImportError, OSError) as error:
        errors.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except sqlite3.Error as error:
        sentence = f"the ledger must be a file that can be read and written; got: {error}."
        errors.print(sentence, style="red", markup=False, soft_wrap=True)
        sys.exit(2)
