"""The stacked least-squares problem solved in 60 digits, and leave-one-bag-out by refitting."""

import mpmath as mp
import numpy as np


def stacked_solution(X, means, bags, rho, fit_intercept=True, ridge=0.0, left_out=None):
    """(coef, intercept) of min Σ k(ȳ − f̄)² + ρ Σ (f − f̄)² + ridge‖θ‖², of least norm, in 60 digits.

    ``left_out`` is a bag whose response is hidden: its bag-level row goes, within-bag rows stay.
    """
    with mp.workdps(60):
        d = X.shape[1]
        rows = [[mp.mpf(float(x)) for x in row] for row in X]
        members = [np.flatnonzero(bags.codes == a).tolist() for a in range(bags.n_bags)]
        averages = [[mp.fsum(rows[i][j] for i in m) / len(m) for j in range(d)] for m in members]
        seen = [a for a in range(bags.n_bags) if a != left_out]
        weight = mp.fsum(len(members[a]) for a in seen)
        y = [mp.mpf(float(v)) for v in means]
        centre, level = [mp.mpf(0)] * d, mp.mpf(0)
        if fit_intercept:
            centre = [
                mp.fsum(len(members[a]) * averages[a][j] for a in seen) / weight for j in range(d)
            ]
            level = mp.fsum(len(members[a]) * y[a] for a in seen) / weight
        stack, target = [], []
        for a in seen:
            root = mp.sqrt(len(members[a]))
            stack.append([root * (averages[a][j] - centre[j]) for j in range(d)])
            target.append(root * (y[a] - level))
        for a, m in enumerate(members):
            for i in m:
                stack.append([mp.sqrt(rho) * (rows[i][j] - averages[a][j]) for j in range(d)])
                target.append(mp.mpf(0))
        for j in range(d):
            stack.append([mp.sqrt(ridge) if i == j else mp.mpf(0) for i in range(d)])
            target.append(mp.mpf(0))
        U, S, V = mp.svd_r(mp.matrix(stack))
        loads = U.T * mp.matrix(target)
        gains = [loads[j] / S[j] if S[j] > S[0] * mp.mpf(10) ** -25 else 0 for j in range(d)]
        theta = V.T * mp.matrix(gains)
        intercept = level - mp.fsum(centre[j] * theta[j] for j in range(d))
        return np.array([float(t) for t in theta]), float(intercept)


def left_out_errors(X, means, bags, rho, fit_intercept=True, ridge=0.0):
    """(1/m) Σ_a k_a (ȳ_a − prediction of a model that did not see it)², by refitting."""
    total = 0.0
    for a in range(bags.n_bags):
        coef, intercept = stacked_solution(X, means, bags, rho, fit_intercept, ridge, left_out=a)
        mean = X[bags.codes == a].mean(axis=0)
        total += bags.sizes[a] * (means[a] - mean @ coef - intercept) ** 2
    return total / bags.n_bags
