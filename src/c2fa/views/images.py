"""Images as an explanation keeps them: small, with label maps of super-pixels; tinted, and as maps of heat."""

from __future__ import annotations

import io
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from c2fa.asking.masking import View
from c2fa.showing.numbers import of_largest
from c2fa.structure import FloatArray, IntArray, Structure

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

Pixels = npt.NDArray[np.uint8]

SIDE = 512  # the longest side at which an image is segmented, kept and shown


@dataclass(frozen=True, eq=False)
class Shown:
    """One image as it is shown, (H, W, 3): the label map of the same size, and where its leaves begin."""

    image: Pixels
    labels: IntArray
    first: int
    count: int


@dataclass(frozen=True, eq=False)
class Images(View):
    """Images, and for each pixel of each the super-pixel that it belongs to, counted from 0 in every image.

    Parameters
    ----------
    images
        Each (H, W, 3), of bytes.
    labels
        Each (H, W), of the image's size or a larger one.
    sizes
        The images' own heights and widths, where they were made smaller; empty for those of the label maps.
    name
        What a single image is called.
    """

    kind = "images"
    called = ("images", "super-pixels")

    images: tuple[Pixels, ...]
    labels: tuple[npt.NDArray[np.integer[Any]], ...]
    sizes: tuple[tuple[int, ...], ...] = ()
    name: str = ""

    def check(self, structure: Structure) -> None:
        super().check(structure)
        count = sum(int(labels.max()) + 1 for labels in self.labels)
        if len(self.images) != len(self.labels) or count != structure.leaves:
            raise ValueError(
                f"the view has {len(self.images)} images and {len(self.labels)} label maps of {count} super-pixels, "
                f"and there are {structure.leaves} leaves"
            )

    def title(self, structure: Structure) -> str:
        names, count = structure.names[0], structure.widths[0]
        if self.level_names(structure)[0] != "images":
            return self.name or f"An image of {count} regions"
        many = f"{count} images" if count > 1 else "1 image"
        if all(name == f"image {j + 1}" for j, name in enumerate(names)):
            return f"A bag of {many}"
        return f"{', '.join(names[:3])}{', …' * (count > 3)} ({many})"

    def shown(self, side: int = SIDE) -> Iterator[Shown]:
        """The images, each at most ``side`` pixels long."""
        first = 0
        for image, labels in zip(self.images, self.labels, strict=True):
            small = shrink(image, side)
            count = int(labels.max()) + 1  # of the map as it is kept: a smaller one may lose a super-pixel
            yield Shown(small, pick(labels, small.shape[:2]).astype(np.intp), first, count)
            first += count

    def heatmaps(self, values: FloatArray, owners: IntArray, density: bool) -> list[FloatArray]:
        """Each pixel's value, at each image's own size: that of its super-pixel's owner, or a share of it."""
        features, first = [], 0
        for labels, size in zip(self.labels, self.sizes or [labels.shape for labels in self.labels], strict=True):
            features.append(owners[first + enlarge(labels, (size[0], size[1]))])
            first += int(labels.max()) + 1
        if density:
            values = values / sum(np.bincount(feature.ravel(), minlength=len(values)) for feature in features)
        return [values[feature] for feature in features]

    def page(self, structure: Structure, side: int) -> dict[str, Any]:
        """Each image as an address that holds it, and its label map as runs of equal labels."""
        return {
            "images": [
                {
                    "src": data_uri(part.image),
                    "height": len(part.labels),
                    "width": len(part.labels[0]),
                    "labels": runs(part.labels),
                    "count": part.count,
                }
                for part in self.shown(side)
            ]
        }

    def html(self, e: Explanation) -> str:
        """The images, tinted; made small before that, as a photograph of many megapixels would take gigabytes."""
        out, leaves = [], of_largest(e.low)
        for j, part in enumerate(self.shown(192)):
            title = "" if len(self.images) == 1 else f"{e.names[0][j]} {e.rounded.signed(e.rounded.values[0][j])}"
            source = data_uri(tint(part.image, leaves[part.first + part.labels]))
            out.append(
                '<div style="display:inline-block;margin:4px;text-align:center">'
                f'<img alt="{escape(title, quote=True)}" src="{source}"><div>{escape(title)}</div></div>'
            )
        return f"<div>{''.join(out)}</div>"


