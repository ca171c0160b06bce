"""Segments photos by name: quickshift as array operations, and whatever else scikit-image has.

Quickshift (Vedaldi and Soatto, 2008) links each pixel to the nearest one of higher density and cuts long links; the
trees are the segments. They are the very segments of scikit-image's ``quickshift``. Three things make it faster: a pair
of pixels adds to the density of both; long lines of numbers are computed at a time, on a GPU where there is one; and a
pixel looks for its parent from the nearest neighbours outwards, and stops where none further out can be nearer in
colour and place, which in photos is after a few.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.util import find_spec
from math import ceil, isfinite
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from c2fa._system import atomic, need
from c2fa.asking.fingerprint import fingerprint
from c2fa.structure import FloatArray, IntArray

Photo: TypeAlias = npt.NDArray[np.uint8]  # (H, W, 3)

# Where it is set, it segments what a GPU is good at in place of this process: it asks the process that owns the GPU.
elsewhere: Callable[[Sequence[Photo], str, Mapping[str, Any]], list[IntArray]] | None = None

_read_only: set[Path] = set()  # folders of which it was said that nothing can be kept in them

XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
WHITE = np.array([0.95047, 1.0, 1.08883])  # daylight (D65) seen at two degrees


def label_maps(images: Sequence[Photo], segment: str, options: Mapping[str, Any]) -> list[IntArray]:
    """A label map for each photo, (H, W), with labels 0, 1, 2, ... none of which is unused.

    >>> halves = np.zeros((8, 8, 3), dtype=np.uint8)
    >>> halves[:, 4:] = 255
    >>> [labels] = label_maps([halves], "quickshift", {"max_dist": 9})
    >>> int(labels.max()) + 1, bool((labels == labels[0]).all())
    (2, True)
    """
    how = Quickshift.of(options) if segment == "quickshift" else None
    if how is None:
        segmenter = getattr(need("skimage.segmentation", "images"), segment)
        maps = []
        for image in images:
            labels = segmenter(image, **options)
            if np.shape(labels) != image.shape[:2]:
                raise ValueError(f"these options give no label map of shape {image.shape[:2]}: {dict(options)}")
            maps.append(np.unique(labels, return_inverse=True)[1].reshape(image.shape[:2]))
        return maps
    if elsewhere is not None:
        return elsewhere(images, segment, options)
    # Torch takes seconds to load, which is for others to decide.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and find_spec("triton") is not None:
        from c2fa.maskers import _triton

        try:
            if _triton.runs(how):
                return _triton.quickshift(images, how)
        except torch.OutOfMemoryError:
            pass  # others have filled the device
    return [quickshift(image, how) for image in images]


def cached_label_maps(
    folder: str | PathLike[str], images: Sequence[Photo], segment: str, options: Mapping[str, Any]
) -> list[IntArray]:
    """The same, read from a folder where they were made before, and kept there where they were not."""
    files = [_file(Path(folder), image, segment, options) for image in images]
    maps = [_read(file, image) for file, image in zip(files, images, strict=True)]
    missing = [k for k, labels in enumerate(maps) if labels is None]
    made = label_maps([images[k] for k in missing], segment, options) if missing else []
    for k, labels in zip(missing, made, strict=True):
        _keep(files[k], labels)
    new = iter(made)
    return [next(new) if labels is None else labels for labels in maps]


def _file(folder: Path, image: Photo, segment: str, options: Mapping[str, Any]) -> Path:
    ours = segment == "quickshift" and Quickshift.of(options) is not None
    maker = "" if ours else need("skimage", "images").__version__  # another version may segment in another way
    return folder / f"{fingerprint(image, segment, dict(sorted(options.items())), maker)[:32]}.npz"


def _read(file: Path, image: Photo) -> IntArray | None:
    """The label map in a file, or None where there is none or it is damaged."""
    try:
        with np.load(io.BytesIO(file.read_bytes())) as archive:  # which compares what it reads with a checksum
            labels = archive["labels"]
    except Exception:  # a damaged file may be broken in any way; it is made again
        return None
    fits = labels.shape == image.shape[:2] and np.issubdtype(labels.dtype, np.unsignedinteger)
    return labels.astype(np.intp) if fits else None


def _keep(file: Path, labels: IntArray) -> None:
    if file.parent in _read_only:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic(file) as whole:
            np.savez_compressed(whole, labels=labels.astype(np.min_scalar_type(labels.max())))
    except OSError as error:
        _read_only.add(file.parent)
        why = error.strerror or error
        warnings.warn(f"label maps cannot be kept in {file.parent}, so they are made each time: {why}", stacklevel=2)


@dataclass(frozen=True)
class Quickshift:
    """The options of scikit-image's ``quickshift``, with its defaults."""

    ratio: float = 1.0
    kernel_size: float = 5
    max_dist: float = 10
    sigma: float = 0
    convert2lab: bool = True
    rng: int = 42

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Quickshift | None:
        """These options, or None where they are for scikit-image itself to take or to refuse."""
        numbers = {name: options.get(name, 1.0) for name in ("ratio", "kernel_size", "max_dist", "sigma")}
        if not set(options) <= {field.name for field in fields(cls)}:
            return None
        if not all(isinstance(number, int | float) and isfinite(number) for number in numbers.values()):
            return None
        if not isinstance(options.get("rng", 0), int) or options.get("rng", 0) < 0:
            return None
        if numbers["kernel_size"] < 1 or numbers["sigma"] < 0:
            return None
        return cls(**options)

    @property
    def reach(self) -> int:
        """How many rows and columns away a pixel's neighbours are at most."""
        return ceil(3 * self.kernel_size)

    @property
    def falloff(self) -> float:
        """The factor of a squared distance in the logarithm of what a neighbour adds to a density."""
        return -0.5 / (self.kernel_size * self.kernel_size)


