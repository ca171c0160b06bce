"""A cited answer: its statements and what each rests on, in terminals and on pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.showing.numbers import minuses
from c2fa.structure import IntArray
from c2fa.views.inputs import Text
from c2fa.views.statement import Citation, CitedDocument, Source, Statement

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


@dataclass(frozen=True)
class Cited:
    """The answer of a language model whose documents are explained: statement by statement, and what each rests on.

    Attributes
    ----------
    query
        What the model was asked.
    text
        The whole answer.
    statements
        What it is made of; one where the answer is a single statement.
    written_by_the_model
        Whether the model wrote it, and not the user.
    generations
        Requests beside the rows in which the model wrote.
    scored_by
        How answers are scored: by their log-probability, or by ``"similarity"`` of answers that are written anew.
    without_documents
        What each output is without any document.
    documents
        What the model read, in the order of the explanation's text.
    stays
        Turns of a chat that stay in every row.
    verified
        What ``c2fa.verify`` found of the answer's citations, statement by statement.
    """

    query: str
    text: str
    statements: tuple[str, ...]
    written_by_the_model: bool
    generations: int
    scored_by: str
    without_documents: tuple[float, ...]
    documents: tuple[CitedDocument, ...] = ()
    stays: tuple[str, ...] = ()
    verified: tuple[Citation, ...] = ()

    def check(self, outputs: int) -> None:
        """Refuse statements that are not the outputs of an explanation: the whole answer, and each of several."""
        several = len(self.statements)
        if outputs != len(self.without_documents) or not several or outputs != 1 + several * (several > 1):
            raise ValueError(
                f"an answer of {several} statements, with {len(self.without_documents)} outputs without documents, "
                f"does not fit {outputs} outputs"
            )

    @property
    def unit(self) -> str:
        """What scores are in: nats, or nothing where answers were compared."""
        return "" if self.scored_by == "similarity" else "nats"

    def notes(self) -> list[str]:
        """How the answer was scored, where that was not by its log-probability, and who wrote it."""
        notes = []
        if not self.unit:
            notes.append("what is explained is the similarity of answers written anew, from 0 to 1: no log-probability")
        if self.stays:
            notes.append(f"what stays of the chat in every row: {', '.join(self.stays)}")
        if self.generations:
            notes.append("the model wrote the answer, by one request beside the rows")
        return notes

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Where each statement begins and ends in the answer."""
        places, end = [], 0
        for statement in self.statements:
            start = self.text.index(statement, end)
            end = start + len(statement)
            places.append((start, end))
        return tuple(places)

    def statement(self, e: Explanation, output: int, place: tuple[int, int] | None = None) -> Statement:
        """What an output of the explanation is of: the whole answer (0), or one of its statements."""
        start, end = place or (self.places[output - 1] if output else (0, len(self.text)))
        return Statement(
            self.text[start:end],
            (start, end),
            output,
            score=float(e.outputs[output]),
            without=self.without_documents[output],
            sources=self._sources(e.for_target(output)),
            # Documents that do not make a statement twice as likely are not what it rests on.
            least_gain=math.log(2.0) if self.unit else 0.1,
            unit=self.unit,
            verified=tuple(citation for citation in self.verified if citation.place == (start, end)),
        )

    def each(self, e: Explanation) -> tuple[Statement, ...]:
        """The statements; where there is one, the whole answer's output is its."""
        several = len(self.statements) > 1
        return tuple(self.statement(e, k + several, place) for k, place in enumerate(self.places))

    def sources(self, e: Explanation) -> list[dict[str, Any]]:
        """The statements and what each rests on, as JSON has them."""
        return [
            {
                "statement": s.text,
                "place": list(s.place),
                "verdict": s.verdict,
                "score": s.score,
                "without": s.without,
                "sources": [source.record() for source in s.shown],
            }
            for s in self.each(e)
        ]

    def target(self, e: Explanation) -> str:
        """What the explanation's values are of: the whole answer, or one of its statements."""
        name = f"statement [{e.target}]" if e.target else "the whole answer"
        return f"{name} ({self.statement(e, e.target).scores})"

    def unsupported(self, e: Explanation) -> str:
        """How many statements rest on nothing, in words; empty where all have a source."""
        verdicts = [statement.verdict for statement in self.each(e)]
        count = verdicts.count("nothing")
        if not count:
            return ""
        many = "" if len(verdicts) == 1 else f"{count} of {len(verdicts)} "
        return f"{many}{'rests' if count == 1 else 'rest'} on nothing"

    def _sources(self, e: Explanation, most: int = 3) -> tuple[Source, ...]:
        """The sentences that are settled to make an output likelier, the strongest first.

        They are two standard errors above 0, and a tenth of the strongest at least.
        """
        level = cited_level(e)
        values = e.values[level]
        errors = np.zeros_like(values) if e.stderr is None else e.stderr[level]
        settled = np.flatnonzero((values > 2.0 * errors) & (values >= 0.1 * max(values.max(), 0.0)) & (values > 0))
        documents, found = _documents(e, level), []
        for i in settled[np.argsort(-values[settled], kind="stable")][:most].tolist():
            document, text = "", e.names[level][i]
            if e.level_names[0] == "documents":
                document, text = e.names[0][documents[i]], text if level else ""
            error, told = None, e.rounded.text(e.rounded.values[level][i])
            if e.stderr is not None:
                error = float(errors[i])
                told += f" ± {e.rounded.plain(error)}"
            source = Source(level, i, document, text, float(values[i]), error, told)
            if isinstance(e.view, Text) and self.documents:  # a store may leave the texts out
                spans = e.view.spans[e.structure.owners(level) == i]
                start, end = int(spans[0, 0]), int(spans[-1, 1])
                holder = next((d for d in reversed(self.documents) if d.start <= start), self.documents[0])
                place = (start - holder.start, end - holder.start)
                source = replace(source, holder=holder, passage=e.view.text[start:end], passage_place=place)
            found.append(source)
        return tuple(found)

    def lines(self, e: Explanation, width: int) -> list[str]:
        """The answer for a terminal, statement by statement, each with what it rests on."""
        lines = []
        for k, statement in enumerate(self.each(e), start=1):
            head = f"[{k}] "
            indent = " " * len(head)
            lines += textwrap.wrap(f"{head}{statement.text}", width, subsequent_indent=indent, break_on_hyphens=False)
            lines += textwrap.wrap(statement.told, width, initial_indent=indent, subsequent_indent=indent)
            column = max((len(source.told) for source in statement.shown), default=0)
            for source in statement.shown:
                before = f"{indent}{source.told.rjust(column)}  "
                lines.append(before + textwrap.shorten(source.name, max(width - len(before), 20), placeholder="…"))
        return [*lines, *textwrap.wrap(f"What the {e.level_names[0]} do for {self.target(e)}:", width)]

    def page(self, e: Explanation, columns: Sequence[int]) -> dict[str, Any]:
        """What a page shows above the documents; ``columns`` are the outputs whose values it has."""

        def packed(statement: Statement) -> dict[str, Any]:
            return {
                "text": statement.text,
                "column": columns.index(statement.output) if statement.output in columns else None,
                "verdict": statement.verdict,
                "told": minuses(statement.told),
                "sources": [
                    {"at": (s.level, s.index), "document": s.document, "text": s.text, "told": minuses(s.told)}
                    for s in statement.shown
                ],
            }

        whole = self.statement(e, 0)
        return {
            "query": self.query,
            "written": self.written_by_the_model,
            "level": cited_level(e),
            "least": whole.least_gain,
            "unit": whole.unit,
            "whole": packed(whole),
            "statements": [packed(statement) for statement in self.each(e)],
        }

    def html(self, e: Explanation, key: str, most: int = 2000) -> str:
        """The answer and its documents for a page without scripts: links lead from statements to sentences and back.

        ``key`` begins every anchor, so that several answers can stand on one page; ``most`` sentences are listed.
        """
        items, cited = [], dict[int, list[str]]()
        for k, statement in enumerate(self.each(e), start=1):
            sources = []
            for s in statement.shown:
                link = f"<a href='#{key}-{s.level}-{s.index}' dir='auto'>{escape(s.name)}</a>"
                sources.append(f"<li>{link} {escape(minuses(s.told))}</li>")
                cited.setdefault(s.index, []).append(f"<a href='#{key}-statement-{k}'>[{k}]</a>")
            look = "bad" if statement.verdict == "nothing" else "quiet"
            items.append(
                f"<li id='{key}-statement-{k}'><b dir='auto'>{escape(statement.text)}</b>"
                f"<p class='{look}'>{escape(minuses(statement.told))}</p>"
                + (f"<ul>{''.join(sources)}</ul>" if sources else "")
                + "</li>"
            )
        level = cited_level(e)

        def row(at: int, i: int, tag: str, links: str) -> str:
            value = e.rounded.signed(e.rounded.values[at][i], None if e.stderr is None else e.stderr[at][i])
            name = f"<{tag} dir='auto'>{escape(e.names[at][i])}</{tag}>"
            return f"<tr id='{key}-{at}-{i}'><th scope='row'>{name}</th><td>{value}</td><td>{links}</td></tr>"

        rows, document = [], -1
        owners = _documents(e, level)
        for i, owner in enumerate(owners[:most].tolist()):
            if level and owner != document:
                rows.append(row(0, owner, "b", ""))
                document = owner
            rows.append(row(level, i, "span", ", ".join(cited.get(i, ()))))
        if len(owners) > most:
            rows.append(f"<tr><td colspan='3'>{len(owners) - most} more {escape(e.level_names[level])}</td></tr>")
        return (
            f"<p dir='auto'><b>Query:</b> {escape(self.query)}</p><ol>{''.join(items)}</ol>"
            f"<p>What the {escape(e.level_names[0])} do for {escape(minuses(self.target(e)))}:</p><table>"
            "<tr><th scope='col'>part</th><th scope='col'>value</th><th scope='col'>cited by</th></tr>"
            f"{''.join(rows)}</table>"
        )


def cited_level(e: Explanation) -> int:
    """The level whose features are named as sources: sentences where there are any, else the leaves."""
    names = e.level_names
    return names.index("sentences") if "sentences" in names else len(names) - 1


def _documents(e: Explanation, level: int) -> IntArray:
    """The document of each feature of a level."""
    return e.structure.owners(0)[e.structure.first_leaves(level)]
