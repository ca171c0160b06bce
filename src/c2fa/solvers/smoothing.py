"""How smooth an explanation should be, decided by the answers.

Several strengths of smoothing are tried. How likely each makes the answers is its weight, and the explanation is the
weighted mean of theirs: where neighbours turn out to matter alike the smooth ones count, elsewhere the rough ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from c2fa.graph import Graph, Smoother
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.averaging import averaged, likelihoods
from c2fa.solvers.solve import solve

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
