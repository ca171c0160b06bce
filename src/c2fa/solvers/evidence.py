"""The evidence: the marginal likelihood of the outputs, given scales of the values and of the noise.

The l2 solution is the posterior mean of a Gaussian model: a leaf's value has prior variance ``v_i``, and a row of
weight ``w`` at level l has noise variance ``σ_l²/w``. So weights are divided by ``σ_l²``, and the leaves' strengths
are ``λ_i = 1 / 2v_i``. A part has no prior of its own; it is the sum of its leaves. With ``X`` the weighted, centred
rows over the leaves and ``y`` their outputs, so that intercepts are integrated out (restricted likelihood), the
evidence is

    −2 log p(y) = log|V| + y'V⁻¹y − Σ_l log σ_l² [level l has an intercept] + const,   V = X diag(v) X' + diag(σ_l²).

With ``γ_i = v_i x_i'V⁻¹x_i``, the share of leaf i that the rows determine, and ``β`` the solution, the derivative by
``log v_i`` is ``½(β_i²/v_i − γ_i)``, and that by ``log σ_l²`` is ``½(‖residual_l‖²/σ_l² − residual dof_l)``. Both come
with one N×N factor and O(N²D) more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm

from c2fa.problem import Problem, Rows
from c2fa.solvers.matrices import AT_ONCE, Cholesky, squares, triangle, weighted_gram
from c2fa.structure import FloatArray, IntArray

_MORE_LEAVES = 1.4  # as many leaves to a row, and the system of the leaves is still the faster one
TINY = 1e-290  # a variance of outputs that numbers cannot tell from none


@dataclass(frozen=True, eq=False)
class Observations:
    """All that the evidence needs to know of the rows, in units in which the outputs' variance is 1.

    A level's weights are taken relative to their median: how much a level counts against another is to be chosen.
    A level of parts that has more rows than parts is held as that many rows: with ``X = QR``, the rows ``R`` and
    targets ``Q'y`` say all there is about the leaves, and what is left of the targets only about the noise. All three
    are blocks of the triangular factor of ``[X y]``.
    """

    blocks: list[FloatArray]  # of each level its rows over the leaves, (n, leaves)
    targets: FloatArray  # (n, outputs), the levels' one after the other; squares of outputs are averaged
    outputs: int
    rows: IntArray  # of each level
    freedom: FloatArray  # of each level: its rows less its intercept, those that were condensed away among them
    rest: FloatArray  # of each level: the mean squared length of the targets in the directions condensed away
    weights: FloatArray  # of each level: the weight that was taken for 1
    energy: float  # the mean squared length of a row of weight 1
    log_unit: float  # of the outputs' variance, which is 1 here: by it evidence of other outputs can be compared
    owners: tuple[IntArray, ...]  # the group of each leaf, for the groups that share a scale; the first is of all
    finest: Rows  # the finest level's rows, whose Gram matrix the fit itself needs too

    @classmethod
    def of(cls, problem: Problem, columns: slice = slice(None)) -> Observations | None:
        """The rows of a problem and some of its outputs; None where these are constant."""
        s = problem.structure
        blocks, kept, freedom, rest = [], [], [], []
        spread = energy = 0.0
        levels = [level.scaled(1.0 / level.usual_weight) for level in problem.levels]
        shared = s.leaves <= _MORE_LEAVES * problem.queries
        for k, level in enumerate(levels):
            counting = level.weights > 0
            coarse, y = k < s.depth - 1, level.rows.targets[:, columns]
            # Where leaves are many, their rows are held once, in ``design``: the fit does not share them.
            rows = level.rows.design if coarse or shared else level.rows.write(np.empty(level.masks.shape))
            inverse_weights = np.divide(1.0, level.weights, out=np.zeros(len(rows)), where=counting)
            # A part's column stands for as many as it has leaves.
            energy += float(inverse_weights @ np.square(rows) @ s.sizes(k))
            spread += float(inverse_weights @ squares(y.T))
            freedom.append(float(np.count_nonzero(counting) - level.intercept))
            rest.append(0.0)
            if coarse and len(rows) > level.width:
                upper = triangle(np.concatenate([rows, y], axis=1))
                rows, y = upper[: level.width, : level.width], upper[: level.width, level.width :]
                rest[k] = float(np.square(upper[level.width :, level.width :]).sum())
            blocks.append(rows[:, s.owners(k)] if coarse else rows)
            kept.append(y)
        targets = np.concatenate(kept)
        outputs, free = targets.shape[1], max(sum(freedom), 1.0)
        unit = spread / (free * outputs)
        if not unit > TINY:
            return None
        if outputs > len(targets):  # only inner products of rows matter
            targets = triangle(targets.T).T
        groups = [s.owners(k) for k in range(s.depth - 1) if 1 < s.widths[k] < s.leaves]
        return cls(
            blocks=blocks,
            targets=targets / np.sqrt(unit),
            outputs=outputs,
            rows=np.array([len(block) for block in blocks]),
            freedom=np.array(freedom),
            rest=np.array(rest) / (unit * outputs),
            weights=np.array([level.usual_weight for level in problem.levels]),
            energy=energy / free,
            log_unit=float(np.log(unit)),
            owners=(np.zeros(s.leaves, dtype=np.intp), *groups),
            finest=levels[-1].rows,
        )

    @property
    def of_leaves(self) -> bool:
        """Whether the system of the leaves is the faster one."""
        return self.leaves <= _MORE_LEAVES * len(self.targets)

    @property
    def leaves(self) -> int:
        return int(self.blocks[0].shape[1])

    @cached_property
    def design(self) -> FloatArray:
        """All levels' rows, one level after the other; from here on the blocks are pieces of it."""
        design = np.concatenate(self.blocks)
        self.blocks[:] = np.split(design, self.starts[1:])
        return design

    @cached_property
    def above(self) -> FloatArray:
        """The rows of all levels but the finest, where there are others."""
        return np.concatenate(self.blocks[:-1])

    @cached_property
    def usual_base(self) -> float:
        """The logarithm of the leaves' variance at which they explain the usual share of the outputs."""
        # Half of the outputs' variance is first thought to be the leaves'.
        return float(np.log(0.5 / self.energy)) if self.energy > 0 else 0.0

    @cached_property
    def _grams(self) -> FloatArray:
        """Of each level ``X'X``, its lower triangle column by column, (levels, leaves²)."""
        grams = (*(dsyrk(1.0, rows.T, lower=1) for rows in self.blocks[:-1]), self.finest.gram)
        return np.stack([gram.T.ravel() for gram in grams])

    @cached_property
    def _work(self) -> FloatArray:
        """Room for two matrices of the leaves: every round needs them, and fresh memory costs as much as the sums."""
        return np.zeros((2, self.leaves, self.leaves))

    def gram(self, weights: FloatArray) -> FloatArray:
        """``Σ_l weights[l] X_l'X_l`` in its lower triangle, in memory that the next call uses again."""
        matrix: FloatArray = self._work[0]
        np.dot(weights, self._grams, out=matrix.reshape(-1))
        return matrix.T

    def inverse(self, factor: Cholesky) -> FloatArray:
        """A factor's inverse, in memory that the next call uses again."""
        return factor.invert(self._work[1].T)

    @cached_property
    def _moments(self) -> FloatArray:
        """Of each level ``X'y``, (levels, leaves × outputs)."""
        targets = np.split(self.targets, self.starts[1:])
        return np.stack([(x.T @ y).ravel() for x, y in zip(self.blocks, targets, strict=True)])

    def moment(self, weights: FloatArray) -> FloatArray:
        """``Σ_l weights[l] X_l'y_l``."""
        return (weights @ self._moments).reshape(self.leaves, -1)

    def by_level(self, of_rows: FloatArray) -> FloatArray:
        """Sum something of the rows into its levels."""
        sums: FloatArray = np.add.reduceat(of_rows, self.starts)
        return sums

    @cached_property
    def starts(self) -> IntArray:
        return np.concatenate([[0], np.cumsum(self.rows)[:-1]])


