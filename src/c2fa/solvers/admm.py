"""Solvers that iterate: ADMM for any penalties that have a prox, and the paper's Algorithm 1.

ADMM takes one proximal step a level, with a factor that is made a few times. The problem is split as
``min f(β) + Σ_l Ω_l(a_l)  s.t.  a_l = M_l β`` over the levels whose penalty is not l2 (an l2 penalty stays in the
quadratic part). With scaled multipliers ``u_l`` and step ρ one iteration is

    β   = argmin f(β) + ρ/2 Σ_l ‖M_l β − a_l + u_l‖²     (one solve with a factor made beforehand)
    a_l = prox_{Ω_l/ρ}(M_l β + u_l)
    u_l = u_l + M_l β − a_l

It stops when the primal residual ``M_l β − a_l`` and the dual one ``M_l'(a_l − a_l_before)`` are both below
``atol · unit · √size + rtol · norm`` for every output (Boyd et al., section 3.3), the unit being the spread of that
output, so that probabilities of 1e-9 and logits of 1e6 are solved alike.

ρ begins at the rows' curvature. At iterations 20, 40, 80, … it is moved to where the two residuals are of one size
if it is far from there, and the factor made anew: a dozen factors at the most save thousands of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from c2fa.problem import Level, Problem
from c2fa.solution import Solution, Status, System
from c2fa.solvers.direct import Fitted, factorise
from c2fa.solvers.matrices import Strength, squares
from c2fa.structure import FloatArray


def admm(problem: Problem, *, atol: float = 1e-7, rtol: float = 1e-6, max_iterations: int = 20_000) -> Solution:
    """Solve a problem with any penalties.

    Which iterate is returned: the leaves' proximal variable where the leaves have a penalty other than l2, so
    that zeros are zeros and nothing is negative, else β. The values of the other levels are sums of the returned
    leaves, so consistency is exact whatever the tolerance; a non-smooth wish about *parts* (an exact zero sum) is
    then met to the tolerance.

    Parameters
    ----------
    atol, rtol
        Tolerance of both residuals: in units of the outputs' spread, and relative to the values themselves.
    max_iterations
        Where to stop at the latest; the status then says so.
    """
    state = _State.begin(problem, _step(problem))
    size = np.sqrt(sum(len(v) for v in state.a.values()))
    floor = atol * size * _spread(problem)
    status, iteration = Status.MAX_ITERATIONS, 0
    look = 20  # the iteration at which ρ is looked at first; then at twice as many, and so on
    for iteration in range(1, max_iterations + 1):
        residuals = state.advance()
        primal, dual = residuals.primal, residuals.dual
        if (primal <= floor + rtol * residuals.values).all() and (dual <= floor + rtol * residuals.multipliers).all():
            status = Status.CONVERGED
            break
        if iteration == look:
            look *= 2
            state.rebalance(residuals)
    leaves = state.a.get(problem.structure.depth - 1, state.beta)
    return Fitted.of(problem, leaves).solution(status, iteration, allowed=state.a)


@dataclass(frozen=True, eq=False)
class _Residuals:
    """Norms for each output: of both residuals, and of what they are to be measured by."""

    primal: FloatArray
    dual: FloatArray
    values: FloatArray
    multipliers: FloatArray


@dataclass(eq=False)
class _State:
    """The iterates: β, and for each split level its proximal variable and scaled multiplier."""

    problem: Problem
    ridges: tuple[Strength, ...]
    step: float
    system: System
    fitted: FloatArray  # what the data alone contribute, the same until the step changes
    beta: FloatArray
    a: dict[int, FloatArray]
    u: dict[int, FloatArray]

    @classmethod
    def begin(cls, problem: Problem, step: float) -> _State:
        levels, leaf = problem.levels, problem.structure.depth - 1
        split = {k for k, level in enumerate(levels) if level.penalty.ridge is None}
        # The factor needs something on every leaf; where their λ is 0, they are split too. So are they where every
        # penalty is l2: the solver can then be compared with the direct one.
        if not split or (leaf not in split and not np.min(_ridge(levels[leaf]))):
            split.add(leaf)
        ridges = tuple(0.0 if k in split else _ridge(lv) for k, lv in enumerate(levels))
        a = {k: np.zeros((problem.structure.widths[k], problem.outputs)) for k in sorted(split)}
        system, fitted = _factor(problem, ridges, a, step)
        return cls(problem, ridges, step, system, fitted, fitted, a, {k: v.copy() for k, v in a.items()})

    def advance(self, relax: float = 1.6) -> _Residuals:
        """Take one step, over-relaxed; 1.5 to 1.8 is the usual range."""
        s, levels = self.problem.structure, self.problem.levels
        pull = np.zeros_like(self.fitted)
        for k, a in self.a.items():
            pull += (self.step * (a - self.u[k]))[s.owners(k)]
        self.beta = self.fitted + self.system.solve(pull)
        primal, values, proximal, multipliers = np.zeros((4, self.problem.outputs))
        change = np.zeros_like(self.beta)
        for k, a in self.a.items():
            part = s.sums(self.beta, k)
            relaxed = relax * part + (1 - relax) * a
            new = levels[k].penalty.prox(relaxed + self.u[k], 1.0 / self.step)
            self.u[k] = self.u[k] + relaxed - new
            change += (new - a)[s.owners(k)]
            primal += squares(part - new)
            values += squares(part)
            proximal += squares(new)
            multipliers += squares(self.u[k])
            self.a[k] = new
        norms = (primal, squares(change), np.maximum(values, proximal), multipliers)
        return _Residuals(*(np.sqrt(norm) for norm in norms))

    def rebalance(self, residuals: _Residuals) -> None:
        """Move the step to where both residuals, each by its own measure, are of one size."""
        primal, dual = residuals.primal * residuals.multipliers, residuals.dual * residuals.values
        busy = (primal > 0) & (dual > 0)
        if not busy.any():
            return
        first = _step(self.problem)
        wished = self.step * float(np.sqrt(np.median(primal[busy] / dual[busy])))
        # Far from where it begins the step is not moved: what is much smaller than the rows is lost beside them.
        factor = min(max(wished, first / 1e8), first * 1e8) / self.step
        if 0.5 < factor < 2.0:  # not so wrong that another factor would pay
            return
        try:
            self.system, self.fitted = _factor(self.problem, self.ridges, self.a, self.step * factor)
        except LinAlgError:  # so small a step is lost beside the rows: the one at hand goes on
            return
        self.step *= factor
        self.u = {k: u / factor for k, u in self.u.items()}


def _factor(
    problem: Problem, ridges: tuple[Strength, ...], split: dict[int, FloatArray], step: float
) -> tuple[System, FloatArray]:
    system = factorise(problem, tuple(c + step if k in split else c for k, c in enumerate(ridges)))
    return system, system.fit(problem.targets)


def _step(problem: Problem) -> float:
    """A step of the size of the rows' typical curvature in one leaf: neither residual then starves the other."""
    curvature = np.einsum("ij,ij->", problem.design, problem.design) / problem.structure.leaves
    ridge = max(float(np.max(_ridge(lv))) for lv in problem.levels)
    return float(max(curvature, ridge, 1e-8))


