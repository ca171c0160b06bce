"""The paper's claims, one by one, judged by rules that were written down before the numbers were seen.

Every claim is taken apart into statements, each about one score. A statement is looked at for every N_L it speaks of;
``Line`` holds the numbers there and whether the statement is true there. Words used by all rules:

- *ahead of*, *behind*: the 95 % interval of the difference between two methods (paired by inputs, each input averaged
  over seeds, bootstrap) lies wholly on one side of zero; *level with* otherwise.
- *about as good*: the difference is less than ``CLOSE``.
- A statement *holds* where it is true at every N_L in question, *holds in part* where it is true at some, and *does not
  hold* where it is true at none. A claim holds where all of its statements hold, and does not where none does, not even
  in part. A statement that only qualifies another ("most at small N_L") saves no claim of which nothing else holds.

The paper's N_L begin at 50. Ours begin at 20, which is shown and never judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.harness.reading import FEW, HIGHER_IS_BETTER, NAMES, PAPER_FROM, Domain, Gap, Results, gap

HOLDS, IN_PART, NOT, NOT_RUN = "holds", "holds in part", "does not hold", "not run"

CLOSE = 0.02  # scores (all between 0 and 1) that differ by less are about the same
NEAR_ZERO = 0.01  # a share of the separate fits' inconsistency
HIGH = 0.8  # an agreement (MIHL) that is called high
SLIGHTLY = 0.1  # an agreement that is better by less is slightly better
LINEAR = 0.95  # R² of a line through the seconds
SAME_TIME = 1.5  # a ratio of seconds that is about one


@dataclass(frozen=True)
class Cast:
    """Who is who in a claim: the method it is about, and those to which it is compared."""

    ours: str
    others: tuple[str, ...]

    @property
    def bottom_up(self) -> tuple[str, ...]:
        return tuple(label for label in self.others if label.startswith("BU-"))

    @property
    def milli(self) -> tuple[str, ...]:
        return tuple(label for label in self.others if "MILLI" in label)

    @property
    def separate(self) -> str | None:
        """The method whose levels are fitted each for itself, like ours with an intercept or like ours without."""
        plain = [label for label in self.others if label in ("LIME", "LIME intercept")]
        return (plain[0] if self.ours in AS_PRINTED else plain[-1]) if plain else None


AS_PRINTED = ("C2FA", "C2FA exact")


def others_of(ours: str, labels: Sequence[str]) -> tuple[str, ...]:
    """To whom a method is compared: one as printed to the paper's methods, another to all that are not C2FA."""
    from experiments.harness.settings import PAPER_METHODS

    if ours in AS_PRINTED:
        return tuple(label for label in labels if label in PAPER_METHODS and label != "C2FA")
    return tuple(label for label in labels if not label.startswith("C2FA"))


@dataclass(frozen=True)
class Line:
    """A statement at one N_L: the numbers, and whether it is true there.

    Attributes
    ----------
    at
        The N_L, or what is compared to what.
    true
        Whether the statement is true; None where that is not judged.
    clear
        Whether it is true by the interval too, where a tie that leans the right way is let pass.
    ours_spread, other_spread
        Standard deviations of the means over seeds.
    level, behind
        The methods with which ours is level, and those behind which it is.
    """

    score: str
    n_h: int
    at: str
    true: bool | None
    ours_label: str
    ours: float
    ours_spread: float
    other_label: str
    other: float
    other_spread: float
    difference: float
    low: float
    high: float
    clear: bool = False
    level: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A part of a claim: what it says, by which rule it is judged, and how it came out (None: shown, not judged)."""

    words: str
    rule: str
    verdict: str | None
    lines: tuple[Line, ...]
    note: str = ""
    qualifies: bool = False

    @property
    def where(self) -> str:
        """At which N_L it is true, in words."""
        judged = [line for line in self.lines if line.true is not None]
        yes, no = ([line.at for line in judged if line.true is flag] for flag in (True, False))
        if len(judged) < 2 or self.verdict not in (HOLDS, IN_PART):
            return ""
        return "at every N_L" if not no else f"at N_L = {', '.join(yes)}, not at {', '.join(no)}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged."""

    number: int
    domain: str
    words: str
    statements: tuple[Statement, ...]

    @property
    def verdict(self) -> str:
        """Holds where all statements hold, does not where none does, in part otherwise."""
        judged = [s for s in self.statements if s.verdict not in (None, NOT_RUN)]
        main = {s.verdict for s in judged if not s.qualifies}
        if not main:
            return NOT_RUN
        every = {s.verdict for s in judged} if main != {NOT} else main
        return str(every.pop()) if len(every) == 1 else IN_PART


