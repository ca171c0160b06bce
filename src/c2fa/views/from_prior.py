"""What a prior did to an explanation: nobody must take what was learned elsewhere for what is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from c2fa.solvers.expected import expected_part
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


@dataclass(frozen=True, eq=False)
class FromPrior:
    """How much of an explanation is what other inputs taught, or what a scout found.

    Attributes
    ----------
    share
        The share of what the prior expected that this input's answers bear out; 0 where it was ignored or knew nothing
        of the leaves.
    part
        What part of the leaves it is, between 0 and 1, for the target that was explained.
    worth
        The correlation that it had with effects in inputs that it was not learned from; 0 for a scout.
    without
        What ``all_values`` would be without it, from this input's answers alone; None where it knew nothing of the
        leaves.
    scouted, scout_cost
        The rows that a scout was asked, and what they cost where its model counts it: neither is in the explanation's
        own. 0 and None for what was learned.
    """

    share: float
    part: float
    worth: float
    without: tuple[FloatArray, ...] | None
    scouted: int = 0
    scout_cost: float | None = None

    @classmethod
    def of(
        cls,
        values: FloatArray,
        without: tuple[FloatArray, ...] | None,
        column: int,
        share: float | None,
        worth: float,
        scout: Explanation | None,
    ) -> FromPrior:
        """From the leaves' values with it and those of every level without it, and what a scout found."""
        part = 0.0 if without is None else expected_part(values[:, column], without[-1][:, column])
        if scout is None:
            return cls(share or 0.0, part, worth, without)
        return cls(share or 0.0, part, worth, without, scout.queries, scout.diagnostics.cost)

    def note(self, e: Explanation) -> str:
        """How much of the leaves' values it is, in words."""
        told = f"come from the prior ({str(e.provenance.get('prior', '')).partition(', ')[2]})"
        if e.from_prior is None:
            return f"none of these values {told}: it knows nothing of these {e.level_names[-1]}"
        if self.share == 0.0:
            return f"none of these values {told}: this input's answers do not bear it out"
        part = expected_part(e.low, e.low - e.from_prior[-1])
        return f"{part:.0%} of these values {told}, the rest from this input's own answers"
