"""A time limit for calls of a model."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_FIRST = 10.0  # the first call may take so many times the time limit: models load lazily
TIMED_OUT = 75  # the exit status of a process whose model gave no answer in time


class TimeLimit:
    """Ends this process when a ``with`` block takes too long: nothing else ends a call that hangs.

    Parameters
    ----------
    seconds
        What a block may take. None sets no limit.
    late
        Called with a sentence just before the end.
    first
        So many blocks may take ten times that.
    """

    def __init__(self, seconds: float | None, late: Callable[[str], None], first: int = 1) -> None:
        self.seconds, self.late = seconds, late
        self._deadlines: dict[int, float] = {}  # of each thread that is in a block
        self._first = first
        if seconds is not None:
            threading.Thread(target=self._watch, args=(seconds,), name="c2fa-time-limit", daemon=True).start()

    def __enter__(self) -> None:
        if self.seconds is not None:
            limit = self.seconds * (_FIRST if self._first else 1.0)
            self._deadlines[threading.get_ident()] = time.monotonic() + limit

    def __exit__(self, *_: object) -> None:
        self._deadlines.pop(threading.get_ident(), None)
        self._first = max(self._first - 1, 0)

    def _watch(self, seconds: float) -> None:
        while True:
            time.sleep(min(seconds / 10, 0.5))
            if time.monotonic() > min([*self._deadlines.values()], default=float("inf")):
                self.late(f"the model gave no answer within {seconds:g} s")
                os._exit(TIMED_OUT)
