"""The scales that maximise the evidence: prior variances of the leaves, noise variances of the levels.

    log v_i  = base + Σ_l g_l[part of leaf i at level l] + log s_i + log d_i
    log σ_l² = common + offset_l

A prior variance is a product: a factor of all leaves (base), one of each part at every level above (g), one of the leaf
itself (d), and the size s that is expected of the leaf beside the others (``Auto.sizes``; 1 unless given). Weak priors
decide where the rows say little:

- ``g_l`` is normal about 0. Its spread is estimated: "parts matter alike" is true of some inputs and false of others.
- ``d_i`` is inverse gamma, so that a leaf is Student-t within its part. Its degrees of freedom, the tail, are estimated
  too, for the same reason: "few leaves matter" is true of some inputs.
- ``offset_l`` is Cauchy: levels usually have the same noise, and one that has not stays as it is.

MacKay's fixed point finds the maximum: every scale moves to where the two terms of its derivative (``evidence.py``)
would balance if the solution stayed as it is. A step that lowers evidence times prior is halved until it does not.

As a level's noise goes to 0, V stays invertible as long as the level's rows are independent: the evidence has a
finite limit and no slope, and the prior decides. Rows that repeat what others say, and agree with it exactly, drive
the evidence up without bound: the level's noise then goes to its floor, where the solution no longer depends on it.
The floor is each level's own. (A floor under what levels have in common would make one exact level blur all others.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from scipy.linalg import LinAlgError
from scipy.special import wrightomega

from c2fa.solvers.evidence import TINY, Fit, Observations, evaluate
from c2fa.structure import FloatArray, IntArray

_TOL = 0.05  # stop when no logarithm of a scale moves by more
BASE_SD = 2.0  # of the logarithm of the leaves' common variance
_NOISE = 0.1  # where the search for the noises begins, as a share of the outputs' variance
LEVELS_NOISE = (0.1, 3.0)  # of what levels' noises have in common: median, and standard deviation of the logarithm
_MIN_NOISE = 1e-9  # as a share of the outputs' variance
_USUAL_SPREAD, _SPREAD_DOF = 0.3, 2.0  # its prior: scaled inverse chi-squared
_TAILS = np.array([2.0, 4.0, 8.0, 16.0, 64.0])  # 64 is as good as normal
USUAL_TAIL, _TAIL_SD = 4.0, 1.5  # prior of the tail: median, and standard deviation of the logarithm


@dataclass(frozen=True, eq=False)
class Scales:
    """Everything that is to be chosen, as logarithms but for the leaves' own factors, and the priors' own scales."""

    owners: tuple[IntArray, ...]  # the group of each leaf, for groups that share a factor, coarse to fine; first of all
    base: float  # where the prior of the first group's factor is centred
    sizes: FloatArray  # how large each leaf is expected to be beside the others, about 0; they stay as they are
    groups: tuple[FloatArray, ...]  # of the prior variances: the factor of all leaves, then those of each level's parts
    own: FloatArray  # of each leaf the factor of its own
    common: float  # of the noises: what the levels have in common
    offsets: FloatArray  # and each of them apart from it
    usual_noise: tuple[float, float]  # of what the noises have in common: median, standard deviation of the log
    spreads: tuple[float, ...]  # of each of the groups the standard deviation of its prior
    tail: float  # the degrees of freedom of a leaf's value within its part

    @classmethod
    def initial(
        cls,
        owners: tuple[IntArray, ...],
        base: float,
        noises: int,
        tail: float = USUAL_TAIL,
        sizes: Sequence[float] | FloatArray | None = None,
        usual_noise: tuple[float, float] = LEVELS_NOISE,
    ) -> Scales:
        """Where the priors are centred, and the search begins; ``noises`` is how many kinds of noise there are."""
        logs = np.zeros(len(owners[0])) if sizes is None else np.log(sizes)
        parts = tuple(np.zeros(int(owner.max()) + 1) for owner in owners[1:])
        return cls(
            owners=owners,
            base=base,
            sizes=logs - logs.mean(),
            groups=(np.array([base]), *parts),
            own=np.ones(len(owners[0])),
            common=float(np.log(_NOISE)),
            offsets=np.zeros(noises),
            usual_noise=usual_noise,
            spreads=(BASE_SD, *(1.0,) * len(parts)),
            tail=tail,
        )

    @cached_property
    def centre(self) -> FloatArray:
        """For each leaf the variance that its groups and its size suggest."""
        total = self.sizes.copy()
        for group, owner in zip(self.groups, self.owners, strict=True):
            total += group[owner]
        return np.exp(total)

    @property
    def variances(self) -> FloatArray:
        return self.centre * self.own

    @property
    def noises(self) -> FloatArray:
        noises: FloatArray = np.maximum(np.exp(self.common + self.offsets), _MIN_NOISE)
        return noises

    @property
    def log_prior(self) -> float:
        """The density of the scales given the spreads and the tail, up to a constant."""
        total: float = (self._noise_away / self.usual_noise[1]) ** 2
        if len(self.offsets) > 1:
            total += 2.0 * float(np.log1p(self.offsets * self.offsets).sum())
        for away, spread in zip(self._away, self.spreads, strict=True):
            total += float(away @ away) / spread**2
        if np.isfinite(self.tail):
            total += self.tail * float((np.log(self.own) + 1.0 / self.own).sum())
        return -0.5 * total

    @property
    def _noise_away(self) -> float:
        return self.common - float(np.log(self.usual_noise[0]))

    @property
    def _away(self) -> tuple[FloatArray, ...]:
        """How far each group is from where its prior is centred."""
        return (self.groups[0] - self.base, *self.groups[1:])

    def moved(self, fit: Fit) -> Scales:
        """Every scale where it would balance if the fit stayed as it is, one kind after the other."""
        rss, dof = fit.scaled_rss, fit.residual_dof
        step = float(_balance(rss.sum(), dof.sum(), self._noise_away, self.usual_noise[1]))
        common, offsets = self.common + step, self.offsets
        if len(offsets) > 1:
            cauchy = np.sqrt((1.0 + offsets * offsets) / 2.0)  # the normal that has the same slope here
            offsets = offsets + _balance(rss * np.exp(-step), dof, offsets, cauchy)
        beta2_over_v, groups = fit.beta2_over_v, []
        for group, away, owner, spread in zip(self.groups, self._away, self.owners, self.spreads, strict=True):
            found, known = _sums(owner, beta2_over_v, len(group)), _sums(owner, fit.dof, len(group))
            moves = _balance(found, known, away, spread)
            groups.append(group + moves)
            beta2_over_v = beta2_over_v * np.exp(-moves)[owner]
        own = self.own
        if np.isfinite(self.tail):
            own = (self.tail + beta2_over_v * own) / (self.tail + fit.dof)
        offsets = np.maximum(offsets, np.log(_MIN_NOISE) - common)
        return self._with(groups=tuple(groups), own=own, common=common, offsets=offsets)

    def towards(self, to: Scales, share: float) -> Scales:
        """A share of the step to other scales, of which more than 1 goes beyond them."""
        return self._with(
            groups=tuple(a + share * (b - a) for a, b in zip(self.groups, to.groups, strict=True)),
            own=self.own * (to.own / self.own) ** share,
            common=self.common + share * (to.common - self.common),
            offsets=self.offsets + share * (to.offsets - self.offsets),
        )

    def _with(self, **changes: Any) -> Scales:
        """A copy with other numbers; ``dataclasses.replace`` takes four times as long, and every round makes two."""
        copy = object.__new__(Scales)
        vars(copy).update(vars(self), **changes)
        vars(copy).pop("centre", None)  # what was computed from the old ones
        return copy

    def distance(self, other: Scales) -> float:
        """The largest difference of any logarithm but the leaves' own."""
        moved = [abs(a - b).max() for a, b in zip(self.groups, other.groups, strict=True)]
        return float(max(*moved, abs(self.common - other.common), abs(self.offsets - other.offsets).max()))

    def with_priors_of(self, fit: Fit, tail: float | None) -> Scales:
        """The same scales under spreads and a tail that suit them; a tail that is given stays."""
        spreads = [self.spreads[0]]
        for group, variance in zip(self.groups[1:], self._group_variances(fit.dof)[1:], strict=True):
            squares = float(group @ group + variance.sum()) + _SPREAD_DOF * _USUAL_SPREAD**2
            spreads.append(float(np.sqrt(squares / (len(group) + _SPREAD_DOF))))
        return self._with(spreads=tuple(spreads), tail=_likely_tail(self, fit) if tail is None else tail)

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


