"""One item explained in every way and scored: what a worker does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from benchmarks.cite import recipes, reference
from benchmarks.cite.items import Item
from benchmarks.cite.recipes import Recipe
from benchmarks.cite.rivals import ContextCite, HierarchicalLeaveOneOut
from benchmarks.cite.rows import LEVELS, WORDS, Context, Noting, Rows

import c2fa
from c2fa import metrics
from c2fa.asking.driver import Job, drive
from c2fa.asking.fingerprint import Identity
from c2fa.asking.masking import Masked
from c2fa.asking.querying import Cache
from c2fa.citing import Question
from c2fa.structure import BoolArray, FloatArray, IntArray

CONTEXT_CITE: Mapping[str, Any] = {"method": ContextCite(), "link": "logit"}  # its authors fit log-odds
METHODS: Mapping[str, Mapping[str, Any] | Recipe] = {
    "owen": {"method": "owen"},
    "c2fa": {"method": "c2fa"},
    "context-cite": CONTEXT_CITE,
    "leave-one-out": {"method": "leave-one-out"},
    "hierarchical-leave-one-out": {"method": HierarchicalLeaveOneOut()},
    "arc-jsd": recipes.arc_jsd,
    "camab": recipes.camab,
}
"""Options of ``cite``, or a recipe of its own."""
ADAPTIVE = ("hierarchical-leave-one-out", "camab")
WITH_INTERVALS = ("owen", "c2fa")
Row: TypeAlias = tuple[str, int, int, str, float | None]
"""Method, rows, seed, metric, value."""


@dataclass(frozen=True)
class Settings:
    """What is done with every item."""

    rows: tuple[int, ...] = (16, 32, 64, 128)
    seeds: int = 1
    parts: tuple[str, ...] = ("sentences",)
    reference: int = 1024  # rows of each level, of the part "intervals"
    methods: tuple[str, ...] = tuple(METHODS)
    fresh: int = 64  # masks of each level that explanations are scored on

    @property
    def levels(self) -> tuple[str, ...]:
        """What contexts are cut into."""
        return WORDS if "words" in self.parts else LEVELS


@dataclass(frozen=True, eq=False)
class Case:
    """The rows of an item, and its documents cut into parts."""

    rows: Rows
    masked: Masked

    def tokens(self, batch: Sequence[Mapping[str, str]]) -> FloatArray:
        """The log-probabilities of the answer's tokens, (rows, tokens), given what is left of the documents."""
        return self.rows.at(self.rows.context.masks([" ".join(documents.values()) for documents in batch]))

    def __call__(self, batch: Sequence[Mapping[str, str]]) -> FloatArray:
        """The model that metrics ask: documents to the answer's log-probability."""
        total: FloatArray = self.tokens(batch).sum(axis=1)
        return total

    def outputs(self, masks: BoolArray, level: int) -> FloatArray:
        """The answer's log-probability under masks of a level."""
        return self(self.masked.inputs(masks, level))

    def can_be_asked(self, mask: BoolArray) -> bool:
        """Whether a mask of sentences is known, or there is a model to ask."""
        key = self.rows.key(self.rows.context.masks([" ".join(self.masked.inputs(mask[None], 1)[0].values())])[0])
        return self.rows.lm is not None or key in self.rows.known

    def measured(self, metric: Any) -> float | None:
        """The value of a metric that asks the model; None where it has none."""
        value = float(metrics.measure(metric, self.masked, self, batch_size=self.rows.batch_size))
        return None if np.isnan(value) else value

    def explained(self, budget: int, seed: int, **options: Any) -> c2fa.Explanation:
        """What ``cite`` says of the answer, from masks that depend on the item and the seed alone."""
        context = self.rows.context
        explainer = c2fa.Citer(self.rows, budget=budget, seed=seed, **options).explainer
        question = Question(context.documents, context.name, context.answer)
        masked = explainer.masker(question)
        queries = explainer.queries(question, masked, cache=Cache(masked, identity=Identity(context.number)))
        job = Job(explainer.conversation(masked, queries), queries)
        [job] = drive([job], explainer.model, batch_size=self.rows.batch_size)
        return job.result()

    def values(self, method: str, budget: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """What a method says of documents and of sentences."""
        how, s = METHODS[method], self.masked.structure
        if not callable(how):
            e = self.explained(budget, seed, **how)
            return e.high, e.low
        rng = np.random.default_rng((self.rows.context.number, seed))
        low = how(lambda masks: self.tokens(self.masked.inputs(masks, 1)), s.leaves, budget, rng)
        return s.sums(low, 0), low

    def fresh(self, level: int, count: int) -> BoolArray:
        """The masks that all explanations are scored on."""
        return metrics.held_out(self.masked.structure.widths[level], count, self.rows.context.number + level)


def score_item(
    lm: Any, context: Context, item: Item | None, known: Mapping[bytes, Any], settings: Sequence[Settings]
) -> tuple[dict[str, Any], Context, dict[bytes, IntArray]]:
    """Explain an item's answer in every way, and score what comes out; without a model, from the rows that are known.

    What is returned are the scores, whose they are, and the rows that were asked.
    """
    rows = Rows(context, known, lm, item)
    case = Case(rows, context.masked())
    scores = [row for some in settings for part in some.parts for row in PARTS[part](case, some)]
    ends = case.outputs(_ends(case.masked.structure.leaves), 1)
    record = {
        "item": context.name,
        "family": context.family,
        "answer": context.answer,
        "tokens": len(context.pieces),
        "widths": list(case.masked.structure.widths),
        "with_documents": float(ends[0]),
        "without": float(ends[1]),
        "rows": len(rows.known),
        "scores": scores,
    }
    return record, context, rows.new


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
    noting = Noting(case.rows.context)
    noted = replace(case, rows=noting)
    noted.outputs(np.concatenate([_ends(s.leaves), case.fresh(1, settings.fresh), one_out]), 1)
    if s.widths[0] > 1:
        noted.outputs(case.fresh(0, settings.fresh), 0)
    for name, budget, seed in cells:
        if name not in ADAPTIVE:
            noted.values(name, budget, seed)
    case.rows.at(np.array(noting.masks))
    values = {cell: case.values(*cell) for cell in cells}
    if case.rows.lm is not None:
        case.outputs(np.array([_without_top(low, 3) for _, low in values.values()]), 1)
    return [
        (*cell, name, value)
        for cell, of_cell in values.items()
        for name, value in _scores(case, *of_cell, settings).items()
    ]


def _rows(case: Case, settings: Settings) -> list[Row]:
    """The rows of methods alone, as of a model that scouts for another."""
    for name in settings.methods:
        for seed in range(settings.seeds):
            for budget in settings.rows:
                case.values(name, budget, seed)
    return []


def _scores(case: Case, high: FloatArray, low: FloatArray, settings: Settings) -> dict[str, float | None]:
    s, context = case.masked.structure, case.rows.context
    documents, sentences = np.zeros(s.widths[0]), np.zeros(s.leaves)
    documents[context.source], sentences[list(context.evidence)] = 1.0, 1.0
    found = {"lds of sentences": case.measured(metrics.lds(low, case.fresh(1, settings.fresh), 1))}
    if len(documents) > 1:
        found["lds of documents"] = case.measured(metrics.lds(high, case.fresh(0, settings.fresh), 0))
        found["recall of the document"] = metrics.evidence_recall(high, documents, 1)
    for k in (1, 3):
        # Which three depends on the values: a file has such rows only of the values that were recorded.
        if case.can_be_asked(_without_top(low, k)):
            found[f"top{k} drop"] = case.measured(metrics.topk_drop(low, k))
        if sentences.any():
            found[f"top{k} recall"] = metrics.evidence_recall(low, sentences, k)
    return found


def _without_top(values: FloatArray, k: int) -> BoolArray:
    mask = np.ones(len(values), dtype=np.bool_)
    mask[np.argsort(-values, kind="stable")[:k]] = False
    return mask


def _intervals(case: Case, settings: Settings) -> list[Row]:
    """How often the 90 % intervals of sentences and documents hold a reference from rows of its own."""
    s = case.masked.structure
    number = case.rows.context.number
    masks = [reference.masks(width, settings.reference, number) for width in s.widths]
    joined = reference.joining(s, settings.reference, number)
    case.outputs(np.concatenate([s.expand(masks[0], 0), masks[1], joined.masks]), 1)  # all in one call
    outputs = [case.outputs(of_level, k) for k, of_level in enumerate(masks)]
    documents, sentences = (reference.Reference.of(*rows) for rows in zip(masks, outputs, strict=True))
    owen = joined.values(case.outputs(joined.masks, 1))
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
                e = case.explained(budget, seed, method=name)
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
    words = replace(case, masked=case.rows.context.masked(WORDS))
    s = words.masked.structure
    inside = np.isin(s.parents[-1], _needed(case))
    fresh = np.ones((settings.fresh, s.leaves), dtype=np.bool_)
    fresh[:, inside] = metrics.held_out(int(inside.sum()), settings.fresh, case.rows.context.number)
    rows: list[Row] = []
    for name, options in {"c2fa-focused": {}, "context-cite": CONTEXT_CITE}.items():
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
    return np.argsort(case.outputs(one_out, 1), kind="stable")[:2]


PARTS: Mapping[str, Callable[[Case, Settings], list[Row]]] = {
    "sentences": _sentences,
    "intervals": _intervals,
    "words": _words,
    "rows": _rows,
}
"""What is measured of an item, each part from the same rows."""
