"""What all engines have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias

Work: TypeAlias = Callable[[Any], Any]
"""A worker: it takes a task and returns its result."""
MakeWork: TypeAlias = Callable[..., Work]
"""Makes a worker: called without arguments, where the worker runs."""
Result: TypeAlias = tuple[Exception | None, Any]
"""The error that ended a task, or None, and what the worker returned."""


@dataclass(frozen=True, eq=False)
class Done:
    """A task that an engine is done with: its result, or the error that the worker raised."""

    task: Any
    error: Exception | None
    result: Any = None


class Engine(Protocol):
    """Runs tasks on workers."""

    def __call__(self, make: MakeWork, tasks: Iterable[Any], *, workers: int) -> Iterator[Done]:
        """Make workers by calling ``make`` where they run, and yield each task when it is done, in any order.

        Tasks are read as workers become free, and the engine ends when no more come and those under way are done. A
        task whose worker is killed is run again.
        """
        ...


def attempt(work: Work, task: Any) -> Result:
    """Run one task, with its error as a value."""
    try:
        return None, work(task)
    except Exception as error:
        return error, None


def serial(make: MakeWork, tasks: Iterable[Any], *, workers: int = 1) -> Iterator[Done]:
    """Run everything in this very process, one task after another."""
    work = make()
    for task in tasks:
        yield Done(task, *attempt(work, task))


def keep_busy(
    workers: Iterable[Any],
    tasks: Iterable[Any],
    submit: Callable[[Any, Any], Any],
    first_of: Callable[[list[Any]], tuple[Any, Result | None]],
) -> Iterator[Done]:
    """Give each worker a task, and the next when it is done.

    ``submit`` starts a task on a worker and returns a handle; ``first_of`` waits for the first of several handles and
    returns it with the result, or with None where the worker was killed and the task is to be tried again.
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


def library(module: str, name: str) -> Any:
    """Import what another engine needs, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"engine='{name.lower()}' needs {name}: pip install 'c2fa[{name.lower()}]'") from error
