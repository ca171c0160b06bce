"""A batch as the wire needs it: texts, an array, or columns; cut, keyed and taken by row."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import host_array, is_missing


@dataclass(frozen=True, eq=False)
class WireRows:
    """The rows of a batch in one of three forms; exactly one of them is set.

    Examples
    --------
    >>> WireRows.of(["a text", "another"]).texts
    ('a text', 'another')
    >>> rows = WireRows.of([[1, 2], [3, 4], [1, 2]])
    >>> rows.array.shape, rows.keys()[0] == rows.keys()[2]
    ((3, 2), True)
    >>> WireRows.of([{"age": 3}, {"age": 4}]).take([1]).columns
    {'age': [4]}
    """

    texts: tuple[str, ...] | None = None
    array: npt.NDArray[Any] | None = None
    columns: dict[str, list[Any]] | None = None

    @classmethod
    def of(cls, batch: Any) -> WireRows:
        """Read a list of texts, an array, a tensor, a frame, or a list of records or vectors."""
        if hasattr(batch, "columns") and hasattr(batch, "to_numpy"):
            return cls(columns={str(name): _plain(batch[name]) for name in batch.columns})
        if isinstance(batch, np.ndarray) or hasattr(batch, "detach"):
            return cls._of_array(host_array(batch))
        rows = list(batch)
        if rows and all(isinstance(row, str) for row in rows):
            return cls(texts=tuple(rows))
        if rows and all(isinstance(row, Mapping) for row in rows):
            return cls(columns={str(name): _plain([row[name] for row in rows]) for name in rows[0]})
        try:
            return cls._of_array(np.asarray([host_array(row) if hasattr(row, "detach") else row for row in rows]))
        except ValueError:
            shapes = sorted({np.shape(row) for row in rows})
            if len(shapes) < 2:
                raise
            raise ValueError(
                f"the rows of one batch must have one shape to travel over HTTP; got {shapes[:3]}; pad them in the "
                "masker"
            ) from None

    @classmethod
    def _of_array(cls, array: npt.NDArray[Any]) -> WireRows:
        if array.dtype.kind in "US" or (array.size > 0 and all(isinstance(item, str) for item in array.flat)):
            if array.ndim != 1:
                raise ValueError(f"texts must be a list of strings, not an array of shape {array.shape}")
            return cls(texts=tuple(map(str, array)))
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"a model behind HTTP takes numbers, texts or a frame, not rows of {array.dtype}; "
                "wrap it in a function that turns your inputs into one of these"
            )
        return cls(array=array)

    def __len__(self) -> int:
        if self.columns is not None:
            return len(next(iter(self.columns.values()), []))
        return len(self.texts if self.texts is not None else self.array)  # type: ignore[arg-type]

    def take(self, index: Sequence[int]) -> WireRows:
        """Return the rows with these numbers, in this order."""
        if self.texts is not None:
            return WireRows(texts=tuple(self.texts[i] for i in index))
        if self.array is not None:
            return WireRows(array=self.array[list(index)])
        assert self.columns is not None
        return WireRows(columns={k: [v[i] for i in index] for k, v in self.columns.items()})

    def keys(self) -> list[bytes]:
        """Return one key for each row, equal for equal rows alone."""
        if self.texts is not None:
            return [b"t" + text.encode("utf-8", "surrogatepass") for text in self.texts]
        if self.array is not None:
            head = f"{self.array.dtype.str}{self.array.shape[1:]}".encode()
            return [_digest(head + np.ascontiguousarray(row).tobytes()) for row in self.array]
        assert self.columns is not None
        head = repr(list(self.columns)).encode()
        return [_digest(head + repr(row).encode()) for row in zip(*self.columns.values(), strict=True)]


def jsonable(array: npt.NDArray[Any]) -> Any:
    """Return nested lists in which what JSON cannot say (NaN, infinity) is null."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return np.where(np.isfinite(array), array, None).tolist()  # type: ignore[call-overload]
    return array.tolist()


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _plain(column: Any) -> list[Any]:
    """Return the values of a column as Python's own, with None for what is missing."""
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    plain = (v.item() if isinstance(v, np.generic) else v for v in values)
    known = [None if is_missing(v) or v in (np.inf, -np.inf) else v for v in plain]
    return [v.isoformat() if isinstance(v, datetime.date | datetime.time) else v for v in known]
