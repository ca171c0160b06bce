"""Samplers decide which masks to ask.

A sampler is a callable ``sampler(rng, n, structure, level)`` that returns masks of a level, a boolean array (n, width);
True keeps a feature. It returns fewer than n rows only where no other masks are left. Its first rows are the same
whatever n is, so that a larger budget begins with the masks of a smaller one. A sampler may also have
``preferred_rows(width)``: how many rows a level of parts of this width should get where a budget in one number is
split, or None to leave it to the budget.

``ensure`` also takes the name of a built-in sampler, or a plain function ``(rng, n, width)``. What the built-in ones
keep of the empty mask (everything hidden) and the full one (nothing hidden):

==========  ===========================================================================
sampler     empty and full masks
==========  ===========================================================================
apart       neither: whoever asks has both
planned     as they fall; for up to 16 features each at most once, the full one at the very end
uniform     both kept, as they fall: with 3 parts each is one mask in eight
paired      both kept; every second row is the complement of the row before it
exhaustive  both, once; the full one at the very end, because it is the prediction
milli       neither: a mask keeps at least one feature and hides at least one
==========  ===========================================================================
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from c2fa._system import is_real, is_whole
from c2fa.masks import balanced, coins, each_once, redrawn, up_to, with_complements
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure

_LISTED = 16  # up to this width there are few enough masks to keep track of those that were drawn
_BLOCK = 64  # rows made at a time


class Sampler(Protocol):
    """Draws masks of a level; the module's first lines say what they must keep to."""

    def __call__(self, rng: np.random.Generator, n: int, structure: Structure, level: int, /) -> BoolArray:
        """Return up to n masks, (n, width of the level)."""
        ...


WidthFunction: TypeAlias = Callable[[np.random.Generator, int, int], BoolArray]
AnySampler: TypeAlias = str | Sampler | WidthFunction


@dataclass(frozen=True)
class ByWidth:
    """A plain function ``(rng, n, width)`` as a sampler."""

    function: WidthFunction

    def __call__(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        return self.function(rng, n, structure.widths[level])


def ensure(sampler: AnySampler) -> Sampler:
    """Return a sampler from its name, from a plain function ``(rng, n, width)``, or the sampler itself.

    A function is a plain one if three positional parameters are required; it may have others with defaults.

    >>> ensure("planned")
    Planned(few=5)
    >>> ensure(lambda rng, n: None)
    Traceback (most recent call last):
        ...
    TypeError: a sampler takes (rng, n, structure, level) or (rng, n, width); <lambda> takes (rng, n)
    """
    if isinstance(sampler, type):
        raise TypeError(f"sampler must be a value such as {sampler.__name__}(), not the class itself")
    if not callable(sampler):
        if not isinstance(sampler, str) or sampler not in SAMPLERS:
            raise ValueError(f"sampler must be a function or one of {sorted(SAMPLERS)}; got {sampler!r}")
        return SAMPLERS[sampler]
    if isinstance(sampler, Planned | Exhaustive | Together | ByWidth):
        return sampler  # to read a signature takes longer than to draw
    function: Any = sampler
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled functions may not say
        return function  # type: ignore[no-any-return]
    places = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in places)
    if required == 3 and _can_be_called(signature, 3):
        return ByWidth(function)
    if _can_be_called(signature, 4):
        return function  # type: ignore[no-any-return]
    name = getattr(function, "__name__", type(function).__name__)
    raise TypeError(f"a sampler takes (rng, n, structure, level) or (rng, n, width); {name} takes {signature}")


def preference(sampler: AnySampler, width: int) -> int | None:
    """The rows that a sampler prefers for a level of parts of this width; None where it does not say."""
    made: Any = ensure(sampler)
    return made.preferred_rows(width) if hasattr(made, "preferred_rows") else None


