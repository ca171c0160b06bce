"""The quadratic penalty of a tree, and its inverse in linear time.

``P = Σ_l c_l M_l' M_l`` is a tree of rank-one blocks: the leaves' ``c I`` plus ``c 1 1'`` for every part. Adding
one level's blocks to a matrix ``A`` that is already block diagonal over that level is, by Sherman–Morrison,

    (A + c 1 1')⁻¹ = A⁻¹ − c u u' / (1 + c 1'u),   u = A⁻¹ 1,

so that walking from the leaves up applies the whole inverse in O(leaves) a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from c2fa.structure import FloatArray, IntArray, Structure


@dataclass(frozen=True, eq=False)
class TreePrior:
    """``P = Σ_l strengths[l] M_l' M_l``, with a positive strength at the leaves."""

    structure: Structure
    strengths: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.strengths[-1] > 0:
            raise ValueError("the leaves' strength must be positive for the prior to have an inverse")

    @cached_property
    def _steps(self) -> tuple[tuple[int, FloatArray, FloatArray, IntArray], ...]:
        """For each part level with a penalty, fine to coarse: level, u, c / (1 + c 1'u) per part, owners."""
        steps = []
        u = np.full(self.structure.leaves, 1.0 / self.strengths[-1])
        for level in range(self.structure.depth - 2, -1, -1):
            c = self.strengths[level]
            if c == 0:
                continue
            total = self.structure.sums(u, level)
            factor = c / (1.0 + c * total)
            owners = self.structure.owners(level)
            steps.append((level, u, factor, owners))
            u = u / (1.0 + c * total)[owners]
        return tuple(steps)

    def dense(self) -> FloatArray:
        """P itself, (leaves, leaves)."""
        matrix = np.diag(np.full(self.structure.leaves, self.strengths[-1]))
        for level, c in enumerate(self.strengths[:-1]):
            if c:
                owners = self.structure.owners(level)
                matrix += c * (owners[:, None] == owners)
        return matrix

    def solve(self, rows: FloatArray) -> FloatArray:
        """``rows P⁻¹`` for rows of shape (n, leaves)."""
        out = rows / self.strengths[-1]
        for level, u, factor, owners in self._steps:
            # 1'A⁻¹x of every part at once: `out` holds A⁻¹x so far.
            out -= (row_sums(self.structure, out, level) * factor)[:, owners] * u
        return out

    def diagonal(self, level: int) -> FloatArray:
        """The diagonal of ``M_l P⁻¹ M_l'``: the prior variances of a level's values."""
        s = self.structure
        level = s.level(level)
        if level == s.depth - 1:
            diagonal = np.full(s.leaves, 1.0 / self.strengths[-1])
        else:
            below = [step for step in self._steps if step[0] > level]
            u = np.full(s.leaves, 1.0 / self.strengths[-1])
            if below:
                last, u_last, factor, owners = below[-1]
                c = self.strengths[last]
                u = u_last * (factor / c)[owners]  # u / (1 + c 1'u)
            diagonal = s.sums(u, level)
        for at, u, factor, _ in self._steps:
            if at <= level:
                ancestor = np.empty(s.widths[level], dtype=np.intp)
                ancestor[s.owners(level)] = s.owners(at)
                diagonal = diagonal - factor[ancestor] * s.sums(u, level) ** 2
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
