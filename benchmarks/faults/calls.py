"""The n-th call to the system fails, for every n: a clear error or the very same explanation, and nothing torn.

Small runs with a ledger, a store, a prior, a model that its worker shares and a language model behind a server count
their calls once: files opened, written, synced, renamed and removed, steps of SQLite, requests sent and replies
received, and what both ends of a shared model do with sockets. Then, in a run of its own for each call and each error,
this one call fails. What it left behind must be whole; the same run again, undisturbed, must give what it always gives.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import random
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
from benchmarks.faults import toys
from benchmarks.faults.tally import HangError, Tally, compare, in_processes, time_limit

import c2fa
from c2fa.asking.ledger import Connection
from c2fa.batch import Store, many
from c2fa.engines import Done, MakeWork, RemoteModel, Serving, guest, serial
from c2fa.models import LlamaServer

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from servers.scoring import LM

_SECONDS = 20.0
_TEXTS = [f"The {a} plot is {b}. A {c} film." for a, b, c in zip("abcdefgh", "stuvwxyz", "hgfedcba", strict=True)]
_DOCUMENTS = {"a": "Rome is old. It has seven hills.", "b": "Bern has bears."}
_FILE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)
_SQLITE_ERRORS = {
    errno.ENOSPC: ("database or disk is full", sqlite3.SQLITE_FULL),
    errno.EIO: ("disk I/O error", sqlite3.SQLITE_IOERR),
    errno.EINTR: ("interrupted", sqlite3.SQLITE_INTERRUPT),
}
_ERRORS: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("open", "write", "fsync", "rename", "remove", "mkdir"), _FILE_ERRORS),
    "SQLite step": tuple(_SQLITE_ERRORS),
    **dict.fromkeys(("request", "receive"), (errno.ECONNRESET, errno.ETIMEDOUT)),
    **dict.fromkeys(("bind", "connect", "accept", "send", "read"), (errno.ECONNRESET, errno.ENOBUFS)),
}


# -- what is run: each gives explanations by number, and continues what is in its folder -------------------------


def with_ledger(folder: Path) -> dict[int, c2fa.Explanation]:
    explain = toys.explainer(ledger=folder / "answers.sqlite")
    try:
        e = explain(toys.inputs(1)[0])
    finally:
        if explain.ledger is not None:
            explain.ledger.close()
    e.save(folder / "e.json")
    return {0: e}


def _store(folder: Path) -> dict[int, c2fa.Explanation]:
    options: Any = {"engine": "serial", "shard_size": 2, "precision": "float64", "progress": False}
    return dict(many(toys.explainer(), toys.inputs(4), folder / "store", **options).items())


def _length(texts: Any) -> Any:
    return [float(sum(map(ord, text)) % 31) + text.count("plot") for text in texts]


def learned(folder: Path) -> dict[int, c2fa.Explanation]:
    explain = c2fa.Explainer(_length, c2fa.maskers.Text(mask="_"), output_names=["length"], budget=12, progress=False)
    options: Any = {"engine": "serial", "precision": "float64", "progress": False, "learn": 6, "budget_after": 8}
    return dict(many(explain, _TEXTS, folder / "store", **options).items())


def _shared(folder: Path) -> dict[int, c2fa.Explanation]:
    options: Any = {"models": 1, "workers": 1, "shard_size": 2, "precision": "float64", "progress": False}
    # Sockets of others are none of its business, and signs of life come at any time.
    with mock.patch.object(tempfile, "tempdir", str(folder)), mock.patch.object(guest, "BEAT_SECONDS", 60.0):
        made = many(toys.explainer(), toys.inputs(4), folder / "store", engine=_both_here, patience=5.0, **options)
    return dict(made.items())


def _both_here(make: MakeWork, tasks: Iterable[Any], *, workers: int, serving: Serving | None = None) -> Iterator[Done]:
    """An engine whose worker and model are threads of this process, where their calls can be made to fail."""
    assert serving is not None
    server = serving.start(0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        model = RemoteModel(serving.contact, 0)
        yield from serial(lambda: make(model), tasks)
    finally:
        server.stop()
        thread.join()


def _cite(folder: Path, url: str) -> dict[int, c2fa.Explanation]:
    lm = LlamaServer(url, retries=0, wait=0.001, timeout=5.0)
    citer = c2fa.Citer(lm, budget=10, batch_size=4, ledger=folder / "answers.sqlite", progress=False)
    try:
        return {0: citer({"documents": _DOCUMENTS, "query": "What is old?"})}
    finally:
        lm.close()
        if citer.explainer.ledger is not None:
            citer.explainer.ledger.close()


Run = Callable[[Path], dict[int, c2fa.Explanation]]


@contextlib.contextmanager
def runs() -> Iterator[dict[str, Run]]:
    """What is run, with a server for as long as it is needed."""
    with LM() as server:
        yield {
            "ledger": with_ledger,
            "store": _store,
            "prior": learned,
            "shared": _shared,
            "cite": lambda f: _cite(f, server.url),
        }


# -- calls that fail ---------------------------------------------------------------------------------------------


@dataclass
class Trap:
    """Counts calls by their kind, and has one of them fail: ``which`` is its kind and its number, from 0."""

    folder: Path
    which: tuple[str, int] | None = None
    number: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    sprung: bool = False
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, kind: str) -> bool:
        """Whether this call is the one that fails."""
        with self.lock:
            at = self.seen[kind] = self.seen.get(kind, -1) + 1
        self.sprung = self.sprung or (kind, at) == self.which
        return (kind, at) == self.which

    def error(self, path: object = None) -> OSError:
        return OSError(self.number, os.strerror(self.number), *(() if path is None else (str(path),)))

    def concerns(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(self.folder))


class _File:
    """A file whose writes may fail half-way."""

    def __init__(self, file: Any, trap: Trap) -> None:
        self._file, self._trap = file, trap

    def write(self, data: Any) -> int:
        if self._trap("write"):
            self._file.write(data[: len(data) // 2])
            raise self._trap.error()
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextlib.contextmanager
def set_trap(trap: Trap) -> Iterator[None]:
    """Put the trap where Python meets the system: files, SQLite, HTTP, and sockets of models that are shared."""
    real_open = io.open

    def opened(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if not trap.concerns(file) or not set(mode) & set("wax+"):
            return real_open(file, mode, *rest, **named)
        if trap("open"):
            raise trap.error(file)
        return _File(real_open(file, mode, *rest, **named), trap)

    def failing(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            ours = isinstance(args[0], int) or trap.concerns(args[0])
            if ours and trap(kind):
                raise trap.error(None if isinstance(args[0], int) else args[0])
            return real(*args, **named)

        return call

    def at_socket(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(line: Any, *args: Any, **named: Any) -> Any:
            places = [*args, line.getsockname()]
            with contextlib.suppress(OSError):
                places.append(line.getpeername())
            if any("c2fa-model-" in str(place) for place in places) and trap(kind):
                raise trap.error()
            return real(line, *args, **named)

        return call

    def at_pipe(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if trap(kind):
                raise trap.error()
            return real(*args, **named)

        return call

    def step(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(db: Any, *args: Any) -> Any:
            if trap.concerns(db.path) and trap("SQLite step"):
                text, code = _SQLITE_ERRORS[trap.number]
                error = sqlite3.OperationalError(text)
                error.sqlite_errorcode = code
                raise error
            return real(db, *args)

        return call

    def connect(db: Any, path: str) -> None:
        db.path = path
        real_connect(db, path)

    async def handle(transport: Any, request: Any) -> Any:
        slow = trap.number == errno.ETIMEDOUT
        if trap("request"):
            raise (httpx2.ConnectTimeout if slow else httpx2.ConnectError)(os.strerror(trap.number), request=request)
        response = await real_handle(transport, request)
        if trap("receive"):  # the server has answered, and nobody will know what
            await response.aclose()
            raise (httpx2.ReadTimeout if slow else httpx2.ReadError)(os.strerror(trap.number), request=request)
        return response

    real_connect, real_handle = Connection.__init__, httpx2.AsyncHTTPTransport.handle_async_request
    patches: list[tuple[Any, str, Any]] = [
        (builtins, "open", opened),
        (io, "open", opened),
        (Connection, "__init__", connect),
        (httpx2.AsyncHTTPTransport, "handle_async_request", handle),
        *((os, name, failing(kind, getattr(os, name))) for name, kind in _OS.items()),
        *((socket.socket, name, at_socket(kind, getattr(socket.socket, name))) for name, kind in _SOCKETS.items()),
        (Pipe, "_send", at_pipe("send", Pipe._send)),  # type: ignore[attr-defined]
        (Pipe, "_recv", at_pipe("read", Pipe._recv)),  # type: ignore[attr-defined]
        *((Connection, name, step(getattr(Connection, name))) for name in ("execute", "executemany", "executescript")),
    ]
    pause = time.sleep
    patches.append((time, "sleep", lambda seconds: pause(min(seconds, 0.01))))  # before a shard is tried again
    with contextlib.ExitStack() as stack:
        for place, name, changed in patches:
            stack.enter_context(mock.patch.object(place, name, changed))
        yield


_SOCKETS = {"bind": "bind", "connect": "connect", "accept": "accept", "sendall": "send", "recv": "read"}
_OS = {"fsync": "fsync", "replace": "rename", "rename": "rename", "unlink": "remove", "mkdir": "mkdir"}


# -- the campaign ------------------------------------------------------------------------------------------------


def points(run: Callable[[Path], object], folder: Path) -> list[tuple[str, int, int]]:
    """Every call of an undisturbed run with every error that it may have: its kind, its number, and the error's."""
    trap = Trap(folder)
    with set_trap(trap):
        run(folder)
    return [(kind, at, e) for kind, last in trap.seen.items() for at in range(last + 1) for e in _ERRORS[kind]]


