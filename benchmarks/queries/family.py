"""Models whose truth can be computed: a saturating function of a sum with pairwise terms, 5 parts of 20 leaves.

    f(z) = link(gain · (s(z) − at)),    s(z) = w'z + Σ_k a_k z_ik z_jk

``s`` has variance 1 over fair-coin masks, of which the pairwise terms' own part is a chosen share: 4, 10 or 20 %. The
weights are *sparse* (about one leaf in seven matters much) or *dense* (normal), and parts differ in how much they
matter. Half of the pairs lie within a part. The links are a sigmoid and tanh, both centred between the empty and the
full input, and 1 − exp.

The family was fixed before any variant of C2FA was run on it; only LIME had been, while the links' gains were being
set. Designs and priors were then compared on models of this family, so the benchmark draws others: seeds from ``FIRST``
on, which nothing was chosen on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

import c2fa

Floats = npt.NDArray[np.float64]

FIRST = 50_000
SIZES = (20,) * 5
PAIRS = 150
WITHIN = 0.5  # the share of pairs inside a part
WEIGHTS = ("sparse", "dense")
SHARES = {"mild": 0.04, "medium": 0.10, "strong": 0.20}  # of the variance of s
LINKS = {"sigmoid": 2.5, "tanh": 1.0, "1 - exp": 0.6}  # and their gains
PERMUTATIONS = 40_000


@dataclass(frozen=True, eq=False)
class Saturating:
    """A model of the family, called with rows of masks (1 keeps a leaf)."""

    weights: Floats
    pairs: npt.NDArray[np.intp]
    strengths: Floats
    link: str
    gain: float
    at: float
    sizes: tuple[int, ...]
    kind: str = ""

    @property
    def owners(self) -> npt.NDArray[np.intp]:
        """The part of each leaf."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def structure(self) -> c2fa.Structure:
        return c2fa.Structure.from_groups(self.owners)

    def __call__(self, masks: npt.ArrayLike) -> Floats:
        z = np.asarray(masks, dtype=np.float64)
        return self.squash(z @ self.weights + (z[:, self.pairs[:, 0]] * z[:, self.pairs[:, 1]]) @ self.strengths)

    def squash(self, total: Floats) -> Floats:
        """The output for a value of the sum."""
        t = self.gain * (total - self.at)
        if self.link == "sigmoid":
            return 1.0 / (1.0 + np.exp(-np.clip(t, -40.0, 40.0)))
        return np.tanh(t) if self.link == "tanh" else 1.0 - np.exp(-np.clip(t, -3.0, None))


def draw(
    seed: int, weights: str = "sparse", share: float = 0.10, link: str = "sigmoid", sizes: tuple[int, ...] = SIZES
) -> Saturating:
    """Draw a model; ``share`` is the pairwise terms' own part of the variance of the sum."""
    rng = np.random.default_rng(seed)
    leaves, owner = sum(sizes), np.repeat(np.arange(len(sizes)), sizes)
    if weights == "sparse":
        w = rng.normal(0.0, 0.15, leaves)
        large = rng.random(leaves) < 0.15
        w[large] += rng.choice([1.0, 1.0, 1.0, -1.0], large.sum()) * rng.uniform(0.5, 2.0, large.sum())
    else:
        w = rng.normal(0.25, 1.0, leaves)
    w = w * rng.lognormal(0.0, 0.5, len(sizes))[owner]
    first = rng.integers(leaves, size=PAIRS)
    inside = rng.random(PAIRS) < WITHIN
    second = np.array(
        [
            rng.choice(np.flatnonzero(((owner == owner[i]) == near) & (np.arange(leaves) != i)))
            for i, near in zip(first, inside, strict=True)
        ]
    )
    a = rng.normal(size=PAIRS) * (0.3 + np.abs(w[first]) + np.abs(w[second]))  # leaves that matter interact more
    a *= _scale(w, first, second, a, share)
    deviation = math.sqrt(_linear(w, first, second, a) + np.square(a).sum() / 16)
    w, a = w / deviation, a / deviation
    at = 0.0 if link == "1 - exp" else 0.5 * float(w.sum() + a.sum())
    return Saturating(w, np.stack([first, second], axis=1), a, link, LINKS[link], at, sizes, f"{weights} {share:g}")


def _linear(w: Floats, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp], a: Floats) -> float:
    """The variance over fair coins of the additive part of the sum: a pair adds half its strength to each leaf."""
    effect = w.copy()
    np.add.at(effect, first, a / 2)
    np.add.at(effect, second, a / 2)
    return float(np.square(effect).sum() / 4)


