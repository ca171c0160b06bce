"""The Winter values of a game of which some rows are known: a Gaussian process over leaf masks, and its posterior.

A game is a function of leaf masks, a row x of −1 and 1 for each. It is thought to be

    v(x) = b + ½ Σ_i β_i x_i + odd(x) + even(x) (+ noise, where the model has any):

effects of leaves with the prior of ``scales.py`` (a factor for each part, Student tails within it), and interactions of
every order (``interactions.py``) in the place of noise. All strengths are chosen by the evidence. The values are linear
in v, so that their posterior mean and covariance are closed forms; rows are reproduced exactly, and values and base add
up to the prediction.

Under complements values change their signs, so even orders have none: half the difference of a row and its complement
holds all that they know of the values. In rows whose complements were not asked, even orders are noise.

The weight of a leaf in interactions is its prior variance: leaves act together as they matter. How many usually do,
``order``, is chosen among a few by the evidence, which is their weight in the mean.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.linalg.blas import dsymm, dsymv, dsyr, dtrmm

from c2fa.graph import Smoother
from c2fa.masks import mask_keys
from c2fa.solvers.evidence import TINY, Fit
from c2fa.solvers.interactions import Interactions
from c2fa.solvers.intervals import log_prior, own_strength_variance
from c2fa.solvers.matrices import Cholesky, squares, weighted_gram, whole
from c2fa.solvers.scales import Scales, maximise
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure

ORDERS = (2.0, 10.0)  # how many leaves usually act together: there are interactions of few, and of many
# How strong interactions usually are, as shares of the variance, and the standard deviation of the logarithm. With
# fewer rows than leaves, or where neighbours are alike, what is not explained yet is more often due to leaves.
USUAL_INTERACTIONS, USUAL_BESIDE_FEW_ROWS, INTERACTIONS_SD = 0.3, 0.1, 1.0
ROUNDING = 1e-9  # of the outputs' variance: what keeps a system solvable


@dataclass(frozen=True, eq=False)
class Game:
    """What is known of a game: rows of a function of leaf masks."""

    structure: Structure
    masks: BoolArray  # of the leaves, (n, leaves), no two alike
    outputs: FloatArray  # the model's for them, (n, outputs)
    output: int = 0  # the one by which strengths are chosen
    noisy: bool = False  # whether the model answers one input differently when it is asked again
    smooth: tuple[Smoother | None, ...] = (None,)  # how neighbours may be alike: the rows decide; None is not at all
    sizes: FloatArray | None = None  # how large each leaf's effect is expected to be beside the others', as variances
    # The variance of an answer, as far as answers to the same input tell; interactions of many leaves look like it.
    noise: float = 0.0

    @cached_property
    def rows(self) -> dict[bytes, int]:
        """Where each mask is."""
        return {key: i for i, key in enumerate(mask_keys(self.masks))}

    @cached_property
    def complements(self) -> IntArray:
        """For every row the row of its complement, -1 where that was not asked."""
        return np.array([self.rows.get(key, -1) for key in mask_keys(~self.masks)], dtype=np.intp)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The rows whose complements come after them, and these."""
        first = np.flatnonzero(np.arange(len(self.masks)) < self.complements)
        return first, self.complements[first]

    def less(self, effects: FloatArray) -> Game:
        """The game without effects of leaves, (leaves, outputs), that are known beforehand."""
        return replace(self, outputs=self.outputs - self.masks @ effects)

    @property
    def whole_rows(self) -> IntArray:
        """The rows in which every part of the finest level of parts is there or gone as a whole."""
        s = self.structure
        if s.depth == 1:
            return np.zeros(0, dtype=np.intp)
        counts = s.sums(self.masks.T.astype(np.float64), s.depth - 2)
        return np.flatnonzero(((counts == 0) | (counts == s.sizes(-2)[:, None])).all(axis=0))


