"""Time series: channels of windows, or windows of channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import as_given, host_array, is_frame
from c2fa.asking.masking import Masked
from c2fa.graph import chain
from c2fa.structure import BoolArray, FloatArray, IntArray, Structure
from c2fa.views.descriptors import own_fields


@dataclass(frozen=True)
class TimeSeries:
    """Masks a recording of one or more channels, (T,), (T, C) or (C, T), window by window.

    The model receives an array (n, *shape of the input) of the input's type, whole numbers as real ones; a tensor gives
    a tensor. Steps that are missing (NaN) stay so where they are kept, and count for no mean and no line.

    Parameters
    ----------
    windows
        How many windows of equal length, or their names; the steps at which to cut, such as ``[40, 80]``, where
        ``[0, 40, 80, 120]`` cuts a series of 120 steps in the same way; or ``"changes"``, which cuts where the
        channels' means change (the same cuts for all channels, see ``change_points``).
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

    windows: int | str | Sequence[int] | Sequence[str] = 10
    order: str = "channels"
    fill: float | str | npt.ArrayLike = "mean"
    time_axis: int | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.windows, str) and self.windows != "changes":
            raise ValueError(f"windows must be a number, a list of cuts or names, or 'changes', not {self.windows!r}")
        if isinstance(self.windows, int) and self.windows < 1:
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
        kind = array.dtype if array.dtype.kind == "f" else np.result_type(array, np.float32)
        time_axis = self._time_axis(array)
        series = (array[None] if array.ndim == 1 else np.moveaxis(array, time_axis, -1)).astype(kind)
        starts = self._starts(series.astype(np.float64))
        window = np.searchsorted(starts, np.arange(series.shape[1]), side="right") - 1
        ends = [*starts[1:].tolist(), series.shape[1]]
        spans = self._window_names() or [f"{a}–{b - 1}" for a, b in zip(starts.tolist(), ends, strict=True)]
        names = self._names(x, time_axis, len(series))
        parts, inner = (names, spans) if self.order == "channels" else (spans, names)
        owner = np.repeat(np.arange(len(parts)), len(inner))
        structure = Structure((owner,), (tuple(parts), tuple(f"{p} · {i}" for p in parts for i in inner)))
        windows = len(starts)
        baseline = self._baseline(series, array, time_axis)

        def inputs(masks: BoolArray, level: int) -> Any:
            leaves = structure.expand(masks, level)
            if self.order == "channels":
                grid = leaves.reshape(-1, len(series), windows)
            else:
                grid = leaves.reshape(-1, windows, len(series)).swapaxes(1, 2)
            on = grid.take(window, axis=2)
            out = np.where(on, series, baseline) if baseline is not None else _linear(series, on)
            out = out[:, 0] if array.ndim == 1 else np.moveaxis(out, -1, 1 + time_axis)
            return as_given(np.ascontiguousarray(out), x)

        levels = ("channels", "windows") if self.order == "channels" else ("windows", "channels")
        notes = []
        if isinstance(self.windows, int) and self.windows > series.shape[1]:
            notes.append(
                f"there are {self.windows} windows for {series.shape[1]} steps, so each step is one: give fewer"
            )
        # Windows of a channel follow each other; channels of a window stand in no order.
        neighbours = (lambda: chain(structure.owners(0))) if self.order == "channels" else None
        return Masked(
            structure,
            inputs,
            view=views.Series(series, starts, self.order, levels=levels),
            neighbours=neighbours,
            notes=tuple(notes),
            descriptors=lambda: self._descriptors(series, starts, names),
        )

    def _descriptors(self, series: npt.NDArray[Any], starts: IntArray, names: list[str]) -> dict[str, list[Any]]:
        """The channel of each leaf, its window where all series have the same, and the mean of what it shows."""
        pairs = [(c, w) for c in range(len(names)) for w in range(len(starts))]
        if self.order == "windows":
            pairs.sort(key=lambda pair: pair[1])
        channels = [names[c] for c, _ in pairs]
        table: dict[str, list[Any]] = {"channel": channels}
        if self.windows != "changes":  # the third window of one series is not that of another
            table["window"] = [f"{names[c]} {w + 1}" for c, w in pairs]
        shown = np.split(series, starts[1:], axis=1)
        means = [np.where(np.isnan(values).all(axis=1, keepdims=True), np.nan, _means(values)) for values in shown]
        # Six digits tell levels apart, and a store of them is half as large.
        levels = [float(f"{means[w][c, 0]:.6g}") for c, w in pairs]
        return table | own_fields([f"level of {name}" for name in channels], levels)

    def _time_axis(self, array: npt.NDArray[Any]) -> int:
        """The axis of time."""
        if array.ndim == 1:
            return 0
        if self.time_axis is not None:
            return self.time_axis
        if array.shape[0] == array.shape[1]:
            raise ValueError(f"a series of shape {array.shape} has no longer axis: say time_axis=0 or time_axis=1")
        return int(np.argmax(array.shape))

    def _starts(self, series: FloatArray) -> IntArray:
        """The first step of each window."""
        steps = series.shape[1]
        if isinstance(self.windows, str):
            return change_points(series)
        named = self._window_names()
        if len(named) > steps:
            raise ValueError(f"{len(named)} windows for a series of {steps} steps: give fewer names")
        if named or isinstance(self.windows, int | np.integer):
            count = len(named) or min(int(self.windows), steps)  # type: ignore[arg-type]
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

    def _window_names(self) -> list[str]:
        """The names that the windows were given; none where they were given as numbers."""
        if isinstance(self.windows, int | np.integer | str):
            return []
        names = [w for w in self.windows if isinstance(w, str)]
        return names if len(names) == len(self.windows) else []

    def _names(self, x: Any, time_axis: int, channels: int) -> list[str]:
        """The channels' names: those given, a frame's columns where steps are its rows, a series' name, or numbers."""
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


