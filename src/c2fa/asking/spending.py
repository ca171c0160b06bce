"""Money: a budget in it, what rows have cost, and how many more may be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from c2fa.asking.model import describe


@dataclass(frozen=True)
class Money:
    """An amount in whatever unit a model's ``cost`` counts, as it was written.

    >>> Money.of("$2.00"), Money.of("0.5 credits"), Money.of("200"), Money.of(200)
    (Money(text='$2.00', amount=2.0), Money(text='0.5 credits', amount=0.5), None, None)
    """

    text: str
    amount: float

    @classmethod
    def of(cls, budget: Any) -> Money | None:
        """Read an amount with its unit, before or behind it; None for what has none."""
        pattern = r"\s*(?P<before>[^\d\s.,+-]*)\s*(?P<amount>\d+\.?\d*|\.\d+)\s*(?P<behind>[^\d\s.,+-]*)\s*"
        found = re.fullmatch(pattern, budget, re.ASCII) if isinstance(budget, str) else None
        if found is None or bool(found["before"]) == bool(found["behind"]):
            return None
        if not float(found["amount"]) > 0.0:
            raise ValueError(f"budget must be more than nothing; got {budget!r}")
        return cls(budget.strip(), float(found["amount"]))

    def check(self, model: Any) -> None:
        """Refuse a model whose rows cost nothing that can be counted."""
        if describe(model).cost is None:
            raise ValueError(
                f"budget={self.text!r} is money, and this model counts no cost; give it a price (price_per_row=… for a "
                "model behind HTTP), an attribute cost that grows, or a budget in rows"
            )

    def masks(self, purse: Purse, least: int) -> int:
        """How many masks it pays for in all, at the price of those that were asked."""
        if purse.cost == purse.paid_before == 0.0:
            raise ValueError(
                f"budget={self.text!r} is money, and the first row cost nothing; give the model a price, or a budget "
                "in rows"
            )
        masks = int(self.amount / purse.price * (1.0 + 1e-9))  # so that none is lost to rounding
        if masks < least:
            raise ValueError(
                f"{self.text} pays for {masks} masks at {purse.price:.4g} each, and this input takes {least} at least; "
                "give more"
            )
        return masks


@dataclass(eq=False)
class Purse:
    """What the rows of one conversation may cost, and have cost; ``money`` is None for any amount.

    ``paid_before`` is what rows from the ledger had cost, ``price`` the most that a mask has cost so far.
    """

    money: float | None = None
    cost: float = 0.0
    paid_before: float = 0.0
    price: float = 0.0

    def pay(self, cost: float, masks: int) -> None:
        """Masks were sent together."""
        self.cost += cost
        self.price = max(self.price, cost / masks)

    def recall(self, costs: Iterable[float]) -> None:
        """Masks are known that had these costs."""
        for cost in costs:
            self.paid_before += cost
            self.price = max(self.price, cost)

    @property
    def affordable(self) -> int | None:
        """How many masks may be sent at once while none is under way; None where money is no matter.

        Half of those that the rest pays for, at the price of the dearest so far, and one at the least: so that the
        money is exceeded by no more than a row, unless one costs more than twice as much as any before it.
        """
        if self.money is None:
            return None
        left = self.money - self.cost - self.paid_before
        if left <= 1e-9 * self.money:
            return 0
        return max(int(left / self.price / 2.0), 1) if self.price else 1
