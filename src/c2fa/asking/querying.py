"""What is asked about an input and what came back: counted, deduplicated, recorded and checked.

Methods do not call the model. They are generators that yield an ``Ask`` and receive an ``Answer``; ``driver.py`` runs
them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np

from c2fa.asking.fingerprint import Identity
from c2fa.asking.ledger import COST, Ledger, LedgerError, Name, Row, as_row
from c2fa.asking.masking import Inputs, Masked
from c2fa.asking.replies import Failed, QueryError, is_good
from c2fa.asking.spending import Purse
from c2fa.masks import mask_keys
from c2fa.structure import BoolArray, FloatArray

OnError: TypeAlias = Literal["raise", "drop"]
T = TypeVar("T")


class BudgetError(ValueError):
    """A question was about to exceed the budget; it was not asked."""


@dataclass(frozen=True, eq=False)
class Ask:
    """A question: what does the model say of the input under these masks of a level?

    ``again`` has the model asked although answers are known, to see whether it answers the same. What it answers then
    is kept beside the first answers, so that the question is not asked a third time. It is a question of its own: where
    equal rows are in one call, a model may answer them all from one, as those behind HTTP do.
    """

    level: int
    masks: BoolArray
    again: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """The outputs, (n, outputs), and which rows are good; the others hold NaN and must not be used."""

    outputs: FloatArray
    ok: BoolArray


Conversation: TypeAlias = Generator[Ask, Answer, T]

Key: TypeAlias = bytes
"""A masked input: two bytes with the level and the packed bits of its mask, in one piece that remembers its hash."""

# Added to the level in the key of a row that is asked again, or that is of a level by itself; see also the
# ledger's COST. No tree is as deep.
_AGAIN, _BY_LEVEL = 1 << 15, 1 << 14
BESIDE: Key = b"\0\0"  # of what was paid for no row: no mask is empty


def _keys_of(level: int, masks: Iterable[bytes]) -> list[Key]:
    start = level.to_bytes(2, "big")
    return [start + mask for mask in masks]


def _level_and_mask(key: Key) -> tuple[int, bytes]:
    return int.from_bytes(key[:2], "big"), key[2:]


@dataclass(frozen=True, eq=False)
class Pending:
    """Rows that have to be sent: their keys, their masks of a level, and which rows of the whole question they are."""

    level: int
    keys: list[Key]
    masks: BoolArray
    numbers: Sequence[int]
    total: int
    features: str

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice) -> Pending:
        return replace(self, keys=self.keys[rows], masks=self.masks[rows], numbers=self.numbers[rows])

    def __str__(self) -> str:
        return f"masks {self.numbers[0]}–{self.numbers[-1]} of {self.total} of {self.features}"


@dataclass(eq=False)
class Cache:
    """Every answer about one input, shared by all who ask about it, with marks for the rows that are under way.

    ``on_error="raise"`` stops at the first bad row; ``"drop"`` leaves bad rows out and counts them. ``costs`` are the
    rows' own, and ``ahead`` is what scouts found. ``unkept`` says why answers are not kept in the given ledger.
    """

    masked: Masked
    on_error: OnError = "raise"
    identity: Identity = field(default_factory=Identity)
    ledger: Ledger | None = None
    model_name: str = ""
    sent: int = 0
    known: dict[Key, FloatArray | None] = field(default_factory=dict)
    costs: dict[Key, float] = field(default_factory=dict)
    ahead: dict[Any, Any] = field(default_factory=dict)
    under_way: dict[Key, Queries] = field(default_factory=dict)
    unwritten: list[Row] = field(default_factory=list)
    back: list[Name] = field(default_factory=list)
    unkept: str = ""
    _damaged: set[Key] = field(default_factory=set)

    @property
    def width(self) -> int | None:
        """The number of outputs, once a row was answered."""
        return next((len(row) for row in self.known.values() if row is not None), None)

    def name(self, key: Key) -> Name:
        """The name of a row in the ledger."""
        return self.model_name, self.identity.key, *_level_and_mask(key)

    def recall(self, keys: Iterable[Key], and_costs: bool = False) -> list[str]:
        """Take in what the ledger has of rows, checked like what the model returns; say what cannot be used of it."""
        if self.ledger is None:
            return []
        levels: dict[int, list[bytes]] = {}
        if and_costs and BESIDE not in self.costs:
            keys = [*keys, BESIDE]
        for level, mask in map(_level_and_mask, keys):
            levels.setdefault(level, []).append(mask)
        found: dict[Key, FloatArray | None] = {}
        for level, masks in levels.items():
            rows = self.ledger.get(self.model_name, self.identity.key, level, masks)
            found.update(zip(_keys_of(level, rows), rows.values(), strict=True))
            if and_costs:
                costs = self.ledger.get(self.model_name, self.identity.key, level | COST, masks)
                known = zip(_keys_of(level, costs), costs.values(), strict=True)
                self.costs |= {key: float(row.sum()) for key, row in known if row is not None}
        whole = {key: row for key, row in found.items() if row is not None and row.size and is_good(row)}
        width = self.width
        if width is None and whole:  # what most have
            width = Counter(map(len, whole.values())).most_common(1)[0][0]
        usable = {key: row for key, row in whole.items() if len(row) == width}
        self.known.update(usable)
        damaged = [key for key in found if key not in usable and key not in self._damaged]
        self._damaged.update(damaged)
        if not damaged:
            return []
        level, mask = _level_and_mask(damaged[0])
        return [
            f"{len(damaged)} answers in {self.ledger.path} are damaged (first: mask {mask.hex()} of level {level} of "
            f"input {self.identity.key[:12]}); their rows are asked again"
        ]

    def put(self, rows: Mapping[Key, FloatArray | None], cost: float = 0.0, beside: float = 0.0) -> None:
        """Keep answers, None for a row that was dropped, and what they cost; the driver writes them to the ledger."""
        self.known.update(rows)
        costs = dict.fromkeys(rows, cost) if cost else {}
        if beside:
            costs[BESIDE] = self.costs.get(BESIDE, 0.0) + beside
        self.costs |= costs
        if self.ledger is not None:
            self.unwritten += [as_row(self.name(key), row) for key, row in rows.items() if row is not None]
            for key, paid in costs.items():
                model, x, level, mask = self.name(key)
                self.unwritten.append(as_row((model, x, level | COST, mask), np.array([paid])))

    def release(self, keys: Sequence[Key]) -> None:
        """Take away the marks of rows that came back, or that will not be sent; the ledger's with the next answers."""
        for key in keys:
            self.under_way.pop(key, None)
        if self.ledger is not None:
            self.back += map(self.name, keys)


