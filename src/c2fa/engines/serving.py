"""The model process, for workers that read inputs, segment, draw masks and fit.

One thread begins calls of the model, with rows of several workers in one call, and another waits for the answers. A
model that can begin a call before the last one has ended is therefore never idle. Each worker's connection has a thread
that reads and one that sends, so nobody waits for a worker that is slow or dead.
"""

from __future__ import annotations

import contextlib
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from c2fa._system import swift
from c2fa.asking.model import Model, contained, describe
from c2fa.asking.replies import Call, Calls, QueryError
from c2fa.engines.contact import LOCAL, Address, Contact, WorkerError, dumps, open_door, remove_socket
from c2fa.engines.guest import BESIDE, CALLS, Guest, Request
from c2fa.engines.journal import Journal
from c2fa.engines.load import Meter, TimeLimit, has_gpu


@dataclass(frozen=True, eq=False)
class Serving:
    """How a run's workers share its model: in processes, as many as ``models``, or ``here``, in threads of this one.

    Parameters
    ----------
    make
        Makes the model; called in the model's process alone.
    gpu
        Whether each model process has a GPU of its own, and workers have none.
    batch_size
        The most rows in one call; by default the model's own ``batch_size``, else 64.
    timeout
        Seconds that one call may take; after that, the process is ended and another started.
    """

    make: Callable[[], Model]
    contact: Contact
    models: int = 1
    here: bool = False
    gpu: bool = False
    batch_size: int | None = None
    timeout: float | None = None

    def portable(self) -> Serving:
        """The same, ready for other processes: ``make`` is unpickled only when the model is made."""
        return replace(self, make=_Packed(dumps(self.make, "the model")))

    def start(self, number: int, host: str = LOCAL) -> Server:
        """Load the model and let workers connect; they get answers once ``run`` of the server is called."""
        journal = Journal(self.contact.file(number).with_suffix(".notes"))
        starts = len(journal.deaths.get(("loading",), ()))
        if starts >= 3:
            raise WorkerError(
                f"the model's process died {starts} times in a row while it loaded the model: try engine='serial' to "
                "see why, or see that there is enough memory for it"
            )
        journal.begin()
        journal.at("loading")
        begin = time.monotonic()
        model = self.make()
        server = Server(self, model, journal, time.monotonic() - begin)
        try:
            self.contact.publish(number, server.listen(host))
            journal.at("serving")
        except BaseException:
            server.stop()
            raise
        return server

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer workers from threads of this process, until the context is left."""
        server = self.start(0)
        thread = threading.Thread(target=server.run, name="c2fa-model", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.stop()
            thread.join()


@dataclass(frozen=True, eq=False)
class _Packed:
    """A pickled constructor of a model: unpickling may import as much as the model itself, or fail."""

    payload: bytes

    def __call__(self) -> Model:
        model: Model = pickle.loads(self.payload)()
        return model


class Server:
    """The model, the requests that wait for it, and the calls under way."""

    def __init__(self, serving: Serving, model: Model, journal: Journal, start_seconds: float) -> None:
        self.model, self.journal, self.start_seconds = model, journal, start_seconds
        self.key = serving.contact.key
        self.batch_size = serving.batch_size or describe(model).batch_size or 64
        self.life = secrets.token_hex(4)
        self.waiting: deque[Request] = deque()
        self.changed = threading.Condition()  # notified when ``waiting`` or ``under_way`` change
        self.under_way: deque[tuple[Call, list[Request]]] = deque()
        self.asides: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.calls = Calls(model)
        self.expect = describe(model).expect
        self.encode_inputs = dumps(describe(model).encode_inputs, "the model's encode_inputs")
        self.limit = TimeLimit(serving.timeout, journal.late, first=2)  # beginning a call, and waiting for it
        self.meter, self.has_gpu = Meter(), has_gpu()
        self.guests: weakref.WeakSet[Guest] = weakref.WeakSet()
        self.door: socket.socket | None = None
        self.address: Address | None = None
        self.stopped = False
        self.widths: dict[int, set[str]] = {}  # numbers of outputs, and the workers that got them in calls of their own
        self.names = {  # by which provenance calls the model
            name: getattr(model, name, getattr(type(model), name)) for name in ("__name__", "__qualname__")
        }
        self.language = {
            name: getattr(model, name) for name in ("special_tokens", "max_new_tokens") if hasattr(model, name)
        }
        self.language["methods"] = tuple(name for name in (*CALLS, *BESIDE) if hasattr(model, name))
        dumps(self.facts(), "what the model says of itself")  # a mistake ends the run here, not in each connection

    def facts(self) -> dict[str, Any]:
        """The attributes of the model that workers need."""
        described = describe(self.model)
        return {
            "output_names": described.output_names,
            "log_probabilities": described.log_probabilities,
            "cost": described.cost,
            "notes": described.notes,
            "batch_size": described.batch_size,
            "chunk_size": described.chunk_size,
            "mask_token": described.mask_token,
            **self.names,
            **self.language,
            "has_gpu": self.has_gpu,
        }

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
            except OSError:  # the worker is gone already, or the door is closed
                time.sleep(0.01)
                continue
            guest = Guest(Connection(line.detach()), self)
            self.guests.add(guest)
            guest.begin()

    def stop(self) -> None:
        """Let ``run`` return and hang up on all workers, in a process that goes on without the model."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        if self.door is not None:
            with contextlib.suppress(OSError):
                self.door.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for workers
            self.door.close()
            remove_socket(self.address)
        for guest in list(self.guests):
            guest.hang_up()

    def put(self, request: Request) -> None:
        """Queue a request of a worker; one that does not call the model need not wait for those that do."""
        if request.what not in ("rows", "batch", *CALLS):
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
        with swift, describe(self.model).steady():
            finishing.start()
            aside.start()
            while (request := self._next()) is not None:
                requests = self._take(self.batch_size)
                if request.careful:
                    self.journal.at(request.guest.token, request.id)  # only this request can kill the process now
                    self._begin(requests)
                    with self.changed:
                        self.changed.wait_for(lambda: not self.under_way)
                    self.journal.at("serving")
                else:
                    self._begin(requests)
            finishing.join()
            self.asides.put(None)
            aside.join()

    def _next(self) -> Request | None:
        """Wait for the oldest request until the model has room for it; None once the server is stopped."""
        with self.changed:
            while not self.stopped:
                while self.waiting and self.waiting[0].guest.gone:
                    self.waiting.popleft()
                if self.waiting:
                    # One call runs, one waits on the device, and one is being prepared.
                    room = 1 if self.waiting[0].careful else 3
                    if len(self.under_way) < room:
                        return self.waiting[0]
                begin, idle = time.monotonic(), not (self.waiting or self.under_way)
                self.changed.wait()
                if idle:
                    self.meter.waited(time.monotonic() - begin)
        return None

    def _take(self, most: int) -> list[Request]:
        """Take the oldest request, and others that can share its call, of at most ``most`` rows."""
        with self.changed:
            first = self.waiting.popleft()
            together, rows, left = [first], first.rows, deque[Request]()
            # All rows of a call get one number of outputs, which a bad row may change: the usual one must be known.
            shares = not first.alone and self._usual_width() is not None
            for request in (request for request in self.waiting if not request.guest.gone):
                joins = shares and request.kind == first.kind and not request.alone
                if joins and rows + request.rows <= most:
                    together.append(request)
                    rows += request.rows
                else:
                    left.append(request)
            self.waiting = left
            return together

    def _begin(self, requests: list[Request]) -> None:
        """Begin a call of the model; a model without ``launch`` answers it here."""
        self.meter.begin()
        first, rows = requests[0], sum(request.rows for request in requests)
        try:
            with self.limit:
                if first.what in CALLS:
                    call = self.calls.method(first.what, first.body, rows)
                else:
                    call = self.calls.begin([inputs for request in requests for inputs in request.body], rows)
                if self.calls.launch is None or first.what in CALLS:
                    with contextlib.suppress(Exception):  # raised again in the thread that waits for answers
                        call.reply()
        except Exception as error:  # in what the model says of itself
            for request in requests:
                self._reply(request, error=error)
            return
        with self.changed:
            self.under_way.append((call, requests))
            self.changed.notify_all()

    # -- the thread that waits for answers

    def _finish_all(self) -> None:
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.under_way or self.stopped)
                    if not self.under_way:
                        return
                    call, requests = self.under_way[0]
                self._finish(call, requests)
                with self.changed:
                    self.under_way.popleft()
                    self.changed.notify_all()
        except BaseException:  # a model that calls sys.exit() would end this thread alone
            traceback.print_exc()
            os._exit(1)

    def _finish(self, call: Call, requests: list[Request]) -> None:
        """Wait for a call, and send each worker its answers."""
        answers: list[Any] = []
        error: Exception | None = None
        first = requests[0]
        try:
            with self.limit:
                answers = [call.outputs() if first.what in ("rows", "batch", "score") else call.reply()]
            if first.what not in CALLS:
                width = answers[0].shape[1]
                if len(requests) == 1:
                    self.widths.setdefault(width, set()).add(first.guest.token)
                elif width != self._usual_width():  # one of the workers may be the cause
                    raise QueryError("rows of another width")
                ends = np.cumsum([request.rows for request in requests])
                answers = np.split(answers[0], ends[:-1])
        except Exception as failure:
            error = failure
        for request in requests:
            request.cost += call.cost * request.rows / call.rows
        if error is None:
            self.meter.end(call.rows)
            for request, answer in zip(requests, answers, strict=True):
                self._reply(request, answer)
        elif len(requests) == 1:
            self._reply(first, error=error)
        else:  # each request is tried alone, so that the error reaches the worker that it belongs to
            for request in requests:
                request.alone = True
            with self.changed:
                self.waiting.extendleft(reversed(requests))

    def _usual_width(self) -> int | None:
        """The model's number of outputs for a row, once two workers got the same; None before."""
        most = max(self.widths, key=lambda width: len(self.widths[width]), default=0)
        return most if len(self.widths.get(most, ())) > 1 else None

    # -- the thread that answers requests without a call of the model

    def _answer_asides(self) -> None:
        """Answer waiting requests, those of one kind together, until None comes."""
        while (request := self.asides.get()) is not None:
            kinds: dict[str, list[Request]] = {str(request.kind): [request]}
            for _ in range(self.asides.qsize()):
                other = self.asides.get()
                if other is None:
                    return
                kinds.setdefault(str(other.kind), []).append(other)
            for requests in kinds.values():
                self._answer_kind(requests)

    def _answer_kind(self, requests: list[Request]) -> None:
        """Answer requests of one kind: to segment photos, for a method of a language model, or for the model's name."""
        answers: Sequence[Any]
        try:
            if requests[0].what == "segment":
                from c2fa.maskers import _segmenting  # here, because it loads scipy

                _, segment, options = requests[0].body
                images = [image for request in requests for image in request.body[0]]
                maps = iter(_segmenting.label_maps(images, segment, options))
                answers = [[next(maps) for _ in request.body[0]] for request in requests]
            elif requests[0].what in BESIDE:
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

    def _reply(self, request: Request, answer: Any = None, error: Exception | None = None) -> None:
        facts = request.guest.facts
        try:
            facts = self.facts()
        except Exception as wrong:  # in what the model says of itself by now
            answer, error = None, error or wrong
        request.guest.reply(request.id, answer, error, request.cost, facts, self.meter.load())
