"""Strengths from the answers themselves: what makes the answers most likely is chosen, and nothing is left to tune.

The l2 solution is the mean of a Gaussian model: a leaf's value has variance ``v_i`` and an answer of weight ``w`` at
level l has noise ``σ_l²/w``. Weights divided by ``σ_l²`` and strengths ``λ_i = 1 / 2v_i`` at the leaves go with it. A
part has no prior of its own; it is the sum of its leaves. With ``X`` the weighted, centred rows over the leaves and
``y`` their targets, so that intercepts are integrated out (restricted likelihood), the answers' own density is

    −2 log p(y) = log|V| + y'V⁻¹y − Σ_l log σ_l² [level l has an intercept] + const,   V = X diag(v) X' + diag(σ_l²).

Each variance is a product: one number for all leaves, one for each part at every level above them, and one for the leaf
itself, ``log v_i = base + Σ_l g_l[part of i at level l] + log d_i``, with weak priors that keep them sane where the
answers say little: ``g ~ N(0, 1)``, and ``d`` inverse gamma, which makes a leaf's value Student-t within its part, so
that a few leaves may be large among many small ones. The levels' noises have one number in common and one each.

The maximum is found by MacKay's fixed point. With ``γ_i = v_i x_i'V⁻¹x_i``, how much of leaf i the answers determine
(between 0 and 1), and ``β`` the solution, the derivative by ``log v_i`` is ``½(β_i²/v_i − γ_i)`` and that by
``log σ_l²`` is ``½(‖residual_l‖²/σ_l² − free_l)``, ``free_l`` being the level's rows less its intercept and what the
fit has used up. Every scale is moved to where its two terms would balance if β and γ stayed as they are. A round costs
one N×N factor and O(N²D); half a dozen are enough, and no D×D matrix is formed.

Noise that is the model's own way of not being additive is not like the noise of a coin: what is to be found is the best
additive description over all masks, and where all masks of a level were asked, it is known. A level's rows therefore
weigh ``1 / (share of its masks not asked)`` more than their noise says, up to twenty times. And no level is taken to be
more than four times as noisy as the leaves': where the leaves' rows hardly vary, because the model is saturated under
such masks, their noise is next to none, and parts would else follow them and not what masking whole parts shows.
Standard errors take no part in either (``calibrate.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import wrightomega

from c2fa.penalties import L2, Auto, L2Each, Penalty
from c2fa.problem import Level, Problem
from c2fa.solvers.prior import weighted_gram
from c2fa.structure import FloatArray, IntArray

_ROUNDS = 10
_ROUNDS_OF_MANY = 6  # where a round takes seconds
_MANY = 1e10  # multiplications of a round
_STILL = 0.02  # stop when no logarithm of a scale moves by more
_LEAP = 3.0  # the most that one moves in a round
_SPREAD = 1.0  # how far the logarithms of parts' variances, and of levels' noises, are expected to lie apart
_VAGUE = 2.0  # how far that of the leaves' common variance lies from where it is looked for first
_VAGUER = 3.0  # and that of the noise
_LEAVES, _NOISE = 0.5, 0.1  # where: the shares of the outputs' variance that they are first thought to explain
_FLOOR = 1e-9  # the least noise, as a share of the outputs' variance
LEAST = 0.05  # the least share of masks not asked that a level is credited with
_LOUDER = 4.0  # how much louder than the leaves' level another is taken to be at the most
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
        Each level's noise, as a multiple of the leaves' level's.
    credits
        For each level the factor by which the fit takes its noise to be smaller, relative to the leaves' level.
    centre
        For each leaf the variance that its parts suggest, ``v_i / d_i``, as a multiple of the leaves' noise.
    doubt
        The standard deviation of its logarithm.
    tail, output
        Those of the penalty.
    rounds
        How many rounds the choice took; 0 where the outputs are constant and there is nothing to choose by.
    log_evidence
        How likely the answers are under what was chosen, up to a constant; leaves' own scales left out, for they follow
        the answers closely enough to make any of them likely.
    """

    problem: Problem
    noises: FloatArray
    credits: FloatArray
    centre: FloatArray
    doubt: float
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


def bound(problem: Problem) -> Problem:
    """The problem with every level's weights bounded."""
    return replace(problem, levels=tuple(replace(lv, weights=bounded(lv.weights)) for lv in problem.levels))