FitT = TypeVar("FitT", bound=Fit)


@dataclass(frozen=True, eq=False)
class Maximum(Generic[FitT]):
    """Where the search ended: the scales, what the rows say of them, and how many rounds it took."""

    scales: Scales
    fit: FitT
    rounds: int


Evaluate: TypeAlias = Callable[[FloatArray, FloatArray], FitT]
"""What the rows say of given variances of the leaves and noises."""


def search(
    data: Observations,
    tail: float | None = None,
    rounds: int | None = None,
    tolerance: float = _TOL,
    sizes: tuple[float, ...] | None = None,
) -> Maximum[Fit]:
    """The scales that suit rows of levels best; a tail of None is estimated with them."""
    if rounds is None:
        multiplications = float(min(len(data.targets), data.leaves)) ** 2 * data.leaves
        rounds = 6 if multiplications > 1e10 else 10  # of many, a round takes seconds
    start = Scales.initial(data.owners, data.usual_base, len(data.rows), USUAL_TAIL if tail is None else tail, sizes)
    return maximise(start, functools.partial(evaluate, data), rounds, tail, tolerance)


def maximise(
    scales: Scales,
    evaluate: Evaluate[FitT],
    rounds: int,
    tail: float | None = None,
    tolerance: float = _TOL,
    stride: float = 1.0,
    further: float = np.inf,
) -> Maximum[FitT]:
    """From given scales to those that maximise evidence times prior; a tail of None is estimated with them.

    A stride above 1 goes beyond where scales would balance, as they usually do further on: a few rounds come nearer.
    While a round gains more of the logarithm than ``further``, as where models are all but linear, up to twice as many
    are made.
    """
    fit = evaluate(scales.variances, scales.noises)
    taken = 0
    for taken in range(1, 1 + 2 * rounds):
        better = _step(evaluate, scales, fit, stride)
        if better is None:
            break
        before, (scales, seen) = scales, better
        gain = seen.log_evidence + scales.log_prior - fit.log_evidence - before.log_prior
        fit, scales = seen, scales.with_priors_of(seen, tail)
        if scales.distance(before) < tolerance or (taken >= rounds and gain <= further):
            break
    return Maximum(scales, fit, taken)


