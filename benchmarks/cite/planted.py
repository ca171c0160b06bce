"""Planted citations, whose truth is known, and what ``verify`` says of them: ``python -m benchmarks.cite.planted``.

    python -m benchmarks.cite.planted --model hf:FOLDER --device cuda --record planted.xz
    python -m benchmarks.cite.planted --frozen planted.xz  # the same from rows that were recorded, without a model

A statement is the first sentence of what the model writes, and all five passages are given as its sources:

====== =============================================================================================================
plant  the citations and their truth
====== =============================================================================================================
right  a question of Natural Questions: the passage that answers it is "used", each of the four others "not used"
twice  the same, with the passage a second time in the place of another: both are "one of several"
known  a question that the model answers without any passage, and five passages that do not: each is "known without"
====== =============================================================================================================

That a plant's truth is true of this model is seen from what it writes, and never from the log-probabilities that
``verify`` goes by. *right* and *twice*: it writes the answer with all passages, and without each of the others, and
does not without the one that answers, nor without any. *twice*: it also writes it with the second copy alone. *known*:
it writes the answer without any passage and with all five. A question that fails is not planted; where a passage that
says the same is among the passages, a model that knew may use it all the same, so that this is no plant.

The AUROC is that of used against not used by what ``verify`` saw removing do (``Citation.effect``), beside that of a
string match: the share of the statement's words that the passage holds. A judge, or a model of textual entailment,
would be asked whether the passage says the statement; either reads the same texts as the string match, and none is run.
Thresholds are chosen on ``--half first``.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from benchmarks.cite.asking import write_answers
from benchmarks.cite.command import flags, model
from benchmarks.cite.items import HALVES, Item, load
from benchmarks.cite.rows import Context, Record, Rows, message

import c2fa
from c2fa.citing.verdicts import Share
from c2fa.metrics import auroc

FACTS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Italy?": "Rome",
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Russia?": "Moscow",
    "What is the capital of England?": "London",
    "What is the capital of Egypt?": "Cairo",
    "What is the capital of China?": "Beijing",
    "What is the capital of Greece?": "Athens",
    "What is the capital of Austria?": "Vienna",
    "What is the capital of Portugal?": "Lisbon",
    "Which planet do we live on?": "Earth",
    "Which planet is the largest of the solar system?": "Jupiter",
    "Which planet is known as the red planet?": "Mars",
    "What is the chemical formula of water?": "H2O",
    "What is the chemical symbol of gold?": "Au",
    "Which gas do plants take from the air for photosynthesis?": "carbon dioxide",
    "Which gas do people need to breathe?": "oxygen",
    "How many days does a week have?": "seven",
    "How many legs does a spider have?": "eight",
    "How many continents are there on Earth?": "seven",
    "Who wrote Romeo and Juliet?": "Shakespeare",
    "Who painted the Mona Lisa?": "Leonardo da Vinci",
    "Who developed the theory of general relativity?": "Einstein",
    "Who was the first president of the United States?": "Washington",
    "Who was the first man to walk on the Moon?": "Armstrong",
    "Which ocean is the largest on Earth?": "Pacific",
    "Which mountain is the highest on Earth?": "Everest",
    "Which language do most people in Brazil speak?": "Portuguese",
    "Which language do most people in Mexico speak?": "Spanish",
    "At how many degrees Celsius does water boil at sea level?": "100",
    "Which organ pumps blood through the human body?": "heart",
    "Which animal is known as the king of the jungle?": "lion",
    "What is the currency of Japan?": "yen",
    "What is the currency of the United Kingdom?": "pound",
    "What is the longest river in Africa?": "Nile",
    "Which star is closest to the Earth?": "Sun",
    "What do bees make from nectar?": "honey",
    "In which country are the pyramids of Giza?": "Egypt",
}


@dataclass(frozen=True)
class Plant:
    """A statement with passages that are all cited, and the truth of each."""

    kind: str
    item: Item
    statement: str
    truth: tuple[str, ...]


def plants(lm: Any, items: Sequence[Item], facts: Mapping[str, str] = FACTS) -> Iterator[Plant]:
    """What can be planted with what the model writes."""
    template = getattr(lm, "template", None)

    def written(asked: Sequence[tuple[Mapping[str, str], str]]) -> list[str]:
        texts = [message(documents, query) for documents, query in asked]
        prompts = texts if template is None else [template([{"role": "user", "content": text}]) for text in texts]
        return [first_sentence(text) for text in write_answers(lm, prompts)]

    copies = [_with_copy(item) for item in items]
    ways: list[tuple[Mapping[str, str], str]] = []
    for item, (twice, _) in zip(items, copies, strict=True):
        whole = item.documents
        ways += [(whole, item.query), ({}, item.query), (_without(twice, item.source), item.query)]
        ways += [(_without(whole, name), item.query) for name in whole]
    answers = iter(written(ways))
    for item, (twice, other) in zip(items, copies, strict=True):
        statement, before, of_copy = next(answers), next(answers), next(answers)
        left = {name: _says(next(answers), item.evidence) for name in item.documents}
        needed = not left.pop(item.source) and not _says(before, item.evidence)
        if not (needed and _says(statement, item.evidence) and all(left.values())):
            continue
        truth = ["used" if name == item.source else "not used" for name in item.documents]
        yield Plant("right", item, statement, tuple(truth))
        if _says(of_copy, item.evidence):
            truth = ["one of several" if name in (other, item.source) else "not used" for name in twice]
            yield Plant("twice", replace(item, documents=twice), statement, tuple(truth))
    asked = [_about(query, answer, items) for query, answer in facts.items()]
    answers = iter(written([way for item in asked for way in (({}, item.query), (item.documents, item.query))]))
    for item in asked:
        statement, with_passages = next(answers), next(answers)
        if _says(statement, item.evidence) and _says(with_passages, item.evidence):
            yield Plant("known", item, statement, ("known without",) * len(item.documents))


def _with_copy(item: Item) -> tuple[dict[str, str], str]:
    """The passages with the one that answers in the place of another, too, and the name of that other."""
    other = next(name for name in item.documents if name != item.source)
    return {**item.documents, other: item.documents[item.source]}, other


def _without(documents: Mapping[str, str], name: str) -> dict[str, str]:
    return {each: text for each, text in documents.items() if each != name}


def _about(query: str, answer: str, items: Sequence[Item]) -> Item:
    """A question with passages of others, none of which holds its answer."""
    name = f"fact {list(FACTS).index(query) if query in FACTS else query}"
    item = Item(name, "facts", {}, query, "", [answer])
    rng = np.random.default_rng(item.number)
    documents: dict[str, str] = {}
    for i in rng.permutation(len(items)):
        title = items[i].source
        text = items[i].documents[title]
        if answer.lower() not in text.lower() and len(documents) < len(items[0].documents):
            documents[title] = text
    return replace(item, documents=documents, source=next(iter(documents)))


def _says(text: str, answers: Sequence[str]) -> bool:
    """Whether a text holds one of some answers, as words."""
    return any(re.search(rf"\b{re.escape(answer)}\b", text, re.IGNORECASE) for answer in answers)


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


def recorded(lm: Any, planted: Plant, rows: int, record: Record) -> None:
    """Verify a plant once, and keep its rows with those of all masks of its passages, and its truth."""
    item = planted.item
    item = replace(item, name=f"{planted.kind} {item.name}")
    context = Context.of(item, planted.statement, lm.pieces(planted.statement))
    asked = Rows(context, lm=lm, item=item)
    verified(asked, rows)
    structure = context.masked().structure
    every = np.array(list(product([False, True], repeat=structure.widths[0])))
    asked.at(structure.expand(every, 0))
    matches = [overlap(planted.statement, text) for text in item.documents.values()]
    record.add(context, asked.new, {"kind": planted.kind, "truth": planted.truth, "matches": matches})


def verified(rows: Rows, budget: int) -> c2fa.Verification:
    """What ``verify`` says where all passages are cited."""
    context = rows.context
    given = [(context.answer, name) for name in context.documents]
    return c2fa.verify(rows, context.documents, context.name, context.answer, given, budget=budget)


def lines(record: Record, rows: int) -> Iterator[str]:
    """The tables of all plants of a file."""
    verdicts: Counter[tuple[str, str, str]] = Counter()
    effects: list[tuple[bool, float, float]] = []
    most = 0
    for one in record.contexts.values():
        [told] = one.settings
        v = verified(Rows(one.context, one.rows), rows)
        most = max(most, v.queries)
        of_source = {citation.source: citation for citation in v.citations}
        for name, truth, match in zip(one.context.documents, told["truth"], told["matches"], strict=True):
            verdicts[told["kind"], truth, of_source[name].verdict] += 1
            if told["kind"] != "known":
                effects.append((truth != "not used", of_source[name].effect, match))
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Record what is planted, where there is a model, and print the tables."""
    parser = flags()
    parser.set_defaults(families=("nq5",), rows=(48,), items=80)
    given = parser.parse_args(arguments)
    for path in given.frozen or [given.record]:
        record = Record(path)
        if given.frozen is None:
            lm, side = model(given), HALVES.index(given.half)
            items = load(given.data, given.families, "second", 2 * given.items)[side::2]
            record.begin({"model": given.model, "half": given.half, "planted": given.families})
            end = time.monotonic() + given.seconds
            for planted in plants(lm, items, dict(list(FACTS.items())[side::2])):
                if f"{planted.kind} {planted.item.name}" not in record.contexts and time.monotonic() < end:
                    recorded(lm, planted, given.rows[0], record)
        print(path, *(f"{name} {value}" for name, value in record.about.items()))
        for line in lines(record, given.rows[0]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
