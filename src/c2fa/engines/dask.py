"""Dask as an engine: futures on a local or remote cluster."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from c2fa.engines.base import Done, MakeWork, Result, Work, attempt, keep_busy, library
from c2fa.engines.sending import dumps

_MADE: dict[str, Work] = {}  # the worker of each run, once in each process; Dask's own actors are not restarted


def _run(run: str, payload: bytes, task: Any) -> Result:
    if run not in _MADE:
        _MADE.clear()  # an earlier run's model would stay in memory
        _MADE[run] = pickle.loads(payload)()
    return attempt(_MADE[run], task)


def engine(
    make: MakeWork,
    tasks: Iterable[Any],
    *,
    workers: int,
    address: str | None = None,
    client: Any = None,
) -> Iterator[Done]:
    """Run tasks as Dask futures, on the client given, the scheduler at an address, or a cluster started here.

    A task whose worker is killed is submitted again; the workers' nannies start new ones.
    """
    distributed = library("distributed", "Dask")
    cluster, started = None, client is None
    if client is None and address is None:
        cluster = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    if client is None:
        client = distributed.Client(cluster if cluster is not None else address)
    run = secrets.token_hex(8)
    payload = dumps(make)  # sent along with each task: scattered data are lost with the workers that hold them

    def submit(_: int, task: Any) -> Any:
        return client.submit(_run, run, payload, task, pure=False)

    def first_of(running: list[Any]) -> tuple[Any, Result | None]:
        ready = next(iter(distributed.wait(running, return_when="FIRST_COMPLETED").done))
        try:
            return ready, ready.result()
        except distributed.KilledWorker:
            return ready, None  # the worker finds out what kills

    try:
        yield from keep_busy(range(workers), tasks, submit, first_of)
    finally:
        if started:
            client.close()
        if cluster is not None:
            cluster.close()
