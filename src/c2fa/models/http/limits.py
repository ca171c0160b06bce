"""Retries, by one rule for every model, and a rate of requests that several processes share."""

from __future__ import annotations

import abc
import datetime
import functools
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from os import PathLike, fspath
from typing import Any

from c2fa._system import is_real
from c2fa.asking.ledger import Connection
from c2fa.asking.model import ModelProxy, describe

TOO_MANY = 429


def _attribute(error: Exception, kind: Any, *names: str) -> Any:
    """The first attribute of this kind that an error, or its response, has under one of these names, or None."""
    values = [getattr(owner, name, None) for owner in (error, getattr(error, "response", None)) for name in names]
    return next((value for value in values if value is not None and isinstance(value, kind)), None)


def _status(error: Exception) -> int:
    return int(_attribute(error, int, "status", "status_code") or 0)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later, by the error's attributes and class, not by its message.

    An attribute ``transient`` of the error decides, if it has one.

    >>> is_transient(TimeoutError()), is_transient(RuntimeError("503"))
    (True, False)
    """
    transient = _attribute(error, bool, "transient")
    if transient is not None:
        return bool(transient)
    status = _status(error)
    if status in (408, 425, TOO_MANY) or (status >= 500 and status not in (501, 505)):
        return True
    # Classes of requests, httpx, aiohttp and their users, by name, because none of these need be installed.
    passing = {
        "ConnectionError",
        "TimeoutError",
        "Timeout",
        "TransportError",
        "ClientConnectionError",
        "APIConnectionError",
    }
    return not passing.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def concerns_all(error: Exception) -> bool:
    """Whether the server asked for a pause, so that all other requests must wait too."""
    return _status(error) == TOO_MANY or wait_asked(error) is not None


def wait_asked(error: Exception) -> float | None:
    """The seconds that the server asked to wait, from the error or its response; None if it did not ask."""
    wait = _attribute(error, int | float, "wait")
    return retry_after(_attribute(error, object, "headers")) if wait is None else float(wait)


def retry_after(headers: Any) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or by a date.

    >>> retry_after({"Retry-After": "7"}), retry_after({"retry-after": "soon"})
    (7.0, None)
    """
    try:
        value = headers.get("retry-after") or headers.get("Retry-After")
        seconds = float(value)
    except (AttributeError, TypeError):
        return None
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        if date.tzinfo is None:  # without a zone, or with "-0000", a date is in UTC
            date = date.replace(tzinfo=datetime.UTC)
        seconds = (date - datetime.datetime.now(datetime.UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


@dataclass(frozen=True)
class Retry:
    """How often, and after which pauses, a call that failed in a transient way is repeated.

    The first pause takes ``wait`` seconds and each further one twice as long, up to ``max_wait``, unless the server
    asks for a pause of its own.
    """

    retries: int
    wait: float
    max_wait: float

    def pause(self, error: Exception, tries: int) -> float | None:
        """The seconds to wait after ``tries`` failures, or None where the error is final.

        An error with an attribute ``tries`` comes from a model that repeats its requests itself.
        """
        if tries > self.retries or _attribute(error, int, "tries") or not is_transient(error):
            return None
        asked = wait_asked(error)
        if asked is not None:
            return asked
        if isinstance(error, TimeoutError):  # one slow answer says nothing about the next
            return 0.0
        # Without jitter, requests that failed together would come back together.
        return min(self.wait * (2.0 ** (tries - 1) + random.uniform(0.0, 0.5)), self.max_wait)


_opening = threading.Lock()  # two connections to ":memory:" would be two timetables


class Bucket:
    """A limit of requests a second for all processes of a machine that open the same file.

    Each request takes the next free slot of a timetable and sleeps until then, so nobody polls and no slot is lost. A
    pause moves all slots to come.

    Parameters
    ----------
    path
        A small file that the processes share, made if it does not exist; ``":memory:"`` is for this process alone.
    rate
        Requests a second; None for no limit, so that only pauses are shared.
    burst
        How many requests may go at once after a quiet time.

    Examples
    --------
    >>> bucket = Bucket(":memory:", rate=1000.0)
    >>> bucket.take()
    """

    def __init__(self, path: str | PathLike[str], rate: float | None, burst: int = 1) -> None:
        if rate is not None and not (is_real(rate) and 0 < rate < math.inf):
            raise ValueError(f"rate must be a number of requests a second above 0, not {rate!r}")
        if not (is_real(burst) and 1 <= burst < math.inf):
            raise ValueError(f"burst must be a whole number of at least 1, not {burst!r}")
        if not isinstance(path, str | PathLike):
            raise TypeError(f"path must be the name of a file, or ':memory:'; got {path!r}")
        self.path, self.rate, self.burst = fspath(path), rate, int(burst)
        self._db: Connection | None = None
        self._pid = 0
        self._times = (0.0, 0.0)  # of a timetable in memory, which closing would lose

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_db": None, "_pid": 0, "_times": (0.0, 0.0)}

    def take(self, requests: int = 1) -> None:
        for seconds in self.waits(requests):
            time.sleep(seconds)

    def waits(self, requests: int = 1) -> Iterator[float]:
        """Take the next slot for some requests and yield the seconds until it comes.

        A pause that begins meanwhile voids the slot, so another wait may follow.
        """
        interval = 0.0 if self.rate is None else 1.0 / self.rate
        while True:
            with self._transaction() as db:
                free, pause = db.execute("SELECT next, pause FROM timetable").fetchone()
                now = time.monotonic()
                if max(free, pause) > now + 3600.0:  # written before the clock was reset
                    free = pause = 0.0
                slot = max(free, now - (self.burst - 1) * interval, pause)
                db.execute("UPDATE timetable SET next=?, pause=?", (slot + requests * interval, pause))
            yield max(slot - time.monotonic(), 0.0)
            db = self._connection()
            with db.lock:
                (latest,) = db.execute("SELECT pause FROM timetable").fetchone()
            if latest <= pause:
                return

    def pause(self, seconds: float) -> None:
        """Let every process wait; pauses that overlap are one."""
        with self._transaction() as db:
            until = time.monotonic() + seconds
            db.execute("UPDATE timetable SET pause=MAX(pause, ?), next=MAX(next, ?)", (until, until))

    def close(self) -> None:
        """Close the file; the next request opens it again."""
        db, self._db = self._db, None
        if db is not None:
            with db.lock:
                if self.path == ":memory:":
                    self._times = db.execute("SELECT next, pause FROM timetable").fetchone()
                db.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        db = self._connection()
        with db.lock, db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def _connection(self) -> Connection:
        with _opening:
            if self._db is None or self._pid != os.getpid():  # a forked process must not use its parent's
                self._db, self._pid = Connection(self.path), os.getpid()
                self._db.execute("PRAGMA synchronous=OFF")  # a timetable need not outlive a power cut
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute(
                    "CREATE TABLE IF NOT EXISTS timetable "
                    "(id INTEGER PRIMARY KEY CHECK (id = 1), next REAL, pause REAL)"
                )
                self._db.execute("INSERT OR IGNORE INTO timetable VALUES (1, ?, ?)", self._times)
            return self._db


class Paced(abc.ABC):
    """A model that takes slots for its requests and repeats them itself, as models behind HTTP do."""

    @abc.abstractmethod
    def __call__(self, batch: Any) -> Any:
        """Return one row of outputs for each input."""

    @abc.abstractmethod
    def pace(self, bucket: Bucket) -> None:
        """Take slots from this bucket from now on."""


class Limited(ModelProxy):
    """Any model, kept to a rate that all workers share, and called again when it is busy or away.

    Of a language model, for ``c2fa.cite``, each prompt that it scores or answers counts as one request.

    A model of ``c2fa.models`` behind HTTP takes a slot of the shared bucket for each request, instead of its own
    ``rate``, and repeats requests by its own settings alone; the options on retries are for all other models.

    Parameters
    ----------
    model
        The model. One call counts as one request, or as many as it says by ``chunk_size()``.
    path, rate, burst
        See ``Bucket``.
    retries
        How often a call that failed in a transient way (429, 5xx, a time-out, a lost connection, or an error with
        ``transient = True``) is repeated.
    wait, max_wait
        The first pause, in seconds, doubled each time, and the longest. A server's ``Retry-After`` takes precedence.

    Examples
    --------
    >>> Limited(len, ":memory:", rate=100.0)(["a", "b"])
    2
    """

    def __init__(
        self,
        model: Any,
        path: str | PathLike[str],
        rate: float,
        *,
        burst: int = 1,
        retries: int = 8,
        wait: float = 0.5,
        max_wait: float = 60.0,
    ) -> None:
        if not callable(model) and not hasattr(model, "generate"):
            raise TypeError(f"model must be callable, not {type(model).__name__}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, not {retries!r}")
        super().__init__(model)
        self.bucket = Bucket(path, rate, burst)
        self.retry = Retry(retries, wait, max_wait)
        if isinstance(model, Paced):
            model.pace(self.bucket)

    def __call__(self, batch: Any) -> Any:
        chunk = describe(self.model).chunk_size
        requests = 1 if chunk is None else max(math.ceil(len(batch) / chunk), 1)
        return self._within_the_rate(self.model, requests, batch)

    def __getattr__(self, name: str) -> Any:
        attribute = super().__getattr__(name)
        if name == "generate":
            return functools.partial(self._within_the_rate, attribute, 1)
        if name == "score":
            return lambda prompts, answer: self._within_the_rate(attribute, max(len(prompts), 1), prompts, answer)
        return attribute

    def _within_the_rate(self, ask: Callable[..., Any], requests: int, *arguments: Any) -> Any:
        if isinstance(self.model, Paced):
            return ask(*arguments)
        tries = 0
        while True:
            self.bucket.take(requests)
            try:
                return ask(*arguments)
            except Exception as error:
                tries += 1
                seconds = self.retry.pause(error, tries)
                if seconds is None:
                    raise
                if concerns_all(error):
                    self.bucket.pause(seconds)
                else:
                    time.sleep(seconds)
