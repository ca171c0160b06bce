"""A question about documents, as an input: what it holds, and what the model is told when sources are masked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from c2fa.asking.masking import Inputs, Masked
from c2fa.maskers import Text
from c2fa.structure import BoolArray

PROMPT = "Context: {context}\n\nQuery: {query}"
MARK = "c2fa-puts-the-documents-here"  # no document says this, so that it shows where a prompt has them
Documents: TypeAlias = str | Mapping[str, str] | Sequence[str | Mapping[str, str]]
Prompt: TypeAlias = str | Callable[[str, str], str]


@dataclasses.dataclass(frozen=True)
class Question:
    """What a language model is asked about documents, and the answer that is to be explained.

    Parameters
    ----------
    documents
        As ``cite`` takes them; they become a dict of names and texts.
    answer
        None where the model is to write it.
    """

    documents: Documents
    query: str
    answer: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", _documents(self.documents))
        if not isinstance(self.query, str):
            raise TypeError(f"the query must be a text, not {type(self.query).__name__}")
        if self.answer is not None:
            check_answer(self.answer)

    @property
    def texts(self) -> dict[str, str]:
        """The documents by their names."""
        return cast(dict[str, str], self.documents)

    @classmethod
    def of(cls, x: Any) -> Question:
        """A question from a dict of its fields, as a line of a JSONL file has them.

        >>> Question.of({"documents": ["The sky is blue."], "query": "What is blue?"}).documents
        {'document 1': 'The sky is blue.'}
        """
        if isinstance(x, Question):
            return x
        if not isinstance(x, Mapping):
            raise TypeError(f"a question must be a dict with documents, query, answer, not {type(x).__name__}")
        missing = [name for name in ("documents", "query") if x.get(name) is None]
        if missing:
            raise ValueError(f"the question has no {missing[0]!r}; it has {', '.join(map(repr, x)) or 'nothing'}")
        return cls(x["documents"], x["query"], x.get("answer"))


def check_answer(answer: Any) -> None:
    """Refuse an answer, given or written, of which nothing can be explained."""
    if not isinstance(answer, str):
        raise TypeError(f"the answer must be a text, not {type(answer).__name__}")
    if not answer.strip():
        raise ValueError("the answer is empty, so there is nothing to attribute; give answer='…', or another query")


def _documents(given: Documents) -> dict[str, str]:
    """Names and texts, or a sentence about what is wrong with them."""
    pairs: list[tuple[str, Any]]
    if isinstance(given, Mapping):
        pairs = [(str(name), text) for name, text in given.items()]
    elif isinstance(given, Iterable):
        items = [given] if isinstance(given, str) else given
        named = [item if isinstance(item, Mapping) else {"text": item} for item in items]
        pairs = [(str(item.get("id", f"document {k}")), item.get("text")) for k, item in enumerate(named, 1)]
    else:
        raise TypeError(f"documents must be texts by their names, or a list of texts; got {given!r}")
    documents = dict(pairs)
    if len(documents) < len(pairs):
        raise ValueError(f"two documents have one id among {[name for name, _ in pairs]}; give each its own")
    if not documents:
        raise ValueError("there are no documents; give at least one")
    for name, text in documents.items():
        if not isinstance(text, str):
            raise TypeError(f"document {name!r} must be a text, not {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"document {name!r} is empty; leave it out")
    return documents


# ---------------------------------------------------------------------------------- masking


@dataclasses.dataclass(frozen=True)
class Asking:
    """How documents and the query become a message to the model, and the system's text before it."""

    prompt: Prompt = PROMPT
    system: str | None = None
    separator: str = "\n\n"

    def __post_init__(self) -> None:
        if MARK not in self.message({"": MARK}, "?"):
            shown = repr(self.prompt) if isinstance(self.prompt, str) else "the function that makes it leaves it out"
            raise ValueError(f"the prompt has no {{context}}, so that no document would be read: {shown}")

    def message(self, documents: Mapping[str, str], query: str) -> str:
        """The message with some documents, those of which nothing is left aside."""
        context = self.separator.join(text for text in documents.values() if text)
        if not isinstance(self.prompt, str):
            return self.prompt(context, query)
        given = {"{context}": context, "{query}": query}
        return re.sub(r"\{(context|query)\}", lambda found: given[found[0]], self.prompt)  # both may hold braces too


@dataclasses.dataclass(frozen=True)
class QuestionMasker:
    """Masks the documents of a question, from which documents, sentences and words are removed.

    The row without any document stands beside the others: it tells what the model says from memory.
    """

    levels: Sequence[str] = ("documents", "sentences")
    language: str = "en"
    asking: Asking = Asking()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", self._text.levels)

    @property
    def _text(self) -> Text:
        return Text(levels=self.levels, language=self.language, mask=None)

    def __call__(self, x: Any) -> Masked:
        question = Question.of(x)
        masked = self._text(question.texts)
        inputs = _QuestionInputs(question, self.asking, masked.inputs)
        without = np.zeros((1, masked.structure.leaves), dtype=np.bool_)
        return dataclasses.replace(masked, inputs=inputs, content=question, beside=without)


@dataclasses.dataclass(frozen=True, eq=False)
class _QuestionInputs:
    """Gives rows of one question."""

    question: Question
    asking: Asking
    documents: Callable[[BoolArray, int], Inputs]

    def __call__(self, masks: BoolArray, level: int) -> Rows:
        left = self.documents(masks, level)
        return Rows(self.question, [self.asking.message(documents, self.question.query) for documents in left])


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one question: the message to the model in each, with what is left of the documents.

    It is a batch of a kind of its own, as rows of different answers have different statements.
    """

    question: Question
    messages: Sequence[str]

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.question, self.messages[rows])
