"""Workers as processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from c2fa.engines.base import Done, Hire, MakeWork, Work, attempt, gpu_of
from c2fa.engines.contact import WorkerError, dumps, sendable
from c2fa.engines.serving import Serving


@dataclass
class Crew:
    """How many workers a run has: one at first, and up to ``most`` while there is work enough to pay for their starts.

    ``left()`` is the number of inputs that no worker has yet, or None where it is unknown; as much work is then
    expected as was done so far. Without ``left``, all workers start at once. ``size(task)`` is the number of a task's
    inputs. ``tries`` is how many workers may die of a task before it ends in a ``WorkerError``; None where the workers
    themselves set such a task aside. ``used`` is the most workers there were at a time.
    """

    most: int
    left: Callable[[], int | None] | None = None
    size: Callable[[Any], int] = lambda task: 1
    tries: int | None = None
    used: int = 0

    def paying(self, busy: float, inputs: int, start: float) -> int:
        """The number of workers that pay, after ``busy`` seconds of work at ``inputs``, if a start takes ``start``.

        As much as one start is taken off ``busy``, because a model may load in its first call.

        >>> Crew(8, left=lambda: 60).paying(busy=2.0, inputs=10, start=1.0)
        2
        >>> Crew(8, left=lambda: 5000).paying(busy=2.0, inputs=10, start=1.0)
        8
        """
        if self.left is None:
            return self.most
        left, work = self.left(), max(busy - start, 0.0)
        ahead = work if left is None else left * work / max(inputs, 1)
        return min(int(ahead / (3.0 * start)), self.most)  # a worker pays if it has three times its start to do


@dataclass(eq=False)
class _Process:
    """A model process, or a worker with its task; ``ready`` once a worker can take one."""

    number: int
    process: Any
    pipe: Connection
    started: float = field(default_factory=time.monotonic)
    task: Any = None
    task_since: float = 0.0
    ready: bool = False


def processes(
    make: MakeWork,
    tasks: Iterable[Any],
    *,
    workers: int,
    serving: Serving | None = None,
    crew: Crew | None = None,
) -> Iterator[Done]:
    """Run workers as processes of this machine; one that dies is replaced and its task tried again.

    All of them start at once, unless a ``crew`` says how many pay. Where a worker returns an iterator, each of its
    items becomes a ``Done`` at once, and one without a result follows at the end.
    """
    crew = crew or Crew(workers)
    models = None if serving is None or serving.here else _Models(serving, crew.most)
    threads = (os.cpu_count() or 1) // crew.most if serving is None else 1
    pool = _Pool(dumps(Hire.of(make, serving)), iter(tasks), crew, models, threads)
    try:
        with serving.answering() if serving is not None and serving.here else contextlib.nullcontext():
            yield from pool.run()
    finally:
        pool.kill()


class _Models:
    def __init__(self, serving: Serving, workers: int) -> None:
        self.serving, self.workers = serving, workers
        self.payload = dumps(serving.portable())
        self.running: list[_Process] = []
        self.ready_since = time.monotonic()

    def start(self, number: int) -> None:
        """Start a model process, with a GPU and its share of the cores that workers leave."""
        environment = _threads(((os.cpu_count() or 1) - self.workers) // self.serving.models)
        if self.serving.gpu:
            environment["CUDA_VISIBLE_DEVICES"] = gpu_of(number)
        process, pipe = _spawn(_serve_model, f"c2fa-model-{number}", environment, self.payload, number)
        self.running.append(_Process(number, process, pipe))

    def receive(self, pipe: Any) -> None:
        """Read whether a model is loaded; raise its error where it cannot be, and start a process that died again."""
        [model] = [model for model in self.running if model.pipe is pipe]
        try:
            error = model.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self.running.remove(model)
            model.pipe.close()
            model.process.join()
            self.start(model.number)
            return
        if error is not None:
            raise error
        self.ready_since = time.monotonic()

    def end(self) -> None:
        """Let the processes end by themselves: killed ones leave semaphores, of which Python warns."""
        for model in self.running:
            model.pipe.close()
        for model in self.running:
            model.process.join(2.0)


class _Pool:
    """The worker processes of a run and its tasks."""

    def __init__(self, payload: bytes, tasks: Iterator[Any], crew: Crew, models: _Models | None, threads: int) -> None:
        self.payload, self.tasks, self.crew, self.models, self.threads = payload, tasks, crew, models, threads
        self.unfinished: list[Any] = []  # tasks whose worker died, or waits to be started
        self.running: list[_Process] = []
        self.deaths: Counter[int] = Counter()  # by the ids of tasks, all of which stay in memory
        self.failed_starts, self.any_started = 0, False
        self.start_seconds, self.busy_seconds, self.inputs = 0.0, 0.0, 0  # of the last start; of all tasks so far
        self.enlisted, self.growing = 0, True

    def run(self) -> Iterator[Done]:
        self._enlist(1)
        if self.models is not None and self.running:  # there is a task; what takes longest to start is started early
            for number in range(self.models.serving.models):
                self.models.start(number)
        self._enlist(self.crew.most if self.crew.left is None else 1)
        while self.running:
            by_pipe: dict[Any, _Process] = {worker.pipe: worker for worker in self.running}
            of_models = [] if self.models is None else [model.pipe for model in self.models.running]
            timeout = 0.25 if self.growing else None  # more workers may pay by then
            for pipe in wait([*by_pipe, *of_models], timeout):
                if self.models is not None and pipe in of_models:
                    self.models.receive(pipe)
                    continue
                done = self._receive(by_pipe[pipe])
                if done is not None:
                    yield done
            self._grow()
        if self.models is not None:
            self.models.end()

    def _enlist(self, count: int) -> None:
        """Start workers until there are ``count``, each for a task that waits for it."""
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
        """Start more workers if they pay; the time of unfinished tasks counts, as their inputs do."""
        if self.growing and self.any_started:
            now = time.monotonic()
            under_way = sum(now - worker.task_since for worker in self.running if worker.task is not None)
            self._enlist(self.crew.paying(self.busy_seconds + under_way, self.inputs, self.start_seconds))

    def kill(self) -> None:
        members = self.running + ([] if self.models is None else self.models.running)
        for member in members:
            member.process.kill()
        for member in members:
            member.process.join()
            member.pipe.close()

    def _start(self, number: int) -> None:
        process, pipe = _spawn(_serve, f"c2fa-{number}", _threads(self.threads), self.payload, number)
        self.running.append(_Process(number, process, pipe))

    def _receive(self, worker: _Process) -> Done | None:
        """Read a worker's message and assign its next task; return the task that it has finished, or a piece of it."""
        message = None
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            message = worker.pipe.recv()
        if message is None:
            return self._replace(worker)
        kind, value = message
        if kind == "failed":
            raise value
        if kind == "piece":
            return Done(worker.task, None, value)
        now = time.monotonic()
        if not worker.ready:
            loaded = worker.started if self.models is None else self.models.ready_since
            self.start_seconds = now - max(worker.started, loaded)
        worker.ready = self.any_started = True
        self.failed_starts, task = 0, worker.task
        if task is not None:
            self.busy_seconds += now - worker.task_since
        self._assign(worker)
        return Done(task, *value) if kind == "done" and task is not None else None

    def _assign(self, worker: _Process) -> None:
        """Send a free worker the next task, or None, which ends it."""
        worker.task = self.unfinished.pop(0) if self.unfinished else next(self.tasks, None)
        if worker.task is None:
            self.growing = False
        else:
            worker.task_since = time.monotonic()
            self.inputs += self.crew.size(worker.task)
        with contextlib.suppress(OSError):  # it has died, which the next wait reports
            worker.pipe.send_bytes(dumps(worker.task, "an input", "give what can be pickled, or leave out workers="))

    def _replace(self, worker: _Process) -> Done | None:
        """Start another worker for one that has ended, unless its work was over; raise where none can start.

        Its task is tried again, or returned with an error if too many workers have died of it.
        """
        self.running.remove(worker)
        worker.pipe.close()
        worker.process.join()
        task = worker.task
        if worker.ready and task is None:
            return None
        exit_code = worker.process.exitcode
        if exit_code == 1 and not self.any_started:  # another try would run the script's first lines once more
            raise WorkerError(
                "a worker could not import this script, as every worker does, and said why above: put the call under "
                "'if __name__ == \"__main__\":', or give engine='serial' or, in memory, leave out workers="
            )
        self.failed_starts = 0 if worker.ready else self.failed_starts + 1
        if self.failed_starts >= (20 if self.any_started else 3):  # more patience once a worker could start
            raise WorkerError(
                f"{self.failed_starts} workers in a row died while they loaded the model (exit code {exit_code}): see "
                "why by engine='serial' or, in memory, without workers=, or give each more memory with fewer workers"
            )
        self._start(worker.number)
        if task is None:
            return None
        self.deaths[id(task)] += 1
        if self.deaths[id(task)] == self.crew.tries:
            return Done(task, WorkerError(f"{self.crew.tries} workers died of it (exit code {exit_code})"))
        self.unfinished.append(task)
        return None


