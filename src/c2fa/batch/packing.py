"""Many conversations at once: rows of different inputs packed into the same batches of the model.

A review may need 200 rows and a GPU want 1,024 at a time. The masks are those of explaining one by one, and so are the
answers of a model that answers a row the same way in every batch.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from c2fa.batch.items import Item, ModelDownError, Outcome, Tally, Unreadable, kind, words
from c2fa.batch.keeping import BatchLedger
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.ledger import LedgerError
from c2fa.masking import Inputs
from c2fa.querying import (
    Ask,
    BudgetError,
    Conversation,
    Model,
    Pending,
    Queries,
    QueryError,
    as_outputs,
    join,
    step,
)
from c2fa.structure import FloatArray

__all__ = ["Item", "ModelDownError", "Outcome", "Tally", "Unreadable", "packed"]

_AHEAD = 4  # open as many inputs as can still fill this many batches
_UNANSWERED = 10  # so many inputs failing before the first answer is the model's fault


def packed(
    explainer: Explainer,
    items: Iterable[Item],
    *,
    batch_size: int | None = None,
    tries: int = 3,
    patience: float = 60.0,
    in_flight: int = 1,
    model: Model | None = None,
    tally: Tally | None = None,
) -> Iterator[Outcome]:
    """Explain inputs with their rows packed into shared batches; yield each as soon as it is done.

    An input that fails, or that makes the model fail, is set aside with its error and the others go on.

    Parameters
    ----------
    items
        The inputs, read as they are needed: memory does not depend on how many there are.
    batch_size
        Rows sent to the model at a time; the explainer's own where it is None.
    tries
        How often the rows of one input are sent by themselves, when the model raises, before it is set aside.
    patience
        Seconds to wait for a model that no longer answers even what it answered before, until ``ModelDownError``.
    in_flight
        Batches sent at the same time, each from a thread of its own: for models that wait for something else than
        this machine's cores.
    model
        What to call instead of the explainer's model, for instance a model with a time limit around it.
    tally
        Where to count what was sent.

    Examples
    --------
    >>> import c2fa
    >>> s = c2fa.Structure.from_groups("aab")
    >>> explainer = c2fa.Explainer(lambda batch: batch.sum(axis=1), c2fa.maskers.Array(s), budget=9)
    >>> items = [Item(0, [1.0, 2.0, 3.0]), Item(1, "not a vector"), Item(2, [0.0, 0.0, 1.0])]
    >>> [(o.index, o.error is None) for o in sorted(packed(explainer, items), key=lambda o: o.index)]
    [(0, True), (1, False), (2, True)]
    """
    if tries < 1:
        raise ValueError(f"tries must be at least 1, not {tries!r}")
    size = explainer.batch_size if batch_size is None else batch_size
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, not {size!r}")
    if in_flight < 1:
        raise ValueError(f"in_flight must be at least 1, not {in_flight!r}")
    ledger = None
    if explainer.ledger is not None:
        ledger = BatchLedger(explainer.ledger)
        explainer = copy.copy(explainer)
        explainer.ledger = ledger
    tally = Tally() if tally is None else tally
    packer = _Packer(explainer, model or explainer.model, size, tries, patience, in_flight, tally, ledger)
    try:
        yield from packer.run(iter(items))
    finally:
        packer.close()


@dataclass(eq=False)
class _Job:
    """One input on its way: its conversation, the question it waits on, and the rows not yet sent."""

    item: Item
    queries: Queries
    conversation: Conversation[Explanation]
    ask: Ask | None = None
    waiting: Pending | None = None
    away: int = 0
    cost: float = 0.0


@dataclass(eq=False)
class _Part:
    """Rows of one job that go into one batch."""

    job: _Job
    rows: Pending
    inputs: Inputs = None


@dataclass(eq=False)
class _Packer:
    explainer: Explainer
    model: Model
    size: int
    tries: int
    patience: float
    in_flight: int
    tally: Tally
    ledger: BatchLedger | None
    jobs: list[_Job] = field(default_factory=list)
    done: list[Outcome] = field(default_factory=list)
    answered: list[_Job] = field(default_factory=list)
    canary: _Part | None = None
    unanswered: int = 0
    away: dict[Future[FloatArray], list[_Part]] = field(default_factory=dict)
    threads: ThreadPoolExecutor | None = None
    paid: float = 0.0

    def run(self, items: Iterator[Item]) -> Iterator[Outcome]:
        self.paid = float(getattr(self.model, "cost", None) or 0.0)
        if self.in_flight > 1:
            self.threads = ThreadPoolExecutor(self.in_flight, "c2fa-batch")
        more, ahead = True, (_AHEAD + self.in_flight - 1) * self.size
        while True:
            left = sum(job.queries.budget - job.queries.used for job in self.jobs)
            while more and left < ahead:
                item = next(items, None)
                if item is None:
                    more = False
                    break
                self._open(item)
                if self.done:
                    break  # errors and recalled inputs are handed out before more is read
                left += self.jobs[-1].queries.budget
            self._send()
            yield from self.done
            self.done.clear()
            if not (self.jobs or more):
                return

    def close(self) -> None:
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)
        for job in self.jobs:
            job.conversation.close()

    # -- conversations -----------------------------------------------------------------------------

    def _open(self, item: Item) -> None:
        try:
            if isinstance(item.x, Unreadable):
                raise ValueError(item.x)
            masked = self.explainer.masker(item.x)
            queries = self.explainer.queries(item.x, masked, item.key)
        except Exception as error:
            self.done.append(_failed(item, error))
            return
        job = _Job(item, queries, self.explainer.conversation(masked, queries))
        self.jobs.append(job)
        self._advance(job)

    def _advance(self, job: _Job) -> None:
        """Answer the job's question and go on to its next that needs the model, or to its end."""
        try:
            while True:
                answer = None if job.ask is None else job.queries.answer(job.ask)
                before = job.queries.recalled
                job.ask, result = step(job.conversation, answer)
                if job.ask is None:
                    assert result is not None
                    self._finish(job, Outcome(job.item.index, job.item.key, self._own(job, result)))
                    return
                pending = job.queries.plan(job.ask)
                self.tally.recalled += job.queries.recalled - before
                if len(pending):
                    job.waiting = pending
                    return
        except Exception as error:  # a method or a masker of a stranger may raise anything
            self._fail(job, error)

    def _own(self, job: _Job, result: Explanation) -> Explanation:
        """Put this input's share of the cost in place of what all inputs cost while it was open."""
        if result.diagnostics.cost is None:
            return result
        return dataclasses.replace(result, diagnostics=dataclasses.replace(result.diagnostics, cost=job.cost))

    def _finish(self, job: _Job, outcome: Outcome) -> None:
        self.jobs.remove(job)
        self.done.append(outcome)

    def _fail(self, job: _Job, error: Exception) -> None:
        job.conversation.close()
        self._finish(job, _failed(job.item, error))

    # -- batches -----------------------------------------------------------------------------------

    def _take(self) -> list[_Part]:
        """The next batch's rows: small questions first, since large ones wait behind them."""
        parts, room = [], self.size
        for job in sorted(self.jobs, key=lambda j: len(j.waiting) if j.waiting is not None else 0):
            if job.waiting is None or room == 0:
                continue
            rows = job.waiting[:room]
            left = job.waiting[len(rows) :]
            job.waiting = left if len(left) else None
            job.away += 1
            parts.append(_Part(job, rows))
            room -= len(rows)
        return parts

    def _send(self) -> None:
        """Send batches until enough are under way, and take in the first that comes back."""
        while len(self.away) < self.in_flight and (parts := self._take()):
            for batch in self._alike(parts):
                if self.threads is None:
                    future: Future[FloatArray] = Future()
                    try:
                        future.set_result(self._call(batch))
                    except Exception as error:
                        future.set_exception(error)
                else:
                    future = self.threads.submit(self._call, batch)
                self.away[future] = batch
        for future in wait(self.away, return_when=FIRST_COMPLETED).done if self.away else ():
            self._receive(self.away.pop(future), future)
            self._keep()  # before any solving: until then a killed process loses the answers
            for job in self.answered:
                self._advance(job)
            self.answered.clear()

    def _alike(self, parts: list[_Part]) -> Iterable[list[_Part]]:
        """Make the masked inputs, and put those together that can be joined."""
        batches: dict[Any, list[_Part]] = {}
        for part in parts:
            try:
                part.inputs = part.job.queries.inputs(part.rows)
                batches.setdefault(kind(part.inputs), []).append(part)
            except Exception as error:
                self._fail(part.job, error)
        return batches.values()

    def _receive(self, batch: list[_Part], future: Future[FloatArray]) -> None:
        error = future.exception()
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            for part in batch:
                self._apart(part, error, tried=int(len(batch) == 1))
            return
        self._count(batch)
        outputs, start = future.result(), 0
        for part in batch:
            self._record(part, outputs[start : start + len(part.rows)])
            start += len(part.rows)

    def _keep(self) -> None:
        """Commit the answers of a batch; where that fails, say so and go on without."""
        try:
            if self.ledger is not None:
                self.ledger.flush()
        except LedgerError as error:
            note = f"{error}; the explanation goes on, but its answers from here on are not kept"
            self.ledger = self.explainer.ledger = None
            for job in self.jobs:
                job.queries.ledger = None
                job.queries.notes.append(note)

    def _ask(self, batch: list[_Part]) -> None:
        try:
            outputs = self._call(batch)
        except Exception as error:
            for part in batch:
                self._apart(part, error, tried=int(len(batch) == 1))
            return
        start = 0
        for part in batch:
            self._record(part, outputs[start : start + len(part.rows)])
            start += len(part.rows)

    def _call(self, batch: Sequence[_Part]) -> FloatArray:
        reply, rows = self.model(join([part.inputs for part in batch])), sum(len(part.rows) for part in batch)
        return as_outputs(reply, rows, f"querying {rows} rows of {len(batch)} inputs")

    def _count(self, batch: Sequence[_Part]) -> None:
        """Note what an answered batch took."""
        rows = sum(len(part.rows) for part in batch)
        cost = float(getattr(self.model, "cost", None) or 0.0)
        spent, self.paid = cost - self.paid, cost
        for part in batch:
            part.job.cost += spent * len(part.rows) / rows
        self.tally.cost += spent
        self.tally.rows += rows
        self.tally.calls += 1
        if self.canary is None:
            first = batch[0]
            self.canary = _Part(first.job, first.rows[:1], first.inputs[:1])

    def _apart(self, part: _Part, error: Exception, tried: int) -> None:
        """Send one input's rows alone, to find whether it is the one that makes the model fail."""
        deadline = time.monotonic() + self.patience
        while True:
            if tried == self.tries:
                if not self._down():
                    break
                self._wait(deadline, error)
                tried = 0
            tried += 1
            self.tally.resent += len(part.rows)
            try:
                outputs = self._call([part])
            except Exception as again:
                error = again
            else:
                self._count([part])
                self._record(part, outputs)
                return
        if self.canary is None:
            self.unanswered += 1
            if self.unanswered >= _UNANSWERED:
                raise ModelDownError(
                    f"the model failed for each of the first {self.unanswered} inputs (last: {words(error)}); "
                    "try it on one input, then run the same command again"
                )
        self._record(part, error, f"{words(error)} (sent alone {self.tries} times)")

    def _down(self) -> bool:
        """Whether the model fails on a row that it answered before."""
        if self.canary is None:
            return False
        try:
            self.tally.resent += 1
            self.model(self.canary.inputs)
        except Exception:
            return True
        return False

    def _wait(self, deadline: float, error: Exception) -> None:
        """Wait until the model answers again."""
        pause = 0.25
        while True:
            if time.monotonic() + pause > deadline:
                raise ModelDownError(
                    f"the model no longer answers, not even rows that it answered before, for {self.patience:g} s "
                    f"({words(error)}); see that it runs, then run the same command again"
                )
            time.sleep(pause)
            if not self._down():
                return
            pause = min(pause * 2, 5.0)

    def _record(self, part: _Part, reply: FloatArray | Exception, where: str = "") -> None:
        job = part.job
        job.away -= 1
        if job not in self.jobs:
            return  # another part of it failed
        try:
            job.queries.record(part.rows, reply)
        except QueryError as error:
            self._fail(job, QueryError(where) if where else error)
            return
        if job.waiting is None and job.away == 0:
            self.answered.append(job)


def _failed(item: Item, error: Exception) -> Outcome:
    plain = isinstance(error, QueryError | BudgetError | ValueError | TypeError)
    return Outcome(item.index, item.key, None, str(error) if plain and str(error) else words(error))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
