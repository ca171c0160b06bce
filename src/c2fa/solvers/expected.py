"""Values that are expected beforehand, as far as the answers bear them out.

Several shares of the expected values are taken off the outputs, 0 among them, and what is left is fitted as ever. How
likely each share makes the answers is its weight, and the explanation is the weighted mean of theirs: where nothing of
what was expected is found, the share of 0 counts, and the result is as without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.averaging import averaged, likelihoods
from c2fa.structure import FloatArray

SHARES = (0.0, 0.5, 1.0, 2.0, 3.0)  # above 1 because what is expected was learned from values that were shrunk
_BEFOREHAND = (0.5, 0.125, 0.125, 0.125, 0.125)  # what was learned elsewhere may be of no use here


@dataclass(frozen=True, eq=False)
class Expected:
    """A solution about expected values, the share of them that the answers bear out, and the solution without them."""

    solution: Solution
    share: float
    without: Solution


def solve_about(problem: Problem, values: FloatArray, solve: Callable[[Problem], Solution]) -> Expected:
    """Solve a problem, its penalty ``Auto``, whose leaves are expected to have these values, (leaves, outputs)."""
    found = [_about(problem, share * values, solve) if share else solve(problem) for share in SHARES]
    weights = likelihoods(found, _BEFOREHAND)
    return Expected(averaged(found, weights), float(weights @ np.array(SHARES)), found[0])


def _about(problem: Problem, expected: FloatArray, solve: Callable[[Problem], Solution]) -> Solution:
    """The solution for what is left of the outputs, as one of the problem itself: its residuals are the same."""
    s = problem.structure
    solution = solve(_less(problem, expected))
    levels = zip(solution.problem.levels, problem.levels, strict=True)
    whole = solution.problem.with_levels([solved.with_outputs(level.outputs) for solved, level in levels])
    values = tuple(v + s.sums(expected, k).reshape(v.shape) for k, v in enumerate(solution.values))
    return replace(solution, values=values, problem=whole)


def _less(problem: Problem, expected: FloatArray) -> Problem:
    """The problem with what is expected taken off its outputs."""
    s = problem.structure
    shifts = [level.masks @ s.sums(expected, k) for k, level in enumerate(problem.levels)]
    return problem.with_levels(
        [
            level.with_outputs(level.outputs - shift.reshape(level.outputs.shape))
            for level, shift in zip(problem.levels, shifts, strict=True)
        ]
    )