@dataclass(frozen=True)
class Table:
    """All claims, judged for one method."""

    cast: Cast
    claims: tuple[Claim, ...]

    def __getitem__(self, number: int) -> Claim:
        return next(claim for claim in self.claims if claim.number == number)

    def records(self) -> list[dict[str, Any]]:
        """One row for each line of each statement, for a CSV file."""
        return [
            {
                "claim": claim.number,
                "domain": claim.domain,
                "verdict": claim.verdict,
                "statement": statement.words,
                "statement_verdict": statement.verdict or "not judged",
                "score": line.score,
                "N_H": line.n_h,
                "at": line.at,
                "true": line.true,
                "ours": line.ours_label,
                "ours_mean": line.ours,
                "ours_seeds_sd": line.ours_spread,
                "other": line.other_label,
                "other_mean": line.other,
                "other_seeds_sd": line.other_spread,
                "difference": line.difference,
                "low": line.low,
                "high": line.high,
                "level_with": ", ".join(line.level),
                "behind": ", ".join(line.behind),
            }
            for claim in self.claims
            for statement in claim.statements
            for line in statement.lines
        ]


# ------------------------------------------------------------------------------------------------ rules


def _budgets(d: Domain, at: Callable[[int], bool]) -> list[tuple[int, bool]]:
    """The N_L to look at, and whether each is judged: those of the paper that a statement speaks of."""
    return [(n, n >= PAPER_FROM and at(n)) for n in d.budgets]


def _judge(lines: Sequence[Line], judged: bool = True) -> str | None:
    """True everywhere, somewhere, nowhere."""
    if not judged:
        return None
    truths = [line.true for line in lines if line.true is not None]
    if not truths:
        return NOT_RUN
    if all(truths):
        return HOLDS
    return IN_PART if any(truths) else NOT


def _line(
    d: Domain,
    score: str,
    n_h: int,
    n_l: int,
    hero: str,
    rival: str,
    between: Gap,
    true: bool | None,
    *,
    rival_n_l: int | None = None,
    **more: Any,
) -> Line:
    mine = d.mean(score, hero, n_h, n_l)
    theirs = d.mean(score, rival, n_h, n_l if rival_n_l is None else rival_n_l)
    at = str(n_l) if rival_n_l is None else f"{n_l} against {rival_n_l}"
    return Line(
        score, n_h, at, true, hero, *mine, rival, *theirs, between.difference, between.low, between.high, **more
    )


def _there(d: Domain, score: str, n_h: int, n_l: int, labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if d.has(score, label, n_h, n_l))


BEST = (
    "true where the interval lies on the good side of 0 against every other method, or holds 0 while the mean is not "
    "worse than the other's; to hold, it must be ahead of all of them at half of the N_L at least; in part, at one"
)


