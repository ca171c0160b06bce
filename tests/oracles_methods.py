"""Second, slow, literal implementations of the methods' steps, sharing no code with the package."""

from __future__ import annotations

import math

import numpy as np
import pytest


def milli_weight(rank, count, alpha, beta):
    """MILLI's weight of one rank, written out case by case."""
    k = count - 1
    if alpha > 0.5:
        beta = -beta
    if beta >= 0:
        return (1 - alpha) - (1 - 2 * alpha) * (1 - rank / k) * math.exp(-beta * rank)
    return alpha + (1 - 2 * alpha) * (rank / k) * math.exp(-abs(beta) * (k - rank))


def milli_sample_weight(mask, inclusion):
    """The mean inclusion weight of the members of one coalition."""
    members = [w for on, w in zip(mask, inclusion, strict=True) if on]
    return sum(members) / len(members)


def coalition_frequencies(inclusion):
    """How often each feature is on among coalitions that are neither empty nor full, by enumeration."""
    n = len(inclusion)
    total, on = 0.0, np.zeros(n)
    for code in range(1, 2**n - 1):
        mask = [(code >> i) & 1 for i in range(n)]
        p = math.prod(w if bit else 1 - w for bit, w in zip(mask, inclusion, strict=True))
        total += p
        on += p * np.array(mask)
    return on / total


def lime_weight(mask):
    """LIME's kernel of one mask: sqrt(exp(-d²/0.25²)) of the cosine distance to all ones; 1 for the empty one."""
    on, width = sum(bool(b) for b in mask), len(mask)
    d = 1.0 if on == 0 else 1.0 - on / (math.sqrt(on) * math.sqrt(width))
    return math.sqrt(math.exp(-(d**2) / 0.25**2))


def ridge(masks, outputs, weights, lam, intercept):
    """Weighted ridge by scikit-learn, whose alpha is twice the paper's lambda."""
    model = (
        pytest.importorskip("sklearn.linear_model")
        .Ridge(alpha=2 * lam, fit_intercept=intercept, solver="svd")
        .fit(np.asarray(masks, float), outputs, sample_weight=weights)
    )
    b = np.atleast_1d(model.intercept_) if intercept else np.zeros(outputs.shape[1])
    return model.coef_.reshape(outputs.shape[1], -1).T, b


def shapley(game, players):
    """Shapley values by their definition, over all orders' subsets."""
    values = [0.0] * players
    for i in range(players):
        others = [p for p in range(players) if p != i]
        for code in range(2 ** len(others)):
            members = [p for n, p in enumerate(others) if (code >> n) & 1]
            weight = math.factorial(len(members)) * math.factorial(players - len(members) - 1)
            mask = np.zeros(players, bool)
            mask[members] = True
            without = game(mask)
            mask[i] = True
            values[i] += weight / math.factorial(players) * (game(mask) - without)
    return np.array(values)
