"""A worker's connection, seen from the model process: it reads the worker's requests and sends it answers."""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.asking.masking import MaskedRows
from c2fa.asking.replies import kind_of
from c2fa.engines.contact import BEAT_SECONDS, dumps_message, greet, receive, send, sendable, shut_down

if TYPE_CHECKING:
    from c2fa.engines.serving import Server

# Methods of a language model that workers may call: CALLS in the thread that calls the model, and BESIDE, which compute
# nothing, in another.
CALLS = "generate", "generate_many", "score", "score_many", "attention"
BESIDE = "pieces", "try_scoring", "template", "fits"


@dataclass(eq=False)
class Request:
    """A worker's request, and what the model's calls for it have cost.

    Requests of one ``kind`` may share a call of the model unless one is ``alone``. Nothing else runs beside a
    ``careful`` one, because a process may have died of it.
    """

    guest: Guest
    id: int
    what: str
    careful: bool
    body: Any
    kind: Any = None
    rows: int = 0
    alone: bool = False
    cost: float = 0.0


@dataclass(frozen=True)
class Unreadable:
    """An input that cannot be read here, such as one of a class that only the worker can import."""

    error: Exception


class Guest:
    """A worker's connection, the inputs that it has sent, and the answers that it has yet to get."""

    def __init__(self, pipe: Connection, server: Server) -> None:
        self.pipe, self.server = pipe, server
        self.token, self.gone = "", False
        self.inputs: dict[int, Any] = {}
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.facts: dict[str, Any] | None = None  # about the model, as the worker knows them

    def begin(self) -> None:
        threading.Thread(target=self._read, name="c2fa-read", daemon=True).start()

    def hang_up(self) -> None:
        """End both threads, whatever they wait for."""
        self.gone = True
        self.outbox.put(None)
        shut_down(self.pipe)

    def reply(self, id_: int, answer: Any, error: Exception | None, cost: float, facts: Any, load: Any) -> None:
        """Queue an answer, or an error with its partial answers; facts about the model go along if they are new."""
        news = None if facts == self.facts else facts
        self.facts = facts
        if error is not None:
            partial, error = getattr(error, "partial", None), sendable(error)
            if partial is not None:
                error.partial = partial  # type: ignore[union-attr]
        try:
            self.outbox.put(dumps_message((id_, answer, error, cost, news, load)))
        except Exception as failure:  # it is too large, or cannot be pickled
            self.outbox.put(dumps_message((id_, None, sendable(failure), cost, news, load)))

    def _read(self) -> None:
        writing = threading.Thread(target=self._write, name="c2fa-write", daemon=True)
        try:
            greet(self.pipe, self.server.key, "model", self.server.address)
            self.token = receive(self.pipe)
            server = self.server
            self.facts = server.facts()
            deaths = {
                place[1]: died[-1].reason or "the model's process died"
                for place, died in server.journal.deaths.items()
                if place[0] == self.token
            }
            hello = {"life": server.life, "start_seconds": server.start_seconds, "facts": self.facts, "deaths": deaths}
            send(self.pipe, {**hello, "encode_inputs": server.encode_inputs})
            writing.start()
            while True:
                self._take(receive(self.pipe))
        except (EOFError, OSError):  # the worker is gone, or a stranger has no key
            pass
        finally:
            self.hang_up()
            if writing.ident is not None:
                writing.join()  # it could write to another connection that reuses the closed file's number
            self.inputs.clear()
            self.pipe.close()

    def _write(self) -> None:
        """Send answers and, while there are none, signs of life."""
        beat = dumps_message((None, None, None, 0.0, None, None))  # an answer to no request
        try:
            while True:
                message: bytes | None = beat
                with contextlib.suppress(queue.Empty):
                    message = self.outbox.get(timeout=BEAT_SECONDS)
                if message is None:
                    return
                self.pipe.send_bytes(message)
        except OSError:
            shut_down(self.pipe)  # so that the reading thread and the worker end too

    def _take(self, message: Any) -> None:
        match message:
            case ("input", number, payload):
                try:
                    self.inputs[number] = pickle.loads(payload)
                    self.server.expect(self.inputs[number])
                except Exception as error:  # raised again when rows of this input are asked for
                    self.inputs.setdefault(number, Unreadable(error))
            case ("ask", id_, what, careful, body, dropped):
                request = Request(self, id_, what, careful, body, alone=careful)
                try:
                    self._prepare(request)
                except Exception as error:
                    self.reply(id_, None, error, 0.0, self.facts, None)
                else:
                    self.server.put(request)
                for number in dropped:
                    self.inputs.pop(number, None)

    def _prepare(self, request: Request) -> None:
        """Unpack a request and count its rows here, because the thread that calls the model has enough to do."""
        request.kind = request.what
        if request.what == "rows":
            pieces = []
            for number, level, width, bits in request.body:
                inputs = self.inputs[number]
                if isinstance(inputs, Unreadable):
                    raise inputs.error
                masks = np.unpackbits(bits, axis=1, count=width).view(np.bool_)
                pieces.append(MaskedRows(inputs, masks, level))
            request.body = pieces
        elif request.what == "batch":
            batch = pickle.loads(request.body)
            request.body, request.kind = [batch], kind_of(batch)
        elif request.what == "segment":
            _, segment, options = request.body
            request.kind = "segment", segment, sorted(options.items())
        elif request.what in (*CALLS, *BESIDE):  # a kind of its own: one request scores many prompts already
            request.kind = request.what, request.guest.token, request.id
            match request.what:
                case "generate" | "attention":
                    request.rows = 1
                case "generate_many" | "score":
                    request.rows = len(request.body[0])
                case "score_many":
                    request.rows = sum(len(prompts) for prompts, _ in request.body[0])
        if request.what in ("rows", "batch"):
            request.rows = sum(map(len, request.body))
