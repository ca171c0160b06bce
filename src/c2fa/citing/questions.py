"""A question about documents, as an input: what it holds, and what the model is told when sources are masked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from c2fa.asking.masking import Inputs, Masked
from c2fa.citing.documents import Documents, documents_of, frames
from c2fa.maskers import Text
from c2fa.structure import BoolArray

PROMPT = "Context: {context}\n\nQuery: {query}"
MARK = "c2fa-puts-the-documents-here"  # no document says this, so that it shows where a prompt has them
Template: TypeAlias = str | Callable[[str, str], str]
Prompt: TypeAlias = Template | Sequence[Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class Question:
    """What a language model is asked about documents, and the answer that is to be explained.

    Parameters
    ----------
    documents
        As ``cite`` takes them; they become a dict of ids and texts.
    answer
        None where the model is to write it.
    metadata
        What else is known of the documents, by their ids; what they say of themselves is added to it.
    """

    documents: Documents
    query: str
    answer: str | None = None
    # No part of what the model reads, unless a template says so: then the question is ``Framed``.
    metadata: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        found = documents_of(self.documents)
        object.__setattr__(self, "documents", {name: document.text for name, document in found.items()})
        metadata = {name: {**self.metadata.get(name, {}), **document.metadata} for name, document in found.items()}
        object.__setattr__(self, "metadata", metadata)
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

    def framed(self, name: str, text: str) -> str:
        """What is left of a document, as the model reads it."""
        return text


@dataclasses.dataclass(frozen=True)
class Framed(Question):
    """A question whose documents have a text of their own before and behind them, which is never masked."""

    frames: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    def framed(self, name: str, text: str) -> str:
        """What is left of a document, as the model reads it."""
        before, after = self.frames[name]
        return f"{before}{text}{after}"


def check_answer(answer: Any) -> None:
    """Refuse an answer, given or written, of which nothing can be explained."""
    if not isinstance(answer, str):
        raise TypeError(f"the answer must be a text, not {type(answer).__name__}")
    if not answer.strip():
        raise ValueError("the answer is empty, so there is nothing to attribute; give answer='…', or another query")


# ---------------------------------------------------------------------------------- masking


def of_a_chat(prompt: Prompt, system: str | None) -> tuple[Template, str | None]:
    """The prompt and the system's text; a chat of messages holds both."""
    if isinstance(prompt, str) or callable(prompt):
        return prompt, system
    if not isinstance(prompt, Sequence):
        raise TypeError(
            "the prompt must be a text with {context} and {query}, a function of both, or a chat of messages; got "
            f"{prompt!r}"
        )
    chat: list[Any] = list(prompt)
    if not all(isinstance(m, Mapping) and isinstance(m.get("content"), str) and "role" in m for m in chat):
        raise TypeError(f'a chat must be a list of {{"role": …, "content": "…"}}; got {prompt!r}')
    roles = [message["role"] for message in chat]
    if roles not in (["user"], ["system", "user"]):
        raise ValueError(
            f"a chat may have a system's message and one of the user, with {{context}} and {{query}}, not {roles}; "
            "give earlier turns as documents, or write them into the user's message"
        )
    if system is not None and len(chat) > 1:
        raise ValueError("the system's text is given twice, in the chat and as system=; leave one out")
    return chat[-1]["content"], chat[0]["content"] if len(chat) > 1 else system


@dataclasses.dataclass(frozen=True)
class Asking:
    """How documents and the query become a message to the model, and the system's text before it."""

    prompt: Template = PROMPT
    system: str | None = None
    separator: str = "\n\n"
    document: str | None = None

    def __post_init__(self) -> None:
        shown = repr(self.prompt) if isinstance(self.prompt, str) else "the function that makes it leaves it out"
        if MARK not in self._text(MARK, "?"):
            raise ValueError(f"the prompt has no {{context}}, so that no document would be read: {shown}")
        if MARK not in self._text("", MARK):
            raise ValueError(f"the prompt has no {{query}}, so that nothing would be asked: {shown}")

    def of(self, question: Question) -> Question:
        """The question with a header for each document, where there is a template for them."""
        if self.document is None:
            return question
        headers = frames(self.document, question.metadata)
        return Framed(question.documents, question.query, question.answer, question.metadata, headers)

    def message(self, documents: Mapping[str, str], question: Question) -> str:
        """The message with some documents, those of which nothing is left aside."""
        left = [question.framed(name, text) for name, text in documents.items() if text]
        return self._text(self.separator.join(left), question.query)

    def _text(self, context: str, query: str) -> str:
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
        question = self.asking.of(Question.of(x))
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
        return Rows(self.question, [self.asking.message(documents, self.question) for documents in left])


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
