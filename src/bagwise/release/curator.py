"""The curator's one act: rows with responses in, a Release out, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from bagwise import _check
from bagwise._disk import appearing
from bagwise._progress import silent
from bagwise.engines.engine import Engine
from bagwise.release import steps
from bagwise.release.job import Job, Terms, Titled
from bagwise.release.layout import draw_bags, draw_shuffle
from bagwise.release.ledger import Ledger
from bagwise.release.write import write_bag_features
from bagwise.released import Release


def release(
    rows: Any,
    *,
    response: str,
    epsilon: float,
    bounds: tuple[float, float] | float,
    ledger: Ledger | str | PathLike[str] | None,
    out: str | PathLike[str],
    bags: str | Sequence[str] | None = None,
    bag_size: int | None = None,
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
    """Release clipped, noisy means of a response over bags, with a statement of what that promises.

    Parameters
    ----------
    rows : table, or paths
        A data frame, an Arrow table or a mapping of columns; or a file, folder or glob of .csv or
        .parquet files, several of them, or "-" for CSV on standard input.
    response : str
        The column to protect: finite numbers.
    epsilon : float
        What to spend; infinity releases plain means, stamped "not private".
    bounds : (lo, hi), or C
        Public bounds to which responses are clipped, chosen without looking at them; a number C
        means ±C√log n, as in the paper.
    ledger : Ledger, path or None
        Where the cost is charged; made when it is not there. None keeps no account, and the
        statement says so.
    out : path
        The folder to make.
    bags : str or sequence of str
        Columns whose values make a bag. Or give
    bag_size : int
        Rows a bag, drawn at random; left-over rows are spread, so no bag is smaller.
    min_bag_size : int
        Refuse smaller bags.
    user : str
        Column that tells users apart: the unit of privacy is then all responses of one user. It is
        not released.
    max_rows_per_user : int
        Rows of a user that take part; the others are dropped at random before bagging.
    features : {"rows", "means", "statistics", "none"}
        What leaves of the features: rows with their bag, means over bags (rho = 0 only), the sums
        A, W, c (every rho), or nothing.
    columns : sequence of str
        Feature columns that leave; by default all but response and user, and for means and
        statistics those that make the bags.
    budget : float
        Total to spend on these responses, ever; needed at their first release.
    step : float
        Grid of the responses, a power of two; by default about a millionth of the bounds.
    paper : bool
        The noise that the paper prints, for experiments; it costs 2 epsilon.
    engine : Engine
        Where the work is done: by default this machine, a batch of rows at a time;
        `bagwise.engines.spark.Spark` has one for a cluster. Files must then lie where its workers
        can read them, and ``out`` where they can write.
    progress : callable
        For the title of a stage, what wraps its results to show a bar.

    Returns
    -------
    Release
        Read back from ``out``.

    Notes
    -----
    Formal guarantee: for tables that differ in the responses of one unit, the probabilities of
    any set of outcomes differ by a factor of at most e^epsilon.
    Guarantees: the cost is on disk before noise is drawn; ``out`` appears whole or not at all; no
    message holds a response, a row number or anything computed from responses.
    Limits: only responses are protected; features, sizes and bags are released as they are.
    See docs/privacy.md.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> rows = {"age": [31, 45, 28, 60], "voted": [0, 1, 1, 1]}
    >>> folder = mkdtemp()
    >>> release(rows, response="voted", bag_size=2, epsilon=1.0, bounds=(0, 1), budget=3,
    ...         ledger=f"{folder}/ledger.db", out=f"{folder}/released")
    Release(4 rows in 2 bags, epsilon=1, features='rows')
    """
    job = Job.of(
        rows,
        Terms(bounds, epsilon, max_rows_per_user, step, paper),
        response=response,
        ledger=ledger,
        out=out,
        bags=bags,
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
    layout = draw_bags(shuffle, job.keep(shuffle), bag_size)
    steps.reached("bags drawn")

    mechanism = job.terms.mechanism(layout.n_rows)
    layout, sums = job.sum(layout, mechanism)
    if layout.sizes.min() < job.least:
        got = f"one of {layout.sizes.min()} rows with min_bag_size={job.least}"
        _check.refuse("bags", "large enough", got, "Merge small ones first")
    # Calibrates the noise: what OpenDP may refuse, it refuses before a charge.
    mechanism.noise_scales(layout.sizes)
    steps.reached("responses summed")

    with appearing(job.folder, steps.reached) as place:
        steps.reached("folder made")
        clustered = place if features == "rows" else place / ".rows"
        if features != "none":
            job.put_together(layout, clustered, "Putting rows together")
        if features == "means":
            write_bag_features(place, clustered, job.request.columns, layout, job.engine)
        job.refuse_change()
        steps.reached("features written")
        charge = job.pay(mechanism)
        # What follows is paid for; before, nothing was drawn.
        means = job.draw(mechanism, sums, layout.sizes)
        steps.reached("noise drawn")
        job.write(place, clustered, layout, mechanism, means, charge)
    steps.reached("release done")
    return Release.load(job.folder)
