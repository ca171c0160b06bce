"""Masks are rows of bits: a boolean array (n, width) in which True keeps a feature."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from c2fa.structure import BoolArray, FloatArray

_AT_A_TIME, _ATTEMPTS = 16, 64


def mask_keys(masks: BoolArray) -> list[bytes]:
    """Return each row packed into bytes: two masks of one level are the same if and only if their keys are."""
    packed = np.ascontiguousarray(np.packbits(masks, axis=1))
    in_one_piece = packed.view(np.dtype((np.void, packed.shape[1])))
    return in_one_piece.ravel().tolist()  # type: ignore[return-value]  # bytes: the type has no fields


def distinct(masks: BoolArray) -> tuple[BoolArray, FloatArray]:
    """Return the different rows in order of first appearance, and how often each appeared.

    >>> rows, counts = distinct(np.array([[1, 0], [0, 1], [1, 0]], dtype=bool))
    >>> rows.astype(int).tolist(), counts.tolist()
    ([[1, 0], [0, 1]], [2.0, 1.0])
    """
    first: dict[bytes, int] = {}
    index = [first.setdefault(key, i) for i, key in enumerate(mask_keys(masks))]
    if len(first) == len(index):
        return masks, np.ones(len(index))
    counts = np.bincount(index, minlength=len(index)).astype(np.float64)
    rows = np.fromiter(first.values(), dtype=np.intp)
    return masks[rows], counts[rows]


def redrawn(n: int, sample: Callable[[int], BoolArray], allows_full: bool = True) -> BoolArray:
    """Draw rows a few at a time until n of them are not empty, nor full where that is not allowed either.

    Always the same number at a time, so that a longer draw begins with the shorter one. The number of attempts is
    bounded: chances may be such that every row is empty.
    """
    kept: list[BoolArray] = []
    have = 0
    for _ in range(_ATTEMPTS + n):
        block = sample(_AT_A_TIME)
        block = block[block.any(axis=1)]
        if not allows_full:
            block = block[~block.all(axis=1)]
        kept.append(block)
        have += len(block)
        if have >= n:
            return np.concatenate(kept)[:n]
    raise ValueError(
        f"only {have} of {n} masks could be drawn: nearly every draw was empty or full; "
        "use a sampler whose chances are further from 0 and 1"
    )