def quickshift(image: Photo, how: Quickshift) -> IntArray:
    """The label map of a photo, by numpy."""
    colours = features(image, how)
    densities = _densities(colours, how) + noise(how.rng, *image.shape[:2])
    return _labels(_parents(colours, densities, how)).reshape(image.shape[:2])


def features(image: Photo, how: Quickshift) -> FloatArray:
    """The colours between which distances are taken, (3, H, W)."""
    colours = np.moveaxis(lab(LINEAR[image]) if how.convert2lab else _SRGB[image], -1, 0)
    if how.sigma:
        from scipy.ndimage import gaussian_filter  # imported where it is used: it is slow to load

        colours = np.stack([gaussian_filter(channel, how.sigma, mode="reflect") for channel in colours])
    return np.asarray(colours * how.ratio, dtype=np.float64)


_SRGB = np.arange(256, dtype=np.float64) * (1.0 / 255.0)


def linear(srgb: FloatArray) -> FloatArray:
    """The light of sRGB from 0 to 1."""
    return np.where(srgb > 0.04045, ((srgb + 0.055) / 1.055) ** 2.4, srgb / 12.92)


LINEAR = linear(_SRGB)  # of each byte of sRGB


def lab(light: FloatArray, xyz_of_rgb: FloatArray = XYZ, white: FloatArray | float = WHITE) -> FloatArray:
    """Light of red, green and blue, (…, 3), in CIE Lab, where distances are about what the eye makes of them.

    >>> lab(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])).round().astype(int).tolist()
    [[100, 0, 0], [53, 80, 67]]
    """
    xyz = light @ xyz_of_rgb.T / white
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16.0 / 116.0)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], axis=-1)


