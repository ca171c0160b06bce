"""The load of a process that calls a model, and a limit for the time of a call."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What one model process did, from its first call to its last answer.

    Parameters
    ----------
    rows
        Rows that it answered.
    launches
        Calls of the model that it made for them.
    seconds
        Time from the first call to the last answer.
    waiting
        The part of that time in which it had nothing to do, because no worker had sent rows.
    memory
        The most GPU memory that it held, in bytes; 0 without a GPU.
    """

    rows: int = 0
    launches: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    memory: int = 0


class Loads(dict[str, Load]):
    """The load of each model process, by its name; of two reports of a process the later one counts.

    >>> early, late = Loads(a=Load(rows=1)), Loads(a=Load(rows=5), b=Load(rows=2))
    >>> [load.rows for load in (late + early).values()]
    [5, 2]
    """

    def __add__(self, other: Mapping[str, Load]) -> Loads:
        merged = Loads(self)
        for name, load in other.items():
            if name not in merged or load.rows > merged[name].rows:
                merged[name] = load
        return merged


class Meter:
    """Measures the load of a model process."""

    def __init__(self) -> None:
        self._rows, self._launches, self._waiting, self._memory = 0, 0, 0.0, 0
        self._start: float | None = None
        self._memory_time = 0.0

    def begin(self) -> None:
        self._launches += 1
        if self._start is None:
            self._start = time.monotonic()

    def end(self, rows: int) -> None:
        self._rows += rows

    def waited(self, seconds: float) -> None:
        """Count time without work, unless it was before the first call."""
        if self._start is not None:
            self._waiting += seconds

    def load(self) -> Load | None:
        """The load so far; None before the first call."""
        if self._start is None:
            return None
        now = time.monotonic()
        if now - self._memory_time > 1.0 and has_gpu():
            self._memory_time = now
            self._memory = int(sys.modules["torch"].cuda.max_memory_allocated())
        return Load(self._rows, self._launches, now - self._start, self._waiting, self._memory)


def has_gpu() -> bool:
    """Whether this process works with a GPU; torch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


class TimeLimit:
    """Ends this process when a ``with`` block takes too long, because nothing else ends a call that hangs.

    Just before, it calls ``late`` with the reason. Each of the first blocks, of which there are ``first``, may take ten
    times as long.
    """

    def __init__(self, seconds: float | None, late: Callable[[str], None], first: int = 1) -> None:
        self.seconds, self.late = seconds, late
        self._deadlines: dict[int, float] = {}  # by the number of the thread that is in a block
        self._first = first
        if seconds is not None:
            threading.Thread(target=self._watch, args=(seconds,), name="c2fa-time-limit", daemon=True).start()

    def __enter__(self) -> None:
        if self.seconds is not None:
            limit = self.seconds * (10.0 if self._first else 1.0)  # models load lazily
            self._deadlines[threading.get_ident()] = time.monotonic() + limit

    def __exit__(self, *_: object) -> None:
        self._deadlines.pop(threading.get_ident(), None)
        self._first = max(self._first - 1, 0)

    def _watch(self, seconds: float) -> None:
        while True:
            time.sleep(min(seconds / 10, 0.5))
            if time.monotonic() > min([*self._deadlines.values()], default=float("inf")):
                self.late(f"the model gave no answer within {seconds:g} s")
                os._exit(75)  # EX_TEMPFAIL of sysexits.h
