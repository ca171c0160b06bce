"""One input, ready to be masked: the result of every masker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from c2fa.graph import Graph
from c2fa.structure import BoolArray, IntArray, Structure

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

Inputs: TypeAlias = Any
"""A batch for the model: anything with a length (a list, an array, a tensor, a frame)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """The part of an input that its explanation keeps: names of features, their contents, and what to draw.

    A masker makes it. Each kind of input has a class of its own, in ``c2fa.views``; this one shows names and bars. For
    your own kind, inherit from this class or one of those, as a frozen dataclass. Files keep its fields by their names:
    texts, numbers, arrays, tuples and dataclasses.

    Parameters
    ----------
    levels
        The name of each level's features, coarse to fine; empty for the names of the class.

    Examples
    --------
    >>> View().level_names(Structure.from_tree({"A": {"B": ["x", "y"]}}))
    ('parts', 'sub-parts', 'leaves')
    """

    kind: ClassVar[str] = ""
    """How pages and ``plot`` draw it: as a ``"text"``, ``"images"``, ``"series"``, ``"bag"``, ``"table"``."""
    called: ClassVar[tuple[str, str]] = ("parts", "leaves")
    """The names of parts and leaves where ``levels`` is empty."""
    telling: ClassVar[int] = 0
    """The level whose names speak for themselves: -1 for words and columns, 0 for images of super-pixels."""
    classes: ClassVar[dict[str, type[View]]] = {}
    """Every kind by the name of its class, by which files refer to it."""

    levels: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        View.classes[cls.__name__] = cls

    def level_names(self, structure: Structure) -> tuple[str, ...]:
        """The name of each level's features, coarse to fine."""
        part, leaf = self.called
        return self.levels or (*("sub-" * k + part for k in range(structure.depth - 1)), leaf)

    def check(self, structure: Structure) -> None:
        """Raise a ValueError if the view does not fit the structure of its input."""
        if self.levels and len(self.levels) != structure.depth:
            raise ValueError(f"the view names levels {self.levels}, and the structure has {structure.depth}")

    def title(self, structure: Structure) -> str:
        """The title of the input in a list of many; empty if it has none."""
        return ""

    def words(self) -> str:
        """The text for searches; empty for the features' names."""
        return ""

    def cells(self) -> list[str]:
        """The input's content at each leaf, shown beside the leaf's name; empty where names say all."""
        return []

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """The content of a level's features in the input, a number or a text each; None where it is unknown."""
        return None

    def notes(self, structure: Structure) -> list[str]:
        """Sentences about the input that the numbers do not show."""
        return []

    def spells(self, structure: Structure) -> bool:
        """Whether a page's drawing shows the leaves' names."""
        return False

    def page(self, structure: Structure, side: int) -> dict[str, Any]:
        """The data from which a page's script draws this ``kind``; pictures are at most ``side`` pixels long."""
        return {"cells": self.cells()}

    def html(self, e: Explanation) -> str:
        """HTML above the parts, for where scripts do not run; it escapes the input's text."""
        return ""

    def figure(self, e: Explanation, **options: Any) -> Any:
        """A matplotlib figure; None if ``c2fa.plots`` draws this ``kind``."""
        return None


View.classes["View"] = View


