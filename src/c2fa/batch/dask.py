"""Dask as an engine: futures on a local or remote cluster."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from c2fa.batch.engines import Done, Work, attempt
from c2fa.batch.packing import Report
from c2fa.batch.recipe import dumps
from c2fa.batch.worker import Assignment

_MADE: dict[str, Work] = {}  # the worker of each run, once in each process; Dask's own actors are not restarted


def _run(run: str, payload: bytes, task: Assignment) -> tuple[Exception | None, Report]:
    if run not in _MADE:
        _MADE.clear()  # an earlier run's model would stay in memory
        _MADE[run] = pickle.loads(payload)()
    done = attempt(_MADE[run], task)
    return done.error, done.report


def engine(
    make: Callable[[], Work],
    tasks: Iterable[Assignment],
    *,
    workers: int,
    gpus: float = 0.0,
    address: str | None = None,
    client: Any = None,
) -> Iterator[Done]:
    """Run shards as Dask futures, on the client given, the scheduler at an address, or a cluster started here.

    A shard whose worker is killed is submitted again; the workers' nannies start new ones. On a cluster of your own,
    workers with GPUs must offer the resource ``GPU``.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise ImportError("engine='dask' needs Dask: pip install 'c2fa[dask]'") from error
    cluster = None
    started = client is None
    if client is None and address is None:
        resources = {"GPU": gpus} if gpus else None
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, resources=resources
        )
    if client is None:
        client = distributed.Client(cluster if cluster is not None else address)
    run = secrets.token_hex(8)
    payload = dumps(make)  # sent along with each shard: scattered data are lost with the workers that hold them
    queue = iter(tasks)
    busy: dict[Any, Assignment] = {}
    needs = {"GPU": gpus} if gpus else None

    def submit(task: Assignment | None) -> None:
        if task is not None:
            busy[client.submit(_run, run, payload, task, pure=False, resources=needs)] = task

    try:
        for _ in range(workers):
            submit(next(queue, None))
        while busy:
            finished = distributed.wait(list(busy), return_when="FIRST_COMPLETED").done
            for future in finished:
                task = busy.pop(future)
                try:
                    failure, report = future.result()
                except distributed.KilledWorker:
                    submit(task)  # the diary of the shard finds the input that kills
                    continue
                submit(next(queue, None))
                yield Done(task, failure, report)
    finally:
        if started:
            client.close()
        if cluster is not None:
            cluster.close()
