"""What a solver found, how far it may be trusted, and what to do when it may not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Protocol

import numpy as np

from c2fa.problem import Problem
from c2fa.structure import FloatArray, IntArray, Structure


class Status(StrEnum):
    """How a solve ended. ``remedy`` says in words what to do about it; empty where nothing is amiss."""

    EXACT = "exact"
    CONVERGED = "converged"
    NOT_UNIQUE = "not unique"
    MAX_ITERATIONS = "stopped at max_iterations"

    @property
    def remedy(self) -> str:
        return _REMEDIES.get(self, "")


_REMEDIES = {
    Status.NOT_UNIQUE: (
        "the queries do not determine every attribution, so the smallest solution was taken; "
        "use a penalty above 0 on the leaves or more queries"
    ),
    Status.MAX_ITERATIONS: (
        "the solver stopped before its tolerance was met; raise max_iterations, loosen the tolerance, "
        "or use the direct solver where every penalty is L2"
    ),
}


class System(Protocol):
    """A normal matrix ``X'X + P`` that can be solved with, however it is held."""

    status: Status

    def fit(self, targets: FloatArray) -> FloatArray:
        """``(X'X + P)⁻¹ X' targets``, (leaves, outputs)."""
        ...

    def solve(self, right: FloatArray) -> FloatArray:
        """``(X'X + P)⁻¹ right``, (leaves, outputs)."""
        ...

    def variances(self) -> tuple[FloatArray, ...]:
        """The diagonal of ``M_l (X'X + P)⁻¹ M_l'`` for every level."""
        ...

    def influences(self, rows: Sequence[slice]) -> list[tuple[FloatArray, ...]]:
        """For each group of rows, the squares of ``M_l (X'X + P)⁻¹ x`` summed over its rows x, for every level l."""
        ...

    def leverages(self) -> FloatArray:
        """The diagonal of ``X (X'X + P)⁻¹ X'``: how much of each row's fit is its own output."""
        ...


@dataclass(frozen=True, eq=False)
class Posterior:
    """The Gaussian of a joint l2 fit, up to its scale σ²: the covariance of values, a few at a time.

    Standard errors are its diagonal; how sure one value is to exceed another needs more of it. No D×D matrix is formed
    where there are fewer rows than leaves.
    """

    problem: Problem
    system: System

    def covariance(self, level: int, features: IntArray) -> FloatArray:
        """The covariance of some values of a level, (features, features), over σ²."""
        structure = self.problem.structure
        level = structure.level(level)
        owners = structure.owners(level)
        indicator = (owners[:, None] == np.asarray(features)).astype(np.float64)
        if level == structure.depth - 1:
            indicator = self.problem.levels[-1].smoothed(indicator)
        sums: FloatArray = indicator.T @ self.system.solve(indicator)
        return 0.5 * (sums + sums.T)

    def correlation(self, level: int, features: IntArray) -> FloatArray:
        """The correlations of some values of a level."""
        return correlations(self.covariance(level, features))


