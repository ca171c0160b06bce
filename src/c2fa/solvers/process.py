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
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import logsumexp, ndtri, stdtrit

from c2fa._system import suited
from c2fa.graph import Smoother
from c2fa.masks import mask_keys
from c2fa.solvers.evidence import TINY, Fit
from c2fa.solvers.interactions import Interactions
from c2fa.solvers.intervals import log_prior, own_strength_variance
from c2fa.solvers.scales import Scales, maximise
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure

_ORDERS = (2.0, 10.0)  # how many leaves usually act together: there are interactions of few, and of many
_ROUNDS, _MORE_ROUNDS = 3, 1  # of the search for scales: where leaves act together alike, and then as they matter
_LEAST_WEIGHT = 0.05  # of a way of smoothing in the mean: less does not pay for its system
_ADDITIVE = 0.5  # the share of the outputs' variance that leaves are first thought to explain
_ROUNDING = 1e-9  # of the outputs' variance: what keeps a system solvable
_EXTRAPOLATED = 16.0  # times the variance of parts by rows that take them apart, beside rows of whole parts
_NORMAL_QUANTILE = ndtri(0.975)
_PAIRED = 200  # features whose pairs are looked at, those that matter most
_AT_ONCE = 2**22  # numbers held beside the rows


@dataclass(frozen=True, eq=False)
class Game:
    """What is known of a game.

    Attributes
    ----------
    masks, outputs
        Masks of the leaves, (n, leaves), no two alike, and the model's outputs for them, (n, outputs).
    output
        The output by which strengths are chosen.
    noisy
        Whether the model answers one input differently when it is asked again.
    smooth
        Ways to make leaves' effects alike that are neighbours, among which the rows decide; None is not at all.
    sizes
        How large each leaf's effect is expected to be beside the others', as variances.
    noise
        The variance of an answer, as far as answers to the same input tell; interactions of many leaves look like it.
    """

    structure: Structure
    masks: BoolArray
    outputs: FloatArray
    output: int = 0
    noisy: bool = False
    smooth: tuple[Smoother | None, ...] = (None,)
    sizes: FloatArray | None = None
    noise: float = 0.0

    @cached_property
    def rows(self) -> dict[bytes, int]:
        """Where each mask is."""
        return {key: i for i, key in enumerate(mask_keys(self.masks))}

    @cached_property
    def complements(self) -> IntArray:
        """For every row the row of its complement, -1 where that was not asked."""
        return np.array([self.rows.get(key, -1) for key in mask_keys(~self.masks)], dtype=np.intp)

    @property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The rows whose complements come after them, and these."""
        first = np.flatnonzero(np.arange(len(self.masks)) < self.complements)
        return first, self.complements[first]

    def less(self, effects: FloatArray) -> Game:
        """The game without effects of leaves, (leaves, outputs), that are known beforehand."""
        return replace(self, outputs=self.outputs - self.masks @ effects)


@dataclass(frozen=True, eq=False)
class Observed:
    """What the process is fitted to: half the differences of complements, and the rows that have none.

    A row that is ``alone`` also holds the mean and even orders, which are noise to it. ``unit`` is the root of the
    deciding output's mean square, in which targets are held.
    """

    x: FloatArray
    targets: FloatArray
    alone: FloatArray
    unit: float

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
                alone = np.repeat([0.0, 1.0], [pairs, len(single)])
                return cls(x, targets / np.sqrt(square), alone, float(np.sqrt(square)))
        return None

    @property
    def free(self) -> int:
        """How many observations there are beside the mean of rows that are alone."""
        return len(self.x) - bool(self.alone.any())


@dataclass(frozen=True, eq=False)
class ProcessFit(Fit):
    """A fit with ``P``, the inverse of the rows' covariance without their mean, ``P y`` and every output's mean."""

    precision: FloatArray
    pulls: FloatArray
    means: FloatArray


@dataclass(frozen=True, eq=False)
class Process:
    """A process of given interactions, with the scales that were chosen for it."""

    game: Game
    observed: Observed
    effects: FloatArray  # what a leaf's effect does to the observations, (rows, leaves): half its sign, smoothed
    smooth: Smoother | None
    interactions: tuple[Interactions, ...]
    scales: Scales
    fit: ProcessFit

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
        kernels = _kernels(self.game, self.observed, self.interactions)
        return _evaluate(self.game, self.observed, self.effects, kernels, variances, self.scales.noises)

    @cached_property
    def covariances(self) -> FloatArray:
        """Of every observation with the values of the leaves, (rows, leaves)."""
        effects = self.effects * self.scales.variances
        if self.smooth is not None:
            effects = self.smooth(effects)
        for noise, kind in zip(self.scales.noises, self.interactions, strict=False):
            odd = kind.values(self.observed.x, self.game.structure)
            odd *= noise
            effects += odd
        covariances: FloatArray = effects
        return covariances

    @cached_property
    def odd_variances(self) -> tuple[FloatArray, ...]:
        """The prior variance of what interactions do to each value, level by level."""
        each = [kind.variances(self.game.structure) for kind in self.interactions]
        return tuple(
            sum((noise * of for noise, of in zip(self.scales.noises, level, strict=False)), start=0.0 * level[0])
            for level in zip(*each, strict=True)
        )

    @cached_property
    def leaves(self) -> FloatArray:
        """The posterior mean of the leaves' values, (leaves, outputs)."""
        leaves: FloatArray = self.covariances.T @ self.fit.pulls
        return leaves

    @cached_property
    def sizes(self) -> FloatArray:
        """Of each output, how large it is beside what the scales expect, which were chosen for one of them."""
        energies = np.einsum("ij,ij->j", self.observed.targets, self.fit.pulls)
        sizes: FloatArray = np.maximum(energies, 0.0) / max(self.observed.free, 1)
        return sizes

    def variances(self, level: int) -> FloatArray:
        """The posterior variances of a level's values where scales are given, (width, outputs)."""
        s, level = self.game.structure, self.game.structure.level(level)
        prior = s.sums(self.scales.variances, level)
        if self.smooth is not None and level == s.depth - 1:
            prior = _smoothed_variances(self.smooth, prior)
        prior = prior + self.odd_variances[level]
        sums = s.sums(self.covariances.T, level)
        known = np.einsum("ij,ij->i", sums @ self.fit.precision, sums)
        variances: FloatArray = np.maximum(prior - known, 0.0)[:, None] * self.sizes
        return variances

    @cached_property
    def doubt(self) -> FloatArray:
        """What the doubt about each leaf's own strength adds to its variance, (leaves, outputs)."""
        scales, size = self.scales, float(self.sizes[self.game.output])
        effects = scales.variances[:, None] * (self.effects.T @ self.fit.pulls)
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
        if structure is self.game.structure:
            odd = self.odd_variances[structure.level(level)]
        else:
            each = (kind.sum_variances(owners, structure.widths[level]) for kind in self.interactions)
            odd = sum((n * of for n, of in zip(self.scales.noises, each, strict=False)), start=np.zeros(1))
        prior[np.diag_indices(len(prior))] += odd[features]
        sums = self.covariances @ indicator
        sizes, axes = np.linalg.eigh(prior - sums.T @ self.fit.precision @ sums)
        covariance: FloatArray = (axes * np.maximum(sizes, 0.0)) @ axes.T
        return covariance


