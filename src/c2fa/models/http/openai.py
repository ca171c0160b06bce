"""A language model behind an OpenAI-compatible endpoint, as a zero-shot classifier."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from c2fa.models.http._send import Reply, Request, WireRows
from c2fa.models.http.endpoint import Endpoint, Floats
from c2fa.structure import BoolArray


class CensoredWarning(UserWarning):
    """Some class log-probabilities are upper bounds: their tokens were not among those returned."""


class OpenAI(Endpoint):
    """A zero-shot classifier: the log-probability that the model's answer begins with each class.

    Works with the servers that speak this protocol and return log-probabilities (vLLM, llama.cpp, SGLang,
    and hosted ones). A class whose token is not among the returned top ones is *censored*: its output is
    the upper bound that the returned ones leave, ``notes`` counts such outputs, and a warning is given once.

    Parameters
    ----------
    url
        The address up to and with ``/v1``.
    model
        The model's name on the server.
    classes
        The classes, or a mapping from each class to the answer that stands for it. Choose answers that
        begin with different tokens: ``{"positive": "A", "negative": "B"}`` always do.
    prompt
        The question; ``{text}`` becomes the input and ``{classes}`` the answers.
    kind
        ``"chat"``, one request per row, or ``"completions"``, many rows per request.
    top_logprobs
        How many tokens the server returns; 20 for chat and 5 for completions unless given.
    probabilities
        Return probabilities among the classes (they sum to one) instead of log-probabilities.
    extra
        Further fields of the request, such as ``{"seed": 0}``; a field set to None is left out, as
        ``{"max_tokens": None, "max_completion_tokens": 1}`` for a server that has renamed it.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        classes: Sequence[str] | Mapping[str, str],
        prompt: str = (
            "Classify the text. Answer with one of these and nothing else: {classes}.\n\nText: {text}\n\nAnswer:"
        ),
        kind: str = "chat",
        top_logprobs: int | None = None,
        probabilities: bool = False,
        extra: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        answers = classes if isinstance(classes, Mapping) else {c: c for c in classes}
        if isinstance(classes, str) or len(answers) < 2:
            raise ValueError("classes must be at least two names, such as ['positive', 'negative']")
        if len({a.strip().casefold() for a in answers.values()} - {""}) < len(answers):
            raise ValueError("the classes' answers must differ by more than blanks and case, and not be empty")
        if kind not in ("chat", "completions"):
            raise ValueError(f"kind must be 'chat' or 'completions', not {kind!r}")
        if "{text}" not in prompt:
            raise ValueError("prompt must have {text} where the input goes")
        super().__init__(url, tuple(answers), **settings)
        self.model, self.prompt, self.endpoint, self.probabilities = model, prompt, kind, probabilities
        self.answers = tuple(answers.values())
        self.top_logprobs = top_logprobs or (20 if kind == "chat" else 5)
        self.extra = dict(extra or {})
        self.censored = np.zeros(len(self.answers), dtype=np.int64)
        self._seen, self._shared = 0, set[str]()

    kind = "openai"

    @property
    def name(self) -> str:
        """The identity of the model: all that its answers depend on."""
        asks = [self.prompt, self.answers, self.endpoint, self.top_logprobs, self.probabilities, self.extra]
        digest = hashlib.sha256(json.dumps(asks, default=str).encode()).hexdigest()[:16]
        return f"{self.kind}:{self.url}#{self.model}:{digest}"

    def __repr__(self) -> str:
        return f"OpenAI({self.url!r}, {self.model!r})"

    def chunk_size(self) -> int:
        """Return how many rows one request may hold: a chat is about one text."""
        return 1 if self.endpoint == "chat" else self.settings.rows_per_request

    def request(self, rows: WireRows) -> Request:
        """Return the request that asks for these rows."""
        if rows.texts is None:
            raise TypeError("an OpenAI-compatible endpoint takes texts; wrap other inputs in a function")
        classes = ", ".join(self.answers)
        prompts = [
            text.join(part.replace("{classes}", classes) for part in self.prompt.split("{text}")) for text in rows.texts
        ]
        body: dict[str, Any] = {"model": self.model, "max_tokens": 1, "temperature": 0}
        if self.endpoint == "chat":
            body |= {"messages": [{"role": "user", "content": prompts[0]}]}
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
            path = "/chat/completions"
        else:
            body |= {"prompt": prompts, "logprobs": self.top_logprobs}
            path = "/completions"
        body = {k: v for k, v in (body | self.extra).items() if v is not None}
        return Request(path, json.dumps(body).encode())

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return one (log-)probability for each row and class."""
        choices = reply.data.get("choices") if isinstance(reply.data, Mapping) else None
        if not isinstance(choices, list):
            raise ValueError("the answer has no list of choices; is this an OpenAI-compatible server?")
        used = reply.data.get("usage") or {}
        self.spend(used.get("prompt_tokens"), used.get("completion_tokens"))
        outputs = []
        for choice in sorted(choices, key=lambda c: int(c.get("index", 0))):
            values, censored, several = class_logprobs(first_token(choice), self.answers)
            outputs.append(values)
            self._seen += 1
            self.censored += censored
            self._shared = self._shared | {reply.secret.hide(token) for token in several}
        logprobs = np.asarray(outputs)
        if self.probabilities and logprobs.size:
            return np.exp(logprobs - np.logaddexp.reduce(logprobs, axis=1, keepdims=True))
        return logprobs

    def finish(self) -> None:
        """Say what is only a bound: once aloud, always in the notes."""
        notes = [
            f"class {name!r}: {count} of {self._seen} log-probabilities are upper bounds, because its token "
            f"was not among the {self.top_logprobs} returned"
            for name, count in zip(self.output_names, self.censored, strict=True)
            if count
        ]
        if self._shared:
            notes.append(
                f"the token {min(self._shared)!r} begins several classes and counts for none; give them answers "
                "that begin differently, such as {'positive': 'A', 'negative': 'B'}"
            )
        first, self.notes = not self.notes, notes
        if notes and first:
            text = "; ".join(notes) + "; raise top_logprobs or change the prompt"
            warnings.warn(text, CensoredWarning, stacklevel=3)


def first_token(choice: Mapping[str, Any]) -> dict[str, float]:
    """Return the top tokens of a choice's first answer token with their log-probabilities.

    Chat answers list them as ``content[0].top_logprobs``, completions as ``top_logprobs[0]``.
    """
    logprobs = choice.get("logprobs") or {}
    if logprobs.get("content"):
        pairs = [(t["token"], t["logprob"]) for t in logprobs["content"][0].get("top_logprobs") or []]
    elif logprobs.get("top_logprobs"):
        pairs = list((logprobs["top_logprobs"][0] or {}).items())
    else:
        pairs = []
    if not pairs:
        raise ValueError(
            "the server returned no top log-probabilities of the first answer token; it must support "
            "logprobs (check the model, top_logprobs and kind='chat' or 'completions')"
        )
    tokens: dict[str, float] = {}
    for token, value in pairs:  # two tokens may read the same
        tokens[token] = float(np.logaddexp(tokens.get(token, -math.inf), float(value)))
    return tokens


def class_logprobs(tokens: Mapping[str, float], answers: Sequence[str]) -> tuple[Floats, BoolArray, set[str]]:
    """Return each answer's log-probability, whether it is only a bound, and the tokens that fit several.

    A token counts for an answer that begins with it, blanks and case aside, if no other answer does. An
    answer with no token among the returned ones is censored, not impossible: it is at most as likely as the
    least likely token returned, and as all that was not returned together.

    >>> values, censored, _ = class_logprobs({" yes": math.log(0.6), "the": math.log(0.3)}, ["yes", "no"])
    >>> np.exp(values).round(3).tolist(), censored.tolist()
    ([0.6, 0.1], [False, True])
    """
    real = {t: v for t, v in tokens.items() if v > -9000.0}  # servers write -9999 for "too unlikely to say"
    rest = max(1.0 - sum(math.exp(v) for v in real.values()), 1e-9)
    bound = min([math.log(rest), *real.values()])
    values, shared = np.full(len(answers), -np.inf), set()
    folded = [answer.strip().casefold() for answer in answers]
    for token, value in real.items():
        piece = token.strip().casefold()
        fits = [i for i, answer in enumerate(folded) if piece and answer.startswith(piece)]
        if len(fits) == 1:
            values[fits[0]] = np.logaddexp(values[fits[0]], value)
        elif fits:
            shared.add(token)
    censored = np.isinf(values)
    return np.where(censored, bound, values), censored, shared
