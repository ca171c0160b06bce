"""A language model that writes answers in a chat, and cannot score a given one: OpenAI, Ollama and their like."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from c2fa.models.http._rows import WireRows
from c2fa.models.http._send import Reply, Request
from c2fa.models.http.endpoint import Floats
from c2fa.models.lm.completions import Writer, post


class Chat(Writer):
    """A language model behind an OpenAI-compatible endpoint, such as Ollama's, that writes answers.

    Such servers give no log-probabilities of a given answer, so that ``c2fa.cite`` needs ``similarity=`` with it: it
    then compares answers that are written anew.

    Parameters
    ----------
    url
        The address up to and with ``/v1``.
    model
        The model's name on the server.
    max_new_tokens
        The most tokens of an answer.
    extra
        Further fields of the request, such as ``{"seed": 0}``; a field set to None is left out, as
        ``{"max_tokens": None, "max_completion_tokens": 256}`` for a server that has renamed it.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`.
    """

    kind = "chat"
    server = "an OpenAI-compatible server"

    def __init__(
        self,
        url: str,
        model: str,
        *,
        max_new_tokens: int = 256,
        extra: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(url, max_new_tokens=max_new_tokens, **settings)
        if not isinstance(model, str) or not model:
            raise ValueError(f"model must be the name of a model on the server, not {model!r}")
        self.model, self.extra = model, dict(extra or {})

    @property
    def name(self) -> str:
        """The identity of the model: all that its answers depend on."""
        how = json.dumps([self.max_new_tokens, self.extra], default=str)
        return f"{self.kind}:{self.url}#{self.model}:{hashlib.sha256(how.encode()).hexdigest()[:16]}"

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": messages, "max_tokens": self.max_new_tokens, "temperature": 0}
        body = {name: value for name, value in (body | self.extra).items() if value is not None}
        return post("/chat/completions", body), _content

    def request(self, rows: WireRows) -> Request:
        """Refuse rows: a chat writes answers and has no outputs."""
        raise TypeError(f"{self!r} writes answers and takes no rows; c2fa.cite asks it with similarity='words'")

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Refuse rows, as ``request`` does."""
        raise TypeError(f"{self!r} writes answers and takes no rows")


def _content(data: Any) -> str:
    """What the model wrote; a refusal is no answer, and what is not there cannot be compared."""
    choice = data["choices"][0]
    message, ending = choice["message"], choice.get("finish_reason")
    if message.get("refusal") or ending == "content_filter":
        said = str(message.get("refusal") or ending)
        raise ValueError(f"the model refused to answer ({said[:200]!r}); leave out what it refuses, or use another")
    content: str = message.get("content")
    if not content:
        why = "all of max_new_tokens went into what it thought; raise it" if ending == "length" else "see its log"
        raise ValueError(f"the model wrote nothing (finish_reason {ending!r}): {why}")
    return content
