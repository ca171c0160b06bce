"""The process that has the model, for workers that read, segment, draw masks and fit.

One thread calls the model, with rows of several workers in one call, and another waits for the answers, so that a model
that can begin a call while another is under way always has one at work and one that waits. Each worker's connection has
two threads of its own, one that reads and one that sends, so that nobody waits for a worker that is slow or dead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import queue
import secrets
import socket
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from c2fa._system import swift
from c2fa.asking.calling import concatenate, kind_of
from c2fa.asking.masking import MaskedRows
from c2fa.asking.model import BILL, Bill, Model, contained, describe, launcher
from c2fa.asking.replies import QueryError, as_outputs
from c2fa.engines.contact import (
    BEAT_SECONDS,
    LOCAL,
    Address,
    Contact,
    Notes,
    dumps_message,
    greet,
    open_door,
    receive,
    remove_socket,
    send,
    shut_down,
)
from c2fa.engines.load import Meter, has_gpu
from c2fa.engines.sending import dumps, sendable
from c2fa.engines.time_limit import TimeLimit
from c2fa.structure import FloatArray

_BATCH = 64  # rows in a call of a model that says nothing of it
_LAUNCHED = 2  # calls that a model has begun: one that it works on, and one that waits for it
# What workers call of a language model: by the thread that calls the model, or beside it, where nothing is computed.
_CALLS, _BESIDE = ("generate", "score"), ("pieces", "template", "fits")
_TOLD = ("output_names", "log_probabilities", "cost", "notes", "batch_size", "chunk_size", "mask_token")
_BEAT = dumps_message((None, None, None, 0.0, None, None))  # an answer to nothing
_PAUSE_SECONDS = 0.01  # after a connection that could not be accepted


@dataclass(frozen=True, eq=False)
class Serving:
    """How a run's workers share its model.

    Parameters
    ----------
    make
        Makes the model, in its own process alone.
    contact
        Where workers find it.
    models
        How many processes have the model.
    gpu
        Whether each of them has a GPU.
    batch_size
        The most rows in one call; by default what the model says of itself, else 64.
    timeout
        Seconds that one call may take. The process is ended then, and another started.
    """

    make: Callable[[], Model]
    contact: Contact
    models: int = 1
    gpu: bool = False
    batch_size: int | None = None
    timeout: float | None = None

    def portable(self) -> Serving:
        """The same, ready to travel: what makes the model is read only when the model is made."""
        return replace(self, make=_Packed(dumps(self.make, "the model")))

    def start(self, number: int, host: str = LOCAL) -> Server:
        """Load the model and let workers connect; ``run`` of what is returned answers them."""
        notes = Notes(self.contact, number)
        begin = time.monotonic()
        model = self.make()
        server = Server(self, model, notes, time.monotonic() - begin)
        try:
            self.contact.publish(number, server.listen(host))
            notes.note({"ready": True})
        except BaseException:
            server.stop()
            raise
        return server


@dataclass(frozen=True, eq=False)
class _Packed:
    """What makes a model, as bytes: reading them may import as much as the model itself, or fail."""

    payload: bytes

    def __call__(self) -> Model:
        model: Model = pickle.loads(self.payload)()
        return model


@dataclass(eq=False)
class _Request:
    """What a worker asks, and what asking the model has cost.

    Requests of one ``kind`` may be answered together unless they are ``alone``; one that is ``careful`` has the model
    for itself, because a process may have died of it.
    """

    guest: _Guest
    id: int
    what: str
    careful: bool
    body: Any
    kind: Any = None
    rows: int = 0
    alone: bool = False
    cost: float = 0.0


@dataclass(eq=False)
class _Call:
    """A call of the model that is begun: its requests, and what waits for their answers."""

    requests: list[_Request]
    answers: Callable[[], Any]
    bill: Bill

    @property
    def rows(self) -> int:
        return sum(request.rows for request in self.requests)


class Server:
    """The model, the requests that wait for it, and the calls under way."""

    def __init__(self, serving: Serving, model: Model, notes: Notes, start_seconds: float) -> None:
        self.model, self.notes, self.start_seconds = model, notes, start_seconds
        self.key = serving.contact.key
        self.batch_size = serving.batch_size or describe(model).batch_size or _BATCH
        self.life = secrets.token_hex(4)
        self.waiting: deque[_Request] = deque()
        self.changed = threading.Condition()  # of what waits or is under way
        self.under_way: deque[_Call] = deque()
        self.asides: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self.launch = launcher(model)
        self.expect = describe(model).expect
        self.limit = TimeLimit(serving.timeout, notes.late, first=2)  # one to begin a call, one to wait for it
        self.meter, self.has_gpu = Meter(), has_gpu()
        self.guests: weakref.WeakSet[_Guest] = weakref.WeakSet()
        self.door: socket.socket | None = None
        self.address: Address | None = None
        self.stopped = False
        self.widths: dict[int, set[str]] = {}  # workers whose rows, with no others beside them, got so many outputs
        self.charges, self.spent = False, float(describe(model).cost or 0.0)
        self.language = {
            name: getattr(model, name) for name in ("special_tokens", "max_new_tokens") if hasattr(model, name)
        }
        self.language["methods"] = tuple(name for name in (*_CALLS, *_BESIDE) if hasattr(model, name))

    def told(self) -> dict[str, Any]:
        """What the model says of itself."""
        described = describe(self.model)
        told = {name: getattr(described, name) for name in _TOLD}
        for name in ("__name__", "__qualname__"):  # what provenance calls the model
            told[name] = getattr(self.model, name, getattr(type(self.model), name))
        return {**told, **self.language, "has_gpu": self.has_gpu}

    def listen(self, host: str) -> Address:
        """Let workers connect, at the address that is returned."""
        self.door, self.address = open_door(host)
        threading.Thread(target=self._accept, args=(self.door,), name="c2fa-accept", daemon=True).start()
        return self.address

    def _accept(self, door: socket.socket) -> None:
        while not self.stopped:
            try:
                line = door.accept()[0]
                if line.family != getattr(socket, "AF_UNIX", None):
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # whoever connected is gone, or the door is closed
                time.sleep(_PAUSE_SECONDS)
                continue
            guest = _Guest(Connection(line.detach()), self)
            self.guests.add(guest)
            guest.begin()

    def stop(self) -> None:
        """Have ``run`` return, and hang up on all workers: for a process that has other things to do than this."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        if self.door is not None:
            with contextlib.suppress(OSError):
                self.door.shutdown(socket.SHUT_RDWR)  # which wakes the thread that waits for workers
            self.door.close()
            remove_socket(self.address)
        for guest in list(self.guests):
            guest.hang_up()

    def put(self, request: _Request) -> None:
        """A worker asks something: for rows of the model, or for something that need not wait for them."""
        if request.what not in ("rows", "batch", *_CALLS):
            self.asides.put(request)
            return
        with self.changed:
            self.waiting.append(request)
            self.changed.notify_all()

    # -- the thread that calls the model

    def run(self) -> None:
        """Answer requests until ``stop`` is called."""
        finishing = threading.Thread(target=self._finish_all, name="c2fa-answers", daemon=True)
        aside = threading.Thread(target=self._answer_asides, name="c2fa-asides", daemon=True)
        with swift:
            finishing.start()
            aside.start()
            while (request := self._next()) is not None:
                requests = self._take(self.batch_size)
                if request.careful:
                    with self.notes.alone(request.guest.token, request.id):
                        self._begin(requests)
                        with self.changed:
                            self.changed.wait_for(lambda: not self.under_way)
                else:
                    self._begin(requests)
            finishing.join()
            self.asides.put(None)
            aside.join()

    def _next(self) -> _Request | None:
        """The oldest request, when the model has room for it; None where this is to stop."""
        with self.changed:
            while not self.stopped:
                while self.waiting and self.waiting[0].guest.gone:
                    self.waiting.popleft()
                if self.waiting and len(self.under_way) < (1 if self.waiting[0].careful else _LAUNCHED):
                    return self.waiting[0]
                begin, idle = time.monotonic(), not (self.waiting or self.under_way)
                self.changed.wait()
                if idle:
                    self.meter.waited(time.monotonic() - begin)
        return None

    def _take(self, most: int) -> list[_Request]:
        """Take the oldest request, and those that can be answered with it."""
        with self.changed:
            first = self.waiting.popleft()
            taken, rows, left = [first], first.rows, deque[_Request]()
            strange = self._usual_width() is None  # a call has as many outputs for all, because of any of them
            for request in (request for request in self.waiting if not request.guest.gone):
                joins = request.kind == first.kind and not (first.alone or request.alone or strange)
                if joins and rows + request.rows <= most:
                    taken.append(request)
                    rows += request.rows
                else:
                    left.append(request)
            self.waiting = left
            return taken

    def _begin(self, requests: list[_Request]) -> None:
        """Begin a call of the model; one that cannot begin several goes through it here."""
        self.meter.begin()
        bill = Bill()
        before = BILL.set(bill)
        answers: Callable[[], Any]
        try:
            ask: Callable[..., Any] = self.launch or self.model
            given: Sequence[Any] = requests[0].body
            if requests[0].what in _CALLS:
                ask = getattr(self.model, requests[0].what)
            else:
                given = [concatenate([inputs for request in requests for inputs in request.body])]
            with self.limit, contained():
                begun = ask(*given)
            answers = begun if ask is self.launch else lambda: begun
        except Exception as error:
            answers = functools.partial(_raise, error)
        finally:
            BILL.reset(before)
        with self.changed:
            self.under_way.append(_Call(requests, answers, bill))
            self.changed.notify_all()

    # -- the thread that waits for answers

    def _finish_all(self) -> None:
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.under_way or self.stopped)
                    if not self.under_way:
                        return
                    call = self.under_way[0]
                self._finish(call)
                with self.changed:
                    self.under_way.popleft()
                    self.changed.notify_all()
        except BaseException:  # a model that ends its process would end this thread alone
            traceback.print_exc()
            os._exit(1)

    def _finish(self, call: _Call) -> None:
        """Wait for a call, and send each worker its answers."""
        before = BILL.set(call.bill)
        try:
            with self.limit, contained():
                reply = call.answers()
            if call.requests[0].what != "generate":
                reply = as_outputs(reply, call.rows, f"querying {call.rows} rows")
        except Exception as error:
            self._divide_cost(call)
            self._fail(call.requests, error)
            return
        finally:
            BILL.reset(before)
        self._divide_cost(call)
        if call.requests[0].what in _CALLS:
            self.meter.end(call.rows)
            self._reply(call.requests[0], reply)
            return
        outputs: FloatArray = reply
        if len(call.requests) == 1:
            self.widths.setdefault(outputs.shape[1], set()).add(call.requests[0].guest.token)
        elif outputs.shape[1] != self._usual_width():  # which may be the doing of one of them
            self._fail(call.requests, QueryError("rows of another width"))
            return
        self.meter.end(call.rows)
        start = 0
        for request in call.requests:
            self._reply(request, outputs[start : start + request.rows])
            start += request.rows

    def _usual_width(self) -> int | None:
        """How many outputs the model gives a row, once two workers agree on that."""
        most = max(self.widths, key=lambda width: len(self.widths[width]), default=0)
        return most if len(self.widths.get(most, ())) > 1 else None

    def _fail(self, requests: list[_Request], error: Exception) -> None:
        """Have each worker's rows asked about alone, so that an error reaches the one that it belongs to."""
        if len(requests) == 1:
            self._reply(requests[0], error=error)
            return
        for request in requests:
            request.alone = True
        with self.changed:
            self.waiting.extendleft(reversed(requests))

    def _divide_cost(self, call: _Call) -> None:
        """Divide what a call cost among its rows: what the model charged or, where it never does, what cost grew by."""
        cost = float(describe(self.model).cost or 0.0)
        grown, self.spent = cost - self.spent, cost
        self.charges = self.charges or call.bill.told
        for request in call.requests:
            request.cost += (call.bill.amount if self.charges else grown) * request.rows / call.rows

    # -- the thread that answers what is no call of the model

    def _answer_asides(self) -> None:
        """Answer what has come, requests of one kind together, until the end is asked for."""
        while (request := self.asides.get()) is not None:
            kinds: dict[str, list[_Request]] = {str(request.kind): [request]}
            for _ in range(self.asides.qsize()):
                other = self.asides.get()
                if other is None:
                    return
                kinds.setdefault(str(other.kind), []).append(other)
            for requests in kinds.values():
                self._answer_about(requests)

    def _answer_about(self, requests: list[_Request]) -> None:
        """Answer what is no call of the model; requests to segment photos are answered together."""
        answers: Sequence[Any]
        try:
            if requests[0].what == "segment":
                answers = _segmented([request.body for request in requests])
            elif requests[0].what == "renders":
                renders = describe(self.model).renders
                answers = [not isinstance(r.body, _Unreadable) and bool(renders(r.body)) for r in requests]
            elif requests[0].what in _BESIDE:
                with contained():
                    answers = [getattr(self.model, requests[0].what)(*requests[0].body)]
            else:
                answers = [describe(self.model).name for _ in requests]
        except Exception as error:
            for request in requests:
                self._reply(request, error=error)
        else:
            for request, answer in zip(requests, answers, strict=True):
                self._reply(request, answer)

    def _reply(self, request: _Request, answer: Any = None, error: Exception | None = None) -> None:
        load = self.meter.load()
        request.guest.reply(request.id, answer, error, request.cost, self.told(), load)


