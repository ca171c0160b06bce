"""When to stop asking: rules that look at what is known so far and say whether it is enough.

``Explainer(..., until=c2fa.until.top(3))`` asks in stages and stops after the first at which the rule holds; the budget
is the most that it may spend. A rule is any function of a ``Standing`` that returns True or False. The masks of a
smaller budget are the first masks of a larger one, so an explanation that stopped early is the very one that the
smaller budget would have given.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from c2fa._system import is_real, is_whole
from c2fa.asking.masking import Masked
from c2fa.asking.model import Model
from c2fa.asking.querying import BudgetError, Conversation, Queries
from c2fa.asking.replies import QueryError, Till
from c2fa.asking.spending import Money
from c2fa.methods.base import Attribution, BaseMethod
from c2fa.methods.budget import Budget
from c2fa.showing.printing import singular
from c2fa.structure import FloatArray, IntArray, Structure

__all__ = ["Standing", "Stderr", "Top", "Verdict", "stderr", "top"]


@dataclass(frozen=True, eq=False)
class Standing:
    """What is known after some rows: what a rule may look at.

    Attributes
    ----------
    structure
        The tree of features, with their names.
    level_names
        What the features of each level are called: sentences, words.
    values, stderr
        The target's attributions and their standard errors, one array for each level; ``stderr`` is None where the
        method has none.
    rows, budget
        Model rows used so far, and the most that may be.
    """

    structure: Structure
    level_names: tuple[str, ...]
    values: tuple[FloatArray, ...]
    stderr: tuple[FloatArray, ...] | None
    rows: int
    budget: int
    found: Attribution

    def correlation(self, level: int, features: IntArray) -> FloatArray:
        """The posterior correlations of some values of a level; none where the method has no posterior."""
        if self.found.game is not None:
            return self.found.game.correlation(self.structure, level, features)
        posterior = None if self.found.solution is None else self.found.solution.posterior
        return np.eye(len(features)) if posterior is None else posterior.correlation(level, features)


@dataclass(frozen=True)
class Verdict:
    """Whether a rule holds, and why, in words. It counts as True where it does."""

    enough: bool
    why: str

    def __bool__(self) -> bool:
        return self.enough


Rule: TypeAlias = Callable[[Standing], Any]


@dataclass(frozen=True)
class Top:
    """Stops when the top k of a level, in any order, are right with posterior probability of at least ``confidence``.

    The confidence is as good as the standard errors are: it is about what the masks leave open.

    Parameters
    ----------
    k
        How many features.
    confidence
        The probability that must be reached.
    level
        Of which level; -1 is the leaves, 0 the coarsest parts.
    margin
        By which share a feature outside must be larger than one of the k to count as passed over: with 0.2, by a fifth.
        Where several features matter alike, no number of rows tells which of them is the third.
    """

    k: int = 3
    confidence: float = 0.95
    level: int = -1
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not (is_whole(self.k) and 1 <= self.k <= 100):
            raise ValueError(f"k must be a whole number from 1 to 100; got {self.k!r}")
        if not (is_real(self.confidence) and 0.0 < self.confidence < 1.0):
            raise ValueError(f"confidence is a chance between 0 and 1; got {self.confidence!r}")
        if not (is_real(self.margin) and 0.0 <= self.margin < np.inf):
            raise ValueError(f"margin is a share of at least 0; got {self.margin!r}")

    def __call__(self, standing: Standing) -> Verdict:
        name = standing.level_names[standing.structure.level(self.level)]
        what, verb = (f"the top {self.k} {name}", "are") if self.k > 1 else (f"the top {singular(name)}", "is")
        if standing.stderr is None:
            return Verdict(False, f"{what} cannot be judged, because the method gives no standard errors")
        chance = self.chance(standing)
        if chance >= self.confidence:
            return Verdict(True, f"{what} {verb} settled with {_percent(self.confidence)} confidence")
        only = _percent(min(chance, self.confidence - 0.001))
        return Verdict(
            False, f"{what} {verb} not settled with {_percent(self.confidence)} confidence, only with {only}"
        )

    def chance(self, standing: Standing, *, rivals: int = 64, far: float = 5.0) -> float:
        """The posterior probability that the k on top now are the right ones.

        They are compared with at most so many ``rivals``, the most dangerous first; a feature is none that is so many
        standard errors behind as ``far`` says.
        """
        assert standing.stderr is not None
        level = standing.structure.level(self.level)
        values, errors = standing.values[level], standing.stderr[level]
        if not np.isfinite(errors).all():
            return 0.0
        size = np.abs(values)
        order = np.argsort(-size, kind="stable")
        top, rest = order[: self.k], order[self.k :]
        behind = size[top[-1]] * (1.0 + self.margin) - size[rest]
        distance = behind / np.maximum(np.hypot(errors[rest], errors[top].max()), 1e-300)
        nearest = rest[np.argsort(distance, kind="stable")][: min(rivals, int((distance < far).sum()))]
        if not len(nearest):
            return 1.0
        features = np.concatenate([top, nearest])
        correlation = standing.correlation(level, features)
        root = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(features)))
        normals = _independent_normals()[:, : len(features)] @ root.T
        draws = np.abs(values[features] + normals * errors[features])
        inside, outside = draws[:, : len(top)], draws[:, len(top) :]
        return float((inside.min(axis=1) * (1.0 + self.margin) >= outside.max(axis=1)).mean())


@dataclass(frozen=True)
class Stderr:
    """Stops when no standard error of a level is above a bound.

    Parameters
    ----------
    bound
        The largest standard error, in the units of the output.
    level
        Of which level; -1 is the leaves, 0 the coarsest parts.
    """

    bound: float
    level: int = -1

    def __post_init__(self) -> None:
        if not (is_real(self.bound) and 0 < self.bound < np.inf):
            raise ValueError(f"the bound of the standard errors must be a number above 0; got {self.bound!r}")

    def __call__(self, standing: Standing) -> Verdict:
        if standing.stderr is None:
            return Verdict(False, "the standard errors cannot be judged, because the method gives none")
        level = standing.structure.level(self.level)
        name, largest = standing.level_names[level], float(standing.stderr[level].max())
        if largest <= self.bound:
            return Verdict(True, f"every standard error of {name} is at most {self.bound:g}")
        return Verdict(
            False, f"the largest standard error of {name} is {largest:.3g}, and {self.bound:g} was asked for"
        )


top = Top
stderr = Stderr


def as_rule(until: Any) -> Rule:
    """A rule, or what the command line writes for one.

    >>> as_rule("top5") == Top(5), as_rule("stderr:0.01") == Stderr(0.01)
    (True, True)
    """
    if isinstance(until, type):
        raise TypeError(f"until must be a rule such as c2fa.until.top(3), not the class {until.__name__} itself")
    if callable(until):
        return until  # type: ignore[no-any-return]
    if isinstance(until, str):
        try:
            if short := re.fullmatch(r"top(\d+)", until):
                return Top(int(short[1]))
            if short := re.fullmatch(r"stderr:([\d.eE+-]+)", until):
                return Stderr(float(short[1]))
        except ValueError as error:
            raise ValueError(f"until={until!r}: {error}") from None
    raise ValueError(
        f"until must be a rule such as c2fa.until.top(3), a function of what is known so far, or short for one: "
        f"'top3' or 'stderr:0.01'; got {until!r}"
    )


@dataclass(eq=False)
class Judge:
    """Asks a rule after every stage, and remembers what it said last.

    ``money`` is what pays for the rows where that is the budget, and ``early`` whether it stopped before all were used.
    """

    rule: Rule
    masked: Masked
    column: int
    queries: Queries
    money: Money | None = None
    verdict: Verdict = Verdict(False, "")
    early: bool = True

    def __call__(self, found: Attribution) -> bool:
        standing = Standing(
            self.masked.structure,
            self.masked.level_names,
            tuple(v[:, self.column] for v in found.values),
            None if found.stderr is None else tuple(e[:, self.column] for e in found.stderr),
            self.queries.used,
            self.queries.budget,
            found,
        )
        verdict = self.rule(standing)
        if not isinstance(verdict, Verdict):
            name = getattr(self.rule, "__name__", type(self.rule).__name__)
            verdict = Verdict(bool(verdict), f"{name} is {'' if verdict else 'not '}satisfied")
        self.verdict = verdict
        return verdict.enough

    def says(self) -> str:
        """What was spent and why it stopped, in a sentence."""
        used, budget = self.queries.used, self.queries.budget
        if self.early:
            paid = f" that {self.money.text} pays for" if self.money else ""
            return f"stopped after {used} of {budget} rows{paid}: {self.verdict.why}"
        whole = f"{self.money.text} on {used}" if self.money else budget
        return f"spent the whole budget of {whole} rows: {self.verdict.why}"


AskRows: TypeAlias = Callable[[tuple[int, ...]], Conversation[Attribution]]
"""Asks as a method does under so many masks of each level; what was asked before costs nothing when it comes again."""


def in_stages(
    ask: AskRows, splits: Sequence[tuple[int, ...]], judge: Judge | None
) -> Conversation[tuple[Attribution, tuple[int, ...]]]:
    """Ask for more and more masks until the rule, if there is one, is content, and for the last at the most."""
    *first, last = splits
    for rows in first:
        try:
            found = yield from ask(rows)
        except (QueryError, BudgetError):  # too few rows so far: for a ranking, or because all were dropped
            continue
        if judge is not None and judge(found):
            return found, rows
    found = yield from ask(last)
    if judge is not None:
        judge.early = False
        judge(found)
    return found, last


def until_priced(
    ask: AskRows, splits: Sequence[tuple[int, ...]], money: Money, model: Model, queries: Queries
) -> Conversation[None]:
    """Ask for more and more masks until a row has a price, for what is known for nothing does not tell it."""
    for rows in splits:
        if queries.purse.price:
            return
        if queries.sent and not Till.of(model).has_cost:
            raise ValueError(
                f"budget={money.text!r} is money, and the first row cost nothing; give the model a price, or a budget "
                "in rows"
            )
        with contextlib.suppress(QueryError, BudgetError):  # too few rows so far, which more may mend
            yield from ask(rows)


def stages(method: BaseMethod, structure: Structure, rows: tuple[int, ...], budget: Budget) -> list[tuple[int, ...]]:
    """The masks of each level at which a rule looks at what is known: the splits of smaller budgets, then all rows."""
    total, found = sum(rows) + 1, list[tuple[int, ...]]()
    for some in looks(total)[:-1]:
        if isinstance(budget, tuple):
            ahead = tuple(max(1, n * some // total) for n in rows)
        elif some > structure.depth:
            ahead = method.split(some, structure)
        else:
            continue
        found.append(tuple(map(min, ahead, rows)))
    return [*found, rows]


def looks(total: int) -> list[int]:
    """After how many of the rows a rule looks at what is known, the last being all of them.

    The first look is after 16 rows and each further one after a quarter more, so that batched models have something to
    do between two.

    >>> looks(200)
    [16, 24, 32, 40, 50, 62, 77, 96, 120, 150, 200]
    """
    rows, at = [], 16
    while at < total:
        rows.append(at)
        at += max(8, at // 4)
    if len(rows) > 1 and 2 * (total - rows[-1]) < rows[-1] - rows[-2]:
        rows.pop()  # the last look comes soon enough
    return [*rows, total]


@lru_cache(maxsize=1)
def _independent_normals() -> FloatArray:
    """The same draws every time, enough for 100 features and 64 rivals; of 2,000 a chance of 95 % is known to 0.5 %."""
    return np.random.default_rng(0).standard_normal((2000, 100 + 64))


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}".rstrip("0").rstrip(".")
    return f"{text} %"
