"""Who is at risk, learnt from pooled medical tests (simulated people).

    python examples/pooled_tests.py [picture]

Needs bagwise[plot] and pandas; some twenty seconds.
"""

# %%
# A laboratory pools the samples of k people and tests the pool. Positive pools are tested again,
# sample by sample, and what is reported of each pool is *how many* were positive, or the share, and
# not who. Of people some features are known. Who is at risk? Everything here is simulated, and
# three things are assumed: people are pooled at random, tests do not err, and every positive pool
# is counted out. A laboratory that reports only whether a pool was positive reports no count, and
# this example is not for it.
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from bagwise import AggregateLinearRegression, AggregateLogisticRegression, Bags, probability_scores

SIZES = (5, 10, 15, 20)
METHODS = ("full labels", "count likelihood", "ridge on pool means")


def simulate_people(n_rows, rng):
    """Features of people, in units of their spread, and who is infected: about 4 %."""
    age, contacts, exposure = rng.normal(size=(3, n_rows))
    vaccinated, symptoms = rng.random((2, n_rows)) < [[0.6], [0.15]]
    X = np.column_stack([age, contacts, exposure, vaccinated, symptoms])
    logit = -3.7 + X @ [0.3, 0.6, 0.8, -0.9, 1.6]
    return X, (rng.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(float)


# %%
# Three ways to learn from the same people: logistic regression by the likelihood of the counts of
# pools, least squares with a ridge on their means, and, for comparison, logistic regression on the
# result of each person. Least squares knows nothing of probabilities: what leaves 0 to 1 is cut
# off.
def probabilities(X, infected, pools, X_test):
    """Probabilities of new people by method."""
    shares = pools.expand(pools.mean(infected))
    counts = AggregateLogisticRegression(rho=0.0, ridge=1.0).fit(X, shares, pools)
    line = AggregateLinearRegression(rho=0.0, ridge=1.0).fit(X, shares, pools)
    full = LogisticRegression(C=1.0).fit(X, infected)
    found = (
        full.predict_proba(X_test)[:, 1],
        counts.predict_proba(X_test)[:, 1],
        np.clip(line.predict(X_test), 0, 1),
    )
    return dict(zip(METHODS, found, strict=True))


def run(n_rows=4000, n_test=50_000, sizes=SIZES, repeats=20):
    """AUC and calibration error on new people, one line a method, pool size and repeat."""
    lines = []
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        X, infected = simulate_people(n_rows, rng)
        X_test, sick = simulate_people(n_test, rng)
        for size in sizes:
            pools = Bags.random(n_rows, size, random_state=repeat)
            for method, p in probabilities(X, infected, pools, X_test).items():
                s = probability_scores(sick, p)
                lines.append((method, size, repeat, s.auc, s.calibration_error, (p == 0).mean()))
    head = ["method", "pool", "repeat", "auc", "calibration_error", "cut"]
    return pd.DataFrame(lines, columns=head)


# %%
def draw(found):
    """Median and quartiles of AUC and calibration error over pool size."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    looks = dict(zip(METHODS, [("#000000", "s"), ("#0072B2", "o"), ("#E69F00", "^")], strict=True))
    for axes, column in zip(panels, ("auc", "calibration_error"), strict=True):
        for method, (colour, marker) in looks.items():
            by_size = found[found["method"] == method].groupby("pool")[column]
            low, middle, high = (by_size.quantile(q) for q in (0.25, 0.5, 0.75))
            axes.plot(middle.index, middle, color=colour, marker=marker, markersize=5, label=method)
            axes.fill_between(middle.index, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_xlabel("people a pool")
        axes.set_xticks(sorted(found["pool"].unique()))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    panels[0].set(ylabel="AUC on new people", title="Who is at risk")
    panels[1].set(ylabel="calibration error", title="How far probabilities are off")
    panels[1].set_ylim(bottom=0)
    panels[0].legend(frameon=False)
    return figure


def main(picture="pooled_tests.png", **sizes):
    """Print the numbers, save the picture."""
    found = run(**sizes)
    table = found.groupby(["pool", "method"], sort=False)[["auc", "calibration_error", "cut"]]
    print(table.median().unstack(0).T.to_string(float_format="%.4f"))
    draw(found).savefig(picture, dpi=150)
    return found


# %%
if __name__ == "__main__":
    main(*sys.argv[1:])
