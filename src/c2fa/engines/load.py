"""How busy a model's process was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