@dataclass(frozen=True, eq=False)
class Solved:
    """The values of a game.

    Attributes
    ----------
    values, stderr
        For each level, coarse to fine, (width, outputs).
    base
        The game's value where everything is masked, (outputs,).
    exact
        For each level, whether every mask that a feature's value depends on was asked, (width,).
    game
        What was known of it.
    processes, weights
        What the values were averaged over.
    """

    values: tuple[FloatArray, ...]
    stderr: tuple[FloatArray, ...]
    base: FloatArray
    exact: tuple[BoolArray, ...]
    game: Game
    processes: tuple[Process, ...] = ()
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def likeliest(self) -> Process | None:
        """The process that the rows speak for most; None where outputs are constant."""
        return self.processes[int(self.weights.argmax())] if self.processes else None

    @property
    def log_evidence(self) -> float:
        """Of the deciding output, averaged over the processes."""
        if not self.processes:
            return float("inf")
        return float(logsumexp([p.log_evidence for p in self.processes]))

    def correlation(self, structure: Structure, level: int, features: IntArray) -> FloatArray:
        """About the posterior correlations of some values of a level, of this tree or of another over its leaves."""
        if self.likeliest is None:
            return np.eye(len(features))
        covariance = self.likeliest.covariance(structure, level, features)
        root = np.sqrt(np.maximum(np.diag(covariance), np.finfo(np.float64).tiny))
        found: FloatArray = covariance / np.outer(root, root)
        return found

    def stderr_of(self, structure: Structure, level: int) -> FloatArray:
        """The standard errors of sums of leaves by another tree over the same ones, (width, outputs)."""
        process, owners, width = self.likeliest, structure.owners(level), structure.widths[level]
        if process is None:
            return np.zeros((width, self.stderr[-1].shape[1]))
        if structure.level(level) == structure.depth - 1:
            return self.stderr[-1]
        prior = structure.sums(process.scales.variances, level)
        for noise, kind in zip(process.scales.noises, process.interactions, strict=False):
            prior = prior + noise * kind.sum_variances(owners, width)
        sums = structure.sums(process.covariances.T, level)
        known = np.einsum("ij,ij->i", sums @ process.fit.precision, sums)
        variance = np.maximum(prior - known, 0.0)[:, None] * process.sizes + structure.sums(process.doubt, level)
        exact = np.bincount(owners, ~self.exact[-1], minlength=width) == 0
        errors: FloatArray = np.where(exact[:, None], 0.0, np.sqrt(variance) * process.observed.unit)
        return errors

    @cached_property
    def even(self) -> Even | None:
        """What is known of the even orders of the deciding output; None where there are none to know of."""
        process = self.likeliest
        return None if process is None or process.game.output != self.game.output else Even.of(process)

    @cached_property
    def left_out(self) -> FloatArray:
        """By how much each row of the deciding output would be missed without it (and its complement), (n,)."""
        process = self.likeliest
        if process is None:
            return np.zeros(len(self.game.masks))
        column, unit = self.game.output, process.observed.unit
        known = process.fit.precision.diagonal()  # 0 for a single row whose mean is its own
        pulls = process.fit.pulls[:, column]
        missed = np.divide(pulls, known, out=process.observed.targets[:, column].copy(), where=known > TINY) * unit
        if process.observed.alone.all():
            return missed
        first, second = self.game.pairs
        common = 0.0 if self.even is None else self.even.left_out
        found = np.empty(len(self.game.masks))
        found[first], found[second] = common + missed[: len(first)], common - missed[: len(first)]
        found[self.game.complements < 0] = missed[len(first) :]
        return found

    def exact_levels(self, structure: Structure) -> tuple[bool, ...]:
        """For each level of a tree over the same leaves, whether all of its values are exact."""
        if structure is self.game.structure:
            return tuple(bool(level.all()) for level in self.exact)
        return (bool(self.exact[-1].all()),) * structure.depth

    @property
    def r2_left_out(self) -> float | None:
        """The share of the deciding output's variance that the process predicts of rows that it was not given."""
        y = self.game.outputs[:, self.game.output]
        total = float(np.square(y - y.mean()).sum())
        missed = float(np.square(self.left_out).sum())
        return round(1.0 - missed / total, 9) if total > 0 and len(y) > 3 else None


