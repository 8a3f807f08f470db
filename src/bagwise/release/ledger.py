"""The ledger: what was spent on which responses, and a refusal before too much is.

A charge is on disk before noise is drawn, and nothing ever takes it back: whatever breaks later,
what was spent is never less than what left the house.

Data sets are known by a keyed fingerprint of their responses, so that a file renamed, reordered or
saved again is the same data set. The key never leaves the ledger, which is as confidential as the
responses: who holds it can test guesses about them.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context, Decimal
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import _check
from bagwise.release import steps
from bagwise.release.journal import FIELDS, Journal
from bagwise.release.marks import Mark, mark

# Sums are exact to 50 digits, and past them too large rather than too small.
EXACT = Context(prec=50, rounding=ROUND_UP)


def default_ledger() -> Path:
    """An account's own ledger: in one place, so that no release misses what others spent."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "bagwise" / "ledger.db"


class BudgetExceeded(ValueError):
    """A release would spend more than is left.

    Attributes
    ----------
    epsilon, left, budget : Decimal
    """

    def __init__(self, epsilon: Decimal, left: Decimal, budget: Decimal) -> None:
        self.epsilon, self.left, self.budget = epsilon, left, budget
        super().__init__(
            "epsilon must be at most what is left of the budget; "
            f"got epsilon={epsilon} with {left} of {budget} left. "
            "Spend less, or raise the budget with 'bagwise ledger set-budget'."
        )


@dataclass(frozen=True)
class Dataset:
    """What a ledger knows of one data set.

    Attributes
    ----------
    id, name : str
        A random handle, and what the curator called it first.
    unit : str
        The unit of privacy that its budget counts in.
    budget, spent : Decimal
        As typed: 0.1 is a tenth.
    releases : int
        Charges so far, whether or not a release came of them.
    """

    id: str
    name: str
    unit: str
    budget: Decimal
    spent: Decimal = Decimal(0)
    releases: int = 0

    @property
    def left(self) -> Decimal:
        """What may still be spent."""
        unlimited = self.budget.is_infinite()
        return self.budget if unlimited else max(Decimal(0), self.budget - self.spent)


@dataclass(frozen=True)
class Charge:
    """An entry that pays for one release.

    Attributes
    ----------
    ledger, token : str
        The ledger, and a random name of the entry that says nothing of other entries.
    dataset : Dataset
        As it stands after the charge.
    """

    ledger: str
    token: str
    dataset: Dataset