@lru_cache(maxsize=4)
def noise(rng: int, height: int, width: int) -> FloatArray:
    """What breaks ties between densities: the same for all photos of a size."""
    drawn: FloatArray = np.random.default_rng(rng).normal(scale=0.00001, size=(height, width))
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=16)
def shifts(reach: int, height: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """From a pixel to its neighbours, the nearest first: squared distance, rows, columns."""
    rows, columns = min(reach, height - 1), min(reach, width - 1)
    return tuple(
        sorted(
            (down * down + right * right, down, right)
            for down in range(-rows, rows + 1)
            for right in range(-columns, columns + 1)
            if down or right
        )
    )


def _densities(colours: FloatArray, how: Quickshift, chunk: int = 2**15) -> FloatArray:
    """The sum over a pixel's neighbours, and itself, of a Gaussian of their distance in colour and place.

    Rows are laid out in one line with a margin of colours between them that are too far to add anything, so that a
    shift is one offset for all pixels, and numpy runs over long stretches of memory. The numbers of a chunk of pixels
    stay in a core's own cache.
    """
    _, height, width = colours.shape
    stride = width + how.reach
    line = np.full((3, height, stride), 1e100)
    line[:, :, :width] = colours * np.sqrt(-how.falloff)
    line = line.reshape(3, -1)
    size = line.shape[1]
    total = np.ones(size)
    buffers = np.empty((2, min(chunk, size)))
    window = shifts(how.reach, height, width)
    half = [shift for shift in window if shift[1:] > (0, 0)]  # the other half is its mirror image
    for start in range(0, size, chunk):
        for apart, down, right in half:
            offset = down * stride + right
            stop = min(start + chunk, size - offset)
            if stop <= start:
                continue
            squares, square = buffers[:, : stop - start]
            for k in range(3):
                into = square if k else squares
                np.subtract(line[k, start:stop], line[k, start + offset : stop + offset], out=into)
                np.multiply(into, into, out=into)
                if k:
                    squares += square
            np.subtract(apart * how.falloff, squares, out=squares)
            np.exp(squares, out=squares)
            total[start:stop] += squares
            total[start + offset : stop + offset] += squares
    return total.reshape(height, stride)[:, :width]


def _parents(colours: FloatArray, densities: FloatArray, how: Quickshift) -> IntArray:
    """For each pixel, in one line, the nearest of higher density within reach and ``max_dist``, or itself.

    Of two as near as one another it is the one that comes first in the photo.
    """
    height, width = densities.shape
    stride, margin = width + how.reach, how.reach * (width + how.reach)
    # Nothing is lower than what lies outside; numpy takes what lies before the first margin from the end of the last.
    line = np.full((height + 2 * how.reach, stride), -np.inf)
    line[how.reach : -how.reach, :width] = densities
    density = line.ravel()
    padded = np.zeros((3, height + 2 * how.reach, stride))
    padded[:, how.reach : -how.reach, :width] = colours
    colour = padded.reshape(3, -1)
    pixels = (margin + np.arange(height)[:, None] * stride + np.arange(width)).ravel()
    closest = np.full(density.size, np.inf)
    parent = np.arange(density.size)
    searching, ring = pixels, 0
    for apart, down, right in shifts(how.reach, height, width):
        if apart > ring:  # no neighbour from here on is nearer than this
            ring = apart
            searching = searching[closest[searching] >= apart]
            if not searching.size:
                break
        other = searching + (down * stride + right)
        higher = density[other] > density[searching]
        here, other = searching[higher], other[higher]
        between = colour[:, here] - colour[:, other]
        between *= between
        distance = between[0] + between[1] + between[2] + float(down * down) + float(right * right)
        found = closest[here]
        better = (distance < found) | ((distance == found) & (other < parent[here]))
        closest[here[better]] = distance[better]
        parent[here[better]] = other[better]
    too_far = np.sqrt(closest) > how.max_dist
    parent[too_far] = np.flatnonzero(too_far)
    number = np.zeros(density.size, dtype=np.intp)
    number[pixels] = np.arange(pixels.size)
    result: IntArray = number[parent[pixels]]
    return result


def _labels(parent: IntArray) -> IntArray:
    """The number of each pixel's tree; trees are numbered in the order of their roots."""
    while not np.array_equal(grandparent := parent[parent], parent):
        parent = grandparent
    is_root = parent == np.arange(parent.size)
    labels: IntArray = (np.cumsum(is_root) - 1)[parent]
    return labels
