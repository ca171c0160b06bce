"""A language model behind an OpenAI-compatible endpoint: a zero-shot classifier, or one that writes and scores."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from c2fa.models.http._send import EndpointError, Portal, Reply, Request, WireRows
from c2fa.models.http._settings import check_url
from c2fa.models.http.endpoint import Floats
from c2fa.models.lm.completions import Completions, Tokens, choices, columns, model_name, post
from c2fa.structure import BoolArray

# Where servers put the tokens and log-probabilities of a text that they repeat (``echo``).
_LAYOUTS: dict[str, Callable[[Any, int], Any]] = {
    "OpenAI": lambda data, row: data["choices"][row]["logprobs"],  # and vLLM, SGLang, Ray Serve, litellm's proxy
    "Together": lambda data, row: data["prompt"][row]["logprobs"],
}


class CensoredWarning(UserWarning):
    """Some class log-probabilities are upper bounds, because their tokens were not among those returned."""


class OpenAI(Completions):
    """A language model behind an OpenAI-compatible endpoint.

    With ``classes`` it is a zero-shot classifier, for texts: its outputs are the log-probabilities that the model's
    answer begins with each class. A class whose token is not among the returned top ones is *censored*: its output is
    the upper bound that the returned ones leave, ``notes`` counts such outputs, and a warning is given once.

    Without ``classes`` it writes and scores answers, for ``c2fa.cite``. Servers that repeat a prompt with
    log-probabilities (``echo``: vLLM, SGLang, Together, Ray Serve, litellm's proxy before one of them) score a given
    answer; one request finds out whether a server does. Prompts are then plain texts for ``/completions``. With other
    servers ``c2fa.cite`` needs ``similarity=``, and answers are written by ``/chat/completions``.

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
        ``"chat"``, one request per row, or ``"completions"``, many rows per request. Answers are scored by completions
        alone. By default classes are asked for by chat, and answers by completions if the server scores them so.
    top_logprobs
        How many tokens the server returns; 20 for chat and 5 for completions unless given.
    probabilities
        Return probabilities among the classes (they sum to one) instead of log-probabilities.
    max_new_tokens
        The most tokens that ``generate`` writes.
    extra
        Further fields of the request, such as ``{"seed": 0}``; a field set to None is left out, as
        ``{"max_tokens": None, "max_completion_tokens": 1}`` for a server that has renamed it.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`.
    """

    server = "an OpenAI-compatible server that repeats prompts with log-probabilities"
    completions = "/completions"
    takes_texts = takes_many = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        classes: Sequence[str] | Mapping[str, str] | None = None,
        prompt: str = (
            "Classify the text. Answer with one of these and nothing else: {classes}.\n\nText: {text}\n\nAnswer:"
        ),
        kind: str | None = None,
        top_logprobs: int | None = None,
        probabilities: bool = False,
        max_new_tokens: int = 256,
        extra: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if kind not in (None, "chat", "completions"):
            raise ValueError(f"kind must be 'chat' or 'completions', not {kind!r}")
        super().__init__(url, max_new_tokens=max_new_tokens, **settings)
        self.url = check_url(url)
        self.model, self.endpoint, self.extra = model_name(model), kind, dict(extra or {})
        self._layout = self._cannot = ""
        self.classes: _Classes | None = None
        if classes is not None:
            self.endpoint = kind or "chat"
            top = top_logprobs or (20 if self.endpoint == "chat" else 5)
            self.classes = _Classes(classes, prompt, top, probabilities)
            self.output_names, self.forgets = self.classes.names, True
            self.takes_many = self.endpoint == "completions"

    kind = "openai"

    @property
    def name(self) -> str:
        """The identity of the model: all that its answers depend on."""
        options: list[Any] = [self.max_new_tokens, self.endpoint, self.extra]
        if self.classes is not None:
            each = self.classes
            options = [each.prompt, each.answers, self.endpoint, each.top_logprobs, each.probabilities, self.extra]
        digest = hashlib.sha256(json.dumps(options, default=str).encode()).hexdigest()[:16]
        return f"{self.kind}:{self.url}#{self.model}:{digest}"

    def __repr__(self) -> str:
        return f"OpenAI({self.url!r}, {self.model!r})"

    # Writing answers, and scoring given ones.

    def try_scoring(self) -> None:
        """Find out, once, whether the server scores a given answer; raise an error where it does not."""
        if not self._layout:
            self.pieces("yes")

    def completion(self, prompt: str) -> tuple[Request, Callable[[Any], str]]:
        body: dict[str, Any] = {"max_tokens": self.max_new_tokens, "temperature": 0}
        if self.endpoint == "completions" or (self.endpoint is None and self._layout):
            return self._post("/completions", body | {"prompt": prompt}), lambda data: data["choices"][0]["text"]
        messages = [{"role": "user", "content": prompt}]
        return self._post("/chat/completions", body | {"messages": messages}), written

    def _post(self, path: str, body: Mapping[str, Any]) -> Request:
        fields = {"model": self.model, **body, **self.extra}
        return post(path, {name: value for name, value in fields.items() if value is not None})

    async def tokenize(self, portal: Portal, answer: str) -> Tokens:
        """Return the tokens of an answer, as the server repeats them after a text that does not join to them."""
        if self.endpoint == "chat":
            raise TypeError(f"{self!r} is asked for chats, which score no given answer{self.otherwise}")
        if self._cannot:
            raise EndpointError(self._cannot)
        before = "x" if answer[0].isspace() else "\n"

        def read(data: Any) -> Tokens:
            pieces = tuple(token for token, _ in self._repeated(data, 0, before, answer))
            if "".join(pieces) != answer:
                raise ValueError(f"the server's tokens do not join to the answer {answer[:80]!r}; give it otherwise")
            return Tokens(pieces, pieces)

        try:
            return await self.ask(portal, self._echo(before + answer), "reading the answer's tokens", read)
        except EndpointError as error:
            if self._layout or error.transient:
                raise
            self._cannot = str(error)
            if error.status in (400, 422):
                self._cannot += f" (it was asked for the log-probabilities of a prompt){self.otherwise}"
            raise EndpointError(self._cannot, error.status) from None

    def _echo(self, prompt: str | list[str]) -> Request:
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
        return self._post("/completions", body)

    def scored(self, data: Any, rows: Sequence[tuple[Any, Tokens]]) -> list[list[tuple[Any, Any]]]:
        ordered = {**data, "choices": choices(data, len(rows))}
        return [self._repeated(ordered, i, prompt, "".join(answer.ids)) for i, (prompt, answer) in enumerate(rows)]

    def _repeated(self, data: Any, row: int, prompt: str, answer: str) -> list[tuple[str, Any]]:
        """The tokens within the answer, in the text that the server repeats for a row, with their log-probabilities."""
        repeated: list[str] = []
        for layout, find in _LAYOUTS.items():
            try:
                logprobs = find(data, row)
                tokens, values = list(map(str, logprobs["tokens"])), logprobs["token_logprobs"]
            except (LookupError, TypeError):
                continue
            start = "".join(tokens).find(prompt + answer)  # a special token may stand before the text
            repeated = max(repeated, tokens, key=len)
            if start >= 0 and len(values) == len(tokens):
                self._layout = layout
                first, last = start + len(prompt), start + len(prompt) + len(answer)
                ends = list(accumulate(map(len, tokens)))
                inside = [k for k, end in enumerate(ends) if first <= end - len(tokens[k]) < last and end <= last]
                return [(tokens[k], values[k]) for k in inside]
        wrong = "the server gave no log-probabilities of what it was sent"
        if len(repeated) == 1:
            wrong = "the server ignores echo: it gave log-probabilities of what it wrote, not of what it was sent"
        elif repeated:
            wrong = f"the server repeats {''.join(repeated)[:60]!r}, which is not the text that it was sent"
        raise ValueError(
            f"{wrong}, so that it scores no given answer: give similarity='words', or name a server that scores "
            "otherwise (llama.cpp, vLLM) as llama: or vllm:"
        )

    # Rows: of texts to classify, or of prompts with an answer.

    async def encode(self, portal: Portal, rows: WireRows) -> WireRows:
        if self.classes is None:
            if rows.texts is not None:
                raise TypeError(
                    f"{self!r} has no classes to tell texts apart by; give classes=['positive', 'negative']"
                )
            return await super().encode(portal, rows)
        if rows.texts is None:
            raise TypeError("an OpenAI-compatible endpoint takes texts; wrap other inputs in a function")
        return rows

    def request(self, rows: WireRows) -> Request:
        if self.classes is None:
            texts = [prompt + "".join(answer.ids) for prompt, answer in columns(rows)]
            return self._echo(texts if len(texts) > 1 else texts[0])
        assert rows.texts is not None
        top, prompts = self.classes.top_logprobs, [self.classes.question(text) for text in rows.texts]
        body: dict[str, Any] = {"max_tokens": 1, "temperature": 0}
        if self.endpoint == "completions":
            return self._post("/completions", body | {"prompt": prompts, "logprobs": top})
        messages = [{"role": "user", "content": prompts[0]}]
        return self._post("/chat/completions", body | {"messages": messages, "logprobs": True, "top_logprobs": top})

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return one (log-)probability for each row and class, or for each row and token of its answer."""
        if self.classes is None:
            return super().answer(reply, rows)
        listed = reply.data.get("choices") if isinstance(reply.data, Mapping) else None
        if not isinstance(listed, list):
            raise ValueError("the answer has no list of choices; is this an OpenAI-compatible server?")
        self.spend_usage(reply.data)
        ordered = sorted(listed, key=lambda choice: int(choice.get("index", 0)))
        return self.classes.outputs([first_token(choice) for choice in ordered], reply.secret.hide)

    def finish(self) -> None:
        """Say which outputs are only bounds: always in the notes, and once by a warning."""
        if self.classes is None:
            return super().finish()
        is_first, self.notes = not self.notes, self.classes.notes()
        if self.notes and is_first:
            text = "; ".join(self.notes) + "; raise top_logprobs or change the prompt"
            warnings.warn(text, CensoredWarning, stacklevel=3)


class _Classes:
    """A zero-shot classification: its classes, its question, and how many outputs were only bounds."""

    def __init__(
        self, classes: Sequence[str] | Mapping[str, str], prompt: str, top_logprobs: int, probabilities: bool
    ) -> None:
        answers = classes if isinstance(classes, Mapping) else {c: c for c in classes}
        if isinstance(classes, str) or len(answers) < 2:
            raise ValueError("classes must be at least two names, such as ['positive', 'negative']")
        if len({a.strip().casefold() for a in answers.values()} - {""}) < len(answers):
            raise ValueError("the classes' answers must differ by more than blanks and case, and not be empty")
        if "{text}" not in prompt:
            raise ValueError("prompt must have {text} where the input goes")
        self.names, self.answers, self.prompt = tuple(answers), tuple(answers.values()), prompt
        self.top_logprobs, self.probabilities = top_logprobs, probabilities
        self.censored = np.zeros(len(answers), dtype=np.int64)
        self._seen, self._shared = 0, set[str]()

    def question(self, text: str) -> str:
        parts = self.prompt.split("{text}")
        return text.join(part.replace("{classes}", ", ".join(self.answers)) for part in parts)

    def outputs(self, rows: Sequence[Mapping[str, float]], hide: Callable[[str], str]) -> Floats:
        """One (log-)probability for each row and class, from the top tokens of each answer."""
        outputs = []
        for tokens in rows:
            values, censored, several = class_logprobs(tokens, self.answers)
            outputs.append(values)
            self._seen += 1
            self.censored += censored
            self._shared |= {hide(token) for token in several}
        logprobs = np.asarray(outputs)
        if self.probabilities and logprobs.size:
            return np.exp(logprobs - np.logaddexp.reduce(logprobs, axis=1, keepdims=True))
        return logprobs

    def notes(self) -> list[str]:
        notes = [
            f"class {name!r}: {count} of {self._seen} log-probabilities are upper bounds, because its token "
            f"was not among the {self.top_logprobs} returned"
            for name, count in zip(self.names, self.censored, strict=True)
            if count
        ]
        if self._shared:
            notes.append(
                f"the token {min(self._shared)!r} begins several classes and counts for none; give them answers "
                "that begin differently, such as {'positive': 'A', 'negative': 'B'}"
            )
        return notes


def written(data: Any) -> str:
    """The text that a model wrote in a chat; a ValueError where it refused or wrote nothing."""
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
    """Return each answer's log-probability, whether it is only a bound, and the tokens that fit several answers.

    A token counts for an answer that begins with it, blanks and case aside, if no other answer does. An
    answer with no token among the returned ones is censored, not impossible: it is at most as likely as the
    least likely returned token, and as all other tokens together.

    >>> values, censored, _ = class_logprobs({" yes": math.log(0.6), "the": math.log(0.3)}, ["yes", "no"])
    >>> np.exp(values).round(3).tolist(), censored.tolist()
    ([0.6, 0.1], [False, True])
    """
    possible = {t: v for t, v in tokens.items() if v > -9000.0}  # servers write -9999 for "too unlikely to say"
    rest = max(1.0 - sum(math.exp(v) for v in possible.values()), 1e-9)
    bound = min([math.log(rest), *possible.values()])
    values, shared = np.full(len(answers), -np.inf), set()
    folded = [answer.strip().casefold() for answer in answers]
    for token, value in possible.items():
        piece = token.strip().casefold()
        fits = [i for i, answer in enumerate(folded) if piece and answer.startswith(piece)]
        if len(fits) == 1:
            values[fits[0]] = np.logaddexp(values[fits[0]], value)
        elif fits:
            shared.add(token)
    censored = np.isinf(values)
    return np.where(censored, bound, values), censored, shared
