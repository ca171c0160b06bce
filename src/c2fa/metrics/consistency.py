"""Whether the levels of an explanation agree with each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from c2fa.metrics._direction import higher_is_better
from c2fa.structure import FloatArray, Structure


@higher_is_better(False)
def consistency(values: Sequence[FloatArray], structure: Structure) -> float:
    """``‖α − Mβ‖²``, summed over the levels above the leaves: 0 where every part is the sum of its leaves.

    ``values`` are an explanation's, one array for each level, coarse to fine.

    >>> consistency([np.array([3.0, 4.0]), np.array([1.0, 2.0, 2.0])], Structure.from_groups("aab"))
    4.0
    """
    leaves = values[-1]
    gaps = (values[k] - structure.sums(leaves, k) for k in range(structure.depth - 1))
    return float(sum(np.square(gap).sum() for gap in gaps))


@higher_is_better(True)
def mihl(values: Sequence[FloatArray], structure: Structure) -> float:
    """1 where the most important leaf lies in the most important part of the coarsest level, else 0.

    >>> mihl([np.array([3.0, 4.0]), np.array([1.0, 2.5, 2.0])], Structure.from_groups("aab"))
    0.0
    """
    return float(structure.owners(0)[np.argmax(values[-1])] == np.argmax(values[0]))
