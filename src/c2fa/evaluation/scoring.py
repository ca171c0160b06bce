"""Metrics by name: what each needs of an explanation, and at which levels it is taken.

A score is a function ``score(case)`` that returns a number, or a conversation that asks the model and returns one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from c2fa import metrics
from c2fa._system import did_you_mean
from c2fa.asking.fingerprint import Identity
from c2fa.asking.links import on_scale
from c2fa.asking.querying import Conversation
from c2fa.explanation import Explanation
from c2fa.structure import BoolArray

Levels: TypeAlias = Literal["all", "parts", "leaves"]
MetricSpec: TypeAlias = str | tuple[str, Callable[..., Any]]


@dataclass(frozen=True, eq=False)
class Case:
    """One explanation to be scored at one level by a metric, with what is known of its input."""

    metric: str
    explanation: Explanation
    level: int
    truths: Any
    empty: bool
    identity: Identity

    def values(self) -> Any:
        return self.explanation.values[self.level]

    def truth(self, level: int | None = None) -> Any:
        """The truth of the level, or of another; or what to do where there is none."""
        return _truth_of(self.metric, self.truths, self.level if level is None else level)


def _truth_of(metric: str, truths: Any, level: int) -> Any:
    if truths is None or len(truths) <= level or truths[level] is None:
        raise ValueError(
            f"the metric {metric!r} needs to know the truth at level {level}: give truths= with one tuple for each "
            "input, an array for each level, coarse to fine"
        )
    return truths[level]


@dataclass(frozen=True, eq=False)
class Score:
    """A metric: its name, its function, which way it points, and the levels it is taken at.

    ``whole`` marks one that is of the explanation as a whole; its one number is kept at level 0. ``of_truth`` marks one
    that compares with what is known.
    """

    name: str
    function: Callable[[Case], Any]
    higher_is_better: bool | None
    levels: Levels | int = "all"
    whole: bool = False
    of_truth: bool = False

    def check(self, depth: int, truths: Any) -> None:
        """Refuse an input of which the metric cannot be taken, before anything is asked about it."""
        for level in self.at(depth):
            if self.of_truth:
                _truth_of(self.name, truths, level)

    def at(self, depth: int) -> Sequence[int]:
        """The levels of a structure of this depth at which the metric is taken."""
        if isinstance(self.levels, int):
            if not -depth <= self.levels < depth:
                raise ValueError(
                    f"the metric {self.name!r} is asked at level {self.levels}, and the input has levels 0..{depth - 1}"
                )
            return (self.levels % depth,)
        return {"all": range(depth), "parts": (0,), "leaves": (depth - 1,)}[self.levels]


def score_all(
    scores: Sequence[Score], explanation: Explanation, truth: Any, empty: bool, identity: Identity
) -> Conversation[list[tuple[str, int, float]]]:
    """Take every metric of one explanation: (metric, level, value)."""
    rows = []
    for score in scores:
        for level in score.at(explanation.structure.depth):
            value = score.function(Case(score.name, explanation, level, truth, empty, identity))
            if inspect.isgenerator(value):
                value = yield from value
            try:
                rows.append((score.name, level, float(value)))
            except (TypeError, ValueError):
                raise TypeError(f"the metric {score.name!r} must return a number; got {value!r:.100}") from None
    return rows


def as_scores(specs: Sequence[MetricSpec]) -> tuple[Score, ...]:
    """Return metrics by name (``"deletion"``, ``"deletion@0"``) or as ``(name, function)``."""
    if isinstance(specs, str):
        raise ValueError(f"metrics must be a list such as ['deletion', 'mihl']; got {specs!r}")
    scores = tuple(_as_score(spec) for spec in specs)
    if not scores:
        raise ValueError(f"metrics is empty: give at least one of {', '.join(SCORES)}")
    return scores


def _as_score(spec: MetricSpec) -> Score:
    if not isinstance(spec, str):
        if not (isinstance(spec, tuple | list) and len(spec) == 2 and callable(spec[1])):
            raise TypeError(f"a metric is a name, or (name, function) of (explanation, truth); got {spec!r:.100}")
        name, function = spec
        better = getattr(function, "higher_is_better", None)
        return Score(name, lambda case: function(case.explanation, case.truths), better, "parts", whole=True)
    name, _, level = spec.partition("@")
    if name not in SCORES or (level and not level.lstrip("-").isdigit()):
        raise ValueError(
            f"metric {spec!r} does not exist; there are {', '.join(SCORES)}, each also as 'name@level', "
            f"and your own as (name, function){did_you_mean(name, SCORES)}"
        )
    score = SCORES[name]
    return replace(score, levels=int(level)) if level else score


def _auroc_within(case: Case) -> float:
    """AUROC among the leaves of each relevant part by itself, averaged over those parts."""
    owners = case.explanation.structure.owners(0)
    leaves, labels = case.values(), np.asarray(case.truth())
    parts = np.flatnonzero(np.asarray(case.truth(0)) == 1)
    areas = [metrics.auroc(leaves[owners == j], labels[owners == j]) for j in parts]
    areas = [value for value in areas if not np.isnan(value)]
    return float(np.mean(areas)) if areas else float("nan")


def _coverage(case: Case) -> float:
    errors = case.explanation.stderr
    if errors is None:
        return float("nan")
    return metrics.coverage(case.values(), errors[case.level], case.truth())


def _curve(metric: Callable[..., Any]) -> Callable[[Case], Any]:
    return lambda case: metric(case.values(), case.level, case.explanation.target, empty=case.empty)


def _faithfulness(case: Case) -> Conversation[float]:
    """Insertion minus deletion, averaged over all levels."""
    total, e = 0.0, case.explanation
    for level, values in enumerate(e.values):
        shown = yield from metrics.insertion(values, level, e.target, empty=case.empty)
        hidden = yield from metrics.deletion(values, level, e.target, empty=case.empty)
        total += float(shown) - float(hidden)
    return total / len(e.values)


def _held_out(case: Case) -> BoolArray:
    """Masks of its own for every input, the same for all that explain it."""
    seed = case.identity.number + case.level
    return metrics.held_out(case.explanation.structure.widths[case.level], 100, seed, empty=case.empty)


def _infidelity(case: Case) -> Conversation[float]:
    e, level = case.explanation, case.level
    error = metrics.infidelity(case.values(), _held_out(case), level, e.target, intercept=e.intercepts[level])
    return on_scale(error, e.link.at(e.outputs))  # what is added up must be compared on the scale that it adds up on


def _drop(k: int) -> Callable[[Case], Any]:
    """The drop by the top k; NaN where that would leave nothing of an input that cannot be empty."""
    return lambda case: (
        metrics.topk_drop(case.values(), k, case.level, case.explanation.target)
        if case.empty or k < len(case.values())
        else float("nan")
    )


def _recall(k: int) -> Callable[[Case], float]:
    return lambda case: metrics.evidence_recall(case.values(), case.truth(), k)


SCORES: Mapping[str, Score] = {
    score.name: score
    for score in (
        Score("ndcg", lambda c: metrics.ndcg(c.values(), c.truth()), True, "parts", of_truth=True),
        Score("top1", lambda c: metrics.top1(c.values(), c.truth()), True, "parts", of_truth=True),
        Score("auroc", lambda c: metrics.auroc(c.values(), c.truth()), True, "leaves", of_truth=True),
        Score("auroc-within", _auroc_within, True, "leaves", of_truth=True),
        Score("insertion", _curve(metrics.insertion), True),
        Score("deletion", _curve(metrics.deletion), False),
        Score("faithfulness", _faithfulness, True, "parts", whole=True),
        Score("infidelity", _infidelity, False),
        Score("lds", lambda c: metrics.lds(c.values(), _held_out(c), c.level, c.explanation.target), True),
        Score("top1-drop", _drop(1), True, "leaves"),
        Score("top3-drop", _drop(3), True, "leaves"),
        Score("top1-recall", _recall(1), True, "leaves", of_truth=True),
        Score("top3-recall", _recall(3), True, "leaves", of_truth=True),
        Score(
            "consistency",
            lambda c: metrics.consistency(c.explanation.values, c.explanation.structure),
            False,
            "parts",
            whole=True,
        ),
        Score("mihl", lambda c: metrics.mihl(c.explanation.values, c.explanation.structure), True, "parts", whole=True),
        Score("coverage", _coverage, None, of_truth=True),
        # Needs the other seeds, so ``evaluate`` fills it in once an input's whole grid is there.
        Score("stability", lambda c: float("nan"), True),
    )
}
