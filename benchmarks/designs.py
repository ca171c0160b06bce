"""What the choice of masks is worth: samplers, and stopping early, on models whose truth is known.

    python benchmarks/designs.py [--models 12] [--seeds 2]

Each model is a saturating function of a weighted sum of its leaves with terms of two leaves, and so neither additive
nor easy to read off. Its truth is each leaf's effect averaged over all masks (what a linear fit to every mask would
give), here taken from many thousand rows. Two tables: how near samplers come at the same budget; and how many rows
``until`` spends beside the fixed budget that finds the top three as often. Models differ in how hard they are, and in
their numbers of leaves, as inputs do.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import c2fa

Model = Callable[[np.ndarray], np.ndarray]


def whole_parts(rng: np.random.Generator, n: int, structure: c2fa.Structure, level: int) -> np.ndarray:
    """A quarter of the parts on, a quarter off, coins inside the others: rows between those of parts and of leaves."""
    coins = rng.random((n, structure.widths[0] + structure.widths[level]))
    of_part = coins[:, : structure.widths[0]][:, structure.owners(0)]
    return np.where(of_part < 0.5, of_part < 0.25, coins[:, structure.widths[0] :] < 0.5)


def half_of_every_part(rng: np.random.Generator, n: int, structure: c2fa.Structure, level: int) -> np.ndarray:
    """What a part keeps does not vary, so that the rows tell its leaves apart and nothing else."""
    draws = rng.random((n, structure.widths[level]))
    masks = np.empty(draws.shape, dtype=bool)
    for part in range(structure.widths[0]):
        inside = structure.owners(0) == part
        masks[:, inside] = draws[:, inside] < np.median(draws[:, inside], axis=1, keepdims=True)
    return masks


LEAVES = {
    **{name: name for name in ("uniform", "paired", "planned")},
    "whole parts": whole_parts,
    "half of every part": half_of_every_part,
}


def draw(structure: c2fa.Structure, seed: int) -> Model:
    """A model of its own for every seed: how many leaves matter, in how many parts, how much they work together."""
    rng = np.random.default_rng(seed)
    leaves = structure.leaves
    few = (0.03, 0.1, 0.3)[seed % 3]
    weights = rng.normal(0.0, 0.05, leaves)
    big = rng.random(leaves) < few
    weights[big] += rng.normal(0.2, 1.0, big.sum())
    weights *= rng.lognormal(0.0, (0.5, 1.5)[seed // 3 % 2], structure.widths[0])[structure.owners(0)]
    weights /= np.sqrt(np.square(weights).sum() / 4)
    first, second = rng.integers(leaves, size=(2, 2 * leaves))
    together = rng.normal(size=2 * leaves) * (np.abs(weights[first]) + np.abs(weights[second]) + 0.01)
    together *= np.sqrt((0.05, 0.2)[seed % 2] / (np.square(together).sum() / 16))
    middle = rng.uniform(0.3, 0.7) * (weights.sum() + together.sum())

    def model(batch: np.ndarray) -> np.ndarray:
        score = batch @ weights + (batch[:, first] * batch[:, second]) @ together
        return 1.0 / (1.0 + np.exp(-2.0 * (score - middle)))

    return model


def truth(model: Model, leaves: int, rows: int = 40_000) -> np.ndarray:
    """Each leaf's effect over fair-coin masks: the mean with it less the mean without it."""
    half = np.random.default_rng(99).random((rows // 2, leaves)) < 0.5
    masks = np.concatenate([half, ~half])
    outputs = np.concatenate([model(some.astype(float)) for some in np.array_split(masks, 20)])
    return np.array([outputs[on].mean() - outputs[~on].mean() for on in masks.T])


def explain(model: Model, structure: c2fa.Structure, **options: object) -> c2fa.Explanation:
    # Fixed strengths, so that what differs is the masks.
    options = {"kernel": "cosine", "penalty": None, **options}
    return c2fa.Explainer(model, c2fa.maskers.Array(structure), outputs="target", **options)(np.ones(structure.leaves))


def agreement(found: np.ndarray, true: np.ndarray, k: int = 3) -> float:
    """The share of the true top k that was found."""
    return len(set(np.argsort(-np.abs(found))[:k]) & set(np.argsort(-np.abs(true))[:k])) / k


def compare(
    parts: int, leaves: int, budget: int, variants: dict[str, dict[str, object]], models: int, seeds: int
) -> None:
    structure = c2fa.Structure.from_groups(np.repeat(np.arange(parts), leaves))
    drawn = [(model, truth(model, structure.leaves)) for model in (draw(structure, i) for i in range(models))]
    print(f"\n{parts} parts of {leaves} leaves, {budget} rows     correlation   top 3   top 10")
    for name, options in variants.items():
        scores = []
        for model, true in drawn:
            for seed in range(seeds):
                low = explain(model, structure, budget=budget, seed=seed, **options).low
                scores.append([np.corrcoef(low, true)[0, 1], agreement(low, true), agreement(low, true, 10)])
        mean = np.mean(scores, axis=0)
        print(f"  {name:38} {mean[0]:8.3f} {mean[1]:10.2f} {mean[2]:8.2f}")


def right(found: np.ndarray, true: np.ndarray, margin: float, k: int = 3) -> float:
    """The share of the k found that are among the true top k, or no more than the margin below the last of them."""
    least = np.sort(np.abs(true))[-k]
    return float(np.mean(np.abs(true)[np.argsort(-np.abs(found))[:k]] * (1 + margin) >= least))


def stopping(models: int, seeds: int, most: int = 400) -> None:
    """Inputs of different lengths, as texts are: what a rule spends, and the fixed budget that is right as often.

    What is right is what 4,000 rows of the same method say: a rule answers for chance, not for what a linear fit is.
    """
    options: dict[str, object] = {"sampler": "planned", "kernel": "uniform"}
    cases = []
    for i in range(4 * models):
        structure = c2fa.Structure.from_groups(np.repeat(np.arange(5), (2, 6, 18, 40)[i % 4]))
        model = draw(structure, i)
        cases.append((structure, model, explain(model, structure, budget=4000, seed=77, **options).low))
    budgets = (40, 60, 80, 100, 130, 160, 200, 250, 300, most)
    fixed = {
        budget: [
            (explain(m, s, budget=budget, seed=seed, **options).low, t) for s, m, t in cases for seed in range(seeds)
        ]
        for budget in budgets
    }
    for margin in (0.0, 0.15, 0.3):
        curve = [float(np.mean([right(low, true, margin) for low, true in runs])) for runs in fixed.values()]
        best, first = np.unique(np.maximum.accumulate(curve), return_index=True)  # the smallest budget for each score
        print(f"\nUntil the top 3 are settled, up to a margin of {margin:.0%}: 10 to 200 leaves, at most {most} rows")
        print("  fixed budgets: " + ", ".join(f"{b} rows {a:.3f}" for b, a in zip(budgets, curve, strict=True)))
        for confidence in (0.8, 0.9, 0.95):
            rule = c2fa.until.top(3, confidence, margin=margin)
            found = [
                (explain(model, s, budget=most, seed=seed, until=rule, **options), true)
                for s, model, true in cases
                for seed in range(seeds)
            ]
            score = float(np.mean([right(e.low, true, margin) for e, true in found]))
            rows = float(np.mean([e.queries for e, _ in found]))
            same = float(np.interp(score, best, np.array(budgets)[first]))
            settled = [(e, true) for e, true in found if e.diagnostics.settled]
            held = np.mean([right(e.low, true, margin) for e, true in settled]) if settled else float("nan")
            print(
                f"  {confidence:.2f}: {rows:4.0f} rows, right {score:.3f}; a fixed budget needs {same:3.0f}, "
                f"so {rows / same:.2f} of it; {len(settled) / len(found):4.0%} settled, of those right {held:.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    models, seeds = arguments.models, arguments.seeds
    for budget in (100, 200):
        every = {f"parts planned, leaves {name}": {"sampler": ("planned", leaves)} for name, leaves in LEAVES.items()}
        compare(5, 20, budget, {"uniform": {"sampler": "uniform"}, **every}, models, seeds)
    stopping(models, seeds)


if __name__ == "__main__":
    main()
