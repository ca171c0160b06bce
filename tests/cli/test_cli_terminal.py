"""The command line as a person uses it: in a real terminal, with keys pressed and signals sent."""

from __future__ import annotations

import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import c2fa

fcntl = pytest.importorskip("fcntl")
pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")

MODEL = """
import pathlib, time

def slow(texts):
    for text in texts:
        time.sleep(0.02)
        with open("asked.log", "a") as log:
            log.write("row\\n")
    return [text.count("good") - text.count("bad") for text in texts]

def stuck(texts):
    if pathlib.Path("asked.log").exists() and len(pathlib.Path("asked.log").read_text()) > 80:
        pathlib.Path("stuck").touch()
        time.sleep(120)
    return slow(texts)

class Paid:
    name = "paid"
    cost = 0.0

    def __call__(self, texts):
        self.cost += 0.5 * len(texts)
        return slow(texts)

paid = Paid()
"""
TEXT = "The food was good and good. The waiter was bad. We waited a long time. It was good to sit outside again."
# Opens the terminal as its own, so that Ctrl-C is a signal, and becomes the command.
BOOT = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "c2fa", *sys.argv[1:]])
"""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command that runs in a terminal of 100 columns; all that it shows is kept."""

    def __init__(self, folder: Path, *args: str, env: dict[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT, *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            start_new_session=True,
            env={**environment, "XDG_CACHE_HOME": str(folder / "cache"), "TERM": "xterm-256color", **(env or {})},
        )
        os.close(slave)
        self._bytes = b""

    @property
    def raw(self) -> str:
        return self._bytes.decode(errors="replace")

    @property
    def shown(self) -> str:
        return _ANSI.sub("", self.raw)

    def read(self, seconds: float = 0.05) -> bool:
        """Take what is there to be read; False when the terminal is closed."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says so when the last process left the terminal
            return False
        self._bytes += data
        return bool(data)

    def until(self, ready: Callable[[], bool], seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"this did not come: {self.shown}"
            assert self.read() or ready(), f"the command ended: {self.shown}"

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self, seconds: float = 60.0) -> int:
        """Wait until the command ends, and return its exit code."""
        end = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < end, f"it does not end: {self.shown}"
        return self.process.wait(timeout=10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    (tmp_path / "slowly.py").write_text(MODEL)
    (tmp_path / "review.txt").write_text(TEXT)
    opened: list[Terminal] = []

    def start(*args: str, **options: dict[str, str]) -> Terminal:
        opened.append(Terminal(tmp_path, *args, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def rows(folder: Path) -> int:
    log = folder / "asked.log"
    return log.read_text().count("row") if log.exists() else 0


def test_ctrl_c_keeps_all_answers_and_the_same_command_continues(tmp_path: Path, terminal: Open) -> None:
    command = ("explain", "review.txt", "-m", "python:slowly:slow", "--batch-size", "8", "--out", "e.json")
    first = terminal(*command)
    first.until(lambda: "asking the model" in first.shown)
    assert re.search(r"\d+/200 .*row/s\]|\d+/200 .*<", first.shown)  # rows, rows a second, time left
    first.press("\x03")
    assert first.end() == 130
    assert "finishing the batch under way" in first.shown
    before = rows(tmp_path)
    assert f"{before} answers are kept" in first.shown  # the batch under way among them
    assert "the same command continues" in first.shown
    assert "Traceback" not in first.shown

    second = terminal(*command)
    assert second.end() == 0
    e = c2fa.load(tmp_path / "e.json")
    assert rows(tmp_path) == e.queries  # none was asked twice
    assert (e.diagnostics.recalled, e.diagnostics.sent) == (before, e.queries - before)
    assert list((tmp_path / "cache" / "c2fa").iterdir()) == []


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, terminal: Open) -> None:
    run = terminal("explain", "review.txt", "-m", "python:slowly:stuck", "--batch-size", "8")
    run.until(lambda: (tmp_path / "stuck").exists())
    run.press("\x03")
    run.until(lambda: "Ctrl-C again" in run.shown)
    run.press("\x03")
    assert run.end(seconds=10) == 130
    assert f"{rows(tmp_path)} answers are kept" in run.shown


def test_sigterm_keeps_all_answers_too(tmp_path: Path, terminal: Open) -> None:
    run = terminal("explain", "review.txt", "-m", "python:slowly:slow", "--batch-size", "8", "--ledger", "kept.db",
                   "--model-name", "v1")  # fmt: skip
    run.until(lambda: rows(tmp_path) > 20)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143
    with_rows = rows(tmp_path)
    assert f"{with_rows} answers are kept in 'kept.db'" in run.shown
    ledger = c2fa.Ledger(tmp_path / "kept.db")
    assert len(ledger) == with_rows
    ledger.close()


def test_the_bar_counts_money_and_leaves_no_trace(tmp_path: Path, terminal: Open) -> None:
    run = terminal("explain", "review.txt", "-m", "python:slowly:paid", "--batch-size", "4", "--budget", "160")
    assert run.end() == 0
    assert re.search(r"asking the model.*row/s.*cost \d+", run.shown)
    assert "The food was good" in run.shown.rsplit("asking the model", 1)[1]


@pytest.mark.slow
def test_an_evaluation_is_interrupted_and_continued(tmp_path: Path, terminal: Open) -> None:
    pytest.importorskip("pandas")
    command = ("evaluate", "review.txt", "-m", "python:slowly:slow", "--batch-size", "8", "--budget", "10,40",
               "--seeds", "2", "--metrics", "mihl", "--methods", "c2fa", "--json")  # fmt: skip
    first = terminal(*command)
    first.until(lambda: rows(tmp_path) > 20)
    first.press("\x03")
    assert first.end() == 130
    assert "the same command continues" in first.shown
    before = rows(tmp_path)
    second = terminal(*command)
    assert second.end() == 0
    sent = re.search(r'"explaining": (\d+).*"sent": (\d+)', second.shown.replace("\r\n", ""))
    assert sent is not None
    assert rows(tmp_path) == int(sent[1])
    assert rows(tmp_path) - before == int(sent[2])


def test_mistakes_are_one_sentence_in_a_terminal(tmp_path: Path, terminal: Open) -> None:
    for args, code, said in (
        (("missing.txt", "-m", "demo"), 3, "there is no file or folder 'missing.txt'"),
        (("review.txt", "-m", "python:slowly:nothing"), 3, "'slowly' has no 'nothing'"),
        (("review.txt", "-m", "demo", "--out", "nowhere/x.html"), 3, "there is no folder"),
    ):
        run = terminal("explain", *args)
        assert run.end() == code
        assert said in run.shown.replace("\r\n", "")
        assert "Traceback" not in run.shown


def test_colours_are_for_terminals_that_want_them(tmp_path: Path, terminal: Open) -> None:
    (tmp_path / "evil.txt").write_text("A good \x9b31m[red]dearly[/] day. It was bad.")
    args = ("explain", "evil.txt", "-m", "python:slowly:slow", "--budget", "6,12")
    coloured = terminal(*args)
    assert coloured.end() == 0
    assert "\x1b[36m+" in coloured.raw
    assert "\x9b" not in coloured.raw
    assert "[red]dearly[/]" in coloured.shown
    plain = terminal(*args, env={"NO_COLOR": "1"})
    assert plain.end() == 0
    assert "\x1b[3" not in plain.raw
    assert plain.shown == coloured.shown


@pytest.mark.slow
@pytest.mark.parametrize("command", [(), ("demo",), ("explain",), ("evaluate",), ("report",), ("info",)])
def test_help_fits_a_terminal(terminal: Open, command: tuple[str, ...]) -> None:
    run = terminal(*command, "--help")
    assert run.end() == 0
    assert "Usage: c2fa" in run.shown
    assert max(map(len, run.shown.splitlines())) <= 100


@pytest.mark.slow
def test_a_dataset_is_interrupted_and_continued(tmp_path: Path, terminal: Open) -> None:
    pytest.importorskip("pyarrow")
    texts = "".join(f'{{"text": "Number {k} was good. It was bad, too."}}\n' for k in range(40))
    (tmp_path / "d.jsonl").write_text(texts)
    command = ("explain", "d.jsonl", "--field", "text", "-m", "python:slowly:slow", "--store", "done", "--workers",
               "2", "--budget", "4,8", "--store-option", "shard_size=4")  # fmt: skip
    first = terminal(*command)
    first.until(lambda: any((tmp_path / "done").glob("part-*.parquet")))
    first.press("\x03")
    assert first.end() == 130
    before = rows(tmp_path)
    second = terminal(*command)
    assert second.end() == 0
    assert "40 inputs are in 'done'" in second.shown
    from c2fa.batch import Store

    store = Store.open(tmp_path / "done")
    assert sum(e.queries for e in store) == rows(tmp_path)
    assert before < rows(tmp_path)