@dataclass(eq=False)
class Queries:
    """What one conversation asks about an input, and what it has used; a question beyond the budget is not asked.

    A row that someone else asked about is not sent again, but counts as recalled, so that an explanation uses as many
    rows whether or not others ask about the same input.
    """

    cache: Cache
    budget: int
    purse: Purse = field(default_factory=Purse)
    sent: int = 0
    recalled: int = 0
    dropped: int = 0
    notes: list[str] = field(default_factory=list)
    awaits: list[Key] = field(default_factory=list)
    unpaid: set[Key] = field(default_factory=set)
    _used_keys: dict[Key, None] = field(default_factory=dict)
    _last_question: tuple[Ask, BoolArray, int, list[Key]] | None = None

    @property
    def rows_per_mask(self) -> int:
        """How many rows of the model each mask takes."""
        return self.cache.masked.rows_per_mask

    @property
    def used(self) -> int:
        """The rows used so far: sent to the model, or recalled where they were paid for before."""
        return self.sent + self.recalled

    @property
    def left_out(self) -> str:
        """How many masks were not asked because the money was spent, in words; nothing where all were."""
        masks = "1 mask was" if len(self.unpaid) == 1 else f"{len(self.unpaid)} masks were"
        return f"{masks} not asked: the money is spent, with {self.purse.spent:.4g} by now" if self.unpaid else ""

    def take(self, unsent: Pending, masks: int, waits: bool) -> tuple[Pending, Pending | None]:
        """The rows to be sent next, of so many masks at the most, and those behind them; rows of a mask stay together.

        With money none while others are under way, whose cost is not known; what it cannot pay for is left out.
        """
        affordable = self.purse.affordable()
        if affordable is not None:
            masks = 0 if waits else min(masks, affordable)
            if not waits and not affordable:
                self.cache.release(unsent.keys)
                self.unpaid.update(unsent.keys)
                return unsent[:0], None
        return unsent[:masks], unsent[masks:] or None

    @property
    def answers(self) -> FloatArray:
        """Every usable answer so far, (rows, outputs)."""
        return np.array([row for key in self._used_keys if (row := self.cache.known[key]) is not None])

    @property
    def waits(self) -> bool:
        """Whether a row of the last question is still under way for another conversation."""
        return any(key in self.cache.under_way for key in self.awaits)

    def _question(self, ask: Ask) -> tuple[BoolArray, int, list[Key]]:
        """The masks of a question in leaves, by which an input has one name at all levels, and their keys."""
        if self._last_question is None or self._last_question[0] is not ask:
            structure, again = self.cache.masked.structure, _AGAIN if ask.again else 0
            masks, level = structure.expand(ask.masks, ask.level), structure.depth - 1
            keys = _keys_of(level + again, mask_keys(masks))
            if self.cache.masked.by_level:
                masks, level = structure.check_masks(ask.masks, ask.level), structure.level(ask.level)
                own = _keys_of(level + _BY_LEVEL + again, mask_keys(masks))
                # With nothing masked it is the input itself, at every level and under whatever masks.
                full = np.asarray(masks.all(axis=1)).tolist()
                keys = [key if is_full else mine for key, mine, is_full in zip(keys, own, full, strict=True)]
            self._last_question = ask, masks, level, keys
        return self._last_question[1:]

    def plan(self, ask: Ask) -> Pending:
        """Return the rows that must be sent to answer a question, and mark them as under way.

        Rows that are known are taken over; those that are under way for others are listed in ``awaits``.
        """
        masks, level, keys = self._question(ask)
        # Rows of one key are equal, so any place of it will do.
        places = {key: i for i, key in enumerate(keys) if key not in self._used_keys and key not in self.unpaid}
        needed = len(places) * self.rows_per_mask
        if self.used + needed > self.budget:
            raise BudgetError(
                f"the budget of {self.budget} model rows has {self.budget - self.used} left, and this question needs "
                f"{needed}; raise the budget"
            )
        cache = self.cache
        new = [key for key in places if key not in cache.known and key not in cache.under_way]
        self.notes += cache.recall(new, and_costs=self.purse.money is not None)
        self._take_over(places)
        rows: dict[Key, int] = {}
        self.awaits = []
        for key, i in places.items():
            if key in cache.known:
                continue
            if cache.under_way.setdefault(key, self) is self:
                rows[key] = i
            else:
                self.awaits.append(key)
        at = np.fromiter(rows.values(), dtype=np.intp, count=len(rows))
        features = cache.masked.level_names[ask.level]
        return Pending(level, list(rows), masks[at], range(len(rows)), len(rows), features)

    def marked(self, pending: Pending, taken: set[Name]) -> Pending:
        """Leave out rows that another process asks, or has asked by now; the question is planned again for them."""
        cache = self.cache
        with contextlib.suppress(LedgerError):  # then planning, or writing, says what is wrong
            others = (key for key in pending.keys if cache.name(key) not in taken)
            self.notes += cache.recall(others, and_costs=self.purse.money is not None)
        self._take_over(pending.keys)
        ours = [key not in cache.known and cache.name(key) not in taken for key in pending.keys]
        if all(ours):
            return pending
        cache.release([key for key, is_ours in zip(pending.keys, ours, strict=True) if not is_ours])
        keys, numbers = list(compress(pending.keys, ours)), list(compress(pending.numbers, ours))
        return replace(pending, keys=keys, masks=pending.masks[np.array(ours)], numbers=numbers)

    def _take_over(self, keys: Iterable[Key]) -> None:
        """Use those rows that are known, and count them as they were paid."""
        cache = self.cache
        known = {key: cache.known[key] for key in keys if key in cache.known}
        self._use(known)
        self.recalled += len(known) * self.rows_per_mask
        self.purse.recall((cache.costs.get(key, 0.0) for key in known), cache.costs.get(BESIDE, 0.0))

    def _use(self, rows: Mapping[Key, FloatArray | None]) -> None:
        self._used_keys.update(dict.fromkeys(rows))
        self.dropped += self.rows_per_mask * sum(row is None for row in rows.values())

    def inputs(self, pending: Pending) -> Inputs:
        """Make the masked inputs of rows to be sent."""
        inputs = self.cache.masked.inputs(pending.masks, pending.level)
        each = self.rows_per_mask
        if len(inputs) != len(pending) * each:
            raise QueryError(
                f"the masker gave {len(inputs)} inputs for {len(pending)} masks of {pending.features}; "
                f"it must give {'one' if each == 1 else each} for each"
            )
        # One memory layout, whoever else's rows are in the batch: sums over columns may depend on it in the last bit.
        return np.ascontiguousarray(inputs) if isinstance(inputs, np.ndarray) else inputs

    def record(self, pending: Pending, reply: FloatArray | Failed, cost: float = 0.0, beside: float = 0.0) -> None:
        """Check what came back for rows, keep what is good, and raise or note what is not."""
        cache = self.cache
        self.purse.pay(cost, beside, len(pending))
        self.sent += len(pending) * self.rows_per_mask
        cache.sent += len(pending) * self.rows_per_mask
        cache.release(pending.keys)
        outputs, good, bad = self._checked(pending, reply)
        interrupted = isinstance(reply, Failed) and reply.interrupted
        drop = cache.on_error == "drop" and not interrupted
        answered = zip(pending.keys, outputs, good.tolist(), strict=True)
        rows = {key: row if fine else None for key, row, fine in answered if fine or drop}
        cache.put(rows, (cost - beside) / len(pending), beside)
        self._use(rows)
        if bad is None or interrupted:
            return
        if not drop:
            raise bad
        self.notes.append(f"{int((~good).sum())} rows dropped: {bad}")

    def _checked(self, pending: Pending, reply: FloatArray | Failed) -> tuple[FloatArray, BoolArray, QueryError | None]:
        """Return a reply's outputs, which rows of them are good, and what is wrong with the others."""
        where, width = f"querying {pending}", self.cache.width
        outputs = np.full((len(pending), 1), np.nan)
        bad: QueryError | None = None
        rows = reply.partial if isinstance(reply, Failed) else reply
        if isinstance(reply, Failed):
            bad = reply.told(str(pending), "" if width else self.cache.masked.hint)  # it has taken no input yet
        if rows is not None:
            if width in (None, rows.shape[1]):
                # One output for each mask, where a mask takes several rows; one that lacks a row's output is NaN.
                outputs = rows.reshape(len(pending), -1, rows.shape[1]).mean(axis=1)
            elif bad is None:
                advice = "" if self.cache.ledger is None else "; where it has changed, give it another model_name"
                bad = QueryError(
                    f"{where}: the model returned {rows.shape[1]} outputs a row and {width} before; "
                    f"it must always return the same number{advice}"
                )
        good = is_good(outputs)
        if bad is None and not good.all():
            what = "numbers beyond 1e100" if np.isfinite(outputs).all() else "NaN or infinity"
            advice = "" if self.cache.on_error == "drop" else ", or use on_error='drop' to leave such rows out"
            bad = QueryError(
                f"{where}: the model returned {what} for {int((~good).sum())} of {len(pending)} rows (first: row "
                f"{int(np.argmin(good))} of the batch); repair the model{advice}"
            )
        return outputs, good, bad

    def answer(self, ask: Ask) -> Answer:
        """Return what is known of the rows of a question; all of them must have been answered."""
        rows = [None if key in self.unpaid else self.cache.known[key] for key in self._question(ask)[2]]
        width = self.cache.width or 1
        ok = np.array([row is not None for row in rows], dtype=np.bool_)
        blank = np.full(width, np.nan)
        outputs = np.array([blank if row is None else row for row in rows]).reshape(len(rows), width)
        return Answer(outputs, ok)