@dataclass(frozen=True, eq=False)
class Masked:
    """An input with its structure and the function that masks it.

    Parameters
    ----------
    structure
        The tree of this input's features.
    inputs
        ``inputs(masks, level)`` returns the batch of masked inputs, one for each row of the boolean masks,
        (n, structure.widths[level]); True keeps a feature. A full mask gives the input itself, and a mask of parts the
        same input as that mask written in leaves. Explanations ask in masks of leaves alone.
    beside
        Masks of leaves, (n, leaves), whose rows every method asks right after the input itself, as rows of the budget.
        The model's description of its outputs may depend on them.
    rows_per_mask
        How many inputs ``inputs`` returns for each mask, one after another. The model's outputs for them are averaged,
        and each counts as a row of the budget.
    allows_empty
        Whether the model can take an input with everything masked.
    view
        Names and draws the features: one of ``c2fa.views``, or your own.
    neighbours
        Returns the graph of leaves that are expected to matter about equally, for smooth explanations. None where
        leaves have no neighbours.
    smooth_by_default
        Whether explanations are smooth by default. Set it where neighbours usually matter equally, as super-pixels of
        one object do and words of a sentence do not.
    content
        The content of an input that is a file's name, so that a ledger notices when the file changes. None where the
        input is its own content.
    notes
        Facts about the division of the input, for the warnings of its explanation.
    inert
        For each leaf, whether masking it changes nothing, such as a value equal to its baseline: such a leaf has
        exactly 0 and takes no row. Empty where this is unknown.
    hint
        What to try if the model refuses the input itself.
    descriptors
        Returns facts about the leaves, by which a prior applies what other inputs taught: a dict from a field's name to
        one entry for each leaf, a text (a category), a number, or None for unknown. It depends on this input alone.
        None where nothing is known of any leaf.
    apart
        Returns the input under the paper's masks, for ``preset="paper"``, where masking a part is another input than
        masking its leaves. None where the paper's masks are the same.
    by_level
        Whether ``inputs`` takes masks of each level, because masking a part is another input than masking its leaves.
        True only for a result of ``apart``.
    chosen
        The masker that was chosen because none was given; the explanation's provenance names it.
    """

    structure: Structure
    inputs: Callable[[BoolArray, int], Inputs]
    allows_empty: bool = True
    view: View = field(default_factory=View)
    neighbours: Callable[[], Graph] | None = None
    smooth_by_default: bool = False
    content: Any = None
    notes: tuple[str, ...] = ()
    hint: str = ""
    inert: Sequence[bool] = ()
    rows_per_mask: int = 1
    descriptors: Callable[[], Mapping[str, Sequence[Any]]] | None = None
    apart: Callable[[], Masked] | None = None
    by_level: bool = False
    beside: BoolArray | tuple[()] = ()
    chosen: str = ""

    @property
    def level_names(self) -> tuple[str, ...]:
        """The name of each level's features, coarse to fine: sentences, words."""
        return self.view.level_names(self.structure)

    def rows_of(self, masks: Sequence[int]) -> int:
        """The model's rows under so many masks of each level, with its own and those beside it."""
        return (1 + len(self.beside) + sum(masks)) * self.rows_per_mask


@dataclass(frozen=True, eq=False)
class Moving:
    """An input without its inert leaves, of which nothing is asked: they have exactly 0.

    ``masked`` has the others, ``places`` are each level's places in the whole, which has so many ``leaves``.

    In a game, leaving null players out changes no other player's value.

    >>> s = Structure.from_groups("aabbc")
    >>> moving = Moving.of(Masked(s, lambda masks, level: masks, inert=(False, True, False, False, True)))
    >>> moving.masked.structure.names, [places.tolist() for places in moving.places]
    ((('a', 'b'), ('0', '2', '3')), [[0, 1], [0, 2, 3]])
    """

    masked: Masked
    places: tuple[IntArray, ...]
    leaves: int

    @classmethod
    def of(cls, masked: Masked) -> Moving | None:
        """None if no leaf is inert, all leaves are, or the input takes masks of each level."""
        changes = ~np.asarray(masked.inert, dtype=np.bool_)
        if changes.all() or not changes.any() or masked.by_level:
            return None
        s = masked.structure
        places = tuple(np.unique(s.owners(k)[changes]) for k in range(s.depth))
        parents = [np.searchsorted(places[k], owner[places[k + 1]]) for k, owner in enumerate(s.parents)]
        names = [tuple(s.names[k][i] for i in at) for k, at in enumerate(places)]

        def neighbours() -> Graph:
            assert masked.neighbours is not None
            graph = masked.neighbours()
            both = np.isin(graph.edges, places[-1]).all(axis=1)
            return Graph(np.searchsorted(places[-1], graph.edges[both]), graph.weights[both])

        def descriptors() -> dict[str, list[Any]]:
            assert masked.descriptors is not None
            return {name: [column[i] for i in places[-1]] for name, column in masked.descriptors().items()}

        others = replace(
            masked,
            structure=Structure(tuple(parents), tuple(names)),
            neighbours=None if masked.neighbours is None else neighbours,
            descriptors=None if masked.descriptors is None else descriptors,
            beside=np.asarray(masked.beside)[:, places[-1]] if len(masked.beside) else (),
            inert=(),
        )
        return cls(others, places, s.leaves)

    def whole(self, masks: BoolArray, level: int) -> BoolArray:
        """Masks of these leaves as masks of all, of which the inert ones stay."""
        kept = np.ones((len(masks), self.leaves), dtype=np.bool_)
        kept[:, self.places[-1]] = self.masked.structure.expand(masks, level)
        return kept


