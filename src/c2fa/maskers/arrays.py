"""Arrays of numbers: a vector of features, a bag of vectors, a recording of channels and windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import as_given, host_array, is_frame, is_whole
from c2fa.asking.masking import Masked
from c2fa.graph import chain
from c2fa.structure import BoolArray, IntArray, Structure
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
        names = list(self.structure.names[-1])
        if len(set(names)) < len(names):  # entries of one name go by their places too
            names = [f"{i} {name}" for i, name in enumerate(names)]
        view = views.Vector(tuple(values))
        same = np.broadcast_to(vector == base, vector.shape).tolist()
        return Masked(self.structure, inputs, view=view, descriptors=lambda: own_fields(names, values), inert=same)


@dataclass(frozen=True)
class Bag:
    """Masks a bag of vectors: its parts are the instances, its leaves the instances' entries.

    The input is an array or a tensor (instances, features), a frame, or a sequence of vectors of one length. The model
    receives one array (n, instances, features), or, where absent instances are removed, a list of n arrays.

    Parameters
    ----------
    absent
        What becomes of an instance whose entries are all masked: ``"remove"`` leaves it out, ``"fill"`` fills it. In
        place of a bag without any instance the model is asked about the first one alone, filled.
    fill
        What a masked entry becomes: a number, one number for each feature, or ``"mean"``, the mean of that
        feature over the bag.
    names
        The features' names; a frame's columns unless given. A frame's index names the instances, unless it only counts.

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
        try:
            array = host_array(x)
        except ValueError:
            raise ValueError(
                f"the vectors of a bag must have one length; got {sorted({len(v) for v in x})}: use maskers.Custom"
            ) from None
        if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "buif":
            raise ValueError(
                f"a bag must hold numbers of shape (instances, features); got {array.dtype} of shape {array.shape}"
            )
        values = _real(array)
        instances, features = values.shape
        if self.names is not None and len(self.names) != features:
            raise ValueError(f"{len(self.names)} names for {features} features: give one name per feature")
        baseline = values.mean(axis=0) if isinstance(self.fill, str) else np.asarray(self.fill, dtype=values.dtype)
        if baseline.shape not in ((), (features,)):
            raise ValueError(f"fill has shape {baseline.shape} for {features} features: give one value per feature")
        columns = x.columns if self.names is None and is_frame(x) else self.names
        names = [str(d + 1) for d in range(features)] if columns is None else list(map(str, columns))
        rows, numbered = [str(j + 1) for j in range(instances)], True
        if is_frame(x) and hasattr(x, "index"):  # polars' frames have none
            numbered = list(x.index) == list(range(instances))
            rows = rows if numbered else list(map(str, x.index))
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
            left = left_in_bag(structure.expand(masks, level), structure)
            return [bag[np.flatnonzero(row)] for bag, row in zip(filled(masks, level), left, strict=True)]

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


