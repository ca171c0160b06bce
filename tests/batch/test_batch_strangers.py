"""Strangers at the door between workers and a model's process: they have no key, and get nothing done."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batch_helpers import inputs, side_files
from c2fa.engines import Contact, RemoteModel, Serving, contact
from c2fa.engines.contact import dumps_message, open_door, send
from c2fa.engines.serving import Server
from serving_helpers import Vectors
from strangers import Ran

TCP = "localhost"  # where workers are told to be of this machine by its address, they meet in a folder
needs_unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no Unix sockets here")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "_GREETING_SECONDS", 0.5)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Server, Contact]]]:
    with contextlib.ExitStack() as stack:

        def begin(number: int = 0, host: str = TCP, among: Contact | None = None) -> tuple[Server, Contact]:
            found = among or Contact(str(tmp_path), patience=0.2)
            server = Serving(lambda: lambda batch: [0.5] * len(batch), found).start(number, host)
            thread = threading.Thread(target=server.run)
            thread.start()
            stack.callback(found.clear)
            stack.callback(thread.join, 10)
            stack.callback(server.stop)
            return server, found

        yield begin


@pytest.fixture
def squatter(tmp_path: Path) -> Iterator[tuple[socket.socket, Contact]]:
    """A stranger who has taken the port of a model that is gone."""
    with socket.create_server((TCP, 0)) as door:
        found = Contact(str(tmp_path), patience=0.2)
        found.publish(0, door.getsockname()[:2])
        yield door, found


def workers(found: Contact, count: int) -> tuple[list[Any], list[threading.Thread]]:
    """What workers get who look for the model."""
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(found.connect(0))) for _ in range(count)]
    for thread in threads:
        thread.start()
    return got, threads


def pass_on(one: socket.socket, other: socket.socket) -> None:
    """Hand everything that one end says to the other, both ways, until they have nothing more to say."""
    threads = []
    for source, target in ((one, other), (other, one)):

        def copy(source: socket.socket = source, target: socket.socket = target) -> None:
            with contextlib.suppress(OSError):
                while piece := source.recv(4096):
                    target.sendall(piece)
                target.shutdown(socket.SHUT_WR)

        threads.append(threading.Thread(target=copy))
        threads[-1].start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_what_one_worker_says_convinces_no_other(squatter: tuple[socket.socket, Contact]) -> None:
    door, found = squatter
    got, threads = workers(found, 2)
    with door.accept()[0] as one, door.accept()[0] as other:
        pass_on(one, other)
    for thread in threads:
        thread.join(10)
    assert got == [None, None]


def test_what_a_worker_says_is_of_no_use_with_a_model_elsewhere(
    squatter: tuple[socket.socket, Contact], serve: Any, tmp_path: Path
) -> None:
    """The stranger has a worker at the old port, and passes everything on to the model, which has come back."""
    door, found = squatter
    server, _ = serve(number=1, among=found)
    got, threads = workers(found, 1)
    with door.accept()[0] as one, socket.create_connection(server.door.getsockname()) as other:
        pass_on(one, other)
    threads[0].join(10)
    assert got == [None]
    assert found.connect(1) is not None


@pytest.mark.parametrize("said", [b"", b"x" * 7, b"x" * 32, b"x" * 64, b"\xff" * 4096, b"#CHALLENGE#" + b"x" * 20])
@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_squatter_is_left_alone_soon(squatter: tuple[socket.socket, Contact], said: bytes, hangs_up: bool) -> None:
    """Silence, half a greeting, a whole one without the key, and rubbish."""
    door, found = squatter
    begin = time.monotonic()
    got, [thread] = workers(found, 1)
    with door.accept()[0] as line:
        line.sendall(said)
        if hangs_up:
            line.close()
        thread.join(10)
    assert got == [None]
    assert time.monotonic() - begin < 5


def test_one_who_speaks_a_letter_at_a_time_is_left_alone_as_soon(squatter: tuple[socket.socket, Contact]) -> None:
    door, found = squatter
    got, [thread] = workers(found, 1)
    with door.accept()[0] as line, contextlib.suppress(OSError):
        end = time.monotonic() + 10
        while thread.is_alive() and time.monotonic() < end:
            line.sendall(b"x")
            thread.join(0.2)
    thread.join(1)
    assert got == [None]


def test_nothing_of_a_stranger_is_unpickled(squatter: tuple[socket.socket, Contact], tmp_path: Path) -> None:
    door, found = squatter
    payload = dumps_message(Ran(tmp_path / "ran"))
    got, [thread] = workers(found, 1)
    with door.accept()[0] as line:
        with contextlib.suppress(OSError):
            line.sendall(b"x" * 64 + len(payload).to_bytes(4, "big") + payload)
        thread.join(10)
    assert got == [None]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("said", [b"", b"x" * 7, b"x" * 32, b"x" * 64, b"\xff" * 4096])
def test_idle_strangers_are_dropped_and_workers_served_meanwhile(serve: Any, said: bytes, tmp_path: Path) -> None:
    server, found = serve()
    payload = dumps_message(Ran(tmp_path / "ran"))
    strangers = [socket.create_connection(server.door.getsockname()) for _ in range(20)]
    for stranger in strangers:
        with contextlib.suppress(OSError):
            stranger.sendall(said + (payload if len(said) >= 64 else b""))
    assert RemoteModel(found, 0)([1]) == [[0.5]]
    for stranger in strangers:
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(4096):  # the model's own greeting, and then the end
                pass
        stranger.close()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "written", ["", "{", "7", '{"a": 1}', '["localhost", "x"]', '"\\u0000"', '"/nowhere"', "[1, 2]"]
)
def test_a_file_that_holds_no_address_is_none(tmp_path: Path, written: str) -> None:
    found = Contact(str(tmp_path))
    found.file(0).write_text(written)
    assert found.connect(0) is None
    found.clear()
    assert side_files(tmp_path) == []


# -- the folder of a model


@needs_unix
def test_on_one_machine_workers_meet_the_model_in_a_private_folder(serve: Any) -> None:
    server, found = serve(host=contact.LOCAL)
    path = Path(server.door.getsockname())
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert RemoteModel(found, 0)([1]) == [[0.5]]
    stranger = Contact(found.folder, run=found.run)
    assert stranger.connect(0) is None  # even there the key is asked for
    found.clear()
    assert not path.parent.exists()


@needs_unix
def test_a_folder_whose_name_is_too_long_for_a_socket(
    serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    server, found = serve(host=contact.LOCAL)
    assert server.door.family == socket.AF_INET
    assert list(deep.iterdir()) == []
    assert RemoteModel(found, 0)([1]) == [[0.5]]


@needs_unix
def test_what_killed_models_leave_is_removed_when_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    live, address = open_door(contact.LOCAL)
    dead, left = open_door(contact.LOCAL)
    dead.close()  # as a kill does
    (tmp_path / "c2fa-model-of-others").mkdir()
    for path in (address, left):
        os.utime(path, (0, 0))
    door, new = open_door(contact.LOCAL)
    assert Path(address).exists()
    assert not Path(left).parent.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        Path(address).parent.name,
        Path(new).parent.name,
        "c2fa-model-of-others",
    }
    live.close()
    door.close()


def test_no_file_of_others_is_removed_for_what_an_address_says(tmp_path: Path) -> None:
    found = Contact(str(tmp_path))
    mine = tmp_path / "socket"
    mine.touch()
    found.publish(0, str(mine))
    found.publish(0, str(tmp_path / "other"))
    found.clear()
    assert mine.exists()


# -- large messages


def test_messages_are_of_limited_size(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _server, found = serve()
    model = RemoteModel(found, 0)
    assert model([1]) == [[0.5]]
    monkeypatch.setattr(contact, "_LARGEST", 10_000)
    with pytest.raises(ValueError, match=r"GiB are too much for one message .*; give a smaller batch_size"):
        model(np.zeros((200, 100)))
    with pytest.raises(ValueError, match="too much for one message"):
        model([1] * 5000)  # whose answer is too large
    assert model([1]) == [[0.5]]


def test_a_message_that_is_too_large_ends_its_connection_alone(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "_LARGEST", 10_000)
    _, found = serve()
    model, pipe = RemoteModel(found, 0), found.connect(0)
    assert pipe is not None
    send(pipe, "a worker")
    pipe.recv_bytes()
    with contextlib.suppress(OSError):
        pipe.send_bytes(b"x" * 20_000)
    with pytest.raises((EOFError, OSError)):
        list(iter(pipe.recv_bytes, None))  # signs of life, and then the end
    assert model([1]) == [[0.5]]


# -- what killed drivers leave


SCRIPT = """
import os, sys
sys.path.insert(0, {tests!r})
from batch_helpers import inputs
from serving_helpers import Renders, Vectors
from c2fa.batch import Recipe, many, store
from c2fa._system import atomic
if __name__ == "__main__":
    def write(*args, **more):
        with atomic({store!r} + "/part-00000001.parquet") as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), 9)
    store.write = write
    many(Recipe(Renders, Vectors(), {{"budget": (8, 24)}}), inputs(8), {store!r}, {how}, shard_size=4)
"""


def test_what_a_killed_driver_leaves_is_swept_at_the_next_start(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from c2fa.batch import Recipe, many
    from serving_helpers import Renders

    store = tmp_path / "store"
    (tmp_path / "run.py").write_text(
        SCRIPT.format(tests=str(Path(__file__).parents[1]), store=str(store), how="engine='serial'")
    )
    assert subprocess.run([sys.executable, str(tmp_path / "run.py")], check=False).returncode == -9
    run = Contact(str(store), run=next(store.glob("_answered-*")).name.removeprefix("_answered-"))
    run.publish(0, ("127.0.0.1", 1))
    run.file(0).with_suffix(".notes").write_text("{}")
    left = side_files(store)
    assert len(left) == 5, left  # what answered, an address, notes, half a shard and the journal
    made = Recipe(Renders, Vectors(), {"budget": (8, 24)})
    many(made, inputs(4), store, engine="serial", shard_size=4)
    assert side_files(store) == []
