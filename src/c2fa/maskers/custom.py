"""Maskers for a structure of your own: any object with a function that masks it, or a vector of features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import host_array
from c2fa.asking.masking import Inputs, Masked
from c2fa.structure import BoolArray, Structure
from c2fa.views.descriptors import own_fields


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
        A function from an input to what is known of its leaves, by which a prior applies to them what other inputs
        taught: from the name of a field to one entry for each leaf, a text (a category), a number, or None where
        nothing is known.

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
    # Not shown, and so no part of what tells a masker from others: the same masked inputs come out of it.
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
class Array:
    """Masks a vector of features: a masked entry becomes the baseline's.

    Parameters
    ----------
    structure
        The tree of features; its leaves are the vector's entries, in order.
    baseline
        A number, or a vector with one value for each entry.

    Examples
    --------
    >>> masked = Array(Structure.from_groups("aab"), baseline=-1.0)([1.0, 2.0, 3.0])
    >>> masked.inputs(np.array([[True, False]]), 0)
    array([[ 1.,  2., -1.]])
    """

    structure: Structure
    baseline: float | npt.ArrayLike = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.structure, Structure):
            raise TypeError(
                f"structure must be a Structure, such as c2fa.Structure.from_groups('aab'); got {self.structure!r}"
            )
        try:
            base = np.asarray(self.baseline, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"baseline must be a number or one for each leaf; got {self.baseline!r}") from None
        if base.shape not in ((), (1,), (self.structure.leaves,)):
            raise ValueError(
                f"baseline must be a number or {self.structure.leaves} values, one per leaf; got shape {base.shape}"
            )

    def __call__(self, x: Any) -> Masked:
        vector = host_array(x)
        if vector.shape != (self.structure.leaves,):
            raise ValueError(
                f"the input must be a vector of {self.structure.leaves} values, one per leaf of the "
                f"structure; got shape {vector.shape}; explainer.many(rows) explains each of several"
            )
        if vector.dtype.kind not in "biuf":
            raise TypeError(f"the input must be real numbers, not {vector.dtype}; use maskers.Custom for others")
        base = np.asarray(self.baseline, dtype=np.result_type(vector, np.float32))

        def inputs(masks: BoolArray, level: int) -> npt.NDArray[Any]:
            return np.where(self.structure.expand(masks, level), vector, base)

        values = vector.astype(np.float64).tolist()
        names = list(self.structure.names[-1])
        if len(set(names)) < len(names):  # entries of one name go by their places too
            names = [f"{i} {name}" for i, name in enumerate(names)]
        view = views.Vector(tuple(values))
        same = np.broadcast_to(vector == base, vector.shape).tolist()
        return Masked(self.structure, inputs, view=view, descriptors=lambda: own_fields(names, values), inert=same)
