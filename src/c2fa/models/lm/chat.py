"""A language model on a server, which writes answers: OpenAI, Ollama and their like can do no more."""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from c2fa.asking.model import charge, cut_answers
from c2fa.models.http._send import EndpointError, Portal, Reply, Request, WireRows, send
from c2fa.models.http.endpoint import Endpoint, Floats, _wrong

T = TypeVar("T")


class Writer(Endpoint):
    """A language model on a server, which writes answers."""

    server = "such"  # what its error messages call it
    otherwise = ""  # and what to do where it is another kind of server

    def __init__(self, url: str, *, max_new_tokens: int = 256, **settings: Any) -> None:
        super().__init__(url, **settings)
        if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens!r}")
        self.max_new_tokens = max_new_tokens
        self._written = self._cut = 0

    @abc.abstractmethod
    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        """Return the request for the likeliest answer to a prompt, and how to read its reply."""

    @property
    def concurrency(self) -> int:
        """How many answers may be written at the same time, each for a thread of its own."""
        return self.settings.concurrency

    def count(self, data: Any) -> tuple[Any, Any, Any]:
        """Return how many tokens a reply says were read and written, and why its text ended: ``"length"`` if cut."""
        used = data.get("usage") or {}
        return used.get("prompt_tokens"), used.get("completion_tokens"), data["choices"][0].get("finish_reason")

    def generate(self, prompt: str) -> str:
        """Return the model's likeliest answer to a prompt, of at most ``max_new_tokens`` tokens."""
        request, read = self.completion(checked_text("a prompt", prompt))
        portal = self._open()

        def text(data: Any) -> str:
            answer, before = checked_text("the generated text", read(data)), self.cost
            *tokens, ending = self.count(data)
            self.spend(*tokens)
            self.usage.requests += 1
            charge(self.cost - before)
            self._written += 1
            self._cut += ending == "length"
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

    def finish(self) -> None:
        """Note what is not whole about the answers."""
        self.notes = list(cut_answers(self._cut, self._written, self.max_new_tokens))


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
        self.model, self.extra = model_name(model), dict(extra or {})

    @property
    def name(self) -> str:
        """The identity of the model: all that its answers depend on."""
        how = json.dumps([self.max_new_tokens, self.extra], default=str)
        return f"{self.kind}:{self.url}#{self.model}:{hashlib.sha256(how.encode()).hexdigest()[:16]}"

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        return chat_completion(self.model, prompt, self.max_new_tokens, self.extra)

    def request(self, rows: WireRows) -> Request:
        raise TypeError(f"{self!r} writes answers and takes no rows; c2fa.cite asks it with similarity='words'")

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        raise TypeError(f"{self!r} writes answers and takes no rows")


def chat_completion(
    model: str, prompt: str, max_new_tokens: int, extra: Mapping[str, Any]
) -> tuple[Request, Callable[[Any], str]]:
    """The request for the likeliest answer to a prompt that is a chat of one message, and how to read its reply."""

    def read(data: Any) -> str:
        """What the model wrote; a refusal is no answer, and what is not there cannot be compared."""
        choice = data["choices"][0]
        message, ending = choice["message"], choice.get("finish_reason")
        if message.get("refusal") or ending == "content_filter":
            why = str(message.get("refusal") or ending)[:200]
            raise ValueError(f"the model refused to answer ({why!r}); leave out what it refuses, or use another")
        content: str = message.get("content")
        if not content:
            why = "see its log"
            if ending == "length":
                why = "all of max_new_tokens went into what it thought; raise it"
            raise ValueError(f"the model wrote nothing (finish_reason {ending!r}): {why}")
        return content

    messages = [{"role": "user", "content": prompt}]
    body = {"model": model, "messages": messages, "max_tokens": max_new_tokens, "temperature": 0, **extra}
    return post("/chat/completions", {name: value for name, value in body.items() if value is not None}), read


def post(path: str, body: Mapping[str, Any]) -> Request:
    """A request with a body of JSON."""
    return Request(path, json.dumps(body).encode())


def model_name(model: Any) -> str:
    """The name of a model on its server, which must be one."""
    if not isinstance(model, str) or not model:
        raise ValueError(f"model must be the name of a model on the server, not {model!r}")
    return model


def checked_text(what: str, given: Any) -> str:
    """A text that somebody gave, which must be one."""
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a text, not {type(given).__name__}")
    return given
