"""The paper's Algorithm 1 for l2 penalties, ten times as fast: for the clock of large runs."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from c2fa import Problem, Status
from c2fa.asking.querying import Conversation
from c2fa.methods import C2FA, Attribution, Task
from c2fa.structure import FloatArray


@dataclass(frozen=True)
class FastPaper(C2FA):
    """``C2FA`` with ``solver="paper"`` and l2 penalties, whose iterations are taken as one affine map."""

    def __call__(self, task: Task) -> Conversation[Attribution]:
        # Algorithm 1 with no iteration only draws, asks and weighs.
        posed = dataclasses.replace(self, solver="paper", solver_options={"max_iterations": 0})
        asked = yield from C2FA.__call__(posed, task)
        assert asked.solution is not None
        problem = asked.solution.problem
        status, iterations, *values = iterate(problem, **self.solver_options)
        intercepts = tuple(level.rows.intercept(v) for level, v in zip(problem.levels, values, strict=True))
        return Attribution(tuple(values), intercepts, None, problem.levels, status, iterations)


def iterate(
    problem: Problem,
    *,
    mu1: float = 0.1,
    mu2: float = 0.1,
    eps1: float = 1e-4,
    eps2: float = 1e-4,
    max_iterations: int = 100_000,
) -> tuple[Status, int, FloatArray, FloatArray]:
    """Run Algorithm 1, with the options of ``solver="paper"``; see ``AffineMap.run`` for what comes back."""
    return AffineMap.of(problem, mu1, mu2).run(eps1, eps2, max_iterations)


_AT_ONCE = 64  # iterations between two looks at whether the algorithm would have stopped
_LONG = 1024  # iterations after which all but a few modes have died away, and iterations at once from then on
_GONE = 1e-13  # how little of a mode is left when it has, and how little slow modes may lead out of their space


@dataclass(frozen=True, eq=False)
class AffineMap:
    """The algorithm for l2 penalties, where an iteration is one affine map of few numbers.

    Lines 13 and 15 make ``v₁ = 2λ_H ᾱ`` and ``v₂ = 2λ_L β̄`` from the first iteration on, and ``β`` is used for its sums
    ``q = Mβ`` alone, so that ``x = (ᾱ, q, β̄, v₃)`` is all there is to know: ``x ← T x + t``. The residuals are
    multiples of what x changes by. The iterates are those of the algorithm, up to rounding; they cost a tenth.
    """

    step: FloatArray
    constant: FloatArray
    sizes: tuple[int, int]
    strengths: tuple[float, float]
    mu: tuple[float, float]

    @classmethod
    def of(cls, problem: Problem, mu1: float, mu2: float) -> AffineMap:
        """The map of a problem of two levels with l2 penalties."""
        high, low = problem.levels
        zh, zl = high.rows.design, low.rows.design
        lam_h, lam_l = float(high.penalty.ridge or 0.0), float(low.penalty.ridge or 0.0)
        (parts, leaves), owners = problem.structure.widths, problem.structure.owners(0)
        expand = np.zeros((leaves, parts))
        expand[np.arange(leaves), owners] = 1.0
        n, width = parts, 3 * parts + leaves
        bar, sums, leaf, dual = slice(0, n), slice(n, 2 * n), slice(2 * n, 2 * n + leaves), slice(2 * n + leaves, width)
        eye = np.eye(width)
        a_inverse = np.linalg.inv(zh.T @ zh + (mu1 + mu2) * np.eye(parts))
        c_inverse = np.linalg.inv(zl.T @ zl + mu1 * np.eye(leaves) + mu2 * (owners[:, None] == owners))
        alpha = a_inverse @ (mu2 * eye[sums] + (mu1 - 2 * lam_h) * eye[bar] - eye[dual])
        alpha_0 = a_inverse @ (zh.T @ high.rows.targets)
        beta = c_inverse @ (expand @ (eye[dual] + mu2 * alpha) + (mu1 - 2 * lam_l) * eye[leaf])
        beta_0 = c_inverse @ (zl.T @ low.rows.targets + mu2 * (expand @ alpha_0))
        shrink_h, shrink_l = mu1 / (mu1 + 2 * lam_h), mu1 / (mu1 + 2 * lam_l)
        q, q_0 = expand.T @ beta, expand.T @ beta_0
        step = np.concatenate(
            [
                shrink_h * (alpha + 2 * lam_h / mu1 * eye[bar]),
                q,
                shrink_l * (beta + 2 * lam_l / mu1 * eye[leaf]),
                eye[dual] + mu2 * (alpha - q),
            ]
        )
        constant = np.concatenate([shrink_h * alpha_0, q_0, shrink_l * beta_0, mu2 * (alpha_0 - q_0)])
        return cls(step, constant, (parts, leaves), (lam_h, lam_l), (mu1, mu2))

    @functools.cached_property
    def leap(self) -> FloatArray:
        """What ``_AT_ONCE`` iterations do to a change."""
        return np.linalg.matrix_power(self.step, _AT_ONCE)

    @functools.cached_property
    def slow(self) -> FloatArray | None:
        """A basis of the changes that last for ``_LONG`` iterations; None where they are not few."""
        parts, _ = self.sizes
        some = np.random.default_rng(0).normal(size=(len(self.step), min(3 * parts + 8, len(self.step))))
        lasting = np.linalg.matrix_power(self.leap, _LONG // _AT_ONCE) @ some
        if not np.isfinite(lasting).all():
            return None
        basis, left, _ = np.linalg.svd(lasting, full_matrices=False)
        few = max(int((left > _GONE * left[0]).sum()), 1)
        basis = basis[:, :few]
        moved = self.leap @ basis
        strays = np.abs(moved - basis @ (basis.T @ moved)).max()
        return basis if few < len(left) and strays < 100 * _GONE else None

    def run(self, eps1: float, eps2: float, most: int) -> tuple[Status, int, FloatArray, FloatArray]:
        """Iterate until the algorithm stops; return how it ended, after how many iterations, and ``ᾱ, β̄``.

        What an iteration changes is ``T`` times what the last one changed, so the changes of ``_AT_ONCE`` iterations
        are a power of ``T`` times those of as many before: one product of matrices. The power costs about as much as
        one iteration for each row of ``T``, so it is not formed before there have been so many. A long run goes on in
        the coordinates of the few slow modes that are left of the changes.
        """
        weights = self._weights()
        changes = np.empty((len(self.step), _AT_ONCE, self.constant.shape[1]))
        course = _Course(np.zeros_like(self.constant), eps1, eps2, most)
        last_change, due = self.constant, _LONG
        while not course.ended:
            if course.done < len(self.step):
                for k in range(_AT_ONCE):
                    changes[:, k] = last_change = self.step @ last_change if course.done or k else self.constant
            else:
                changes = _apply(self.leap, changes)
            course.take(changes, np.einsum("wd,dkc->wk", weights, np.square(changes)))
            if course.done >= due and not course.ended:
                due *= 2
                if self.slow is not None and _within(self.slow, changes):
                    self._go_on(course, self.slow, changes)
        parts, leaves = self.sizes
        status = Status.CONVERGED if course.stopped else Status.MAX_ITERATIONS
        return status, course.done, course.x[:parts], course.x[2 * parts : 2 * parts + leaves]

    def _weights(self) -> FloatArray:
        """Weights of squared changes, (2, width): what ᾱ, β̄ move by, and the residuals."""
        parts, leaves = self.sizes
        mu1, mu2 = self.mu
        (lam_h, lam_l), where = self.strengths, slice(2 * parts, 2 * parts + leaves)
        weights = np.zeros((2, len(self.step)))
        weights[0, :parts] = weights[0, where] = 1.0
        weights[1, :parts], weights[1, where] = (2 * lam_h / mu1) ** 2, (2 * lam_l / mu1) ** 2
        weights[1, 2 * parts + leaves :] = mu2**-2
        return weights

    def _go_on(self, course: _Course, basis: FloatArray, changes: FloatArray) -> None:
        """Iterate to the end in the coordinates of a basis."""
        moved = basis.T @ self.leap @ basis
        some = _apply(basis.T @ self.leap, changes)
        while some.shape[1] < _LONG:
            some, moved = np.concatenate([some, _apply(moved, some)], axis=1), moved @ moved
        sizes = [np.linalg.qr(np.sqrt(weight)[:, None] * basis)[1] for weight in self._weights()]
        while not course.ended:
            course.take(some, np.stack([np.square(_apply(size, some)).sum(axis=(0, 2)) for size in sizes]), basis)
            some = _apply(moved, some)


@dataclass(eq=False)
class _Course:
    """How far the iterations have come: the sum of all changes, and whether they stopped by themselves."""

    x: FloatArray
    eps1: float
    eps2: float
    most: int
    done: int = 0
    stopped: bool = False

    @property
    def ended(self) -> bool:
        return self.stopped or self.done >= self.most

    def take(self, changes: FloatArray, squares: FloatArray, basis: FloatArray | None = None) -> None:
        """Add the changes of some iterations, (width, iterations, outputs), up to where the algorithm stops."""
        count = min(changes.shape[1], self.most - self.done)
        stops = np.flatnonzero((squares[0, :count] < self.eps1) & (squares[1, :count] < self.eps2))
        self.stopped = len(stops) > 0
        count = int(stops[0]) + 1 if self.stopped else count
        change = changes[:, :count].sum(axis=1)
        self.x = self.x + (change if basis is None else basis @ change)
        self.done += count


def _apply(matrix: FloatArray, changes: FloatArray) -> FloatArray:
    """A matrix times each change."""
    product: FloatArray = matrix @ changes.reshape(len(changes), -1)
    return product.reshape(len(matrix), *changes.shape[1:])


def _within(basis: FloatArray, changes: FloatArray) -> bool:
    """Whether all changes are combinations of a basis."""
    strays = changes - _apply(basis, _apply(basis.T, changes))
    return bool(np.abs(strays).max() < 1e3 * _GONE * np.abs(changes).max())
