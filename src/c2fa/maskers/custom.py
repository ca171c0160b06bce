"""Maskers for any kind of input: by a function of yours, or by default, chosen for the input."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from c2fa._system import is_frame
from c2fa.asking.masking import Inputs, Masked, Masker
from c2fa.maskers._pictures import is_pil
from c2fa.maskers.images import ImageBag
from c2fa.maskers.tabular import Tabular, read_row
from c2fa.maskers.text import Text
from c2fa.structure import BoolArray, Structure


@dataclass(frozen=True)
class Custom:
    """Masks any object with a function of yours.

    Parameters
    ----------
    structure
        The structure of every input, or a function from an input to its structure.
    inputs
        ``inputs(x, masks, level)`` gives a batch with one masked input for each row of ``masks``, a boolean
        array of shape (n, widths[level]) in which True keeps a feature. It is asked about leaves, and a part is masked
        where all of its leaves are; with ``preset="paper"`` it is asked about parts too, as level 0.
    allows_empty
        Whether the model can take an input with everything masked.
    descriptors
        A function from an input to facts about its leaves, by which a prior recognises leaves like those of other
        inputs: a dict from a field's name to one entry for each leaf, a text (a category), a number, or None for
        unknown.

    Examples
    --------
    >>> s = Structure.from_tree({"greeting": ["hello", "dear"], "rest": ["world"]})
    >>> def keep(words, masks, level):
    ...     return [" ".join(w for w, on in zip(words, row) if on) for row in s.expand(masks, level)]
    >>> Custom(s, keep)(["hello", "dear", "world"]).inputs([[False, True]], 0)
    ['world']
    """

    structure: Structure | Callable[[Any], Structure]
    inputs: Callable[[Any, BoolArray, int], Inputs]
    allows_empty: bool = True
    # Not in the repr, by which maskers are told apart, because it does not change the masked inputs.
    descriptors: Callable[[Any], Mapping[str, Sequence[Any]]] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.structure, Structure) and not callable(self.structure):
            raise TypeError(
                "structure must be a c2fa.Structure or a function from an input to one, "
                f"not {type(self.structure).__name__}"
            )
        if not callable(self.inputs):
            raise TypeError("inputs must be a function (x, masks, level) -> batch")
        if self.descriptors is not None and not callable(self.descriptors):
            raise TypeError(f"descriptors must be a function from an input to a table, not {self.descriptors!r:.100}")

    def __call__(self, x: Any) -> Masked:
        structure = self.structure if isinstance(self.structure, Structure) else self.structure(x)
        if not isinstance(structure, Structure):
            raise TypeError(f"structure(x) must return a c2fa.Structure, not {type(structure).__name__}")
        describe = self.descriptors
        masked = Masked(
            structure,
            lambda masks, level: self.inputs(x, masks, level),
            allows_empty=self.allows_empty,
            descriptors=None if describe is None else lambda: describe(x),
        )
        return replace(masked, apart=lambda: replace(masked, by_level=True))


@dataclass(frozen=True)
class Default:
    """Masks a text as ``Text()`` does, an image as ``ImageBag()``, and a table row by zeros.

    A row is a DataFrame of one row, a Series, a dict or a vector. Its masked numbers become 0 and its masked texts
    empty, and the explanation says so, because nobody said which values are usual. Other inputs need a masker.

    >>> Default()("Good room. Bad food.").structure.names[0]
    ('Good room.', 'Bad food.')
    """

    def __call__(self, x: Any) -> Masked:
        if isinstance(x, list):
            raise TypeError(
                f"explainer(x) explains one input, and this is a list of {len(x)}: explainer.many(inputs) explains each"
            )
        dimensions = len(getattr(x, "shape", ()))
        if isinstance(x, str):
            masker: Masker = Text()
        elif isinstance(x, os.PathLike) or dimensions == 3 or is_pil(x):
            masker = ImageBag()
        elif isinstance(x, dict) or is_frame(x) or dimensions == 1:
            return _row(x)
        else:
            of_shape, remedy = "", "give one of c2fa.maskers, such as TimeSeries(), Bag() or Custom(…)"
            if dimensions:
                of_shape = f" of shape {tuple(x.shape)}"
            if dimensions == 4:
                remedy = "give x[0], the image itself" if len(x) == 1 else "explainer.many(x) explains each image"
            raise TypeError(f"there is no masker by default for {type(x).__name__}{of_shape}: {remedy}")
        return replace(masker(x), chosen=f"{type(masker).__name__}(), by default")


def _row(x: Any) -> Masked:
    names, values = read_row(x)

    def empty(value: Any) -> Any:
        if isinstance(value, str):
            return ""
        is_number = isinstance(value, bool | int | float | np.number | np.bool_)
        return type(value)(0) if is_number else value  # a value without a zero, such as a date, stays

    zeros = list(map(empty, values))
    background = [zeros] if names is None else dict(zip(names, zeros, strict=True))
    masked = Tabular(background=background, strategy="row")(x)
    note = "what is masked became 0, or empty, because no masker said what is usual: c2fa.maskers.Tabular(background=…)"
    return replace(masked, chosen="Tabular(background=0), by default", notes=(*masked.notes, note))
