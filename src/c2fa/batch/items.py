"""What goes into a packed run and what comes out of it: an input with its place, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from c2fa.explanation import Explanation
from c2fa.masking import Inputs


class ModelDownError(RuntimeError):
    """The model answers nothing any more, not even rows that it answered before; no input is to blame."""


class Unreadable(str):
    """Stands in the place of an input that could not be read; it says why."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Item:
    """An input to be explained: its position in the dataset, and a name for people and for the ledger."""

    index: int
    x: Any
    key: str | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one input: an explanation, or why there is none."""

    index: int
    key: str | None
    explanation: Explanation | None
    error: str | None = None


@dataclass
class Tally:
    """What was sent to the model: rows that got an answer, rows sent again, calls, and what it cost."""

    rows: int = 0
    resent: int = 0
    recalled: int = 0
    calls: int = 0
    cost: float = 0.0


def kind(batch: Inputs) -> Any:
    """What batches must share to be joined without changing a row: arrays of one type and shape, like frames."""
    if isinstance(batch, np.ndarray) or hasattr(batch, "detach"):
        return type(batch), str(batch.dtype), tuple(batch.shape[1:]), str(getattr(batch, "device", ""))
    if hasattr(batch, "iloc"):
        dtypes: Any = getattr(batch, "dtypes", None)
        columns = tuple(getattr(batch, "columns", ()))
        return type(batch), columns, tuple(dtypes) if hasattr(dtypes, "__iter__") else dtypes
    return type(batch)


def words(error: Exception) -> str:
    """An error in one line: its kind and what it says."""
    return f"{type(error).__name__}: {error}"
