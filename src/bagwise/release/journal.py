"""An append-only journal in SQLite that notices when it is deleted, cut, edited or rolled back.

Each entry carries a keyed digest of itself and of the one before. *Witnesses*, small files,
remember how far the journal had come: one lies hidden beside it and names its place, so that a copy
is known for one; two lie in the account's state folder, one found by the journal's place when the
journal is gone, one by its identity when two copies of it go apart. A journal that does not go on
from where each of them saw it takes no more entries until a person has looked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from bagwise._disk import locked, sync
from bagwise.release import steps

FIELDS = ("entry", "time", "kind", "dataset", "amount", "name", "unit", "token", "fingerprint")
SCHEMA = """
CREATE TABLE ledger (id TEXT NOT NULL, key BLOB NOT NULL);
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, dataset TEXT, amount TEXT,
    name TEXT, unit TEXT, token TEXT, fingerprint TEXT, digest TEXT NOT NULL
);
"""
# What a witness says.
WITNESS = {"ledger": str, "path": str, "entries": int, "digest": str}
# Seconds to wait for another process that is writing.
PATIENCE = 60


class LedgerBroken(ValueError):
    """The ledger is not what it was, so nothing can be charged to it."""


class Journal:
    """The file of a ledger.

    Parameters
    ----------
    path : Path
    create : bool
        Whether to make a journal where there is none and never was.

    Attributes
    ----------
    id : str
        Random, for statements to name the ledger by.
    key : bytes
        For fingerprints and digests; it never leaves the file.
    """

    def __init__(self, path: Path, create: bool) -> None:
        self.path = path.resolve()
        self.id, self.key = "", b""
        if not self.path.exists():
            if not create and not self._seen():
                raise FileNotFoundError(
                    f"ledger must be a file; got {str(self.path)!r}. The first release makes it."
                )
            self._make()
            steps.reached("ledger made")
        with self._open() as connection:
            identity = connection.execute("SELECT id, key FROM ledger").fetchall()
            if len(identity) != 1:
                self._broken("it has no identity")
            self.id, self.key = identity[0]

    @contextmanager
    def read(self, trust: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection to a journal that is whole; ``trust`` leaves its witnesses unasked."""
        # Witnesses first: one that is newer than what is read would look like a journal cut short.
        seen = [] if trust else self._seen()
        with self._open() as connection:
            connection.execute("BEGIN")
            self._head(connection, seen, trust)
            yield connection

    @contextmanager
    def write(self, trust: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction, alone with the journal, that is on disk and witnessed when it ends."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                seen = [] if trust else self._seen()
                head = self._head(connection, seen, trust)
                if not seen:
                    # Before the first entry: a crash after it must not look like a lost witness.
                    self._witness(*head)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            steps.reached("charge committed")
            # SQLite's lock again, so that a slower process cannot set a witness back.
            connection.execute("BEGIN IMMEDIATE")
            self._witness(*self._head(connection, [], True))
            connection.execute("ROLLBACK")
            steps.reached("charge witnessed")

    def append(self, connection: sqlite3.Connection, **entry: Any) -> int:
        """Add an entry, chained to the last, and give its number."""
        number, digest = connection.execute(
            "SELECT entry, digest FROM entries ORDER BY entry DESC LIMIT 1"
        ).fetchone() or (0, "")
        entry |= {"entry": number + 1, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        row = tuple(entry.get(name) for name in FIELDS)
        marks = ", ".join("?" * (len(row) + 1))
        values = (*row, _digest(self.key, digest, row))
        connection.execute(f"INSERT INTO entries VALUES ({marks})", values)
        return int(number + 1)

    def check(self) -> None:
        """Refuse what SQLite itself finds damaged."""
        with self._open() as connection:
            if connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                self._broken("SQLite finds it damaged")

    def _make(self) -> None:
        """A new journal, whole or not at all, by one process alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_name(f".{self.path.name}.new")
        with locked(self.path.parent):
            if self.path.exists():
                return
            if self._seen():
                remedy = "Put it back; a new one needs another place"
                self._broken("it is gone, but not what witnessed it", remedy)
            for suffix in ("", "-wal", "-shm"):
                half.with_name(half.name + suffix).unlink(missing_ok=True)
            half.touch(mode=0o600)
            connection = sqlite3.connect(half, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(SCHEMA)
            identity = secrets.token_hex(16), secrets.token_bytes(32)
            connection.execute("INSERT INTO ledger VALUES (?, ?)", identity)
            connection.close()
            sync(half)
            half.rename(self.path)
            sync(self.path.parent)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection that makes no file, and keeps what it commits through a power cut."""
        try:
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=PATIENCE
            )
            try:
                connection.execute("PRAGMA synchronous=FULL")
                yield connection
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                self._broken("it is empty")
            raise OSError(
                f"ledger must be open to writing; got {str(self.path)!r}: {error}. "
                "Nothing was released."
            ) from None
        except sqlite3.Error as error:
            self._broken(f"SQLite says: {error}")

    def _head(
        self, connection: sqlite3.Connection, seen: list[tuple[Path, dict[str, Any]]], trust: bool
    ) -> tuple[int, str]:
        """Number and digest of the last entry, when the whole journal is as it was written."""
        digests = [""]
        columns = ", ".join((*FIELDS, "digest"))
        for row in connection.execute(f"SELECT {columns} FROM entries ORDER BY entry"):
            digest = _digest(self.key, digests[-1], row[:-1])
            if row[0] != len(digests) or not hmac.compare_digest(digest, row[-1]):
                self._broken(f"entry {len(digests)} is not as it was written")
            digests.append(digest)
        if len(digests) > 1 and not seen and not trust:
            self._broken("it has no witness here")
        for place, witness in seen:
            self._compare(place, witness, digests)
        return len(digests) - 1, digests[-1]

    @property
    def _beside(self) -> Path:
        """The witness that lies with the journal."""
        return self.path.with_name(f".{self.path.name}.witness")

    @property
    def _in_state(self) -> list[Path]:
        """Witnesses in the account's state folder, by place and, where it is known, by identity."""
        try:
            state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        except RuntimeError:  # an account without a home
            return []
        names = [hashlib.sha256(str(self.path).encode()).hexdigest()[:32], self.id]
        return [state / "bagwise" / "ledgers" / f"{name}.witness" for name in names if name]

    def _seen(self) -> list[tuple[Path, dict[str, Any]]]:
        """What witnesses of this journal say, and those of any other here that held an entry."""
        found = []
        for place in (self._beside, *self._in_state):
            # A state folder that cannot be read leaves one witness.
            with suppress(FileNotFoundError if place == self._beside else OSError):
                try:
                    said = json.loads(place.read_text())
                    said = {name: kind(said[name]) for name, kind in WITNESS.items()}
                except (ValueError, KeyError, TypeError):
                    self._broken(f"what witnessed it is damaged: {str(place)!r}")
                if said["entries"] or said["ledger"] == self.id:
                    found.append((place, said))
        return found

    def _witness(self, count: int, digest: str) -> None:
        """Write down how far the journal has come; the caller holds SQLite's lock."""
        said = {"ledger": self.id, "path": str(self.path), "entries": count, "digest": digest}
        _replace(self._beside, json.dumps(said))
        for place in self._in_state:
            # A home that cannot be written to leaves one witness; more are better.
            with suppress(OSError):
                _replace(place, json.dumps(said))

    def _compare(self, place: Path, witness: dict[str, Any], digests: list[str]) -> None:
        """Refuse a journal that does not go on from where a witness saw it."""
        if witness["ledger"] != self.id:
            self._broken("it is not the one that was here before")
        if place == self._beside and witness["path"] != str(self.path):
            self._broken(f"it was copied or moved from {witness['path']!r}")
        count = witness["entries"]
        if not count < len(digests) or digests[count] != witness["digest"]:
            self._broken("entries that were witnessed are not in it: it was rolled back or cut")

    def _broken(self, why: str, remedy: str | None = None) -> NoReturn:
        """Refuse to go on, with what a person can do."""
        remedy = remedy or (
            "Put the right file back; when a person has found this one to be right, run "
            f"'bagwise ledger verify --accept --ledger {self.path}'"
        )
        raise LedgerBroken(
            f"ledger must be whole and up to date; got {str(self.path)!r}: {why}. {remedy}."
        ) from None


def _digest(key: bytes, before: str, row: tuple[Any, ...]) -> str:
    """Keyed digest of an entry and, through the one before, of the whole journal up to it."""
    return hmac.new(key, json.dumps([before, *row]).encode(), "sha256").hexdigest()


def _replace(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text)
    sync(aside)
    aside.replace(path)
    sync(path.parent)
