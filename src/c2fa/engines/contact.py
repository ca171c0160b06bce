"""How workers find the processes that have the model, and what those leave behind for their successors."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, TypeAlias

from c2fa.engines.sending import WorkerError

_STARTS = 3  # a model's process may die so often, one time after another, before it has loaded the model
_GREETING_SECONDS = 10.0  # within which a model's process greets whoever connects
_DIED = "the model's process died"

Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Contact:
    """Where the workers of a run find its models, and the key that lets them in.

    Parameters
    ----------
    folder
        A folder that all workers see; each model's process writes its address there.
    patience
        Seconds that a worker waits for a model's process that is gone, beside what its start took.
    """

    folder: str
    patience: float = 60.0
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def file(self, number: int) -> Path:
        """The file with a model's address; those of other runs have other names."""
        return Path(self.folder) / f"_model-{self.run}-{number}"

    def publish(self, number: int, address: Address) -> None:
        """Tell where a model is, in place of where it was."""
        file = self.file(number)
        new = file.with_name(f"{file.name}.tmp")
        new.write_text(json.dumps(address), encoding="utf-8")
        os.replace(new, file)

    def connect(self, number: int) -> Connection | None:
        """A connection to a model, or None where there is none yet, or no longer."""
        try:
            host, port = json.loads(self.file(number).read_text(encoding="utf-8"))
            pipe = Client((host, port))
        except (OSError, ValueError):
            return None
        try:
            if pipe.poll(_GREETING_SECONDS):  # else it is some other program that has the port by now
                answer_challenge(pipe, self.key)
                deliver_challenge(pipe, self.key)
                return at_once(pipe)
        except (OSError, EOFError, ValueError, AssertionError, AuthenticationError):  # a stranger may send anything
            pass
        pipe.close()
        return None

    def clear(self) -> None:
        """Remove what the models of this run have written."""
        for file in Path(self.folder).glob(f"_model-{self.run}-*"):
            file.unlink(missing_ok=True)


def admit(pipe: Connection, key: bytes) -> Connection:
    """Let a worker in that has the key, at the model's end of its connection."""
    deliver_challenge(pipe, key)
    answer_challenge(pipe, key)
    return at_once(pipe)


def shut_down(pipe: Connection) -> None:
    """End a connection for both ends, and for every thread that waits for it."""
    with contextlib.suppress(OSError), _socket(pipe) as handle:
        handle.shutdown(socket.SHUT_RDWR)


def at_once(pipe: Connection) -> Connection:
    """The connection, with small messages sent when they are written and not after others are acknowledged."""
    with _socket(pipe) as handle:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return pipe


@contextlib.contextmanager
def _socket(pipe: Connection) -> Iterator[socket.socket]:
    """The socket under a connection, which stays open."""
    handle = socket.socket(fileno=pipe.fileno())
    try:
        yield handle
    finally:
        handle.detach()


def send(pipe: Connection, message: Any) -> None:
    """Send a message."""
    pipe.send_bytes(pickle.dumps(message, protocol=5))


def receive(pipe: Connection) -> Any:
    """Wait for a message; ``EOFError`` or ``OSError`` where the other end is gone."""
    return pickle.loads(pipe.recv_bytes())


class Notes:
    """A side file in which a model's process says what it is doing, so that the next one knows what the last died of.

    ``deaths`` tells of each worker's requests during which a process died that was asked nothing else.
    """

    def __init__(self, contact: Contact, number: int) -> None:
        self._path = contact.file(number).with_suffix(".notes")
        self.deaths: dict[str, dict[int, str]] = {}
        starts, at, reason = 0, None, _DIED
        for line in self._lines():
            match line:
                case {"start": _}:
                    if at is not None:
                        self.deaths.setdefault(at[0], {})[at[1]] = reason
                    starts, at, reason = starts + 1, None, _DIED
                case {"ready": _}:
                    starts = 0
                case {"at": place}:
                    at = place
                case {"reason": text}:
                    reason = str(text)
        if starts >= _STARTS:
            raise WorkerError(
                f"the model's process died {starts} times in a row while it loaded the model: try engine='serial' to "
                "see why, or see that there is enough memory for it"
            )
        self._note({"start": os.getpid()})

    def _lines(self) -> Iterator[Any]:
        """What the processes before have written, and that this one has started."""
        with contextlib.suppress(FileNotFoundError):
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):  # a line that a dying process wrote half
                    yield json.loads(line)
        yield {"start": os.getpid()}

    def _note(self, line: Any) -> None:
        """Write a line at once, so that it is there whatever happens next; the one before may be half a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(line)}\n")

    def ready(self) -> None:
        """The model is loaded."""
        self._note({"ready": True})

    def late(self, reason: str) -> None:
        """Say why this process is about to end itself."""
        with contextlib.suppress(OSError):
            self._note({"reason": reason})

    @contextlib.contextmanager
    def alone(self, worker: str, request: int) -> Iterator[None]:
        """A time in which nothing but this request can be what kills the process."""
        self._note({"at": [worker, request]})
        yield
        self._note({"at": None})
