"""What each statement of an answer rests on, as texts, plots and pages show it."""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from c2fa.showing.rounding import number

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

Verdict: TypeAlias = Literal["rests", "little", "nothing", "unsettled", "opposed"]

_SETTLED = 2.0  # standard errors that a source's value must be above 0
_LEAST = 0.1  # of the largest source's value
_TWICE = math.log(2.0)  # nats: documents that do not make a statement twice as likely are not what it rests on
_ALIKE = 0.1  # the same where answers are compared by a similarity, from 0 to 1
_LITTLE = 0.1  # of what a statement lacks without documents: where they give less, it rests on little
_MOST = 3
_MILLION = math.log(1e6)


@dataclass(frozen=True)
class Source:
    """A sentence (or what stands for one) that makes a statement likelier.

    Attributes
    ----------
    level, index
        Which feature of the explanation it is.
    document
        The name of the document that holds it; empty where documents are no level.
    text
        What it says; empty where it is the whole document.
    value, stderr
        By how much, and how sure that is.
    told
        Both as they are shown, rounded like every number of the explanation.
    """

    level: int
    index: int
    document: str
    text: str
    value: float
    stderr: float | None
    told: str

    @property
    def name(self) -> str:
        """The document and the sentence."""
        return ": ".join(part for part in (self.document, self.text) if part)


@dataclass(frozen=True)
class Statement:
    """A statement of the answer: its score with all documents and without any, and its sources.

    ``output`` is its place among the explanation's outputs. ``least_gain`` is how much higher the score must be with
    the documents for the statement to rest on them.
    """

    text: str
    output: int
    score: float
    without: float
    sources: tuple[Source, ...]
    least_gain: float
    unit: str

    @property
    def gain(self) -> float:
        """How much higher the score is with all documents than without any."""
        return self.score - self.without

    @property
    def verdict(self) -> Verdict:
        """What it rests on: its sources (``"rests"``), ``"nothing"``, or documents, ``"unsettled"`` which.

        A statement rests on ``"little"`` if it is nearly as unlikely with the documents as without, as one in the
        documents' style that none of them says. ``"opposed"`` is one that some sentences make much likelier and others
        as much less likely.
        """
        much = max(self.least_gain, -_LITTLE * self.without)
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
    def rests_on_documents(self) -> bool:
        """Whether the documents made it likelier, and it is known which did."""
        return self.verdict == "rests"

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


def by_similarity(e: Explanation) -> bool:
    """Whether answers were written anew and compared, because the model could not score the given one."""
    return e.view.get("scored_by") == "similarity"


def unit(e: Explanation) -> str:
    """What the scores of an answer are in: nats, or nothing where answers were compared."""
    return "" if by_similarity(e) else "nats"


def answer_notes(e: Explanation) -> list[str]:
    """Sentences about an answer: how it was scored, where that was not by its log-probability, and who wrote it."""
    notes = []
    if by_similarity(e):
        notes.append("what is explained is the similarity of answers written anew, from 0 to 1: no log-probability")
    if e.view.get("generations"):
        notes.append("the model wrote the answer, by one request beside the rows")
    return notes


def statements(e: Explanation) -> tuple[Statement, ...]:
    """The statements of an answer that was cited, or the answer where it is one."""
    texts = list(e.view["statements"])
    outputs = range(1, len(texts) + 1) if len(texts) > 1 else [0]
    return tuple(_statement(e, text, k) for text, k in zip(texts, outputs, strict=True))


def whole(e: Explanation) -> Statement:
    """The whole answer, as if it were one statement."""
    return _statement(e, str(e.view["answer"]), 0)


def cited_level(e: Explanation) -> int:
    """The level whose features are named as sources: sentences where there are any, else the leaves."""
    names = e.level_names
    return names.index("sentences") if "sentences" in names else len(names) - 1


def _statement(e: Explanation, text: str, output: int) -> Statement:
    nats = unit(e)
    without = float(e.view["without_documents"][output])
    least = _TWICE if nats else _ALIKE
    return Statement(text, output, float(e.outputs[output]), without, _sources(e.for_target(output)), least, nats)


def _sources(e: Explanation) -> tuple[Source, ...]:
    """The sentences that are settled to make an output likelier, the strongest first."""
    level = cited_level(e)
    values = e.values[level]
    errors = None if e.stderr is None else e.stderr[level]
    spread = np.zeros_like(values) if errors is None else errors
    settled = np.flatnonzero((values > _SETTLED * spread) & (values >= _LEAST * max(values.max(), 0.0)) & (values > 0))
    best = settled[np.argsort(-values[settled], kind="stable")][:_MOST]
    return tuple(_source(e, level, k, None if errors is None else float(errors[k])) for k in best.tolist())


def _source(e: Explanation, level: int, index: int, error: float | None) -> Source:
    document, text = "", e.names[level][index]
    if e.level_names[0] == "documents":
        owner = index
        for parents in reversed(e.structure.parents[:level]):
            owner = int(parents[owner])
        document, text = e.names[0][owner], text if level else ""
    told = e.rounded.text(e.rounded.values[level][index])
    if error is not None:
        told += f" ± {e.rounded.plain(error)}"
    return Source(level, index, document, text, float(e.values[level][index]), error, told)


def _times(nats: float) -> str:
    """A difference of log-probabilities as people say it.

    >>> [_times(nats) for nats in (0.02, 1.0, 8.4, 20.0)]
    ['1.0 times', '2.7 times', '4,400 times', 'over a million times']
    """
    if nats >= _MILLION:
        return "over a million times"
    times = math.exp(nats)
    if times < 9.95:
        return f"{times:.1f} times"
    return f"{float(f'{times:.2g}'):,.0f} times"


def minuses(text: str) -> str:
    """Numbers in a sentence with a sign that is as wide as a plus.

    >>> minuses("-1.2 nats, a re-run")
    '−1.2 nats, a re-run'
    """
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def shown_statement(e: Explanation) -> str:
    """What the explanation's values are of: the whole answer, or one of its statements."""
    name = f"statement [{e.target}]" if e.target else "the whole answer"
    return f"{name} ({_statement(e, '', e.target).scores})"


def answer_lines(e: Explanation, width: int) -> list[str]:
    """The answer, statement by statement, each with what it rests on."""
    lines = []
    for k, statement in enumerate(statements(e), start=1):
        head = f"[{k}] "
        indent = " " * len(head)
        lines += textwrap.wrap(f"{head}{statement.text}", width, subsequent_indent=indent, break_on_hyphens=False)
        lines += textwrap.wrap(statement.told, width, initial_indent=indent, subsequent_indent=indent)
        column = max((len(source.told) for source in statement.shown), default=0)
        for source in statement.shown:
            before = f"{indent}{source.told.rjust(column)}  "
            lines.append(before + textwrap.shorten(source.name, max(width - len(before), 20), placeholder="…"))
    return [*lines, *textwrap.wrap(f"What the {e.level_names[0]} do for {shown_statement(e)}:", width)]
