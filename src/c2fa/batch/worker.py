"""What one worker does: it loads the model once, and turns shards of inputs into files of the store.

Its journal, a side file, tells the next worker where this one died.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2fa._system import from_outside
from c2fa.asking.fingerprint import check_masker, fingerprint, identify
from c2fa.asking.ledger import Ledger, LedgerError
from c2fa.asking.model import Model, ModelProxy, describe, innermost
from c2fa.batch.isolation import Health, Isolation, ModelDownError, NoAnswerError, Report
from c2fa.batch.packing import Item, Outcome, ask_again, packed, prediction_row, together
from c2fa.batch.records import Precision, StoreError, Views, read, write
from c2fa.batch.sources import digest
from c2fa.batch.store import Store, settings_of
from c2fa.engines import Journal, Loads, RemoteModel
from c2fa.engines.load import TimeLimit

if TYPE_CHECKING:
    from c2fa.batch.run import Lesson
    from c2fa.explainer import Explainer
    from c2fa.priors.prior import Prior

_CANARY = (0, 0)  # the range of no input: an input that was explained before is asked about


@dataclass(frozen=True, eq=False)
class Assignment:
    """A shard's number and its inputs.

    ``canary`` is an input that is explained already, where one is known; ``retry`` asks those inputs of a finished
    shard again that were set aside.
    """

    number: int
    items: Sequence[Item]
    canary: Item | None = None
    retry: bool = False


@dataclass(frozen=True, eq=False)
class MakeWorker:
    """Everything a worker needs, ready to travel; calling it loads the model, or takes one, and gives the worker.

    ``settings`` are the explainer's, where they are known; ``bound`` are those of the store alone. ``prior`` is what
    earlier inputs of the store taught.
    """

    make: Callable[..., Explainer]
    store: str
    shard_size: int
    run: str
    batch_size: int | None
    tries: int
    timeout: float | None
    patience: float
    in_flight: int
    precision: Precision
    views: Views
    settings: Mapping[str, Any] | None
    bound: Mapping[str, Any]
    lesson: Lesson
    prior: Prior | None = None

    def __call__(self, model: Model | None = None) -> Worker:
        explainer = self.make() if model is None else self.make(model)
        settings = self.settings
        if settings is None:
            settings = settings_of(explainer, **self.bound)
            Store(self.store).check(settings)
        if self.lesson.stages:
            explainer.with_prior(None, self.lesson.budget_after)  # refused before the lesson is paid
        if self.prior is not None:
            explainer = explainer.with_prior(self.prior, self.lesson.budget_after)
        vary = describe(explainer.model).outputs_vary
        return Worker(self, explainer, settings, Health(self.patience, vary, on_answer=self._tell_the_run))

    def _tell_the_run(self) -> None:
        """The model has answered this worker, so that it is not down."""
        with contextlib.suppress(OSError):
            Store(self.store).sign_of_life(self.run).touch()


@dataclass(eq=False)
class Worker:
    """Explains one shard after another with one explainer."""

    made: MakeWorker
    explainer: Explainer
    settings: Mapping[str, Any]
    health: Health
    canary: Item | None = None
    _watchdog: Watchdog | None = field(default=None, repr=False)

    def __call__(self, task: Assignment) -> Report:
        """Explain a shard's inputs and write its file; what is explained in a finished shard is left as it is."""
        begin = time.monotonic()
        store = Store(self.made.store)
        items = task.items
        if store.file(task.number).exists():
            again = {failure.index for failure in store.failures(task.number)} if task.retry else set()
            items = [item for item in items if item.index in again]
        if not items:
            return Report()
        store.path.mkdir(parents=True, exist_ok=True)
        report = Report()
        self._learn(task.canary)
        name = f"_part-{task.number:08d}-{fingerprint(dict(self.settings), digest(items))[:8]}"
        with ShardJournal(store.path / f"{name}.journal", self.made.run) as journal:
            outcomes = self._explain(items, journal, report)
            store.write(
                task.number,
                outcomes,
                self.settings,
                digest=digest(task.items),
                precision=self.made.precision,
                views=self.made.views,
            )
            journal.remove()
        model = innermost(self.explainer.model)
        if isinstance(model, RemoteModel):
            report.loads = Loads(model.loads)
        report.inputs = len(outcomes)
        report.failed = sum(o.explanation is None for o in outcomes)
        report.seconds = time.monotonic() - begin
        return report

    def _explain(self, items: Sequence[Item], journal: ShardJournal, report: Report) -> list[Outcome]:
        model: Model = self.explainer.model
        if self.made.timeout is not None:
            self._watchdog = self._watchdog or Watchdog(model, self.made.timeout, journal)
            self._watchdog.journal = journal
            model = self._watchdog
        outcomes: list[Outcome] = []
        isolation = Isolation(self.made.tries, self.health, report)
        plan = journal.plan(len(items))
        for start, stop in plan:
            kept = journal.recall(start, stop)
            if kept is not None:
                outcomes += kept
                explained = {outcome.index for outcome in kept if outcome.explanation is not None}
                self._learn(next((item for item in items if item.index in explained), None))
                continue
            explainer, known = self.explainer, 0
            if stop - start == 1 and journal.deaths:  # it may be set aside for what happens next
                explainer = self._with_ledger(journal)
                known = _answers_kept(explainer, items[start])
                died = journal.died((start, stop), known)
                if died:
                    self._see_that_it_answers(journal, model, isolation)
                if len(died) >= self.made.tries:
                    outcomes.append(self._set_aside(items[start], journal, died))
                    continue
            journal.at(start, stop, known=known)
            found = packed(
                explainer,
                together(items[start:stop]),
                batch_size=self.made.batch_size,
                in_flight=self.made.in_flight,
                model=model,
                isolation=isolation,
            )
            outcomes += found if len(plan) == 1 else journal.keep(start, stop, list(found))
        return outcomes

    def _learn(self, canary: Item | None) -> None:
        """Remember an input that is explained, by which to tell whether the model is down."""
        if self.canary is None and canary is not None:
            self.canary = canary
            self.health.find_canary = functools.partial(prediction_row, self.explainer, canary)

    def _with_ledger(self, journal: ShardJournal) -> Explainer:
        """The explainer with a ledger, its own or one beside the journal, so that each life gets further than the last.

        What kills a worker is then told from what only keeps it busy: it dies again with no answer more.
        """
        explainer = self.explainer
        if explainer.ledger is None:
            with contextlib.suppress(LedgerError, TypeError):  # a masker, or a disk, of which none can be kept
                check_masker(explainer.masker)
                ledger = journal.answers()
                explainer = copy(explainer)
                explainer.ledger = ledger
                explainer.model_name = explainer.model_name or describe(explainer.model).called
        return explainer

    def _set_aside(self, item: Item, journal: ShardJournal, died: Sequence[str]) -> Outcome:
        """What becomes of an input that no worker survived, unless the model has answered none of them anything."""
        reason = f"{died[-1]} while this input was explained alone ({len(died)} times)"
        if not Store(self.made.store).sign_of_life(self.made.run).exists():
            journal.forget()
            raise NoAnswerError(
                f"the model has not answered once (input {item.index}: {reason}); no input is set aside for it. Try it "
                "on one input, then run the same command again"
            )
        return Outcome(item.index, item.key, None, reason)

    def _see_that_it_answers(self, journal: ShardJournal, model: Model, isolation: Isolation) -> None:
        """Workers died of an input: see first whether the model answers what it answered before."""
        if self.canary is None:
            return
        if len(journal.died(_CANARY)) >= self.made.tries:
            journal.forget()
            raise ModelDownError(
                f"{self.made.tries} workers died while they asked the model what it answered before; no input is set "
                "aside for it. See that it runs, then run the same command again"
            )
        journal.at(*_CANARY)
        ask_again(self.explainer, self.canary, model, isolation)