@dataclass(frozen=True, eq=False)
class Observed:
    """What the process is fitted to: half the differences of complements, and the rows that have none.

    The first are of ``pairs``. A row that is alone also holds the mean and even orders, which are noise to it.
    ``unit`` is the root of the deciding output's mean square, in which targets are held.
    """

    game: Game
    x: FloatArray
    targets: FloatArray
    pairs: int
    unit: float

    @cached_property
    def alone(self) -> FloatArray:
        """1 for each row that is alone, which come after the pairs, and 0 for the others."""
        return (np.arange(len(self.x)) >= self.pairs).astype(np.float64)

    @classmethod
    def of(cls, game: Game) -> Observed | None:
        """The observations of a game; None where its deciding output is constant."""
        above = game.outputs - game.outputs[0]
        first, second = game.pairs
        for pairs in (len(first), 0):  # where no row differs from its complement, all of them are taken as they are
            single = np.flatnonzero((game.complements < 0) | (pairs == 0))
            x = np.where(game.masks[np.concatenate([first[:pairs], single])], 1.0, -1.0)
            centred = above[single] - (above[single].mean(axis=0) if len(single) else 0.0)
            targets = np.concatenate([0.5 * (above[first[:pairs]] - above[second[:pairs]]), centred])
            square = float(np.square(targets[:, game.output]).mean())
            if square > TINY:
                return cls(game, x, targets / np.sqrt(square), pairs, float(np.sqrt(square)))
        return None

    @property
    def free(self) -> int:
        """How many observations there are beside the mean of rows that are alone."""
        return len(self.x) - (self.pairs < len(self.x))


@dataclass(frozen=True, eq=False)
class ProcessFit(Fit):
    """A fit with ``P``, the inverse of the rows' covariance without their mean, ``P y`` and every output's mean."""

    lower_precision: FloatArray  # its lower triangle
    pulls: FloatArray
    means: FloatArray
    interactions: tuple[Interactions, ...]
    exponents: tuple[FloatArray, ...]  # of each of the interactions, of which its kernels are functions

    @cached_property
    def precision(self) -> FloatArray:
        return whole(self.lower_precision)