@dataclass(frozen=True, eq=False)
class Fit:
    """What the rows say of given variances of the leaves and noises of the levels."""

    log_evidence: float  # the restricted log likelihood, up to a constant
    dof: FloatArray  # of each leaf its effective degrees of freedom γ, between 0 and 1
    beta2_over_v: FloatArray  # of each leaf ``β²/v``
    residual_dof: FloatArray  # of each level its rows less its intercept and what the fit has used up
    scaled_rss: FloatArray  # of each level ``‖residual‖²/σ²``


def evaluate(data: Observations, variances: FloatArray, noises: FloatArray) -> Fit:
    """Compute the evidence and the terms of its derivatives, with the smaller of two systems, as ``direct.py`` does."""
    return (_by_leaves if data.of_leaves else _by_rows)(data, variances, noises)


def _by_rows(data: Observations, variances: FloatArray, noises: FloatArray) -> Fit:
    """From ``V``, which has a row for each row."""
    of_rows = np.repeat(noises, data.rows)
    matrix = weighted_gram(data.design, variances)
    np.einsum("ii->i", matrix)[:] += of_rows
    inverse = Cholesky(matrix).inverse
    half = inverse @ data.targets
    dual = inverse.T @ half
    reached = np.empty(len(variances))
    step = max(AT_ONCE // len(matrix), 1)
    for start in range(0, len(variances), step):
        reached[start : start + step] = squares(dtrmm(1.0, inverse, data.design[:, start : start + step], lower=1))
    unused = of_rows * squares(inverse)  # of a row: 1 less its leverage
    pull = data.design.T @ dual
    beyond = data.freedom - data.rows
    log_determinant = beyond @ np.log(noises) - 2.0 * np.log(inverse.diagonal()).sum()
    return Fit(
        log_evidence=-0.5 * float(log_determinant + np.square(half).sum() / data.outputs + (data.rest / noises).sum()),
        dof=np.clip(variances * reached, 0.0, 1.0),
        beta2_over_v=variances * squares(pull.T) / data.outputs,
        residual_dof=np.maximum(data.by_level(unused) + beyond, 0.0),
        scaled_rss=data.by_level(of_rows * squares(dual.T)) / data.outputs + data.rest / noises,
    )


def _by_leaves(data: Observations, variances: FloatArray, noises: FloatArray) -> Fit:
    """From ``A = I + Σ_l √v X_l'X_l √v / σ_l²``, which has a row for each leaf: ``|V| = |A| Π σ_l²``.

    Its solution is ``u = β/√v``. Residuals are computed as such, because where noise is at its floor differences of
    squares would be rounding.
    """
    root = np.sqrt(variances)
    precisions = 1.0 / noises
    matrix = data.gram(precisions)
    matrix *= root
    matrix *= root[:, None]
    matrix.ravel(order="K")[:: len(matrix) + 1] += 1.0
    factor = Cholesky(matrix)
    u = factor.solve(root[:, None] * data.moment(precisions))
    inverse = data.inverse(factor)
    dof = np.maximum(1.0 - squares(inverse), 0.0)
    beta2_over_v = squares(u.T) / data.outputs
    beta = root[:, None] * u
    residuals = data.targets - np.concatenate([rows @ beta for rows in data.blocks])
    scaled_rss = (data.by_level(squares(residuals.T)) / data.outputs + data.rest) / noises
    # The levels use up Σ γ degrees of freedom between them, so the finest level's share need not be computed.
    used = np.empty(len(noises))
    if len(used) > 1:
        reached = squares(dtrmm(1.0, inverse, (data.above * root).T, lower=1))
        used[:-1] = np.add.reduceat(reached, data.starts[:-1]) / noises[:-1]
    used[-1] = dof.sum() - used[:-1].sum()
    log_determinant = data.freedom @ np.log(noises) + factor.log_determinant
    return Fit(
        log_evidence=-0.5 * float(log_determinant + scaled_rss.sum() + beta2_over_v.sum()),
        dof=dof,
        beta2_over_v=beta2_over_v,
        residual_dof=np.maximum(data.freedom - used, 0.0),
        scaled_rss=scaled_rss,
    )
