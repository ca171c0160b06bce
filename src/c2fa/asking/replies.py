"""What a model replied, as numbers: checked, one row for each input."""

from __future__ import annotations

import sys
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from c2fa._system import host_array
from c2fa.structure import BoolArray, FloatArray


class QueryError(RuntimeError):
    """The model failed, or returned something that cannot be used."""


def is_good(outputs: FloatArray) -> BoolArray:
    """Whether numbers can be used, for each row: NaN cannot, nor what is so large that sums of squares are infinite."""
    return np.asarray((np.abs(outputs) <= 1e100).all(axis=-1))


def as_outputs(reply: Any, rows: int, where: str) -> FloatArray:
    """Return a model's reply as (rows, outputs) numbers, or say what is wrong with it."""
    if hasattr(reply, "detach"):  # a torch tensor, on whichever device
        reply = host_array(reply)
    elif isinstance(reply, list | tuple) and reply and hasattr(reply[0], "detach"):
        reply = [host_array(item) for item in reply]
    elif hasattr(reply, "to_numpy"):
        reply = reply.to_numpy()
    try:
        outputs = _numbers(reply)
    except (TypeError, ValueError):
        raise QueryError(
            f"{where}: the model returned {_kind(reply)}; it must return numbers, as (n,) or (n, outputs)"
        ) from None
    if outputs.ndim == 0 and rows == 1:
        outputs = outputs[None]
    if outputs.ndim not in (1, 2) or len(outputs) != rows:
        got = f"{len(outputs)} rows" if outputs.ndim in (1, 2) else f"an array of shape {outputs.shape}"
        raise QueryError(f"{where}: the model returned {got} for {rows} inputs; it must return one row per input")
    if outputs.ndim == 2 and outputs.shape[1] == 0:
        raise QueryError(f"{where}: the model returned rows without any output")
    return outputs[:, None] if outputs.ndim == 1 else outputs


def _numbers(reply: Any) -> FloatArray:
    """The numbers of a reply, NaN where a masked array hides one; a TypeError where anything else is among them."""
    if isinstance(reply, list | tuple) and any(isinstance(item, np.ma.MaskedArray) for item in reply):
        return np.array([_numbers(item) for item in reply])
    array = np.ma.asarray(reply) if isinstance(reply, np.ma.MaskedArray) else np.asarray(reply)
    if array.dtype.kind == "O":
        array = np.array([_number(value) for value in array.flat]).reshape(array.shape)
    if array.dtype.kind not in "buif":  # "0.5" would pass as a number, and a complex one would lose a part
        raise TypeError
    with np.errstate(over="ignore"):  # a wider number may become infinite, which is checked
        outputs = array.astype(np.float64, copy=False)
    return np.ma.filled(outputs, np.nan)


def _number(value: Any) -> float:
    if value is np.ma.masked:
        return np.nan
    if isinstance(value, np.timedelta64) or not isinstance(value, Real | Decimal | np.bool_):
        raise TypeError
    try:
        return float(value)
    except OverflowError:  # a whole number that no float can hold: it is refused like one that is too large
        return sys.float_info.max if value > 0 else -sys.float_info.max  # type: ignore[operator]


def _kind(reply: Any) -> str:
    item = reply
    while isinstance(item, list | tuple | np.ndarray) and np.shape(item) and len(item):
        item = item[0]
    name = "strings" if isinstance(item, str | np.str_) else type(item).__name__
    return name if item is reply else f"{type(reply).__name__} of {name}"
