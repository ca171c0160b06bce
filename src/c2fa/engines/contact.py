"""How processes of a run meet: what travels between them, and how workers find those that have the model."""

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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeAlias

from c2fa._system import atomic, this_process

_GREETING_SECONDS = 10.0  # within which both ends of a connection prove who they are
_LARGEST = 1 << 32  # bytes of a message
_FOLDER, _SOCKET = "c2fa-model-", "socket"  # how a model's private folder begins, and what is in it
LOCAL = "127.0.0.1"
BEAT_SECONDS = 1.0  # how often a model's process tells each worker that it lives, where it has nothing else to say

Address: TypeAlias = tuple[str, int] | str
"""A host and a port or, for workers of the same machine, a file."""
Role: TypeAlias = Literal["model", "worker"]


class WorkerError(RuntimeError):
    """No worker could be started; the message says what the first one said."""


@dataclass(frozen=True, eq=False)
class Contact:
    """Where the workers of a run find its models, in a folder that all of them see, and the key that lets them in.

    ``patience`` is how many seconds a worker waits for a model's process that is gone, beside what its start took.
    """

    folder: str
    patience: float = 60.0
    run: str = field(default_factory=this_process)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def file(self, number: int) -> Path:
        """The file with a model's address; those of other runs have other names."""
        return Path(self.folder) / f"_model-{self.run}-{number}"

    def publish(self, number: int, address: Address) -> None:
        """Tell where a model is, in place of where it was."""
        remove_socket(_address_in(self.file(number)))
        with atomic(self.file(number)) as file:
            file.write(json.dumps(address).encode())

    def connect(self, number: int) -> Connection | None:
        """A connection to a model, or None where there is none yet, or no longer, or none that answers."""
        address = _address_in(self.file(number))
        pipe = None
        try:
            pipe = Connection(_dialled(address).detach())
            greet(pipe, self.key, "worker", address)
            silence = int(max(min(self.patience, 1e6), 2 * BEAT_SECONDS))
            limit = 1000 * silence if os.name == "nt" else struct.pack("ll", silence, 0)
            with _socket(pipe) as line:
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # a process may be stopped for good
                    line.setsockopt(socket.SOL_SOCKET, option, limit)
        except (OSError, ValueError, TypeError, OverflowError):  # it is gone, another has its port, or it is no address
            if pipe is not None:
                pipe.close()
            return None
        return pipe

    def clear(self) -> None:
        """Remove what the models of this run have written."""
        for file in Path(self.folder).glob(f"_model-{self.run}-*"):
            remove_socket(_address_in(file))
            file.unlink(missing_ok=True)


def open_door(host: str) -> tuple[socket.socket, Address]:
    """Listen for workers; where the host is ``LOCAL``, for those of this machine, in a folder of its user alone.

    What processes that were killed have left of such folders is removed.
    """
    if host == LOCAL and hasattr(socket, "AF_UNIX"):
        for old in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_SOCKET}"):
            try:
                _dialled(str(old)).close()
            except ConnectionRefusedError:
                remove_socket(str(old))
            except OSError:
                pass  # another user's, or one that is busy
        path = os.path.join(tempfile.mkdtemp(prefix=_FOLDER), _SOCKET)
        door = socket.socket(socket.AF_UNIX)
        try:
            door.bind(f"{path}-")
            door.listen(128)
            os.rename(f"{path}-", path)  # where others look for sockets on which nobody listens
            return door, path
        except OSError:  # the path is too long for a socket
            door.close()
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    door = socket.create_server((host, 0), backlog=128)
    return door, door.getsockname()[:2]


def _dialled(address: Any) -> socket.socket:
    """A line to an address, at which anyone may be."""
    line = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    try:
        line.settimeout(_GREETING_SECONDS)
        line.connect(address if isinstance(address, str) else tuple(address))
        if line.family == socket.AF_INET:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # answers wait for no acknowledgements
    except BaseException:
        line.close()
        raise
    return line


def _address_in(file: Path) -> Any:
    """The address that a file tells, or None."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(file.read_text(encoding="utf-8"))


def remove_socket(address: Any) -> None:
    """Remove a socket and its folder, if it is one of ours: anyone who may write to the store may write addresses."""
    path = Path(address) if isinstance(address, str) else Path()
    with contextlib.suppress(OSError, ValueError):
        if path.name == _SOCKET and path.parent.name.startswith(_FOLDER) and path.is_socket():
            path.unlink()
            path.parent.rmdir()


def greet(pipe: Connection, key: bytes, role: Role, address: Address | None) -> None:
    """Prove to the other end that this one has the key, and see that it has it too; an ``OSError`` where it has not.

    Each proof is for one role, at one address, of one connection, to which both ends have added something new: what is
    said to one process is of no use with another. Until it is over only so many bytes are read, in so much time.
    """
    end = time.monotonic() + _GREETING_SECONDS
    with _socket(pipe) as line:
        size = 32  # bytes, of what either end adds, and of a proof

        def read() -> bytes:
            got = b""
            while len(got) < size:
                line.settimeout(max(end - time.monotonic(), 0.001))
                piece = line.recv(size - len(got))
                if not piece:
                    raise ConnectionResetError("the other end has hung up")
                got += piece
            return got

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
    with contextlib.suppress(OSError), _socket(pipe) as handle:
        handle.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _socket(pipe: Connection) -> Iterator[socket.socket]:
    """The socket under a connection, which stays open."""
    handle = socket.socket(fileno=pipe.fileno())
    try:
        yield handle
    finally:
        handle.detach()


_REMEDY = (
    "give a function of a module that makes it, give model='...' or a constructor so that each worker loads its own, "
    "or engine='serial'"
)


def dumps(thing: Any, what: str = "the explainer", remedy: str = _REMEDY) -> bytes:
    """Pickle what a worker needs, or say in one sentence what to give instead."""
    main = sys.modules.get("__main__")
    interactive = main is None or not hasattr(main, "__file__")
    try:
        if not interactive:  # a notebook's functions cannot be imported by a worker, though pickle takes them
            return pickle.dumps(thing)
    except Exception as error:
        problem: Exception = error
    else:
        problem = RuntimeError("it was made in an interactive session")
    try:
        by_value: bytes = import_module("cloudpickle").dumps(thing)
        return by_value
    except ImportError:
        if interactive:
            return pickle.dumps(thing)
    except Exception as error:
        problem = error
    raise TypeError(
        f"{what} cannot be sent to another process ({type(problem).__name__}: {problem}); {remedy}"
    ) from problem


def sendable(error: Exception | None) -> Exception | None:
    """The error itself where it can be pickled, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error


def dumps_message(message: Any) -> bytes:
    """A message as bytes, if it is not too large."""
    payload = pickle.dumps(message, protocol=5)
    if len(payload) > _LARGEST:
        raise ValueError(
            f"{len(payload) / 2**30:.1f} GiB are too much for one message between a worker and the model's process, "
            f"which may have {_LARGEST / 2**30:g} GiB; give a smaller batch_size, or leave out models= and gpus="
        )
    return payload


def send(pipe: Connection, message: Any) -> None:
    """Send a message."""
    pipe.send_bytes(dumps_message(message))


def receive(pipe: Connection) -> Any:
    """Wait for a message; ``EOFError`` or ``OSError`` where the other end is gone, or a worker's model is stopped."""
    return pickle.loads(pipe.recv_bytes(_LARGEST))
