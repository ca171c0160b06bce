"""A question about documents as an input: its fields, and the messages to the model when sources are masked."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.masking import Inputs, Masked
from c2fa.citing.annotations import Citations, Claim, read_citations
from c2fa.citing.documents import Document, Documents, documents_of, frames
from c2fa.maskers import Text
from c2fa.structure import BoolArray

PROMPT = "Context: {context}\n\nQuery: {query}"
MARK = "c2fa-puts-the-documents-here"  # no document holds this text, so it shows where a prompt has the documents
Prompt: TypeAlias = str | Callable[[str, str], str]
Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""A chat: dicts with ``role``, ``content`` and further fields of the chat template, such as ``tool_calls``."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to a language model about documents, and the answer to explain.

    Parameters
    ----------
    documents
        As ``cite`` takes them; they become a dict of ids and texts.
    answer
        None has the model write it.
    metadata
        Further facts about the documents, by their ids; the documents' own metadata is added.
    claims
        The answer's citations, once their markers are removed from the answer; None before they are read.
    """

    documents: Documents
    query: str
    answer: str | None = None
    # The model reads metadata only through a template for documents: then the question is ``Framed``.
    metadata: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, repr=False)
    claims: tuple[Claim, ...] | None = dataclasses.field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        documents = documents_of(self.documents)
        metadata = {name: {**self.metadata.get(name, {}), **document.metadata} for name, document in documents.items()}
        object.__setattr__(self, "documents", {name: document.text for name, document in documents.items()})
        object.__setattr__(self, "metadata", metadata)
        if not isinstance(self.query, str):
            raise TypeError(f"the query must be a text, not {type(self.query).__name__}")
        if self.answer is not None:
            check_answer(self.answer)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of the documents, by their ids."""
        return cast(dict[str, str], self.documents)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash that is different for every question."""
        return fingerprint(self)

    @classmethod
    def of(cls, x: Any) -> Question:
        """A question from a dict of its fields, such as a line of a JSONL file; ``messages`` make it a chat.

        >>> Question.of({"documents": ["The sky is blue."], "query": "What is blue?"}).documents
        {'document 1': 'The sky is blue.'}
        """
        if isinstance(x, Question):
            return x
        if not isinstance(x, Mapping):
            raise TypeError(f"a question must be a dict with documents, query, answer, not {type(x).__name__}")
        if x.get("messages") is not None:
            if x.get("query") is not None:
                raise ValueError("the last user's message is what a chat asks: leave the query out, or messages")
            return chat_question(x["messages"], x.get("documents"), x.get("answer"))
        missing = [name for name in ("documents", "query") if x.get(name) is None]
        if missing:
            fields = ", ".join(repr(name) for name in x if x[name] is not None)
            raise ValueError(f"the question has no {missing[0]!r}; it has {fields or 'nothing'}")
        return cls(x["documents"], x["query"], x.get("answer"))

    @classmethod
    def with_claims(cls, x: Any, answer: Any = None, citations: Citations = None) -> Question:
        """A question with the citations of its answer; both may also be fields of the dict.

        >>> question = Question.with_claims({"documents": ["It rains."], "query": "?", "answer": "It rains [1]."})
        >>> question.answer, [claim.source for claim in question.claims]
        ('It rains.', ['document 1'])
        """
        if isinstance(x, Question) and x.claims is not None:
            return x
        if isinstance(x, Mapping):
            answer = x.get("answer") if answer is None else answer
            citations = x.get("citations") if citations is None else citations
            x = {**x, "answer": None if answer is None else "…"}  # read below: it may be blocks of text
        question = cls.of(x)
        answer = question.answer if answer is None else answer
        if answer is None:
            raise TypeError(
                "verify needs the answer whose citations are to be checked; have it written first, by lm.generate"
            )
        marked = read_citations(answer, citations, question.metadata)
        return dataclasses.replace(question, answer=marked.text, claims=marked.claims)

    @property
    def stays(self) -> tuple[str, ...]:
        """The turns of a chat that are never masked."""
        return ()

    def framed(self, name: str, text: str) -> str:
        """The rest of a document's text, as the model reads it."""
        return text


@dataclasses.dataclass(frozen=True)
class Framed(Question):
    """A question with a text before and after each document that stays while any of the document does."""

    frames: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    def framed(self, name: str, text: str) -> str:
        before, after = self.frames[name]
        return f"{before}{text}{after}"


