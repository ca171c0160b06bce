"""Every method, budget and seed on every input, with no question asked twice."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from c2fa import metrics as measures
from c2fa._version import __version__
from c2fa.driver import Job, drive
from c2fa.evaluation.results import Record, Result, RowCount, tidy
from c2fa.evaluation.scoring import MetricSpec, Score, as_scores, score_all
from c2fa.evaluation.sizes import Size, as_sizes, check_depth, rows_of
from c2fa.evaluation.store import Store
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.fingerprint import fingerprint, identify
from c2fa.masking import Masker, check_masked, level_names
from c2fa.methods import AnyMethod
from c2fa.model import Model, describe
from c2fa.models.loading import wrap
from c2fa.querying import BudgetError, Cache, OnError, Queries

MethodSpec: TypeAlias = str | tuple[str, str | AnyMethod] | tuple[str, str | AnyMethod, Mapping[str, Any]]
Scores: TypeAlias = list[tuple[str, int, float]]
"""Of one explanation: metric, level, value."""

_DEFAULT_METRICS = ("insertion", "deletion", "consistency", "mihl")


def evaluate(
    methods: Sequence[MethodSpec],
    inputs: Sequence[Any],
    model: Model,
    masker: Masker,
    *,
    masks: Sequence[Sequence[int]] | None = None,
    budgets: Sequence[int | Sequence[int]] | None = None,
    seeds: int | Sequence[int] = 3,
    metrics: Sequence[MetricSpec] = _DEFAULT_METRICS,
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
) -> Result:
    """Run every method at every budget and seed on every input, and score what comes out.

    All runs on one input share one pool of answers, so that methods that draw the same masks pay for them once, and
    a run of 50 masks is the beginning of the run of 300. What a method sees and what it may use is the same as if it
    had run alone.

    Parameters
    ----------
    methods
        Names such as ``"lime"``, or ``(label, name, options)`` for a method with options of ``Explainer``.
    inputs
        What is to be explained, each once for every method, budget and seed.
    masks
        The masks of each level, coarse to fine, in the paper's sense: ``(5, 50)`` is N_H = 5 and N_L = 50, and the row
        of the prediction itself comes on top.
    budgets
        In place of ``masks``, budgets as ``Explainer`` takes them, the prediction's row among them: numbers of rows in
        all, that each method splits, or tuples with the rows of each level. ``(6, 50)`` is the same run as masks of
        ``(5, 50)``, and the table says N_H = 5 for both.
    seeds
        Their number, or the seeds themselves. At one seed every input has masks of its own, the same for all methods
        and those that ``Explainer`` asks it; see ``seed`` there.
    metrics
        Names, taken at the levels where they make sense or at one (``"deletion@0"``), or ``(name, function)`` with a
        function ``(explanation, truth)`` to a number, or to a conversation that asks the model. Their rows are
        counted apart.
    truths
        For metrics of correctness, one tuple for each input with an array for each level, coarse to fine: 1 for what
        is relevant, 0, or NaN for unknown; for leaves also a table of positive and negative pixels
        (``c2fa.metrics.pixel_counts``). For ``"coverage"``, the true values.
    keys
        Names of the inputs, in the store and for the masks of those that cannot be hashed.
    target
        The output to explain, as in ``Explainer``.
    reference
        The label to which the summary compares; ``"c2fa"`` where there is one, else the first.
    store
        A folder that keeps every answer and every finished input. A second call with the same settings goes on where
        the first stopped; with other settings it repeats no question. Several processes may evaluate their inputs into
        one folder: a call with all inputs then reads what they did. It needs a name of the model.
    keep_answers
        Whether the store keeps the answers too. Without them an input that was not finished is asked about again.
    seconds
        Begin no further input after this time. The result has the inputs that are finished, those of the store among
        them, so that ``seconds=0`` reads a store.
    batch_size, on_error
        As in ``Explainer``.
    progress
        Whether to show a bar; None shows one in a terminal.

    Examples
    --------
    >>> import c2fa
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
    scores = as_scores(metrics)
    model = wrap(model)
    _check(inputs, {"truths": truths, "keys": keys}, batch_size)
    runs = _runs(methods, as_sizes(masks, budgets), seeds, model, masker, target, on_error)
    labels = tuple(dict.fromkeys(run.label for run in runs))
    reference = _reference(reference, labels)
    name, kept = "", None
    if store is not None:
        name = model_name or describe(model).name or ""
        if not name:
            raise ValueError(
                "a store keeps answers under the model's name, and this model has none; give model_name='…'"
            )
        kept = Store(store, _settings(runs, scores, target, name, on_error), keep_answers)
    grid = _Grid(runs, scores, model, masker, batch_size, on_error, name, kept)
    end = math.inf if seconds is None else time.monotonic() + seconds
    records: dict[int, Record] = {}
    count = 0
    try:
        for i, x in enumerate(_bar(inputs, progress)):
            count += 1
            truth, key = (None if given is None else given[i] for given in (truths, keys))
            record = grid.record(x, truth, key, i, begin=time.monotonic() < end)
            if record is not None:
                records[i] = record
    finally:
        if kept is not None:
            kept.close()
    return Result(
        tidy(records, [(run.label, run.size, run.seed) for run in runs]),
        labels,
        reference,
        RowCount.total([record["rows"] for record in records.values()]),
        {score.name: score.higher_is_better for score in scores},
        _notes(records, count),
        _level_names(records),
        frozenset(score.name for score in scores if score.whole),
    )