def _can_be_called(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def draw(
    sampler: Sampler, rng: np.random.Generator, n: int, structure: Structure, level: int, allows_empty: bool = True
) -> BoolArray:
    """Draw masks of a level, without the empty one for inputs that cannot be empty (a bag without instances)."""
    most = 10**9  # more are a slip of the pen, and would fill the memory
    if not (is_whole(n) and 0 <= n <= most):
        raise ValueError(f"n must be a number of masks from 0 to {most:,}; got {n!r}")
    level = structure.level(level)

    def drawn(rng: np.random.Generator, n: int) -> BoolArray:
        return structure.check_masks(sampler(rng, n, structure, level), level)

    if allows_empty:
        return drawn(rng, n)
    if structure.widths[level] == 1:  # the full mask is all there is
        return np.ones((n, 1), dtype=np.bool_)
    if isinstance(sampler, ByWidth):  # it draws each row by itself, so a few more can simply be added
        return redrawn(n, functools.partial(drawn, rng))
    # The first rows of a longer draw are those of a shorter one, so draw again, by as many more as were empty.
    asked = n
    while True:
        masks = drawn(copy.deepcopy(rng), asked)
        good = masks[masks.any(axis=1)]
        if len(good) >= n or len(masks) < asked:
            return good[:n]
        if asked > 64 * (n + 16):
            raise ValueError(f"nearly every mask of {sampler} is empty, and this input cannot be; use another sampler")
        asked += max(n - len(good), asked // 8)


@dataclass(frozen=True)
class Planned:
    """Balanced blocks, each followed by its complements; no mask of few features comes twice.

    In a block every feature is on in half the rows, and every two features together in a quarter. No two features can
    be mistaken for each other within a block, where fair coins leave every two correlated by chance; rows that do not
    fill a block are correlated less than coins. A block and its complements together do not mistake features that work
    together for a third. Of up to 16 features no mask is repeated, and rows for all masks ask all of them.

    Parameters
    ----------
    few
        Up to how many features a level of parts wants all masks asked; five have 32.

    Examples
    --------
    >>> masks = Planned()(np.random.default_rng(0), 20, Structure.flat(19), 0)
    >>> signs = 2 * masks.astype(int) - 1
    >>> bool((signs.T @ signs == 20 * np.eye(19)).all()), set(masks.sum(axis=0).tolist())
    (True, {10})
    """

    few: int = 5

    def __post_init__(self) -> None:
        if not (is_real(self.few) and 0 <= self.few <= _LISTED):
            raise ValueError(f"few must be from 0 to {_LISTED}, above which the masks are too many; got {self.few!r}")

    def preferred_rows(self, width: int) -> int:
        """All masks but the full one, which is the prediction, of few features; else six rows a feature."""
        return int(2**width - 1) if width <= self.few else 6 * width

    def __call__(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        width = structure.widths[level]
        blocks = balanced(rng, width)
        return _rows(n, blocks if width > _LISTED else each_once(blocks, width), width)


@dataclass(frozen=True)
class Apart(Planned):
    """Rows for Winter values, each followed by its complement: parts as wholes, then taken apart.

    A value's sign changes with the complement, so a row and its complement together are not misled by any even number
    of features that work together. (Where leaves work alone, complements say nothing more: those of the halves come
    after all of these.) Levels of parts get balanced masks, all but the full and the
    empty one where there are few features. Leaves get three kinds of rows, as many of each as inform the values more
    than the next:

    - balanced halves, which tell of all leaves at once, a pair for each;
    - each leaf alone in its part, the other parts whole;
    - some leaves of one part, their number as likely as any other, while the features beside each of its ancestors are
      there with one chance for all of them, as likely as any other: what Winter values are means over. Each comes once,
      and after all of them there are no more.

    Examples
    --------
    >>> masks = Apart()(np.random.default_rng(0), 20, Structure.from_groups("aaabbb"), 1)
    >>> {row.tobytes() for row in masks} == {row.tobytes() for row in ~masks}
    True
    """

    def __call__(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        width = structure.widths[level]
        if level < structure.depth - 1 or width == 1:
            full = np.ones((1, width), dtype=np.bool_)
            return with_complements(n + 2, itertools.chain([full], balanced(rng, width, False)), width, math.inf)[2:]
        if n == 0:
            return np.empty((0, width), dtype=np.bool_)
        if structure.depth > 1 and structure.widths[-2] in (1, width):  # parts that are everything, or nothing more
            structure = Structure.flat(width)
        apart = functools.partial(_not_whole, structure)
        halves = map(apart, up_to(width, balanced(rng, width)))
        first = with_complements(2 * min(width, n), halves, width)[::2]
        if n <= 2 * len(first):
            return np.concatenate([first, ~first])[:n]
        owner = structure.owners(-2) if structure.depth > 1 else np.zeros(width, dtype=np.intp)
        rows = itertools.chain(_alone(rng.permutation(width), owner), _taken_apart(rng, structure, owner))
        found = with_complements(n, itertools.chain([first], map(apart, rows)), width)
        return np.concatenate([first, ~first, found[2 * len(first) :]])


def uniform(rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
    """Draw every entry as a fair coin, the paper's "binary uniform distributions"."""
    return coins(rng, n, structure.widths[level])


def paired(rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
    """Draw fair coins and follow every row by its complement, so that each feature is on exactly half the time."""
    half = uniform(rng, -(-n // 2), structure, level)
    return np.stack([half, ~half], axis=1).reshape(-1, half.shape[1])[:n]


@dataclass(frozen=True)
class Exhaustive:
    """Every mask once, in random order: all of them where there are rows for all, else different ones.

    The full mask comes last of all: it is the prediction, which is paid for. So ``2^width − 1`` rows ask everything.

    Examples
    --------
    >>> masks = Exhaustive()(np.random.default_rng(0), 100, Structure.flat(3), 0)
    >>> len(masks), len(np.unique(masks, axis=0)), bool(masks[-1].all())
    (8, 8, True)
    """

    def preferred_rows(self, width: int) -> int:
        """All masks but the full one, which is the prediction."""
        return int(2**width - 1)

    def __call__(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        width = structure.widths[level]
        if width > _LISTED:
            return _rows(n, each_once((coins(rng, _BLOCK, width) for _ in itertools.count()), width), width)
        numbers = rng.permutation(2**width - 1)  # all masks but the full one; bit i of a mask's number is feature i
        masks = ((numbers[:, None] >> np.arange(width)) & 1).astype(np.bool_)
        return _rows(n, each_once(iter([masks]), width), width)


@dataclass(frozen=True, eq=False)
class Together:
    """Masks that hide some features only together: another sampler draws them as if each such unit were one feature.

    Parameters
    ----------
    units
        For each feature of the level the number of its unit, from 0.

    Examples
    --------
    >>> masks = Together(Planned(), np.array([0, 1, 2, 2]))(np.random.default_rng(0), 6, Structure.flat(4), 0)
    >>> bool((masks[:, 2] == masks[:, 3]).all())
    True
    """

    sampler: Sampler
    units: IntArray

    def __call__(self, rng: np.random.Generator, n: int, structure: Structure, level: int) -> BoolArray:
        masks: BoolArray = self.sampler(rng, n, Structure.flat(int(self.units.max()) + 1), 0)[:, self.units]
        return masks


def milli(inclusion: FloatArray) -> Sampler:
    """Return MILLI's sampler: each feature is kept with its own chance; empty and full masks are drawn again."""

    def sample(rng: np.random.Generator, n: int, width: int) -> BoolArray:
        if width != len(inclusion):
            raise ValueError(f"{len(inclusion)} inclusion chances for masks of width {width}")
        if width == 1:  # there are only the empty and the full mask
            return np.ones((n, 1), dtype=np.bool_)
        return redrawn(n, lambda some: rng.random((some, width)) < inclusion, allows_full=False)

    return ByWidth(sample)


SAMPLERS: Mapping[str, Sampler] = {
    "planned": Planned(),
    "apart": Apart(),
    "uniform": uniform,
    "paired": paired,
    "exhaustive": Exhaustive(),
}


def _rows(n: int, blocks: Iterator[BoolArray], width: int) -> BoolArray:
    return np.concatenate([np.empty((0, width), dtype=np.bool_), *up_to(n, blocks)])


def _not_whole(structure: Structure, rows: BoolArray) -> BoolArray:
    """The rows in which at least one part is there in part: others are for the levels above."""
    if structure.depth == 1:
        return rows[rows.any(axis=1) & ~rows.all(axis=1)]
    counts = structure.sums(rows.T.astype(np.float64), structure.depth - 2)
    return rows[((counts > 0) & (counts < structure.sizes(-2)[:, None])).any(axis=0)]


def _alone(leaves: IntArray, owner: IntArray) -> Iterator[BoolArray]:
    """For each leaf, it alone in its part while the other parts are whole."""
    for some in np.split(leaves, range(_BLOCK, len(leaves), _BLOCK)):
        rows: BoolArray = owner != owner[some][:, None]
        rows[np.arange(len(some)), some] = True
        yield rows


def _taken_apart(rng: np.random.Generator, structure: Structure, owner: IntArray) -> Iterator[BoolArray]:
    """Some leaves of one part, with what is beside its ancestors there or not as wholes, without end."""
    sizes = np.bincount(owner)
    while True:
        leaves = rng.integers(structure.leaves, size=_BLOCK)
        ranks = rng.random((_BLOCK, structure.leaves))
        ranks[owner != owner[leaves][:, None]] = 2.0  # behind all of the part's own
        most = np.maximum(sizes[owner[leaves]] // 2, 1)
        taken = 1 + (rng.random(_BLOCK) * most).astype(np.intp)
        rows: BoolArray = np.argsort(np.argsort(ranks, axis=1), axis=1) < taken[:, None]
        for level in range(structure.depth - 2, -1, -1):
            there = rng.random((_BLOCK, structure.widths[level])) < rng.random((_BLOCK, 1))
            at = structure.owners(level)
            rows = np.where(at != at[leaves][:, None], there[:, at], rows)
        yield rows
