"""Which super-pixels of an image are alike: those that touch, and those of nearly the same colour."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from c2fa.graph import Graph
from c2fa.structure import FloatArray, IntArray

_SCALE = 20.0  # of CIE Lab: at this distance two colours are plainly different
_NEAREST = 5
_FAR = 0.5


def alike(rgb: npt.NDArray[np.uint8], labels: IntArray) -> Graph:
    """Tie super-pixels that touch, and each to the five nearest to it in colour, the more the more alike they look.

    A tie weighs ``exp(−(distance of mean colours in CIE Lab / 20)²)``, half of it where the two do not touch. The
    values were chosen on bags of images with known objects (``docs/budget.md``).
    """
    count = int(labels.max()) + 1
    flat = labels.ravel()
    sizes = np.bincount(flat, minlength=count)
    colours = lab(np.stack([np.bincount(flat, rgb[..., c].ravel(), count) / sizes for c in range(3)], axis=1))
    across = np.stack([labels[:, 1:].ravel(), labels[:, :-1].ravel()], axis=1)
    down = np.stack([labels[1:].ravel(), labels[:-1].ravel()], axis=1)
    touching = _unique(np.concatenate([across, down]))
    if count > 1:
        from scipy.spatial import cKDTree  # imported where it is used: it is slow to load

        _, near = cKDTree(colours).query(colours, k=min(_NEAREST + 1, count))
        own = np.repeat(np.arange(count), near.shape[1])
        coloured = _unique(np.stack([own, near.ravel()], axis=1))
    else:
        coloured = touching
    codes = touching[:, 0] * count + touching[:, 1]
    more = coloured[~np.isin(coloured[:, 0] * count + coloured[:, 1], codes)]
    edges = np.concatenate([touching, more])
    share = np.repeat([1.0, _FAR], [len(touching), len(more)])
    apart = np.square(colours[edges[:, 0]] - colours[edges[:, 1]]).sum(axis=1)
    return Graph(edges, share * np.exp(-apart / _SCALE**2))


def lab(rgb: FloatArray) -> FloatArray:
    """Colours, (n, 3) from 0 to 255, in CIE Lab, where distances are about what the eye makes of them.

    >>> lab(np.array([[255.0, 255.0, 255.0], [255.0, 0.0, 0.0]])).round().astype(int).tolist()
    [[100, 0, 0], [53, 80, 67]]
    """
    part = rgb / 255.0
    linear = np.where(part > 0.04045, ((part + 0.055) / 1.055) ** 2.4, part / 12.92)
    xyz = linear @ _TO_XYZ.T
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16.0 / 116.0)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


# sRGB to XYZ under daylight (D65), divided by white.
_TO_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
_TO_XYZ = _TO_XYZ / _TO_XYZ.sum(axis=1, keepdims=True)


def _unique(pairs: npt.NDArray[np.intp]) -> IntArray:
    """Each pair of different numbers once, the smaller first."""
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    found: IntArray = np.unique(pairs, axis=0)
    return found.astype(np.intp)
