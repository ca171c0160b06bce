"""The grid of an experiment, run in shards: a shard is a few inputs with every method, budget and seed.

A shard is written when it is finished, so a run that was stopped goes on where it was. Within an input all methods,
budgets and seeds share one set of answers (``c2fa.evaluation.evaluate``).
"""

from __future__ import annotations

import json
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c2fa import metrics
from c2fa.evaluation import evaluate
from c2fa.querying import Conversation
from experiments.harness.service import Client, Crew, Item, Load, Network, Remote, here, masker, serve

WHOLE = 1 << 30  # rows of one request: a question is sent as it is, the network makes its own batches


@dataclass(frozen=True, eq=False)
class Grid:
    """What is run on every input.

    Attributes
    ----------
    methods
        ``(label, name, options)``, as ``evaluate`` takes them.
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

    methods: tuple[tuple[str, str, Mapping[str, Any]], ...]
    masks: tuple[tuple[int, int], ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    leaves_at: int
    target: int | None = None
    curves: int = 1 << 30
    points: int = 25
    shard: int = 2
    extra: tuple[tuple[str, Any], ...] = ()

    def scores(self, with_curves: bool) -> list[Any]:
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


def shards(grid: Grid, items: Sequence[Item]) -> list[tuple[int, int, bool]]:
    """From … to … of the items, and whether with curves over leaves."""
    cut = min(grid.curves, len(items))
    found = [(a, min(a + grid.shard, cut), True) for a in range(0, cut, grid.shard)]
    return found + [(a, min(a + grid.shard, len(items)), False) for a in range(cut, len(items), grid.shard)]


def run(
    grid: Grid,
    items: Sequence[Item],
    network: Network,
    client: Callable[[], Client],
    folder: Path,
    *,
    workers: int = 0,
    seconds: float | None = None,
) -> Load:
    """Run the grid on all items into a folder of shards; no worker but this process where ``workers`` is 0.

    ``seconds`` begins no shard after so long: what is missing then is done by the same call another time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    todo = [k for k in range(len(shards(grid, items))) if not _path(folder, k).exists()]
    until = None if seconds is None else time.time() + seconds
    if not workers:
        rows, work, begin = network.rows, network.work, time.perf_counter()
        _work_all(grid, items, Remote(client(), here(network)), folder, iter(todo), until)
        return Load(network.rows - rows, network.work - work, time.perf_counter() - begin)
    import multiprocessing

    tasks: Any = multiprocessing.get_context("spawn").Queue()
    for k in todo:
        tasks.put(k)
    crew = Crew.start(min(workers, max(len(todo), 1)), _worker, grid, list(items), client, folder, tasks, until)
    load = serve(network, crew.lines)
    crew.finish()
    return load


def _worker(line: Any, number: int, grid: Grid, items: Any, client: Any, folder: Path, tasks: Any, until: Any) -> None:
    if hasattr(os, "nice"):
        os.nice(10)  # the process that feeds the network goes first, so that there may be more workers than cores

    def ask(request: Any) -> Any:
        line.send(request)
        return line.recv()

    def left() -> Any:
        while True:
            try:
                yield tasks.get(timeout=1.0)
            except queue.Empty:
                return

    _work_all(grid, items, Remote(client(), ask), folder, left(), until)
    line.close()


def _work_all(grid: Grid, items: Any, model: Remote, folder: Path, todo: Any, until: float | None) -> None:
    every = shards(grid, items)
    for k in todo:
        if until is not None and time.time() > until:
            return
        first, last, with_curves = every[k]
        chosen = items[first:last]
        result = evaluate(
            grid.methods,
            chosen,
            model,
            masker,
            masks=list(grid.masks),
            seeds=list(grid.seeds),
            metrics=grid.scores(with_curves),
            truths=[item.truth for item in chosen],
            target=grid.target,
            reference=grid.methods[0][0],
            batch_size=WHOLE,
            progress=False,
        )
        frame = result.frame
        frame["input"] += first
        part = _path(folder, k).with_suffix(".part")
        frame.to_parquet(part, index=False)
        note = {"rows": result.rows.__dict__, "notes": list(result.notes)}
        _path(folder, k).with_suffix(".json").write_text(json.dumps(note))
        os.replace(part, _path(folder, k))


def _path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.parquet"


def collect(folder: Path) -> Any:
    """All finished shards as one table with a row for each run on each input and a column for each score."""
    import pandas as pd

    files = sorted(folder.glob("shard-*.parquet"))
    if not files:
        raise FileNotFoundError(f"there is no finished shard in {folder}; run the experiment first")
    wide = []
    for path in files:
        frame = pd.read_parquet(path)
        frame["score"] = np.where(
            frame["metric"].isin(["insertion", "deletion"]),
            frame["metric"] + np.where(frame["level"] == 0, " of parts", " of leaves"),
            frame["metric"],
        )
        keys = ["method", "N_H", "N_L", "seed", "input"]
        wide.append(frame.pivot_table(index=keys, columns="score", values="value", observed=True))
    return pd.concat(wide).reset_index()


def row_counts(folder: Path) -> dict[str, int]:
    """Model rows over all finished shards: shared, and what separate runs would have asked."""
    total: dict[str, int] = {}
    for path in sorted(folder.glob("shard-*.json")):
        for name, value in json.loads(path.read_text())["rows"].items():
            total[name] = total.get(name, 0) + int(value)
    return total
