"""MILLI: the parts by coalitions drawn from a ranking of single parts; the other levels by LIME.

Early, Evers and Ramchurn, "Model agnostic interpretability for multiple instance learning", ICLR 2022.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from c2fa.asking.querying import Ask, BudgetError, Conversation
from c2fa.asking.replies import QueryError
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
from c2fa.methods.lime import Lime, drawn, fit
from c2fa.penalties import L2
from c2fa.problem import Level, Problem
from c2fa.samplers import milli as milli_sampler
from c2fa.solution import Solution
from c2fa.solvers.solve import check_together, solve
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure

ALPHA, BETA = 0.3, 0.01


@dataclass(frozen=True, eq=False)
class Ranking:
    """What each part is worth alone: its inclusion weight, and the rows that the ranking cost."""

    inclusion: FloatArray
    masks: BoolArray
    outputs: FloatArray


def check_curve(alpha: float, beta: float) -> None:
    """Refuse what is not a weight curve."""
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is the first rank's chance to be drawn, from 0 to 1; got {alpha}")
    if not np.isfinite(beta):
        raise ValueError(f"beta bends the weight curve and must be a finite number; got {beta}")


def inclusion_weights(ranks: IntArray, alpha: float = 0.1, beta: float = 1.0) -> FloatArray:
    """Return MILLI's weight for each instance from its rank (0 is the most important).

    It is both the chance to enter a coalition and the ingredient of the coalition's weight: ``alpha`` for the
    first rank, ``1 - alpha`` for the last; ``beta`` bends the curve towards larger (> 0) or smaller coalitions.

    >>> inclusion_weights(np.arange(5), alpha=0.3, beta=-1.0).round(3)
    array([0.3  , 0.305, 0.327, 0.41 , 0.7  ])
    """
    check_curve(alpha, beta)
    rank = np.asarray(ranks, dtype=np.float64)
    last = len(rank) - 1
    if last == 0:  # one instance has no rank to speak of: a fair coin
        return np.full(1, 0.5)
    if alpha > 0.5:
        beta = -beta
    if beta >= 0:
        return (1 - alpha) - (1 - 2 * alpha) * (1 - rank / last) * np.exp(-beta * rank)
    return alpha + (1 - 2 * alpha) * (rank / last) * np.exp(beta * (last - rank))


def rank(task: Task, alpha: float, beta: float) -> Conversation[Ranking]:
    """Ask about every part alone, order the parts by the target's output, and give each its inclusion weight.

    A part whose answer is unusable ranks last.
    """
    width = task.structure.widths[0]
    if task.budget[0] <= width:
        raise BudgetError(
            f"MILLI ranks the {width} parts with one row each before it samples, so the first level needs a budget of "
            f"at least {width + 2} rows (the prediction, the ranking, one sample); it has {task.budget[0] + 1}; "
            "raise it, with budget=(rows of the first level, …)"
        )
    alone = np.eye(width, dtype=np.bool_)
    answer = yield Ask(0, alone)
    if not answer.ok.any():
        raise QueryError(f"not one of the {width} parts got an answer when asked alone, so they cannot be ranked")
    scores = np.where(answer.ok, answer.outputs[:, task.target], -np.inf)
    ranks = np.empty(width, dtype=np.intp)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(width)
    inclusion = inclusion_weights(ranks, alpha, beta)
    return Ranking(inclusion, alone[answer.ok], answer.outputs[answer.ok][:, task.columns])


def after_ranking(task: Task) -> Task:
    """The task with the rows that are left once the parts are ranked."""
    left = task.budget[0] - task.structure.widths[0]
    return dataclasses.replace(task, budget=(left, *task.budget[1:]))


@dataclass(frozen=True)
class Milli(Lime):
    """MILLI for the coarsest level, LIME for every other.

    Each part is asked about alone first; these rows count against the first level's budget, which they do not in the
    authors' code, and are not fitted. Parts then enter coalitions with their inclusion weight as the chance, empty and
    full coalitions are redrawn, repeats are kept, a coalition weighs the mean inclusion weight of its members, and
    least squares with an intercept gives the attributions. Whether an absent part is removed or blanked out is the
    masker's business.

    The authors rank by ``1 − P(class 0)``, class 0 being the background by their convention. A target is known
    here, so parts are ranked by the target's own output. One part alone has no rank and no coalition: it is
    fitted by LIME.

    Parameters
    ----------
    kernel, sampler, penalty, intercept, anchor
        For the levels fitted by LIME; see ``Lime``.
    alpha
        The chance of the first-ranked part to be drawn; the last one's is ``1 − alpha``.
    beta
        How the chances go from one to the other: above 0 towards larger coalitions, below 0 towards smaller.
        The defaults of both are what the authors use for bags of about six instances. Their code's own (0.1 and
        1.0) draw the first-ranked part so rarely that some twenty rows often hold it not once.
    """

    alpha: float = ALPHA
    beta: float = BETA

    def __post_init__(self) -> None:
        super().__post_init__()
        check_curve(self.alpha, self.beta)

    def min_rows(self, structure: Structure) -> int:
        """The rows that the first level needs: the ranking and one coalition."""
        return structure.widths[0] + 1

    def preferred_rows(self, structure: Structure) -> tuple[int | None, ...]:
        """As LIME's, but for the first level, whose sampler is MILLI's own."""
        return (None, *super().preferred_rows(structure)[1:])

    def coarsest(self, task: Task) -> Conversation[Solution]:
        if task.structure.widths[0] == 1:
            return (yield from self.fit(task, 0))
        ranking = yield from rank(task, self.alpha, self.beta)
        rows = yield from gather(
            after_ranking(task),
            0,
            sampler=milli_sampler(ranking.inclusion),
            kernel=milli_kernel(ranking.inclusion),
            penalty=L2(0.5e-10),  # MILLI's own, scikit-learn's ``alpha = 1e-10``: least squares made safe
            intercept=True,
            anchor=False,
        )
        return fit(rows)


@dataclass(frozen=True)
class TopDownMilli(Milli):
    """MILLI for the parts; their children drawn at random around them, as in ``TopDown``."""

    def __call__(self, task: Task) -> Conversation[Attribution]:
        return drawn(task, (yield from self.coarsest(task)))


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
