"""What all engines have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from c2fa.engines.contact import Contact
from c2fa.engines.remote import connected
from c2fa.engines.serving import Serving

Work: TypeAlias = Callable[[Any], Any]
"""A worker: it takes a task and returns its result."""
MakeWork: TypeAlias = Callable[..., Work]
"""Makes a worker in the process where it runs; it takes no argument or, with a ``Serving``, the model."""
Result: TypeAlias = tuple[Exception | None, Any]
"""The error that ended a task, or None, and the worker's result."""


@dataclass(frozen=True, eq=False)
class Done:
    """A finished task: the worker's result, or the error that it raised."""

    task: Any
    error: Exception | None
    result: Any = None


class Engine(Protocol):
    """Runs tasks on workers."""

    def __call__(
        self, make: MakeWork, tasks: Iterable[Any], *, workers: int, serving: Serving | None = None
    ) -> Iterator[Done]:
        """Make workers by calling ``make`` where they run, and yield each task when it is done, in any order.

        The engine reads a task whenever a worker is free, and ends when all tasks are done. It runs a task again whose
        worker is killed.

        With ``serving``, the engine runs each ``serving.portable().start(k).run()`` in a process of its own, with a
        GPU of its own if ``serving.gpu``, and again whenever that process dies, until all tasks are done. It makes
        worker ``k`` by ``Hire.of(make, serving)(k)``, which gives ``make`` the model, and no GPU.
        """
        ...


@dataclass(frozen=True, eq=False)
class Hire:
    """Makes worker ``k`` of a run, with a model of its own or, given a ``contact``, with one that workers share."""

    make: MakeWork
    contact: Contact | None = None
    models: int = 1
    hide_gpus: bool = False

    @classmethod
    def of(cls, make: MakeWork, serving: Serving | None) -> Hire:
        """Take from ``serving`` all but the model's constructor, which workers must not even import."""
        if serving is None:
            return cls(make)
        return cls(make, serving.contact, serving.models, hide_gpus=serving.gpu or serving.here)

    def __call__(self, number: int) -> Work:
        if self.hide_gpus:  # in time: nothing in this process has looked for a GPU yet
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        if self.contact is None:
            return self.make()
        if hasattr(os, "nice"):
            os.nice(10)  # the model's process goes first, so there may be more workers than cores
        return self.make(connected(self.contact, number % self.models))


def gpu_of(number: int) -> str:
    """The GPU for a model process, among those that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if visible and number >= len(names):
        raise ValueError(f"gpus must be at most {len(names)}: CUDA_VISIBLE_DEVICES is {visible!r}")
    return names[number] if visible else str(number)


def attempt(work: Work, task: Any) -> Result:
    """Run one task and return its error rather than raise it."""
    try:
        return None, work(task)
    except Exception as error:
        return error, None


def serial(make: MakeWork, tasks: Iterable[Any], *, workers: int = 1, serving: Serving | None = None) -> Iterator[Done]:
    """Run all tasks in this process, one after another."""
    if serving is not None:
        raise ValueError("engine='serial' is one process, which has the model; gpus= and models= are for other engines")
    work = make()
    for task in tasks:
        yield Done(task, *attempt(work, task))


def keep_busy(
    workers: Iterable[Any],
    tasks: Iterable[Any],
    submit: Callable[[Any, Any], Any],
    first_of: Callable[[list[Any]], tuple[Any, Result | None]],
) -> Iterator[Done]:
    """Give each worker a task, and the next one when it is done.

    ``submit`` starts a task on a worker and returns a handle. ``first_of`` waits until one of several handles is done
    and returns it with the result, or with None where the worker was killed and the task must run again.
    """
    queue = iter(tasks)
    busy: dict[Any, tuple[Any, Any]] = {}

    def give(worker: Any, task: Any) -> None:
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
