"""A dataset of explanations: inputs in, a store out, on whichever engine, continued where it was left."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

from c2fa import engines
from c2fa._system import Signals, this_process
from c2fa.asking.ledger import LedgerError
from c2fa.batch.learning import Lesson
from c2fa.batch.packing import UNANSWERED, Item, ModelDownError, NoAnswerError, Report
from c2fa.batch.recipe import Divided, MakeModel, PortableExplainer, Recipe
from c2fa.batch.records import Precision, StoreError, Views, arrow
from c2fa.batch.sources import Pick, Source, digest, source
from c2fa.batch.store import Store
from c2fa.batch.worker import Assignment, MakeWorker, full_settings
from c2fa.engines import Contact, Crew, Done, Engine, Serving
from c2fa.explainer import Explainer
from c2fa.showing.progress import Bar

_SHARD = 256  # inputs in a file, where the number of inputs is not known
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


class BatchError(RuntimeError):
    """Some shards could not be finished; the others are in the store, and the same command continues."""


def many(
    explainer: Explainer | Callable[[], Explainer],
    inputs: Any,
    store: str | PathLike[str],
    *,
    engine: str | Engine = "processes",
    workers: int | None = None,
    models: int = 0,
    gpus: int = 0,
    model: MakeModel | None = None,
    column: Pick = None,
    key: Pick = None,
    shard_size: int | None = None,
    batch_size: int | None = None,
    tries: int = 3,
    timeout: float | None = None,
    patience: float = 60.0,
    in_flight: int = 1,
    precision: Precision = "float32",
    views: Views = "auto",
    retry_failed: bool = False,
    learn: int | None = None,
    budget_after: int | Sequence[int] | None = None,
    progress: bool | None = None,
) -> Store:
    """Explain every input of a dataset into a store; what the store has already is not done again.

    Parameters
    ----------
    explainer
        An explainer, which travels to the workers; or what makes one (a function, a ``Recipe``), so that each worker
        loads its own model.
    inputs
        A list or any iterable, a pandas, polars or Arrow table, or a file or folder of Parquet or JSONL. It is read
        as a stream, and in the same order in every run.
    store
        The folder of the results.
    engine
        ``"processes"``, ``"ray"``, ``"dask"``, ``"serial"``, or an engine of your own.
    workers
        How many. By default as many processes as pay, at most one for each core: one explains the first inputs, and
        others start where each has more to do than its start takes. ``store.run.workers`` tells how many there were.
        Ray and Dask start one for each core. Where processes of their own have the model, a core is left to each.
    models
        How many processes have the model and answer the workers, which then read, segment, draw masks and fit. 0, the
        default: each worker has a model of its own. ``store.run.loads`` tells how busy they were. It needs an explainer
        or a ``Recipe``, whose model can be made apart.
    gpus
        The same, with a GPU for each of these processes and none for the workers.
    model
        What makes the model where it is needed, instead of the explainer's own: a spec such as ``"demo"``, or a
        constructor.
    column, key
        For tables: the column that is the input and the one that names it, or functions of a row. A name must be
        different for every input: the ledger keeps answers under it, and it decides on the masks of an input that
        cannot be hashed.
    shard_size
        Inputs in one file. A shard is what may be lost when a machine dies; by default the store's own, else chosen.
    batch_size
        Rows sent to the model at a time, from as many inputs as it takes; by default the explainer's.
    tries
        How often an input that makes the model fail is tried alone, and how often it may kill or stall a worker,
        before it gets a row with its error.
    timeout
        Seconds that one call of the model may take (ten times that for the first). The process that has the model is
        ended then.
    patience
        Seconds without any answer before the run ends with ``ModelDownError``. No input is set aside for a model that
        is down, or that has not answered once.
    in_flight
        Batches that each worker sends at the same time, from threads: for endpoints, where a worker mostly waits.
    precision
        ``"float32"``, or ``"float64"`` where the stored numbers must be exact.
    views
        Whether what a report draws is kept: ``"auto"`` up to 16 KiB for each input, ``"all"`` or ``"none"``.
    retry_failed
        Whether to ask again about the inputs that an earlier run set aside.
    learn
        How many inputs to learn from: they are explained first, with the explainer's own budget, and what they teach
        (``c2fa.Prior``, ``prior.json`` in the store) is the prior of all others.
    budget_after
        The budget of those others; the same by default.
    progress
        Whether work of over a second shows a bar; None shows one in notebooks and terminals.

    Returns
    -------
    Store
        The store; its ``run`` says what this call did.

    Notes
    -----
    Ctrl-C and SIGTERM let the running shards finish and be written, and then end the run (with ``KeyboardInterrupt``
    or exit status 143); a second one ends it at once. The same call continues.
    """
    arrow()
    _at_least("models", models, 0)
    _at_least("gpus", gpus, 0)
    if models and gpus and models != gpus:
        raise ValueError(f"gpus={gpus} are {gpus} processes with a GPU each; leave out models={models}")
    on = engines.engine(engine)
    cores = os.cpu_count() or 1
    if models or gpus:  # beside the driver and the processes that have the model
        cores = max(cores - 1 - (models or gpus), 1)
    most = _at_least("workers", cores if workers is None else workers, 1)
    run = _Run(
        Store(store),
        source(inputs, column, key),
        retry_failed=retry_failed,
        tries=_at_least("tries", tries, 1),
        crew=Crew(1 if on is engines.serial else most, size=lambda task: len(task.items)),
    )
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision must be 'float32' or 'float64', not {precision!r}")
    if views not in ("auto", "all", "none"):
        raise ValueError(f"views must be 'auto', 'all' or 'none', not {views!r}")
    if timeout is not None and (engine == "serial" or not timeout > 0):
        raise ValueError(
            f"timeout must be seconds above 0, and needs workers that can be ended: engine={engine!r}, "
            f"timeout={timeout!r}"
        )
    lesson = None if learn is None else Lesson.of(explainer, learn, budget_after)
    if lesson is None and budget_after is not None:
        raise ValueError(f"budget_after={budget_after!r} is for inputs after those that were learned from; give learn=")
    size = run.shard_size(shard_size)
    if lesson is not None:
        size = lesson.shard_size(size, given=shard_size is not None)
    if on is engines.processes:
        run.crew.left = run.left if workers is None else None
        on = functools.partial(engines.processes, crew=run.crew)
    else:
        run.crew.used = run.crew.most
    served = models > 0 or gpus > 0

    def prepared(explainer: Explainer | Callable[[], Explainer]) -> tuple[MakeWorker, Serving | None]:
        """What the workers are made of, and how they share a model."""
        make, settings = _recipe(explainer, model, on is engines.serial and not served, size, precision)
        serving = None
        if served:
            make_model, make = _divided(make)
            serving = Serving(
                make_model,
                Contact(os.path.abspath(store), patience),
                models=models or gpus,
                gpu=gpus > 0,
                batch_size=_batch_size(explainer) if batch_size is None else batch_size,
                timeout=timeout,
            )
        bound = {} if lesson is None else lesson.bound
        if settings is not None:
            settings |= bound
            run.store.check(settings)
        elif isinstance(explainer, Recipe):
            known = full_settings(explainer.without_model(), size, precision)
            run.store.check({**known, **bound}, except_for=("model",))
        worker = MakeWorker(
            make=make,
            store=os.fspath(store),
            shard_size=size,
            run=run.id,
            batch_size=None if batch_size is None else _at_least("batch_size", batch_size, 1),
            tries=tries,
            timeout=timeout if serving is None else None,  # whoever has the model keeps the time
            patience=patience,
            in_flight=_at_least("in_flight", in_flight, 1),
            precision=precision,
            views=views,
            settings=settings,
            bound=bound,
        )
        return worker, serving

    with contextlib.closing(Bar(progress, run.source.total, "input", "explaining")) as bar:
        if lesson is not None:
            run.go(on, *prepared(explainer), bar, shards=lesson.inputs // size)
        if lesson is not None and run.held is not None:  # else the inputs to learn from are all that there are
            explainer = lesson.applied(explainer, run.store)
        run.go(on, *prepared(explainer), bar)
    done = Store(store)
    done.run = run.report
    return done


def _recipe(
    explainer: Explainer | Callable[[], Explainer],
    model: MakeModel | None,
    stays: bool,
    size: int,
    precision: Precision,
) -> tuple[Callable[..., Explainer], dict[str, Any] | None]:
    """What makes the explainer in a worker, and the settings where they can be known without loading a model.

    ``stays`` says that the worker is this very process.
    """
    if not isinstance(explainer, Explainer):
        if not callable(explainer):
            raise TypeError(
                f"explainer must be a c2fa.Explainer or a function that makes one, not {type(explainer).__name__}"
            )
        if model is not None:
            raise ValueError("model= goes with an explainer; a function that makes one makes its model too")
        return explainer, None
    settings = full_settings(explainer, size, precision)
    if stays and model is None:
        return lambda: explainer, settings
    return PortableExplainer.of(explainer, model), settings


def _divided(make: Callable[..., Explainer]) -> Divided:
    divided: Callable[[], Divided] | None = getattr(make, "divided", None)
    if divided is None:
        raise TypeError(
            "models= and gpus= need a model that can be made apart from its explainer: give an explainer, or "
            "c2fa.batch.Recipe(model, masker, options) in place of a function that makes both"
        )
    return divided()


def _batch_size(explainer: Explainer | Callable[[], Explainer]) -> int | None:
    """The explainer's rows in a batch, where they are known before the model is made."""
    if isinstance(explainer, Recipe):
        return explainer.options.get("batch_size")
    return explainer.batch_size if isinstance(explainer, Explainer) else None


def _at_least(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


@dataclass(eq=False)
class _Run:
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

    def shard_size(self, wanted: int | None) -> int:
        """The size that the store has, the one that was asked for, or one that gives every worker a few shards."""
        if wanted is not None:
            return _at_least("shard_size", wanted, 1)
        there = self.store.settings.get("shard_size")
        if there is not None:
            return int(there)
        if self.source.total is None:
            return _SHARD
        several = 8 * self.crew.most if self.crew.most > 1 else 2  # so that no worker waits long for the last one
        return min(max(self.source.total // several, 8), _SHARD)

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
        if number not in _FULL + _FORBIDDEN:
            return None
        advice = "Make room" if number in _FULL else "See that the folder can be written, or give another"
        fatal = BatchError(
            f"cannot write to {str(self.store.path)!r}: {os.strerror(number)}; {self._written()}. {advice}, and the "
            "same command continues"
        )
        fatal.__cause__ = error
        return fatal

    def _written(self) -> str:
        return f"{self.report.inputs} inputs were written by this run"


def _leave(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt("stopped; the same command continues")
    raise SystemExit(128 + number)
