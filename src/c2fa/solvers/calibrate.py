"""Solving with strengths that were chosen from the answers, and standard errors that own up to the choosing.

Given the strengths, the posterior covariance ``σ² (X'X + P)⁻¹`` would be the whole truth. Three things are added, so
that a value ± 1.96 standard errors holds the truth in about 95 of 100 cases (``benchmarks/intervals.py``):

- *A leaf's own strength is uncertain.* Take one leaf's variance ``v`` as unknown and all else as given. With ``s`` and
  ``q`` what the answers say of the leaf apart from its prior, its value has mean ``q v/(1 + v s)`` and variance
  ``σ² v/(1 + v s)``, and ``v`` has the density ``p(v) (1 + v s)^-½ exp(½ q²/σ² v/(1 + v s))``. The spread over a grid
  of ``v``, about the value that was returned, is what counts. A part adds up what its leaves have more, but where
  its own rows pin it down, so that leaves err at each other's expense, only the root of the ratio of its variance to
  the sum of theirs: so wide its errors hold what they should with planned masks and with fair coins.
- *Rows of a level all of whose masks were asked* weigh more in the fit than their noise says; the errors do not
  believe it, since an answer may have noise of its own.
- *The noise is estimated*, at each level from the rows that the fit leaves free: Student's t has wider quantiles, and
  the errors are widened by the ratio at 95 %, with Satterthwaite's degrees of freedom where levels mix.

A mask that was drawn several times is one answer and must weigh as one; methods see to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri, stdtrit

from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.direct import System, finish, prepare, row_leverages, smooth_errors
from c2fa.solvers.evidence import LEAST, TINY, Chosen, choose
from c2fa.solvers.prior import row_sums
from c2fa.structure import FloatArray

_PRIOR_ROWS = 2.0  # as many rows' worth of residuals at the noise that the whole problem suggests
_GRID = np.linspace(-3.5, 4.5, 17)  # logarithms of a leaf's own factor
_AT_ONCE = 64  # rows whose influence on every leaf is held at a time


def calibrated(problem: Problem, *, stderr: bool = True) -> Solution:
    """Choose strengths for a problem whose penalty is ``Auto``, solve it exactly, and give honest standard errors."""
    chosen = choose(problem)
    resolved = chosen.problem
    _, system = prepare(resolved)
    leaf_values = system.fit(resolved.targets)
    if not stderr:
        return in_place_of(problem, chosen, finish(resolved, leaf_values, system.status, 0))
    leverages = row_leverages(resolved, system)
    errors = standard_errors(problem, chosen, system, leaf_values, leverages)
    return in_place_of(problem, chosen, finish(resolved, leaf_values, system.status, 0, errors, leverages=leverages))


def in_place_of(problem: Problem, chosen: Chosen, solution: Solution) -> Solution:
    """The solution as one of the problem that was asked: losses by its own weights, and what was chosen for it."""
    losses = tuple(
        level.loss(v.reshape(len(v), -1), np.atleast_1d(b)).reshape(np.shape(loss))
        for level, v, b, loss in zip(problem.levels, solution.values, solution.intercepts, solution.losses, strict=True)
    )
    scales = tuple(float(1.0 / (noise * credit)) for noise, credit in zip(chosen.noises, chosen.credits, strict=True))
    return replace(solution, losses=losses, strengths=chosen.strengths, scales=scales, log_evidence=chosen.log_evidence)


def standard_errors(
    problem: Problem, chosen: Chosen, system: System, leaf_values: FloatArray, leverages: tuple[FloatArray, ...]
) -> tuple[FloatArray, ...] | None:
    """Standard errors of every level's values, (width, outputs)."""
    s = problem.structure
    variances = system.variances()
    noises = _Noises.of(problem, chosen, leaf_values, leverages)
    own = _own_scale(chosen, variances[-1], leaf_values, noises.leaves)
    influence = _influence(chosen, system)
    found = []
    smooth = problem.levels[-1].smooth is not None
    for k, v in enumerate(variances):
        # Under smoothing a leaf gives to its neighbours what it takes from them, and the parts' sums stay as they are.
        more = 0.0 if smooth and k < s.depth - 1 else s.sums(own, k) * _held(v, s.sums(variances[-1], k))[:, None]
        rest, total = v[:, None] * noises.leaves, v[:, None] * noises.leaves + more
        doubt = np.zeros(len(v))
        for level, reach in influence.items():
            share = reach[k][:, None] * noises.levels[level]
            total += np.maximum(share - reach[k][:, None] * noises.leaves, 0.0)
            doubt += _ratio(share, total, chosen.output) ** 2 / noises.free[level]
            rest = rest - reach[k][:, None] * noises.leaves
        doubt += _ratio(rest, total, chosen.output) ** 2 / noises.free[-1]
        free = 1.0 / np.maximum(doubt, 1e-9)
        found.append(np.sqrt(total) * (stdtrit(np.maximum(free, 2.0), 0.975) / ndtri(0.975))[:, None])
    return smooth_errors(chosen.problem, system, tuple(found), _beyond(variances[-1], found[-1], noises.leaves))


def _held(variances: FloatArray, of_leaves: FloatArray) -> FloatArray:
    """How much of the doubt about its leaves' strengths reaches a value: 1 where its leaves err independently."""
    known = np.isfinite(of_leaves) & (of_leaves > 0)
    shares: FloatArray = np.divide(variances, of_leaves, out=np.ones_like(variances), where=known)
    return np.sqrt(shares)


