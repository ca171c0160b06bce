"""Leave one out: what the output loses when one leaf is removed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa.asking.querying import Ask, Conversation
from c2fa.methods.base import Attribution, BaseMethod, Task


@dataclass(frozen=True)
class LeaveOneOut(BaseMethod):
    """Every leaf removed once from the whole; its value is what the output loses, and parts are sums.

    A budget of fewer rows than leaves removes as many as it pays for, in an order drawn with the seed; the others get
    0, and the explanation says so.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aab"))
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 4.0])
    >>> c2fa.Explainer(model, masker, method="leave-one-out", budget=10)(np.ones(3)).low
    array([1., 2., 4.])
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, last = task.structure, task.structure.depth - 1
        values, unknown = np.zeros((s.leaves, len(task.columns))), s.leaves
        if s.leaves > 1 or task.allows_empty:
            removed = task.rng(3000 + last).permutation(s.leaves)[: sum(task.budget)]  # away from the levels' streams
            answer = yield Ask(last, np.arange(s.leaves) != removed[:, None])
            values[removed[answer.ok]] = (task.prediction - answer.outputs[answer.ok])[:, task.columns]
            unknown -= int(answer.ok.sum())
        notes = (f"{unknown} of {s.leaves} leaves were not removed, for want of rows, and have 0",) if unknown else ()
        return Attribution(
            values=s.level_sums(values),
            intercepts=(task.prediction[task.columns] - values.sum(axis=0),) * s.depth,
            stderr=None,
            levels=(None,) * s.depth,
            notes=notes,
        )
