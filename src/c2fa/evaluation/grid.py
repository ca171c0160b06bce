"""Every method, budget and seed on every input, in this process or in workers, with no question asked twice."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from c2fa._system import at_least
from c2fa.asking.masking import Masker
from c2fa.asking.model import Model, describe
from c2fa.asking.querying import OnError
from c2fa.engines import Contact, Done, Engine, Journal, Load, Loads, RemoteModel, Serving, Work, WorkerError, serial
from c2fa.engines import engine as engine_of
from c2fa.evaluation.plan import Grid, MethodSpec, Plan, Task, as_sizes
from c2fa.evaluation.results import Record, Result, RowCount, Store, tidy
from c2fa.evaluation.scoring import MetricSpec
from c2fa.models import Lazy
from c2fa.models.loading import wrap
from c2fa.showing.progress import Bar


def evaluate(
    methods: Sequence[MethodSpec],
    inputs: Sequence[Any],
    model: Model,
    masker: Masker | None,
    *,
    masks: Sequence[Sequence[int]] | None = None,
    budgets: Sequence[int | Sequence[int]] | None = None,
    seeds: int | Sequence[int] = 3,
    metrics: Sequence[MetricSpec] = ("insertion", "deletion", "consistency", "mihl"),
    truths: Sequence[Any] | None = None,
    keys: Sequence[str] | None = None,
    target: int | str | None = None,
    reference: str | None = None,
    store: str | PathLike[str] | None = None,
    keep_answers: bool = True,
    seconds: float | None = None,
    model_name: str | None = None,
    batch_size: int = 64,
    on_error: OnError = "raise",
    progress: bool | None = None,
    workers: int = 0,
    gpus: int = 0,
    models: int = 0,
    engine: str | Engine = "processes",
) -> Result:
    """Run every method at every budget and seed on every input, and score the explanations.

    All runs on one input share one pool of answers, so that equal masks of several methods are paid for once. Each
    method gets the same answers, and has the same budget, as alone.

    Parameters
    ----------
    methods
        Names such as ``"lime"``, or ``(label, name, options)`` for a method with options of ``Explainer``. One with
        ``preset="paper"`` explains under the paper's masks; the scores of all are under the package's own.
    inputs
        The inputs to explain.
    masks
        The masks of each level, coarse to fine, in the paper's sense: ``(5, 50)`` is N_H = 5 and N_L = 50, and the row
        of the prediction itself comes on top.
    budgets
        In place of ``masks``, budgets as in ``Explainer``, which count the prediction's row: ``(6, 50)`` is the same
        run as masks of ``(5, 50)``, and the table says N_H = 5 for both.
    seeds
        Their number, or the seeds themselves; see ``seed`` of ``Explainer``.
    metrics
        Names, for all levels at which they make sense or for one (``"deletion@0"``); or ``(name, function)``, where
        ``function(explanation, truth)`` returns a number, or a conversation that asks the model. Rows of metrics are
        counted apart.
    truths
        For metrics of correctness, one tuple for each input with an array for each level, coarse to fine: 1 for
        relevant, 0 for irrelevant, NaN for unknown; for leaves also a table of positive and negative pixels
        (``c2fa.metrics.pixel_counts``). For ``"coverage"``, the true values.
    keys
        Names of the inputs, in the store and for the masks of those that cannot be hashed.
    target
        The output to explain, as in ``Explainer``.
    reference
        The label to which the summary compares; by default ``"owen"``, else ``"c2fa"``, else the first.
    store
        A folder that keeps all answers and finished inputs. A second call with the same settings continues the first;
        one with other settings repeats no question. The model needs a name.
    keep_answers
        Whether the store keeps the answers too. Without them an unfinished input begins anew.
    seconds
        Begin no further input after this time. The result has the finished inputs, also the store's, so that
        ``seconds=0`` reads a store.
    batch_size, on_error
        As in ``Explainer``.
    progress
        Whether work of over a second shows a bar; None shows one in notebooks and terminals.
    workers
        Processes that share the inputs; 0 does all of them in this one. An input whose worker is killed is tried again,
        three times at most. All arguments must be picklable; ``c2fa.models.Lazy`` makes a model where it is asked.
    gpus, models
        The number of processes that own the model, each with a GPU (``gpus``) or without one (``models``); workers send
        them masks. By default each worker has its own model.
    engine
        Where workers run: ``"processes"`` of this machine, ``"ray"`` or ``"dask"``.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> s = c2fa.Structure.from_groups("aabb")
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 3.0, 4.0])
    >>> result = evaluate(["c2fa"], [np.ones(4)], model, c2fa.maskers.Array(s), masks=[(4, 8), (4, 12)], seeds=2)
    >>> result.summary().query("metric == 'deletion' and level == 1")[["method", "N_H", "N_L", "mean"]]
      method  N_H  N_L  mean
    4   c2fa    4    8  3.75
    5   c2fa    4   12  3.75
    >>> print(result.rows)
    15 model rows for explanations (separate runs: 47) and 1 more for scores (separately: 32); 16 sent now
    """
    model = wrap(model)
    _check(inputs, {"truths": truths, "keys": keys}, batch_size)
    for what, number in {"workers": workers, "gpus": gpus, "models": models}.items():
        at_least(what, number, 0)
    if gpus and models:
        raise ValueError(f"give gpus={gpus} or models={models}: each is how many processes own the model")
    if (gpus or models) and not workers:
        owners = f"gpus={gpus}" if gpus else f"models={models}"
        raise ValueError(f"{owners} is for a model that several processes share: give workers= too")
    name = "" if store is None else model_name or describe(model).name or ""
    if store is not None and not name:
        raise ValueError("a store keeps answers under the model's name, and this model has none; give model_name='…'")
    plan = Plan(methods, masker, as_sizes(masks, budgets), seeds, metrics, target, batch_size, on_error, name)
    grid = plan.grid(model)
    labels = tuple(dict.fromkeys(run.label for run in grid.runs))
    if reference is None:
        reference = next((name for name in ("owen", "c2fa") if name in labels), labels[0])
    if reference not in labels:
        raise ValueError(f"reference {reference!r} is not one of the methods {list(labels)}")
    # The settings are hashed here and not in workers: some options have other texts there.
    folder = None if store is None else Path(store).absolute()
    open_store = None if folder is None else functools.partial(Store, folder, grid.settings(), keep_answers)
    tasks = (
        Task(i, x, None if truths is None else truths[i], None if keys is None else keys[i])
        for i, x in enumerate(inputs)
    )
    end = math.inf if seconds is None else time.monotonic() + seconds
    grid = replace(grid, store=None if open_store is None else open_store())
    records: dict[int, Record] = {}
    loads = Loads()
    count = 0
    with contextlib.ExitStack() as stack:
        if grid.store is not None:
            stack.callback(grid.store.close)
        team: Team = functools.partial(serial, lambda: functools.partial(_work, grid))
        if workers:
            journals = stack.enter_context(tempfile.TemporaryDirectory(prefix="c2fa-"))
            serving: Serving | None = None
            if gpus or models:
                contact = Contact(str(folder or journals))  # workers on other machines see the store's folder
                stack.callback(contact.clear)
                make_model = functools.partial(_loaded, model)
                serving = Serving(make_model, contact, gpus or models, gpu=bool(gpus), batch_size=batch_size)
            make = _MakeWorker(plan, open_store, journals, None if serving else model)
            team = functools.partial(engine_of(engine), make, workers=workers, serving=serving)
        results = stack.enter_context(contextlib.closing(_results(grid, tasks, end, team)))  # closing ends the workers
        total = len(inputs) if isinstance(inputs, Sized) else None
        bar = stack.enter_context(contextlib.closing(Bar(progress, total, "input", "evaluating")))
        for result in results:
            count += 1
            bar.update(count)
            loads += result.loads
            if result.record is not None:
                records[result.number] = result.record
    records = dict(sorted(records.items()))
    scores = grid.scores
    return Result(
        tidy(records, [(run.label, run.size, run.seed) for run in grid.runs]),
        labels,
        reference,
        RowCount.total([record["rows"] for record in records.values()]),
        {score.name: score.higher_is_better for score in scores},
        _notes(records, count),
        max((tuple(record["levels"]) for record in records.values()), key=len, default=()),  # the deepest input's
        frozenset(score.name for score in scores if score.whole),
        sum(record["cost"] for record in records.values()),
        loads,
    )


def _check(inputs: Any, beside: Mapping[str, Sequence[Any] | None], batch_size: int) -> None:
    """Refuse a bad batch size, no inputs, and lists ``beside`` them of another length."""
    at_least("batch_size", batch_size, 1)
    if not isinstance(inputs, Iterable):
        raise TypeError(f"inputs must be a list of inputs; got {inputs!r:.100}")
    if isinstance(inputs, Sized) and not len(inputs):
        raise ValueError("inputs is empty: give at least one input to explain")
    for what, values in beside.items():
        if values is None:
            continue
        if not isinstance(inputs, Sized):
            raise TypeError(f"inputs must be a list where {what} are given; got {inputs!r:.100}")
        if isinstance(values, Mapping) or not isinstance(values, Sized):
            raise TypeError(f"{what} must be a list with one for each input; got {values!r:.100}")
        if len(values) != len(inputs):
            raise ValueError(f"{len(values)} {what} for {len(inputs)} inputs; give one for each")


def _notes(records: Mapping[int, Record], count: int) -> tuple[str, ...]:
    """The runs and inputs that were left out, each reason once, and the notes of the records."""
    refused: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for number, record in records.items():
        for label, size, reason in record["refused"]:
            refused.setdefault((label, reason), []).append((number, size))
    notes = []
    for (label, reason), runs in refused.items():
        inputs, sizes = (dict.fromkeys(column) for column in zip(*runs, strict=True))
        notes.append(
            f"{label} was left out on {len(inputs)} of {len(records)} inputs at {', '.join(map(str, sizes))}: {reason}"
        )
    if len(records) < count:
        notes.append(f"{count - len(records)} of {count} inputs were not begun in time; the same call does them")
    return (*notes, *dict.fromkeys(note for record in records.values() for note in record["notes"]))


@dataclass(frozen=True, eq=False)
class _Result:
    """An input's number, its record (None if it could not begin in time), and the model's load."""

    number: int
    record: Record | None
    loads: Mapping[str, Load] = field(default_factory=dict)


Team: TypeAlias = Callable[[Iterable[Task]], Iterator[Done]]
"""Workers that start with their first task."""


@dataclass(frozen=True, eq=False)
class _MakeWorker:
    """Makes a worker where it runs, around its own model or a remote one.

    ``journals`` is a folder that outlives workers; its files say which inputs killed them.
    """

    plan: Plan
    open_store: Callable[[], Store] | None
    journals: str
    model: Model | None = None

    def __call__(self, remote: RemoteModel | None = None) -> Work:
        model = self.model if remote is None else remote
        assert model is not None
        grid = replace(self.plan.grid(model), store=self.open_store and self.open_store())
        return functools.partial(_work, grid, begin=self.begin, remote=remote)

    def begin(self, number: int, most: int = 3) -> None:
        """Note that an input is begun, or refuse one that killed ``most`` workers."""
        if not os.path.isdir(self.journals):  # on another machine
            return
        journal = Journal(Path(self.journals) / f"{number}.journal")
        if len(journal.deaths.get((number,), ())) >= most:
            raise WorkerError(
                f"input {number} was begun {most} times, and its worker was killed each time: leave it out, or see "
                "that there is enough memory for it"
            )
        journal.begin()
        journal.at(number)


def _work(
    grid: Grid, task: Task, begin: Callable[[int], None] = lambda number: None, remote: RemoteModel | None = None
) -> _Result:
    record = grid.stored(task)  # a worker may have finished it before it was killed
    if record is None:
        begin(task.number)
        record = grid.record(task)
    return _Result(task.number, record, {} if remote is None else remote.loads)


def _loaded(model: Model) -> Model:
    """The model itself; a lazy one is loaded now."""
    return model.model if isinstance(model, Lazy) else model


def _results(grid: Grid, tasks: Iterable[Task], end: float, team: Team) -> Generator[_Result]:
    """Every input's result, from the store or from the team, which starts only if there is a task for it."""
    stored: list[_Result] = []

    def missing() -> Iterator[Task]:
        for task in tasks:
            record = grid.stored(task)
            if record is None and time.monotonic() < end:
                yield task
            else:
                stored.append(_Result(task.number, record))

    remaining = missing()
    first = next(remaining, None)
    if first is not None:
        outcomes = team(itertools.chain([first], remaining))
        try:
            for done in outcomes:
                if done.error is not None:
                    raise done.error
                yield done.result
                while stored:
                    yield stored.pop()
        finally:
            if isinstance(outcomes, Generator):  # now: an error that refers to it would keep it open
                outcomes.close()
    yield from stored
