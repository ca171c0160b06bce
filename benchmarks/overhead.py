"""What an explanation costs beside the model: CPU milliseconds of each stage, on one thread.

    python benchmarks/overhead.py [--repeats 50] [--only WORD] [--profile] [--against SRC]

Every model answers next to at once, and its own time is left out. A figure is the least of several runs, so that other
work on the machine disturbs it little; "all" is the least of whole explanations, and the stages may add up to a little
less. ``--profile`` lists the functions that take longest. ``--against`` also runs the package in another source folder,
in turns with this one, and prints how many times longer that one takes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One thread: waiting BLAS threads burn CPU time, which is what is measured here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import c2fa
from c2fa import explainer
from c2fa.asking import querying
from c2fa.methods import base
from c2fa.methods import c2fa as joint
from c2fa.solvers import intervals

# What is timed, each without the stages inside it: the choice of strengths and the standard errors are parts of a fit.
STAGES: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "draw": ((base, "draw"),),
    "plan": ((querying.Queries, "plan"),),
    "mask": ((querying.Queries, "inputs"),),
    "record": ((querying.Queries, "record"),),
    "answer": ((querying.Queries, "answer"),),
    "choose": ((intervals, "choose"),),
    "errors": ((intervals, "standard_errors"),),
    "solve": ((joint, "solve"), (joint, "solve_smooth")),
    "diagnose": ((explainer, "diagnose"),),
    "build": ((explainer, "Explanation"),),
}
FIT = ("choose", "errors", "solve")
COLUMNS = ("masker", *STAGES, "rest")
TURNS = 5  # of the two source folders


@dataclass
class Clock:
    """CPU seconds by stage; what runs inside another stage is counted for itself alone."""

    seconds: dict[str, float] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=lambda: [0.0])

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function, updated=())
        def run(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            begin = time.process_time()
            try:
                return function(*args, **options)
            finally:
                spent = time.process_time() - begin
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent - self._inner.pop()
                self._inner[-1] += spent

        return run


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Time the stages while it lasts."""
    places = [(place, name, getattr(place, name), stage) for stage, all_ in STAGES.items() for place, name in all_]
    for place, name, function, stage in places:
        setattr(place, name, clock.timed(stage, function))
    try:
        yield
    finally:
        for place, name, function, _ in places:
            setattr(place, name, function)


@dataclass(frozen=True)
class Scene:
    """A model, a masker, an input and a budget."""

    model: Callable[[Any], np.ndarray]
    masker: Any
    x: Any
    budget: int

    def measure(self, repeats: int) -> dict[str, float]:
        """The least milliseconds of each stage and of all, over several runs."""
        clock = Clock()
        explain = c2fa.Explainer(
            clock.timed("model", self.model),
            clock.timed("masker", self.masker),
            method="c2fa",  # whose stages are timed
            budget=self.budget,
        )
        runs: list[dict[str, float]] = []
        explain(self.x)
        for _ in range(repeats):
            clock.seconds = {}
            with watched(clock):
                begin = time.process_time()
                explain(self.x)
                seconds = {"all": time.process_time() - begin - clock.seconds["model"], **clock.seconds}
            seconds["rest"] = seconds["all"] - sum(clock.seconds.values()) + clock.seconds["model"]
            seconds["fit"] = sum(seconds.get(stage, 0.0) for stage in FIT)
            runs.append(seconds)
        return {stage: 1e3 * min(run.get(stage, 0.0) for run in runs) for stage in ("all", "fit", *COLUMNS)}

    def profile(self) -> None:
        """Print the functions that take longest."""
        import cProfile
        import pstats

        explain = c2fa.Explainer(self.model, self.masker, method="c2fa", budget=self.budget)
        explain(self.x)
        profiler = cProfile.Profile()
        with profiler:
            for _ in range(50):
                explain(self.x)
        for order in ("tottime", "cumtime"):
            pstats.Stats(profiler).strip_dirs().sort_stats(order).print_stats(30)