def change_points(series: npt.ArrayLike, most: int = 20, shortest: int = 2) -> IntArray:
    """Find where the mean of a series, (C, T) or (T,), changes, by seeded binary segmentation.

    Each channel is divided by the noise in it (from its differences between neighbours). The segment and the cut
    that lower the squared error most are split, until no cut lowers it by more than ``(C + 1) log T`` (twice
    that, as a likelihood ratio: the price of a cut's place and its means), or there are ``most`` segments.

    Returns
    -------
    starts
        The first step of each segment, beginning with 0.

    Examples
    --------
    >>> change_points([0.0, 0.1, 0.0, 5.1, 5.0, 5.0, 5.1, 0.1, 0.0, 0.1])
    array([0, 3, 7])
    """
    values = np.atleast_2d(np.asarray(series, dtype=np.float64))
    if np.isnan(values).any():
        values = _linear(values, ~np.isnan(values)[None])[0]
    channels, steps = values.shape
    differences = np.abs(np.diff(values, axis=1))
    # The median difference of Gaussian noise is 0.954 of its deviation; steps are rare, so they do not move it.
    noise = np.median(differences, axis=1) / 0.954 if steps > 1 else np.ones(channels)
    spread = values.std(axis=1)
    without_noise = np.where(spread > 0, spread / 100, 1.0)
    scaled = values / np.where(noise > 1e-9 * spread, noise, without_noise)[:, None]
    centred = scaled - scaled.mean(axis=1, keepdims=True)
    total = np.concatenate((np.zeros((channels, 1)), np.cumsum(centred, axis=1)), 1)
    price = 2 * (channels + 1) * np.log(max(steps, 2))

    def best_in(a: int, b: int) -> tuple[float, int]:
        cuts = np.arange(a + shortest, b - shortest + 1)
        if not len(cuts):
            return 0.0, a
        left, whole = total[:, cuts] - total[:, [a]], total[:, [b]] - total[:, [a]]
        n = cuts - a
        gain = (left**2 / n + (whole - left) ** 2 / (b - cuts) - whole**2 / (b - a)).sum(axis=0)
        k = int(gain.argmax())
        return float(gain[k]), int(cuts[k])

    def best(a: int, b: int) -> tuple[float, int, int, int]:
        gain, cut = max((best_in(*inner) for inner in _looked_at(a, b, shortest)), key=lambda candidate: candidate[0])
        return gain, a, b, cut

    segments = [best(0, steps)]
    while len(segments) < most:
        segments.sort()
        gain, a, b, cut = segments[-1]
        if gain <= price:
            break
        segments[-1:] = [best(a, cut), best(cut, b)]
    return np.array(sorted(a for _, a, _, _ in segments), dtype=np.intp)


def _looked_at(a: int, b: int, shortest: int) -> Iterator[tuple[int, int]]:
    """A stretch and shorter ones inside it, overlapping by half: a short bump hardly moves the means of a long one."""
    length = b - a
    yield a, b
    while length > max(16, 4 * shortest):
        length = length // 2
        count = -(-2 * (b - a) // length) - 1
        yield from ((s, s + length) for s in np.linspace(a, b - length, count).astype(int).tolist())


def _linear(series: npt.NDArray[Any], on: BoolArray) -> npt.NDArray[Any]:
    """Join what is kept, (n, C, T), by straight lines; a channel of which nothing is kept is its mean."""
    out = np.where(on, series, _means(series)).astype(series.dtype)
    time, known = np.arange(series.shape[1]), ~np.isnan(series)
    for i, c in zip(*np.nonzero((on & known).any(axis=2) & ~on.all(axis=2)), strict=True):
        gone, kept = ~on[i, c], on[i, c] & known[c]
        out[i, c, gone] = np.interp(time[gone], time[kept], series[c, kept])
    return out


def _means(series: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The mean of each channel, (C, 1), over the steps that it has; 0 for a channel without any."""
    known = ~np.isnan(series)
    total = np.where(known, series, 0).sum(axis=1, keepdims=True, dtype=np.float64)
    means: npt.NDArray[Any] = (total / np.maximum(known.sum(axis=1, keepdims=True), 1)).astype(series.dtype)
    return means
