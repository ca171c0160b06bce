"""Language models behind servers: how likely a given answer is after each prompt, token by token."""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from c2fa.models.http._send import EndpointError, Portal, Reply, Request, WireRows
from c2fa.models.http.endpoint import Floats, RowError, _Batch
from c2fa.models.lm.chat import Writer, checked_text, post
from c2fa.structure import BoolArray


@dataclass(frozen=True)
class Tokens:
    """An answer in the tokens of a server: what it calls them, and their texts, which join to the answer."""

    ids: tuple[Any, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class _Format:
    """A chat in its format, with a mark for what each message says; tabs beside it show that none is stripped."""

    text: str

    def __call__(self, contents: Sequence[str]) -> str:
        def content(mark: re.Match[str]) -> str:
            before, number, after = mark.groups()
            text = contents[int(number)] if before else contents[int(number)].lstrip()
            return text if after else text.rstrip()

        return re.sub(r"(\t?)c2fa-puts-message-(\d+)-here(\t?)", content, self.text)


class Completions(Writer):
    """A language model on a server, which scores answers that it is given; each kind of server is a dialect of it.

    ``score(prompts, answer)`` gives one row of log-probabilities for each prompt, one number for each of
    ``pieces(answer)``. The first row is sent twice: a server that gives other numbers the second time is refused before
    the rest is sent. A row keeps its first numbers for as long as the object lives. A server that refuses several rows
    in one request gets them one by one from then on.

    Parameters
    ----------
    url
        The server's address, with or without ``/v1``.
    max_new_tokens
        The most tokens that ``generate`` writes.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`.
    """

    forgets = False
    otherwise = (
        "; OpenAI and Ollama give no log-probabilities of a given answer: pass similarity= to c2fa.cite for such a "
        "server"
    )
    impossible = -9000.0  # nats: servers write -9999, or the least number that they have, for a probability of zero
    least = -104.0  # and the logarithm of the least float32 above zero is -103.3
    completions = "/v1/completions"
    always: Mapping[str, Any] = {}  # what every request for a completion has
    takes_texts = False  # whether rows go as texts, in which prompt and answer may run into one token
    takes_many = False  # whether a request may hold several rows; a server that refuses them takes one from then on

    def __init__(self, url: str, *, max_new_tokens: int = 256, **settings: Any) -> None:
        super().__init__(url, max_new_tokens=max_new_tokens, **settings)
        self.url = self.url.removesuffix("/v1")
        self._tokens: dict[str, Tokens] = {}
        self._formats: dict[str, _Format | None] = {}
        self._window: int | None = None
        self._window_asked = False
        self._moved = 0.0
        self._impossible = 0

    # What a dialect says, beside `request`.

    @abc.abstractmethod
    def scored(self, data: Any, rows: Sequence[tuple[Any, Tokens]]) -> list[list[tuple[Any, Any]]]:
        """Return for each row of a reply the pairs of a token and its log-probability; none where it has none."""

    @abc.abstractmethod
    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens, without those that begin or end a text."""

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        body = {"prompt": prompt, "max_tokens": self.max_new_tokens, "temperature": 0, **self.always}
        return post(self.completions, body), lambda data: data["choices"][0]["text"]

    async def chat(self, portal: Portal, messages: list[dict[str, Any]]) -> str | None:
        """Return messages in the model's chat format, up to where the answer begins; None where there is none."""
        return None

    async def contexts(self, portal: Portal, prompts: list[str]) -> list[Any]:
        """Return the prompts as ``request`` sends them: texts, unless the server takes token ids."""
        return prompts

    async def lengths(self, portal: Portal, prompts: list[str]) -> list[int]:
        """Return how many tokens each prompt has."""
        return [len(ids) for ids in await self.contexts(portal, prompts)]

    def window(self) -> tuple[Request, Callable[[Any], int | None]]:
        """Return the request for the most tokens that the model can read, and how to read its reply."""
        return Request("/v1/models"), lambda data: data["data"][0].get("max_model_len")

    # What a language model is asked.

    def template(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Return a chat in the model's chat format, up to where the answer begins; None without a format.

        The server is asked once for all chats of these turns: a format that told the time would change from row to row.
        """
        turns = [{name: value for name, value in message.items() if name != "content"} for message in messages]
        key = json.dumps(turns, default=str)
        if key not in self._formats:
            portal = self._open()
            self._formats[key] = portal.run(self._format(portal, turns))
        chat_format = self._formats[key]
        contents = [checked_text("what a message says", message["content"]) for message in messages]
        return None if chat_format is None else chat_format(contents)

    async def _format(self, portal: Portal, turns: Sequence[Mapping[str, Any]]) -> _Format | None:
        marks = [f"c2fa-puts-message-{k}-here" for k in range(len(turns))]
        text = await self.chat(portal, [{**m, "content": f"\t{mark}\t"} for m, mark in zip(turns, marks, strict=True)])
        if text is None:
            return None
        if any(text.count(mark) != 1 for mark in marks):
            raise EndpointError(f"{self!r}: the chat format does not repeat each message once; give it as text")
        return _Format(text)

    def pieces(self, answer: str) -> list[str]:
        """Return the texts of the answer's tokens, which join to the answer.

        A character that several tokens write belongs to one of them; the others are empty.
        """
        portal = self._open()
        return list(portal.run(self._tokenized(portal, answer)).pieces)

    def score(self, prompts: Sequence[str], answer: str) -> Floats:
        """Return the log-probability of each piece of the answer after each prompt, (prompts, pieces)."""
        if isinstance(prompts, str):
            raise TypeError("prompts must be a list of texts, not one text")
        return self([{"prompt": prompt, "answer": answer} for prompt in prompts])

    def fits(self, prompts: Sequence[str], answer: str) -> BoolArray:
        """Whether each prompt and the answer together fit into the model's window, as far as the server tells it."""
        portal = self._open()
        room = portal.run(self._room(portal, answer))
        if room is None:
            return np.ones(len(prompts), dtype=np.bool_)
        lengths = portal.run(self.lengths(portal, [checked_text("a prompt", prompt) for prompt in prompts]))
        return np.array([length <= room for length in lengths], dtype=np.bool_)

    async def _room(self, portal: Portal, answer: str) -> int | None:
        """The most tokens that a prompt of an answer may have; None where the server does not tell its window."""
        if not self._window_asked:
            request, read = self.window()
            try:
                window = await self.ask(portal, request, "asking for the window", read)
                self._window = window if isinstance(window, int) and window > 0 else None
            except EndpointError as error:
                if error.transient:
                    raise
                # Not every version tells it; a row that is too long is then refused by the server.
            self._window_asked = True
        return None if self._window is None else self._window - len((await self._tokenized(portal, answer)).ids)

    # How it is asked.

    def chunk_size(self) -> int:
        return self.settings.rows_per_request if self.takes_many else 1

    async def prepare(self, portal: Portal, rows: WireRows) -> WireRows:
        """Return the rows with their prompts as they are sent and their answers in tokens."""
        if rows.columns is None or rows.columns.keys() != {"prompt", "answer"}:
            raise TypeError(f"{self!r} is asked by score(prompts, answer), or by c2fa.cite; it takes no other rows")
        prompts = [checked_text("a prompt", prompt) for prompt in rows.columns["prompt"]]
        answers = [await self._tokenized(portal, answer) for answer in rows.columns["answer"]]
        return WireRows(columns={"prompt": await self.contexts(portal, prompts), "answer": answers})

    async def _tokenized(self, portal: Portal, answer: str) -> Tokens:
        if not checked_text("the answer", answer):
            raise ValueError(
                "the answer is empty, so there is nothing to score; give one, or let the model generate it"
            )
        if answer not in self._tokens:
            if len(self._tokens) >= 1024:  # there are seldom more than a few answers
                self._tokens.clear()
            self._tokens[answer] = await self.tokenize(portal, answer)
        return self._tokens[answer]

    async def _ask_chunk(self, portal: Portal, batch: _Batch, chunk: list[int], probe: bool = False) -> None:
        """Ask for rows, one by one where the server takes no more; and for the first row of all twice."""
        rest = chunk
        if len(chunk) > 1 and self.takes_many:
            try:
                return await super()._ask_chunk(portal, batch, chunk)
            except EndpointError as error:
                if error.status not in (400, 413, 422, 500):
                    raise
                refusal = error
            try:
                await super()._ask_chunk(portal, batch, chunk[:1])
            except EndpointError:
                raise refusal from None  # a row that is refused alone is not refused for the company
            self.takes_many, rest = False, chunk[1:]
        for row in rest:
            await super()._ask_chunk(portal, batch, [row], probe)
        if probe and not self.forgets:
            await self._ask_again(portal, batch, chunk)

    async def _ask_again(self, portal: Portal, batch: _Batch, chunk: list[int]) -> None:
        """Ask for the first row once more: what does not repeat cannot be explained."""
        key = batch.keys[chunk[0]]
        first = batch.answers.pop(key)
        await super()._ask_chunk(portal, batch, chunk, True)
        moved = float(np.abs(batch.answers.pop(key) - first).max())
        if moved > 0.1:  # nats: caches and batches move a log-probability by less, a stale or sampled one by more
            self._memo.pop(key, None)
            raise EndpointError(
                f"{self!r}, row {chunk[0]} of {len(batch.rows)}: asked twice, the server gave log-probabilities that "
                f"are {moved:.2g} nats apart; switch off what makes its answers vary, such as prefix caching or "
                "speculative decoding"
            )
        self._moved = moved
        batch.answers[key] = self._memo[key] = first

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return the log-probability of each token of the answer, for each row."""
        asked = list(columns(rows))
        scored = self.scored(reply.data, asked)
        if not all(scored):
            raise ValueError(
                f"the server gave no log-probabilities of the answer, as {self.server} does{self.otherwise}"
            )
        self.spend(*self.count(reply.data)[:2])
        return np.asarray(
            [self._logprobs(i, answer, pairs) for i, ((_, answer), pairs) in enumerate(zip(asked, scored, strict=True))]
        )

    def _logprobs(self, position: int, answer: Tokens, scored: Sequence[tuple[Any, Any]]) -> list[float]:
        tokens = tuple(token for token, _ in scored)
        if self.takes_texts and tokens != answer.ids:
            raise RowError(
                position,
                "the server reads the end of the prompt and the answer as other tokens than the answer alone; end the "
                "prompt with a line break, or begin the answer as the model does",
            )
        if len(tokens) != len(answer.ids):
            raise RowError(position, f"the server scored {len(tokens)} of the {len(answer.ids)} tokens of the answer")
        values = []
        for i, (wanted, (token, value)) in enumerate(zip(answer.ids, scored, strict=True)):
            if token != wanted:
                raise RowError(position, f"token {i} of the answer is {wanted}, and the server scored {token!r}")
            if not isinstance(value, int | float) or not value <= 1e-3:  # NaN is not either
                raise RowError(position, f"token {i} of the answer has no log-probability but {value!r}")
            self._impossible += value < self.impossible
            values.append(self.least if value < self.impossible else min(float(value), 0.0))
        return values

    def finish(self) -> None:
        """Note what is not whole about the answers, or not exact about their log-probabilities."""
        super().finish()
        if self._moved:
            self.notes.append(f"the first row, asked twice, gave log-probabilities {self._moved:.1g} nats apart")
        if self._impossible:
            self.notes.append(
                f"{self._impossible} log-probabilities are below what the server can write, and taken as {self.least:g}"
            )


def columns(rows: WireRows) -> Iterable[tuple[Any, Tokens]]:
    """The prompts of prepared rows, each with the answer in tokens."""
    assert rows.columns is not None
    return zip(rows.columns["prompt"], rows.columns["answer"], strict=True)


def choices(data: Any, rows: int) -> list[Any]:
    """The choices of a reply, one for each row, in the rows' order."""
    ordered = sorted(data["choices"], key=lambda choice: int(choice.get("index", 0)))
    if len(ordered) != rows or (rows > 1 and [choice["index"] for choice in ordered] != list(range(rows))):
        raise ValueError(
            f"the server returned {len(ordered)} choices, which are not one for each of {rows} rows; see its log, or "
            "set rows_per_request to 1"
        )
    return ordered


def token_id(number: Any) -> int:
    """A token's number as a server gives it, which must be one."""
    if type(number) is not int or number < 0:
        raise ValueError(f"the server gave {number!r:.40} as a token's number; see that it is the server of the class")
    return number


def from_texts(texts: Iterable[str], answer: str) -> tuple[str, ...]:
    """The texts of the tokens, without the blank that a tokenizer of words puts before every text.

    >>> from_texts([" No", "thing"], "Nothing")
    ('No', 'thing')
    """
    pieces = list(texts)
    if "".join(pieces) == " " + answer:
        pieces[0] = pieces[0][1:]
    return _joined(pieces, answer)


def from_prefixes(texts: Iterable[str], answer: str) -> tuple[str, ...]:
    """The text that each token adds, from the texts of the first token, the first two, and so on.

    >>> from_prefixes(["caf", "caf\\ufffd", "café"], "café")
    ('caf', '', 'é')
    """
    pieces, end, text = [], 0, answer
    for text in texts:
        whole = text.rstrip("\ufffd")  # what decoders write for a part of a character
        new = max(end, len(whole)) if answer.startswith(whole) else end
        pieces.append(answer[end:new])
        end = new
    return _joined(pieces if text == answer else [text], answer)


def _joined(pieces: list[str], answer: str) -> tuple[str, ...]:
    if not pieces:
        raise ValueError("the server reads no tokens in the answer; see that it is the server that the class is for")
    if "".join(pieces) != answer:
        raise ValueError(
            f"the server's tokens do not join to the answer {answer[:80]!r} again; give it as the model writes it"
        )
    return tuple(pieces)
