"""A language model behind SGLang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from c2fa.models.http._portal import Portal
from c2fa.models.http._rows import WireRows
from c2fa.models.http._send import Reply, Request
from c2fa.models.http.endpoint import Floats
from c2fa.models.lm.completions import Completions, Tokens, columns, from_prefixes, no_logprobs, post, token_id


class SGLang(Completions):
    """A language model served by ``sglang.launch_server``.

    A row goes as token ids, the prompt's and then the answer's, and the server returns the log-probabilities of those
    at the end (``logprob_start_len``).

    Parameters
    ----------
    url
        The server's address.
    max_new_tokens
        The most tokens that ``generate`` writes.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`; a request holds one row.
    """

    kind = "sglang"
    server = "SGLang"

    def chunk_size(self) -> int:
        """Return how many rows one request may hold."""
        return 1

    def count(self, data: Any) -> tuple[Any, Any]:
        """Return how many tokens a reply says were read and written."""
        used = data.get("meta_info") or {}
        return used.get("prompt_tokens"), used.get("completion_tokens")

    def ending(self, data: Any) -> str | None:
        """Return why a reply says that its text ended."""
        reason: str | None = ((data.get("meta_info") or {}).get("finish_reason") or {}).get("type")
        return reason

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return an answer in the server's tokens."""
        (ids,) = await self._ids(portal, [answer], special=False)
        prefixes = [ids[: i + 1] for i in range(len(ids))]

        def read(data: Any) -> Tokens:
            texts = data["text"]
            if len(texts) != len(prefixes):
                raise ValueError(f"the server returned {len(texts)} texts for {len(prefixes)} lists of tokens")
            return Tokens(tuple(ids), from_prefixes(texts, answer))

        body = {"tokens": prefixes, "skip_special_tokens": False}
        return await self.ask(portal, post("/detokenize", body), "reading the answer's tokens", read)

    async def contexts(self, portal: Portal, prompts: list[str]) -> list[Any]:
        """Return the prompts as token ids."""
        return await self._ids(portal, prompts, special=True)

    async def _ids(self, portal: Portal, texts: list[str], special: bool) -> list[list[int]]:
        def read(data: Any) -> list[list[int]]:
            listed = [[token_id(token) for token in ids] for ids in data["tokens"]]
            if len(listed) != len(texts):
                raise ValueError(f"the server returned the tokens of {len(listed)} texts for {len(texts)}")
            return listed

        body = {"prompt": texts, "add_special_tokens": special}
        return await self.ask(portal, post("/tokenize", body), "reading tokens", read)

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""
        body = {"text": prompt, "sampling_params": {"max_new_tokens": self.max_new_tokens, "temperature": 0}}
        return post("/generate", body), lambda data: data["text"]

    def request(self, rows: WireRows) -> Request:
        """Return the request that scores one row."""
        ((prompt, answer),) = columns(rows)
        sampling = {"max_new_tokens": 1, "temperature": 0}
        body = {"input_ids": [*prompt, *answer.ids], "sampling_params": sampling, "return_logprob": True}
        # The first position asked for comes without a number, so the prompt's last token stands there.
        return post("/generate", body | {"logprob_start_len": max(len(prompt) - 1, 0)})

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return the log-probability of each token of the answer."""
        ((_, answer),) = columns(rows)
        listed = (reply.data.get("meta_info") or {}).get("input_token_logprobs")
        if not listed:
            raise no_logprobs(self.server)
        self.spend(*self.count(reply.data))
        found = [(entry[1], entry[0]) for entry in listed[-len(answer.ids) :]]
        return np.asarray([self.logprobs(0, answer, found)])
