"""The only module that calls the model: ``drive`` runs one conversation or thousands, whose rows share the batches."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from c2fa._system import swift
from c2fa.asking.ledger import Ledger, LedgerError, Name, Row
from c2fa.asking.masking import Inputs, MaskedRows
from c2fa.asking.model import Model, contained, describe
from c2fa.asking.querying import Ask, Cache, Conversation, Key, Pending, Queries, mark, step
from c2fa.asking.replies import Call, Calls, Failed, QueryError, kind_of
from c2fa.structure import FloatArray

T = TypeVar("T")


@dataclass(eq=False)
class Job(Generic[T]):
    """A conversation, its queries and whatever it is ``about``; in the end its result or the error that ended it."""

    conversation: Conversation[T]
    queries: Queries
    about: Any = None
    error: Exception | None = None
    ended: bool = False
    _value: T | None = None
    _ask: Ask | None = None
    _unsent: Pending | None = None
    _under_way: int = 0

    def result(self) -> T:
        """What the conversation returned; the error that ended it is raised."""
        if self.error is not None:
            raise self.error
        return cast(T, self._value)


@dataclass(eq=False)
class Share:
    """A job's share of a batch: some of its rows, their masked inputs, and what asking about them has cost.

    ``beside`` is the part of the cost that was for no answer: for calls that failed, or for what came before the rows.
    """

    job: Job[Any]
    rows: Pending
    inputs: Inputs = None
    cost: float = 0.0
    beside: float = 0.0

    @property
    def size(self) -> int:
        """The rows that the model receives."""
        return len(self.rows) * self.job.queries.rows_per_mask


AskModel: TypeAlias = Callable[[Sequence[Share]], FloatArray]
"""Calls the model with the rows of a batch; raises what the model raises."""
Received: TypeAlias = FloatArray | Failed
"""What came back for rows that were sent: their outputs, or the failure."""
Verdict: TypeAlias = Received | Exception
"""What a policy makes of a share: what is to be recorded, or an error that ends its job and leaves nothing behind."""


class Policy:
    """What to do about batches that fail; this plain one makes a failed batch the failure of each of its shares."""

    @property
    def mixes(self) -> bool:
        """Whether rows of several jobs may be in one batch by now."""
        return True

    def answered(self, batch: Sequence[Share], outputs: FloatArray) -> Received:
        """A batch was answered: return the outputs, or the failure that they are."""
        return outputs

    def failed(self, batch: Sequence[Share], failure: Failed, ask: AskModel) -> Iterator[tuple[Share, Verdict]]:
        """A batch failed: yield what becomes of each share, after asking again as often as is wise."""
        return iter(_pieces(batch, failure))


def drive(
    jobs: Iterable[Job[T]],
    model: Model,
    *,
    batch_size: int,
    ahead: int | None = None,
    in_flight: int = 1,
    policy: Policy | None = None,
    tell: Callable[[], object] = lambda: None,
) -> Iterator[Job[T]]:
    """Drive conversations to their ends with their rows packed into shared batches; yield each job as it ends.

    A conversation that raises ends its own job alone. Whatever stops the drive, the answers of the batches before are
    in the ledger, and so are those that an interrupted model brings along.

    Jobs about one input should share one ``Cache``: a row that is known there, or under way, is not asked again.

    Parameters
    ----------
    batch_size
        The most rows sent to the model at a time; where a mask takes more, those of one mask.
    ahead
        Read another job only while those begun may ask fewer rows than this, so that memory does not depend on how
        many there are; None begins all of them at once.
    in_flight
        Batches sent at the same time, each from a thread of its own; a model with ``launch`` has two, without threads.
    policy
        What to do about a batch that fails; by default each of its jobs ends with the error, or drops the rows.
    tell
        Called after each batch that came back.
    """
    driver: _Driver[T] = _Driver(model, batch_size, in_flight, policy or Policy(), tell)
    with contextlib.closing(driver), contextlib.nullcontext() if driver.calls.launch is None else swift:
        queue, more = iter(jobs), True
        while more or driver.open:
            more = more and driver.begin(queue, ahead)
            if not driver.ended:  # jobs that failed or were all recalled are handed out before anything is sent
                driver.exchange()
            yield from driver.ended
            driver.ended.clear()


class _Driver(Generic[T]):
    """The jobs that are open, the batches under way, and the jobs that have ended but were not yet handed out."""

    def __init__(
        self, model: Model, batch_size: int, in_flight: int, policy: Policy, tell: Callable[[], object]
    ) -> None:
        self.batch_size, self.policy, self.tell = batch_size, policy, tell
        self.open: dict[Job[T], None] = {}
        self.ended: list[Job[T]] = []
        self.under_way: dict[_Reply, list[Share]] = {}
        self.begun: deque[list[_Reply]] = deque()  # those that a model's ``launch`` began together, and may answer so
        self.unwritten: dict[Cache, None] = {}  # caches with answers that are not written yet
        self.unwritable: dict[Ledger, str] = {}  # ledgers that could not be written, and what to say of each
        self.left_out = False  # whether rows were left to another process
        self.calls, self.encode_inputs = Calls(model), describe(model).encode_inputs
        self.encoded: WeakKeyDictionary[Cache, Any] = WeakKeyDictionary()
        self.in_flight = max(in_flight, self.calls.in_flight)
        needs_threads = self.calls.launch is None and in_flight > 1
        self.threads = ThreadPoolExecutor(in_flight, "c2fa-batch") if needs_threads else None

    def close(self) -> None:
        try:
            if self.threads is not None:
                self.threads.shutdown(wait=False, cancel_futures=True)
                self._keep_for_ledgers()
        finally:
            for share in itertools.chain(*self.under_way.values()):
                self._release(share.job.queries.cache, share.rows.keys)
            for job in self.open:
                marked = job.queries.cache.under_way.items()
                self._release(job.queries.cache, [key for key, queries in marked if queries is job.queries])
                job.conversation.close()
            self._write()

    def _keep_for_ledgers(self) -> None:
        """Wait for the threads' calls that nothing can call back: they are paid for. A second Ctrl-C leaves them."""
        for reply in [cast(Future[Received], reply) for reply in self.under_way]:
            kept = any(share.job.queries.cache.ledger is not None for share in self.under_way[reply])
            if kept and not reply.cancelled():
                answer = reply.result()
                self._keep(_pieces(self.under_way.pop(reply), answer))

    def begin(self, jobs: Iterator[Job[T]], ahead: int | None) -> bool:
        """Begin more jobs while there is room; return whether there may be others."""
        left = sum(job.queries.budget - job.queries.used for job in self.open)
        while ahead is None or (left < ahead and not self.ended):
            job = next(jobs, None)
            if job is None:
                return False
            self.open[job] = None
            if job.queries.cache.ledger in self.unwritable:
                _keep_no_more(job, self.unwritable[job.queries.cache.ledger])
            self._advance(job)
            left += job.queries.budget - job.queries.used
        return True

    # -- conversations

    def _advance(self, job: Job[T]) -> None:
        """Answer the job's question and go on to its next that needs rows from the model, or to its end."""
        try:
            answer = None
            while True:
                if job._ask is not None:
                    job._unsent = job.queries.plan(job._ask) or None
                    if job._unsent or job.queries.awaits:
                        return
                    answer = job.queries.answer(job._ask)
                job._ask, job._value = step(job.conversation, answer)
                if job._ask is None:
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
            advice = f"{cache.sent} rows were sent; give ledger='answers.sqlite' to keep what is answered"
            error.add_note(cache.unkept or advice)
        job.conversation.close()
        job.error = error
        self._end(job)

    # -- batches

    def exchange(self) -> None:
        """Send batches until enough are under way, and take in the first that comes back."""
        self.left_out = False
        # Where a model does not say what each call cost, one is under way at a time, by which its cost is told.
        alone = not self.calls.till.charges and any(map(_has_money, self.open))
        while len(self.begun or self.under_way) < (1 if alone else self.in_flight) and (batches := self._batches()):
            sent = {self._send(batch): batch for batch in batches}
            self.under_way.update(sent)
            if self.calls.launch is not None:
                self.begun.append(list(sent))
        first: Collection[_Reply] = self.begun.popleft() if self.begun else list(self.under_way)
        if self.threads is not None:
            first = wait(cast(Iterable[Future[Received]], self.under_way), return_when=FIRST_COMPLETED).done
        for reply in first:
            self._receive(self.under_way.pop(reply), reply.result())
        if self.left_out and not first and all(job._unsent is None for job in self.open):
            self._write()  # whoever waits must not hold marks that others wait for
            time.sleep(0.05)
        for job in list(self.open):
            if job._unsent is None and not job._under_way and not job.queries.waits:
                self._advance(job)

    def _send(self, batch: list[Share]) -> _Reply:
        """Begin a batch: in a thread, by the model's own ``launch``, or when its reply is asked for."""
        if self.threads is not None:
            return self.threads.submit(self._reply, batch)
        call = self.calls.launch and self._call(batch)
        return _Later(lambda: self._reply(batch, call))

    def _batches(self) -> list[list[Share]]:
        """The next rows, as many as one batch holds, in one batch for each kind of inputs."""
        batches: dict[Any, list[Share]] = {}
        shares = self._take()
        for share, rows in zip(shares, mark([(s.job.queries, s.rows) for s in shares]), strict=True):
            cache = share.job.queries.cache
            if len(rows) < len(share.rows):  # another process asks the others; they are looked for when all is back
                self.left_out = True
                self.unwritten[cache] = None
                share.job._under_way -= not len(rows)
                if share.job._unsent is not None and _has_money(share.job):  # what is left depends on what those cost
                    cache.release(share.job._unsent.keys)
                    share.job._unsent = None
            share.rows = rows
            if not rows:
                continue
            try:
                with contained("the masker"):
                    if cache not in self.encoded:
                        alone = cache.masked.rows_per_mask == 1
                        self.encoded[cache] = self.encode_inputs(cache.masked.inputs) if alone else None
                    if self.encoded[cache] is None:
                        share.inputs = share.job.queries.inputs(rows)
                    else:  # the model itself masks them
                        share.inputs = MaskedRows(self.encoded[cache], rows.masks, rows.level)
                batches.setdefault(kind_of(share.inputs), []).append(share)
            except Exception as error:
                self._abandon(share, error)
        return list(batches.values())

    def _release(self, cache: Cache, keys: Sequence[Key]) -> None:
        cache.release(keys)
        self.unwritten[cache] = None

    def _take(self) -> list[Share]:
        """Take the next batch's rows: small questions first, since large ones wait behind them."""
        shares: list[Share] = []
        room, mixes = self.batch_size, self.policy.mixes
        waiting = [(job, job._unsent) for job in self.open if job._unsent is not None]
        for job, unsent in sorted(waiting, key=lambda pair: len(pair[1])):
            masks = room // job.queries.rows_per_mask
            if shares and (masks == 0 or not mixes or _has_money(job)):  # whose rows may have prices of their own
                break
            rows, job._unsent = job.queries.take(unsent, max(masks, 1), bool(job._under_way))
            if not rows:
                continue
            job._under_way += 1
            shares.append(Share(job, rows))
            room -= shares[-1].size
        return shares

    def _call(self, batch: Sequence[Share]) -> Call:
        rows = sum(share.size for share in batch)
        what = str(batch[0].rows) if len(batch) == 1 else f"{rows} rows of {len(batch)} questions"
        return self.calls.begin([share.inputs for share in batch], rows, what)

    def _reply(self, batch: Sequence[Share], call: Call | None = None) -> Received:
        """What the model says of a batch, or its error; Ctrl-C is one too, for it may bring answers along."""
        try:
            return self._ask(batch, call)
        except (Exception, KeyboardInterrupt) as error:
            return Failed.of(error, sum(share.size for share in batch))

    def _ask(self, batch: Sequence[Share], call: Call | None = None) -> FloatArray:
        """The outputs of a batch; what they cost, answered or not, is divided among the rows."""
        call = call or self._call(batch)
        try:
            return call.outputs()
        finally:
            for share in batch:
                share.beside = share.cost + call.beside * share.size / call.rows
                share.cost += call.cost * share.size / call.rows

    def _receive(self, batch: list[Share], reply: Received) -> None:
        """Keep a batch's answers, or what the policy makes of its failure."""
        if not isinstance(reply, Failed):
            reply = self.policy.answered(batch, reply)
        if not isinstance(reply, Failed):
            self._keep(_pieces(batch, reply))
        elif reply.interrupted:
            self._keep(_pieces(batch, reply))
            for sentence in self.unwritable.values():
                reply.error.add_note(sentence)
            raise reply.error
        else:
            for share, verdict in self.policy.failed(batch, reply, self._ask):
                if isinstance(verdict, Exception):
                    self._abandon(share, verdict)
                else:
                    self._keep([(share, verdict)])
        self.tell()

    def _abandon(self, share: Share, error: Exception) -> None:
        """End the job of a share of which nothing is to be recorded."""
        share.job._under_way -= 1
        self._release(share.job.queries.cache, share.rows.keys)
        if not share.job.ended:
            self._fail(share.job, error)

    def _keep(self, pieces: Sequence[tuple[Share, Received]]) -> None:
        """Record what came back for each share, even where its job ended meanwhile: it was paid for."""
        for share, piece in pieces:
            job = share.job
            job._under_way -= 1
            self.unwritten[job.queries.cache] = None
            try:
                job.queries.record(share.rows, piece, share.cost, share.beside)
            except QueryError as error:
                if not job.ended:
                    self._fail(job, error)
        self._write()  # before any solving: until then a killed process loses the answers

    def _write(self) -> None:
        """Commit the answers that came back, at once for all inputs: a commit waits for the disk."""
        rows: dict[Ledger, tuple[list[Row], list[Name]]] = {}
        for cache in self.unwritten:
            if cache.ledger is not None:
                answers, back = rows.setdefault(cache.ledger, ([], []))
                answers += cache.unwritten
                back += cache.back
            cache.unwritten.clear()
            cache.back.clear()
        self.unwritten.clear()
        for ledger, (answers, back) in rows.items():
            try:
                ledger.write(answers, back)
            except LedgerError as error:
                # The answers are here and paid for: finish the explanations, and say that they are not kept.
                sentence = f"{error}; answers from here on are not kept, and another run asks for them again"
                self.unwritable[ledger] = sentence
                for job in [job for job in (*self.open, *self.ended) if job.queries.cache.ledger is ledger]:
                    _keep_no_more(job, sentence)


def _has_money(job: Job[Any]) -> bool:
    return job.queries.purse.money is not None


def _keep_no_more(job: Job[Any], sentence: str) -> None:
    """Go on without the ledger, and say so: in the explanation, or with the error that ends the job."""
    job.queries.notes.append(sentence)
    job.queries.cache.ledger, job.queries.cache.unkept = None, sentence
    if job.error is not None:
        job.error.add_note(sentence)


@dataclass(frozen=True, eq=False)
class _Later:
    """A reply that is had by asking for it."""

    result: Callable[[], Received]


_Reply: TypeAlias = "Future[Received] | _Later"


def _pieces(batch: Sequence[Share], reply: Received) -> list[tuple[Share, Received]]:
    """Each share with its piece of a reply, or of the answers that a failure brought along."""
    outputs = reply.partial if isinstance(reply, Failed) else reply
    if outputs is None:
        return [(share, reply) for share in batch]
    ends = itertools.accumulate(share.size for share in batch)
    pieces: list[Any] = [outputs[end - share.size : end] for share, end in zip(batch, ends, strict=True)]
    if isinstance(reply, Failed):
        pieces = [Failed(reply.error, rows) for rows in pieces]
    return list(zip(batch, pieces, strict=True))
