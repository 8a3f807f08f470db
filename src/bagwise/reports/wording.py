"""What a report says in words: what was promised, and how to do it again."""

from __future__ import annotations

import shlex
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bagwise.estimators.models import MODELS
from bagwise.inspection.bag_fit import Source
from bagwise.released import Release
from bagwise.reports.page import number
from bagwise.statement import Statement

CROSSED = {
    "rows": "rows, each with its bag",
    "means": "means over bags",
    "statistics": "the sums A, W and c",
    "none": "nothing",
}
NOT_PROMISED = (
    "Nothing was promised: the data are a table with the mean of its bag in each row. Such a mean "
    "tells something of every response in it, and all of one where a bag has one row."
)
# Parameters of models that `bagwise fit` takes, and what it calls them.
OPTIONS = {
    "rho": "rho",
    "ridge": "ridge",
    "random_state": "seed",
    "device": "device",
    "time_limit": "time-limit",
}
# They change what is seen or how long it takes, not what comes out.
IDLE = {"progress", "n_jobs", "checkpoint"}


def promises(said: Statement) -> list[tuple[str, str]]:
    """What a statement says of a release, a line a topic."""
    low, high = number(said.low), number(said.high)
    lines = [
        ("epsilon", f"{said.epsilon:g}" if said.epsilon is not None else "no promise"),
        ("unit of privacy", said.unit),
        ("response", f"{said.response}, clipped to {low} … {high} (bounds are public)"),
        ("mechanism", _mechanism(said)),
        ("noise on a mean", _noise(said)),
        ("bags", _bags(said)),
        ("features that left", f"{CROSSED[said.features]}: {', '.join(said.columns) or 'none'}"),
        ("protected", "the responses" if said.private else "nothing"),
        (
            "not protected",
            "features, sizes of bags, which row is in which bag, and that a row is there at all",
        ),
    ]
    if said.n_dropped:
        lines.append(("dropped", f"{said.n_dropped:,} rows past {said.rows_per_user} a user"))
    if said.rounds > 1:
        lines.append(("rounds", f"{said.rounds}, which share this epsilon"))
    ledger = "none was kept"
    if said.ledger is not None:
        ledger = f"entry {said.charge} of ledger {said.ledger}"
    return [*lines, ("ledger", ledger), ("made", said.made)]


def _mechanism(said: Statement) -> str:
    if not said.scale:
        return "means of clipped responses, without noise"
    return (
        f"discrete Laplace noise, once for each bag, on the sum of responses clipped and rounded "
        f"to a grid of {said.step:.3g}; the sum is then divided by the size of the bag"
    )


def _noise(said: Statement) -> str:
    if not said.scale:
        return "none"
    ends = [2**0.5 * said.scale * said.step / k for k in (said.smallest_bag, said.largest_bag)]
    if said.smallest_bag == said.largest_bag:
        return f"standard deviation {number(ends[0])}"
    small, large = map(number, ends)
    return f"standard deviation {small} in the smallest bag, {large} in the largest"


def _bags(said: Statement) -> str:
    sizes = f"{said.smallest_bag:,}"
    if said.largest_bag > said.smallest_bag:
        sizes += f" to {said.largest_bag:,}"
    how = f"made by {', '.join(said.bag_columns)}" if said.bag_columns else "drawn at random"
    return f"{said.n_bags:,} of {sizes} rows, {how}; {said.n_rows:,} rows in all"


def steps(model: Any, source: Source, model_name: str, data_name: str) -> list[str]:
    """Commands that lead to the same report, and Python where a command has no such option."""
    lines = []
    if isinstance(source, Release):
        lines.append(_release_command(source.statement, data_name))
        fit, data = quoted(data_name), f"--data {quoted(data_name)}"
    else:
        response = f"--response {quoted(source.response)}"
        bags = "--bags " + quoted(",".join(source.labels.column_names))
        fit = f"{quoted(data_name)} {response} {bags}"
        data = f"--data {quoted(data_name)} {response} {bags}"
    lines += _fit_lines(model, fit, model_name)
    return [*lines, f"bagwise report {quoted(model_name)} {data} --out report.html"]


def _release_command(said: Statement, name: str) -> str:
    words = ["bagwise release TABLE", f"--response {quoted(said.response)}"]
    if said.bag_columns:
        words.append(f"--bags {quoted(','.join(said.bag_columns))}")
    else:
        words.append(f"--bag-size {said.smallest_bag}")
    epsilon = "inf" if said.epsilon is None else f"{said.epsilon:g}"
    words += [f"--epsilon {epsilon}", f"--bounds {said.low:g} {said.high:g}"]
    if said.features != "rows":
        words.append(f"--features {said.features}")
    if said.rounds > 1:
        words.append(f"--rounds {said.rounds}")
    if said.user is not None:
        words.append(f"--user {quoted(said.user)} --max-rows-per-user {said.rows_per_user}")
    return " ".join([*words, "--budget BUDGET", f"--out {quoted(name)}"])


def _fit_lines(model: Any, data: str, model_name: str) -> list[str]:
    """The command that fits such a model, or its construction in Python."""
    usual, chosen = type(model)().get_params(), model.get_params(deep=False)
    given = {k: v for k, v in chosen.items() if k not in IDLE and repr(v) != repr(usual[k])}
    kind = next((name for name, made in MODELS.items() if type(model) is made), None)
    if kind is None or not given.keys() <= OPTIONS.keys():
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return [
            f"# in Python: {type(model).__name__}({words}), its fit to these data, and "
            f"save({model_name!r})"
        ]
    options = "".join(f" --{OPTIONS[name]} {value}" for name, value in given.items())
    return [f"bagwise fit {data} --out {quoted(model_name)} --model {kind}{options}"]


def quoted(text: str) -> str:
    """A name as a shell takes it, without calling what is harmless strange."""
    return shlex.quote(text)


def versions(model: Any) -> list[tuple[str, str]]:
    """Versions of what made the page."""
    names = ["bagwise", "numpy", "scipy", "scikit-learn", "pyarrow", "matplotlib"]
    members = [m for one in getattr(model, "members_", {}).values() for m in one.models]
    rooms = " ".join(type(one).__module__ for one in (model, *members))
    names += [p for p, word in (("lightgbm", "boosting"), ("torch", "neural")) if word in rooms]
    found = []
    for name in names:
        with suppress(PackageNotFoundError):
            found.append((name, version(name)))
    return found
