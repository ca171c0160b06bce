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
    """A solution, and what of its leaves' values was expected rather than found, (leaves, outputs)."""

    solution: Solution
    part: FloatArray
    share: float


def solve_about(problem: Problem, values: FloatArray, solve: Callable[[Problem], Solution]) -> Expected:
    """Solve a problem whose leaves are expected to have these values, (leaves, outputs); its penalty must be ``Auto``.

    The answers' own part of a leaf's value is what the same fit gives of the outputs as they are.
    """
    found, parts = [], []
    for share in SHARES:
        expected = share * values
        moved = _less(problem, expected)
        one = solve(moved)
        found.append(_with_outputs_of(problem, one, expected))
        parts.append(expected - _fit_of(one, found[-1]) if share else 0.0 * expected)
    weights = likelihoods(found, _BEFOREHAND)
    part = sum((w * own for w, own in zip(weights, parts, strict=True)), start=0.0 * values)
    return Expected(averaged(found, weights), part, float(weights @ np.array(SHARES)))


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


def _with_outputs_of(problem: Problem, solution: Solution, expected: FloatArray) -> Solution:
    """The solution of the moved problem as one of the problem itself: its residuals are the same."""
    s = problem.structure
    levels = zip(solution.problem.levels, problem.levels, strict=True)
    whole = solution.problem.with_levels([solved.with_outputs(level.outputs) for solved, level in levels])
    values = tuple(v + s.sums(expected, k).reshape(v.shape) for k, v in enumerate(solution.values))
    return replace(solution, values=values, problem=whole)


def _fit_of(moved: Solution, whole: Solution) -> FloatArray:
    """What the fit makes of the expected values where rows show them, (leaves, outputs)."""
    system = moved.factorise()
    if system is None:
        return np.zeros((moved.problem.structure.leaves, moved.problem.outputs))
    shown = whole.problem.targets - moved.problem.targets
    return moved.problem.levels[-1].smoothed(system.fit(shown))
