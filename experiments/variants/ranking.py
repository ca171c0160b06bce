"""MILLI's methods as their authors count: the rows of the ranking come on top of the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from c2fa import Structure
from c2fa.asking.querying import Conversation
from c2fa.methods import Attribution, BaseMethod, Milli, Task, TopDownMilli
from c2fa.methods.budget import Budget
from experiments.variants.joint_milli import C2FAMilli


@dataclass(frozen=True)
class RankingOnTop(BaseMethod):
    """A method that ranks the parts first, with one more row for each part than its budget has.

    The rows of the first level are then all samples. A part alone has no rank and costs none.
    """

    method: BaseMethod

    def preferred_rows(self, structure: Structure) -> tuple[int | None, ...]:
        """As the method's own."""
        return self.method.preferred_rows(structure)

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """The usual split, and the rows of the ranking."""
        first, *others = super().split(budget, structure)
        return (first + (structure.widths[0] if structure.widths[0] > 1 else 0), *others)

    def __call__(self, task: Task) -> Conversation[Attribution]:
        return self.method(task)


def milli_on_top(**options: Any) -> RankingOnTop:
    """``Milli`` with these options, its ranking on top of the budget."""
    return RankingOnTop(Milli(**options))


def top_down_milli_on_top(**options: Any) -> RankingOnTop:
    """``TopDownMilli`` with these options, its ranking on top of the budget."""
    return RankingOnTop(TopDownMilli(**options))


def c2fa_milli_on_top(**options: Any) -> RankingOnTop:
    """``C2FAMilli`` with these options, its ranking on top of the budget."""
    return RankingOnTop(C2FAMilli(**options))
