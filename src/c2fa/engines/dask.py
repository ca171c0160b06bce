"""Dask as an engine: futures on a local or remote cluster."""

from __future__ import annotations

import logging
import pickle
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from c2fa._system import need
from c2fa.engines.base import Done, Hire, MakeWork, Result, Work, attempt, gpu_of, keep_busy
from c2fa.engines.contact import LOCAL, WorkerError, dumps, sendable
from c2fa.engines.serving import Server, Serving

_WORKS: dict[str, Work] = {}  # this process's worker, by its run; Dask would not restart actors of its own
_WORKER = {"WORKER": 1}  # the resource of the Dask workers that explain, where others have the model


def _run(run: str, payload: bytes, number: int, task: Any) -> Result:
    if run not in _WORKS:
        _WORKS.clear()  # an earlier run's model would stay in memory
        _WORKS[run] = pickle.loads(payload)(number)
    return attempt(_WORKS[run], task)


def _serve(payload: bytes, number: int, local: bool) -> Exception | None:
    """Answer workers until the run ends; return the error where the model cannot be made."""
    worker = need("distributed", "dask").get_worker()
    host = LOCAL if local else worker.address.rpartition("//")[2].rpartition(":")[0]
    try:
        server = pickle.loads(payload).start(number, host)
    except Exception as error:
        return sendable(error)
    watch = threading.Thread(target=_stop_with_task, args=(server, worker, worker.get_current_task()), daemon=True)
    watch.start()
    server.run()
    return None


def _stop_with_task(server: Server, worker: Any, key: str) -> None:
    """Stop when Dask cancels the task, because its run has ended or its driver is gone: Dask ends no thread itself."""
    while (task := worker.state.tasks.get(key)) is not None and task.state == "executing":
        time.sleep(0.5)
    server.stop()


def engine(
    make: MakeWork,
    tasks: Iterable[Any],
    *,
    workers: int,
    serving: Serving | None = None,
    address: str | None = None,
    client: Any = None,
) -> Iterator[Done]:
    """Run tasks as Dask futures, on a given client, the scheduler at an address, or a cluster that is started here.

    A task whose worker is killed is submitted again; the workers' nannies start new ones. With ``serving``, each worker
    of a cluster of your own must offer a resource: ``GPU=1`` if it is to have the model, or ``MODEL=1`` without a GPU,
    and otherwise ``WORKER=1``.
    """
    distributed = need("distributed", "dask")
    cluster, given = None, client is not None
    if not given and address is None:
        try:
            cluster = _cluster(distributed, workers, serving)
        except RuntimeError as error:  # one of its processes was killed during the start
            raise WorkerError(f"the Dask cluster did not start ({error}); run the same command again") from error
    if not given:
        client = distributed.Client(address if cluster is None else cluster)
    run = secrets.token_hex(8)
    payload = dumps(Hire.of(make, serving))  # sent with each task: scattered data are lost with their workers
    models: dict[Any, int] = {}

    def submit(number: int, task: Any) -> Any:
        needs = None if serving is None else _WORKER
        return client.submit(_run, run, payload, number, task, pure=False, resources=needs)

    def serve(number: int) -> None:
        assert serving is not None
        future = client.submit(_serve, packed, number, cluster is not None, pure=False, resources=_holder(serving))
        models[future] = number

    def first_of(running: list[Any]) -> tuple[Any, Result | None]:
        while True:
            try:
                both = distributed.wait([*models, *running], 5.0, return_when="FIRST_COMPLETED")
            except TimeoutError:
                if cluster is not None:
                    cluster.scale(len(cluster.worker_spec))  # a nanny gives up if its worker dies during the start
                continue
            ready = next(iter(both.done))
            try:
                result = ready.result()
            except distributed.KilledWorker:
                if ready not in models:
                    return ready, None  # run it again: the worker finds out which input kills
                serve(models.pop(ready))
            else:
                if ready in models:
                    raise result
                return ready, result

    try:
        if serving is not None:
            _check_offers(client, serving)
            packed = dumps(serving.portable())
            for number in range(serving.models):
                serve(number)
        yield from keep_busy(range(workers), tasks, submit, first_of)
    finally:
        client.cancel(list(models))
        if not given:
            client.close()
        if cluster is not None:
            cluster.close()


def _holder(serving: Serving) -> dict[str, int]:
    """The resource of the Dask workers that have the model."""
    return {"GPU": 1} if serving.gpu else {"MODEL": 1}


def _cluster(distributed: Any, workers: int, serving: Serving | None) -> Any:
    """A cluster on this machine, with a process for each worker and each model."""
    if serving is None:
        return distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    options: dict[str, Any] = {"nthreads": 1, "dashboard_address": None, "silence_logs": logging.WARNING}
    crew = {f"worker-{k}": {**options, "resources": _WORKER} for k in range(workers)}
    for k in range(serving.models):
        gpu = {"CUDA_VISIBLE_DEVICES": gpu_of(k)} if serving.gpu else {}
        crew[f"model-{k}"] = {**options, "resources": _holder(serving), "env": gpu}
    return distributed.SpecCluster(
        silence_logs=logging.WARNING,
        workers={name: {"cls": distributed.Nanny, "options": each} for name, each in crew.items()},
        scheduler={"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "dashboard": False, "port": 0}},
    )


def _check_offers(client: Any, serving: Serving) -> None:
    """Refuse a cluster that lacks one of the resources, by which workers and models find their places."""
    offered = [worker.get("resources", {}) for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    for name in (*_holder(serving), *_WORKER):
        if not any(name in offers for offers in offered):
            raise ValueError(
                f"no Dask worker offers the resource {name}: start those that are to have the model with --resources "
                f"'{next(iter(_holder(serving)))}=1' and the others with --resources 'WORKER=1'"
            )
