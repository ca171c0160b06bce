"""How far work is that takes its time."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import warnings
from typing import Any

from c2fa._system import in_notebook


class Bar:
    """A progress bar for work that takes over a second: in notebooks and in terminals, or as it is wanted.

    A thread shows it when the second is over, be it in the middle of a model's first answer.
    """

    def __init__(self, wanted: bool | None, total: int | None, unit: str, doing: str, leave: bool = True) -> None:
        self._options: dict[str, Any] = {"total": total, "unit": unit, "leave": leave, "smoothing": 0.1}
        self._doing, self._beside = doing, ""
        self._before = self._done = 0
        self._begin, self._lock = time.monotonic(), threading.Lock()
        self._bar: Any = None
        self._timer: threading.Timer | None = None  # making one takes as long as a batch of rows
        if wanted or (wanted is None and (sys.stderr.isatty() or in_notebook())):
            # With the context a notebook knows which cell the bar belongs to.
            self._timer = threading.Timer(1.0, contextvars.copy_context().run, [self._show])
            self._timer.daemon = True
            self._timer.start()

    def _show(self) -> None:
        with self._lock, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="IProgress not found")  # without ipywidgets it is a line of text
            from tqdm.auto import tqdm

            if self._timer is None:  # it is closed
                return
            self._bar = tqdm(desc=self._doing, initial=self._before, **self._options)
            if not self._bar.disable:  # as TQDM_DISABLE=1 does
                self._bar.start_t -= self.seconds
                self._advance()

    def _advance(self) -> None:
        self._bar.set_description(self._doing, refresh=False)
        self._bar.set_postfix_str(self._beside, refresh=False)
        self._bar.initial = self._before
        self._bar.update(self._before + self._done - self._bar.n)

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._begin, 1e-9)

    def skip(self, done: int) -> None:
        """Count what was finished before; it must not make the time left look short."""
        self._before += done

    def update(self, done: int, beside: str = "", doing: str | None = None) -> None:
        """So much is done now; ``doing`` says what is under way, and ``beside`` what it took."""
        with self._lock:
            self._done, self._beside, self._doing = done, beside, doing or self._doing
            if self._bar is not None and not self._bar.disable:
                self._advance()

    def close(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.close()
