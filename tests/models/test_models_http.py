"""Models behind HTTP: the protocols, what breaks on the way, and what it costs."""

from __future__ import annotations

import asyncio
import gc
import gzip
import http.server
import json
import math
import pickle
import socket
import subprocess
import sys
import threading
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa

pytest.importorskip("httpx2")
from c2fa.models import CensoredWarning, EndpointError, MLflow, OpenAI, OpenInference
from c2fa.models.http._send import WireRows
from c2fa.models.http.endpoint import Usage
from c2fa.models.http.limits import retry_after
from c2fa.models.lm.openai import class_logprobs
from servers.fake import Model, Proxy, Server, reply

FAST = {"wait": 0.01, "timeout": 5.0}
X = np.arange(60.0).reshape(20, 3) / 7


def linear(rows):
    """Two outputs of three numbers, so that a swapped row shows."""
    values = np.asarray(rows, dtype=float)
    return np.stack([values @ [1.0, -2.0, 0.5], values.sum(axis=1)], axis=1)


def lengths(texts):
    return np.array([[len(t), t.count("a")] for t in texts], dtype=float)


@pytest.fixture
def server():
    with Model(linear) as running:
        yield running


# The protocols.


def test_the_open_inference_protocol_gives_the_same_outputs(server):
    model = OpenInference(server.url, "m", output_names=["a", "b"], rows_per_request=4, **FAST)
    np.testing.assert_allclose(model(X), linear(X))
    np.testing.assert_allclose(model(X.tolist()), linear(X))
    assert model.output_names == ("a", "b")
    assert server.sizes[0] == 1  # the probe
    assert max(server.sizes) <= 4
    assert [path for path, _ in server.requests[:3]] == ["/v2", "/v2/models/m", "/v2/models/m/infer"]
    assert model.usage.rows == 40
    model.close()


def test_the_servers_own_types_and_names_are_used():
    with Model(linear, inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]) as running:
        model = OpenInference(running.url, "m", version="2", **FAST)
        np.testing.assert_allclose(model(X), linear(X.astype(np.float32)))
        assert running.requests[-1][0] == "/v2/models/m/versions/2/infer"


def test_texts_travel_unchanged():
    texts = ["a né ☃ 𝕏", "", 'two\nlines "quoted" {braces}', "a" * 1000]
    with Model(lengths) as running:
        for model in (OpenInference(running.url, "m", **FAST), MLflow(running.url, **FAST)):
            np.testing.assert_array_equal(model(texts), lengths(texts))
        assert json.dumps(texts[0]) in running.asked


def test_frames_keep_their_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [30, 40, 50], "city": ["Rome", None, "Oslo"], "pay": [1.5, np.nan, 2.5]})

    def predict(rows):
        return [[r["age"], len(r["city"] or ""), -1.0 if r["pay"] is None else r["pay"]] for r in rows]

    wanted = [[30, 4, 1.5], [40, 0, -1], [50, 4, 2.5]]
    with Model(predict) as running:
        np.testing.assert_array_equal(MLflow(running.url, **FAST)(frame), wanted)
        np.testing.assert_array_equal(OpenInference(running.url, "m", **FAST)(frame), wanted)


def test_what_is_missing_in_a_frame_is_null():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [pd.Timestamp("2024-02-03"), pd.NaT]})
    assert WireRows.of(frame).columns == {"a": [1, None], "b": ["2024-02-03T00:00:00", None]}


def test_cells_are_what_json_has_or_are_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"price": [Decimal("1.5"), Decimal("2")], "tags": [["a"], {"b": 1}]})
    assert WireRows.of(frame).columns == {"price": [1.5, 2.0], "tags": [["a"], {"b": 1}]}
    for cell in (b"x", pd.Timedelta("1 day"), {1, 2}):
        with pytest.raises(TypeError, match=rf"column 'late' holds {type(cell).__name__}: wrap it"):
            WireRows.of([{"late": cell}])


