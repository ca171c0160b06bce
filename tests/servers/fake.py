"""A server that speaks the three protocols in front of a plain function, and a proxy that breaks things."""

from __future__ import annotations

import http.client
import json
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


class _Threaded(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing where a client hangs up: the tests do that on purpose."""


class Server:
    """A web server on a free port of this machine, in threads; a context manager."""

    def __init__(self, port: int = 0) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each reply, sent in two pieces, takes 40 ms

            def log_message(self, *args: Any) -> None:
                pass

            def setup(self) -> None:
                super().setup()
                outer._open.add(self.connection)

            def finish(self) -> None:
                outer._open.discard(self.connection)
                super().finish()

            def do_GET(self) -> None:
                outer.handle(self, b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                outer.handle(self, body)

        self._open: set[Any] = set()
        self._server = _Threaded(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.kill()

    def kill(self) -> None:
        """Stop at once, as a killed process would: every connection breaks."""
        self._server.shutdown()
        for connection in list(self._open):
            try:
                # Closing with a linger of zero resets the connection instead of ending it in good order.
                connection.setsockopt(1, 13, struct.pack("ii", 1, 0))
                connection.shutdown(2)
            except OSError:
                pass
        self._server.server_close()
        self._thread.join()

    def handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        raise NotImplementedError


def reply(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: Any,
    headers: dict[str, str] | None = None,
    kind: str = "application/json",
) -> None:
    """Send a whole reply."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"content-type": kind, "content-length": str(len(data)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


class Model(Server):
    """A model behind all three protocols; ``asked`` counts every row."""

    def __init__(
        self,
        predict: Callable[[Any], Any],
        port: int = 0,
        tokens: Callable[[str], dict[str, float]] | None = None,
        delay: float = 0.0,
        inputs: list[dict[str, Any]] | None = None,
    ) -> None:
        self.predict, self.tokens, self.delay = predict, tokens, delay
        self.inputs = inputs or []
        self.asked: Counter[str] = Counter()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sizes: list[int] = []
        self.most = self._now = 0
        self._lock = threading.Lock()
        super().__init__(port)

    def handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            self.requests.append((handler.path, {k.lower(): v for k, v in handler.headers.items()}))
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            time.sleep(self.delay if body else 0)
            path = handler.path
            if path == "/v2":
                return reply(handler, 200, {"name": "fake"})
            if path.startswith("/v2/models/m") and not path.endswith("/infer"):
                return reply(handler, 200, {"name": "m", "inputs": self.inputs})
            if path.startswith("/v2/models/m") and path.endswith("/infer"):
                return self._infer(handler, body)
            if path == "/invocations":
                return self._invocations(handler, json.loads(body))
            if path in ("/v1/chat/completions", "/v1/completions"):
                return self._complete(handler, json.loads(body))
            return reply(handler, 404, {"error": f"no such path {path}"})
        finally:
            with self._lock:
                self._now -= 1

    def _count(self, rows: Any) -> None:
        with self._lock:
            self.sizes.append(len(rows))
            self.asked.update(json.dumps(np.asarray(row).tolist()) for row in rows)

    def _infer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        head = json.loads(body)
        if len(head["inputs"]) > 1:
            columns = {i["name"]: i["data"] for i in head["inputs"]}
            rows: Any = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        else:
            (tensor,) = head["inputs"]
            if tensor["datatype"] == "BYTES":
                rows = tensor["data"]
            else:
                rows = np.asarray(tensor["data"], dtype=float).reshape(tensor["shape"])
        self._count(rows)
        out = np.asarray(self.predict(rows), dtype=np.float64)
        scores = {"name": "scores", "shape": list(out.shape), "datatype": "FP64", "data": out.ravel().tolist()}
        return reply(handler, 200, {"model_name": "m", "outputs": [scores]})

    def _invocations(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        if "inputs" in body:
            rows = body["inputs"]
        else:
            split = body["dataframe_split"]
            rows = [dict(zip(split["columns"], row, strict=True)) for row in split["data"]]
        self._count(rows)
        found = self.predict(rows)
        return reply(handler, 200, {"predictions": found if isinstance(found, list) else found.tolist()})

    def _complete(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        assert self.tokens is not None
        chat = "messages" in body
        prompts = [body["messages"][0]["content"]] if chat else body["prompt"]
        self._count(prompts)
        choices = []
        for index, prompt in enumerate(prompts):
            top = self.tokens(prompt)
            if chat:
                listed = [{"token": t, "logprob": v} for t, v in top.items()]
                logprobs: Any = {"content": [{"token": listed[0]["token"], "top_logprobs": listed}]}
            else:
                logprobs = {"top_logprobs": [top]}
            choices.append({"index": index, "logprobs": logprobs})
        usage = {"prompt_tokens": sum(len(p.split()) for p in prompts), "completion_tokens": len(prompts)}
        return reply(handler, 200, {"choices": choices[::-1], "usage": usage})


class Proxy(Server):
    """Hands requests on to a server, except where its list of faults has one for them, in order.

    ``delivered`` counts the bodies whose answers reached the client whole, and ``repeated`` those that were
    asked once more although they had been.
    """

    def __init__(self, target: int, faults: list[Any] | None = None) -> None:
        self.target = target
        self.faults = list(faults or [])
        self.seen: list[str] = []
        self.delivered: Counter[str] = Counter()
        self.repeated: list[str] = []
        self._lock = threading.Lock()
        super().__init__()

    def handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            fault = self.faults.pop(0) if body and self.faults else None
            rows = self._rows(body)
            self.repeated += [row for row in rows if self.delivered[row]]
            if body:
                self.seen.append(str(fault) if fault is not None else "")
        if isinstance(fault, tuple):  # (status, headers)
            return reply(handler, fault[0], {"error": "a made-up failure"}, fault[1])
        if isinstance(fault, int):
            return reply(handler, fault, {"error": "a made-up failure"})
        if fault == "hang":
            time.sleep(2.5)
            handler.close_connection = True
            return None
        status, data, headers = self._forward(handler, body)
        if fault == "half":
            handler.send_response(200)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[: len(data) // 2])
            handler.close_connection = True
            return None
        if fault == "cut":  # as "half", but as a whole reply: only the JSON is broken
            return reply(handler, 200, data[: len(data) // 2])
        if fault in ("nan", "few"):
            with self._lock:
                self.delivered.update(rows[1:] if fault == "nan" else [])
            return reply(handler, 200, self._spoilt(json.loads(data), fault))
        with self._lock:
            self.delivered.update(rows if status == 200 else [])
        return reply(handler, status, data, headers, headers.pop("content-type", "application/json"))

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        names = ("content-type", "authorization", "inference-header-content-length")
        headers = {k: handler.headers[k] for k in names if handler.headers.get(k)}
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=30)
        try:
            connection.request("POST" if body else "GET", handler.path, body or None, headers)
            answer = connection.getresponse()
            kept = {k.lower(): v for k, v in answer.getheaders()}
            kept = {k: v for k, v in kept.items() if k in ("content-type", "inference-header-content-length")}
            return answer.status, answer.read(), kept
        except OSError as error:
            return 502, json.dumps({"error": f"no server behind the proxy: {error}"}).encode(), {}
        finally:
            connection.close()

    @staticmethod
    def _rows(body: bytes) -> list[str]:
        if not body:
            return []
        data = json.loads(body)
        if "messages" in data or "prompt" in data:
            return [json.dumps(data.get("messages") or data["prompt"])]
        if "dataframe_split" in data:
            return [json.dumps(row) for row in data["dataframe_split"]["data"]]
        found = data["inputs"]
        if found and isinstance(found[0], dict):
            values = np.asarray(found[0]["data"]).reshape(found[0]["shape"][0], -1)
            return [json.dumps(row.tolist()) for row in values]
        return [json.dumps(row) for row in found]

    @staticmethod
    def _spoilt(data: Any, fault: str) -> Any:
        if "predictions" in data:
            if fault == "nan":
                data["predictions"][0] = np.full_like(data["predictions"][0], np.nan).tolist()
            else:
                data["predictions"].pop()
        else:
            (output,) = data["outputs"]
            width = output["shape"][1]
            if fault == "nan":
                output["data"][:width] = [float("nan")] * width
            else:
                output["data"], output["shape"][0] = output["data"][:-width], output["shape"][0] - 1
        return data
