"""A batch as the wire needs it: texts, an array, or columns; cut, keyed and taken by row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a batch in one of three forms; exactly one of them is set.

    Examples
    --------
    >>> Rows.of(["a text", "another"]).texts
    ('a text', 'another')
    >>> rows = Rows.of([[1, 2], [3, 4], [1, 2]])
    >>> rows.array.shape, rows.keys()[0] == rows.keys()[2]
    ((3, 2), True)
    >>> Rows.of([{"age": 3}, {"age": 4}]).take([1]).columns
    {'age': [4]}
    """

    texts: tuple[str, ...] | None = None
    array: npt.NDArray[Any] | None = None
    columns: dict[str, list[Any]] | None = None

    @classmethod
    def of(cls, batch: Any) -> Rows:
        """Read a list of texts, an array, a tensor, a frame, or a list of records or vectors."""
        if hasattr(batch, "columns") and hasattr(batch, "to_numpy"):
            return cls(columns={str(name): _plain(batch[name]) for name in batch.columns})
        if hasattr(batch, "detach"):
            batch = batch.detach().cpu().numpy()
        if not isinstance(batch, np.ndarray):
            batch = list(batch)
            if batch and all(isinstance(row, str) for row in batch):
                return cls(texts=tuple(batch))
            if batch and all(isinstance(row, Mapping) for row in batch):
                return cls(columns={str(k): _plain([row[k] for row in batch]) for k in batch[0]})
            if batch and all(hasattr(row, "detach") for row in batch):
                batch = [row.detach().cpu().numpy() for row in batch]
            batch = _stack(batch)
        if batch.dtype.kind in "US" or (batch.dtype == object and _all_text(batch)):
            if batch.ndim != 1:
                raise ValueError(f"texts must be a list of strings, not an array of shape {batch.shape}")
            return cls(texts=tuple(map(str, batch)))
        if batch.dtype.kind not in "biuf":
            raise TypeError(
                f"a model behind HTTP takes numbers, texts or a frame, not rows of {batch.dtype}; "
                "wrap it in a function that turns your inputs into one of these"
            )
        return cls(array=batch)

    def __len__(self) -> int:
        if self.columns is not None:
            return len(next(iter(self.columns.values()), []))
        return len(self.texts if self.texts is not None else self.array)  # type: ignore[arg-type]

    def take(self, index: Sequence[int]) -> Rows:
        """Return the rows with these numbers, in this order."""
        if self.texts is not None:
            return Rows(texts=tuple(self.texts[i] for i in index))
        if self.array is not None:
            return Rows(array=self.array[list(index)])
        assert self.columns is not None
        return Rows(columns={k: [v[i] for i in index] for k, v in self.columns.items()})

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


def _all_text(array: npt.NDArray[Any]) -> bool:
    return bool(array.size) and all(isinstance(x, str) for x in array.flat)


def _stack(rows: list[Any]) -> npt.NDArray[Any]:
    try:
        return np.asarray(rows)
    except ValueError:
        shapes = sorted({np.shape(row) for row in rows})
        raise ValueError(
            f"the rows of one batch must have one shape to travel over HTTP; got {shapes[:3]}; pad them in the masker"
        ) from None


def _plain(column: Any) -> list[Any]:
    """Return the values of a column as Python's own, with None for what is missing."""
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    plain = (v.item() if isinstance(v, np.generic) else v for v in values)
    return [_as_json(value) for value in plain]


def _as_json(value: Any) -> Any:
    """A value that JSON can hold."""
    if _missing(value):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


def _missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value) or value in (np.inf, -np.inf)
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return True
