"""Servers that repeat a prompt with log-probabilities, each in its dialect, and what they cannot do."""

from __future__ import annotations

import json
import pickle
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx2")
import c2fa
from c2fa.models import EndpointError, OpenAI, load
from servers.fake import Server, reply
from servers.scoring import BOS, Tokenizer, ending, logprob

FAST = {"wait": 0.01, "timeout": 5.0, "retries": 1}
PROMPTS = [f"The {word} was found in Rome.\nWhere was it?\n" for word in ("cat", "dog", "cow", "owl", "fox", "ant")]
ANSWER = "In Rome, they say."


class Echo(Server):
    """A server of ``/v1/completions`` and ``/v1/chat/completions`` over made-up numbers, as vLLM serves them."""

    takes_many = True

    def __init__(self) -> None:
        self.tokenizer, self.asked = Tokenizer(), []
        self._lock = threading.Lock()
        super().__init__()

    def handle(self, handler: Any, body: bytes) -> None:
        asked = json.loads(body)
        with self._lock:
            self.asked.append((handler.path, asked))
        if handler.path == "/v1/chat/completions":
            choice = {"index": 0, "message": {"content": "Rome."}, "finish_reason": "stop"}
            return reply(handler, 200, {"choices": [choice]})
        if handler.path != "/v1/completions":
            return reply(handler, 404, {"detail": "Not Found"})
        several = isinstance(asked["prompt"], list)
        if several and not self.takes_many:
            return reply(handler, 422, {"detail": [{"msg": "Input should be a valid string"}]})
        prompts = asked["prompt"] if several else [asked["prompt"]]
        data = self.answer(asked, prompts)
        usage = {"prompt_tokens": sum(len(self.tokens(p)) for p in prompts), "completion_tokens": len(prompts)}
        return reply(handler, 200, {"object": "text_completion", "usage": usage, **data})

    def tokens(self, text: str) -> list[int]:
        return [BOS, *self.tokenizer.encode(text)]

    def answer(self, asked: Any, prompts: list[str]) -> dict[str, Any]:
        choices = [{"index": i, **self.choice(asked, prompt)} for i, prompt in enumerate(prompts)]
        return {"choices": choices[::-1]}

    def choice(self, asked: Any, prompt: str) -> dict[str, Any]:
        if not asked.get("echo"):
            return {"text": f" after {len(self.tokens(prompt))}", "finish_reason": ending(asked["max_tokens"])}
        return {"text": prompt + " x", "logprobs": self.repeated(prompt), "finish_reason": "length"}

    def repeated(self, prompt: str, written: bool = True) -> dict[str, Any]:
        """The prompt's tokens, after the one that begins every text, and one that was written."""
        ids = self.tokens(prompt)
        texts = ["<s>", *(self.tokenizer.decode([i]) for i in ids[1:]), " x"]
        values = [None, *(logprob(ids[:i], ids[i]) for i in range(1, len(ids))), -0.5]
        count = len(texts) if written else len(texts) - 1
        offsets = np.cumsum([0, *map(len, texts[:-1])]).tolist()
        return {"tokens": texts[:count], "token_logprobs": values[:count], "text_offset": offsets[:count]}

    def expected(self, prompts: list[str] = PROMPTS, answer: str = ANSWER) -> Any:
        context, tokens = [self.tokens(p) for p in prompts], self.tokenizer.encode(answer)
        return [[logprob([*ids, *tokens[:i]], token) for i, token in enumerate(tokens)] for ids in context]

    def sizes(self) -> list[int]:
        """How many prompts each request for log-probabilities held."""
        return [len(b["prompt"]) if isinstance(b["prompt"], list) else 1 for _, b in self.asked if b.get("echo")]


class Plain(Echo):
    """OpenAI's own, for its old models: no token begins a text."""

    def repeated(self, prompt: str, written: bool = True) -> dict[str, Any]:
        return {name: listed[1:] for name, listed in super().repeated(prompt, written).items()}


class SGLang(Echo):
    """Its offsets say nothing, and what it wrote comes with its own fields."""

    def repeated(self, prompt: str, written: bool = True) -> dict[str, Any]:
        return {**super().repeated(prompt, written), "text_offset": [-1] * 99}


