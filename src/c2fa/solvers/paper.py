"""The paper's Algorithm 1, for two levels, with the sign of its line 12 corrected.

Printed, line 12 subtracts ``μ₁ ᾱ``; the paper's own augmented Lagrangian adds it. With the printed sign the
iterates still converge and are still consistent, but to the solution for ``λ_H + μ₁`` in place of ``λ_H``.

Lines 13 and 15, written there for l2, are proximal steps and are taken as such, so l1 and non-negative penalties
work too. An intercept, which the paper does not have, is eliminated beforehand like in the other solvers. The paper
has no iteration cap; one is needed, since the number of iterations grows as 1/μ₂.
"""

from __future__ import annotations

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
    high, low = problem.levels
    prox_high, prox_low = high.penalty.prox, low.penalty.prox
    zh, zl = high.rows.design, low.rows.design
    parts, leaves = problem.structure.widths
    m = problem.structure.membership(0).toarray()
    m_transposed = np.ascontiguousarray(m.T)
    a_inverse = np.linalg.inv(zh.T @ zh + (mu1 + mu2) * np.eye(parts))
    b_fixed = a_inverse @ (zh.T @ high.rows.targets)
    c_inverse = np.linalg.inv(zl.T @ zl + mu1 * np.eye(leaves) + mu2 * m_transposed @ m)
    d_fixed = c_inverse @ (zl.T @ low.rows.targets)

    alpha_bar = np.zeros((parts, problem.outputs))
    beta = np.zeros((leaves, problem.outputs))
    beta_bar = beta.copy()
    v1, v2, v3 = alpha_bar.copy(), beta.copy(), alpha_bar.copy()
    status, iteration = Status.MAX_ITERATIONS, 0
    for iteration in range(1, max_iterations + 1):
        alpha = b_fixed + a_inverse @ (mu2 * (m @ beta) + mu1 * alpha_bar - v1 - v3)
        new_alpha_bar = prox_high(alpha + v1 / mu1, 1.0 / mu1)
        beta = d_fixed + c_inverse @ (m_transposed @ (v3 + mu2 * alpha) + mu1 * beta_bar - v2)
        new_beta_bar = prox_low(beta + v2 / mu1, 1.0 / mu1)
        h1, h2, h3 = alpha - new_alpha_bar, beta - new_beta_bar, alpha - m @ beta
        v1 = v1 + mu1 * h1
        v2 = v2 + mu1 * h2
        v3 = v3 + mu2 * h3
        change = _square(new_alpha_bar - alpha_bar) + _square(new_beta_bar - beta_bar)
        alpha_bar, beta_bar = new_alpha_bar, new_beta_bar
        if change < eps1 and _square(h1) + _square(h2) + _square(h3) < eps2:
            status = Status.CONVERGED
            break
        if change < 1e-28 * (_square(alpha_bar) + _square(beta_bar)):  # rounding alone: outputs are too large for eps1
            break
    return Fitted.of(problem, beta_bar, (alpha_bar, beta_bar)).solution(status, iteration)


def _square(v: FloatArray) -> float:
    """The squared norm."""
    return float(np.vdot(v, v))