def best(
    d: Domain,
    score: str,
    n_h: int,
    hero: str,
    rivals: Sequence[str],
    *,
    at: Callable[[int], bool] = lambda n: True,
    words: str = "",
    judged: bool = True,
) -> Statement:
    """A method has the best score of all."""
    lines = []
    for n_l, counts in _budgets(d, at):
        there = _there(d, score, n_h, n_l, rivals)
        if not there or not d.has(score, hero, n_h, n_l):
            continue
        gaps = {rival: d.gap(score, hero, rival, n_h, n_l) for rival in there}
        true = all(g.ahead or (not g.behind and g.gain >= 0) for g in gaps.values())
        nearest = d.best(score, there, n_h, n_l)
        lines.append(
            _line(
                d,
                score,
                n_h,
                n_l,
                hero,
                nearest,
                gaps[nearest],
                true if counts and judged else None,
                clear=all(g.ahead for g in gaps.values()),
                level=tuple(rival for rival, g in gaps.items() if not g.ahead and not g.behind),
                behind=tuple(rival for rival, g in gaps.items() if g.behind),
            )
        )
    verdict = _judge(lines, judged)
    if verdict in (HOLDS, IN_PART):
        clear = [line.clear for line in lines if line.true is not None]
        verdict = NOT if not any(clear) else verdict if 2 * sum(clear) >= len(clear) else IN_PART
    return Statement(words or f"best {NAMES[score]}, N_H = {n_h}", BEST, verdict, tuple(lines))


LEAD = (
    "the lead over the best other method, averaged over the smaller N_L, less that over the larger, both paired by "
    "inputs: holds where there is a lead at the smaller N_L and the interval lies above 0, in part where the mean does"
)


def lead_is_larger(
    d: Domain, score: str, n_h: int, cast: Cast, small: Callable[[int], bool], large: Callable[[int], bool]
) -> Statement:
    """Ours leads by more at smaller N_L."""
    words = f"the lead in {NAMES[score]} is largest at small N_L, N_H = {n_h}"
    sides: list[list[Any]] = [[], []]
    names: list[list[int]] = [[], []]
    for n_l in d.budgets:
        there = _there(d, score, n_h, n_l, cast.others)
        if n_l < PAPER_FROM or not there or not d.has(score, cast.ours, n_h, n_l):
            continue
        rival = d.best(score, there, n_h, n_l)
        lead = d.inputs(score, cast.ours, n_h, n_l) - d.inputs(score, rival, n_h, n_l)
        lead = lead if HIGHER_IS_BETTER[score] else -lead
        for k, chosen in enumerate((small, large)):
            if chosen(n_l):
                sides[k].append(lead)
                names[k].append(n_l)
    if not all(sides):
        return Statement(words, LEAD, NOT_RUN, ())
    near, far = (np.mean(side, axis=0) for side in sides)
    between = gap(near - far, True)
    at = f"{_span(names[0])} against {_span(names[1])}"
    line = Line(
        score,
        n_h,
        at,
        bool(between.ahead and np.nanmean(near) > 0),
        "lead at small N_L",
        float(np.nanmean(near)),
        float("nan"),
        "lead at large N_L",
        float(np.nanmean(far)),
        float("nan"),
        between.difference,
        between.low,
        between.high,
    )
    verdict = NOT if line.ours <= 0 or between.gain <= 0 else HOLDS if between.ahead else IN_PART
    return Statement(words, LEAD, verdict, (line,), qualifies=True)


def _span(budgets: Sequence[int]) -> str:
    return str(budgets[0]) if len(budgets) == 1 else f"{budgets[0]}–{budgets[-1]}"


EQUAL = f"true where the interval of the difference to each of them lies within ±{CLOSE}"


def equal(d: Domain, score: str, n_h: int, cast: Cast) -> Statement:
    """All but the bottom-up methods are about as good as ours; the one farthest from it is shown."""
    lines = []
    for n_l, counts in _budgets(d, lambda n: True):
        rivals = [label for label in cast.others if label not in cast.bottom_up]
        there = _there(d, score, n_h, n_l, rivals)
        if not there or not d.has(score, cast.ours, n_h, n_l):
            continue
        gaps = {rival: d.gap(score, cast.ours, rival, n_h, n_l) for rival in there}
        true = all(g.low > -CLOSE and g.high < CLOSE for g in gaps.values())
        far = max(gaps, key=lambda rival: abs(gaps[rival].difference))
        lines.append(_line(d, score, n_h, n_l, cast.ours, far, gaps[far], true if counts else None))
    words = f"{NAMES[score]}: all but BU-LIME equal, N_H = {n_h}"
    return Statement(words, EQUAL, _judge(lines), tuple(lines))


