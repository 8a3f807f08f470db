"""What is said of a release; nothing in it is computed from responses."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bagwise.engines.layout import Layout
from bagwise.release.ledger import Charge
from bagwise.release.mechanism import Mechanism
from bagwise.released import BAGS, FILES, file_mark
from bagwise.statement import Statement


@dataclass(frozen=True)
class Request:
    """What the curator asked for, checked.

    Attributes
    ----------
    response : str
    user : str or None
    bag_columns : list of str
    features : {"rows", "means", "statistics", "none"}
    columns : list of str
    """

    response: str
    user: str | None
    bag_columns: list[str]
    features: str
    columns: list[str]


def make_statement(
    request: Request,
    layout: Layout,
    mechanism: Mechanism,
    charge: Charge | None,
    folder: Path,
    engine: str,
    rounds: int = 1,
) -> Statement:
    """The statement of a release whose other files lie in ``folder``."""
    names = [BAGS, FILES[request.features]]
    return Statement(
        promise=_promise(request, mechanism, charge, rounds),
        private=mechanism.private,
        epsilon=mechanism.cost if mechanism.private else None,
        unit=_unit(request, mechanism),
        user=request.user,
        rows_per_user=mechanism.rows_per_user,
        response=request.response,
        low=mechanism.low,
        high=mechanism.high,
        step=mechanism.step,
        scale=mechanism.scale,
        paper=mechanism.paper,
        n_rows=layout.n_rows,
        n_dropped=layout.shuffle.n - layout.n_rows,
        n_bags=len(layout.sizes),
        smallest_bag=int(layout.sizes.min()),
        largest_bag=int(layout.sizes.max()),
        bag_columns=request.bag_columns,
        features=request.features,
        columns=request.columns,
        ledger=None if charge is None else charge.ledger,
        charge=None if charge is None else charge.token,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(engine),
        files={name: file_mark(folder / name) for name in names if name is not None},
        rounds=rounds,
    )


def _versions(engine: str) -> dict[str, str]:
    """Versions of what took part."""
    found = {"python": platform.python_version()}
    for name in ("bagwise", "opendp", "numpy", "pyarrow", engine):
        # Plain means are released without OpenDP.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _unit(request: Request, mechanism: Mechanism) -> str:
    """Whose responses are protected together."""
    if request.user is None:
        return "one label"
    g = mechanism.rows_per_user
    return f"all labels of one user ({'one row' if g == 1 else f'at most {g} rows'} of each)"


def _shown(value: float) -> str:
    """A number in full, without an idle .0."""
    return repr(value).removesuffix(".0")


def _promise(request: Request, mechanism: Mechanism, charge: Charge | None, rounds: int) -> str:
    """The guarantee in plain words."""
    if mechanism.test_seed is not None:
        return "Not private: the noise is for tests, and anyone can draw it again."
    if not mechanism.private:
        return "Not private: these are plain means of clipped responses."
    cost = _shown(mechanism.cost)
    text = [
        f"Label-private with epsilon = {cost} for {_unit(request, mechanism)}: whatever those "
        f"labels are, no outcome becomes more than e^{cost} times as likely."
    ]
    if mechanism.paper:
        text.append(
            "The noise is the paper's, half as wide as "
            f"epsilon = {_shown(mechanism.epsilon)} needs, so this costs 2 epsilon = {cost}."
        )
    if rounds > 1:
        text.append(
            "It was made in two rounds, which share this epsilon: bags of the second follow from "
            "what the first released."
        )
    if request.features != "none":
        text.append("Features are not protected: label privacy says nothing of them.")
    if charge is None:
        text.append("No ledger was kept: other releases of the same responses are not counted.")
    return " ".join(text)
