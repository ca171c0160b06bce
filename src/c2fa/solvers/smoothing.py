"""How smooth an explanation should be, decided by the answers.

Several strengths of smoothing are tried. How likely each makes the answers is its weight, and the explanation is the
weighted mean of theirs: where neighbours turn out to matter alike the smooth ones count, elsewhere the rough ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from c2fa.graph import Graph, Smoother
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.solve import solve
from c2fa.structure import FloatArray

STRENGTHS = (1.0, 3.0, 10.0)


def smoothed(problem: Problem, graph: Graph, strength: float) -> Problem:
    """The problem with its finest level smooth to a given strength."""
    graph.check(problem.structure)
    leaves = problem.levels[-1].smoothed_by(Smoother(graph, strength, problem.structure.leaves))
    return problem.with_levels((*problem.levels[:-1], leaves))


def solve_smooth(
    problem: Problem, graph: Graph, strengths: Sequence[float] = STRENGTHS, solver: str = "auto", **options: Any
) -> Solution:
    """The mean of solutions of several strengths, by how likely each makes the answers; its problem is the likeliest's.

    The problem's penalty must be ``Auto``, whose evidence is what tells.
    """
    problems = [smoothed(problem, graph, strength) if strength else problem for strength in strengths]
    found = [solve(one, solver, **options) for one in problems]
    return averaged(found, likelihoods(found))


def likelihoods(found: Sequence[Solution]) -> FloatArray:
    """How much each solution counts, from its evidence; they sum to 1."""
    if any(one.log_evidence is None for one in found):
        raise ValueError("what is likely can only be told where the penalty is 'auto'; give smooth= a number")
    evidence = np.array([one.log_evidence for one in found], dtype=np.float64)
    best = evidence.max()
    if np.isinf(best):  # outputs that are constant, of which some solutions leave nothing
        evidence = np.where(evidence == best, 0.0, -np.inf)
        best = 0.0
    weights = np.exp(evidence - best)
    total: FloatArray = weights / weights.sum()
    return total


def averaged(found: Sequence[Solution], weights: FloatArray) -> Solution:
    """The weighted mean; its problem, and what was chosen for it, are the likeliest's.

    Standard errors count how far the solutions are from their mean.
    """
    likeliest = found[int(weights.argmax())]
    structure = likeliest.problem.structure

    def mean(parts: Sequence[tuple[FloatArray, ...]]) -> tuple[FloatArray, ...]:
        return tuple(
            sum((w * a for w, a in zip(weights, arrays, strict=True)), start=0.0 * arrays[0])
            for arrays in zip(*parts, strict=True)
        )

    leaves = mean([one.values[-1:] for one in found])[0]
    values = tuple(structure.sums(leaves, k) for k in range(structure.depth))
    errors = [one.stderr for one in found]
    stderr = None
    if all(error is not None for error in errors):
        spread = [
            tuple(np.square(e) + np.square(v - m) for e, v, m in zip(error, one.values, values, strict=True))
            for error, one in zip(errors, found, strict=True)
            if error is not None
        ]
        stderr = tuple(np.sqrt(total) for total in mean(spread))
    intercepts = mean([one.intercepts for one in found])
    levels = zip(likeliest.problem.levels, likeliest.factors or (), values, intercepts, likeliest.losses, strict=True)
    losses = tuple(
        level.loss(v.reshape(len(v), -1), np.atleast_1d(b)).reshape(np.shape(loss)) / factor
        for level, factor, v, b, loss in levels
    )
    return replace(likeliest, values=values, intercepts=intercepts, stderr=stderr, losses=losses)
