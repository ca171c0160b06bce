"""One item explained in every way and scored: what a worker does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from benchmarks.cite import reference
from benchmarks.cite.asking import ROWS_AT_ONCE, Noting, Remembering
from benchmarks.cite.items import Item

import c2fa
from c2fa import metrics
from c2fa.asking.masking import Masked
from c2fa.structure import BoolArray, FloatArray, IntArray

LEVELS = ("documents", "sentences")
WORDS = (*LEVELS, "words")
MASKS = 100  # fresh ones, of each level
METHODS: Mapping[str, Mapping[str, Any]] = {
    "owen": {"method": "owen"},
    "c2fa": {"method": "c2fa"},
    "context-cite": {"method": "context-cite"},
    "leave-one-out": {"method": "leave-one-out"},
    "hierarchical-leave-one-out": {"method": "hierarchical-leave-one-out"},
}
ADAPTIVE = "hierarchical-leave-one-out"
WITH_INTERVALS = ("owen", "c2fa")
Row: TypeAlias = tuple[str, int, int, str, float | None]
"""Method, rows, seed, metric, value."""


@dataclass(frozen=True)
class Settings:
    """What is done with every item."""

    rows: tuple[int, ...]
    seeds: int
    parts: tuple[str, ...] = ("sentences",)
    reference: int = 1024  # rows of each level, of the part "intervals"
    methods: tuple[str, ...] = tuple(METHODS)
    answers: Path | None = None  # where rows are kept


@dataclass(frozen=True, eq=False)
class Case:
    """An item with its answer, the model that remembers its rows, and its documents cut into sentences."""

    item: Item
    answer: str
    lm: Remembering | Noting
    masked: Masked

    def prompts(self, masks: BoolArray, level: int) -> list[str]:
        """The prompts of some rows."""
        return [self.lm.prompt(documents, self.item.query) for documents in self.masked.inputs(masks, level)]

    def __call__(self, batch: Sequence[Mapping[str, str]]) -> FloatArray:
        """The model that metrics ask: documents to the answer's log-probability."""
        prompts = [self.lm.prompt(documents, self.item.query) for documents in batch]
        total: FloatArray = np.asarray(self.lm.score(prompts, self.answer), dtype=np.float64).sum(axis=1)
        return total

    def measured(self, metric: Any) -> float | None:
        """The value of a metric that asks the model; None where it has none."""
        value = float(metrics.measure(metric, self.masked, self, batch_size=ROWS_AT_ONCE))
        return None if np.isnan(value) else value

    def explained(self, budget: int, seed: int, **options: Any) -> c2fa.Explanation:
        """What ``cite`` says of the answer."""
        item = self.item
        return c2fa.cite(self.lm, item.documents, item.query, self.answer, budget=budget, seed=seed, **options)

    def fresh(self, level: int) -> BoolArray:
        """The masks that all explanations are scored on."""
        return metrics.held_out(self.masked.structure.widths[level], MASKS, self.item.number + level)

    def evidence(self) -> tuple[FloatArray, FloatArray]:
        """Which documents and which sentences are the evidence."""
        s, item = self.masked.structure, self.item
        titles = list(item.documents)
        documents = np.array([float(title == item.source) for title in titles])
        sentences = np.zeros(s.leaves)
        alone = self.masked.inputs(np.eye(s.leaves, dtype=np.bool_), s.depth - 1)
        for i, left in enumerate(alone):
            text = left[item.source].strip()
            sentences[i] = bool(text) and any(_holds(text, known) for known in item.evidence)
        return documents, sentences


def _holds(sentence: str, evidence: str) -> bool:
    """Whether a sentence holds a short answer, or is the sentence that was marked, wherever either was cut."""
    evidence = evidence.strip().lower()
    return evidence in sentence.lower() or (len(sentence) > 20 and sentence.lower() in evidence)


def score_item(lm: Any, item: Item, answer: str | None, settings: Settings) -> dict[str, Any]:
    """Explain an item's answer in every way, and score what comes out; without a model, from rows that were kept."""
    file = None if settings.answers is None else settings.answers / f"{item.number:08x}.npz"
    remembering = Remembering.kept(file, lm) if file is not None and file.exists() else Remembering(lm, answer)
    answer = remembering.answer
    masked = c2fa.maskers.Text(levels=LEVELS, mask=None)(dict(item.documents))
    case = Case(item, answer, remembering, masked)
    rows = [row for part in settings.parts for row in PARTS[part](case, settings)]
    ends = case(masked.inputs(_ends(masked.structure.leaves), 1))
    if file is not None and lm is not None:
        remembering.keep(file)
    return {
        "item": item.name,
        "family": item.family,
        "answer": answer,
        "tokens": len(remembering.pieces(answer)),
        "widths": list(masked.structure.widths),
        "with_documents": float(ends[0]),
        "without": float(ends[1]),
        "rows": len(remembering.known),
        "scores": rows,
    }


def _ends(leaves: int) -> BoolArray:
    """All documents, and none."""
    return np.array([[True], [False]]).repeat(leaves, axis=1)


