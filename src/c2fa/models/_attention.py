"""Which kernels attention may use on a GPU.

PyTorch keeps this for the whole process, whichever thread asks: of two that set and restore it by themselves, one may
leave behind what the other had set.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch.nn.attention import SDPBackend, sdpa_kernel

_UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

_changed = threading.Condition()
_inside = 0  # threads that run a network now
_planned = True  # whether they may use plans
_setting = ExitStack()  # what puts the process's setting back


@contextmanager
def attention(plans: bool) -> Iterator[None]:
    """Run a network with cuDNN's attention, or without it; threads that want the other wait until nobody is inside.

    cuDNN's is fastest, but it takes tens of milliseconds to plan for a new shape: it pays for large batches of a size
    that comes often.
    """
    global _inside, _planned
    with _changed:
        _changed.wait_for(lambda: _inside == 0 or _planned == plans)
        if _inside == 0 and not plans:
            _setting.enter_context(sdpa_kernel(_UNPLANNED))
        _inside, _planned = _inside + 1, plans
    try:
        yield
    finally:
        with _changed:
            _inside -= 1
            if _inside == 0:
                _setting.close()
            _changed.notify_all()
