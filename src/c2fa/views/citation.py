"""A source that a statement of an answer cites, or should, and whether it was used."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["used", "not used", "known without", "one of several", "against", "not settled"]


@dataclasses.dataclass(frozen=True)
class Citation:
    """A source of a statement, cited or not, and what became of the statement without it.

    Attributes
    ----------
    statement, source, verdict
        The text of the statement, the document's id, and what the numbers say.
    place
        Where the statement is in the answer without its markers: (start, end).
    value, stderr
        What the document does for the statement on average, and how sure that is.
    alone
        What the statement loses where the document alone is removed; None where no row was left to ask.
    others, together, back
        Documents that were removed with it, what the statement loses then, and what this one alone brings back.
    carriers
        The documents that the statement rests on, where it is not this one.
    rows
        Of what is not settled: about how many rows would tell.
    exists
        Whether there is such a document.
    passage, passage_place
        The sentence of the document that does most for the statement, and where it is in the document.
    known
        What is known of the document, as JSON; ``metadata`` is the same as a dict.
    cited
        Whether the statement cites it; else it was used and not cited.
    """

    statement: str
    source: str
    verdict: Verdict
    place: tuple[int, int]
    value: float = 0.0
    stderr: float | None = None
    alone: float | None = None
    others: tuple[str, ...] = ()
    together: float | None = None
    back: float | None = None
    carriers: tuple[str, ...] = ()
    rows: int | None = None
    exists: bool = True
    passage: str = ""
    passage_place: tuple[int, int] | None = None
    known: str = "{}"
    cited: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        """What is known of the document."""
        known: dict[str, Any] = json.loads(self.known)
        return known

    @property
    def matters(self) -> bool:
        """Whether the statement rests on it, alone or as one of several."""
        return self.verdict in ("used", "one of several")

    @property
    def effect(self) -> float:
        """The most that it was seen to do: by which citations can be ranked."""
        return max((x for x in (self.alone, self.back) if x is not None), default=self.value)

    def record(self) -> dict[str, Any]:
        """Its fields as a plain dict, with the metadata."""
        fields = dataclasses.asdict(self)
        del fields["known"]
        return {**fields, "metadata": self.metadata}

    def told(self, unit: str = "nats") -> str:
        """The verdict with its numbers, in a sentence."""
        if not self.exists:
            return "not used: there is no such document"
        value = f"value {_number(self.value)}" + ("" if self.stderr is None else f" ± {_number(self.stderr)}")
        parts = [f"removing it {_change(self.alone, unit)}"] if self.alone is not None else []
        if self.verdict == "known without":
            parts = ["the statement is likely without any document"]
        if self.back is not None:
            parts.append(
                f"with {_names(self.others)} {_change(self.together)}, of which it brings back {_number(self.back)}"
            )
        text = f"{self.verdict}: {', '.join([*parts, value])}"
        if self.carriers:
            text += f"; the statement rests on {_names(self.carriers)}"
        return text if self.rows is None else f"{text}; about {self.rows} rows would tell"


def _number(x: float) -> str:
    return f"{x:.2f}".replace("-", "−")


def _change(lost: float | None, unit: str = "") -> str:
    """What removing does to a statement."""
    lost = lost or 0.0
    return f"{'takes' if lost >= 0.0 else 'adds'} {_number(abs(lost))}{unit and ' '}{unit}"


def _names(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are.

    >>> _names("abcde")
    'a, b, c and 2 more'
    """
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