def choose(problem: Problem) -> Chosen:
    """Put strengths in the place of ``Auto``."""
    auto, s = _auto(problem), problem.structure
    shares = np.array([_share(level) for level in problem.levels])
    answers = Answers.of(problem, auto.output)
    evidence = 0.0
    if answers is None:
        lam = s.leaves / 50  # any will do: every value is zero
        noises = credits = np.ones(s.depth)
        centre, doubt, rounds = np.full(s.leaves, 0.5 / lam), _VAGUE, 0
        strengths: Penalty = L2(lam)
    else:
        scales, determined, rounds = maximise(answers, shares, auto.tail)
        evidence = view(answers, scales.centre * _usual_own(scales), scales.noises).log_evidence
        of_weight_1 = scales.noises * answers.weights
        unit = of_weight_1[-1]
        noises, centre, doubt = of_weight_1 / unit, scales.centre / unit, scales.doubt(determined)
        credits = scales.credits(shares)
        credits = credits / credits[-1]
        strengths = L2Each(0.5 * unit / scales.variances)
    levels = [
        replace(level, weights=level.weights / (noises[k] * credits[k]), penalty=L2(0.0))
        for k, level in enumerate(problem.levels)
    ]
    levels[-1] = replace(levels[-1], penalty=strengths)
    return Chosen(Problem(s, tuple(levels)), noises, credits, centre, doubt, auto.tail, auto.output, rounds, evidence)


def _usual_own(scales: Scales) -> float:
    """The mean of the leaves' own factors, in place of each."""
    return float(np.exp(np.log(scales.own).mean()))


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


def _share(level: Level) -> float:
    """The share of a level's masks that was not asked, or the least that it is credited with."""
    masks = 2.0 ** min(level.width, 1000)
    asked = level.masks[level.weights > 0]
    if len(asked) > (1.0 - LEAST) * masks:  # else it hardly matters whether some were asked twice
        asked = np.unique(asked, axis=0)
    return float(max(1.0 - len(asked) / masks, LEAST))


@dataclass(frozen=True, eq=False)
class Answers:
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
    def of(cls, problem: Problem, output: int | None = None) -> Answers | None:
        """The rows of a problem; None where its outputs are constant."""
        s = problem.structure
        columns = slice(None) if output is None else slice(output, output + 1)
        blocks, kept, freedom, rest, weights = [], [], [], [], []
        spread = energy = 0.0
        for k, given in enumerate(problem.levels):
            counting = given.weights > 0
            weights.append(float(np.median(given.weights[counting])))
            level = replace(given, weights=given.weights / weights[k])
            rows, y = level.rows.design(level.masks), level.rows.targets[:, columns]
            of_each = level.weights[counting]
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
    def usual(self) -> float:
        """The logarithm of the variance at which the leaves explain the usual share of the outputs."""
        return float(np.log(_LEAVES / self.energy)) if self.energy > 0 else 0.0

    def by_level(self, of_rows: FloatArray) -> FloatArray:
        """Sum something of the rows into its levels."""
        return np.array([part.sum() for part in np.split(of_rows, np.cumsum(self.rows)[:-1])])


@dataclass(frozen=True, eq=False)
class View:
    """What the answers say of given variances and noises.

    Attributes
    ----------
    log_evidence
        The restricted log likelihood, up to a constant.
    determined
        For each leaf γ, between 0 and 1.
    found
        For each leaf ``β²/v``.
    free
        For each level its rows less its intercept and what the fit has used up.
    misfit
        For each level ``‖residual‖²/σ²``.
    """

    log_evidence: float
    determined: FloatArray
    found: FloatArray
    free: FloatArray
    misfit: FloatArray


