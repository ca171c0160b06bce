"""Many inputs explained in memory: in this process or, with workers, around the model that this process has."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from c2fa._system import did_you_mean
from c2fa.asking.model import describe
from c2fa.batch.isolation import Health, Isolation, Report
from c2fa.batch.many import Recipe, many
from c2fa.batch.overview import Explanations, NotExplainedError
from c2fa.batch.packing import Item, Outcome, packed, together
from c2fa.batch.run import at_least
from c2fa.batch.sources import Pick, source
from c2fa.engines import Contact, Crew, Loads, RemoteModel, Serving, WorkerError, dumps, processes
from c2fa.explainer import Explainer
from c2fa.showing.progress import Bar


def in_memory(
    explainer: Explainer,
    inputs: Any,
    *,
    workers: int = 1,
    column: Pick = None,
    key: Pick = None,
    batch_size: int | None = None,
    in_flight: int = 1,
    tries: int = 3,
    patience: float = 60.0,
    progress: bool | None = None,
    **of_a_store: Any,
) -> Explanations:
    """Explain every input, here and now, and return the explanations in order.

    An input that fails does not stop the others: a warning at the end names the first, and its place holds the error.
    Where every input fails, ``NotExplainedError`` is raised, and where the model answers nothing, ``NoAnswerError``,
    after a second. Ctrl-C returns what is done, with a warning; the places of the others say so.

    Parameters
    ----------
    workers
        With more than one, so many processes read, draw masks and fit, and ask the model, which stays in this process:
        it pays where the model is fast, as on a GPU, or lets go of the interpreter.
    inputs, column, key, batch_size, in_flight, tries, patience, progress
        As in ``many``. The rows of a DataFrame are its inputs.

    Examples
    --------
    >>> import c2fa
    >>> explainer = c2fa.Explainer(c2fa.models.DemoSentiment(), c2fa.maskers.Text(), budget=40)
    >>> found = explainer.many(["A great book. I loved it.", "It broke. The price was good."])
    >>> [e.target_name for e in found]
    ['positive', 'negative']
    """
    known = list(inspect.signature(many).parameters)[3:]
    for name, value in of_a_store.items():
        if name not in known:
            raise TypeError(f"many has no option {name!r}; it has {', '.join(known)}{did_you_mean(name, known)}")
        raise TypeError(
            f"{name}={value!r} goes with a folder, in which workers leave what is finished: many(inputs, 'explained/', "
            f"{name}={value!r}). Without one the model stays in this process"
        )
    settings = Settings(batch_size, at_least("in_flight", in_flight, 1), at_least("tries", tries, 1), patience)
    taken = source(inputs, column, key)
    begin = time.monotonic()
    wanted = explainer.progress if progress is None else progress
    with contextlib.closing(Bar(wanted, taken.total, "input", "explaining")) as bar:
        items = together(list(taken.items()))
        if at_least("workers", workers, 1) == 1:
            steps = _explained(settings, explainer, items)
        else:
            steps = _explained_by_workers(settings, explainer, items, workers)
        outcomes, report, failures = list[Outcome](), Report(), 0
        try:
            for outcome, report in steps:
                outcomes.append(outcome)
                failures += outcome.explanation is None
                report.inputs, report.failed = len(outcomes), failures
                bar.update(report.inputs, report.so_far(bar.seconds))
        except KeyboardInterrupt:
            if not outcomes:
                raise
            done = {outcome.index for outcome in outcomes}
            left = [item for item in items if item.index not in done]
            outcomes += [Outcome(item.index, item.key, None, "stopped by Ctrl-C before its turn") for item in left]
    report.seconds = time.monotonic() - begin
    found = Explanations(outcomes, report)
    failed = found.errors()
    if failed:
        first = f"input {failed[0].index}: {failed[0].error}"
        if len(failed) == len(found):
            raise NotExplainedError(f"none of the {len(found)} inputs could be explained ({first})")
        warnings.warn(
            f"{len(failed)} of {len(found)} inputs could not be explained ({first}); errors() lists them, and items() "
            "passes over them",
            stacklevel=3,  # the line that called Explainer.many
        )
    return found


@dataclass(frozen=True)
class Settings:
    """How inputs are asked about."""

    batch_size: int | None
    in_flight: int
    tries: int
    patience: float


Steps: TypeAlias = Iterator[tuple[Outcome, Report]]
"""Each input's outcome, with what all so far have taken."""


def _explained(settings: Settings, explainer: Explainer, items: Sequence[Item]) -> Steps:
    """Explain inputs in this process."""
    # A model that never gave an answer is more likely wrong than busy.
    health = Health(min(settings.patience, 1.0), describe(explainer.model).outputs_vary)
    health.on_answer = lambda: setattr(health, "patience", settings.patience)
    isolation = Isolation(settings.tries, health)
    size, in_flight = settings.batch_size, settings.in_flight
    for outcome in packed(explainer, items, batch_size=size, in_flight=in_flight, isolation=isolation):
        yield outcome, isolation.report


def _explained_by_workers(settings: Settings, explainer: Explainer, items: Sequence[Item], workers: int) -> Steps:
    """Explain inputs in processes around the model, which this one has."""
    if explainer.ledger is not None and explainer.ledger.path == ":memory:":
        raise ValueError("a ledger in memory cannot be shared by workers; give a file, or leave out workers=")
    size = max(1, min(64, len(items) // (4 * workers)))  # so that no worker waits long for the last one
    tasks = [items[at : at + size] for at in range(0, len(items), size)]
    crew = Crew(min(workers, len(tasks)), tries=settings.tries)
    make_model, make = Recipe.of(explainer).divided()
    total = Report()
    with tempfile.TemporaryDirectory(prefix="c2fa-") as folder:
        contact = Contact(folder, settings.patience)
        serving = Serving(make_model, contact, here=True, batch_size=settings.batch_size or explainer.batch_size)
        worker = functools.partial(_worker, settings, make)
        for done in processes(worker, iter(tasks), workers=workers, serving=serving, crew=crew):
            if isinstance(done.error, WorkerError):  # whoever explains these dies
                failed = [Outcome(item.index, item.key, None, str(done.error)) for item in done.task]
                outcomes, report = failed, Report()
            elif done.error is not None:
                raise done.error
            else:
                outcomes, report = pickle.loads(done.result)
            total = replace(total + report, workers=crew.used)
            for outcome in outcomes:
                yield outcome, total


def _worker(
    settings: Settings, make: Callable[[Any], Explainer], model: RemoteModel
) -> Callable[[Sequence[Item]], bytes]:
    """What explains inputs around a model that another process has."""
    explainer = make(model)

    def work(items: Sequence[Item]) -> bytes:
        outcomes, report = list[Outcome](), Report()
        for outcome, report in _explained(settings, explainer, items):
            outcomes.append(outcome)
        return dumps((outcomes, replace(report, loads=Loads(model.loads))), "an explanation")

    return work
