"""What a solver found, how far it may be trusted, and what to do when it may not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from c2fa.structure import FloatArray


class Status(StrEnum):
    """How a solve ended. ``remedy`` says in words what to do about it; empty where nothing is amiss."""

    EXACT = "exact"
    CONVERGED = "converged"
    NOT_UNIQUE = "not unique"
    MAX_ITERATIONS = "stopped at max_iterations"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self]


_REMEDIES = {
    Status.EXACT: "",
    Status.CONVERGED: "",
    Status.NOT_UNIQUE: (
        "the queries do not determine every attribution, so the smallest solution was taken; "
        "use a penalty above 0 on the leaves or more queries"
    ),
    Status.MAX_ITERATIONS: (
        "the solver stopped before its tolerance was met; raise max_iterations, loosen the tolerance, "
        "or use the direct solver where every penalty is L2"
    ),
}


@dataclass(frozen=True, eq=False)
class Solution:
    """Values per level, coarse to fine, with what is known about them.

    Attributes
    ----------
    values
        (width,) arrays, or (width, outputs) where the problem's outputs have columns.
    intercepts
        One for each level, a number or (outputs,); 0 where the level has none.
    stderr
        Standard errors of the same shapes as ``values``; None where the solver has none to give. They are the
        posterior standard deviations of the Gaussian model whose mean is the l2 solution; where the penalty was
        ``Auto``, they also count what is uncertain about the strengths (``c2fa.solvers.calibrate``).
    losses
        Half the weighted squared error of each level under the joint solution, a number or (outputs,).
    leverages
        For each row of each level, how much of its fit is its own output: a residual over ``1 − leverage`` is what it
        would be had the row been left out. None where the solver has none to give.
    strengths
        Where the penalty was ``Auto``, the l2 strength λ that was chosen for every feature of every level; else None.
    scales
        Where the penalty was ``Auto``, the factor by which each level's weights were multiplied in the fit; else None.
    log_evidence
        Where the penalty was ``Auto``, the logarithm of how likely that makes the answers, up to a constant: what tells
        one way of smoothing from another.
    """

    values: tuple[FloatArray, ...]
    intercepts: tuple[FloatArray, ...]
    stderr: tuple[FloatArray, ...] | None
    status: Status
    iterations: int
    objective: float
    losses: tuple[FloatArray, ...]
    leverages: tuple[FloatArray, ...] | None = None
    strengths: tuple[FloatArray, ...] | None = None
    scales: tuple[float, ...] | None = None
    log_evidence: float | None = None
