"""What each statement of an answer rests on, as texts, plots and pages show it."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from c2fa.rounding import number

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

_SETTLED = 2.0  # standard errors that a source's value must be above 0
_LEAST = 0.1  # of the largest source's value
_GAIN = math.log(2.0)  # nats: documents that do not make a statement twice as likely are not what it rests on
_SIMILAR = 0.1  # the same for similarities of answers, from 0 to 1
_MOST = 3


@dataclass(frozen=True)
class Source:
    """A leaf that makes a statement likelier: its number, the document that holds it, and by how many nats."""

    leaf: int
    document: str
    text: str
    value: float
    stderr: float


@dataclass(frozen=True)
class Statement:
    """A statement of the answer, its log-probability with all documents and without any, and its sources."""

    text: str
    score: float
    without: float
    sources: tuple[Source, ...]
    least_gain: float = _GAIN

    @property
    def rests_on_documents(self) -> bool:
        """Whether the documents made it likelier, and it is known which did."""
        return bool(self.sources) and self.score - self.without >= self.least_gain


def statements(e: Explanation) -> tuple[Statement, ...]:
    """The statements of an answer that was cited, or the answer where it is one."""
    texts = list(e.view["statements"])
    outputs = range(1, len(texts) + 1) if len(texts) > 1 else [0]
    least, without = _SIMILAR if by_similarity(e) else _GAIN, e.view["without_documents"]
    return tuple(
        Statement(text, float(e.outputs[k]), float(without[k]), _sources(e, e.columns.index(k)), least)
        for text, k in zip(texts, outputs, strict=True)
    )


def by_similarity(e: Explanation) -> bool:
    """Whether answers were written anew and compared, because the model could not score the given one."""
    return e.view.get("scored_by") == "similarity"


def _sources(e: Explanation, column: int) -> tuple[Source, ...]:
    """The leaves that are settled to make an output likelier, the strongest first."""
    s = e.structure
    values = e.all_values[-1][:, column]
    errors = np.zeros_like(values) if e.all_stderr is None else e.all_stderr[-1][:, column]
    owner = s.owners(0) if s.depth > 1 else np.arange(s.leaves)
    settled = np.flatnonzero((values > _SETTLED * errors) & (values >= _LEAST * max(values.max(), 0.0)) & (values > 0))
    best = settled[np.argsort(-values[settled], kind="stable")][:_MOST]
    return tuple(Source(int(k), s.names[0][owner[k]], s.names[-1][k], float(values[k]), float(errors[k])) for k in best)


def answer_lines(e: Explanation, width: int) -> list[str]:
    """The answer, statement by statement, each with what it rests on."""
    found = statements(e)
    lines, unit = [], " nats"
    if by_similarity(e):
        lines.append("what is explained is the similarity of answers written anew, from 0 to 1: no log-probability")
        unit = ""
    if e.view.get("generations"):
        lines.append("the model wrote the answer, by one request beside the rows")
    for k, statement in enumerate(found, start=1):
        head = f"[{k}] "
        lines += textwrap.wrap(
            f"{head}{statement.text}", width, subsequent_indent=" " * len(head), break_on_hyphens=False
        )
        told = f"{number(statement.score)}{unit}, {number(statement.without)} without the documents"
        if not statement.rests_on_documents:
            lines.append(f"    rests on nothing in these documents ({told})")
            continue
        lines.append(f"    ({told})")
        for source in statement.sources:
            room = width - 30 - len(source.document)
            lines.append(
                f"    {source.value:+.2f} ± {source.stderr:.2f}  {source.document}: "
                f"{textwrap.shorten(source.text, max(room, 20), placeholder='…')}"
            )
    return lines
