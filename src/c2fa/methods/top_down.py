"""Top-down methods: the parts first, then each split over its children, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.methods.base import Attribution, Task
from c2fa.methods.lime import Lime
from c2fa.methods.milli import Milli
from c2fa.solution import Solution
from c2fa.structure import FloatArray, IntArray

_DRAWS = 1000  # the stream of the splits, away from the levels' streams, so that masks stay the same


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


def drawn(task: Task, parts: Solution) -> Attribution:
    """Draw every level below the parts from the one above it."""
    s = task.structure
    rng = task.rng(_DRAWS)
    values = parts.values[0]
    for owner in s.parents:
        values = scatter(rng, values, owner)
    return Attribution(
        values=tuple(s.sums(values, k) for k in range(s.depth)),
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
