"""Sets of options by name, for ``Explainer(..., preset=…)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from c2fa.methods.c2fa import PAPER
from c2fa.structure import BoolArray, FloatArray

_PIN = 1e6  # what stands for SHAP's infinite weight of the empty and the full mask, beside any number of others


@dataclass(frozen=True)
class ShapSizes:
    """Draws the empty mask, then masks whose size has Kernel SHAP's mass ``1 / (s (width − s))``, with complements.

    >>> few, many = (ShapSizes()(np.random.default_rng(0), n, 7) for n in (20, 50))
    >>> bool((many[:20] == few).all()), few[:3].sum(axis=1).tolist()[0], int(few[1:3].sum())
    (True, 0, 7)
    """

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        masks = np.ones((n, width), dtype=np.bool_)
        masks[:1] = False
        if width > 1 and n > 1:
            size = np.arange(1, width)
            mass = np.cumsum(1.0 / (size * (width - size)))
            draws = rng.random((-(-(n - 1) // 2), width + 1))
            drawn = size[np.searchsorted(mass[:-1], draws[:, 0] * mass[-1], side="right")]
            ranks = np.argsort(np.argsort(draws[:, 1:], axis=1), axis=1)
            half = ranks < drawn[:, None]
            masks[1:] = np.stack([half, ~half], axis=1).reshape(-1, width)[: n - 1]
        return masks


@dataclass(frozen=True)
class PinnedEnds:
    """Weighs all masks the same, except that the empty and the full one are all but fixed."""

    def __call__(self, masks: BoolArray) -> FloatArray:
        end = masks.all(axis=1) | ~masks.any(axis=1)
        return np.where(end, _PIN, 1.0)


SHAP: Mapping[str, Any] = {"kernel": PinnedEnds(), "sampler": ShapSizes(), "penalty": None, "smooth": None}
"""Kernel SHAP's weights, drawn rather than multiplied.

``kernel="shap"`` weighs fair-coin masks by SHAP's kernel, which for more than some twenty features is next to nothing
at the sizes that fair coins draw. Here the sizes are drawn by the kernel's own mass, each mask followed by its
complement, so that every row counts the same; the empty mask comes first, and it and the prediction are pinned. With
weak penalties the attributions of every level are then estimates of that level's Shapley values that add up across
levels. Nothing is smoothed, which would not leave Shapley values.
"""

PRESETS: Mapping[str, Mapping[str, Any]] = {"paper": PAPER, "shap": SHAP}