@runtime_checkable
class TextInputs(Protocol):
    """``inputs`` of one text or several, from which a model with a tokenizer may mask tokens instead of characters.

    ``spans`` are the leaves' places in each text, in characters. ``mask`` replaces a masked leaf; None removes it.
    ``container`` is the input itself, where it holds several texts.
    """

    structure: Structure
    texts: list[str]
    spans: list[list[tuple[int, int]]]
    mask: str | None
    container: Any

    def __call__(self, masks: BoolArray, level: int, /) -> list[Any]:
        """The masked texts."""
        ...


@runtime_checkable
class DeviceInputs(Protocol):
    """``inputs`` of arrays or tensors that can be masked on a torch device.

    ``stacks`` is True if rows are one tensor there, of their usual type and layout.
    """

    stacks: bool

    def on(self, device: Any) -> Callable[[BoolArray, int], Any]:
        """The same inputs as tensors on a device."""
        ...


def stacking(inputs: Any) -> DeviceInputs | None:
    """The inputs if their rows are one tensor; else None."""
    return inputs if isinstance(inputs, DeviceInputs) and inputs.stacks else None


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows of one input as masks of a level, (n, width), for a model that makes the masked inputs itself.

    ``inputs`` are those of ``Masked``, or the result of the model's ``encode_inputs`` for them. Masks are of leaves
    unless ``Masked.by_level``.
    """

    inputs: Any
    masks: BoolArray
    level: int

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, rows: slice) -> MaskedRows:
        return MaskedRows(self.inputs, self.masks[rows], self.level)

    def rendered(self) -> Inputs:
        """The masked inputs, if ``inputs`` are those of ``Masked``."""
        return self.inputs(self.masks, self.level)


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """A batch of rows as masks, of one input or several."""

    pieces: Sequence[MaskedRows]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


class Masker(Protocol):
    """Gives the structure of an input, and the input under masks."""

    def __call__(self, x: Any) -> Masked:
        """Prepare one input; the costly part (splitting, segmenting) happens here, once."""
        ...


def check_masked(masked: Any) -> None:
    """Refuse what your own masker may return by mistake."""
    if not isinstance(masked, Masked):
        raise TypeError(
            f"the masker must return a c2fa.Masked, not {type(masked).__name__}; to make a masker of your own "
            "function use c2fa.maskers.Custom"
        )
    if not isinstance(masked.view, View):
        raise TypeError(
            f"view must be a c2fa.views.View, such as c2fa.views.Table((40, 2.5)), not {masked.view!r:.100}"
        )
    masked.view.check(masked.structure)
    if masked.descriptors is not None and not callable(masked.descriptors):
        raise TypeError(
            f"descriptors must be a function without arguments that gives a table, not {masked.descriptors!r:.100}; "
            "write lambda: in front of the table"
        )


def check_takes_one(name: str, given: Any, such_as: str, argument: str) -> None:
    """Refuse a class, an object that is not callable, and a function that does not take one argument."""
    if isinstance(given, type):
        raise TypeError(
            f"{name} must be a {name} such as {such_as}, not the class {given.__name__}: write {given.__name__}()"
        )
    if not callable(given):
        raise TypeError(f"{name} must be a {name} such as {such_as}, not {type(given).__name__}")
    if inspect.isfunction(given):
        takes = inspect.signature(given)
        try:
            takes.bind(None)
        except TypeError:
            raise TypeError(f"a function that is a {name} takes one argument, {argument}; got one of {takes}") from None
