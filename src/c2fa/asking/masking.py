"""One input, ready to be masked: what every masker makes of the input it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from c2fa.graph import Graph
from c2fa.structure import BoolArray, Structure

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

Inputs: TypeAlias = Any
"""A batch as the model takes it: anything with a length (a list, an array, a tensor, a frame)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """What an explanation keeps of its input: how features are called, what the input has there, how it is drawn.

    A masker hands it over. Each kind of input has a class of its own, in ``c2fa.views``; this one shows names and bars.
    A kind of one's own inherits from this class or from one of those, says more where it has more to say, and is a
    frozen dataclass, whose fields are kept in files by their names: texts, numbers, arrays, tuples and dataclasses.

    Parameters
    ----------
    levels
        What the features of each level are called, coarse to fine; empty for the names of the class.

    Examples
    --------
    >>> View().level_names(Structure.from_tree({"A": {"B": ["x", "y"]}}))
    ('parts', 'sub-parts', 'leaves')
    """

    kind: ClassVar[str] = ""
    """How it is drawn on pages and by ``plot``: as a ``"text"``, ``"images"``, ``"series"``, ``"bag"``, ``"table"``."""
    called: ClassVar[tuple[str, str]] = ("parts", "leaves")
    """What parts and leaves are called where ``levels`` does not say."""
    telling: ClassVar[int] = 0
    """The level whose names speak for themselves: -1 for words and columns, 0 for what holds super-pixels."""
    classes: ClassVar[dict[str, type[View]]] = {}
    """Every kind by the name of its class, which files know it by."""

    levels: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        View.classes[cls.__name__] = cls

    def level_names(self, structure: Structure) -> tuple[str, ...]:
        """What the features of each level are called, coarse to fine."""
        part, leaf = self.called
        return self.levels or (*("sub-" * k + part for k in range(structure.depth - 1)), leaf)

    def check(self, structure: Structure) -> None:
        """Refuse, by a ValueError, a view that does not fit the structure of its input."""
        if self.levels and len(self.levels) != structure.depth:
            raise ValueError(f"the view names levels {self.levels}, and the structure has {structure.depth}")

    def title(self, structure: Structure) -> str:
        """What an input is called where many are listed; empty where nothing tells it from others."""
        return ""

    def words(self) -> str:
        """The text that a search looks into; empty for the features' names."""
        return ""

    def cells(self) -> list[str]:
        """What the input has at each leaf, as it is shown beside the leaf's name; empty where names say all."""
        return []

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """What the features of a level are in the input, a number or a text each; None where nothing says."""
        return None

    def notes(self, structure: Structure) -> list[str]:
        """Sentences about the input that the numbers do not tell."""
        return []

    def spells(self, structure: Structure) -> bool:
        """Whether a page can read the leaves' names off what it draws."""
        return False

    def page(self, structure: Structure, side: int) -> dict[str, Any]:
        """What the script of a page draws its ``kind`` from; pictures are at most ``side`` pixels long."""
        return {"cells": self.cells()}

    def html(self, e: Explanation) -> str:
        """What stands above the parts where scripts do not run, as HTML in which the input's text is escaped."""
        return ""

    def figure(self, e: Explanation, **options: Any) -> Any:
        """A matplotlib figure of its own; None where ``c2fa.plots`` draws its ``kind``."""
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
        ``inputs(masks, level)`` gives the batch of masked inputs, one for each row of the boolean masks,
        (n, structure.widths[level]); True keeps a feature. A full mask gives the input itself, and masks of parts give
        the same inputs as those masks written in leaves: a part is gone when its last leaf is. Explanations ask in
        masks of leaves alone.
    beside
        Masks of leaves, (n, leaves), whose rows are asked right after the input itself, whatever the method: they are
        rows of the budget, and what a model says of its outputs may depend on them.
    rows_per_mask
        How many inputs ``inputs`` gives for each mask, one after another; the model's outputs for them are averaged,
        and every one of them counts as a row of the budget.
    allows_empty
        Whether an input with everything masked still is one that the model can take.
    view
        What an explanation keeps of the input, to name and to draw its features: one of ``c2fa.views``, or a kind of
        one's own.
    neighbours
        Gives the graph of leaves that are expected to matter about equally, for explanations that are to be smooth;
        called when it is needed. None where leaves have no neighbours.
    smooth_by_default
        Whether explanations are smooth unless told otherwise. Set it where neighbours usually matter equally, as
        super-pixels of one object do and words of a sentence do not.
    content
        What the input holds, where it was given as the name of a file: a ledger must not take a file that was
        changed for the one it knows. None where the input is its own content.
    notes
        What to know about how the input was divided; they stand among the warnings of its explanation.
    inert
        Of each leaf, whether masking it changes nothing, as of a value that is equal to its baseline: nothing is asked
        about it, and it has exactly 0. Empty where nobody knows.
    hint
        What to try where the model refuses the input as it is.
    descriptors
        Gives what is known of the leaves, by which a prior applies to them what other inputs taught: from the name of a
        field to one entry for each leaf, a text (a category), a number, or None where nothing is known. It depends on
        this input alone, and is called when it is needed. None where nothing is known of any leaf.
    apart
        Gives the same input under the paper's masks, where masking a part is another input than masking its leaves:
        with ``preset="paper"`` that is what is explained. None where the paper's masks are no others.
    by_level
        Whether ``inputs`` is asked about each level in masks of that level, because masking a part is another input
        than masking its leaves. Only what ``apart`` gives is such.
    chosen
        The masker that was taken because nobody gave one; the explanation's provenance names it.
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
        """What the features of each level are called, coarse to fine: sentences, words."""
        return self.view.level_names(self.structure)

    def rows_of(self, masks: Sequence[int]) -> int:
        """The model's rows under so many masks of each level, with its own and those beside it."""
        return (1 + len(self.beside) + sum(masks)) * self.rows_per_mask


