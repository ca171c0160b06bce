"""One run over a dataset: which shards are pending, what failed, what ends it, and when it learns."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from c2fa._system import Signals, at_least, is_whole, this_process
from c2fa.asking.ledger import LedgerError
from c2fa.batch.isolation import UNANSWERED, ModelDownError, NoAnswerError, Report
from c2fa.batch.packing import Item
from c2fa.batch.records import StoreError
from c2fa.batch.sources import Source, digest
from c2fa.batch.store import Store
from c2fa.batch.worker import Assignment, MakeWorker
from c2fa.engines import Crew, Done, Engine, Serving
from c2fa.methods.budget import Budget, rows_and_money
from c2fa.priors.learning import FOLDS
from c2fa.priors.prior import Prior
from c2fa.showing.progress import Bar


class BatchError(RuntimeError):
    """Some shards could not be finished; the others are in the store, and the same command continues."""


@dataclass(eq=False)
class Run:
    """One call of ``many``: which shards are pending, what failed, and whether it was asked to stop.

    It judges the model for all workers: one that has answered none of them is down, and one that has answered any is
    not. ``canary`` is an input that is explained, by which a worker can tell.
    """

    store: Store
    source: Source
    retry_failed: bool
    tries: int
    crew: Crew
    id: str = field(default_factory=this_process)
    report: Report = field(default_factory=Report)
    canary: Item | None = None
    given: int = 0
    complete: set[int] = field(default_factory=set)
    stopped: int | None = None
    numbered: Iterator[tuple[int, list[Item]]] | None = None  # the shards that were not looked at yet
    held: tuple[int, list[Item]] | None = None  # the first of those that wait for what others teach
    failed: list[Done] = field(default_factory=list)
    fatal: Exception | None = None

    def shard_size(self, wanted: int | None, most: int = 256) -> int:
        """The size that the store has, the one that was asked for, or one that gives every worker a few shards."""
        if wanted is not None:
            return at_least("shard_size", wanted, 1)
        there = self.store.settings.get("shard_size")
        if there is not None:
            return int(there)
        if self.source.total is None:
            return most
        several = 8 * self.crew.most if self.crew.most > 1 else 2  # so that no worker waits long for the last one
        return min(max(self.source.total // several, 8), most)

    def left(self) -> int | None:
        """How many inputs are neither finished nor given to a worker, where that is known."""
        return None if self.source.total is None else max(self.source.total - self.given, 0)

    @property
    def ending(self) -> bool:
        """Whether no further shard is to be begun."""
        return self.stopped is not None or self.fatal is not None

    def pending(self, size: int, bar: Bar, shards: int | None = None) -> Iterator[Assignment]:
        """The shards that have no file yet, or inputs to be asked about again, until the run is ending.

        With ``shards``, the first so many; those behind them come when it is called again.
        """
        finished = set(self.store.finished())
        self.given = len(finished) * size
        if self.numbered is None:
            self.numbered = enumerate(self.source.shards(size))
        held, self.held = ([] if self.held is None else [self.held]), None
        for number, items in itertools.chain(held, self.numbered):
            if self.ending:
                return
            if shards is not None and number >= shards:
                self.held = number, items
                return
            if number not in finished:
                self.given += len(items)
                yield Assignment(number, items, self.canary)
                continue
            self._check_inputs(number, items)
            self._learn(number, items)
            again = len(self.store.failures(number)) if self.retry_failed else 0
            bar.skip(len(items) - again)
            if again:
                yield Assignment(number, items, self.canary, retry=True)

    def _learn(self, number: int, items: Sequence[Item]) -> None:
        """A shard is finished: remember it, and an input that it explains."""
        self.complete.add(number)
        if self.canary is None:
            failed = {failure.index for failure in self.store.failures(number)}
            self.canary = next((item for item in items if item.index not in failed), None)

    def _check_inputs(self, number: int, items: Sequence[Item]) -> None:
        """Refuse inputs that are not those a finished shard was made from."""
        shard, now = self.store.shard(number), digest(items)
        if shard.rows != len(items) or (None not in (shard.digest, now) and shard.digest != now):
            raise StoreError(
                f"inputs {items[0].index} to {items[-1].index} are not those that shard {number} of "
                f"{str(self.store.path)!r} was made from ({shard.rows} inputs there, {len(items)} now); give the "
                "same inputs in the same order, or another folder"
            )

    def go(self, run: Engine, worker: MakeWorker, serving: Serving | None, bar: Bar, shards: int | None = None) -> None:
        """Run the pending shards, and again those that fail; raise what ended the run, if anything did."""
        tasks: Iterable[Assignment] = self.pending(worker.shard_size, bar, shards)
        try:
            self.store.path.mkdir(parents=True, exist_ok=True)
            self.store.sweep()
        except OSError as error:
            raise (self._fatal(error) or error) from error
        with Signals(self._asked_to_stop), contextlib.ExitStack() as stack:
            if serving is not None:
                stack.callback(serving.contact.clear)
            for round_ in range(max(self.tries, 2)):  # what is postponed for want of a canary needs a second
                if round_:
                    tasks, self.failed = [replace(done.task, canary=self.canary) for done in self.failed], []
                    time.sleep(min(2.0 ** (round_ - 1), 5.0))
                for done in run(worker, tasks, workers=self.crew.most, serving=serving):
                    self._note(done, bar)
                self.fatal = self.fatal or self._never_answered(least=1)
                if not self.failed or self.ending:
                    break
        self.store.sweep()
        sign = self.store.sign_of_life(self.id)
        if sign.exists():  # a finished store has none, and may be where nothing can be removed
            sign.unlink(missing_ok=True)
        self._raise_what_ended_it()

    def _raise_what_ended_it(self) -> None:
        if self.fatal is not None:
            raise self.fatal
        if self.stopped is not None:
            _leave(self.stopped)
        if self.failed:
            first = self.failed[0]
            raise BatchError(
                f"{len(self.failed)} shards could not be finished in {self.tries} tries (shard {first.task.number}: "
                f"{type(first.error).__name__}: {first.error}); the others are in {str(self.store.path)!r}, and the "
                "same command continues"
            ) from first.error
        lost = self.complete.difference(self.store.finished())
        if lost:
            raise BatchError(
                f"{len(lost)} shards that were finished are no longer in {str(self.store.path)!r} (first: "
                f"{self.store.file(min(lost)).name}): they were deleted during the run. The same command explains "
                "their inputs again"
            )

    def _asked_to_stop(self, number: int) -> None:
        """End once the shards under way are written; asked a second time, at once."""
        if self.stopped is not None:
            _leave(number)
        self.stopped = number
        print(
            "\nfinishing and writing the shards under way; press Ctrl-C again to leave them",
            file=sys.stderr,
            flush=True,
        )

    def _note(self, done: Done, bar: Bar) -> None:
        if done.error is None:
            self.report = replace(self.report + done.result, workers=self.crew.used)
            if self.store.file(done.task.number).exists():  # else it was deleted, which is told at the end
                self._learn(done.task.number, done.task.items)
            self.complete.add(done.task.number)
            bar.update(self.report.inputs, self.report.so_far(bar.seconds))
            return
        self.failed.append(done)
        self.fatal = self.fatal or self._fatal(done.error)

    def _never_answered(self, least: int) -> NoAnswerError | None:
        """The error of a model that has answered no worker, once so many inputs of failed shards were asked about."""
        silent = [done for done in self.failed if isinstance(done.error, NoAnswerError)]
        if sum(len(done.task.items) for done in silent) < least or self.store.sign_of_life(self.id).exists():
            return None
        error = silent[0].error
        assert isinstance(error, NoAnswerError)
        return error

    def _fatal(self, error: Exception) -> Exception | None:
        """What ends the run, where it is of no use to go on with other shards."""
        if isinstance(error, NoAnswerError):  # a whole shard of bad inputs looks the same, until others are answered
            return self._never_answered(least=UNANSWERED)
        if isinstance(error, ModelDownError | StoreError | ImportError):
            return error
        if isinstance(error, LedgerError):
            error.add_note(f"{self._written()}; no input is set aside for it, and the same command continues")
            return error
        number = error.errno if isinstance(error, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT):
            advice = "Make room"
        elif number in (errno.EROFS, errno.EACCES, errno.EPERM):
            advice = "See that the folder can be written, or give another"
        else:
            return None
        fatal = BatchError(
            f"cannot write to {str(self.store.path)!r}: {os.strerror(number)}; {self._written()}. {advice}, and the "
            "same command continues"
        )
        fatal.__cause__ = error
        return fatal

    def _written(self) -> str:
        return f"{self.report.inputs} inputs were written by this run"


@dataclass(frozen=True, eq=False)
class Lesson:
    """After how many inputs to learn, none where nothing is to be learned, and the budget of those behind the first.

    After each stage the prior is learned anew from all inputs so far, and it serves those of the next stage. No stage
    begins before the one before it is whole, so that numbers do not depend on the order of workers.
    """

    stages: tuple[int, ...]
    budget_after: Budget | str | None

    @classmethod
    def of(cls, learn: int | Sequence[int] | None, budget_after: int | Sequence[int] | str | None) -> Lesson:
        """Refuse what cannot be done before anything is explained."""
        after: Budget | str | None = None
        if budget_after is not None:
            rows, money = rows_and_money(budget_after)
            after = rows if money is None else money.text
        if learn is None:
            if after is not None:
                raise ValueError(
                    f"budget_after={budget_after!r} is for inputs after those that were learned from; give learn="
                )
            return cls((), None)
        stages: tuple[Any, ...] = tuple(learn) if isinstance(learn, Sequence) else (learn,)
        if not stages or not all(is_whole(n) and n > 0 for n in stages):
            raise ValueError(
                f"learn must be a whole number of inputs above 0, or several such as (50, 200, 1000), not {learn!r}"
            )
        if stages[0] < FOLDS:
            raise ValueError(f"learn={learn!r}: fewer than {FOLDS} inputs teach nothing; learn from some hundreds")
        if any(n >= later for n, later in itertools.pairwise(stages)):
            raise ValueError(f"learn={learn!r} must increase: the prior is learned anew after so many inputs in all")
        return cls(tuple(map(int, stages)), after)

    @property
    def settings(self) -> dict[str, Any]:
        """What binds a store to it."""
        if not self.stages:
            return {}
        after = list(self.budget_after) if isinstance(self.budget_after, tuple) else self.budget_after
        return {"learn": list(self.stages) if len(self.stages) > 1 else self.stages[0], "budget_after": after}

    def shard_size(self, size: int, given: int | None) -> int:
        """A size of which the inputs of each stage are whole shards, so that numbers do not depend on it."""
        for stage in self.stages:
            if given is not None and stage % given:
                raise ValueError(
                    f"learn={stage} must be a multiple of shard_size={given}, so that the inputs to learn from are "
                    "whole shards"
                )
        while any(stage % size for stage in self.stages):
            size -= 1
        return size

    def learned(self, path: Path, stage: int) -> Prior:
        """What the inputs of a store up to a stage teach; what was learned once is kept there."""
        file = path / ("prior.json" if len(self.stages) == 1 else f"prior-{stage}.json")
        store = Store(path)
        if not file.exists():
            first = [e for _, e in itertools.takewhile(lambda item: item[0] < stage, store.items())]
            try:
                Prior.learn(first).save(file)
            except ValueError as error:
                failed = "".join(f" (input {failure.index}: {failure.error})" for failure in store.errors()[:1])
                raise ValueError(
                    f"learn={stage}: {len(first)} of the first {stage} inputs could be explained{failed}, and {error}; "
                    "see store.errors(), and give retry_failed=True, or other inputs and another folder"
                ) from error
        try:
            prior = Prior.load(file)
        except ValueError as error:
            raise StoreError(f"{error}; delete it, and the same command learns it again") from error
        end = next((later for later in self.stages if later > stage), math.inf)
        shards = (store.shard(number) for number in store.finished())
        served = (shard for shard in shards if stage <= shard.number * shard.settings["shard_size"] < end)
        used = {shard.shared.get("prior", prior.name) for shard in served}
        if not used <= {prior.name}:
            raise StoreError(
                f"{str(file)!r} is the prior {prior.name}, and inputs in the store were explained with "
                f"{min(used - {prior.name})}; put that one back, or give another folder"
            )
        return prior


def _leave(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt("stopped; the same command continues")
    raise SystemExit(128 + number)
