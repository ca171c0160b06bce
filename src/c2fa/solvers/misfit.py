"""What a model without noise leaves over of an additive description, and what that does to the values.

A model that gives the same output for the same input has no noise. What it leaves over is then the same for a mask
whenever it is asked, and two things follow that coins would not do:

- *Most of it is of pairs.* Where two leaves matter more, or less, together than one by one, all rows that hold both are
  off alike. A mask and its complement are off by the same, so that a planned block and its complements leave all pairs
  out of the values, although they are most of the residuals. Pairs get a share of the residuals' variance. The
  covariance of rows m and m' is ``K = (k² − Σc²) / (1 − Σc²)`` with ``k = Σ c_i z_i z_i'``. Here ``z = ±1``, and ``c``
  are the leaves' prior variances over their sum: pairs of leaves that matter are the larger ones. The share is the mean
  of a few, by the evidence that each has.
- *It is orthogonal to all additive descriptions*, over all masks of the leaves. Let a value be ``a'y`` of the rows'
  outputs, N the number of all masks, and Z the ±1 of the rows with a column of ones. The variance of its error is
  ``a'a − a'ZZ'a/N``, where noise would give ``a'a``: for least squares on n rows ``1 − n/N`` times as much, and 0 on
  all masks. Masks of parts are not counted so, for the description is one of the masks of the leaves.

A part has two best descriptions, because masking it as a whole is not masking its leaves one by one. Take a product of
three leaves' z, two of them in one part. Once parts are masked as wholes, the two signs are equal and cancel: the
product is the third leaf's z alone. (For pairs this does not happen.) Values that hold at both levels lie between the
two descriptions. So the errors of a part also count its distance to the further one, and those of a leaf how far rows
for parts lead it away. What pairs leave over is taken to be of triples, each with a variance in the proportion of
``c_i c_j c_k``. The mean square distance of the two descriptions of a part is then four times the share of the triples
that have an odd number of leaves in the part and an even number in every other.

Nothing of this holds for a model that has noise, and outputs of different masks cannot tell noise from triples. So it
is done only where the model is known to have none (``Auto(noiseless=True)``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError

from c2fa.problem import Problem
from c2fa.solution import System
from c2fa.solvers.auto import Chosen
from c2fa.solvers.evidence import TINY
from c2fa.solvers.matrices import Cholesky
from c2fa.structure import FloatArray, IntArray

_SHARES = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.97])


@dataclass(frozen=True, eq=False)
class Misfit:
    """How what the rows leave over is correlated, in the unit of its variance at each row's level."""

    problem: Problem
    rows: Sequence[slice]  # where each level's rows are among all
    sizes: FloatArray  # the leaves' prior variances over their sum
    share: float  # of pairs in its variance
    pairs: FloatArray  # their covariance, (rows, rows)
    influence: FloatArray  # what each row does to each leaf's value, (leaves, rows)

    @classmethod
    def of(cls, chosen: Chosen, system: System, rows: Sequence[slice]) -> Misfit:
        """From the fit, and the outputs that decided about it."""
        problem = chosen.problem
        sizes = 1.0 / chosen.strengths
        sizes = sizes / sizes.sum()
        pairs = _pairs(problem, sizes)
        share = 0.0 if pairs is None else _likely_share(chosen, pairs, rows)
        influence = system.fit(np.eye(problem.queries))
        none = np.zeros((problem.queries,) * 2)
        return cls(problem, rows, sizes, share, none if pairs is None else pairs, influence)

    @cached_property
    def _correlations(self) -> FloatArray:
        """Of what the rows leave over, (rows, rows): pairs, and the rest without what is additive over all masks."""
        rest = np.eye(self.problem.queries)
        leaves = self.problem.levels[-1]
        given = leaves.weights[leaves.weights > 0]
        if leaves.width <= np.log2(np.finfo(np.float64).max) - 1 and np.ptp(given) <= 1e-9 * given.max():
            signs = np.where(leaves.masks, 1.0, -1.0)
            rest[self.rows[-1], self.rows[-1]] -= (1.0 + signs @ signs.T) / 2.0**leaves.width
        mixed: FloatArray = (1.0 - self.share) * rest + self.share * self.pairs
        return mixed

    def free(self, level: int, of_noise: float) -> float:
        """The degrees of freedom of a level's residuals, given how many noise would have.

        Values that pairs cannot reach do not use up what pairs leave over.
        """
        if not self.share:
            return of_noise
        rows = self.rows[level]
        left = -self.problem.design[rows] @ self.influence
        left[:, rows] += np.eye(rows.stop - rows.start)
        given = self.problem.levels[level]
        if given.intercept:
            common = np.sqrt(given.weights / given.weights.sum())
            left[:, rows] -= np.outer(common, common)
        of_pairs = float(np.einsum("ij,ij->", left @ self.pairs, left))
        return (1.0 - self.share) * of_noise + self.share * max(of_pairs, of_noise)

    def variances(self, level: int, noises: Sequence[FloatArray]) -> tuple[list[FloatArray], FloatArray]:
        """What it does to a level's values, (width, outputs): by each level's rows alone, and by all together."""
        influence = self.problem.structure.sums(self.influence, level)
        alone, together = [], np.zeros((len(influence), len(noises[0])))
        for i, (rows, noise) in enumerate(zip(self.rows, noises, strict=True)):
            for j, (others, other) in enumerate(zip(self.rows[: i + 1], noises, strict=False)):
                product = influence[:, rows] @ self._correlations[rows, others]
                form = np.einsum("ij,ij->i", product, influence[:, others])[:, None] * np.sqrt(noise * other)
                if i == j:
                    alone.append(np.maximum(form, 0.0))
                together += form if i == j else 2.0 * form
        return alone, np.maximum(together, 0.0)

    def apart(self, level: int, noise: FloatArray) -> FloatArray:
        """The mean square by which rows for parts lead a level's values away from what is best, (width, outputs).

        For a part it is that to the further of its own two best descriptions. ``noise`` is the variance of what rows
        for leaves leave over.
        """
        s, leaves = self.problem.structure, self.problem.levels[-1]
        in_outputs = leaves.weights[leaves.weights > 0].mean()
        triples = (1.0 - self.share) * noise / in_outputs
        squares = np.zeros(s.widths[level])
        for k, rows in enumerate(self.rows[:-1]):
            owners = s.owners(k)
            odd = 4.0 * left_odd(self.sizes, owners)
            # By how much values follow where the rows of one part, and no others, say more of it: the product of what
            # rows do to values and of what they say of parts. Its squares are summed without it, for there may be very
            # many of both.
            does = s.sums(self.influence[:, rows], level)
            says = s.sums(self.problem.design[rows].T, k) / np.bincount(owners)[:, None]
            squares += np.einsum("ij,ij->i", does @ (says.T @ (odd[:, None] * says)), does)
            if k == level:
                own = np.einsum("ij,ij->i", does, says)
                squares += odd * (np.square(np.maximum(own, 1.0 - own)) - np.square(own))
        return np.outer(np.maximum(squares, 0.0), triples)


