"""ADMM for any penalties that have a prox: one proximal step a level, factorised once.

The problem is split as ``min f(β) + Σ_l Ω_l(a_l)  s.t.  a_l = M_l β`` over the levels whose penalty is not l2 (an
l2 penalty stays in the quadratic part). With scaled multipliers ``u_l`` and step ρ one iteration is

    β   = argmin f(β) + ρ/2 Σ_l ‖M_l β − a_l + u_l‖²     (one solve with a factor made once)
    a_l = prox_{Ω_l/ρ}(M_l β + u_l)
    u_l = u_l + M_l β − a_l

It stops when the primal residual ``M_l β − a_l`` and the dual one ``ρ M_l'(a_l − a_l_before)`` are both below
``atol √size + rtol · scale`` (Boyd et al., section 3.3).
"""

from __future__ import annotations

import numpy as np

from c2fa.problem import Problem
from c2fa.solution import Solution, Status
from c2fa.solvers.direct import factorise, finish
from c2fa.structure import FloatArray

_RELAX = 1.6  # over-relaxation; 1.5 to 1.8 is the usual range


def admm(
    problem: Problem,
    *,
    atol: float = 1e-7,
    rtol: float = 1e-6,
    max_iterations: int = 20_000,
    rho: float | None = None,
) -> Solution:
    """Solve a problem with any penalties.

    Which iterate is returned: the leaves' proximal variable where the leaves have a penalty other than l2, so
    that zeros are zeros and nothing is negative, else β. The values of the other levels are sums of the returned
    leaves, so consistency is exact whatever the tolerance; a non-smooth wish about *parts* (an exact zero sum) is
    then met to the tolerance.

    Parameters
    ----------
    atol, rtol
        Absolute and relative tolerance of both residuals.
    max_iterations
        Where to stop at the latest; the status then says so.
    rho
        The step; by default chosen from the size of the rows.
    """
    s, levels = problem.structure, problem.levels
    for name, value in (("atol", atol), ("rtol", rtol)):
        if not value >= 0:
            raise ValueError(f"{name} must be at least 0; got {value}")
    split = [k for k, level in enumerate(levels) if level.penalty.ridge is None]
    if not split:  # all l2: still iterate on the leaves, so that the solver can be compared with the direct one
        split = [s.depth - 1]
    step = _step(problem) if rho is None else rho
    if not step > 0:
        raise ValueError(f"rho must be positive; got {rho}")
    ridges = [0.0 if k in split else 2.0 * (level.penalty.ridge or 0.0) for k, level in enumerate(levels)]
    quadratic = list(ridges)
    for k in split:
        quadratic[k] += step
    # The factor needs something on every leaf; where only parts are split and the leaves' λ is 0, split them too.
    if quadratic[-1] == 0:
        split.append(s.depth - 1)
        quadratic[-1] = step
    system = factorise(problem, tuple(quadratic))

    outputs = problem.outputs
    owners = {k: s.owners(k) for k in split}
    a = {k: np.zeros((s.widths[k], outputs)) for k in split}
    u = {k: np.zeros((s.widths[k], outputs)) for k in split}
    fitted = system.fit(problem.targets)  # what the data alone contribute, the same in every iteration
    size = np.sqrt(sum(v.size for v in a.values()))
    status = Status.MAX_ITERATIONS
    beta, iteration = fitted, 0
    for iteration in range(1, max_iterations + 1):
        pull = sum((step * (a[k] - u[k])[owners[k]] for k in split), start=np.zeros_like(fitted))
        beta = fitted + system.solve(pull)
        primal = dual = norm_m = norm_a = norm_u = 0.0
        change = np.zeros_like(beta)
        for k in split:
            part = s.sums(beta, k)
            relaxed = _RELAX * part + (1 - _RELAX) * a[k]
            new = levels[k].penalty.prox(relaxed + u[k], 1.0 / step)
            u[k] = u[k] + relaxed - new
            change += (new - a[k])[owners[k]]
            primal += _square(part - new)
            norm_m, norm_a, norm_u = norm_m + _square(part), norm_a + _square(new), norm_u + _square(u[k])
            a[k] = new
        dual = step * np.sqrt(_square(change))
        if np.sqrt(primal) <= atol * size + rtol * np.sqrt(max(norm_m, norm_a)) and dual <= (
            atol * size + rtol * step * np.sqrt(norm_u)
        ):
            status = Status.CONVERGED
            break
    leaf = s.depth - 1
    leaves = a.get(leaf, beta)
    return finish(problem, leaves, status, iteration, allowed=a)


def _step(problem: Problem) -> float:
    """A step of the size of the rows' typical curvature in one leaf: neither residual then starves the other."""
    curvature = np.einsum("ij,ij->", problem.design, problem.design) / problem.structure.leaves
    ridge = max((2.0 * (lv.penalty.ridge or 0.0) for lv in problem.levels), default=0.0)
    return float(max(curvature, ridge, 1e-8))


def _square(x: FloatArray) -> float:
    return float(np.einsum("ij,ij->", x, x))