def correlations(covariance: FloatArray) -> FloatArray:
    """The correlations that belong to a covariance."""
    root = np.sqrt(np.maximum(np.diag(covariance), np.finfo(np.float64).tiny))
    found: FloatArray = covariance / np.outer(root, root)
    return found


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
        ``Auto``, they also count what is uncertain about the strengths (``c2fa.solvers.intervals``).
    losses
        Half the weighted squared error of each level under the joint solution, a number or (outputs,).
    leverages
        For each row of each level, how much of its fit is its own output: a residual over ``1 − leverage`` is what it
        would be had the row been left out. None where the solver has none to give.
    problem
        The problem as it was solved: where the penalty was ``Auto``, with the weights and strengths that were chosen.
    factors
        Where the penalty was ``Auto``, the factor by which each level's weights were multiplied in the fit; else None.
    evidence
        Where the penalty was ``Auto``, computes ``log_evidence``; else None.
    """

    values: tuple[FloatArray, ...]
    intercepts: tuple[FloatArray, ...]
    stderr: tuple[FloatArray, ...] | None
    status: Status
    iterations: int
    objective: float
    losses: tuple[FloatArray, ...]
    problem: Problem
    leverages: tuple[FloatArray, ...] | None = None
    factors: tuple[float, ...] | None = None
    evidence: Callable[[], float] | None = field(default=None, repr=False)
    factorise: Callable[[], System | None] = field(default=lambda: None, repr=False)

    @property
    def strengths(self) -> tuple[FloatArray, ...] | None:
        """Where the penalty was ``Auto``, the l2 strength λ that was chosen for every feature of every level."""
        if self.factors is None:
            return None
        ridges = [(level.penalty.ridge, level.width) for level in self.problem.levels]
        return tuple(np.broadcast_to(np.asarray(ridge, dtype=np.float64), width) for ridge, width in ridges)

    @cached_property
    def log_evidence(self) -> float | None:
        """Where the penalty was ``Auto``, the log evidence up to a constant; it tells ways of smoothing apart."""
        return None if self.evidence is None else self.evidence()

    @cached_property
    def posterior(self) -> Posterior | None:
        """The posterior of the leaves; None where a penalty is not l2, or the leaves have none."""
        system = self.factorise()
        return None if system is None else Posterior(self.problem, system)


def consistency(values: Sequence[FloatArray], structure: Structure) -> float:
    """``‖α − Mβ‖²``, summed over the levels above the leaves: 0 if every part is the sum of its leaves.

    ``values`` has one array for each level, coarse to fine.

    >>> consistency([np.array([3.0, 4.0]), np.array([1.0, 2.0, 2.0])], Structure.from_groups("aab"))
    4.0
    """
    gaps = (own - structure.sums(values[-1], k) for k, own in enumerate(values[:-1]))
    return float(sum(np.square(gap).sum() for gap in gaps))


@dataclass(frozen=True)
class LevelReport:
    """How well one level was fitted: losses are half the weighted squared error, for the target.

    ``rows`` is 0, and the rest with it, where the level was not fitted but follows from another (sums, splits).
    """

    rows: int
    loss: float
    loss_alone: float
    r2: float
    r2_left_out: float | None = None


@dataclass(frozen=True)
class Interaction:
    """Two features of a level, under one parent, that do more together than each by itself, or less.

    ``value`` is Shapley's interaction index: above 0 where the two complement each other, below 0 where either will do;
    features that each speak against the target have the signs the other way round.
    """

    level: int
    first: int
    second: int
    value: float
    stderr: float

    @property
    def settled(self) -> bool:
        """Whether it is more than three standard errors from 0."""
        return abs(self.value) > 3.0 * self.stderr


@dataclass(frozen=True)
class Diagnostics:
    """How far an explanation may be trusted.

    Attributes
    ----------
    levels
        For each level, coarse to fine: rows fitted, loss of the joint fit, loss of that level fitted alone, the joint
        fit's weighted R², and the R² of rows each predicted by a fit without it, as new masks would be
        (``r2_left_out``, None where the solver cannot tell).
    consistency
        ``Σ_l ‖values_l − M_l leaves‖²``; 0 where parts are exact sums.
    agreement
        Whether the most important leaf lies in the most important part (the paper's MIHL).
    status, iterations
        How the solver ended.
    sent, recalled, dropped
        Rows asked of the model, taken from the ledger instead, and left out because their answer was unusable.
    cost
        Money spent on this explanation where the model has a cost meter, else None.
    warnings
        In words, when the explanation should not be trusted.
    contradiction
        In words, where the levels contradict each other, so that they are shown apart; the first of the warnings.
        Empty where they do not.
    settled, stop
        With a stopping rule (``until=``): whether it held in the end, and in words what was spent and why. Without one,
        None and empty.
    exact
        For each level, whether every mask that its values depend on was asked, so that they are exact.
    interactions
        The pairs of features that act together most surely, of the target it was explained for.
    """

    levels: tuple[LevelReport, ...]
    consistency: float
    agreement: bool
    status: str
    iterations: int
    sent: int
    recalled: int
    dropped: int
    cost: float | None = None
    warnings: tuple[str, ...] = ()
    settled: bool | None = None
    stop: str = ""
    exact: tuple[bool, ...] = ()
    interactions: tuple[Interaction, ...] = ()
    contradiction: str = ""
