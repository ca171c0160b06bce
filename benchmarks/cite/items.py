"""Questions with their documents, and what is known of where the answer stands."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

HALVES = ("first", "second")
_SENTENCES = range(5, 41)  # of a paragraph of QED; with fewer, every method soon asks all there is to ask


@dataclass(frozen=True)
class Item:
    """A question, its documents, and the evidence: a document, and texts of which one is in a sentence that answers."""

    name: str
    family: str
    documents: Mapping[str, str]
    query: str
    source: str
    evidence: Sequence[str]

    @property
    def number(self) -> int:
        """A number of its own, the same in every process."""
        return crc32(self.name.encode())


def load(folder: Path, families: Sequence[str], half: str, count: int) -> list[Item]:
    """The first so many items of each family, in an order that is drawn once and for all."""
    qed = _read(folder / "qed_dev.jsonl.xz")
    middle = len(qed) // 2
    halves = {"first": qed[:middle], "second": qed[middle:]}
    [other] = [halves[name] for name in HALVES if name != half]
    elsewhere = {row["question_text"] for row in other}
    found = []
    for family in families:
        if family == "qed":
            items = _qed(halves[half])
        else:
            items = _nq(_read(folder / "nq_open_oracle.jsonl.gz"), int(family.removeprefix("nq")), elsewhere)
        found += _first(items, count)
    return found


def _first(items: Iterator[Item], count: int) -> list[Item]:
    return [item for item, _ in zip(items, range(count), strict=False)]


def _read(path: Path) -> list[dict[str, Any]]:
    opened = lzma.open if path.suffix == ".xz" else gzip.open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _shuffled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def _qed(rows: Sequence[dict[str, Any]]) -> Iterator[Item]:
    for row in _shuffled(rows):
        sentence = row["annotation"].get("selected_sentence")
        if sentence and len(row["sentence_starts"]) in _SENTENCES:
            text, title = row["paragraph_text"], row["title_text"]
            yield Item(
                f"qed {row['example_id']}", "qed", {title: text}, row["question_text"], title, [sentence["string"]]
            )


def _nq(rows: Sequence[dict[str, Any]], size: int, elsewhere: set[str]) -> Iterator[Item]:
    rows = _shuffled([row for row in rows if row["question"] not in elsewhere])
    for i, row in enumerate(rows):
        rng = np.random.default_rng((size, i))
        answers = [answer.lower() for answer in row["answers"]]
        gold = row["ctxs"][0]
        passages = {gold["title"]: gold["text"]}
        while len(passages) < size:  # other questions' passages: with other titles, and without the answer
            other = rows[int(rng.integers(len(rows)))]["ctxs"][0]
            if not any(answer in other["text"].lower() for answer in answers):
                passages.setdefault(other["title"], other["text"])
        titles = [list(passages)[k] for k in rng.permutation(size)]
        documents = {title: passages[title] for title in titles}
        yield Item(f"nq{size} {i}", f"nq{size}", documents, row["question"], gold["title"], row["answers"])
