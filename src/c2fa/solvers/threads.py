"""Small solves on one thread: waking BLAS threads costs more than they give, and on a busy machine a hundred times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

_SMALL = 2e8  # multiplications below which one thread is as fast as several
_lock = Lock()
_inside: list[Any] = []


@contextmanager
def suited(work: float) -> Iterator[None]:
    """Give BLAS one thread where the work is small, and as many as it likes where not.

    The limit is the process's, not the thread's. So the first to come sets it and the last to go lifts it: if each
    put back what it found, two that overlap would leave BLAS at one thread for ever.
    """
    if work >= _SMALL:
        yield
        return
    with _lock:
        _inside.append(_inside[0] if _inside else _controller().limit(limits=1))
    try:
        yield
    finally:
        with _lock:
            limit = _inside.pop()
            if not _inside:
                limit.restore_original_limits()


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks through the loaded libraries, which takes 20 ms: once is enough
