"""Texts and numbers as an explanation keeps them: rows of tables, vectors, bags of vectors, recordings."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from c2fa.asking.masking import View
from c2fa.showing.numbers import of_largest, scaled
from c2fa.showing.printing import cell, printable
from c2fa.structure import FloatArray, IntArray, Structure

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Text(View):
    """A text, and from where to where each leaf goes in it, (leaves, 2), in characters."""

    kind = "text"
    called = ("sentences", "words")
    telling = -1

    text: str
    spans: IntArray

    def check(self, structure: Structure) -> None:
        super().check(structure)
        if self.spans.shape != (structure.leaves, 2):
            raise ValueError(
                f"the view has spans of shape {self.spans.shape}, and there are {structure.leaves} leaves: give the "
                "start and the end of each"
            )

    def title(self, structure: Structure) -> str:
        return shortened(self.text, 70)

    def words(self) -> str:
        return self.text

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """The text, cut before each feature but the first: joined again, the pieces are the text."""
        first = structure.starts(level)
        if first is None:
            return None
        cuts = [0, *self.spans[first[1:], 0].tolist(), len(self.text)]
        return [printable(self.text[a:b]) for a, b in pairwise(cuts)]

    def spells(self, structure: Structure) -> bool:
        """Whether leaves are called as they stand in the text."""
        pairs = zip(self.spans.tolist(), structure.names[-1], strict=True)
        return all(self.text[a:b] == name for (a, b), name in pairs)

    def page(self, structure: Structure, side: int) -> dict[str, Any]:
        """The text, and how far it is from the end of a word to the start of the next, and from there to its end."""
        # A browser counts in units of 16 bits, Python in characters.
        wide = np.array([0, *(ord(c) > 0xFFFF for c in self.text)], dtype=np.intp)
        units = np.arange(len(self.text) + 1) + np.cumsum(wide)
        return {"text": self.text, "steps": np.diff(units[self.spans].ravel(), prepend=0)}

    def html(self, e: Explanation, most: int = 3000) -> str:
        """The text with its words shaded, as far as ``most`` words."""
        out, at = [], 0
        for (a, b), share in zip(self.spans[:most].tolist(), of_largest(e.low).tolist(), strict=False):
            word = escape(self.text[a:b])
            if abs(share) >= 0.05:
                paint = np.array((31, 111, 178) if share > 0 else (194, 80, 10))
                red, green, blue = np.rint(255 - 0.55 * abs(share) * (255 - paint)).astype(int)
                word = f'<span style="background-color:#{red:02x}{green:02x}{blue:02x}">{word}</span>'
            out += [escape(self.text[at:a]), word]
            at = b
        out.append(escape(self.text[at:]) if len(self.spans) <= most else "…")
        return f'<p style="white-space:pre-wrap" dir="auto">{"".join(out)}</p>'


def shortened(text: str, most: int) -> str:
    """The first words of a text, on one line.

    >>> shortened("A long   story of a cat", 12)
    'A long…'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + "…"


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
        super().check(structure)
        for name, given in (("values", self.values), ("at_baseline", self.at_baseline or self.values)):
            if len(given) != structure.leaves:
                raise ValueError(f"the view has {len(given)} {name}, and there are {structure.leaves} leaves")

    def cells(self) -> list[str]:
        """The values, each with a word where masking it changes nothing."""
        same = self.at_baseline or (False,) * len(self.values)
        return [cell(v) + " (equal to the baseline)" * at for v, at in zip(self.values, same, strict=True)]

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
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
        super().check(structure)
        if self.values.shape != (structure.widths[0], len(self.features)) or self.values.size != structure.leaves:
            raise ValueError(
                f"the view has vectors of shape {self.values.shape} and {len(self.features)} features, and the "
                f"structure is of {structure.widths}"
            )

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        return self.values.ravel().tolist() if level == structure.depth - 1 else None

    def page(self, structure: Structure, side: int) -> dict[str, Any]:
        return {"features": self.features}


@dataclass(frozen=True, eq=False)
class Series(View):
    """A recording, (channels, steps), and the first step of each window.

    ``order`` says what the parts are: channels that hold windows, or windows that hold channels.
    """

    kind = "series"
    called = ("channels", "windows")

    values: npt.NDArray[Any]
    starts: IntArray
    order: str = "channels"

    def check(self, structure: Structure) -> None:
        super().check(structure)
        if self.values.ndim != 2 or len(self.values) * len(self.starts) != structure.leaves:
            raise ValueError(
                f"the view has a recording of shape {self.values.shape} in {len(self.starts)} windows, and there are "
                f"{structure.leaves} leaves"
            )

    def grid(self, leaves: FloatArray) -> FloatArray:
        """What leaves have, as (channels, windows)."""
        channels = len(self.values)
        return leaves.reshape(channels, -1) if self.order == "channels" else leaves.reshape(-1, channels).T

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """The mean of each window over the steps that it has, in the order of the leaves."""
        if level < structure.depth - 1:
            return None
        series = self.values.astype(np.float64)
        known = np.isfinite(series)
        total = np.add.reduceat(np.where(known, series, 0.0), self.starts, axis=1)
        count = np.add.reduceat(known, self.starts, axis=1, dtype=np.float64)
        means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return (means if self.order == "channels" else means.T).ravel().tolist()

    def page(self, structure: Structure, side: int, most: int = 600) -> dict[str, Any]:
        drawn = scaled(self.values.astype(np.float64))
        channels, steps = drawn.shape
        at = np.arange(steps)
        if steps > most:  # in each stretch the step that stands out most, so that peaks stay
            there = np.isfinite(drawn).sum(axis=1, keepdims=True)
            mean = np.nansum(drawn, axis=1, keepdims=True) / np.maximum(there, 1)
            away = np.abs(np.nan_to_num(drawn - mean)).max(axis=0)
            edges = (np.arange(most + 1) * steps // most).tolist()
            at = np.array([a + int(away[a:b].argmax()) for a, b in pairwise(edges)])
        return {
            "channels": channels,
            "steps": steps,
            "starts": self.starts,
            "order": self.order,
            "at": at,
            "lines": np.round(drawn[:, at], 3),
        }
