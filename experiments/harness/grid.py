"""The grid of an experiment, evaluated by ``c2fa.evaluate`` into a store, in processes around one network."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c2fa import metrics
from c2fa.asking.querying import Conversation
from c2fa.evaluation import Result, evaluate
from c2fa.models import Lazy
from experiments.harness.items import Item, masker
from experiments.harness.network import Network
from experiments.harness.settings import Method

ASKING: Mapping[str, Any] = {"batch_size": 1 << 10, "progress": False}
"""As many rows as keep a GPU busy for a tenth of a second; with more, workers would wait for each other."""
KEEPING: Mapping[str, Any] = {"keep_answers": False, "model_name": "network"}
"""Asking the network again costs less than a file of its answers that all workers write."""


@dataclass(frozen=True)
class Crew:
    """Who does the work: processes that draw, fit and score around one that owns the network; 0 is this one alone."""

    workers: int = 0
    cuda: bool = False

    def options(self) -> dict[str, Any]:
        """As ``evaluate`` takes it."""
        if not self.workers:
            return {}
        return {"workers": self.workers, "gpus" if self.cuda else "models": 1}


ALONE = Crew()


@dataclass(frozen=True)
class Load:
    """What the network did in a run.

    Attributes
    ----------
    rows, work
        Rows that were asked, and what of them went through the network: images, or word pieces.
    seconds, waiting
        Between the first question and the last answer, and of these, while nobody had a question.
    sets
        Batches that it was given.
    """

    rows: int = 0
    work: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    sets: int = 0

    @property
    def rate(self) -> float:
        """Work a second."""
        return self.work / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, eq=False)
class Grid:
    """What is run on every input.

    Attributes
    ----------
    methods
        As ``evaluate`` takes them.
    masks
        ``(N_H, N_L)``, the row of the prediction on top.
    leaves_at
        The N_H at which scores of leaves that ask the model are taken: the one at which the paper reports them.
    curves
        How many of the inputs have their leaves' insertion and deletion curves taken, which cost the most; the first.
    points
        Steps of a curve over leaves; curves over parts have one step a part.
    extra
        Further scores, ``(name, function)``.
    """

    methods: tuple[Method, ...]
    masks: tuple[tuple[int, int], ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    leaves_at: int
    target: int | None = None
    curves: int = 1 << 30
    points: int = 25
    extra: tuple[tuple[str, Any], ...] = ()

    def evaluate(
        self, items: Sequence[Item], model: Lazy, folder: Path, crew: Crew, seconds: float | None = None
    ) -> Result:
        """Evaluate items into a store."""
        return evaluate(
            self.methods,
            items,
            model,
            masker,
            masks=self.masks,
            seeds=self.seeds,
            metrics=self._scores(),
            truths=[self._truth(k, item) for k, item in enumerate(items)],
            target=self.target,
            store=folder,
            seconds=seconds,
            **KEEPING,
            **ASKING,
            **crew.options(),
        )

    def _truth(self, k: int, item: Item) -> tuple[Any, Any, bool]:
        """The truths of both levels, and whether curves over leaves are taken: metrics are told nothing else."""
        return (*(item.truth or (None, None)), k < self.curves)

    def _scores(self) -> list[Any]:
        """The metrics as ``evaluate`` takes them."""
        leaf_curves = {
            "insertion of leaves": metrics.insertion,
            "deletion of leaves": metrics.deletion,
        }
        chosen: list[Any] = list(self.extra)
        for name in self.metrics:
            metric = leaf_curves.get(name)
            chosen.append(name if metric is None else (name, self._leaf_curve(metric)))
        return chosen

    def _leaf_curve(self, metric: Callable[..., Any]) -> Callable[..., Any]:
        better = bool(getattr(metric, "higher_is_better", None))
        score = functools.partial(leaf_curve, metric=metric, leaves_at=self.leaves_at, points=self.points)
        return metrics.higher_is_better(better)(score)


def leaf_curve(
    e: Any, truth: Any, *, metric: Callable[..., Any], leaves_at: int, points: int
) -> Conversation[float] | float:
    """A curve over the leaves, where it is wanted."""
    parts = e.structure.widths[0]
    on_top = parts if e.provenance["method"] == "RankingOnTop" and parts > 1 else 0  # rows of the ranking
    if e.provenance["budget"][0] != leaves_at + on_top or not truth[-1]:
        return float("nan")
    curve: Conversation[float] | float = metric(e.low, -1, e.target, points=points)
    return curve


@dataclass(frozen=True, eq=False)
class Outcome:
    """The finished inputs of a run.

    Attributes
    ----------
    load
        What the network did for it now.
    frame
        A row for each run on each input and a column for each score.
    rows
        Model rows over all finished inputs: shared, and what separate runs would have asked.
    """

    load: Load
    frame: Any
    rows: Mapping[str, int]


def run(
    grid: Grid,
    items: Sequence[Item],
    model: Lazy,
    folder: Path,
    crew: Crew = ALONE,
    *,
    seconds: float | None = None,
) -> Outcome:
    """Evaluate the grid on all items into a store.

    ``seconds`` begins no input after so long: what is missing then is done by the same call another time.
    """
    begin = time.perf_counter()
    before = network_of(model).work
    result = grid.evaluate(items, model, folder, crew, seconds)
    if result.frame.empty:
        raise FileNotFoundError(f"no input is finished in {folder}; run the experiment first, or for more seconds")
    rows = asdict(result.rows)
    load = Load(rows["sent"], network_of(model).work - before, time.perf_counter() - begin)
    if crew.workers:
        load = _load(result)
    return Outcome(load, _wide(result.frame).reset_index(), {**rows, "sent": rows["explaining"] + rows["scoring"]})


def network_of(model: Lazy) -> Network:
    """The network itself, loaded into this process."""
    network = model.model
    assert isinstance(network, Network)
    return network


def _load(result: Result) -> Load:
    """What the processes of the network did; one that was killed has successors, one after another."""
    lives = result.loads.values()
    return Load(
        rows=sum(life.rows for life in lives),
        work=round(result.cost),
        seconds=sum(life.seconds for life in lives),
        waiting=sum(life.waiting for life in lives),
        sets=sum(life.launches for life in lives),
    )


def _wide(frame: Any) -> Any:
    """A column for each score, those of several levels with the level in their names."""
    frame["score"] = np.where(
        frame["metric"].isin(["insertion", "deletion"]),
        frame["metric"] + np.where(frame["level"] == 0, " of parts", " of leaves"),
        frame["metric"],
    )
    keys = ["method", "N_H", "N_L", "seed", "input"]
    return frame.pivot_table(index=keys, columns="score", values="value", observed=True)