@runtime_checkable
class TextInputs(Protocol):
    """``inputs`` of a text or several, by which a model that has a tokenizer may mask tokens instead of characters.

    ``spans`` are where the leaves of each text are, in characters; ``mask`` is what stands in place of a masked leaf,
    None where it is removed; ``container`` is the input, where it is not one text but holds several.
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
    """``inputs`` of arrays or tensors, which can be put on a torch device and masked there.

    ``stacks`` says whether rows are then one tensor, of the type and the layout that they have elsewhere.
    """

    stacks: bool

    def on(self, device: Any) -> Callable[[BoolArray, int], Any]:
        """The same inputs as tensors on a device."""
        ...


def stacking(inputs: Any) -> DeviceInputs | None:
    """Such inputs as they are, where their rows are one tensor; None for all others."""
    return inputs if isinstance(inputs, DeviceInputs) and inputs.stacks else None


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows of one input as masks of a level, (n, width), for a model that makes the masked inputs itself.

    ``inputs`` is what the model's ``encode_inputs`` made of those of ``Masked``, or these themselves. Masks are of
    leaves, unless the input is asked about by level.
    """

    inputs: Any
    masks: BoolArray
    level: int

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, rows: slice) -> MaskedRows:
        return MaskedRows(self.inputs, self.masks[rows], self.level)

    def rendered(self) -> Inputs:
        """The masked inputs, where ``inputs`` are those of ``Masked``."""
        return self.inputs(self.masks, self.level)


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """A batch of rows as masks, of one input or several."""

    pieces: Sequence[MaskedRows]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


class Masker(Protocol):
    """Says for one kind of input what its structure is and what it looks like under masks."""

    def __call__(self, x: Any) -> Masked:
        """Prepare one input; the costly part (splitting, segmenting) happens here, once."""
        ...


def check_masked(masked: Any) -> None:
    """Refuse what a masker of one's own may return by mistake."""
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
    """Refuse a class, what cannot be called, and a function that does not take one argument."""
    if isinstance(given, type):
        raise TypeError(
            f"{name} must be a {name} such as {such_as}, not the class {given.__name__}: write {given.__name__}()"
        )
    if not callable(given):
        raise TypeError(f"{name} must be a {name} such as {such_as}, not {type(given).__name__}")
    if inspect.isfunction(given):
        try:
            inspect.signature(given).bind(None)
        except TypeError:
            took = inspect.signature(given)
            raise TypeError(f"a function that is a {name} takes one argument, {argument}; got one of {took}") from None