def _beyond(variances: FloatArray, errors: FloatArray, noise: FloatArray) -> FloatArray:
    """What the leaves' errors are as a multiple of the roots of their variances, on average, for each output."""
    known = np.isfinite(variances)
    if not (known.any() and variances[known].any()):
        return np.sqrt(noise)
    scale: FloatArray = np.sqrt(np.square(errors[known]).sum(axis=0) / variances[known].sum())
    return scale


def _ratio(share: FloatArray, total: FloatArray, output: int | None) -> FloatArray:
    """What part of the variance is of one kind, for the output that decides, or over all."""
    if output is not None:
        share, total = share[:, [output]], total[:, [output]]
    whole = total.sum(axis=1)
    ratio: FloatArray = np.clip(share.sum(axis=1) / np.where(whole > 0, whole, 1.0), 0.0, 1.0)
    return ratio


@dataclass(frozen=True, eq=False)
class _Noises:
    """σ² for each output, in the fit's unit, which is the leaves' level's; what rows of each level have; and how free.

    ``levels[l]`` is the variance of a row of level l as the fit sees it, weighted: it is above ``leaves`` where the
    fit gives the level more weight than its noise allows.
    """

    leaves: FloatArray
    levels: list[FloatArray]
    free: list[float]

    @classmethod
    def of(
        cls, problem: Problem, chosen: Chosen, leaf_values: FloatArray, leverages: tuple[FloatArray, ...]
    ) -> _Noises:
        s, resolved = problem.structure, chosen.problem
        energy = np.square(resolved.targets - resolved.design @ leaf_values).sum(axis=0)
        energy = energy + 2.0 * chosen.strengths[-1] @ np.square(leaf_values)
        rows = [np.count_nonzero(level.weights) - level.intercept for level in problem.levels]
        likely = energy / max(sum(rows), 1)
        residuals, left = [], []
        for k, level in enumerate(problem.levels):
            values = level.smoothed(s.sums(leaf_values, k))
            loss = level.loss(values, level.rows.intercept(values))
            residuals.append(2.0 * loss / chosen.noises[k])
            left.append(max(float(np.count_nonzero(level.weights) - leverages[k].sum()), 0.0))
        of_all = (sum(residuals) + _PRIOR_ROWS * likely) / (sum(left) + _PRIOR_ROWS)
        each = [
            (residual + _PRIOR_ROWS * of_all) / (free + _PRIOR_ROWS)
            for residual, free in zip(residuals, left, strict=True)
        ]
        # What a level's rows are thought to have by themselves is not believed to be as loud as its credit has it:
        # where a model is exactly additive, and all noise at its floor, that would be all there is.
        levels = [
            (residual / credit + _PRIOR_ROWS * of_all / max(credit, LEAST)) / (free + _PRIOR_ROWS)
            for residual, free, credit in zip(residuals, left, chosen.credits, strict=True)
        ]
        return cls(np.maximum(each[-1], 0.0), levels, [free + _PRIOR_ROWS for free in left])


def _own_scale(chosen: Chosen, posterior: FloatArray, leaf_values: FloatArray, noise: FloatArray) -> FloatArray:
    """What the uncertainty of each leaf's own strength adds to its variance, (leaves, outputs)."""
    prior = 0.5 / chosen.strengths[-1]
    says = np.maximum(1.0 / posterior - 1.0 / prior, 0.0)  # s: the precision that the answers alone give
    columns = slice(None) if chosen.output is None else slice(chosen.output, chosen.output + 1)
    total = float(noise[columns].sum())
    pulled = np.zeros(len(prior))
    if total > TINY:
        pulled = np.square(leaf_values[:, columns]).sum(axis=1) / (posterior**2 * total)
    variances = chosen.centre[:, None] * np.exp(_GRID)
    shrunk = variances / (1.0 + variances * says[:, None])
    log_weights = _log_prior(chosen) + 0.5 * np.log(shrunk / variances) + 0.5 * pulled[:, None] * shrunk
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = np.einsum("ik,ik->i", weights, shrunk)
    spread = np.einsum("ik,ik->i", weights, np.square(shrunk - posterior[:, None]))
    more = (mean - posterior)[:, None] * noise + np.square(leaf_values) * (spread / posterior**2)[:, None]
    added: FloatArray = np.maximum(more, 0.0)
    return added


def _log_prior(chosen: Chosen) -> FloatArray:
    """The density of a leaf's own factor on the grid: inverse gamma, blurred by the doubt about its groups' scales."""
    blur = max(chosen.doubt, 0.05)
    if not np.isfinite(chosen.tail):
        normal: FloatArray = -0.5 * np.square(_GRID / blur)
        return normal
    fine = np.linspace(-8.0, 10.0, 181)
    density = np.exp(-0.5 * chosen.tail * (fine + np.exp(-fine) - 1.0))
    blurred = np.exp(-0.5 * np.square((_GRID[:, None] - fine) / blur)) @ density
    log: FloatArray = np.log(np.maximum(blurred / blurred.sum(), 1e-300))
    return log


def _influence(chosen: Chosen, system: System) -> dict[int, list[FloatArray]]:
    """For each level of parts, the squared influence of its rows on every level's values, summed over the rows."""
    problem = chosen.problem
    s, found, start = problem.structure, {}, 0
    for level, rows in enumerate(problem.levels[:-1]):
        reach = [np.zeros(width) for width in s.widths]
        block = problem.design[start : start + len(rows.masks)]
        start += len(block)
        for first in range(0, len(block), _AT_ONCE):
            influence = system.solve(block[first : first + _AT_ONCE].T).T
            for k in range(s.depth):
                reach[k] += np.square(row_sums(s, influence, k)).sum(axis=0)
        found[level] = reach
    return found
