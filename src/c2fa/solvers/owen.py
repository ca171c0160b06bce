"""The Winter values of a game of which some rows are known, with standard errors, base and interactions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from scipy.linalg import LinAlgError
from scipy.special import logsumexp, ndtri, stdtrit

from c2fa._system import suited
from c2fa.masks import mask_keys
from c2fa.solution import correlations
from c2fa.solvers.evidence import TINY
from c2fa.solvers.interactions import Interactions
from c2fa.solvers.matrices import Cholesky, whole
from c2fa.solvers.process import ROUNDING, Game, Observed, Process, fitted
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure

_NORMAL_QUANTILE = ndtri(0.975)


@dataclass(frozen=True, eq=False)
class Solved:
    """The values of a game."""

    values: tuple[FloatArray, ...]  # of each level, coarse to fine, (width, outputs)
    stderr: tuple[FloatArray, ...]
    base: FloatArray  # the game's value where everything is masked, (outputs,)
    exact: tuple[BoolArray, ...]  # of each level, whether every mask that a feature's value depends on was asked
    game: Game
    processes: tuple[Process, ...] = ()  # what the values were averaged over
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
        return correlations(self.likeliest.covariance(structure, level, features))

    def stderr_of(self, structure: Structure, level: int) -> FloatArray:
        """The standard errors of sums of leaves by another tree over the same ones, (width, outputs)."""
        process, width = self.likeliest, structure.widths[level]
        if process is None:
            return np.zeros((width, self.stderr[-1].shape[1]))
        if structure.level(level) == structure.depth - 1:
            return self.stderr[-1]
        variance = process.variances(structure, level) + structure.sums(process.doubt, level)
        exact = np.bincount(structure.owners(level), ~self.exact[-1], minlength=width) == 0
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
        missed = np.divide(pulls, known, out=process.observed.targets[:, column].copy(), where=known > ROUNDING) * unit
        if not process.observed.pairs:
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
    """The process of even orders given the rows, by which pairs of features act together."""

    x: FloatArray
    precision: FloatArray  # the inverse of the rows' covariance without their mean
    pulls: FloatArray  # that times the deciding output
    unit: float  # of the output, in which the even orders' variance is 1
    interactions: Interactions
    structure: Structure

    @classmethod
    def of(cls, process: Process) -> Even | None:
        """From the means of complements; None where there are too few."""
        game, observed, s = process.game, process.observed, process.game.structure
        first, second = game.pairs
        rows = slice(observed.pairs) if observed.pairs else first  # where complements never differ, all are as they are
        x, y = observed.x[rows], game.outputs[:, game.output]
        means = 0.5 * (y[first] + y[second])
        means = means - means.mean() if len(means) else means
        best: tuple[float, Cholesky, Interactions] | None = None
        if len(means) < 3 or not np.square(means).mean() > TINY:
            return None
        for interactions, exponents in zip(process.interactions, process.fit.exponents, strict=True):
            kernel = interactions.even(exponents[rows][:, rows])
            np.einsum("ii->i", kernel)[:] += ROUNDING
            try:
                factor = Cholesky(kernel)
            except LinAlgError:
                continue
            roots = factor.half(np.stack([means, np.ones(len(means))], axis=1))
            (energy, crossed), (_, total) = roots.T @ roots
            variance = max(energy - crossed**2 / total, TINY) / (len(means) - 1)
            log_determinant = factor.log_determinant + np.log(total)
            evidence = -0.5 * float(log_determinant + (len(means) - 1) * np.log(variance))
            if best is None or evidence > best[0]:
                best = evidence, factor, interactions
        if best is None:
            return None
        _, factor, interactions = best
        precision = whole(factor.lower_inverse)
        ones = precision.sum(axis=1)
        precision -= np.outer(ones, ones) / ones.sum()
        pulls = precision @ means
        unit = float(np.sqrt(max(float(means @ pulls), TINY) / (len(means) - 1)))
        return cls(x, precision, pulls / unit, unit, interactions, s)

    @property
    def left_out(self) -> FloatArray:
        """By how much each row would be missed without it."""
        known = self.precision.diagonal()  # of a row of which the others say nothing, rounding
        missed: FloatArray = np.divide(self.pulls, known, out=np.zeros(len(known)), where=known > ROUNDING) * self.unit
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
        features = np.sort(np.argsort(-weights, kind="stable")[:200])  # those that matter most
        shares = weights[features] / s.sizes(level)[features]
        on = s.sums(self.x.T, level)[features] * (shares / np.maximum(shares.max(), TINY))[:, None]
        parents = s.above(level)[features]
        first, second = np.nonzero((parents[:, None] == parents) & (features[:, None] < features))
        rough = _rounded(np.abs((on * self.pulls) @ on.T)[first, second])
        order = np.argsort(-rough, kind="stable")[: 2 * count]  # of pairs that are alike, the first
        order = order[rough[order] > ROUNDING * np.abs(self.pulls).sum()]  # less is rounding
        pairs = features[np.stack([first[order], second[order]], axis=1)]
        if not len(pairs):
            return []
        covariance = self.interactions.pairs(self.x, s, level, pairs)
        values = covariance @ self.pulls * self.unit
        prior = self.interactions.pair_variances(s, level, pairs)
        known = np.einsum("ij,ij->i", covariance @ self.precision, covariance)
        errors = np.sqrt(np.maximum(prior - known, 0.0)) * self.unit
        # Those that are as good as exact are ranked by size, and not by what rounding left of their errors.
        sure = _rounded(np.abs(values) / np.maximum(errors, 1e-3 * self.unit))
        best = np.argsort(-sure, kind="stable")[:count]
        values, errors = _rounded(values), _rounded(errors)
        return [(int(pairs[i, 0]), int(pairs[i, 1]), float(values[i]), float(errors[i])) for i in best]


def solve_game(game: Game) -> Solved:
    """The Winter values of a game, with standard errors and base, from the rows that are known of it."""
    s, rows = game.structure, len(game.masks)
    with suited(float(rows) ** 2 * (rows + s.leaves)):
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
    processes = fitted(observed)
    weights = np.ones(1)
    if len(processes) > 1:
        evidence = np.array([process.log_evidence for process in processes])
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        counting = weights >= 0.05  # less does not pay for its system
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
            known, doubt = process.variances(s, k), s.sums(process.doubt, k)
            alone = s.sums(process.scales.variances * np.maximum(1.0 - process.fit.dof, 0.0), k)
            shared = np.minimum(known[:, process.game.output] / np.maximum(alone, TINY), 1.0)
            apart = s.sums(process.leaves, k) - values[k] / observed.unit
            variance += w * (known + doubt * np.sqrt(shared)[:, None] + np.square(apart))
        stderr.append(np.sqrt(variance) * observed.unit * widening)
    base = _base(observed, processes, weights)
    exact = exact_values(game)
    whole = np.zeros(0) if all(known.all() for known, _ in exact[:-1]) else game.whole_rows
    if len(whole) > 3:
        # Among parts alone less acts together than among leaves: what whole parts do counts by what it says of them.
        parts = Structure(s.parents[:-1], s.names[:-1])
        above = solve_game(
            Game(
                parts,
                game.masks[whole][:, s.first_leaves(-2)],
                game.outputs[whole],
                game.output,
                game.noisy,
                noise=game.noise,
            )
        )
        for k in range(s.depth - 1):
            # Rows that take parts apart extrapolate to whole ones: their variance counts sixteenfold.
            one, other = 16.0 * np.square(stderr[k]) + TINY, np.square(above.stderr[k]) + TINY
            values[k] = (values[k] * other + above.values[k] * one) / (one + other)
            stderr[k] = np.sqrt(one * other / (one + other))
    values, stderr = [_rounded(v) for v in values], [_rounded(e) for e in stderr]
    values, stderr = _adding_up(game, values, stderr, exact, base)
    asked = tuple(known for known, _ in exact)
    return Solved(tuple(values), tuple(stderr), base, asked, game, tuple(processes), weights)


def exact_values(game: Game) -> list[tuple[BoolArray, FloatArray]]:
    """For each level which features' values are exact, as every mask that they depend on was asked, and the values."""
    s = game.structure
    found = [(np.zeros(w, dtype=np.bool_), np.zeros((w, game.outputs.shape[1]))) for w in s.widths]
    if not game.noisy and 1 << s.widths[0] <= len(game.masks):  # else there are more masks than rows
        nothing = np.zeros((1, s.leaves), dtype=np.bool_)
        _exact_values(game, 0, np.arange(s.widths[0]), nothing, np.ones(1), found)
    return found


