"""The quadratic penalty of a tree, and its inverse in linear time.

``P = Σ_l c_l M_l' M_l`` is a tree of rank-one blocks: the leaves' ``c I`` plus ``c 1 1'`` for every part. Adding
one level's blocks to a matrix ``A`` that is already block diagonal over that level is, by Sherman–Morrison,

    (A + c 1 1')⁻¹ = A⁻¹ − f u u',   u = A⁻¹ 1,   f = c / (1 + c 1'u),

so that walking from the leaves up gives the whole inverse as a diagonal less one rank-one block for every part:
``P⁻¹ = I/c − Σ_l U_l diag(f_l) U_l'``. It is applied in O(leaves) a level and never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from c2fa.structure import FloatArray, IntArray, Structure

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
    """``P = Σ_l strengths[l] M_l' M_l``, with a positive strength at the leaves."""

    structure: Structure
    strengths: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.strengths[-1] > 0:
            raise ValueError("the leaves' strength must be positive for the prior to have an inverse")

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """The inverse's blocks, for each level of parts that has a penalty, fine to coarse."""
        found = []
        u = np.full(self.structure.leaves, 1.0 / self.strengths[-1])
        for level in range(self.structure.depth - 2, -1, -1):
            c = self.strengths[level]
            if c == 0:
                continue
            growth = 1.0 + c * self.structure.sums(u, level)
            owners = self.structure.owners(level)
            found.append(Blocks(level, u, c / growth, owners))
            u = u / growth[owners]
        return tuple(found)

    def dense(self) -> FloatArray:
        """P itself, (leaves, leaves)."""
        matrix = np.diag(np.full(self.structure.leaves, self.strengths[-1]))
        for level, c in enumerate(self.strengths[:-1]):
            if c:
                owners = self.structure.owners(level)
                matrix += c * (owners[:, None] == owners)
        return matrix

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
        out: FloatArray = rows[:, columns] / self.strengths[-1]
        for b, t in zip(self.blocks, projections or self.projections(rows), strict=True):
            out -= (t * b.f)[:, b.owners[columns]] * b.u[columns]
        return out

    def diagonal(self, level: int) -> FloatArray:
        """The diagonal of ``M_l P⁻¹ M_l'``: the prior variances of a level's values."""
        s = self.structure
        level = s.level(level)
        diagonal = np.bincount(s.owners(level)) / self.strengths[-1]
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


def ridge_strengths(ridges: Sequence[float]) -> tuple[float, ...]:
    """``λ‖v‖²`` is ``½ v'(2λ)v``."""
    return tuple(2.0 * lam for lam in ridges)
