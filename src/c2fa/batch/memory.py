"""Many inputs explained in memory: in this process or, with workers, around the model that this process has."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from c2fa._system import Signals, at_least, did_you_mean, seconds
from c2fa.asking.model import describe
from c2fa.batch.isolation import AGAIN, UNANSWERED, Health, Isolation, NoAnswerError, Report, in_words
from c2fa.batch.many import Recipe, many
from c2fa.batch.overview import Explanations, NotExplainedError
from c2fa.batch.packing import Item, Outcome, cut, packed, prediction_row, together
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
    after a second. What ends it early, such as Ctrl-C or a model that is gone, raises where nothing is explained yet.
    Else what is done is returned, with a warning that says how many are missing, and their places say why.

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
    at_once, tries = at_least("in_flight", in_flight, 1), at_least("tries", tries, 1)
    settings = Settings(batch_size, at_once, tries, seconds("patience", patience))
    taken = source(inputs, column, key)
    begin = time.monotonic()
    wanted = explainer.progress if progress is None else progress
    with contextlib.closing(Bar(wanted, taken.total, "input", "explaining")) as bar:
        items = together(list(taken.items()))
        if at_least("workers", workers, 1) == 1:
            isolation = _isolation(settings, explainer)
            steps = ((outcome, isolation.report) for outcome in _packed(settings, explainer, items, isolation))
        else:
            steps = _explained_by_workers(settings, explainer, items, workers)
        outcomes, report, failures, why = list[Outcome](), Report(), 0, ""
        with (
            describe(explainer.model).steady(),
            contextlib.closing(steps),
        ):  # or an error's traceback would keep the workers
            try:
                for outcome, report in steps:
                    outcomes.append(outcome)
                    failures += outcome.explanation is None
                    report.inputs, report.failed = len(outcomes), failures
                    bar.update(report.inputs, report.so_far(bar.seconds))
            except (Exception, KeyboardInterrupt) as error:
                if failures == len(outcomes):
                    raise
                stopped = isinstance(error, KeyboardInterrupt)
                why = "stopped by Ctrl-C" if stopped else in_words(error).removesuffix(AGAIN)
    report.seconds = time.monotonic() - begin
    failed = sorted((outcome for outcome in outcomes if outcome.explanation is None), key=lambda one: one.index)
    done = {outcome.index for outcome in outcomes}
    missing = [Outcome(item.index, item.key, None, f"missing: {why}") for item in items if item.index not in done]
    found = Explanations([*outcomes, *missing], report)
    if failed:
        first = f"input {failed[0].index}: {failed[0].error}"
        if len(failed) == len(found):
            raise NotExplainedError(f"none of the {len(found)} inputs could be explained ({first})")
        _warn(f"{len(failed)} of {len(found)} inputs could not be explained ({first})")
    if missing:
        _warn(f"{len(missing)} of {len(found)} inputs are missing, to be explained by another call ({why})")
    return found


def _warn(what: str) -> None:
    """Warn where the line is that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("c2fa."):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{what}; errors() lists them, and items() passes over them", stacklevel=level)


@dataclass(frozen=True)
class Settings:
    """How inputs are asked about."""

    batch_size: int | None
    in_flight: int
    tries: int
    patience: float


def _isolation(settings: Settings, explainer: Explainer, on_answer: Callable[[], object] = lambda: None) -> Isolation:
    """What is known of the model, and when it gives its first answer."""
    # A model that never gave an answer is more likely wrong than busy.
    health = Health(min(settings.patience, 1.0), describe(explainer.model).outputs_vary)

    def answered() -> None:
        health.patience = settings.patience
        on_answer()

    health.on_answer = answered
    return Isolation(settings.tries, health)


