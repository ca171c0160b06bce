"""LIME: every level fitted by itself; nothing makes the levels agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from c2fa.asking.querying import Conversation
from c2fa.methods.base import Attribution, Fitting, Task, per_level_penalties
from c2fa.problem import Level, Problem
from c2fa.solution import Solution, Status
from c2fa.solvers.solve import solve
from c2fa.structure import Structure


def fit(level: Level) -> Solution:
    """Fit one level by itself: a problem of one level."""
    return solve(Problem(Structure.flat(level.width), (level,)))


def worst(fits: Sequence[Solution]) -> Status:
    """The worst status of several fits."""
    from_bad_to_good = (Status.MAX_ITERATIONS, Status.NOT_UNIQUE, Status.CONVERGED, Status.EXACT)
    return min((one.status for one in fits), key=from_bad_to_good.index)


@dataclass(frozen=True)
class Lime(Fitting):
    """Every level fitted separately, at any depth: the paper's equations 2 and 3.

    With the same sampler, seed and budget it asks the very masks that ``C2FA`` asks. Parts need not be the sums of
    their leaves. Every option is one for all levels, or a sequence with one for each, coarse to fine; methods built on
    this one that do not fit a level themselves take its entry and leave it unused.

    Parameters
    ----------
    kernel, sampler, penalty, intercept, anchor
        As in ``C2FA``, but the defaults are fair coins, LIME's weights and ``L2(width / 50)`` at each level (None). The
        lime package's own ridge is ``L2(0.5)``.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> s = c2fa.Structure.from_groups("aab")
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 4.0])
    >>> e = c2fa.Explainer(model, c2fa.maskers.Array(s), method="lime", budget=30, penalty=c2fa.L2(1e-9))(np.ones(3))
    >>> e.high.round(3), e.low.round(3)
    (array([3., 4.]), array([1., 2., 4.]))
    """

    def fit(self, task: Task, level: int) -> Conversation[Solution]:
        """Ask about one level and fit it alone."""
        return fit((yield from self.gather(task, level, per_level_penalties(self.penalty, task)[level])))

    def coarsest(self, task: Task) -> Conversation[Solution]:
        """The parts' fit; a method that estimates the parts in another way puts its own here."""
        return (yield from self.fit(task, 0))

    def __call__(self, task: Task) -> Conversation[Attribution]:
        fits = [(yield from self.coarsest(task))]
        for level in range(1, task.structure.depth):
            fits.append((yield from self.fit(task, level)))
        errors = tuple(one.stderr[0] for one in fits if one.stderr is not None)
        leverages = tuple(one.leverages[0] for one in fits if one.leverages is not None)
        return Attribution(
            values=tuple(one.values[0] for one in fits),
            intercepts=tuple(one.intercepts[0] for one in fits),
            stderr=errors if len(errors) == len(fits) else None,
            levels=tuple(one.problem.levels[0] for one in fits),
            status=worst(fits),
            iterations=sum(one.iterations for one in fits),
            leverages=leverages if len(leverages) == len(fits) else None,
        )
