"""The quadratic penalty of a tree, and its inverse in linear time.

``P = Σ_l M_l' diag(c_l) M_l`` is a tree of rank-one blocks: the leaves' diagonal plus ``c 1 1'`` for every part. A
level's strengths are one number for all of its features or one for each. Adding one level's blocks to a matrix ``A``
that is already block diagonal over that level is, by Sherman–Morrison,

    (A + c 1 1')⁻¹ = A⁻¹ − f u u',   u = A⁻¹ 1,   f = c / (1 + c 1'u),

so that walking from the leaves up gives the whole inverse as a diagonal less one rank-one block for every part:
``P⁻¹ = diag(1/c) − Σ_l U_l diag(f_l) U_l'``. It is applied in O(leaves) a level and never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.linalg.blas import dsyrk

from c2fa.structure import FloatArray, IntArray, Structure

Strength: TypeAlias = float | FloatArray
"""One number for all features of a level, or one for each."""

_AT_ONCE = 2**21  # numbers held beside the rows; more of them cost page faults and no less time


@dataclass(frozen=True, eq=False)
class Blocks:
    """One level's rank-one blocks of the inverse: ``u`` over the leaves, ``f`` and the sums of u over the parts."""

    level: int
    u: FloatArray
    f: FloatArray
    owners: IntArray


@dataclass(frozen=True, eq=False)
class TreePrior:
    """``P = Σ_l M_l' diag(strengths[l]) M_l``, with positive strengths at the leaves."""

    structure: Structure
    strengths: tuple[Strength, ...]

    def __post_init__(self) -> None:
        if not np.min(self.strengths[-1]) > 0:
            raise ValueError("the leaves' strength must be positive for the prior to have an inverse")

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """The inverse's blocks, for each level of parts that has a penalty, fine to coarse."""
        found = []
        u = np.full(self.structure.leaves, 1.0 / self.strengths[-1])
        for level in range(self.structure.depth - 2, -1, -1):
            c = self.strengths[level]
            if not np.any(c):
                continue
            growth = 1.0 + c * self.structure.sums(u, level)
            owners = self.structure.owners(level)
            found.append(Blocks(level, u, c / growth, owners))
            u = u / growth[owners]
        return tuple(found)

    def add_to(self, matrix: FloatArray) -> None:
        """Add P to a matrix of shape (leaves, leaves)."""
        np.einsum("ii->i", matrix)[:] += self.strengths[-1]
        for level, c in enumerate(self.strengths[:-1]):
            if np.any(c):
                owners = self.structure.owners(level)
                matrix += np.broadcast_to(c, self.structure.widths[level])[owners] * (owners[:, None] == owners)

    def projections(self, rows: FloatArray) -> list[FloatArray]:
        """``rows U_l`` for each of the blocks' levels: all that the inverse needs to know of whole rows."""
        return [
            np.concatenate([row_sums(self.structure, some * b.u, b.level) for some in np.array_split(rows, parts)])
            for b in self.blocks
            for parts in [1 + rows.size // _AT_ONCE]
        ]

    def solve(
        self, rows: FloatArray, projections: list[FloatArray] | None = None, columns: slice = slice(None)
    ) -> FloatArray:
        """``rows P⁻¹`` for rows of shape (n, leaves), or some columns of it."""
        leaves = self.strengths[-1]
        out: FloatArray = rows[:, columns] / (leaves[columns] if isinstance(leaves, np.ndarray) else leaves)
        for b, t in zip(self.blocks, projections or self.projections(rows), strict=True):
            out -= (t * b.f)[:, b.owners[columns]] * b.u[columns]
        return out

    def gram(self, rows: FloatArray, projections: list[FloatArray]) -> FloatArray:
        """``rows P⁻¹ rows'`` in its lower triangle: a symmetric product costs half of a general one."""
        leaves = self.strengths[-1]
        if isinstance(leaves, np.ndarray):
            matrix = weighted_gram(rows, 1.0 / leaves)
        else:
            matrix = dsyrk(1.0 / leaves, rows.T, trans=1, lower=1)
        for block, t in zip(self.blocks, projections, strict=True):
            matrix -= (t * block.f) @ t.T
        return matrix

    def diagonal(self, level: int) -> FloatArray:
        """The diagonal of ``M_l P⁻¹ M_l'``: the prior variances of a level's values."""
        s = self.structure
        level = s.level(level)
        diagonal: FloatArray = np.bincount(s.owners(level), np.broadcast_to(1.0 / self.strengths[-1], s.leaves)).astype(
            np.float64
        )
        for b in self.blocks:
            sums = s.sums(b.u, level)
            if b.level <= level:  # a feature lies inside one block
                ancestor = np.empty(s.widths[level], dtype=np.intp)
                ancestor[s.owners(level)] = b.owners
                diagonal = diagonal - b.f[ancestor] * sums**2
            else:  # a feature holds several blocks
                ancestor = np.empty(s.widths[b.level], dtype=np.intp)
                ancestor[b.owners] = s.owners(level)
                inner = b.f * s.sums(b.u, b.level) ** 2
                diagonal = diagonal - np.bincount(ancestor, inner, minlength=s.widths[level])
        return diagonal


def row_sums(structure: Structure, rows: FloatArray, level: int) -> FloatArray:
    """``rows M_l'``: sum the leaves' columns into a level's, (n, leaves) to (n, widths[level])."""
    if structure.level(level) == structure.depth - 1:
        return rows
    starts = structure.starts(level)
    if starts is not None:
        sums: FloatArray = np.add.reduceat(rows, starts, axis=1)
        return sums
    product: FloatArray = (structure.membership(level) @ rows.T).T
    return product


def weighted_gram(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """``rows diag(weights) rows'`` in its lower triangle, holding a few columns beside the rows at a time."""
    matrix = np.zeros((len(rows), len(rows)), order="F")
    root = np.sqrt(weights)
    step = max(_AT_ONCE // max(len(rows), 1), 1)
    for start in range(0, rows.shape[1], step):
        some = rows[:, start : start + step] * root[start : start + step]
        matrix = dsyrk(1.0, some.T, beta=1.0, c=matrix, trans=1, lower=1, overwrite_c=1)
    return matrix


def ridge_strengths(ridges: Sequence[Strength]) -> tuple[Strength, ...]:
    """``λ‖v‖²`` is ``½ v'(2λ)v``."""
    return tuple(2.0 * lam for lam in ridges)
