"""Part cost: CPU milliseconds of an explanation, without the model's and the masker's own.

Process time of one thread: the median of several runs after one that warms up, with the middle 95 % of them; of the
largest inputs one run.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
from benchmarks.queries.tables import Estimate, Table, Target, left_out
from benchmarks.queries.variants import COINS, DEFAULT, LIME, PLANNED, Variant, usable

import c2fa

VARIANTS = (DEFAULT, COINS, PLANNED, LIME)
LIMIT = Target(most=5.0, unit=" ms")
BESIDE_LIME = Target(most=2.0)
LINEAR = Target(most=1.15)
ROWS = 200
REPEATS = {100: 50, 1_000: 20, 10_000: 3, 100_000: 1}
LEAVES = tuple(REPEATS)
PART = 20  # leaves in a part


def milliseconds(variant: Variant, leaves: int, repeats: int) -> Estimate:
    """The CPU time of an explanation: all of it, less what masker and model took; the first only warms up."""
    structure = c2fa.Structure.from_groups(np.arange(leaves) // PART)
    weights = np.random.default_rng(0).normal(size=leaves) / np.sqrt(leaves)
    others = 0.0

    def inputs(x: None, masks: npt.NDArray[np.bool_], level: int) -> npt.NDArray[np.float64]:
        nonlocal others
        start = time.process_time()
        batch = structure.expand(masks, level).astype(np.float64)
        others += time.process_time() - start
        return batch

    def model(batch: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        nonlocal others
        start = time.process_time()
        outputs = np.tanh(batch @ weights)
        others += time.process_time() - start
        return outputs

    masker = c2fa.maskers.Custom(structure, inputs)
    taken = []
    for _ in range(repeats):
        others, start = 0.0, time.process_time()
        variant.explain(model, masker, None, budget=ROWS)
        taken.append(1e3 * (time.process_time() - start - others))
    middle, low, high = np.quantile(taken[1:] or taken, [0.5, 0.025, 0.975])
    return Estimate(float(middle), float(low), float(high), digits=1)


def growth(milliseconds_by_leaves: dict[int, float]) -> float:
    """The power of the number of leaves with which the time grows over the last tenfold step; 1 is linear.

    >>> round(growth({100: 3.0, 10_000: 100.0, 100_000: 1000.0}), 6)
    1.0
    """
    (a, first), (b, last) = sorted(milliseconds_by_leaves.items())[-2:]
    return float(np.log(last / first) / np.log(b / a))


def tables(quick: bool = False) -> list[Table]:
    """Run it and make its table."""
    variants, notes = usable(VARIANTS)
    sizes = LEAVES[:2] if quick else LEAVES
    table = Table(
        f"cost. CPU milliseconds of an explanation of {ROWS} rows, less the model's and the masker's own\n"
        f"   targets: {LIMIT} and {BESIDE_LIME} times LIME's at 5 × 20 leaves; growth {LINEAR} (1 is linear)",
        notes=left_out(notes),
    )
    took = {v.label: {n: milliseconds(v, n, 3 if quick else REPEATS[n]) for n in sizes} for v in variants}
    for label, of_leaves in took.items():
        power = growth({n: ms.mean for n, ms in of_leaves.items()})
        times = of_leaves[100].mean / took[LIME.label][100].mean if LIME.label in took else np.nan
        table.rows.append(
            {
                "method": label,
                **{f"{n:,} leaves": ms if n == 100 else f"{ms.mean:.0f}" for n, ms in of_leaves.items()},
                "target": LIMIT.verdict(of_leaves[100]),
                "times LIME's": f"{times:.2f}",
                "at most twice": "reached" if BESIDE_LIME.holds(times) else "missed",
                "growth": f"{power:.2f}",
                "linear": "not measured" if quick else "reached" if LINEAR.holds(power) else "missed",
            }
        )
    return [table]
