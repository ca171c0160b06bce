"""An experiment from end to end: strengths chosen on validation inputs, the grid on test inputs, what it cost."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import c2fa
from c2fa import Explainer, Explanation, metrics
from c2fa.asking.querying import Conversation
from c2fa.models import Lazy
from experiments.harness import settings
from experiments.harness.grid import ALONE, ASKING, KEEPING, Crew, Grid, Load, network_of, run
from experiments.harness.items import Item, masker
from experiments.harness.settings import Method, Strengths
from experiments.harness.tuning import tune

TUNING_SEED = 1000  # away from the test's seeds


@dataclass(frozen=True, eq=False)
class Domain:
    """One experiment's inputs and network.

    Attributes
    ----------
    model
        The network, which is loaded where it is asked: in this process, or in one that others share.
    many
        The N_H at which parts are easy (20 for bags, 50 for reviews); the other is 5.
    curves
        The most inputs that have curves over leaves taken: as many as a GPU does in minutes.
    about
        What is to be written beside the results: the network, its accuracy, the data.
    """

    name: str
    validation: Sequence[Item]
    test: Sequence[Item]
    model: Lazy
    many: int
    metrics: tuple[str, ...]
    target: int | None
    curves: int = 1 << 30
    about: Mapping[str, Any] = field(default_factory=dict)

    def explainer(self, method: Method, n_l: int) -> Explainer:
        """What explains one input with a method at the larger N_H, in this process."""
        _, name, options = method
        budget = (self.many + 1, n_l)  # the prediction comes on top
        return Explainer(self.model, masker, method=name, budget=budget, target=self.target, **ASKING, **options)


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run."""

    validation: int
    test: int
    curves: int
    seeds: tuple[int, ...]
    leaf_rows: tuple[int, ...]
    points: int
    timed: int
    tries: int | None = None
    """Strengths of each method that are tried on validation inputs; None tries the whole grid."""


SCALES: Mapping[str, Scale] = {
    "small": Scale(1, 2, 1, (0,), (5, 10), 2, 0, tries=2),
    "paper": Scale(60, 1000, 1000, (0, 1, 2), settings.N_L, 25, 5),
}


@dataclass(frozen=True)
class Criterion:
    """By what strengths are chosen: insertion minus deletion, averaged over parts and leaves.

    It needs no truth, so that it can be had wherever the methods are used.
    """

    points: int
    higher_is_better = True

    def __call__(self, e: Explanation, truth: Any) -> Conversation[float]:
        """Insertion minus deletion."""
        total = 0.0
        for level, points in ((0, None), (1, self.points)):
            shown = yield from metrics.insertion(e.values[level], level, e.target, points=points)
            hidden = yield from metrics.deletion(e.values[level], level, e.target, points=points)
            total += float(shown) - float(hidden)
        return total / 2


