"""Inputs as the processes that explain know them: by number and tree. What they look like only the network knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from c2fa import Structure
from c2fa.asking.masking import Masked, MaskedBatch, MaskedRows
from c2fa.graph import Graph

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Item:
    """An input: its number among the network's inputs, its tree, its truth, who is neighbours.

    The number and the tree alone decide on its masks, not what is neither shown nor compared: weights of neighbours
    differ from machine to machine in the last bit.
    """

    number: int
    owner: npt.NDArray[np.intp]
    truth: Any = field(default=None, repr=False, compare=False)
    graph: Graph | None = field(default=None, repr=False, compare=False)
    smooth_by_default: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class ItemInputs:
    """What a network is told of an item whose masked versions it is to make: its number, and whose each leaf is."""

    number: int
    owner: npt.NDArray[np.intp]

    def __call__(self, masks: Bools, level: int) -> MaskedBatch:
        """The masked inputs, as the network takes them: as masks."""
        return MaskedBatch([MaskedRows(self, masks, level)])


def item_of(rows: MaskedRows) -> ItemInputs:
    """The item that rows are of."""
    return cast(ItemInputs, rows.inputs)


def leaves_of(rows: MaskedRows) -> Bools:
    """The leaves that rows show: a masked part has all of its leaves masked."""
    return rows.masks[:, item_of(rows).owner] if rows.level == 0 else rows.masks


def masker(x: Item) -> Masked:
    """Mask an item."""
    graph = x.graph
    return Masked(
        Structure.from_groups(x.owner.tolist()),
        ItemInputs(x.number, x.owner),
        neighbours=None if graph is None else lambda: graph,
        smooth_by_default=x.smooth_by_default,
    )
