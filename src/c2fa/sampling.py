"""Masks drawn from a generator that is handed in.

A sampler is a function ``sampler(rng, n, width)`` that gives a boolean array of shape (n, width); True keeps a
feature. Drawing more rows from a generator in the same state gives the same rows first, so a run with a larger
budget contains the smaller one. What each keeps of the empty mask (everything hidden) and the full one
(nothing hidden):

==========  ===========================================================================
sampler     empty and full masks
==========  ===========================================================================
uniform     both kept, as they fall: with 3 parts each is one mask in eight
paired      both kept; every second row is the complement of the row before it
keep        both kept, as they fall
lime_text   the full mask never, the empty one as often as any other number removed
milli       neither: a coalition has at least one member and misses at least one
==========  ===========================================================================

Masks that are planned together, or with the parts in mind, are in ``designs``.

Masks that a small width repeats are asked once and weigh as often as they were drawn (``distinct``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from c2fa.structure import BoolArray, FloatArray, IntArray

Sampler: TypeAlias = Callable[[np.random.Generator, int, int], BoolArray]


def uniform(rng: np.random.Generator, n: int, width: int) -> BoolArray:
    """Draw every entry as a fair coin, the paper's "binary uniform distributions".

    >>> few, many = (uniform(np.random.default_rng(0), n, 7) for n in (20, 50))
    >>> bool((many[:20] == few).all())
    True
    """
    packed = rng.integers(0, 256, size=(n, -(-width // 8)), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=width).view(np.bool_)


def paired(rng: np.random.Generator, n: int, width: int) -> BoolArray:
    """Draw fair coins and follow every row by its complement, so that each feature is on exactly half the time."""
    half = uniform(rng, -(-n // 2), width)
    return np.stack([half, ~half], axis=1).reshape(-1, width)[:n]


@dataclass(frozen=True)
class Keep:
    """Draw every entry as a coin that is on with another chance than a half.

    Parameters
    ----------
    share
        The chance of a feature to be kept: 0.7 asks about inputs that are nearer to the whole one than fair coins do.

    Examples
    --------
    >>> round(float(Keep(0.7)(np.random.default_rng(0), 1000, 20).mean()), 1)
    0.7
    """

    share: float = 0.7

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"share is the chance of a feature to be kept, between 0 and 1; got {self.share!r}")

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        return rng.random((n, width)) < self.share


def lime_text(rng: np.random.Generator, n: int, width: int) -> BoolArray:
    """Draw how many to remove, uniformly from 1 to the width, then which: LIME's sampling for text."""
    draws = rng.random((n, width + 1))
    removed = 1 + np.floor(draws[:, 0] * width).astype(np.intp)
    ranks = np.argsort(np.argsort(draws[:, 1:], axis=1), axis=1)
    keep: BoolArray = ranks >= removed[:, None]
    return keep


def milli_inclusion(ranks: IntArray, alpha: float = 0.1, beta: float = 1.0) -> FloatArray:
    """Return MILLI's weight for each instance from its rank (0 is the most important).

    It is both the chance to enter a coalition and the ingredient of the coalition's weight: ``alpha`` for the
    first rank, ``1 - alpha`` for the last; ``beta`` bends the curve towards larger (> 0) or smaller coalitions.

    >>> milli_inclusion(np.arange(5), alpha=0.3, beta=-1.0).round(3)
    array([0.3  , 0.305, 0.327, 0.41 , 0.7  ])
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is a probability, from 0 to 1; got {alpha}")
    rank = np.asarray(ranks, dtype=np.float64)
    last = len(rank) - 1
    if last == 0:  # one instance has no rank to speak of: a fair coin
        return np.full(1, 0.5)
    if alpha > 0.5:
        beta = -beta
    if beta >= 0:
        return (1 - alpha) - (1 - 2 * alpha) * (1 - rank / last) * np.exp(-beta * rank)
    return alpha + (1 - 2 * alpha) * (rank / last) * np.exp(beta * (last - rank))


def milli(inclusion: FloatArray) -> Sampler:
    """Return MILLI's sampler: each feature enters with its own chance; empty and full coalitions are redrawn."""

    def sample(rng: np.random.Generator, n: int, width: int) -> BoolArray:
        if width != len(inclusion):
            raise ValueError(f"{len(inclusion)} inclusion chances for masks of width {width}")
        if width == 1:  # only the empty and the full mask exist; neither is a coalition
            return np.ones((n, 1), dtype=np.bool_)
        return _redrawn(rng, n, lambda k: rng.random((k, width)) < inclusion, _neither)

    return sample


def non_empty(sampler: Sampler) -> Sampler:
    """Return a sampler that redraws the empty mask, for inputs that cannot be empty (a bag without instances)."""

    def sample(rng: np.random.Generator, n: int, width: int) -> BoolArray:
        return _redrawn(rng, n, lambda k: sampler(rng, k, width), _some)

    return sample


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


def mask_keys(masks: BoolArray) -> list[bytes]:
    """Return each row packed into bytes: what makes two masks of one level the same."""
    packed = np.packbits(masks, axis=1)
    size, blob = packed.shape[1], packed.tobytes()
    return [blob[i : i + size] for i in range(0, len(blob), size)]


def _some(masks: BoolArray) -> BoolArray:
    return np.asarray(masks.any(axis=1))


def _neither(masks: BoolArray) -> BoolArray:
    return _some(masks) & ~np.asarray(masks.all(axis=1))


_ATTEMPTS = 64


def _redrawn(
    rng: np.random.Generator, n: int, draw: Callable[[int], BoolArray], good: Callable[[BoolArray], BoolArray]
) -> BoolArray:
    """Draw rows one block at a time until n are good; the bound keeps impossible wishes from looping for ever.

    Blocks have a fixed size, so that a longer draw begins with the shorter one.
    """
    kept: list[BoolArray] = []
    have = 0
    for _ in range(_ATTEMPTS + n):
        block = draw(16)
        block = block[good(block)]
        kept.append(block)
        have += len(block)
        if have >= n:
            return np.concatenate(kept)[:n]
    raise ValueError(
        f"only {have} of {n} masks could be drawn: nearly every draw was empty or full; "
        "use a sampler whose chances are further from 0 and 1"
    )


SAMPLERS: Mapping[str, Sampler] = {"uniform": uniform, "paired": paired, "lime-text": lime_text, "keep": Keep()}