def _exact_values(
    game: Game,
    level: int,
    children: IntArray,
    beside: BoolArray,
    weights: FloatArray,
    found: list[tuple[BoolArray, FloatArray]],
) -> None:
    """Fill in the exact values of the children of one feature, and of those below them.

    ``beside`` are the masks of what is beside the feature and its ancestors, with their weights. All children depend
    on the same masks, and those below on these and others.
    """
    s, n = game.structure, len(children)
    subsets, shares = _subsets(n)
    masks = beside[:, None] | (subsets @ (s.owners(level) == children[:, None]))
    rows = [game.rows.get(key, -1) for key in mask_keys(masks.reshape(-1, s.leaves))]
    if -1 in rows:
        return
    known, values = found[level]
    known[children] = True
    answers = game.outputs[rows].reshape(len(beside), 2**n, -1)
    for j, child in enumerate(children.tolist()):
        held = np.flatnonzero(subsets[:, j])
        effects = answers[:, held] - answers[:, held - (1 << j)]  # exactly 0 of a null player
        values[child] = np.outer(weights, shares[j, held]).reshape(1, -1) @ effects.reshape(-1, effects.shape[-1])
    for child, own_shares in zip(children.tolist() if level + 1 < s.depth else (), shares, strict=False):
        below = np.flatnonzero(s.parents[level] == child)
        if len(beside) << n - 1 + len(below) <= len(game.rows):
            without = own_shares < 0.0
            others = np.outer(weights, -own_shares[without]).ravel()
            _exact_values(game, level + 1, below, masks[:, without].reshape(-1, s.leaves), others, found)


