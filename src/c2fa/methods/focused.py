"""C2FA with a focus: leaves are asked about only inside the parts that are found to matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from c2fa.methods.base import Attribution, Task
from c2fa.methods.budget import Budget, rows_per_level
from c2fa.methods.c2fa import C2FA
from c2fa.problem import Problem
from c2fa.querying import Conversation
from c2fa.samplers import Within, ensure
from c2fa.solvers.solve import solve
from c2fa.structure import BoolArray, FloatArray, Structure

_SETTLED = 2.0  # standard errors that a part's value must be away from 0
_LEAST = 0.1  # of the largest part's value


@dataclass(frozen=True)
class Focused(C2FA):
    """The joint fit, whose leaves' rows are spent inside the parts that matter.

    Half of the budget goes to the levels of parts. The parts whose values are settled, the largest first, are then
    asked about leaf by leaf, all other parts kept whole, as long as there are no more leaves than rows. All levels are
    fitted together, as ever: they add up, a part that was not asked about shares its value evenly among its leaves,
    and their standard errors say that nothing is known of how.

    It suits inputs in which a few parts matter and leaves are far more than rows: the words of a language model's
    sources. Of an input with one level it is ``C2FA``.
    """

    can_stop_early: ClassVar[bool] = False  # more rows for the parts may find that others matter

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """Half of the rows for the parts, as if they were all there is, but no more than they have masks."""
        if isinstance(budget, tuple) or structure.depth == 1 or budget < structure.depth + 1:
            return super().split(budget, structure)
        parts = _without_leaves(structure)
        rows = rows_per_level(max(budget // 2, structure.depth), parts, preferred=self.preferred_rows(parts))
        rows = tuple(min(n, 2 ** min(width, 30) - 1) for n, width in zip(rows, parts.widths, strict=True))
        return (*rows, budget - 1 - sum(rows))

    def __call__(self, task: Task) -> Conversation[Attribution]:
        self._check(task)
        depth = task.structure.depth
        if depth == 1:
            return (yield from super().__call__(task))
        levels = []
        for k in range(depth - 1):
            levels.append((yield from self._gather(task, k)))
        parts = solve(Problem(_without_leaves(task.structure), tuple(levels)), self.solver, **self.solver_options)
        column = int(np.flatnonzero(task.columns == task.target)[0])
        errors = np.zeros_like(parts.values[-1]) if parts.stderr is None else parts.stderr[-1]
        asked = _leaves_to_ask(task, parts.values[-1][:, column], errors[:, column])
        sampler = Within(self._sampler(depth - 1, depth), asked)
        levels.append((yield from self._gather(task, depth - 1, sampler)))
        return self._fit(task, levels)


def _without_leaves(structure: Structure) -> Structure:
    """The tree of the parts, whose finest are now the leaves."""
    return Structure(structure.parents[:-1], structure.names[:-1])


def _leaves_to_ask(task: Task, values: FloatArray, errors: FloatArray) -> BoolArray:
    """The leaves of the parts that matter: the largest, and others that are settled, while rows suffice."""
    owner = task.structure.parents[-1]
    sizes, left = np.bincount(owner), task.budget[-1]
    found = np.abs(values)
    if not found.any():  # where no part does anything, there is nowhere to look first
        return np.ones(len(owner), dtype=np.bool_)
    settled = (found > _SETTLED * errors) & (found >= _LEAST * found.max())
    first, *others = np.argsort(-found, kind="stable")
    chosen = [first]
    for part in others:
        if settled[part] and sizes[[*chosen, part]].sum() <= left:
            chosen.append(part)
    asked: BoolArray = np.isin(owner, chosen)
    return asked
