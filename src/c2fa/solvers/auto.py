"""Strengths and weights chosen from the outputs, for problems whose penalty is ``Auto``; nothing is left to tune.

Two corrections belong to the fit, not to the evidence. Noise that is the model's own way of not being additive is not
like the noise of a coin: what is to be found is the best additive description over all masks, and where all masks of
a level were asked, it is known. So a level's rows count ``1 / (share of its masks not asked)`` times, up to twenty,
as in sampling from a finite population. One part alone is no population: its two masks say what its leaves come to all
at once, which should not overrule what they come to one by one. And no level is taken to be more than four times as
noisy as the leaves': where the leaves' rows hardly vary, because the model is saturated under such masks, their noise
is next to none, and parts would follow them and not what masking whole parts shows. Standard errors ignore both
(``intervals.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from c2fa.masks import mask_keys
from c2fa.penalties import L2, Auto, L2Each, Penalty
from c2fa.problem import Level, Problem
from c2fa.solvers.evidence import Observations, evaluate
from c2fa.solvers.scales import BASE_SD, USUAL_TAIL, search
from c2fa.structure import FloatArray

MIN_UNASKED = 0.05  # rows count 1/0.05 times at the most
_HEAVIEST = 1e6  # what a row may weigh, in medians of its level: its noise is then a thousandth, as good as none


@dataclass(frozen=True, eq=False)
class Chosen:
    """What was chosen for a problem whose penalty is ``Auto``.

    ``problem`` is the same with weights and penalties in place of what was to be chosen, to be solved by any solver.
    Its unit is the leaves' noise: their level's weights are what they were. ``evidence`` computes the log evidence of
    the outputs, up to a constant. Leaves' own factors are left out of it, for they follow the outputs closely enough to
    make any of them likely.
    """

    problem: Problem
    noises: FloatArray  # of each level the noise variance, as a multiple of the leaves' level's
    boosts: FloatArray  # how many times each level's rows count in the fit, relative to the leaves' level
    centre: FloatArray  # of each leaf the prior variance that its parts and size suggest, in units of the leaves' noise
    centre_sd: float  # of its logarithm
    tail: float
    columns: slice  # the outputs that decided
    rounds: int  # that the choice took; 0 where the outputs are constant and there is nothing to choose by
    noiseless: bool  # whether the model is known to give the same outputs for the same input again
    evidence: Callable[[], float]

    @cached_property
    def strengths(self) -> FloatArray:
        leaves = self.problem.levels[-1]
        return np.broadcast_to(np.asarray(leaves.penalty.ridge, dtype=np.float64), leaves.width)


def bounded(level: Level) -> Level:
    """A level in which no weight is so far above the others that rounding drowns what the others say.

    SHAP's kernel gives the input itself 1e40 times the weight of masks of half of 130 features; of a thousand features,
    1e300 times. What all of them have in common says nothing where a level's noise is chosen, and goes where it would
    overflow.

    >>> rows = np.ones((5, 1), dtype=np.bool_), np.zeros(5)
    >>> bounded(Level(*rows, [1.0, 2.0, 0.0, 1.0, 1e40])).weights
    array([1.0e+00, 2.0e+00, 0.0e+00, 1.0e+00, 1.5e+06])
    >>> bounded(Level(*rows, [1e-300, 1e-300, 1e-300, 0.0, 1000.0])).weights
    array([1.e+00, 1.e+00, 1.e+00, 0.e+00, 1.e+06])
    """
    median, heaviest = level.usual_weight, _HEAVIEST * level.usual_weight
    unit = 1.0 if 1.0 / _HEAVIEST <= median <= _HEAVIEST else median
    if unit == 1.0 and level.weights.max() <= heaviest:
        return level
    return level.changed(weights=np.minimum(level.weights, heaviest) / unit)


def choose(problem: Problem) -> Chosen:
    """Put strengths in the place of ``Auto``, and bound the weights."""
    check_alike([level.penalty for level in problem.levels])
    auto, leaves = problem.levels[-1].penalty, problem.structure.leaves
    assert isinstance(auto, Auto)
    if auto.output is not None and not 0 <= auto.output < problem.outputs:
        raise ValueError(f"Auto(output={auto.output}) names an output that is not there: there are {problem.outputs}")
    if auto.sizes is not None and len(auto.sizes) != leaves:
        raise ValueError(f"Auto has {len(auto.sizes)} sizes for {leaves} leaves; give one for each")
    problem = problem.with_levels([bounded(level) for level in problem.levels])
    data = Observations.of(problem, auto.columns)
    if data is None:  # every value is zero, whatever the strengths
        ones, lam = np.ones(problem.structure.depth), leaves / 50
        return Chosen(
            problem=_with(problem, ones, L2(lam)),
            noises=ones,
            boosts=ones,
            centre=np.full(leaves, 0.5 / lam),
            centre_sd=BASE_SD,
            tail=USUAL_TAIL if auto.tail is None else auto.tail,
            columns=auto.columns,
            rounds=0,
            noiseless=False,
            evidence=lambda: float("inf"),
        )
    best = search(data, auto.tail, sizes=auto.sizes)
    scales = best.scales
    of_weight_1 = scales.noises * data.weights
    unit = of_weight_1[-1]
    noises = of_weight_1 / unit
    boosts = np.array([1.0 / _unasked(level) for level in problem.levels])
    # No level is taken to be more than four times as noisy as the leaves'.
    boosts *= np.maximum(1.0, scales.noises / (4.0 * scales.noises[-1]))
    boosts /= boosts[-1]

    def evidence() -> float:
        usual_own = float(np.exp(np.log(scales.own).mean()))
        fit = evaluate(data, scales.centre * usual_own, scales.noises)
        return fit.log_evidence - 0.5 * float(data.freedom.sum()) * data.log_unit

    return Chosen(
        problem=_with(problem, boosts / noises, L2Each(0.5 * unit / scales.variances)),
        noises=noises,
        boosts=boosts,
        centre=scales.centre / unit,
        centre_sd=scales.centre_sd(best.fit.dof),
        tail=scales.tail,
        columns=auto.columns,
        rounds=best.rounds,
        noiseless=bool(auto.noiseless),
        evidence=evidence,
    )


def _with(problem: Problem, factors: FloatArray, strengths: Penalty) -> Problem:
    """The problem with every level's weights multiplied by a factor, and a penalty on its leaves alone."""
    penalties = (*(L2(0.0),) * (len(problem.levels) - 1), strengths)
    return problem.with_levels(
        [
            level.scaled(float(factor)).penalised(penalty)
            for level, factor, penalty in zip(problem.levels, factors, penalties, strict=True)
        ]
    )


def check_alike(penalties: Sequence[Penalty]) -> None:
    """Refuse ``Auto`` at some levels beside strengths that are given at others."""
    if not any(isinstance(penalty, Auto) for penalty in penalties):
        return
    for k, penalty in enumerate(penalties):
        nothing = isinstance(penalty.ridge, float | int) and penalty.ridge == 0
        if not (isinstance(penalty, Auto) or (nothing and k < len(penalties) - 1)):
            raise ValueError(
                f"Auto() chooses the strengths of all levels together, but level {k} has {penalty}; give it to each"
            )


def _unasked(level: Level) -> float:
    """The share of a level's masks that was not asked, but no less than what its rows may count for."""
    if level.width == 1:
        return 1.0
    masks = 2.0 ** min(level.width, 1000)
    asked = level.masks[level.weights > 0]
    rows = len(asked)
    if rows > (1.0 - MIN_UNASKED) * masks:  # else it hardly matters whether some were asked twice
        rows = len(set(mask_keys(asked)))
    return float(max(1.0 - rows / masks, MIN_UNASKED))
