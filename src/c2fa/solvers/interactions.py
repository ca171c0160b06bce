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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from c2fa.structure import FloatArray, IntArray, Structure

_NODES, _SHARES = np.polynomial.legendre.leggauss(10)
_SHARES = _SHARES / 2.0
# Of two masks: with chances t and t', and u = 2t − 1, a feature is the same in both with chance (1 + u u') / 2.
_TWICE = np.multiply.outer(_NODES, _NODES).ravel()
_TWICE_SHARES = np.multiply.outer(_SHARES, _SHARES).ravel()
_NOTHING = 1e-12  # of a process: two leaves have no third to act with


@dataclass(frozen=True, eq=False)
class Interactions:
    """The process of one set of weights; its even and its odd part each have variance 1 at every mask."""

    weights: FloatArray

    @classmethod
    def of(cls, order: float, sizes: FloatArray) -> Interactions:
        """Leaves act together as they matter: ``order`` of them usually, in proportion to their sizes."""
        # With a weight of 1 the kernel would tell nothing of any mask from another without that leaf.
        return cls(np.minimum(order / len(sizes) * (sizes / sizes.mean()), 0.9))

    @cached_property
    def _angles(self) -> FloatArray:
        return np.arctanh(self.weights)

    @cached_property
    def _logs(self) -> FloatArray:
        """Of each leaf, the logarithm of what its factor is apart from its sign."""
        logs: FloatArray = 0.5 * np.log1p(-np.square(self.weights))
        return logs

    @cached_property
    def scale(self) -> float:
        """The variance of the odd part before it is made 1; 0 where there is none."""
        scale = float(np.sinh(self._angles.sum()) * np.exp(self._logs.sum()) - self.weights.sum())
        return scale if scale > _NOTHING else 0.0

    @cached_property
    def even_scale(self) -> float:
        """The same of the even part."""
        scale = float(np.cosh(self._angles.sum()) * np.exp(self._logs.sum()) - 1.0)
        return scale if scale > _NOTHING else 0.0

    def odd(self, x: FloatArray, other: FloatArray) -> FloatArray:
        """The covariance of odd parts, (rows, other rows)."""
        return self._covariance(np.sinh, (x * self.weights) @ other.T, self.scale, x, other)

    def even(self, x: FloatArray, other: FloatArray) -> FloatArray:
        """The covariance of even parts, (rows, other rows)."""
        return self._covariance(np.cosh, 1.0, self.even_scale, x, other)

    def _covariance(
        self, half: np.ufunc, additive: float | FloatArray, scale: float, x: FloatArray, other: FloatArray
    ) -> FloatArray:
        """Half of the kernel without its additive orders, made of variance 1; 0 where nothing is left."""
        if not scale:
            return np.zeros((len(x), len(other)))
        kernel: FloatArray = half((x * self._angles) @ other.T)
        kernel *= np.exp(self._logs.sum())
        kernel -= additive
        kernel /= scale
        return kernel

    def values(self, x: FloatArray, structure: Structure) -> FloatArray:
        """The covariance of every leaf's value with the odd part of rows, (rows, leaves)."""
        if not self.scale:
            return np.zeros(x.shape)
        found, step = np.empty(x.shape), max(2**17 // structure.leaves, 1)  # more do not fit into a processor's cache
        for start in range(0, len(x), step):
            rows = x[start : start + step]
            beside = np.ones(rows.shape)
            for k in range(structure.depth):
                there, gone = self._with_and_without(rows, structure, k)
                beside *= self._beside(there, gone, structure.above(k))[:, structure.owners(k)]
            found[start : start + step] = (2.0 / self.scale) * self.weights * rows * (beside - 1.0)
        return found

    def variances(self, structure: Structure) -> tuple[FloatArray, ...]:
        """The prior variance of every feature's value, level by level."""
        found, above = [], np.ones(1)
        for k in range(structure.depth):
            there, gone = self._with_and_without(np.ones((1, structure.leaves)), structure, k)
            parents = structure.above(k)
            above = above[parents] * self._beside_twice(there, gone, parents)
            linear = 4.0 * structure.sums(self.weights, k)
            found.append((2.0 * (there - gone)[0] * above - linear) / self.scale if self.scale else 0.0 * linear)
        return tuple(np.maximum(variance, 0.0) for variance in found)

    def sum_variances(self, owners: IntArray, groups: int) -> FloatArray:
        """The prior variance of sums of leaves' values where leaves have no parts, by the group of each leaf."""
        if not self.scale:
            return np.zeros(groups)
        chance = 1.0 + _TWICE[:, None] * self.weights
        together = np.exp(np.log(chance).sum(axis=1))
        each = 2.0 * self.weights / chance
        sums = each @ (owners[:, None] == np.arange(groups))
        squares = np.square(each) @ (owners[:, None] == np.arange(groups))
        crossed = (_TWICE_SHARES * _TWICE * together) @ (np.square(sums) - squares)
        own = 4.0 * self.weights * ((_TWICE_SHARES * together) @ (1.0 / chance) - 1.0)
        found: FloatArray = (crossed + np.bincount(owners, own, minlength=groups)) / self.scale
        return np.maximum(found, 0.0)

    def pairs(self, x: FloatArray, structure: Structure, level: int, pairs: IntArray) -> FloatArray:
        """The covariance of interactions of pairs, (pairs, 2) features of one parent, with the even parts of rows."""
        if not self.even_scale:
            return np.zeros((len(x), len(pairs)))
        there, gone = self._with_and_without(x, structure, level)
        first, second = pairs.T
        parents = structure.above(level)
        mean, apart = 0.5 * (there + gone), 0.5 * (there - gone)
        found = np.zeros((len(x), len(pairs)))
        for node, share in zip(_NODES, _SHARES, strict=True):
            chance = mean + node * apart
            together = share * _products(chance, parents)
            found += together[:, parents[first]] / (chance[:, first] * chance[:, second])
        above = np.ones((len(x), structure.widths[level]))
        leaf = np.unique(structure.owners(level), return_index=True)[1]  # one of each feature
        for k in range(level):
            beside = self._beside(*self._with_and_without(x, structure, k), structure.above(k))
            above *= beside[:, structure.owners(k)[leaf]]
        found *= 4.0 * apart[:, first] * apart[:, second] * above[:, first]
        found /= self.even_scale
        return found

    def pair_variances(self, structure: Structure, level: int, pairs: IntArray) -> FloatArray:
        """The prior variance of the interactions of pairs."""
        if not self.even_scale:
            return np.zeros(len(pairs))
        ones, above = np.ones((1, structure.leaves)), np.ones(1)
        for k in range(level):
            there, gone = self._with_and_without(ones, structure, k)
            above = above[structure.above(k)] * self._beside_twice(there, gone, structure.above(k))
        there, gone = self._with_and_without(ones, structure, level)
        parents, (first, second) = structure.above(level), pairs.T
        chance = 0.5 * (there + gone) + 0.5 * _TWICE[:, None] * (there - gone)
        together = _products(chance, parents)[:, parents[first]] / (chance[:, first] * chance[:, second])
        each = 2.0 * (there - gone)[0]
        found: FloatArray = each[first] * each[second] * (_TWICE_SHARES @ together) * above[parents[first]]
        return found / self.even_scale

    def _with_and_without(self, x: FloatArray, structure: Structure, level: int) -> tuple[FloatArray, FloatArray]:
        """Of every feature of a level, its leaves' factors in rows where it is there and where it is gone."""
        signed = structure.sums((x * self._angles).T, level).T
        apart = structure.sums(self._logs, level)
        return np.exp(apart + signed), np.exp(apart - signed)

    def _beside(self, there: FloatArray, gone: FloatArray, parents: IntArray) -> FloatArray:
        """For every feature of a level the mean, over t, of the factors of those beside it."""
        mean, apart = 0.5 * (there + gone), 0.5 * (there - gone)
        found = np.zeros(there.shape)
        for node, share in zip(_NODES, _SHARES, strict=True):
            chance = mean + node * apart
            found += (share * _products(chance, parents))[:, parents] / chance
        return found

    def _beside_twice(self, there: FloatArray, gone: FloatArray, parents: IntArray) -> FloatArray:
        """The same where the kernel is averaged over both of its masks."""
        chance = 0.5 * (there + gone) + 0.5 * _TWICE[:, None] * (there - gone)
        together = _products(chance, parents)
        found: FloatArray = _TWICE_SHARES @ (together[:, parents] / chance)
        return found


def _products(factors: FloatArray, parents: IntArray) -> FloatArray:
    """Products over the features of each parent, (rows, parents); weights add up to an order, so none is too large."""
    if (parents[1:] < parents[:-1]).any():
        order = np.argsort(parents, kind="stable")
        factors, parents = factors[:, order], parents[order]
    starts = np.searchsorted(parents, np.arange(parents[-1] + 1))
    products: FloatArray = np.multiply.reduceat(factors, starts, axis=1)
    return products