@dataclass(frozen=True, eq=False)
class Even:
    """The process of even orders given the rows, by which pairs of features act together.

    Attributes
    ----------
    x, precision, pulls
        Rows, the inverse of their covariance without their mean, and that times the deciding output.
    unit
        Of the output, in which the even orders' variance is 1.
    """

    x: FloatArray
    precision: FloatArray
    pulls: FloatArray
    unit: float
    interactions: Interactions
    structure: Structure

    @classmethod
    def of(cls, process: Process) -> Even | None:
        """From the means of complements; None where there are too few."""
        game, s = process.game, process.game.structure
        first, second = game.pairs
        x, y = np.where(game.masks[first], 1.0, -1.0), game.outputs[:, game.output]
        means = 0.5 * (y[first] + y[second])
        means = means - means.mean() if len(means) else means
        best: tuple[float, FloatArray, Interactions] | None = None
        for order in _ORDERS if len(means) > 2 and np.square(means).mean() > TINY else ():
            interactions = Interactions.of(order, process.scales.variances)
            kernel = interactions.even(x, x)
            kernel.ravel()[:: len(kernel) + 1] += _ROUNDING
            factor, bad = dpotrf(kernel, lower=1, overwrite_a=1)
            if bad:
                continue
            roots = solve_triangular(factor, np.stack([means, np.ones(len(means))], axis=1), lower=True)
            (energy, crossed), (_, total) = roots.T @ roots
            variance = max(energy - crossed**2 / total, TINY) / (len(means) - 1)
            log_determinant = 2.0 * np.log(factor.diagonal()).sum() + np.log(total)
            evidence = -0.5 * float(log_determinant + (len(means) - 1) * np.log(variance))
            if best is None or evidence > best[0]:
                best = evidence, factor, interactions
        if best is None:
            return None
        _, factor, interactions = best
        precision = _symmetric_inverse(factor)
        ones = precision.sum(axis=1)
        precision -= np.outer(ones, ones) / ones.sum()
        pulls = precision @ means
        unit = float(np.sqrt(max(float(means @ pulls), TINY) / (len(means) - 1)))
        return cls(x, precision, pulls / unit, unit, interactions, s)

    @property
    def left_out(self) -> FloatArray:
        """By how much each row would be missed without it."""
        missed: FloatArray = self.pulls / np.maximum(self.precision.diagonal(), TINY) * self.unit
        return missed

    def pairs(self, level: int, count: int) -> list[tuple[int, int, float, float]]:
        """The pairs of features under one parent that act together most surely: both, their interaction, its error.

        The interaction of a pair is Shapley's: by how much more the two do together than each by itself, on average
        over what else is there. All pairs are ranked by their own product alone, which is one matrix; those on top get
        all that is known of them.
        """
        s = self.structure
        level = s.level(level)
        weights = s.sums(self.interactions.weights, level)
        features = np.sort(np.argsort(-weights, kind="stable")[:_PAIRED])
        shares = weights[features] / s.sizes(level)[features]
        on = s.sums(self.x.T, level)[features] * (shares / np.maximum(shares.max(), TINY))[:, None]
        parents = s.parents[level - 1] if level else np.zeros(s.widths[0], dtype=np.intp)
        rough = np.triu(np.abs((on * self.pulls) @ on.T), 1) * (parents[features][:, None] == parents[features])
        order = np.argsort(-rough, axis=None, kind="stable")[: 2 * count]
        order = order[rough.ravel()[order] > 0]
        pairs = features[np.stack(np.unravel_index(order, rough.shape), axis=1)]
        if not len(pairs):
            return []
        covariance = self.interactions.pairs(self.x, s, level, pairs)
        values = covariance.T @ self.pulls * self.unit
        prior = self.interactions.pair_variances(s, level, pairs)
        known = np.einsum("ji,jk,ki->i", covariance, self.precision, covariance)
        errors = np.sqrt(np.maximum(prior - known, 0.0)) * self.unit
        # Those that are as good as exact are ranked by size, and not by what rounding left of their errors.
        best = np.argsort(-np.abs(values) / np.maximum(errors, 1e-3 * self.unit), kind="stable")[:count]
        values, errors = _rounded(values), _rounded(errors)
        return [(int(pairs[i, 0]), int(pairs[i, 1]), float(values[i]), float(errors[i])) for i in best]


