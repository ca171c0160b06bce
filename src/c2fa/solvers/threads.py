"""Small solves on one thread: waking BLAS threads costs more than they give, and on a busy machine a hundred times."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

_SMALL = 2e8  # multiplications below which one thread is as fast as several


def suited(work: float) -> AbstractContextManager[Any]:
    """Return a context in which BLAS has one thread where the work is small, and as many as it likes where not."""
    return _controller().limit(limits=1) if work < _SMALL else nullcontext()


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks through the loaded libraries, which takes 20 ms: once is enough
