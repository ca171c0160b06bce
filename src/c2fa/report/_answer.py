"""A cited answer on a page: its statements and what they rest on, for scripts, and in plain HTML without any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from c2fa.explanation import Explanation
from c2fa.views.statements import Statement, cited_level, minuses, shown_statement, statements, whole

_ROWS = 2000  # sentences that the plain page lists


def answered(e: Explanation, columns: Sequence[int]) -> dict[str, Any] | None:
    """What the page shows above the documents of a cited answer; None for every other explanation."""
    if "statements" not in e.view:
        return None
    found = statements(e)
    told = whole(e)
    return {
        "query": str(e.view["query"]),
        "written": bool(e.view.get("written_by_the_model")),
        "level": cited_level(e),
        "least": told.least_gain,
        "unit": told.unit,
        "whole": _packed(told, columns),
        "statements": [_packed(statement, columns) for statement in found],
    }


def unsupported(e: Explanation) -> str:
    """How many statements of an answer rest on nothing, in words; empty where all have a source."""
    if "statements" not in e.view:
        return ""
    found = statements(e)
    count = sum(statement.verdict == "nothing" for statement in found)
    if len(found) == 1:
        return "rests on nothing" if count else ""
    return f"{count} of {len(found)} rest{'s' if count == 1 else ''} on nothing" if count else ""


def plain_answer(e: Explanation, key: str, block: Callable[[str], str]) -> str:
    """The answer and its documents for a page without scripts: links lead from statements to sentences and back.

    ``key`` begins every anchor, so that several answers can stand on one page; ``block`` gives a kind of paragraph
    ("told", "nothing") its attributes.
    """
    found = statements(e)
    items = "".join(_statement(k, s, key, block) for k, s in enumerate(found, start=1))
    return (
        f"<p dir='auto'><b>Query:</b> {escape(str(e.view['query']))}</p><ol>{items}</ol>"
        f"<p>What the {escape(e.level_names[0])} do for {escape(minuses(shown_statement(e)))}:</p>"
        f"{_sentences(e, found, key)}"
    )


def _packed(statement: Statement, columns: Sequence[int]) -> dict[str, Any]:
    """A statement as the page reads it; its column is null where too many were explained to keep all."""
    return {
        "text": statement.text,
        "column": columns.index(statement.output) if statement.output in columns else None,
        "verdict": statement.verdict,
        "told": minuses(statement.told),
        "sources": [
            {"at": [s.level, s.index], "document": s.document, "text": s.text, "told": minuses(s.told)}
            for s in statement.shown
        ],
    }


def _statement(k: int, statement: Statement, key: str, block: Callable[[str], str]) -> str:
    nothing = statement.verdict == "nothing"
    sources = "".join(
        f"<li><a href='#{key}-{s.level}-{s.index}' dir='auto'>{escape(s.name)}</a> {escape(minuses(s.told))}</li>"
        for s in statement.shown
    )
    return (
        f"<li id='{key}-statement-{k}'><b dir='auto'>{escape(statement.text)}</b>"
        f"<p {block('nothing' if nothing else 'told')}>{escape(minuses(statement.told))}</p>"
        + (f"<ul>{sources}</ul>" if sources else "")
        + "</li>"
    )


def _sentences(e: Explanation, found: Sequence[Statement], key: str) -> str:
    """Documents with their totals and their sentences, each with its value and the statements that rest on it."""
    level = cited_level(e)
    cited: dict[tuple[int, int], list[int]] = {}
    for k, statement in enumerate(found, start=1):
        for source in statement.shown:
            cited.setdefault((source.level, source.index), []).append(k)
    owner = np.arange(e.structure.widths[level])
    for parents in reversed(e.structure.parents[:level]):
        owner = parents[owner]
    rows = ["<tr><th scope='col'>part</th><th scope='col'>value</th><th scope='col'>cited by</th></tr>"]
    last = -1
    for i in range(min(len(owner), _ROWS)):
        if level and owner[i] != last:
            last = int(owner[i])
            rows.append(_row(e, 0, last, f"<b dir='auto'>{escape(e.names[0][last])}</b>", f"id='{key}-0-{last}'", ""))
        links = ", ".join(f"<a href='#{key}-statement-{k}'>[{k}]</a>" for k in cited.get((level, i), ()))
        name = f"<span dir='auto'>{escape(e.names[level][i])}</span>"
        rows.append(_row(e, level, i, name, f"id='{key}-{level}-{i}'", links))
    if len(owner) > _ROWS:
        rows.append(f"<tr><td colspan='3'>{len(owner) - _ROWS} more {escape(e.level_names[level])}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _row(e: Explanation, level: int, i: int, name: str, anchor: str, links: str) -> str:
    value = minuses(e.rounded.text(e.rounded.values[level][i]))
    if e.stderr is not None:
        value += f" ± {e.rounded.plain(e.stderr[level][i])}"
    return f"<tr {anchor}><th scope='row'>{name}</th><td>{value}</td><td>{links}</td></tr>"
