"""How many rows each level gets: the budget as it was given, in rows or in money, checked, and split over levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from c2fa._system import is_whole
from c2fa.asking.spending import MOST_ROWS, Money
from c2fa.structure import Structure

Budget: TypeAlias = int | tuple[int, ...]


def rows_and_money(budget: int | Sequence[int] | str | None) -> tuple[Budget, Money | None]:
    """A budget as the most rows, and as money where it is that.

    >>> rows_and_money(60), rows_and_money("$2")[0]
    ((60, None), 10000)
    """
    money = Money.of(budget)
    return (as_budget(budget), None) if money is None else (MOST_ROWS, money)


def as_budget(budget: int | Sequence[int] | str | None, most: int = 10**9) -> Budget:
    """Check a budget: rows in all, or rows for each level; None is 200 rows. No memory holds the masks of the most.

    >>> as_budget(None), as_budget(60), as_budget([20, 50])
    (200, 60, (20, 50))
    """
    if budget is None:
        return 200
    if isinstance(budget, np.ndarray | np.generic):
        budget = budget.tolist()
    listed = isinstance(budget, Sequence) and not isinstance(budget, bytes | bytearray)
    rows: Sequence[Any] = budget if listed else (budget,)  # type: ignore[assignment]
    if not rows or not all(is_whole(r) for r in rows):
        raise TypeError(
            "budget must be a whole number of model rows such as 60, one for each level, or money such as '$60', "
            f"'1000.50 EUR' or '60 credits'; got {budget!r}"
        )
    if min(rows) < 1:
        raise ValueError(f"budget must be at least 1 row at every level; got {budget!r}")
    if max(rows) > most:
        raise ValueError(f"budget must be at most {most:,} rows a level; got {budget!r}")
    if not isinstance(budget, Sequence):
        return int(budget)
    if rows[0] < 2:
        raise ValueError(
            f"the first level's budget must be at least 2, one row being the prediction; got {tuple(budget)}"
        )
    return tuple(int(r) for r in rows)


def masks_of(budget: Budget, rows_per_mask: int, depth: int, beside: int = 0) -> Budget:
    """The masks that a budget of rows pays for, the whole input among them, where each mask takes several rows.

    Those that are asked ``beside`` the input are paid first.

    >>> masks_of(200, 1, 2), masks_of(200, 15, 2), masks_of((40, 100), 10, 2), masks_of((40, 100), 1, 2, beside=1)
    (200, 13, (4, 10), (39, 100))
    """
    if isinstance(budget, int):
        masks: Budget = budget // rows_per_mask - beside
        enough = budget // rows_per_mask - beside > depth
    else:
        masks = (budget[0] // rows_per_mask - beside, *(rows // rows_per_mask for rows in budget[1:]))
        enough = masks[0] > 1 and min(masks) > 0
    if beside and not enough:
        raise ValueError(
            f"a budget of {budget} rows is too small: it takes {rows_per_mask} for the input itself, "
            f"{beside * rows_per_mask} beside it, and {rows_per_mask} for each level"
        )
    if rows_per_mask > 1 and not enough:
        raise ValueError(
            f"each mask takes {rows_per_mask} rows, one for each row of the background, so a budget of {budget} rows "
            f"pays for {masks} masks: give a background of fewer rows, such as 10, or a larger budget"
        )
    return masks


def rows_per_level(
    budget: Budget, structure: Structure, min_rows: int = 1, preferred: Sequence[int | None] = ()
) -> tuple[int, ...]:
    """Split a budget over the levels, after one row for the prediction.

    A tuple has one number for each level, and the prediction is one of the first level's rows. A single number is
    split in this way:

    - Each level of parts gets the rows that ``preferred`` has for it; None stands for four rows a part, or all masks
      where there are fewer.
    - All levels of parts together get a quarter of the budget at most, or up to a third as long as there are not two
      rows a part: below that, parts need rows more than leaves do.
    - The first level gets ``min_rows``, if the method cannot do with fewer and the budget allows it.
    - The leaves get the rest.

    >>> rows_per_level(200, Structure.from_groups("aaabbbccc"))
    (8, 191)
    >>> rows_per_level((50, 150), Structure.from_groups("aaabbbccc"))
    (49, 150)
    >>> rows_per_level(200, Structure.from_groups("aabbccddee"), preferred=(31, None))
    (31, 168)
    >>> rows_per_level(50, Structure.from_groups("aabbccddeeffgghh"), preferred=(48, None))
    (16, 33)
    """
    depth = structure.depth
    if isinstance(budget, tuple):
        if len(budget) != depth:
            raise ValueError(
                f"budget {budget} has {len(budget)} entries and the structure {depth} levels; give one for each, or "
                "one number"
            )
        return (budget[0] - 1, *budget[1:])
    if budget < depth + 1:
        raise ValueError(
            f"a budget of {budget} is too small for {depth} levels: it takes at least {depth + 1} rows, one for the "
            "prediction and one for each level"
        )
    left, rows = budget - 1, []
    quarter, third = ((budget - 1) // (parts * max(depth - 1, 1)) for parts in (4, 3))
    preferred = (*preferred, *(None,) * depth)
    for width, wanted in zip(structure.widths[:-1], preferred, strict=False):
        if wanted is None:
            wanted = min(4 * width, 2 ** min(width, 30))
        most = max(quarter, min(2 * width, third))
        rows.append(max(min(wanted, most), 1))
        if len(rows) == 1 and min_rows > rows[0]:
            rows[0] = min(min_rows, budget - depth)
        left -= rows[-1]
    return (*rows, left)