def _listed(each: Mapping[str, Run], seed: int) -> list[tuple[str, str, int, int]]:
    """All points of all runs, in an order of the seed's."""
    found = []
    for name, run in each.items():
        with tempfile.TemporaryDirectory(prefix="c2fa-calls-") as folder:
            found += [(name, *point) for point in points(run, Path(folder))]
    return random.Random(seed).sample(found, len(found))


def campaign(seed: int, tries: int) -> Tally:
    """Have so many calls fail, or all of them."""
    with runs() as each:
        count = len(_listed(each, seed))
    return in_processes(work, "calls", seed, min(count, tries), at_once=150)


def work(seed: int, cases: Sequence[int]) -> Tally:
    """Have one call fail for each of these cases."""
    tally = Tally("calls")
    with runs() as each, tempfile.TemporaryDirectory(prefix="c2fa-calls-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed = _listed(each, seed)
        intact: dict[str, dict[int, c2fa.Explanation]] = {}
        for case in cases:
            run, kind, at, number = listed[case]
            folder = Path(name) / str(case)
            if run not in intact:
                intact[run] = each[run](_made(Path(name) / run))
            said = f"--seed {seed}, case {case}: {kind} {at} of {run} fails, {errno.errorcode[number]}"
            judge(tally, run, each[run], Trap(_made(folder), (kind, at), number), intact[run], said)
            shutil.rmtree(folder)
    return tally


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def judge(tally: Tally, name: str, run: Run, trap: Trap, expected: Mapping[int, c2fa.Explanation], case: str) -> None:
    """Run with a trap, look at what is left, run once more, and count what came of it."""
    kind = f"{name}, {trap.which[0] if trap.which else 'nothing'}"
    tally.tries += 1
    tally.tried[kind] += 1
    found: dict[int, c2fa.Explanation] = {}
    with set_trap(trap), time_limit(_SECONDS):
        try:
            found = run(trap.folder)
        except (Exception, HangError) as error:
            own = error.__cause__ if isinstance(error, c2fa.QueryError) and error.__cause__ is not None else error
            tally.error(kind, own, case)
    if not trap.sprung:
        tally.note("silent", f"{kind}: the call never came", case)
    if found:
        compare(tally, f"{kind}, at once", found, expected, case)
    try:
        left = _left(trap.folder)
        compare(tally, f"{kind}, left", left, {i: expected[i] for i in left}, case)
        again = run(trap.folder)
    except Exception as error:
        tally.note("lost", f"{kind}: it cannot be continued, {type(error).__name__}", f"{case}: {error}")
        return
    compare(tally, f"{kind}, again", again, expected, case)
    torn = [f.name for pattern in ("*.tmp", "c2fa-model-*") for f in trap.folder.rglob(pattern)]
    tally.note("lost", f"{kind}: half a file or a socket is left", f"{case}: {torn[:3]}", len(torn))


def _left(folder: Path) -> dict[int, c2fa.Explanation]:
    """What can be read in a folder right after the failure: whatever has its own name is whole."""
    found = {}
    if (folder / "e.json").exists():
        found[0] = c2fa.load(folder / "e.json")
    if (folder / "store").exists():
        found.update(Store.open(folder / "store").items())
    return found
