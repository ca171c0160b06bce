"""How busy a model's process was."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MEMORY_SECONDS = 1.0  # how often to look at the memory of the GPU


@dataclass(frozen=True)
class Load:
    """What one process of the model did, from its first row to its last answer.

    Parameters
    ----------
    rows
        Rows that it answered.
    launches
        Calls of the model that it made for them.
    seconds
        Time from the first call to the last answer.
    waiting
        How much of it the process had nothing to do, because no worker had sent rows.
    memory
        The most memory of the GPU that it held, in bytes; 0 without one.
    """

    rows: int = 0
    launches: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    memory: int = 0


class Loads(dict[str, Load]):
    """The load of each process of the model, by its name; of two reports of a process the later one counts.

    >>> early, late = Loads(a=Load(rows=1)), Loads(a=Load(rows=5), b=Load(rows=2))
    >>> [load.rows for load in (late + early).values()]
    [5, 2]
    """

    def __add__(self, other: Mapping[str, Load]) -> Loads:
        merged = Loads(self)
        for name, load in other.items():
            if name not in merged or load.rows > merged[name].rows:
                merged[name] = load
        return merged

    def __reduce__(self) -> Any:
        return Loads, (dict(self),)


class Meter:
    """Counts what a process does that has the model."""

    def __init__(self) -> None:
        self._rows, self._launches, self._waiting, self._memory = 0, 0, 0.0, 0
        self._began: float | None = None
        self._looked = 0.0

    def begin(self) -> None:
        """A call begins."""
        self._launches += 1
        if self._began is None:
            self._began = time.monotonic()

    def end(self, rows: int) -> None:
        """So many rows were answered."""
        self._rows += rows

    def waited(self, seconds: float) -> None:
        """There was nothing to do for so long; what was before the first call does not count."""
        if self._began is not None:
            self._waiting += seconds

    def load(self) -> Load | None:
        """The load so far; None before the first call."""
        if self._began is None:
            return None
        now = time.monotonic()
        if now - self._looked > _MEMORY_SECONDS and has_gpu():
            self._looked = now
            self._memory = int(sys.modules["torch"].cuda.max_memory_allocated())
        return Load(self._rows, self._launches, now - self._began, self._waiting, self._memory)


def has_gpu() -> bool:
    """Whether this process works with a GPU; torch is not loaded to see."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
