"""One image, of a file, Pillow, numpy or torch: how it is read, and painted with some segments masked."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from c2fa._system import host_array, is_tensor, need, on_device
from c2fa.maskers._segmenting import segment_means
from c2fa.structure import BoolArray, IntArray
from c2fa.views.images import block_of, enlarge, shrink


@dataclass(frozen=True, eq=False)
class LazyBatch(Sequence[Any]):
    """A batch whose rows are built when they are read, so that only one of them is in memory.

    >>> rows = LazyBatch(3, lambda i: [i] * i)
    >>> len(rows), rows[-1], list(rows[:2])
    (3, [2, 2], [[], [1]])
    """

    rows: int
    make: Callable[[int], Any]

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> LazyBatch: ...
    def __getitem__(self, index: int | slice) -> Any:
        chosen = range(self.rows)[index]
        if isinstance(chosen, range):
            return LazyBatch(len(chosen), lambda i: self.make(chosen[i]))
        return self.make(chosen)

    def __reduce__(self) -> Any:
        return list, (list(self),)  # a process that has the model gets the rows themselves


@dataclass(eq=False)
class Picture:
    """An image, its channel axis (None if it has none), and how it looks to people: ``rgb``, (H, W, 3) uint8.

    The label map may be that of a reduced copy (``views.images.shrink``), in which a label stands for a block of
    pixels. A baseline that is the same everywhere is a single pixel, so that little travels to other processes.
    """

    original: Any
    values: Any
    channel: int | None
    rgb: npt.NDArray[np.uint8]
    labels: Any = None
    baseline: Any = None

    def __getstate__(self) -> dict[str, Any]:
        values, nothing = host_array(self.values), np.empty((0, 0, 3), dtype=np.uint8)
        own = {"channel": self.channel, "labels": self.labels, "baseline": self.baseline}
        return {"original": values, "values": values, "rgb": nothing, **own}

    @property
    def size(self) -> tuple[int, int]:
        height, width = (self.values.shape[axis] for axis in self._sides)
        return int(height), int(width)

    @functools.cached_property
    def small(self) -> npt.NDArray[np.uint8]:
        """The copy of ``rgb`` that is segmented and shown, reduced where the image is large."""
        return shrink(self.rgb)

    @property
    def is_tensor(self) -> bool:
        return is_tensor(self.values)

    def prepare(self, labels: IntArray, fill: Any) -> None:
        """Set the label map and, in the layout of the image, the baseline."""
        self.labels = labels.astype(np.int16 if labels.max() < 2**15 else np.int32)
        baseline = self._from_last(_baseline(_to_last(host_array(self.values), self.channel), labels, fill))
        pixel = baseline.take([0], axis=self._sides[0]).take([0], axis=self._sides[1])
        baseline = np.ascontiguousarray(pixel if (baseline == pixel).all() else baseline)
        self.baseline = baseline.astype(host_array(self.values).dtype)

    @functools.cached_property
    def _on_host(self) -> tuple[npt.NDArray[Any], IntArray]:
        """The baseline and the label of each entry: painting is several times faster than by pixels."""
        depth = 1 if self.channel is None else int(self.values.shape[self.channel])
        labels = np.broadcast_to(self.labels[..., None], (*self.labels.shape, depth))
        baseline = np.ascontiguousarray(np.broadcast_to(self.baseline, self.values.shape))
        return baseline, self._from_last(labels).astype(np.intp)

    @functools.cached_property
    def _in_place(self) -> Placed:
        """The image of a tensor, painted where it is."""
        return Placed.of([self], self.values.device)

    @property
    def _sides(self) -> tuple[int, int]:
        return (1, 2) if self.channel == 0 else (0, 1)

    def _from_last(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turn (H, W, C) into the layout of the image."""
        if self.channel is None:
            return np.ascontiguousarray(array[..., 0])
        return np.ascontiguousarray(np.moveaxis(array, -1, self.channel))

    @property
    def is_plain(self) -> bool:
        """Whether the original is an array or a tensor."""
        return self.values is self.original or self.is_tensor

    def paint(self, masks: BoolArray, out: npt.NDArray[Any]) -> None:
        """Write the image of an array under each row of masks, (n, segments), into out, (n, ...)."""
        baseline, entries = self._on_host
        for row, target in zip(masks, out, strict=True):
            np.copyto(target, baseline)
            np.copyto(target, self.values, where=enlarge(row.take(entries), self.size, self._sides))

    def shown(self, mask: BoolArray) -> Any:
        """The image under one mask, in the original's type; the original itself where nothing is masked."""
        if mask.all():
            return self.original
        if self.is_tensor:
            return self._in_place(mask[None])[0, 0]
        out = np.empty_like(self.values)
        self.paint(mask[None], out[None])
        if is_pil(self.original):
            from PIL import Image

            return Image.fromarray(out)
        return out


