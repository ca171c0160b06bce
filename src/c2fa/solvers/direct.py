"""The exact solution for l2 penalties: one linear solve, whichever of the two systems is smaller.

With ``X`` the weighted (and, under an intercept, centred) rows over the leaves, ``y`` their targets and
``P = Σ_l 2λ_l M_l'M_l``:

- more rows than leaves: ``(X'X + P) β = X'y``, a D×D system;
- fewer rows than leaves: ``β = P⁻¹X' (I + X P⁻¹X')⁻¹ y``, an N×N system. ``P⁻¹`` is applied level by level
  (``matrices.py``), so the cost is O(N²D) and no D×D matrix is formed.

The same Gaussian model gives the standard errors: noise ``σ²/w`` on every row, prior precision ``P/σ²``, posterior
covariance ``σ² (X'X + P)⁻¹``. σ² is the larger of two estimates that agree where the penalty suits the values: the
maximum-likelihood one, ``(‖y − Xβ‖² + β'Pβ) / (rows − intercepts)``, which too weak a penalty makes too small, and
``‖y − Xβ‖² / (rows − leverages)``, which leaves out what too strong a one shrinks away.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dtrmm

from c2fa.problem import Level, Problem
from c2fa.solution import Solution, Status, System
from c2fa.solvers.matrices import Cholesky, Strength, TreePrior, row_sums, squares, triangle, weighted_gram
from c2fa.structure import BoolArray, FloatArray, IntArray


def direct(problem: Problem) -> Solution:
    """Solve a problem whose penalties are all L2, exactly.

    Where the leaves' penalty is 0 and the queries do not determine every leaf, the smallest solution is
    returned, the status says so, and the standard errors of undetermined values are infinite.
    """
    strengths, system = prepare(problem)
    leaf_values = system.fit(problem.targets)
    leverages = row_leverages(problem, system)
    noise = np.sqrt(_noise(problem, strengths, leaf_values, sum(float(h.sum()) for h in leverages)))
    variances = system.variances()
    errors = smooth_errors(problem, system, tuple(_scaled(v, noise) for v in variances), noise)
    fit = Fitted.of(problem, leaf_values)
    return fit.solution(system.status, stderr=errors, leverages=leverages, system=system)


def smooth_errors(
    problem: Problem, system: System, errors: tuple[FloatArray, ...], scale: FloatArray
) -> tuple[FloatArray, ...] | None:
    """Standard errors where the finest level is smooth: those at hand are of u, and its values are ``S u``.

    Their variance is ``S (X'X + P)⁻¹ S`` times the square of the scale, (outputs,), and infinite where the rows do not
    determine the smoothed value. None where the leaves are so many that all of their covariance is too much to hold.
    """
    smooth = problem.levels[-1].smooth
    if smooth is None:
        return errors
    if problem.structure.leaves > 5000:
        return None
    spread = smooth(np.eye(problem.structure.leaves))
    smoothed = np.maximum(np.einsum("ij,ij->j", spread, system.solve(spread)), 0.0)  # S is symmetric
    if isinstance(system, _LeastSquares):
        smoothed[~system.reached(spread.T)] = np.inf
    return (*errors[:-1], _scaled(smoothed, scale))


def _scaled(variances: FloatArray, scale: FloatArray) -> FloatArray:
    """Standard errors, (width, outputs); what the rows do not determine is unknown however little noise they have."""
    known = np.isfinite(variances)[:, None]
    return np.where(known, np.sqrt(np.where(known[:, 0], variances, 0.0))[:, None] * scale, np.inf)


def prepare(problem: Problem) -> tuple[tuple[Strength, ...], System]:
    """A problem's strengths, and its normal matrix ready to be solved with."""
    ridges: list[Strength] = []
    for k, level in enumerate(problem.levels):
        if level.penalty.ridge is None:
            raise ValueError(
                f"the direct solver needs an L2 penalty at every level, but level {k} has {level.penalty}; "
                "use solver='admm' or 'auto'"
            )
        ridges.append(2.0 * level.penalty.ridge)  # λ‖v‖² is ½ v'(2λ)v
    strengths = tuple(ridges)
    try:
        # A penalty that rounding would swallow is none.
        return strengths, (factorise if np.min(strengths[-1]) > _NOTHING else _LeastSquares)(problem, strengths)
    except LinAlgError:  # as where outputs and weights span too many orders of magnitude
        return strengths, _LeastSquares(problem, strengths)


def factorise(problem: Problem, strengths: tuple[Strength, ...]) -> System:
    """Factorise the smaller of the two systems, once for any number of right-hand sides."""
    prior = TreePrior(problem.structure, strengths)
    return (_Primal if problem.structure.leaves <= problem.queries else _Dual)(problem, prior)


class _Primal:
    """Cholesky of the D×D matrix ``X'X + P``."""

    status = Status.EXACT

    def __init__(self, problem: Problem, prior: TreePrior) -> None:
        self.structure = problem.structure
        self.design = problem.design
        matrix = problem.gram()
        prior.add_to(matrix)
        self.factor = Cholesky(matrix)

    def fit(self, targets: FloatArray) -> FloatArray:
        return self.solve(self.design.T @ targets)

    def solve(self, right: FloatArray) -> FloatArray:
        return self.factor.solve(right)

    def variances(self) -> tuple[FloatArray, ...]:
        s = self.structure
        return tuple(squares(row_sums(s, self.factor.inverse, k)) for k in range(s.depth))

    @functools.cached_property
    def _half(self) -> FloatArray:
        half: FloatArray = dtrmm(1.0, self.factor.inverse, self.design.T, lower=1)
        return half

    def influences(self, rows: Sequence[slice]) -> list[tuple[FloatArray, ...]]:
        s, influence = self.structure, dtrmm(1.0, self.factor.inverse, self._half, lower=1, trans_a=1).T
        return [tuple(squares(row_sums(s, influence[some], k)) for k in range(s.depth)) for some in rows]

    def leverages(self) -> FloatArray:
        return squares(self._half)


class _Dual:
    """Cholesky of the N×N matrix ``I + X P⁻¹X'``; the rows ``X P⁻¹`` are made a few columns at a time."""

    status = Status.EXACT

    def __init__(self, problem: Problem, prior: TreePrior) -> None:
        self.structure = problem.structure
        self.design = problem.design
        self.prior = prior
        self.projections = prior.projections(self.design)
        matrix = prior.gram(self.design, self.projections)
        np.einsum("ii->i", matrix)[:] += 1.0
        self.factor = Cholesky(matrix)

    def fit(self, targets: FloatArray) -> FloatArray:
        return self.prior.solve((self.design.T @ self.factor.solve(targets)).T).T

    def solve(self, right: FloatArray) -> FloatArray:
        start = self.prior.solve(right.T).T
        return start - self.fit(self.design @ start)

    def variances(self) -> tuple[FloatArray, ...]:
        s = self.structure
        leaves = np.empty(s.leaves)
        sums = [np.zeros((len(self.design), w)) for w in s.widths[:-1]]
        for columns in _chunks(s.leaves):
            rows = self.prior.solve(self.design, self.projections, columns)
            for k, total in enumerate(sums):
                _add_columns(total, rows, s.owners(k)[columns])
            leaves[columns] = squares(self.factor.half(rows))
        reductions = [squares(self.factor.half(total)) for total in sums]
        return tuple(np.maximum(self.prior.diagonal(k) - r, 0.0) for k, r in enumerate([*reductions, leaves]))

    def influences(self, rows: Sequence[slice]) -> list[tuple[FloatArray, ...]]:
        # (X'X + P)⁻¹X' is P⁻¹X'(I + K)⁻¹.
        s = self.structure
        leaves = [np.empty(s.leaves) for _ in rows]
        sums = [np.zeros((len(self.design), w)) for w in s.widths[:-1]]
        for columns in _chunks(s.leaves):
            influence = self.factor.solve(self.prior.solve(self.design, self.projections, columns))
            for k, total in enumerate(sums):
                _add_columns(total, influence, s.owners(k)[columns])
            for of_rows, some in zip(leaves, rows, strict=True):
                of_rows[columns] = squares(influence[some])
        return [
            (*(squares(total[some]) for total in sums), of_rows) for of_rows, some in zip(leaves, rows, strict=True)
        ]

    def leverages(self) -> FloatArray:
        # X (X'X + P)⁻¹ X' is K (I + K)⁻¹, that is I − (I + K)⁻¹.
        return 1.0 - squares(self.factor.inverse)


def _chunks(leaves: int, most: int = 8192) -> list[slice]:
    """The leaves in pieces: ``most`` of their columns are held at a time beside the rows themselves."""
    return [slice(start, min(start + most, leaves)) for start in range(0, leaves, most)]


class _LeastSquares:
    """The smallest least-squares solution, for leaves without a penalty of their own."""

    def __init__(self, problem: Problem, strengths: tuple[Strength, ...]) -> None:
        self.structure = problem.structure
        blocks = [problem.design]
        for level, c in enumerate(strengths):
            # One number for all leaves comes here only where it is next to nothing.
            if np.any(c) and (level < problem.structure.depth - 1 or isinstance(c, np.ndarray)):
                rows = problem.structure.membership(level).toarray()
                blocks.append(np.sqrt(np.broadcast_to(c, len(rows)))[:, None] * rows)
        self.rows = problem.queries
        self.u, s, self.vt = np.linalg.svd(np.concatenate(blocks), full_matrices=False)
        keep = s > s[0] * max(self.u.shape[0], self.vt.shape[1]) * np.finfo(np.float64).eps
        self.u, self.s, self.vt = self.u[:, keep], s[keep], self.vt[keep]
        self.status = Status.EXACT if len(self.s) == self.structure.leaves else Status.NOT_UNIQUE

    def fit(self, targets: FloatArray) -> FloatArray:
        solution: FloatArray = self.vt.T @ ((self.u[: self.rows].T @ targets) / self.s[:, None])
        return solution

    def solve(self, right: FloatArray) -> FloatArray:
        solution: FloatArray = self.vt.T @ ((self.vt @ right) / np.square(self.s)[:, None])
        return solution

    def variances(self) -> tuple[FloatArray, ...]:
        found = []
        for k in range(self.structure.depth):
            sums = row_sums(self.structure, self.vt, k)
            sizes = np.bincount(self.structure.owners(k))
            reached = squares(sums) >= sizes * (1 - 1e-9)  # how much of the feature's indicator the rows span
            found.append(np.where(reached, squares(sums / self.s[:, None]), np.inf))
        return tuple(found)

    def reached(self, columns: FloatArray) -> BoolArray:
        """Whether the rows determine ``c'β`` for each column c, (leaves, n)."""
        found: BoolArray = squares(self.vt @ columns) >= squares(columns) * (1 - 1e-9)
        return found

    def influences(self, rows: Sequence[slice]) -> list[tuple[FloatArray, ...]]:
        s, influence = self.structure, (self.u[: self.rows] / self.s) @ self.vt
        return [tuple(squares(row_sums(s, influence[some], k)) for k in range(s.depth)) for some in rows]

    def leverages(self) -> FloatArray:
        return squares(self.u[: self.rows].T)


_NOTHING = 1e-15


def _add_columns(total: FloatArray, rows: FloatArray, owners: IntArray) -> None:
    """Add each column of ``rows`` to its owner's column of ``total``."""
    if (owners[1:] < owners[:-1]).any():
        order = np.argsort(owners, kind="stable")
        owners, rows = owners[order], rows[:, order]
    here, starts = np.unique(owners, return_index=True)
    total[:, here] += np.add.reduceat(rows, starts, axis=1)


def _noise(problem: Problem, strengths: tuple[Strength, ...], leaf_values: FloatArray, leverage: float) -> FloatArray:
    """σ² for each output, (outputs,); ``leverage`` is the rows' in all, the freedom that the fit has used up."""
    residuals = np.square(problem.targets - problem.design @ leaf_values).sum(axis=0)
    energy = residuals + sum(
        np.broadcast_to(c, len(v)) @ np.square(v)
        for c, v in ((c, problem.structure.sums(leaf_values, k)) for k, c in enumerate(strengths))
    )
    rows = sum(np.count_nonzero(level.weights) for level in problem.levels)
    likely: FloatArray = energy / max(rows - sum(level.intercept for level in problem.levels), 1)
    left = rows - leverage
    # With less left a fit goes through all rows, and what it leaves over is rounding.
    return np.maximum(likely, residuals / left) if left > 1e-6 * rows else likely


def row_leverages(problem: Problem, system: System) -> tuple[FloatArray, ...]:
    """Each level's leverages; an intercept adds the row's share of the weight."""
    found, start = [], 0
    every = system.leverages()
    for level in problem.levels:
        own = every[start : start + len(level.masks)]
        share = level.weights / level.weights.sum() if level.intercept else 0.0
        found.append(np.clip(own + share, 0.0, 1.0))
        start += len(own)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Leaf values and what follows from them: every level's values, intercepts and losses, with a column an output.

    ``penalised`` are the values that the penalties are taken at: those that were looked for, before they are smoothed.
    """

    problem: Problem
    values: tuple[FloatArray, ...]
    intercepts: tuple[FloatArray, ...]
    losses: tuple[FloatArray, ...]
    penalised: tuple[FloatArray, ...]

    @classmethod
    def of(cls, problem: Problem, leaf_values: FloatArray, values: tuple[FloatArray, ...] | None = None) -> Fitted:
        """From leaf values, (leaves, outputs): level values are their sums unless given."""
        s, leaves = problem.structure, problem.levels[-1]
        if values is not None:
            penalised = values
        else:
            penalised = values = s.level_sums(leaf_values)
            if leaves.smooth is not None:  # which keeps sums up to rounding: parts are sums of what is returned
                smoothed = leaves.smoothed(leaf_values)
                values = s.level_sums(smoothed)
        intercepts = tuple(lv.rows.intercept(v) for lv, v in zip(problem.levels, values, strict=True))
        losses = tuple(lv.loss(v, b) for lv, v, b in zip(problem.levels, values, intercepts, strict=True))
        return cls(problem, values, intercepts, losses, penalised)

    def solution(
        self,
        status: Status,
        iterations: int = 0,
        *,
        stderr: tuple[FloatArray, ...] | None = None,
        leverages: tuple[FloatArray, ...] | None = None,
        allowed: Mapping[int, FloatArray] | None = None,
        system: System | None = None,
    ) -> Solution:
        """The Solution, in the shape of the problem's outputs.

        ``allowed`` has, for levels whose sums meet their penalty only to a tolerance, the nearby values that meet it
        exactly; the objective takes the penalty there, where it is not infinite.
        """
        problem = self.problem
        penalties = (
            level.penalty.value((allowed or {}).get(k, self.penalised[k])) for k, level in enumerate(problem.levels)
        )
        return Solution(
            values=_shaped(problem, self.values),
            intercepts=_shaped(problem, self.intercepts),
            stderr=None if stderr is None else _shaped(problem, stderr),
            status=status,
            iterations=iterations,
            objective=sum(float(loss.sum()) for loss in self.losses) + sum(penalties),
            losses=_shaped(problem, self.losses),
            problem=problem,
            leverages=leverages,
            factorise=functools.partial(_posterior_system, problem, system),
        )


def _shaped(problem: Problem, arrays: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
    """One number an output where the problem's outputs have no columns."""
    return tuple(a[..., 0] for a in arrays) if problem.levels[0].outputs.ndim == 1 else arrays


def _posterior_system(problem: Problem, system: System | None) -> System | None:
    """What the covariance is read from: the fit's own system where there is one; None where there is no prior."""
    ridges = [level.penalty.ridge for level in problem.levels]
    given = [ridge for ridge in ridges if ridge is not None]
    if len(given) < len(ridges) or not np.min(given[-1]) > 1e-12:  # weaker, the leaves have no posterior
        return None
    if system is not None:
        return system
    try:
        return factorise(problem, tuple(2.0 * ridge for ridge in given))
    except LinAlgError:
        return None


def loss_alone(level: Level) -> float:
    """The least loss of one level of a single output fitted by itself, under its own l2 penalty."""
    rows, targets = level.rows.design, level.rows.targets[:, :1]
    ridge = np.broadcast_to(np.asarray(level.penalty.ridge, dtype=np.float64), level.width)
    if not ridge.any() and len(rows) > level.width:
        # With rows of full rank, what no values can fit is the last number of the triangular factor of [X y].
        upper = triangle(np.concatenate([rows, targets], axis=1))
        sizes = np.abs(np.diag(upper))[:-1]
        if sizes.min() > 1e-8 * sizes.max():  # no column is a mix of others
            return 0.5 * float(upper[-1, -1]) ** 2
    if not ridge.min() > _NOTHING:
        penalised = np.flatnonzero(ridge)
        penalty = np.zeros((len(penalised), level.width))  # of a square, most rows would be thrown away
        penalty[np.arange(len(penalised)), penalised] = np.sqrt(2.0 * ridge[penalised])
        padded = np.concatenate([targets, np.zeros((len(penalty), 1))])
        values = np.linalg.lstsq(np.concatenate([rows, penalty]), padded, rcond=None)[0]
    elif len(rows) < level.width:
        gram = weighted_gram(rows, 0.5 / ridge)
        np.einsum("ii->i", gram)[:] += 1.0
        values = (rows.T @ Cholesky(gram).solve(targets)) / (2.0 * ridge)[:, None]
    else:
        normal = level.rows.gram.copy(order="F")
        np.einsum("ii->i", normal)[:] += 2.0 * ridge
        values = Cholesky(normal).solve(rows.T @ targets)
    return 0.5 * float(np.square(targets - rows @ values).sum())
