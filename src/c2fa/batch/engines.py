"""Engines: make a worker once, map it over shards, yield each shard with its error or none.

An engine is trusted with nothing: results are files of the store, so what an engine loses is only time. Shards are
read as workers become free, and the engine ends when no more come and those under way are done.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeAlias

from c2fa.batch.packing import Report
from c2fa.batch.recipe import dumps
from c2fa.batch.worker import Assignment

Work: TypeAlias = Callable[[Assignment], Report]
Result: TypeAlias = tuple[Exception | None, Report]
"""The error that ended a shard, or None, and what the shard took."""

_WORTH = 3.0  # a worker is started where it has so many times its start to do
_LOOK_SECONDS = 0.25  # how often to see whether more workers pay
_STARTS = 3  # workers that die before they are ready, one after another, until the engine gives up
_RESTARTS = 20  # the same once a worker has shown that it can be done
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerError(RuntimeError):
    """No worker could be started; the message says what the first one said."""


@dataclass(frozen=True, eq=False)
class Done:
    """A shard that an engine is done with: finished, or with the error that a worker raised."""

    task: Assignment
    error: Exception | None
    report: Report = field(default_factory=Report)


@dataclass
class Crew:
    """How many workers a run has: one at first, and more where each has more to do than its start takes.

    Parameters
    ----------
    most
        The most of them.
    left
        Tells how many inputs no worker has been given yet, or None where that is not known: as much again is then
        expected as was done so far. Without it all workers are started at once.
    used
        How many there were at a time.
    """

    most: int
    left: Callable[[], int | None] | None = None
    used: int = 0

    def first(self) -> int:
        """How many to start with."""
        return self.most if self.left is None else 1

    def paying(self, busy: float, inputs: int, start: float) -> int:
        """How many pay, after so many seconds of work at so many inputs, where a start takes so long.

        A model that loads when it is first called takes about a start again for that, which says nothing of the rest.

        >>> Crew(8, left=lambda: 60).paying(busy=2.0, inputs=10, start=1.0)
        2
        >>> Crew(8, left=lambda: 5000).paying(busy=2.0, inputs=10, start=1.0)
        8
        """
        if self.left is None:
            return self.most
        left, work = self.left(), max(busy - start, 0.0)
        ahead = work if left is None else left * work / max(inputs, 1)
        return min(int(ahead / (_WORTH * start)), self.most)


class Engine(Protocol):
    """Runs tasks on workers."""

    def __call__(
        self, make: Callable[[], Work], tasks: Iterable[Assignment], *, workers: int, gpus: float = 0.0
    ) -> Iterator[Done]:
        """Make workers by calling ``make`` where they run, and yield each task when it is done, in any order."""
        ...


def engine(name: str | Engine) -> Engine:
    """Return an engine by its name, or the engine itself."""
    if callable(name):
        return name
    if name == "serial":
        return serial
    if name == "processes":
        return processes
    if name in ("ray", "dask"):
        other: Engine = import_module(f"c2fa.batch.{name}").engine
        return other
    raise ValueError(f"engine must be 'processes', 'ray', 'dask' or 'serial', or an engine of your own; got {name!r}")


def attempt(work: Work, task: Assignment) -> Result:
    """Run one task, with its error as a value."""
    try:
        return None, work(task)
    except Exception as error:
        return error, Report()


def library(module: str, name: str) -> Any:
    """Import what another engine needs, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"engine='{name.lower()}' needs {name}: pip install 'c2fa[{name.lower()}]'") from error


def keep_busy(
    workers: Iterable[Any],
    tasks: Iterable[Assignment],
    submit: Callable[[Any, Assignment], Any],
    first_of: Callable[[list[Any]], tuple[Any, Result | None]],
) -> Iterator[Done]:
    """Give each worker a shard, and the next when it is done.

    ``submit`` starts a shard on a worker and returns a handle; ``first_of`` waits for the first of several handles and
    returns it with the result, or with None where the worker was killed and the shard is to be tried again.
    """
    queue = iter(tasks)
    busy: dict[Any, tuple[Any, Assignment]] = {}

    def give(worker: Any, task: Assignment | None) -> None:
        if task is not None:
            busy[submit(worker, task)] = worker, task

    for worker in workers:
        give(worker, next(queue, None))
    while busy:
        handle, result = first_of(list(busy))
        worker, task = busy.pop(handle)
        if result is None:
            give(worker, task)
        else:
            give(worker, next(queue, None))
            yield Done(task, *result)


def serial(
    make: Callable[[], Work], tasks: Iterable[Assignment], *, workers: int = 1, gpus: float = 0.0
) -> Iterator[Done]:
    """Run everything in this very process, one shard after another."""
    work = make()
    for task in tasks:
        yield Done(task, *attempt(work, task))


# -- processes -------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Process:
    """A worker process, the shard that it is at, and whether it has loaded its model."""

    number: int
    process: Any
    pipe: Connection
    started: float
    task: Assignment | None = None
    task_since: float = 0.0
    ready: bool = False


def processes(
    make: Callable[[], Work],
    tasks: Iterable[Assignment],
    *,
    workers: int,
    gpus: float = 0.0,
    crew: Crew | None = None,
) -> Iterator[Done]:
    """Run workers as processes of this machine; one that dies is replaced and its shard tried again.

    All of them start at once, unless a ``crew`` says how many pay.
    """
    pool = _Pool(dumps(make), iter(tasks), crew or Crew(workers), gpus)
    try:
        yield from pool.run()
    finally:
        pool.kill()


