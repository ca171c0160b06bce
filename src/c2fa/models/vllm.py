"""A language model behind vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from c2fa.models._portal import Portal
from c2fa.models._rows import WireRows
from c2fa.models._send import Reply, Request
from c2fa.models.completions import Completions, Tokens, columns, from_prefixes, no_logprobs, post
from c2fa.models.http import Floats, RowError


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
    max_tokens
        The most tokens that ``generate`` writes.
    **settings
        Any of `c2fa.models.http.Settings`; a request holds 16 rows unless ``rows_per_request`` says otherwise.
    """

    kind = "vllm"
    server = "vLLM"

    def __init__(self, url: str, model: str, *, max_tokens: int = 256, **settings: Any) -> None:
        super().__init__(url, max_tokens=max_tokens, **{"rows_per_request": 16, **settings})
        if not isinstance(model, str) or not model:
            raise ValueError(f"model must be the name of a model on the server, not {model!r}")
        self.model = model

    @property
    def name(self) -> str:
        """The identity of the model; a server does not tell when its weights change."""
        return f"{self.kind}:{self.url}#{self.model}"

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens."""
        ids = await self._ids(portal, answer, special=False)
        doing = "reading the answer's tokens"
        bodies = [{"model": self.model, "tokens": ids[: i + 1]} for i in range(len(ids))]
        asked = (
            self.ask(portal, post("/detokenize", body), doing, lambda data: str(data["prompt"])) for body in bodies
        )
        texts = await asyncio.gather(*asked)
        return Tokens(tuple(ids), from_prefixes(texts, answer))

    async def contexts(self, portal: Portal, prompts: list[str]) -> list[Any]:
        """Return the prompts as token ids."""
        return list(await asyncio.gather(*(self._ids(portal, prompt, special=True) for prompt in prompts)))

    async def _ids(self, portal: Portal, text: str, special: bool) -> list[int]:
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        return await self.ask(
            portal, post("/tokenize", body), "reading tokens", lambda d: [int(t) for t in d["tokens"]]
        )

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": self.max_tokens, "temperature": 0}
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
        self._count(reply.data)
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
