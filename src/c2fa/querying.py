"""The only module that calls the model: it batches, counts, deduplicates, records, and checks what came back.

Methods do not call the model. They are generators that yield an ``Ask`` and receive an ``Answer``. ``drive`` runs one
of them or thousands: one explanation is a drive of one job, an evaluation a drive of many jobs about one input, and a
dataset a drive of jobs about many inputs, whose rows share the batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from c2fa.ledger import Ledger, LedgerError, Row, as_row
from c2fa.masking import Identity, Inputs, Masked
from c2fa.sampling import mask_keys
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


_Key: TypeAlias = tuple[int, bytes]


@dataclass(frozen=True, eq=False)
class Pending:
    """Rows of one level that have to be sent: their keys and masks, and which rows of the whole question they are."""

    level: int
    keys: list[_Key]
    masks: BoolArray
    start: int = 0
    total: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice) -> Pending:
        start, stop, _ = rows.indices(len(self))
        return Pending(self.level, self.keys[start:stop], self.masks[start:stop], self.start + start, self.total)

    def __str__(self) -> str:
        return f"masks {self.start}–{self.start + len(self) - 1} of {self.total} of level {self.level}"


@dataclass(frozen=True, eq=False)
class Failed:
    """What the model raised instead of an answer, and the answers to some rows that it brought along."""

    error: BaseException
    partial: Any = None

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """A model that sends a batch in several requests may have some of its answers: in ``error.partial``."""
        return cls(error, getattr(error, "partial", None))

    @property
    def interrupted(self) -> bool:
        """Whether it is no failure but Ctrl-C, which the driver raises again."""
        return not isinstance(self.error, Exception)


@dataclass(eq=False)
class Cache:
    """Every answer about one input, shared by all who ask about it, with marks for the rows that are under way.

    Parameters
    ----------
    masked
        The input.
    on_error
        ``"raise"`` stops at the first bad row; ``"drop"`` leaves bad rows out and counts them.
    identity
        Which input it is: what its masks depend on besides the seed, and its name in the ledger.
    ledger, model_name
        Where answers are kept, and under which name of the model.
    """

    masked: Masked
    on_error: OnError = "raise"
    identity: Identity = field(default_factory=Identity)
    ledger: Ledger | None = None
    model_name: str = ""
    sent: int = 0
    known: dict[_Key, FloatArray | None] = field(default_factory=dict)
    under_way: dict[_Key, Queries] = field(default_factory=dict)
    unwritten: list[Row] = field(default_factory=list)

    @property
    def width(self) -> int | None:
        """The number of outputs, once a row was answered."""
        return next((len(row) for row in self.known.values() if row is not None), None)

    def recall(self, keys: Iterable[_Key]) -> None:
        """Take in what the ledger has of rows that nobody asked about yet."""
        if self.ledger is None:
            return
        levels: dict[int, list[bytes]] = {}
        for level, mask in keys:
            if (level, mask) not in self.known and (level, mask) not in self.under_way:
                levels.setdefault(level, []).append(mask)
        for level, masks in levels.items():
            found = self.ledger.get(self.model_name, self.identity.key, level, masks)
            self.known.update({(level, mask): row for mask, row in found.items()})

    def put(self, key: _Key, row: FloatArray | None) -> None:
        """Keep a row's answer, None where it was dropped; the ledger has it once the driver has written it."""
        self.known[key] = row
        if self.ledger is not None and row is not None:
            self.unwritten.append(as_row(self.model_name, self.identity.key, *key, row))

    def release(self, keys: Iterable[_Key]) -> None:
        """Take away the marks of rows that came back, or that will not be sent."""
        for key in keys:
            self.under_way.pop(key, None)


