"""When to stop asking: rules that look at what is known so far and say whether it is enough.

``Explainer(..., until=c2fa.until.top(3))`` asks in stages and stops after the first at which the rule is content; the
budget is the most that it may spend. A rule is any function of a ``Standing`` that returns True or False. The masks
of a smaller budget are the first masks of a larger one, so an explanation that stopped early is the very one that
the smaller budget would have given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from c2fa.methods.base import Attribution
from c2fa.structure import FloatArray, IntArray, Structure

__all__ = ["Standing", "Stderr", "Top", "Verdict", "stderr", "top"]

_DRAWS = 2000  # of the posterior: a chance of 95 % is known to half a percent
_MOST = 100  # the largest k
_RIVALS = 64  # features outside the top that are looked at, the most dangerous first
_FAR = 5.0  # standard errors beyond which a feature is no rival
_FIRST, _FEWEST = 16, 8  # rows before the first look, and between two, so that batched models have something to do


@dataclass(frozen=True, eq=False)
class Standing:
    """What is known after some rows: what a rule may look at.

    Attributes
    ----------
    structure
        The tree of features, with their names.
    values, stderr
        The target's attributions and their standard errors, one array for each level; ``stderr`` is None where the
        method has none.
    rows, budget
        Model rows used so far, and the most that may be.
    """

    structure: Structure
    values: tuple[FloatArray, ...]
    stderr: tuple[FloatArray, ...] | None
    rows: int
    budget: int
    found: Attribution

    def correlation(self, level: int, features: IntArray) -> FloatArray:
        """How the errors of some values of a level go together; methods that do not say are taken at no correlation."""
        posterior = None if self.found.solution is None else self.found.solution.posterior
        return np.eye(len(features)) if posterior is None else posterior.correlation(level, features)


@dataclass(frozen=True)
class Verdict:
    """What a rule found: whether it is content, and why, in words. It counts as True where it is."""

    enough: bool
    why: str

    def __bool__(self) -> bool:
        return self.enough


Rule: TypeAlias = Callable[[Standing], Any]


@dataclass(frozen=True)
class Top:
    """Content once the top k features of a level are settled, with this confidence.

    The k features with the largest absolute attributions are compared with all others under the fit's own posterior,
    by many draws from it. The confidence is as good as the standard errors are: it speaks of what chance masks leave
    open, under a model that is additive with noise.

    Parameters
    ----------
    k
        How many features.
    confidence
        The chance, under the posterior, that must be reached.
    level
        Of which level; -1 is the leaves, 0 the coarsest parts.
    settled
        What must be settled. ``"set"``: that these k are the top k, in whichever order; one that is nearly as important
        as the last of them keeps it open. ``"share"``: how many of the k belong there, on average; with a confidence of
        0.95 one feature in twenty may turn out to be wrong. ``"order"``: the set, and its order.
    margin
        By which share a feature outside must be larger than one of the k to count as having been passed over: with
        0.2, by a fifth. Where several features matter alike, no number of rows tells which of them is the third; a
        margin says from which difference on it matters.
    every
        Rows between two looks. By default the first is after 16 rows and each further one after a quarter more.
    """

    k: int = 3
    confidence: float = 0.95
    level: int = -1
    settled: Literal["set", "share", "order"] = "set"
    margin: float = 0.0
    every: int | None = None

    def __post_init__(self) -> None:
        if not (_whole(self.k) and 1 <= self.k <= _MOST):
            raise ValueError(f"k must be a whole number from 1 to {_MOST}; got {self.k!r}")
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"confidence is a chance between 0 and 1; got {self.confidence!r}")
        if self.settled not in ("set", "share", "order"):
            raise ValueError(f"settled must be 'set', 'share' or 'order'; got {self.settled!r}")
        if not (np.isfinite(self.margin) and self.margin >= 0):
            raise ValueError(f"margin is a share of at least 0; got {self.margin!r}")
        _check_every(self.every)

    def __call__(self, standing: Standing) -> Verdict:
        what = f"the top {self.k}" if self.k > 1 else "the top feature"
        what += "" if self.level == -1 else f" of level {self.level}"
        if standing.stderr is None:
            return Verdict(False, f"{what} cannot be judged, because the method gives no standard errors")
        chance = self.chance(standing)
        enough = chance >= self.confidence
        asked, only = _percent(self.confidence), _percent(min(chance, self.confidence - 0.001))
        if self.settled == "share":
            if enough:
                return Verdict(True, f"at least {asked} of {what} are expected to be right")
            return Verdict(False, f"{only} of {what} are expected to be right, and {asked} were asked for")
        what += " in their order" if self.settled == "order" and self.k > 1 else ""
        is_ = "are" if self.k > 1 else "is"
        if enough:
            return Verdict(True, f"{what} {is_} settled with {asked} confidence")
        return Verdict(False, f"{what} {is_} not settled with {asked} confidence, only with {only}")

    def chance(self, standing: Standing) -> float:
        """The chance that the k features that are on top now are the right ones, or the share of them that are."""
        assert standing.stderr is not None
        level = standing.structure.level(self.level)
        values, errors = standing.values[level], standing.stderr[level]
        if not np.isfinite(errors).all():
            return 0.0
        size = np.abs(values)
        by_size = np.argsort(-size, kind="stable")
        chosen, rest = by_size[: self.k], by_size[self.k :]
        inflated = 1.0 + self.margin
        last = size[chosen[-1]] * inflated
        far = (last - size[rest]) / np.maximum(np.hypot(errors[rest], errors[chosen].max()), 1e-300)
        rivals = rest[np.argsort(far, kind="stable")[: min(_RIVALS, int((far < _FAR).sum()))]]
        if not len(rivals) and self.settled != "order":
            return 1.0
        features = np.concatenate([chosen, rivals])
        draws = np.abs(values[features] + _normals(standing.correlation(level, features)) * errors[features])
        inside, outside = draws[:, : len(chosen)], draws[:, len(chosen) :]
        if self.settled == "share":
            # Those of the k that are among the k largest of a draw; with a margin, up to it.
            bound = np.sort(draws, axis=1)[:, -len(chosen)]
            return float((inside * inflated >= bound[:, None]).mean())
        fine = inside.min(axis=1) * inflated >= outside.max(axis=1, initial=-np.inf)
        if self.settled == "order":
            fine &= (inside[:, 1:] <= inside[:, :-1] * inflated).all(axis=1)
        return float(fine.mean())


@dataclass(frozen=True)
class Stderr:
    """Content once no standard error of a level is above a bound.

    Parameters
    ----------
    bound
        The largest standard error, in the units of the output.
    level
        Of which level; -1 is the leaves, 0 the coarsest parts.
    every
        Rows between two looks. By default the first is after 16 rows and each further one after a quarter more.
    """

    bound: float
    level: int = -1
    every: int | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"the bound of the standard errors must be a number above 0; got {self.bound!r}")
        _check_every(self.every)

    def __call__(self, standing: Standing) -> Verdict:
        if standing.stderr is None:
            return Verdict(False, "the standard errors cannot be judged, because the method gives none")
        level = standing.structure.level(self.level)
        largest = float(standing.stderr[level].max())
        said = f"of level {level}"
        if largest <= self.bound:
            return Verdict(True, f"every standard error {said} is at most {self.bound:g}")
        return Verdict(False, f"the largest standard error {said} is {largest:.3g}, and {self.bound:g} was asked for")


top = Top
stderr = Stderr


def as_rule(until: Any) -> Rule:
    """A rule from its short form, or the rule itself.

    >>> as_rule("top3"), as_rule("top5:0.9"), as_rule("stderr:0.01")  # doctest: +NORMALIZE_WHITESPACE
    (Top(k=3, confidence=0.95, level=-1, settled='set', margin=0.0, every=None),
     Top(k=5, confidence=0.9, level=-1, settled='set', margin=0.0, every=None),
     Stderr(bound=0.01, level=-1, every=None))
    """
    if isinstance(until, type):
        raise TypeError(f"until must be a rule such as c2fa.until.top(3), not the class {until.__name__} itself")
    if callable(until):
        return until  # type: ignore[no-any-return]
    if isinstance(until, str):
        words = re.fullmatch(r"top(\d+)(?::([\d.]+))?(?:@(-?\d+))?|stderr:([\d.eE+-]+)(?:@(-?\d+))?", until)
        if words:
            k, confidence, level, bound, at = words.groups()
            try:
                if k:
                    return Top(int(k), float(confidence or 0.95), int(level or -1))
                return Stderr(float(bound), int(at or -1))
            except ValueError as error:
                raise ValueError(f"until={until!r}: {error}") from None
    raise ValueError(
        f"until must be a rule such as c2fa.until.top(3), a function of what is known so far, or short for one: "
        f"'top3', 'top3:0.9', 'top2@0' (of level 0), 'stderr:0.01'; got {until!r}"
    )


class Judge:
    """Asks a rule after every stage, and remembers what it said last."""

    def __init__(self, rule: Rule, structure: Structure, column: int, rows: Callable[[], int], budget: int) -> None:
        self.rule, self.structure, self.column, self.rows, self.budget = rule, structure, column, rows, budget
        self.verdict = Verdict(False, "")
        self.early = True

    def __call__(self, found: Attribution) -> bool:
        """Whether what was found is enough."""
        standing = Standing(
            self.structure,
            tuple(v[:, self.column] for v in found.values),
            None if found.stderr is None else tuple(e[:, self.column] for e in found.stderr),
            self.rows(),
            self.budget,
            found,
        )
        said = self.rule(standing)
        if not isinstance(said, Verdict):
            name = getattr(self.rule, "__name__", type(self.rule).__name__)
            said = Verdict(bool(said), f"{name} is {'' if said else 'not '}content")
        self.verdict = said
        return said.enough

    def says(self) -> str:
        """What was spent and why it stopped, in a sentence."""
        if self.early:
            return f"stopped after {self.rows()} of {self.budget} rows: {self.verdict.why}"
        return f"spent the whole budget of {self.budget} rows: {self.verdict.why}"


def looks(total: int, rule: Rule) -> list[int]:
    """After how many of the rows a rule looks at what is known, the last being all of them.

    >>> looks(200, Top())
    [16, 24, 32, 40, 50, 62, 77, 96, 120, 150, 200]
    >>> looks(100, Top(every=40))
    [40, 80, 100]
    """
    every = getattr(rule, "every", None)
    found, at = [], every or _FIRST
    while at < total:
        found.append(at)
        at += every or max(_FEWEST, at // 4)
    if len(found) > 1 and 2 * (total - found[-1]) < found[-1] - found[-2]:
        found.pop()  # the last look comes soon enough
    return [*found, total]


def _normals(correlation: FloatArray) -> FloatArray:
    """Draws of standard normals with these correlations, (draws, features): the same ones every time."""
    root = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(correlation)))
    draws: FloatArray = _standard()[:, : len(correlation)] @ root.T
    return draws


@lru_cache(maxsize=1)
def _standard() -> FloatArray:
    """Independent standard normals, enough for all that is compared: the same every time, so that answers are too."""
    return np.random.default_rng(0).standard_normal((_DRAWS, _MOST + _RIVALS))


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}".rstrip("0").rstrip(".")
    return f"{text} %"


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_every(every: Any) -> None:
    if every is not None and not (_whole(every) and every >= 1):
        raise ValueError(f"every must be a whole number of rows of at least 1; got {every!r}")
