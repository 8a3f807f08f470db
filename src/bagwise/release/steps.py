"""Named points of a release, in order, at which tests pull the plug."""

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


def reached(step: str) -> None:
    """Nothing. Tests put a kill -9 here, and see that no step is worse than another."""
