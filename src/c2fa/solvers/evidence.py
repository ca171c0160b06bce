"""Strengths from the outputs themselves: those that maximise the marginal likelihood, the evidence.

The l2 solution is the posterior mean of a Gaussian model: a leaf's value has prior variance ``v_i``, and a row of
weight ``w`` at level l has noise variance ``σ_l²/w``. So weights are divided by ``σ_l²``, and the leaves' strengths
are ``λ_i = 1 / 2v_i``. A part has no prior of its own; it is the sum of its leaves. With ``X`` the weighted, centred
rows over the leaves and ``y`` their outputs, so that intercepts are integrated out (restricted likelihood), the
evidence is

    −2 log p(y) = log|V| + y'V⁻¹y − Σ_l log σ_l² [level l has an intercept] + const,   V = X diag(v) X' + diag(σ_l²).

Prior variances are products, ``log v_i = base + Σ_l g_l[part of i at level l] + log d_i``: one factor for all leaves,
one for each part at every level above, one for the leaf itself. Weak priors keep them sane where the rows say little:
``g_l ~ N(0, s_l²)``; ``d_i`` inverse gamma, so that a leaf is Student-t with ``tail`` degrees of freedom within its
part; ``log σ_l² = common + offset_l`` with a Cauchy offset: levels are usually alike, and one that is not is let be.
The spreads ``s_l`` and the tail are themselves estimated, because "parts matter alike" and "few leaves matter" are
true of some inputs and false of others.

MacKay's fixed point finds the maximum. With ``γ_i = v_i x_i'V⁻¹x_i``, the share of leaf i that the rows determine,
and ``β`` the solution, the derivative by ``log v_i`` is ``½(β_i²/v_i − γ_i)``, and that by ``log σ_l²`` is
``½(‖residual_l‖²/σ_l² − residual dof_l)``. Every scale moves to where its two terms would balance if β and γ stayed
as they are; a step that lowers evidence times prior is halved until it does not. A round costs one N×N factor and
O(N²D).

As a level's noise goes to 0, V stays invertible as long as the level's rows are independent: the evidence has a
finite limit and no slope, and the prior decides. Rows that repeat what others say, and agree with it exactly, drive
the evidence up without bound: the level's noise then goes to its floor, where the solution no longer depends on it.
The floor is each level's own. (A floor under what levels have in common would make one exact level blur all others.)

Two corrections belong to the fit, not to the evidence. Noise that is the model's own way of not being additive is not
like the noise of a coin: what is to be found is the best additive description over all masks, and where all masks of
a level were asked, it is known. So a level's rows count ``1 / (share of its masks not asked)`` times, up to twenty,
as in sampling from a finite population. And no level is taken to be more than four times as noisy as the leaves':
where the leaves' rows hardly vary, because the model is saturated under such masks, their noise is next to none, and
parts would follow them and not what masking whole parts shows. Standard errors ignore both (``calibrate.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import wrightomega

from c2fa.penalties import L2, Auto, L2Each, Penalty
from c2fa.problem import Level, Problem
from c2fa.solvers.prior import weighted_gram
from c2fa.structure import FloatArray, IntArray

_ROUNDS = 10
_ROUNDS_OF_MANY = 6  # where a round takes seconds
_MANY = 1e10  # multiplications of a round
_HALVINGS = 6
_TOL = 0.05  # stop when no logarithm of a scale moves by more
_MAX_LOG_STEP = 3.0  # the most that one moves in a round
_BASE_SD = 2.0  # of the logarithm of the leaves' common variance
_NOISE_SD = 3.0  # of the logarithm of the levels' common noise
_LEAVES, _NOISE = 0.5, 0.1  # prior medians of both, as shares of the outputs' variance
_SPREAD = 1.0  # where the search for the spread of the parts' factors begins
_USUAL_SPREAD, _SPREAD_DOF = 0.3, 2.0  # its prior: scaled inverse chi-squared
_TAILS = np.array([2.0, 4.0, 8.0, 16.0, 64.0])  # 64 is as good as normal
_USUAL_TAIL, _TAIL_SD = 4.0, 1.5  # prior of the tail: median, and standard deviation of the logarithm
_MIN_NOISE = 1e-9  # as a share of the outputs' variance
MIN_UNASKED = 0.05  # rows count 1/0.05 times at the most
_MAX_NOISE_RATIO = 4.0  # the most that a level is taken to be noisier than the leaves'
_AT_ONCE = 2**21  # numbers held beside the rows
TINY = 1e-290  # a variance of outputs that numbers cannot tell from none
_HEAVIEST = 1e6  # what a row may weigh, in medians of its level: its noise is then a thousandth, as good as none


@dataclass(frozen=True, eq=False)
class Chosen:
    """What was chosen for a problem whose penalty is ``Auto``.

    Attributes
    ----------
    problem
        The same problem with weights and penalties in place of what was to be chosen, to be solved by any solver. Its
        unit is the leaves' noise: their level's weights are what they were.
    noises
        Each level's noise variance, as a multiple of the leaves' level's.
    boosts
        How many times each level's rows count in the fit, relative to the leaves' level.
    centre
        For each leaf the prior variance that its parts suggest, ``v_i / d_i``, as a multiple of the leaves' noise.
    centre_sd
        The standard deviation of its logarithm.
    tail, output
        The tail that was chosen, and the penalty's output.
    rounds
        How many rounds the choice took; 0 where the outputs are constant and there is nothing to choose by.
    log_evidence
        The log evidence under what was chosen, up to a constant; leaves' own factors left out, for they follow the
        outputs closely enough to make any of them likely.
    """

    problem: Problem
    noises: FloatArray
    boosts: FloatArray
    centre: FloatArray
    centre_sd: float
    tail: float
    output: int | None
    rounds: int
    log_evidence: float = 0.0

    @property
    def strengths(self) -> tuple[FloatArray, ...]:
        """λ for every feature of every level."""
        return tuple(
            np.broadcast_to(np.asarray(level.penalty.ridge, dtype=np.float64), level.width)
            for level in self.problem.levels
        )


def bounded(weights: FloatArray) -> FloatArray:
    """A level's weights, none of them so far above the others that rounding drowns what the others say.

    SHAP's kernel gives the input itself 1e40 times the weight of masks of half of 130 features; of a thousand features,
    1e300 times. What all of them have in common says nothing where a level's noise is chosen, and goes where it would
    overflow.

    >>> bounded(np.array([1.0, 2.0, 0.0, 1.0, 1e40]))
    array([1.0e+00, 2.0e+00, 0.0e+00, 1.0e+00, 1.5e+06])
    >>> bounded(np.array([1e-300, 1e-300, 1000.0]))
    array([1.e+00, 1.e+00, 1.e+06])
    """
    median = np.median(weights[weights > 0]) if (weights > 0).any() else 1.0
    unit = 1.0 if 1.0 / _HEAVIEST <= median <= _HEAVIEST else median
    return np.minimum(weights, _HEAVIEST * median) / unit


def choose(problem: Problem) -> Chosen:
    """Put strengths in the place of ``Auto``, and bound the weights."""
    auto = _auto(problem)
    problem = problem.with_levels([level.reweighed(bounded(level.weights)) for level in problem.levels])
    data = Observations.of(problem, auto.output)
    if data is None:
        return _nothing_to_choose(problem, auto)
    best = maximise(data, auto.tail)
    scales = best.scales
    of_weight_1 = scales.noises * data.weights
    unit = of_weight_1[-1]
    noises = of_weight_1 / unit
    boosts = np.array([1.0 / _unasked(level) for level in problem.levels])
    boosts *= np.maximum(1.0, scales.noises / (_MAX_NOISE_RATIO * scales.noises[-1]))
    boosts /= boosts[-1]
    usual_own = float(np.exp(np.log(scales.own).mean()))
    return Chosen(
        problem=_with(problem, boosts / noises, L2Each(0.5 * unit / scales.variances)),
        noises=noises,
        boosts=boosts,
        centre=scales.centre / unit,
        centre_sd=scales.centre_sd(best.fit.dof),
        tail=scales.tail,
        output=auto.output,
        rounds=best.rounds,
        log_evidence=evaluate(data, scales.centre * usual_own, scales.noises).log_evidence,
    )


def _nothing_to_choose(problem: Problem, auto: Auto) -> Chosen:
    """Constant outputs: every value is zero, whatever the strengths."""
    lam, ones = problem.structure.leaves / 50, np.ones(problem.structure.depth)
    tail = _USUAL_TAIL if auto.tail is None else auto.tail
    centre = np.full(problem.structure.leaves, 0.5 / lam)
    return Chosen(_with(problem, ones, L2(lam)), ones, ones, centre, _BASE_SD, tail, auto.output, rounds=0)


def _with(problem: Problem, factors: FloatArray, strengths: Penalty) -> Problem:
    """The problem with every level's weights multiplied by a factor, and a penalty on its leaves alone."""
    penalties = (*(L2(0.0),) * (len(problem.levels) - 1), strengths)
    return problem.with_levels(
        [
            level.reweighed(level.weights * factor).penalised(penalty)
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


def _auto(problem: Problem) -> Auto:
    check_alike([level.penalty for level in problem.levels])
    leaves = problem.levels[-1].penalty
    assert isinstance(leaves, Auto)
    if leaves.output is not None and not 0 <= leaves.output < problem.outputs:
        raise ValueError(f"Auto(output={leaves.output}) names an output that is not there: there are {problem.outputs}")
    return leaves


def _unasked(level: Level) -> float:
    """The share of a level's masks that was not asked, but no less than what its rows may count for."""
    masks = 2.0 ** min(level.width, 1000)
    asked = level.masks[level.weights > 0]
    if len(asked) > (1.0 - MIN_UNASKED) * masks:  # else it hardly matters whether some were asked twice
        asked = np.unique(asked, axis=0)
    return float(max(1.0 - len(asked) / masks, MIN_UNASKED))


@dataclass(frozen=True, eq=False)
class Observations:
    """All that the evidence needs to know of the rows, in units in which the outputs' variance is 1.

    A level's weights are taken relative to their median: how much a level counts against another is to be chosen.
    A level of more rows than features is held as that many rows: with ``X = QR``, the rows ``R`` and targets ``Q'y``
    say all there is about the leaves, and what is left of the targets only about the noise.

    Attributes
    ----------
    design, targets
        (n, leaves) and (n, outputs), the levels' one after the other; squares of outputs are averaged.
    rows
        The number of rows of each level.
    freedom
        Of each level: its rows less its intercept, those that were condensed away among them.
    rest
        Of each level: the mean squared length of the targets in the directions condensed away.
    weights
        Of each level: the weight that was taken for 1.
    energy
        The mean squared length of a row of weight 1.
    owners
        For the groups of leaves that share a scale, coarse to fine, the group of each leaf; the first is of all.
    """

    design: FloatArray
    targets: FloatArray
    outputs: int
    rows: IntArray
    freedom: FloatArray
    rest: FloatArray
    weights: FloatArray
    energy: float
    owners: tuple[IntArray, ...]

    @classmethod
    def of(cls, problem: Problem, output: int | None = None) -> Observations | None:
        """The rows of a problem; None where its outputs are constant."""
        s = problem.structure
        columns = slice(None) if output is None else slice(output, output + 1)
        blocks, kept, freedom, rest, weights = [], [], [], [], []
        spread = energy = 0.0
        for k, level in enumerate(problem.levels):
            counting = level.weights > 0
            weights.append(float(np.median(level.weights[counting])))
            root = np.sqrt(weights[k])
            rows, y = level.rows.design(level.masks) / root, level.rows.targets[:, columns] / root
            of_each = level.weights[counting] / weights[k]
            # A part's column stands for as many as it has leaves.
            columns_of = np.bincount(s.owners(k), minlength=level.width)
            energy += float(((np.square(rows[counting]) @ columns_of) / of_each).sum())
            spread += float((np.square(y[counting]).sum(axis=1) / of_each).sum())
            freedom.append(float(counting.sum() - level.intercept))
            rest.append(0.0)
            if len(rows) > level.width:
                q, rows = np.linalg.qr(rows)
                short = q.T @ y
                rest[k] = max(float(np.square(y).sum() - np.square(short).sum()), 0.0)
                y = short
            blocks.append(rows if k == s.depth - 1 else rows[:, s.owners(k)])
            kept.append(y)
        targets = np.concatenate(kept)
        outputs, free = targets.shape[1], max(sum(freedom), 1.0)
        unit = spread / (free * outputs)
        if not unit > TINY:
            return None
        if outputs > len(targets):  # only inner products of rows matter
            _, upper = np.linalg.qr(targets.T)
            targets = upper.T
        coarse = [s.owners(k) for k in range(s.depth - 1) if 1 < s.widths[k] < s.leaves]
        return cls(
            design=np.concatenate(blocks),
            targets=targets / np.sqrt(unit),
            outputs=outputs,
            rows=np.array([len(block) for block in blocks]),
            freedom=np.array(freedom),
            rest=np.array(rest) / (unit * outputs),
            weights=np.array(weights),
            energy=energy / free,
            owners=(np.zeros(s.leaves, dtype=np.intp), *coarse),
        )

    @cached_property
    def usual_base(self) -> float:
        """The logarithm of the leaves' variance at which they explain the usual share of the outputs."""
        return float(np.log(_LEAVES / self.energy)) if self.energy > 0 else 0.0

    def by_level(self, of_rows: FloatArray) -> FloatArray:
        """Sum something of the rows into its levels."""
        return np.array([part.sum() for part in np.split(of_rows, np.cumsum(self.rows)[:-1])])


@dataclass(frozen=True, eq=False)
class Fit:
    """What the rows say of given variances of the leaves and noises of the levels.

    Attributes
    ----------
    log_evidence
        The restricted log likelihood, up to a constant.
    dof
        For each leaf its effective degrees of freedom γ, between 0 and 1.
    beta2_over_v
        For each leaf ``β²/v``.
    residual_dof
        For each level its rows less its intercept and what the fit has used up.
    scaled_rss
        For each level ``‖residual‖²/σ²``.
    """

    log_evidence: float
    dof: FloatArray
    beta2_over_v: FloatArray
    residual_dof: FloatArray
    scaled_rss: FloatArray


def evaluate(data: Observations, variances: FloatArray, noises: FloatArray) -> Fit:
    """Compute the evidence and the terms of its derivatives."""
    of_rows = np.repeat(noises, data.rows)
    matrix = weighted_gram(data.design, variances)
    matrix[np.diag_indices_from(matrix)] += of_rows
    factor, wrong = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if wrong:
        raise LinAlgError("the rows span too many orders of magnitude")
    inverse, _ = dtrtri(factor, lower=1, overwrite_c=1)
    half = inverse @ data.targets
    dual = inverse.T @ half
    reached = np.empty(len(variances))
    step = max(_AT_ONCE // len(matrix), 1)
    for start in range(0, len(variances), step):
        some = dtrmm(1.0, inverse, data.design[:, start : start + step], lower=1)
        reached[start : start + step] = np.einsum("ij,ij->j", some, some)
    left = of_rows * np.einsum("ij,ij->j", inverse, inverse)  # of a row: 1 less its leverage
    pull = data.design.T @ dual
    beyond = data.freedom - data.rows
    log_evidence = -0.5 * (
        -2.0 * np.log(np.diag(inverse)).sum()
        + np.square(half).sum() / data.outputs
        + beyond @ np.log(noises)
        + (data.rest / noises).sum()
    )
    return Fit(
        log_evidence=float(log_evidence),
        dof=np.clip(variances * reached, 0.0, 1.0),
        beta2_over_v=variances * np.einsum("ij,ij->i", pull, pull) / data.outputs,
        residual_dof=np.maximum(data.by_level(left) + beyond, 0.0),
        scaled_rss=data.by_level(of_rows * np.einsum("ij,ij->i", dual, dual)) / data.outputs + data.rest / noises,
    )


@dataclass(frozen=True, eq=False)
class Scales:
    """Everything that is to be chosen, as logarithms but for the leaves' own factors, and the priors' own scales.

    Attributes
    ----------
    owners
        For the groups of leaves that share a factor, coarse to fine, the group of each leaf; the first is of all.
    base
        Where the prior of the first group's factor is centred.
    groups
        Of the prior variances: the factor of all leaves, then those of the parts of each level.
    own
        For each leaf the factor of its own.
    common, offsets
        Of the noises: what the levels have in common, (1,), and each of them apart from it.
    spreads
        For each of the groups the standard deviation of its prior.
    tail
        The degrees of freedom of a leaf's value within its part.
    """

    owners: tuple[IntArray, ...]
    base: float
    groups: tuple[FloatArray, ...]
    own: FloatArray
    common: FloatArray
    offsets: FloatArray
    spreads: tuple[float, ...]
    tail: float

    @classmethod
    def initial(cls, data: Observations, tail: float = _USUAL_TAIL) -> Scales:
        """Where the priors are centred, and the search begins."""
        parts = tuple(np.zeros(int(owner.max()) + 1) for owner in data.owners[1:])
        return cls(
            owners=data.owners,
            base=data.usual_base,
            groups=(np.array([data.usual_base]), *parts),
            own=np.ones(data.design.shape[1]),
            common=np.array([np.log(_NOISE)]),
            offsets=np.zeros(len(data.rows)),
            spreads=(_BASE_SD, *(_SPREAD,) * len(parts)),
            tail=tail,
        )

    @cached_property
    def centre(self) -> FloatArray:
        """For each leaf the variance that its groups suggest."""
        total = np.zeros(len(self.own))
        for group, owner in zip(self.groups, self.owners, strict=True):
            total += group[owner]
        return np.exp(total)

    @property
    def variances(self) -> FloatArray:
        """For each leaf its prior variance."""
        return self.centre * self.own

    @property
    def noises(self) -> FloatArray:
        """For each level its noise variance."""
        noises: FloatArray = np.maximum(np.exp(self.common + self.offsets), _MIN_NOISE)
        return noises

    @property
    def log_prior(self) -> float:
        """The density of the scales given the spreads and the tail, up to a constant."""
        total = np.square((self.common - np.log(_NOISE)) / _NOISE_SD).sum()
        if len(self.offsets) > 1:
            total += 2.0 * np.log1p(np.square(self.offsets)).sum()
        for away, spread in zip(self._away, self.spreads, strict=True):
            total += np.square(away / spread).sum()
        if np.isfinite(self.tail):
            total += self.tail * (np.log(self.own) + 1.0 / self.own).sum()
        return -0.5 * float(total)

    @property
    def _away(self) -> tuple[FloatArray, ...]:
        """How far each group is from where its prior is centred."""
        return (self.groups[0] - self.base, *self.groups[1:])

    def moved(self, fit: Fit) -> Scales:
        """Every scale where it would balance if the fit stayed as it is, one kind after the other."""
        rss, dof = fit.scaled_rss, fit.residual_dof
        step = _balance(rss.sum(keepdims=True), dof.sum(keepdims=True), self.common - np.log(_NOISE), _NOISE_SD)
        common, offsets = self.common + step, self.offsets
        if len(offsets) > 1:
            cauchy = np.sqrt((1.0 + np.square(offsets)) / 2.0)  # the normal that has the same slope here
            offsets = offsets + _balance(rss * np.exp(-step), dof, offsets, cauchy)
        beta2_over_v, groups = fit.beta2_over_v, []
        for group, away, owner, spread in zip(self.groups, self._away, self.owners, self.spreads, strict=True):
            found, known = (_sums(owner, of_leaves, len(group)) for of_leaves in (beta2_over_v, fit.dof))
            step = _balance(found, known, away, spread)
            groups.append(group + step)
            beta2_over_v = beta2_over_v * np.exp(-step)[owner]
        own = self.own
        if np.isfinite(self.tail):
            own = (self.tail + beta2_over_v * own) / (self.tail + fit.dof)
        offsets = np.maximum(offsets, np.log(_MIN_NOISE) - common)
        return replace(self, groups=tuple(groups), own=own, common=common, offsets=offsets)

    def halfway(self, to: Scales) -> Scales:
        """Half of the step to other scales."""
        return replace(
            self,
            groups=tuple((a + b) / 2 for a, b in zip(self.groups, to.groups, strict=True)),
            own=np.sqrt(self.own * to.own),
            common=(self.common + to.common) / 2,
            offsets=(self.offsets + to.offsets) / 2,
        )

    def distance(self, other: Scales) -> float:
        """The largest difference of any logarithm but the leaves' own."""
        pairs = zip(
            (*self.groups, self.common, self.offsets), (*other.groups, other.common, other.offsets), strict=True
        )
        return max(float(np.abs(a - b).max()) for a, b in pairs)

    def with_priors_of(self, fit: Fit, tail: float | None) -> Scales:
        """The same scales under spreads and a tail that suit them; a tail that is given stays."""
        spreads = [self.spreads[0]]
        for group, variance in zip(self.groups[1:], self._group_variances(fit.dof)[1:], strict=True):
            squares = float(np.sum(np.square(group) + variance)) + _SPREAD_DOF * _USUAL_SPREAD**2
            spreads.append(float(np.sqrt(squares / (len(group) + _SPREAD_DOF))))
        return replace(self, spreads=tuple(spreads), tail=_likely_tail(self, fit) if tail is None else tail)

    def _group_variances(self, dof: FloatArray) -> list[FloatArray]:
        """How uncertain each group's logarithm is: its curvature is ½γ² a leaf, and its prior's."""
        curvature = 0.5 * np.square(dof)
        return [
            1.0 / (_sums(owner, curvature, len(group)) + 1.0 / spread**2)
            for group, owner, spread in zip(self.groups, self.owners, self.spreads, strict=True)
        ]

    def centre_sd(self, dof: FloatArray) -> float:
        """How uncertain the logarithm of a leaf's variance is for its groups' sake, on average over the leaves."""
        of_groups = zip(self._group_variances(dof), self.owners, strict=True)
        return float(np.sqrt(sum(float(np.mean(variance[owner])) for variance, owner in of_groups)))


class Maximum(NamedTuple):
    """Where the search ended: the scales, what the rows say of them, and how many rounds it took."""

    scales: Scales
    fit: Fit
    rounds: int


def maximise(
    data: Observations, tail: float | None = None, rounds: int | None = None, tolerance: float = _TOL
) -> Maximum:
    """The scales that maximise evidence times prior; a tail of None is estimated with them."""
    scales = Scales.initial(data, _USUAL_TAIL if tail is None else tail)
    fit = evaluate(data, scales.variances, scales.noises)
    if rounds is None:
        many = float(len(data.design)) ** 2 * len(scales.own) > _MANY
        rounds = _ROUNDS_OF_MANY if many else _ROUNDS
    taken = 0
    for taken in range(1, 1 + rounds):
        better = _step(data, scales, fit)
        if better is None:
            break
        before, (scales, fit) = scales, better
        scales = scales.with_priors_of(fit, tail)
        if scales.distance(before) < tolerance:
            break
    return Maximum(scales, fit, taken)


def _step(data: Observations, scales: Scales, fit: Fit) -> tuple[Scales, Fit] | None:
    """One move that does not lower evidence times prior; None where none is found."""
    height = fit.log_evidence + scales.log_prior
    there = scales.moved(fit)
    for _ in range(_HALVINGS):
        try:
            seen = evaluate(data, there.variances, there.noises)
        except LinAlgError:  # as where weights span many orders of magnitude and the noise is next to none
            seen = None
        if seen is not None and seen.log_evidence + there.log_prior >= height - 1e-9 * abs(height):
            return there, seen
        there = scales.halfway(there)
    return None


def _sums(owner: IntArray, of_leaves: FloatArray, groups: int) -> FloatArray:
    return np.bincount(owner, of_leaves, minlength=groups).astype(np.float64)


def _balance(found: FloatArray, determined: FloatArray, away: FloatArray, spread: float | FloatArray) -> FloatArray:
    """How far to move logarithms of scales: the u at which ``½(found e⁻ᵘ − determined) = (away + u) / spread²``.

    With ``k = 2 / spread²`` and ``z = u + away + determined / k`` it reads ``z + log z = log(found / k) + away +
    determined / k``, whose solution is Wright's omega function.
    """
    k = 2.0 / spread**2
    shift = away + determined / k
    with np.errstate(divide="ignore"):  # nothing found: the logarithm is -inf and omega of it 0
        move: FloatArray = wrightomega(np.log(found / k) + shift) - shift
    return np.clip(move, -_MAX_LOG_STEP, _MAX_LOG_STEP)


# ------------------------------------------------------------------------------------------------ the tail

_STEP = 1.0  # of a grid of logarithms
_FACTORS = np.arange(-5.0, 7.0 + _STEP, _STEP)  # of a leaf's own factor
_SHIFTS = np.arange(-2.0, 2.0 + _STEP, _STEP)  # of the scale that all leaves share: it goes with the tail


@cache
def _tail_densities() -> FloatArray:
    """For each of the tails the density of a leaf's own factor on the grid, (tails, factors)."""
    fine = np.arange(_FACTORS[0] - 3.0, _FACTORS[-1] + 5.0, 0.05)
    nearest = np.abs(fine[:, None] - _FACTORS).argmin(axis=1)
    density = np.exp(-0.5 * _TAILS[:, None] * (fine + np.exp(-fine) - 1.0))
    binned = np.stack([np.bincount(nearest, d, minlength=len(_FACTORS)) for d in density])
    densities: FloatArray = binned / binned.sum(axis=1, keepdims=True)
    return densities


def _likely_tail(scales: Scales, fit: Fit) -> float:
    """The tail under which the leaves' values are likely, by their posterior mean over the tails.

    Apart from its own prior, the rows give leaf i the estimate ``β/γ`` with variance ``v (1 − γ)/γ``. Under a tail,
    that estimate is a mixture of normals over the leaf's own factor. Leaves that the rows hardly determine say nothing.
    """
    known = fit.dof > 0.02
    if np.count_nonzero(known) < 3:
        return scales.tail
    dof, own = np.minimum(fit.dof[known], 1.0 - 1e-9), scales.own[known]
    squares, errors = fit.beta2_over_v[known] * own / dof**2, own * (1.0 - dof) / dof
    factors = np.exp(_FACTORS[0] + _SHIFTS[0] + _STEP * np.arange(len(_FACTORS) + len(_SHIFTS) - 1))
    variances = factors + errors[:, None]
    likelihoods = np.exp(-0.5 * squares[:, None] / variances) / np.sqrt(variances)
    densities, width = _tail_densities().T, len(_FACTORS)
    by_shift = [
        np.log(likelihoods[:, k : k + width] @ densities + 1e-300).sum(axis=0) - 0.5 * (shift / _BASE_SD) ** 2
        for k, shift in enumerate(_SHIFTS)
    ]
    heights = np.max(by_shift, axis=0) - 0.5 * np.square(np.log(_TAILS / _USUAL_TAIL) / _TAIL_SD)
    weights = np.exp(heights - heights.max())
    return float(np.exp(weights @ np.log(_TAILS) / weights.sum()))
