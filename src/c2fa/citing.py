"""Which source made a language model say this: an answer's log-probability, attributed to documents and sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from c2fa.driver import Job, drive
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.fingerprint import fingerprint
from c2fa.maskers import Text
from c2fa.maskers._words import sentence_starts
from c2fa.masking import Masked
from c2fa.model import ModelProxy, describe
from c2fa.querying import Ask, Conversation, Queries
from c2fa.structure import FloatArray, IntArray

PROMPT = "Context: {context}\n\nQuery: {query}"
Documents: TypeAlias = str | Mapping[str, str] | Sequence[str | Mapping[str, str]]
Prompt: TypeAlias = str | Callable[[str, str], str]


class LanguageModel(Protocol):
    """What can write an answer and say how likely a given one is, as ``c2fa.models.CausalLM``."""

    def generate(self, prompt: str, /) -> str:
        """The answer that the model gives to a prompt."""
        ...

    def pieces(self, answer: str, /) -> list[str]:
        """The pieces of an answer; they join to it."""
        ...

    def score(self, prompts: Sequence[str], answer: str, /) -> Any:
        """The log-probability of each piece of an answer after each prompt, (n, pieces)."""
        ...


def cite(
    lm: LanguageModel,
    documents: Documents,
    query: str,
    answer: str | None = None,
    *,
    levels: Sequence[str] = ("documents", "sentences"),
    budget: int = 64,
    prompt: Prompt = PROMPT,
    system: str | None = None,
    separator: str = "\n\n",
    language: str = "en",
    **options: Any,
) -> Explanation:
    """Attribute a language model's answer to the documents that it answered from, down to their sentences or words.

    What is explained is the log-probability of the answer, in nats: how much likelier each document and sentence makes
    it. Beside the whole answer, each of its statements is an output of its own, all from the same rows. A masked
    sentence is removed, and a document of which nothing is left too; the prompt around them never changes.

    Parameters
    ----------
    lm
        ``c2fa.models.CausalLM``, a model behind a server, or any object with ``generate``, ``pieces`` and ``score``.
    documents
        A dict of names and texts, a list of texts or of ``{"id": …, "text": …}``, or one text.
    answer
        The answer to explain; None has the model write it from all documents, which is no row of the budget.
    levels
        Coarse to fine, the last being the leaves: any of ``"documents"``, ``"paragraphs"``, ``"sentences"`` and
        ``"words"``. Words are asked about only inside the sentences that are found to matter (``c2fa-focused``).
    budget
        Rows of the model; the one without any document is among them.
    prompt
        A text with ``{context}`` and ``{query}``, or a function of both; it is put into the model's own chat template
        where the model has one, with ``system`` before it.
    separator
        What stands between two documents.
    options
        Further options of ``Explainer``: ``seed``, ``ledger``, ``until``, ``method``, …

    Examples
    --------
    >>> class Parrot:
    ...     def generate(self, prompt): return "It is blue."
    ...     def pieces(self, answer): return [answer]
    ...     def score(self, prompts, answer): return [[-1.0 if "sky" in prompt else -5.0] for prompt in prompts]
    >>> c = cite(Parrot(), {"a": "The sky is blue. I was there.", "b": "Grass is green."}, "What is blue?")
    >>> c.structure.names[0], c.high.round(2)
    (('a', 'b'), array([4., 0.]))
    """
    sources = _documents(documents)
    ask = _Asking(lm, prompt, query, system, separator)
    written = answer is None
    if answer is None:
        answer = lm.generate(ask.prompt(sources))
    model = _AnswerScores(lm, ask, answer, language)
    masker = Text(levels=levels, language=language, mask=None)
    if len(masker.levels) > 1 and masker.levels[-1] == "words":  # far more than rows, and few sentences matter
        options.setdefault("method", "c2fa-focused")
    explainer = Explainer(model, masker, budget=budget - 1, target=0, outputs="all", **options)
    masked = masker(sources)
    queries = explainer.queries(sources, masked)
    explained = Job(explainer.conversation(masked, queries), queries)
    alone = Job(_without_documents(masked), Queries(queries.cache, 1))
    jobs: list[Job[Any]] = [explained, alone]
    list(drive(jobs, explainer.model, batch_size=explainer.batch_size))
    e, without = explained.result(), alone.result()
    view = {
        **e.view,
        "query": query,
        "answer": answer,
        "statements": model.statements,
        "written_by_the_model": written,
        "without_documents": without.tolist(),
    }
    return dataclasses.replace(e, view=view, queries=len(queries.cache.known))


@dataclasses.dataclass(frozen=True, eq=False)
class _Asking:
    """How documents and the query become a prompt."""

    lm: LanguageModel
    given: Prompt
    query: str
    system: str | None
    separator: str

    def __post_init__(self) -> None:
        if isinstance(self.given, str) and "{context}" not in self.given:
            raise ValueError(f"the prompt has no {{context}}, so that no document would be read: {self.given!r}")

    def prompt(self, documents: Mapping[str, str]) -> str:
        """The prompt with some documents, those of which nothing is left aside."""
        context = self.separator.join(text for text in documents.values() if text)
        if isinstance(self.given, str):
            text = self.given.replace("{query}", self.query).replace("{context}", context)
        else:
            text = self.given(context, self.query)
        template = getattr(self.lm, "template", None)
        shown = None if template is None else template(self.system, text)
        return shown or "\n\n".join(part for part in (self.system, text) if part)


class _AnswerScores(ModelProxy):
    """A model of documents: the log-probability of the answer and, where it has several, of each of its statements."""

    def __init__(self, lm: LanguageModel, ask: _Asking, answer: str, language: str) -> None:
        super().__init__(lm)
        self.lm, self.ask, self.answer = lm, ask, answer
        pieces = lm.pieces(answer)
        if not answer.strip() or not pieces:
            raise ValueError("the answer is empty, so there is nothing to attribute; give answer='…', or another query")
        if "".join(pieces) != answer:
            raise ValueError(f"the pieces of the answer do not join to it: {''.join(pieces)!r} is not {answer!r}")
        self.statements, self.owner = _statements(answer, pieces, language)

    @property
    def name(self) -> str | None:
        """The language model's, with the prompt and the answer; a ledger keeps one answer apart from another."""
        own = describe(self.lm).name
        asked = (self.ask.query, self.ask.system, self.ask.separator, self.ask.prompt({"": "{context}"}), self.answer)
        return own and f"{own}:{fingerprint(*asked)[:16]}"

    @property
    def output_names(self) -> tuple[str, ...]:
        """The whole answer, and its statements."""
        return ("answer", *self.statements) if len(self.statements) > 1 else ("answer",)

    def __call__(self, batch: Sequence[Mapping[str, str]]) -> FloatArray:
        prompts = [self.ask.prompt(documents) for documents in batch]
        scores = np.asarray(self.lm.score(prompts, self.answer), dtype=np.float64)
        if scores.shape != (len(prompts), len(self.owner)):
            raise ValueError(
                f"score gave an array of shape {scores.shape} for {len(prompts)} prompts and an answer of "
                f"{len(self.owner)} pieces; it must give one log-probability for each"
            )
        columns = [scores.sum(axis=1)]
        if len(self.statements) > 1:
            columns += [scores[:, self.owner == k].sum(axis=1) for k in range(len(self.statements))]
        outputs: FloatArray = np.column_stack(columns)
        return outputs


