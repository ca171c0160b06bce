"""Ray as an engine: actors that come back when they are killed, on one machine or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from c2fa.engines.base import Done, MakeWork, Result, attempt, keep_busy, library
from c2fa.engines.sending import WorkerError


class _Actor:
    """Holds one worker; it is made again, with its model, whenever the actor is restarted."""

    def __init__(self, make: MakeWork) -> None:
        self._work = make()

    def run(self, task: Any) -> Result:
        return attempt(self._work, task)


def engine(
    make: MakeWork,
    tasks: Iterable[Any],
    *,
    workers: int,
    address: str | None = None,
    cpus: float = 1.0,
) -> Iterator[Done]:
    """Run workers as Ray actors, on a cluster that runs already or one that is started here and ended after.

    An actor that is killed is restarted and its task run again, as often as it takes: by default Ray does neither.
    """
    ray = library("ray", "Ray")
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="WARNING")

    def first_of(running: list[Any]) -> tuple[Any, Result]:
        (ready, *_), _ = ray.wait(running, num_returns=1)
        try:
            return ready, ray.get(ready)
        except ray.exceptions.ActorDiedError as died:  # only where its constructor raised
            raise WorkerError(f"a Ray worker could not be made: {died.__cause__ or died}") from died

    try:
        actor: Any = ray.remote(num_cpus=cpus, max_restarts=-1, max_task_retries=-1)(_Actor)
        # The recipe itself, not a reference: an actor is restarted from it, and references may be lost (ray#53727).
        crew = [actor.remote(make) for _ in range(workers)]
        yield from keep_busy(crew, tasks, lambda one, task: one.run.remote(task), first_of)
    finally:
        if started:
            ray.shutdown()
