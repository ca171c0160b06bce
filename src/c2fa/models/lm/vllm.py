"""A language model behind vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from c2fa.models.http._portal import Portal
from c2fa.models.http._rows import WireRows
from c2fa.models.http._send import EndpointError, Reply, Request
from c2fa.models.http.endpoint import Floats, RowError
from c2fa.models.lm.completions import Completions, Tokens, columns, from_prefixes, no_logprobs, post, token_id

_REFUSED = 400


class VLLM(Completions):
    """A language model served by ``vllm serve``.

    A row goes as token ids, the prompt's and then the answer's, and the server returns the log-probabilities of what it
    was sent (``prompt_logprobs``).

    Parameters
    ----------
    url
        The server's address.
    model
        The model's name on the server.
    max_new_tokens
        The most tokens that ``generate`` writes.
    template_options
        What the chat template takes besides the messages, such as ``{"enable_thinking": False}``.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`; a request holds 16 rows unless ``rows_per_request`` says otherwise.
    """

    kind = "vllm"
    server = "vLLM"

    def __init__(
        self,
        url: str,
        model: str,
        *,
        max_new_tokens: int = 256,
        template_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        settings = {"rows_per_request": 16, **settings}
        super().__init__(url, max_new_tokens=max_new_tokens, **settings)
        if not isinstance(model, str) or not model:
            raise ValueError(f"model must be the name of a model on the server, not {model!r}")
        self.model, self.template_options = model, dict(template_options or {})

    @property
    def name(self) -> str:
        """The identity of the model; a server does not tell when its weights change."""
        return f"{self.kind}:{self.url}#{self.model}"

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens."""
        ids = await self._ids(portal, {"prompt": answer, "add_special_tokens": False})
        texts = await asyncio.gather(*(self._text_of(portal, ids[: i + 1]) for i in range(len(ids))))
        return Tokens(tuple(ids), from_prefixes(texts, answer))

    async def chat(self, portal: Portal, messages: list[dict[str, str]]) -> str | None:
        """Return messages in the model's chat format, without the tokens that begin every text: these come later."""
        try:
            ids = await self._ids(portal, {"messages": messages, "chat_template_kwargs": self.template_options})
        except EndpointError as error:
            if error.status == _REFUSED and "template" in str(error):  # the model has none
                return None
            raise
        bare, whole = [await self._ids(portal, {"prompt": "a", "add_special_tokens": b}) for b in (False, True)]
        begin = whole[: len(whole) - len(bare)]
        text = await self._text_of(portal, ids[len(begin) :] if ids[: len(begin)] == begin else ids)
        if await self._ids(portal, {"prompt": text, "add_special_tokens": True}) != ids:
            raise EndpointError(
                f"{self!r}: the chat format, written as text, is read as other tokens; give the server a chat template "
                "that begins as its tokenizer begins every text"
            )
        return text

    async def contexts(self, portal: Portal, prompts: list[str]) -> list[Any]:
        """Return the prompts as token ids."""
        return list(
            await asyncio.gather(*(self._ids(portal, {"prompt": p, "add_special_tokens": True}) for p in prompts))
        )

    def window(self) -> tuple[Request, Callable[[Any], int | None]]:
        """Return the request for the most tokens that the model can read, and how to read its reply."""

        def read(data: Any) -> int | None:
            return next((card.get("max_model_len") for card in data["data"] if card["id"] == self.model), None)

        return Request("/v1/models"), read

    async def _ids(self, portal: Portal, asked: Mapping[str, Any]) -> list[int]:
        request = post("/tokenize", {"model": self.model, **asked})
        return await self.ask(portal, request, "reading tokens", lambda data: [token_id(i) for i in data["tokens"]])

    async def _text_of(self, portal: Portal, ids: list[int]) -> str:
        request = post("/detokenize", {"model": self.model, "tokens": ids})
        return await self.ask(portal, request, "reading the tokens' texts", lambda data: str(data["prompt"]))

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": self.max_new_tokens, "temperature": 0}
        return post("/v1/completions", body), lambda data: data["choices"][0]["text"]

    def request(self, rows: WireRows) -> Request:
        """Return the request that scores these rows."""
        prompts = [[*prompt, *answer.ids] for prompt, answer in columns(rows)]
        body = {"model": self.model, "prompt": prompts, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        return post("/v1/completions", body)

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return the log-probability of each token of the answer, for each row."""
        choices = sorted(reply.data["choices"], key=lambda choice: int(choice["index"]))
        if [choice["index"] for choice in choices] != list(range(len(rows))):
            raise ValueError(
                f"the server returned {len(choices)} choices, which are not one for each of {len(rows)} rows"
            )
        outputs = [
            self._row(position, prompt, answer, choice.get("prompt_logprobs"))
            for position, ((prompt, answer), choice) in enumerate(zip(columns(rows), choices, strict=True))
        ]
        self.spend(*self.count(reply.data))
        return np.asarray(outputs)

    def _row(self, position: int, prompt: list[int], answer: Tokens, listed: Any) -> list[float]:
        if not listed:
            raise no_logprobs(self.server)
        if len(listed) != len(prompt) + len(answer.ids):
            sent = len(prompt) + len(answer.ids)
            raise RowError(
                position, f"the server returned {len(listed)} positions for the {sent} tokens that it was sent"
            )
        found = []
        for wanted, entry in zip(answer.ids, listed[len(prompt) :], strict=True):
            entry = entry or {}
            here = entry.get(str(wanted))
            found.append((wanted, here["logprob"]) if here else (next(iter(entry), None), None))
        return self.logprobs(position, answer, found)
