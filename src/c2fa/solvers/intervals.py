"""Solving with strengths that were chosen from the outputs, and standard errors that admit the choosing.

Given all scales, the posterior covariance is ``C = (X'X + P)⁻¹``, in the unit of the leaves' noise. It is the sum of
what the rows' noise does to the values, ``C X'X C``, and of what the rows leave undetermined, ``C P C``. The two have
scales of their own: noise is estimated from residuals, level by level; what is undetermined is as large as the values
are. They must be kept apart. Where a model is exactly additive the residuals are 0, and with fewer rows than leaves
its values are still uncertain.

Three things are added, so that a value ± 1.96 standard errors holds the truth in about 95 of 100 cases (``make
bench-queries ARGS="--only additive,coverage"``):

- *A leaf's own strength is uncertain.* Take one leaf's prior variance ``v`` as unknown and all else as given. With
  ``s`` and ``q`` what the rows say of the leaf apart from its prior, its value has mean ``q v/(1 + v s)`` and
  variance ``σ² v/(1 + v s)``, and ``v`` has the density ``p(v) (1 + v s)^-½ exp(½ q²/σ² v/(1 + v s))``. The extra
  variance is the spread over a grid of ``v``, about the value that was returned. A part's extra variance is the sum
  of its leaves' times sqrt(Var(part) / Σ Var(leaf)); the factor is below 1 where the part's own rows determine it.
- *Strengths that follow the values use up more degrees of freedom* than ridge regression with given strengths does: a
  leaf whose shrinkage weakens as its value grows uses ``γ / (1 − 2τ(1 − γ))`` instead of γ, with ``τ = ∂ log v / ∂
  log β²`` (Stein). Without it noise is underestimated where rows are about as many as leaves.
- *The noise is estimated*: Student's t has wider quantiles, and the errors are widened by the ratio at 95 %, with
  Satterthwaite's degrees of freedom where levels mix.

Rows that count several times in the fit because all masks of their level were asked (``auto.py``) count once
here, since an output may have noise of its own. A mask that was drawn several times is one output; methods see to it.
Where the model is known to have no noise, what its rows leave over follows from the masks, and does less to the values;
what parts are is then not quite settled by any number of rows (``misfit.py``).
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri, stdtrit

from c2fa.problem import Problem
from c2fa.solution import Solution, System
from c2fa.solvers.auto import MIN_UNASKED, Chosen, choose
from c2fa.solvers.direct import Fitted, prepare, row_leverages, smooth_errors
from c2fa.solvers.evidence import TINY
from c2fa.solvers.misfit import Misfit
from c2fa.structure import FloatArray

_PRIOR_ROWS = 2.0  # as many rows' worth of residuals at the noise that the whole problem suggests
_GRID = np.linspace(-3.5, 4.5, 17)  # logarithms of a leaf's own factor
_FINE = np.linspace(-8.0, 10.0, 181)  # the same logarithms, finer and further: what is blurred onto the grid
_APART = np.square(_GRID[:, None] - _FINE)
_NORMAL_QUANTILE = ndtri(0.975)


def calibrated(problem: Problem) -> Solution:
    """Choose strengths for a problem whose penalty is ``Auto``, solve it exactly, and give honest standard errors."""
    chosen = choose(problem)
    _, system = prepare(chosen.problem)
    leaf_values = system.fit(chosen.problem.targets)
    fitted = Fitted.of(chosen.problem, leaf_values)
    leverages = row_leverages(chosen.problem, system)
    errors = standard_errors(chosen, system, leaf_values, leverages, fitted.losses)
    return with_choice(fitted.solution(system.status, stderr=errors, leverages=leverages, system=system), chosen)


def with_choice(solution: Solution, chosen: Chosen) -> Solution:
    """The solution with losses by the weights that were given, and what was chosen for it."""
    factors = tuple(map(float, chosen.boosts / chosen.noises))
    losses = tuple(loss / factor for loss, factor in zip(solution.losses, factors, strict=True))
    return replace(solution, losses=losses, factors=factors, evidence=chosen.evidence)


def standard_errors(
    chosen: Chosen,
    system: System,
    leaf_values: FloatArray,
    leverages: tuple[FloatArray, ...],
    losses: tuple[FloatArray, ...],
) -> tuple[FloatArray, ...] | None:
    """Standard errors of every level's values, (width, outputs)."""
    problem = chosen.problem
    s = problem.structure
    variances = system.variances()
    ends = np.cumsum([0, *(len(level.masks) for level in problem.levels)]).tolist()
    slices = [slice(start, end) for start, end in itertools.pairwise(ends)]  # of each level's rows among all
    influences = system.influences(slices)
    dof: FloatArray = np.maximum(1.0 - 2.0 * variances[-1] * chosen.strengths, 0.0)  # γ, what rows determine of a leaf
    found = functools.partial(_Noises.of, chosen, leaf_values, leverages, losses, _adaptivity(chosen, dof))
    noises = found()
    # For each output, how large its values are beside what their strengths expect: Σ β²/v over Σ γ.
    weighed = 2.0 * chosen.strengths @ np.square(leaf_values)
    size = (weighed + _PRIOR_ROWS * noises.overall) / (dof.sum() + _PRIOR_ROWS)
    own = _own_strength_variance(chosen, variances[-1], leaf_values, size)
    smooth = problem.levels[-1].smooth is not None
    misfit = Misfit.of(chosen, system, slices) if chosen.noiseless else None
    if misfit is not None:
        noises = found(misfit)
    errors = []
    for k, variance in enumerate(variances):
        if misfit is None:
            from_rows = [of[k][:, None] * noise for of, noise in zip(influences, noises.levels, strict=True)]
            total = sum(from_rows, start=np.zeros(1))
        else:
            from_rows, total = misfit.variances(k, noises.levels)
            total = total + misfit.apart(k, noises.levels[-1] / chosen.boosts[-1])
        undetermined = np.maximum(variance - sum(of_level[k] for of_level in influences), 0.0)
        total = total + undetermined[:, None] * size
        # Under smoothing a leaf gives to its neighbours what it takes from them, and the parts' sums stay as they are.
        if not (smooth and k < s.depth - 1):
            total = total + s.sums(own, k) * _shared(variance, s.sums(variances[-1], k))[:, None]
        whole = total[:, chosen.columns].sum(axis=1)
        whole = np.where(whole > 0, whole, 1.0)
        shares = [np.minimum(of_level[:, chosen.columns].sum(axis=1) / whole, 1.0) for of_level in from_rows]
        doubt = sum(share**2 / free for share, free in zip(shares, noises.dof, strict=True))
        free = 1.0 / np.maximum(doubt, 1e-9)
        widening = stdtrit(np.maximum(free, 2.0), 0.975) / _NORMAL_QUANTILE
        errors.append(np.sqrt(total) * widening[:, None])
    if not smooth:
        return tuple(errors)
    # Leaves' errors are so many times the roots of their variances, on average, for each output.
    known, scale = np.isfinite(variances[-1]), np.sqrt(noises.levels[-1])
    if known.any() and variances[-1][known].any():
        scale = np.sqrt(np.square(errors[-1][known]).sum(axis=0) / variances[-1][known].sum())
    return smooth_errors(problem, system, tuple(errors), scale)


