"""Language models behind servers: log-probabilities of a given answer after each prompt, token by token."""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from c2fa.asking.model import charge, cut_answers
from c2fa.models.http._send import EndpointError, Portal, Reply, Request, WireRows, send
from c2fa.models.http.endpoint import Endpoint, Floats, RowError, _Batch, _wrong
from c2fa.structure import BoolArray

T = TypeVar("T")


@dataclass(frozen=True)
class Tokens:
    """An answer in the tokens of a server: the server's ids of them, and their texts, which join to the answer."""

    ids: tuple[Any, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class _Format:
    """A chat in the model's format, with a mark in place of each message; tabs beside a mark show what is stripped."""

    text: str

    def __call__(self, contents: Sequence[str]) -> str:
        def content(mark: re.Match[str]) -> str:
            before, number, after = mark.groups()
            text = contents[int(number)] if before else contents[int(number)].lstrip()
            return text if after else text.rstrip()

        return re.sub(r"(\t?)c2fa-puts-message-(\d+)-here(\t?)", content, self.text)


class Completions(Endpoint):
    """A language model on a server, which writes answers and scores given ones; each kind of server is a subclass.

    ``score(prompts, answer)`` gives one row of log-probabilities for each prompt, one number for each of
    ``pieces(answer)``. The first row is sent twice: if the numbers differ, the server is refused before the rest is
    sent. A row keeps its first numbers for as long as the object lives. A server that refuses several rows in one
    request gets them one by one from then on.
    """

    forgets = False
    server = "such"  # the server's name in error messages
    otherwise = (  # the end of an error where the server is of another kind
        "; OpenAI and Ollama give no log-probabilities of a given answer: give similarity='words', which compares "
        "answers that are written anew"
    )
    impossible = -9000.0  # nats: servers write -9999, or their least number, for a probability of zero
    least = -104.0  # taken instead: the logarithm of the least float32 above zero is -103.3
    completions = "/v1/completions"
    always: Mapping[str, Any] = {}  # fields of every request for a completion
    takes_texts = False  # whether rows go as texts, in which prompt and answer may run into one token
    takes_many = False  # whether a request may hold several rows; set to False once the server refuses that

    def __init__(self, url: str, *, max_new_tokens: int = 256, **settings: Any) -> None:
        super().__init__(url, **settings)
        if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens!r}")
        self.url, self.max_new_tokens = self.url.removesuffix("/v1"), max_new_tokens
        self._written = self._cut = 0
        self._tokens: dict[str, Tokens] = {}
        self._formats: dict[str, _Format | None] = {}
        self._window: int | None = None
        self._window_asked = False
        self._moved = 0.0
        self._impossible = 0

    # What a subclass defines, besides `request`.

    @abc.abstractmethod
    def scored(self, data: Any, rows: Sequence[tuple[Any, Tokens]]) -> list[list[tuple[Any, Any]]]:
        """Return pairs of a token and its log-probability for each row of a reply; no pair where it has none."""

    @abc.abstractmethod
    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens, without the special ones that begin or end a text."""

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        body = {"prompt": prompt, "max_tokens": self.max_new_tokens, "temperature": 0, **self.always}
        return post(self.completions, body), lambda data: data["choices"][0]["text"]

    async def chat(self, portal: Portal, messages: list[dict[str, Any]]) -> str | None:
        """Return messages in the model's chat format, up to where the answer begins; None without a format."""
        return None

    async def contexts(self, portal: Portal, prompts: list[str]) -> list[Any]:
        """Return the prompts as ``request`` sends them: texts, unless the server takes token ids."""
        return prompts

    async def lengths(self, portal: Portal, prompts: list[str]) -> list[int]:
        return [len(ids) for ids in await self.contexts(portal, prompts)]

    async def window(self, portal: Portal) -> int | None:
        """Return the most tokens that the model can read; None where the server does not say."""
        return None

    # What callers use of a language model.

    @property
    def concurrency(self) -> int:
        """How many answers may be written at the same time, by calls in several threads."""
        return self.settings.concurrency

    def spend_usage(self, data: Any) -> None:
        """Count the tokens that, by a reply, were read and written."""
        usage = data.get("usage") or {}
        self.spend(usage.get("prompt_tokens"), usage.get("completion_tokens"))

    def generate(self, prompt: str) -> str:
        """Return the model's likeliest answer to a prompt, of at most ``max_new_tokens`` tokens."""
        request, read = self.completion(checked_text("a prompt", prompt))
        portal = self._open()

        def text(data: Any) -> str:
            answer, before = checked_text("the generated text", read(data)), self.cost
            self.spend_usage(data)
            self.usage.requests += 1
            charge(self.cost - before)
            self._written += 1
            self._cut += data["choices"][0].get("finish_reason") == "length"
            return answer

        answer = portal.run(self.ask(portal, request, "generating", text))
        self.finish()
        return answer

    async def ask(self, portal: Portal, request: Request, doing: str, read: Callable[[Any], T]) -> T:
        """Send a request that is not for rows, and read its reply."""
        what, wrong = f"{self!r}, {doing}", ""
        try:
            reply = await send(portal, request, what)
        except EndpointError as error:
            if error.status not in (404, 405):
                raise
            hint = f"{self.server} has {request.path} below the address that it is given{self.otherwise}"
            raise EndpointError(f"{error}; {hint}", error.status, tries=error.tries) from None
        try:
            return read(reply.data)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            wrong = _wrong(error)
        raise EndpointError(f"{what}: {reply.secret.hide(wrong)}")  # out here, so that no traceback repeats the reply

    def template(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Return a chat in the model's chat format, up to where the answer begins; None without a format.

        The server is asked once for all chats with these turns, because a format may hold the time, which changes.
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

        A character of several tokens is in the text of one of them; the others are empty.
        """
        portal = self._open()
        return list(portal.run(self._tokenized(portal, answer)).pieces)

    def score(self, prompts: Sequence[str], answer: str) -> Floats:
        """Return the log-probability of each piece of the answer after each prompt, (prompts, pieces)."""
        if isinstance(prompts, str):
            raise TypeError("prompts must be a list of texts, not one text")
        return self([{"prompt": prompt, "answer": answer} for prompt in prompts])

    def fits(self, prompts: Sequence[str], answer: str) -> BoolArray:
        """Whether each prompt and the answer together fit into the model's window; yes if the server does not say."""
        portal = self._open()
        room = portal.run(self._room(portal, answer))
        if room is None:
            return np.ones(len(prompts), dtype=np.bool_)
        lengths = portal.run(self.lengths(portal, [checked_text("a prompt", prompt) for prompt in prompts]))
        return np.array([length <= room for length in lengths], dtype=np.bool_)

    async def _room(self, portal: Portal, answer: str) -> int | None:
        """The most tokens of a prompt for an answer; None where the server does not tell its window."""
        if not self._window_asked:
            try:
                window = await self.window(portal)
                self._window = window if isinstance(window, int) and window > 0 else None
            except EndpointError as error:
                if error.transient:
                    raise
                # Not every version of a server tells it; the server then refuses a row that is too long.
            self._window_asked = True
        return None if self._window is None else self._window - len((await self._tokenized(portal, answer)).ids)

    # How rows are asked.

    def chunk_size(self) -> int:
        return self.settings.rows_per_request if self.takes_many else 1

    async def encode(self, portal: Portal, rows: WireRows) -> WireRows:
        """Return the rows with prompts as ``request`` sends them and answers in tokens."""
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
            if len(self._tokens) >= 1024:  # most runs have a few answers
                self._tokens.clear()
            self._tokens[answer] = await self.tokenize(portal, answer)
        return self._tokens[answer]

    async def _ask_chunk(self, portal: Portal, batch: _Batch, chunk: list[int], probe: bool = False) -> None:
        """Ask for rows, one by one if the server takes no more; and for the probe, the first row of all, twice."""
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
                raise refusal from None  # refused even alone, so the number of rows was not the reason
            self.takes_many, rest = False, chunk[1:]
        for row in rest:
            await super()._ask_chunk(portal, batch, [row], probe)
        if probe and not self.forgets:
            await self._ask_again(portal, batch, chunk)

    async def _ask_again(self, portal: Portal, batch: _Batch, chunk: list[int]) -> None:
        """Ask for the first row once more, because numbers that do not repeat cannot be explained."""
        key = batch.keys[chunk[0]]
        first = batch.answers.pop(key)
        await super()._ask_chunk(portal, batch, chunk, True)
        moved = float(np.abs(batch.answers.pop(key) - first).max())
        if moved > 0.1:  # nats: caches and batches move a log-probability by less, stale or sampled ones by more
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
        pairs = list(columns(rows))
        scored = self.scored(reply.data, pairs)
        if not all(scored):
            raise ValueError(
                f"the server gave no log-probabilities of the answer, as {self.server} does{self.otherwise}"
            )
        self.spend_usage(reply.data)
        answers = (answer for _, answer in pairs)
        return np.asarray([self._logprobs(i, *each) for i, each in enumerate(zip(answers, scored, strict=True))])

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
            if not isinstance(value, int | float) or not value <= 1e-3:  # so that NaN is refused too
                raise RowError(position, f"token {i} of the answer has no log-probability but {value!r}")
            self._impossible += value < self.impossible
            values.append(self.least if value < self.impossible else min(float(value), 0.0))
        return values

    def finish(self) -> None:
        """Note which answers are cut, and which log-probabilities are not exact."""
        self.notes = list(cut_answers(self._cut, self._written, self.max_new_tokens))
        if self._moved:
            self.notes.append(f"the first row, asked twice, gave log-probabilities {self._moved:.1g} nats apart")
        if self._impossible:
            self.notes.append(
                f"{self._impossible} log-probabilities are below what the server can write, and taken as {self.least:g}"
            )


def columns(rows: WireRows) -> Iterable[tuple[Any, Tokens]]:
    """The prompt of each encoded row, with its answer in tokens."""
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


def post(path: str, body: Mapping[str, Any]) -> Request:
    """A POST with a body of JSON."""
    return Request(path, json.dumps(body).encode())


def model_name(model: Any) -> str:
    """Check the name of a model on its server, and return it."""
    if not isinstance(model, str) or not model:
        raise ValueError(f"model must be the name of a model on the server, not {model!r}")
    return model


def checked_text(what: str, given: Any) -> str:
    """Check that a value is a text, and return it."""
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a text, not {type(given).__name__}")
    return given