def solve_game(game: Game) -> Solved:
    """The Winter values of a game, with standard errors and base, from the rows that are known of it."""
    rows, leaves = game.masks.shape
    with suited(float(rows) ** 2 * (rows + leaves)):
        return _solve_game(game)


def _solve_game(game: Game) -> Solved:
    s = game.structure
    observed = Observed.of(game)
    spreads = (game.outputs - game.outputs[0]).var(axis=0)
    if observed is None and spreads.max() > TINY:  # of other outputs, the one that varies most decides
        return replace(solve_game(replace(game, output=int(spreads.argmax()))), game=game)
    if observed is None:
        nothing = tuple(np.zeros((width, game.outputs.shape[1])) for width in s.widths)
        return Solved(nothing, nothing, game.outputs[0], tuple(np.ones(w, dtype=np.bool_) for w in s.widths), game)
    processes = _processes(game, observed)
    weights = np.ones(1)
    if len(processes) > 1:
        evidence = np.array([process.log_evidence for process in processes])
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        counting = weights >= _LEAST_WEIGHT
        processes = [process for process, counts in zip(processes, counting, strict=True) if counts]
        weights = weights[counting] / weights[counting].sum()
    leaves = sum(w * process.leaves for w, process in zip(weights, processes, strict=True)) * observed.unit
    values, stderr = [], []
    # Scales are estimated: from as many rows as the leaves' effects leave over.
    free = sum(w * process.fit.residual_dof.sum() for w, process in zip(weights, processes, strict=True))
    widening = stdtrit(max(free, 2.0), 0.975) / _NORMAL_QUANTILE
    for k in range(s.depth):
        values.append(s.sums(leaves, k))
        variance = np.zeros(values[k].shape)
        for w, process in zip(weights, processes, strict=True):
            known, doubt = process.variances(k), s.sums(process.doubt, k)
            alone = s.sums(process.scales.variances * np.maximum(1.0 - process.fit.dof, 0.0), k)
            shared = np.minimum(known[:, process.game.output] / np.maximum(alone, TINY), 1.0)
            apart = s.sums(process.leaves, k) - values[k] / observed.unit
            variance += w * (known + doubt * np.sqrt(shared)[:, None] + np.square(apart))
        stderr.append(np.sqrt(variance) * observed.unit * widening)
    base = _base(game, observed, processes, weights)
    exact = _exact_values(game)
    whole = _whole_rows(game)
    if s.depth > 1 and len(whole) > 3 and any(value is None for level in exact[:-1] for value in level):
        # Among parts alone less acts together than among leaves: what whole parts do counts by what it says of them.
        first = np.unique(s.owners(-2), return_index=True)[1]
        parts = Structure(s.parents[:-1], s.names[:-1])
        above = solve_game(
            Game(parts, game.masks[whole][:, first], game.outputs[whole], game.output, game.noisy, noise=game.noise)
        )
        for k in range(s.depth - 1):
            one, other = _EXTRAPOLATED * np.square(stderr[k]) + TINY, np.square(above.stderr[k]) + TINY
            values[k] = (values[k] * other + above.values[k] * one) / (one + other)
            stderr[k] = np.sqrt(one * other / (one + other))
    values, stderr = [_rounded(v) for v in values], [_rounded(e) for e in stderr]
    values, stderr = _adding_up(game, values, stderr, exact, base)
    asked = tuple(np.array([value is not None for value in level], dtype=np.bool_) for level in exact)
    return Solved(tuple(values), tuple(stderr), base, asked, game, tuple(processes), weights)


