"""How the processes of a run meet: how workers find the model processes, and the messages between them."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import pickle
import secrets
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeAlias

from c2fa._system import atomic, this_process

_GREETING_SECONDS = 10.0  # within which both ends of a connection prove who they are
_LARGEST = 1 << 32  # bytes of a message
_FOLDER, _SOCKET = "c2fa-model-", "socket"  # the prefix of a model's private folder, and the socket in it
LOCAL = "127.0.0.1"
BEAT_SECONDS = 1.0  # after which a model process that has no answer to send tells each worker that it lives

Address: TypeAlias = tuple[str, int] | str
"""A host and a port or, for workers of the same machine, the path of a socket."""
Role: TypeAlias = Literal["model", "worker"]


class WorkerError(RuntimeError):
    """Workers could not be started, or several died of one task; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Contact:
    """How workers find the models of their run: a folder that all of them see, and the key that lets them in.

    ``patience`` is the seconds that a worker waits for a model process that is gone, besides three times its start.
    """

    folder: str
    patience: float = 60.0
    run: str = field(default_factory=this_process)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def file(self, number: int) -> Path:
        """The file with a model's address, whose name no other run uses."""
        return Path(self.folder) / f"_model-{self.run}-{number}"

    def publish(self, number: int, address: Address) -> None:
        """Write down a model's address in place of its last one."""
        remove_socket(_address_in(self.file(number)))
        with atomic(self.file(number)) as file:
            file.write(json.dumps(address).encode())

    def connect(self, number: int) -> Connection | None:
        """A connection to a model; None where it is not there yet, is gone or does not answer."""
        address = _address_in(self.file(number))
        pipe = None
        try:
            pipe = Connection(_dial(address).detach())
            greet(pipe, self.key, "worker", address)
            silence = int(max(min(self.patience, 1e6), 2 * BEAT_SECONDS))
            limit = 1000 * silence if os.name == "nt" else struct.pack("ll", silence, 0)
            with _socket(pipe) as line:
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # a stopped process would never answer
                    line.setsockopt(socket.SOL_SOCKET, option, limit)
        except (OSError, ValueError, TypeError, OverflowError):  # gone, its port is another's, or this is no address
            if pipe is not None:
                pipe.close()
            return None
        return pipe

    def clear(self) -> None:
        """Remove the files and sockets of this run's models."""
        for file in Path(self.folder).glob(f"_model-{self.run}-*"):
            remove_socket(_address_in(file))
            file.unlink(missing_ok=True)


def open_door(host: str) -> tuple[socket.socket, Address]:
    """Listen for workers: for ``LOCAL`` at a socket in a folder that only its user can open, else at a port.

    Such folders that killed processes have left behind are removed.
    """
    if host == LOCAL and hasattr(socket, "AF_UNIX"):
        for old in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_SOCKET}"):
            try:
                _dial(str(old)).close()
            except ConnectionRefusedError:
                remove_socket(str(old))
            except OSError:
                pass  # it is another user's, or busy
        path = os.path.join(tempfile.mkdtemp(prefix=_FOLDER), _SOCKET)
        door = socket.socket(socket.AF_UNIX)
        try:
            door.bind(f"{path}-")
            door.listen(128)
            os.rename(f"{path}-", path)  # not before: other runs remove a socket of this name if nobody listens
            return door, path
        except OSError:  # the path is too long for a socket
            door.close()
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    door = socket.create_server((host, 0), backlog=128)
    return door, door.getsockname()[:2]


def _dial(address: Any) -> socket.socket:
    """Connect to an address, whoever listens there."""
    line = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    try:
        line.settimeout(_GREETING_SECONDS)
        line.connect(address if isinstance(address, str) else tuple(address))
        if line.family == socket.AF_INET:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages are sent at once
    except BaseException:
        line.close()
        raise
    return line


