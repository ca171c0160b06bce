"""Pictures of super-pixels: smaller, larger, tinted, and as maps of heat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.structure import FloatArray, IntArray

Pixels = npt.NDArray[np.uint8]

SIDE = 512  # the longest side at which an image is segmented, kept and shown
_FOR, _AGAINST = (0.0, 98.0, 214.0), (222.0, 84.0, 0.0)
_CURVE = 0.7  # of opacity over shares: below 1, so that a third of the largest is plainly seen


# -- sizes -------------------------------------------------------------------------------------------


def block_of(length: int, blocks: int) -> IntArray:
    """The block of each of so many pixels in a line that is cut into blocks of about one length.

    >>> block_of(5, 2).tolist()
    [0, 0, 1, 1, 1]
    """
    return np.repeat(np.arange(blocks), np.diff(_edges(length, blocks)))


def _edges(length: int, blocks: int) -> IntArray:
    return np.arange(blocks + 1) * length // blocks


def _smaller(size: tuple[int, int], side: int) -> tuple[int, int]:
    """The size of a copy whose longer side is at most ``side``."""
    longest = max(size)
    if longest <= side:
        return size
    return max(1, size[0] * side // longest), max(1, size[1] * side // longest)


def shrink(image: npt.NDArray[Any], side: int = SIDE) -> npt.NDArray[Any]:
    """An image, (H, W, C), whose longer side is at most ``side``: the means of blocks; whole numbers stay whole."""
    height, width = image.shape[0], image.shape[1]
    small = _smaller((height, width), side)
    if small == (height, width):
        return image
    rows, columns = _edges(height, small[0]), _edges(width, small[1])
    whole = image.dtype.kind in "uib"
    wide: Any = np.int64 if whole else np.float64
    sums = np.add.reduceat(np.add.reduceat(image, rows[:-1], axis=0, dtype=wide), columns[:-1], axis=1)
    mean: npt.NDArray[Any] = sums / (np.diff(rows)[:, None] * np.diff(columns)[None])[..., None]
    return np.rint(mean).astype(image.dtype) if whole else mean


def pick(labels: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
    """A label map of another size: of each block the label in its middle."""
    if labels.shape == size:
        return labels
    rows, columns = _edges(labels.shape[0], size[0]), _edges(labels.shape[1], size[1])
    picked: npt.NDArray[Any] = labels[np.ix_((rows[:-1] + rows[1:]) // 2, (columns[:-1] + columns[1:]) // 2)]
    return picked


def enlarge(small: npt.NDArray[Any], size: tuple[int, int], axes: tuple[int, int] = (0, 1)) -> npt.NDArray[Any]:
    """The map of an image's full size of which ``small`` holds the blocks; the very array where it is that size.

    >>> enlarge(np.array([[1, 2]]), (2, 3)).tolist()
    [[1, 2, 2], [1, 2, 2]]
    """
    # Columns first: the rows that are then repeated are copied whole, which is fast.
    for axis, length in reversed(list(zip(axes, size, strict=True))):
        if small.shape[axis] != length:
            small = small.take(block_of(length, small.shape[axis]), axis=axis)
    return small


# -- what an explanation keeps of its images ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shown:
    """One image as it is shown, (H, W, 3): the label map of the same size, and where its leaves begin."""

    image: Pixels
    labels: IntArray
    first: int
    count: int


def shown(view: Mapping[str, Any], side: int = SIDE) -> Iterator[Shown]:
    """The images of a view, each at most ``side`` pixels long."""
    first = 0
    for image, labels in zip(view["images"], view["labels"], strict=True):
        small = shrink(np.asarray(image, dtype=np.uint8), side)
        map_ = np.asarray(labels)
        count = int(map_.max()) + 1  # of the map as it is kept: a smaller one may lose a super-pixel
        yield Shown(small, pick(map_, small.shape[:2]).astype(np.intp), first, count)
        first += count


def heatmaps(view: Mapping[str, Any], values: FloatArray, owners: IntArray, density: bool) -> list[FloatArray]:
    """Each pixel's value, at each image's own size: that of the feature that owns its super-pixel, or a share of it."""
    kept = [np.asarray(labels, dtype=np.intp) for labels in view["labels"]]
    sizes = view.get("sizes") or [labels.shape for labels in kept]
    features, first = [], 0
    for labels, (height, width) in zip(kept, sizes, strict=True):
        features.append(owners[first + enlarge(labels, (int(height), int(width)))])
        first += int(labels.max()) + 1
    if density:
        areas = sum(np.bincount(feature.ravel(), minlength=len(values)) for feature in features)
        values = values / areas
    return [values[feature] for feature in features]


# -- colours -----------------------------------------------------------------------------------------


def tint(image: Pixels, shares: FloatArray) -> Pixels:
    """A grey image, (H, W, 3), tinted by shares from −1 to 1 for each pixel, (H, W): blue for, orange against.

    A full tint goes from a dark to a light shade as the picture does, so that what is in it can still be seen.
    """
    light = (image.astype(np.float64) @ (0.299, 0.587, 0.114) / 255.0)[..., None]
    ground = 90.0 + 158.0 * light
    paint = np.where(shares[..., None] > 0, _FOR, _AGAINST)
    shade = paint * (0.45 + 0.55 * light) + 0.4 * light * (255.0 - paint)
    opacity = np.abs(np.clip(shares, -1, 1))[..., None] ** _CURVE
    mixed: Pixels = np.clip(ground * (1 - opacity) + shade * opacity, 0, 255).astype(np.uint8)
    return mixed
