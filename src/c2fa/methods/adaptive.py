"""C2FA that looks at its answers and asks on about what seems to matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from c2fa.designs import AnySampler, Narrowed, draw
from c2fa.methods.base import (
    Attribution,
    Task,
    as_kernel,
    as_sampler,
    joint_penalties,
    per_level,
    weighed,
)
from c2fa.methods.c2fa import C2FA
from c2fa.problem import Level, Problem
from c2fa.querying import Ask, Conversation
from c2fa.sampling import distinct
from c2fa.solvers.choose import solve
from c2fa.structure import BoolArray, IntArray, Structure

_STAGES = 3000  # the streams of the later stages' masks, away from the levels' own
_LOOK = 16  # rows between two looks of a rule that may stop it, at least


@dataclass(frozen=True)
class C2FAAdaptive(C2FA):
    """The joint fit, asked in stages: what the first answers show decides what the next questions are about.

    Fewer rows than leaves cannot tell all leaves apart, whatever the masks. So the leaves' rows tell apart as many as
    there are rows for, those that seem to matter, in balanced blocks; of the other leaves, each part keeps or hides
    what is left of it as one more feature. All rows are fitted together in the end, so that parts are still sums.

    Where the rows suffice for all leaves there is nothing to choose, and this is ``C2FA`` with its design. The
    output that decides is the target. With ``penalty="auto"``, which finds a few large leaves among many small ones by
    itself, little is gained by it; with fixed strengths, a lot. Which leaves are told apart depends on the model's
    answers, so the masks of a smaller budget are not the first ones of a larger.

    Parameters
    ----------
    kernel, sampler, penalty, intercept, solver, solver_options, anchor, smooth
        As in ``C2FA``; the sampler is that of the parts, and of the leaves as long as all of them are asked about.
    narrow
        ``"parts"``: the answers about whole parts decide. Parts are split into their leaves in the order of their
        absolute values while there are rows for so many; it takes two stages. It is for inputs of which one part
        matters, such as a bag with one telling instance; leaves that cancel out within a part are not seen.
        ``"leaves"``: a first stage asks about all leaves, and each later one tells apart as many as rows are left,
        those that the posterior expects to matter most by value² + standard error². It is for many leaves of which few
        matter, wherever they are. ``benchmarks/designs.py`` compares the two with one design from the start.
    first
        For ``"leaves"``: the share of the leaves' rows that the first stage asks.
    stages
        For ``"leaves"``: the number of stages, the first among them. Each is one question to the model, so that batches
        stay full.
    """

    staged: ClassVar[bool] = True  # it asks ``task.enough`` between its stages

    sampler: str | AnySampler | Sequence[str | AnySampler] = "planned"
    narrow: Literal["parts", "leaves"] = "parts"
    first: float = 0.5
    stages: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.narrow not in ("parts", "leaves"):
            raise ValueError(f"narrow must be 'parts' or 'leaves'; got {self.narrow!r}")
        if not 0.0 < self.first <= 1.0:
            raise ValueError(f"first is a share of the rows, above 0 and at most 1; got {self.first!r}")
        if isinstance(self.stages, bool) or not isinstance(self.stages, int | np.integer) or self.stages < 1:
            raise ValueError(f"stages must be a whole number of at least 1; got {self.stages!r}")

    def __call__(self, task: Task) -> Conversation[Attribution]:
        self.check(task)
        s, last = task.structure, task.structure.depth - 1
        samplers = [as_sampler(sampler) for sampler in per_level("sampler", self.sampler, s.depth)]
        above = []
        for k in range(last):
            masks = draw(samplers[k], task.rng(k), task.budget[k], s, k, task.allows_empty)
            above.append((yield from self._ask(task, k, masks)))
        total = task.budget[last]
        if s.depth > 1 and self.narrow == "parts" and total < s.leaves:
            samplers[last] = Narrowed(in_parts_that_matter(above, task))
        plan = draw(samplers[last], task.rng(last), total, s, last, task.allows_empty)
        rows, found = plan[:0], None
        for number, (begin, end, planned) in enumerate(self._steps(task, len(plan))):
            new = plan[begin:end]
            if not planned and found is not None:
                # What is left of a part counts as a feature of its own.
                count = max(len(plan) - begin - (s.widths[-2] if s.depth > 1 else 1), 1)
                design = Narrowed(expected_to_matter(found, task, count))
                new = draw(design, task.rng(_STAGES + number), end - begin, s, last, task.allows_empty)
            rows = np.concatenate([rows, new])
            joint = (*above, (yield from self._ask(task, last, rows)))  # what is known costs nothing
            found = self.fit(task, joint)
            if task.enough is not None and end < len(plan) and task.enough(found):
                break
        assert found is not None  # every budget has at least a row for the leaves
        return found

    def _steps(self, task: Task, rows: int) -> Iterator[tuple[int, int, bool]]:
        """From which row to which a stage goes, and whether it is as planned before the first of them."""
        whole = self.narrow == "parts" and task.structure.depth > 1
        alike = rows if whole or rows >= task.structure.leaves or self.stages == 1 else max(1, round(self.first * rows))
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
            penalty=joint_penalties(self.penalty, task)[level],
            intercept=bool(per_level("intercept", self.intercept, depth)[level]),
            anchor=self.anchor,
        )


def in_parts_that_matter(above: Sequence[Level], task: Task) -> IntArray:
    """The leaves of the parts with the largest absolute values, of the first always, as many as there are rows for.

    The values are those of a fit of the levels above the leaves alone. A part that is not split takes up one row.
    """
    s = task.structure
    parts = Structure(s.parents[:-1], s.names[:-1])
    values = solve(Problem(parts, tuple(above))).values[-1][:, _column(task)]
    size = np.bincount(s.parents[-1])
    order = np.argsort(-np.abs(values), kind="stable")
    units = len(size) + np.cumsum(size[order] - 1)
    split = order[: max(1, int((units <= task.budget[-1]).sum()))]
    return np.flatnonzero(np.isin(s.parents[-1], split))


def expected_to_matter(found: Attribution, task: Task, count: int) -> IntArray:
    """The leaves with the largest expected square under the posterior, value² + standard error², in their order."""
    column = _column(task)
    score = np.square(found.values[-1][:, column])
    if found.stderr is not None:
        score = score + np.square(found.stderr[-1][:, column])
    return np.sort(np.argsort(-score, kind="stable")[:count])


def _column(task: Task) -> int:
    return int(np.flatnonzero(task.columns == task.target)[0])