def choose(domain: Domain, scale: Scale, folder: Path, labels: Sequence[str], crew: Crew) -> dict[str, Strengths]:
    """Choose every method's strengths on validation inputs, and write down among what.

    Half of the validation inputs decide, at N_L = 50 and 150 (at the small scale, at both it has); the others are for
    comparisons that come after.
    """
    tuned = tune(
        {label: settings.grid(label, scale.tries) for label in labels},
        domain.validation[: (scale.validation + 1) // 2],
        domain.model,
        masker,
        masks=[(domain.many, n) for n in scale.leaf_rows if n in (50, 150) or len(scale.leaf_rows) <= 2],
        criterion=("insertion minus deletion", Criterion(scale.points)),
        seeds=(TUNING_SEED,),
        target=domain.target,
        store=folder / "tuning",
        **KEEPING,
        **ASKING,
        **crew.options(),
    )
    chosen: dict[str, Strengths] = {}
    rows = []
    for label in labels:
        for place, (parts, leaves, *mu2, score, _) in enumerate(tuned[label].table.itertuples(index=False)):
            strengths = Strengths(parts, leaves, *mu2)
            chosen.setdefault(label, strengths)
            one = {"method": label, **dataclasses.asdict(strengths)}
            rows.append({**one, "score": round(score, 5), "chosen": place == 0})
    (folder / "tuned.json").write_text(json.dumps(rows, indent=1))
    return chosen


def chosen_before(folder: Path) -> dict[str, Strengths]:
    """The strengths that an earlier run chose."""
    path = folder / "tuned.json"
    if not path.exists():
        return {}
    rows = [row for row in json.loads(path.read_text()) if row["chosen"]]
    return {row["method"]: Strengths(row["parts"], row["leaves"], row["mu2"]) for row in rows}


def reproduce(
    domain: Domain, folder: Path, scale_name: str = "small", crew: Crew = ALONE, *, seconds: float | None = None
) -> Path:
    """Run an experiment into a folder; what an earlier run finished is not done again."""
    scale = SCALES[scale_name]
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    strengths = chosen_before(folder) or choose(domain, scale, folder, settings.to_tune(), crew)
    tuning = time.perf_counter() - begin
    for label, chosen in strengths.items():
        print(f"{label}: {chosen}", flush=True)
    methods = tuple(
        settings.method(label, strengths[settings.TUNED_AS.get(label, label)])
        for label in (*settings.PAPER_METHODS, *settings.OUR_METHODS)
    )
    grid = Grid(
        methods,
        tuple((n_h, n_l) for n_h in (5, domain.many) for n_l in scale.leaf_rows),
        scale.seeds,
        domain.metrics,
        domain.many,
        domain.target,
        curves=min(scale.curves, domain.curves),
        points=scale.points,
    )
    items = domain.test[: scale.test]
    begin = time.perf_counter()
    outcome = run(
        grid,
        items,
        domain.model,
        folder / "store",
        crew,
        seconds=None if seconds is None else seconds - tuning,
    )
    wall = time.perf_counter() - begin
    load, frame = outcome.load, outcome.frame
    save(frame, folder / "scores.parquet")
    if not (folder / "times.json").exists():
        (folder / "times.json").write_text(json.dumps(timing(domain, methods, scale), indent=1))
    about = {
        **domain.about,
        "c2fa": c2fa.__version__,
        "machine": {"python": platform.python_version(), "processor": platform.machine(), "workers": crew.workers},
        "inputs": int(frame["input"].nunique()),
        "seeds": list(scale.seeds),
        "points of leaf curves": scale.points,
        "inputs with leaf curves": int((frame["input"].unique() < min(scale.curves, domain.curves)).sum()),
        "model rows": outcome.rows,
        "load": {**dataclasses.asdict(load), "work a second": load.rate, "wall": wall},
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1))
    say(load, outcome.rows, wall)
    return folder


def save(frame: Any, path: Path) -> None:
    """Write per-input scores compactly: single precision, rounded to what matters."""
    keys = ["method", "N_H", "N_L", "seed", "input"]
    frame = frame.sort_values(keys, kind="stable").reset_index(drop=True)
    for column in frame.columns.difference(keys):
        frame[column] = frame[column].astype(np.float32).round(4)
    frame["method"] = frame["method"].astype("category")
    for column in keys[1:]:
        frame[column] = frame[column].astype(np.int16)
    frame.to_parquet(path, index=False, compression="zstd", compression_level=19)


def timing(domain: Domain, methods: Sequence[Method], scale: Scale) -> list[dict[str, Any]]:
    """Seconds of one explanation, the model's answers included, over N_L: one after another, nothing shared."""
    items = domain.test[: scale.timed]
    rows: list[dict[str, Any]] = []
    if not items:
        return rows
    for method in methods:
        for n_l in scale.leaf_rows:
            explainer = domain.explainer(method, n_l)
            taken = []
            for item in (items[-1], *items):  # the first is a warm-up
                network_of(domain.model).forget()
                begin = time.perf_counter()
                explainer(item)
                taken.append(time.perf_counter() - begin)
            seconds = [round(t, 5) for t in taken[1:]]
            rows.append({"method": method[0], "N_H": domain.many, "N_L": n_l, "seconds": seconds})
    return rows


def say(load: Load, counts: Mapping[str, int], wall: float) -> None:
    """Print what a run cost."""
    print(
        f"{load.rows:,} rows through the network in {load.seconds:.1f} s of questions ({load.rate:,.0f} images or "
        f"pieces a second; nobody had a question for {load.waiting:.1f} s); {wall:.1f} s in all",
        flush=True,
    )
    print(", ".join(f"{name} {value:,}" for name, value in counts.items()), flush=True)
