"""What the l2 fit knows of its values together: the covariance behind the standard errors.

The l2 solution is the mean of a Gaussian whose covariance is ``σ² (X'X + P)⁻¹`` (see ``solvers.direct``). Standard
errors are the roots of its diagonal; how sure one value is to exceed another, or what a further row would teach,
needs more of it. No D×D matrix is formed where there are fewer rows than leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError

from c2fa.problem import Level, Problem
from c2fa.solvers.direct import System, factorise
from c2fa.solvers.prior import ridge_strengths
from c2fa.structure import FloatArray, IntArray, Structure


class Posterior:
    """The Gaussian of a joint l2 fit, up to its scale σ².

    Parameters
    ----------
    structure, levels
        What was fitted, one level for each of the structure's.

    Examples
    --------
    >>> import c2fa
    >>> s = Structure.from_groups("aab")
    >>> high = Level(np.eye(2, dtype=bool), np.zeros(2), penalty=c2fa.L2(0.5))
    >>> low = Level(np.eye(3, dtype=bool), np.zeros(3), penalty=c2fa.L2(0.5))
    >>> Posterior(s, (high, low)).covariance(-1, np.arange(3)).round(3)
    array([[ 0.333, -0.167,  0.   ],
           [-0.167,  0.333,  0.   ],
           [ 0.   ,  0.   ,  0.25 ]])
    """

    def __init__(self, structure: Structure, levels: Sequence[Level]) -> None:
        self.structure = structure
        self.levels = tuple(levels)

    @classmethod
    def of(cls, structure: Structure, levels: Sequence[Level | None]) -> Posterior | None:
        """The posterior of a joint fit, or None where there is none: a level without rows, a penalty that is not l2."""
        given = [level for level in levels if level is not None and level.penalty.ridge is not None]
        if len(given) < structure.depth:
            return None
        found = cls(structure, given)
        try:
            return found if found.system is not None else None
        except LinAlgError:
            return None

    @cached_property
    def system(self) -> System | None:
        """The factorised normal matrix; None where the leaves have no penalty and so no prior."""
        strengths = ridge_strengths([r for level in self.levels if (r := level.penalty.ridge) is not None])
        if not np.min(strengths[-1]) > 1e-12:
            return None
        return factorise(Problem(self.structure, self.levels), strengths)

    def covariance(self, level: int, features: IntArray) -> FloatArray:
        """The covariance of some values of a level, (features, features), over σ²."""
        assert self.system is not None
        level = self.structure.level(level)
        owners = self.structure.owners(level)
        indicator = (owners[:, None] == np.asarray(features)).astype(np.float64)
        if level == self.structure.depth - 1:
            indicator = self.levels[-1].smoothed(indicator)
        sums: FloatArray = indicator.T @ self.system.solve(indicator)
        return 0.5 * (sums + sums.T)

    def correlation(self, level: int, features: IntArray) -> FloatArray:
        """The correlations of some values of a level."""
        covariance = self.covariance(level, features)
        root = np.sqrt(np.maximum(np.diag(covariance), np.finfo(np.float64).tiny))
        found: FloatArray = covariance / np.outer(root, root)
        return found
