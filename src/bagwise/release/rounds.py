r"""A release in two rounds, whose second bags put like rows together, for one epsilon.

The rows are parted at random. Random bags of part one are released; a linear model of that release
predicts the responses of part two, and rows with like predictions make its bags. Every row lies in
one bag and gets its noise once, so both rounds together cost what one does:

    P[o₁, o₂ | y] = P[o₁ | y₁] · P[o₂ | y₂, bags(o₁)]

One label is in one of the factors alone and moves that by at most e^ε; all labels of one user move
the sums of both by Δ at most, together. The split looks at no response, and bags(o₁) at none but
through o₁. docs/privacy.md has the proof.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise import _check
from bagwise._disk import appearing
from bagwise._progress import silent
from bagwise.curated import score_bags
from bagwise.encoding import Encoder
from bagwise.engines.engine import Engine
from bagwise.engines.layout import Kept, Layout, Permutation, refuse_changed
from bagwise.estimators.linear import AggregateLinearRegression
from bagwise.release import steps
from bagwise.release.job import FloatArray, Job, Terms, Titled
from bagwise.release.layout import Integers, draw_bags, draw_shuffle
from bagwise.release.ledger import Ledger
from bagwise.release.mechanism import Mechanism
from bagwise.release.write import write_bag_features
from bagwise.released import Release
from bagwise.row_groups import RowGroup, find_groups, sum_row_group
from bagwise.tables import is_number, plain_type


def release_in_rounds(
    rows: Any,
    *,
    response: str,
    epsilon: float,
    bounds: tuple[float, float] | float,
    ledger: Ledger | str | PathLike[str] | None,
    out: str | PathLike[str],
    bag_size: int,
    min_bag_size: int = 1,
    user: str | None = None,
    max_rows_per_user: int = 1,
    features: str = "rows",
    columns: Sequence[str] | None = None,
    budget: float | None = None,
    step: float | None = None,
    paper: bool = False,
    engine: Engine | None = None,
    progress: Titled = lambda title: silent,
) -> Release:
    """Release as `release` does, with like rows in the bags of a random half of the table.

    Parameters
    ----------
    bag_size : int
        Rows a bag, at most a quarter of the rows. Random bags of the first half have a row more at
        most; those of the second have up to 2 bag_size − 1.
    features : {"rows", "means", "statistics"}
        Something must leave of the features, for the model between the rounds is made of it: the
        columns that leave, which must be numbers or text of at most 1000 levels.
    others
        As in `release`.

    Returns
    -------
    Release
        One, of both halves; bags of the first come first.

    Notes
    -----
    Formal guarantee: that of `release`, for both rounds together: one charge of epsilon.
    Guarantees: the cost is on disk before noise is drawn, and nothing of the first round leaves
    before the second; when that fails, the charge stays. Bags depend on responses through the first
    round's noisy means alone.
    Limits: some 60 bytes a row are held by this process, and the bags of the second round take it
    3 to 6 microseconds a row. It pays where noise is large; where noise is small one round is
    better (docs/baselines.md).
    Reference: Javanmard, Fahrbach, Mirrokni, "PriorBoost" (2024), with two rounds.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> rng = np.random.default_rng(0)
    >>> rows = {"age": rng.normal(size=400)}
    >>> rows["income"] = rows["age"] + 0.1 * rng.normal(size=400)
    >>> folder = mkdtemp()
    >>> release_in_rounds(rows, response="income", bag_size=10, epsilon=5.0, bounds=(-3, 3),
    ...                   budget=5, ledger=f"{folder}/ledger.db",
    ...                   out=f"{folder}/released").statement.rounds
    2
    """
    if features == "none":
        remedy = "The model between the rounds is made of features that leave"
        _check.refuse("features", "released in two rounds", "features='none'", remedy)
    _check.whole("bag_size", bag_size, low=1, remedy="Pass the rows a bag")
    job = Job.of(
        rows,
        Terms(bounds, epsilon, max_rows_per_user, step, paper),
        response=response,
        ledger=ledger,
        out=out,
        bags=None,
        bag_size=bag_size,
        min_bag_size=min_bag_size,
        user=user,
        features=features,
        columns=columns,
        budget=budget,
        engine=engine,
        progress=progress,
    )
    shuffle = draw_shuffle(job.look.n_rows)
    first, second = part(shuffle, job.keep(shuffle), bag_size)
    steps.reached("bags drawn")

    mechanism = job.terms.mechanism(first.n_rows + second.n_rows)
    first, sums = job.sum(first, mechanism)
    # What could be refused in the second round is refused before a charge.
    mechanism.check_sizes(2 * bag_size - 1)
    mechanism.noise_scales(first.sizes)
    steps.reached("responses summed")

    with appearing(job.folder, steps.reached) as place:
        steps.reached("folder made")
        parts = place / ".parts"
        # Random bags of part two are for reading its rows in order of place; they never leave.
        learn = put_part(job, first, parts / "first")
        predict = put_part(job, second, parts / "second")
        encoder = learn_encoder(job, [*learn, *predict])
        job.refuse_change()
        steps.reached("features written")
        charge = job.pay(mechanism)
        # What follows is paid for; before, nothing was drawn.
        means = job.draw(mechanism, sums, first.sizes, "Drawing noise of the first round")
        steps.reached("first noise drawn")
        model = fit(job, encoder, first, means, parts / "first")
        layout = curate(first, second, score(job, encoder, model, predict), bag_size)
        shutil.rmtree(parts)
        steps.reached("second bags made")
        means = np.concatenate([means, second_means(job, layout, mechanism, sums)])
        steps.reached("noise drawn")
        clustered = place if features == "rows" else place / ".rows"
        job.put_together(layout, clustered, "Putting rows together")
        if features == "means":
            write_bag_features(place, clustered, job.request.columns, layout, job.engine)
        job.refuse_change()
        job.write(place, clustered, layout, mechanism, means, charge, rounds=2)
    steps.reached("release done")
    return Release.load(job.folder)


def part(shuffle: Permutation, kept: Kept | None, bag_size: int) -> tuple[Layout, Layout]:
    """The two halves of the rows that take part, in random bags each; no response is looked at."""
    n = shuffle.n
    places = shuffle(np.arange(n))
    count = n if kept is None else kept.count
    if 4 * bag_size > count:
        got = f"bag_size={bag_size}, n_rows={count}"
        remedy = "Each half needs two bags: choose a smaller bag_size"
        _check.refuse("bag_size", "at most a quarter of n_rows in two rounds", got, remedy)
    if kept is not None:
        stays, found = kept(places)
        # Rows past a user's cap come last, and are never read.
        places[stays], places[~stays] = found, np.arange(count, n)
    half, listed = count // 2, Permutation.listed(places)
    halves = (np.arange(half), np.arange(half, count))
    first, second = (draw_bags(listed, Kept.of(n, iter([one])), bag_size) for one in halves)
    return first, second


def put_part(job: Job, layout: Layout, folder: Path) -> list[RowGroup]:
    """The features of a half, by bag and so in the order of places; its row groups."""
    job.put_together(layout, folder, "Putting the rows of a half together")
    return find_groups(folder, layout.ids, layout.sizes, np.zeros(len(layout.sizes)))


def learn_encoder(job: Job, groups: Sequence[RowGroup]) -> Encoder:
    """Columns that leave as numbers; or one sentence about one that cannot be."""
    columns, schema = job.request.columns, job.table.schema
    text = [name for name in columns if not is_number(plain_type(schema.field(name).type))]
    return Encoder.learn(schema, columns, (group.read(text) for group in groups))


def fit(
    job: Job, encoder: Encoder, first: Layout, means: FloatArray, folder: Path
) -> AggregateLinearRegression:
    """A linear model of the first round's release, with rho as it is chosen by default."""
    groups = find_groups(folder, first.ids, first.sizes, means)
    shown = job.progress("Fitting a model to the first round")
    total = job.engine.sum(partial(sum_row_group, encoder), groups, shown)
    return AggregateLinearRegression().fit_statistics(total)


