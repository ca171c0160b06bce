"""What solvers do with matrices: Cholesky's factor, symmetric products, and the quadratic penalty of a tree.

LAPACK is called directly: on matrices of a hundred rows SciPy's wrappers take as long as the work itself.

``P = Σ_l M_l' diag(c_l) M_l`` is a tree of rank-one blocks: the leaves' diagonal plus ``c 1 1'`` for every part. A
level's strengths are one number for all of its features or one for each. Adding one level's blocks to a matrix ``A``
that is already block diagonal over that level is, by Sherman–Morrison,

    (A + c 1 1')⁻¹ = A⁻¹ − f u u',   u = A⁻¹ 1,   f = c / (1 + c 1'u),

so that walking from the leaves up gives the whole inverse as a diagonal less one rank-one block for every part:
``P⁻¹ = diag(1/c) − Σ_l U_l diag(f_l) U_l'``. It is applied in O(leaves) a level and never formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk, dtrmm, dtrsm
from scipy.linalg.lapack import dlauum, dpotrf, dpotrs, dtrtri

from c2fa.structure import FloatArray, IntArray, Structure

AT_ONCE = 2**21  # numbers held beside the rows; more of them cost page faults and no less time


class Cholesky:
    """``L`` with ``LL' = matrix``, of which the lower triangle is read and may be overwritten.

    >>> import numpy as np
    >>> factor = Cholesky(np.array([[4.0, 0.0], [2.0, 2.0]], order="F"))
    >>> factor.lower
    array([[2., 0.],
           [1., 1.]])
    >>> factor.solve(np.array([[8.0], [4.0]])).ravel()
    array([2., 0.])
    """

    def __init__(self, matrix: FloatArray) -> None:
        self.lower, wrong = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        if wrong:
            raise LinAlgError("the matrix is not positive definite: its rows span too many orders of magnitude")

    @property
    def log_determinant(self) -> float:
        return 2.0 * float(np.log(self.lower.diagonal()).sum())

    def solve(self, right: FloatArray) -> FloatArray:
        """``(LL')⁻¹ right``, for right-hand sides of shape (n, k)."""
        solution: FloatArray = dpotrs(self.lower, right, lower=1)[0]
        return solution

    def half(self, right: FloatArray) -> FloatArray:
        """``L⁻¹ right``: its columns' squared lengths are the diagonal of ``right'(LL')⁻¹ right``."""
        solution: FloatArray = dtrsm(1.0, self.lower, right, lower=1)
        return solution

    @property
    def lower_inverse(self) -> FloatArray:
        """``(LL')⁻¹`` in its lower triangle."""
        lower: FloatArray = dlauum(self.inverse, lower=1)[0]
        return lower

    @cached_property
    def inverse(self) -> FloatArray:
        """``L⁻¹``. Where it is needed anyway, a product with it takes half the time of a solve with L."""
        return self.invert(np.zeros(self.lower.shape, order="F"))

    def invert(self, out: FloatArray) -> FloatArray:
        """Write ``L⁻¹`` into the lower triangle of a matrix of zeros, or of another inverse."""
        _invert(self.lower, out)
        return out


def _invert(lower: FloatArray, out: FloatArray) -> None:
    """Invert a lower triangle by halves: products of blocks take half the time of LAPACK's ``dtrtri``."""
    n = len(lower)
    if n <= 64:  # LAPACK is as fast as any
        out[...] = dtrtri(lower, lower=1)[0]
        return
    first, second = slice(0, n // 2), slice(n // 2, n)
    _invert(lower[first, first], out[first, first])
    _invert(lower[second, second], out[second, second])
    product = dtrmm(1.0, out[first, first], lower[second, first], side=1, lower=1)
    out[second, first] = dtrmm(-1.0, out[second, second], product, lower=1, overwrite_b=1)


def triangle(matrix: FloatArray) -> FloatArray:
    """R of ``matrix = QR``."""
    upper: FloatArray = np.linalg.qr(matrix, mode="r")  # type: ignore[assignment]  # its stub does not tell modes apart
    return upper


def whole(lower: FloatArray) -> FloatArray:
    """A symmetric matrix from its lower triangle, with 0 in the upper one."""
    matrix: FloatArray = lower + lower.T
    np.einsum("ii->i", matrix)[:] *= 0.5
    return matrix


def squares(matrix: FloatArray) -> FloatArray:
    """The squared length of every column."""
    sums: FloatArray = np.einsum("ij,ij->j", matrix, matrix)
    return sums


def weighted_gram(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """``rows diag(weights) rows'`` in its lower triangle, holding a few columns beside the rows at a time."""
    root, step = np.sqrt(weights), max(AT_ONCE // max(len(rows), 1), 1)
    gram: FloatArray = np.zeros((len(rows), len(rows)), order="F")
    for start in range(0, rows.shape[1], step):
        some = rows[:, start : start + step] * root[start : start + step]
        gram = dsyrk(1.0, some.T, beta=1.0, c=gram, trans=1, lower=1, overwrite_c=1)
    return gram


def row_sums(structure: Structure, rows: FloatArray, level: int) -> FloatArray:
    """``rows M_l'``: sum the leaves' columns into a level's, (n, leaves) to (n, widths[level])."""
    return rows if structure.level(level) == structure.depth - 1 else structure.sums(rows.T, level).T


def weighted_sums(structure: Structure, rows: FloatArray, weights: FloatArray, level: int) -> FloatArray:
    """``rows diag(weights) M_l'``, (n, widths[level]), holding a few rows more at a time."""
    step = max(AT_ONCE // structure.leaves, 1)
    pieces = (rows[start : start + step] * weights for start in range(0, len(rows), step))
    return np.concatenate([row_sums(structure, some, level) for some in pieces])


Strength: TypeAlias = float | FloatArray
"""One number for all features of a level, or one for each."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """One level's rank-one blocks of the inverse: ``u`` over the leaves, ``f`` over the parts."""

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
    def free(self) -> FloatArray:
        """Each leaf's variance where parts have no strength: the diagonal of the inverse without its blocks."""
        return np.broadcast_to(1.0 / np.asarray(self.strengths[-1]), self.structure.leaves)

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """The inverse's blocks, for each level of parts that has a penalty, fine to coarse."""
        found, u = [], self.free
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
        return [weighted_sums(self.structure, rows, b.u, b.level) for b in self.blocks]

    def solve(
        self, rows: FloatArray, projections: list[FloatArray] | None = None, columns: slice = slice(None)
    ) -> FloatArray:
        """``rows P⁻¹`` for rows of shape (n, leaves), or some columns of it."""
        out: FloatArray = rows[:, columns] * self.free[columns]
        for b, t in zip(self.blocks, projections or self.projections(rows), strict=True):
            out -= (t * b.f)[:, b.owners[columns]] * b.u[columns]
        return out

    def gram(self, rows: FloatArray, projections: list[FloatArray]) -> FloatArray:
        """``rows P⁻¹ rows'`` in its lower triangle."""
        matrix = weighted_gram(rows, self.free)
        for block, t in zip(self.blocks, projections, strict=True):
            matrix -= (t * block.f) @ t.T
        return matrix

    def diagonal(self, level: int) -> FloatArray:
        """The diagonal of ``M_l P⁻¹ M_l'``: the prior variances of a level's values."""
        s = self.structure
        level = s.level(level)
        diagonal = s.sums(self.free, level)
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