def _scale(w: Floats, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp], a: Floats, share: float) -> float:
    """By how much to multiply the pairs' strengths so that their own part has this share of the variance."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        own = np.square(middle * a).sum() / 16
        low, high = (low, middle) if own > share * (own + _linear(w, first, second, middle * a)) else (middle, high)
    return (low + high) / 2


@lru_cache(maxsize=4)
def suite(count: int, sizes: tuple[int, ...] = (SIZES[0],), first: int = FIRST) -> tuple[Saturating, ...]:
    """The first models of the benchmark: weights, shares and links in turn, 18 kinds before any comes again.

    ``sizes`` are the leaves that each of the five parts has, from model to model in turn.
    """
    kinds = itertools.cycle(itertools.product(WEIGHTS, SHARES.values(), LINKS))
    shapes = itertools.cycle((size,) * len(SIZES) for size in sizes)
    numbers = range(first, first + count)
    return tuple(draw(k, *kind, shape) for k, kind, shape in zip(numbers, kinds, shapes, strict=False))


# ------------------------------------------------------------------------------------------------ the truth


@lru_cache(maxsize=256)
def leaf_shapley(model: Saturating, permutations: int = PERMUTATIONS) -> Floats:
    """Shapley values of the leaves, from random orders and their reverses."""
    return leaf_shapley_and_error(model, permutations)[0]


def leaf_shapley_and_error(model: Saturating, permutations: int, seed: int = 1) -> tuple[Floats, Floats]:
    """Shapley values of the leaves, and the standard errors of their sampling."""
    rng = np.random.default_rng(seed)
    leaves, block = len(model.weights), 500
    total, squares, pairs = np.zeros(leaves), np.zeros(leaves), 0
    while 2 * pairs < permutations:
        order = rng.permuted(np.tile(np.arange(leaves), (block, 1)), axis=1)
        both = (_increments(model, order) + _increments(model, order[:, ::-1])) / 2
        total += both.sum(axis=0)
        squares += np.square(both).sum(axis=0)
        pairs += block
    mean = total / pairs
    return mean, np.sqrt(np.maximum(squares / pairs - mean**2, 0.0) / pairs)


def _increments(model: Saturating, order: npt.NDArray[np.intp]) -> Floats:
    """What each leaf adds when the leaves enter in these orders, (orders, leaves)."""
    n, leaves = order.shape
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(leaves)[None], axis=1)
    step = model.weights[order]
    enters = np.maximum(place[:, model.pairs[:, 0]], place[:, model.pairs[:, 1]])  # a pair counts from its later leaf
    flat = (np.arange(n)[:, None] * leaves + enters).ravel()
    step += np.bincount(flat, np.tile(model.strengths, n), n * leaves).reshape(n, leaves)
    path = model.squash(np.concatenate([np.zeros((n, 1)), np.cumsum(step, axis=1)], axis=1))
    return np.take_along_axis(np.diff(path, axis=1), place, axis=1)


def _coalitions(model: Saturating) -> tuple[npt.NDArray[np.bool_], Floats]:
    """All masks of the parts, mask k keeping the parts of k's binary digits, and the model's outputs."""
    parts = len(model.sizes)
    masks = ((np.arange(2**parts)[:, None] >> np.arange(parts)) & 1).astype(np.bool_)
    return masks, model(masks[:, model.owners])


@lru_cache(maxsize=256)
def part_shapley(model: Saturating) -> Floats:
    """Shapley values of the game whose players are the parts, exact."""
    masks, value = _coalitions(model)
    parts = masks.shape[1]
    found = np.zeros(parts)
    size = masks.sum(axis=1)
    weight = np.array([math.factorial(s) * math.factorial(max(parts - s - 1, 0)) for s in range(parts + 1)])
    for j in range(parts):
        without = np.flatnonzero(~masks[:, j])
        gains = value[without | (1 << j)] - value[without]
        found[j] = (weight[size[without]] * gains).sum() / math.factorial(parts)
    return found


@lru_cache(maxsize=256)
def leaf_additive(model: Saturating, rows: int = 60_000) -> Floats:
    """The additive function of the leaves that is nearest to the model over fair-coin masks, by least squares."""
    rng = np.random.default_rng(2)
    half = rng.random((rows // 2, len(model.weights))) < 0.5
    masks = np.concatenate([half, ~half])
    signs = masks - 0.5
    found: Floats = np.linalg.solve(signs.T @ signs, signs.T @ model(masks))
    return found


@lru_cache(maxsize=256)
def part_additive(model: Saturating) -> Floats:
    """The additive function of the parts that is nearest to the model over all of their masks, exact."""
    masks, value = _coalitions(model)
    return np.array([value[on].mean() - value[~on].mean() for on in masks.T])