def score(
    job: Job, encoder: Encoder, model: AggregateLinearRegression, groups: Sequence[RowGroup]
) -> FloatArray:
    """Predictions for the rows of part two, in the order of their places."""
    task = partial(_predict, encoder, model.coef_, model.intercept_)
    return np.concatenate(list(job.engine.map(task, groups, job.progress("Predicting"))))


def _predict(encoder: Encoder, coef: FloatArray, intercept: float, group: RowGroup) -> FloatArray:
    """Of each row of a row group."""
    return np.asarray(encoder.encode(group.read(list(encoder.columns))) @ coef + intercept)


def curate(first: Layout, second: Layout, scores: FloatArray, bag_size: int) -> Layout:
    """Both halves as one table: bags of the first as they are, then those of like scores.

    Scores are in the order of places, which is random: among equal ones, and within a bag, the
    order of the table plays no part.
    """
    bags = score_bags(scores, bag_size)
    n, half, count = first.shuffle.n, first.n_rows, first.n_rows + second.n_rows
    moved = np.empty(count - half, dtype=np.int64)
    moved[np.argsort(bags.codes, kind="stable")] = np.arange(half, count)
    places = first.shuffle(np.arange(n))
    there = (places >= half) & (places < count)
    places[there] = moved[places[there] - half]
    sizes = np.concatenate([first.sizes, bags.sizes])
    kept = None if count == n else Kept.of(n, iter([np.arange(count)]))
    ids = pa.array(np.arange(len(sizes)))
    return Layout(Permutation.listed(places), kept, sizes, ids, pa.table({}))


def second_means(job: Job, layout: Layout, mechanism: Mechanism, known: Integers) -> FloatArray:
    """Noisy means of the second round's bags; those of the first are never drawn again."""
    layout, sums = job.sum(layout, mechanism, "Summing responses of the second round")
    m = len(known)
    if not np.array_equal(sums[:m], known):
        refuse_changed()
    steps.reached("second responses summed")
    return job.draw(mechanism, sums[m:], layout.sizes[m:], "Drawing noise of the second round")
