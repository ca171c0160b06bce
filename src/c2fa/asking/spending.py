"""Money: a budget in it, what rows have cost, and how many more may be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from c2fa.asking.model import describe

# Currency signs, also as US$; three capital letters, as in EUR; and what providers count in.
_UNIT = r"[A-Z]{0,2}[$¢-¥\u20a0-\u20cf]|[A-Z]{3}|cents?|credits?|tokens?"
_AMOUNT = r"\d+\.?\d*|\.\d+"
MOST_ROWS = 10_000  # that money buys for an input: a fit of more takes long
_MONEY = re.compile(rf"\s*(?:(?:{_UNIT})\s*(?P<behind>{_AMOUNT})|(?P<before>{_AMOUNT})\s*(?:{_UNIT}))\s*", re.ASCII)


@dataclass(frozen=True)
class Money:
    """An amount in whatever unit a model's ``cost`` counts, as it was written.

    >>> Money.of("$2.00"), Money.of("0.5 credits"), Money.of("60 rows"), Money.of(200)
    (Money(text='$2.00', amount=2.0), Money(text='0.5 credits', amount=0.5), None, None)
    """

    text: str
    amount: float

    @classmethod
    def of(cls, budget: Any) -> Money | None:
        """Read an amount with its unit, before or behind it; None for whatever is no money."""
        found = _MONEY.fullmatch(budget) if isinstance(budget, str) else None
        if found is None:
            return None
        amount = float(found["before"] or found["behind"])
        if not 0.0 < amount < float("inf"):
            raise ValueError(f"budget must be more than nothing, and finite; got {budget!r}")
        return cls(budget.strip(), amount)

    def check(self, model: Any) -> None:
        """Refuse a model that counts no cost."""
        if describe(model).cost is None:
            raise ValueError(
                f"budget={self.text!r} is money, and this model counts no cost; give it a price (price_per_row=… for a "
                "model behind HTTP), an attribute cost that grows, or a budget in rows"
            )

    def rows(self, purse: Purse, each: int, least: int) -> int:
        """How many rows it pays for, ``each`` so many for a mask, at the price of those so far; the most without one.

        It must pay for the ``least`` masks that an input takes.
        """
        if not purse.price:
            return MOST_ROWS
        masks = purse.free + max(int((self.amount - purse.beside) / purse.price * (1.0 + 1e-9)), 0)  # despite rounding
        if masks < least:
            beside = f", with {purse.beside:.4g} paid beside them" if purse.beside else ""
            raise ValueError(
                f"{self.text} pays for {masks} masks at {purse.price:.4g} each{beside}, and this input takes {least} "
                "at least; give more"
            )
        return min(masks * each, MOST_ROWS)


@dataclass(eq=False)
class Purse:
    """What the rows of one conversation may cost, and have cost; ``money`` is None for any amount.

    ``cost`` is what this conversation paid; ``spent``, which counts against the money, has what rows from the ledger
    cost before too. ``beside`` is the part for no row, such as for an answer that was written first. ``price`` is the
    most that one of the ``priced`` masks has cost; ``free`` masks cost nothing.
    """

    money: float | None = None
    cost: float = 0.0
    spent: float = 0.0
    beside: float = 0.0
    price: float = 0.0
    priced: int = 0
    free: int = 0

    def pay(self, cost: float, beside: float, masks: int) -> None:
        """Masks were sent together at a cost, a part of which was for none of them."""
        self.cost += cost
        self.spent += cost
        self.beside += beside
        self._see(cost - beside, masks)

    def recall(self, costs: Iterable[float], beside: float) -> None:
        """Masks are known that had these costs, of an input for which so much was paid beside them in all."""
        for cost in costs:
            self.spent += cost
            self._see(cost, 1)
        self.spent += max(beside - self.beside, 0.0)
        self.beside = max(beside, self.beside)

    def _see(self, cost: float, masks: int) -> None:
        if cost:
            self.priced += masks
            self.price = max(self.price, cost / masks)
        else:
            self.free += masks

    def affordable(self, unsettled: float = 0.0) -> int | None:
        """How many masks may be sent at once while none is under way; None where there is no limit.

        That is one at least, and no more than were priced so far, nor than half of what is left pays for at the highest
        price. So the money is exceeded by one row at most, unless those sent together cost over twice as much on
        average as any before. ``unsettled`` was paid and is not counted yet.
        """
        if self.money is None:
            return None
        left = self.money - self.spent - unsettled
        if left <= 1e-9 * self.money:
            return 0
        return max(min(int(left / self.price / 2.0), self.priced), 1) if self.price else 1
