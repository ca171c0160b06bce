"""A rate that several processes share, and a model that keeps to it: they pause together when the server says so."""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
from collections.abc import Callable
from os import PathLike, fspath
from typing import Any

from c2fa.model import ModelProxy, describe

_CREATE = """
CREATE TABLE IF NOT EXISTS bucket (id INTEGER PRIMARY KEY CHECK (id = 1), next REAL, pause REAL, strikes INTEGER)
"""
_TOO_MANY = 429
_TRANSIENT = (408, 425, _TOO_MANY, 500, 502, 503, 504, 529)
# By name, because none of these clients need be installed: requests, httpx, aiohttp, and what is built on them.
_LOST = {"ConnectionError", "Timeout", "TransportError", "ClientConnectionError", "APIConnectionError"}
_FAR = 3600.0  # a slot further away than this was left by a clock that has been reset since


class Bucket:
    """So many requests a second for all processes of a machine that open the same file.

    Each request takes the next free slot of a timetable and sleeps until then, so that no one polls and no rate is
    lost. A pause moves every slot that is not used yet.

    Parameters
    ----------
    path
        A small file that the processes share; it is made where it does not exist.
    rate
        Requests a second.
    burst
        How many requests may go at once after a quiet time.

    Examples
    --------
    >>> import tempfile
    >>> bucket = Bucket(tempfile.mktemp(), rate=1000.0)
    >>> bucket.take()
    """

    def __init__(self, path: str | PathLike[str], rate: float, burst: int = 1) -> None:
        if not 0 < rate < math.inf:
            raise ValueError(f"rate must be a number of requests a second above 0, not {rate!r}")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst!r}")
        self.path, self.rate, self.burst = fspath(path), float(rate), int(burst)
        self._db: sqlite3.Connection | None = None
        self._pid = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_db": None, "_pid": 0}

    def take(self, requests: int = 1) -> None:
        """Wait for the turn of so many requests."""
        while True:
            slot, pause = self._reserve(requests)
            time.sleep(max(slot - time.monotonic(), 0.0))
            if self._pause() <= pause:
                return  # a pause that began meanwhile voids the slot

    def back_off(self, seconds: float | None = None, *, least: float = 0.5, most: float = 60.0) -> float:
        """Let every process pause: as long as the server asked for, else twice as long each time. Return how long."""
        with self._transaction() as db:
            pause, strikes = db.execute("SELECT pause, strikes FROM bucket").fetchone()
            now = time.monotonic()
            if seconds is None and pause > now:
                return float(pause - now)  # they are pausing already: eight refusals at once are one sign, not eight
            length = min(most, least * 2.0**strikes) if seconds is None else seconds
            length *= 1.0 + 0.1 * random.random()
            pause = max(pause, now + length)
            db.execute(
                "UPDATE bucket SET pause=?, next=MAX(next, ?), strikes=?",
                (pause, pause, min(strikes + 1, 16)),
            )
            return float(pause - now)

    def answered(self) -> None:
        """The server answers again: the next pause begins short."""
        with self._transaction() as db:
            db.execute("UPDATE bucket SET strikes=0 WHERE strikes > 0")

    def _reserve(self, requests: int) -> tuple[float, float]:
        with self._transaction() as db:
            free, pause = db.execute("SELECT next, pause FROM bucket").fetchone()
            now = time.monotonic()
            if free > now + _FAR or pause > now + _FAR:
                free = pause = 0.0
            slot = max(free, now - (self.burst - 1) / self.rate, pause)
            db.execute("UPDATE bucket SET next=?, pause=?", (slot + requests / self.rate, pause))
            return slot, pause

    def _pause(self) -> float:
        (pause,) = self._open().execute("SELECT pause FROM bucket").fetchone()
        return float(pause)

    def _open(self) -> sqlite3.Connection:
        if self._db is None or self._pid != os.getpid():
            self._db = sqlite3.connect(self.path, timeout=60.0, isolation_level=None, check_same_thread=False)
            self._pid = os.getpid()
            self._db.execute("PRAGMA synchronous=OFF")  # a timetable need not outlive a power cut
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(_CREATE)
            self._db.execute("INSERT OR IGNORE INTO bucket VALUES (1, 0.0, 0.0, 0)")
        return self._db

    def _transaction(self) -> _Transaction:
        return _Transaction(self._open())


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


class Limited(ModelProxy):
    """Any model, kept to a rate that all workers share, asked again when it is busy or away.

    Parameters
    ----------
    model
        The model. One call counts as one request, or as many as it says by ``chunk_size()``.
    path, rate, burst
        See ``Bucket``.
    retries
        How often a call that failed in a transient way (429, 5xx, a time-out, a lost connection) is repeated.
    wait, max_wait
        The first pause, in seconds, doubled each time, and the longest. ``Retry-After`` goes before it.
    transient
        Tells a failure that may pass from one that will not; by default ``is_transient``, by type and status.

    Examples
    --------
    >>> import tempfile
    >>> Limited(len, tempfile.mktemp(), rate=100.0)(["a", "b"])
    2
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        path: str | PathLike[str],
        rate: float,
        *,
        burst: int = 1,
        retries: int = 8,
        wait: float = 0.5,
        max_wait: float = 60.0,
        transient: Callable[[Exception], bool] | None = None,
    ) -> None:
        if not callable(model):
            raise TypeError(f"model must be callable, not {type(model).__name__}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, not {retries!r}")
        super().__init__(model)
        self.bucket = Bucket(path, rate, burst)
        self.retries, self.wait, self.max_wait = retries, wait, max_wait
        self.transient = transient or is_transient
        self._struck = False

    def __call__(self, batch: Any) -> Any:
        chunk = describe(self.model).chunk_size
        requests = 1 if chunk is None else max(math.ceil(len(batch) / chunk), 1)
        for tried in range(self.retries + 1):
            self.bucket.take(requests)
            try:
                reply = self.model(batch)
            except Exception as error:
                if tried == self.retries or not (too_many(error) or self.transient(error)):
                    raise
                self._struck = True
                if too_many(error):
                    self.bucket.back_off(retry_after(error), least=self.wait, most=self.max_wait)
                elif not isinstance(error, TimeoutError):  # one slow answer says nothing about the next
                    time.sleep(min(self.wait * 2.0**tried, self.max_wait))
            else:
                if self._struck:
                    self._struck = False
                    self.bucket.answered()
                return reply
        raise AssertionError("unreachable")


def too_many(error: Exception) -> bool:
    """Whether a failure is the server's "not so fast"."""
    return bool(_status(error) == _TOO_MANY)


def is_transient(error: Exception) -> bool:
    """Whether a failure may be gone when the same is asked again, by what it carries and not by what it says.

    >>> is_transient(TimeoutError()), is_transient(RuntimeError("503"))
    (True, False)
    """
    told = getattr(error, "transient", None)
    if told is not None:
        return bool(told)
    if isinstance(error, ConnectionError | TimeoutError) or _status(error) in _TRANSIENT:
        return True
    return not _LOST.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _status(error: Exception) -> Any:
    """The HTTP status that an error carries, itself or in its response."""
    carriers = (error, getattr(error, "response", None))
    found = (getattr(thing, name, None) for thing in carriers for name in ("status", "status_code"))
    return next((status for status in found if isinstance(status, int)), None)


def retry_after(error: Exception) -> float | None:
    """The seconds that the server asked for, where the error carries them."""
    wait = getattr(error, "wait", None)
    if isinstance(wait, int | float):
        return float(wait)
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(float(headers.get("retry-after") or headers.get("Retry-After") or "no"), 0.0)
    except (AttributeError, TypeError, ValueError):
        return None