class Together(Echo):
    """One prompt in a request, whose tokens stand beside the choices."""

    takes_many = False

    def answer(self, asked: Any, prompts: list[str]) -> dict[str, Any]:
        if not asked.get("echo"):
            return super().answer(asked, prompts)
        own = {"tokens": [" x"], "token_logprobs": [-0.5], "token_ids": [7]}
        parts = [{"text": p, "logprobs": self.repeated(p, written=False)} for p in prompts]
        return {"choices": [{"index": 0, "text": " x", "logprobs": own}], "prompt": parts}


class Proxy(Echo):
    """litellm's, before vLLM: it hands on what it is sent, and leaves an index out where there is one choice."""

    def answer(self, asked: Any, prompts: list[str]) -> dict[str, Any]:
        found = super().answer(asked, prompts)
        if len(prompts) == 1:
            del found["choices"][0]["index"]
        return {**found, "provider_specific_fields": None}


class RayServe(Echo):
    """It is vLLM behind, with the fields of its own protocol, and fails on more than one prompt."""

    def handle(self, handler: Any, body: bytes) -> None:
        if isinstance(json.loads(body).get("prompt"), list):
            self.asked.append((handler.path, json.loads(body)))
            return reply(handler, 500, {"message": "Internal Server Error"})
        return super().handle(handler, body)

    def choice(self, asked: Any, prompt: str) -> dict[str, Any]:
        return {**super().choice(asked, prompt), "stop_reason": None, "prompt_logprobs": None, "token_ids": None}


DIALECTS = (Echo, Plain, SGLang, Together, Proxy, RayServe)
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@every_dialect
def test_the_log_probabilities_are_the_servers(dialect):
    with dialect() as server:
        lm = OpenAI(server.url + "/v1", "lm", rows_per_request=3, concurrency=1, **FAST)
        np.testing.assert_allclose(lm.score(PROMPTS, ANSWER), server.expected(), rtol=1e-12)
        assert "".join(lm.pieces(ANSWER)) == ANSWER
        assert len(lm.pieces(ANSWER)) == len(server.tokenizer.encode(ANSWER))
        assert lm.usage.rows == 7  # the first is asked twice
        assert lm.usage.tokens_in > 7 * 10
        if server.takes_many and dialect is not RayServe:
            assert server.sizes() == [1, 1, 1, 3, 2]  # the answer's tokens, the first row twice, and the others
            assert lm.batch_size == 3
            return
        # One request is refused, or two where it is tried again; then every row goes alone, now and later.
        assert server.sizes()[3] == 3
        assert server.sizes()[-5:] == [1] * 5
        assert lm.batch_size == 1
        again = pickle.loads(pickle.dumps(lm))
        before = len(server.asked)
        np.testing.assert_allclose(again.score(PROMPTS, ANSWER), server.expected(), rtol=1e-12)
        assert server.sizes()[-7:] == [1] * 7
        assert len(server.asked) == before + 7


@every_dialect
@pytest.mark.parametrize("answer", ["\n\nRome", " Rome ", "Rome\n", "9 of 10"])
def test_any_answer_is_found_in_what_is_repeated(dialect, answer):
    prompts = ["Where? It says:", "Rome or not?"]
    with dialect() as server:
        lm = OpenAI(server.url + "/v1", "lm", **FAST)
        np.testing.assert_allclose(lm.score(prompts, answer), server.expected(prompts, answer), rtol=1e-12)


def test_an_answer_is_written_and_cited_by_plain_prompts():
    with Echo() as server:
        lm = load(f"openai:{server.url}/v1#lm", max_new_tokens=9, extra={"seed": 3}, **FAST)
        documents = {"a": "Rome has a river. It is old.", "b": "Owls fly at night. Foxes run."}
        c = c2fa.cite(lm, documents, "Where?", budget=24, progress=False)
        assert c.answer.text.startswith(" after ")
        assert c.answer.scored_by == "log-probability"
        assert {path for path, _ in server.asked} == {"/v1/completions"}
        assert all(body["seed"] == 3 for _, body in server.asked)
        assert sum(not body.get("echo") for _, body in server.asked) == c.answer.generations == 1
        assert len(server.asked) <= c.queries + 4  # what it can, the answer, its tokens, and the first row again


