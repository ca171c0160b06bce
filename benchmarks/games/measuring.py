"""One estimate of one game, and how far it is from the exact values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from benchmarks.games import peers
from benchmarks.games.exact import Floats
from benchmarks.games.games import Game

import c2fa
from c2fa.methods import METHODS, PEERS

WITHOUT_PARTS = ("shapley", "shap-kernel")
PAPERS = {
    "leverage": peers.leverage,
    "regression-msr": lambda *args: peers.regression_msr(*args, folds=1),
    "regression-msr-crossed": lambda *args: peers.regression_msr(*args, folds=5),
}
DEFAULT = (
    "owen",
    "c2fa",
    "shap-partition",
    "shapley",
    "flat:c2fa",
    *PAPERS,
    "shap-kernel",
    "shapiq:KernelSHAP",
    "shapiq:KernelSHAPIQ",
    "shapiq:SVARM",
)
HELD = 1.645  # standard errors on each side of a 90 % interval


def missing(method: str) -> str | None:
    """Why a method cannot be run here, or None where it can."""
    if method in PAPERS:
        trees = method == "leverage" or find_spec("xgboost") or find_spec("sklearn")
        return None if trees else f"{method} needs xgboost or scikit-learn"
    if method.startswith("shapiq:"):
        name = method.removeprefix("shapiq:")
        if name not in peers.SHAPIQ:
            return f"shapiq has no estimator {name!r} of values here; there are {', '.join(peers.SHAPIQ)}"
        needed = ("shapiq", "lightgbm") if name == "ProxySPEX" else ("shapiq",)
        return next((f"{method} needs the package {package}" for package in needed if not find_spec(package)), None)
    name = method.removeprefix("flat:")
    if name not in METHODS:
        return f"c2fa has no method {name!r}; it has {', '.join(METHODS)}"
    if name in PEERS and not find_spec(PEERS[name].package):
        return f"{method} needs the package {PEERS[name].package}"
    return None


def value_of(method: str) -> str:
    """The value that a method is an estimate of: ``"owen"`` over parts and leaves, ``"shapley"`` over leaves alone."""
    flat = method in PAPERS or method in WITHOUT_PARTS or method.startswith(("shapiq:", "flat:"))
    return "shapley" if flat else "owen"


@dataclass(frozen=True)
class Task:
    """A game, a method's name, rows a leaf, and a seed."""

    game: Game
    method: str
    rows: int
    seed: int


def measure(task: Task) -> dict[str, Any]:
    """Run a method; each of the lists in what is returned has an item a level, coarse to fine."""
    game, method = task.game, task.method
    rows = task.rows * game.leaves
    value = value_of(method)
    exact: Sequence[Floats] = game.owen if value == "owen" else game.shapley
    record: dict[str, Any] = {
        "game": game.name,
        "kind": game.kind,
        "method": method,
        "value": value,
        "rows": task.rows,
        "seed": task.seed,
    }
    begin = time.monotonic()
    try:
        if method in PAPERS:
            values: Sequence[Floats] = (PAPERS[method](game, rows, task.seed),)
        elif method.startswith("shapiq:"):
            values = (peers.shapiq(method.removeprefix("shapiq:"), game, rows, task.seed),)
        else:
            structure = game.tree if value == "owen" else c2fa.Structure.flat(game.leaves)
            e = game.explain(structure, method.removeprefix("flat:"), rows, task.seed)
            values = e.values
            bases = [e.base] * structure.depth if hasattr(e, "base") else e.intercepts
            sums = [base + each.sum() for base, each in zip(bases, values, strict=True)]
            record["sums"] = [abs(float(total - game.table[-1])) / game.scale for total in sums]
            record["asked"] = e.queries
            if e.stderr is not None:
                # A value that is known has no error but rounding.
                within = [HELD * s + 1e-9 * game.scale for s in e.stderr]
                levels = zip(values, exact, within, strict=True)
                record["held"] = [float(np.mean(np.abs(v - t) <= w)) for v, t, w in levels]
    except Exception as error:  # a library that fails at few rows must not end the run; the tables name it
        return record | {"failed": f"{type(error).__name__}: {error}"}
    record["seconds"] = time.monotonic() - begin
    squared = [float(np.sum((v - t) ** 2)) for v, t in zip(values, exact, strict=True)]
    spread = [float(np.sum((t - t.mean()) ** 2)) for t in exact]
    # Where all exact values are the same there is nothing to compare an error with.
    record["error"] = [s / v if v > (1e-9 * game.scale) ** 2 else None for s, v in zip(squared, spread, strict=True)]
    record["mse"] = [s / len(t) for s, t in zip(squared, exact, strict=True)]
    return record
