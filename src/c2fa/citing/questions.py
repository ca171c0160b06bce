"""A question about documents, as an input: what it holds, and what the model is told when sources are masked."""

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
MARK = "c2fa-puts-the-documents-here"  # no document says this, so that it shows where a prompt has them
Prompt: TypeAlias = str | Callable[[str, str], str]
Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""A chat: dicts with ``role`` and ``content``, and whatever else a chat template reads, such as ``tool_calls``."""


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
    claims
        What the answer cites, whose markers were taken out of it; None where nobody looked.
    """

    documents: Documents
    query: str
    answer: str | None = None
    # No part of what the model reads, unless a template says so: then the question is ``Framed``.
    metadata: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, repr=False)
    claims: tuple[Claim, ...] | None = dataclasses.field(default=None, repr=False, kw_only=True)

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

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash by which it is told from others."""
        return fingerprint(self)

    @classmethod
    def of(cls, x: Any) -> Question:
        """A question from a dict of its fields, as a line of a JSONL file has them; a chat's are its ``messages``.

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
        """A question with what its answer cites, from both or from a dict that has ``answer`` and ``citations``, too.

        >>> question = Question.with_claims({"documents": ["It rains."], "query": "?", "answer": "It rains [1]."})
        >>> question.answer, [claim.source for claim in question.claims]
        ('It rains.', ['document 1'])
        """
        if isinstance(x, Question) and x.claims is not None:
            return x
        if isinstance(x, Mapping):
            answer = x.get("answer") if answer is None else answer
            citations = x.get("citations") if citations is None else citations
            x = {**x, "answer": None if answer is None else "…"}  # which may be blocks of text
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
        """Turns of a chat that are never masked."""
        return ()

    def framed(self, name: str, text: str) -> str:
        """What is left of a document, as the model reads it."""
        return text


@dataclasses.dataclass(frozen=True)
class Framed(Question):
    """A question whose documents have a text of their own before and behind them, which is never masked."""

    frames: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    def framed(self, name: str, text: str) -> str:
        before, after = self.frames[name]
        return f"{before}{text}{after}"


@dataclasses.dataclass(frozen=True)
class ChatQuestion(Question):
    """What the last user's turn of a chat asks; its documents are the turns, and texts in turns, that are masked.

    Every turn stays, with its role, whatever is left of what it says: a chat template may refuse a chat that lacks one.

    In ``messages`` a letter, from ``SLOT`` on, stands in the place of each document; ``slots`` are their ids.
    """

    messages: Messages = ()
    slots: tuple[str, ...] = ()

    @property
    def stays(self) -> tuple[str, ...]:
        turns = enumerate(self.messages, start=1)
        return tuple(_turn(k, m) for k, m in turns if m["content"].strip() and not any(map(_is_slot, m["content"])))

    def chat(self, documents: Mapping[str, str]) -> list[dict[str, Any]]:
        """The chat with what is left of the documents."""
        left = {SLOT + k: documents[name] for k, name in enumerate(self.slots)}
        return [{**message, "content": message["content"].translate(left)} for message in self.messages]


SLOT = 0xF0000  # letters for private use, which no text has: one stands where a document was


def _is_slot(letter: str) -> bool:
    return ord(letter) >= SLOT


def _turn(number: int, message: Mapping[str, Any]) -> str:
    """What a turn of a chat is called."""
    return f"turn {number} ({' '.join(str(message[key]) for key in ('role', 'name') if message.get(key))})"


