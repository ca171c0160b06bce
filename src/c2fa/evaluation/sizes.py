"""The sizes of a grid: the masks of each level, or rows in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from c2fa._system import is_whole
from c2fa.methods.budget import Budget, as_budget

Size: TypeAlias = int | tuple[int, ...]
"""Rows in all, the prediction's among them; or the masks of each level, the prediction's row on top."""


def as_sizes(masks: Sequence[Sequence[int]] | None, budgets: Sequence[int | Sequence[int]] | None) -> list[Size]:
    """Read ``masks=`` or ``budgets=``, whichever was given. Tuples of rows become tuples of masks.

    >>> as_sizes([(20, 50), (20, 100)], None), as_sizes(None, [100, 200]), as_sizes(None, [(21, 50)])
    ([(20, 50), (20, 100)], [100, 200], [(20, 50)])
    """
    if (masks is None) == (budgets is None):
        given = "neither" if masks is None else "both"
        raise ValueError(
            f"give either masks=[(20, 50)], the masks of each level, or budgets=[200], the rows in all; got {given}"
        )
    sizes = _budgets(_listed(budgets)) if masks is None else _masks(_listed(masks))
    lengths = {0 if isinstance(size, int) else len(size) for size in sizes}
    if len(lengths) > 1:
        raise ValueError(f"budgets must be all numbers or all tuples, and tuples of one length; got {sizes}")
    return sizes


def rows_of(size: Size) -> Budget:
    """A size as a budget, which counts the row of the prediction.

    >>> rows_of((20, 50)), rows_of(200)
    ((21, 50), 200)
    """
    return size if isinstance(size, int) else (size[0] + 1, *size[1:])


def check_depth(sizes: Iterable[Size], depth: int) -> None:
    """Refuse sizes that do not have one number for each level of an input."""
    for size in sizes:
        if not isinstance(size, int) and len(size) != depth:
            raise ValueError(
                f"the masks {size} are for {len(size)} levels and the structure has {depth}; give one number for each "
                "level, or budgets= with the rows in all"
            )


def _listed(given: Any) -> Any:
    return given.tolist() if hasattr(given, "tolist") else given  # as numpy holds them


def _masks(masks: Any) -> list[Size]:
    rows = list(masks) if isinstance(masks, Sequence) else []
    if not rows or not all(isinstance(_listed(each), Sequence) for each in rows):
        raise ValueError(f"masks must be a list with one number for each level, such as [(20, 50)]; got {masks!r}")
    sizes: list[Size] = []
    for each in rows:
        counts = _listed(each)
        if not counts or not all(is_whole(count) and count > 0 for count in counts):
            raise ValueError(f"masks must be whole numbers above 0, one for each level; got {each!r}")
        sizes.append(tuple(int(count) for count in counts))
    return sizes


def _budgets(budgets: Any) -> list[Size]:
    if not isinstance(budgets, Sequence) or not budgets:
        raise ValueError(f"budgets must be a list such as [100, 200]; got {budgets!r}")
    rows = [as_budget(_listed(each)) for each in budgets]
    return [each if isinstance(each, int) else (each[0] - 1, *each[1:]) for each in rows]