@dataclass(eq=False)
class Queries:
    """What one conversation asks about an input, and what it has used.

    Parameters
    ----------
    cache
        The answers about the input. A row that someone else asked about is not sent again, but counts as recalled, so
        that what an explanation used is the same in company as alone.
    budget
        The most rows that may ever be used; a question that would exceed it is not asked.
    """

    cache: Cache
    budget: int
    sent: int = 0
    recalled: int = 0
    dropped: int = 0
    cost: float = 0.0
    notes: list[str] = field(default_factory=list)
    awaits: list[_Key] = field(default_factory=list)
    _mine: dict[_Key, None] = field(default_factory=dict)
    _read: tuple[Ask, int, BoolArray, list[_Key]] | None = None

    @property
    def used(self) -> int:
        """The rows used so far: sent to the model, or recalled where they were paid for before."""
        return self.sent + self.recalled

    @property
    def identity(self) -> Identity:
        """Which input it is."""
        return self.cache.identity

    @property
    def answers(self) -> FloatArray:
        """Every usable answer so far, (rows, outputs)."""
        return np.array([row for key in self._mine if (row := self.cache.known[key]) is not None])

    @property
    def waits(self) -> bool:
        """Whether a row of the last question is still under way for another conversation."""
        return any(key in self.cache.under_way for key in self.awaits)

    def _question(self, ask: Ask) -> tuple[int, BoolArray, list[_Key]]:
        """A question's level, masks and keys, computed once although planning and answering both need them."""
        if self._read is None or self._read[0] is not ask:
            structure = self.cache.masked.structure
            masks, level = structure.check_masks(ask.masks, ask.level), structure.level(ask.level)
            self._read = ask, level, masks, self._keys(masks, level)
        return self._read[1:]

    def _keys(self, masks: BoolArray, level: int) -> list[_Key]:
        """Name each masked input, so that the same input has one name whatever the level it was asked at."""
        masked = self.cache.masked
        structure = masked.structure
        last = structure.depth - 1
        if level != last and masked.nested:
            return [(last, key) for key in mask_keys(structure.expand(masks, level))]
        names = [(level, key) for key in mask_keys(masks)]
        if level != last:
            full = (last, mask_keys(np.ones((1, structure.leaves), dtype=np.bool_))[0])
            for i in np.flatnonzero(masks.all(axis=1)):
                names[i] = full
        return names

    def plan(self, ask: Ask) -> Pending:
        """Return the rows that must be sent to answer a question, and mark them as under way.

        Rows that are known are taken over; those that are under way for others are listed in ``awaits``.
        """
        level, masks, keys = self._question(ask)
        first: dict[_Key, int] = {}
        for i, key in enumerate(keys):
            if key not in self._mine:
                first.setdefault(key, i)
        if self.used + len(first) > self.budget:
            raise BudgetError(
                f"the budget of {self.budget} model rows has {self.budget - self.used} left, and this question needs "
                f"{len(first)}; raise the budget"
            )
        cache = self.cache
        cache.recall(first)
        self.awaits, rows = [], {}
        for key, i in first.items():
            if key in cache.known:
                self._use(key)
                self.recalled += 1
            elif cache.under_way.setdefault(key, self) is self:
                rows[key] = i
            else:
                self.awaits.append(key)
        at = np.fromiter(rows.values(), dtype=np.intp, count=len(rows))
        return Pending(level, list(rows), masks[at], total=len(rows))

    def _use(self, key: _Key) -> None:
        self._mine[key] = None
        self.dropped += self.cache.known[key] is None

    def inputs(self, pending: Pending) -> Inputs:
        """Make the masked inputs of rows to be sent."""
        inputs = self.cache.masked.inputs(pending.masks, pending.level)
        if len(inputs) != len(pending):
            raise QueryError(
                f"the masker gave {len(inputs)} inputs for {len(pending)} masks of level {pending.level}; "
                "it must give one for each row"
            )
        # One memory layout, whoever else's rows are in the batch: sums over columns may depend on it in the last bit.
        return np.ascontiguousarray(inputs) if isinstance(inputs, np.ndarray) else inputs

    def record(self, pending: Pending, reply: Any) -> None:
        """Check what came back for rows that were sent, and keep what is good; raise or note what is not.

        Of a reply that ``Failed``, what it brought along is kept.
        """
        cache = self.cache
        self.sent += len(pending)
        cache.sent += len(pending)
        cache.release(pending.keys)
        outputs, good, bad = self._checked(pending, reply)
        interrupted = isinstance(reply, Failed) and reply.interrupted
        drop = cache.on_error == "drop" and not interrupted
        for key, row, fine in zip(pending.keys, outputs, good, strict=True):
            if fine or drop:
                cache.put(key, row if fine else None)
                self._use(key)
        if bad is None or interrupted:
            return
        if not drop:
            raise bad
        self.notes.append(f"{int((~good).sum())} rows dropped: {bad}")

    def _checked(self, pending: Pending, reply: Any) -> tuple[FloatArray, BoolArray, QueryError | None]:
        """Return a reply's outputs, which rows of them are good, and what is wrong with the others."""
        where = f"querying {pending}"
        bad: QueryError | None = None
        nothing = np.full((len(pending), 1), np.nan), np.zeros(len(pending), np.bool_)
        if isinstance(reply, Failed):
            bad = _failure(reply.error, where)
            if reply.partial is None:
                return *nothing, bad
            reply = reply.partial
        try:
            outputs = as_outputs(reply, len(pending), where)
            width = self.cache.width
            if bad is None and width not in (None, outputs.shape[1]):
                raise QueryError(
                    f"{where}: the model returned {outputs.shape[1]} outputs a row and {width} before; "
                    "it must always return the same number"
                )
        except QueryError as error:
            return *nothing, bad or error
        good = np.asarray((np.abs(outputs) <= _LARGEST).all(axis=1))  # which NaN is not
        if bad is None and not good.all():
            rows = np.flatnonzero(~good)
            what = "numbers beyond 1e100" if np.isfinite(outputs).all() else "NaN or infinity"
            advice = "" if self.cache.on_error == "drop" else ", or use on_error='drop' to leave such rows out"
            bad = QueryError(
                f"{where}: the model returned {what} for {len(rows)} of {len(pending)} rows (first: row "
                f"{rows[0]} of the batch); repair the model{advice}"
            )
        return outputs, good, bad

    def answer(self, ask: Ask) -> Answer:
        """Return what is known of the rows of a question; all of them must have been answered."""
        rows = [self.cache.known[key] for key in self._question(ask)[2]]
        width = self.cache.width or 1
        ok = np.array([row is not None for row in rows], dtype=np.bool_)
        blank = np.full(width, np.nan)
        outputs = np.array([blank if row is None else row for row in rows]).reshape(len(rows), width)
        return Answer(outputs, ok)