def test_mlflow_reads_named_columns_and_refuses_labels():
    with Model(lambda rows: [{"no": 0.25, "yes": 0.75} for _ in rows]) as running:
        model = MLflow(running.url + "/invocations", **FAST)
        np.testing.assert_array_equal(model(X[:2]), [[0.25, 0.75]] * 2)
        assert model.output_names == ("no", "yes")
    labels = r"labels such as 'setosa'.*predict_proba"
    with Model(lambda rows: ["setosa" for _ in rows]) as running, pytest.raises(EndpointError, match=labels):
        MLflow(running.url, **FAST)(X)


# Log-probabilities.


def tokens(prompt):
    """Yes with 0.6, no with 0.2 + 0.1, unless the text is odd: then no 'no' is among the returned."""
    if "odd" in prompt:
        return {" Yes": math.log(0.6), "Maybe": math.log(0.3)}
    return {"Yes": math.log(0.6), "no": math.log(0.2), " No": math.log(0.1)}


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_class_log_probabilities_are_the_output(kind):
    with Model(linear, tokens=tokens) as running:
        model = OpenAI(running.url + "/v1", "lm", classes=["yes", "no"], kind=kind, price_per_token=(0.5, 2.0), **FAST)
        texts = [f"text {i} with {{braces}}" for i in range(9)]
        np.testing.assert_allclose(np.exp(model(texts)), [[0.6, 0.3]] * 9)
        assert model.output_names == ("yes", "no")
        assert model.notes == []
        assert model.usage.tokens_out == 9
        assert model.cost == model.usage.tokens_in * 0.5 + 9 * 2.0
        assert len(running.sizes) == (9 if kind == "chat" else 2)
        assert sum("Text: text 3 with {braces}" in asked for asked in running.asked) == 1


def test_a_class_outside_the_top_tokens_is_bounded_and_said():
    with Model(linear, tokens=tokens) as running:
        model = OpenAI(running.url + "/v1", "lm", classes=["yes", "no"], kind="completions", **FAST)
        with pytest.warns(CensoredWarning, match="class 'no': 2 of 3 log-probabilities are upper bounds"):
            found = model(["odd one", "fine", "odd two"])
        np.testing.assert_allclose(np.exp(found), [[0.6, 0.1], [0.6, 0.3], [0.6, 0.1]])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # said once aloud; the notes go on counting
            model(["odd three"])
        assert model.notes == [
            "class 'no': 3 of 4 log-probabilities are upper bounds, because its token was not among the 5 returned"
        ]


def test_probabilities_sum_to_one():
    with Model(linear, tokens=tokens) as running:
        model = OpenAI(running.url + "/v1", "lm", classes={"good": "Yes", "bad": "No"}, probabilities=True, **FAST)
        np.testing.assert_allclose(model(["one"]), [[2 / 3, 1 / 3]])
        assert model.output_names == ("good", "bad")


def test_a_token_that_begins_several_classes_counts_for_none():
    values, censored, shared = class_logprobs({"p": -0.1, "posi": -3.0}, ["positive", "poor"])
    assert shared == {"p"}
    assert values[0] == -3.0
    assert censored.tolist() == [False, True]


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=8), st.integers(0, 7))
def test_a_censored_class_is_never_below_its_true_probability(weights, hidden):
    """Of a full distribution, return all but the least likely tokens: the bound must hold for those."""
    p = np.sort(np.asarray(weights) / sum(weights))[::-1]
    keep = max(1, len(p) - 1 - hidden % len(p))
    returned = {f"t{i}": math.log(p[i]) for i in range(keep)}
    values, censored, _ = class_logprobs(returned, [f"t{i}" for i in range(len(p))])
    assert censored.tolist() == [i >= keep for i in range(len(p))]
    assert (values >= np.log(p) - 1e-6).all()


