"""What is run on every input: every method, budget and seed, and every score, from one cache of answers."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from c2fa import metrics as measures
from c2fa._system import is_whole
from c2fa._version import __version__
from c2fa.asking.driver import Job, drive
from c2fa.asking.fingerprint import Identity, fingerprint, identify
from c2fa.asking.masking import Masked, Masker, check_masked
from c2fa.asking.model import Model
from c2fa.asking.querying import BudgetError, Cache, OnError, Queries
from c2fa.evaluation.results import Record, RowCount, Size, Store
from c2fa.evaluation.scoring import MetricSpec, Score, as_scores, score_all
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.methods import BaseMethod
from c2fa.methods.budget import as_budget

MethodSpec: TypeAlias = str | tuple[str, str | BaseMethod] | tuple[str, str | BaseMethod, Mapping[str, Any]]
Scores: TypeAlias = list[tuple[str, int, float]]
"""Of one explanation: metric, level, value."""


def as_sizes(masks: Sequence[Sequence[int]] | None, budgets: Sequence[int | Sequence[int]] | None) -> list[Size]:
    """Read ``masks=`` or ``budgets=``, whichever was given. Tuples of rows become tuples of masks.

    >>> as_sizes([(20, 50), (20, 100)], None), as_sizes(None, [100, 200]), as_sizes(None, [(21, 50)])
    ([(20, 50), (20, 100)], [100, 200], [(20, 50)])
    """
    if (masks is None) == (budgets is None):
        given = "neither" if masks is None else "both"
        raise ValueError(
            f"give either masks=[(20, 50)], the masks of each level, or budgets=[200], the rows in all; got {given}"
        )
    sizes: list[Size] = []
    if masks is not None:
        rows = _listed(masks)
        if not isinstance(rows, Sequence) or not rows or not all(isinstance(_listed(r), Sequence) for r in rows):
            raise ValueError(f"masks must be a list with one number for each level, such as [(20, 50)]; got {masks!r}")
        for each in map(_listed, rows):
            if not each or not all(is_whole(count) and count > 0 for count in each):
                raise ValueError(f"masks must be whole numbers above 0, one for each level; got {each!r}")
            sizes.append(tuple(int(count) for count in each))
    else:
        rows = _listed(budgets)
        if not isinstance(rows, Sequence) or not rows or any(isinstance(each, str) for each in rows):
            raise ValueError(f"budgets must be a list of rows such as [100, 200]; got {budgets!r}")
        for each in (as_budget(_listed(r)) for r in rows):
            sizes.append(each if isinstance(each, int) else (each[0] - 1, *each[1:]))
    if len({0 if isinstance(size, int) else len(size) for size in sizes}) > 1:
        raise ValueError(f"budgets must be all numbers or all tuples, and tuples of one length; got {sizes}")
    return sizes


def _listed(given: Any) -> Any:
    return given.tolist() if isinstance(given, np.ndarray | np.generic) else given


@dataclass(frozen=True, eq=False)
class Plan:
    """What is run on every input, as it was given: it travels to the processes that do it.

    ``model_name`` is what a ledger keeps answers under; "" where nothing is kept.
    """

    methods: Sequence[MethodSpec]
    masker: Masker | None
    sizes: Sequence[Size]
    seeds: int | Sequence[int]
    metrics: Sequence[MetricSpec]
    target: int | str | None
    batch_size: int
    on_error: OnError
    model_name: str

    def grid(self, model: Model) -> Grid:
        """Make every cell of the grid before anything is asked, so that a misspelt option costs nothing."""
        return Grid(self, self._runs(model), as_scores(self.metrics), model)

    def _runs(self, model: Model) -> list[Run]:
        if isinstance(self.methods, str) or not self.methods:
            raise ValueError(f"methods must be a list such as ['owen', 'c2fa', 'lime']; got {self.methods!r}")
        specs = [_spec(method) for method in self.methods]
        labels = [label for label, _, _ in specs]
        if len(set(labels)) < len(labels):
            raise ValueError(
                f"two methods have one label in {labels}; give (label, name, options) with different labels"
            )
        seeds = self.seeds
        numbers = list(range(min(seeds, 10**6 + 1)) if isinstance(seeds, int | np.integer) else seeds)
        if not 0 < len(numbers) <= 10**6 or not all(map(is_whole, numbers)):
            raise ValueError(f"seeds must be their number, 1 to a million, or the seeds themselves; got {seeds!r:.100}")
        settings: dict[str, Any] = {
            "target": self.target,
            "on_error": self.on_error,
            "outputs": "target",
            "batch_size": self.batch_size,
        }
        runs = []
        for label, method, options in specs:
            for size in self.sizes:
                budget = size if isinstance(size, int) else (size[0] + 1, *size[1:])  # with the row of the prediction
                for seed in numbers:
                    chosen = {"method": method, "budget": budget, "seed": seed, **settings}
                    if shared := sorted(chosen.keys() & options):
                        raise TypeError(f"{shared[0]} is the same for all methods: leave it out of those of {label!r}")
                    runs.append(Run(label, size, int(seed), Explainer(model, self.masker, **chosen, **options)))
        return runs


def _spec(method: MethodSpec) -> tuple[str, str | BaseMethod, Mapping[str, Any]]:
    match method:
        case str():
            return method, method, {}
        case (str() as label, str() | BaseMethod() as of_it):
            return label, of_it, {}
        case (str() as label, str() | BaseMethod() as of_it, Mapping() as options):
            return label, of_it, options
    raise TypeError(f"a method is a name such as 'lime', or (label, name, options); got {method!r:.100}")


@dataclass(frozen=True, eq=False)
class Task:
    """One input, and what was given with it."""

    number: int
    x: Any
    truth: Any = None
    key: str | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """One cell of the grid, the same for every input."""

    label: str
    size: Size
    seed: int
    explainer: Explainer

    def __str__(self) -> str:
        what = "budget" if isinstance(self.size, int) else "masks"
        return f"method {self.label!r} at {what} {self.size}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Grid:
    """All runs on one input after another: first all explanations of an input, then all their scores."""

    plan: Plan
    runs: Sequence[Run]
    scores: Sequence[Score]
    model: Model
    store: Store | None = None

    @property
    def masker(self) -> Masker:
        """The masker of all runs."""
        return self.runs[0].explainer.masker

    def settings(self) -> str:
        """A hash of all that decides the results besides the inputs."""
        cells = []
        for run in self.runs:
            method = run.explainer.method
            try:
                what = fingerprint(method)
            except TypeError:  # an option that has no stable hash: its text will do
                what = repr(method)
            asked = [str(run.size), run.seed, str(run.explainer.until), run.explainer.link.name]
            asked += ["the paper's masks"] if run.explainer.preset == "paper" else []
            cells.append([run.label, run.explainer.method_name, what, *asked])
        plan = self.plan
        scores = [[s.name, str(s.levels)] for s in self.scores]
        return fingerprint(__version__, cells, scores, str(plan.target), plan.model_name, plan.on_error)

    def _identity(self, task: Task) -> Identity:
        return identify(task.x, task.key, None if self.store is None else self.masker)

    def stored(self, task: Task) -> Record | None:
        """What the store has of an input, which asked nothing now; None where it is not finished."""
        if self.store is None:
            return None
        record = self.store.read(f"{self._identity(task).key}-{fingerprint(task.truth)}")
        if record is not None:
            record["rows"]["sent"], record["cost"] = 0, 0.0
        return record

    def record(self, task: Task) -> Record:
        """Explain and score an input, and keep what came out."""
        identity = self._identity(task)
        masked = self.masker(task.x)
        check_masked(masked)
        depth = masked.structure.depth
        for run in self.runs:
            if not isinstance(run.size, int) and len(run.size) != depth:
                raise ValueError(
                    f"the masks {run.size} are for {len(run.size)} levels and the structure has {depth}; give one "
                    "number for each level, or budgets= with the rows in all"
                )
        for score in self.scores:
            score.check(depth, task.truth)
        ledger = None if self.store is None else self.store.ledger

        def cache(masked: Masked) -> Cache:
            return Cache(masked, self.plan.on_error, identity, ledger, self.plan.model_name)

        known = cache(masked)
        apart = next((run.explainer.under(masked) for run in self.runs if run.explainer.preset == "paper"), masked)
        record = self._run(task, known, known if apart is masked else cache(apart))
        if self.store is not None:
            self.store.write(f"{identity.key}-{fingerprint(task.truth)}", record)
        return record

    def _run(self, task: Task, cache: Cache, apart: Cache) -> Record:
        """Explain an input in every way and score every explanation.

        ``apart`` has the answers under the paper's masks, for the runs that ask so. Scores compare methods, so that all
        are asked under the same masks, which are not those.
        """
        explaining = self._explain(task, cache, apart)
        caches = dict.fromkeys([cache, apart])
        asked, each = sum(len(c.known) for c in caches), cache.masked.rows_per_mask
        made = {i: job.result() for i, job in enumerate(explaining) if job.error is None}
        scoring: dict[int, Job[Scores]] = {}
        for i, explanation in made.items():
            scores = score_all(self.scores, explanation, task.truth, cache.masked.allows_empty, cache.identity)
            place = f"the scores of {self.runs[i]}, input {task.number}"
            scoring[i] = Job(scores, Queries(cache, sys.maxsize), place)
        self._drive(list(scoring.values()))
        table = {i: job.result() for i, job in scoring.items() if job.error is None}
        if any(score.name == "stability" for score in self.scores):
            self._stability(made, table)
        jobs: list[Job[Any]] = [*explaining, *scoring.values()]
        rows = RowCount(
            explaining=asked * each,
            explaining_alone=sum(job.queries.used for job in explaining),
            scoring=(sum(len(c.known) for c in caches) - asked) * each,
            scoring_alone=sum(job.queries.used for job in scoring.values()),
            sent=sum(c.sent for c in caches),
        )
        return {
            "levels": cache.masked.level_names,
            "rows": asdict(rows),
            "cost": sum(job.queries.purse.cost for job in jobs),
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

    def _explain(self, task: Task, known: Cache, apart: Cache) -> list[Job[Explanation]]:
        """Every run's explanation of an input, all from one cache of answers, or from two."""
        jobs = []
        for run in self.runs:
            explainer = run.explainer
            budget, cache = explainer.budget, apart if explainer.preset == "paper" else known
            if isinstance(budget, tuple):  # the sizes count masks, and an explainer's budget their rows
                explainer = copy.copy(explainer)
                explainer.budget = tuple(n * cache.masked.rows_per_mask for n in budget)
            queries = explainer.queries(task.x, cache.masked, cache=cache)
            jobs.append(Job(explainer.conversation(cache.masked, queries), queries, f"{run}, input {task.number}"))
        self._drive(jobs)
        return jobs

    def _drive(self, jobs: Sequence[Job[Any]]) -> None:
        """Drive all jobs to their ends; one whose budget is too small keeps its error, any other error is raised."""
        for job in drive(jobs, self.model, batch_size=self.plan.batch_size):
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
