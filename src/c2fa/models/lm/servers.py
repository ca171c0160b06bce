"""Language models served by llama.cpp and vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from c2fa.models.http._send import EndpointError, Portal, Request, WireRows
from c2fa.models.http.endpoint import RowError, _Batch
from c2fa.models.lm.completions import Completions, Tokens, choices, columns, model_name, post


class LlamaServer(Completions):
    """A language model served by ``llama-server``.

    The server ignores a request for the log-probabilities of a prompt. So the model writes the given answer, under a
    grammar that allows its tokens and no others; the log-probabilities are those before the grammar. Servers from
    before 2026 do not read such a grammar. Rows go one after the other and without the server's cache, because a row's
    numbers depend on what is computed with it, in a small quantised model by a few tenths of a nat.

    Parameters
    ----------
    url
        The server's address.
    max_new_tokens
        The most tokens that ``generate`` writes.
    template_options
        Options of the chat template, such as ``{"enable_thinking": False}``.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`; ``concurrency`` is 1 unless given.
    """

    kind = "llama"
    server = "llama-server"
    always: Mapping[str, Any] = {"cache_prompt": False}

    def __init__(
        self,
        url: str,
        *,
        max_new_tokens: int = 256,
        template_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(url, max_new_tokens=max_new_tokens, **{"concurrency": 1, **settings})
        self.template_options = dict(template_options or {})

    async def chat(self, portal: Portal, messages: list[dict[str, Any]]) -> str | None:
        request = post("/apply-template", {"messages": messages, "chat_template_kwargs": self.template_options})
        return await self.ask(portal, request, "applying the chat template", lambda data: str(data["prompt"]))

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        body = {"content": answer, "add_special": False, "parse_special": False, "with_pieces": True}

        def read(data: Any) -> Tokens:
            tokens = data["tokens"]
            split = [token["id"] for token in tokens if not isinstance(token["piece"], str)]
            if split:
                raise ValueError(
                    f"the tokens {split} of the answer are parts of characters, of which llama-server gives no "
                    "log-probabilities; leave emoji and rare letters out of the answer, or use another server"
                )
            return Tokens(
                tuple(token_id(token["id"]) for token in tokens),
                from_texts((token["piece"] for token in tokens), answer),
            )

        return await self.ask(portal, post("/tokenize", body), "reading the answer's tokens", read)

    async def lengths(self, portal: Portal, prompts: list[str]) -> list[int]:
        requests = (post("/tokenize", {"content": p, "add_special": True, "parse_special": True}) for p in prompts)
        return [await self.ask(portal, each, "reading tokens", lambda data: len(data["tokens"])) for each in requests]

    async def window(self, portal: Portal) -> int | None:
        def read(data: Any) -> int | None:
            window: int | None = data["default_generation_settings"]["n_ctx"]
            return window

        return await self.ask(portal, Request("/props"), "asking for the window", read)

    def request(self, rows: WireRows) -> Request:
        ((prompt, answer),) = columns(rows)
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in answer.ids)
        body = {"prompt": prompt, "max_tokens": len(answer.ids), "temperature": 0, "logprobs": 1, "grammar": grammar}
        return post(self.completions, {**body, **self.always})

    def scored(self, data: Any, rows: Sequence[tuple[Any, Tokens]]) -> list[list[tuple[Any, Any]]]:
        logprobs = data["choices"][0].get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        return [[(token.get("id"), token.get("logprob")) for token in content or ()]]

    async def _ask_chunk(self, portal: Portal, batch: _Batch, chunk: list[int], probe: bool = False) -> None:
        try:
            await super()._ask_chunk(portal, batch, chunk, probe)
        except EndpointError as error:
            if not (probe and "grammar" in str(error).lower()):
                raise
            raise EndpointError(
                f"{error}; a llama-server from before 2026 takes no token ids in a grammar: update it", error.status
            ) from None


class VLLM(Completions):
    """A language model served by ``vllm serve``.

    A row goes as token ids, the prompt's and then the answer's, and the server returns their log-probabilities
    (``prompt_logprobs``).

    Parameters
    ----------
    url
        The server's address.
    model
        The model's name on the server.
    max_new_tokens
        The most tokens that ``generate`` writes.
    template_options
        Options of the chat template, such as ``{"enable_thinking": False}``.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`; a request holds 16 rows unless ``rows_per_request`` says otherwise.
    """

    kind = "vllm"
    server = "vLLM"
    takes_many = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        max_new_tokens: int = 256,
        template_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(url, max_new_tokens=max_new_tokens, **{"rows_per_request": 16, **settings})
        self.model, self.template_options = model_name(model), dict(template_options or {})
        self.always = {"model": model}

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.url}#{self.model}"

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        ids = await self._ids(portal, prompt=answer, add_special_tokens=False)
        texts = await asyncio.gather(*(self._text_of(portal, ids[: i + 1]) for i in range(len(ids))))
        return Tokens(tuple(ids), from_prefixes(texts, answer))

    async def chat(self, portal: Portal, messages: list[dict[str, Any]]) -> str | None:
        """Return messages in the model's chat format, without the tokens that begin every text and are added later."""
        try:
            ids = await self._ids(portal, messages=messages, chat_template_kwargs=self.template_options)
        except EndpointError as error:
            if error.status == 400 and "template" in str(error):  # the model has none
                return None
            raise
        bare, whole = [await self._ids(portal, prompt="a", add_special_tokens=special) for special in (False, True)]
        begin = whole[: len(whole) - len(bare)]
        text = await self._text_of(portal, ids[len(begin) :] if ids[: len(begin)] == begin else ids)
        if await self._ids(portal, prompt=text, add_special_tokens=True) != ids:
            raise EndpointError(
                f"{self!r}: the chat format, written as text, is read as other tokens; give the server a chat template "
                "that begins as its tokenizer begins every text"
            )
        return text

    async def contexts(self, portal: Portal, prompts: list[str]) -> list[Any]:
        ids = (self._ids(portal, prompt=prompt, add_special_tokens=True) for prompt in prompts)
        return list(await asyncio.gather(*ids))

    async def window(self, portal: Portal) -> int | None:
        def read(data: Any) -> int | None:
            return next((card.get("max_model_len") for card in data["data"] if card["id"] == self.model), None)

        return await self.ask(portal, Request("/v1/models"), "asking for the window", read)

    async def _ids(self, portal: Portal, **fields: Any) -> list[int]:
        request = post("/tokenize", {"model": self.model, **fields})
        return await self.ask(portal, request, "reading tokens", lambda data: [token_id(i) for i in data["tokens"]])

    async def _text_of(self, portal: Portal, ids: list[int]) -> str:
        request = post("/detokenize", {"model": self.model, "tokens": ids})
        return await self.ask(portal, request, "reading the tokens' texts", lambda data: str(data["prompt"]))

    def request(self, rows: WireRows) -> Request:
        prompts = [[*prompt, *answer.ids] for prompt, answer in columns(rows)]
        body = {"prompt": prompts, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        return post(self.completions, {**body, **self.always})

    def scored(self, data: Any, rows: Sequence[tuple[Any, Tokens]]) -> list[list[tuple[Any, Any]]]:
        pairs_of_rows = []
        for position, ((prompt, answer), choice) in enumerate(zip(rows, choices(data, len(rows)), strict=True)):
            listed, sent = choice.get("prompt_logprobs") or (), len(prompt) + len(answer.ids)
            if listed and len(listed) != sent:
                raise RowError(
                    position, f"the server returned {len(listed)} positions for the {sent} tokens that it was sent"
                )
            pairs: list[tuple[Any, Any]] = []
            for wanted, entry in zip(answer.ids, listed[len(prompt) :], strict=False):
                entry = entry or {}
                here = entry.get(str(wanted))
                pairs.append((wanted, here["logprob"]) if here else (next(iter(entry), None), None))
            pairs_of_rows.append(pairs)
        return pairs_of_rows


def token_id(number: Any) -> int:
    """Check a server's number of a token, and return it."""
    if type(number) is not int or number < 0:
        raise ValueError(f"the server gave {number!r:.40} as a token's number; see that it is the server of the class")
    return number


def from_texts(texts: Iterable[str], answer: str) -> tuple[str, ...]:
    """The texts of the tokens, without the blank that some tokenizers put before every text.

    >>> from_texts([" No", "thing"], "Nothing")
    ('No', 'thing')
    """
    pieces = list(texts)
    if "".join(pieces) == " " + answer:
        pieces[0] = pieces[0][1:]
    return _joined(pieces, answer)


def from_prefixes(texts: Iterable[str], answer: str) -> tuple[str, ...]:
    """The text that each token adds, from the decoded texts of the first token, the first two, and so on.

    >>> from_prefixes(["caf", "caf\\ufffd", "café"], "café")
    ('caf', '', 'é')
    """
    pieces, end, text = [], 0, answer
    for text in texts:
        whole = text.rstrip("\ufffd")  # which decoders write for a part of a character
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
