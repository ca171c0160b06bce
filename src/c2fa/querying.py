"""The only room that calls the model: it batches, counts, deduplicates, records, and checks what came back.

Methods do not call the model. They are generators that yield an ``Ask`` and receive an ``Answer``, so one of them
can be driven alone (``converse``) or many at once with their questions packed into shared batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np

from c2fa.ledger import Ledger, LedgerError
from c2fa.masking import Identity, Inputs, Masked
from c2fa.masks import mask_keys
from c2fa.structure import BoolArray, FloatArray

Model: TypeAlias = Callable[[Inputs], Any]
OnError: TypeAlias = Literal["raise", "drop"]
T = TypeVar("T")

_QUIET_SECONDS = 2.0  # shorter work needs no progress bar
_LARGEST = 1e100  # the largest answer that can be used: squares of larger ones, and sums of them, are infinite


class QueryError(RuntimeError):
    """The model failed, or returned something that cannot be used."""


class BudgetError(ValueError):
    """A question was about to exceed the budget; it was not asked."""


@dataclass(frozen=True, eq=False)
class Ask:
    """A question: what does the model say of the input under these masks of a level?"""

    level: int
    masks: BoolArray


@dataclass(frozen=True, eq=False)
class Answer:
    """The outputs, (n, outputs), and which rows are good; the others hold NaN and must not be used."""

    outputs: FloatArray
    ok: BoolArray


Conversation: TypeAlias = Generator[Ask, Answer, T]


@dataclass(frozen=True, eq=False)
class Pending:
    """Rows of one level that have to be sent: what they are called and their masks."""

    level: int
    keys: list[_Key]
    masks: BoolArray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice) -> Pending:
        return Pending(self.level, self.keys[rows], self.masks[rows])


_Key: TypeAlias = tuple[int, bytes]


@dataclass(eq=False)
class Queries:
    """All that is asked about one input.

    Parameters
    ----------
    masked
        The input.
    budget
        The most rows that may ever be used; a question that would exceed it is not asked.
    on_error
        ``"raise"`` stops at the first bad row; ``"drop"`` leaves bad rows out and counts them.
    identity
        Which input it is: what its masks depend on besides the seed, and its name in the ledger.
    ledger, model_name
        Where answers are kept, and under which name of the model.
    pool
        Other queries about the same input: a row that was answered there is not sent again, but counts as recalled,
        so that what an explanation used is the same with company as alone.
    """

    masked: Masked
    budget: int
    on_error: OnError = "raise"
    identity: Identity = field(default_factory=Identity)
    ledger: Ledger | None = None
    model_name: str = ""
    pool: Queries | None = None
    sent: int = 0
    recalled: int = 0
    dropped: int = 0
    notes: list[str] = field(default_factory=list)
    _known: dict[_Key, FloatArray | None] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """The rows used so far: sent to the model, or recalled from the ledger where they were paid for before."""
        return self.sent + self.recalled

    @property
    def answers(self) -> FloatArray:
        """Every usable answer so far, (rows, outputs)."""
        return np.array([row for row in self._known.values() if row is not None])

    def _keys(self, masks: BoolArray, level: int) -> list[_Key]:
        """Name each masked input, so that the same input has one name whatever the level it was asked at."""
        structure = self.masked.structure
        last = structure.depth - 1
        if level != last and self.masked.nested:
            return [(last, key) for key in mask_keys(structure.expand(masks, level))]
        names = [(level, key) for key in mask_keys(masks)]
        if level != last:
            full = (last, mask_keys(np.ones((1, structure.leaves), dtype=np.bool_))[0])
            for i in np.flatnonzero(masks.all(axis=1)):
                names[i] = full
        return names

    def plan(self, ask: Ask) -> Pending:
        """Return the rows that must be sent to answer a question, after what is known and what the ledger recalls."""
        masks = self.masked.structure.check_masks(ask.masks, ask.level)
        level = self.masked.structure.level(ask.level)
        first: dict[_Key, int] = {}
        for i, key in enumerate(self._keys(masks, level)):
            if key not in self._known:
                first.setdefault(key, i)
        if self.used + len(first) > self.budget:
            raise BudgetError(
                f"the budget of {self.budget} model rows has {self.budget - self.used} left, and this question needs "
                f"{len(first)}; raise the budget"
            )
        if (self.pool is not None or self.ledger is not None) and first:
            self._share(list(first))
            self._recall([key for key in first if key not in self._known])
            first = {key: i for key, i in first.items() if key not in self._known}
        rows = np.fromiter(first.values(), dtype=np.intp, count=len(first))
        return Pending(level, list(first), masks[rows])

    def _share(self, keys: list[_Key]) -> None:
        """Take over what the pool knows of these rows."""
        known = {} if self.pool is None else self.pool._known
        for key in keys:
            if key in known:
                self._known[key] = known[key]
                self.recalled += 1
                self.dropped += known[key] is None

    def _recall(self, keys: list[_Key]) -> None:
        if self.ledger is None:
            return
        for level in {level for level, _ in keys}:
            names = [mask for at, mask in keys if at == level]
            for mask, row in self.ledger.get(self.model_name, self.identity.key, level, names).items():
                self._known[level, mask] = row
                self.recalled += 1

    def inputs(self, pending: Pending) -> Inputs:
        """Make the masked inputs of rows to be sent."""
        inputs = self.masked.inputs(pending.masks, pending.level)
        if len(inputs) != len(pending):
            raise QueryError(
                f"the masker gave {len(inputs)} inputs for {len(pending)} masks of level {pending.level}; "
                "it must give one for each row"
            )
        # One memory layout, whoever else's rows are in the batch: sums over columns may depend on it in the last bit.
        return np.ascontiguousarray(inputs) if isinstance(inputs, np.ndarray) else inputs

    def record(self, pending: Pending, reply: Any, where: str = "") -> None:
        """Check what came back for rows that were sent, keep it, and write it to the ledger."""
        self.sent += len(pending)
        bad: BaseException | None = None
        where = where or f"querying {len(pending)} masks of level {pending.level}"
        try:
            if isinstance(reply, KeyboardInterrupt):
                bad = reply
            elif isinstance(reply, Exception):
                bad = QueryError(f"{where}: the model raised {type(reply).__name__}: {reply}")
                bad.__cause__ = reply
            if bad is not None:  # a model that sends a batch in several requests may have some of its answers
                partial = getattr(reply, "partial", None)
                reply = np.full((len(pending), 1), np.nan) if partial is None else partial
            outputs = as_outputs(reply, len(pending), where)
            width = next((len(row) for row in self._known.values() if row is not None), outputs.shape[1])
            if bad is None and outputs.shape[1] != width:
                raise QueryError(
                    f"{where}: the model returned {outputs.shape[1]} outputs a row and {width} before; "
                    "it must always return the same number"
                )
            good = np.asarray((np.abs(outputs) <= _LARGEST).all(axis=1))  # which NaN is not
            if bad is None and not good.all():
                rows = np.flatnonzero(~good)
                what = "numbers beyond 1e100" if np.isfinite(outputs).all() else "NaN or infinity"
                advice = "" if self.on_error == "drop" else ", or use on_error='drop' to leave such rows out"
                bad = QueryError(
                    f"{where}: the model returned {what} for {len(rows)} of {len(pending)} rows (first: row "
                    f"{rows[0]} of the batch); repair the model{advice}"
                )
        except QueryError as error:
            bad, outputs, good = error, np.full((len(pending), 1), np.nan), np.zeros(len(pending), np.bool_)
        for key, row, fine in zip(pending.keys, outputs, good, strict=True):
            if fine or self.on_error == "drop":
                self._known[key] = row if fine else None
        self._write([key for key, fine in zip(pending.keys, good, strict=True) if fine])
        if bad is not None:
            if self.on_error == "raise" or isinstance(bad, KeyboardInterrupt):
                raise bad
            self.dropped += int((~good).sum())
            self.notes.append(f"{int((~good).sum())} rows dropped: {bad}")

    def _write(self, keys: list[_Key]) -> None:
        if self.ledger is None:
            return
        good = {key: row for key in keys if (row := self._known[key]) is not None}
        try:
            for level in {level for level, _ in good}:
                rows = {mask: row for (at, mask), row in good.items() if at == level}
                self.ledger.put(self.model_name, self.identity.key, level, list(rows), np.array(list(rows.values())))
        except LedgerError as error:
            # The answers are here and paid for: finish the explanation, and say that they were not kept.
            note = f"{error}; the explanation goes on, but its answers from here on are not kept"
            self.notes.append(note)
            self.ledger = None

    def answer(self, ask: Ask) -> Answer:
        """Return what is known of the rows of a question; all of them must have been sent."""
        level = self.masked.structure.level(ask.level)
        rows = [self._known[key] for key in self._keys(np.asarray(ask.masks, dtype=np.bool_), level)]
        width = next((len(row) for row in self._known.values() if row is not None), 1)
        ok = np.array([row is not None for row in rows], dtype=np.bool_)
        blank = np.full(width, np.nan)
        outputs = np.array([blank if row is None else row for row in rows]).reshape(len(rows), width)
        return Answer(outputs, ok)


def as_outputs(reply: Any, rows: int, where: str) -> FloatArray:
    """Return a model's reply as (rows, outputs) numbers, or say what is wrong with it."""
    if hasattr(reply, "detach"):  # a torch tensor, on whichever device
        reply = reply.detach().cpu()
        reply = reply.float().numpy() if str(reply.dtype) == "torch.bfloat16" else reply.numpy()
    elif isinstance(reply, list | tuple) and reply and hasattr(reply[0], "detach"):
        reply = [np.asarray(item.detach().cpu()) for item in reply]
    elif hasattr(reply, "to_numpy"):
        reply = reply.to_numpy()
    try:
        array = np.asarray(reply)
        # "0.5" would pass as a number, None as NaN, and a complex number would lose a part.
        if array.dtype.kind in "USc" or (array.dtype.kind == "O" and any(v is None for v in array.flat)):
            raise TypeError
        outputs = array.astype(np.float64, copy=False)
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


