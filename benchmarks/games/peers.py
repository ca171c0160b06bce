"""Others' estimators of Shapley values, written from their papers, and shapiq's where it is installed.

Each takes a game, the rows it may ask, and a seed, and returns a value for each leaf.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.games.exact import Floats, subset_sums, winter_values
from benchmarks.games.games import Game

import c2fa

TREES = "xgboost" if find_spec("xgboost") else "scikit-learn"
"""Whose boosted trees RegressionMSR fits; its authors use xgboost's."""


def paired_masks(leaves: int, rows: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Masks and their complements, without replacement and with every size as often, and the chance of each.

    This is LeverageSHAP's sampling. A mask's leverage score is ``1 / C(d, size)`` but for a factor, so that all sizes
    get as many rows, as long as there are as many masks of a size. The first two are the empty and the full mask; each
    other mask is beside its complement.
    """
    sizes = np.arange(1, leaves // 2 + 1)
    most = np.array([comb(leaves, s) // (1 + (2 * s == leaves)) for s in sizes])  # pairs that there are
    share = np.where(2 * sizes == leaves, 0.5, 1.0)  # a pair of the middle size has both its masks there
    wanted = min((rows - 2) // 2, int(most.sum()))
    low, high = 0.0, float((most / share).max(initial=0.0))
    for _ in range(100):  # pairs a size, so that all of them are as many as wanted
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(middle * share, most).sum() >= wanted else (middle, high)
    expected = np.minimum(high * share, most)
    pairs = np.floor(expected + 1e-9).astype(np.int64)
    fraction = np.where(pairs < most, expected - pairs, -1.0)
    pairs[np.argsort(-fraction, kind="stable")[: wanted - int(pairs.sum())]] += 1
    index, chance = [np.array([0, 2**leaves - 1])], [np.ones(2)]
    every = subset_sums(2 ** np.arange(leaves))
    of_size = subset_sums(np.ones(leaves))
    for size, count, available in zip(sizes, pairs, most, strict=True):
        # Of the middle size one mask of each pair is a candidate: the one without the last leaf.
        candidates = every[of_size == size][:available]
        drawn = rng.choice(candidates, int(count), replace=False)
        index.append(np.stack([drawn, 2**leaves - 1 - drawn], axis=1).ravel())
        chance += [np.full(2 * int(count), count / available)]
    chosen = np.concatenate(index)
    return (chosen[:, None] >> np.arange(leaves)) & 1 == 1, np.concatenate(chance)


def leverage(game: Game, rows: int, seed: int) -> Floats:
    """Paired LeverageSHAP (Musco & Witter 2024): least squares with Shapley's kernel, the sum of all values given."""
    d = game.leaves
    masks, chance = paired_masks(d, rows, np.random.default_rng(game.seed(seed)))
    empty, full = game(masks[:2].astype(np.float64))
    z, chance = masks[2:].astype(np.float64), chance[2:]
    size = z.sum(axis=1)
    kernel = np.array([1 / (comb(d, int(s)) * s * (d - s)) for s in size])
    root = np.sqrt(kernel / chance)
    share = (full - empty) / d
    centred = z - size[:, None] / d  # z (I − 11ᵀ/d): what is left to fit adds up to nothing
    fitted = np.linalg.lstsq(root[:, None] * centred, root * (game(z) - empty - size * share), rcond=None)[0]
    return fitted - fitted.mean() + share


def regression_msr(game: Game, rows: int, seed: int, folds: int) -> Floats:
    """RegressionMSR (Witter, Liu & Musco 2025): the values of boosted trees, and MSR of what they miss.

    With one fold, as in the authors' code and published figures, the misses are those of the rows that were fitted.
    With more, as in the paper, trees are fitted to all rows but a fold's, whose misses correct them: without bias.
    No mask is in two rows, so the misses of a fold stand for the masks that were not fitted, and not for all; the rows
    that were fitted have their own.

    MSR is linear in the outputs, each over its chance. So it is written as exact values of an estimated table.
    """
    d = game.leaves
    rng = np.random.default_rng(game.seed(seed))
    masks, chance = paired_masks(d, rows, rng)
    asked = masks @ 2 ** np.arange(d)
    y = game(masks)
    every = np.arange(2**d)[:, None] >> np.arange(d) & 1
    size = np.minimum(every.sum(axis=1), d - every.sum(axis=1))  # a mask and its complement are in one class
    there, drawn = np.bincount(size), np.bincount(size[asked], minlength=d // 2 + 1)
    fold = np.full(len(asked), -1)  # the full and the empty row are in every fit
    fold[2:] = np.repeat(rng.permutation(np.arange(len(asked) // 2 - 1) % folds), 2)
    table = np.zeros(2**d)
    for k in range(folds):
        held = fold == k
        fitted = ~held if folds > 1 else np.full(len(asked), True)
        trees = _trees(game.seed(seed))
        trees.fit(masks[fitted].astype(np.float64), y[fitted])
        predicted = np.asarray(trees.predict(every.astype(np.float64)), dtype=np.float64)
        miss = y - predicted[asked]
        if folds == 1:
            predicted[asked] += miss / chance
            return winter_values(predicted, c2fa.Structure.flat(d))
        of_fold = np.bincount(size[asked[held]], minlength=len(there))
        left = there - np.bincount(size[asked[fitted]], minlength=len(there))
        times = np.where(held, (left / np.maximum(of_fold, 1))[size[asked]], 1.0)
        predicted[asked] += times * miss
        # A fold counts in a class as much as it has rows there, so that one without any says nothing of it.
        table += (of_fold / np.maximum(drawn, 1))[size] * predicted
    table[asked[:2]] = y[:2]
    return winter_values(table, c2fa.Structure.flat(d))


def _trees(seed: int) -> Any:
    """Boosted trees as xgboost makes them by default; scikit-learn's with the same depth, number and step."""
    if TREES == "xgboost":
        from xgboost import XGBRegressor

        return XGBRegressor(random_state=seed % 2**31, n_jobs=1)
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=100, max_depth=6, learning_rate=0.3, random_state=seed)


SHAPIQ = ("KernelSHAP", "KernelSHAPIQ", "kADDSHAP", "SVARM", "UnbiasedKernelSHAP", "PermutationSamplingSV", "ProxySPEX")
"""shapiq's estimators that give values of single leaves."""


def shapiq(name: str, game: Game, rows: int, seed: int) -> Floats:
    """One of shapiq's estimators, with masks in pairs where it can."""
    from shapiq import approximator

    d = game.leaves
    options: dict[str, Any] = {"n": d, "random_state": game.seed(seed)}
    if name == "KernelSHAPIQ":
        options |= {"max_order": 2, "index": "SII", "pairing_trick": True}
    elif name == "ProxySPEX":
        options |= {"max_order": 1, "index": "SV"}
    elif name != "PermutationSamplingSV":
        options |= {"pairing_trick": True}
    asked: set[int] = set()

    def ask(masks: npt.NDArray[np.bool_]) -> Floats:
        masks = np.atleast_2d(masks)
        asked.update((masks @ 2 ** np.arange(d)).tolist())
        return game(masks)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(approximator, name)(**options).approximate(rows, ask)
    if len(asked) > rows:
        raise RuntimeError(f"shapiq's {name} asked {len(asked)} rows of {rows}")
    return np.array([found[(leaf,)] for leaf in range(d)])
