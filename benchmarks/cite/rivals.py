"""What others propose, as methods: ContextCite's Lasso, and AttriBoT's leaving one out in two steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from c2fa import L2, Level, Problem, Structure, solve
from c2fa.asking.querying import Ask, Conversation
from c2fa.kernels import uniform
from c2fa.methods import Attribution, BaseMethod, Task
from c2fa.methods.base import gather
from c2fa.structure import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class _L1Each:
    """``Σ λ_i |v_i|``: an l1 penalty on features that are scaled to one variance is one of these on the masks."""

    lams: FloatArray

    @property
    def ridge(self) -> None:
        return None

    def value(self, v: FloatArray) -> float:
        return float((self.lams @ np.abs(v)).sum())

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        shrunk: FloatArray = np.sign(v) * np.maximum(np.abs(v).T - step * self.lams, 0.0).T
        return shrunk


@dataclass(frozen=True)
class ContextCite(BaseMethod):
    """ContextCite's recipe (Cohen-Wang et al., NeurIPS 2024): flat, with the parts as sums.

    All rows of the budget ask about leaves, each kept by a fair coin. What the model says is divided by how many tokens
    it is of, masks are scaled to mean 0 and variance 1, and scikit-learn's ``Lasso(alpha)`` is fitted to both; its
    coefficients are scaled back. The authors fit the log-odds of the answer: ``link="logit"``.

    Parameters
    ----------
    alpha
        The strength of the Lasso, as scikit-learn counts it: it multiplies ``‖w‖₁`` beside half the *mean* squared
        error. It is for the log-odds per token.
    """

    alpha: float = 0.01

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, last = task.structure, task.structure.depth - 1
        all_rows = replace(task, budget=(*(0,) * last, sum(task.budget)))
        rows = yield from gather(
            all_rows, last, sampler="uniform", kernel=uniform, penalty=L2(0.0), intercept=True, anchor=False
        )
        masks, counts, outputs = rows.masks, rows.weights, rows.outputs
        tokens = np.array(task.tokens or (1,) * len(task.prediction), dtype=np.float64)[task.columns]
        kept = counts @ masks / counts.sum()
        spread = np.sqrt(kept * (1.0 - kept))  # the scale of a column of bits; 0 where a leaf is constant, and gets 0
        level = Level(masks, outputs / tokens, counts, _L1Each(self.alpha * counts.sum() * spread), True)
        # To a fine tolerance, so that what is compared is the recipe and not the solver.
        fit = solve(Problem(Structure.flat(s.leaves), (level,)), rtol=1e-9, atol=1e-9)
        return Attribution(
            values=s.level_sums(fit.values[0] * tokens),
            intercepts=(fit.intercepts[0] * tokens,) * s.depth,
            stderr=None,
            levels=(None,) * s.depth,
            status=fit.status,
            iterations=fit.iterations,
        )


@dataclass(frozen=True)
class HierarchicalLeaveOneOut(BaseMethod):
    """Parts removed one by one, then the leaves of the parts that matter most: AttriBoT's way with large inputs.

    The parts that cost the output most stay, as many as there are rows for their leaves; the others are removed for
    good, and every leaf is removed once from what stays. Leaves of other parts get 0. Levels are measured on different
    inputs, so that parts are not the sums of their leaves.

    In a tree of more levels each level is opened in this way, those between the first and the last with half of the
    rows that are left.
    """

    can_stop_early: ClassVar[bool] = False  # with more rows it keeps more parts, and removes leaves from other inputs

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, last = task.structure, task.structure.depth - 1
        rows = sum(task.budget)
        stay, base = np.ones(s.widths[0], dtype=np.bool_), task.prediction
        asked = _order(task, 0)[:rows]
        found, known = yield from _remove(task, 0, stay, asked, base)
        values = [found]
        rows -= len(asked)
        for level in range(1, s.depth):
            room = rows if level == last else rows // 2
            kept, asked = _opened(task, level, values[-1], stay, room)
            rows -= len(asked)
            if not (kept == stay[s.parents[level - 1]]).all():  # what stays is another input than before
                answer = yield Ask(level, kept[None])
                rows -= 1
                base = answer.outputs[0]
                if not answer.ok[0]:
                    asked = asked[:0]
            stay = kept
            found, known = yield from _remove(task, level, stay, asked, base)
            values.append(found)
        return _attribution(task, tuple(values), s.leaves - known)


def _order(task: Task, level: int) -> IntArray:
    """The features of a level in the order in which they are removed, from streams away from the levels' own."""
    return task.rng(3000 + level).permutation(task.structure.widths[level])


def _opened(task: Task, level: int, parts: FloatArray, stay: BoolArray, room: int) -> tuple[BoolArray, IntArray]:
    """The features of a level that stay, and those of them to remove, with so many rows.

    One row is for what stays, unless everything does. Where not even one part's features can all be removed, some of
    the first part's are.
    """
    parents = task.structure.parents[level - 1]
    here = np.flatnonzero(stay)
    best = here[np.argsort(-parts[here, task.column], kind="stable")]
    ends = np.cumsum(np.bincount(parents, minlength=len(parts))[best])
    fit = len(best) if ends[-1] <= room else int((ends < room).sum())
    if not fit and room < 2:
        return stay[parents], np.empty(0, dtype=np.intp)
    kept = np.isin(parents, best[: max(fit, 1)])
    order = _order(task, level)
    return kept, order[kept[order]][: room if fit else room - 1]


def _remove(
    task: Task, level: int, stay: BoolArray, asked: IntArray, base: FloatArray
) -> Conversation[tuple[FloatArray, int]]:
    """Remove features one by one from those that stay: what the outputs lose, and for how many it is known."""
    values = np.zeros((len(stay), len(task.columns)))
    if stay.sum() == 1 and not task.allows_empty:
        asked = asked[:0]
    if not len(asked):
        return values, 0
    masks = np.tile(stay, (len(asked), 1))
    masks[np.arange(len(asked)), asked] = False
    answer = yield Ask(level, masks)
    values[asked[answer.ok]] = (base - answer.outputs[answer.ok])[:, task.columns]
    return values, int(answer.ok.sum())


def _attribution(task: Task, values: tuple[FloatArray, ...], unknown: int) -> Attribution:
    """Values whose sum at each level leads from what is left to the prediction."""
    leaves = task.structure.leaves
    notes = (f"{unknown} of {leaves} leaves were not removed, for want of rows, and have 0",) if unknown else ()
    return Attribution(
        values=values,
        intercepts=tuple(task.prediction[task.columns] - v.sum(axis=0) for v in values),
        stderr=None,
        levels=(None,) * len(values),
        notes=notes,
    )