def _shared(variances: FloatArray, of_leaves: FloatArray) -> FloatArray:
    """How much of the doubt about its leaves' strengths reaches a value: 1 where its leaves err independently."""
    known = np.isfinite(of_leaves) & (of_leaves > 0)
    shares: FloatArray = np.divide(variances, of_leaves, out=np.ones_like(variances), where=known)
    return np.sqrt(shares)


def _adaptivity(chosen: Chosen, dof: FloatArray) -> float:
    """How many times more degrees of freedom the leaves use because their strengths follow their values."""
    if not (np.isfinite(chosen.tail) and dof.any()):
        return 1.0
    own = 0.5 / (chosen.strengths * chosen.centre)
    follows = np.maximum(1.0 - chosen.tail / (own * (chosen.tail + dof)), 0.0)
    used = np.minimum(dof / np.maximum(1.0 - 2.0 * follows * (1.0 - dof), 0.25), 1.5)  # no leaf uses more
    return float(used.sum() / dof.sum())


@dataclass(frozen=True, eq=False)
class _Noises:
    """Noise variances for each output, in the fit's unit, which is the leaves' level's."""

    overall: FloatArray  # what all rows together suggest
    levels: list[FloatArray]  # of each level, as the fit sees a row: above its noise where rows count several times
    dof: list[float]  # of each level the degrees of freedom of that estimate

    @classmethod
    def of(
        cls,
        chosen: Chosen,
        leaf_values: FloatArray,
        leverages: tuple[FloatArray, ...],
        losses: tuple[FloatArray, ...],
        adaptivity: float,
        misfit: Misfit | None = None,
    ) -> _Noises:
        dof, rows = [], 0.0
        for k, (level, leverage) in enumerate(zip(chosen.problem.levels, leverages, strict=True)):
            free = float(np.count_nonzero(level.weights) - level.intercept)
            used = adaptivity * (float(leverage.sum()) - level.intercept)
            left = max(free - used, 0.0)
            dof.append(left if misfit is None else misfit.free(k, left))
            rows += free
        rss = [2.0 * loss / boost for loss, boost in zip(losses, chosen.boosts, strict=True)]
        energy = 2.0 * sum(losses) + 2.0 * chosen.strengths @ np.square(leaf_values)
        likely = energy / max(rows, 1.0)
        overall = (sum(rss) + _PRIOR_ROWS * likely) / (sum(dof) + _PRIOR_ROWS)
        # The few rows' worth of overall noise are not multiplied by all of a level's boost: where a model is exactly
        # additive, and all noise at its floor, that would be all there is.
        levels = [
            (level_rss * boost + _PRIOR_ROWS * overall * min(boost, 1.0 / MIN_UNASKED)) / (free + _PRIOR_ROWS)
            for level_rss, free, boost in zip(rss, dof, chosen.boosts, strict=True)
        ]
        return cls(overall, levels, [free + _PRIOR_ROWS for free in dof])


