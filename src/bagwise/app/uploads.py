"""A zipped Release from a stranger: kept for as long as another process looks at it.

What is sent may be made to fill memory, to take for ever or to crash what reads it. So the server
only writes it down; a process with little memory and little time unpacks and reads it (`estimate`),
one at a time, and its folder is removed whatever happens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 32 * 2**20
SECONDS = 60
PIECE = 2**16
# One at a time, so that memory stays that of one.
_turn = BoundedSemaphore(1)


class Busy(RuntimeError):
    """Another upload is being read."""


class TooLarge(ValueError):
    """More was sent than may be."""


def estimate(stream: IO[bytes], length: int | None) -> dict[str, Any]:
    """What `bagwise.app.estimate` finds in a zipped Release; ValueError with one sentence."""
    if not length:
        raise ValueError("the upload must be a zipped Release; got nothing. Zip the folder.")
    if length > LARGEST:
        _refuse_size(length)
    with _taken(), TemporaryDirectory(prefix="bagwise-") as name:
        folder = Path(name)
        _write(stream, folder / "release.zip")
        return _asked(folder)


@contextmanager
def _taken() -> Iterator[None]:
    """The one turn there is."""
    if not _turn.acquire(blocking=False):
        raise Busy("another upload is being read; send this one again in a minute.")
    try:
        yield
    finally:
        _turn.release()


def _write(stream: IO[bytes], path: Path) -> None:
    """The stream in a file, a piece at a time, and never more than may be."""
    size = 0
    with path.open("wb") as file:
        while piece := stream.read(PIECE):
            size += len(piece)
            if size > LARGEST:
                _refuse_size(size)
            file.write(piece)


def _asked(folder: Path) -> dict[str, Any]:
    """The answer of the process that reads the upload, or one sentence when it has none."""
    words = [sys.executable, "-P", "-m", "bagwise.app.estimate", str(folder)]
    few = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    environment = {**os.environ, **few, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    try:
        run = subprocess.run(
            words, capture_output=True, timeout=SECONDS, env=environment, stdin=subprocess.DEVNULL
        )
        found = json.loads(run.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        raise ValueError(
            "the upload must be a Release that is read within a minute and a gigabyte or so; "
            "got one that is not. Estimate it with bagwise.estimate_snr instead."
        ) from None
    if "error" in found:
        raise ValueError(found["error"])
    return dict(found)


def _refuse_size(size: int) -> None:
    raise TooLarge(
        f"the upload must be at most {LARGEST // 2**20} MiB; got {size / 2**20:.0f} MiB or more. "
        "Release features='statistics', or estimate it with bagwise.estimate_snr."
    )
