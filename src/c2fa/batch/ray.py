"""Ray as an engine: actors that come back when they are killed, on one machine or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from c2fa.batch.engines import Done, Work, WorkerError, attempt
from c2fa.batch.packing import Report
from c2fa.batch.worker import Assignment


class _Actor:
    """Holds one worker; it is made again, with its model, whenever the actor is restarted."""

    def __init__(self, make: Callable[[], Work]) -> None:
        self._work = make()

    def run(self, task: Assignment) -> tuple[Exception | None, Report]:
        done = attempt(self._work, task)
        return done.error, done.report


def engine(
    make: Callable[[], Work],
    tasks: Iterable[Assignment],
    *,
    workers: int,
    gpus: float = 0.0,
    address: str | None = None,
    cpus: float = 1.0,
) -> Iterator[Done]:
    """Run workers as Ray actors, on a cluster that runs already or one that is started here and ended after.

    An actor that is killed is restarted and its shard run again, as often as it takes: by default Ray does neither.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'c2fa[ray]'") from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="WARNING")
    try:
        actor: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(_Actor)
        queue = iter(tasks)
        busy: dict[Any, tuple[Any, Assignment]] = {}

        def give(crew: Any) -> None:
            task = next(queue, None)
            if task is not None:
                busy[crew.run.remote(task)] = (crew, task)

        # The recipe itself, not a reference: an actor is restarted from it, and references may be lost (ray#53727).
        crew = [actor.remote(make) for _ in range(workers)]
        for one in crew:
            give(one)
        while busy:
            (ready, *_), _ = ray.wait(list(busy), num_returns=1)
            one, task = busy.pop(ready)
            try:
                failure, report = ray.get(ready)
            except ray.exceptions.ActorDiedError as died:  # only where its constructor raised
                cause = died.__cause__ or died
                raise WorkerError(f"a Ray worker could not be made: {cause}") from died
            give(one)
            yield Done(task, failure, report)
    finally:
        if started:
            ray.shutdown()
