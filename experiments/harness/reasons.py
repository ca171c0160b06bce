"""Why some claims do not hold: what the networks' answers to validation inputs say, without a network.

    python -m experiments.harness.reasons

Printed for each domain: what the network answers to an empty and to a whole input, and with half of it masked; how
often the strongest leaf lies in the strongest part (MIHL) where nearly all is known, all masks of the parts and 300 of
the leaves; what the intercept and λ_L are worth, each for itself, in the joint fit with N_L = 50; and how many
iterations Algorithm 1 takes, and how consistent it is, where it is stopped and where not. The answers are those of
``benchmarks/validation.py``, the strengths those that the experiments chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from benchmarks.validation import Input, read, scores

from c2fa import L2, Level, Problem, Solution, Structure, metrics, solve
from c2fa.kernels import KERNELS
from c2fa.structure import BoolArray, FloatArray
from experiments.harness.reading import FOLDER
from experiments.harness.reproduce import chosen_before
from experiments.harness.settings import CAP, WIDER_LAMBDA, Strengths

MANY = {"images": 20, "text": 50}  # N_H
N_L = (50, 100, 150, 200, 300)
UNCAPPED = 1_000_000
SOLVED = 20  # inputs on which Algorithm 1 is run


def _level(masks: BoolArray, y: FloatArray, lam: float, intercept: bool) -> Level:
    return Level(masks, y, KERNELS["cosine"](masks) + 1e-12, L2(lam), intercept)


def level_pair(
    x: Input, strengths: Strengths, intercept: bool, n_l: int, n_h: int | None = None
) -> tuple[Level, Level]:
    """Both levels' rows: the first leaf masks, and part masks drawn with repetition, or all there are."""
    masks, y = x.answers["parts"]
    chosen = np.arange(len(masks)) if n_h is None else np.random.default_rng(0).integers(0, len(masks), n_h)
    leaf_masks, leaf_y = x.answers["uniform"]
    return (
        _level(masks[chosen], y[chosen], strengths.parts, intercept),
        _level(leaf_masks[:n_l], leaf_y[:n_l], strengths.leaves, intercept),
    )


def agreement(x: Input, strengths: Strengths, intercept: bool) -> dict[str, bool]:
    """Whether the strongest leaf lies in the strongest part, for levels fitted alone, summed up, and jointly."""
    both = level_pair(x, strengths, intercept, 300)
    high, low = (np.ravel(solve(Problem(Structure.flat(level.masks.shape[1]), (level,))).values[0]) for level in both)
    joint_high, joint_low = (np.ravel(v) for v in solve(Problem(x.structure, both)).values)
    owner = x.structure.owners(0)
    sums = np.bincount(owner, low, len(high))
    return {
        "fitted alone": bool(owner[low.argmax()] == high.argmax()),
        "bottom-up": bool(owner[low.argmax()] == sums.argmax()),
        "jointly": bool(owner[joint_low.argmax()] == joint_high.argmax()),
    }


def joint(inputs: Sequence[Input], strengths: Strengths, intercept: bool, n_h: int, n_l: int) -> dict[str, float]:
    """Scores of the exact joint fit, as ``benchmarks/validation.py`` takes them, and MIHL."""
    table = []
    for x in inputs:
        values = solve(Problem(x.structure, level_pair(x, strengths, intercept, n_l, n_h))).values
        agreed = metrics.mihl(tuple(np.ravel(v) for v in values), x.structure)
        table.append({**scores(x, values), "MIHL": agreed})
    names = dict.fromkeys(name for row in table for name in row)
    return {name: float(np.nanmean([row.get(name, np.nan) for row in table])) for name in names}


def inconsistency(x: Input, solution: Solution) -> float:
    """‖α − Mβ‖² of a solution."""
    high, low = (np.ravel(v) for v in solution.values)
    return float(np.square(high - np.bincount(x.structure.owners(0), low, len(high))).sum())


def iterations(
    inputs: Sequence[Input], strengths: Strengths, n_h: int, n_l: int, most: int
) -> tuple[float, float, float]:
    """Of Algorithm 1: the median of its iterations, the share that was stopped, the mean of ‖α − Mβ‖²."""
    runs = []
    for x in inputs:
        problem = Problem(x.structure, level_pair(x, strengths, False, n_l, n_h))
        solution = solve(problem, "paper", mu2=strengths.mu2, max_iterations=most)
        runs.append((solution.iterations, solution.iterations >= most, inconsistency(x, solution)))
    taken, cut, apart = np.array(runs, dtype=np.float64).T
    return float(np.median(taken)), float(cut.mean()), float(apart.mean())


def answers(inputs: Sequence[Input]) -> dict[str, float]:
    """The network's mean answers: to nothing, to all, with half of the leaves masked, and half of the parts."""
    empty = []
    for x in inputs:
        masks, y = x.answers["parts"]
        empty += list(y[~masks.any(axis=1)][:1])
    return {
        "of an empty input": float(np.mean(empty)),
        "of the whole": float(np.mean([x.full for x in inputs])),
        "half of the leaves masked": float(np.mean([x.answers["uniform"][1].mean() for x in inputs])),
        "half of the parts masked": float(np.mean([x.answers["parts"][1].mean() for x in inputs])),
    }


def report(domain: str, inputs: Sequence[Input], strengths: Mapping[str, Strengths]) -> list[str]:
    """All of it for one domain, as lines."""
    lines = [f"{domain}: {len(inputs)} validation inputs"]
    lines.append("mean answer: " + ", ".join(f"{name} {value:.2f}" for name, value in answers(inputs).items()))
    parts = np.array([x.structure.widths[0] for x in inputs])
    lines.append(f"MIHL with all masks of the parts and 300 of the leaves; by chance {np.mean(1 / parts):.2f}")
    for intercept, label in ((False, "C2FA"), (True, "C2FA intercept")):
        table = [agreement(x, strengths[label], intercept) for x in inputs]
        shown = ", ".join(f"{name} {np.mean([row[name] for row in table]):.2f}" for name in table[0])
        lines.append(f"  {'with' if intercept else 'without'} an intercept: {shown}")
    lines.append(f"the joint fit, N_H = {MANY[domain]}, N_L = {N_L[0]}, λ_H = {strengths['C2FA'].parts:g}")
    for intercept in (False, True):
        for lam in WIDER_LAMBDA:
            scores = joint(inputs, Strengths(strengths["C2FA"].parts, lam), intercept, MANY[domain], N_L[0])
            shown = "  ".join(f"{name} {value:.3f}" for name, value in scores.items())
            lines.append(f"  {'with' if intercept else 'without'} an intercept, λ_L = {lam:5g}: {shown}")
    some = inputs[:SOLVED]
    lines.append(f"Algorithm 1 with {strengths['C2FA']}, on {len(some)} of them")
    for n_l in N_L:
        for most in (CAP, UNCAPPED):
            median, cut, apart = iterations(some, strengths["C2FA"], MANY[domain], n_l, most)
            lines.append(
                f"  N_L = {n_l}, at most {most:,} iterations: {median:,.0f} taken (median), {cut:.0%} stopped, "
                f"consistency {apart:.5f}"
            )
    return lines


if __name__ == "__main__":
    for name in MANY:
        print("\n".join(report(name, read(name), chosen_before(FOLDER / name))), flush=True)
