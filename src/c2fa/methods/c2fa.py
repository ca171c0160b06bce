"""C2FA: all levels estimated together, under the constraint that they add up."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.kernels import Kernel
from c2fa.methods.base import Attribution, Fitting, Penalties, Task, given_penalties, joint_penalties, per_level
from c2fa.methods.budget import Budget, rows_per_level
from c2fa.penalties import L2, Auto
from c2fa.problem import Level, Problem
from c2fa.samplers import AnySampler, Together, ensure
from c2fa.solution import Solution
from c2fa.solvers.expected import solve_about
from c2fa.solvers.solve import STRENGTHS, check_together, solve, solve_smooth
from c2fa.structure import Structure

PAPER: Mapping[str, Any] = {
    "kernel": "cosine",
    "sampler": "uniform",
    "penalty": L2(0.1),
    "intercept": False,
    "solver": "paper",
    "anchor": False,
    "smooth": None,
}
"""What the paper does, to the letter: no intercept, no row for the prediction itself, Algorithm 1."""


@dataclass(frozen=True)
class C2FA(Fitting):
    """The joint fit. Every option is one for all levels, or a sequence with one for each, coarse to fine.

    Parameters
    ----------
    kernel
        How much each answer counts: ``"uniform"`` (the default: planned masks count alike), ``"cosine"`` (LIME's),
        ``"similarity"``, ``"shap"``, or a function.
    sampler
        How masks are drawn: ``"planned"`` (the default: balanced blocks and their complements, from which the same rows
        tell more than from coins, and all masks of up to five parts), ``"uniform"`` (fair coins), ``"paired"``,
        ``"exhaustive"``, one of ``c2fa.samplers`` such as ``Planned(3)``, or a function of your own,
        ``(rng, n, structure, level)`` or ``(rng, n, width)``.
    penalty
        The regulariser. ``"auto"`` (the default, as no one strength suits every input) chooses an l2 strength for every
        leaf, and how much each level's answers count, from the answers themselves (``c2fa.Auto``). Or one of your own,
        for instance ``L2(0.1)`` or ``(L2(0.1), L1(0.01))``; None gives each level ``L2(width / 50)``. The defaults of
        these three were chosen on validation reviews and bags (``benchmarks/validation.py``).
    intercept
        Whether a level has an unpenalised intercept of its own. With it, what the model says of an empty input is
        not spread over the features. Without it, as the paper has it, parts of validation
        reviews correlate 0.68 instead of 0.92 with the best additive description of the network's answers, of bags 0.93
        instead of 0.99 (``benchmarks/validation.py``).
    solver, solver_options
        See ``c2fa.solve``.
    anchor
        Whether the prediction itself is one of the fitted rows.
    smooth
        How strongly leaves that the masker calls neighbours (words side by side, super-pixels that touch or look
        alike) are held to matter alike: a number from 0, about 1 for some and 10 for a lot. Of several numbers the
        answers decide, where the penalty is ``"auto"``, how much each counts. ``"auto"`` is a few such numbers
        where the masker says that neighbours are alike by nature (super-pixels are, words are not) and the penalty is
        ``"auto"`` too, and does nothing elsewhere; None for not at all. Value moves within a part, never between parts.
    """

    kernel: str | Kernel | Sequence[str | Kernel] = "uniform"
    sampler: AnySampler | Sequence[AnySampler] = "planned"
    penalty: Penalties = "auto"
    solver: str = "auto"
    solver_options: Mapping[str, Any] = field(default_factory=dict)
    smooth: float | Sequence[float] | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "smooth", as_strengths(self.smooth))
        check_together(self.solver, self.solver_options, given_penalties(self.penalty))
        asked = _asked(self.smooth)
        if asked and self.solver == "paper":
            raise ValueError(f"solver='paper' cannot do smooth={self.smooth}; use solver='auto', or smooth=None")
        if len(asked) > 1 and not self._chooses_strengths:
            raise ValueError(
                f"smooth={self.smooth} lets the answers decide, as only penalty='auto' can; give one number"
            )

    @property
    def uses_prior(self) -> bool:
        """Where the answers decide how much it counts."""
        return self.solver in ("auto", "direct") and self._chooses_strengths

    def _check(self, task: Task) -> None:
        """Refuse a task that lacks what is wanted, before anything is asked."""
        if _asked(self.smooth) and task.neighbours is None:
            raise ValueError(f"smooth={self.smooth} needs neighbours, and the masker knows of none; leave it out")
        if self._smoothing(task) and task.neighbours is not None:
            task.neighbours().check(task.structure)

    def __call__(self, task: Task) -> Conversation[Attribution]:
        self._check(task)
        levels = yield from self.gather_all(task, joint_penalties(self.penalty, task))
        return self._fit(task, levels)

    def _fit(self, task: Task, levels: Sequence[Level]) -> Attribution:
        """Fit all levels together, as smooth as is wanted, about what is expected."""
        problem = Problem(task.structure, tuple(levels))
        if task.expected is None:
            return Attribution.of(self._solve(task, problem))
        finest = levels[-1]
        expected = task.expected.scaled(finest.masks @ task.expected.effects, finest.outputs)
        about = solve_about(problem, expected, functools.partial(self._solve, task))
        found = Attribution.of(about.solution)
        return replace(found, without_prior=about.without.values, prior_share=about.share)

    def _solve(self, task: Task, problem: Problem) -> Solution:
        strengths = self._smoothing(task)
        if not strengths:
            return solve(problem, self.solver, **self.solver_options)
        assert task.neighbours is not None
        return solve_smooth(problem, task.neighbours(), strengths, self.solver, **self.solver_options)

    def _smoothing(self, task: Task) -> tuple[float, ...]:
        """The strengths among which the answers decide; one of them is that; none is no smoothing."""
        strengths = _asked(self.smooth)
        if self.smooth == "auto" and self.uses_prior and task.smooth_by_default:
            strengths = STRENGTHS
        tied = bool(strengths) and task.neighbours is not None and len(task.neighbours().edges) > 0
        return strengths if tied else ()

    @property
    def _chooses_strengths(self) -> bool:
        given = given_penalties(self.penalty)
        return bool(given) and isinstance(given[-1], Auto)


def _asked(smooth: float | Sequence[float] | str | None) -> tuple[float, ...]:
    if smooth is None or isinstance(smooth, str):
        return ()
    strengths = (float(smooth),) if isinstance(smooth, float | int | np.number) else tuple(smooth)
    return () if strengths == (0.0,) else strengths


def as_strengths(smooth: Any) -> Any:
    """Strengths of smoothing, which read the same however they were held; what is none is refused."""
    smooth = smooth.tolist() if isinstance(smooth, np.ndarray) else smooth
    if smooth is None or (isinstance(smooth, str) and smooth == "auto"):
        return smooth
    several = [smooth] if isinstance(smooth, str) or not isinstance(smooth, Sequence) else list(smooth)
    numbers = all(
        isinstance(t, float | int | np.number) and not isinstance(t, bool) and 0 <= t < np.inf for t in several
    )
    if not (several and numbers):
        raise ValueError(f"smooth must be a number from 0, several of them, 'auto' or None; got {smooth!r}")
    return tuple(map(float, several)) if isinstance(smooth, Sequence) else smooth


@dataclass(frozen=True)
class Focused(C2FA):
    """The joint fit, whose leaves' rows are spent inside the parts that matter.

    Two rows for each part, and half of the budget at most, go to the levels of parts. The parts whose values are then
    settled, the largest first, are asked about leaf by leaf, as long as there are no more leaves than rows; other
    parts are hidden as wholes in the same rows. All levels are fitted together, as ever: they add up, a part that was
    not asked about shares its value evenly among its leaves, and their standard errors say that nothing is known of
    how.

    It suits inputs in which a few parts matter and leaves are far more than rows: the words of a language model's
    sources. Of an input with one level it is ``C2FA``.
    """

    can_stop_early: ClassVar[bool] = False  # more rows for the parts may find that others matter

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """Two rows for each of the finest parts, half of the budget at most, split as if parts were all there is."""
        if isinstance(budget, tuple) or structure.depth == 1 or budget < structure.depth + 1:
            return super().split(budget, structure)
        parts = _without_leaves(structure)
        first = max(min(budget // 2, 2 * structure.widths[-2] + 1), structure.depth)
        rows = rows_per_level(first, parts, preferred=self.preferred_rows(structure)[:-1])
        rows = tuple(min(n, 2 ** min(width, 30) - 1) for n, width in zip(rows, parts.widths, strict=True))
        return (*rows, budget - 1 - sum(rows))

    def __call__(self, task: Task) -> Conversation[Attribution]:
        self._check(task)
        depth = task.structure.depth
        if depth == 1:
            return (yield from super().__call__(task))
        penalties = joint_penalties(self.penalty, task)
        levels = yield from self.gather_all(task, penalties[:-1])
        parts = solve(Problem(_without_leaves(task.structure), tuple(levels)), self.solver, **self.solver_options)
        errors = np.zeros_like(parts.values[-1]) if parts.stderr is None else parts.stderr[-1]
        found = np.abs(parts.values[-1][:, task.column])
        # Two standard errors from 0, and at least a tenth of the largest; where no part does anything, all of them.
        settled = (found > 2.0 * errors[:, task.column]) & (found >= 0.1 * found.max())
        widths = np.bincount(task.structure.parents[-1])
        first, *others = np.argsort(-found, kind="stable").tolist()
        chosen = [first] if found.any() else list(range(len(found)))
        for part in others:
            if settled[part] and widths[[*chosen, part]].sum() <= task.budget[-1]:
                chosen.append(part)
        # Masks of the leaves of the chosen parts; those of each other part are hidden together.
        owner = task.structure.parents[-1]
        own = np.where(np.isin(owner, chosen), len(owner) + np.arange(len(owner)), owner)
        units = np.unique(own, return_inverse=True)[1].ravel()
        inside = Together(ensure(per_level("sampler", self.sampler, depth)[-1]), units)
        levels.append((yield from self.gather(task, depth - 1, penalties[-1], inside)))
        return self._fit(task, levels)


def _without_leaves(structure: Structure) -> Structure:
    """The tree of the parts, whose finest are now the leaves."""
    return Structure(structure.parents[:-1], structure.names[:-1])
