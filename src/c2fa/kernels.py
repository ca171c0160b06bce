"""Weights of rows from their masks: how much the output of a masked input counts.

A kernel is a function ``kernel(masks)`` from a boolean array (n, width) to n weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from c2fa.structure import BoolArray, FloatArray

Kernel: TypeAlias = Callable[[BoolArray], FloatArray]


def cosine(masks: BoolArray, width: float = 0.25) -> FloatArray:
    """Return LIME's weight ``exp(-d² / (2 width²))`` of the cosine distance ``d`` to the full mask.

    LIME's width of 0.25 gives ``exp(-8 d²)``, for texts and for images; the empty mask has d = 1.

    >>> cosine(np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)).round(3)
    array([1.   , 0.866, 0.503, 0.135])
    """
    if not width > 0:
        raise ValueError(f"the kernel's width must be positive; got {width}")
    distance = 1.0 - similarity(masks)
    return np.exp(-(distance**2) / (2.0 * width**2))


def similarity(masks: BoolArray) -> FloatArray:
    """Return the cosine similarity to the full mask itself, the other reading of the paper's "cosine kernel".

    >>> similarity(np.array([[1, 1, 1, 1], [1, 0, 0, 0]], dtype=bool))
    array([1. , 0.5])
    """
    share: FloatArray = masks.mean(axis=1)
    return np.sqrt(share)


def uniform(masks: BoolArray) -> FloatArray:
    """Return equal weights."""
    return np.ones(len(masks))


def shap(masks: BoolArray) -> FloatArray:
    """Return Kernel SHAP's weight, relative to that of a mask with one feature on.

    The empty and the full mask have infinite weight there; here they weigh a thousand times the heaviest other,
    which pins them down without spoiling the numbers of the solve.

    >>> shap(np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], dtype=bool)).round(3).tolist()
    [1.0, 0.5, 1000.0]
    """
    width = masks.shape[1]
    if width < 2:
        return np.ones(len(masks))
    size = masks.sum(axis=1)
    inner = (size > 0) & (size < width)
    s = np.where(inner, size, 1).astype(np.float64)
    # (M-1) / (C(M,s) s (M-s)) over its value at s = 1, in logs: C(M, s) overflows for a few hundred features.
    lg = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, width + 1)))])  # logarithms of factorials
    log_choose = lg[width] - lg[s.astype(np.intp)] - lg[width - s.astype(np.intp)]
    log_weight = -log_choose - np.log(s * (width - s)) + np.log(width) + np.log(width - 1.0)
    return np.where(inner, np.exp(log_weight), 1000.0)


def milli(inclusion: FloatArray) -> Kernel:
    """Return MILLI's kernel: the mean inclusion chance of the features that a mask keeps.

    >>> milli(np.array([0.1, 0.5, 0.9]))(np.array([[1, 0, 1], [0, 1, 0]], dtype=bool))
    array([0.5, 0.5])
    """

    def weigh(masks: BoolArray) -> FloatArray:
        size = masks.sum(axis=1)
        mean: FloatArray = (masks @ inclusion) / np.maximum(size, 1)
        return mean

    return weigh


KERNELS: Mapping[str, Kernel] = {
    "cosine": cosine,
    "similarity": similarity,
    "shap": shap,
    "uniform": uniform,
}