def _failure(error: BaseException, where: str) -> QueryError:
    """An error of the model as one of ours, which says what was asked."""
    if isinstance(error, QueryError):
        return error
    failure = QueryError(f"{where}: the model raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


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


# -- the driver ------------------------------------------------------------------------------------


@dataclass(eq=False)
class Job(Generic[T]):
    """A conversation and its queries; when ``drive`` gives it back, its result or the error that ended it.

    ``about`` is whatever the caller wants to find again.
    """

    conversation: Conversation[T]
    queries: Queries
    about: Any = None
    error: Exception | None = None
    ended: bool = False
    _value: T | None = None
    _ask: Ask | None = None
    _unsent: Pending | None = None
    _away: int = 0

    def result(self) -> T:
        """What the conversation returned; the error that ended it is raised."""
        if self.error is not None:
            raise self.error
        return cast(T, self._value)


@dataclass(eq=False)
class Part:
    """Rows of one job that go into one batch, and their masked inputs."""

    job: Job[Any]
    rows: Pending
    inputs: Inputs = None


AskModel: TypeAlias = Callable[[Sequence[Part]], FloatArray]
Reply: TypeAlias = FloatArray | Failed
Replies: TypeAlias = Iterator[tuple[Part, Reply]]


class Policy(Protocol):
    """What to do about batches that fail; ``drive`` calls both methods from the thread that iterates over it."""

    def answered(self, batch: Sequence[Part]) -> None:
        """A batch was answered."""
        ...

    def failed(self, batch: Sequence[Part], failure: Failed, ask: AskModel) -> Replies:
        """A batch failed: yield what is to be recorded for each part, after asking again as often as is wise."""
        ...


class Blame:
    """The plain policy: a failed batch is every part's failure."""

    def answered(self, batch: Sequence[Part]) -> None:
        """Nothing needs to be noted."""

    def failed(self, batch: Sequence[Part], failure: Failed, ask: AskModel) -> Replies:
        """Hand the error to every part, each with its piece of what was answered."""
        return _pieces(batch, failure)


def drive(
    jobs: Iterable[Job[T]],
    model: Model,
    *,
    batch_size: int,
    ahead: int | None = None,
    in_flight: int = 1,
    policy: Policy | None = None,
    progress: bool = False,
) -> Iterator[Job[T]]:
    """Drive conversations to their ends with their rows packed into shared batches; yield each job as it ends.

    A conversation that raises ends its own job alone. Whatever stops the drive — Ctrl-C, a caller that has seen
    enough — the answers of the batches before are in the ledger, and so are those that an interrupted model brings
    along.

    Parameters
    ----------
    jobs
        The jobs. Those about one input should share one ``Cache``: a row that is known there, or under way, is not
        asked again.
    batch_size
        The most rows sent to the model at a time.
    ahead
        Read another job only while those begun may ask fewer rows than this, so that memory does not depend on how
        many there are; None begins all of them at once.
    in_flight
        Batches sent at the same time, each from a thread of its own.
    policy
        What to do about a batch that fails; by default each of its jobs ends with the error, or drops the rows.
    progress
        Whether long work shows a progress bar.
    """
    driver: _Driver[T] = _Driver(model, batch_size, in_flight, policy or Blame(), _Bar(model, progress))
    try:
        yield from driver.run(iter(jobs), ahead)
    finally:
        driver.close()


class _Driver(Generic[T]):
    """The jobs that are open, the batches that are away, and the jobs that ended and were not yet handed out."""

    def __init__(self, model: Model, batch_size: int, in_flight: int, policy: Policy, bar: _Bar) -> None:
        self.model, self.batch_size, self.in_flight = model, batch_size, in_flight
        self.policy, self.bar = policy, bar
        self.open: dict[Job[T], None] = {}
        self.ended: list[Job[T]] = []
        self.away: dict[Future[Reply], list[Part]] = {}
        self.touched: dict[Cache, None] = {}  # caches with answers that are not written yet
        self.full: set[Ledger] = set()  # ledgers that could not be written
        self.paid = self._cost()
        self.threads = ThreadPoolExecutor(in_flight, "c2fa-batch") if in_flight > 1 else None

    def run(self, jobs: Iterator[Job[T]], ahead: int | None) -> Iterator[Job[T]]:
        more = True
        while more or self.open:
            more = more and self._begin(jobs, ahead)
            if not self.ended:  # jobs that failed or were all recalled are handed out before anything is sent
                self._exchange()
            yield from self.ended
            self.ended.clear()

    def close(self) -> None:
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)
        for job in self.open:
            job.conversation.close()
        self.bar.close()

    def _begin(self, jobs: Iterator[Job[T]], ahead: int | None) -> bool:
        """Begin more jobs while there is room; return whether there may be others."""
        left = sum(job.queries.budget - job.queries.used for job in self.open)
        while ahead is None or (left < ahead and not self.ended):
            job = next(jobs, None)
            if job is None:
                return False
            self.open[job] = None
            self.bar.add(job.queries)
            if job.queries.cache.ledger in self.full:
                job.queries.cache.ledger = None
            self._advance(job)
            left += job.queries.budget - job.queries.used
        return True

    # -- conversations

    def _advance(self, job: Job[T]) -> None:
        """Answer the job's question and go on to its next that needs rows from the model, or to its end."""
        try:
            while True:
                if job._ask is not None:
                    pending = job.queries.plan(job._ask)
                    job._unsent = pending if len(pending) else None
                    if len(pending) or job.queries.awaits:
                        return
                answer = None if job._ask is None else job.queries.answer(job._ask)
                job._ask, result = step(job.conversation, answer)
                if job._ask is None:
                    job._value = result
                    self._end(job)
                    return
        except Exception as error:  # a stranger's method or masker may raise anything
            self._fail(job, error)

    def _end(self, job: Job[T]) -> None:
        del self.open[job]
        job.ended = True
        self.ended.append(job)

    def _fail(self, job: Job[T], error: Exception) -> None:
        """End a job; rows of it that are not sent yet are left to those who wait for them."""
        cache = job.queries.cache
        if job._unsent is not None:
            cache.release(job._unsent.keys)
            job._unsent = None
        if isinstance(error, QueryError) and cache.ledger is None and cache.sent:
            error.add_note(f"{cache.sent} rows were sent; give ledger='answers.sqlite' to keep what is answered")
        job.conversation.close()
        job.error = error
        self._end(job)

    # -- batches

    def _exchange(self) -> None:
        """Send batches until enough are under way, and take in the first that comes back."""
        if self.threads is None:
            for batch in self._batches():
                self._receive(batch, self._reply(batch))
        else:
            while len(self.away) < self.in_flight and (batches := self._batches()):
                self.away.update({self.threads.submit(self._reply, batch): batch for batch in batches})
            for future in wait(self.away, return_when=FIRST_COMPLETED).done if self.away else ():
                self._receive(self.away.pop(future), future.result())
        for job in list(self.open):
            if job._unsent is None and not job._away and not job.queries.waits:
                self._advance(job)

    def _batches(self) -> list[list[Part]]:
        """The next rows, as many as one batch holds; those that cannot be joined go in batches of their own."""
        batches: dict[Any, list[Part]] = {}
        for part in self._take():
            try:
                part.inputs = part.job.queries.inputs(part.rows)
                batches.setdefault(kind(part.inputs), []).append(part)
            except Exception as error:
                part.job._away -= 1
                part.job.queries.cache.release(part.rows.keys)
                if not part.job.ended:
                    self._fail(part.job, error)
        return list(batches.values())

    def _take(self) -> list[Part]:
        """Take the next batch's rows: small questions first, since large ones wait behind them."""
        parts, room = [], self.batch_size
        waiting = [(job, job._unsent) for job in self.open if job._unsent is not None]
        for job, unsent in sorted(waiting, key=lambda pair: len(pair[1])):
            if room == 0:
                break
            rows, left = unsent[:room], unsent[room:]
            job._unsent = left if len(left) else None
            job._away += 1
            parts.append(Part(job, rows))
            room -= len(rows)
        return parts

    def _reply(self, batch: Sequence[Part]) -> Reply:
        """What the model says of a batch, or its error; Ctrl-C is one too, for it may bring answers along."""
        try:
            return self._ask(batch)
        except (Exception, KeyboardInterrupt) as error:
            return Failed.of(error)

    def _ask(self, batch: Sequence[Part]) -> FloatArray:
        """Call the model."""
        rows = sum(len(part.rows) for part in batch)
        what = str(batch[0].rows) if len(batch) == 1 else f"{rows} rows of {len(batch)} questions"
        return as_outputs(self.model(join([part.inputs for part in batch])), rows, f"querying {what}")

    def _receive(self, batch: list[Part], reply: Reply) -> None:
        """Record a batch's answers, or what the policy makes of its failure."""
        if isinstance(reply, Failed) and not reply.interrupted:
            for part, again in self.policy.failed(batch, reply, self._ask):
                self._charge([part])
                self._record(part, again)
                self._write()
        else:
            self._charge(batch)
            if not isinstance(reply, Failed):
                self.policy.answered(batch)
            for part, piece in _pieces(batch, reply):
                self._record(part, piece)
            self._write()  # before any solving: until then a killed process loses the answers
        if isinstance(reply, Failed) and reply.interrupted:
            raise reply.error
        self.bar.update()

    def _record(self, part: Part, reply: Reply) -> None:
        """Keep what came back for a part, even where its job ended meanwhile: it was paid for."""
        job = part.job
        job._away -= 1
        self.touched[job.queries.cache] = None
        try:
            job.queries.record(part.rows, reply)
        except QueryError as error:
            if not job.ended:
                self._fail(job, error)

    def _cost(self) -> float:
        return float(getattr(self.model, "cost", None) or 0.0)

    def _charge(self, batch: Sequence[Part]) -> None:
        """Share what was spent since the last time among the rows of a batch."""
        cost, rows = self._cost(), sum(len(part.rows) for part in batch)
        spent, self.paid = cost - self.paid, cost
        for part in batch:
            part.job.queries.cost += spent * len(part.rows) / rows

    def _write(self) -> None:
        """Commit the answers that came back, at once for all inputs: a commit waits for the disk."""
        rows: dict[Ledger, list[Row]] = {}
        for cache in self.touched:
            if cache.ledger is not None:
                rows.setdefault(cache.ledger, []).extend(cache.unwritten)
            cache.unwritten.clear()
        self.touched.clear()
        for ledger, answers in rows.items():
            try:
                ledger.write(answers)
            except LedgerError as error:
                self._give_up(ledger, error)

    def _give_up(self, ledger: Ledger, error: LedgerError) -> None:
        """The answers are here and paid for: finish the explanations, and say that they are not kept."""
        self.full.add(ledger)
        concerned = [job.queries for job in self.open if job.queries.cache.ledger is ledger]
        for queries in concerned:
            queries.notes.append(f"{error}; the explanation goes on, but its answers from here on are not kept")
            queries.cache.ledger = None


