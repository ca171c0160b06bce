"""The joint fit of MILLI's coalitions, which the paper leaves for future work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from c2fa import Level, Problem, Structure, solve
from c2fa.asking.querying import Ask, Conversation
from c2fa.kernels import milli as milli_kernel
from c2fa.masks import mask_keys
from c2fa.methods import C2FA, Attribution, BaseMethod, Task
from c2fa.methods.base import Penalties, gather, joint_penalties
from c2fa.methods.compared import inclusion_weights
from c2fa.samplers import milli as milli_sampler


@dataclass(frozen=True)
class C2FAMilli(BaseMethod):
    """All levels fitted together, from masks that are drawn and weighted as MILLI's are.

    The parts are ranked and their coalitions drawn and weighted as in ``Milli``; the rows of the ranking are fitted
    too, each as a coalition of one. The levels below are drawn and weighted by the same rule, with an inclusion weight
    for every feature from the part it belongs to. No leaf is ranked by itself, which would cost a row for each. With a
    single part there is nothing to rank, and it is ``C2FA`` with fair coins and LIME's weights.

    Parameters
    ----------
    alpha, beta
        MILLI's weight curve; see ``Milli``.
    carry
        How much of its part's inclusion weight a feature below the parts takes over: its chance is
        ``1/2 + carry (w − 1/2)``, from a fair coin at 0 to the part's own weight at 1. Leaves that are nearly always
        on or nearly always off teach little, and the leaves of the first-ranked part are those that matter most,
        so the default goes half the way.
    penalty
        As in ``C2FA``; None gives each level ``L2(width / 50)``.
    """

    alpha: float = 0.3
    beta: float = 0.01
    carry: float = 0.5
    penalty: Penalties = None

    def min_rows(self, structure: Structure) -> int:
        """The rows that the first level needs: the ranking and one coalition."""
        return structure.widths[0] + 1

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s = task.structure
        width = s.widths[0]
        if width == 1:
            plain = C2FA(kernel="cosine", sampler="uniform", penalty=self.penalty, smooth=None)
            return (yield from plain(task))
        answer = yield Ask(0, np.eye(width, dtype=np.bool_))
        scores = np.where(answer.ok, answer.outputs[:, task.target], -np.inf)
        of_parts = inclusion_weights(np.argsort(np.argsort(-scores, kind="stable")), self.alpha, self.beta)
        alone = np.eye(width, dtype=np.bool_)[answer.ok]
        task = replace(task, budget=(task.budget[0] - width, *task.budget[1:]))
        levels = []
        for k, penalty in enumerate(joint_penalties(self.penalty, task)):
            ancestor = np.empty(s.widths[k], dtype=np.intp)
            ancestor[s.owners(k)] = s.owners(0)
            inclusion = of_parts[ancestor]
            if k > 0:
                inclusion = 0.5 + self.carry * (inclusion - 0.5)
            kernel = milli_kernel(inclusion)
            level = yield from gather(
                task, k, sampler=milli_sampler(inclusion), kernel=kernel, penalty=penalty, intercept=True, anchor=True
            )
            if k == 0:
                drawn = set(mask_keys(level.masks))
                new = [i for i, key in enumerate(mask_keys(alone)) if key not in drawn]
                level = Level(
                    np.concatenate([level.masks, alone[new]]),
                    np.concatenate([level.outputs, answer.outputs[answer.ok][new][:, task.columns]]),
                    np.concatenate([level.weights, kernel(alone[new])]),
                    level.penalty,
                    level.intercept,
                )
            levels.append(level)
        return Attribution.of(solve(Problem(s, tuple(levels))))
