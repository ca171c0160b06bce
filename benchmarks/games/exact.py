"""Exact Shapley, Owen and Winter values of a tabulated game."""

from __future__ import annotations

from math import comb
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import c2fa

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def subset_sums(numbers: npt.ArrayLike) -> Ints:
    """The sum of every subset of some numbers; number i is in those at the places that have bit i.

    >>> subset_sums([1, 10, 100])
    array([  0,   1,  10,  11, 100, 101, 110, 111])
    """
    sums = np.zeros(1, dtype=np.int64)
    for number in np.asarray(numbers, dtype=np.int64):
        sums = np.concatenate([sums, sums + number])
    return sums


def winter_values(table: npt.ArrayLike, structure: c2fa.Structure) -> Floats:
    """Each leaf's Winter value; with parts and leaves alone its Owen value, with leaves alone its Shapley value.

    The values of parts are the sums of their leaves': that is the values' quotient property.

    What a set of leaves of a part is worth is its Shapley value in the game in which it stands for the part, and the
    other parts are there as a whole or not at all. This is a game within the part, which is divided in the same way
    among the parts of the part, down to the leaves.

    >>> winter_values([0.0, 1.0, 2.0, 9.0], c2fa.Structure.flat(2))
    array([4., 5.])
    """
    outputs = np.asarray(table, dtype=np.float64)
    if outputs.shape != (2**structure.leaves,):
        raise ValueError(
            f"a game of {structure.leaves} leaves needs a table of {2**structure.leaves} outputs, one for each mask; "
            f"got shape {outputs.shape}"
        )
    values = np.zeros(structure.leaves)

    def divide(game: Floats, leaves: Ints, level: int) -> None:
        """Share out a game among some leaves, whose masks are in the order of these leaves."""
        bits = 2 ** np.arange(len(leaves))
        owner = structure.owners(level)[leaves]
        parts = list(dict.fromkeys(owner.tolist()))
        wholes = np.array([bits[owner == part].sum() for part in parts])
        weights = np.array([1 / (len(parts) * comb(len(parts) - 1, k)) for k in range(len(parts))])
        sizes = subset_sums(np.ones(len(parts) - 1))
        for k, part in enumerate(parts):
            others = subset_sums(np.delete(wholes, k))
            within = subset_sums(bits[owner == part])
            worth = weights[sizes] @ (game[others[:, None] + within] - game[others][:, None])
            if level == structure.depth - 1:
                values[leaves[k]] = worth[1]
            else:
                divide(worth, leaves[owner == part], level + 1)

    divide(outputs, np.arange(structure.leaves), 0)
    return values