@dataclass(frozen=True, eq=False)
class Placed:
    """Images of one shape and type on a device, where they are painted under masks of all their segments.

    A GPU takes as long for one byte as for eight: what is kept is chosen bit by bit, eight bytes at a time. Rows show
    the baseline, in which the bits that are ``apart`` change where a segment is kept.
    """

    shape: tuple[int, ...]  # of a row: (images, ...)
    dtype: Any
    segment: Any  # the number of each entry's segment
    baseline: Any
    apart: Any

    @classmethod
    def of(cls, images: Sequence[Picture], device: Any) -> Placed:
        import torch

        first = images[0]
        if first.is_tensor:
            values = torch.stack([image.values.to(device) for image in images])
        else:
            values = on_device(np.stack([image.values for image in images]), device)
        shape = tuple(values.shape)
        counts = [int(image.labels.max()) + 1 for image in images]
        begins = (np.cumsum(counts) - counts).reshape(-1, 1, 1)
        labels = on_device((np.stack([image.labels for image in images]) + begins).astype(np.int32), device)
        for axis, length in enumerate(first.size, start=1):
            if labels.shape[axis] != length:
                blocks = on_device(block_of(length, labels.shape[axis]), device)
                labels = labels.index_select(axis, blocks)
        if first.channel is not None:
            labels = labels.unsqueeze(1 if first.channel == 0 else -1)
        baselines = np.stack(np.broadcast_arrays(*[image.baseline for image in images]))
        baseline = on_device(baselines, device).to(values.dtype).expand(shape).contiguous()
        word = torch.int64 if values.nbytes % 8 == 0 else _bits(values.dtype)
        flat, same = (tensor.contiguous().flatten().view(word) for tensor in (values, baseline))
        return cls(shape, values.dtype, labels.expand(shape).flatten(), same, flat ^ same)

    def __call__(self, masks: BoolArray) -> Any:
        """The images under each row of masks, (n, images, ...)."""
        all_bits = on_device(masks, self.segment.device).to(_bits(self.dtype)).neg()
        kept = all_bits.index_select(1, self.segment).view(self.apart.dtype)
        return kept.bitwise_and_(self.apart).bitwise_xor_(self.baseline).view(self.dtype).view(-1, *self.shape)


def _bits(dtype: Any) -> Any:
    """The integers of as many bytes."""
    import torch

    return {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def is_pil(x: Any) -> bool:
    """Whether x is a Pillow image; Pillow need not be installed."""
    return any(kind.__module__.startswith("PIL.") for kind in type(x).__mro__)


def is_path(x: Any) -> bool:
    return isinstance(x, str | os.PathLike)


def read_image(path: str | os.PathLike[str]) -> Any:
    """The PIL image of a file, turned as its camera was held."""
    pillow, operations = need("PIL.Image", "images"), need("PIL.ImageOps", "images")
    if not os.path.isfile(path):
        name = os.fspath(path).partition("?")[0][:200]  # an address may hold a key behind the '?'
        raise FileNotFoundError(
            f"there is no file {name!r}; an image is an array or a path, and what is at an address "
            "must be downloaded first"
        )
    try:
        with pillow.open(path) as opened:
            return operations.exif_transpose(opened)  # a copy whose pixels are read, even if nothing is to be turned
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"cannot read {os.fspath(path)!r} as an image: {error}") from error


