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
from experiments.harness.settings import AS_PRINTED, Kind, with_options
from experiments.variants import milli_on_top

N_H = 20
N_L = (5, 15, 30, 50, 100, 150, 300)
SEEDS = (0, 1, 2)
FRESH = 150  # masks that no method sees, by which what it predicts is judged

VARIANTS: Mapping[str, tuple[Kind, Mapping[str, Any]]] = {
    "LIME": ("lime", {**AS_PRINTED, "penalty": L2(0.1)}),
    "LIME intercept": ("lime", {}),
    "MILLI": (milli_on_top, {**AS_PRINTED, "penalty": L2(0.1)}),
    "C2FA joint": ("c2fa", {}),
    "C2FA joint, not smoothed": ("c2fa", {"smooth": None}),
    "Owen": ("owen", {}),
    "Owen, not smoothed": ("owen", {"smooth": None}),
}


def variants(domain: Domain) -> Mapping[str, tuple[Kind, Mapping[str, Any]]]:
    """Those that differ from each other on a domain's inputs: where nothing is smoothed, so is nothing unsmoothed."""
    smooth = any(item.smooth_by_default for item in domain.test)
    return {label: (kind, options) for label, (kind, options) in VARIANTS.items() if smooth or "smooth" not in options}


def held_out(e: Any, truth: Any) -> Conversation[float]:
    """The correlation of what the leaves' values add up to with answers to fair coins that nothing was fitted to."""
    masks = metrics.held_out(e.structure.leaves, FRESH)
    answer = yield Ask(e.structure.depth - 1, masks)
    predicted, outputs = masks @ e.low, answer.outputs[:, e.target]
    if np.ptp(predicted) == 0.0 or np.ptp(outputs) == 0.0:
        return 0.0
    return float(np.corrcoef(predicted, outputs)[0, 1])


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
        tuple(with_options(label, kind, options) for label, (kind, options) in variants(domain).items()),
        tuple((N_H, n) for n in leaf_rows),
        seeds,
        domain.metrics,
        N_H,
        domain.target,
        extra=(
            ("held-out correlation", held_out),
            *((("ndcg of exact parts", exact_parts),) if "ndcg" in domain.metrics else ()),
        ),
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