@dataclass(frozen=True, eq=False)
class Process:
    """A process with the scales that were chosen for it."""

    observed: Observed
    signs: FloatArray  # the rows, smoothed: twice what a leaf's effect does to the observations
    smooth: Smoother | None
    scales: Scales
    fit: ProcessFit

    @property
    def interactions(self) -> tuple[Interactions, ...]:
        return self.fit.interactions

    @property
    def game(self) -> Game:
        return self.observed.game

    @cached_property
    def log_evidence(self) -> float:
        """Of the deciding output as it is, up to a constant that all processes of the same rows have in common.

        Leaves' own factors are left out, as in ``auto.py``: they follow the rows, and the density of their prior goes
        with the tail, which differs from process to process.
        """
        usual = self.scales.centre * np.exp(np.log(self.scales.own).mean())
        return self.refitted(usual).log_evidence - self.observed.free * float(np.log(self.observed.unit))

    def refitted(self, variances: FloatArray) -> ProcessFit:
        """What the rows say where leaves have other variances."""
        return _evaluate(self.observed, self.signs, variances, self.scales.noises, self.interactions)

    @cached_property
    def covariances(self) -> FloatArray:
        """Of every observation with the values of the leaves, (leaves, rows)."""
        effects = self.signs * (0.5 * self.scales.variances)
        covariances: FloatArray = (effects if self.smooth is None else self.smooth(effects)).T
        for noise, kind in zip(self.scales.noises, self.interactions, strict=False):
            odd = kind.values(self.observed.x, self.game.structure)
            odd *= noise
            covariances += odd
        return covariances

    @cached_property
    def _own_odd(self) -> list[tuple[FloatArray, ...]]:
        """For each kind of interactions the prior variance of what it does to each value, level by level."""
        return [kind.variances(self.game.structure) for kind in self.interactions]

    def odd_variances(self, structure: Structure, level: int) -> FloatArray:
        """The prior variance of what interactions do to a level's values, in this tree or another over its leaves."""
        if structure is self.game.structure:
            each = [variances[level] for variances in self._own_odd]
        else:
            owners, width = structure.owners(level), structure.widths[level]
            each = [kind.sum_variances(owners, width) for kind in self.interactions]
        return sum((n * of for n, of in zip(self.scales.noises, each, strict=False)), start=np.zeros(1))

    @cached_property
    def leaves(self) -> FloatArray:
        """The posterior mean of the leaves' values, (leaves, outputs)."""
        leaves: FloatArray = self.covariances @ self.fit.pulls
        return leaves

    @cached_property
    def sizes(self) -> FloatArray:
        """Of each output, how large it is beside what the scales expect, which were chosen for one of them."""
        energies = np.einsum("ij,ij->j", self.observed.targets, self.fit.pulls)
        sizes: FloatArray = np.maximum(energies, 0.0) / max(self.observed.free, 1)
        return sizes

    def variances(self, s: Structure, level: int) -> FloatArray:
        """The posterior variances of values where scales are given, (width, outputs).

        They are those of a level of the game's tree, or of another over the same leaves.
        """
        level = s.level(level)
        prior = s.sums(self.scales.variances, level)
        if self.smooth is not None and level == s.depth - 1:
            step = max(2**22 // s.leaves, 1)  # some leaves at a time: 32 MB
            starts = range(0, s.leaves, step)
            chosen = (np.arange(i, min(i + step, s.leaves))[:, None] == np.arange(s.leaves) for i in starts)
            prior = np.concatenate([np.square(self.smooth(some.astype(np.float64))) @ prior for some in chosen])
        prior = prior + self.odd_variances(s, level)
        sums = s.sums(self.covariances, level)
        known = np.einsum("ij,ij->i", sums @ self.fit.precision, sums)
        variances: FloatArray = np.maximum(prior - known, 0.0)[:, None] * self.sizes
        return variances

    @cached_property
    def doubt(self) -> FloatArray:
        """What the doubt about each leaf's own strength adds to its variance, (leaves, outputs)."""
        scales, size = self.scales, float(self.sizes[self.game.output])
        effects = 0.5 * scales.variances[:, None] * (self.signs.T @ self.fit.pulls)
        posterior = scales.variances * np.maximum(1.0 - self.fit.dof, 1e-9)
        pulled = np.square(effects[:, self.game.output] / posterior) / max(size, TINY)
        density = log_prior(scales.tail, scales.centre_sd(self.fit.dof))
        return own_strength_variance(scales.variances, scales.centre, density, posterior, effects, self.sizes, pulled)

    def covariance(self, structure: Structure, level: int, features: IntArray) -> FloatArray:
        """About the posterior covariance of sums of leaves where scales are given, (features, features).

        They are those of some features of a level, of the game's tree or of another over the same leaves. Of what
        interactions do to each feature's value only the variance is counted, so that numbers below 0 may come out
        among the covariance's eigenvalues: these are 0.
        """
        owners = structure.owners(level)
        indicator = (owners[:, None] == np.asarray(features)).astype(np.float64)
        spread = indicator if self.smooth is None else self.smooth(indicator.T).T
        prior = (spread.T * self.scales.variances) @ spread
        prior[np.diag_indices(len(prior))] += self.odd_variances(structure, level)[features]
        sums = indicator.T @ self.covariances
        sizes, axes = np.linalg.eigh(prior - sums @ self.fit.precision @ sums.T)
        covariance: FloatArray = (axes * np.maximum(sizes, 0.0)) @ axes.T
        return covariance


def fitted(observed: Observed) -> list[Process]:
    """A process for each way of smoothing, with the scales that suit it."""
    game, s, found = observed.game, observed.game.structure, []
    owners = [s.owners(k) for k in range(s.depth - 1) if 1 < s.widths[k] < s.leaves]
    kinds = len(ORDERS) * (2 if observed.pairs < len(observed.x) else 1) + game.noisy
    for smooth in game.smooth:
        signs = observed.x if smooth is None else smooth(observed.x)
        energy = 0.25 * float(np.vdot(signs, signs)) / len(signs)
        base = float(np.log(0.5 / max(energy, TINY)))  # leaves are first thought to explain half of the variance
        groups = (np.zeros(s.leaves, dtype=np.intp), *owners)
        enough = smooth is None and len(game.masks) >= s.leaves
        usual = USUAL_INTERACTIONS if enough else USUAL_BESIDE_FEW_ROWS
        scales = Scales.initial(groups, base, kinds, sizes=game.sizes, usual_noise=(usual, INTERACTIONS_SD))
        best = maximise(scales, functools.partial(_evaluate, observed, signs), rounds=3, stride=1.2, further=10.0)
        found.append(Process(observed, signs, smooth, best.scales, best.fit))
    return found


Kernels: TypeAlias = list[tuple[int, FloatArray]]
"""The covariance of each kind of noise, and the row at which it begins."""


def _kernels(
    observed: Observed,
    interactions: Sequence[Interactions],
    exponents: Sequence[FloatArray],
    variances: FloatArray,
    gram: FloatArray,
) -> Kernels:
    """Odd orders, even ones of rows that are alone, and the model's own noise; lower triangles, as ``gram`` is."""
    x, pairs = observed.x, observed.pairs
    odd, even = Kernels(), Kernels()
    for kind, powers in zip(interactions, exponents, strict=True):
        odd.append((0, kind.odd(powers, kind.additive(gram, variances, x))))
        if pairs < len(x):  # beside pairs, what even orders of single rows have in common with theirs counts little
            even.append((pairs, kind.even(powers[pairs:, pairs:])))
    return odd + even + ([(0, np.diag(0.5 + 0.5 * observed.alone))] if observed.game.noisy else [])


def _evaluate(
    observed: Observed,
    signs: FloatArray,
    variances: FloatArray,
    noises: FloatArray,
    interactions: tuple[Interactions, ...] = (),
) -> ProcessFit:
    """The evidence and the terms of its derivatives, as in ``evidence.py``, with kernels in the place of noise.

    Leaves act together as they matter, unless interactions are given. What that adds to the derivatives is left out.
    """
    interactions = interactions or tuple(Interactions.of(order, variances) for order in ORDERS)
    gram = weighted_gram(observed.x, variances)
    exponents = tuple(kind.own_exponents(gram, variances, observed.x) for kind in interactions)
    kernels = _kernels(observed, interactions, exponents, variances, gram)
    matrix = 0.25 * (gram if signs is observed.x else weighted_gram(signs, variances))
    for noise, (start, kernel) in zip(noises, kernels, strict=True):
        matrix[start:, start:] += noise * kernel
    game, alone, targets = observed.game, observed.alone, observed.targets
    known_noise = game.noise / observed.unit**2 * (0.5 + 0.5 * alone)
    np.einsum("ii->i", matrix)[:] += ROUNDING + known_noise
    factor = Cholesky(matrix)
    log_evidence = -0.5 * factor.log_determinant
    precision, means = factor.lower_inverse, np.zeros(targets.shape[1])
    reached = squares(dtrmm(1.0, factor.inverse, signs.T, side=1, trans_a=1, lower=1).T)
    if observed.pairs < len(alone):  # the mean of rows that are alone is integrated out
        ones = dsymv(1.0, precision, alone, lower=1)
        total = float(ones @ alone)
        means = ones @ targets / total
        precision = dsyr(-1.0 / total, ones, a=precision, lower=1, overwrite_a=1)
        reached -= np.square(signs.T @ ones) / total
        log_evidence -= 0.5 * float(np.log(total))
    pulls = dsymm(1.0, precision, targets, lower=1)
    pull = pulls[:, game.output]
    own = precision.diagonal()
    traces = [
        2.0 * np.vdot(precision.T[start:, start:], kernel.T) - own[start:] @ kernel.diagonal()
        for start, kernel in kernels
    ]
    squared = [pull[start:] @ dsymv(1.0, kernel, pull[start:], lower=1) for start, kernel in kernels]
    return ProcessFit(
        log_evidence=log_evidence - 0.5 * float(targets[:, game.output] @ pull),
        dof=np.clip(0.25 * variances * reached, 0.0, 1.0),
        beta2_over_v=0.25 * variances * np.square(signs.T @ pull),
        residual_dof=noises * np.maximum(traces, 0.0),
        scaled_rss=noises * np.maximum(squared, 0.0),
        lower_precision=precision,
        pulls=pulls,
        means=means,
        interactions=interactions,
        exponents=exponents,
    )
