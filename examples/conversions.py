"""Who converts, learnt from private aggregate reports of ad campaigns (simulated people).

    python examples/conversions.py [picture]

Needs bagwise[demo]; under a minute.
"""

# %%
# An ad platform reports conversions by campaign and day, with noise for privacy. An advertiser
# knows features of the people who saw an ad and wants to know who converts. Here everything is
# simulated, so that the truth is known: about one person in fifty converts, campaigns attract
# different people, and most campaigns are small. What a campaign offers acts on conversions, but it
# is known and so a feature; nothing else of a campaign or a day does.
import math
import sys
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from bagwise import AggregateLogisticRegression, AggregatePoissonRegressor, probability_scores
from bagwise.release import release

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)
FEATURES = ["visits", "recency", "age", "mobile", "returning", "discount"]
METHODS = ("full labels", "counts, noise known", "noise ignored", "Poisson")


def simulate_ads(n_rows, rng, campaigns=40, days=30):
    """People who saw an ad, the campaign and day, and whether they converted."""
    size = rng.lognormal(0, 1.2, campaigns)
    campaign = rng.choice(campaigns, n_rows, p=size / size.sum())
    tilt = rng.normal(0, 0.5, (campaigns, 3))[campaign]
    visits, recency, age = (tilt + rng.normal(size=(n_rows, 3))).T
    mobile, returning = (rng.random((2, n_rows)) < [[0.6], [0.3]]).astype(float)
    discount = rng.random(campaigns).round(2)[campaign]
    logit = (
        -5.2
        + 0.7 * visits
        - 0.5 * recency
        + 0.2 * age
        - 0.4 * mobile
        + 1.0 * returning
        + 0.8 * discount
    )
    table = {"visits": visits, "recency": recency, "age": age, "mobile": mobile}
    table |= {"returning": returning, "discount": discount, "campaign": campaign}
    table |= {"day": rng.integers(days, size=n_rows)}
    table["converted"] = (rng.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(float)
    return pd.DataFrame(table)


# %%
# The platform's side. Sums over campaign and day get Laplace noise; epsilon is for one conversion.
# What is returned is all that the advertiser sees.
def report(ads, epsilon, folder):
    """A Release of mean conversions by campaign and day."""
    return release(
        ads,
        response="converted",
        bags=["campaign", "day"],
        columns=FEATURES,
        epsilon=epsilon,
        bounds=(0, 1),
        ledger=None,
        out=f"{folder}/{epsilon}",
    )


# %%
# The advertiser's side, three ways. The first two take the release as it is: it carries the scale
# of its noise, which the likelihood of counts makes part of what it explains, and Poisson
# regression of expected conversions at least weighs bags by. The third takes the reports at face
# value, cut to 0 and 1 as shares are.
def learn(released):
    """Three models from a Release."""
    model = AggregateLogisticRegression(rho=0.0, ridge=10.0)
    poisson = AggregatePoissonRegressor(rho=0.0, ridge=10.0)
    ignoring = AggregateLogisticRegression(rho=0.0, ridge=10.0, likelihood="mean")
    table, means, bags = released.training_set()
    X = table.select(FEATURES).to_pandas()
    return {
        "counts, noise known": model.fit_release(released, FEATURES),
        "noise ignored": ignoring.fit(X, np.clip(means, 0, 1), bags),
        "Poisson": poisson.fit_release(released, FEATURES),
    }


def expected(model, X):
    """Expected conversions of each person."""
    if isinstance(model, AggregatePoissonRegressor):
        return np.minimum(model.predict(X), 1)
    return model.predict_proba(X)[:, 1]


def run(n_rows=60_000, n_test=60_000, epsilons=EPSILONS, repeats=5):
    """Scores on new people, one line a method, epsilon and repeat, and what the ads are like."""
    lines, facts = [], []
    for repeat in range(repeats):
        ads = simulate_ads(n_rows + n_test, np.random.default_rng(repeat))
        seen, new = ads[:n_rows], ads[n_rows:]
        X, labels = new[FEATURES], new["converted"].to_numpy()
        full = LogisticRegression(C=0.1, max_iter=1000).fit(seen[FEATURES], seen["converted"])
        sizes = seen.groupby(["campaign", "day"]).size()
        facts.append(
            (seen["converted"].mean(), len(sizes), sizes.min(), sizes.median(), sizes.max())
        )
        for epsilon in epsilons:
            with TemporaryDirectory() as folder:
                models = {"full labels": full, **learn(report(seen, epsilon, folder))}
            for method in METHODS:
                p = expected(models[method], X)
                s = probability_scores(labels, p)
                ratio = p.sum() / labels.sum()
                lines.append((method, epsilon, repeat, s.auc, s.log_loss, ratio))
    head = ["method", "epsilon", "repeat", "auc", "log_loss", "predicted"]
    known = pd.DataFrame(facts, columns=["rate", "bags", "smallest", "median", "largest"])
    return pd.DataFrame(lines, columns=head), known


# %%
def draw(found):
    """AUC, and predicted over true conversions, over epsilon."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    looks = [("#000000", "s"), ("#0072B2", "o"), ("#E69F00", "^"), ("#D55E00", "D")]
    epsilons = sorted(found["epsilon"].unique())
    for axes, column in zip(panels, ("auc", "predicted"), strict=True):
        for method, (colour, marker) in zip(METHODS, looks, strict=True):
            part = found[found["method"] == method].groupby("epsilon")[column]
            low, middle, high = (part.agg(f) for f in ("min", "median", "max"))
            place = np.arange(len(middle))
            axes.plot(place, middle, color=colour, marker=marker, markersize=5, label=method)
            axes.fill_between(place, low, high, color=colour, alpha=0.15, linewidth=0)
        names = ["no noise" if math.isinf(e) else f"{e:g}" for e in epsilons]
        axes.set_xticks(range(len(epsilons)), names)
        axes.set_xlabel("epsilon")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    panels[0].set(ylabel="AUC on new people", title="Who converts")
    panels[1].set(ylabel="predicted / true conversions", title="How many do", yscale="log")
    ticks = [1, 2, 3, 5]
    panels[1].set_yticks(ticks, [str(t) for t in ticks])
    panels[1].minorticks_off()
    panels[0].legend(frameon=False, loc="lower right")
    return figure


def main(picture="conversions.png", **sizes):
    """Print the numbers, save the picture."""
    found, known = run(**sizes)
    print(known.median().to_string(float_format="%.4g"), "\n")
    table = found.groupby(["epsilon", "method"], sort=False)[["auc", "log_loss", "predicted"]]
    print(table.median().unstack(0).T.to_string(float_format="%.4f"))
    draw(found).savefig(picture, dpi=150)
    return found


# %%
if __name__ == "__main__":
    main(*sys.argv[1:])
