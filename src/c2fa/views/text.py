"""A text as an explanation keeps it: where its words stand."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.asking.masking import View
from c2fa.showing.numbers import of_largest
from c2fa.showing.printing import printable
from c2fa.structure import IntArray, Structure

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
        """Refuse spans that are not those of the leaves."""
        super().check(structure)
        if self.spans.shape != (structure.leaves, 2):
            raise ValueError(
                f"the view has spans of shape {self.spans.shape}, and there are {structure.leaves} leaves: give the "
                "start and the end of each"
            )

    def title(self, structure: Structure) -> str:
        """How the text begins."""
        return shortened(self.text, 70)

    def words(self) -> str:
        """The text."""
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