def _threads(share: int) -> dict[str, str]:
    """The environment that keeps linear algebra to ``share`` cores, without what the user has set."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {name: str(max(share, 1)) for name in names if name not in os.environ}


def _spawn(
    body: Callable[..., None], name: str, environment: dict[str, str], payload: bytes, number: int
) -> tuple[Any, Connection]:
    """Start a process with additions to its environment, and return it with a pipe to it."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    before = {key: os.environ.get(key) for key in environment}
    os.environ.update(environment)
    try:
        process = context.Process(target=body, args=(theirs, payload, number), daemon=True, name=name)
        process.start()
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
    theirs.close()
    return process, ours


def _follow_driver() -> None:
    """Leave signals to the driver, and end when it does."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches every process of the group
        signal.signal(number, signal.SIG_IGN)
    parent = mp.parent_process()

    def follow() -> None:  # without its driver, a worker would only hold memory and a GPU
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=follow, name="c2fa-parent", daemon=True).start()


def _serve(pipe: Connection, payload: bytes, number: int) -> None:
    _follow_driver()
    try:
        work: Work = pickle.loads(payload)(number)
    except Exception as error:
        pipe.send(("failed", sendable(error)))
        return

    def whole(task: Any) -> Any:
        result = work(task)
        if not isinstance(result, Iterator):
            return result
        for piece in result:
            pipe.send(("piece", piece))
        return None

    with contextlib.suppress(OSError, EOFError):  # the driver is gone
        pipe.send(("ready", None))
        while (task := pipe.recv()) is not None:
            failure, result = attempt(whole, task)
            pipe.send(("done", (sendable(failure), result)))


def _serve_model(pipe: Connection, payload: bytes, number: int) -> None:
    _follow_driver()
    try:
        server = pickle.loads(payload).start(number)
    except Exception as error:
        pipe.send(sendable(error))
        return
    pipe.send(None)

    def follow() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()  # the driver hangs up at the end of the run
        server.stop()

    threading.Thread(target=follow, name="c2fa-end", daemon=True).start()
    server.run()
