"""Quickshift as array operations, with the segments of scikit-image's ``quickshift``, and colours for the eye.

Quickshift (Vedaldi and Soatto, 2008) links each pixel to the nearest one of higher density and cuts long links; the
trees are the segments. Three things make it faster than scikit-image's: each pair of pixels is computed once, for both
densities; numpy works on long runs of pixels; and the search for a pixel's parent goes from the nearest neighbours
outwards and stops, in photos after a few, when none further out can be nearer in colour and place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, isfinite
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from c2fa.structure import FloatArray, IntArray

Photo: TypeAlias = npt.NDArray[np.uint8]  # (H, W, 3)

XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
WHITE = np.array([0.95047, 1.0, 1.08883])  # daylight (D65) seen at two degrees


@dataclass(frozen=True)
class Quickshift:
    """Options of scikit-image's ``quickshift``, with its defaults."""

    ratio: float = 1.0
    kernel_size: float = 5
    max_dist: float = 10

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Quickshift | None:
        """These options, or None for those that scikit-image itself must take or refuse."""
        supported = set(options) <= {"ratio", "kernel_size", "max_dist"}
        if not supported or not all(isinstance(value, int | float) and isfinite(value) for value in options.values()):
            return None
        how = cls(**options)
        return how if how.kernel_size >= 1 else None

    @property
    def reach(self) -> int:
        """The most rows, and the most columns, between a pixel and its neighbours."""
        return ceil(3 * self.kernel_size)

    @property
    def falloff(self) -> float:
        """The f by which a neighbour at distance d adds exp(f d²) to a pixel's density."""
        return -0.5 / (self.kernel_size * self.kernel_size)


def quickshift(image: Photo, how: Quickshift) -> IntArray:
    """The label map of a photo, by numpy."""
    colours = np.moveaxis(lab(LINEAR[image]), -1, 0) * how.ratio
    densities = _densities(colours, how) + noise(*image.shape[:2])
    return _labels(_parents(colours, densities, how)).reshape(image.shape[:2])


def linear(srgb: FloatArray) -> FloatArray:
    """The linear light of sRGB values, both from 0 to 1."""
    return np.where(srgb > 0.04045, ((srgb + 0.055) / 1.055) ** 2.4, srgb / 12.92)


LINEAR = linear(np.arange(256, dtype=np.float64) * (1.0 / 255.0))  # of each byte of sRGB


def lab(light: FloatArray, xyz_of_rgb: FloatArray = XYZ, white: FloatArray | float = WHITE) -> FloatArray:
    """CIE Lab of linear red, green and blue, (…, 3); distances in it are about those that the eye sees.

    >>> lab(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])).round().astype(int).tolist()
    [[100, 0, 0], [53, 80, 67]]
    """
    xyz = light @ xyz_of_rgb.T / white
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16.0 / 116.0)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], axis=-1)


@lru_cache(maxsize=4)
def noise(height: int, width: int) -> FloatArray:
    """Noise that breaks ties between densities, as scikit-image draws it: the same for all photos of a size."""
    values: FloatArray = np.random.default_rng(42).normal(scale=0.00001, size=(height, width))
    values.flags.writeable = False
    return values


@lru_cache(maxsize=16)
def shifts(reach: int, height: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """The neighbours of a pixel, the nearest first: squared distance, rows down, columns to the right."""
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
    """Each pixel's density: the sum over its neighbours and itself of a Gaussian of the distance in colour and place.

    Rows lie in one line, with margins between them whose colours are too far away to add anything. A shift is then one
    offset for all pixels, and numpy works on long runs of memory. A chunk of pixels fits into a core's own cache.
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
    """For each pixel, in one line, the nearest pixel of higher density within reach and ``max_dist``, or itself.

    Of two that are equally near, it is the first in the photo.
    """
    height, width = densities.shape
    stride, margin = width + how.reach, how.reach * (width + how.reach)
    # No pixel is lower than the margins. An index before the first margin is negative, and reads the end of the last.
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
        nearest = closest[here]
        better = (distance < nearest) | ((distance == nearest) & (other < parent[here]))
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