class Ledger:
    """A journal of budgets and charges in one SQLite file.

    Parameters
    ----------
    path : path
        Made by the first release; later ones find it, or the traces of one that is gone.
    create : bool
        Whether to make a ledger where there is none.
    trust : bool
        Open it though its witness says otherwise, to `verify` it with ``accept``.

    Notes
    -----
    Guarantees: charges are durable (WAL, synchronous FULL) before `charge` returns; charges of any
    number of processes never add up to more than the budget; a ledger that was deleted, cut, edited
    or rolled back is refused.
    Limits: the responses of a part of a table, or in other units, are another data set to it. Sums
    are of the decimals as typed: three times 0.1 is 0.3.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> ledger = Ledger(f"{mkdtemp()}/ledger.db")
    >>> mark = ledger.fingerprint(np.array([1.0, 2.0]))
    >>> print(ledger.charge(mark, 1.0, budget=1.5, name="flights").dataset.left)
    0.5
    >>> ledger.charge(mark, 1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    bagwise.release.ledger.BudgetExceeded: epsilon must be at most what is left of the budget; ...
    """

    def __init__(self, path: str | PathLike[str], create: bool = True, trust: bool = False) -> None:
        self._journal = Journal(Path(path), create)
        with self._journal.read(trust):
            steps.reached("ledger opened")

    @property
    def path(self) -> Path:
        """The file."""
        return self._journal.path

    def fingerprint(self, responses: NDArray[Any]) -> str:
        """Keyed digest of the responses that does not depend on their order, type or file."""
        return self.fingerprint_of(mark(responses))

    def fingerprint_of(self, total: Mark) -> str:
        """The same, from the sum of the marks of their parts."""
        data = total.astype("<u8").tobytes()
        return hashlib.blake2b(data, key=self._journal.key, digest_size=32).hexdigest()

    def charge(
        self,
        fingerprint: str,
        epsilon: float,
        budget: float | None = None,
        name: str = "responses",
        unit: str = "label",
    ) -> Charge:
        """Spend ``epsilon`` on the data set with this fingerprint, durably, or refuse.

        Parameters
        ----------
        fingerprint : str
            From `fingerprint`.
        epsilon : float
            What the release will spend; infinity needs an infinite budget.
        budget : float
            Total for the data set: needed when it is new; later it must be the same, for only
            `set_budget` changes it.
        name : str
            What to call a new data set.
        unit : str
            Unit of privacy; one data set has one, or its charges would not add up.
        """
        amount = _amount("epsilon", epsilon)
        total = None if budget is None else _amount("budget", budget)
        with self._journal.write() as connection:
            marks = self._datasets(connection)
            known = marks.get(fingerprint)
            if known is None:
                _warn_of_namesakes(name, marks.values())
                known = self._add(connection, fingerprint, total, name, unit)
            _refuse_change(known, total, unit)
            spent = EXACT.add(known.spent, amount)
            if spent > known.budget:
                raise BudgetExceeded(amount, known.left, known.budget)
            token = secrets.token_hex(16)
            entry = {"dataset": known.id, "amount": str(amount), "token": token}
            self._journal.append(connection, kind="release", **entry)
            steps.reached("charge written")
            charged = self._datasets(connection)[fingerprint]
        return Charge(self._journal.id, token, charged)

    def datasets(self) -> list[Dataset]:
        """Every data set, in the order of first release."""
        with self._journal.read() as connection:
            return list(self._datasets(connection).values())

    def entries(self) -> list[dict[str, Any]]:
        """The journal, oldest first, without fingerprints."""
        names = FIELDS[:-1]
        with self._journal.read() as connection:
            rows = connection.execute(f"SELECT {', '.join(names)} FROM entries ORDER BY entry")
            return [dict(zip(names, row, strict=True)) for row in rows]

    def set_budget(self, dataset: str, budget: float) -> Dataset:
        """Change a data set's total budget; the journal keeps the old one too.

        Parameters
        ----------
        dataset : str
            Its id, or its name when only one has that name.
        budget : float
            At least 0; below what is spent it stops all further releases.
        """
        total = _amount("budget", budget)
        with self._journal.write() as connection:
            known = self._datasets(connection)
            found = [mark for mark, d in known.items() if dataset in (d.id, d.name)]
            if len(found) != 1:
                got = f"{dataset!r}, which fits {len(found)}"
                remedy = "'bagwise ledger show' lists ids"
                _check.refuse("dataset", "the id or name of one data set", got, remedy)
            handle = known[found[0]].id
            self._journal.append(connection, kind="budget", dataset=handle, amount=str(total))
            return self._datasets(connection)[found[0]]

    def verify(self, accept: bool = False) -> int:
        """Number of entries, after every check that a release makes and SQLite's own.

        Parameters
        ----------
        accept : bool
            Take the ledger as it is, though its witness is missing or says otherwise: after a move
            to another machine, say. The journal keeps a note of it.
        """
        self._journal.check()
        if accept:
            with self._journal.write(trust=True) as connection:
                return self._journal.append(connection, kind="accepted")
        return len(self.entries())

    def dataset_of(self, token: str | None) -> Dataset:
        """The data set that a charge was for."""
        handle = next(e["dataset"] for e in self.entries() if e["token"] == token)
        return next(d for d in self.datasets() if d.id == handle)

    def paid_for(self, ledger: str | None, token: str | None, epsilon: float | None) -> bool:
        """Whether a charge of this ledger paid for a release with that statement."""
        amount = str(_amount("epsilon", np.inf if epsilon is None else epsilon))
        return ledger == self._journal.id and any(
            (e["kind"], e["token"], e["amount"]) == ("release", token, amount)
            for e in self.entries()
        )

    def _add(
        self,
        connection: sqlite3.Connection,
        fingerprint: str,
        budget: Decimal | None,
        name: str,
        unit: str,
    ) -> Dataset:
        """Register a data set with its budget."""
        if budget is None:
            rule, got = "given for responses that are new to the ledger", "none"
            _check.refuse("budget", rule, got, "It is the total epsilon to spend on them, ever")
        new = Dataset(secrets.token_hex(4), name, unit, budget)
        entry = {"dataset": new.id, "amount": str(budget), "name": name, "unit": unit}
        self._journal.append(connection, kind="dataset", fingerprint=fingerprint, **entry)
        return new

    def _datasets(self, connection: sqlite3.Connection) -> dict[str, Dataset]:
        """Data sets by fingerprint, with their charges added up."""
        known: dict[str, Dataset] = {}
        marks: dict[str, str] = {}
        rows = connection.execute(
            "SELECT kind, dataset, amount, name, unit, fingerprint FROM entries ORDER BY entry"
        )
        for kind, handle, amount, name, unit, found in rows:
            if kind == "dataset":
                known[handle], marks[found] = Dataset(handle, name, unit, Decimal(amount)), handle
            elif kind == "budget":
                known[handle] = replace(known[handle], budget=Decimal(amount))
            elif kind == "release":
                old = known[handle]
                spent = EXACT.add(old.spent, Decimal(amount))
                known[handle] = replace(old, spent=spent, releases=old.releases + 1)
        return {mark: known[handle] for mark, handle in marks.items()}


def _refuse_change(known: Dataset, budget: Decimal | None, unit: str) -> None:
    """Refuse a budget or a unit other than the data set's own."""
    if budget is not None and budget != known.budget:
        got = f"budget={budget} where it is {known.budget}"
        remedy = "Leave it out, or change it with 'bagwise ledger set-budget'"
        _check.refuse("budget", "what the ledger has for these responses", got, remedy)
    if unit != known.unit:
        got = f"{unit!r} where it is {known.unit!r}"
        remedy = "Charges in different units do not add up: keep to the first"
        _check.refuse("the unit of privacy", "that of earlier releases", got, remedy)


def _warn_of_namesakes(name: str, known: Iterable[Dataset]) -> None:
    """Say that a table may have grown: its old rows would be released again on a new budget."""
    same = [d.id for d in known if d.name == name]
    if same:
        warnings.warn(
            f"The ledger knows other responses by the name {name!r} ({', '.join(same)}). Rows that "
            "are in both are released again, and what that costs adds up.",
            stacklevel=3,
        )


def _amount(name: str, value: Any) -> Decimal:
    """An amount of budget as it is written: 0.1 is a tenth."""
    remedy = "It is a total of epsilon, infinity for no limit"
    return Decimal(repr(_check.number(name, value, low=0, remedy=remedy)))
