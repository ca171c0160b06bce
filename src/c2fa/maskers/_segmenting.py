"""Super-pixels: how photos are cut into them, where they are, what they look like and which are neighbours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import need
from c2fa.graph import Graph
from c2fa.maskers._quickshift import XYZ, Photo, Quickshift, lab, linear, quickshift
from c2fa.structure import FloatArray, IntArray
from c2fa.views.images import enlarge

# If set, it runs quickshift in place of this process, by asking the process that has the GPU.
elsewhere: Callable[[Sequence[Photo], str, Mapping[str, Any]], list[IntArray]] | None = None


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
        scikit_image, maps = need("skimage.segmentation", "images"), []
        segmenter = scikit_image.slic if segment == "slic" else scikit_image.quickshift
        for image in images:
            labels = segmenter(image, **options)
            if np.shape(labels) != image.shape[:2]:
                raise ValueError(f"these options give no label map of shape {image.shape[:2]}: {dict(options)}")
            maps.append(np.unique(labels, return_inverse=True)[1].reshape(image.shape[:2]))
        return maps
    if elsewhere is not None:
        return elsewhere(images, segment, options)
    torch = sys.modules.get("torch")  # not imported here, because that takes seconds
    if torch is not None and torch.cuda.is_available() and find_spec("triton") is not None:
        from c2fa.maskers import _triton

        try:
            if _triton.runs(how):
                return _triton.quickshift(images, how)
        except torch.OutOfMemoryError:
            pass  # the GPU's memory is full
    return [quickshift(image, how) for image in images]


def segment_means(values: npt.NDArray[Any], labels: IntArray) -> FloatArray:
    """The mean of each segment in each channel, (segments, C), of values (H, W, C)."""
    flat = labels.ravel()
    sizes = np.bincount(flat)
    sums = [np.bincount(flat, values[..., c].ravel()) for c in range(values.shape[-1])]
    return np.stack(sums, axis=1) / sizes[:, None]


def places(labels: IntArray) -> list[str]:
    """For each label, the name of the ninth of the image where its middle is.

    A segment that surrounds its own middle, with little of it inside, goes by the ninth that has most of it.

    >>> places(np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))
    ['centre left', 'centre', 'top right', 'centre right', 'bottom right']
    """
    (height, width), count, flat = labels.shape, int(labels.max()) + 1, labels.ravel()
    ninth = 3 * (np.arange(height) * 3 // height)[:, None] + np.arange(width) * 3 // width
    pixels = np.bincount(9 * flat + ninth.ravel(), minlength=9 * count).reshape(count, 9)
    sizes, most = pixels.sum(axis=1), pixels.argmax(axis=1)
    y = np.bincount(flat, np.repeat((np.arange(height) + 0.5) / height, width)) / sizes
    x = np.bincount(flat, np.tile((np.arange(width) + 0.5) / width, height)) / sizes
    middle = 3 * (3 * y).astype(np.intp) + (3 * x).astype(np.intp)
    every = np.arange(count)
    best = np.where(2 * pixels[every, middle] >= pixels[every, most], middle, most)
    names = [f"{row} {column}" for row in ("top", "centre", "bottom") for column in ("left", "centre", "right")]
    names[4] = "centre"
    return [names[k] for k in best.tolist()]


def looks(rgb: npt.NDArray[np.uint8], labels: npt.NDArray[np.int32]) -> dict[str, list[float]]:
    """What each super-pixel looks like and where its middle is, all from 0 to 1.

    >>> white_and_black = np.array([[[255] * 3, [0] * 3], [[255] * 3, [255] * 3]], dtype=np.uint8)
    >>> looks(white_and_black, np.array([[0, 1], [0, 1]]))["texture"]
    [0.0, 0.5]
    """
    (height, width), flat = labels.shape, labels.ravel()
    sizes = np.bincount(flat)

    def mean(values: npt.NDArray[Any]) -> FloatArray:
        return np.bincount(flat, values.ravel()) / sizes

    pixels = enlarge(rgb, (height, width))  # a user's own label map may be that of the full image
    red, green, blue = (pixels[..., c] / 255 for c in range(3))
    grey = (red + green + blue) / 3
    fields = {
        "red": mean(red),
        "green": mean(green),
        "blue": mean(blue),
        "row": mean(np.repeat((np.arange(height) + 0.5) / height, width)),
        "column": mean(np.tile((np.arange(width) + 0.5) / width, height)),
        "texture": np.sqrt(np.maximum(mean(grey**2) - mean(grey) ** 2, 0)),
    }
    return {name: values.round(4).tolist() for name, values in fields.items()}  # more digits would fill the store


def superpixel_graph(rgb: npt.NDArray[np.uint8], labels: IntArray) -> Graph:
    """Tie super-pixels that touch, and each to the five nearest to it in colour; the nearer in colour, the stronger.

    A tie weighs ``exp(−(distance of mean colours in CIE Lab / 20)²)``, half of it where the two do not touch: at a
    distance of 20 two colours are plainly different. The values were chosen on bags of images with known objects
    (``docs/budget.md``).
    """
    count = int(labels.max()) + 1
    # White is the sum of the three lights, because the standard's white is rounded differently.
    colours = lab(linear(segment_means(rgb, labels) / 255.0), XYZ / XYZ.sum(axis=1, keepdims=True), white=1.0)
    across = np.stack([labels[:, 1:].ravel(), labels[:, :-1].ravel()], axis=1)
    down = np.stack([labels[1:].ravel(), labels[:-1].ravel()], axis=1)
    touching = _unique_pairs(np.concatenate([across, down]))
    coloured = np.empty((0, 2), dtype=np.intp)
    if count > 1:
        from scipy.spatial import cKDTree  # imported where it is used: it is slow to load

        _, near = cKDTree(colours).query(colours, k=min(6, count))  # itself and the five nearest
        own = np.repeat(np.arange(count), near.shape[1])
        coloured = _unique_pairs(np.stack([own, near.ravel()], axis=1))
    code = np.array([count, 1])  # turns a pair into one number
    coloured = coloured[~np.isin(coloured @ code, touching @ code)]
    edges = np.concatenate([touching, coloured])
    share = np.repeat([1.0, 0.5], [len(touching), len(coloured)])
    distance2 = np.square(colours[edges[:, 0]] - colours[edges[:, 1]]).sum(axis=1)
    return Graph(edges, share * np.exp(-distance2 / 20.0**2))


def _unique_pairs(pairs: IntArray) -> IntArray:
    """Each pair of different numbers once, the smaller first."""
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0).astype(np.intp)
