"""Named points of a release, in order, at which tests pull the plug."""

from itertools import chain

STEPS = (
    "arguments checked",
    "table read",
    "ledger made",
    "ledger opened",
    "bags drawn",
    "responses summed",
    "folder made",
    "features written",
    "charge written",
    "charge committed",
    "charge witnessed",
    "noise drawn",
    "means written",
    "statement written",
    "folder synced",
    "folder published",
    "release done",
)
#: those of a release in two rounds, which has some more between charge and noise
ROUNDS = tuple(
    chain.from_iterable(
        ("first noise drawn", "second bags made", "second responses summed", step)
        if step == "noise drawn"
        else (step,)
        for step in STEPS
    )
)


def reached(step: str) -> None:
    """Nothing. Tests put a kill -9 here, and see that no step is worse than another."""