def _against_best(
    d: Domain,
    score: str,
    n_h: int,
    hero: str,
    rivals: Sequence[str],
    true: Callable[[Gap, float, float], bool],
    at: Callable[[int], bool] = lambda n: True,
) -> tuple[Line, ...]:
    """A method beside the best of some others; ``true`` takes the gap and both means."""
    lines = []
    for n_l, counts in _budgets(d, at):
        there = _there(d, score, n_h, n_l, rivals)
        if there and d.has(score, hero, n_h, n_l):
            rival = d.best(score, there, n_h, n_l)
            between = d.gap(score, hero, rival, n_h, n_l)
            mine, theirs = (d.mean(score, label, n_h, n_l)[0] for label in (hero, rival))
            said = true(between, mine, theirs) if counts else None
            lines.append(_line(d, score, n_h, n_l, hero, rival, between, said))
    return tuple(lines)


AHEAD = "true where ours is ahead"


def ahead_of(d: Domain, score: str, n_h: int, cast: Cast, rivals: Sequence[str], words: str) -> Statement:
    """Ours is ahead of the best of some methods."""
    lines = _against_best(d, score, n_h, cast.ours, rivals, lambda between, mine, theirs: between.ahead)
    return Statement(words, AHEAD, _judge(lines), lines, qualifies=True)


MATCHES = (
    f"holds where ours at the smaller N_L is ahead of the best other method there, and against the best other at the "
    f"larger N_L the worse end of the interval is not {CLOSE} or more behind; in part where only the mean is not"
)


def matches(d: Domain, score: str, n_h: int, cast: Cast, mine: int, theirs: int) -> Statement:
    """Ours at a small N_L is about as good as the best other at a larger one, or better."""
    words = f"{NAMES[score]} at N_L = {mine} about that of the second best at {theirs}, N_H = {n_h}"
    there = [label for label in cast.others if all(d.has(score, label, n_h, n) for n in (mine, theirs))]
    if not there or not d.has(score, cast.ours, n_h, mine):
        return Statement(words, MATCHES, NOT_RUN, ())
    rival = d.best(score, there, n_h, theirs)
    between = d.gap(score, cast.ours, rival, n_h, mine, other_n_l=theirs)
    beside = d.best(score, there, n_h, mine)
    saves = d.gap(score, cast.ours, beside, n_h, mine)
    close, surely = between.gain > -CLOSE, between.worst > -CLOSE
    verdict = NOT if not saves.ahead or not close else HOLDS if surely else IN_PART
    lines = (
        _line(d, score, n_h, mine, cast.ours, rival, between, close and surely, rival_n_l=theirs),
        _line(d, score, n_h, mine, cast.ours, beside, saves, saves.ahead, rival_n_l=mine),
    )
    return Statement(words, MATCHES, verdict, lines)


CONSISTENT = f"true where the mean of ‖α − Mβ‖² is at most {NEAR_ZERO:.0%} of that of separate fits (LIME)"


def near_zero(d: Domain, cast: Cast) -> Statement:
    """Parts are the sums of their leaves, nearly."""
    rivals = [cast.separate] if cast.separate else []
    lines = _against_best(
        d, "consistency", d.many, cast.ours, rivals, lambda between, mine, theirs: mine <= NEAR_ZERO * theirs
    )
    return Statement(f"consistency near zero, N_H = {d.many}", CONSISTENT, _judge(lines), lines)


