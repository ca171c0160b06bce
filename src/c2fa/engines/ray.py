"""Ray as an engine: actors that come back when they are killed, on one machine or a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Any

from c2fa._system import need
from c2fa.engines.base import Done, Hire, MakeWork, Result, attempt, keep_busy
from c2fa.engines.contact import LOCAL, WorkerError, sendable
from c2fa.engines.serving import Serving


class _Actor:
    """Holds one worker, which is made anew with its model whenever Ray restarts the actor."""

    def __init__(self, hire: Hire, number: int) -> None:
        _leave_signals()
        self._work = hire(number)

    def run(self, task: Any) -> Result:
        return attempt(self._work, task)


class _ModelActor:
    def serve(self, serving: Serving, number: int, host: str | None) -> Exception | None:
        """Answer workers for ever; return the error where the model cannot be made."""
        _leave_signals()
        try:
            server = serving.start(number, host or need("ray", "ray").util.get_node_ip_address())
        except Exception as error:
            return sendable(error)
        server.run()
        return None


def _leave_signals() -> None:
    """End by SIGTERM as any process does: Ray's handler calls sys.exit(), which would look like a model's own call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def engine(make: MakeWork, tasks: Iterable[Any], *, workers: int, serving: Serving | None = None) -> Iterator[Done]:
    """Run workers as Ray actors: where Ray runs already, at RAY_ADDRESS, or as it is started here and ended afterwards.

    A killed actor is restarted and its task run again, as often as it takes; by default Ray does neither.
    """
    ray = need("ray", "ray")
    started = not ray.is_initialized()
    local = started and not os.environ.get("RAY_ADDRESS")
    if started:
        count = workers + (0 if serving is None else serving.models)
        room = {"num_cpus": max(os.cpu_count() or 1, count)} if local else {}
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="WARNING", **room)
    host = LOCAL if local else None  # else the node's own address
    again = {"max_restarts": -1, "max_task_retries": -1}
    models: list[Any] = []
    serves: list[Any] = []

    def first_of(running: list[Any]) -> tuple[Any, Result]:
        (ready, *_), _ = ray.wait([*serves, *running], num_returns=1)
        try:
            result = ray.get(ready)
        except ray.exceptions.ActorDiedError as died:  # only where its constructor raised
            raise WorkerError(f"a Ray worker could not be made: {died.__cause__ or died}") from died
        if ready in serves:
            raise result
        return ready, result

    try:
        # Actors get the recipe itself: they are restarted from it, and a reference may be lost (ray#53727).
        if serving is not None:
            holder: Any = ray.remote(num_cpus=1, num_gpus=int(serving.gpu), **again)(_ModelActor)
            models = [holder.remote() for _ in range(serving.models)]
            serves = [model.serve.remote(serving.portable(), k, host) for k, model in enumerate(models)]
        actor: Any = ray.remote(num_cpus=1, **again)(_Actor)
        crew = [actor.remote(Hire.of(make, serving), k) for k in range(workers)]
        yield from keep_busy(crew, tasks, lambda worker, task: worker.run.remote(task), first_of)
    finally:
        if started:
            ray.shutdown()
        else:
            for model in models:
                ray.kill(model)
