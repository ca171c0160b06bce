"""C2FA with MILLI's sampling and weights at every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.kernels import milli as milli_kernel
from c2fa.masks import mask_keys
from c2fa.methods.base import (
    Attribution,
    BaseMethod,
    Penalties,
    Task,
    check_penalties,
    check_switches,
    gather,
    given_penalties,
    joint_penalties,
    per_level,
)
from c2fa.methods.c2fa import C2FA
from c2fa.methods.milli import ALPHA, BETA, Ranking, after_ranking, check_curve, rank
from c2fa.problem import Level, Problem
from c2fa.samplers import milli as milli_sampler
from c2fa.solvers.solve import check_together, solve
from c2fa.structure import Structure


@dataclass(frozen=True)
class C2FAMilli(BaseMethod):
    """The joint fit of MILLI's coalitions, which the paper leaves for future work.

    The parts are ranked and their coalitions drawn and weighted as in ``Milli``. The levels below are drawn and
    weighted by the same rule with every feature given an inclusion weight from the part it belongs to: a leaf
    enters with that chance, and a mask weighs the mean inclusion weight of what it keeps. No leaf is ranked by
    itself, which would cost a row for each. All levels are then fitted together under the constraint that they
    add up. With a single part there is nothing to rank, and it is ``C2FA`` with fair coins and LIME's weights, which
    is what ``Milli`` does below the parts: ``sampler="uniform"``, ``kernel="cosine"``. Nothing is smoothed.

    Parameters
    ----------
    alpha, beta
        MILLI's weight curve; see ``Milli``.
    carry
        How much of its part's inclusion weight a feature below the parts takes over: its chance is
        ``1/2 + carry (w − 1/2)``, from a fair coin at 0 to the part's own weight at 1. Leaves that are nearly always
        on or nearly always off teach little, and the leaves of the first-ranked part are those that matter most,
        so the default goes half the way.
    penalty, intercept, solver, solver_options, anchor
        As in ``C2FA``, but for the penalty's default: None, which gives each level ``L2(width / 50)``.
    reuse
        Whether the rows of the ranking, which are paid for, are fitted too, each as a coalition of one.
    """

    alpha: float = ALPHA
    beta: float = BETA
    carry: float = 0.5
    penalty: Penalties = None
    intercept: bool | Sequence[bool] = True
    solver: str = "auto"
    solver_options: Mapping[str, Any] = field(default_factory=dict)
    anchor: bool = True
    reuse: bool = True

    def __post_init__(self) -> None:
        check_curve(self.alpha, self.beta)
        if not 0.0 <= self.carry <= 1.0:
            raise ValueError(f"carry is a share, from 0 to 1; got {self.carry}")
        check_penalties(self.penalty)
        check_switches(intercept=self.intercept, anchor=self.anchor, reuse=self.reuse)
        check_together(self.solver, self.solver_options, given_penalties(self.penalty))

    def min_rows(self, structure: Structure) -> int:
        """The rows that the first level needs: the ranking and one coalition."""
        return structure.widths[0] + 1

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s = task.structure
        if s.widths[0] == 1:
            plain = C2FA(
                kernel="cosine",
                sampler="uniform",
                penalty=self.penalty,
                intercept=self.intercept,
                solver=self.solver,
                solver_options=self.solver_options,
                anchor=self.anchor,
                smooth=None,
            )
            return (yield from plain(task))
        penalties = joint_penalties(self.penalty, task)
        intercepts = per_level("intercept", self.intercept, s.depth)
        ranking = yield from rank(task, self.alpha, self.beta)
        levels = []
        for k in range(s.depth):
            ancestor = np.empty(s.widths[k], dtype=np.intp)
            ancestor[s.owners(k)] = s.owners(0)
            inclusion = ranking.inclusion[ancestor]
            if k > 0:
                inclusion = 0.5 + self.carry * (inclusion - 0.5)
            level = yield from gather(
                after_ranking(task),
                k,
                sampler=milli_sampler(inclusion),
                kernel=milli_kernel(inclusion),
                penalty=penalties[k],
                intercept=bool(intercepts[k]),
                anchor=self.anchor,
            )
            levels.append(_with_ranking(level, ranking) if k == 0 and self.reuse else level)
        solution = solve(Problem(s, tuple(levels)), self.solver, **self.solver_options)
        return Attribution.of(solution)


def _with_ranking(level: Level, ranking: Ranking) -> Level:
    """The level with the ranking's rows added, except those that were drawn as well."""
    drawn = set(mask_keys(level.masks))
    new = [i for i, key in enumerate(mask_keys(ranking.masks)) if key not in drawn]
    masks = ranking.masks[new]
    return Level(
        np.concatenate([level.masks, masks]),
        np.concatenate([level.outputs, ranking.outputs[new]]),
        np.concatenate([level.weights, milli_kernel(ranking.inclusion)(masks)]),
        level.penalty,
        level.intercept,
    )
