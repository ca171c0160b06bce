"""Explanations through a server that spoils one answer in five: the same numbers in the end, or clear errors before.

The faults of a case depend on the seed and its number. Whatever fails is tried again, as a person would, until the
explanation is there. The server echoes the API key in its errors, and the key must be in nothing that we keep or say.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import random
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults import toys
from benchmarks.faults.tally import Tally, compare

import c2fa
from c2fa.batch import many

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from servers.fake import Model, Proxy, reply

KEY = 'sk-9fQ2/"x+7Lw0tZr8Vb3Ne6Yd1Ka4Mc5=='
_PIECE = 8  # so much of the key is too much
CALM = "calm"  # a case without faults
_VARIABLE = "C2FA_FAULTS_KEY"
_SHARE = 0.2
_TIMEOUT = 1.0
_ATTEMPTS = 40
_INPUTS = 16
_AT_ONCE = 6

Handler = BaseHTTPRequestHandler
Later = Callable[[], bytes]
"""Has the model answer after all, which bills its rows."""
Fault = Callable[[Handler, Later, random.Random], None]

# fmt: off
_WAITS = ("0", "0.01", " 0 ", "-3", "nan", "inf", "1e9", "soon", "", "0x1", "0,01", "3600", "2015-10-21",
          "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 -0000", "Wed, 99 Foo 9999 99:99:99 GMT")
# fmt: on
_PLACES = ("", "/elsewhere", "ftp://[bad", f"http://127.0.0.1:9/{KEY}/x?key={KEY}", f"http://user:{KEY}@127.0.0.1:9/")
_NO_HTTP = (b"\x16\x03\x01\x02", b"HTTP/9.9 what\r\n\r\n", b"\r\n" * 9, b"HTTP/1.1 200 OK\r\nx")


def _status(status: int, wait: bool = False, kind: str = "application/json") -> Fault:
    def fault(handler: Handler, later: Later, rng: random.Random) -> None:
        headers = {"retry-after": rng.choice(_WAITS)} if wait else {}
        said = "?" * rng.randrange(400) + " your key " + KEY  # wherever a message is cut, it may be cut within the key
        bodies: Sequence[Any] = ({"error": {"message": said}}, {"other": [said]}, said.encode(), b"", [said])
        reply(handler, status, rng.choice(bodies), headers, kind)

    return fault


def _redirect(handler: Handler, later: Later, rng: random.Random) -> None:
    reply(handler, rng.choice([301, 302, 307, 308]), b"", {"location": rng.choice(_PLACES)})


def _drop(handler: Handler, later: Later, rng: random.Random) -> None:
    """Reset the connection: before the model is asked, after it, or half-way through its answer."""
    when = rng.randrange(3)
    if when:
        data = later()
    if when == 2:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n" + data)
    handler.connection.setsockopt(1, 13, struct.pack("ii", 1, 0))
    handler.close_connection = True


def _slow(handler: Handler, later: Later, rng: random.Random) -> None:
    data = later()
    time.sleep(1.25 * _TIMEOUT)
    with contextlib.suppress(OSError):
        reply(handler, 200, data)


def _no_http(handler: Handler, later: Later, rng: random.Random) -> None:
    handler.wfile.write(rng.choice(_NO_HTTP))
    handler.close_connection = True


def _spoilt(spoil: Callable[[bytes, random.Random], bytes], kind: str = "application/json", **headers: str) -> Fault:
    def fault(handler: Handler, later: Later, rng: random.Random) -> None:
        data = later()
        reply(handler, 200, spoil(data, rng), {k.replace("_", "-"): v for k, v in headers.items()}, kind)

    return fault


def _json(change: Callable[[list[Any]], Any]) -> Fault:
    """The predictions, changed."""
    return _spoilt(lambda data, _: json.dumps({"predictions": change(json.loads(data)["predictions"])}).encode())


FAULTS: Mapping[str, Fault] = {
    "429": _status(429),
    "429 with Retry-After": _status(429, wait=True),
    "500": _status(500),
    "502": _status(502, kind="text/html"),
    "503 with Retry-After": _status(503, wait=True),
    "401": _status(401),
    "400": _status(400, kind="text/plain; charset=nonsense"),
    "redirect": _redirect,
    "dropped": _drop,
    "slow": _slow,
    "no HTTP": _no_http,
    "half the JSON": _spoilt(lambda data, rng: data[: rng.randrange(len(data))]),
    "empty": _spoilt(lambda data, rng: b""),
    "another type": _spoilt(lambda data, rng: data, "text/html"),
    "a page": _spoilt(lambda data, rng: b"<p>" + b"?" * rng.randrange(150) + KEY.encode(), "text/html"),
    "garbage": _spoilt(lambda data, rng: rng.randbytes(200)),
    "garbage as bytes": _spoilt(lambda data, rng: rng.randbytes(200), "application/octet-stream"),
    "not compressed": _spoilt(lambda data, rng: data, content_encoding="gzip"),
    "deep": _spoilt(lambda data, rng: b"[" * 100_000),
    "too few rows": _json(lambda rows: rows[:-1]),
    "too many rows": _json(lambda rows: [*rows, *rows]),
    "no rows": _json(lambda rows: []),
    "another width": _json(lambda rows: [[*row, 0.0] for row in rows]),
    "ragged": _json(lambda rows: [*rows[:-1], rows[-1][:1]]),
    "NaN": _json(lambda rows: [[float("nan")] * len(rows[0]), *rows[1:]]),
    "infinite": _json(lambda rows: [*rows[:-1], [float("inf")] * len(rows[0])]),
    "null": _json(lambda rows: [[None] * len(rows[0]), *rows[1:]]),
    "texts": _json(lambda rows: [[str(v) for v in row] for row in rows]),
    "one text": _json(lambda rows: [*rows[:-1], [KEY] * len(rows[0])]),
    "a dict": _json(lambda rows: {"a": rows}),
    "nothing": _json(lambda rows: None),
}


class Faulty(Proxy):
    """Hands requests on to the model, but for those that meet a fault; the case is the first part of the path."""

    def __init__(self, target: int, seed: int) -> None:
        super().__init__(target)
        self.seed = seed
        self.chances: dict[str, random.Random] = {}

    def handle(self, handler: Handler, body: bytes) -> None:
        begin = time.monotonic()
        case, _, path = handler.path.removeprefix("/").partition("/")
        handler.path = f"/{path}"
        rows = [f"{case} {row}" for row in self._rows(body)]
        with self._lock:
            rng = self.chances.setdefault(case, random.Random(f"{self.seed}/{case}"))
            fault = rng.choice(list(FAULTS.values())) if case != CALM and rng.random() < _SHARE else None
            rng = random.Random(rng.random())
            # Of a dataset, one row that was answered is asked again to tell a bad input from a bad server.
            if not (len(rows) == 1 and _together_in(case)):
                self.repeated += [row for row in rows if self.delivered[row]]
        if fault is not None:
            return fault(handler, lambda: self._forward(handler, body)[1], rng)
        status, data, headers = self._forward(handler, body)
        reply(handler, status, data, headers)
        if time.monotonic() - begin < 0.5 * _TIMEOUT:  # on a busy machine the client may have given up meanwhile
            with self._lock:
                self.delivered.update(rows)
        return None


def _together_in(case: str) -> bool:
    """Whether a case explains several inputs as a dataset."""
    return case != CALM and int(case) % 6 == 5


def campaign(seed: int, tries: int) -> Tally:
    """Explain so many inputs, five one by one for every four together."""
    total, scores = Tally("server"), toys.Model()
    cases = range(-(-tries * 6 // 9))
    with (
        _logged() as log,
        warnings.catch_warnings(record=True) as warned,
        tempfile.TemporaryDirectory(prefix="c2fa-server-") as folder,
        Model(lambda rows: scores(np.asarray(rows, dtype=float))) as model,
        Faulty(model.port, seed) as server,
        ThreadPoolExecutor(_AT_ONCE) as threads,
    ):
        warnings.simplefilter("always")
        calm = toys.explainer(_endpoint(server, CALM))
        expected = {i: calm(x) for i, x in enumerate(toys.inputs(_INPUTS))}
        model.sizes.clear()
        explain = partial(explain_case, server, Path(folder), expected)
        for tally in threads.map(explain, cases):
            total.add(tally)
        total.billed = sum(model.sizes)
        for row in server.repeated:
            total.note("doubled", "a row that had been answered", f"--seed {seed}, case {row}")
    told = {"the log": log.getvalue().splitlines(), "a warning": [str(w.message) for w in warned]}
    _note_leaks(total, told, f"--seed {seed}")
    return total


def _endpoint(server: Faulty, case: object, concurrency: int = 1) -> c2fa.models.MLflow:
    os.environ[_VARIABLE] = KEY
    return c2fa.models.MLflow(
        f"{server.url}/{case}",
        output_names=("yes", "no"),
        auth_env=_VARIABLE,
        rows_per_request=8,
        concurrency=concurrency,
        timeout=_TIMEOUT,
        wait=0.005,
        max_wait=0.2,
    )


def explain_case(server: Faulty, folder: Path, expected: Mapping[int, c2fa.Explanation], number: int) -> Tally:
    """Explain one input, or some together, again and again until nothing fails; count what came of it."""
    together = _together_in(str(number))
    indices = [(number + k) % _INPUTS for k in range(4 if together else 1)]
    kind, case = "many" if together else "one", f"--seed {server.seed}, case {number}"
    tally = Tally("server", tries=len(indices))
    endpoint = _endpoint(server, number, concurrency=1 + number % 3)
    place = folder / str(number)
    place.mkdir()
    explain = toys.explainer(endpoint, ledger=place / "answers.sqlite")
    found: dict[int, c2fa.Explanation] = {}
    aside: list[int] = []
    told: dict[str, list[str]] = {"an error": [], "a repr": [repr(endpoint), repr(endpoint.settings), *endpoint.notes]}
    for _ in range(_ATTEMPTS):
        try:
            if together:
                found, aside = _together(explain, indices, place, tally, case)
            else:
                found = {i: explain(toys.inputs(_INPUTS)[i]) for i in indices}
            break
        except Exception as error:
            own = error.__cause__ if isinstance(error, c2fa.QueryError) and error.__cause__ is not None else error
            tally.error(kind, own, case)  # of a model of ours, a QueryError around something raw is raw
            told["an error"] += [*traceback.format_exception(error), repr(error)]
    endpoint.close()
    tally.reported = endpoint.usage.rows
    last = "".join(told["an error"][-1:])
    compare(tally, kind, found, {i: expected[i] for i in indices if i not in aside}, f"{case}: {last}", not found)
    told["an explanation"] = [e.to_json() for e in found.values()]
    told["a pickle"] = [pickle.dumps(endpoint).decode("latin-1")]
    told["a file"] = [file.read_bytes().decode("latin-1") for file in place.rglob("*") if file.is_file()]
    _note_leaks(tally, told, case)
    return tally


def _together(
    explain: c2fa.Explainer, indices: Sequence[int], place: Path, tally: Tally, case: str
) -> tuple[dict[int, c2fa.Explanation], list[int]]:
    """Explain inputs into a store; return the explanations, and the inputs that were set aside."""
    xs = [toys.inputs(_INPUTS)[i] for i in indices]
    options: Any = {"engine": "serial", "precision": "float64", "progress": False, "tries": 6, "patience": 5.0}
    store = many(explain, xs, place / "store", **options)
    for _ in range(_ATTEMPTS):  # an answer that is no number is an answer: a person would have the input asked again
        if store.errors() and all("NaN or infinity" in failure.error for failure in store.errors()):
            store = many(explain, xs, place / "store", retry_failed=True, **options)
    failures = store.errors()
    for failure in failures:
        tally.note("set aside", "many: a healthy input", f"{case}: {failure.error}")
    _note_leaks(tally, {"a store": [repr(store.table().to_pylist())]}, case)
    return {indices[i]: e for i, e in store.items()}, [indices[failure.index] for failure in failures]


def _note_leaks(tally: Tally, told: Mapping[str, Sequence[str]], case: str) -> None:
    """Look for the key, or a piece of it, in what was said and kept."""
    for where, texts in told.items():
        for text in texts:
            at = next((at for i in range(len(KEY) - _PIECE) if (at := text.find(KEY[i : i + _PIECE])) >= 0), None)
            if at is not None:
                tally.note("leaked", where, f"{case}: …{' '.join(text[max(at - 60, 0) : at + 40].split())}…")


@contextlib.contextmanager
def _logged() -> Iterator[io.StringIO]:
    """All that we log meanwhile, and what others do but for the traffic that they show where it is asked for."""
    root, said = logging.getLogger(), io.StringIO()
    handler, level = logging.StreamHandler(said), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("c2fa").setLevel(logging.DEBUG)
    try:
        yield said
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
