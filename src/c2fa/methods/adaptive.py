"""C2FA that looks at its answers and asks on about the leaves that seem to matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from c2fa.designs import AnySampler, Narrowed, draw
from c2fa.methods.base import (
    Attribution,
    Task,
    as_kernel,
    as_sampler,
    per_level,
    per_level_penalties,
    weighed,
)
from c2fa.methods.c2fa import C2FA
from c2fa.problem import Level, Problem
from c2fa.querying import Ask, Conversation
from c2fa.sampling import distinct
from c2fa.solvers.choose import solve
from c2fa.structure import BoolArray, IntArray

_STAGES = 3000  # the streams of the later stages' masks, away from the levels' own
_LOOK = 16  # rows between two looks of a rule that may stop it, at least


@dataclass(frozen=True)
class C2FAAdaptive(C2FA):
    """The joint fit, asked in stages: what the first rows show decides what the next ones are about.

    Fewer rows than leaves cannot tell all leaves apart, whatever the masks. So the first stage asks about all of
    them, and every later one about as many as there are rows left to tell apart: those that the posterior expects to
    matter most, by value² + standard error². They vary in balanced blocks; of the other leaves, each part keeps or
    hides what is left of it as a whole, so that the parts' sums stay as well known as before. All rows are fitted
    together in the end.

    Where the rows suffice for all leaves there is nothing to choose, and this is ``C2FA`` with its design. Parts are
    asked about in the first stage. The output that decides is the target.

    On synthetic models with fewer rows than leaves it finds more of the most important leaves than one design from
    the start (``benchmarks/designs.py``); where a few leaves matter, all attributions are better too.

    Parameters
    ----------
    kernel, sampler, penalty, intercept, solver, solver_options, anchor
        As in ``C2FA``; the sampler is that of the parts and of the first stage.
    first
        The share of the leaves' rows that the first stage asks.
    stages
        The number of stages, the first among them. Each is one question to the model, so that batches stay full.
    """

    staged: ClassVar[bool] = True  # it asks ``task.enough`` between its stages

    sampler: str | AnySampler | Sequence[str | AnySampler] = "planned"
    first: float = 0.5
    stages: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.first <= 1.0:
            raise ValueError(f"first is a share of the rows, above 0 and at most 1; got {self.first!r}")
        if isinstance(self.stages, bool) or not isinstance(self.stages, int | np.integer) or self.stages < 1:
            raise ValueError(f"stages must be a whole number of at least 1; got {self.stages!r}")

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, last = task.structure, task.structure.depth - 1
        plans = [self._drawn(task, sampler, k) for k, sampler in enumerate(per_level("sampler", self.sampler, s.depth))]
        levels = []
        for k, plan in enumerate(plans[:-1]):
            levels.append((yield from self._ask(task, k, plan)))
        rows, found = plans[-1][:0], None
        for number, (begin, end, planned) in enumerate(self._steps(task, len(plans[-1]))):
            if planned or found is None:
                new = plans[-1][begin:end]
            else:
                narrowed = Narrowed(expected_to_matter(found, task, len(plans[-1]) - begin))
                new = draw(narrowed, task.rng(_STAGES + number), end - begin, s, last, task.allows_empty)
            rows = np.concatenate([rows, new])
            joint = (*levels, (yield from self._ask(task, last, rows)))  # what is known costs nothing
            found = Attribution.of(solve(Problem(s, joint), self.solver, **self.solver_options), joint)
            if task.enough is not None and end < len(plans[-1]) and task.enough(found):
                break
        assert found is not None  # every budget has at least a row for the leaves
        return found

    def _drawn(self, task: Task, sampler: str | AnySampler, level: int) -> BoolArray:
        return draw(as_sampler(sampler), task.rng(level), task.budget[level], task.structure, level, task.allows_empty)

    def _steps(self, task: Task, rows: int) -> Iterator[tuple[int, int, bool]]:
        """From which row to which a stage goes, and whether it is as planned from the start."""
        alike = rows if rows >= task.structure.leaves or self.stages == 1 else max(1, round(self.first * rows))
        ends = [alike, *(alike + np.arange(1, self.stages) * (rows - alike) // max(self.stages - 1, 1)).tolist()]
        if task.enough is not None:  # somebody wants to look at it more often
            at = _LOOK
            while at < rows:
                ends.append(at)
                at += max(_LOOK, at // 4)
        begin = 0
        for end in sorted({*ends, rows}):
            if end > begin:
                yield begin, end, end <= alike
                begin = end

    def _ask(self, task: Task, level: int, rows: BoolArray) -> Conversation[Level]:
        depth = task.structure.depth
        masks, counts = distinct(rows)
        answer = yield Ask(level, masks)
        return weighed(
            task,
            level,
            masks,
            counts,
            answer,
            kernel=as_kernel(per_level("kernel", self.kernel, depth)[level]),
            penalty=per_level_penalties(self.penalty, task.structure)[level],
            intercept=bool(per_level("intercept", self.intercept, depth)[level]),
            anchor=self.anchor,
        )


def expected_to_matter(found: Attribution, task: Task, count: int) -> IntArray:
    """The leaves with the largest expected square under the posterior, value² + standard error², in their order."""
    column = int(np.flatnonzero(task.columns == task.target)[0])
    score = np.square(found.values[-1][:, column])
    if found.stderr is not None:
        score = score + np.square(found.stderr[-1][:, column])
    return np.sort(np.argsort(-score, kind="stable")[:count])
