"""One input, ready to be masked: what every masker makes of the input it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from c2fa.graph import Graph
from c2fa.structure import BoolArray, Structure

Inputs: TypeAlias = Any
"""A batch as the model takes it: anything with a length (a list, an array, a tensor, a frame)."""


_NAMES = {
    "text": ("sentences", "words"),
    "images": ("images", "super-pixels"),
    "table": ("groups", "columns"),
    "bag": ("instances", "features"),
    "series": ("channels", "windows"),
}


def level_names(structure: Structure, view: Mapping[str, Any]) -> tuple[str, ...]:
    """What the features of each level are called, coarse to fine: as the view says, or by its kind.

    >>> level_names(Structure.from_groups("aab"), {"kind": "table"})
    ('groups', 'columns')
    >>> level_names(Structure.from_tree({"A": {"B": ["x", "y"]}}), {})
    ('parts', 'sub-parts', 'leaves')
    """
    given = view.get("levels") or ()
    if len(given) == structure.depth:
        return tuple(map(str, given))
    part, leaf = _NAMES.get(str(view.get("kind")), ("parts", "leaves"))
    if view.get("order") == "windows":
        part, leaf = leaf, part
    return (*("sub-" * k + part for k in range(structure.depth - 1)), leaf)


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
        What a report needs to draw the input: ``kind`` and plain values or arrays. ``at_baseline`` says of each leaf
        whether masking it changes nothing, because its value is the one that stands for a masked one.
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
    """

    structure: Structure
    inputs: Callable[[BoolArray, int], Inputs]
    allows_empty: bool = True
    view: Mapping[str, Any] = field(default_factory=dict)
    neighbours: Callable[[], Graph] | None = None
    smooth_by_default: bool = False
    content: Any = None
    notes: tuple[str, ...] = ()
    rows_per_mask: int = 1
    descriptors: Callable[[], Mapping[str, Sequence[Any]]] | None = None
    apart: Callable[[], Masked] | None = None
    by_level: bool = False
    beside: BoolArray | tuple[()] = ()


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


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows of one input as masks of a level, (n, width), for a model that makes the masked inputs itself.

    ``inputs`` is that of ``Masked``: it says which input it is, and what a model needs to know of it.
    """

    inputs: Callable[[BoolArray, int], Inputs]
    masks: BoolArray
    level: int

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, rows: slice) -> MaskedRows:
        return MaskedRows(self.inputs, self.masks[rows], self.level)

    def rendered(self) -> Inputs:
        """The masked inputs."""
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
    if masked.descriptors is not None and not callable(masked.descriptors):
        raise TypeError(
            f"descriptors must be a function without arguments that gives a table, not {masked.descriptors!r:.100}; "
            "write lambda: in front of the table"
        )