def _step(evaluate: Evaluate[FitT], scales: Scales, fit: FitT, stride: float = 1.0) -> tuple[Scales, FitT] | None:
    """One move that does not lower evidence times prior; None where none is found."""
    height = fit.log_evidence + scales.log_prior
    there = scales.moved(fit)
    if stride != 1.0:
        there = scales.towards(there, stride)
    for _ in range(6):  # each half of the one before
        try:
            seen = evaluate(there.variances, there.noises)
        except LinAlgError:  # as where weights span many orders of magnitude and the noise is next to none
            seen = None
        if seen is not None and seen.log_evidence + there.log_prior >= height - 1e-9 * abs(height):
            return there, seen
        there = scales.towards(there, 0.5)
    return None


def _sums(owner: IntArray, of_leaves: FloatArray, groups: int) -> FloatArray:
    sums: FloatArray = np.bincount(owner, of_leaves, minlength=groups)  # type: ignore[assignment]  # weighted: floats
    return sums


def _balance(
    found: FloatArray, determined: FloatArray, away: float | FloatArray, spread: float | FloatArray
) -> FloatArray:
    """How far to move logarithms of scales: the u at which ``½(found e⁻ᵘ − determined) = (away + u) / spread²``.

    With ``k = 2 / spread²`` and ``z = u + away + determined / k`` it reads ``z + log z = log(found / k) + away +
    determined / k``, whose solution is Wright's omega function.
    """
    k = 2.0 / spread**2
    shift = away + determined / k
    move: FloatArray = wrightomega(np.log(np.maximum(found / k, TINY)) + shift) - shift
    return np.minimum(np.maximum(move, -3.0), 3.0)  # no logarithm moves by more in a round


# ------------------------------------------------------------------------------------------------ the tail

_STEP = 1.0  # of a grid of logarithms
_FACTORS = np.arange(-5.0, 7.0 + _STEP, _STEP)  # of a leaf's own factor
_SHIFTS = np.arange(-2.0, 2.0 + _STEP, _STEP)  # of the scale that all leaves share: it goes with the tail
_LOG_PRIOR_OF_SHIFTS = -0.5 * np.square(_SHIFTS / BASE_SD)
_LOG_TAILS = np.log(_TAILS)
_LOG_PRIOR_OF_TAILS = -0.5 * np.square((_LOG_TAILS - np.log(USUAL_TAIL)) / _TAIL_SD)
_GRID = np.exp(_FACTORS[0] + _SHIFTS[0] + _STEP * np.arange(len(_FACTORS) + len(_SHIFTS) - 1))  # factors, shifted


@cache
def _tail_densities() -> FloatArray:
    """The density of a leaf's own factor under each shift and tail, on the grid of both, (grid, shifts × tails)."""
    fine = np.arange(_FACTORS[0] - 3.0, _FACTORS[-1] + 5.0, 0.05)
    nearest = np.abs(fine[:, None] - _FACTORS).argmin(axis=1)
    density = np.exp(-0.5 * _TAILS[:, None] * (fine + np.exp(-fine) - 1.0))
    binned = np.stack([np.bincount(nearest, d, minlength=len(_FACTORS)) for d in density], axis=1)
    binned = binned / binned.sum(axis=0)
    shifted = np.zeros((len(_GRID), len(_SHIFTS), len(_TAILS)))
    for k in range(len(_SHIFTS)):
        shifted[k : k + len(_FACTORS), k] = binned
    densities: FloatArray = shifted.reshape(len(_GRID), -1)
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
    squares, errors = fit.beta2_over_v[known] * own / (dof * dof), own * (1.0 - dof) / dof
    precisions = 1.0 / (_GRID + errors[:, None])
    likelihoods = np.exp((-0.5 * squares)[:, None] * precisions) * np.sqrt(precisions)
    totals = np.log(likelihoods @ _tail_densities() + 1e-300).sum(axis=0).reshape(len(_SHIFTS), len(_TAILS))
    heights = (totals + _LOG_PRIOR_OF_SHIFTS[:, None]).max(axis=0) + _LOG_PRIOR_OF_TAILS
    weights = np.exp(heights - heights.max())
    return float(np.exp(weights @ _LOG_TAILS / weights.sum()))