def _kind(reply: Any) -> str:
    item = reply
    while isinstance(item, list | tuple | np.ndarray) and len(item):
        item = item[0]
    name = "strings" if isinstance(item, str | np.str_) else type(item).__name__
    return name if item is reply else f"{type(reply).__name__} of {name}"


def converse(conversation: Conversation[T], queries: Queries, model: Model, *, batch_size: int, progress: bool) -> T:
    """Drive one conversation to its end, sending what must be sent in batches, and return its result.

    Whatever stops it — a failing model, Ctrl-C — the answers of the batches before are in the ledger.
    """
    bar = _Bar(queries, model, progress)
    try:
        ask, result = step(conversation, None)
        while ask is not None:
            pending = queries.plan(ask)
            for start in range(0, len(pending), batch_size):
                part = pending[start : start + batch_size]
                where = f"querying masks {start}–{start + len(part) - 1} of {len(pending)} of level {part.level}"
                queries.record(part, reply_of(model, queries.inputs(part)), where)
                bar.update()
            ask, result = step(conversation, queries.answer(ask))
        return cast(T, result)
    except QueryError as error:
        if queries.ledger is None and queries.sent:
            error.add_note(f"{queries.sent} rows were sent; give ledger='answers.sqlite' to keep what is answered")
        raise
    finally:
        conversation.close()
        bar.close()


