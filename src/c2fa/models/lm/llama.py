"""A language model behind llama.cpp's server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from c2fa.models.http._portal import Portal
from c2fa.models.http._rows import WireRows
from c2fa.models.http._send import EndpointError, Reply, Request
from c2fa.models.http.endpoint import Floats, _Batch
from c2fa.models.lm.completions import Completions, Tokens, columns, from_texts, no_logprobs, post, token_id


class LlamaServer(Completions):
    """A language model served by ``llama-server``.

    The server ignores a request for the log-probabilities of a prompt. So the answer is written by the model, under a
    grammar that allows these very tokens and no others; the log-probabilities are those before the grammar. Servers
    from before 2026 do not read such a grammar. Rows go one after the other and without the server's cache: what the
    server computes together moves a row's numbers, with a small quantised model by a few tenths of a nat.

    Parameters
    ----------
    url
        The server's address.
    max_new_tokens
        The most tokens that ``generate`` writes.
    template_options
        What the chat template takes besides the messages, such as ``{"enable_thinking": False}``.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`; a request holds one row, and ``concurrency`` is 1 unless given.
    """

    kind = "llama"
    server = "llama-server"

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

    def chunk_size(self) -> int:
        """Return how many rows one request may hold."""
        return 1

    async def chat(self, portal: Portal, messages: list[dict[str, str]]) -> str | None:
        """Return messages in the model's chat format."""
        request = post("/apply-template", {"messages": messages, "chat_template_kwargs": self.template_options})
        return await self.ask(portal, request, "applying the chat template", lambda data: str(data["prompt"]))

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens."""
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
        """Return how many tokens each prompt has."""
        asked = (post("/tokenize", {"content": p, "add_special": True, "parse_special": True}) for p in prompts)
        return [await self.ask(portal, each, "reading tokens", lambda data: len(data["tokens"])) for each in asked]

    def window(self) -> tuple[Request, Callable[[Any], int | None]]:
        """Return the request for the most tokens that a slot of the server holds, and how to read its reply."""
        return Request("/props"), lambda data: data["default_generation_settings"]["n_ctx"]

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""
        body = {"prompt": prompt, "max_tokens": self.max_new_tokens, "temperature": 0, "cache_prompt": False}
        return post("/v1/completions", body), lambda data: data["choices"][0]["text"]

    def request(self, rows: WireRows) -> Request:
        """Return the request that scores one row."""
        ((prompt, answer),) = columns(rows)
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in answer.ids)
        body = {"prompt": prompt, "max_tokens": len(answer.ids), "temperature": 0, "logprobs": 1, "grammar": grammar}
        return post("/v1/completions", body | {"cache_prompt": False})

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return the log-probability of each token of the answer."""
        ((_, answer),) = columns(rows)
        logprobs = reply.data["choices"][0].get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        if not content:
            raise no_logprobs(self.server)
        self.spend(*self.count(reply.data))
        found = [(token.get("id"), token.get("logprob")) for token in content]
        return np.asarray([self.logprobs(0, answer, found)])

    async def _ask_chunk(self, portal: Portal, batch: _Batch, chunk: list[int], probe: bool = False) -> None:
        try:
            await super()._ask_chunk(portal, batch, chunk, probe)
        except EndpointError as error:
            if not (probe and "grammar" in str(error).lower()):
                raise
            raise EndpointError(
                f"{error}; a llama-server from before 2026 takes no token ids in a grammar: update it", error.status
            ) from None