def _without_documents(masked: Masked) -> Conversation[FloatArray]:
    """Ask with no document at all: what the model knows by itself."""
    structure = masked.structure
    answer = yield Ask(structure.depth - 1, np.zeros((1, structure.leaves), dtype=np.bool_))
    outputs: FloatArray = answer.outputs[0]
    return outputs


def _statements(answer: str, pieces: Sequence[str], language: str) -> tuple[list[str], IntArray]:
    """The sentences of an answer, and which of them each piece belongs to: the one that holds its first letter."""
    starts = sorted({0, *sentence_starts(answer, language)})
    begins = np.cumsum([0, *map(len, pieces[:-1])])
    letters = begins + [len(piece) - len(piece.lstrip()) for piece in pieces]
    owner = np.searchsorted(starts, np.minimum(letters, len(answer) - 1), side="right") - 1
    used, owner = np.unique(owner, return_inverse=True)
    ends = [*starts[1:], len(answer)]
    return [answer[starts[k] : ends[k]].strip() for k in used], owner


def _documents(given: Documents) -> dict[str, str]:
    """Names and texts, or a sentence about what is wrong with them."""
    if isinstance(given, Mapping):
        pairs: list[tuple[str, Any]] = [(str(name), text) for name, text in given.items()]
    else:
        items = [given] if isinstance(given, str) else list(given)
        pairs = [_named(item, f"document {k + 1}") for k, item in enumerate(items)]
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError(f"two documents have one id among {[name for name, _ in pairs]}; give each its own")
    if not named:
        raise ValueError("there are no documents; give at least one")
    for name, text in named.items():
        if not isinstance(text, str):
            raise TypeError(f"document {name!r} must be a text, not {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"document {name!r} is empty; leave it out")
    return named


def _named(item: str | Mapping[str, str], name: str) -> tuple[str, Any]:
    """A document's name and text."""
    return (str(item.get("id", name)), item.get("text")) if isinstance(item, Mapping) else (name, item)
