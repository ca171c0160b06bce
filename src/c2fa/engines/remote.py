"""The worker's end of a model that a process of its own has."""

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

_FIRST_SECONDS = 3600.0  # that the first start may take beside the patience: weights are fetched, clusters grow


class ModelDiedError(RuntimeError):
    """The model's process died each time it was asked this, and nothing else at that time."""


@dataclass(eq=False)
class _Asked:
    """A request under way: what is asked, and when it is there, the answer or the error."""

    id: int
    what: str
    body: Any
    careful: bool = False
    done: bool = False
    answer: Any = None
    error: Exception | None = None
    cost: float = 0.0


class RemoteModel:
    """A model that a process of its own has, which several workers share; what that one says of itself goes for it.

    Rows of inputs that the model masks itself travel as bits, and such an input travels once. A connection that breaks
    is made again, and what was under way asked again.

    Parameters
    ----------
    contact
        Where the model is found.
    number
        Which of the run's models it is.
    """

    def __init__(self, contact: Contact, number: int) -> None:
        self._contact, self._number = contact, number
        self._token = secrets.token_hex(8)
        self._ids = itertools.count()
        self._sending, self._reading = threading.RLock(), threading.RLock()
        self._asked: weakref.WeakValueDictionary[int, _Asked] = weakref.WeakValueDictionary()
        self._numbers: dict[int, int] = {}  # of the inputs that travel as bits, by their ids
        self._there: set[int] = set()  # those that the other end has
        self._dropped: deque[int] = deque()  # those that it can forget
        self._told: dict[str, Any] = {}
        self._spent = 0.0
        self._life, self._start_seconds = "", 0.0
        self._blamed = False
        self.loads = Loads()
        self._pipe: Connection | None = None
        self._connect(_FIRST_SECONDS + contact.patience)  # the engine ends the run where it cannot be made

    # -- a model as any other

    def __call__(self, batch: Inputs) -> Any:
        """Ask for the outputs of a batch and wait for them."""
        return self._wait(self._ask_rows(batch, careful=self._blamed))

    def launch(self, batch: Inputs) -> Callable[[], Any]:
        """Ask for the outputs of a batch; what is returned waits for them."""
        self._blamed = False
        return functools.partial(self._wait, self._ask_rows(batch))

    def encode_inputs(self, inputs: Any) -> Any:
        """Make an input ready for a model that masks it itself, and send it there."""
        encoded = self._encode_inputs(inputs)
        if encoded is None:
            return None
        try:
            payload = pickle.dumps(encoded, protocol=5)
            number = self._take_in(encoded)
        except Exception:  # it cannot be pickled, or it cannot be told when it is gone
            return None
        self._send_input(number, payload)
        return encoded

    @functools.cached_property
    def name(self) -> str | None:
        """What a ledger keeps outputs under; a hash of all weights takes its time, so that it is asked for."""
        name: str | None = self._wait(self._ask("name", None))
        return name

    @property
    def cost(self) -> float | None:
        """What this worker's rows have cost."""
        return None if self._told["cost"] is None else self._spent

    def __getattr__(self, name: str) -> Any:
        told: Mapping[str, Any] = self.__dict__.get("_told", {})
        if name in told.get("methods", ()):  # of a language model
            return lambda *given: self._wait(self._ask(name, given, careful=self._blamed))
        if name not in told:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return told[name]

    # -- and what else its process does

    @property
    def has_gpu(self) -> bool:
        """Whether the model's process works with a GPU."""
        return bool(self._told["has_gpu"])

    def segment(self, images: Sequence[Any], segment: str, options: Mapping[str, Any]) -> list[Any]:
        """Let the model's process segment photos."""
        maps: list[Any] = self._wait(self._ask("segment", (list(images), segment, dict(options))))
        return maps

    # -- requests

    def _ask_rows(self, batch: Inputs, careful: bool = False) -> _Asked:
        if isinstance(batch, MaskedBatch):
            return self._ask("rows", batch.pieces, careful)
        return self._ask("batch", batch, careful)

    def _ask(self, what: str, body: Any, careful: bool = False) -> _Asked:
        asked = _Asked(next(self._ids), what, body, careful)
        with self._sending:
            self._asked[asked.id] = asked
            self._send(asked)
        return asked

    def _send(self, asked: _Asked) -> None:
        """Send a request, and before it the inputs that the other end does not have.

        Where the connection is broken nothing is sent: whoever waits for the answer sees that, and sends it again.
        """
        with self._sending:
            body = asked.body
            if asked.what == "rows":
                body = [
                    (self._there_already(p.inputs), p.level, p.masks.shape[1], np.packbits(p.masks, axis=1))
                    for p in body
                ]
            elif asked.what == "batch":
                try:
                    body = pickle.dumps(body, protocol=5)
                except Exception as error:
                    raise TypeError(
                        f"the masked inputs cannot be sent to the model's process ({type(error).__name__}: {error}); "
                        "leave out models= and gpus=, so that each worker has a model of its own"
                    ) from error
            dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
            self._there.difference_update(dropped)
            self._put(("ask", asked.id, asked.what, asked.careful, body, dropped))

    def _there_already(self, inputs: Any) -> int:
        """The number of an input, which the other end has from now on."""
        number = self._numbers.get(id(inputs))
        if number is None:
            number = self._take_in(inputs)
        if number not in self._there:
            self._send_input(number, pickle.dumps(inputs, protocol=5))
        return number

    def _take_in(self, inputs: Any) -> int:
        """Give an input a number, until it is gone."""
        number = next(self._ids)
        weakref.finalize(inputs, self._forget, id(inputs), number).atexit = False
        self._numbers[id(inputs)] = number
        return number

    def _forget(self, place: int, number: int) -> None:
        """An input is gone. This may be called anywhere, so that the other end is told with the next request."""
        if self._numbers.get(place) == number:
            del self._numbers[place]
            self._dropped.append(number)

    def _send_input(self, number: int, payload: bytes) -> None:
        with self._sending:
            self._put(("input", number, payload))
            self._there.add(number)

    def _put(self, message: Any) -> None:
        if self._pipe is not None:
            try:
                send(self._pipe, message)
            except OSError:
                shut_down(self._pipe)  # for whoever waits for an answer

    def _wait(self, asked: _Asked) -> Any:
        """The answer to a request, when it is there; its error is raised."""
        while not asked.done:
            with self._reading:
                if not asked.done:
                    self._read_one()
        charge(asked.cost)
        if asked.error is not None:
            raise asked.error
        return asked.answer

    def _read_one(self) -> None:
        """Take in the next answer, whosever it is."""
        try:
            if self._pipe is None:
                raise EOFError
            id_, answer, error, cost, told, load = receive(self._pipe)
        except (EOFError, OSError):
            self._reconnect()
            return
        self._take_told(told, load)
        asked = self._asked.get(id_)
        if asked is not None:  # else nobody waits for it any more
            asked.answer, asked.error, asked.cost = answer, error, cost
            asked.done = True
        self._spent += cost

    def _take_told(self, told: Mapping[str, Any] | None, load: Load | None) -> None:
        if told is not None:
            self._told.update(told)
            for name in ("__name__", "__qualname__"):
                setattr(self, name, self._told[name])
        if load is not None:
            self.loads[f"{self._number}-{self._life}"] = load

    # -- the connection

    def _connect(self, seconds: float) -> Mapping[int, str]:
        """Connect within so many seconds, and return the requests of this worker of which a process has died."""
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
        self._take_told(hello["told"], None)
        deaths: Mapping[int, str] = hello["deaths"]
        return deaths

    def _reconnect(self) -> None:
        """Connect again and ask again what was under way; where a process has died it is asked with care.

        After a time without a connection each further call tries once.
        """
        with self._sending:
            seconds, life = 0.0, self._life
            if self._pipe is not None:
                self._pipe.close()
                self._pipe = None
                seconds = self._contact.patience + 3.0 * self._start_seconds  # the next start may take longer
            self._there.clear()
            deaths = self._connect(seconds)
            for asked in [asked for asked in self._asked.values() if not asked.done]:
                if asked.id in deaths:
                    asked.error, asked.done = ModelDiedError(deaths[asked.id]), True
                    self._blamed = True
                else:
                    asked.careful = asked.careful or self._life != life
                    self._send(asked)


def connected(contact: Contact, number: int) -> RemoteModel:
    """The model for the worker that this process is; photos are segmented where the GPU is."""
    model = RemoteModel(contact, number)
    if model.has_gpu:
        from c2fa.maskers import _segmenting

        _segmenting.elsewhere = model.segment
    return model
