"""The grid of an experiment, evaluated by many processes around one network.

Each process evaluates one input after another into one store (``c2fa.evaluate``), so a run that was stopped goes on
where it was. Within an input all methods, budgets and seeds share one set of answers.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c2fa import metrics
from c2fa.evaluation import Result, RowCount, evaluate
from c2fa.querying import Conversation
from experiments.harness.service import Client, Crew, Item, Load, Network, Remote, here, masker, serve
from experiments.harness.settings import Method

ASKING: Mapping[str, Any] = {"batch_size": 1 << 30, "progress": False}
"""A question is sent as it is: the network makes its own batches."""
KEEPING: Mapping[str, Any] = {"keep_answers": False, "model_name": "network"}
"""Asking the network again costs less than a file of its answers that all workers write."""


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
        self,
        items: Sequence[Item],
        with_curves: bool,
        folder: Path,
        model: Remote,
        seconds: float | None = None,
    ) -> Result:
        """Evaluate some items into a store, with curves over leaves or without."""
        return evaluate(
            self.methods,
            items,
            model,
            masker,
            masks=self.masks,
            seeds=self.seeds,
            metrics=self._scores(with_curves),
            truths=[item.truth for item in items],
            target=self.target,
            store=folder,
            seconds=seconds,
            **KEEPING,
            **ASKING,
        )

    def _scores(self, with_curves: bool) -> list[Any]:
        """The metrics as ``evaluate`` takes them."""
        leaf_curves = {
            "insertion of leaves": metrics.insertion,
            "deletion of leaves": metrics.deletion,
        }
        chosen: list[Any] = list(self.extra)
        for name in self.metrics:
            if name not in leaf_curves:
                chosen.append(name)
            elif with_curves:
                chosen.append((name, self._leaf_curve(leaf_curves[name])))
        return chosen

    def _leaf_curve(self, metric: Callable[..., Any]) -> Callable[..., Any]:
        def score(e: Any, truth: Any) -> Conversation[float] | float:
            if e.provenance["budget"][0] != self.leaves_at:
                return float("nan")
            curve: Conversation[float] | float = metric(e.low, -1, e.target, points=self.points)
            return curve

        better = getattr(metric, "higher_is_better", None)
        return metrics.higher_is_better(bool(better))(score)


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
    network: Network,
    client: Callable[[], Client],
    folder: Path,
    *,
    workers: int = 0,
    seconds: float | None = None,
) -> Outcome:
    """Evaluate the grid on all items into a store, and read what it has.

    ``seconds`` begins no input after so long: what is missing then is done by the same call another time.
    """
    jobs = [functools.partial(grid.evaluate, [item], k < grid.curves, folder) for k, item in enumerate(items)]
    load = work(jobs, network, client, workers=workers, seconds=seconds)
    import pandas as pd

    wide, rows = [], []
    cut = min(grid.curves, len(items))
    for first, chosen, with_curves in ((0, items[:cut], True), (cut, items[cut:], False)):
        if chosen:
            stored = grid.evaluate(chosen, with_curves, folder, Remote(client(), here(network)), seconds=0)
            stored.frame["input"] += first
            wide.append(_wide(stored.frame))
            rows.append(asdict(stored.rows))
    frame = pd.concat(wide).reset_index()
    if frame.empty:
        raise FileNotFoundError(f"no input is finished in {folder}; run the experiment first, or for more seconds")
    total = asdict(RowCount.total(rows))
    return Outcome(load, frame, {**total, "sent": total["explaining"] + total["scoring"]})


def _wide(frame: Any) -> Any:
    """A column for each score, those of several levels with the level in their names."""
    frame["score"] = np.where(
        frame["metric"].isin(["insertion", "deletion"]),
        frame["metric"] + np.where(frame["level"] == 0, " of parts", " of leaves"),
        frame["metric"],
    )
    keys = ["method", "N_H", "N_L", "seed", "input"]
    return frame.pivot_table(index=keys, columns="score", values="value", observed=True)


def work(
    jobs: Sequence[Callable[[Remote], object]],
    network: Network,
    client: Callable[[], Client],
    *,
    workers: int = 0,
    seconds: float | None = None,
) -> Load:
    """Do jobs with a model whose answers come from the network, in processes of their own, or in this one for 0."""
    until = math.inf if seconds is None else time.time() + seconds
    if not workers:
        rows, done, begin = network.rows, network.work, time.perf_counter()
        _do_all(jobs, Remote(client(), here(network)), until)
        return Load(network.rows - rows, network.work - done, time.perf_counter() - begin)
    tasks: Any = multiprocessing.get_context("spawn").Queue()
    for job in jobs:
        tasks.put(job)
    crew = Crew.start(min(workers, max(len(jobs), 1)), _worker, client, tasks, until)
    load = serve(network, crew.lines)
    crew.finish()
    return load


def _worker(line: Any, number: int, client: Callable[[], Client], tasks: Any, until: float) -> None:
    if hasattr(os, "nice"):
        os.nice(10)  # the process that feeds the network goes first, so that there may be more workers than cores

    def ask(request: Any) -> Any:
        line.send(request)
        return line.recv()

    def left() -> Iterator[Callable[[Remote], object]]:
        while True:
            try:
                yield tasks.get(timeout=1.0)
            except queue.Empty:
                return

    _do_all(left(), Remote(client(), ask), until)
    line.close()


def _do_all(jobs: Iterable[Callable[[Remote], object]], model: Remote, until: float) -> None:
    for job in jobs:
        if time.time() > until:
            return
        job(model)