def left_odd(sizes: FloatArray, owners: IntArray) -> FloatArray:
    """For each part, the share of all triples that are its own effect where parts are masked as wholes.

    They have all three leaves in the part, or one in it and two together in another. A triple has the product of its
    leaves' sizes for its own.

    >>> left_odd(np.array([0.2, 0.3, 0.5]), np.array([0, 0, 1]))
    array([0., 1.])
    """
    once, squares, cubes = (np.bincount(owners, sizes**power) for power in (1, 2, 3))
    of_two = (once**2 - squares) / 2.0
    of_three = (once**3 - 3.0 * once * squares + 2.0 * cubes) / 6.0
    every = (once.sum() ** 3 - 3.0 * once.sum() * squares.sum() + 2.0 * cubes.sum()) / 6.0
    odd: FloatArray = np.maximum(once * (of_two.sum() - of_two) + of_three, 0.0)
    return odd / every if every > 1e-12 else np.zeros_like(odd)  # two leaves are all, and there are no triples


def _pairs(problem: Problem, sizes: FloatArray) -> FloatArray | None:
    """The covariance of what pairs of leaves do to the rows, about 1 for each row; None where there are no pairs."""
    squares = float(sizes @ sizes)
    if 1.0 - squares < 1e-6:  # one leaf is all that matters
        return None
    masks = [problem.structure.expand(level.masks, k) for k, level in enumerate(problem.levels)]
    signs = np.where(np.concatenate(masks), 1.0, -1.0)
    alike = (signs * sizes) @ signs.T
    roots = np.concatenate([np.sqrt(lv.weights / lv.weights[lv.weights > 0].mean()) for lv in problem.levels])
    pairs: FloatArray = (np.square(alike) - squares) / (1.0 - squares) * np.outer(roots, roots)
    return pairs


def _likely_share(chosen: Chosen, pairs: FloatArray, rows: Sequence[slice]) -> float:
    """The share of pairs in what the rows leave over, the mean over a few by their evidence.

    The evidence is that of ``evidence.py`` with the scales that were chosen; what they have in common is profiled out.
    """
    problem = chosen.problem
    design, targets = problem.design, problem.targets[:, chosen.columns]
    values = (design * (0.5 / chosen.strengths)) @ design.T
    # Rows that count several times in the fit have so much more noise in its unit.
    boosts = np.concatenate([np.full(r.stop - r.start, b) for r, b in zip(rows, chosen.boosts, strict=True)])
    common = np.zeros((len(design), len(rows)))
    for k, (level, of_level) in enumerate(zip(problem.levels, rows, strict=True)):
        common[of_level, k] = np.sqrt(level.weights) * level.intercept
    common = common[:, common.any(axis=0)]
    pairs = pairs * np.sqrt(np.outer(boosts, boosts))
    evidence = np.full(len(_SHARES), -np.inf)
    for k, share in enumerate(_SHARES):
        covariance = values + share * pairs
        np.einsum("ii->i", covariance)[:] += (1.0 - share) * boosts
        try:
            factor = Cholesky(covariance)
            whitened = factor.half(np.column_stack([common, targets]))
            means, left = whitened[:, : common.shape[1]], whitened[:, common.shape[1] :]
            log_determinant = factor.log_determinant
            if common.shape[1]:
                gram = Cholesky(means.T @ means)
                left = left - means @ gram.solve(means.T @ left)
                log_determinant += gram.log_determinant
        except LinAlgError:
            continue
        free = len(design) - common.shape[1]
        energy = max(float(np.square(left).mean(axis=1).sum()), TINY)
        evidence[k] = -0.5 * (log_determinant + free * np.log(energy))
    if not np.isfinite(evidence.max()):
        return 0.0
    beforehand = np.array([0.7, 0.06, 0.06, 0.06, 0.06, 0.06])  # few rows say little of it: errors then stay wide
    weights = np.exp(evidence - evidence.max()) * beforehand
    return float(weights @ _SHARES / weights.sum())