def _check(inputs: Any, beside: Mapping[str, Sequence[Any] | None], batch_size: int) -> None:
    """Refuse a batch size, inputs, and what is given for each of them, that cannot be."""
    if not (isinstance(batch_size, int | np.integer) and batch_size > 0):
        raise ValueError(f"batch_size must be a whole number above 0; got {batch_size!r}")
    if hasattr(inputs, "__len__") and not len(inputs):
        raise ValueError("inputs is empty: give at least one input to explain")
    for what, given in beside.items():
        if given is not None and len(given) != len(inputs):
            raise ValueError(f"{len(given)} {what} for {len(inputs)} inputs; give one for each")


def _reference(given: str | None, labels: Sequence[str]) -> str:
    """The label to which others are compared."""
    if given is None:
        return "c2fa" if "c2fa" in labels else labels[0]
    if given not in labels:
        raise ValueError(f"reference {given!r} is not one of the methods {list(labels)}")
    return given


@dataclass(frozen=True, eq=False)
class _Run:
    """One cell of the grid, the same for every input."""

    label: str
    size: Size
    seed: int
    explainer: Explainer

    def __str__(self) -> str:
        what = "budget" if isinstance(self.size, int) else "masks"
        return f"method {self.label!r} at {what} {self.size}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class _Grid:
    """All runs on one input after another: first all explanations of an input, then all their scores."""

    runs: Sequence[_Run]
    scores: Sequence[Score]
    model: Model
    masker: Masker
    batch_size: int
    on_error: OnError
    model_name: str
    store: Store | None

    def record(self, x: Any, truth: Any, key: str | None, number: int, begin: bool) -> Record | None:
        """What is kept of an input, from the store or made now; None where it is to be made and may not begin."""
        identity = identify(x, key, None if self.store is None else self.masker)
        cell = ""
        if self.store is not None:
            cell = f"{identity.key}-{fingerprint(truth)}"
            stored = self.store.read(cell)
            if stored is not None:
                stored["rows"]["sent"] = 0
                return stored
        if not begin:
            return None
        masked = self.masker(x)
        check_masked(masked)
        check_depth((run.size for run in self.runs), masked.structure.depth)
        ledger = None if self.store is None else self.store.ledger
        cache = Cache(masked, self.on_error, identity, ledger, self.model_name)
        record = self._run(x, truth, cache, number)
        if self.store is not None:
            self.store.write(cell, record)
        return record

    def _run(self, x: Any, truth: Any, cache: Cache, number: int) -> Record:
        """Explain an input in every way and score every explanation."""
        explaining = self._explain(x, cache, number)
        asked, each = len(cache.known), cache.masked.rows_per_mask
        made = {i: job.result() for i, job in enumerate(explaining) if job.error is None}
        scoring = self._score(made, truth, cache, number)
        table = {i: job.result() for i, job in scoring.items() if job.error is None}
        if any(score.name == "stability" for score in self.scores):
            self._stability(made, table)
        jobs: list[Job[Any]] = [*explaining, *scoring.values()]
        rows = RowCount(
            explaining=asked * each,
            explaining_alone=sum(job.queries.used for job in explaining),
            scoring=(len(cache.known) - asked) * each,
            scoring_alone=sum(job.queries.used for job in scoring.values()),
            sent=cache.sent,
        )
        return {
            "levels": level_names(cache.masked.structure, cache.masked.view),
            "rows": asdict(rows),
            "refused": [
                (run.label, str(run.size), str(job.error))
                for run, job in zip(self.runs, explaining, strict=True)
                if job.error is not None
            ],
            "notes": [note for job in jobs for note in job.queries.notes],
            "scores": [
                (i, metric, level, None if np.isnan(value) else value)
                for i, scores in table.items()
                for metric, level, value in scores
            ],
        }

    def _explain(self, x: Any, cache: Cache, number: int) -> list[Job[Explanation]]:
        """Every run's explanation of an input, all from one cache of answers."""
        jobs = []
        for run in self.runs:
            explainer = run.explainer
            budget = explainer.budget
            if isinstance(budget, tuple):  # the sizes count masks, and an explainer's budget their rows
                explainer = copy.copy(explainer)
                explainer.budget = tuple(n * cache.masked.rows_per_mask for n in budget)
            queries = explainer.queries(x, cache.masked, cache=cache)
            jobs.append(Job(explainer.conversation(cache.masked, queries), queries, f"{run}, input {number}"))
        self._drive(jobs)
        return jobs

    def _score(self, made: Mapping[int, Explanation], truth: Any, cache: Cache, number: int) -> dict[int, Job[Scores]]:
        """The scores of each run's explanation, from the same answers and some more."""
        jobs: dict[int, Job[Scores]] = {}
        for i, explanation in made.items():
            scores = score_all(self.scores, explanation, truth, cache.masked.allows_empty, cache.identity)
            place = f"the scores of {self.runs[i]}, input {number}"
            jobs[i] = Job(scores, Queries(cache, sys.maxsize), place)
        self._drive(list(jobs.values()))
        return jobs

    def _drive(self, jobs: Sequence[Job[Any]]) -> None:
        """Drive all jobs to their ends; one whose budget is too small keeps its error, any other error is raised."""
        for job in drive(jobs, self.model, batch_size=self.batch_size):
            if job.error is not None and not isinstance(job.error, BudgetError):
                job.error.add_note(f"this happened in {job.about}")
                raise job.error

    def _stability(self, made: Mapping[int, Explanation], table: Mapping[int, Scores]) -> None:
        """Fill in each run's mean rank correlation with the runs of the other seeds."""
        for i, rows in table.items():
            cell = (self.runs[i].label, self.runs[i].size)
            others = [k for k in made if k != i and (self.runs[k].label, self.runs[k].size) == cell]
            for n, (metric, level, _) in enumerate(rows):
                if metric == "stability" and others:
                    pairs = [[made[i].values[level], made[k].values[level]] for k in others]
                    rows[n] = (metric, level, float(np.mean([measures.stability(pair) for pair in pairs])))


