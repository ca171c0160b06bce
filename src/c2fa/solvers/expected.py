"""Values that are expected beforehand, as far as the answers bear them out.

With ``m`` the expected values, what is looked for is ``β = g m + u``: a share g of them, and what is left, which is
fitted as ever. The share is expected to be about 1, ``g ~ N(1, τ²)``: what was learned elsewhere may be too large or
too small here. How large the rest ``u`` of each leaf usually is beside that of others is expected too: its size, a
relative variance. Two fits are enough:

- *Without* what is expected. Under the scales that it chooses, the leaves' variances times their sizes, with ``W = (I +
  X P⁻¹ X')⁻¹`` and σ² the variance of the answers' part that ``W`` leaves, the answers have the log likelihood ``−(y −
  gXm)'W(y − gXm) / 2σ²``. It is a parabola in g, so the likeliest share is ``g = (b + 1/τ²) / (a + 1/τ²)``, ``a =
  m'X'WXm / σ²`` and ``b = m'X'Wy / σ²``.
- *About* that share of it: the outputs less ``g Xm``, the leaves' sizes for their relative prior variances
  (``Auto.sizes``).

The log evidence of the second beside the first, the doubt about the share integrated out (Laplace), is

    D = log p(y | g) − log p(y | 0) − (g − 1)² / 2τ² − ½ log(1 + τ² a) − ½,

where the last ½ is what is thought of it beforehand: that it is of use is a little less likely than that it is not. Its
odds are ``exp(D)``, and the explanation goes from the first towards the second by what they are above even,
``tanh(D/2)``: not at all where the answers are no likelier with what was expected than without. A mean by the odds
would leave some of every prior in, however wrong: where rows for leaves are few the odds of effects of the wrong sign
are low but not 0, and what such effects add is large.

The standard errors of the second fit count the doubt about the share, along ``m − (X'X + P)⁻¹X'Xm``: what of the
expected values the rows do not overrule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from c2fa.penalties import Auto, L2Each
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.direct import prepare
from c2fa.solvers.evidence import TINY
from c2fa.solvers.game import Game
from c2fa.solvers.owen import Solved, solve_game
from c2fa.solvers.smoothing import averaged
from c2fa.structure import FloatArray

_SHARE, _SHARE_SD = 1.0, 1.0  # what is expected of the share itself
_AGAINST = 0.5  # log odds beforehand, chosen on validation reviews for priors whose effects were permuted


@dataclass(frozen=True, eq=False)
class Expectation:
    """What is expected of leaves, both (leaves, outputs).

    Attributes
    ----------
    effects
        Their values.
    sizes
        How large what is left of a leaf's value usually is beside that of the others, as variances: only their ratios
        count. Outputs share the scales of a fit, so that those of the output that decides (``Auto.output``, the
        target's unless told) are used, or the mean over outputs where all of them decide together.
    """

    effects: FloatArray
    sizes: FloatArray


@dataclass(frozen=True, eq=False)
class Expected:
    """A solution about expected values, the share of them that the answers bear out, and the solution without them."""

    solution: Solution
    share: float
    without: Solution


def expected_part(values: FloatArray, without: FloatArray) -> float:
    """What part of values is what was expected, by absolute values: it and what the answers say come to 1.

    >>> expected_part(np.array([2.0, 1.0]), np.array([1.0, 1.0]))
    0.3333333333333333
    """
    learned, answered = np.abs(values - without).sum(), np.abs(without).sum()
    return float(learned / (learned + answered)) if learned else 0.0


def solve_about(problem: Problem, expected: Expectation, solve: Callable[[Problem], Solution]) -> Expected:
    """Solve a problem, its penalty ``Auto``, of whose leaves something is expected."""
    without, values = solve(problem), expected.effects
    sizes = expected.sizes[:, _deciding(problem)].mean(axis=1)
    first = _Said.of(problem, _sized(without, sizes), values)
    if first is None or first.share <= 0.0:
        return Expected(without, 0.0, without)
    about = _about(problem, first.share * values, sizes, solve)
    assert about.log_evidence is not None
    assert without.log_evidence is not None
    trust = float(np.tanh(0.5 * (about.log_evidence - without.log_evidence - first.doubt)))
    if not trust > 0.0:
        return Expected(without, 0.0, without)
    about = _with_doubt(problem, about, values, first.share)
    return Expected(averaged([without, about], np.array([1.0 - trust, trust])), trust * first.share, without)


def solve_game_about(game: Game, expected: Expectation) -> tuple[Solved, float, Solved]:
    """The values of a game of whose leaves something is expected, its share, and the values without it."""
    without = solve_game(game)
    process = without.likeliest
    if process is None:
        return without, 0.0, without
    s, observed, column = game.structure, process.observed, game.output
    sizes = expected.sizes[:, column]
    logs = np.log(sizes)
    fit = process.refitted(process.scales.variances * np.exp(logs - logs.mean()))
    rows = 0.5 * observed.x @ expected.effects / observed.unit
    answers = observed.targets[:, column]
    unit = float(answers @ fit.pulls[:, column]) / max(observed.free, 1)
    if not unit > TINY:
        return without, 0.0, without
    reached = fit.precision @ rows
    precision = max(float(rows[:, column] @ reached[:, column]), 0.0) / unit
    found = float(rows[:, column] @ fit.pulls[:, column]) / unit
    share = (found + _SHARE / _SHARE_SD**2) / (precision + 1.0 / _SHARE_SD**2)
    if share <= 0.0:
        return without, 0.0, without
    taken = share * expected.effects
    about = solve_game(replace(game.less(taken), sizes=sizes))
    away = (share - _SHARE) / _SHARE_SD
    doubt = _AGAINST + 0.5 * float(away**2 + np.log1p(_SHARE_SD**2 * precision))
    trust = float(np.tanh(0.5 * (about.log_evidence - without.log_evidence - doubt)))
    if not trust > 0.0:
        return without, 0.0, without
    # What one more of the share changes of each value: all that the rows do not overrule.
    left = expected.effects - process.covariances.T @ reached * observed.unit
    values, errors = [], []
    for k in range(s.depth):
        whole = about.values[k] + s.sums(taken, k)
        value = (1.0 - trust) * without.values[k] + trust * whole
        more = np.square(s.sums(left, k)) / (precision + 1.0 / _SHARE_SD**2)
        variance = (1.0 - trust) * (np.square(without.stderr[k]) + np.square(without.values[k] - value))
        variance = variance + trust * (np.square(about.stderr[k]) + more + np.square(whole - value))
        known = without.exact[k][:, None]
        values.append(np.where(known, without.values[k], value))
        errors.append(np.where(known, 0.0, np.sqrt(variance)))
    return replace(without, values=tuple(values), stderr=tuple(errors)), trust * share, without


@dataclass(frozen=True, eq=False)
class _Said:
    """What the answers say of the share, under the scales of a solution.

    Attributes
    ----------
    precision
        How surely they say it: ``a``.
    share
        The likeliest share.
    left
        For each leaf, what one more of the share changes of its value, (leaves, outputs).
    """

    precision: float
    share: float
    left: FloatArray

    @classmethod
    def of(cls, problem: Problem, solution: Solution, values: FloatArray, taken: float = 0.0) -> _Said | None:
        """Of a share ``taken`` off the outputs in that solution; None where the answers say nothing.

        They say nothing where they are constant, and need no prior where leaves have no strength.
        """
        scaled, system = solution.problem, solution.factorise()
        columns = _deciding(problem)
        pairs = zip(scaled.levels, _rows_of(problem, values), strict=True)
        expected = np.concatenate([level.with_outputs(rows).rows.targets for level, rows in pairs])
        if system is None:
            return None
        answers = scaled.targets - taken * expected
        reached = system.fit(expected)
        unexplained = answers - scaled.design @ system.fit(answers)
        rest = expected - scaled.design @ reached
        free = sum(float(np.count_nonzero(level.weights) - level.intercept) for level in scaled.levels)
        unit = _inner(answers, unexplained, columns) / max(free, 1.0)
        if not unit > TINY:
            return None
        precision = max(_inner(expected, rest, columns), 0.0) / unit
        found = _inner(expected, unexplained, columns) / unit
        share = (found + precision * taken + _SHARE / _SHARE_SD**2) / (precision + 1.0 / _SHARE_SD**2)
        return cls(precision, share, values - scaled.levels[-1].smoothed(reached))

    @property
    def doubt(self) -> float:
        """By how much less likely all of it is for what was thought beforehand: of its use, and of the share."""
        away = (self.share - _SHARE) / _SHARE_SD
        return _AGAINST + 0.5 * float(away**2 + np.log1p(_SHARE_SD**2 * self.precision))

    @property
    def variance(self) -> float:
        """How uncertain the share is."""
        return 1.0 / (self.precision + 1.0 / _SHARE_SD**2)


def _about(problem: Problem, expected: FloatArray, sizes: FloatArray, solve: Callable[[Problem], Solution]) -> Solution:
    """The solution for what is left of the outputs, as one of the problem itself: its residuals are the same."""
    s = problem.structure
    pairs = zip(problem.levels, _rows_of(problem, expected), strict=True)
    *above, finest = [level.with_outputs(level.outputs - rows) for level, rows in pairs]
    assert isinstance(finest.penalty, Auto)
    auto = replace(finest.penalty, sizes=tuple(sizes))
    solution = solve(problem.with_levels([*above, finest.penalised(auto)]))
    levels = zip(solution.problem.levels, problem.levels, strict=True)
    whole = solution.problem.with_levels([solved.with_outputs(level.outputs) for solved, level in levels])
    values = tuple(v + s.sums(expected, k).reshape(v.shape) for k, v in enumerate(solution.values))
    return replace(solution, values=values, problem=whole)


def _deciding(problem: Problem) -> slice:
    """The outputs that decide."""
    auto = problem.levels[-1].penalty
    assert isinstance(auto, Auto)
    return slice(None) if auto.output is None else slice(auto.output, auto.output + 1)


def _sized(solution: Solution, sizes: FloatArray) -> Solution:
    """The solution's scales with leaves of these sizes.

    Leaves of which what is expected is usually right say more about the share than others.
    """
    *above, finest = solution.problem.levels
    if solution.factorise() is None or finest.penalty.ridge is None:
        return solution
    logs = np.log(sizes)
    strengths = L2Each(finest.penalty.ridge * np.exp(logs.mean() - logs))
    sized = solution.problem.with_levels([*above, finest.penalised(strengths)])
    return replace(solution, problem=sized, factorise=lambda: prepare(sized)[1])


def _rows_of(problem: Problem, values: FloatArray) -> list[FloatArray]:
    """What the leaves' values come to in every row of each level, in the shape of its outputs."""
    s = problem.structure
    return [(level.masks @ s.sums(values, k)).reshape(level.outputs.shape) for k, level in enumerate(problem.levels)]


def _with_doubt(problem: Problem, about: Solution, values: FloatArray, share: float) -> Solution:
    """The solution with standard errors that count the doubt about the share."""
    said = _Said.of(problem, about, values, share)
    if said is None or about.stderr is None:
        return about
    s = problem.structure
    moved = [np.square(s.sums(said.left, k)).reshape(e.shape) for k, e in enumerate(about.stderr)]
    errors = zip(about.stderr, moved, strict=True)
    return replace(about, stderr=tuple(np.sqrt(np.square(e) + said.variance * more) for e, more in errors))


def _inner(a: FloatArray, b: FloatArray, columns: slice) -> float:
    """The inner product of each column, on average."""
    return float(np.einsum("ij,ij->j", a[:, columns], b[:, columns]).mean())
