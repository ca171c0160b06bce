"""Verdicts on an answer's citations, and how they are shown: as text, table, JSON and a page."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from c2fa._system import atomic, need
from c2fa.explanation import Explanation
from c2fa.views import Citation, Cited, Statement

if TYPE_CHECKING:
    import pandas as pd

    from c2fa.batch import Explanations, Store
    from c2fa.batch.overview import Failure


@dataclass(frozen=True, eq=False)
class Verification:
    """The citations of an answer, each with a verdict; ``explanation`` has the numbers of every sentence."""

    explanation: Explanation

    @property
    def _answer(self) -> Cited:
        assert self.explanation.answer is not None  # an explanation of a question has one
        return self.explanation.answer

    @property
    def query(self) -> str:
        """The question to the model."""
        return self._answer.query

    @property
    def answer(self) -> str:
        """The answer without its markers."""
        return self._answer.text

    @property
    def queries(self) -> int:
        """The rows of the model that it took."""
        return self.explanation.queries

    @property
    def unit(self) -> str:
        """The unit of the numbers: nats, or empty where answers were compared."""
        return self._answer.unit

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of the answer, each with its citations."""
        return self.explanation.statements

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of the answer, statement by statement."""
        return tuple(citation for statement in self.statements for citation in statement.citations)

    @property
    def uncited(self) -> tuple[Citation, ...]:
        """The sources that statements rest on and do not cite."""
        return tuple(citation for statement in self.statements for citation in statement.uncited)

    def to_records(self) -> list[dict[str, Any]]:
        """A dict for each citation, and for each source that was used and not cited."""
        return [citation.record() for citation in (*self.citations, *self.uncited)]

    def to_frame(self) -> pd.DataFrame:
        """The same as a table."""
        table: pd.DataFrame = need("pandas", "frame").DataFrame(self.to_records())
        return table

    def to_json(self, indent: int | None = None) -> str:
        """The statements as JSON, with the sources that they cite and those that they should."""
        statements = [
            {
                "text": statement.text,
                "place": statement.place,
                "score": statement.score,
                "without": statement.without,
                "citations": [citation.record() for citation in statement.citations],
                "uncited": [citation.record() for citation in statement.uncited],
            }
            for statement in self.statements
        ]
        about = {"query": self.query, "answer": self.answer, "queries": self.queries, "unit": self.unit}
        return json.dumps({**about, "statements": statements}, indent=indent, ensure_ascii=False)

    def to_text(self, width: int = 100) -> str:
        """The statements, each with its citations and their verdicts."""
        lines = [f"{len(self.citations)} citations, {self.queries} rows"]
        for k, statement in enumerate(self.statements, start=1):
            lines += textwrap.wrap(f"[{k}] {statement.text}", width, subsequent_indent="    ")
            verdicts = [f"{c.source}: {c.told(self.unit)}" for c in statement.citations] or ["cites nothing"]
            verdicts += [f"{c.source}, not cited: {c.told(self.unit)}" for c in statement.uncited]
            for line in verdicts:
                lines += textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="      ")
        return "\n".join(lines)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """One page that needs nothing else; it is returned, and written where a path is given."""
        return _page([self], path)

    def __str__(self) -> str:
        return self.to_text()


@dataclass(frozen=True)
class Share:
    """A share, as a count out of another, with Wilson's interval of 95 %.

    >>> Share(8, 10).interval
    (0.49, 0.943)
    """

    count: int
    of: int

    @property
    def value(self) -> float:
        """The share; NaN out of 0."""
        return self.count / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        z, n = 1.96, self.of
        if not n:
            return 0.0, 1.0
        middle = self.value + z * z / (2 * n)
        half = z * math.sqrt(self.value * (1 - self.value) / n + (z / (2 * n)) ** 2)
        low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
        return round(max(low, 0.0), 3), round(min(high, 1.0), 3)

    def __str__(self) -> str:
        counts, (low, high) = f"{self.count} of {self.of}", self.interval
        return f"{counts} ({self.value:.0%}, {low:.0%} to {high:.0%})" if self.of else counts


class Verifications(Sequence[Verification]):
    """The verified answers to many questions, in their order, with scores over all of them.

    ``Citer.verify_many`` returns it, and ``Verifications(c2fa.batch.Store.open(folder))`` reads it from a store.
    ``found[i]`` raises ``NotExplainedError`` where question ``i`` was set aside, and so does iterating; ``items()``
    passes over such questions, and ``errors()`` lists them.
    """

    def __init__(self, explanations: Explanations | Store) -> None:
        self.explanations = explanations

    def __len__(self) -> int:
        return len(self.explanations)

    @overload
    def __getitem__(self, index: int) -> Verification: ...
    @overload
    def __getitem__(self, index: slice) -> list[Verification]: ...
    def __getitem__(self, index: int | slice) -> Verification | list[Verification]:
        if isinstance(index, slice):
            return list(map(Verification, self.explanations[index]))
        return Verification(self.explanations[index])

    def items(self) -> Iterator[tuple[int, Verification]]:
        """The place of each verified question, and its answer."""
        return ((index, Verification(e)) for index, e in self.explanations.items())

    def errors(self) -> list[Failure]:
        """The questions that were set aside, and why."""
        return self.explanations.errors()

    @cached_property
    def _scores(self) -> tuple[Share, Share]:
        """Both scores in one pass, because a store reads every answer anew."""
        used = citations = supported = statements = 0
        for _, v in self.items():
            settled = [citation for citation in v.citations if citation.verdict != "not settled"]
            citations += len(settled)
            used += sum(citation.matters for citation in settled)
            statements += len(v.statements)
            supported += sum(statement.supported for statement in v.statements)
        return Share(used, citations), Share(supported, statements)

    @property
    def used(self) -> Share:
        """The share of the settled citations whose statement rests on the source, alone or as one of several."""
        return self._scores[0]

    @property
    def supported(self) -> Share:
        """The share of the statements that cite a source on which they rest."""
        return self._scores[1]

    def to_frame(self) -> pd.DataFrame:
        """All citations as one table, with the number of the question."""
        frames = [v.to_frame().assign(answer=index) for index, v in self.items()]
        table: pd.DataFrame = need("pandas", "frame").concat(frames, ignore_index=True)
        return table

    def to_json(self) -> str:
        """All verified answers as a list, as JSON."""
        answers = ",\n".join(v.to_json() for _, v in self.items())
        return f"[{answers}]"

    def to_text(self) -> str:
        """The scores, and how many questions were set aside."""
        lines = [f"citations used: {self.used}", f"statements supported: {self.supported}"]
        aside = len(self.errors())
        if aside:
            lines.append(f"set aside: {aside} of {len(self)} questions")
        return "\n".join(lines)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """All answers on one page, below their scores."""
        return _page((v for _, v in self.items()), path, self.to_text())


def _page(verifications: Iterable[Verification], path: str | PathLike[str] | None, scores: str = "") -> str:
    """A page of verified answers, also written where a path is given; all texts are escaped."""

    def line(c: Citation, unit: str) -> str:
        numbers = escape(c.told(unit).removeprefix(f"{c.verdict}: "))
        passage = f"<p class='quiet' dir='auto'>“{escape(c.passage)}”</p>" if c.passage else ""
        return (
            f"<div class='c'><b class='v {c.verdict.replace(' ', '-')}'>{c.verdict}</b><div><p>"
            f"<b dir='auto'>{escape(c.source)}</b>{'' if c.cited else ', not cited'}</p>{passage}"
            f"<p class='quiet'>{numbers}</p></div></div>"
        )

    parts = [f"<p>{escape(part)}</p>" for part in scores.splitlines()]
    for v in verifications:
        parts.append(f"<h2 dir='auto'>{escape(v.query)}</h2><p class='quiet'>{v.queries} rows</p><ol>")
        for statement in v.statements:
            lines = [line(c, v.unit) for c in statement.citations] or ["<p class='quiet'>cites nothing</p>"]
            lines += [line(c, v.unit) for c in statement.uncited]
            parts.append(f"<li><p dir='auto'><b>{escape(statement.text)}</b></p>{''.join(lines)}</li>")
        parts.append("</ol>")
    text = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><title>Were the sources used?</title>"
        f"<style>{_STYLE}</style><main><h1>Were the sources used?</h1>{''.join(parts)}</main></html>\n"
    )
    if path is not None:
        with atomic(path) as file:
            file.write(text.encode())
    return text


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.25rem}h2{font-size:1.1rem;margin:1.5rem 0 0}ol{padding-left:1.5rem}li{margin:1rem 0}
p{margin:.15rem 0;overflow-wrap:anywhere}.quiet{color:#4d5660}
.c{display:grid;grid-template-columns:10rem 1fr;gap:.25rem .75rem;align-items:start;margin:.5rem 0}
.v{padding:0 .5rem;border-radius:.25rem;border:1px solid;justify-self:start;white-space:nowrap}
.used{background:#dbf0f7;color:#0b4a63}.not-used{background:#fbe3e0;color:#8a1c14}.against{background:#8a1c14;color:#fff}
.one-of-several{background:#e6e9fb;color:#27307a}.known-without{background:#f2ecd4;color:#5d4a05}
.not-settled{background:#eceff2;color:#3a424a}
@media(max-width:34rem){.c{grid-template-columns:1fr}}
@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e9ec}.quiet{color:#a8b0b8}}
"""