def _ridge(level: Level) -> Strength:
    """A level's strengths where its penalty is l2, and 0 where it is not."""
    ridge = level.penalty.ridge
    return 0.0 if ridge is None else 2.0 * ridge


def _spread(problem: Problem) -> FloatArray:
    """The largest absolute output of each column, or distance from the mean where there is an intercept."""
    largest = np.zeros(problem.outputs)
    for level in problem.levels:
        outputs = level.outputs.reshape(len(level.masks), -1)
        largest = np.maximum(largest, np.abs(outputs - level.rows.mean_outputs).max(axis=0))
    return largest


def paper(
    problem: Problem,
    *,
    mu1: float = 0.1,
    mu2: float = 0.1,
    eps1: float = 1e-4,
    eps2: float = 1e-4,
    max_iterations: int = 100_000,
) -> Solution:
    """The paper's Algorithm 1, for two levels, with the sign of its line 12 corrected; it returns ``ᾱ, β̄``.

    The two are consistent only to ``eps2``; ``direct`` and ``admm`` return sums that are exact. Printed, line 12
    subtracts ``μ₁ ᾱ``; the paper's own augmented Lagrangian adds it. With the printed sign the iterates still converge
    and are still consistent, but to the solution for ``λ_H + μ₁`` in place of ``λ_H``.

    Lines 13 and 15, written there for l2, are proximal steps and are taken as such, so l1 and non-negative penalties
    work too. An intercept, which the paper does not have, is eliminated beforehand. The paper has no iteration cap; one
    is needed, since the number of iterations grows as 1/μ₂.

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
    return float(np.vdot(v, v))