# What a server cannot do is tried by one request, said in one sentence, and remembered.


class Deaf(Echo):
    """llama.cpp and Ollama: the prompt is not repeated, and nothing says so."""

    def choice(self, asked: Any, prompt: str) -> dict[str, Any]:
        return {"text": " x", "logprobs": {"tokens": [" x"], "token_logprobs": [-0.5]}, "finish_reason": "length"}


class Silent(Echo):
    """No log-probabilities at all."""

    def choice(self, asked: Any, prompt: str) -> dict[str, Any]:
        return {"text": " x", "logprobs": None, "finish_reason": "length"}


class Chats(Echo):
    """Log-probabilities as chats have them, of what was written."""

    def choice(self, asked: Any, prompt: str) -> dict[str, Any]:
        return {"text": " x", "logprobs": {"content": [{"token": " x", "logprob": -0.5}]}}


class Strips(Echo):
    """It repeats another text than it was sent."""

    def repeated(self, prompt: str, written: bool = True) -> dict[str, Any]:
        return super().repeated(prompt.strip().upper(), written)


class Marks(Echo):
    """Its tokens are those of the vocabulary, not texts."""

    def repeated(self, prompt: str, written: bool = True) -> dict[str, Any]:
        found = super().repeated(prompt, written)
        return {**found, "tokens": [f"token_id:{i}" for i in range(len(found["tokens"]))]}


class Refuses(Echo):
    """OpenAI's present models."""

    def handle(self, handler: Any, body: bytes) -> None:
        asked = json.loads(body)
        if asked.get("echo"):
            self.asked.append((handler.path, asked))
            message = "Setting 'echo' and 'logprobs' at the same time is not supported for this model."
            return reply(handler, 400, {"error": {"message": message}})
        return super().handle(handler, body)


class OnlyChats(Echo):
    """There are no completions."""

    def handle(self, handler: Any, body: bytes) -> None:
        if handler.path == "/v1/completions":
            self.asked.append((handler.path, json.loads(body)))
            return reply(handler, 404, {"error": "no such path"})
        return super().handle(handler, body)


CANNOT = {
    Deaf: "the server ignores echo: it gave log-probabilities of what it wrote, not of what it was sent",
    Silent: "the server gave no log-probabilities",
    Chats: "the server gave no log-probabilities",
    Strips: r"the server repeats '<s>YES x', which is not the text that it was sent",
    Marks: r"the server repeats 'token_id:0.*, which is not the text that it was sent",
    Refuses: r"answered 400: \"Setting 'echo' and 'logprobs'.*asked for the log-probabilities of a prompt",
    OnlyChats: "answered 404.* has /completions below the address",
}


@pytest.mark.parametrize("kind", CANNOT)
def test_what_a_server_cannot_do_is_one_sentence_and_remembered(kind):
    with kind() as server:
        lm = OpenAI(server.url + "/v1", "lm", **FAST)
        with pytest.raises(EndpointError, match=f"{CANNOT[kind]}.*similarity=") as caught:
            c2fa.cite(lm, ["One. Two.", "Three."], "Which?", progress=False)
        assert "\n" not in str(caught.value)
        assert len(server.asked) == 1  # before it has written an answer, or scored a row
        for ask in (lm.try_scoring, lambda: lm.score(PROMPTS, ANSWER), lambda: lm.pieces("One.")):
            with pytest.raises(EndpointError, match=CANNOT[kind]):
                ask()
        assert len(server.asked) == 1
        assert lm.generate("Where?") == "Rome."
        c = c2fa.cite(lm, ["One. Two.", "Rome."], "Where?", similarity="words", budget=8, progress=False)
        assert c.answer.text == "Rome."
        assert {path for path, _ in server.asked[1:]} == {"/v1/chat/completions"}


def test_a_server_that_is_away_may_score_later():
    server = Echo()
    lm = OpenAI(server.url + "/v1", "lm", **FAST)
    server.kill()
    with pytest.raises(EndpointError, match="the connection failed"):
        lm.try_scoring()
    with Echo() as back:
        lm.url = back.url + "/v1"
        lm.close()
        lm.try_scoring()