def _address_in(file: Path) -> Any:
    """The address in a file, or None."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(file.read_text(encoding="utf-8"))


def remove_socket(address: Any) -> None:
    """Remove a socket and its folder, but no other file: anyone who can write to the store can write an address."""
    path = Path(address) if isinstance(address, str) else Path()
    with contextlib.suppress(OSError, ValueError):
        if path.name == _SOCKET and path.parent.name.startswith(_FOLDER) and path.is_socket():
            path.unlink()
            path.parent.rmdir()


def greet(pipe: Connection, key: bytes, role: Role, address: Address | None) -> None:
    """Prove to the other end that this one has the key, and check that the other has it; an ``OSError`` if not.

    A proof is for one role, one address and one connection, to which each end adds random bytes: nobody can use it with
    another process. During the greeting, the number of bytes that are read and the time for it are limited.
    """
    end = time.monotonic() + _GREETING_SECONDS
    with _socket(pipe) as line:
        size = 32  # bytes of a nonce, and of a proof

        def read() -> bytes:
            data = b""
            while len(data) < size:
                line.settimeout(max(end - time.monotonic(), 0.001))
                piece = line.recv(size - len(data))
                if not piece:
                    raise ConnectionResetError("the other end has hung up")
                data += piece
            return data

        def proof(of: Role) -> bytes:
            return hmac.digest(key, f"{of} {json.dumps(address)} ".encode() + nonces, "sha256")

        line.settimeout(_GREETING_SECONDS)
        ours = secrets.token_bytes(size)
        line.sendall(ours)
        theirs = read()
        nonces = ours + theirs if role == "model" else theirs + ours
        if role == "worker":
            line.sendall(proof("worker"))
        if not hmac.compare_digest(read(), proof("worker" if role == "model" else "model")):
            raise ConnectionRefusedError("the other end does not have the key")
        if role == "model":
            line.sendall(proof("model"))
        line.settimeout(None)


def shut_down(pipe: Connection) -> None:
    """End a connection for both ends, and for every thread that waits for it."""
    with contextlib.suppress(OSError), _socket(pipe) as line:
        line.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _socket(pipe: Connection) -> Iterator[socket.socket]:
    """The socket under a connection, which stays open."""
    line = socket.socket(fileno=pipe.fileno())
    try:
        yield line
    finally:
        line.detach()


_REMEDY = (
    "give a function of a module that makes it, give model='...' or a constructor so that each worker loads its own, "
    "or engine='serial'"
)


def dumps(thing: Any, what: str = "the explainer", remedy: str = _REMEDY) -> bytes:
    """Pickle a thing for a worker, or say in one sentence what to give instead."""
    main = sys.modules.get("__main__")
    interactive = main is None or not hasattr(main, "__file__")
    by_value = ["cloudpickle"] if find_spec("cloudpickle") is not None else []
    # Nobody can import a notebook's functions, although pickle takes them.
    ways = by_value if interactive and by_value else ["pickle", *by_value]
    problem: Exception | None = None
    for way in ways:
        try:
            payload: bytes = import_module(way).dumps(thing)
            return payload
        except Exception as error:
            problem = error
    raise TypeError(
        f"{what} cannot be sent to another process ({type(problem).__name__}: {problem}); {remedy}"
    ) from problem


def sendable(error: Exception | None) -> Exception | None:
    """The error itself if it can be pickled, else another with the same message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error


def dumps_message(message: Any) -> bytes:
    """A message as bytes; a ``ValueError`` if it is too large."""
    payload = pickle.dumps(message, protocol=5)
    if len(payload) > _LARGEST:
        raise ValueError(
            f"{len(payload) / 2**30:.1f} GiB are too much for one message between a worker and the model's process, "
            f"which may have {_LARGEST / 2**30:g} GiB; give a smaller batch_size, or leave out models= and gpus= or, "
            "in memory, workers="
        )
    return payload


def send(pipe: Connection, message: Any) -> None:
    pipe.send_bytes(dumps_message(message))


def receive(pipe: Connection) -> Any:
    """Wait for a message; an ``EOFError`` or ``OSError`` if the other end is gone or silent for too long."""
    return pickle.loads(pipe.recv_bytes(_LARGEST))
