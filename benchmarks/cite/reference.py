"""What values and their intervals are compared with: plain least squares on many rows of their own."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from scipy.special import ndtri

from c2fa.structure import BoolArray, FloatArray, Structure

CONFIDENCE = 0.9
_LISTED = 16  # up to so many units all masks are listed, and rows are drawn from them without replacement
_STREAM = 9172


def masks(width: int, rows: int, seed: int) -> BoolArray:
    """All masks where there are no more than rows; else so many of them, drawn apart from those that are fitted."""
    rng = np.random.default_rng((seed, width, _STREAM))
    if width > _LISTED:
        return rng.random((rows, width)) < 0.5
    every = (np.arange(2**width)[:, None] >> np.arange(width)) & 1 == 1
    return every if len(every) <= rows else rng.permutation(every)[:rows]


@dataclass(frozen=True, eq=False)
class Reference:
    """Least-squares values of some units, and the covariance of their own errors.

    The errors are those of an additive description whose misfit is fixed for every mask: none where all masks were
    asked, and smaller by the share that was not where there are few. Misfits may be larger at some masks than at
    others (White's estimate, HC1).
    """

    values: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, masks: BoolArray, outputs: FloatArray) -> Reference:
        """From some rows and what the model says to them."""
        rows, width = masks.shape
        design = np.column_stack([np.ones(rows), masks])
        inverse = np.linalg.pinv(design)
        coefficients = inverse @ outputs
        influence = inverse * (outputs - design @ coefficients)
        unasked = max(1.0 - rows * 2.0**-width, 0.0)
        covariance = influence @ influence.T * unasked * rows / max(rows - width - 1, 1)
        return cls(coefficients[1:], covariance[1:, 1:])

    def sums(self, owners: np.ndarray) -> Reference:
        """The reference of parts, from that of their leaves."""
        member = (owners == np.arange(owners.max() + 1)[:, None]).astype(np.float64)
        return Reference(member @ self.values, member @ self.covariance @ member.T)

    def covered(self, values: FloatArray, stderr: FloatArray, *, exact: bool = False) -> float:
        """The share of values whose 90 % interval holds the reference.

        The reference has an error too: the interval is that of the difference, unless the reference is taken as exact.
        """
        own = 0.0 if exact else np.diag(self.covariance)
        reach = ndtri(0.5 + CONFIDENCE / 2.0) * np.sqrt(np.square(stderr) + own)
        # Where all masks were asked, values differ by rounding.
        return float(np.mean(np.abs(values - self.values) <= reach + 1e-9 * np.abs(self.values).max()))


def shapley(every: BoolArray, outputs: FloatArray) -> Reference:
    """Shapley values from all masks of few units; they have no error.

    >>> every = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=bool)
    >>> shapley(every, np.array([0.0, 1.0, 2.0, 5.0])).values
    array([3., 2.])
    """
    width = every.shape[1]
    numbers = every @ (1 << np.arange(width))
    of_mask = np.empty(len(every))
    of_mask[numbers] = outputs
    sizes = every.sum(axis=1)
    weights = np.array([1.0 / (width * comb(width - 1, size)) for size in range(width)])
    values = np.empty(width)
    for unit in range(width):
        without = ~every[:, unit]
        gains = of_mask[numbers[without] + (1 << unit)] - of_mask[numbers[without]]
        values[unit] = weights[sizes[without]] @ gains
    return Reference(values, np.zeros((width, width)))


@dataclass(frozen=True, eq=False)
class Joining:
    """Rows in which sentences join one by one, document after document, and then leave in the same order.

    What a sentence brings when it joins is its Owen value on average over random orders, and so is what the output
    loses when it leaves: a row and its complement, which cancel even orders.
    """

    masks: BoolArray
    orders: np.ndarray

    def values(self, outputs: FloatArray) -> Reference:
        """The mean of both gains over all orders, and how it varies."""
        rounds, leaves = self.orders.shape
        there, gone = outputs.reshape(rounds, 2, leaves + 1).transpose(1, 0, 2)
        gains = np.empty((rounds, leaves))
        np.put_along_axis(gains, self.orders, 0.5 * (np.diff(there, axis=1) - np.diff(gone, axis=1)), axis=1)
        return Reference(gains.mean(axis=0), np.cov(gains.T, ddof=1) / rounds)


def joining(structure: Structure, rows: int, seed: int) -> Joining:
    """Random orders of documents, and of the sentences of each, for about so many rows; two orders at least."""
    rng = np.random.default_rng((seed, structure.leaves, _STREAM))
    owners, rounds = structure.owners(0), max(rows // (2 * structure.leaves + 2), 2)
    orders = np.array(
        [np.lexsort((rng.random(structure.leaves), rng.random(structure.widths[0])[owners])) for _ in range(rounds)]
    )
    places = np.argsort(orders, axis=1)
    there = places[:, None, :] < np.arange(structure.leaves + 1)[:, None]
    return Joining(np.stack([there, ~there], axis=1).reshape(-1, structure.leaves), orders)
