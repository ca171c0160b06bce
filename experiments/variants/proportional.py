"""A fairer top-down method than the paper's: parts split in proportion to their leaves' own fits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.methods import Attribution, Lime, Task
from c2fa.structure import FloatArray, IntArray

_MAX_FACTOR = 10.0  # how far children may be scaled up; beyond it their sum is noise beside the part


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
        lime = yield from super().__call__(task)
        leaves = lime.values[0]
        for owner, own in zip(s.parents, lime.values[1:], strict=True):
            leaves = share(leaves, own, owner)
        values = tuple(s.sums(leaves, k) for k in range(s.depth))
        fitted = [level for level in lime.levels if level is not None]
        intercepts = tuple(level.rows.intercept(v) for level, v in zip(fitted, values, strict=True))
        return dataclasses.replace(lime, values=values, intercepts=intercepts, stderr=None, leverages=None)


def share(parts: FloatArray, children: FloatArray, owner: IntArray) -> FloatArray:
    """Split parts, (parts, columns), over their children in proportion to the children's own values.

    >>> owner = np.array([0, 0, 1, 1])
    >>> share(np.array([[6.0], [1.0]]), np.array([[1.0], [2.0], [-2.0], [1.0]]), owner).ravel()
    array([ 2.,  4., -1.,  2.])
    """
    total = _totals(children, owner, len(parts))
    near = (parts * total > 0) & (np.abs(parts) <= _MAX_FACTOR * np.abs(total))
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