class Wanders(Echo):
    """Numbers of another batch each time."""

    def repeated(self, prompt: str, written: bool = True) -> dict[str, Any]:
        found = super().repeated(prompt, written)
        values = [None if v is None else v - 0.3 * len(self.asked) for v in found["token_logprobs"]]
        return {**found, "token_logprobs": values}


def test_a_server_that_does_not_repeat_its_numbers_is_refused():
    with Wanders() as server:
        lm = OpenAI(server.url + "/v1", "lm", **FAST)
        with pytest.raises(EndpointError, match=r"row 0 of 6: asked twice, .* 0\.3 nats apart; switch off"):
            lm.score(PROMPTS, ANSWER)
        assert len(server.asked) == 3


class Merges(Tokenizer):
    """A tokenizer that joins a question mark with the line breaks behind it."""

    def parts(self, text: str) -> list[bytes]:
        whole = super().parts(text)
        joined: list[bytes] = []
        for part in whole:
            if part == b"\n" and joined and joined[-1].rstrip(b"\n") == b"?":
                joined[-1] += part
            else:
                joined.append(part)
        return joined


def test_a_prompt_that_runs_into_the_answer_is_named():
    with Echo() as server:
        server.tokenizer = Merges()
        lm = OpenAI(server.url + "/v1", "lm", **FAST)
        assert lm.pieces("\nRome") == ["\n", "Rome"]
        with pytest.raises(EndpointError, match=r"row 1: .*the end of the prompt and the answer as other tokens"):
            lm.score(["Where", "Who?", "When"], "\nRome")


def test_few_choices_are_an_error_that_names_the_next_step():
    class Few(Echo):
        def answer(self, asked: Any, prompts: list[str]) -> dict[str, Any]:
            return {"choices": super().answer(asked, prompts)["choices"][:1]}

    with Few() as server, pytest.raises(EndpointError, match=r"1 choices.* 5 rows; .*rows_per_request to 1"):
        OpenAI(server.url + "/v1", "lm", **FAST).score(PROMPTS, ANSWER)


def test_a_row_that_is_refused_alone_too_keeps_its_refusal():
    class Refusing(Echo):
        def handle(self, handler: Any, body: bytes) -> None:
            if "owl" in str(json.loads(body)["prompt"]):
                return reply(handler, 400, {"error": {"message": "no owls"}})
            return super().handle(handler, body)

    with Refusing() as server:
        lm = OpenAI(server.url + "/v1", "lm", concurrency=1, **FAST)
        order = [PROMPTS[0], PROMPTS[3], *PROMPTS[1:3]]
        with pytest.raises(EndpointError, match=r"rows 1–3 of 4: .*no owls"):
            lm.score(order, ANSWER)


# One class, with classes or without.


def test_kind_says_how_answers_are_written_and_scored():
    with Echo() as server:
        chat = OpenAI(server.url + "/v1", "lm", kind="chat", **FAST)
        assert chat.generate("Where?") == "Rome."
        with pytest.raises(TypeError, match=r"is asked for chats, which score no given answer.*similarity="):
            c2fa.cite(chat, ["One."], "Which?", "One.", progress=False)
        assert [path for path, _ in server.asked] == ["/v1/chat/completions"]
        plain = OpenAI(server.url + "/v1", "lm", kind="completions", max_new_tokens=3, **FAST)
        assert plain.generate("Where?").startswith(" after ")
        assert "cut at 3 tokens" in plain.notes[0]
    assert len({lm.name for lm in (chat, plain, OpenAI(server.url + "/v1", "lm"))}) == 3
    with pytest.raises(ValueError, match="kind must be 'chat' or 'completions', not 'talk'"):
        OpenAI(server.url, "lm", kind="talk")


def test_the_prefix_and_the_class_mean_one_thing():
    assert type(load("openai:http://127.0.0.1:1/v1#lm")) is OpenAI
    assert type(load("openai:http://127.0.0.1:1/v1#lm", classes=["a", "b"])) is OpenAI
    with pytest.raises(TypeError, match=r"has no classes to tell texts apart by; give classes="):
        load("openai:http://127.0.0.1:1/v1#lm")(["a text"])
    with pytest.raises(TypeError, match="takes texts; wrap other inputs"):
        load("openai:http://127.0.0.1:1/v1#lm", classes=["a", "b"])(np.ones((2, 3)))
