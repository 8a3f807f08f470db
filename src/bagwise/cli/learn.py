"""Commands of the learner: fit, predict, evaluate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import typer

from bagwise.cli.shared import (
    BagsOfTable,
    Json,
    MeansOfTable,
    app,
    bar,
    check_source,
    names,
    print_table,
)

Unknown = Annotated[
    str, typer.Option(help="Levels of text that training did not see: refuse or ignore.")
]


EngineName = Annotated[
    str, typer.Option("--engine", help="Where to work: local, spark, or spark://host:port.")
]


@app.command("fit", epilog="Example: [bold]bagwise fit released --out model --rho gcv[/bold]")
def fit_command(
    data: Annotated[
        list[str],
        typer.Argument(help="A Release folder; or a table: files, folders, globs, or - for CSV."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to make for the model.")],
    response: MeansOfTable = None,
    bags: BagsOfTable = None,
    model: Annotated[
        str,
        typer.Option(
            help="linear, logistic, poisson, mlp, mlp-classifier, boosting, boosting-classifier; "
            "auto or auto-classifier try several."
        ),
    ] = "linear",
    rho: Annotated[
        str | None,
        typer.Option(help="0 to 1, gcv or theory (linear), cv (others); auto chooses."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Columns to take, with commas between. Default: all but bags'."),
    ] = None,
    ridge: Annotated[
        float | None,
        typer.Option(help="Penalty on squared coefficients: of linear, logistic and poisson."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of randomness: of networks, boosting.")] = None,
    device: Annotated[str | None, typer.Option(help="Of networks: auto, cpu or cuda.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Of auto: seconds, about; by default 120.")
    ] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Fit a model to a release, or to a table of rows with the means of their bags."""
    from bagwise import BagTable, Release, _check
    from bagwise._disk import check_free
    from bagwise.engines import open_engine
    from bagwise.estimators.models import MODELS

    _check.choice("model", model, MODELS)
    given = {
        "rho": None if rho is None else _rho(rho),
        "ridge": ridge,
        "random_state": seed,
        "device": device,
        "time_limit": time_limit,
    }
    options = {name: value for name, value in given.items() if value is not None}
    taken = MODELS[model]().get_params()
    for name, value in options.items():
        if name not in taken:
            word = "seed" if name == "random_state" else name
            got = f"{word}={value} with {model}"
            _check.refuse(word, "for models that have one", got, "Leave it out")
    if model != "linear" and engine != "local":
        got = f"engine={engine!r} with {model}"
        _check.refuse("engine", "local for models that are not linear", got, "Leave it out")
    if seed is not None and not 0 <= seed < 2**32:
        _check.refuse("seed", "in [0, 2**32)", f"seed={seed}", "Pass a whole number in it")
    check_free(out.absolute())
    start = time.perf_counter()
    where = open_engine(engine)
    check_source(data, response, bags)
    chosen = names(features)
    with _beside(out, engine) as place:
        released: Release | BagTable = (
            Release.load(data[0])
            if response is None
            else BagTable(data, response, names(bags) or [], where, place, bar("Reading rows"))
        )
        if model == "linear":
            estimator: Any = MODELS[model](**{"rho": "gcv", **options})
            estimator.fit_release(released, chosen, bar("Summing rows"), where)
            scores, sentence = _linear_scores(estimator, released)
        else:
            estimator = MODELS[model](progress=True, **options)
            estimator.fit_release(released, chosen)
            scores, sentence = _held_out_scores(estimator)
    estimator.save(out)
    seconds = time.perf_counter() - start
    said = {
        "out": str(out),
        "rho": getattr(estimator, "rho_", None),
        "rho_source": getattr(estimator, "rho_source_", None),
        **scores,
        "n_rows": int(released.sizes.sum()),
        "n_bags": len(released.sizes),
        "n_features": estimator.n_features_in_,
        "epsilon": released.statement.epsilon if isinstance(released, Release) else None,
        "seconds": seconds,
    }
    if as_json:
        print(json.dumps(said))
        return
    print(
        f"Fitted {said['n_features']} features to {said['n_bags']:,} bags of "
        f"{said['n_rows']:,} rows in {seconds:.1f} s: {out}"
    )
    if said["rho"] is not None:
        print(f"rho = {estimator.rho_:.3g} ({estimator.rho_source_}).")
    print(sentence)


def _linear_scores(estimator: Any, released: Any) -> tuple[dict[str, Any], str]:
    """The error of a row as the bags tell it, for JSON and in words."""
    path = estimator.path_
    score, added = path.scores[int(abs(path.rhos - estimator.rho_).argmin())], 0.0
    if hasattr(released, "statement"):
        # A mean of k rows with Laplace noise of scale b has variance σ²/k + 2b²; bags weigh wk.
        scales, weights = released.bags["noise_scale"].to_numpy(), estimator.bag_weights_
        weights = np.ones(len(scales)) if weights is None else weights
        added = float((2 * weights * released.sizes * scales**2).mean() / weights.mean())
        score = score / weights.mean()
    row, noisy = _root(score - added), _root(score)
    if noisy is None:
        words = "Error of a row: too few bags to tell."
    elif row is None:
        words = "Error of a row: the noise of the release is too large to tell."
    else:
        beside = f"; {noisy:.3g} with the noise of the release" if added else ""
        words = f"Error of a row, estimated from bags: {row:.3g} (root mean square{beside})."
    return {"row_rmse_estimate": row, "row_rmse_with_noise": noisy}, words


