r"""Empirical proportion risk and DLLP: our bag-level loss under its other names.

Both hold the mean predicted probability p̄_a of a bag against its share γ_a,

    L_bag = −(1/n) Σ_a k_a (γ_a log p̄_a + (1−γ_a) log(1 − p̄_a))

which is the bag-level loss, rho = 0: of a linear model in Yu et al. (2014), of a network in
Ardehaly and Culotta (2017). There is nothing to add, so these are constructors of our estimators.

Not so the "DLLP" of the package llp-learn: it averages the *logarithms* of probabilities. With
(1/k) Σ_i log p_i in place of log p̄_a the loss of a bag is

    −γ_a (1/k) Σ_i log p_i − (1−γ_a) (1/k) Σ_i log(1 − p_i) = (1/k) Σ_i ℓ(γ_a, p_i)

the instance-level loss, rho = 1, value and gradient. By concavity of the logarithm it is never
below the bag-level one, and it draws every row to the share of its bag.
"""

from __future__ import annotations

from typing import Any

from bagwise.estimators.glm import AggregateLogisticRegression
from bagwise.estimators.neural import AggregateMLPClassifier


def empirical_proportion_risk(
    ridge: float | str = "cv", **options: Any
) -> AggregateLogisticRegression:
    """Logistic regression of the least bag-level log loss of shares.

    It is ``AggregateLogisticRegression(rho=0.0, likelihood="mean")``.

    Parameters
    ----------
    ridge : float or "cv"
    **options
        Others of `AggregateLogisticRegression`.

    Notes
    -----
    Assumes only that the model holds; bags may be of any kind.
    Guarantees: where a bag's share is met, so are the labels of most of its rows if bags are pure
    enough (the paper's bound); bags of one row give ordinary logistic regression.
    Limits: not convex; a bag whose share is met says no more.
    Reference: Yu, Choromanski, Kumar, Jebara, Chang, "On learning from label proportions" (2014).

    Examples
    --------
    >>> empirical_proportion_risk(ridge=1.0).rho
    0.0
    """
    return AggregateLogisticRegression(rho=0.0, ridge=ridge, likelihood="mean", **options)


def deep_llp(hidden: Any = (64, 64), **options: Any) -> AggregateMLPClassifier:
    """Multilayer perceptron of the least bag-level log loss of shares.

    It is ``AggregateMLPClassifier(hidden, rho=0.0)``.

    Parameters
    ----------
    hidden : sequence of int
        Widths of hidden layers.
    **options
        Others of `AggregateMLPClassifier`.

    Notes
    -----
    Assumes only that the network can follow the probabilities.
    Guarantees and limits as of `empirical_proportion_risk`; whole bags make a batch.
    Reference: Ardehaly, Culotta, "Co-training for demographic classification using deep learning
    from label proportions" (2017).

    Examples
    --------
    >>> deep_llp((32,)).rho
    0.0
    """
    return AggregateMLPClassifier(hidden, rho=0.0, **options)
