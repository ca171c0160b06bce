"""Planted citations, whose truth is known, and what ``verify`` says of them: ``python -m benchmarks.cite.planted``.

    python -m benchmarks.cite.planted --model hf:FOLDER --device cuda --items 60

Of each question of Natural Questions among passages of others, the model writes an answer with the passages and one
without any. Where only the first holds what is to be answered, it must rest on the passage that says so:

====== =============================================================================================================
plant  the citations and their truth
====== =============================================================================================================
right  that passage is "used", every other is "not used"
twice  the passage stands there a second time, in the place of another: both are "one of several"
known  the first sentence of the answer without any passage, with all passages: each is "known without"
====== =============================================================================================================

The AUROC is that of used against not used by what ``verify`` saw removing do (``Citation.effect``), beside that of a
string match: the share of the statement's words that the passage holds. A judge, or a model of textual entailment,
would be asked whether the passage says the statement; either reads the same texts as the string match, and none is run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cite.command import flags, model
from benchmarks.cite.items import Item, load
from benchmarks.cite.rows import message

import c2fa
from c2fa.citing.verdicts import Share
from c2fa.metrics import auroc


@dataclass(frozen=True)
class Plant:
    """A statement with all its citations, and the truth of each, by the name of the passage."""

    kind: str
    item: Item
    documents: dict[str, str]
    statement: str
    truth: dict[str, str]


def plants(lm: Any, items: Sequence[Item]) -> Iterator[Plant]:
    """What can be planted with the answers that the model writes."""

    def written(documents: dict[str, str], query: str) -> str:
        text = message(documents, query)
        return first_sentence(
            lm.generate(lm.template([{"role": "user", "content": text}]) if hasattr(lm, "template") else text)
        )

    for item in items:
        documents = dict(item.documents)
        answer, before = written(documents, item.query), written({}, item.query)
        if before:
            yield Plant("known", item, documents, before, dict.fromkeys(documents, "known without"))
        right, known = (any(text.lower() in said.lower() for text in item.evidence) for said in (answer, before))
        if right and not known:
            truth = {name: "used" if name == item.source else "not used" for name in documents}
            yield Plant("right", item, documents, answer, truth)
            other = next(name for name in documents if name != item.source)
            twice = {**documents, other: documents[item.source]}
            several = {name: "one of several" if name in (other, item.source) else "not used" for name in documents}
            yield Plant("twice", item, twice, answer, several)


def first_sentence(text: str) -> str:
    """The first sentence of an answer, or all of it where it has no end.

    >>> first_sentence("It was Dr. No, in 1962. He laughed.")
    'It was Dr. No, in 1962.'
    """
    found = re.match(r"\s*(.{12,}?[.!?])(?=\s|$)", text, re.DOTALL)
    return (found[1] if found else text).strip()


def overlap(statement: str, text: str) -> float:
    """The share of a statement's words that a text holds."""
    words, there = (set(re.findall(r"\w+", t.lower())) for t in (statement, text))
    return len(words & there) / len(words) if words else 0.0


def lines(lm: Any, items: Sequence[Item], rows: int) -> Iterator[str]:
    """The tables, once all plants are verified."""
    verdicts: Counter[tuple[str, str, str]] = Counter()
    effects: list[tuple[bool, float, float]] = []
    most = 0
    for plant in plants(lm, items):
        given = [(plant.statement, name) for name in plant.documents]
        v = c2fa.verify(lm, plant.documents, plant.item.query, plant.statement, given, budget=rows)
        most = max(most, v.queries)
        for citation in {c.source: c for c in v.citations}.values():
            truth = plant.truth[citation.source]
            verdicts[plant.kind, truth, citation.verdict] += 1
            if plant.kind != "known":
                match = overlap(plant.statement, plant.documents[citation.source])
                effects.append((truth != "not used", citation.effect, match))
    labels = [used for used, _, _ in effects]
    if len(set(labels)) == 2:
        counts = f"{sum(labels)} and {len(labels) - sum(labels)} citations"
        yield f"AUROC of used against not used, {counts}, {most} rows at most"
        yield f"  verify {auroc([effect for _, effect, _ in effects], labels):.3f}"
        yield f"  string match {auroc([match for _, _, match in effects], labels):.3f}"
    for kind, truth in sorted({key[:2] for key in verdicts}):
        found = {verdict: n for (k, t, verdict), n in verdicts.items() if (k, t) == (kind, truth)}
        share = Share(found.get(truth, 0), sum(found.values()))
        others = ", ".join(f"{verdict} {n}" for verdict, n in sorted(found.items()) if verdict != truth)
        yield f"{kind}: {truth!r} right {share}" + (f"; else {others}" if others else "")


if __name__ == "__main__":
    parser = flags()
    parser.set_defaults(families=("nq5",), rows=(48,), items=60)
    given = parser.parse_args()
    for line in lines(model(given), load(given.data, given.families, given.half, given.items), given.rows[0]):
        print(line, flush=True)
