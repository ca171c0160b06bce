"""A worker's stand-in for the model that another process has."""

from __future__ import annotations

import functools
import itertools
import pickle
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from c2fa.asking.masking import Inputs, MaskedBatch
from c2fa.asking.model import charge
from c2fa.engines.contact import Contact, WorkerError, receive, send, shut_down
from c2fa.engines.load import Load, Loads

_FIRST_SECONDS = 3600.0  # for the first start, on top of the patience: weights are fetched, clusters grow


class ModelDiedError(RuntimeError):
    """The model's process died whenever it was asked this, the last time without any other request."""


@dataclass(eq=False)
class _Pending:
    """A request under way and, once ``done``, its answer or error."""

    id: int
    what: str
    body: Any
    careful: bool = False
    done: bool = False
    answer: Any = None
    error: Exception | None = None
    cost: float = 0.0


class RemoteModel:
    """A model in a process of its own, which several workers share; it has the attributes of the model itself.

    An input that the model masks itself travels once, and its rows travel as bits. A broken connection is made again,
    and unanswered requests are sent again.
    """

    def __init__(self, contact: Contact, number: int) -> None:
        self._contact, self._number = contact, number
        self._token = secrets.token_hex(8)
        self._ids = itertools.count()
        self._sending, self._reading = threading.RLock(), threading.RLock()
        self._pending: weakref.WeakValueDictionary[int, _Pending] = weakref.WeakValueDictionary()
        self._numbers: dict[int, int] = {}  # the number of each input that the model masks, by its id
        self._sent: set[int] = set()  # numbers of inputs that the other end has
        self._dropped: deque[int] = deque()  # numbers of inputs that the other end can forget
        self._facts: dict[str, Any] = {}
        self._spent = 0.0
        self._life, self._start_seconds = "", 0.0
        self._died = False  # the model's process, of a request of this worker
        self.loads = Loads()
        self._pipe: Connection | None = None
        self._connect(_FIRST_SECONDS + contact.patience)  # the engine ends the run where the model cannot be made

    # -- a model as any other

    def __call__(self, batch: Inputs) -> Any:
        return self._wait(self._ask_rows(batch, careful=self._died))

    def launch(self, batch: Inputs) -> Callable[[], Any]:
        """Ask for the outputs of a batch; the function that is returned waits for them."""
        self._died = False
        return functools.partial(self._wait, self._ask_rows(batch))

    def encode_inputs(self, inputs: Any) -> Any:
        """Encode an input for a model that masks it itself, and send it there; None where the model cannot."""
        encoded = self._encode_inputs(inputs)
        if encoded is None:
            return None
        try:
            payload = pickle.dumps(encoded, protocol=5)
            number = self._assign_number(encoded)
        except Exception:  # it cannot be pickled, or has no weak references
            return None
        self._send_input(number, payload)
        return encoded

    @functools.cached_property
    def name(self) -> str | None:
        """The model's name in a ledger; sent only when asked for, because hashing all weights takes time."""
        name: str | None = self._wait(self._ask("name", None))
        return name

    @property
    def cost(self) -> float | None:
        """What this worker's rows have cost."""
        return None if self._facts["cost"] is None else self._spent

    def __getattr__(self, name: str) -> Any:
        facts: Mapping[str, Any] = self.__dict__.get("_facts", {})
        if name in facts.get("methods", ()):  # of a language model
            return lambda *arguments: self._wait(self._ask(name, arguments, careful=self._died))
        if name not in facts:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return facts[name]

    # -- other work of the model's process

    def segment(self, images: Sequence[Any], segment: str, options: Mapping[str, Any]) -> list[Any]:
        maps: list[Any] = self._wait(self._ask("segment", (list(images), segment, dict(options))))
        return maps

    # -- requests

    def _ask_rows(self, batch: Inputs, careful: bool = False) -> _Pending:
        if isinstance(batch, MaskedBatch):
            return self._ask("rows", batch.pieces, careful)
        return self._ask("batch", batch, careful)

    def _ask(self, what: str, body: Any, careful: bool = False) -> _Pending:
        request = _Pending(next(self._ids), what, body, careful)
        with self._sending:
            self._pending[request.id] = request
            self._send(request)
        return request

    def _send(self, request: _Pending) -> None:
        """Send a request, and before it the inputs that the other end does not have.

        On a broken connection nothing is sent: the thread that waits for the answer reconnects and sends it again.
        """
        with self._sending:
            body = request.body
            if request.what == "rows":
                body = [
                    (self._sent_number(p.inputs), p.level, p.masks.shape[1], np.packbits(p.masks, axis=1)) for p in body
                ]
            elif request.what == "batch":
                try:
                    body = pickle.dumps(body, protocol=5)
                except Exception as error:
                    raise TypeError(
                        f"the masked inputs cannot be sent to the model's process ({type(error).__name__}: {error}); "
                        "leave out models= and gpus= or, in memory, workers="
                    ) from error
            dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
            self._sent.difference_update(dropped)
            self._put(("ask", request.id, request.what, request.careful, body, dropped))

    def _sent_number(self, inputs: Any) -> int:
        """The number of an input, which is sent if the other end does not have it."""
        number = self._numbers.get(id(inputs))
        if number is None:
            number = self._assign_number(inputs)
        if number not in self._sent:
            self._send_input(number, pickle.dumps(inputs, protocol=5))
        return number

    def _assign_number(self, inputs: Any) -> int:
        """Give an input a number for as long as it lives."""
        number = next(self._ids)
        weakref.finalize(inputs, self._forget, id(inputs), number).atexit = False
        self._numbers[id(inputs)] = number
        return number

    def _forget(self, id_: int, number: int) -> None:
        """Note that an input is gone; the next request says so, because the collector calls this in any thread."""
        if self._numbers.get(id_) == number:
            del self._numbers[id_]
            self._dropped.append(number)

    def _send_input(self, number: int, payload: bytes) -> None:
        with self._sending:
            self._put(("input", number, payload))
            self._sent.add(number)

    def _put(self, message: Any) -> None:
        if self._pipe is not None:
            try:
                send(self._pipe, message)
            except OSError:
                shut_down(self._pipe)  # so that the thread that waits for an answer reconnects

    def _wait(self, request: _Pending) -> Any:
        """Wait for the answer to a request, and return it or raise its error."""
        while not request.done:
            with self._reading:
                if not request.done:
                    self._read_one()
        charge(request.cost)
        if request.error is not None:
            raise request.error
        return request.answer

    def _read_one(self) -> None:
        try:
            if self._pipe is None:
                raise EOFError
            id_, answer, error, cost, facts, load = receive(self._pipe)
        except (EOFError, OSError):
            self._reconnect()
            return
        self._take_facts(facts, load)
        request = self._pending.get(id_)
        if request is not None:  # else nobody waits for it any more
            request.answer, request.error, request.cost = answer, error, cost
            request.done = True
        self._spent += cost

    def _take_facts(self, facts: Mapping[str, Any] | None, load: Load | None) -> None:
        if facts is not None:
            self._facts.update(facts)
            for name in ("__name__", "__qualname__"):
                setattr(self, name, self._facts[name])
        if load is not None:
            self.loads[f"{self._number}-{self._life}"] = load

    # -- the connection

    def _connect(self, seconds: float) -> Mapping[int, str]:
        """Connect within ``seconds``, and return this worker's requests of which a process has died, with reasons."""
        deadline = time.monotonic() + seconds
        while True:
            pipe = self._contact.connect(self._number)
            if pipe is not None:
                try:
                    send(pipe, self._token)
                    hello = receive(pipe)
                    break
                except (EOFError, OSError):
                    pipe.close()
            if time.monotonic() > deadline and self._life:
                raise ConnectionError(
                    f"the model's process is gone or stopped, and none came back in {self._contact.patience:g} s"
                )
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"no process with the model came up in {seconds:g} s: see that it loads (engine='serial') and that "
                    "there is room for it, or raise patience="
                )
            time.sleep(0.05)
        self._pipe = pipe
        self._life, self._start_seconds = hello["life"], hello["start_seconds"]
        self._encode_inputs: Callable[[Any], Any] = pickle.loads(hello["encode_inputs"])
        self._take_facts(hello["facts"], None)
        deaths: Mapping[int, str] = hello["deaths"]
        return deaths

    def _reconnect(self) -> None:
        """Connect again and send unanswered requests again, with care if another process answers now.

        Once the wait for a connection was in vain, each further call tries only once.
        """
        with self._sending:
            seconds, life = 0.0, self._life
            if self._pipe is not None:
                self._pipe.close()
                self._pipe = None
                seconds = self._contact.patience + 3.0 * self._start_seconds  # the next start may take longer
            self._sent.clear()
            deaths = self._connect(seconds)
            for request in [request for request in self._pending.values() if not request.done]:
                if request.id in deaths:
                    request.error, request.done = ModelDiedError(deaths[request.id]), True
                    self._died = True
                else:
                    request.careful = request.careful or self._life != life
                    self._send(request)


def connected(contact: Contact, number: int) -> RemoteModel:
    """The shared model for this worker process; photos are then segmented where the GPU is."""
    model = RemoteModel(contact, number)
    if model.has_gpu:
        from c2fa.maskers import _segmenting

        _segmenting.elsewhere = model.segment
    return model