def _held_out_scores(estimator: Any) -> tuple[dict[str, Any], str]:
    """The loss of held-out bags, for JSON and in words."""
    if hasattr(estimator, "report_"):
        said = {"weights": estimator.weights_, "held_out_losses": estimator.held_out_losses_}
        return said, estimator.report_
    if hasattr(estimator, "ridge_"):
        tried = getattr(estimator, "path_", None)
        loss = None if tried is None else float(tried.scores.min())
        words = "Nothing was chosen, so no bag was held out." if tried is None else str(tried)
        return {"held_out_loss": loss, "ridge": estimator.ridge_}, words
    loss = estimator.held_out_losses_.get(estimator.rho_)
    trees = hasattr(estimator, "n_estimators_")
    count = estimator.n_estimators_ if trees else estimator.n_epochs_
    units, of = ("", "rounds") if trees else (", in standard units", "epochs")
    words = (
        "No bag was held out."
        if loss is None
        else f"Loss of held-out bags{units}: {loss:.3g} after {count} {of}."
    )
    return {"held_out_loss": loss, "n_estimators" if trees else "n_epochs": count}, words


@app.command(
    "predict",
    epilog="Example: [bold]bagwise predict model flights.parquet --out predictions.parquet[/bold]",
)
def predict_command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[list[str], typer.Argument(help="Files, folders, globs, or - for CSV input.")],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns to copy beside, with commas between.")
    ] = None,
    unknown: Unknown = "refuse",
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Predict the response of every row, in the order of the rows."""
    from bagwise import _check
    from bagwise._disk import appearing, appearing_file
    from bagwise.engines import open_engine
    from bagwise.estimators.models import load_model
    from bagwise.estimators.streaming import csv_types, predict_parts, predict_table
    from bagwise.tables import open_table

    writers: dict[str, Any] = {".csv": pyarrow.csv.CSVWriter, ".parquet": pq.ParquetWriter}
    if out.suffix.lower() not in writers:
        _check.refuse("out", "a .csv or .parquet file", repr(str(out)), "Its name must say which")
    loaded = load_model(model)
    kept = names(keep) or []
    table = open_table(data, csv_types(loaded, keep=kept))
    rows = 0
    if engine != "local":
        where = open_engine(engine)
        if out.suffix.lower() != ".parquet" or not table.files:
            got = f"{str(out)!r}, or no files to read"
            remedy = "It becomes a folder with a file for each piece of the table"
            _check.refuse("out", "a name that ends in .parquet, on Spark", got, remedy)
        with appearing(out.absolute()) as folder:
            rows = predict_parts(loaded, table, folder, where, kept, unknown, bar("Predicting"))
        print(json.dumps({"out": str(out), "rows": rows}) if as_json else f"{rows:,} rows: {out}")
        return
    with appearing_file(out) as place:
        writer: Any = None
        for batch in predict_table(loaded, table, kept, unknown, bar("Predicting")):
            if writer is None:
                writer = writers[out.suffix.lower()](place, batch.schema)
            writer.write_table(batch)
            rows += batch.num_rows
        if writer is None:
            _check.refuse("the table", "of at least one row", "none", "Check the files")
        writer.close()
    print(json.dumps({"out": str(out), "rows": rows}) if as_json else f"{rows:,} rows: {out}")


@app.command(
    "evaluate",
    epilog="Example: [bold]bagwise evaluate model flights.parquet --response arr_delay[/bold]",
)
def evaluate_command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[
        list[str], typer.Argument(help="A Release, or files, folders, globs with responses.")
    ],
    response: Annotated[str | None, typer.Option(help="Column of row responses.")] = None,
    bags: Annotated[
        str | None, typer.Option(help="Column that makes bags, to score means.")
    ] = None,
    unknown: Unknown = "refuse",
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Score a model on bags, and on rows where their responses are known."""
    from bagwise import Release, _check
    from bagwise.engines import open_engine
    from bagwise.estimators.models import load_model
    from bagwise.estimators.streaming import csv_types, evaluate_release, evaluate_table
    from bagwise.tables import open_table

    loaded = load_model(model)
    where = None if engine == "local" else open_engine(engine)
    if len(data) == 1 and (Path(data[0]) / "release.json").exists():
        if response is not None or bags is not None:
            got = "one beside a Release"
            _check.refuse("response and bags", "left out", got, "A Release has its own")
        released = Release.load(data[0])
        found: Any = evaluate_release(loaded, released, unknown, bar("Reading rows"))
    else:
        if response is None:
            got = "none for a table"
            _check.refuse("response", "given", got, "Or pass a Release, which has means")
        table = open_table(data, csv_types(loaded, response, [bags] if bags else []))
        found = evaluate_table(loaded, table, response, bags, unknown, bar("Reading rows"), where)
    if as_json:
        print(json.dumps({level: asdict(scores) for level, scores in found.items()}))
        return
    p = found.pop("probabilities", None)
    lines = [(level, s.n, s.rmse, s.mae, s.r2) for level, s in found.items()]
    print_table("Scores", ["of", "number", "RMSE", "MAE", "R2"], lines)
    if p is not None:
        title = ["number", "accuracy", "AUC", "log loss", "calibration error"]
        numbers = (p.n, p.accuracy, p.auc, p.log_loss, p.calibration_error)
        print_table("Probabilities of rows", title, [numbers])


@contextmanager
def _beside(out: Path, engine: str) -> Iterator[str | None]:
    """Where to keep rows meanwhile: what Spark's workers share with us is where the model goes."""
    if engine == "local":
        yield None
        return
    near = next(parent for parent in out.absolute().parents if parent.exists())
    with TemporaryDirectory(prefix=f".{out.name}.", dir=near) as place:
        yield place


def _root(square: Any) -> float | None:
    """A square root, or None where there is none, as JSON has it."""
    return float(square**0.5) if square >= 0 else None


def _rho(text: str) -> float | str:
    """A rho as typed: a number, or the name of a rule."""
    try:
        return float(text)
    except ValueError:
        return text