def test_a_server_without_log_probabilities_is_named():
    with Model(linear) as running:
        model = OpenAI(running.url + "/v1", "lm", classes=["a", "b"], kind="completions", **FAST)
        running._complete = lambda handler, body: reply(handler, 200, {"choices": [{"index": 0, "logprobs": None}]})
        with pytest.raises(EndpointError, match="returned no top log-probabilities"):
            model(["text"])


# What breaks on the way.


def patience(fault):
    """Wait briefly only where the server hangs: a busy machine is no fault."""
    return {**FAST, "timeout": 1.0} if fault == "hang" else FAST


def asked_once(proxy):
    assert proxy.repeated == [], "a row whose answer had arrived was asked again"


@pytest.mark.parametrize(
    "fault",
    [500, 503, 429, (429, {"retry-after": "0.05"}), "hang", "half", "cut", 408, 502],
    ids=["500", "503", "429", "retry-after", "hang", "half", "cut", "408", "502"],
)
@pytest.mark.parametrize("protocol", ["oip", "mlflow"])
def test_a_passing_fault_is_survived_and_no_answered_row_asked_twice(server, fault, protocol):
    with Proxy(server.port, [None, fault, None, fault, None]) as proxy:
        options = {**patience(fault), "rows_per_request": 4, "concurrency": 2}
        model = OpenInference(proxy.url, "m", **options) if protocol == "oip" else MLflow(proxy.url, **options)
        np.testing.assert_allclose(model(X), linear(X))
        assert proxy.faults == []
        asked_once(proxy)
        assert len(proxy.delivered) == len(X)
        model.close()


def test_retry_after_is_waited_for_by_every_request(server):
    with Proxy(server.port, [(429, {"retry-after": "0.4"})]) as proxy:
        model = MLflow(proxy.url, **FAST)
        begin = time.monotonic()
        model(X)
        assert time.monotonic() - begin > 0.4


def test_retry_after_may_be_a_date_or_nonsense():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < retry_after({"retry-after": later}) < 91
    assert retry_after({"retry-after": "7"}) == 7
    for nonsense in ("soon", "inf", "nan", "Mon, 16 Nov 2026 01:00:00 +99999999999999999"):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