IS_HIGH = f"true where the mean is at least {HIGH}"


def high_agreement(d: Domain, cast: Cast) -> Statement:
    """Ours has a high MIHL at every N_L."""
    lines = _against_best(d, "mihl", d.many, cast.ours, cast.others, lambda between, mine, theirs: mine >= HIGH)
    return Statement(f"MIHL high at every N_L, N_H = {d.many}", IS_HIGH, _judge(lines), lines)


SLIGHTLY_BETTER = f"true where the bottom-up method is ahead of ours, by less than {SLIGHTLY}"


def slightly_behind_bottom_up(d: Domain, cast: Cast, at: Callable[[int], bool]) -> Statement:
    """A bottom-up method has the slightly better MIHL."""

    def true(between: Gap, mine: float, theirs: float) -> bool:
        return between.behind and -between.gain < SLIGHTLY

    lines = _against_best(d, "mihl", d.many, cast.ours, cast.bottom_up, true, at)
    words = f"BU-LIME's MIHL slightly better at N_L ≤ 100, N_H = {d.many}"
    return Statement(words, SLIGHTLY_BETTER, _judge(lines), lines)


NOT_AHEAD = "true where ours is level with or behind the best of them"


def not_ahead_of(
    d: Domain, score: str, n_h: int, cast: Cast, rivals: Sequence[str], at: Callable[[int], bool], words: str
) -> Statement:
    """Ours is no better than the best of some methods."""
    lines = _against_best(d, score, n_h, cast.ours, rivals, lambda between, mine, theirs: not between.ahead, at)
    return Statement(words, NOT_AHEAD, _judge(lines), lines)


CHAMPION = "true where the best of the MILLI methods is ahead of ours and of every other method that is not MILLI's"


def milli_wins(d: Domain, score: str, n_h: int, cast: Cast) -> Statement:
    """The MILLI methods are better than ours and all LIMEs."""
    lines = []
    for n_l, counts in _budgets(d, lambda n: True):
        champions = _there(d, score, n_h, n_l, cast.milli)
        limes = _there(d, score, n_h, n_l, [label for label in cast.others if label not in cast.milli])
        if champions and d.has(score, cast.ours, n_h, n_l):
            hero = d.best(score, champions, n_h, n_l)
            true = all(d.gap(score, hero, rival, n_h, n_l).ahead for rival in (cast.ours, *limes))
            between = d.gap(score, cast.ours, hero, n_h, n_l)
            lines.append(_line(d, score, n_h, n_l, cast.ours, hero, between, true if counts else None))
    words = f"MILLI's methods best in {NAMES[score]}, N_H = {n_h}"
    return Statement(words, CHAMPION, _judge(lines), tuple(lines))


STRAIGHT = (
    f"holds where a line through the mean seconds over N_L rises and has R² of {LINEAR} or more, in part from 0.8"
)


def linear_time(d: Domain, label: str, judged: bool = True) -> Statement:
    """Seconds of an explanation rise in proportion to N_L."""
    words = f"seconds of an explanation linear in N_L ({d.name})"
    seconds = {n: float(taken.mean()) for n, taken in sorted(d.seconds(label).items())}
    if len(seconds) < 3:
        return Statement(words, STRAIGHT, NOT_RUN if judged else None, ())
    x, y = np.array(list(seconds), dtype=np.float64), np.array(list(seconds.values()))
    slope, start = np.polyfit(x, y, 1)
    whole = float(((y - y.mean()) ** 2).sum())
    r2 = 1.0 - float(((y - slope * x - start) ** 2).sum()) / whole if whole else 0.0
    verdict = NOT if slope <= 0 or r2 < 0.8 else HOLDS if r2 >= LINEAR else IN_PART
    note = f"{start * 1e3:.1f} ms + {slope * 1e3:.3f} ms · N_L, R² = {r2:.3f}"
    return Statement(words, STRAIGHT, verdict if judged else None, (), note)