# -- sizes -------------------------------------------------------------------------------------------


def block_of(length: int, blocks: int) -> IntArray:
    """The block of each of so many pixels in a line that is cut into blocks of about one length.

    >>> block_of(5, 2).tolist()
    [0, 0, 1, 1, 1]
    """
    return np.repeat(np.arange(blocks), np.diff(_edges(length, blocks)))


def _edges(length: int, blocks: int) -> IntArray:
    return np.arange(blocks + 1) * length // blocks


def shrink(image: npt.NDArray[Any], side: int = SIDE) -> npt.NDArray[Any]:
    """An image, (H, W, C), whose longer side is at most ``side``: the means of blocks; whole numbers stay whole."""
    size, longest = image.shape[:2], max(image.shape[:2])
    if longest <= side:
        return image
    rows, columns = (_edges(length, max(1, length * side // longest)) for length in size)
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


# -- colours -----------------------------------------------------------------------------------------


def tint(image: Pixels, shares: FloatArray) -> Pixels:
    """A grey image, (H, W, 3), tinted by shares from −1 to 1 for each pixel, (H, W): blue for, orange against.

    A full tint goes from a dark to a light shade as the picture does, so that what is in it can still be seen.
    """
    light = (image.astype(np.float64) @ (0.299, 0.587, 0.114) / 255.0)[..., None]
    ground = 90.0 + 158.0 * light
    paint = np.where(shares[..., None] > 0, (0.0, 98.0, 214.0), (222.0, 84.0, 0.0))
    shade = paint * (0.45 + 0.55 * light) + 0.4 * light * (255.0 - paint)
    opacity = np.abs(np.clip(shares, -1, 1))[..., None] ** 0.7  # so that a third of the largest is plainly seen
    mixed: Pixels = np.clip(ground * (1 - opacity) + shade * opacity, 0, 255).astype(np.uint8)
    return mixed


# -- inside a page: small, inline, without a library where none is installed ---------------------------


def png(image: Pixels) -> bytes:
    """An image, (H, W, 3), as a PNG file."""
    height, width = image.shape[:2]
    lines = np.concatenate(
        (np.zeros((height, 1), dtype=np.uint8), np.ascontiguousarray(image).reshape(height, -1)), axis=1
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def data_uri(image: Pixels) -> str:
    """An image as an address that holds it: JPEG where Pillow is installed and saves room, else PNG."""
    found = png(image)
    best = "image/png", found
    if len(found) > 3000:
        try:
            from PIL import Image
        except ImportError:
            pass
        else:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "JPEG", quality=82, optimize=True)
            best = min(best, ("image/jpeg", file.getvalue()), key=lambda pair: len(pair[1]))
    return f"data:{best[0]};base64,{b64encode(best[1]).decode()}"


def fitting_side(images: Sequence[Pixels], room: int) -> int:
    """The largest side at which all images together take about ``room`` bytes, judged by a few of them."""
    sides = (SIDE, 384, 288, 224, 160, 112, 80, 56)
    sample = images[:: max(1, len(images) // 4)][:4]
    for side in sides:
        mean = sum(len(data_uri(shrink(image, side))) for image in sample) / max(len(sample), 1)
        if mean * len(images) <= room:
            return side
    return sides[-1]


def runs(labels: npt.NDArray[np.intp]) -> str:
    """A label map as runs of equal labels, (label, length) in variable-length bytes."""
    flat = labels.ravel()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(flat)) + 1))
    lengths = np.diff(np.append(starts, len(flat)))
    out = bytearray()
    for label, length in zip(flat[starts].tolist(), lengths.tolist(), strict=True):
        for number in (label, length):
            while number > 127:
                out.append(number & 127 | 128)
                number >>= 7
            out.append(number)
    return b64encode(out).decode()