def _processes(game: Game, observed: Observed) -> list[Process]:
    """A process for each way of smoothing, with the scales that suit it."""
    s, found = game.structure, []
    owners = [s.owners(k) for k in range(s.depth - 1) if 1 < s.widths[k] < s.leaves]
    kinds = len(_ORDERS) * (2 if observed.alone.any() else 1) + game.noisy
    for smooth in game.smooth:
        effects = 0.5 * observed.x if smooth is None else smooth(0.5 * observed.x)
        energy = float(np.square(effects).sum()) / len(effects)
        base = float(np.log(_ADDITIVE / max(energy, TINY)))
        scales = Scales.initial((np.zeros(s.leaves, dtype=np.intp), *owners), base, kinds, sizes=game.sizes)
        for rounds in (_ROUNDS, _MORE_ROUNDS):
            interactions = tuple(Interactions.of(order, scales.variances) for order in _ORDERS)
            kernels = _kernels(game, observed, interactions)
            best = maximise(scales, functools.partial(_evaluate, game, observed, effects, kernels), rounds)
            scales = best.scales
        found.append(Process(game, observed, effects, smooth, interactions, best.scales, best.fit))
    return found


def _kernels(game: Game, observed: Observed, interactions: Sequence[Interactions]) -> list[FloatArray]:
    """The covariance of each kind of noise: odd orders, even ones of rows that are alone, and the model's own."""
    kernels = [kind.odd(observed.x, observed.x) for kind in interactions]
    if observed.alone.any():  # beside pairs, what even orders of single rows have in common with theirs counts little
        kernels += [
            kind.even(observed.x, observed.x) * np.outer(observed.alone, observed.alone) for kind in interactions
        ]
    if game.noisy:
        kernels.append(np.diag(0.5 + 0.5 * observed.alone))
    return kernels