SAME = f"true where the mean seconds are at most {SAME_TIME} times those of separate fits (LIME)"


def time_of_separate_fits(d: Domain, cast: Cast, judged: bool = True) -> Statement:
    """Both levels together take about the time of each for itself."""
    lines = []
    rival = cast.separate
    mine, theirs = (d.seconds(label) if label else {} for label in (cast.ours, rival))
    for n_l in sorted(mine):
        if n_l in theirs and rival is not None:
            a, b = mine[n_l], theirs[n_l]
            between = gap(a - b, False)
            counts = judged and n_l >= PAPER_FROM
            lines.append(
                Line(
                    "seconds",
                    d.many,
                    str(n_l),
                    bool(a.mean() <= SAME_TIME * b.mean()) if counts else None,
                    cast.ours,
                    float(a.mean()),
                    float("nan"),
                    rival,
                    float(b.mean()),
                    float("nan"),
                    between.difference,
                    between.low,
                    between.high,
                )
            )
    ratios = [line.ours / line.other for line in lines]
    note = f"{min(ratios):.2f} to {max(ratios):.2f} times {rival}'s" if ratios else ""
    words = f"about the time of separate fits ({d.name})"
    return Statement(words, SAME, _judge(lines, judged), tuple(lines), note)


# ------------------------------------------------------------------------------------------------ the claims


def _claim_1(d: Domain, cast: Cast) -> list[Statement]:
    scores = ("ndcg", "deletion of parts", "insertion of parts")
    small, large = min((n for n in d.budgets if n >= PAPER_FROM), default=0), max(d.budgets)
    return [
        *(best(d, score, FEW, cast.ours, cast.others) for score in scores),
        *(lead_is_larger(d, score, FEW, cast, lambda n: n == small, lambda n: n == large != small) for score in scores),
    ]


def _claim_2(d: Domain, cast: Cast) -> list[Statement]:
    scores = ("ndcg", "insertion of parts", "deletion of parts")
    return [
        *(equal(d, score, d.many, cast) for score in scores),
        *(
            ahead_of(d, score, d.many, cast, cast.bottom_up, f"{NAMES[score]}: BU-LIME behind, N_H = {d.many}")
            for score in scores
        ),
    ]


def _claim_3(d: Domain, cast: Cast) -> list[Statement]:
    def small(n: int) -> bool:
        return n <= 100

    auroc, deletion = (
        best(
            d,
            score,
            d.many,
            cast.ours,
            cast.others,
            at=small,
            words=f"best {NAMES[score]} at N_L ≤ 100, N_H = {d.many}",
        )
        for score in ("auroc", "deletion of leaves")
    )
    trivial = d.about.get("trivial auroc")
    if isinstance(trivial, int | float):
        auroc = replace(auroc, note=f"painting the whole positive image has {trivial:.3f}")
    beside = ("auroc-within", "insertion of leaves")  # the paper does not show these
    return [auroc, deletion, *(best(d, s, d.many, cast.ours, cast.others, judged=False) for s in beside)]


def _claim_4(d: Domain, cast: Cast) -> list[Statement]:
    return [matches(d, "auroc", d.many, cast, 50, 150)]


def _claim_5(d: Domain, cast: Cast) -> list[Statement]:
    return [matches(d, "deletion of leaves", d.many, cast, 50, 100)]


def _consistent(d: Domain, cast: Cast) -> list[Statement]:
    return [near_zero(d, cast)]


def _claim_7(d: Domain, cast: Cast) -> list[Statement]:
    return [
        best(d, "mihl", d.many, cast.ours, cast.others),
        lead_is_larger(d, "mihl", d.many, cast, lambda n: n <= 150, lambda n: n >= 200),
    ]


