"""What is found of an answer's citations, and how it is shown: as text, table, JSON and a page."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from c2fa._system import atomic
from c2fa.explanation import Explanation

if TYPE_CHECKING:
    import pandas as pd

Verdict: TypeAlias = Literal["used", "not used", "known without", "one of several", "against", "not settled"]


@dataclass(frozen=True)
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
    passage, passage_place, metadata
        The sentence of the document that does most for the statement, where it is in the document, and what is known
        of the document.
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
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def matters(self) -> bool:
        """Whether the statement rests on it, alone or as one of several."""
        return self.verdict in ("used", "one of several")

    @property
    def effect(self) -> float:
        """The most that it was seen to do: by which citations can be ranked."""
        return max((x for x in (self.alone, self.back) if x is not None), default=self.value)

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


@dataclass(frozen=True)
class Statement:
    """A statement of the answer: its score with all documents and with none, what it cites, and what it should."""

    text: str
    place: tuple[int, int]
    score: float
    without: float
    citations: tuple[Citation, ...]
    uncited: tuple[Citation, ...]

    @property
    def supported(self) -> bool:
        """Whether a source that it cites is one that it rests on."""
        return any(citation.matters for citation in self.citations)


@dataclass(frozen=True, eq=False)
class Verification:
    """The citations of an answer, each with a verdict; ``explanation`` has the numbers of every sentence."""

    query: str
    answer: str
    statements: tuple[Statement, ...]
    explanation: Explanation
    queries: int
    unit: str = "nats"

    @property
    def citations(self) -> tuple[Citation, ...]:
        """What the answer cites, statement by statement."""
        return tuple(citation for statement in self.statements for citation in statement.citations)

    @property
    def uncited(self) -> tuple[Citation, ...]:
        """The sources that statements rest on and do not cite."""
        return tuple(citation for statement in self.statements for citation in statement.uncited)

    def to_records(self) -> list[dict[str, Any]]:
        """A dict for each citation, and for each source that was used and not cited."""
        found = [(c, True) for c in self.citations] + [(c, False) for c in self.uncited]
        return [{**dataclasses.asdict(citation), "cited": cited} for citation, cited in found]

    def to_frame(self) -> pd.DataFrame:
        """The same as a table."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install 'c2fa[frame]'") from error
        return pd.DataFrame(self.to_records())

    def to_json(self, indent: int | None = None) -> str:
        """Statements with what they cite and what they should, as JSON."""
        told = {"query": self.query, "answer": self.answer, "queries": self.queries, "unit": self.unit}
        statements = [dataclasses.asdict(statement) for statement in self.statements]
        return json.dumps({**told, "statements": statements}, indent=indent, ensure_ascii=False, default=str)

    def to_text(self, width: int = 100) -> str:
        """The statements, each with its citations and their verdicts."""
        lines = [f"{len(self.citations)} citations, {self.queries} rows"]
        for k, statement in enumerate(self.statements, start=1):
            lines += textwrap.wrap(f"[{k}] {statement.text}", width, subsequent_indent="    ")
            told = [f"{c.source}: {c.told(self.unit)}" for c in statement.citations] or ["cites nothing"]
            told += [f"{c.source}, not cited: {c.told(self.unit)}" for c in statement.uncited]
            for line in told:
                lines += textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="      ")
        return "\n".join(lines)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """One page that needs nothing else; it is returned, and written where a path is given."""
        text = _page([self])
        if path is not None:
            with atomic(path) as file:
                file.write(text.encode())
        return text

    def __str__(self) -> str:
        return self.to_text()


@dataclass(frozen=True)
class Share:
    """So many of so many, with Wilson's interval of 95 %.

    >>> Share(8, 10).interval
    (0.49, 0.943)
    """

    count: int
    of: int

    @property
    def value(self) -> float:
        """The share, NaN of none."""
        return self.count / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Where the share of many more would be, 95 times in 100."""
        z, n = 1.96, self.of
        if not n:
            return 0.0, 1.0
        middle, half = (
            self.value + z * z / (2 * n),
            z * math.sqrt(self.value * (1 - self.value) / n + (z / (2 * n)) ** 2),
        )
        low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
        return round(max(low, 0.0), 3), round(min(high, 1.0), 3)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.count} of {self.of}" + (f" ({self.value:.0%}, {low:.0%} to {high:.0%})" if self.of else "")


class Verifications(tuple[Verification, ...]):
    """The verified answers to many questions, with scores over all of them."""

    @property
    def used(self) -> Share:
        """Of the citations that are settled, those that their statement rests on, alone or as one of several."""
        settled = [c for v in self for c in v.citations if c.verdict != "not settled"]
        return Share(sum(citation.matters for citation in settled), len(settled))

    @property
    def supported(self) -> Share:
        """Of the statements, those that cite a source that they rest on."""
        statements = [statement for v in self for statement in v.statements]
        return Share(sum(statement.supported for statement in statements), len(statements))

    def to_frame(self) -> pd.DataFrame:
        """All citations as one table, with the number of the answer."""
        import pandas as pd

        return pd.concat([v.to_frame().assign(answer=k) for k, v in enumerate(self)], ignore_index=True)

    def to_text(self) -> str:
        """The scores."""
        return f"citations used: {self.used}\nstatements supported: {self.supported}"

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """All answers on one page, below their scores."""
        text = _page(self, self.to_text())
        if path is not None:
            with atomic(path) as file:
                file.write(text.encode())
        return text


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


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.25rem}li{margin:.75rem 0}p{margin:.25rem 0;overflow-wrap:anywhere}.quiet{color:#4d5660}
b.v{display:inline-block;min-width:8.5rem;padding:0 .5rem;margin-right:.5rem;border-radius:.25rem;border:1px solid}
.used{background:#dbf0f7;color:#0b4a63}.not-used{background:#fbe3e0;color:#8a1c14}.against{background:#8a1c14;color:#fff}
.one-of-several{background:#e6e9fb;color:#27307a}.known-without{background:#f2ecd4;color:#5d4a05}
.not-settled{background:#eceff2;color:#3a424a}
@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e9ec}.quiet{color:#a8b0b8}}
"""


def _page(found: Sequence[Verification], scores: str = "") -> str:
    """A page of verified answers; text from answers and documents stays text."""

    def line(c: Citation, unit: str, cited: str) -> str:
        said = c.told(unit).removeprefix(f"{c.verdict}: ")
        passage = f"<p class='quiet' dir='auto'>“{escape(c.passage)}”</p>" if c.passage else ""
        return (
            f"<p><b class='v {c.verdict.replace(' ', '-')}'>{c.verdict}</b><b dir='auto'>{escape(c.source)}</b>{cited} "
            f"<span class='quiet'>{escape(said)}</span></p>{passage}"
        )

    parts = [f"<p>{escape(part)}</p>" for part in scores.splitlines()]
    for v in found:
        parts.append(f"<h1 dir='auto'>{escape(v.query)}</h1><p class='quiet'>{v.queries} rows</p><ol>")
        for statement in v.statements:
            lines = [line(c, v.unit, "") for c in statement.citations] or ["<p class='quiet'>cites nothing</p>"]
            lines += [line(c, v.unit, ", not cited") for c in statement.uncited]
            parts.append(f"<li><span dir='auto'>{escape(statement.text)}</span>{''.join(lines)}</li>")
        parts.append("</ol>")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Were the sources used?</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )
