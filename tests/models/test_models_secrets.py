"""A secret is in no message, warning, note, name or store, whatever the server does with it."""

from __future__ import annotations

import json
import os
import pickle
import traceback
from html import escape
from urllib.parse import quote, quote_plus

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa.cli.explain import Explain
from c2fa.cli.output import RefusedError

pytest.importorskip("httpx2")
from c2fa.models import CensoredWarning, EndpointError, MLflow, OpenAI, OpenInference, load
from c2fa.models.http import _settings
from c2fa.models.http._send import Reply
from c2fa.models.http._settings import Secret, check_url
from servers.fake import Model, reply

FAST = {"wait": 0.01, "timeout": 5.0, "retries": 0, "auth_env": "MODEL_TOKEN"}
SECRET = "sk-live/4f'9a\"72c\\<e8>&d0 %61"  # each of these characters is written in another way by some server
X = np.ones((3, 2))
TEXTS = ["one", "two"]


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", SECRET)


@pytest.fixture
def server():
    with Model(lambda rows: [float(np.sum(row)) for row in rows]) as running:
        yield running


def models(url):
    return {
        "mlflow": MLflow(url, **FAST),
        "oip": OpenInference(url, "m", **FAST),
        "chat": OpenAI(url + "/v1", "lm", classes=["yes", "no"], **FAST),
        "completions": OpenAI(url + "/v1", "lm", classes=["yes", "no"], kind="completions", **FAST),
    }


def shown(error):
    """All that a person or a log sees of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


def assert_hidden(text, *secrets):
    for secret in secrets or (SECRET,):
        for written in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""), escape(secret)):
            assert written not in text
        assert secret[:12] not in text, "the beginning is a part of the secret"
    assert "***" in text


ECHOES = {
    "json": lambda handler: reply(handler, 403, {"error": f"bad {dict(handler.headers)}"}),
    "nested": lambda handler: reply(handler, 403, {"detail": [{"seen": json.dumps({"k": SECRET})}]}),
    "html": lambda handler: reply(handler, 403, f"<p>{escape(SECRET)}</p>".encode(), kind="text/html"),
    "page": lambda handler: reply(handler, 200, f"<p>{SECRET}</p>".encode(), kind="text/html"),
    "kind": lambda handler: reply(handler, 200, b"no", kind=f"text/plain; key={SECRET}"),
    "location": lambda handler: reply(handler, 308, b"", {"location": f"https://else.where/{quote(SECRET)}/m?x=1"}),
    "bare location": lambda handler: reply(handler, 302, b"", {"location": f"/sign-in#{SECRET}"}),
    "lower case": lambda handler: reply(handler, 308, b"", {"location": f"/{quote(SECRET, safe='').lower()}"}),
    "status line": lambda handler: handler.wfile.write(f"HTTP/1.1 {SECRET}\r\n\r\n".encode()),
}


def late_echo(before, status):
    """The secret where a message is cut, so that only its beginning would be left."""
    return lambda handler: reply(handler, status, ("x" * before + SECRET).encode(), kind="text/plain")


for _before in (110, 115, 290, 295):
    ECHOES |= {f"{status} after {_before}": late_echo(_before, status) for status in (200, 403)}


@pytest.mark.parametrize("kind", ["mlflow", "oip", "chat", "completions"])
@pytest.mark.parametrize("echo", ECHOES)
def test_no_words_of_a_server_show_the_secret(server, kind, echo):
    server.handle = lambda handler, body: ECHOES[echo](handler)
    with pytest.raises(EndpointError) as caught:
        models(server.url)[kind](TEXTS)
    text = shown(caught.value)
    assert SECRET not in text
    assert SECRET[:7] not in text
    assert quote(SECRET)[:7] not in text.lower()
    assert SECRET[3:12] not in text


def predictions(value):
    return lambda handler, body: reply(handler, 200, {"predictions": value})


def outputs(**output):
    return lambda handler, body: reply(handler, 200, {"outputs": [output]})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (predictions([SECRET, SECRET, SECRET]), "mlflow"),
        (predictions([{SECRET: 1.0}, {"b": 1.0}, {"b": 1.0}]), "mlflow"),
        (outputs(name=SECRET, shape=[3], datatype="BYTES", data=["a"] * 3), "oip"),
        (outputs(name="x", shape=[3], datatype=SECRET, data=["a"] * 3), "oip"),
        (outputs(name=SECRET, shape=[9], datatype="FP64", data=[1.0] * 3), "oip"),
        (outputs(name="x", shape=[3], datatype="FP64", data=[SECRET] * 3), "oip"),
    ],
)
def test_no_label_or_name_in_an_answer_shows_the_secret(server, answer, kind):
    server._invocations = server._infer = answer
    with pytest.raises(EndpointError) as caught:
        models(server.url)[kind](X)
    assert_hidden(shown(caught.value))


def test_names_and_notes_that_a_server_chooses_do_not_hold_the_secret(server):
    server.predict = lambda rows: [{SECRET: 0.5, "b": 0.5} for _ in rows]
    model = MLflow(server.url, **FAST)
    model(X)
    assert model.output_names == ("***", "b")
    server.tokens = lambda prompt: {SECRET: -0.5, "yes": -1.0}
    classes = [SECRET + " one", SECRET + " two"]  # so that the token begins several
    model = OpenAI(server.url + "/v1", "lm", classes={"1": classes[0], "2": classes[1]}, **FAST)
    with pytest.warns(CensoredWarning) as warned:
        model(TEXTS)
    assert_hidden(" ".join(model.notes) + str(warned[0].message))


@pytest.mark.parametrize("secret", ["sk-12\n34", "sk-12\r\n34", "sk-\0live", "sk-\x7flive", "sk-lïve"], ids=ascii)
def test_a_secret_that_no_header_can_carry_is_refused_unseen(server, monkeypatch, secret):
    monkeypatch.setattr(os, "environ", {**os.environ, "MODEL_TOKEN": secret})  # the system's takes no "\\0"
    with pytest.raises(ValueError, match="MODEL_TOKEN holds a character that no header can carry") as caught:
        MLflow(server.url, **FAST)(X)
    text = shown(caught.value)
    assert secret not in text
    assert secret[:3] not in text
    assert server.requests == []


def test_the_errors_in_a_store_do_not_show_the_secret(server, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("MODEL_TOKEN", SECRET)
    answer = server._invocations

    def refuse_the_second(handler, body):
        if 7.0 in np.ravel(body["inputs"]):
            return reply(handler, 400, {"error": "x" * 290 + SECRET})
        return answer(handler, body)

    server._invocations = refuse_the_second
    store = _many(server, [X[0], np.full_like(X[0], 7.0)], tmp_path)
    [error] = [text for table in store.tables(["error"]) for text in table["error"].to_pylist() if text]
    assert "xxx" in error
    assert_hidden(error)


def test_a_run_that_ends_for_a_bad_secret_does_not_show_it(server, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("MODEL_TOKEN", "sk-live/4\n1234")
    with pytest.raises(RuntimeError, match="has not answered once") as caught:
        _many(server, [X[0], X[1]], tmp_path)
    assert "sk-live" not in shown(caught.value)


def _many(server, inputs, folder):
    masker = c2fa.maskers.Array(c2fa.Structure.flat(len(X[0])))
    explainer = c2fa.Explainer(MLflow(server.url, **FAST), masker, budget=8, progress=False)
    return explainer.many(inputs, folder / "store", engine="serial", patience=0.1)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=4), st.text(max_size=20))
def test_a_secret_is_found_however_a_server_writes_it(text, around):
    for write in (str, repr, json.dumps, quote, quote_plus, escape, lambda t: json.dumps(json.dumps([t])), ascii):
        said = f"{around}«{write('=' + text + '=')}»{around}"
        assert "=***=" in Secret(text).hide(said).replace("%3D", "=")


@pytest.mark.parametrize("secret", ["s3cret", "\\s3cret", "s\\\\3", "\\\\\\", "%5c", "&amp;x"])
@pytest.mark.parametrize("run", ["\\", "%5C", "&#92;", "%25", "&amp;", "&amp;#0"])
def test_hiding_does_not_take_the_square_of_what_a_server_says(secret, run):
    said = f"{run * 200_000}{secret[:-1]}«{secret}»"  # by the square this would take an hour
    assert Secret(secret).hide(said).endswith("***»")


@pytest.mark.parametrize("url", ["http://models.example", "HTTP://10.0.0.7:80", "http://[fe80::1]/x"])
def test_a_secret_does_not_go_to_another_machine_in_the_open(url):
    with pytest.raises(ValueError, match=r"over http:// whoever is on the way could read the secret; give .*https://"):
        MLflow(url, **FAST)
    assert MLflow(url, **FAST, auth_over_http=True).settings.auth_over_http
    assert MLflow(url).settings.auth_env is None


@pytest.mark.parametrize("url", ["https://models.example", "http://localhost:1", "http://127.8.8.8", "http://[::1]:2"])
def test_a_secret_goes_to_this_machine_and_over_https(url):
    MLflow(url, **FAST)


def test_an_address_is_shown_without_what_may_be_secret():
    with pytest.raises(ValueError, match="must have no") as caught:
        load("mlflow:http://host/x#pa55")
    assert "pa55" not in str(caught.value)
    with pytest.raises(RefusedError, match=r"cannot load the model 'mlflow:http://\*\*\*@host'") as refused:
        Explain(files=[], model="mlflow:http://me:pa55@host").load()
    assert "pa55" not in str(refused.value)
    assert _settings.shown("hf:/data/models@v2") == "hf:/data/models@v2"


def test_a_secret_shows_itself_to_no_one():
    secret = Secret(SECRET)
    assert SECRET not in repr(secret) + str(secret) + f"{secret}" + repr(Reply(None, secret))
    with pytest.raises(TypeError, match="a secret is not sent to other processes"):
        pickle.dumps(secret)
    assert Secret("").hide("nothing to hide") == "nothing to hide"
    assert Secret("abc").hide("ABC abcabc") == "*** ******"


@pytest.mark.parametrize(
    "address", ["me:pa55@host", "//me:pa55@host", "http://me:pa55@host", "ftp://me:pa55@host/x", "host/x?key=pa55"]
)
@pytest.mark.parametrize("kind", ["", "mlflow:", "oip:", "openai:", "htpp:"])
def test_an_address_with_a_secret_is_refused_unseen(address, kind):
    with pytest.raises(ValueError) as caught:
        load(kind + address) if kind else check_url(address)
    assert "pa55" not in shown(caught.value)
