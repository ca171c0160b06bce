"""Top-down methods: the parts first, then each split over its children, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa.methods.base import Attribution, Task
from c2fa.methods.lime import Lime, worst
from c2fa.methods.milli import Milli
from c2fa.querying import Conversation
from c2fa.solution import Solution
from c2fa.structure import FloatArray, IntArray, Structure

_DRAWS = 1000  # the stream of the splits, away from the levels' streams, so that masks stay the same
_FACTOR = 10.0  # how far children may be scaled up; beyond it their sum is noise beside the part


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


@dataclass(frozen=True)
class TopDownMilli(Milli):
    """MILLI for the parts; their children drawn at random around them, as in ``TopDown``."""

    def __call__(self, task: Task) -> Conversation[Attribution]:
        return drawn(task, (yield from self.coarsest(task)))


@dataclass(frozen=True)
class TopDownProportional(Lime):
    """Every level fitted separately by LIME, then each part split over its children in proportion to their fits.

    Where the part has the sign of the sum of its children's fits and is at most ten times as large, every child is
    scaled by the ratio of the two. Elsewhere a proportion would turn the children round or blow up what is noise,
    so each child keeps its own value and the difference is shared equally. Either way the children keep their
    order within the part. Deeper trees are descended level by level.
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s = task.structure
        fits = [(yield from self.coarsest(task))]
        for level in range(1, s.depth):
            fits.append((yield from self.fit(task, level)))
        values = fits[0].values[0]
        for owner, own in zip(s.parents, fits[1:], strict=True):
            values = share(values, own.values[0], owner)
        by_level = _sums(s, values)
        levels = tuple(one.problem.levels[0] for one in fits)
        return Attribution(
            values=by_level,
            intercepts=tuple(level.rows.intercept(value) for level, value in zip(levels, by_level, strict=True)),
            stderr=None,
            levels=levels,
            status=worst(fits),
            iterations=sum(one.iterations for one in fits),
        )


def drawn(task: Task, parts: Solution) -> Attribution:
    """Draw every level below the parts from the one above it."""
    s = task.structure
    rng = task.rng(_DRAWS)
    values = parts.values[0]
    for owner in s.parents:
        values = scatter(rng, values, owner)
    return Attribution(
        values=_sums(s, values),
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
    values[chosen] = parts - _totals(values, owner, len(parts))
    return values


def share(parts: FloatArray, children: FloatArray, owner: IntArray) -> FloatArray:
    """Split parts, (parts, columns), over their children in proportion to the children's own values.

    >>> owner = np.array([0, 0, 1, 1])
    >>> share(np.array([[6.0], [1.0]]), np.array([[1.0], [2.0], [-2.0], [1.0]]), owner).ravel()
    array([ 2.,  4., -1.,  2.])
    """
    total = _totals(children, owner, len(parts))
    near = (parts * total > 0) & (np.abs(parts) <= _FACTOR * np.abs(total))
    scale = np.where(near, parts / np.where(near, total, 1.0), 1.0)
    scaled = children * scale[owner]
    rest = parts - _totals(scaled, owner, len(parts))
    size = np.bincount(owner, minlength=len(parts))
    return scaled + (rest / size[:, None])[owner]


def _totals(values: FloatArray, owner: IntArray, width: int) -> FloatArray:
    """Sum children, (children, columns), by their owner."""
    totals = np.zeros((width, values.shape[1]))
    np.add.at(totals, owner, values)
    return totals


def _sums(s: Structure, leaves: FloatArray) -> tuple[FloatArray, ...]:
    """Every level as the sum of its leaves, which is what the splits made it up to rounding."""
    return tuple(s.sums(leaves, k) for k in range(s.depth))
