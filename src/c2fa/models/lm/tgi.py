"""A language model behind Text Generation Inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from c2fa.models.http._portal import Portal
from c2fa.models.http._rows import WireRows
from c2fa.models.http._send import Reply, Request
from c2fa.models.http.endpoint import Floats, RowError
from c2fa.models.lm.completions import Completions, Tokens, columns, from_prefixes, no_logprobs, post, token_id


class TGI(Completions):
    """A language model served by ``text-generation-launcher``.

    The server takes texts alone and returns the log-probabilities of the tokens that it reads in them
    (``decoder_input_details``). A row whose last tokens are not those of the answer is an error: prompt and answer have
    run into one token.

    Parameters
    ----------
    url
        The server's address.
    max_new_tokens
        The most tokens that ``generate`` writes.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`; a request holds one row.
    """

    kind = "tgi"
    server = "Text Generation Inference"

    def chunk_size(self) -> int:
        """Return how many rows one request may hold."""
        return 1

    def count(self, data: Any) -> tuple[Any, Any]:
        """Return how many tokens a reply says were read and written."""
        details = data.get("details") or {}
        return len(details.get("prefill") or ()), details.get("generated_tokens")

    def ending(self, data: Any) -> str | None:
        """Return why a reply says that its text ended."""
        reason: str | None = (data.get("details") or {}).get("finish_reason")
        return reason

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens, by where each ends in the text."""

        def read(data: Any) -> Tokens:
            tokens = [token for token in data if token["stop"] > token["start"]]  # the others begin or end a text
            texts = [answer[: token_id(token["stop"])] for token in tokens]
            return Tokens(tuple(token_id(token["id"]) for token in tokens), from_prefixes(texts, answer))

        return await self.ask(portal, post("/tokenize", {"inputs": answer}), "reading the answer's tokens", read)

    async def lengths(self, portal: Portal, prompts: list[str]) -> list[int]:
        """Return how many tokens each prompt has."""
        asked = (post("/tokenize", {"inputs": prompt}) for prompt in prompts)
        return [await self.ask(portal, each, "reading tokens", len) for each in asked]

    def window(self) -> tuple[Request, Callable[[Any], int | None]]:
        """Return the request for the most tokens that a request may hold, and how to read its reply."""
        return Request("/info"), lambda data: data["max_input_tokens"]

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""
        parameters = {"max_new_tokens": self.max_new_tokens, "details": True}
        return post("/generate", {"inputs": prompt, "parameters": parameters}), lambda data: data["generated_text"]

    def request(self, rows: WireRows) -> Request:
        """Return the request that scores one row."""
        ((prompt, answer),) = columns(rows)
        parameters = {"max_new_tokens": 1, "details": True, "decoder_input_details": True}
        return post("/generate", {"inputs": prompt + "".join(answer.pieces), "parameters": parameters})

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return the log-probability of each token of the answer."""
        ((_, answer),) = columns(rows)
        listed = (reply.data.get("details") or {}).get("prefill")
        if not listed:
            raise no_logprobs(self.server)
        self.spend(*self.count(reply.data))
        found = [(token.get("id"), token.get("logprob")) for token in listed[-len(answer.ids) :]]
        if tuple(token for token, _ in found) != answer.ids:
            raise RowError(
                0,
                "the server reads the end of the prompt and the answer as other tokens than the answer alone; end the "
                "prompt with a line break, or begin the answer as the model does",
            )
        return np.asarray([self.logprobs(0, answer, found)])
