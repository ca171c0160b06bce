"""Interactions of every order as one Gaussian process over leaf masks, and what Winter values make of it.

A mask is a row x of −1 and 1. With a weight ``ρ_i`` between 0 and 1 for each leaf the kernel is

    k(x, x') = Π_i (1 + ρ_i x_i x_i') = exp(Σ_i ½ log(1 − ρ_i²) + Σ_i x_i x_i' artanh ρ_i),

which expands into the products of every set of leaves: a set counts by the product of its weights. With ``Σ ρ_i = c``
the orders are about Poisson distributed with mean c, so that c says how many leaves usually act together. A constant
and the orders that are additive are taken out, and the rest is divided in two: what a mask and its complement have in
common (the *even* orders) and by what they differ (the *odd* ones).

The Winter value of leaf i is its mean effect where, at every level, the other features under the same parent are there
with a chance t of their own, as wholes, and t is uniform. A kernel that is a product over leaves stays one under each
of these means: with ``A_q = Π_{i in q} (1 + ρ_i x_i)`` and ``B_q = Π_{i in q} (1 − ρ_i x_i)``,

    value_i k(·, x) = 2 ρ_i x_i Π_levels ∫ Π_{q beside i's ancestor} (t A_q + (1 − t) B_q) dt.

Each integral is one of a polynomial, by Gauss and Legendre's rule. Under complements a value changes its sign, so only
odd orders have values; by the same symmetry only even ones have interactions of pairs.

With ``u = 2t − 1`` the factor of a leaf is ``1 + u ρ x``, so that products over leaves and sums over the nodes u are
products of matrices:

    Π_i (1 + u ρ_i x_i) = exp(Σ_i ½ log(1 − u² ρ_i²) + Σ_i x_i artanh(u ρ_i)),
    1 / (1 + u ρ x) = (1 − u ρ x) / (1 − u² ρ²).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np

from c2fa.solvers.matrices import AT_ONCE, weighted_gram, weighted_sums
from c2fa.structure import FloatArray, IntArray, Structure

_NOTHING = 1e-12  # of a process: two leaves have no third to act with

Rule: TypeAlias = Callable[[int], tuple[FloatArray, FloatArray]]
"""The nodes u and their shares by which products over so many features are integrated."""


@cache
def _one(features: int) -> tuple[FloatArray, FloatArray]:
    """Over one mask, exact for up to 20 features."""
    nodes, shares = np.polynomial.legendre.leggauss(min((features + 1) // 2, 10))
    return nodes, shares / 2.0


@cache
def _both(features: int) -> tuple[FloatArray, FloatArray]:
    """Over both masks of the kernel: with u and u', a feature is the same in both with chance (1 + u u') / 2."""
    nodes, shares = _one(features)
    products, place = np.unique(np.outer(nodes, nodes).round(15), return_inverse=True)
    weights: FloatArray = np.zeros(len(products))
    np.add.at(weights, place.ravel(), np.outer(shares, shares).ravel())
    return products, weights


def _reweighted(gram: FloatArray, sizes: FloatArray, weights: FloatArray, x: FloatArray) -> FloatArray:
    """``Σ_i w_i x_i x_i'`` from the same with sizes for weights, where most weights are in proportion to them."""
    share = float((weights / sizes).max())
    rest = weights - share * sizes
    few = np.flatnonzero(rest < -1e-12 * weights)
    if 2 * len(few) > len(weights):
        return weighted_gram(x, weights)
    reweighted: FloatArray = share * gram
    return reweighted - weighted_gram(x[:, few], -rest[few]) if len(few) else reweighted