def _packed(settings: Settings, explainer: Explainer, items: Sequence[Item], isolation: Isolation) -> Iterator[Outcome]:
    """Explain inputs in this process; the first that is explained shows from then on whether the model is down."""
    known, health = {item.index: item for item in items}, isolation.health
    size, in_flight = settings.batch_size, settings.in_flight
    for outcome in packed(explainer, items, batch_size=size, in_flight=in_flight, isolation=isolation):
        if outcome.explanation is not None and health.find_canary is None:  # its rows may all be from a ledger
            health.find_canary = functools.partial(prediction_row, explainer, known[outcome.index])
        yield outcome


@dataclass(frozen=True, eq=False)
class Task:
    """Inputs for one worker, by their places, without those that are done; and another input that is explained."""

    left: dict[int, Item]
    canary: Item | None = None


def _explained_by_workers(
    settings: Settings, explainer: Explainer, items: Sequence[Item], workers: int
) -> Generator[tuple[Outcome, Report]]:
    """Explain inputs in processes around the model, which this one has; each comes with what all so far have taken."""
    if explainer.ledger is not None and explainer.ledger.path == ":memory:":
        raise ValueError("a ledger in memory cannot be shared by workers; give a file, or leave out workers=")
    size = max(1, min(64, len(items) // (4 * workers)))  # so that no worker waits long for the last one
    tasks = [Task({item.index: item for item in some}) for some in cut(items, size)]
    crew = Crew(min(workers, len(tasks)), tries=settings.tries)
    make_model, make = Recipe.of(explainer).divided()
    remedy = "give what a module defines, a scout as c2fa.scout('python:module:object'), or leave out workers="
    dumps(make, "what is beside the model", remedy)
    total, canary = Report(), None
    with Signals(_stop), tempfile.TemporaryDirectory(prefix="c2fa-") as folder:
        contact = Contact(folder, settings.patience)
        serving = Serving(make_model, contact, here=True, batch_size=settings.batch_size or explainer.batch_size)
        answered = Path(folder) / "answered"
        worker = functools.partial(_worker, settings, make, answered)
        held, silent = list[Task](), 0  # tasks to be begun again, and how many inputs got no answer at all
        trouble: Exception | None = None
        for again in (False, True):
            for done in processes(worker, iter(tasks), workers=workers, serving=serving, crew=crew):
                left = done.task.left
                if done.result is not None:
                    outcome, report = pickle.loads(done.result)
                    item = left.pop(outcome.index)
                    canary = item if canary is None and outcome.explanation is not None else canary
                    total = replace(total + report, workers=crew.used)
                    yield outcome, total
                elif isinstance(done.error, WorkerError) and (again or len(left) == 1):  # this input kills workers
                    for item in left.values():
                        yield Outcome(item.index, item.key, None, str(done.error)), total
                elif isinstance(done.error, WorkerError):  # one of these does: each is tried by itself
                    trouble = NotExplainedError(f"no input could be explained: {done.error}")
                    held += [Task({index: item}) for index, item in left.items()]
                elif isinstance(done.error, NoAnswerError) and not again:  # the model is down, or these inputs are bad
                    trouble, silent = done.error, silent + len(left)
                    held.append(done.task)
                    if silent >= UNANSWERED and canary is None and not answered.exists():
                        raise done.error
                elif done.error is not None:
                    raise done.error
            if trouble is not None and canary is None and not answered.exists():
                raise trouble
            tasks = [replace(task, canary=canary) for task in held]


def _stop(number: int) -> None:
    """End as Ctrl-C does, and leave no folder behind where SIGTERM comes."""
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _worker(
    settings: Settings, make: Callable[[Any], Explainer], answered: Path, model: RemoteModel
) -> Callable[[Task], Iterator[bytes]]:
    """What explains inputs around a model that another process has."""
    explainer = make(model)
    isolation = _isolation(settings, explainer, on_answer=answered.touch)

    def work(task: Task) -> Iterator[bytes]:
        if task.canary is not None:
            isolation.health.find_canary = functools.partial(prediction_row, explainer, task.canary)
        for outcome in _packed(settings, explainer, list(task.left.values()), isolation):
            report, isolation.report = isolation.report, Report()
            yield dumps((outcome, replace(report, loads=Loads(model.loads))), "an explanation")

    return work
