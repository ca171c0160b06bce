"""Rows of tables, vectors and bags of vectors as an explanation keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from c2fa.asking.masking import View
from c2fa.showing.printing import cell
from c2fa.structure import Structure


@dataclass(frozen=True, eq=False)
class Table(View):
    """The values of a row, one for each leaf.

    ``at_baseline`` says of each whether masking it changes nothing, because it is the value that stands for a masked
    one; empty where none is.

    >>> Table((40, 2.0), (False, True)).cells()
    ['40', '2 (equal to the baseline)']
    """

    kind = "table"
    called = ("groups", "columns")
    telling = -1

    values: tuple[Any, ...]
    at_baseline: tuple[bool, ...] = ()

    def check(self, structure: Structure) -> None:
        """Refuse values that are not those of the leaves."""
        super().check(structure)
        for name, given in (("values", self.values), ("at_baseline", self.at_baseline or self.values)):
            if len(given) != structure.leaves:
                raise ValueError(f"the view has {len(given)} {name}, and there are {structure.leaves} leaves")

    def cells(self) -> list[str]:
        """The values, each with a word where masking it changes nothing."""
        same = self.at_baseline or (False,) * len(self.values)
        return [cell(v) + " (equal to the baseline)" * at for v, at in zip(self.values, same, strict=True)]

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """The values of the leaves."""
        return list(self.values) if level == structure.depth - 1 else None

    def notes(self, structure: Structure, most: int = 5) -> list[str]:
        """Which leaves masking does not change; ``most`` are named."""
        same = [name for name, at in zip(structure.names[-1], self.at_baseline, strict=False) if at]
        if not same:
            return []
        named = ", ".join(same[:most]) + (f" and {len(same) - most} more" if len(same) > most else "")
        return [
            f"{len(same)} of {structure.leaves} {self.level_names(structure)[-1]} {'is' if len(same) == 1 else 'are'} "
            f"equal to the baseline ({named}): masking changes nothing there, so 0 does not mean that the model "
            "ignores them; strategy='average' over several background rows tells"
        ]


@dataclass(frozen=True, eq=False)
class Vector(Table):
    """A vector of numbers, whose leaves need not have names that say anything."""

    called = View.called
    telling = View.telling


@dataclass(frozen=True, eq=False)
class Bag(View):
    """Vectors of one length, (instances, features), and the features' names."""

    kind = "bag"
    called = ("instances", "features")

    values: npt.NDArray[Any]
    features: tuple[str, ...]

    def check(self, structure: Structure) -> None:
        """Refuse vectors that are not the instances."""
        super().check(structure)
        if self.values.shape != (structure.widths[0], len(self.features)) or self.values.size != structure.leaves:
            raise ValueError(
                f"the view has vectors of shape {self.values.shape} and {len(self.features)} features, and the "
                f"structure is of {structure.widths}"
            )

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """The numbers, instance by instance."""
        return self.values.ravel().tolist() if level == structure.depth - 1 else None

    def page(self, structure: Structure, side: int) -> dict[str, Any]:
        """The features' names."""
        return {"features": self.features}
