"""A vector of features; what is masked becomes a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import host_array
from c2fa.asking.masking import Masked
from c2fa.structure import BoolArray, Structure
from c2fa.views.descriptors import own_fields


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
        view = views.Vector(tuple(values))
        return Masked(self.structure, inputs, view=view, descriptors=lambda: own_fields(self._fields(), values))

    def _fields(self) -> list[str]:
        """What the entries are called, with their places where two have one name."""
        names = self.structure.names[-1]
        return list(names) if len(set(names)) == len(names) else [f"{i} {name}" for i, name in enumerate(names)]
