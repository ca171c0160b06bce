"""Ctrl-C and SIGTERM, handed to whoever can end its work in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Signals:
    """Calls a function with the number of every SIGINT and SIGTERM that comes while it is entered.

    Signals that are ignored stay ignored, as in a shell's background job; outside the main thread, where Python allows
    no handlers, nothing changes.
    """

    def __init__(self, handle: Callable[[int], None]) -> None:
        self._handle = handle
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, lambda caught, _: self._handle(caught))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
