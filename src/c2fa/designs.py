"""Masks planned with each other or with the structure in mind, where plain samplers draw each row by itself.

A design is a value with a method ``masks(rng, n, structure, level)`` that gives a boolean array of shape (n, width of
the level); True keeps a feature. There are fewer rows than n where no others are left to ask. Like a plain sampler's,
the first rows are the same whatever their number, so that a larger budget contains the smaller one. Designs that need
to know no more than the width can be called as plain samplers too. What each keeps of the empty mask (everything
hidden) and the full one (nothing hidden):

==========  ===========================================================================
design      empty and full masks
==========  ===========================================================================
exhaustive  both, once, at the very end, for the full one is the prediction
balanced    as they fall, at most once in a block
mirrored    as they fall, at most once in a block
planned     as in exhaustive for few features, as in mirrored for more
stratified  neither, unless there is but one feature
halves      neither, unless a part's leaves are so few that no half of them can be kept
nested      both kept, as they fall
focused     both kept, as they fall
narrowed    both kept, as they fall
==========  ===========================================================================
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from c2fa.sampling import Sampler, mask_keys, non_empty, uniform
from c2fa.structure import BoolArray, IntArray, Structure

_LISTED = 16  # up to this width all masks are listed and shuffled; above it they are drawn, and repeats dropped
_BLOCK = 64
_GOLDEN = (5**0.5 - 1) / 2


@runtime_checkable
class Design(Protocol):
    """Masks of a level, planned together; see the module's first lines for what they must keep to."""

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        """Up to n masks of a level, (n, width)."""
        ...


AnySampler: TypeAlias = Sampler | Design