def _own_strength_variance(
    chosen: Chosen, posterior: FloatArray, leaf_values: FloatArray, size: FloatArray
) -> FloatArray:
    """What the uncertainty of each leaf's own strength adds to its variance, (leaves, outputs)."""
    columns = chosen.columns
    total = float(size[columns].sum())
    pulled = np.zeros(len(posterior))
    if total > TINY:
        pulled = np.square(leaf_values[:, columns]).sum(axis=1) / (posterior**2 * total)
    prior, density = 0.5 / chosen.strengths, log_prior(chosen.tail, chosen.centre_sd)
    return own_strength_variance(prior, chosen.centre, density, posterior, leaf_values, size, pulled)


def own_strength_variance(
    prior: FloatArray,
    centre: FloatArray,
    density: FloatArray,
    posterior: FloatArray,
    values: FloatArray,
    size: FloatArray,
    pulled: FloatArray,
) -> FloatArray:
    """The same from each leaf's prior and posterior variance, and from ``pulled``, which is ``q²/σ²``.

    ``centre`` is the prior variance where the leaf's own factor is 1, ``density`` the logarithm of that of its factor
    on the grid (``log_prior``), ``size`` the scale of each output's values.
    """
    says = np.maximum(1.0 / posterior - 1.0 / prior, 0.0)  # s: the precision that the rows alone give
    variances = centre[:, None] * np.exp(_GRID)
    shares = 1.0 / (1.0 + variances * says[:, None])
    shrunk = variances * shares
    log_weights = density + 0.5 * (np.log(shares) + pulled[:, None] * shrunk)
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = np.einsum("ik,ik->i", weights, shrunk)
    spread = np.einsum("ik,ik->i", weights, np.square(shrunk - posterior[:, None]))
    more = (mean - posterior)[:, None] * size + np.square(values) * (spread / posterior**2)[:, None]
    added: FloatArray = np.maximum(more, 0.0)
    return added


def log_prior(tail: float, centre_sd: float) -> FloatArray:
    """The density of a leaf's own factor on the grid: inverse gamma, blurred by the doubt about its groups' scales."""
    blur = max(centre_sd, 0.05)
    if not np.isfinite(tail):
        normal: FloatArray = -0.5 * np.square(_GRID / blur)
        return normal
    density = np.exp(-0.5 * tail * (_FINE + np.exp(-_FINE) - 1.0))  # the inverse gamma's
    blurred = np.exp(_APART / (-2.0 * blur**2)) @ density
    log: FloatArray = np.log(np.maximum(blurred / blurred.sum(), 1e-300))
    return log
