"""A statement of an answer: what it rests on, and whether the sources that it cites were used."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from c2fa.showing.numbers import number

Verdict: TypeAlias = Literal["used", "not used", "known without", "one of several", "against", "not settled"]


@dataclass(frozen=True)
class CitedDocument:
    """A document that the model read: its id, where it begins in the explanation's text, what is known of it.

    ``known`` is JSON, so that files and tables hold whatever a document says of itself.
    """

    id: str
    start: int
    known: str = "{}"


@dataclass(frozen=True)
class Source:
    """A sentence (or what stands for one) that makes a statement likelier.

    Attributes
    ----------
    level, index
        Which feature of the explanation it is.
    document, text
        The name of the document that holds it, empty where documents are no level; and what it is called, empty where
        it is the whole document.
    value, stderr, told
        By how much, how sure that is, and both as they are shown.
    holder, passage, passage_place
        The document that holds it, what stands there, and where, where the explanation keeps its texts.
    """

    level: int
    index: int
    document: str
    text: str
    value: float
    stderr: float | None
    told: str
    holder: CitedDocument | None = None
    passage: str = ""
    passage_place: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The document and the sentence."""
        return ": ".join(part for part in (self.document, self.text) if part)

    def record(self) -> dict[str, Any]:
        """What a program needs of it."""
        holder = self.holder or CitedDocument(self.document, 0)
        return {
            "source": holder.id,
            "passage": self.passage or self.text,
            "passage_place": self.passage_place and list(self.passage_place),
            "value": self.value,
            "stderr": self.stderr,
            "metadata": json.loads(holder.known),
        }


@dataclass(frozen=True)
class Citation:
    """A source of a statement, cited or not, and what became of the statement without it.

    Attributes
    ----------
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
    passage, passage_place
        The sentence of the document that does most for the statement, and where it is in the document.
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
        fields = asdict(self)
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
                f"removing {_names(self.others)} too {_change(self.together)}, and by itself it brings back "
                f"{_number(self.back)}"
            )
        text = f"{self.verdict}: {', '.join([*parts, value])}"
        if self.carriers:
            text += f"; the statement rests on {_names(self.carriers)}"
        return text if self.rows is None else f"{text}; about {self.rows} rows would tell"


@dataclass(frozen=True)
class Statement:
    """A statement of the answer: its score with all documents and without any, and its sources.

    ``place`` is where it begins and ends in the answer, ``output`` its place among the explanation's outputs.
    ``least_gain`` is how much higher the score must be with the documents for the statement to rest on them.
    ``verified`` is what ``c2fa.verify`` found of the sources that it cites, and of those that it should.
    """

    text: str
    place: tuple[int, int]
    output: int
    score: float
    without: float
    sources: tuple[Source, ...]
    least_gain: float
    unit: str
    verified: tuple[Citation, ...] = ()

    @property
    def citations(self) -> tuple[Citation, ...]:
        """What it cites."""
        return tuple(citation for citation in self.verified if citation.cited)

    @property
    def uncited(self) -> tuple[Citation, ...]:
        """The sources that it rests on and does not cite."""
        return tuple(citation for citation in self.verified if not citation.cited)

    @property
    def supported(self) -> bool:
        """Whether a source that it cites is one that it rests on."""
        return any(citation.matters for citation in self.citations)

    @property
    def gain(self) -> float:
        """How much higher the score is with all documents than without any."""
        return self.score - self.without

    @property
    def verdict(self) -> Literal["rests", "little", "nothing", "unsettled", "opposed"]:
        """What it rests on: its sources (``"rests"``), ``"nothing"``, or documents, ``"unsettled"`` which.

        A statement rests on ``"little"`` if it is nearly as unlikely with the documents as without, as one in the
        documents' style that none of them says. ``"opposed"`` is one that some sentences make much likelier and others
        as much less likely.
        """
        much = max(self.least_gain, -0.1 * self.without)  # a tenth of what it lacks without documents
        if self.gain >= self.least_gain:
            if not self.sources:
                return "unsettled"
            return "rests" if self.gain >= much else "little"
        return "opposed" if any(source.value >= much for source in self.sources) else "nothing"

    @property
    def shown(self) -> tuple[Source, ...]:
        """The sources that are listed under it: none where it rests on nothing, however small its numbers are."""
        return () if self.verdict == "nothing" else self.sources

    @property
    def told(self) -> str:
        """What can be said of it, in one line."""
        says = {
            "rests": self.likelier,
            "little": f"rests on little in these documents: {self.likelier}, and still unlikely",
            "nothing": "rests on nothing in these documents",
            "unsettled": f"{self.likelier}, but which sentence does it is not settled; more rows may tell",
            "opposed": "no likelier with these documents than without: sentences speak for it and against it",
        }[self.verdict]
        return f"{says} ({self.scores})"

    @property
    def scores(self) -> str:
        """Its score with all documents and without any."""
        return f"{number(self.score)}{self.unit and ' '}{self.unit}, {number(self.without)} without"

    @property
    def likelier(self) -> str:
        """How much the documents do for it, in words."""
        if self.unit != "nats":
            return f"{number(self.gain)} more alike with the documents"
        if self.gain < 0:
            return f"{_times(-self.gain)} less likely with the documents"
        return f"{_times(self.gain)} as likely with the documents"


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


def _times(nats: float) -> str:
    """A difference of log-probabilities as people say it.

    >>> [_times(nats) for nats in (0.02, 1.0, 8.4, 20.0)]
    ['1.0 times', '2.7 times', '4,400 times', 'over a million times']
    """
    if nats >= math.log(1e6):
        return "over a million times"
    times = math.exp(nats)
    if times < 9.95:
        return f"{times:.1f} times"
    return f"{float(f'{times:.2g}'):,.0f} times"
