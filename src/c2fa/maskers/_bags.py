"""Which of a bag's parts are left under a mask."""

from __future__ import annotations

import numpy as np

from c2fa.structure import BoolArray, Structure


def left_in_bag(leaves: BoolArray, structure: Structure) -> BoolArray:
    """The parts of which a leaf is left, (n, parts), for masks of the leaves of a bag in order.

    A model cannot take a bag that has nothing in it. The first part stays there in its place, with all of its leaves
    masked.

    >>> s = Structure.from_groups("aab")
    >>> left_in_bag(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool), s).astype(int).tolist()
    [[1, 0], [0, 1], [1, 0]]
    """
    starts = np.searchsorted(structure.owners(0), np.arange(structure.widths[0]))
    left: BoolArray = np.logical_or.reduceat(leaves, starts, axis=1)
    left[~left.any(axis=1), 0] = True
    return left