class _Pool:
    """The worker processes of a run, and the shards that are theirs or still to be given."""

    def __init__(self, payload: bytes, tasks: Iterator[Assignment], crew: Crew, gpus: float) -> None:
        self.payload, self.tasks, self.crew, self.gpus = payload, tasks, crew, gpus
        self.unfinished: list[Assignment] = []  # shards whose worker died, or that wait for one that starts
        self.running: list[_Process] = []
        self.failed_starts, self.any_started = 0, False
        self.start_seconds, self.busy_seconds, self.inputs = 0.0, 0.0, 0  # what starts took, and shards so far
        self.enlisted, self.growing = 0, True

    def run(self) -> Iterator[Done]:
        self._enlist(self.crew.first())
        while self.running:
            by_pipe: dict[Any, _Process] = {worker.pipe: worker for worker in self.running}
            for pipe in wait(list(by_pipe), _LOOK_SECONDS if self.growing else None):
                done = self._receive(by_pipe[pipe])
                if done is not None:
                    yield done
            self._grow()

    def _enlist(self, count: int) -> None:
        """Start workers until there are so many, each for a shard that is there."""
        while self.growing and self.enlisted < count:
            task = next(self.tasks, None)
            if task is None:
                self.growing = False
                return
            self.unfinished.append(task)
            self._start(self.enlisted)
            self.enlisted += 1
            self.crew.used = max(self.crew.used, self.enlisted)
            self.growing = self.enlisted < self.crew.most

    def _grow(self) -> None:
        """Start more workers where they pay; what is under way counts as done, so that time left is not overrated."""
        if self.growing and self.any_started:
            now = time.monotonic()
            under_way = sum(now - worker.task_since for worker in self.running if worker.task is not None)
            self._enlist(self.crew.paying(self.busy_seconds + under_way, self.inputs, self.start_seconds))

    def kill(self) -> None:
        for worker in self.running:
            worker.process.kill()
        for worker in self.running:
            worker.process.join()
            worker.pipe.close()

    def _start(self, number: int) -> None:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        with _environment(number, self.crew.most, self.gpus):
            process = context.Process(target=_serve, args=(theirs, self.payload), daemon=True, name=f"c2fa-{number}")
            process.start()
        theirs.close()
        self.running.append(_Process(number, process, ours, started=time.monotonic()))

    def _receive(self, worker: _Process) -> Done | None:
        """Read a worker's message and assign its next shard; return the shard that it has finished, if any."""
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self._replace(worker)
            return None
        if kind == "failed":
            raise value
        now = time.monotonic()
        if not worker.ready:
            self.start_seconds = now - worker.started
        worker.ready = self.any_started = True
        self.failed_starts, task = 0, worker.task
        if task is not None:
            self.busy_seconds += now - worker.task_since
        self._assign(worker)
        return Done(task, *value) if kind == "done" and task is not None else None

    def _assign(self, worker: _Process) -> None:
        """Send the next shard to a worker that is free, or None, which ends it."""
        worker.task = self.unfinished.pop(0) if self.unfinished else next(self.tasks, None)
        if worker.task is None:
            self.growing = False
        else:
            worker.task_since = time.monotonic()
            self.inputs += len(worker.task.items)
        with contextlib.suppress(OSError):  # it died in between; the next wait sees that
            worker.pipe.send(worker.task)

    def _replace(self, worker: _Process) -> None:
        """Start another worker for one that has ended, unless nothing was left to do; refuse where none can start."""
        self.running.remove(worker)
        worker.pipe.close()
        worker.process.join()
        if worker.ready and worker.task is None:
            return
        self.failed_starts = 0 if worker.ready else self.failed_starts + 1
        if self.failed_starts >= (_RESTARTS if self.any_started else _STARTS):
            raise WorkerError(
                f"{self.failed_starts} workers in a row died while they loaded the model (exit code "
                f"{worker.process.exitcode}): in a script, put the call under 'if __name__ == \"__main__\":', as every "
                "worker imports it; else try engine='serial' to see why, or give each more memory with fewer workers"
            )
        if worker.task is not None:
            self.unfinished.append(worker.task)
        self._start(worker.number)


@contextlib.contextmanager
def _environment(number: int, workers: int, gpus: float) -> Iterator[None]:
    """What a worker finds in its environment: its share of the cores for linear algebra, and of the GPUs."""
    share = str(max((os.cpu_count() or 1) // workers, 1))
    wanted = {name: share for name in _THREADS if name not in os.environ}
    if gpus and "CUDA_VISIBLE_DEVICES" not in os.environ:
        count = max(int(gpus), 1)
        at = int(number * gpus) if gpus < 1 else number * count
        wanted["CUDA_VISIBLE_DEVICES"] = ",".join(str(at + i) for i in range(count))
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            os.environ.pop(name, None)


def _serve(pipe: Connection, payload: bytes) -> None:
    """The body of a worker process."""
    for name in ("SIGINT", "SIGTERM"):  # Ctrl-C reaches the whole group; the driver decides when to end
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_follow_parent, name="c2fa-parent", daemon=True).start()
    try:
        work: Work = pickle.loads(payload)()
    except Exception as error:
        pipe.send(("failed", _sendable(error)))
        return
    with contextlib.suppress(OSError, EOFError):  # the driver is gone
        pipe.send(("ready", None))
        while (task := pipe.recv()) is not None:
            failure, report = attempt(work, task)
            pipe.send(("done", (_sendable(failure), report)))


def _follow_parent() -> None:
    """End when the driver does: a worker without a driver would only hold memory and a GPU."""
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _sendable(error: Exception | None) -> Exception | None:
    """The error itself where it can be pickled, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error
