"""Owen values, for deeper trees Winter's, and Shapley values: one game, whose values and base add up to the prediction.

The value of a part is its Shapley value in the game among the parts; that of a leaf its share of it, from how the part
does with some of its leaves while other parts are there or not as wholes. A part's leaves add up to it by a theorem,
and everything to the prediction less the output for the empty input. What is not asked is inferred
(``solvers/owen.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from c2fa.asking.querying import Ask, Conversation
from c2fa.graph import Smoother
from c2fa.masks import mask_keys
from c2fa.methods.base import Attribution, BaseMethod, Task, ask_all
from c2fa.methods.budget import Budget
from c2fa.methods.c2fa import as_strengths
from c2fa.penalties import L2
from c2fa.problem import Level
from c2fa.samplers import AnySampler, Apart, draw, ensure, preference
from c2fa.solvers.expected import solve_game_about
from c2fa.solvers.owen import solve_game
from c2fa.solvers.process import Game
from c2fa.structure import FloatArray, IntArray, Structure


@dataclass(frozen=True)
class Owen(BaseMethod):
    """Owen values of one game, a function of leaf masks; Winter values where the tree is deeper.

    Parameters
    ----------
    sampler
        Which masks are asked. ``Apart()``, the default, asks them in complementary pairs: parts as wholes, halves of
        all leaves, then parts taken apart.
    smooth
        How strongly leaves that the masker calls neighbours are held to matter alike: a number from 0, about 1 for some
        and 10 for a lot. Of several numbers the answers decide how much each counts. ``"auto"`` is 0.3 and 1
        where the masker says that neighbours are alike by nature (super-pixels are, words are not); None for not at
        all. Value moves within a part, never between parts.
    """

    sampler: AnySampler = field(default_factory=Apart)
    smooth: float | Sequence[float] | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        ensure(self.sampler)
        object.__setattr__(self, "smooth", as_strengths(self.smooth))

    @property
    def uses_prior(self) -> bool:
        """The answers decide how much it counts."""
        return True

    def preferred_rows(self, structure: Structure) -> tuple[int | None, ...]:
        """The rows that the sampler prefers for parts."""
        return tuple(preference(self.sampler, width) for width in structure.widths)

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """The usual split; all masks of the parts where they leave a row for every leaf."""
        rows = super().split(budget, structure)
        if structure.depth != 2 or isinstance(budget, tuple):
            return rows
        parts = 2 ** min(structure.widths[0], 30) - 1
        enough = budget - 1 - parts >= structure.leaves and rows[0] < parts
        return (parts, budget - 1 - parts) if enough else rows

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, tree = task.structure, self._tree(task.structure)
        if self.smooth and not isinstance(self.smooth, str) and task.neighbours is None:
            raise ValueError(f"smooth={self.smooth} needs neighbours, and the masker knows of none; leave it out")
        smoothers = self._smoothers(task)
        masks = [np.ones((1, s.leaves), dtype=np.bool_)]
        outputs = [task.prediction[None, task.columns]]
        levels = [np.zeros(1, dtype=np.intp)]
        # The input itself and the empty one are asked again, to find out whether the model has noise, where the budget
        # has so many rows that two do not matter.
        again = 0 if task.tokens else max(min(1 + task.allows_empty, sum(task.budget) - 64 + 2), 0)
        left, asks = 0, []
        for k in range(s.depth):
            rows = task.budget[k] + left - (again if k == s.depth - 1 else 0)
            drawn = np.zeros((1 if k == 0 and task.allows_empty and rows else 0, s.widths[k]), dtype=np.bool_)
            rows -= len(drawn)
            level = k - s.depth + tree.depth  # of a tree without parts, the leaves are all there is
            sampled = drawn[:0]
            if level >= 0:
                sampled = draw(ensure(self.sampler), task.rng(k), max(rows, 0), tree, level, task.allows_empty)
            left = rows - len(sampled)
            asks.append(Ask(k, np.concatenate([drawn, sampled])))
        for ask, answer in zip(asks, (yield from ask_all(task, asks)), strict=True):
            masks.append(s.expand(ask.masks, ask.level)[answer.ok])
            outputs.append(answer.outputs[answer.ok][:, task.columns])
            levels.append(np.full(int(answer.ok.sum()), ask.level))
        everything, answers = np.concatenate(masks), np.concatenate(outputs)
        places: dict[bytes, int] = {}
        for i, key in enumerate(mask_keys(everything)):
            places.setdefault(key, i)
        noise = 0.0
        if again:
            ends = np.zeros((again, s.leaves), dtype=np.bool_)
            ends[0] = True
            second = yield Ask(s.depth - 1, ends, again=True)
            before = [places.get(key, -1) if ok else -1 for key, ok in zip(mask_keys(ends), second.ok, strict=True)]
            noise = _noise(second.outputs[:, task.columns], before, answers)
        first = np.array(list(places.values()))
        game = Game(
            tree,
            everything[first],
            answers[first],
            task.column,
            noise > 0.0,
            smoothers,
            noise=0.5 * noise**2,  # of a difference, the variance is twice that of an answer
        )
        return self._attribution(task, game, np.concatenate(levels)[first], noise)

    def _tree(self, structure: Structure) -> Structure:
        """The tree whose values are looked for."""
        return structure

    def _smoothers(self, task: Task) -> tuple[Smoother | None, ...]:
        """The ways of smoothing among which the answers decide."""
        strengths = self.smooth
        if isinstance(strengths, str):
            # A little helps to find an object and predicts as well as none; more predicts worse at few rows, whose
            # evidence cannot tell (``python -m benchmarks.queries --only images``).
            strengths = (0.3, 1.0) if task.smooth_by_default else None
        elif isinstance(strengths, float | int):
            strengths = (float(strengths),)
        if strengths is None or task.neighbours is None or not len(task.neighbours().edges):
            return (None,)
        graph = task.neighbours()
        graph.check(task.structure)
        return tuple(Smoother(graph, t, task.structure.leaves) if t else None for t in strengths)

    def _attribution(self, task: Task, game: Game, levels: IntArray, noise: float) -> Attribution:
        """The values of the game, with what is needed to judge them."""
        s = task.structure
        expected = task.expected and task.expected.scaled(game.masks @ task.expected.effects, game.outputs)
        about = None if expected is None else solve_game_about(game, expected)
        found = solve_game(game) if about is None else about.solution
        notes = []
        if noise:
            notes.append(
                "the model answers one input differently when it is asked again (by "
                f"{noise:.2g}), so its noise is estimated, and values and base add up to what it says on average"
            )
        return Attribution(
            values=s.level_sums(found.values[-1]),
            intercepts=(found.base,) * s.depth,
            stderr=found.stderr if game.structure is s else tuple(found.stderr_of(s, k) for k in range(s.depth)),
            levels=tuple(_levels(game, s, levels)),
            notes=tuple(notes),
            without_prior=None if about is None else s.level_sums(about.without.values[-1]),
            prior_share=None if about is None else about.share,
            game=found,
        )


@dataclass(frozen=True)
class Shapley(Owen):
    """Shapley values: every leaf is a part of its own, and the value of a part is the sum of its leaves'."""

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """All rows are for leaves but the empty one, which is the first level's."""
        rows = super().split(budget, structure)
        return rows if structure.depth == 1 else (1, *(0,) * (structure.depth - 2), sum(rows) - 1)

    def _tree(self, structure: Structure) -> Structure:
        return Structure.flat(structure.names[-1])


def _levels(game: Game, structure: Structure, levels: IntArray) -> Iterator[Level | None]:
    """For each level the rows that were asked of it, with the input itself and the empty one."""
    counts = game.masks.sum(axis=1)
    ends = (counts == 0) | (counts == structure.leaves)
    for k in range(structure.depth):
        rows = np.flatnonzero(ends | (levels == k) | ((levels == 0) & (k < structure.depth - 1)))
        masks = game.masks[rows][:, structure.first_leaves(k)]
        yield Level(masks, game.outputs[rows], penalty=L2(0.0)) if len(rows) > 1 else None


def _noise(answers: FloatArray, before: Sequence[int], outputs: FloatArray) -> float:
    """By how much answers differ from those before, of which -1 has none; 0 where by no more than rounding does."""
    apart = [float(np.abs(outputs[i] - answer).max()) for i, answer in zip(before, answers, strict=True) if i >= 0]
    largest = max(apart, default=0.0)
    return largest if largest > 1e-5 * float(np.ptp(outputs, axis=0).max()) else 0.0