def _evaluate(
    game: Game,
    observed: Observed,
    effects: FloatArray,
    kernels: Sequence[FloatArray],
    variances: FloatArray,
    noises: FloatArray,
) -> ProcessFit:
    """The evidence and the terms of its derivatives, as in ``evidence.py``, with kernels in the place of noise."""
    matrix = (effects * variances) @ effects.T
    for noise, kernel in zip(noises, kernels, strict=True):
        matrix += noise * kernel
    known_noise = game.noise / observed.unit**2 * (0.5 + 0.5 * observed.alone)
    matrix.ravel()[:: len(matrix) + 1] += _ROUNDING + known_noise
    factor, bad = dpotrf(matrix, lower=1, overwrite_a=1)
    if bad:
        raise LinAlgError("the rows' covariance is singular")
    log_evidence = -float(np.log(factor.diagonal()).sum())
    precision = _symmetric_inverse(factor)
    means = np.zeros(observed.targets.shape[1])
    if observed.alone.any():  # their mean is integrated out
        ones = precision @ observed.alone
        total = float(ones @ observed.alone)
        means = ones @ observed.targets / total
        precision -= np.outer(ones, ones) / total
        log_evidence -= 0.5 * float(np.log(total))
    pulls = precision @ observed.targets
    pull = pulls[:, game.output]
    return ProcessFit(
        log_evidence=log_evidence - 0.5 * float(observed.targets[:, game.output] @ pull),
        dof=np.clip(variances * np.einsum("ij,ij->j", effects, precision @ effects), 0.0, 1.0),
        beta2_over_v=variances * np.square(effects.T @ pull),
        residual_dof=noises * [max(float(np.vdot(precision, kernel)), 0.0) for kernel in kernels],
        scaled_rss=noises * [max(float(pull @ kernel @ pull), 0.0) for kernel in kernels],
        precision=precision,
        pulls=pulls,
        means=means,
    )


def _symmetric_inverse(factor: FloatArray) -> FloatArray:
    """The inverse of a matrix from its Cholesky factor, which is overwritten."""
    lower, _ = dpotri(factor, lower=1, overwrite_c=1)
    inverse: FloatArray = lower + lower.T  # the other triangle of the factor is 0
    inverse.ravel()[:: len(inverse) + 1] *= 0.5
    return inverse


def _base(game: Game, observed: Observed, processes: Sequence[Process], weights: FloatArray) -> FloatArray:
    """What the game is where everything is masked: as asked, or as the process has it."""
    nothing = np.zeros((1, game.structure.leaves), dtype=np.bool_)
    asked = game.rows.get(mask_keys(nothing)[0])
    if asked is not None:
        answer: FloatArray = game.outputs[asked].copy()
        return answer
    single = game.complements < 0
    level = game.outputs[single].mean(axis=0)
    gone = -np.ones(nothing.shape)
    for w, process in zip(weights, processes, strict=True):
        half = 0.5 * gone if process.smooth is None else process.smooth(0.5 * gone)
        covariance = (half * process.scales.variances) @ process.effects.T
        for odd, kind in zip(process.scales.noises, process.interactions, strict=False):
            covariance += odd * kind.odd(gone, observed.x)
        level = level + w * observed.unit * (process.fit.means + (covariance @ process.fit.pulls)[0])
    return np.asarray(level)


def _whole_rows(game: Game) -> IntArray:
    """The rows in which every part of the finest level of parts is there or gone as a whole."""
    s = game.structure
    if s.depth == 1:
        return np.zeros(0, dtype=np.intp)
    counts = s.sums(game.masks.T.astype(np.float64), s.depth - 2)
    return np.flatnonzero(((counts == 0) | (counts == s.sizes(-2)[:, None])).all(axis=0))


def _exact_values(game: Game) -> list[list[FloatArray | None]]:
    """Of every feature, level by level, its value where every mask that it depends on was asked."""
    s, found = game.structure, []
    beside = np.zeros(1, dtype=np.intp)  # how many features, at all levels so far, a value depends on
    for k in range(s.depth):
        parents = s.parents[k - 1] if k else np.zeros(s.widths[0], dtype=np.intp)
        beside = beside[parents] + np.bincount(parents)[parents] - 1
        few = (beside < len(game.rows).bit_length()) & (not game.noisy)  # else there are more masks than rows
        found.append([exact_value(game, k, i) if possible else None for i, possible in enumerate(few.tolist())])
    return found