def draw(
    sampler: AnySampler,
    rng: np.random.Generator,
    n: int,
    structure: Structure,
    level: int,
    allows_empty: bool = True,
) -> BoolArray:
    """Draw masks of a level from a plain sampler or a design; the empty mask is left out where it is not allowed.

    >>> s = Structure.from_groups("aab")
    >>> draw(Exhaustive(), np.random.default_rng(0), 99, s, 0).astype(int).tolist()
    [[1, 0], [0, 1], [0, 0], [1, 1]]
    >>> draw(Exhaustive(), np.random.default_rng(0), 99, s, 0, allows_empty=False).astype(int).tolist()
    [[1, 0], [0, 1], [1, 1]]
    """
    level = structure.level(level)
    width = structure.widths[level]
    if width == 1 and not allows_empty:  # the full mask is all there is
        return np.ones((n, 1), dtype=np.bool_)
    if not isinstance(sampler, Design):
        return (sampler if allows_empty else non_empty(sampler))(rng, n, width)
    if allows_empty:
        return sampler.masks(rng, n, structure, level)
    # The first rows of a longer draw are those of a shorter one, so draw again, by as many more as were empty.
    asked = n
    while True:
        masks = sampler.masks(copy.deepcopy(rng), asked, structure, level)
        good = masks[masks.any(axis=1)]
        if len(good) >= n or len(masks) < asked:
            return good[:n]
        if asked > 64 * (n + 16):
            raise ValueError(f"nearly every mask of {sampler} is empty, and this input cannot be; use another sampler")
        asked += max(n - len(good), asked // 8)


class _Flat:
    """A design that needs to know no more of the structure than the level's width."""

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        raise NotImplementedError

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        return self(rng, n, structure.widths[level])


@dataclass(frozen=True)
class Exhaustive(_Flat):
    """Every mask once: all of them where there are rows for all, else different ones, none of them twice.

    The full mask comes last of all: it is the prediction, which is paid for. So ``2^width − 1`` rows ask everything.

    Parameters
    ----------
    order
        ``"paired"``: at random, each followed by its complement; ``"random"``: at random; ``"size"``: those that hide
        one feature, then those that hide two, and so on, each size at random.

    Examples
    --------
    >>> masks = Exhaustive("size")(np.random.default_rng(0), 100, 3)
    >>> len(masks), (~masks).sum(axis=1).tolist()
    (8, [1, 1, 1, 2, 2, 2, 3, 0])
    """

    order: Literal["paired", "random", "size"] = "paired"

    def enough(self, width: int) -> int:
        """The rows that ask everything but the prediction."""
        return int(2**width - 1)

    def __post_init__(self) -> None:
        if self.order not in ("paired", "random", "size"):
            raise ValueError(f"order must be 'paired', 'random' or 'size'; got {self.order!r}")

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        rows = {"paired": _pairs, "random": _singles, "size": _sizes}[self.order]
        found: list[BoolArray] = [np.zeros((0, width), dtype=np.bool_)]
        have = 0
        for block in rows(rng, width):
            found.append(block)
            have += len(block)
            if have >= n:
                break
        return np.concatenate(found)[:n]


def _pairs(rng: np.random.Generator, width: int) -> Iterator[BoolArray]:
    """Complements one after the other, those of the empty mask at the end."""
    ends = np.array([[False], [True]]).repeat(width, axis=1)
    if width <= _LISTED:  # of a mask and its complement, one has its last feature off
        codes = 1 + rng.permutation(2 ** (width - 1) - 1)
        half = _bits(codes, width) ^ (rng.random(len(codes)) < 0.5)[:, None]
        yield np.stack([half, ~half], axis=1).reshape(-1, width)
    else:
        seen = {mask_keys(ends)[0]}
        while len(seen) < 2 ** (width - 1):
            half = uniform(rng, _BLOCK, width)
            half = half[_new(mask_keys(half ^ half[:, -1:]), seen)]
            yield np.stack([half, ~half], axis=1).reshape(-1, width)
    yield ends


def _singles(rng: np.random.Generator, width: int) -> Iterator[BoolArray]:
    """Masks in no order, the full one at the end."""
    full = np.ones((1, width), dtype=np.bool_)
    if width <= _LISTED:
        yield _bits(rng.permutation(2**width - 1), width)
    else:
        seen = set(mask_keys(full))
        while len(seen) < 2**width:
            block = uniform(rng, _BLOCK, width)
            yield block[_new(mask_keys(block), seen)]
    yield full


def _sizes(rng: np.random.Generator, width: int) -> Iterator[BoolArray]:
    """Masks that hide one feature, then two, and so on, the full one at the end."""
    full = np.ones((1, width), dtype=np.bool_)
    if width <= _LISTED:
        codes = rng.permutation(2**width - 1)
        hidden = (~_bits(codes, width)).sum(axis=1)
        yield _bits(codes[np.argsort(hidden, kind="stable")], width)
    else:
        count = 1
        for hide in range(1, width + 1):
            count = count * (width - hide + 1) // hide
            if hide == 1:
                order = rng.permutation(width)
                yield from (np.arange(width) != some[:, None] for some in np.array_split(order, -(-width // _BLOCK)))
                continue
            seen: set[bytes] = set()
            while len(seen) < count:
                ranks = np.argsort(np.argsort(rng.random((_BLOCK, width)), axis=1), axis=1)
                block = ranks >= hide
                yield block[_new(mask_keys(block), seen)]
    yield full


def _new(keys: list[bytes], seen: set[bytes]) -> list[int]:
    """Which of the keys were not seen before, each the first time; they are seen now."""
    fresh = []
    for i, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            fresh.append(i)
    return fresh


def _bits(codes: IntArray, width: int) -> BoolArray:
    """Numbers as masks: bit i of a number is feature i."""
    return ((np.asarray(codes)[:, None] >> np.arange(width)) & 1).astype(np.bool_)


@dataclass(frozen=True)
class Balanced(_Flat):
    """Blocks in which every feature is on in half the rows, and every two features together in a quarter.

    A block is the rows of a Hadamard matrix of the next power of two above the width, each feature one of its columns
    at random, turned round at random, the rows in random order. No two features can then be mistaken for each other
    within a block, where fair coins leave every two correlated by chance; rows that do not fill a block are correlated
    less than coins.

    Parameters
    ----------
    paired
        Whether each row is followed by its complement. A block is then twice as long, every even number of rows has
        each feature on in half of them, and no pair of features working together is mistaken for a third feature. A
        complement teaches less of the leaves than another row would, so the default is not to.

    Examples
    --------
    >>> masks = Balanced()(np.random.default_rng(0), 8, 7)
    >>> signs = 2 * masks.astype(int) - 1
    >>> bool((signs.T @ signs == 8 * np.eye(7)).all()), masks.sum(axis=0).tolist()
    (True, [4, 4, 4, 4, 4, 4, 4])
    """

    paired: bool = False

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        # The first column of the matrix is constant: only with its complements does it serve a feature.
        digits = (width - 1 if self.paired else width).bit_length()
        size = 2**digits
        found = [np.zeros((0, width), dtype=np.bool_)]
        for start in range(0, n, 2 * size if self.paired else size):
            column = rng.permutation(np.arange(0 if self.paired else 1, size))[:width]
            turned = rng.random(width) < 0.5
            row = rng.permutation(size)
            other = rng.random(size) < 0.5
            need = min(size, -(-(n - start) // 2) if self.paired else n - start)
            # Entry (i, j) is the parity of the digits that i and j share; eight columns at a time, as bits of a byte.
            packed = np.zeros((need, -(-width // 8)), dtype=np.uint8)
            for digit in range(digits):
                theirs = np.packbits((column >> digit) & 1 > 0)
                packed ^= ((row[:need] >> digit) & 1).astype(np.uint8)[:, None] * theirs
            block = np.unpackbits(packed, axis=1, count=width).view(np.bool_) ^ turned
            if self.paired:
                block ^= other[:need, None]
                block = np.stack([block, ~block], axis=1).reshape(-1, width)
            found.append(block)
        return np.concatenate(found)[:n]


@dataclass(frozen=True)
class Mirrored(_Flat):
    """A balanced block, then its complements in the same order, then a new block, and so on.

    Within a block no two features can be mistaken for each other; once its complements are there too, no two features
    working together can be mistaken for a third. The complement of a row teaches less than another row of the block
    would, so that it comes after all of them. The blocks are of Paley's construction, whose sizes lie closer together
    than powers of two: for 100 features a block has 104 rows instead of 128, and more of it is asked.

    On synthetic models of 100 leaves and 168 rows the leaves' correlation with Shapley values is 0.94 instead of the
    0.88 of coins, whatever the penalty (``benchmarks/queries.py``).

    Examples
    --------
    >>> masks = Mirrored()(np.random.default_rng(0), 16, 7)
    >>> signs = 2 * masks.astype(int) - 1
    >>> bool((signs[:8].T @ signs[:8] == 8 * np.eye(7)).all()), bool((masks[8:] == ~masks[:8]).all())
    (True, True)
    """

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        prime = _paley_prime(width)
        residue = np.zeros(prime, dtype=np.bool_)
        residue[np.arange(1, prime) ** 2 % prime] = True
        twice = np.concatenate([residue, residue])
        masks = np.empty((n, width), dtype=np.bool_)
        for start in range(0, n, 2 * (prime + 1)):
            # Drawn whole, whatever is asked of it, so that a longer draw begins with the shorter one.
            rows, columns = rng.permutation(prime + 1), rng.permutation(prime)[:width]
            turned = rng.random(width) < 0.5
            block = masks[start : start + prime + 1]
            for i, row in enumerate(rows[: len(block)].tolist()):
                block[i] = True if row == prime else twice[columns + (prime - row)]
            block ^= turned
            mirror = masks[start + prime + 1 : start + 2 * (prime + 1)]
            np.logical_not(block[: len(mirror)], out=mirror)
        return masks


def _paley_prime(least: int) -> int:
    """The smallest prime of the form 4k + 3 that is not below a number: a Hadamard matrix has one row more.

    >>> [_paley_prime(n) for n in (1, 4, 7, 8, 100)]
    [3, 7, 7, 11, 103]
    """
    q = max(least + (3 - least) % 4, 3)
    while any(q % d == 0 for d in range(3, math.isqrt(q) + 1, 2)):
        q += 4
    return q


@dataclass(frozen=True)
class Planned(_Flat):
    """Every mask once where the features are few, mirrored blocks where they are more: one design for all levels.

    Parameters
    ----------
    few
        Up to how many features all masks are asked; five have 32.
    """

    few: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.few <= _LISTED:
            raise ValueError(f"few must be from 0 to {_LISTED}, above which the masks are too many; got {self.few!r}")

    def enough(self, width: int) -> int | None:
        """The rows that ask everything but the prediction, for few features; None for more."""
        return Exhaustive().enough(width) if width <= self.few else None

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        return (Exhaustive() if width <= self.few else Mirrored())(rng, n, width)


@dataclass(frozen=True)
class Stratified(_Flat):
    """Sizes spread evenly instead of at random: how many features a mask keeps is planned, which ones are drawn.

    Fair coins keep about half of the features in every row. Here small and large masks come as often as the mass
    says, and as evenly over any number of rows as a golden-ratio sequence can.

    Parameters
    ----------
    mass
        ``"even"``: every size from 1 to one less than the width alike; ``"shapley"``: as Kernel SHAP weighs them,
        ``1 / (s (width − s))``.
    paired
        Whether each row is followed by its complement.
    """

    mass: Literal["even", "shapley"] = "even"
    paired: bool = True

    def __post_init__(self) -> None:
        if self.mass not in ("even", "shapley"):
            raise ValueError(f"mass must be 'even' or 'shapley'; got {self.mass!r}")

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        drawn = -(-n // 2) if self.paired else n
        size = np.arange(1, width) if width > 1 else np.arange(1)
        mass = np.cumsum(1.0 / (size * (width - size)) if self.mass == "shapley" and width > 1 else np.ones(len(size)))
        places = (rng.random() + _GOLDEN * np.arange(drawn)) % 1.0
        keep = size[np.minimum(np.searchsorted(mass, places * mass[-1], side="right"), len(size) - 1)]
        draws = rng.random((drawn, width))
        masks = draws <= np.take_along_axis(np.sort(draws, axis=1), keep[:, None] - 1, axis=1)
        masks[keep == 0] = False
        return np.stack([masks, ~masks], axis=1).reshape(-1, width)[:n] if self.paired else masks


@dataclass(frozen=True)
class Halves:
    """Each row keeps half of the features of every part, at random; of an odd number, one more or one less.

    What a part keeps then hardly varies from row to row, so that the rows tell its features apart and leave the
    part as a whole to the rows of its own level. At the coarsest level half of all features are kept.
    """

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        level = structure.level(level)
        width = structure.widths[level]
        owner = structure.parents[level - 1] if level else np.zeros(width, dtype=np.intp)
        parts = int(owner.max()) + 1
        size = np.bincount(owner, minlength=parts)
        before = np.cumsum(size) - size
        masks = np.empty((n, width), dtype=np.bool_)
        for start in range(0, n, _BLOCK // 4):  # a few rows at a time, for levels of very many features
            some = masks[start : start + _BLOCK // 4]
            draws = rng.random((len(some), width + parts))
            place = draws[:, :width] + owner  # sorted, they lie part by part
            keep = np.floor(size / 2 + draws[:, width:]).astype(np.intp)
            bound = np.concatenate([np.full((len(some), 1), -1.0), np.sort(place, axis=1)], axis=1)
            np.less_equal(place, np.take_along_axis(bound, before + keep, axis=1)[:, owner], out=some)
        return masks


@dataclass(frozen=True)
class Nested:
    """Whole parts on, whole parts off, and coins inside the others: each part decides, then its children if it is open.

    Rows like these stand between the levels' own: they say what a leaf does while other parts are absent or
    complete, and not only while all of them are half there. Deeper trees are descended by the same rule.

    Parameters
    ----------
    on, off
        The chances that a part is kept or hidden as a whole; with what is left it is open, and each of its children
        decides for itself. At the level that is asked, what is open is a fair coin.
    """

    on: float = 0.25
    off: float = 0.25

    def __post_init__(self) -> None:
        if not (self.on >= 0 and self.off >= 0 and self.on + self.off <= 1):
            raise ValueError(f"on and off are chances that add up to no more than 1; got {self.on} and {self.off}")

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        level = structure.level(level)
        widths = structure.widths[: level + 1]
        draws = np.split(rng.random((n, sum(widths))), np.cumsum(widths)[:-1], axis=1)
        kept = np.zeros((n, 1), dtype=np.bool_)
        open_ = np.ones((n, 1), dtype=np.bool_)
        owners = (np.zeros(widths[0], dtype=np.intp), *structure.parents)
        for k, draw_k in enumerate(draws):
            up, undecided = kept[:, owners[k]], open_[:, owners[k]]
            if k == level:
                return np.where(undecided, draw_k < 0.5, up)
            kept = np.where(undecided, draw_k < self.on, up)
            open_ = undecided & (draw_k >= self.on) & (draw_k < 1.0 - self.off)
        raise AssertionError("the last level returns")


@dataclass(frozen=True)
class Focused:
    """Coins inside a few parts at a time; every other part wholly on or wholly off.

    The fewer features vary at a time, the less each row is blurred by those that are not meant. Parts take turns in
    rounds, in an order drawn anew for each.

    Parameters
    ----------
    parts
        How many parts vary in a row: a number, or a share between 0 and 1.
    others
        What becomes of the others: ``"coin"`` keeps or hides each as a whole, ``"on"`` keeps all, ``"off"`` hides all.
    """

    parts: int | float = 1
    others: Literal["coin", "on", "off"] = "coin"

    def __post_init__(self) -> None:
        whole = isinstance(self.parts, int | np.integer) and not isinstance(self.parts, bool)
        if not (self.parts >= 1 if whole else 0.0 < self.parts < 1.0):
            raise ValueError(f"parts must be a number of at least 1 or a share between 0 and 1; got {self.parts!r}")
        if self.others not in ("coin", "on", "off"):
            raise ValueError(f"others must be 'coin', 'on' or 'off'; got {self.others!r}")

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        level = structure.level(level)
        width = structure.widths[level]
        owner = structure.parents[level - 1] if level else np.arange(width)  # parts themselves are their own
        count = structure.widths[level - 1] if level else width
        several = min(int(self.parts) if self.parts >= 1 else math.ceil(count * self.parts), count)
        draws = rng.random((n, width + 2 * count))
        coins, rest, deal = np.split(draws, [width, width + count], axis=1)
        # A round goes through a shuffled deck; its last hand is filled up from the top.
        hands = -(-count // several)
        first = np.arange(n) - np.arange(n) % hands
        deck = np.argsort(deal[first], axis=1)
        at = (several * (np.arange(n) % hands)[:, None] + np.arange(several)) % count
        varies = np.zeros((n, count), dtype=np.bool_)
        np.put_along_axis(varies, np.take_along_axis(deck, at, axis=1), True, axis=1)
        whole = rest < 0.5 if self.others == "coin" else np.full((n, count), self.others == "on")
        return np.where(varies[:, owner], coins < 0.5, whole[:, owner])


@dataclass(frozen=True, eq=False)
class Narrowed:
    """Balanced blocks of some features alone; every part keeps or hides the rest of its features as a whole.

    Where there are fewer rows than features, no design can tell all features apart. This one tells apart those that
    it is given, and lets the others take part only as parts.

    Parameters
    ----------
    features
        The indices of the features of the level that vary by themselves.
    """

    features: IntArray

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        level = structure.level(level)
        owner = structure.parents[level - 1] if level else np.zeros(structure.widths[0], dtype=np.intp)
        parts = int(owner.max()) + 1
        coins, plan = map(np.random.default_rng, rng.integers(2**63, size=2))
        masks = uniform(coins, n, parts)[:, owner]
        masks[:, self.features] = Balanced()(plan, n, len(self.features))
        return masks


DESIGNS: Mapping[str, AnySampler] = {
    "exhaustive": Exhaustive(),
    "balanced": Balanced(),
    "mirrored": Mirrored(),
    "planned": Planned(),
    "stratified": Stratified(),
    "shapley": Stratified("shapley"),
    "halves": Halves(),
    "nested": Nested(),
    "focused": Focused(),
}