def picture(x: Any, channels: str) -> Picture:
    """Read a PIL image, an array or a tensor, (H, W), (H, W, C) or (C, H, W)."""
    if is_pil(x):
        # Modes that an array cannot give back (a palette, inks) become RGB, whether or not anything is masked.
        if x.mode not in ("1", "L", "LA", "I", "I;16", "F", "RGB", "RGBA"):
            x = x.convert("RGB")
        values: Any = np.asarray(x)
        channels = "last"
    elif is_tensor(x):
        values = x.detach()
    else:
        values = np.asarray(x)
    if values.ndim not in (2, 3) or 0 in values.shape or host_array(values).dtype.kind not in "uifb":
        raise ValueError(
            f"an image must hold numbers of shape (H, W), (H, W, C) or (C, H, W); "
            f"got {values.dtype} of shape {tuple(values.shape)}"
        )
    channel = None if values.ndim == 2 else _channel(tuple(values.shape), channels, is_tensor(x))
    return Picture(x, values, channel, _rgb(_to_last(host_array(values), channel)))


def _channel(shape: tuple[int, ...], channels: str, tensor: bool) -> int:
    if channels != "auto":
        return 0 if channels == "first" else -1
    for axis in (0, -1) if tensor else (-1, 0):
        if shape[axis] in (1, 3, 4):
            return axis
    raise ValueError(
        f"an image of shape {shape} has no axis with 1, 3 or 4 channels: say channels='first' or 'last', "
        "or give a bag of grey images as a list"
    )


def _to_last(values: npt.NDArray[Any], channel: int | None) -> npt.NDArray[Any]:
    return values[..., None] if channel is None else np.moveaxis(values, channel, -1)


def _rgb(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Make (H, W, 3) uint8 of values (H, W, C): taken as 0..255, as 0..1, or stretched over their own range."""
    colour = values[..., :3] if values.shape[-1] >= 3 else np.repeat(values[..., :1], 3, axis=-1)
    if colour.dtype == np.uint8:
        return np.ascontiguousarray(colour)
    real = np.nan_to_num(colour.astype(np.float64))
    low, high = float(real.min()), float(real.max())
    if values.dtype.kind in "fb" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    return np.rint((real - low) * (255 / (high - low or 1))).astype(np.uint8)


def _baseline(values: npt.NDArray[Any], labels: IntArray, fill: Any) -> npt.NDArray[Any]:
    """The baseline of an image, (H, W, C), in its own units."""
    real = values.astype(np.float64)
    if fill == "mean":
        baseline = np.broadcast_to(real.mean(axis=(0, 1)), real.shape)
    elif fill == "segments":
        full = enlarge(labels, (real.shape[0], real.shape[1]))
        baseline = segment_means(real, full)[full]
    elif fill == "blur":
        from scipy.ndimage import gaussian_filter

        small = shrink(real)  # at full size the blur would take a minute, and hide blocks of pixels anyway
        blurred = gaussian_filter(small, (max(small.shape[:2]) / 16,) * 2 + (0.0,), mode="nearest")
        baseline = enlarge(blurred, (real.shape[0], real.shape[1]))
    else:
        colour = np.asarray(fill, dtype=np.float64)
        if colour.shape not in ((), (1,), real.shape[-1:]):
            raise ValueError(f"fill has {colour.size} values for {real.shape[-1]} channels: give one per channel")
        limits = np.iinfo(values.dtype) if values.dtype.kind in "ui" else np.finfo(np.float64)
        if colour.min() < limits.min or colour.max() > limits.max:
            raise ValueError(f"fill {fill!r} does not fit an image of {values.dtype}: it is in the image's own units")
        baseline = np.broadcast_to(colour, real.shape)
    return np.rint(baseline) if values.dtype.kind in "uib" else baseline