@dataclasses.dataclass(frozen=True)
class ChatQuestion(Question):
    """The question in the last user's turn of a chat; its documents are turns, or texts in turns, that are masked.

    Every turn stays, even without text: a chat template may refuse a chat that lacks one.

    ``slots`` are the letters that stand for documents in ``messages``, with the documents' ids.
    """

    messages: Messages = ()
    slots: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def stays(self) -> tuple[str, ...]:
        turns = [(_turn(k, message), message["content"]) for k, message in enumerate(self.messages, start=1)]
        return tuple(name for name, text in turns if text.strip() and self.slots.keys().isdisjoint(text))

    def chat(self, documents: Mapping[str, str]) -> list[dict[str, Any]]:
        """The chat with the rest of the documents' texts."""
        texts = {ord(letter): documents[name] for letter, name in self.slots.items()}
        return [{**message, "content": message["content"].translate(texts)} for message in self.messages]


def _turn(number: int, message: Mapping[str, Any]) -> str:
    """The name of a turn of a chat."""
    return f"turn {number} ({' '.join(str(message[key]) for key in ('role', 'name') if message.get(key))})"


def _message(given: Any) -> dict[str, Any]:
    """A message as chat templates read it, from such a dict or a message of LangChain or LlamaIndex."""
    message = given
    if hasattr(given, "model_dump"):
        fields = given.model_dump(mode="json")
        role = fields.get("role", {"human": "user", "ai": "assistant"}.get(fields.get("type"), fields.get("type")))
        message = {"role": role, "content": fields.get("content", fields.get("blocks"))}
        message |= {key: fields[key] for key in ("name", "tool_call_id") if fields.get(key)}
        calls = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["args"]}}
            for call in fields.get("tool_calls") or ()
        ]
        message |= {"tool_calls": calls} if calls else {}
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = [content or ""] if content is None or isinstance(content, str) else content
    texts: list[Any] = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not isinstance(message, Mapping) or "role" not in message or not all(isinstance(text, str) for text in texts):
        raise TypeError(f'a chat must be a list of {{"role": …, "content": "…"}}, of texts; got {given!r:.200}')
    return {**message, "content": "".join(texts)}


def chat_question(messages: Messages, documents: Documents = None, answer: str | None = None) -> ChatQuestion:
    """The question at the end of a chat.

    Each tool's result and each earlier turn of user and assistant is a source. So is each document, where it stands in
    a message word for word. The rest of such a message stays, and so do the system's text and the last turn of the
    user; ``"keep": True`` or False in a message decides for that message. A last turn of the assistant is the answer.

    >>> chat = [{"role": "user", "content": "I am Ada."}, {"role": "user", "content": "Who am I?"}]
    >>> question = chat_question(chat)
    >>> question.documents, question.query, question.stays
    ({'turn 1 (user)': 'I am Ada.'}, 'Who am I?', ('turn 2 (user)',))
    """
    if isinstance(messages, str | Mapping):
        raise TypeError(f"a chat must be a list of messages; got {messages!r:.200}")
    chat = list(map(_message, messages))
    calls = [call for message in chat for call in message.get("tool_calls") or ()]
    tools: dict[str, str] = {call.get("id"): call["function"]["name"] for call in calls}
    if chat and chat[-1]["role"] == "assistant":
        if answer is not None:
            raise ValueError("the chat ends with the assistant's turn, which is the answer; leave answer= out, or it")
        answer = chat.pop()["content"]
    last = max((k for k, message in enumerate(chat) if message["role"] == "user"), default=None)
    if last is None:
        raise ValueError("the chat has no message of the user, so that nothing is asked; give one")
    used = {letter for message in chat for letter in message["content"]}
    free = (letter for letter in map(chr, range(0xF0000, 0x10FFFE)) if letter not in used)  # private use in Unicode
    slots: dict[str, Document] = {}
    given = {} if documents is None else documents_of(documents)
    for document in sorted(given.values(), key=lambda d: -len(d.text)):  # a text may hold another one
        at = next((k for k, message in enumerate(chat) if document.text in message["content"]), None)
        if at is None:
            raise ValueError(
                f"no message holds the text of document {document.id!r}; put it where the model is to read it"
            )
        letter = next(free)
        chat[at]["content"] = chat[at]["content"].replace(document.text, letter, 1)
        slots[letter] = document
    query = chat[last]["content"].translate({ord(letter): "…" for letter in slots})
    sources: dict[str, Document] = {}
    for k, message in enumerate(chat):
        if message["role"] == "tool" and message.get("tool_call_id") in tools:
            message.setdefault("name", tools[message["tool_call_id"]])
        inside = [slots[letter] for letter in message["content"] if letter in slots]
        stays = message.pop("keep", message["role"] in ("system", "developer") or k == last)
        if not inside and not stays and message["content"].strip():
            about = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
            inside = [Document(_turn(k + 1, message), message["content"], {**about, "turn": k + 1})]
            message["content"] = next(free)
            slots[message["content"]] = inside[0]
        sources |= {document.id: document for document in inside}
    if not sources:
        raise ValueError(
            "there is nothing to remove from the chat, of which the system's text and the last turn of the user stay; "
            'give documents= whose texts stand in it, or say "keep": False of a message'
        )
    metadata = {name: document.metadata for name, document in sources.items()}
    texts = {name: document.text for name, document in sources.items()}
    return ChatQuestion(texts, query, answer, metadata, chat, {letter: slots[letter].id for letter in slots})


