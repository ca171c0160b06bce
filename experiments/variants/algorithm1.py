"""The paper's Algorithm 1 for l2 penalties, ten times as fast: for the clock of large runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from c2fa import Problem, Status
from c2fa.methods import C2FA, Attribution, Task
from c2fa.querying import Conversation
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

    def run(self, eps1: float, eps2: float, most: int) -> tuple[Status, int, FloatArray, FloatArray]:
        """Iterate until the algorithm stops; return how it ended, after how many iterations, and ``ᾱ, β̄``.

        What an iteration changes is ``T`` times what the last one changed, so the changes of ``_AT_ONCE`` iterations
        are a power of ``T`` times those of as many before: one product of matrices. The power costs about as much as
        one iteration for each row of ``T``, so it is not formed before there have been so many.
        """
        parts, leaves = self.sizes
        mu1, mu2 = self.mu
        (lam_h, lam_l), where = self.strengths, slice(2 * parts, 2 * parts + leaves)
        sizes = np.zeros((2, len(self.step)))  # weights of squared changes: what ᾱ, β̄ move by, and the residuals
        sizes[0, :parts] = sizes[0, where] = 1.0
        sizes[1, :parts], sizes[1, where] = (2 * lam_h / mu1) ** 2, (2 * lam_l / mu1) ** 2
        sizes[1, 2 * parts + leaves :] = mu2**-2
        changes = np.empty((len(self.step), _AT_ONCE, self.constant.shape[1]))
        x, last_change, leap, done = np.zeros_like(self.constant), self.constant, None, 0
        while True:
            if done < len(x):
                for k in range(_AT_ONCE):
                    changes[:, k] = last_change = self.step @ last_change if done or k else self.constant
            else:
                leap = np.linalg.matrix_power(self.step, _AT_ONCE) if leap is None else leap
                changes = (leap @ changes.reshape(len(x), -1)).reshape(changes.shape)
            count = min(_AT_ONCE, most - done)
            squares = (sizes @ np.square(changes).reshape(len(x), -1)).reshape(2, _AT_ONCE, -1).sum(axis=2)
            stops = np.flatnonzero((squares[0] < eps1) & (squares[1] < eps2))
            stopped = len(stops) > 0 and stops[0] < count
            last = int(stops[0]) + 1 if stopped else count
            x = x + changes[:, :last].sum(axis=1)
            done += last
            if stopped or done >= most:
                return Status.CONVERGED if stopped else Status.MAX_ITERATIONS, done, x[:parts], x[where]
