"""One call of the model: its rows put together, begun, waited for, billed and read."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from c2fa.asking.masking import Inputs, MaskedBatch, MaskedRows
from c2fa.asking.model import BILL, Bill, Model, contained, describe, innermost, launcher
from c2fa.asking.replies import as_outputs
from c2fa.structure import FloatArray


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
    """A call of the model; ``cost`` is what it came to, answered or not, and ``error`` what it ended in."""

    def __init__(self, calls: Calls, rows: int, what: str) -> None:
        self.calls, self.rows, self.what = calls, rows, what
        self.answers: Callable[[], Any] | None = None
        self.cost = 0.0
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
                self._counted = float(describe(model).cost or 0.0)
            self._under_way += 1

    def end(self, model: Model, bill: Bill) -> float:
        """A call has ended: by how much the model's ``cost`` grew that was not handed to another."""
        with self._lock:
            self._under_way -= 1
            self.charges = self.charges or bill.told
            before, self._counted = self._counted, float(describe(model).cost or 0.0)
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
    if hasattr(first, "detach"):
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
    if isinstance(batch, np.ndarray) or hasattr(batch, "detach"):
        return type(batch), str(batch.dtype), tuple(batch.shape[1:]), str(getattr(batch, "device", ""))
    if hasattr(batch, "iloc"):
        dtypes: Any = getattr(batch, "dtypes", None)
        columns = tuple(getattr(batch, "columns", ()))
        return type(batch), columns, tuple(dtypes) if hasattr(dtypes, "__iter__") else dtypes
    if isinstance(batch, list | tuple):
        return type(batch)
    return object()  # a masker's own kind of batch goes to the model as it is