def _adding_up(
    game: Game,
    values: Sequence[FloatArray],
    stderr: Sequence[FloatArray],
    exact: Sequence[Sequence[FloatArray | None]],
    base: FloatArray,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Values that are exact where they can be, and add up at every level; without noise, to the prediction.

    What is left over goes to the features that are not exact, by their variances.
    """
    s, found, errors = game.structure, [], []
    totals = values[0].sum(axis=0)[None]
    if not game.noisy:
        everything = mask_keys(np.ones((1, s.leaves), dtype=np.bool_))[0]
        totals = (game.outputs[game.rows[everything]] - base)[None]
    for k in range(s.depth):
        parents = s.parents[k - 1] if k else np.zeros(s.widths[0], dtype=np.intp)
        level, error = values[k].copy(), stderr[k].copy()
        known = np.zeros(s.widths[k], dtype=np.bool_)
        for i, value in enumerate(exact[k]):
            if value is not None:
                level[i], error[i], known[i] = value, 0.0, True
        free = np.where(known[:, None], 0.0, np.square(error) + TINY)
        share = np.zeros((len(totals), free.shape[1]))
        np.add.at(share, parents, free)
        gap = totals.copy()
        np.subtract.at(gap, parents, level)
        level += np.divide(free, share[parents], out=np.zeros_like(free), where=share[parents] > 0) * gap[parents]
        found.append(level)
        errors.append(error)
        totals = level
    return found, errors


def exact_value(game: Game, level: int, feature: int) -> FloatArray | None:
    """The Winter value of a feature from every mask that it depends on; None where one of them was not asked."""
    s = game.structure
    leaf = int(np.flatnonzero(s.owners(level) == feature)[0])
    beside = []
    for k in range(level + 1):
        here = int(s.owners(k)[leaf])
        parents = s.parents[k - 1] if k else np.zeros(s.widths[0], dtype=np.intp)
        beside.append([j for j in np.flatnonzero(parents == parents[here]).tolist() if j != here])
    masks, weights = np.zeros((1, s.leaves), dtype=np.bool_), np.ones(1)
    for k, others in enumerate(beside):
        chosen = (np.arange(2 ** len(others))[:, None] >> np.arange(len(others))) & 1 == 1
        there = np.stack([s.owners(k) == j for j in others]) if others else np.zeros((0, s.leaves), dtype=np.bool_)
        more = (chosen[:, :, None] & there).any(axis=1)
        counts = chosen.sum(axis=1)
        of_size = np.array([1.0 / ((len(others) + 1) * math.comb(len(others), c)) for c in range(len(others) + 1)])
        masks = (masks[:, None] | more).reshape(-1, s.leaves)
        weights = np.outer(weights, of_size[counts]).ravel()
    own = s.owners(level) == feature
    without = [game.rows.get(key) for key in mask_keys(masks)]
    with_it = [game.rows.get(key) for key in mask_keys(masks | own)]
    if None in without or None in with_it:
        return None
    effects: FloatArray = game.outputs[np.array(with_it)] - game.outputs[np.array(without)]
    return np.asarray(weights @ effects)


def _rounded(values: FloatArray) -> FloatArray:
    """Numbers to nine digits of the largest: further ones differ from machine to machine, as sums are ordered there."""
    largest = float(np.abs(values).max())
    if not 0.0 < largest < np.inf:
        return values
    unit = 2.0 ** (np.ceil(np.log2(largest)) - 30.0)
    rounded: FloatArray = np.rint(values / unit) * unit
    return rounded


def _smoothed_variances(smooth: Smoother, variances: FloatArray) -> FloatArray:
    """The variances of leaves' effects after smoothing, some leaves at a time."""
    found, step = np.empty(len(variances)), max(_AT_ONCE // len(variances), 1)
    for start in range(0, len(variances), step):
        rows = np.zeros((min(step, len(variances) - start), len(variances)))
        rows[np.arange(len(rows)), start + np.arange(len(rows))] = 1.0
        found[start : start + step] = np.square(smooth(rows)) @ variances
    return found
