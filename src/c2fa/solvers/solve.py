"""One door to the solvers, for one problem or for the mean over several strengths of smoothing.

How smooth an explanation should be is decided by the answers. Several strengths are tried, how likely each makes the
answers is its weight, and the explanation is the weighted mean of theirs: where neighbours turn out to matter alike the
smooth ones count, elsewhere the rough ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from c2fa._system import is_real, is_whole, suited
from c2fa.graph import Graph, Smoother
from c2fa.penalties import Auto, Penalty
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.admm import admm, paper
from c2fa.solvers.auto import check_alike, choose
from c2fa.solvers.direct import direct
from c2fa.solvers.intervals import calibrated, with_choice
from c2fa.structure import FloatArray

SOLVERS: Mapping[str, Callable[..., Solution]] = {"direct": direct, "admm": admm, "paper": paper}
STRENGTHS = (1.0, 3.0, 10.0)  # of smoothing, among which the answers decide


def solve(problem: Problem, solver: str = "auto", **options: Any) -> Solution:
    """Solve a problem.

    Parameters
    ----------
    solver
        ``"direct"`` (exact, l2 only), ``"admm"`` (any penalties), ``"paper"`` (Algorithm 1, two levels), or
        ``"auto"``: direct where every penalty is l2 or ``Auto``, else admm.
    options
        What the chosen solver takes, for instance ``max_iterations``; an unknown option is refused.
    """
    penalties = [level.penalty for level in problem.levels]
    name = _suited_to(penalties) if solver == "auto" else solver
    check_options(name, options)
    rows, leaves = problem.queries, problem.structure.leaves
    with suited(float(rows) * leaves * min(rows, leaves)):
        if not any(isinstance(penalty, Auto) for penalty in penalties):
            return SOLVERS[name](problem, **options)
        if name == "direct":
            return calibrated(problem)
        chosen = choose(problem)
        return with_choice(SOLVERS[name](chosen.problem, **options), chosen)


def _suited_to(penalties: Sequence[Penalty]) -> str:
    """The solver that ``"auto"`` stands for."""
    exact = any(isinstance(p, Auto) for p in penalties) or all(p.ridge is not None for p in penalties)
    return "direct" if exact else "admm"


def check_together(solver: str, options: Mapping[str, Any], penalties: Sequence[Penalty]) -> None:
    """Refuse a solver, its options and levels' penalties that do not go together, before anything is asked."""
    check_options(_suited_to(penalties) if solver == "auto" else solver, options)
    check_alike(penalties)


def check_options(solver: str, options: Mapping[str, Any]) -> None:
    """Refuse a solver that does not exist, options that it does not take, and values that they cannot have."""
    if solver not in SOLVERS:
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}; got {solver!r}")
    known = [p.name for p in inspect.signature(SOLVERS[solver]).parameters.values() if p.kind == p.KEYWORD_ONLY]
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"the {solver} solver has no option {option!r}; it has {', '.join(known) or 'none'}")
        if option == "max_iterations":
            if not (is_whole(value) and value >= 0):
                raise ValueError(f"max_iterations must be a whole number of at least 0; got {value!r}")
        elif option in ("mu1", "mu2"):
            if not (is_real(value) and 0 < value < np.inf):
                raise ValueError(f"{option} must be positive; got {value!r}")
        elif not (is_real(value) and value >= 0):
            raise ValueError(f"{option} must be at least 0; got {value!r}")


def smoothed(problem: Problem, graph: Graph, strength: float) -> Problem:
    """The problem with its finest level smooth to a given strength."""
    graph.check(problem.structure)
    leaves = problem.levels[-1].changed(smooth=Smoother(graph, strength, problem.structure.leaves))
    return problem.with_levels((*problem.levels[:-1], leaves))


def solve_smooth(
    problem: Problem, graph: Graph, strengths: Sequence[float] = STRENGTHS, solver: str = "auto", **options: Any
) -> Solution:
    """The mean of solutions of several strengths, by how likely each makes the answers; its problem is the likeliest's.

    For more than one the problem's penalty must be ``Auto``, whose evidence is what tells.
    """
    problems = [smoothed(problem, graph, strength) if strength else problem for strength in strengths]
    solutions = [solve(one, solver, **options) for one in problems]
    if len(solutions) == 1:
        return solutions[0]
    evidence = np.array([one.log_evidence for one in solutions], dtype=np.float64)  # NaN where there is none
    if np.isnan(evidence).any():
        raise ValueError("what is likely can only be told where the penalty is 'auto'; give smooth= a number")
    best = evidence.max()
    if np.isinf(best):  # outputs that are constant, of which some solutions leave nothing
        evidence, best = np.where(evidence == best, 0.0, -np.inf), 0.0
    weights = np.exp(evidence - best)
    return averaged(solutions, weights / weights.sum())


def averaged(solutions: Sequence[Solution], weights: FloatArray) -> Solution:
    """The weighted mean; its problem, and what was chosen for it, are the likeliest's.

    Standard errors count how far the solutions are from their mean.
    """
    likeliest = solutions[int(weights.argmax())]
    structure = likeliest.problem.structure

    def mean(parts: Sequence[tuple[FloatArray, ...]]) -> tuple[FloatArray, ...]:
        return tuple(
            sum((w * a for w, a in zip(weights, arrays, strict=True)), start=0.0 * arrays[0])
            for arrays in zip(*parts, strict=True)
        )

    leaves = mean([one.values[-1:] for one in solutions])[0]
    values = structure.level_sums(leaves)
    spread = [
        tuple(np.square(e) + np.square(v - m) for e, v, m in zip(one.stderr, one.values, values, strict=True))
        for one in solutions
        if one.stderr is not None
    ]
    stderr = tuple(np.sqrt(total) for total in mean(spread)) if len(spread) == len(solutions) else None
    intercepts = mean([one.intercepts for one in solutions])
    levels = zip(likeliest.problem.levels, likeliest.factors or (), values, intercepts, likeliest.losses, strict=True)
    losses = tuple(
        level.loss(v.reshape(len(v), -1), np.atleast_1d(b)).reshape(np.shape(loss)) / factor
        for level, factor, v, b, loss in levels
    )
    return replace(likeliest, values=values, intercepts=intercepts, stderr=stderr, losses=losses)
