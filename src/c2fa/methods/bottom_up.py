"""Bottom-up LIME: the leaves by LIME, every other level by sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.methods.base import Attribution, Task
from c2fa.methods.lime import Lime
from c2fa.penalties import L2
from c2fa.problem import Level, Problem
from c2fa.solvers.solve import solve
from c2fa.structure import FloatArray


@dataclass(frozen=True)
class BottomUp(Lime):
    """LIME for the leaves, sums for the parts, so that consistency is exact.

    Only the leaves are asked about: the rows of the other levels' budgets stay unspent, so that its leaves are
    those of ``Lime`` at the same budget. Parts are sums, and their intercept is the leaves'.
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s = task.structure
        leaves = yield from self.fit(task, s.depth - 1)
        return Attribution(
            values=tuple(s.sums(leaves.values[0], k) for k in range(s.depth)),
            intercepts=leaves.intercepts * s.depth,
            stderr=_errors(task, leaves.problem.levels[0]),
            levels=(*(None,) * (s.depth - 1), *leaves.problem.levels),
            status=leaves.status,
            iterations=leaves.iterations,
        )


def _errors(task: Task, leaves: Level) -> tuple[FloatArray, ...] | None:
    """The standard errors of sums, which need the covariance of the leaves and not their errors alone.

    A level of one row with an intercept of its own and no penalty says nothing, so the joint problem with such
    levels above the leaves is the leaves' own; the direct solver has every level's errors at hand.
    """
    if leaves.penalty.ridge is None:
        return None
    s = task.structure
    silent = [
        Level(np.ones((1, width), np.bool_), np.zeros((1, len(task.columns))), None, L2(0.0), True)  # type: ignore[arg-type]
        for width in s.widths[:-1]
    ]
    return solve(Problem(s, (*silent, leaves))).stderr
