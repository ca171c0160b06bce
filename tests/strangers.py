"""Files from a stranger: a pickle that leaves a trace where it is read."""

from __future__ import annotations

from pathlib import Path


class Ran:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)