@cache
def _subsets(n: int) -> tuple[BoolArray, FloatArray]:
    """All subsets of n features, (2^n, n), and what each counts in their Shapley values, (n, 2^n)."""
    subsets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    of_size = np.array([1.0 / (n * math.comb(n - 1, c)) for c in range(n)])
    sizes = subsets.sum(axis=1)[:, None]
    shares = np.where(subsets, of_size[np.maximum(sizes - 1, 0)], -of_size[np.minimum(sizes, n - 1)])
    return subsets, shares.T


def _base(observed: Observed, processes: Sequence[Process], weights: FloatArray) -> FloatArray:
    """What the game is where everything is masked: as asked, or as the process has it."""
    game = observed.game
    nothing = np.zeros((1, game.structure.leaves), dtype=np.bool_)
    asked = game.rows.get(mask_keys(nothing)[0])
    if asked is not None:
        answer: FloatArray = game.outputs[asked].copy()
        return answer
    single = game.complements < 0
    level = game.outputs[single].mean(axis=0)
    gone = -np.ones(nothing.shape)
    for w, process in zip(weights, processes, strict=True):
        signs = gone if process.smooth is None else process.smooth(gone)
        covariance = 0.25 * (signs * process.scales.variances) @ process.signs.T
        for noise, kind in zip(process.scales.noises, process.interactions, strict=False):
            covariance += noise * kind.odd(kind.exponents(gone, observed.x), (gone * kind.weights) @ observed.x.T)
        level = level + w * observed.unit * (process.fit.means + (covariance @ process.fit.pulls)[0])
    return np.asarray(level)


def _adding_up(
    game: Game,
    values: Sequence[FloatArray],
    stderr: Sequence[FloatArray],
    exact: Sequence[tuple[BoolArray, FloatArray]],
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
    for k, (known, exactly) in enumerate(exact):
        parents = s.above(k)
        level, error = np.where(known[:, None], exactly, values[k]), np.where(known[:, None], 0.0, stderr[k])
        free = np.where(known[:, None], 0.0, np.square(error) + TINY)
        share, gap = np.zeros((len(totals), free.shape[1])), totals.copy()
        np.add.at(share, parents, free)
        np.subtract.at(gap, parents, level)
        level += np.divide(free, share[parents], out=np.zeros_like(free), where=share[parents] > 0) * gap[parents]
        found.append(level)
        errors.append(error)
        totals = level
    return found, errors


def _rounded(values: FloatArray) -> FloatArray:
    """Numbers to nine digits of the largest: further ones differ from machine to machine, as sums are ordered there."""
    largest = float(np.abs(values).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return values
    unit = 2.0 ** (np.ceil(np.log2(largest)) - 30.0)
    rounded: FloatArray = np.rint(values / unit) * unit
    return rounded