def vector(leaves: int, budget: int, outputs: int) -> Scene:
    """A text without its words: parts of about ten leaves, few that matter, pairs that only work together."""
    rng = np.random.default_rng(0)
    structure = c2fa.Structure.from_groups(np.sort(rng.integers(leaves // 10, size=leaves)))
    weights = rng.normal(size=leaves) * (rng.random(leaves) < 0.3)
    first, second = rng.integers(leaves, size=(2, leaves // 10))

    def model(batch: np.ndarray) -> np.ndarray:
        scores = batch @ weights + 1.5 * (batch[:, first] * batch[:, second]).sum(axis=1) - 1.0
        chance = 1 / (1 + np.exp(-scores))
        return chance if outputs == 1 else np.stack([chance, 1 - chance], axis=1)

    return Scene(model, c2fa.maskers.Array(structure), np.ones(leaves), budget)


def text() -> Scene:
    """A hundred words in ten sentences, and a model that looks for a few of them."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(100)]
    review = " ".join(" ".join(words[i : i + 10]).capitalize() + "." for i in range(0, 100, 10))
    telling = {f" w{i} ": float(rng.normal()) for i in range(1, 100, 6)}

    def model(batch: list[str]) -> np.ndarray:
        scores = np.array([sum(w for word, w in telling.items() if word in one) for one in batch])
        chance = 1 / (1 + np.exp(-scores))
        return np.stack([chance, 1 - chance], axis=1)

    return Scene(model, c2fa.maskers.Text(), review, 200)


def bag() -> Scene:
    """Four images of 36 super-pixels, smoothed over neighbours, and a model of a bright region."""
    rng = np.random.default_rng(0)
    images = [rng.random((48, 48, 3)).astype(np.float32) for _ in range(4)]
    grid = np.arange(48) // 8
    masker = c2fa.maskers.ImageBag(segment=[grid[:, None] * 6 + grid] * 4, absent="fill")
    weights = np.exp(-np.linalg.norm(np.indices((48, 48)) - 20, axis=0) / 10)[..., None] * np.ones(3)
    weights = (weights / weights.sum()).ravel()

    def model(batch: Any) -> np.ndarray:
        bags = np.asarray(batch, dtype=np.float64).reshape(len(batch), 4, -1)
        chance = 1 / (1 + np.exp(-4.0 * (bags @ weights).sum(axis=1) + 4.0))
        return np.stack([chance, 1 - chance], axis=1)

    return Scene(model, masker, images, 200)


SCENES: Mapping[str, Callable[[], Scene]] = {
    "100 leaves, 200 rows, 1 output": lambda: vector(100, 200, 1),
    "100 leaves, 200 rows, 2 outputs": lambda: vector(100, 200, 2),
    "50 leaves, 100 rows, 2 outputs": lambda: vector(50, 100, 2),
    "300 leaves, 300 rows, 2 outputs": lambda: vector(300, 300, 2),
    "a review of 100 words, 200 rows": text,
    "a bag of 4 × 36, 200 rows": bag,
}


def measured(names: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """The table of this process's package."""
    return {name: SCENES[name]().measure(repeats) for name in names}


def measured_of(source: str, names: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """The table of the package in another source folder, measured by a process of its own."""
    code = (
        "import json, sys\nfrom benchmarks.overhead import measured\nprint(json.dumps(measured(*json.load(sys.stdin))))"
    )
    paths = [str(Path(source).resolve()), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([names, repeats]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def least(tables: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Of several tables the least of each figure."""
    return {
        name: {stage: min(table[name][stage] for table in tables) for stage in row} for name, row in tables[0].items()
    }


def show(table: dict[str, dict[str, float]], digits: int) -> None:
    columns = ("all", "fit", *COLUMNS)
    print(f"{'':32}", *(f"{column:>8}" for column in columns))
    for name, row in table.items():
        print(f"{name:32}", *(f"{row[column]:8.{digits}f}" for column in columns), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--only", default="", help="scenes whose name has this word")
    parser.add_argument("--profile", action="store_true", help="list the functions that take longest")
    parser.add_argument("--against", help="the source folder of another version, to compare with")
    a = parser.parse_args()
    names = [name for name in SCENES if a.only in name]
    if a.profile:
        for name in names:
            print(name)
            SCENES[name]().profile()
        return
    if a.against is None:
        print("CPU milliseconds; fit is choose, errors and solve together")
        show(measured(names, a.repeats), 2)
        return
    here = str(Path(c2fa.__file__).parents[1])
    new, old = [], []
    for _ in range(TURNS):
        new.append(measured_of(here, names, a.repeats))
        old.append(measured_of(a.against, names, a.repeats))
    for title, tables in ((here, new), (a.against, old)):
        print(f"CPU milliseconds of {title}; fit is choose, errors and solve together")
        show(least(tables), 2)
    ratios = {
        name: {stage: least(old)[name][stage] / max(ms, 1e-9) if ms >= 0.01 else 1.0 for stage, ms in row.items()}
        for name, row in least(new).items()
    }
    print("how many times longer the latter takes")
    show(ratios, 1)


if __name__ == "__main__":
    main()