def view(answers: Answers, variances: FloatArray, noises: FloatArray) -> View:
    """Weigh variances of the leaves and noises of the levels by the answers."""
    of_rows = np.repeat(noises, answers.rows)
    matrix = weighted_gram(answers.design, variances)
    matrix[np.diag_indices_from(matrix)] += of_rows
    factor, wrong = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if wrong:
        raise LinAlgError("the rows span too many orders of magnitude")
    half = solve_triangular(factor, answers.targets, lower=True, check_finite=False)
    dual = solve_triangular(factor, half, lower=True, trans=1, check_finite=False)
    reached = np.empty(len(variances))
    step = max(_AT_ONCE // len(matrix), 1)
    for start in range(0, len(variances), step):
        some = solve_triangular(factor, answers.design[:, start : start + step], lower=True, check_finite=False)
        reached[start : start + step] = np.einsum("ij,ij->j", some, some)
    inverse, _ = dtrtri(factor, lower=1)
    left = of_rows * np.einsum("ij,ij->j", inverse, inverse)  # of a row: 1 less its leverage
    pull = answers.design.T @ dual
    beyond = answers.freedom - answers.rows
    log_evidence = -0.5 * (
        2.0 * np.log(np.diag(factor)).sum()
        + np.square(half).sum() / answers.outputs
        + beyond @ np.log(noises)
        + (answers.rest / noises).sum()
    )
    return View(
        log_evidence=float(log_evidence),
        determined=np.clip(variances * reached, 0.0, 1.0),
        found=variances * np.einsum("ij,ij->i", pull, pull) / answers.outputs,
        free=np.maximum(answers.by_level(left) + beyond, 0.0),
        misfit=answers.by_level(of_rows * np.einsum("ij,ij->i", dual, dual)) / answers.outputs + answers.rest / noises,
    )


@dataclass(frozen=True, eq=False)
class Scales:
    """Everything that is to be chosen, as logarithms, but for the leaves' own factors.

    Attributes
    ----------
    groups
        Of the variances: of all leaves, then of the parts of each level.
    own
        For each leaf the factor of its own.
    common, offsets
        Of the noises: what the levels have in common, (1,), and each of them apart from it.
    """

    owners: tuple[IntArray, ...]
    groups: tuple[FloatArray, ...]
    own: FloatArray
    common: FloatArray
    offsets: FloatArray

    @classmethod
    def usual(cls, answers: Answers) -> Scales:
        """Where the priors are centred, and the search begins."""
        parts = (np.zeros(int(owner.max()) + 1) for owner in answers.owners[1:])
        return cls(
            owners=answers.owners,
            groups=(np.array([answers.usual]), *parts),
            own=np.ones(answers.design.shape[1]),
            common=np.array([np.log(_NOISE)]),
            offsets=np.zeros(len(answers.rows)),
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
        """For each leaf its variance."""
        return self.centre * self.own

    @property
    def noises(self) -> FloatArray:
        """For each level its noise."""
        return np.exp(self.common + self.offsets)

    def credits(self, shares: FloatArray) -> FloatArray:
        """For each level the factor by which its noise is taken to be smaller than it is."""
        credits: FloatArray = shares * np.minimum(1.0, _LOUDER * self.noises[-1] / self.noises)
        return credits

    def moved(self, start: Scales, seen: View, shares: FloatArray, tail: float) -> Scales:
        """Every scale where it would balance if what was seen stayed as it is, one kind after the other."""
        misfit, found, groups = seen.misfit * self.credits(shares), seen.found, []
        step = _balance(misfit.sum(keepdims=True), seen.free.sum(keepdims=True), self.common - start.common, _VAGUER)
        common, offsets = self.common + step, self.offsets
        if len(offsets) > 1:
            offsets = offsets + _balance(misfit * np.exp(-step), seen.free, offsets, _SPREAD)
        common = np.maximum(common, np.log(_FLOOR) - offsets.min())
        spreads = _spreads(self.owners)
        for group, there, owner, spread in zip(self.groups, start.groups, self.owners, spreads, strict=True):
            sums, known = (np.bincount(owner, x, minlength=len(group)) for x in (found, seen.determined))
            step = _balance(sums.astype(np.float64), known.astype(np.float64), group - there, spread)
            groups.append(group + step)
            found = found * np.exp(-step)[owner]
        own = (tail + found * self.own) / (tail + seen.determined) if np.isfinite(tail) else self.own
        return Scales(self.owners, tuple(groups), own, common, offsets)

    def distance(self, other: Scales) -> float:
        """The largest difference of any logarithm but the leaves' own."""
        pairs = zip(
            (*self.groups, self.common, self.offsets), (*other.groups, other.common, other.offsets), strict=True
        )
        return max(float(np.abs(a - b).max()) for a, b in pairs)

    def doubt(self, determined: FloatArray) -> float:
        """How uncertain the logarithm of a leaf's variance is for its groups' sake, on average over the leaves."""
        seen, total = np.square(determined), 0.0
        for group, owner, spread in zip(self.groups, self.owners, _spreads(self.owners), strict=True):
            certain = 0.5 * np.bincount(owner, seen, minlength=len(group)) + 1.0 / spread**2
            total += float(np.mean(1.0 / certain[owner]))
        return float(np.sqrt(total))


def _spreads(owners: Sequence[IntArray]) -> tuple[float, ...]:
    return (_VAGUE, *(_SPREAD,) * (len(owners) - 1))


def maximise(
    answers: Answers, shares: FloatArray, tail: float, rounds: int | None = None, still: float = _STILL
) -> tuple[Scales, FloatArray, int]:
    """The scales that make the answers most likely, how far each leaf is determined, and how many rounds it took."""
    start = before = scales = Scales.usual(answers)
    determined, taken = np.zeros(len(start.own)), 0
    if rounds is None:
        rounds = _ROUNDS_OF_MANY if float(len(answers.design)) ** 2 * len(start.own) > _MANY else _ROUNDS
    for taken in range(1, 1 + rounds):
        try:
            seen = view(answers, scales.variances, scales.noises * scales.credits(shares))
        except LinAlgError:  # as where weights span many orders of magnitude and the noise is next to none
            return before, determined, taken
        before, determined = scales, seen.determined
        scales = scales.moved(start, seen, shares, tail)
        if scales.distance(before) < still:
            break
    return scales, determined, taken


def _balance(found: FloatArray, determined: FloatArray, away: FloatArray, spread: float) -> FloatArray:
    """How far to move logarithms of scales: the u at which ``½(found e⁻ᵘ − determined) = (away + u) / spread²``.

    With ``k = 2 / spread²`` and ``z = u + away + determined / k`` it reads ``z + log z = log(found / k) + away +
    determined / k``, whose solution is Wright's omega function.
    """
    k = 2.0 / spread**2
    shift = away + determined / k
    with np.errstate(divide="ignore"):  # nothing found: the logarithm is -inf and omega of it 0
        move: FloatArray = wrightomega(np.log(found / k) + shift) - shift
    return np.clip(move, -_LEAP, _LEAP)
