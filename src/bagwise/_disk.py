"""Files that outlast a power cut, and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from bagwise import _check


def sync(path: Path) -> None:
    """Make a file or a folder's list of files outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Alone among processes that ask; BlockingIOError at once where one must not wait."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        # The system lets go of it when the process ends, however it ends.
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if not wait and not os.path.samestat(os.fstat(handle), os.stat(folder)):
            raise BlockingIOError(f"{folder} was moved")
        yield
    finally:
        os.close(handle)


def check_free(out: Path) -> None:
    """Refuse a place where something lies already."""
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        remedy = "Choose another place"
        _check.refuse("out", "a new or empty folder", f"{str(out)!r}, which is not", remedy)


@contextmanager
def enough_space(place: Path) -> Iterator[None]:
    """One sentence with the place where a disk is full; the system's has no name in it."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        full = OSError(f"No space left at {str(place)!r}: free some, or choose another place.")
        # Not among its arguments, where it would stand before the sentence.
        full.errno = error.errno
        raise full from None


@contextmanager
def appearing(out: Path, reached: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    """A folder to write to, which becomes ``out`` when the block ends and vanishes when it fails.

    A killed process leaves a hidden folder beside ``out``; the next one for the same place clears
    it away. ``reached`` is called by name at the points between.
    """
    check_free(out)
    partial = out.with_name(f".{out.name}.partial")
    new = _new_parents(out)
    if partial.is_symlink():
        _check.refuse("out", "free", f"a link at {str(partial)!r}", "Remove it, or choose another")
    partial.mkdir(exist_ok=True)
    with enough_space(out.parent), ExitStack() as stack:
        try:
            stack.enter_context(locked(partial, wait=False))
        except (BlockingIOError, FileNotFoundError):
            got = f"{str(out)!r}, where another release is at work"
            _check.refuse("out", "free", got, "Wait, or choose another folder")
        try:
            for left in partial.iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield partial
            for file in (*partial.rglob("*"), partial):
                sync(file)
            reached("folder synced")
            partial.rename(out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            _remove_empty(new)
            raise
    reached("folder published")
    sync(out.parent)


@contextmanager
def appearing_file(out: Path, over: bool = False) -> Iterator[Path]:
    """A file to write to, which becomes ``out`` when the block ends and vanishes when it fails.

    Of several that are written for one place, the first to end stays as it is; with ``over``, each
    replaces what is there.
    """
    if not over:
        refuse_there(out)
    new = _new_parents(out)
    partial = out.with_name(f".{out.name}.{uuid4().hex}")
    try:
        with enough_space(out.parent):
            yield partial
            sync(partial)
            partial.replace(out) if over else _name(partial, out)
            sync(out.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        _remove_empty(new)
        raise


def _name(partial: Path, out: Path) -> None:
    """Give a file its name, unless something has it by now."""
    try:
        os.link(partial, out)
    except FileExistsError:
        _refused(out)
    except OSError:
        # A file system without links: a moment between the look and the name cannot be helped.
        refuse_there(out)
        partial.rename(out)
    else:
        partial.unlink()


def refuse_there(out: Path) -> None:
    """Refuse to write over a file."""
    if out.exists() or out.is_symlink():
        _refused(out)


def _refused(out: Path) -> NoReturn:
    got = f"{str(out)!r}, which is there"
    _check.refuse("out", "a new file", got, "Choose another name, or remove it first")


def _new_parents(out: Path) -> list[Path]:
    """Make the folders above; returns those that were not there, the lowest first."""
    new = [parent for parent in out.parents if not parent.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    return new


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders up to the first that holds something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
