"""Calls of the model, begun, waited for and billed, and what it replied, as numbers: checked, a row for each input."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from c2fa._system import host_array, is_frame, is_tensor
from c2fa.asking.masking import Inputs, MaskedBatch, MaskedRows
from c2fa.asking.model import BILL, Bill, Model, contained, describe, innermost, launcher
from c2fa.structure import BoolArray, FloatArray


class QueryError(RuntimeError):
    """The model failed, or returned something that cannot be used."""


@dataclass(frozen=True, eq=False)
class Failed:
    """What the model raised instead of an answer, and the answers to some rows that it brought along."""

    error: BaseException
    partial: FloatArray | None = None

    @classmethod
    def of(cls, error: BaseException, rows: int) -> Failed:
        """A model that sends rows in several requests may have some answers, in ``error.partial``, NaN for the others.

        Those that cannot be read are left out.
        """
        partial = getattr(error, "partial", None)
        with contextlib.suppress(QueryError):
            return cls(error, None if partial is None else as_outputs(partial, rows, "what it had"))
        return cls(error)

    def told(self, asked: str, hint: str) -> QueryError:
        """The error in a sentence that says what was asked, and what to try."""
        if isinstance(self.error, QueryError):
            return self.error
        sentence = f"{type(self.error).__name__}: {self.error} (raised by the model, asked about {asked})"
        told = QueryError(f"{sentence}; {hint}" if hint else sentence)
        told.__cause__ = self.error
        return told

    @property
    def interrupted(self) -> bool:
        """Whether it is no failure but Ctrl-C, which the driver raises again."""
        return not isinstance(self.error, Exception)


class Calls:
    """Begins calls of a model, and knows what each of them cost.

    A model with ``launch`` begins a call at once, and ``in_flight`` of them pay: one that it works on, and one that
    waits for it. Another is called when its outputs are waited for.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.launch = model, launcher(model)
        self.in_flight = 1 if self.launch is None else 2
        self.till = Till.of(model)

    def begin(self, batches: Sequence[Inputs], rows: int, what: str = "") -> Call:
        """Begin a call with batches of one kind; ``what`` says in messages what is asked."""
        call = Call(self, rows, what or f"{rows} rows")
        with call.billed():
            inputs = concatenate(batches)
            call.answers = functools.partial(self.model, inputs) if self.launch is None else self.launch(inputs)
        return call

    def method(self, name: str, arguments: Sequence[Any], rows: int) -> Call:
        """A call of another of the model's methods, such as a language model's ``generate``."""
        call = Call(self, rows, f"{rows} rows")
        call.answers = functools.partial(getattr(self.model, name), *arguments)
        return call


class Call:
    """A call of the model; ``cost`` is what it came to, answered or not, and ``error`` what it ended in.

    ``beside`` is how much of the cost was for no row.
    """

    def __init__(self, calls: Calls, rows: int, what: str) -> None:
        self.calls, self.rows, self.what = calls, rows, what
        self.answers: Callable[[], Any] | None = None
        self.cost = self.beside = 0.0
        self.error: BaseException | None = None
        self._bill = Bill()
        self._reply: Any = None

    @contextlib.contextmanager
    def billed(self) -> Iterator[None]:
        """While the model is at work for this call: what it charges is on this bill, what it raises is kept."""
        before, till = BILL.set(self._bill), self.calls.till
        till.begin(self.calls.model)
        try:
            with contained():
                yield
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
        finally:
            BILL.reset(before)
            grown = till.end(self.calls.model, self._bill)
            self.cost = self._bill.amount if till.charges else self.cost + grown
            self.beside = min(self._bill.beside, self.cost)

    def reply(self) -> Any:
        """Wait for what the model returns; what it raised is raised here."""
        if self.answers is not None:
            answers, self.answers = self.answers, None
            with self.billed():
                self._reply = answers()
        if self.error is not None:
            raise self.error
        return self._reply

    def outputs(self) -> FloatArray:
        """The reply as numbers, (rows, outputs)."""
        return as_outputs(self.reply(), self.rows, f"querying {self.what}")


class Till:
    """Tells what each call of a model cost: what the model charged it, where it does, else what its ``cost`` grew by.

    Drives in several threads may share a model, so the number grows under the hands of each. What has been handed to
    one call is not handed to another, so that the costs of all calls add up to what was spent.
    """

    _of: ClassVar[dict[int, Till]] = {}  # of the models that are alive, by their ids: not every model can be hashed
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._counted = 0.0
        self.charges = False  # whether the model tells what each call cost
        self.has_cost = False  # whether anything did so far

    @classmethod
    def of(cls, model: Model) -> Till:
        """The one till of a model, whatever is wrapped around it."""
        inner = innermost(model)
        with cls._opening:
            till = cls._of.get(id(inner))
            if till is None:
                till = Till()
                with contextlib.suppress(TypeError):  # a model that allows no weak reference has a till for each drive
                    weakref.finalize(inner, cls._of.pop, id(inner), None)
                    cls._of[id(inner)] = till
            return till

    def begin(self, model: Model) -> None:
        """A call begins; what was spent while none was under way is nobody's here."""
        with self._lock:
            if not self._under_way:
                self._counted = describe(model).cost or 0.0
            self._under_way += 1

    def end(self, model: Model, bill: Bill) -> float:
        """A call has ended: by how much the model's ``cost`` grew that was not handed to another."""
        with self._lock:
            self._under_way -= 1
            self.charges = self.charges or bill.told
            before, self._counted = self._counted, describe(model).cost or 0.0
            self.has_cost = self.has_cost or bill.amount > 0.0 or self._counted > before
            return self._counted - before


def concatenate(batches: Sequence[Inputs]) -> Inputs:
    """Put batches of one kind together into one: masks, arrays, tensors, frames or lists."""
    first = batches[0]
    if isinstance(first, MaskedRows):
        return MaskedBatch(batches)
    if len(batches) == 1:
        return first
    if isinstance(first, np.ndarray):
        return np.concatenate(batches)
    if is_tensor(first):
        import torch

        return torch.cat(list(batches))
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat(batches)
    return [item for batch in batches for item in batch]


def kind_of(batch: Inputs) -> Any:
    """What batches must have in common to be concatenated without changing a row, such as a type and a shape."""
    if isinstance(batch, MaskedRows):
        return MaskedRows
    if isinstance(batch, np.ndarray) or is_tensor(batch):
        return type(batch), batch.dtype, tuple(batch.shape[1:]), getattr(batch, "device", None)
    if hasattr(batch, "iloc"):
        columns = tuple(batch.columns) if is_frame(batch) else ()
        return type(batch), columns, tuple(np.atleast_1d(batch.dtypes))
    if isinstance(batch, list | tuple):
        return type(batch)
    return object()  # a masker's own kind of batch goes to the model as it is


def is_good(outputs: FloatArray) -> BoolArray:
    """Whether numbers can be used, for each row: NaN cannot, nor what is so large that sums of squares are infinite."""
    return np.asarray((np.abs(outputs) <= 1e100).all(axis=-1))


def as_outputs(reply: Any, rows: int, where: str) -> FloatArray:
    """Return a model's reply as (rows, outputs) numbers, or say what is wrong with it."""
    if is_tensor(reply):  # a torch tensor, on whichever device
        reply = host_array(reply)
    elif isinstance(reply, list | tuple) and reply and is_tensor(reply[0]):
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
    if array.dtype != np.float64:
        with np.errstate(over="ignore"):  # a wider number may become infinite, which is checked
            array = array.astype(np.float64)
    return np.ma.filled(array, np.nan)


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
