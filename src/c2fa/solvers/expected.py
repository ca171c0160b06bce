"""Values that are expected beforehand, as far as the answers bear them out.

With ``m`` the expected values of the leaves, the fit looks for ``β = g m + u``: a share g of them, and a rest u. The
share is expected to be about 1, ``g ~ N(1, τ²)``, for what was learned elsewhere may be too large or too small here. Of
the rest, the relative size of each leaf is expected too, as a variance. Two fits are enough:

- *Without* what is expected. It chooses scales; the leaves' variances are then multiplied by the expected sizes. With
  ``W = (I + X P⁻¹ X')⁻¹`` and ``σ² = y'Wy / (degrees of freedom)``, the log likelihood of the answers is
  ``−(y − gXm)'W(y − gXm) / 2σ²``: a parabola in g. So the likeliest share is ``g = (b + 1/τ²) / (a + 1/τ²)`` with
  ``a = m'X'WXm / σ²`` and ``b = m'X'Wy / σ²``.
- *About* that share: the outputs less ``g Xm``, with the leaves' sizes for their relative prior variances
  (``Auto.sizes``).

The log odds of the second fit against the first, with g integrated out (Laplace), are

    D = log p(y | g) − log p(y | 0) − (g − 1)² / 2τ² − ½ log(1 + τ² a) − ½.

The last ½ are log odds beforehand: a prior is a little more likely to be of no use. The explanation is the first fit
plus ``tanh(D/2)`` times the way to the second, and the first alone where D is negative. (A mean by the odds would keep
some of every prior, however wrong: where rows are few, effects of the wrong sign have low odds but not 0, and are
large.)

The standard errors of the second fit count the doubt about g, along ``m − (X'X + P)⁻¹X'Xm``: the part of m that the
rows do not overrule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from c2fa.penalties import Auto, L2Each
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.direct import prepare
from c2fa.solvers.evidence import TINY
from c2fa.solvers.owen import Solved, solve_game
from c2fa.solvers.process import Game
from c2fa.solvers.solve import averaged
from c2fa.structure import FloatArray

Fit = TypeVar("Fit", Solution, Solved)


@dataclass(frozen=True, eq=False)
class Expectation:
    """What is expected of leaves, both (leaves, outputs).

    Attributes
    ----------
    effects
        Their values.
    sizes
        The variance of what is left of each leaf's value; only ratios between leaves count. Outputs share the scales of
        a fit, so the sizes are those of the output that decides (``Auto.output``, the target's unless told), or the
        mean over outputs where all of them decide together.
    """

    effects: FloatArray
    sizes: FloatArray
    in_units: bool = True
    """Whether effects are in the units of the outputs; those of another model are not."""

    def scaled(self, rows: FloatArray, outputs: FloatArray) -> Expectation:
        """The same in units, from what the effects come to in rows and the outputs there.

        Each output's effects are made as large as its outputs vary, and the share is what is left to be found.
        """
        if self.in_units:
            return self
        spread, wanted = rows.std(axis=0), outputs.reshape(len(rows), -1).std(axis=0)
        scales: FloatArray = np.divide(wanted, spread, out=np.zeros_like(spread), where=spread > 0.0)
        return Expectation(self.effects * scales, self.sizes)


@dataclass(frozen=True, eq=False)
class Expected(Generic[Fit]):
    """A fit about expected values, the share of them that the answers bear out, and the fit without them."""

    solution: Fit
    share: float
    without: Fit


def expected_part(values: FloatArray, without: FloatArray) -> float:
    """What part of values is what was expected, by absolute values: it and what the answers say come to 1.

    >>> expected_part(np.array([2.0, 1.0]), np.array([1.0, 1.0]))
    0.3333333333333333
    """
    learned, answered = np.abs(values - without).sum(), np.abs(without).sum()
    return float(learned / (learned + answered)) if learned else 0.0


@dataclass(frozen=True, eq=False)
class _Share:
    """What the answers say of the share: ``a``, ``b``, and the expected values that the rows do not overrule.

    ``left`` is what one more of the share changes of each leaf's value, (leaves, outputs); ``tau`` is τ.
    """

    a: float
    b: float
    left: FloatArray
    tau: float = 1.0

    @property
    def variance(self) -> float:
        """How uncertain the share is."""
        return 1.0 / (self.a + 1.0 / self.tau**2)

    @property
    def likeliest(self) -> float:
        """``g``."""
        return (self.b + 1.0 / self.tau**2) * self.variance

    def trust(self, gain: float) -> float:
        """``tanh(D/2)``, where the log evidence about the share is larger by a gain.

        The log odds beforehand were chosen on validation reviews for priors whose effects were permuted.
        """
        away = (self.likeliest - 1.0) / self.tau
        return float(np.tanh(0.5 * (gain - 0.5 * (away**2 + np.log1p(self.tau**2 * self.a)) - 0.5)))


def solve_about(problem: Problem, expected: Expectation, solve: Callable[[Problem], Solution]) -> Expected[Solution]:
    """Solve a problem, its penalty ``Auto``, of whose leaves something is expected."""
    auto = problem.levels[-1].penalty
    assert isinstance(auto, Auto)
    without, values = solve(problem), expected.effects
    sizes = expected.sizes[:, auto.columns].mean(axis=1)
    share = _share(problem, _sized(without, sizes), values, auto.columns)
    if share is None or share.likeliest <= 0.0:
        return Expected(without, 0.0, without)
    g = share.likeliest
    about = _about(problem, g * values, sizes, solve)
    assert about.log_evidence is not None
    assert without.log_evidence is not None
    trust = share.trust(about.log_evidence - without.log_evidence)
    if not trust > 0.0:
        return Expected(without, 0.0, without)
    after = _share(problem, about, values, auto.columns, g)
    if after is not None and about.stderr is not None:
        s = problem.structure
        doubts = (after.variance * np.square(s.sums(after.left, k)) for k in range(s.depth))
        errors = zip(about.stderr, doubts, strict=True)
        about = replace(about, stderr=tuple(np.sqrt(np.square(e) + doubt.reshape(e.shape)) for e, doubt in errors))
    return Expected(averaged([without, about], np.array([1.0 - trust, trust])), trust * g, without)


def solve_game_about(game: Game, expected: Expectation) -> Expected[Solved]:
    """The values of a game of whose leaves something is expected."""
    without = solve_game(game)
    process = without.likeliest
    if process is None:
        return Expected(without, 0.0, without)
    s, observed, column = game.structure, process.observed, game.output
    sizes = expected.sizes[:, column]
    logs = np.log(sizes)
    fit = process.refitted(process.scales.variances * np.exp(logs - logs.mean()))
    rows = 0.5 * observed.x @ expected.effects / observed.unit
    reached, pulls = fit.precision @ rows, fit.pulls[:, column]
    variance = float(observed.targets[:, column] @ pulls) / max(observed.free, 1)
    if not variance > TINY:
        return Expected(without, 0.0, without)
    left = expected.effects - process.covariances @ reached * observed.unit
    a = max(float(rows[:, column] @ reached[:, column]), 0.0) / variance
    share = _Share(a, float(rows[:, column] @ pulls) / variance, left)
    if share.likeliest <= 0.0:
        return Expected(without, 0.0, without)
    taken = share.likeliest * expected.effects
    about = solve_game(replace(game.less(taken), sizes=sizes))
    trust = share.trust(about.log_evidence - without.log_evidence)
    if not trust > 0.0:
        return Expected(without, 0.0, without)
    values, errors = [], []
    for k in range(s.depth):
        whole = about.values[k] + s.sums(taken, k)
        value = (1.0 - trust) * without.values[k] + trust * whole
        doubt = share.variance * np.square(s.sums(left, k))
        square = (1.0 - trust) * (np.square(without.stderr[k]) + np.square(without.values[k] - value))
        square = square + trust * (np.square(about.stderr[k]) + doubt + np.square(whole - value))
        exact = without.exact[k][:, None]
        values.append(np.where(exact, without.values[k], value))
        errors.append(np.where(exact, 0.0, np.sqrt(square)))
    return Expected(replace(without, values=tuple(values), stderr=tuple(errors)), trust * share.likeliest, without)


def _share(
    problem: Problem, solution: Solution, values: FloatArray, columns: slice, taken: float = 0.0
) -> _Share | None:
    """Under the scales of a solution, in which a share ``taken`` is off the outputs; None where answers say nothing.

    They say nothing where they are constant, and need no prior where leaves have no strength.
    """
    scaled, system = solution.problem, solution.factorise()
    if system is None:
        return None
    pairs = zip(scaled.levels, _rows_of(problem, values), strict=True)
    expected = np.concatenate([level.changed(outputs=rows).rows.targets for level, rows in pairs])
    answers = scaled.targets - taken * expected
    reached = system.fit(expected)
    unexplained = answers - scaled.design @ system.fit(answers)

    def inner(a: FloatArray, b: FloatArray) -> float:
        return float(np.einsum("ij,ij->j", a[:, columns], b[:, columns]).mean())

    free = sum(float(np.count_nonzero(level.weights) - level.intercept) for level in scaled.levels)
    variance = inner(answers, unexplained) / max(free, 1.0)
    if not variance > TINY:
        return None
    a = max(inner(expected, expected - scaled.design @ reached), 0.0) / variance
    b = inner(expected, unexplained) / variance + a * taken
    return _Share(a, b, values - scaled.levels[-1].smoothed(reached))


def _about(problem: Problem, expected: FloatArray, sizes: FloatArray, solve: Callable[[Problem], Solution]) -> Solution:
    """The solution for what is left of the outputs, as one of the problem itself: its residuals are the same."""
    s = problem.structure
    pairs = zip(problem.levels, _rows_of(problem, expected), strict=True)
    *above, finest = [level.changed(outputs=level.outputs - rows) for level, rows in pairs]
    assert isinstance(finest.penalty, Auto)
    auto = replace(finest.penalty, sizes=tuple(sizes))
    solution = solve(problem.with_levels([*above, finest.penalised(auto)]))
    levels = zip(solution.problem.levels, problem.levels, strict=True)
    whole = solution.problem.with_levels([solved.changed(outputs=level.outputs) for solved, level in levels])
    values = tuple(v + s.sums(expected, k).reshape(v.shape) for k, v in enumerate(solution.values))
    return replace(solution, values=values, problem=whole)


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
