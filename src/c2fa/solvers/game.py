"""What is known of a game: rows of a function of leaf masks, and the values that follow from them alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from c2fa.graph import Smoother
from c2fa.masks import mask_keys
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure


@dataclass(frozen=True, eq=False)
class Game:
    """What is known of a game.

    Attributes
    ----------
    masks, outputs
        Masks of the leaves, (n, leaves), no two alike, and the model's outputs for them, (n, outputs).
    output
        The output by which strengths are chosen.
    noisy
        Whether the model answers one input differently when it is asked again.
    smooth
        Ways to make leaves' effects alike that are neighbours, among which the rows decide; None is not at all.
    sizes
        How large each leaf's effect is expected to be beside the others', as variances.
    noise
        The variance of an answer, as far as answers to the same input tell; interactions of many leaves look like it.
    """

    structure: Structure
    masks: BoolArray
    outputs: FloatArray
    output: int = 0
    noisy: bool = False
    smooth: tuple[Smoother | None, ...] = (None,)
    sizes: FloatArray | None = None
    noise: float = 0.0

    @cached_property
    def rows(self) -> dict[bytes, int]:
        """Where each mask is."""
        return {key: i for i, key in enumerate(mask_keys(self.masks))}

    @cached_property
    def complements(self) -> IntArray:
        """For every row the row of its complement, -1 where that was not asked."""
        return np.array([self.rows.get(key, -1) for key in mask_keys(~self.masks)], dtype=np.intp)

    @property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The rows whose complements come after them, and these."""
        first = np.flatnonzero(np.arange(len(self.masks)) < self.complements)
        return first, self.complements[first]

    def less(self, effects: FloatArray) -> Game:
        """The game without effects of leaves, (leaves, outputs), that are known beforehand."""
        return replace(self, outputs=self.outputs - self.masks @ effects)

    @property
    def whole_rows(self) -> IntArray:
        """The rows in which every part of the finest level of parts is there or gone as a whole."""
        s = self.structure
        if s.depth == 1:
            return np.zeros(0, dtype=np.intp)
        counts = s.sums(self.masks.T.astype(np.float64), s.depth - 2)
        return np.flatnonzero(((counts == 0) | (counts == s.sizes(-2)[:, None])).all(axis=0))


def exact_values(game: Game) -> list[list[FloatArray | None]]:
    """Of every feature, level by level, its value where every mask that it depends on was asked."""
    s, found = game.structure, []
    beside = np.zeros(1, dtype=np.intp)  # how many features, at all levels so far, a value depends on
    for k in range(s.depth):
        parents = s.above(k)
        beside = beside[parents] + np.bincount(parents)[parents] - 1
        few = (beside < len(game.rows).bit_length()) & (not game.noisy)  # else there are more masks than rows
        found.append([exact_value(game, k, i) if possible else None for i, possible in enumerate(few.tolist())])
    return found


def exact_value(game: Game, level: int, feature: int) -> FloatArray | None:
    """The Winter value of a feature from every mask that it depends on; None where one of them was not asked."""
    s = game.structure
    leaf = int(np.flatnonzero(s.owners(level) == feature)[0])
    beside = []
    for k in range(level + 1):
        here = int(s.owners(k)[leaf])
        parents = s.above(k)
        beside.append([j for j in np.flatnonzero(parents == parents[here]).tolist() if j != here])
    masks, weights = np.zeros((1, s.leaves), dtype=np.bool_), np.ones(1)
    for k, others in enumerate(beside):
        chosen = (np.arange(2 ** len(others))[:, None] >> np.arange(len(others))) & 1 == 1
        there = np.stack([s.owners(k) == j for j in others]) if others else np.zeros((0, s.leaves), dtype=np.bool_)
        more = (chosen[:, :, None] & there).any(axis=1)
        counts = chosen.sum(axis=1)
        of_size = np.array([1.0 / ((len(others) + 1) * math.comb(len(others), c)) for c in range(len(others) + 1)])
        masks = (masks[:, None] | more).reshape(-1, s.leaves)
        weights = np.outer(weights, of_size[counts]).ravel()
    own = s.owners(level) == feature
    without = [game.rows.get(key) for key in mask_keys(masks)]
    with_it = [game.rows.get(key) for key in mask_keys(masks | own)]
    if None in without or None in with_it:
        return None
    effects: FloatArray = game.outputs[np.array(with_it)] - game.outputs[np.array(without)]
    return np.asarray(weights @ effects)
