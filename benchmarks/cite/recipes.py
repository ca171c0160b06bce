"""What others propose, written out: sentences' values from the log-probabilities of an answer's tokens.

Each takes ``ask``, which gives those log-probabilities for masks of sentences, (rows, tokens), with the number of
sentences, the budget and a generator. The prompt with all documents and the one with none are rows of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from c2fa.structure import BoolArray, FloatArray

Ask: TypeAlias = Callable[[BoolArray], FloatArray]
Recipe: TypeAlias = Callable[[Ask, int, int, np.random.Generator], FloatArray]


def arc_jsd(ask: Ask, sentences: int, budget: int, rng: np.random.Generator) -> FloatArray:
    """ARC-JSD (arXiv 2505.16415), as far as log-probabilities of the answer go.

    A sentence's value is the Jensen–Shannon divergence of what the model says with and without it, summed over the
    answer's tokens. Theirs is of the whole distribution of a token; here the distribution is cut down to the token
    that was said and all others together, whose divergence is never larger. A budget below the number of sentences
    removes some, drawn by chance, and leaves the others at 0. No value is below 0: a sentence that speaks against the
    answer is as important as one that speaks for it.
    """
    removed = rng.permutation(sentences)[: max(budget - 2, 0)]
    masks = np.ones((1 + len(removed), sentences), dtype=np.bool_)
    masks[1 + np.arange(len(removed)), removed] = False
    p, *others = np.exp(ask(masks))
    values = np.zeros(sentences)
    values[removed] = [_divergence(p, q).sum() for q in others]
    return values


def _divergence(p: FloatArray, q: FloatArray) -> FloatArray:
    """The Jensen–Shannon divergence of coins, in nats.

    >>> _divergence(np.array([1.0, 0.3]), np.array([0.0, 0.3])).round(3)
    array([0.693, 0.   ])
    """
    middle = (p + q) / 2
    return _entropy(middle) - (_entropy(p) + _entropy(q)) / 2


def _entropy(p: FloatArray) -> FloatArray:
    inside = np.clip(p, 1e-300, 1.0 - 1e-16)
    return -inside * np.log(inside) - (1.0 - inside) * np.log1p(-inside)


def camab(
    ask: Ask, sentences: int, budget: int, rng: np.random.Generator, at_once: int = 8, spread: float = 0.5
) -> FloatArray:
    """CAMAB (arXiv 2506.19977): a bandit whose arms are sentences, by linear Thompson sampling.

    The reward of a subset is the share of the answer's likelihood, summed over tokens, that it brings back from the
    prompt without documents to the one with all, between 0 and 1. Rewards are linear in the sentences, with a normal
    prior of variance 1 on each. Each round draws from the posterior and keeps the half of the sentences that come out
    highest; values are the posterior's means.

    The half, the spread of draws and eight draws a round, where theirs are one by one, are choices of this file: what
    could be read of theirs does not tell the first two.
    """
    ends = np.array([[True] * sentences, [False] * sentences])
    whole, nothing = np.exp(ask(ends)).sum(axis=1)
    precision, weighted = np.eye(sentences), np.zeros(sentences)
    for start in range(0, budget - 2, at_once):
        mean = np.linalg.solve(precision, weighted)
        size = min(at_once, budget - 2 - start)
        # The transposed inverse of a Cholesky factor has the posterior's covariance.
        noise = rng.normal(size=(at_once, sentences))[:size]  # a smaller budget asks the first rows of a larger one
        draws = mean + spread * np.linalg.solve(np.linalg.cholesky(precision).T, noise.T).T
        masks = np.zeros((size, sentences), dtype=np.bool_)
        np.put_along_axis(masks, np.argsort(-draws, axis=1)[:, : (sentences + 1) // 2], True, axis=1)
        gains = np.exp(ask(masks)).sum(axis=1) - nothing
        rewards = np.clip(gains / (whole - nothing), 0.0, 1.0) if whole != nothing else np.zeros(size)
        precision += masks.T.astype(np.float64) @ masks
        weighted += masks.T @ rewards
    return np.linalg.solve(precision, weighted)