@dataclass(frozen=True, eq=False)
class Interactions:
    """The process of one set of weights; its even and its odd part each have variance 1 at every mask."""

    weights: FloatArray

    @classmethod
    def of(cls, order: float, sizes: FloatArray) -> Interactions:
        """Leaves act together as they matter: ``order`` of them usually, in proportion to their sizes."""
        # With a weight of 1 the kernel would tell nothing of any mask from another without that leaf.
        return cls(np.minimum(order / sizes.sum() * sizes, 0.9))

    @cached_property
    def _angles(self) -> FloatArray:
        return np.arctanh(self.weights)

    @cached_property
    def _logs(self) -> FloatArray:
        """Of each leaf, the logarithm of what its factor is apart from its sign."""
        logs: FloatArray = 0.5 * np.log1p(-np.square(self.weights))
        return logs

    @cached_property
    def _factor(self) -> float:
        """The product of all leaves' factors apart from signs."""
        return math.exp(self._logs.sum())

    @cached_property
    def scale(self) -> float:
        """The variance of the odd part before it is made 1; 0 where there is none."""
        scale = math.sinh(self._angles.sum()) * self._factor - float(self.weights.sum())
        return scale if scale > _NOTHING else 0.0

    @cached_property
    def even_scale(self) -> float:
        """The same of the even part."""
        scale = math.cosh(self._angles.sum()) * self._factor - 1.0
        return scale if scale > _NOTHING else 0.0

    def exponents(self, x: FloatArray, other: FloatArray) -> FloatArray:
        """``Σ_i x_i x_i' artanh ρ_i``, (rows, other rows), of which both kernels are functions."""
        return (x * self._angles) @ other.T

    def own_exponents(self, gram: FloatArray, sizes: FloatArray, x: FloatArray) -> FloatArray:
        """The same of rows with themselves, in the lower triangle; from ``gram``, which has sizes for weights."""
        return _reweighted(gram, sizes, self._angles, x)

    def additive(self, gram: FloatArray, sizes: FloatArray, x: FloatArray) -> FloatArray:
        """``Σ_i ρ_i x_i x_i'``, (rows, rows), likewise."""
        return _reweighted(gram, sizes, self.weights, x)

    def odd(self, exponents: FloatArray, additive: FloatArray) -> FloatArray:
        """The covariance of odd parts, (rows, other rows)."""
        return self._scaled(np.sinh(exponents), additive, self.scale)

    def even(self, exponents: FloatArray) -> FloatArray:
        """The covariance of even parts, (rows, other rows)."""
        return self._scaled(np.cosh(exponents), 1.0, self.even_scale)

    def _scaled(self, kernel: FloatArray, additive: float | FloatArray, scale: float) -> FloatArray:
        """Half of the kernel without its additive orders, made of variance 1; 0 where nothing is left."""
        if not scale:
            return np.zeros(kernel.shape)
        kernel *= self._factor
        kernel -= additive
        kernel /= scale
        return kernel

    def values(self, x: FloatArray, structure: Structure) -> FloatArray:
        """The covariance of every leaf's value with the odd part of rows, (leaves, rows)."""
        if not self.scale:
            return np.zeros(x.T.shape)
        found = self._beside(x, structure, structure.depth - 1, _one)
        found *= self._above(x, structure, structure.depth - 1, _one)[structure.above(-1)]
        found -= 1.0
        found *= x.T
        found *= (2.0 / self.scale * self.weights)[:, None]
        return found

    def variances(self, structure: Structure) -> tuple[FloatArray, ...]:
        """The prior variance of every feature's value, level by level."""
        if not self.scale:
            return tuple(map(np.zeros, structure.widths))
        found, everything, beside = [], np.ones((1, structure.leaves)), np.ones((1, 1))
        for k in range(structure.depth):
            _, apart = self._mean_and_apart(everything, structure, k)
            beside = beside[structure.above(k)] * self._beside(everything, structure, k, _both)
            variance = 4.0 * ((apart * beside)[:, 0] - structure.sums(self.weights, k)) / self.scale
            found.append(np.maximum(variance, 0.0))
        return tuple(found)

    def sum_variances(self, owners: IntArray, groups: int) -> FloatArray:
        """The prior variance of sums of leaves' values where leaves have no parts, by the group of each leaf."""
        if not self.scale:
            return np.zeros(groups)
        nodes, shares = _both(len(owners))
        chance = 1.0 + nodes[:, None] * self.weights
        together = shares * np.exp(np.log(chance).sum(axis=1))
        each = 2.0 * self.weights / chance
        sums = each @ (owners[:, None] == np.arange(groups))
        squares = np.square(each) @ (owners[:, None] == np.arange(groups))
        crossed = (nodes * together) @ (np.square(sums) - squares)
        own = 4.0 * self.weights * (together @ (1.0 / chance) - 1.0)
        found: FloatArray = (crossed + np.bincount(owners, own, minlength=groups)) / self.scale
        return np.maximum(found, 0.0)

    def pairs(self, x: FloatArray, structure: Structure, level: int, pairs: IntArray, rule: Rule = _one) -> FloatArray:
        """The covariance of interactions of pairs with even parts, (pairs, rows); each pair has one parent."""
        if not self.even_scale:
            return np.zeros((len(pairs), len(x)))
        first, second = pairs.T
        parents = structure.above(level)
        owners = parents[first]
        mean, apart = self._mean_and_apart(x, structure, level)
        found: FloatArray = (
            4.0 / self.even_scale * apart[first] * apart[second] * self._above(x, structure, level, rule)[owners]
        )
        for children in structure.families(level):
            mine, family = np.nonzero(owners[:, None] == parents[children[:, 0]])
            families = np.flatnonzero(np.bincount(family))
            of = np.searchsorted(families, family)
            nodes, shares = rule(children.shape[1])
            one, other = (mean[i, None] + nodes[:, None] * apart[i, None] for i in (first[mine], second[mine]))
            if level == structure.depth - 1:
                wholes = self._wholes(x, children[families], nodes)
            else:
                parts = children[families, None]
                wholes = np.prod(mean[parts] + nodes[:, None, None] * apart[parts], axis=2)
            found[mine] *= np.einsum("u,pur->pr", shares, wholes[of] / (one * other))
        return found

    def pair_variances(self, structure: Structure, level: int, pairs: IntArray) -> FloatArray:
        """The prior variance of the interactions of pairs."""
        return 4.0 * self.pairs(np.ones((1, structure.leaves)), structure, level, pairs, _both)[:, 0]

    def _mean_and_apart(self, x: FloatArray, structure: Structure, level: int) -> tuple[FloatArray, FloatArray]:
        """``(A + B) / 2`` and ``(A − B) / 2`` of every feature of a level in rows, (features, rows)."""
        if level == structure.depth - 1:
            return np.ones((structure.leaves, 1)), self.weights[:, None] * x.T
        logs = structure.sums(self._logs, level)[:, None]
        signed = weighted_sums(structure, x, self._angles, level).T
        there, gone = np.exp(logs + signed), np.exp(logs - signed)
        return 0.5 * (there + gone), 0.5 * (there - gone)

    def _above(self, x: FloatArray, structure: Structure, level: int, rule: Rule) -> FloatArray:
        """For every parent of a level the means of the factors of what is beside it and above, (parents, rows)."""
        above = np.ones((1, len(x)))
        for k in range(level):
            above = above[structure.above(k)] * self._beside(x, structure, k, rule)
        return above

    def _beside(self, x: FloatArray, structure: Structure, level: int, rule: Rule) -> FloatArray:
        """For every feature of a level the mean, over t, of the factors of those beside it, (features, rows)."""
        if level == structure.depth - 1:
            return self._beside_leaves(x, structure, rule)
        mean, apart = self._mean_and_apart(x, structure, level)
        found = np.empty(mean.shape)
        for children in structure.families(level):
            means, aparts, total = mean[children], apart[children], 0.0
            for node, share in zip(*rule(children.shape[1]), strict=True):
                chance = means + node * aparts
                total += share * chance.prod(axis=1, keepdims=True) / chance
            found[children] = total
        return found

    def _beside_leaves(self, x: FloatArray, structure: Structure, rule: Rule) -> FloatArray:
        """The same of leaves, by products of matrices."""
        found = np.empty(x.T.shape)
        for children in structure.families(-1):
            nodes, shares = rule(children.shape[1])
            step = max(AT_ONCE // (children.shape[1] * len(x)), 1)  # parents at a time
            for some in (children[start : start + step] for start in range(0, len(children), step)):
                reach = self.weights[some, None] * nodes
                shrunk = shares / (1.0 - np.square(reach))
                wholes, signs = self._wholes(x, some, nodes), x.T[some]
                found[some] = shrunk @ wholes - signs * ((shrunk * reach) @ wholes)
        return found

    def _wholes(self, x: FloatArray, children: IntArray, nodes: FloatArray) -> FloatArray:
        """Of parents of leaves, (parents, children), the products of these leaves' factors, (parents, nodes, rows)."""
        reach = self.weights[children, None] * nodes
        logs = 0.5 * np.log1p(-np.square(reach)).sum(axis=1)
        wholes: FloatArray = np.exp(logs[:, :, None] + np.arctanh(reach).swapaxes(1, 2) @ x.T[children])
        return wholes