def _claim_8(d: Domain, cast: Cast) -> list[Statement]:
    score = "deletion of parts"
    late, early = f"best {NAMES[score]} at N_L ≥ 200, N_H = {FEW}", f"{NAMES[score]} at N_L ≤ 150, N_H = {FEW}"
    return [
        best(d, score, FEW, cast.ours, cast.others, at=lambda n: n >= 200, words=late),
        not_ahead_of(d, score, FEW, cast, cast.milli, lambda n: n <= 150, f"{early}: not better than MILLI's methods"),
        best(d, "insertion of parts", FEW, cast.ours, cast.others, judged=False),
    ]


def _claim_9(d: Domain, cast: Cast) -> list[Statement]:
    return [best(d, score, d.many, cast.ours, cast.others) for score in ("deletion of leaves", "insertion of leaves")]


def _claim_11(d: Domain, cast: Cast) -> list[Statement]:
    return [high_agreement(d, cast), slightly_behind_bottom_up(d, cast, lambda n: n <= 100)]


def _claim_12(d: Domain, cast: Cast) -> list[Statement]:
    return [milli_wins(d, score, d.many, cast) for score in ("insertion of parts", "deletion of parts")]


def _claim_13(d: Domain, cast: Cast) -> list[Statement]:
    return [linear_time(d, cast.ours), time_of_separate_fits(d, cast)]


CLAIMS: Mapping[int, tuple[str, str, Callable[[Domain, Cast], list[Statement]]]] = {
    1: (
        "images",
        "At N_H = 5 {ours} has the best NDCG, deletion and insertion of HiFAs, most at small N_L.",
        _claim_1,
    ),
    2: ("images", "At N_H = {many} all methods but BU-LIME are equally good at HiFAs, whatever N_L.", _claim_2),
    3: ("images", "At small N_L {ours} has the best AUROC and deletion of LoFAs.", _claim_3),
    4: ("images", "The AUROC of {ours} at N_L = 50 is about that of the second best at 150.", _claim_4),
    5: ("images", "The deletion of LoFAs of {ours} at N_L = 50 is about that of the second best at 100.", _claim_5),
    6: ("images", "The consistency of {ours} is near zero.", _consistent),
    7: ("images", "{ours} has the best MIHL at every N_L, most at N_L ≤ 150.", _claim_7),
    8: (
        "text",
        "At N_H = 5 {ours} has the best deletion of HiFAs from N_L = 200 on; up to 150 it is not better than the MILLI "
        "methods.",
        _claim_8,
    ),
    9: ("text", "{ours} has the best deletion and insertion of LoFAs at every N_L.", _claim_9),
    10: ("text", "The consistency of {ours} is near zero.", _consistent),
    11: ("text", "The MIHL of {ours} is high at every N_L; BU-LIME's is slightly better at N_L ≤ 100.", _claim_11),
    12: ("text", "At N_H = {many} the MILLI methods have the best insertion and deletion of HiFAs.", _claim_12),
    13: ("text", "The time of {ours} is linear in N_L and about that of separate fits.", _claim_13),
}
"""The claims: number, experiment, words, and the function that judges them."""


def table(results: Results, ours: str = "C2FA", others: Sequence[str] | None = None) -> Table:
    """Judge every claim of the experiments that were run.

    Parameters
    ----------
    results
        What ``reading.read`` returns.
    ours
        The method that takes C2FA's place in the claims.
    others
        Those to which it is compared; None chooses (see ``others_of``).
    """
    judged = []
    cast = Cast(ours, tuple(others or ()))
    for number, (name, words, judge) in CLAIMS.items():
        if name not in results:
            continue
        d = results[name]
        if ours not in d.labels:
            raise ValueError(f"{ours!r} is not among the methods of the results, which are {', '.join(d.labels)}")
        cast = Cast(ours, tuple(others) if others is not None else others_of(ours, d.labels))
        said = words.format(ours=ours, many=d.many)
        judged.append(Claim(number, name, said, tuple(judge(d, cast))))
    return Table(cast, tuple(judged))
