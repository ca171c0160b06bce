"""Masks are rows of bits: a boolean array (n, width) in which True keeps a feature."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from c2fa.structure import BoolArray, FloatArray


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
    for _ in range(64 + n):
        block = sample(16)
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


def coins(rng: np.random.Generator, n: int, width: int) -> BoolArray:
    """Draw every bit as a fair coin."""
    packed = rng.integers(0, 256, size=(n, -(-width // 8)), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=width).view(np.bool_)


def balanced(rng: np.random.Generator, width: int, complements: bool = True) -> Iterator[BoolArray]:
    """Balanced blocks without end, each followed by its complements unless they are left out, some rows at a time.

    A block is the rows of Paley's Hadamard matrix of the first order above the width, in random order; each feature is
    one of its columns at random, turned round at random. Row i and column j differ by a square modulo a prime
    q = 4k + 3, or not; a last row is all on. Rows are made when they are asked for: wide blocks are seldom finished.
    """
    q = _prime(width)
    square = np.zeros(q, dtype=np.bool_)
    square[np.square(np.arange(1, q, dtype=np.int64)) % q] = True
    twice = np.concatenate([square, square])
    at_once = max(1, min(64, 2**18 // width))  # rows made at a time
    while True:
        column = rng.permutation(q)[:width]
        turned = rng.random(width) < 0.5
        order = rng.permutation(q + 1)[:, None]
        for flipped in (turned, ~turned) if complements else (turned,):
            for start in range(0, q + 1, at_once):
                rows = order[start : start + at_once]
                yield np.where(rows == q, True, twice[column + (q - rows)]) ^ flipped


@lru_cache(maxsize=64)
def _prime(least: int) -> int:
    """The first prime of the form 4k + 3 from a number on."""
    q = max(least, 3)
    while q % 4 != 3 or any(q % d == 0 for d in range(3, math.isqrt(q) + 1, 2)):
        q += 1
    return q


def each_once(blocks: Iterator[BoolArray], width: int) -> Iterator[BoolArray]:
    """Every mask once, as the blocks bring them; the full one at the very end."""
    full = np.ones((1, width), dtype=np.bool_)
    seen = {full.tobytes()}
    while len(seen) < 2**width:
        block = next(blocks)
        places = {key: i for i, row in enumerate(block) if (key := row.tobytes()) not in seen}
        seen.update(places)
        yield block[list(places.values())]
    yield full


def up_to(n: int, blocks: Iterator[BoolArray]) -> Iterator[BoolArray]:
    """The first n rows of blocks, or all of them where they are fewer; none is made before it is asked for."""
    while n > 0 and (block := next(blocks, None)) is not None:
        yield block[:n]
        n -= len(block)


def with_complements(n: int, blocks: Iterable[BoolArray], width: int, patience: float = 50) -> BoolArray:
    """The first n rows of blocks, each followed by its complement, none twice; fewer where no others come.

    ``patience`` is how many blocks in a row may bring nothing new.
    """
    known, found, barren = set[bytes](), [np.empty((0, width), dtype=np.bool_)], 0
    for block in blocks:
        new = []
        for i, key in enumerate(mask_keys(block ^ block[:, :1])):  # one key for a row and its complement
            if key not in known:
                known.add(key)
                new.append(i)
        if new:
            found.append(block[new])
        barren = 0 if new else barren + 1
        if 2 * len(known) >= min(n, 2 ** min(width, 60)) or barren >= patience:
            break
    rows = np.concatenate(found)
    return np.stack([rows, ~rows], axis=1).reshape(-1, width)[:n]