def _answers_kept(explainer: Explainer, item: Item) -> int:
    """The rows of an input that the explainer's ledger has answers for."""
    if explainer.ledger is None:
        return 0
    try:
        key = identify(item.x, item.key, explainer.masker).key
    except Exception:  # a user's type may do anything when it is read
        return 0
    return explainer.ledger.count(explainer.model_name or "", key)


class Watchdog(ModelProxy):
    """A model with a time limit; the journal is told before the process ends."""

    def __init__(self, model: Model, timeout: float, journal: ShardJournal) -> None:
        super().__init__(model)
        self.journal = journal  # of the shard under way
        self._limit = TimeLimit(timeout, lambda reason: self.journal.late(reason))

    def __call__(self, batch: Any) -> Any:
        with self._limit:
            return self.model(batch)


class ShardJournal(Journal):
    """A side file that says which inputs a worker is at, so that the next one knows where the last one died.

    A shard begins as one range. Where a worker died, the range is tried again in smaller pieces, down to the
    single input that kills; that one is set aside after the stated number of crashes with no answer in between. Pieces
    that are done are kept beside it, and answers about an input that is tried alone, so that even workers that are
    killed all the time get on. No engine needs to know.
    """

    def __init__(self, path: Path, run: str) -> None:
        super().__init__(path, run)
        self._answers: Ledger | None = None

    def __enter__(self) -> ShardJournal:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # An error is no crash, nor is Ctrl-C; whatever else gets here ends the process, and may be an input's doing.
        if error is not None and self.path.exists() and (isinstance(error, Exception) or from_outside(error)):
            with contextlib.suppress(OSError):
                self.leave()
        if self._answers is not None:
            self._answers.close()

    def forget(self) -> None:
        """The history is no longer of use: the shard is written, or it was no input's doing."""
        self.path.unlink(missing_ok=True)

    def remove(self) -> None:
        """The shard is written: forget its history, and what was kept of it."""
        self.forget()
        if self._answers is not None:
            self._answers.close()
        for pattern in (f"{self.path.stem}-*.kept", f"{self.path.stem}.answers*"):
            for kept in self.path.parent.glob(pattern):
                kept.unlink(missing_ok=True)

    def answers(self) -> Ledger:
        """A ledger for inputs that are tried alone."""
        if self._answers is None:
            self._answers = Ledger(self.path.with_suffix(".answers"))
        return self._answers

    def keep(self, start: int, stop: int, outcomes: list[Outcome]) -> list[Outcome]:
        """Keep what became of a range until the shard is whole, exactly; return it."""
        write(self._kept(start, stop), outcomes, "float64", "all", {})
        return outcomes

    def recall(self, start: int, stop: int) -> list[Outcome] | None:
        """What an earlier worker kept of a range, or None where there is nothing that can be read."""
        file = self._kept(start, stop)
        with contextlib.suppress(StoreError):
            return read(file) if file.exists() else None
        return None

    def _kept(self, start: int, stop: int) -> Path:
        return self.path.with_name(f"{self.path.stem}-{start}-{stop}.kept")

    def died(self, place: tuple[int, int], known: int = 0) -> list[str]:
        """Why workers died in a range, those alone that its input can be blamed for.

        A worker that died with its run is no input's doing, nor one that died when fewer answers were ``known``: those
        after it got further.
        """
        deaths = [death for death in self.deaths.get(place, []) if not death.with_its_run and death.known >= known]
        return [death.reason or "the worker died" for death in deaths]

    def plan(self, count: int) -> list[tuple[int, int]]:
        """The ranges to try.

        A range in which a worker died, for whichever reason, is cut into pieces, which can be kept one by one.
        Those in which no one died come first: workers that are killed by something else then die in different
        ranges, and only an input that kills each time collects its crashes.
        """
        ranges: list[tuple[int, int]] = []

        def cut(start: int, stop: int) -> None:
            if (start, stop) in self.deaths and stop - start > 1:
                size = -(-(stop - start) // 8)
                for at in range(start, stop, size):
                    cut(at, min(at + size, stop))
            else:
                ranges.append((start, stop))

        cut(0, count)
        return sorted(ranges, key=lambda r: len(self.deaths.get(r, ())))
