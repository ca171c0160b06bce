"""How many questions a method needs to be as good as LIME is with 150, and who is best with how many.

A method's mean score over N_L is joined by straight lines; the first N_L at which it reaches what the reference reaches
at N_L = 150 is what it needs. The interval comes from drawing the inputs anew, the same for method and reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from experiments.harness.reading import FEW, HIGHER_IS_BETTER, Domain, Floats

REFERENCES = ("LIME", "LIME intercept")
AT = 150
RESAMPLES = 1000
_ROUNDING = 1e-9  # scores are kept to four digits
LEAVES = ("auroc", "auroc-within", "deletion of leaves", "insertion of leaves")
PARTS = ("ndcg", "deletion of parts", "insertion of parts")


@dataclass(frozen=True)
class Needed:
    """What a method needs to reach a reference.

    Attributes
    ----------
    n_l
        Leaf questions; 0 where the smallest N_L is enough already, infinite where the largest is not.
    low, high
        Its 95 % interval, in the same way.
    budgets
        The smallest and the largest N_L that were run.
    """

    domain: str
    score: str
    method: str
    reference: str
    n_h: int
    target: float
    n_l: float
    low: float
    high: float
    budgets: tuple[int, int]

    @property
    def words(self) -> str:
        """The leaf questions, as a number or as a bound."""
        return _words(self.n_l, self.budgets)

    @property
    def interval(self) -> str:
        """The interval, where it is more than the number."""
        ends = [_words(end, self.budgets) for end in (self.low, self.high)]
        return "" if ends[0] == ends[1] == self.words else f"{ends[0]} to {ends[1]}"

    @property
    def total(self) -> str:
        """All questions: those about parts too."""
        first, last = (n + self.n_h for n in self.budgets)
        return _words(self.n_l + self.n_h if self.n_l else 0.0, (first, last))


def _words(n: float, budgets: tuple[int, int]) -> str:
    if n == 0:
        return f"≤ {budgets[0]}"
    return f"> {budgets[1]}" if not np.isfinite(n) else f"{n:.0f}"


def crossing(budgets: npt.ArrayLike, curves: npt.ArrayLike, targets: npt.ArrayLike) -> Floats:
    """The first budget at which each curve, (n, budgets), reaches its target from below, (n,).

    >>> crossing([20, 50, 100], [[1, 2, 3], [3, 3, 3], [0, 0, 1]], [2.5, 2.5, 2.5])
    array([75.,  0., inf])
    """
    x, y = np.asarray(budgets, dtype=np.float64), np.atleast_2d(np.asarray(curves, dtype=np.float64))
    goal = np.asarray(targets, dtype=np.float64)[:, None]
    reached = y >= goal - _ROUNDING
    first = reached.argmax(axis=1)
    crossings = np.full(len(y), np.inf)
    crossings[reached[:, 0]] = 0.0
    rows = np.flatnonzero(reached.any(axis=1) & ~reached[:, 0])
    k = first[rows]
    before, after = y[rows, k - 1], y[rows, k]
    share = (goal[rows, 0] - before) / (after - before)
    crossings[rows] = x[k - 1] + share * (x[k] - x[k - 1])
    return crossings


@lru_cache(maxsize=4)
def _counts(n: int) -> Floats:
    """How often each of n inputs is drawn in each resample; the same for every method."""
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES)
    return drawn.astype(np.float64)


def needed(d: Domain, score: str, reference: str, n_h: int, labels: Sequence[str] | None = None) -> list[Needed]:
    """What each method needs to reach what the reference reaches at ``AT``."""
    there = [n for n in d.budgets if d.has(score, reference, n_h, n)]
    if AT not in there:
        return []
    sign = 1.0 if HIGHER_IS_BETTER[score] else -1.0
    goal = sign * d.inputs(score, reference, n_h, AT)
    rows = []
    for label in d.labels if labels is None else labels:
        if not all(d.has(score, label, n_h, n) for n in there):
            continue
        block = np.column_stack([goal, *(sign * d.inputs(score, label, n_h, n) for n in there)])
        block = block[np.isfinite(block).all(axis=1)]
        drawn = _counts(len(block)) @ block / len(block)
        mean = block.mean(axis=0)
        middle = crossing(there, mean[None, 1:], mean[:1])[0]
        many = np.sort(crossing(there, drawn[:, 1:], drawn[:, 0]))
        low, high = many[int(0.025 * RESAMPLES)], many[int(0.975 * RESAMPLES)]
        ends = (there[0], there[-1])
        target = float(sign * mean[0])
        rows.append(Needed(d.name, score, label, reference, n_h, target, float(middle), float(low), float(high), ends))
    return rows


def all_needed(d: Domain) -> list[Needed]:
    """For every score and every reference: leaves' at the larger N_H, parts' at the smaller."""
    rows = []
    for reference in REFERENCES:
        for score in (*LEAVES, *PARTS):
            rows += needed(d, score, reference, d.many if score in LEAVES else FEW)
    return rows


@dataclass(frozen=True)
class Best:
    """Who is best at a budget, and who is not behind."""

    domain: str
    score: str
    n_h: int
    n_l: int
    label: str
    mean: float
    level: tuple[str, ...]


def best_at_each(d: Domain, labels: Sequence[str] | None = None) -> list[Best]:
    """The best method at each N_L, with those whose interval of the difference to it holds zero."""
    winners = []
    for score in (*LEAVES, *PARTS):
        n_h = d.many if score in LEAVES else FEW
        for n_l in d.budgets:
            there = [label for label in labels or d.labels if d.has(score, label, n_h, n_l)]
            if not there:
                continue
            first = d.best(score, there, n_h, n_l)
            level = [label for label in there if label != first and not d.gap(score, label, first, n_h, n_l).behind]
            winners.append(Best(d.name, score, n_h, n_l, first, d.mean(score, first, n_h, n_l)[0], tuple(level)))
    return winners
