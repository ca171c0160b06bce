"""How often a value ± 1.96 standard errors holds the truth: python benchmarks/intervals.py [--problems 200] [--bags 40]

Additive models with noise come first, because only there the errors promise anything: three to eight parts of ten to
thirty leaves, 50 to 300 rows, and a noise of each level from 5 % of the outputs' spread to all of it. Leaves are
Gaussian, sparse (one in seven matters), of different size from part to part, or lean to one side within a part, which
the model behind the errors does not expect. Masks are fair coins; parts have all of their masks where there are few.

Then the bags of synthetic.py, whose model is not additive. What it does beyond an additive description is not noise of
independent rows, so nothing is promised. The truth is there each level's best additive description, fitted to 20,000
masks of that level alone; the two levels' need not add up, and the explanation cannot hold both where they do not.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import c2fa
import synthetic
from c2fa.masks import distinct
from c2fa.metrics import coverage
from c2fa.samplers import uniform

KINDS = ("gaussian", "sparse", "by part", "leaning")
METHODS = [("auto", "auto"), ("fixed", None), ("λ = 0.1", c2fa.L2(0.1))]
DRAWS = 20_000


def leaves(kind: str, rng: np.random.Generator, owners: np.ndarray) -> np.ndarray:
    """True values, of spread 1 over fair-coin masks."""
    parts = owners.max() + 1
    values = rng.normal(size=len(owners))
    if kind == "sparse":
        values = values * (rng.random(len(owners)) < 1 / 7) + 0.05 * rng.normal(size=len(owners))
    elif kind == "by part":
        values = values * np.exp(rng.normal(size=parts))[owners]
    elif kind == "leaning":
        values = values + rng.normal(size=parts)[owners]
    return values * 2.0 / np.sqrt(np.square(values).sum())


def additive(seed: int, kind: str) -> dict[str, Any]:
    """A problem without a penalty, and its truth."""
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    parts = int(rng.integers(3, 9))
    owners = np.repeat(np.arange(parts), rng.integers(10, 31, parts))
    structure = c2fa.Structure.from_groups(owners)
    rows = int(rng.integers(50, 301))
    high = min(2**parts, int(rng.integers(10, 33)), rows // 2)
    truth = leaves(kind, rng, owners)
    noises = np.exp(rng.uniform(np.log(0.05), 0.0, 2))
    every = (np.arange(2**parts)[:, None] >> np.arange(parts)) & 1
    masks = rng.permutation(every)[:high].astype(bool), distinct(uniform(rng, rows - high, structure, 1))[0]
    outputs = [0.3 + structure.expand(m, k) @ truth + noises[k] * rng.normal(size=len(m)) for k, m in enumerate(masks)]
    return {"structure": structure, "masks": masks, "outputs": outputs, "truth": truth, "noises": noises}


def solved(case: dict[str, Any], penalty: Any) -> c2fa.Solution:
    """One penalty's solution, with the library's intercepts and equal weights."""
    given = c2fa.Auto() if penalty == "auto" else penalty
    levels = tuple(
        c2fa.Level(m, y, None, given or c2fa.L2(m.shape[1] / 50), True)
        for m, y in zip(case["masks"], case["outputs"], strict=True)
    )
    return c2fa.solve(c2fa.Problem(case["structure"], levels))


def on_additive(problems: int) -> pd.DataFrame:
    """One row for each problem and penalty."""
    rows = []
    for kind in KINDS:
        for seed in range(problems):
            case = additive(seed, kind)
            structure = case["structure"]
            truths = [structure.sums(case["truth"], k) for k in (0, 1)]
            asked = sum(len(m) for m in case["masks"])
            for name, penalty in METHODS:
                found = solved(case, penalty)
                row = {
                    "method": name,
                    "values": kind,
                    "parts'": pd.cut([structure.widths[0]], [2, 4, 6, 8], labels=["3-4", "5-6", "7-8"])[0],
                    "rows a leaf": pd.cut([asked / structure.leaves], [0, 0.7, 1.5, 99], labels=["<.7", "<1.5", ">"])[
                        0
                    ],
                    "noise of parts' rows": pd.cut(
                        [case["noises"][0] / case["noises"][1]], [0, 1 / 3, 3, 99], labels=["<1/3", "like", ">3"]
                    )[0],
                }
                for k, level in enumerate(("parts", "leaves")):
                    row[level] = coverage(found.values[k], found.stderr[k], truths[k])
                    row[f"error of {level}"] = np.linalg.norm(found.values[k] - truths[k]) / np.linalg.norm(truths[k])
                rows.append(row)
    return pd.DataFrame(rows)


def best_additive(masked: Any, level: int, rng: np.random.Generator) -> np.ndarray:
    """A level's least-squares coefficients over many fair-coin masks."""
    masks = uniform(rng, DRAWS, masked.structure, level)
    outputs = np.concatenate([synthetic.model(masked.inputs(some, level)) for some in np.array_split(masks, 40)])
    design = np.column_stack([masks, np.ones(len(masks))])
    return np.linalg.lstsq(design, outputs, rcond=None)[0][:-1]


def on_bags(bags: int) -> Iterator[dict[str, Any]]:
    """One row for each bag, budget and penalty."""
    masker = synthetic.masker()
    for i in range(bags):
        bag = synthetic.draw(30_000 + i)
        masked = masker(bag)
        truths = [best_additive(masked, k, np.random.default_rng(i)) for k in (0, 1)]
        for budget in ((20, 100), (20, 300)):
            for name, penalty in METHODS:
                e = c2fa.Explainer(
                    synthetic.model, masker, budget=budget, penalty=penalty, kernel="uniform", seed=i, batch_size=512
                )(bag)
                row: dict[str, Any] = {"method": name, "rows": str(budget)}
                for k, level in enumerate(("parts", "leaves")):
                    row[level] = coverage(e.values[k], e.stderr[k], truths[k])
                    row[f"error of {level}"] = np.linalg.norm(e.values[k] - truths[k]) / np.linalg.norm(truths[k])
                yield row


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200, help="additive problems of each kind of values")
    parser.add_argument("--bags", type=int, default=40, help="bags of the model that is not additive")
    args = parser.parse_args()
    shown = ["parts", "leaves", "error of parts", "error of leaves"]
    frame = on_additive(args.problems)
    print("# Additive models with noise: share of true values within 1.96 standard errors; relative error\n")
    print(frame.groupby("method", sort=False)[shown].mean().round(3).to_string(), "\n")
    auto = frame[frame["method"] == "auto"]
    for by in ("values", "parts'", "rows a leaf", "noise of parts' rows"):
        print(auto.groupby(by, observed=True)[shown].mean().round(3).to_string(), "\n")
    print("# Not additive (bags), against each level's best additive description: nothing is promised here\n")
    frame = pd.DataFrame(on_bags(args.bags))
    print(frame.groupby(["rows", "method"], sort=False)[shown].mean().round(3).to_string())


if __name__ == "__main__":
    main()