def _runs(
    methods: Sequence[MethodSpec],
    sizes: Sequence[Size],
    seeds: int | Sequence[int],
    model: Model,
    masker: Masker,
    target: int | str | None,
    on_error: OnError,
) -> list[_Run]:
    """Make every cell of the grid before anything is asked, so that a misspelt option costs nothing."""
    if isinstance(methods, str) or not methods:
        raise ValueError(f"methods must be a list such as ['c2fa', 'lime']; got {methods!r}")
    specs = [_spec(method) for method in methods]
    labels = [label for label, _, _ in specs]
    if len(set(labels)) < len(labels):
        raise ValueError(f"two methods have one label in {labels}; give (label, name, options) with different labels")
    numbers = list(range(seeds) if isinstance(seeds, int | np.integer) else seeds)
    if not numbers:
        raise ValueError(f"seeds must be their number, at least 1, or the seeds themselves; got {seeds!r}")
    settings: dict[str, Any] = {"target": target, "on_error": on_error, "outputs": "target"}
    runs = []
    for label, method, options in specs:
        for size in sizes:
            for seed in numbers:
                chosen = {"method": method, "budget": rows_of(size), "seed": seed, **settings}
                runs.append(_Run(label, size, int(seed), Explainer(model, masker, **chosen, **options)))
    return runs


def _spec(method: MethodSpec) -> tuple[str, str | AnyMethod, Mapping[str, Any]]:
    """A method as label, name and options."""
    if isinstance(method, str):
        return method, method, {}
    if len(method) == 2:
        return *method, {}
    return method


def _settings(runs: Sequence[_Run], scores: Sequence[Score], target: Any, name: str, on_error: str) -> str:
    """A hash of all that decides the results besides the inputs."""
    cells = []
    for run in runs:
        method = run.explainer.method
        try:
            what = fingerprint(method)
        except TypeError:  # an option that has no stable hash: its text will do
            what = repr(method)
        asked = [str(run.size), run.seed, str(run.explainer.until), run.explainer.link.name]
        cells.append([run.label, run.explainer.method_name, what, *asked])
    return fingerprint(__version__, cells, [[s.name, str(s.levels)] for s in scores], str(target), name, on_error)


def _level_names(records: Mapping[int, Record]) -> tuple[str, ...]:
    """What the levels are called, by the deepest input; records of stores from before have no names."""
    return max((tuple(record.get("levels", ())) for record in records.values()), key=len, default=())


def _notes(records: Mapping[int, Record], count: int) -> tuple[str, ...]:
    """What was left out and why, each reason once."""
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


def _bar(inputs: Iterable[Any], progress: bool | None) -> Iterable[Any]:
    if not (sys.stderr.isatty() if progress is None else progress):
        return inputs
    from tqdm.auto import tqdm

    return tqdm(inputs, desc="evaluating", unit="input")
