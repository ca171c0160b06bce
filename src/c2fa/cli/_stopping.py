"""Ctrl-C without losing answers: the batch under way is finished and kept, then the run ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from c2fa.cli._errors import InterruptedRun

_SEEN = ("name", "output_names", "cost", "notes", "batch_size")
_FINISHING = b"\nfinishing the batch under way so that its answers are kept; Ctrl-C again stops at once\n"


class Stop:
    """Turns Ctrl-C and SIGTERM into an end between two batches; a second one ends the run at once.

    Where no batch is under way (a model is loaded, an image segmented) the first one ends the run at once too.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._under_way = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                    self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self) -> None:
        """A batch is about to be sent: the answers before it are in the ledger, so this is the place to end."""
        self.settle()
        self._under_way = True

    def settle(self) -> None:
        """Nothing is under way; end here if that was asked for."""
        self._under_way = False
        if self.asked is not None:
            raise InterruptedRun(self.asked)

    def _on(self, number: int, _: object) -> None:
        first, self.asked = self.asked is None, number
        if not (first and self._under_way):
            raise InterruptedRun(number)
        os.write(2, _FINISHING)  # print() may be what the signal came in the middle of


class Stoppable:
    """A model that can be stopped between two batches; its name, outputs, cost and notes are the model's own.

    ``call`` answers a batch where it is not the model itself that does.
    """

    def __init__(self, model: Callable[[Any], Any], stop: Stop, call: Callable[[Any], Any] | None = None) -> None:
        self._model, self._stop, self._call = model, stop, call or model

    def __call__(self, batch: Any) -> Any:
        self._stop.begin()
        return self._call(batch)

    def __getattr__(self, name: str) -> Any:
        if name in _SEEN:
            return getattr(self._model, name)
        raise AttributeError(name)
