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
        self.caught = False

    def __call__(self, number: int, frame: object) -> None:
        """A signal has come."""
        self.caught = True
        self._handle(number)

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def from_outside(error: BaseException) -> bool:
    """Whether a signal such as Ctrl-C may have raised this; else whoever was called has raised it."""
    if isinstance(error, Exception) or threading.current_thread() is not threading.main_thread():
        return False  # Python calls handlers in the main thread alone
    for handler in map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)):
        if handler is signal.default_int_handler:
            may_raise = isinstance(error, KeyboardInterrupt)
        else:
            may_raise = handler.caught if isinstance(handler, Signals) else callable(handler)
        if may_raise:
            return True
    return False