def _sentences(case: Case, settings: Settings) -> list[Row]:
    """Documents and sentences by every method: lds at both levels, what the top sentences cost, what they recall."""
    s = case.masked.structure
    one_out = ~np.eye(s.leaves, dtype=np.bool_)
    cells = [
        (name, rows, seed) for name in settings.methods for seed in range(settings.seeds) for rows in settings.rows
    ]
    # Many rows at a time keep a GPU busy; each method counts those that it uses all the same.
    first = np.concatenate([_ends(s.leaves), case.fresh(1), one_out])
    case.lm.score([*case.prompts(case.fresh(0), 0), *case.prompts(first, 1), *_will_ask(case, cells)], case.answer)
    explained = {cell: case.explained(cell[1], cell[2], **METHODS[cell[0]]) for cell in cells}
    tops = [_without_top(e.low, k) for e in explained.values() for k in (1, 3)]
    case.lm.score(case.prompts(np.array(tops), 1), case.answer)
    return [(*cell, name, value) for cell, e in explained.items() for name, value in _scores(case, e).items()]


def _will_ask(case: Case, cells: Sequence[tuple[str, int, int]]) -> list[str]:
    """The prompts of explanations by methods that ask the same whatever is answered."""
    noting = Noting(case.lm)
    for name, rows, seed in cells:
        if name != ADAPTIVE:
            replace(case, lm=noting).explained(rows, seed, **METHODS[name])
    return noting.prompts


def _scores(case: Case, e: c2fa.Explanation) -> dict[str, float | None]:
    documents, sentences = case.evidence()
    several = len(documents) > 1
    found = {"lds of sentences": case.measured(metrics.lds(e.low, case.fresh(1), 1))}
    if several:
        found["lds of documents"] = case.measured(metrics.lds(e.high, case.fresh(0), 0))
        found["recall of the document"] = metrics.evidence_recall(e.high, documents, 1)
    for k in (1, 3):
        found[f"top{k} drop"] = case.measured(metrics.topk_drop(e.low, k))
        if sentences.any():
            found[f"top{k} recall"] = metrics.evidence_recall(e.low, sentences, k)
    return found


def _without_top(values: FloatArray, k: int) -> BoolArray:
    mask = np.ones(len(values), dtype=np.bool_)
    mask[np.argsort(-values, kind="stable")[:k]] = False
    return mask


def _intervals(case: Case, settings: Settings) -> list[Row]:
    """How often the 90 % intervals of sentences and documents hold a reference from rows of its own."""
    s = case.masked.structure
    masks = [reference.masks(width, settings.reference, case.item.number) for width in s.widths]
    joined = reference.joining(s, settings.reference, case.item.number)
    prompts = [prompt for k, of_level in enumerate(masks) for prompt in case.prompts(of_level, k)]
    case.lm.score([*prompts, *case.prompts(joined.masks, 1)], case.answer)
    outputs = [case(case.masked.inputs(of_level, k)) for k, of_level in enumerate(masks)]
    documents, sentences = (reference.Reference.of(*rows) for rows in zip(masks, outputs, strict=True))
    owen = joined.values(case(case.masked.inputs(joined.masks, 1)))
    levels = {
        "sentences": (sentences, -1),
        "sentences, Owen values": (owen, -1),
        "documents": (documents, 0),
        "documents, as sums of sentences": (sentences.sums(s.owners(0)), 0),
    }
    if len(masks[0]) == 2 ** s.widths[0]:
        levels["documents, Shapley values"] = (reference.shapley(masks[0], outputs[0]), 0)
    rows: list[Row] = []
    for name in set(WITH_INTERVALS) & set(settings.methods):
        for seed in range(settings.seeds):
            for budget in sorted(settings.rows, reverse=True):
                e = case.explained(budget, seed, **METHODS[name])
                assert e.stderr is not None
                # The best description of all masks is then known, up to what shrinkage does.
                asked = ", all masks asked" if budget >= 2.0 ** min(s.leaves, 1000) else ""
                found = {
                    f"coverage of {level}{asked if k else ''}": known.covered(e.values[k], e.stderr[k])
                    for level, (known, k) in levels.items()
                    if k or s.widths[0] > 1
                }
                exact = sentences.covered(e.low, e.stderr[-1], exact=True)
                found[f"coverage of sentences, reference as exact{asked}"] = exact
                rows += [(name, budget, seed, metric, value) for metric, value in found.items()]
    return rows


def _words(case: Case, settings: Settings) -> list[Row]:
    """Words by ``cite`` and by ContextCite: lds inside the sentences that the answer needs, what the top words cost."""
    words = replace(case, masked=c2fa.maskers.Text(levels=WORDS, mask=None)(dict(case.item.documents)))
    s = words.masked.structure
    inside = np.isin(s.parents[-1], _needed(case))
    fresh = np.ones((MASKS, s.leaves), dtype=np.bool_)
    fresh[:, inside] = metrics.held_out(int(inside.sum()), MASKS, case.item.number)
    rows: list[Row] = []
    for name, options in {"c2fa-focused": {}, "context-cite": METHODS["context-cite"]}.items():
        for seed in range(settings.seeds):
            for budget in sorted(settings.rows, reverse=True):
                e = words.explained(budget, seed, levels=WORDS, **options)
                found = {"lds of words in needed sentences": words.measured(metrics.lds(e.low, fresh, 2))}
                for k in (1, 3, 5):
                    found[f"top{k} drop of words"] = words.measured(metrics.topk_drop(e.low, k))
                rows += [(name, budget, seed, metric, value) for metric, value in found.items()]
    return rows


def _needed(case: Case) -> IntArray:
    """The two sentences without which the answer is least likely."""
    one_out = ~np.eye(case.masked.structure.leaves, dtype=np.bool_)
    return np.argsort(case(case.masked.inputs(one_out, 1)), kind="stable")[:2]


PARTS: Mapping[str, Callable[[Case, Settings], list[Row]]] = {
    "sentences": _sentences,
    "intervals": _intervals,
    "words": _words,
}
"""What is measured of an item, each part from the same rows."""
