"""Who does the inputs of an evaluation: this process, or workers, with a model of their own or around one."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from c2fa._system import Lines
from c2fa.asking.model import Model
from c2fa.engines import Contact, Done, Engine, Load, RemoteModel, Serving, Work, WorkerError
from c2fa.engines import engine as engine_of
from c2fa.evaluation.plan import Grid, Plan, Task
from c2fa.evaluation.results import Record, Store
from c2fa.models import Lazy


@dataclass(frozen=True, eq=False)
class Keeping:
    """Where a store is, and a hash of what it is for: made once, for some options have other texts elsewhere."""

    folder: Path
    settings: str
    keep_answers: bool

    def open(self) -> Store:
        return Store(self.folder, self.settings, self.keep_answers)


@dataclass(frozen=True, eq=False)
class Finished:
    """The number of an input, what is kept of it (None where it could not begin in time), and the model's load."""

    number: int
    record: Record | None
    loads: Mapping[str, Load] = field(default_factory=dict)


@dataclass(frozen=True)
class _Attempts:
    """Counts how often each input was begun, in files that outlive a worker: one that kills is not tried for ever."""

    folder: str

    def begin(self, number: int, most: int = 3) -> None:
        """Note that an input is begun, or refuse it."""
        if not os.path.isdir(self.folder):  # a worker on another machine
            return
        lines = Lines(Path(self.folder) / f"{number}.begun")
        lines.note({"worker": os.getpid()})
        if len(list(lines.read())) > most:
            raise WorkerError(
                f"input {number} was begun {most} times, and its worker was killed each time: leave it out, or see "
                "that there is enough memory for it"
            )


@dataclass(frozen=True, eq=False)
class _MakeWorker:
    """Makes a worker where it runs, around a model of its own or the one that it is given there."""

    plan: Plan
    keeping: Keeping | None
    attempts: _Attempts
    model: Model | None = None

    def __call__(self, remote: RemoteModel | None = None) -> Work:
        model = self.model if remote is None else remote
        assert model is not None
        grid = self.plan.grid(model)
        store = None if self.keeping is None else self.keeping.open()

        def work(task: Task) -> Finished:
            place = grid.place(task, store)
            record = place.stored()  # whoever was killed may have finished it before
            if record is None:
                self.attempts.begin(task.number)
                record = grid.record(task, place)
            return Finished(task.number, record, {} if remote is None else remote.loads)

        return work


Team: TypeAlias = Callable[[Iterable[Task]], Iterator[Done]]
"""Workers that are started when there are tasks for them."""


@contextlib.contextmanager
def team_of(
    plan: Plan,
    keeping: Keeping | None,
    model: Model,
    workers: int,
    gpus: int,
    models: int,
    engine: str | Engine,
) -> Iterator[Team]:
    """The workers of an evaluation and, where they share the model, the processes that own it."""
    run = engine_of(engine)
    with tempfile.TemporaryDirectory(prefix="c2fa-") as here:
        make = _MakeWorker(plan, keeping, _Attempts(here))
        if not (gpus or models):
            yield functools.partial(run, replace(make, model=model), workers=workers)
            return
        contact = Contact(here if keeping is None else str(keeping.folder))  # which workers elsewhere see too
        serving = Serving(functools.partial(_made, model), contact, gpus or models, bool(gpus), plan.batch_size)
        try:
            yield functools.partial(run, make, workers=workers, serving=serving)
        finally:
            contact.clear()


def _made(model: Model) -> Model:
    """The model itself: one that makes it when it is first asked makes it now."""
    return model.model if isinstance(model, Lazy) else model


def alone(grid: Grid, store: Store | None, tasks: Iterable[Task], end: float) -> Generator[Finished]:
    """Do inputs in this process, one after another."""
    for task in tasks:
        place = grid.place(task, store)
        record = place.stored()
        if record is None and time.monotonic() < end:
            record = grid.record(task, place)
        yield Finished(task.number, record)


def shared(grid: Grid, store: Store | None, tasks: Iterable[Task], end: float, team: Team) -> Generator[Finished]:
    """Do inputs in workers; none is started where the store has all inputs, or the time is over."""
    missing, late = [], []
    for task in tasks:
        record = grid.place(task, store).stored()
        if record is None:
            missing.append(task)
        else:
            yield Finished(task.number, record)

    def in_time() -> Iterator[Task]:
        for task in missing:
            if time.monotonic() < end:
                yield task
            else:
                late.append(task)

    begun = in_time()
    first = next(begun, None)
    if first is not None:
        results = team(itertools.chain([first], begun))
        try:
            for done in results:
                if done.error is not None:
                    raise done.error
                yield done.result
        finally:
            if isinstance(results, Generator):  # at once, and not when an error is forgotten that holds it
                results.close()
    yield from (Finished(task.number, None) for task in late)