def fields_of(row: Any) -> Any:
    """The fields of a question in a row of a list or a table; the masker checks them."""
    return dict(row) if hasattr(row, "keys") else row


def check_answer(answer: Any) -> None:
    """Refuse an answer that cannot be explained."""
    if not isinstance(answer, str):
        raise TypeError(f"the answer must be a text, not {type(answer).__name__}")
    if not answer.strip():
        raise ValueError("the answer is empty, so there is nothing to attribute; give answer='…', or another query")


# ---------------------------------------------------------------------------------- masking


@dataclasses.dataclass(frozen=True)
class Asking:
    """The template of a prompt: how documents and the query become a message, with the system's text before it."""

    prompt: Prompt = PROMPT
    system: str | None = None
    separator: str = "\n\n"
    document: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str) and not callable(self.prompt):
            raise TypeError(
                f"the prompt must be a text with {{context}} and {{query}}, or a function of both (a chat is for "
                f"messages=); got {self.prompt!r}"
            )
        prompt = repr(self.prompt) if isinstance(self.prompt, str) else "the function that makes it leaves it out"
        if MARK not in self._text(MARK, "?"):
            raise ValueError(f"the prompt has no {{context}}, so that no document would be read: {prompt}")
        if MARK not in self._text("", MARK):
            raise ValueError(f"the prompt has no {{query}}, so that nothing would be asked: {prompt}")

    def of(self, question: Question) -> Question:
        """The question with a header for each document, if ``document`` gives a template."""
        if self.document is None:
            return question
        if isinstance(question, ChatQuestion):
            raise ValueError("a chat shows its documents as they stand in the messages; leave document= out")
        headers = frames(self.document, question.metadata)
        fields = (question.documents, question.query, question.answer, question.metadata)
        return Framed(*fields, headers, claims=question.claims)

    def chat(self, documents: Mapping[str, str], question: Question) -> list[dict[str, Any]]:
        """The messages with the rest of the documents' texts; a prompt leaves out an empty document with its header."""
        if isinstance(question, ChatQuestion):
            return question.chat(documents)
        texts = [question.framed(name, text) for name, text in documents.items() if text]
        return self.around(self._text(self.separator.join(texts), question.query))

    def around(self, message: str) -> list[dict[str, Any]]:
        """A user's message, with the system's text before it."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": message}]

    def _text(self, context: str, query: str) -> str:
        if not isinstance(self.prompt, str):
            return self.prompt(context, query)
        fields = {"{context}": context, "{query}": query}
        # Not by str.format: the prompt may hold other braces. In one pass: the context may hold "{query}".
        return re.sub(r"\{(context|query)\}", lambda match: fields[match[0]], self.prompt)


@dataclasses.dataclass(frozen=True)
class QuestionMasker:
    """Removes documents, sentences and words from a question.

    The row without any document stands beside the others: it shows what the model says from memory. Where it
    ``verifies``, the answer's citations are read, and their markers removed.
    """

    levels: Sequence[str] = ("documents", "sentences")
    language: str = "en"
    asking: Asking = Asking()
    # No part of the ledger's key (repr=False): rows of an answer are the same for an explanation and a verification.
    verifies: bool = dataclasses.field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", self._text.levels)

    @property
    def _text(self) -> Text:
        return Text(levels=self.levels, language=self.language, mask=None)

    def __call__(self, x: Any) -> Masked:
        question = self.asking.of(Question.with_claims(x) if self.verifies else Question.of(x))
        masked = self._text(question.texts)
        inputs = _QuestionInputs(question, self.asking, masked.inputs)
        without = np.zeros((1, masked.structure.leaves), dtype=np.bool_)
        return dataclasses.replace(masked, inputs=inputs, content=question, beside=without)


@dataclasses.dataclass(frozen=True, eq=False)
class _QuestionInputs:
    """The ``inputs`` of one question."""

    question: Question
    asking: Asking
    documents: Callable[[BoolArray, int], Inputs]

    def __call__(self, masks: BoolArray, level: int) -> Rows:
        rows = self.documents(masks, level)
        return Rows(self.question, [self.asking.chat(documents, self.question) for documents in rows])


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one question: the messages to the model, with the rest of the documents' texts.

    A type of batch of its own, because rows of different answers have different statements.
    """

    question: Question
    chats: Sequence[Messages]

    def __len__(self) -> int:
        return len(self.chats)

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.question, self.chats[rows])
