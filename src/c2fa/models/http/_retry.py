"""Which failures may pass, and how long to wait before a call is repeated: one rule for every model."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

TOO_MANY = 429


def is_transient(error: Exception) -> bool:
    """Whether a failure may be gone when the same is asked again, by what it carries and not by what it says.

    >>> is_transient(TimeoutError()), is_transient(RuntimeError("503"))
    (True, False)
    """
    known = getattr(error, "transient", None)
    if known is not None:
        return bool(known)
    status = _status(error) or 0
    if status in (408, 425, TOO_MANY) or (status >= 500 and status not in (501, 505)):
        return True
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    # By name, because none of these clients need be installed: requests, httpx, aiohttp, and what is built on them.
    lost = {"ConnectionError", "Timeout", "TransportError", "ClientConnectionError", "APIConnectionError"}
    return not lost.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def concerns_all(error: Exception) -> bool:
    """Whether the server asked for a pause, so that every other request must wait too."""
    return _status(error) == TOO_MANY or wait_asked(error) is not None


def wait_asked(error: Exception) -> float | None:
    """The seconds that the server asked to wait, where the error carries them itself or in its response."""
    wait = getattr(error, "wait", None)
    if isinstance(wait, int | float):
        return float(wait)
    headers = getattr(getattr(error, "response", None), "headers", None)
    return None if headers is None else retry_after(headers)


def retry_after(headers: Any) -> float | None:
    """The seconds that a Retry-After header asks for, given as a number or as a date.

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
        if date.tzinfo is None:  # no zone, or "-0000": it is in UTC
            date = date.replace(tzinfo=datetime.UTC)
        seconds = (date - datetime.datetime.now(datetime.UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _status(error: Exception) -> int | None:
    """The HTTP status that an error carries, itself or in its response."""
    for carrier in (error, getattr(error, "response", None)):
        for name in ("status", "status_code"):
            status = getattr(carrier, name, None)
            if isinstance(status, int):
                return status
    return None


@dataclass(frozen=True)
class Retry:
    """How often a call is repeated, and after which pauses.

    Parameters
    ----------
    retries
        How often a call that failed in a transient way is repeated.
    wait, max_wait
        The first pause, in seconds, doubled each time, and the longest. What the server asks for goes before them.
    transient
        Tells a failure that may pass from one that will not.
    """

    retries: int
    wait: float
    max_wait: float
    transient: Callable[[Exception], bool] = is_transient

    def pause(self, error: Exception, tries: int) -> float | None:
        """The seconds to wait after so many tries have failed, or None where the error is final.

        An error with ``tries`` of its own comes from a model that repeats its requests itself.
        """
        final = tries > self.retries or getattr(error, "tries", 0) > 0
        if final or not (_status(error) == TOO_MANY or self.transient(error)):
            return None
        asked = wait_asked(error)
        if asked is not None:
            return asked
        if isinstance(error, TimeoutError):  # one slow answer says nothing about the next
            return 0.0
        # Without jitter, requests that failed together would come back together.
        return min(self.wait * (2.0 ** (tries - 1) + random.uniform(0.0, 0.5)), self.max_wait)