def _real(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as real numbers; those that are real already keep their type."""
    return array.astype(array.dtype if array.dtype.kind == "f" else np.result_type(array, np.float32))


def left_in_bag(leaves: BoolArray, structure: Structure) -> BoolArray:
    """Which parts of a bag stay in it, (n, parts), for masks of its leaves in order: those with a leaf that is kept.

    A model cannot take an empty bag, so its first part stays in place of all, with its leaves masked.

    >>> s = Structure.from_groups("aab")
    >>> left_in_bag(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool), s).astype(int).tolist()
    [[1, 0], [0, 1], [1, 0]]
    """
    starts = np.searchsorted(structure.owners(0), np.arange(structure.widths[0]))
    left: BoolArray = np.logical_or.reduceat(leaves, starts, axis=1)
    left[~left.any(axis=1), 0] = True
    return left


@dataclass(frozen=True)
class TimeSeries:
    """Masks a recording of one or more channels, (T,), (T, C) or (C, T), window by window.

    The model receives an array (n, *shape of the input) of the input's type, whole numbers as real ones; a tensor gives
    a tensor. Missing steps (NaN) stay missing where they are kept; means and lines are drawn without them.

    Parameters
    ----------
    windows
        How many windows of equal length, or the steps at which to cut, such as ``[40, 80]``, where
        ``[0, 40, 80, 120]`` cuts a series of 120 steps in the same way.
    order
        ``"channels"``: the parts are channels, the leaves their windows. ``"windows"``: the parts are
        windows, the leaves their channels.
    fill
        What a masked window shows: ``"mean"``, the channel's mean; ``"zero"``; ``"linear"``, a straight line
        between the steps that are kept on both sides; a number; or an array that fits the input's shape (a
        typical recording).
    time_axis
        The axis of time in a two-dimensional input: 0 or 1; None takes the longer one.
    names
        The channels' names; a frame's columns, or the name of a series, unless given.

    Examples
    --------
    >>> masked = TimeSeries(windows=2, fill="zero")([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]])
    >>> masked.structure.names[1]
    ('channel 1 · 0–1', 'channel 1 · 2–3', 'channel 2 · 0–1', 'channel 2 · 2–3')
    >>> masked.inputs([[True, False, True, True]], 1)[0].T
    array([[1., 2., 0., 0.], [5., 6., 7., 8.]])
    """

    windows: int | Sequence[int] = 10
    order: str = "channels"
    fill: float | str | npt.ArrayLike = "mean"
    time_axis: int | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.windows) and np.ndim(self.windows) == 0:
            raise ValueError(f"windows must be a number or a list of cuts, not {self.windows!r}")
        if isinstance(self.windows, int | np.integer) and self.windows < 1:
            raise ValueError(f"windows must be at least 1, not {self.windows}")
        if self.order not in ("channels", "windows"):
            raise ValueError(f"order must be 'channels' or 'windows', not {self.order!r}")
        if isinstance(self.fill, str) and self.fill not in ("mean", "zero", "linear"):
            raise ValueError(f"fill must be 'mean', 'zero', 'linear', a number or an array: {self.fill!r}")
        if self.time_axis is not None and not (isinstance(self.time_axis, int) and self.time_axis in (0, 1)):
            raise ValueError(f"time_axis must be 0, 1 or None, not {self.time_axis}")

    def __call__(self, x: Any) -> Masked:
        array = host_array(x)
        if array.ndim not in (1, 2) or array.size == 0 or array.dtype.kind not in "uif":
            raise ValueError(
                f"a series must hold numbers of shape (T,), (T, C) or (C, T); got {array.dtype} of shape {array.shape}"
            )
        time_axis = self.time_axis
        if array.ndim == 1:
            time_axis = 0
        elif time_axis is None:
            time_axis = int(np.argmax(array.shape))
            if array.shape[0] == array.shape[1]:
                raise ValueError(f"a series of shape {array.shape} has no longer axis: say time_axis=0 or time_axis=1")
        series = _real(array[None] if array.ndim == 1 else np.moveaxis(array, time_axis, -1))
        channels, steps = series.shape
        starts = self._starts(steps)
        windows = len(starts)
        window = np.searchsorted(starts, np.arange(steps), side="right") - 1
        spans = [f"{a}–{b - 1}" for a, b in pairwise([*starts.tolist(), steps])]
        names = self._names(x, time_axis, channels)
        by_channel = self.order == "channels"
        parts, inner = (names, spans) if by_channel else (spans, names)
        owner = np.repeat(np.arange(len(parts)), len(inner))
        structure = Structure((owner,), (tuple(parts), tuple(f"{p} · {i}" for p in parts for i in inner)))
        baseline = self._baseline(series, array, time_axis)

        def inputs(masks: BoolArray, level: int) -> Any:
            leaves = structure.expand(masks, level)
            grid = leaves.reshape(-1, len(parts), len(inner))
            on = (grid if by_channel else grid.swapaxes(1, 2)).take(window, axis=2)
            out = np.where(on, series, baseline) if baseline is not None else _linear(series, on)
            out = out[:, 0] if array.ndim == 1 else np.moveaxis(out, -1, 1 + time_axis)
            return as_given(np.ascontiguousarray(out), x)

        def descriptors() -> dict[str, list[Any]]:
            """The channel and the window of each leaf, and the mean of what it shows."""
            pairs = [(c, w) for c in range(channels) for w in range(windows)]
            if not by_channel:
                pairs.sort(key=lambda pair: pair[1])
            of_leaves = [names[c] for c, _ in pairs]
            pieces = np.split(series, starts[1:], axis=1)
            means = [np.where(np.isnan(piece).all(axis=1, keepdims=True), np.nan, _means(piece)) for piece in pieces]
            # Six digits tell levels apart, and halve the size of a store.
            levels = [float(f"{means[w][c, 0]:.6g}") for c, w in pairs]
            table = {"channel": of_leaves, "window": [f"{names[c]} {w + 1}" for c, w in pairs]}
            return table | own_fields([f"level of {name}" for name in of_leaves], levels)

        notes: tuple[str, ...] = ()
        if isinstance(self.windows, int | np.integer) and self.windows > steps:
            notes = (f"there are {self.windows} windows for {steps} steps, so each step is one: give fewer",)
        return Masked(
            structure,
            inputs,
            view=views.Series(
                series, starts, self.order, levels=("channels", "windows") if by_channel else ("windows", "channels")
            ),
            # Windows of a channel follow each other; channels of a window have no order.
            neighbours=(lambda: chain(structure.owners(0))) if by_channel else None,
            notes=notes,
            descriptors=descriptors,
        )

    def _starts(self, steps: int) -> IntArray:
        if isinstance(self.windows, int | np.integer):
            count = min(int(self.windows), steps)
            even: IntArray = np.arange(count) * steps // count
            return even
        cuts = np.asarray(self.windows)
        whole = cuts.ndim == 1 and cuts.dtype.kind in "iu"
        edges = cuts.tolist() if whole else []
        edges = edges if edges[:1] == [0] else [0, *edges]
        edges = edges if edges[-1] == steps else [*edges, steps]
        if not whole or np.any(np.diff(edges) <= 0):
            raise ValueError(f"cuts must be whole numbers that rise from 0 to {steps}, the number of steps; got {cuts}")
        return np.array(edges[:-1], dtype=np.intp)

    def _names(self, x: Any, time_axis: int, channels: int) -> list[str]:
        """The channels' names: the option, a frame's columns if its rows are the steps, a series' name, or numbers."""
        names = self.names
        if names is None and is_frame(x) and time_axis == 0:
            names = [str(c) for c in x.columns]
        elif names is None and isinstance(getattr(x, "name", None), str):  # of a pandas or polars series
            names = [x.name]
        if names is not None and len(names) != channels:
            raise ValueError(f"{len(names)} names for {channels} channels: give one name per channel")
        return list(names) if names is not None else [f"channel {c + 1}" for c in range(channels)]

    def _baseline(self, series: npt.NDArray[Any], array: npt.NDArray[Any], time_axis: int) -> npt.NDArray[Any] | None:
        """The baseline of the series, (C, T); None where it depends on the mask."""
        if isinstance(self.fill, str):
            if self.fill == "linear":
                return None
            return _means(series) if self.fill == "mean" else np.zeros_like(series)
        try:
            full = np.broadcast_to(np.asarray(self.fill, dtype=series.dtype), array.shape)
        except (TypeError, ValueError):
            raise ValueError(
                f"fill must be one number, or numbers that fit a series of shape {array.shape}; got {self.fill!r}"
            ) from None
        return full[None] if array.ndim == 1 else np.moveaxis(full, time_axis, -1)


def _linear(series: npt.NDArray[Any], on: BoolArray) -> npt.NDArray[Any]:
    """Put straight lines between the kept steps, (n, C, T); a channel without kept steps becomes its mean."""
    out = np.where(on, series, _means(series)).astype(series.dtype)
    time, present = np.arange(series.shape[1]), ~np.isnan(series)
    for i, c in zip(*np.nonzero((on & present).any(axis=2) & ~on.all(axis=2)), strict=True):
        off, ends = ~on[i, c], on[i, c] & present[c]
        out[i, c, off] = np.interp(time[off], time[ends], series[c, ends])
    return out


def _means(series: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The mean of each channel, (C, 1), without missing steps; 0 for a channel of missing steps alone."""
    present = ~np.isnan(series)
    total = np.where(present, series, 0).sum(axis=1, keepdims=True, dtype=np.float64)
    means: npt.NDArray[Any] = (total / np.maximum(present.sum(axis=1, keepdims=True), 1)).astype(series.dtype)
    return means