def reply_of(model: Model, inputs: Inputs) -> Any:
    """What the model says of a batch; an exception is a reply too, and ``record`` says which rows it cost.

    So is Ctrl-C: ``record`` raises it again once it has kept the answers that the exception brought along in
    ``partial``, as those of the HTTP models do.
    """
    try:
        return model(inputs)
    except (Exception, KeyboardInterrupt) as error:  # whatever a stranger's model raises
        return error


def step(conversation: Conversation[T], answer: Answer | None) -> tuple[Ask | None, T | None]:
    """Hand a conversation its answer (None to begin); return its next question, or None and its result."""
    try:
        return (next(conversation) if answer is None else conversation.send(answer)), None
    except StopIteration as stop:
        return None, stop.value


class _Bar:
    """A progress bar that appears only when the work turns out to be long."""

    def __init__(self, queries: Queries, model: Model, wanted: bool) -> None:
        self._queries, self._model, self._wanted = queries, model, wanted
        self._begin = time.monotonic()
        self._bar: Any = None

    def update(self) -> None:
        if not self._wanted:
            return
        if self._bar is None and time.monotonic() - self._begin > _QUIET_SECONDS:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self._queries.budget, unit="row", desc="asking the model", leave=False)
            self._bar.start_t -= time.monotonic() - self._begin  # the rows so far took their time too
            self._bar.last_print_t = self._bar.start_t
        if self._bar is not None:
            cost = getattr(self._model, "cost", None)
            if cost:
                self._bar.set_postfix_str(f"cost {cost:.4g}", refresh=False)
            self._bar.update(self._queries.used - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def join(batches: Sequence[Inputs]) -> Inputs:
    """Put several inputs' batches together into one, for arrays, tensors, frames and lists alike."""
    first = batches[0]
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
