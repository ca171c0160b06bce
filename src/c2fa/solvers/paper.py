"""The paper's Algorithm 1, for two levels, with the sign of its line 12 corrected.

Printed, line 12 subtracts ``μ₁ ᾱ``; the paper's own augmented Lagrangian adds it. With the printed sign the
iterates still converge and are still consistent, but to the solution for ``λ_H + μ₁`` in place of ``λ_H``.

Lines 13 and 15, written there for l2, are proximal steps and are taken as such, so l1 and non-negative penalties
work too. An intercept, which the paper does not have, is eliminated beforehand like in the other solvers. The paper
has no iteration cap; one is needed, since the number of iterations grows as 1/μ₂.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa.problem import Problem
from c2fa.solution import Solution, Status
from c2fa.solvers.direct import Fitted
from c2fa.structure import FloatArray


def paper(
    problem: Problem,
    *,
    mu1: float = 0.1,
    mu2: float = 0.1,
    eps1: float = 1e-4,
    eps2: float = 1e-4,
    max_iterations: int = 100_000,
) -> Solution:
    """Run Algorithm 1 and return ``ᾱ, β̄`` as the paper does.

    The two are consistent only to ``eps2``; ``direct`` and ``admm`` return sums that are exact.

    Parameters
    ----------
    mu1, mu2
        The penalty parameters of the auxiliary variables and of the consistency constraint.
    eps1, eps2
        Stop when the squared change of ``ᾱ, β̄`` and the squared residuals are below these. They are absolute, as in the
        paper, and meant for probabilities: for outputs around 1e-3 or smaller make them smaller too.
    """
    if problem.structure.depth != 2:
        raise ValueError(
            f"Algorithm 1 is for two levels, and the structure has {problem.structure.depth}; "
            "use solver='direct', 'admm' or 'auto'"
        )
    if problem.levels[-1].smooth is not None:
        raise ValueError("Algorithm 1 knows no smoothness; leave smooth out, or use solver='direct', 'admm' or 'auto'")
    if not (mu1 > 0 and mu2 > 0):
        raise ValueError(f"mu1 and mu2 must be positive; got {mu1} and {mu2}")
    high, low = problem.levels
    prox_high, prox_low = high.penalty.prox, low.penalty.prox
    zh, zl = high.rows.design(high.masks), low.rows.design(low.masks)
    parts, leaves = problem.structure.widths
    owners = problem.structure.owners(0)

    def m(v: FloatArray) -> FloatArray:
        return problem.structure.sums(v, 0)

    ridges = high.penalty.ridge, low.penalty.ridge
    if all(isinstance(lam, float | int) for lam in ridges):
        affine = _Affine.of(problem, zh, zl, mu1, mu2)
        status, iteration, alpha_bar, beta_bar = affine.run(eps1, eps2, max_iterations)
        return Fitted.of(problem, beta_bar, (alpha_bar, beta_bar)).solution(status, iteration)
    a_inverse = np.linalg.inv(zh.T @ zh + (mu1 + mu2) * np.eye(parts))
    b_fixed = a_inverse @ (zh.T @ high.rows.targets)
    c_inverse = np.linalg.inv(zl.T @ zl + mu1 * np.eye(leaves) + mu2 * (owners[:, None] == owners))
    d_fixed = c_inverse @ (zl.T @ low.rows.targets)

    alpha_bar = np.zeros((parts, problem.outputs))
    beta = np.zeros((leaves, problem.outputs))
    beta_bar = beta.copy()
    v1, v2, v3 = alpha_bar.copy(), beta.copy(), alpha_bar.copy()
    status, iteration = Status.MAX_ITERATIONS, 0
    for iteration in range(1, max_iterations + 1):
        alpha = b_fixed + a_inverse @ (mu2 * m(beta) + mu1 * alpha_bar - v1 - v3)
        new_alpha_bar = prox_high(alpha + v1 / mu1, 1.0 / mu1)
        beta = d_fixed + c_inverse @ (v3[owners] + mu1 * beta_bar + mu2 * alpha[owners] - v2)
        new_beta_bar = prox_low(beta + v2 / mu1, 1.0 / mu1)
        h1, h2, h3 = alpha - new_alpha_bar, beta - new_beta_bar, alpha - m(beta)
        v1 = v1 + mu1 * h1
        v2 = v2 + mu1 * h2
        v3 = v3 + mu2 * h3
        change = np.square(new_alpha_bar - alpha_bar).sum() + np.square(new_beta_bar - beta_bar).sum()
        alpha_bar, beta_bar = new_alpha_bar, new_beta_bar
        if change < eps1 and np.square(h1).sum() + np.square(h2).sum() + np.square(h3).sum() < eps2:
            status = Status.CONVERGED
            break
    return Fitted.of(problem, beta_bar, (alpha_bar, beta_bar)).solution(status, iteration)


_AT_ONCE = 64  # iterations between two looks at whether the algorithm would have stopped


@dataclass(frozen=True, eq=False)
class _Affine:
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
    def of(cls, problem: Problem, zh: FloatArray, zl: FloatArray, mu1: float, mu2: float) -> _Affine:
        """The map of a problem with weighted rows zh and zl."""
        high, low = problem.levels
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