def _message(given: Any) -> dict[str, Any]:
    """A message as chat templates read it, from a dict of these fields or a message of LangChain's or LlamaIndex's."""
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

    Sources are the tools' results and the earlier turns of user and assistant, each by itself, and documents, where
    they stand in the messages word for word. The rest of a message that holds documents stays, and so do the system's
    text and the last turn of the user; a message may say ``"keep": True``, or False, itself. Where the assistant has
    the last word, that is the answer.

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
    asked = max((k for k, message in enumerate(chat) if message["role"] == "user"), default=None)
    if asked is None:
        raise ValueError("the chat has no message of the user, so that nothing is asked; give one")
    query, sources = chat[asked]["content"], dict[str, Document]()
    slots: list[Document] = []
    given = {} if documents is None else documents_of(documents)
    for document in sorted(given.values(), key=lambda d: -len(d.text)):  # one may hold what another says
        at = next((k for k, message in enumerate(chat) if document.text in message["content"]), None)
        if at is None:
            raise ValueError(
                f"no message holds the text of document {document.id!r}; put it where the model is to read it"
            )
        chat[at]["content"] = chat[at]["content"].replace(document.text, chr(SLOT + len(slots)), 1)
        query = chat[asked]["content"]
        slots.append(document)
    for k, message in enumerate(chat):
        if message["role"] == "tool" and message.get("tool_call_id") in tools:
            message.setdefault("name", tools[message["tool_call_id"]])
        held = [slots[ord(letter) - SLOT] for letter in message["content"] if _is_slot(letter)]
        stays = message["role"] in ("system", "developer") or k == asked
        if not held and not message.pop("keep", stays) and message["content"].strip():
            about = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
            held = [Document(_turn(k + 1, message), message["content"], {**about, "turn": k + 1})]
            message["content"] = chr(SLOT + len(slots))
            slots += held
        sources |= {document.id: document for document in held}
    if not sources:
        raise ValueError(
            "there is nothing to remove from the chat, of which the system's text and the last turn of the user stay; "
            'give documents= whose texts stand in it, or say "keep": False of a message'
        )
    metadata = {name: document.metadata for name, document in sources.items()}
    texts = {name: document.text for name, document in sources.items()}
    query = "".join("…" if _is_slot(letter) else letter for letter in query)
    return ChatQuestion(texts, query, answer, metadata, chat, tuple(document.id for document in slots))


def fields_of(row: Any) -> Any:
    """A question as a row of a list or a table has it; whatever is wrong with it, the masker says."""
    return dict(row) if hasattr(row, "keys") else row


def check_answer(answer: Any) -> None:
    """Refuse an answer, given or written, of which nothing can be explained."""
    if not isinstance(answer, str):
        raise TypeError(f"the answer must be a text, not {type(answer).__name__}")
    if not answer.strip():
        raise ValueError("the answer is empty, so there is nothing to attribute; give answer='…', or another query")


# ---------------------------------------------------------------------------------- masking


@dataclasses.dataclass(frozen=True)
class Asking:
    """How documents and the query become a message to the model, and the system's text before it."""

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
        """The question with a header for each document, where there is a template for them."""
        if self.document is None:
            return question
        if isinstance(question, ChatQuestion):
            raise ValueError("a chat shows its documents as they stand in the messages; leave document= out")
        headers = frames(self.document, question.metadata)
        known = (question.documents, question.query, question.answer, question.metadata)
        return Framed(*known, headers, claims=question.claims)

    def chat(self, documents: Mapping[str, str], question: Question) -> list[dict[str, Any]]:
        """The messages with some documents; those of which nothing is left are no part of a prompt."""
        if isinstance(question, ChatQuestion):
            return question.chat(documents)
        left = [question.framed(name, text) for name, text in documents.items() if text]
        return self.around(self._text(self.separator.join(left), question.query))

    def around(self, message: str) -> list[dict[str, Any]]:
        """A user's message, with the system's text before it."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, {"role": "user", "content": message}]

    def _text(self, context: str, query: str) -> str:
        if not isinstance(self.prompt, str):
            return self.prompt(context, query)
        given = {"{context}": context, "{query}": query}
        return re.sub(r"\{(context|query)\}", lambda found: given[found[0]], self.prompt)  # both may hold braces too


@dataclasses.dataclass(frozen=True)
class QuestionMasker:
    """Masks the documents of a question, from which documents, sentences and words are removed.

    The row without any document stands beside the others: it tells what the model says from memory. Where it
    ``verifies``, the answer's citations are read and taken out of it.
    """

    levels: Sequence[str] = ("documents", "sentences")
    language: str = "en"
    asking: Asking = Asking()
    # Not told apart by a ledger: rows of one answer are the same whether it is explained or verified.
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
    """Gives rows of one question."""

    question: Question
    asking: Asking
    documents: Callable[[BoolArray, int], Inputs]

    def __call__(self, masks: BoolArray, level: int) -> Rows:
        left = self.documents(masks, level)
        return Rows(self.question, [self.asking.chat(documents, self.question) for documents in left])


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one question: the messages to the model in each, with what is left of the documents.

    It is a batch of a kind of its own, as rows of different answers have different statements.
    """

    question: Question
    chats: Sequence[Messages]

    def __len__(self) -> int:
        return len(self.chats)

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.question, self.chats[rows])