def _pieces(batch: Sequence[Part], reply: Reply) -> Replies:
    """Each part with its piece of a reply, or of the answers that a failure brought along."""
    start = 0
    for part in batch:
        piece = slice(start, start + len(part.rows))
        start = piece.stop
        if not isinstance(reply, Failed):
            yield part, reply[piece]
        elif reply.partial is None:
            yield part, reply
        else:
            yield part, Failed(reply.error, reply.partial[piece])


def step(conversation: Conversation[T], answer: Answer | None) -> tuple[Ask | None, T | None]:
    """Hand a conversation its answer (None to begin); return its next question, or None and its result."""
    try:
        return (next(conversation) if answer is None else conversation.send(answer)), None
    except StopIteration as stop:
        return None, stop.value


class _Bar:
    """A progress bar that appears only when the work turns out to be long."""

    def __init__(self, model: Model, wanted: bool) -> None:
        self._queries: list[Queries] = []
        self._model, self._wanted = model, wanted
        self._begin = time.monotonic()
        self._bar: Any = None

    def add(self, queries: Queries) -> None:
        if self._wanted:
            self._queries.append(queries)

    def update(self) -> None:
        if not self._wanted:
            return
        if self._bar is None and time.monotonic() - self._begin > _QUIET_SECONDS:
            from tqdm.auto import tqdm

            total = sum(queries.budget for queries in self._queries)
            self._bar = tqdm(total=total, unit="row", desc="asking the model", leave=False)
            if not self._bar.disable:  # TQDM_DISABLE=1 makes a bar without a clock
                self._bar.start_t -= time.monotonic() - self._begin  # the rows so far took their time too
                self._bar.last_print_t = self._bar.start_t
        if self._bar is not None:
            cost = getattr(self._model, "cost", None)
            if cost:
                self._bar.set_postfix_str(f"cost {cost:.4g}", refresh=False)
            self._bar.update(sum(queries.used for queries in self._queries) - self._bar.n)

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


def kind(batch: Inputs) -> Any:
    """What batches must share to be joined without changing a row: arrays of one type and shape, like frames."""
    if isinstance(batch, np.ndarray) or hasattr(batch, "detach"):
        return type(batch), str(batch.dtype), tuple(batch.shape[1:]), str(getattr(batch, "device", ""))
    if hasattr(batch, "iloc"):
        dtypes: Any = getattr(batch, "dtypes", None)
        columns = tuple(getattr(batch, "columns", ()))
        return type(batch), columns, tuple(dtypes) if hasattr(dtypes, "__iter__") else dtypes
    return type(batch)
