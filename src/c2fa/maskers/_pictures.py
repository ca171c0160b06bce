"""One image, whatever it came as, and how it looks with some of its segments masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from c2fa.extras import host_array
from c2fa.structure import BoolArray, IntArray

_KEPT = ("1", "L", "LA", "I", "I;16", "F", "RGB", "RGBA")  # modes of PIL that an array and back leave as they are


@dataclass(frozen=True, eq=False)
class Rows(Sequence[Any]):
    """A batch whose rows are built when they are read, so that only one of them is in memory.

    >>> rows = Rows(3, lambda i: [i] * i)
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
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Any:
        chosen = range(self.rows)[index]
        if isinstance(chosen, range):
            return Rows(len(chosen), lambda i: self.make(chosen[i]))
        return self.make(chosen)

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, range(self.rows))


@dataclass(eq=False)
class Picture:
    """An image with its channel axis (None for grey values alone) and its looks for people, (H, W, 3) uint8."""

    given: Any
    values: Any
    channel: int | None
    rgb: npt.NDArray[np.uint8]
    labels: Any = None
    filled: Any = None

    @property
    def size(self) -> tuple[int, int]:
        return self.rgb.shape[0], self.rgb.shape[1]

    @property
    def is_tensor(self) -> bool:
        return hasattr(self.values, "detach")

    def prepare(self, labels: IntArray, fill: Any) -> None:
        """Put labels and fill where the image is, in its own layout, once for all batches."""
        filled = self._from_last(_fill(_to_last(host_array(self.values), self.channel), labels, fill))
        if self.is_tensor:
            import torch

            self.labels = torch.as_tensor(labels, device=self.values.device)
            self.filled = torch.as_tensor(filled).to(self.values)
        else:
            # One label per entry, not per pixel: a plain copy is several times faster than one that broadcasts.
            self.labels = self._from_last(np.broadcast_to(labels[..., None], (*labels.shape, self._depth)))
            self.filled = filled.astype(self.values.dtype)

    @property
    def _depth(self) -> int:
        return 1 if self.channel is None else int(self.values.shape[self.channel])

    def _from_last(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turn (H, W, C) into the layout of the image."""
        if self.channel is None:
            return np.ascontiguousarray(array[..., 0])
        return np.ascontiguousarray(np.moveaxis(array, -1, self.channel))

    def stackable(self, other: Picture) -> bool:
        """Whether this image and another fit into one array."""
        plain = self.values is self.given or self.is_tensor
        same = self.is_tensor == other.is_tensor and self.channel == other.channel
        return plain and same and self.values.shape == other.values.shape and self.values.dtype == other.values.dtype

    def empty(self, rows: int, images: int) -> Any:
        """An array for many rows of images like this one."""
        shape = (rows, images, *self.values.shape)
        return self.values.new_empty(shape) if self.is_tensor else np.empty(shape, dtype=self.values.dtype)

    def paint(self, masks: BoolArray, out: Any) -> None:
        """Write the image under each row of masks, (n, segments), into out, (n, ...)."""
        if self.is_tensor:
            import torch

            on = torch.as_tensor(masks, device=self.values.device)[:, self.labels]
            shape = on if self.channel is None else on.unsqueeze(1 if self.channel == 0 else -1)
            torch.where(shape, self.values, self.filled, out=out)
            return
        for row, target in zip(masks, out, strict=True):
            np.copyto(target, self.filled)
            np.copyto(target, self.values, where=row.take(self.labels))

    def shown(self, mask: BoolArray) -> Any:
        """The image under one mask, in the type that came in; the very object where nothing is masked."""
        if mask.all():
            return self.given
        out = self.empty(1, 1)[0]
        self.paint(mask[None], out)
        if hasattr(self.given, "convert"):
            from PIL import Image

            return Image.fromarray(out[0])
        return out[0]


def picture(x: Any, channels: str) -> Picture:
    """Read a PIL image, an array or a tensor, (H, W), (H, W, C) or (C, H, W)."""
    if hasattr(x, "convert") and hasattr(x, "mode"):
        # What an array cannot give back (a palette, inks) is RGB from here on, for masked and whole images alike.
        x = x if x.mode in _KEPT else x.convert("RGB")
        values: Any = np.asarray(x)
        channels = "last"
    elif hasattr(x, "detach"):
        values = x.detach()
    else:
        values = np.asarray(x)
    if values.ndim not in (2, 3) or 0 in values.shape or host_array(values).dtype.kind not in "uifb":
        raise ValueError(
            f"an image must hold numbers of shape (H, W), (H, W, C) or (C, H, W); "
            f"got {values.dtype} of shape {tuple(values.shape)}"
        )
    channel = None if values.ndim == 2 else _channel(tuple(values.shape), channels, hasattr(x, "detach"))
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
    """Make (H, W, 3) uint8 of (H, W, C): as it is, from 0..1, or stretched over the range it has."""
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


def _fill(values: npt.NDArray[Any], labels: IntArray, fill: Any) -> npt.NDArray[Any]:
    """What stands behind an image, (H, W, C), in numbers of its own units."""
    real = values.astype(np.float64)
    if fill == "mean":
        behind = np.broadcast_to(real.mean(axis=(0, 1)), real.shape)
    elif fill == "segments":
        sizes = np.bincount(labels.ravel())
        means = [np.bincount(labels.ravel(), real[..., c].ravel()) / sizes for c in range(real.shape[-1])]
        behind = np.stack([mean[labels] for mean in means], axis=-1)
    elif fill == "blur":
        from scipy.ndimage import gaussian_filter

        behind = gaussian_filter(real, (max(real.shape[:2]) / 16,) * 2 + (0.0,), mode="nearest")
    else:
        colour = np.asarray(fill, dtype=np.float64)
        if colour.shape not in ((), (1,), real.shape[-1:]):
            raise ValueError(f"fill has {colour.size} values for {real.shape[-1]} channels: give one per channel")
        if values.dtype.kind in "ui" and not _fits(colour, np.iinfo(values.dtype)):
            raise ValueError(f"fill {fill!r} does not fit an image of {values.dtype}: it is in the image's own units")
        behind = np.broadcast_to(colour, real.shape)
    return np.rint(behind) if values.dtype.kind in "uib" else behind


def _fits(colour: npt.NDArray[np.float64], kind: Any) -> bool:
    return bool(np.all((colour >= kind.min) & (colour <= kind.max)))