@pytest.mark.parametrize("zone", ["", " -0000", " +0000"], ids=["none", "-0000", "+0000"])
def test_a_retry_after_date_without_a_zone_is_in_utc(server, zone):
    """HTTP's dates are UTC whatever they say; one that Python reads without a zone ended the explanation."""
    now = datetime.now(UTC)
    later = (now + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S") + zone
    assert 80 < retry_after({"retry-after": later}) < 91
    past = (now - timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S") + zone
    with Proxy(server.port, [(503, {"retry-after": past})]) as proxy:
        np.testing.assert_allclose(MLflow(proxy.url, **FAST)(X), linear(X))


def test_a_wait_longer_than_allowed_stops_with_the_reason(server):
    message = r"429: 'a made-up failure' and asked to wait 3600 s.*tried once"
    faults = [(429, {"retry-after": "3600"})]
    with Proxy(server.port, faults) as proxy, pytest.raises(EndpointError, match=message):
        MLflow(proxy.url, **FAST)(X)


def test_a_refusal_is_not_retried_and_quotes_the_server(server):
    with Proxy(server.port, [None, 400, None]) as proxy:
        model = MLflow(proxy.url, rows_per_request=10, concurrency=1, **FAST)
        message = r"MLflow\('mlflow:http://127.0.0.1:\d+'\), rows 1–10 of 20: the server answered 400: 'a made-up"
        with pytest.raises(EndpointError, match=message):
            model(X)
        assert proxy.seen == ["", "400"]


@pytest.mark.parametrize("protocol", ["oip", "mlflow"])
def test_the_first_row_is_tried_as_often_as_any_other(server, protocol):
    with Proxy(server.port, [500] * 4) as proxy:
        options = {**FAST, "retries": 4}
        model = OpenInference(proxy.url, "m", **options) if protocol == "oip" else MLflow(proxy.url, **options)
        np.testing.assert_allclose(model(X), linear(X))
        assert proxy.seen[:5] == ["500"] * 4 + [""]


def test_a_server_that_keeps_failing_on_one_row_may_expect_another_shape(server):
    with Proxy(server.port, [500] * 50) as proxy:
        message = r"row 0 of 20: the server answered 500.* \(tried 4 times\); see the server's log; it fails on even"
        with pytest.raises(EndpointError, match=message) as caught:
            OpenInference(proxy.url, "m", retries=3, **FAST)(X)
        assert "perhaps its inputs must have another shape or type" in str(caught.value)
        assert caught.value.transient
        assert len(proxy.seen) == 4


@pytest.mark.parametrize("faults", [[503, 500, 500], [500, 500, 503], [None, 500, 500, 500]], ids=str)
def test_no_other_failure_is_put_down_to_shapes(server, faults):
    with Proxy(server.port, faults) as proxy, pytest.raises(EndpointError, match="tried 3 times") as caught:
        MLflow(proxy.url, retries=2, rows_per_request=50, **FAST)(X)
    assert "shape" not in str(caught.value)


def test_retries_end(server):
    with Proxy(server.port, [None] + [503] * 50) as proxy:
        model = MLflow(proxy.url, retries=3, rows_per_request=50, **FAST)
        with pytest.raises(EndpointError, match="tried 4 times"):
            model(X)


@pytest.mark.parametrize("fault", ["few", 400, 503])
def test_calling_again_asks_for_the_missing_rows_alone(server, fault):
    """One of five requests fails for good: the answers of the others are not lost."""
    with Proxy(server.port, [None, None, *[fault] * 4]) as proxy:
        model = MLflow(proxy.url, rows_per_request=4, concurrency=2, retries=1, **FAST)
        with pytest.raises(EndpointError) as caught:
            model(X)
        assert caught.value.transient == (fault == 503)
        assert caught.value.status == (None if fault == "few" else fault)
        proxy.faults.clear()
        before = len(proxy.delivered)
        good = np.isfinite(caught.value.partial).all(axis=1)
        assert good.sum() == before
        np.testing.assert_allclose(caught.value.partial[good], linear(X)[good])
        assert before >= 5
        np.testing.assert_allclose(model(X), linear(X))
        asked_once(proxy)
        assert len(proxy.delivered) == len(X)
        assert model._memo == {}


def test_rows_of_several_lengths_do_not_hide_why_a_call_failed():
    def one_and_two(rows):
        return linear(rows)[:, : min(len(rows), 2)]  # the first request has one row

    with Model(one_and_two) as running, Proxy(running.port, [None, None, 400]) as proxy:
        model = MLflow(proxy.url, rows_per_request=4, concurrency=1, **FAST)
        with pytest.raises(EndpointError, match="the server answered 400") as caught:
            model(X)
        assert caught.value.partial is None


def test_wrong_row_counts_are_named(server):
    message = "rows 1–19 of 20: the server returned 18 rows for 19 inputs"
    with Proxy(server.port, [None, "few"]) as proxy, pytest.raises(EndpointError, match=message):
        OpenInference(proxy.url, "m", **FAST)(X)


def test_nan_is_handed_on_and_the_good_rows_are_kept(server):
    with Proxy(server.port, [None, "nan"]) as proxy:
        model = OpenInference(proxy.url, "m", **FAST)
        assert np.isnan(model(X)).any(axis=1).tolist() == [False, True] + [False] * 18
        np.testing.assert_allclose(model(X), linear(X))
        assert server.sizes[-1] == 1  # only the row without an answer was asked again


def test_a_server_killed_and_restarted_in_the_middle():
    first = Model(linear, delay=0.05)
    model = OpenInference(first.url, "m", rows_per_request=2, concurrency=2, **{**FAST, "wait": 0.1})
    found = []
    thread = threading.Thread(target=lambda: found.append(model(X)))
    thread.start()
    while len(first.sizes) < 4:
        time.sleep(0.01)
    first.kill()
    time.sleep(0.2)
    with Model(linear, port=first.port) as second:
        thread.join(20)
        np.testing.assert_allclose(found[0], linear(X))
        both = first.asked & second.asked  # at most what was under way when the server died
        assert sum(both.values()) <= 4
        assert max(first.asked.values()) == max(second.asked.values()) == 1
        model.close()


def test_no_server_at_all_is_one_clear_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match=r"the connection failed .*tried 2 times.*see that the server runs"):
        MLflow(f"http://127.0.0.1:{port}", retries=1, **FAST)(X)


def test_an_address_that_moved_is_told_and_not_followed():
    class Moved(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(308)
            self.send_header("location", "https://elsewhere.example/m?token=abc")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Moved) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        with pytest.raises(
            EndpointError, match=r"308; give the address that it points to, 'https://elsewhere.example/m'"
        ):
            MLflow(f"http://127.0.0.1:{running.server_address[1]}", **FAST)(X)
        running.shutdown()


def test_a_page_that_is_not_json_is_named():
    with Model(linear) as running:
        running._invocations = lambda handler, body: reply(handler, 200, b"<html>sign in</html>", kind="text/html")
        with pytest.raises(EndpointError, match="answered text/html, not JSON: '<html>sign in"):
            MLflow(running.url, **FAST)(X)


# The same, for a whole explanation with a ledger.

STRUCTURE = c2fa.Structure.from_groups("aab")


def explainer(model, path, **options):
    masker = c2fa.maskers.Array(STRUCTURE)
    return c2fa.Explainer(model, masker, budget=(4, 8), batch_size=4, ledger=path, **options)


@pytest.mark.parametrize("fault", [500, (429, {"retry-after": "0.05"}), "hang", "half", "cut"], ids=str)
def test_an_explanation_completes_through_passing_faults(server, tmp_path, fault):
    wanted = explainer(linear, None)(X[3])
    with Proxy(server.port, [fault, None, fault, None, fault]) as proxy:
        model = OpenInference(proxy.url, "m", rows_per_request=2, **patience(fault))
        run = explainer(model, tmp_path / "ledger.sqlite")
        found = run(X[3])
        run.ledger.close()
        asked_once(proxy)
        assert len(proxy.delivered) == found.queries
    for a, b in zip(found.values, wanted.values, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (400, "answered 400: 'a made-up failure'"),
        (500, "answered 500"),
        ("hang", "no whole answer within 1 s"),
        ("half", "the connection failed"),
        ("few", r"returned \d rows? for \d inputs"),
        ("nan", "NaN or infinity"),
    ],
    ids=str,
)
def test_an_explanation_stops_with_one_error_and_goes_on_from_there(server, tmp_path, fault, message):
    wanted = explainer(linear, None)(X[3])
    with Proxy(server.port, [None] * 2 + [fault] * 20) as proxy:
        model = MLflow(proxy.url, rows_per_request=2, retries=1, **patience(fault))
        run = explainer(model, tmp_path / "ledger.sqlite")
        with pytest.raises(c2fa.QueryError, match=message) as caught:
            run(X[3])
        assert "\n" not in str(caught.value)
        proxy.faults.clear()
        found = run(X[3])
        run.ledger.close()
        asked_once(proxy)
        assert len(proxy.delivered) == found.queries
    for a, b in zip(found.values, wanted.values, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


# Concurrency, pace, Ctrl-C, and life.


def test_requests_run_side_by_side_but_not_more_than_allowed():
    with Model(linear, delay=0.2) as running:
        model = MLflow(running.url, rows_per_request=1, concurrency=5, **FAST)
        begin = time.monotonic()
        model(X)
        assert time.monotonic() - begin < 3.5  # one after the other would take four seconds
        assert running.most == 5


def test_the_rate_is_kept(server):
    model = MLflow(server.url, rows_per_request=1, concurrency=20, rate=20.0, **FAST)
    begin = time.monotonic()
    model(np.concatenate([X, X + 100]))  # 40 requests: 20 at once, 20 more in a second
    assert time.monotonic() - begin > 0.9


def test_equal_rows_are_asked_once(server):
    found = MLflow(server.url, **FAST)(np.concatenate([X, X[::-1]]))
    np.testing.assert_allclose(found, linear(np.concatenate([X, X[::-1]])))
    assert max(server.asked.values()) == 1


def test_a_call_inside_a_running_loop_works(server):
    model = MLflow(server.url, **FAST)

    async def notebook_cell():
        return model(X)

    np.testing.assert_allclose(asyncio.run(notebook_cell()), linear(X))


def test_several_threads_may_share_a_model(server):
    model = MLflow(server.url, rows_per_request=3, **FAST)
    found = {}

    def call(i):
        found[i] = model(X + i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for i in range(6):
        np.testing.assert_allclose(found[i], linear(X + i))


def in_threads(call, count=8):
    """Call with 0, 1, ... in threads that begin together, and return the results."""
    together = threading.Barrier(count)

    def begin(i):
        together.wait(10)
        return call(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_threads_share_one_concurrency_from_the_first_request():
    with Model(linear, delay=0.01) as running:
        model = MLflow(running.url, concurrency=2, rows_per_request=5, **FAST)
        for i, found in enumerate(in_threads(lambda i: model(X + i))):
            np.testing.assert_allclose(found, linear(X + i))
        assert running.most == 2
        model.close()


def test_threads_share_one_rate_from_the_first_request(server):
    model = MLflow(server.url, rate=20.0, concurrency=24, rows_per_request=1, **FAST)
    begin = time.monotonic()
    in_threads(lambda i: model(X[:3] + i))  # 24 requests: 20 at once, 4 more at 20 a second
    assert time.monotonic() - begin > 0.15
    model.close()


class SlowCount(Usage):
    """Lets other threads in between reading a count and writing it, as Python may at any time."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if isinstance(value, int):
            time.sleep(0.001)
        return value


def test_what_threads_have_used_is_counted_exactly():
    with Model(linear, tokens=tokens) as running:
        model = OpenAI(running.url + "/v1", "lm", classes=["yes", "no"], price_per_row=1.0, concurrency=8, **FAST)
        model.usage = SlowCount()
        in_threads(lambda i: model([f"text {i} {k}" for k in range(6)]))
        assert model.cost == 48
        assert (model.usage.requests, model.usage.tokens_out) == (48, 48)
        model.close()


def test_a_forgotten_model_closes_its_connections_and_thread(server):
    model = MLflow(server.url, **FAST)
    model(X)
    thread = model._portal._thread
    assert thread.is_alive()
    del model
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_a_model_can_be_sent_to_another_process(server):
    model = OpenInference(server.url, "m", **FAST)
    model(X)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(other(X), linear(X))


def test_ctrl_c_stops_promptly_and_keeps_what_was_answered():
    code = f"""
import os, signal, sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import numpy as np
from servers.fake import Model
from c2fa.models import MLflow
server = Model(lambda rows: [float(np.sum(r)) for r in rows], delay=0.0)
model = MLflow(server.url, rows_per_request=1, concurrency=1, timeout=60.0)
stopped_at = []

def slow(rows):
    if len(server.sizes) > 10:
        stopped_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    return [float(np.sum(r)) for r in rows]

server.predict = slow
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    model(np.arange(40.0).reshape(20, 2))
except KeyboardInterrupt:
    print("stopped", time.monotonic() - stopped_at[0] < 4, len(model._memo), model._portal)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.split() == ["stopped", "True", "10", "None"], done.stderr


# Secrets and prices.


def test_the_secret_is_sent_and_shown_nowhere(server, monkeypatch):
    secret = "s3cr3t-value"
    monkeypatch.setenv("MODEL_TOKEN", secret)
    with Proxy(server.port, []) as proxy:
        model = MLflow(proxy.url, auth_env="MODEL_TOKEN", **FAST)
        model(X)
        assert server.requests[-1][1]["authorization"] == f"Bearer {secret}"
        text = repr(model) + repr(model.settings) + model.name + repr(vars(model)) + str(pickle.dumps(model))
        assert secret not in text

    def echo(handler, body):
        headers = dict(handler.headers.items())
        return reply(handler, 403, {"error": f"bad {headers}"})

    server._invocations = echo
    with pytest.raises(EndpointError, match=r"403: .*auth_env") as caught:
        MLflow(server.url, auth_env="MODEL_TOKEN", **FAST)(X)
    assert secret not in str(caught.value)
    assert "***" in str(caught.value)
    assert secret not in repr(caught.value.__context__)


def test_a_missing_or_misplaced_secret_is_refused_without_showing_it(server, monkeypatch):
    monkeypatch.delenv("MODEL_TOKEN", raising=False)
    with pytest.raises(ValueError, match="environment variable MODEL_TOKEN is not set"):
        MLflow(server.url, auth_env="MODEL_TOKEN", **FAST)(X)
    for wrong in ("sk-live-123", "hf_abc"):
        with pytest.raises(ValueError, match="name of an environment variable") as caught:
            MLflow(server.url, auth_env=wrong)
        assert wrong not in str(caught.value)
    with pytest.raises(ValueError, match="looks like a secret"):
        MLflow(server.url, headers={"X-Api-Key": "abc"})
    with pytest.raises(ValueError, match="must not hold a user name") as caught:
        MLflow("http://me:pw@host")
    assert "pw" not in str(caught.value).replace("password", "")


def test_the_cost_meter_counts_answered_rows_alone(server):
    with Proxy(server.port, [500, None, 500]) as proxy:
        model = MLflow(proxy.url, price_per_row=0.25, rows_per_request=7, **FAST)
        assert model.cost == 0
        model(X)
        assert model.cost == 5.0
        assert model.batch_size == 28


# What is wrong before anything is sent.


def test_wrong_settings_are_refused():
    for wrong, message in [
        ({"retrys": 3}, "MLflow has no option 'retrys'; it takes rows_per_request"),
        ({"timeout": 0}, "timeout must be a number above 0"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"timeout": "5"}, "timeout must be a number above 0, not '5'"),
        ({"max_wait": None}, "max_wait must be a number above 0, not None"),
        ({"headers": [("a", "b")]}, "headers must be a dict of texts"),
        ({"headers": {"X-Team": 3}}, "headers must be a dict of texts"),
        ({"auth_env": 3}, "auth_env takes the name of an environment variable"),
        ({"price_per_row": -1}, "prices must be numbers of at least 0"),
        ({"price_per_row": float("nan")}, "prices must be numbers of at least 0"),
        ({"price_per_token": (1, 2, 3)}, r"those of tokens one or two; got \(0.0, 1, 2, 3\)"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            MLflow("http://127.0.0.1:1", **wrong)
    with pytest.raises(ValueError, match="http://"):
        MLflow("host:80")
    with pytest.raises(ValueError, match=r"no '\?'"):
        MLflow("http://host/path?key=abc")
    for wrong in ("positive", ["one"], ["Yes", "yes "]):
        with pytest.raises(ValueError, match="classes"):
            OpenAI("http://host/v1", "m", classes=wrong)
    with pytest.raises(ValueError, match=r"\{text\}"):
        OpenAI("http://host/v1", "m", classes=["a", "b"], prompt="Classify.")


def test_rows_that_cannot_travel_are_refused(server):
    model = MLflow(server.url, **FAST)
    with pytest.raises(ValueError, match="empty"):
        model([])
    with pytest.raises(ValueError, match="must have one shape"):
        model([np.zeros(2), np.zeros(3)])
    with pytest.raises(TypeError, match="numbers, texts or a frame"):
        model([object()])


@settings(max_examples=50)
@given(st.lists(st.text(max_size=5), min_size=1, max_size=8))
def test_keys_are_equal_for_equal_rows_alone(texts):
    keys = WireRows.of(texts).keys()
    for a, first in zip(texts, keys, strict=True):
        for b, second in zip(texts, keys, strict=True):
            assert (a == b) == (first == second)


@pytest.mark.parametrize("names", [(), ("yes", "no")], ids=["unnamed", "named"])
def test_one_answer_of_another_width_does_not_stay(server, names):
    """The server errs once; the next call must not remember the row that does not fit."""
    answer, calls = server._invocations, []

    def err_once(handler, body):
        calls.append(body)
        if len(calls) == 2:
            return reply(handler, 200, {"predictions": [[1.0, 2.0, 3.0]] * len(body["inputs"])})
        return answer(handler, body)

    server._invocations = err_once
    server.predict = lambda rows: np.stack([np.sum(rows, axis=1), np.max(rows, axis=1)], axis=1)
    model = MLflow(server.url, output_names=names, rows_per_request=4, concurrency=1, **FAST)
    with pytest.raises(EndpointError, match="outputs"):
        model(X)
    np.testing.assert_allclose(model(X)[:, 0], X.sum(axis=1))


def test_a_body_that_is_not_compressed_as_its_header_says_is_asked_again(server):
    answer, calls = server._invocations, []

    def err_once(handler, body):
        calls.append(body)
        if len(calls) == 2:
            return reply(handler, 200, {"predictions": [1.0] * len(body["inputs"])}, {"content-encoding": "gzip"})
        return answer(handler, body)

    server._invocations = err_once
    server.predict = lambda rows: np.sum(rows, axis=1)
    np.testing.assert_allclose(MLflow(server.url, rows_per_request=4, **FAST)(X)[:, 0], X.sum(axis=1))


# What is too much.


@pytest.mark.parametrize("kind", ["plain", "gzip", "deflate", "refused"])
def test_a_reply_is_limited_also_unpacked(kind):
    class Endless(Server):
        def handle(self, handler, body):
            large = b"[" + b" " * 3_000_000
            packed = {"gzip": gzip.compress, "deflate": zlib.compress}.get(kind, bytes)(large)
            headers = {"content-encoding": kind} if packed != large else {}
            reply(handler, 500 if kind == "refused" else 200, packed, headers)

    with Endless() as running:
        model = MLflow(running.url, max_reply=2_000_000, retries=0, wait=0.01)
        with pytest.raises(EndpointError, match="the answer has more than max_reply=2000000 bytes; lower rows_per_req"):
            model(np.ones((2, 2)))


@pytest.mark.parametrize("packing", ["zstd", "br", "gzip, gzip", "x" * 999])
def test_what_unpacks_without_bound_is_refused(packing):
    class Packs(Server):
        def handle(self, handler, body):
            reply(handler, 200, gzip.compress(gzip.compress(b" " * 100)), {"content-encoding": packing})

    with (
        Packs() as running,
        pytest.raises(EndpointError, match=r"the server packed its answer as '.{2,60}; have it send"),
    ):
        MLflow(running.url, retries=0, wait=0.01)(np.ones((2, 2)))


@pytest.mark.parametrize("tokens", [-3, 2.5, float("inf"), float("nan"), "9", True, [1]])
def test_tokens_that_cannot_be_counted_are_refused(tokens):
    class Counts(Server):
        def handle(self, handler, body):
            top = [{"token": "yes", "logprob": -0.5}, {"token": "no", "logprob": -1.0}]
            choices = [{"index": 0, "logprobs": {"content": [{"token": "yes", "top_logprobs": top}]}}]
            reply(handler, 200, {"choices": choices, "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})

    with Counts() as running:
        model = OpenAI(running.url, "lm", classes=["yes", "no"], price_per_token=1.0, wait=0.01)
        with pytest.raises(EndpointError, match=r"the server counts .* tokens, by which costs go"):
            model(["a text"])
        assert model.cost == 0.0
