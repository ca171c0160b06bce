"""What a budget buys: designs and priors compared at equal budgets, chosen on validation inputs, scored on test inputs.

The grid is small and of its own: few methods, N_H = 20, several N_L, curves over leaves for every input.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from c2fa import L2, metrics
from c2fa.asking.querying import Ask, Conversation
from experiments.harness.grid import ALONE, Crew, Grid, run
from experiments.harness.reproduce import Domain, save, say
from experiments.harness.settings import AS_PRINTED, INTERCEPT, Kind, with_options
from experiments.variants import milli_on_top

N_H = 20
N_L = (5, 10, 15, 20, 50, 100, 150, 300)
SEEDS = (0, 1, 2)

COINS: Mapping[str, Any] = {**INTERCEPT, "penalty": None}
AUTO: Mapping[str, Any] = {"sampler": "planned", "kernel": "uniform", "penalty": "auto", "smooth": None}

VARIANTS: Mapping[str, tuple[Kind, Mapping[str, Any]]] = {
    "LIME": ("lime", {**AS_PRINTED, "penalty": L2(0.1)}),
    "LIME intercept": ("lime", {}),
    "MILLI": (milli_on_top, {**AS_PRINTED, "penalty": L2(0.1)}),
    "C2FA coins": ("c2fa", COINS),
    "C2FA planned": ("c2fa", {**COINS, "sampler": "planned"}),
    "C2FA auto": ("c2fa", AUTO),
    "C2FA auto, smooth": ("c2fa", {**AUTO, "smooth": (0.3, 1.0, 3.0)}),
    "C2FA auto, smoother": ("c2fa", {**AUTO, "smooth": (1.0, 3.0, 10.0)}),
    "C2FA auto, smooth 2": ("c2fa", {**AUTO, "smooth": 2.0}),
}


def exact_parts(e: Any, truth: Any) -> Conversation[float] | float:
    """NDCG of the parts' exact Shapley values, from all of their masks; NaN where these are too many."""
    parts = e.structure.widths[0]
    if truth[0] is None or parts > 8:
        return float("nan")
    return _exact(parts, e.target, truth)


def _exact(parts: int, target: int, truth: Any) -> Conversation[float]:
    masks = np.array(list(itertools.product([False, True], repeat=parts)))
    answer = yield Ask(0, masks)
    return metrics.ndcg(shapley(answer.outputs[:, target]), np.asarray(truth[0], dtype=float))


def shapley(outputs: Any) -> Any:
    """Shapley values from a game's worth of every coalition, in the order of ``itertools.product``.

    >>> shapley(np.array([0.0, 1.0, 2.0, 5.0]))
    array([3., 2.])
    """
    n = int(np.log2(len(outputs)))
    masks = np.array(list(itertools.product([False, True], repeat=n)))
    sizes = masks.sum(axis=1)
    factorial = np.cumprod([1.0, *range(1, n + 1)])
    values = np.zeros(n)
    for j in range(n):
        without = np.flatnonzero(~masks[:, j])
        weight = factorial[sizes[without]] * factorial[n - 1 - sizes[without]] / factorial[n]
        values[j] = weight @ (outputs[without + 2 ** (n - 1 - j)] - outputs[without])
    return values


def grid(domain: Domain, seeds: tuple[int, ...], leaf_rows: tuple[int, ...]) -> Grid:
    """The grid of this comparison for a domain."""
    return Grid(
        tuple(with_options(label, kind, options) for label, (kind, options) in VARIANTS.items()),
        tuple((N_H, n) for n in leaf_rows),
        seeds,
        domain.metrics,
        N_H,
        domain.target,
        extra=(("ndcg of exact parts", exact_parts),) if "ndcg" in domain.metrics else (),
    )


def compare(
    domain: Domain,
    folder: Path,
    crew: Crew = ALONE,
    *,
    small: bool = False,
    seconds: float | None = None,
) -> None:
    """Run the comparison on validation inputs, by which a default may be chosen, then on test inputs.

    Of the seconds the validation inputs get up to a third.
    """
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    seeds, leaf_rows = ((0,), (10,)) if small else (SEEDS, N_L)
    for name, items, share in (("queries-validation", domain.validation, 1 / 3), ("queries", domain.test, 1.0)):
        outcome = run(
            grid(domain, seeds, leaf_rows),
            items,
            domain.model,
            folder / f"{name}-store",
            crew,
            seconds=None if seconds is None else share * (seconds - (time.monotonic() - begin)),
        )
        save(outcome.frame, folder / f"{name}.parquet")
        inputs = int(outcome.frame["input"].nunique())
        about = {"inputs": inputs, "seeds": list(seeds), "work a second": outcome.load.rate}
        (folder / f"{name}.json").write_text(json.dumps(about, indent=1))
        print(f"{name}: {inputs} inputs", flush=True)
        say(outcome.load, {}, outcome.load.seconds)