def mark(asked: Sequence[tuple[Queries, Pending]]) -> list[Pending]:
    """Mark rows that are about to be sent in their ledgers; leave out those that another process has marked."""
    names: dict[Ledger, list[Name]] = {}
    for queries, pending in asked:
        if queries.cache.ledger is not None:
            names.setdefault(queries.cache.ledger, []).extend(map(queries.cache.name, pending.keys))
    taken = {ledger: ledger.mark(some) for ledger, some in names.items()}
    shared = {ledger for ledger in names if taken[ledger] or ledger.is_shared}
    return [
        queries.marked(pending, taken[queries.cache.ledger]) if queries.cache.ledger in shared else pending
        for queries, pending in asked
    ]


def relayed(
    conversation: Conversation[T],
    question: Callable[[Ask], Ask] = lambda ask: ask,
    reply: Callable[[Answer], Answer] = lambda answer: answer,
) -> Conversation[T]:
    """A conversation whose questions, or whose answers, are others for its driver."""
    try:
        ask, result = step(conversation, None)
        while ask is not None:
            answer = yield question(ask)
            ask, result = step(conversation, reply(answer))
        return cast(T, result)
    finally:
        conversation.close()


def step(conversation: Conversation[T], answer: Answer | None) -> tuple[Ask | None, T | None]:
    """Hand a conversation its answer (None to begin); return its next question, or None and its result."""
    try:
        return (next(conversation) if answer is None else conversation.send(answer)), None
    except StopIteration as stop:
        return None, stop.value
