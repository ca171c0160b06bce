"""Masks planned with each other or with the structure in mind, where plain samplers draw each row by itself.

A design is a value with a method ``masks(rng, n, structure, level)`` that gives a boolean array of shape (n, width of
the level); True keeps a feature. There are fewer rows than n where no others are left to ask. Like a plain sampler's,
the first rows are the same whatever their number, so that a larger budget contains the smaller one. Designs that need
to know no more than the width can be called as plain samplers too. What each keeps of the empty mask (everything
hidden) and the full one (nothing hidden):

==========  ===========================================================================
design      empty and full masks
==========  ===========================================================================
exhaustive  both, once; the full one at the very end, for it is the prediction
balanced    as they fall, at most once in a block
mirror      as balanced, which it is with complements
planned     as in mirror; for up to 16 features each at most once, the full one at the very end
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
from functools import lru_cache
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
    >>> draw(Exhaustive("size"), np.random.default_rng(0), 99, s, 0).astype(int).tolist()
    [[0, 1], [1, 0], [0, 0], [1, 1]]
    >>> draw(Exhaustive("size"), np.random.default_rng(0), 99, s, 0, allows_empty=False).astype(int).tolist()
    [[0, 1], [1, 0], [1, 1]]
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
        ``"random"``: at random; ``"paired"``: at random, each followed by its complement, the empty one near the end;
        ``"size"``: those that hide one feature, then those that hide two, and so on, each size at random.

    Examples
    --------
    >>> masks = Exhaustive("size")(np.random.default_rng(0), 100, 3)
    >>> len(masks), (~masks).sum(axis=1).tolist()
    (8, [1, 1, 1, 2, 2, 2, 3, 0])
    """

    order: Literal["random", "paired", "size"] = "random"

    def wish(self, width: int) -> int:
        """The rows that a level of parts would like: all masks but the full one, which is the prediction."""
        return int(2**width - 1)

    def __post_init__(self) -> None:
        if self.order not in ("random", "paired", "size"):
            raise ValueError(f"order must be 'random', 'paired' or 'size'; got {self.order!r}")

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

    A block is the rows of a Hadamard matrix, of Paley's kind and of the first order above the width; each feature is
    one of its columns at random, turned round at random, the rows in random order. No two features can be mistaken for
    each other within a block, where fair coins leave every two correlated by chance; rows that do not fill a block are
    correlated less than coins.

    Parameters
    ----------
    complements
        ``"never"``: each block is drawn anew. ``"after"``: every second block is the complements of the one before, in
        the same order; the two together do not mistake features that work together for a third. ``"each"``: every row
        is followed by its complement. A complement is no new row for single features, so it is worth asking once the
        block is complete, and not before: ``"each"`` is for twice as many rows as features, or more.

    Examples
    --------
    >>> masks = Balanced()(np.random.default_rng(0), 8, 7)
    >>> signs = 2 * masks.astype(int) - 1
    >>> bool((signs.T @ signs == 8 * np.eye(7)).all()), masks.sum(axis=0).tolist()
    (True, [4, 4, 4, 4, 4, 4, 4])
    """

    complements: Literal["never", "after", "each"] = "never"

    def __post_init__(self) -> None:
        if self.complements not in ("never", "after", "each"):
            raise ValueError(f"complements must be 'never', 'after' or 'each'; got {self.complements!r}")

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        found = [np.zeros((0, width), dtype=np.bool_)]
        have = 0
        while have < n:
            need = n - have
            if self.complements == "each":
                half = _paley(rng, -(-need // 2), width)
                block = np.stack([half, ~half], axis=1).reshape(-1, width)
            else:
                block = _paley(rng, need, width)
                if self.complements == "after" and len(block) < need:
                    block = np.concatenate([block, ~block])
            found.append(block)
            have += len(block)
        return np.concatenate(found)[:n]


def _paley(rng: np.random.Generator, n: int, width: int) -> BoolArray:
    """Up to n rows of a block: all q + 1 rows have every column half on, and every two a quarter together.

    Row i and column j of Paley's matrix differ by a square modulo a prime q = 4k + 3, or not; a last row is all on.
    """
    q = _prime(width)
    square = np.zeros(q, dtype=np.bool_)
    square[np.square(np.arange(1, q, dtype=np.int64)) % q] = True
    twice = np.concatenate([square, square])
    column = rng.permutation(q)[:width]
    turned = rng.random(width) < 0.5
    row = rng.permutation(q + 1)[:n]  # drawn whole, whatever n, so that the generator goes on from the same place
    masks = np.empty((len(row), width), dtype=np.bool_)
    for i, r in enumerate(row.tolist()):
        masks[i] = True if r == q else twice[column + (q - r)]
    masks ^= turned
    return masks


@lru_cache(maxsize=64)
def _prime(least: int) -> int:
    """The first prime of the form 4k + 3 from a number on."""
    q = max(least, 3)
    while q % 4 != 3 or any(q % d == 0 for d in range(3, math.isqrt(q) + 1, 2)):
        q += 1
    return q


@dataclass(frozen=True)
class Planned(_Flat):
    """Balanced blocks, each followed by its complements; no mask comes twice, and few features are asked completely.

    Balanced blocks come first for few features too: a budget that does not reach for all masks is then spent on those
    that tell features apart best.

    Parameters
    ----------
    few
        Up to how many features a level of parts wants all masks asked; five have 32.
    """

    few: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.few <= _LISTED:
            raise ValueError(f"few must be from 0 to {_LISTED}, above which the masks are too many; got {self.few!r}")

    def wish(self, width: int) -> int:
        """The rows that a level of parts would like: all masks but the full one, or six a feature."""
        return Exhaustive().wish(width) if width <= self.few else 6 * width

    def __call__(self, rng: np.random.Generator, n: int, width: int) -> BoolArray:
        if width > _LISTED:
            return Balanced("after")(rng, n, width)
        full = np.ones((1, width), dtype=np.bool_)
        seen = set(mask_keys(full))
        found = [np.zeros((0, width), dtype=np.bool_)]
        while sum(map(len, found)) < n and len(seen) < 2**width:
            block = _paley(rng, 2**width, width)
            block = np.concatenate([block, ~block])
            found.append(block[_new(mask_keys(block), seen)])
        if len(seen) == 2**width:
            found.append(full)
        return np.concatenate(found)[:n]


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
    """Balanced blocks of some features; every part keeps or hides the rest of its features as a whole.

    Where there are fewer rows than features, no design can tell all features apart. This one tells apart those that
    it is given, and lets the others take part only as what is left of their parts: one unit each, balanced like the
    features themselves.

    Parameters
    ----------
    features
        The indices of the features of the level that vary by themselves.
    """

    features: IntArray

    def masks(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        unit = self.units(structure, level)
        return Balanced("after")(rng, n, int(unit.max()) + 1)[:, unit]

    def units(self, structure: Structure, level: int) -> IntArray:
        """For each feature of the level, the unit with which it is kept or hidden."""
        level = structure.level(level)
        owner = structure.parents[level - 1] if level else np.zeros(structure.widths[0], dtype=np.intp)
        unit = owner + len(owner)  # a number of its own for each part, and one for each feature that varies
        unit[self.features] = self.features
        return np.unique(unit, return_inverse=True)[1].astype(np.intp)


DESIGNS: Mapping[str, AnySampler] = {
    "exhaustive": Exhaustive(),
    "balanced": Balanced(),
    "mirror": Balanced("after"),
    "planned": Planned(),
    "stratified": Stratified(),
    "shapley": Stratified("shapley"),
    "halves": Halves(),
    "nested": Nested(),
    "focused": Focused(),
}
