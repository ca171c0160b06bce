"""How a small solve runs: on one thread, since waking BLAS threads costs more than they give, in memory that stays.

Where nothing larger was ever freed, glibc hands a few hundred kilobytes back to the system as soon as they are free,
and the next solve fetches them page by page: a fifth of the time of an explanation of a hundred leaves. What it keeps
is twice the largest block that was freed so far, as in any process that has loaded a model of some megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

_SMALL = 2e8  # multiplications below which one thread is as fast as several
_BLOCK = 16 * 2**20  # bytes; glibc learns nothing from blocks above 32 MB
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
    _free_a_block()
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
def _free_a_block() -> None:
    """Once in a process: allocate a block, never touched, and free it."""
    np.empty(_BLOCK, dtype=np.uint8)


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks through the loaded libraries, which takes 20 ms: once is enough
