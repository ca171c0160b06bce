"""Bags of feature vectors: multiple-instance data, baskets, point clouds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import as_given, host_array, is_frame, is_tensor
from c2fa.asking.masking import Masked
from c2fa.structure import BoolArray, Structure
from c2fa.views.descriptors import own_fields


@dataclass(frozen=True)
class Bag:
    """Masks a bag of vectors: its parts are the instances, its leaves the instances' entries.

    The input is an array or a tensor (instances, features), or a sequence of vectors of one length. Where
    absent instances are filled, the model receives one array (n, instances, features); where they are
    removed, a list of n arrays, each with the instances that are present.

    Parameters
    ----------
    absent
        What becomes of an instance whose entries are all masked: ``"remove"`` leaves it out, ``"fill"`` fills it. A bag
        without any instance is no bag: in its place the model is asked about the first instance alone, filled.
    fill
        What a masked entry becomes: a number, one number for each feature, or ``"mean"``, the mean of that
        feature over the bag.
    names
        The features' names; a frame's columns unless given. Its index names the instances, where it is no mere count.

    Examples
    --------
    >>> masked = Bag(names=["x", "y"])([[1.0, 2.0], [3.0, 4.0]])
    >>> masked.structure.names[1]
    ('1 · x', '1 · y', '2 · x', '2 · y')
    >>> masked.inputs([[False, True]], 0), masked.inputs([[True, False, True, True]], 1)
    ([array([[3., 4.]])], [array([[1., 0.], [3., 4.]])])
    """

    absent: str = "remove"
    fill: float | str | npt.ArrayLike = 0.0
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.absent not in ("remove", "fill"):
            raise ValueError(f"absent must be 'remove' or 'fill', not {self.absent!r}")
        if isinstance(self.fill, str) and self.fill != "mean":
            raise ValueError(f"fill must be a number, one per feature, or 'mean', not {self.fill!r}")

    def __call__(self, x: Any) -> Masked:
        array = _array(host_array(x) if is_tensor(x) else x)
        kind = array.dtype if array.dtype.kind == "f" else np.result_type(array, np.float32)
        values = array.astype(kind)
        instances, features = values.shape
        if self.names is not None and len(self.names) != features:
            raise ValueError(f"{len(self.names)} names for {features} features: give one name per feature")
        baseline = values.mean(axis=0) if isinstance(self.fill, str) else np.asarray(self.fill, dtype=kind)
        if baseline.shape not in ((), (features,)):
            raise ValueError(f"fill has shape {baseline.shape} for {features} features: give one value per feature")
        columns = x.columns if self.names is None and is_frame(x) else self.names
        names = [str(d + 1) for d in range(features)] if columns is None else list(map(str, columns))
        index = list(getattr(x, "index", ())) if is_frame(x) else []  # polars' frames have none
        numbered = index in ([], list(range(instances)))
        rows = [str(j + 1) for j in range(instances)] if numbered else list(map(str, index))
        structure = Structure(
            (np.repeat(np.arange(instances), features),),
            (
                tuple(f"instance {row}" if numbered else row for row in rows),
                tuple(f"{row} · {name}" for row in rows for name in names),
            ),
        )

        def filled(masks: BoolArray, level: int) -> Any:
            on = structure.expand(masks, level).reshape(-1, instances, features)
            return as_given(np.where(on, values, baseline), x)

        def removed(masks: BoolArray, level: int) -> list[Any]:
            there = left_in_bag(structure.expand(masks, level), structure)
            return [bag[np.flatnonzero(row)] for bag, row in zip(filled(masks, level), there, strict=True)]

        def apart() -> Masked:
            def inputs(masks: BoolArray, level: int) -> list[Any]:
                return removed(masks, level) if structure.level(level) == 0 else list(filled(masks, level))

            return replace(masked, inputs=inputs, allows_empty=False, apart=None, by_level=True)

        removes = self.absent == "remove"
        masked = Masked(
            structure,
            removed if removes else filled,
            view=views.Bag(values, tuple(names)),
            descriptors=lambda: own_fields(names * instances, values.ravel().tolist()),
            apart=apart if removes else None,
        )
        return masked


def _array(x: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(
            f"the vectors of a bag must have one length; got {sorted({len(v) for v in x})}: use maskers.Custom"
        ) from None
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "buif":
        raise ValueError(
            f"a bag must hold numbers of shape (instances, features); got {array.dtype} of shape {array.shape}"
        )
    return array


def left_in_bag(leaves: BoolArray, structure: Structure) -> BoolArray:
    """The parts of which a leaf is left, (n, parts), for masks of the leaves of a bag in order.

    A model cannot take a bag that has nothing in it. The first part stays there in its place, with all of its leaves
    masked.

    >>> s = Structure.from_groups("aab")
    >>> left_in_bag(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool), s).astype(int).tolist()
    [[1, 0], [0, 1], [1, 0]]
    """
    starts = np.searchsorted(structure.owners(0), np.arange(structure.widths[0]))
    left: BoolArray = np.logical_or.reduceat(leaves, starts, axis=1)
    left[~left.any(axis=1), 0] = True
    return left
