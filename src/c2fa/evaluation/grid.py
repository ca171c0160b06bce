"""The harness: every method, budget and seed on every input, with no question asked twice."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from c2fa import metrics as measures
from c2fa._version import __version__
from c2fa.driver import Job, drive
from c2fa.evaluation.results import Result, RowCount, tidy
from c2fa.evaluation.scoring import MetricSpec, Score, as_scores, score_all
from c2fa.evaluation.sizes import Size, as_sizes, check_depth, rows_of
from c2fa.evaluation.store import Store
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.fingerprint import Identity, fingerprint, identify
from c2fa.masking import Masker
from c2fa.methods import AnyMethod
from c2fa.model import Model, describe
from c2fa.models.loading import wrap
from c2fa.querying import BudgetError, Cache, OnError, Queries

MethodSpec: TypeAlias = str | tuple[str, str | AnyMethod] | tuple[str, str | AnyMethod, Mapping[str, Any]]

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
        the first stopped; with other settings it repeats no question. It needs a name of the model.
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
    if not (isinstance(batch_size, int | np.integer) and batch_size > 0):
        raise ValueError(f"batch_size must be a whole number above 0; got {batch_size!r}")
    if hasattr(inputs, "__len__") and not len(inputs):
        raise ValueError("inputs is empty: give at least one input to explain")
    name = model_name or describe(model).name
    runs = _runs(methods, as_sizes(masks, budgets), seeds, model, masker, target, on_error)
    labels = list(dict.fromkeys(run.label for run in runs))
    reference = reference or ("c2fa" if "c2fa" in labels else labels[0])
    if reference not in labels:
        raise ValueError(f"reference {reference!r} is not one of the methods {labels}")
    for what, given in (("truths", truths), ("keys", keys)):
        if given is not None and len(given) != len(inputs):
            raise ValueError(f"{len(given)} {what} for {len(inputs)} inputs; give one for each")
    if store is not None and not name:
        raise ValueError("a store keeps answers under the model's name, and this model has none; give model_name='…'")
    settings = _settings(runs, scores, target, name, on_error)
    kept = None if store is None else Store(store, settings)
    unit = _Unit(runs, scores, model, batch_size, on_error, None if kept is None else kept.ledger, name or "")
    records, sent = [], 0
    try:
        for i, x in enumerate(_bar(inputs, progress)):
            truth = None if truths is None else truths[i]
            identity = identify(x, None if keys is None else keys[i], None if kept is None else masker)
            cell = f"{identity.key}-{fingerprint(truth)}" if kept is not None else ""
            if kept is not None and cell in kept.done:
                records.append(kept.done[cell])
                continue
            record, now = unit.run(x, masker, truth, identity, i)
            record["key"] = cell
            sent += now
            records.append(record)
            if kept is not None:
                kept.write(record)
    finally:
        if kept is not None:
            kept.close()
    rows = RowCount(**{**{k: sum(r["rows"][k] for r in records) for k in RowCount.KEPT}, "sent": sent})
    frame = tidy(records, [(run.label, run.size, run.seed) for run in runs])
    directions = {score.name: score.higher_is_better for score in scores}
    return Result(frame, tuple(labels), reference, rows, directions, _notes(records))


@dataclass(frozen=True, eq=False)
class _Run:
    """One cell of the grid, the same for every input."""

    label: str
    size: Size
    seed: int
    explainer: Explainer
    options: Mapping[str, Any]

    def __str__(self) -> str:
        what = "budget" if isinstance(self.size, int) else "masks"
        return f"method {self.label!r} at {what} {self.size}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class _Unit:
    """The whole grid on one input: first all explanations, then all scores."""

    runs: Sequence[_Run]
    scores: Sequence[Score]
    model: Model
    batch_size: int
    on_error: OnError
    ledger: Any
    model_name: str

    def run(self, x: Any, masker: Masker, truth: Any, identity: Identity, number: int) -> tuple[dict[str, Any], int]:
        """Return what is to be kept of an input, and how many rows were sent for it now."""
        masked = masker(x)
        check_depth((run.size for run in self.runs), masked.structure.depth)
        cache = Cache(masked, self.on_error, identity, self.ledger, self.model_name)
        explaining: list[Job[Explanation]] = []
        for run in self.runs:
            queries = run.explainer.queries(x, masked, cache=cache)
            explaining.append(Job(run.explainer.conversation(masked, queries), queries, f"{run}, input {number}"))
        self._drive(explaining)
        asked = len(cache.known)
        made = {i: job.result() for i, job in enumerate(explaining) if job.error is None}
        refused = [
            (run.label, str(run.size), str(job.error))
            for run, job in zip(self.runs, explaining, strict=True)
            if job.error is not None
        ]
        scoring: list[Job[list[tuple[str, int, float]]]] = []
        for i, explanation in made.items():
            scores = score_all(self.scores, explanation, truth, masked.allows_empty, identity)
            place = f"the scores of {self.runs[i]}, input {number}"
            scoring.append(Job(scores, Queries(cache, sys.maxsize), place))
        self._drive(scoring)
        table = {i: job.result() for i, job in zip(made, scoring, strict=True) if job.error is None}
        if any(score.name == "stability" for score in self.scores):
            self._stability(made, table)
        jobs: list[Job[Any]] = [*explaining, *scoring]
        rows = RowCount(
            asked,
            sum(job.queries.used for job in explaining),
            len(cache.known) - asked,
            sum(job.queries.used for job in scoring),
            sent=0,
        )
        record = {
            "input": number,
            "rows": asdict(rows),
            "refused": refused,
            "notes": [note for job in jobs for note in job.queries.notes],
            "scores": [[i, metric, level, _plain(value)] for i in table for metric, level, value in table[i]],
        }
        return record, cache.sent

    def _drive(self, jobs: Sequence[Job[Any]]) -> None:
        """Drive all jobs to their ends; one whose budget is too small keeps its error, any other error is raised."""
        for job in drive(jobs, self.model, batch_size=self.batch_size):
            if job.error is not None and not isinstance(job.error, BudgetError):
                job.error.add_note(f"this happened in {job.about}")
                raise job.error

    def _stability(self, made: Mapping[int, Explanation], table: dict[int, list[tuple[str, int, float]]]) -> None:
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
    specs = [(m, m, {}) if isinstance(m, str) else (m[0], m[1], dict(m[2]) if len(m) == 3 else {}) for m in methods]
    labels = [label for label, _, _ in specs]
    if len(set(labels)) < len(labels):
        raise ValueError(f"two methods have one label in {labels}; give (label, name, options) with different labels")
    numbers = list(range(seeds) if isinstance(seeds, int | np.integer) else seeds)
    if not numbers:
        raise ValueError(f"seeds must be their number, at least 1, or the seeds themselves; got {seeds!r}")
    runs = []
    for label, method, options in specs:
        for size in sizes:
            for seed in numbers:
                explainer = Explainer(
                    model,
                    masker,
                    method=method,
                    budget=rows_of(size),
                    seed=seed,
                    target=target,
                    on_error=on_error,
                    outputs="target",
                    **options,
                )
                runs.append(_Run(label, size, int(seed), explainer, options))
    return runs


def _settings(runs: Sequence[_Run], scores: Sequence[Score], target: Any, name: str | None, on_error: str) -> str:
    """A hash of all that decides the results besides the inputs."""
    cells = []
    for run in runs:
        method = run.explainer.method
        try:
            what = fingerprint(method)
        except TypeError:  # an option that has no stable hash: its text will do
            what = repr(method)
        until = [] if run.explainer.until is None else [str(run.explainer.until)]
        link = [run.explainer.link.name] if run.explainer.link.unit else []
        cells.append([run.label, run.explainer.method_name, what, str(run.size), run.seed, *until, *link])
    return fingerprint(__version__, cells, [[s.name, str(s.levels)] for s in scores], str(target), name, on_error)


def _notes(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What was left out and why, each reason once."""
    sizes: dict[tuple[str, str], dict[str, None]] = {}
    inputs: dict[tuple[str, str], set[int]] = {}
    for number, record in enumerate(records):
        for label, size, reason in record["refused"]:
            sizes.setdefault((label, reason), {})[size] = None
            inputs.setdefault((label, reason), set()).add(number)
    refused = [
        f"{label} was left out on {len(inputs[label, reason])} of {len(records)} inputs at {', '.join(at)}: {reason}"
        for (label, reason), at in sizes.items()
    ]
    return (*refused, *dict.fromkeys(note for record in records for note in record["notes"]))


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else value


def _bar(inputs: Iterable[Any], progress: bool | None) -> Iterable[Any]:
    if not (sys.stderr.isatty() if progress is None else progress):
        return inputs
    from tqdm.auto import tqdm

    return tqdm(inputs, desc="evaluating", unit="input")
