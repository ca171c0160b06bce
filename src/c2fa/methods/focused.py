"""C2FA with a focus: leaves are asked about only inside the parts that are found to matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.methods.base import Attribution, Task
from c2fa.methods.budget import Budget, rows_per_level
from c2fa.methods.c2fa import C2FA
from c2fa.problem import Problem
from c2fa.samplers import Sampler, Together
from c2fa.solvers.solve import solve
from c2fa.structure import IntArray, Structure


@dataclass(frozen=True)
class Focused(C2FA):
    """The joint fit, whose leaves' rows are spent inside the parts that matter.

    Two rows for each part, and half of the budget at most, go to the levels of parts. The parts whose values are then
    settled, the largest first, are asked about leaf by leaf, as long as there are no more leaves than rows; other
    parts are hidden as wholes in the same rows. All levels are fitted together, as ever: they add up, a part that was
    not asked about shares its value evenly among its leaves, and their standard errors say that nothing is known of
    how.

    It suits inputs in which a few parts matter and leaves are far more than rows: the words of a language model's
    sources. Of an input with one level it is ``C2FA``.
    """

    can_stop_early: ClassVar[bool] = False  # more rows for the parts may find that others matter

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """Two rows for each of the finest parts, half of the budget at most, split as if parts were all there is."""
        if isinstance(budget, tuple) or structure.depth == 1 or budget < structure.depth + 1:
            return super().split(budget, structure)
        parts = _without_leaves(structure)
        first = max(min(budget // 2, 2 * structure.widths[-2] + 1), structure.depth)
        rows = rows_per_level(first, parts, preferred=self.preferred_rows(structure)[:-1])
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
        found = np.abs(parts.values[-1][:, column])
        # Two standard errors from 0, and at least a tenth of the largest; where no part does anything, all of them.
        settled = (found > 2.0 * errors[:, column]) & (found >= 0.1 * found.max())
        widths = np.bincount(task.structure.parents[-1])
        first, *others = np.argsort(-found, kind="stable").tolist()
        chosen = [first] if found.any() else list(range(len(found)))
        for part in others:
            if settled[part] and widths[[*chosen, part]].sum() <= task.budget[-1]:
                chosen.append(part)
        levels.append((yield from self._gather(task, depth - 1, self._inside(task.structure, np.array(chosen)))))
        return self._fit(task, levels)

    def _inside(self, structure: Structure, chosen: IntArray) -> Sampler:
        """Masks of the leaves of the chosen parts; those of each other part are hidden together."""
        owner = structure.parents[-1]
        own = np.where(np.isin(owner, chosen), len(owner) + np.arange(len(owner)), owner)
        units = np.unique(own, return_inverse=True)[1].ravel()
        return Together(self._sampler(structure.depth - 1, structure.depth), units)


def _without_leaves(structure: Structure) -> Structure:
    """The tree of the parts, whose finest are now the leaves."""
    return Structure(structure.parents[:-1], structure.names[:-1])