class _Guest:
    """A worker's connection, the inputs that it has sent, and the answers that wait to be sent to it."""

    def __init__(self, pipe: Connection, server: Server) -> None:
        self.pipe, self.server = pipe, server
        self.token, self.gone = "", False
        self.inputs: dict[int, Any] = {}
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.told: dict[str, Any] | None = None

    def begin(self) -> None:
        threading.Thread(target=self._read, name="c2fa-read", daemon=True).start()

    def hang_up(self) -> None:
        """End both threads, whatever they wait for."""
        self.gone = True
        self.outbox.put(None)
        shut_down(self.pipe)

    def reply(self, id_: int, answer: Any, error: Exception | None, cost: float, told: Any, load: Any) -> None:
        """Have an answer sent, or an error with what was answered of its rows."""
        news = None if told == self.told else told
        self.told = told
        if error is not None:
            partial, error = getattr(error, "partial", None), sendable(error)
            if partial is not None:
                error.partial = partial  # type: ignore[union-attr]
        try:
            self.outbox.put(dumps_message((id_, answer, error, cost, news, load)))
        except ValueError as too_large:
            self.outbox.put(dumps_message((id_, None, too_large, cost, news, load)))

    def _read(self) -> None:
        """The body of the thread that reads."""
        writing = threading.Thread(target=self._write, name="c2fa-write", daemon=True)
        try:
            greet(self.pipe, self.server.key, "model", self.server.address)
            self.token = receive(self.pipe)
            server = self.server
            self.told = server.told()
            deaths = server.notes.deaths.get(self.token, {})
            hello = {"life": server.life, "start_seconds": server.start_seconds, "told": self.told, "deaths": deaths}
            send(self.pipe, hello)
            writing.start()
            while True:
                self._take(receive(self.pipe))
        except (EOFError, OSError):  # it is gone, or it is none of ours
            pass
        finally:
            self.hang_up()
            if writing.ident is not None:
                writing.join()  # a number of a closed file may be that of another connection a moment later
            self.inputs.clear()
            self.pipe.close()

    def _write(self) -> None:
        """The body of the thread that sends answers and, where there are none, signs of life."""
        try:
            while True:
                message: bytes | None = _BEAT
                with contextlib.suppress(queue.Empty):
                    message = self.outbox.get(timeout=BEAT_SECONDS)
                if message is None:
                    return
                self.pipe.send_bytes(message)
        except OSError:
            shut_down(self.pipe)  # for the thread that reads, and for the worker

    def _take(self, message: Any) -> None:
        match message:
            case ("input", number, payload):
                try:
                    self.inputs[number] = pickle.loads(payload)
                    self.server.expect(self.inputs[number])
                except Exception as error:  # which comes again when its rows are asked for
                    self.inputs.setdefault(number, _Unreadable(error))
            case ("ask", id_, what, careful, body, dropped):
                request = _Request(self, id_, what, careful, body, alone=careful)
                try:
                    self._prepare(request)
                except Exception as error:
                    self.reply(id_, None, error, 0.0, self.told, None)
                else:
                    self.server.put(request)
                for number in dropped:
                    self.inputs.pop(number, None)

    def _prepare(self, request: _Request) -> None:
        """Make of what has travelled what the model takes; the thread that calls the model has enough to do."""
        request.kind = request.what
        if request.what == "rows":
            pieces = []
            for number, level, width, bits in request.body:
                found = self.inputs[number]
                if isinstance(found, _Unreadable):
                    raise found.error
                masks = np.unpackbits(bits, axis=1, count=width).view(np.bool_)
                pieces.append(MaskedRows(found, masks, level))
            request.body = pieces
        elif request.what == "batch":
            batch = pickle.loads(request.body)
            request.body, request.kind = [batch], kind_of(batch)
        elif request.what == "renders":
            request.body = self.inputs[request.body]
        elif request.what == "segment":
            _, segment, options = request.body
            request.kind = "segment", segment, sorted(options.items())
        elif request.what in (*_CALLS, *_BESIDE):  # each by itself: an answer is scored after many prompts at once
            request.kind = request.what, request.guest.token, request.id
            request.rows = len(request.body[0]) if request.what == "score" else 1
        if request.what in ("rows", "batch"):
            request.rows = sum(map(len, request.body))


@dataclass(frozen=True)
class _Unreadable:
    """An input that could not be read here, such as one of a class that only the worker can import."""

    error: Exception


def _raise(error: Exception) -> Any:
    raise error


def _segmented(asked: Sequence[tuple[list[Any], str, dict[str, Any]]]) -> list[list[Any]]:
    """The label maps of several requests' photos, made at once."""
    from c2fa.maskers import _segmenting  # with scipy, which other models' processes need not load

    _, segment, options = asked[0]
    maps = iter(_segmenting.label_maps([image for images, _, _ in asked for image in images], segment, options))
    return [[next(maps) for _ in images] for images, _, _ in asked]
