"""LIME, which fits every level by itself, and the two-step methods: one level by LIME, the others by sums or draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.methods.base import Attribution, Fitting, Task, per_level_penalties
from c2fa.penalties import L2
from c2fa.problem import Level, Problem
from c2fa.solution import Solution, Status
from c2fa.solvers.solve import solve
from c2fa.structure import FloatArray, IntArray, Structure


def fit(level: Level) -> Solution:
    """Fit one level by itself: a problem of one level."""
    return solve(Problem(Structure.flat(level.width), (level,)))


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
        from_bad_to_good = (Status.MAX_ITERATIONS, Status.NOT_UNIQUE, Status.CONVERGED, Status.EXACT)
        errors = tuple(one.stderr[0] for one in fits if one.stderr is not None)
        leverages = tuple(one.leverages[0] for one in fits if one.leverages is not None)
        return Attribution(
            values=tuple(one.values[0] for one in fits),
            intercepts=tuple(one.intercepts[0] for one in fits),
            stderr=errors if len(errors) == len(fits) else None,
            levels=tuple(one.problem.levels[0] for one in fits),
            status=min((one.status for one in fits), key=from_bad_to_good.index),
            iterations=sum(one.iterations for one in fits),
            leverages=leverages if len(leverages) == len(fits) else None,
        )


@dataclass(frozen=True)
class BottomUp(Lime):
    """LIME for the leaves, sums for the parts, so that consistency is exact.

    Only the leaves are asked about: the rows of the other levels' budgets stay unspent, so that its leaves are
    those of ``Lime`` at the same budget. Parts are sums, and their intercept is the leaves'.
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s = task.structure
        leaves = yield from self.fit(task, s.depth - 1)
        (level,) = leaves.problem.levels
        errors = None
        if level.penalty.ridge is not None:
            # The standard errors of sums need the covariance of the leaves. A level of one row with an intercept of its
            # own and no penalty says nothing, so the joint problem with such levels above the leaves is the leaves'
            # own, and the direct solver has every level's errors at hand.
            silent = [
                Level(np.ones((1, width), np.bool_), np.zeros((1, len(task.columns))), penalty=L2(0.0), intercept=True)
                for width in s.widths[:-1]
            ]
            errors = solve(Problem(s, (*silent, level))).stderr
        return Attribution(
            values=s.level_sums(leaves.values[0]),
            intercepts=leaves.intercepts * s.depth,
            stderr=errors,
            levels=(*(None,) * (s.depth - 1), level),
            status=leaves.status,
            iterations=leaves.iterations,
        )


@dataclass(frozen=True)
class TopDown(Lime):
    """LIME for the parts; each part's children drawn at random around it, as the paper's baseline does.

    A child of part j is drawn from a normal distribution with mean ``α_j`` (the part's whole value) and standard
    deviation ``1 / D_j``, D_j being the number of children; one child picked at random is then set so that the
    children add up to the part. Deeper trees are descended level by level in the same way. One draw serves every
    output, so that the answer for one does not depend on which others are kept.

    Only the coarsest level is asked about: the rows of the other levels' budgets stay unspent. It is a yardstick
    and not an explanation: its leaves know nothing but the part they are in.
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        return drawn(task, (yield from self.coarsest(task)))


def drawn(task: Task, parts: Solution) -> Attribution:
    """Draw every level below the parts from the one above it."""
    s = task.structure
    rng = task.rng(1000)  # a stream away from the levels' streams, so that masks stay the same
    values = parts.values[0]
    for owner in s.parents:
        values = scatter(rng, values, owner)
    return Attribution(
        values=s.level_sums(values),
        intercepts=parts.intercepts * s.depth,
        stderr=None,
        levels=(*parts.problem.levels, *(None,) * (s.depth - 1)),
        status=parts.status,
        iterations=parts.iterations,
    )


def scatter(rng: np.random.Generator, parts: FloatArray, owner: IntArray) -> FloatArray:
    """Draw children of parts, (parts, columns), around their parts' values, and reset one so that the sums hold."""
    size = np.bincount(owner, minlength=len(parts))
    noise = rng.standard_normal(len(owner)) / size[owner]
    pick = np.floor(rng.random(len(parts)) * size).astype(np.intp)
    values = parts[owner] + noise[:, None]
    order = np.argsort(owner, kind="stable")
    chosen = order[np.cumsum(size) - size + pick]
    values[chosen] = 0.0
    totals = np.zeros_like(parts)
    np.add.at(totals, owner, values)
    values[chosen] = parts - totals
    return values
