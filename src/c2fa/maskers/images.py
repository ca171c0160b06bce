"""Bags of images, and single images: what is masked is left out of the bag, or filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.extras import need
from c2fa.graph import Graph, join
from c2fa.maskers._neighbours import alike
from c2fa.maskers._pictures import Picture, Rows, picture
from c2fa.masking import Masked
from c2fa.structure import BoolArray, IntArray, Structure

_DEFAULTS: dict[str, dict[str, Any]] = {
    "quickshift": {"kernel_size": 4, "max_dist": 200, "ratio": 0.2},  # LIME's
    "slic": {"n_segments": 50, "compactness": 10.0, "start_label": 0},
}


@dataclass(frozen=True)
class ImageBag:
    """Masks a bag of images: its parts are the images, its leaves their super-pixels.

    A list, a tuple or a four-dimensional array is a bag, and so is a dict, whose keys name the images; they may differ
    in size and be PIL images, numpy arrays or torch tensors. A single image is taken as it is: its
    parts are regions, its leaves the super-pixels inside them.

    What the model receives is of the type, the order of channels and (for tensors) on the device of what
    came in. Where absent images are filled and all have one size it is one array, (n, images, ...); for a
    single image, (n, ...). In every other case it is a sequence of bags that are lists of images, each built
    when it is read, in which an image with nothing masked is the very object that came in (a PIL image with a palette
    or in inks becomes RGB).

    Parameters
    ----------
    segment
        ``"quickshift"`` (the paper's, with LIME's parameters; about a second for an image of 224 x 224),
        ``"slic"`` (ten times faster), a function from an image, (H, W, 3) uint8, to an integer label map,
        (H, W), or the label maps themselves, one for each image.
    absent
        What becomes of an image that is masked as a whole: ``"remove"`` leaves it out of the bag, ``"fill"``
        fills it. An image that stays but whose super-pixels are all masked is filled.
    fill
        What a masked super-pixel shows: a number, or a colour with one number per channel, in the image's
        own units; ``"mean"``, the image's mean colour; ``"segments"``, the super-pixel's own mean colour, as
        LIME does; ``"blur"``, the image blurred over a sixteenth of its size.
    regions
        The parts of a single image: about how many, a label map, or a function from an image to one. A
        super-pixel belongs to the region that holds most of it.
    channels
        Where the channels of an array are: ``"first"``, ``"last"``, or ``"auto"``, which takes the axis that
        has 1, 3 or 4 entries (for a tensor the first, for an array the last, where both have).
    options
        Parameters for quickshift or slic, in place of the defaults.

    Examples
    --------
    >>> bag = [np.full((2, 2), 7), np.full((2, 4), 9)]
    >>> halves = [np.array([[0, 1], [0, 1]]), np.array([[0, 0, 1, 1], [0, 0, 1, 1]])]
    >>> masked = ImageBag(segment=halves)(bag)
    >>> masked.structure.widths, [len(b) for b in masked.inputs([[True, False], [True, True]], 0)]
    ((2, 4), [1, 2])
    >>> masked.inputs([[False, True, True, True]], 1)[0][0]
    array([[0, 7], [0, 7]])
    """

    segment: str | Callable[..., Any] | Sequence[npt.ArrayLike] = "quickshift"
    absent: str = "remove"
    fill: float | str | Sequence[float] = 0
    regions: int | Callable[..., Any] | npt.ArrayLike = 8
    channels: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.segment, str) and self.segment not in _DEFAULTS:
            raise ValueError(f"segment must be one of {tuple(_DEFAULTS)}, a function or label maps: {self.segment!r}")
        if self.absent not in ("remove", "fill"):
            raise ValueError(f"absent must be 'remove' or 'fill', not {self.absent!r}")
        if isinstance(self.fill, str) and self.fill not in ("mean", "segments", "blur"):
            raise ValueError(f"fill must be a number, a colour, 'mean', 'segments' or 'blur': {self.fill!r}")
        if self.channels not in ("auto", "first", "last"):
            raise ValueError(f"channels must be 'auto', 'first' or 'last', not {self.channels!r}")
        if isinstance(self.regions, int) and self.regions < 1:
            raise ValueError(f"regions must be at least 1, not {self.regions}")
        if self.options and not isinstance(self.segment, str):
            raise ValueError("options are for segment='quickshift' or 'slic'; a function of yours has its own")

    def __call__(self, x: Any) -> Masked:
        named = [str(name) for name in x] if isinstance(x, Mapping) else None
        x = list(x.values()) if isinstance(x, Mapping) else x
        single = not isinstance(x, list | tuple) and getattr(x, "ndim", 3) != 4
        if not single and not len(x):
            raise ValueError("the bag is empty: give at least one image")
        images = [picture(item, self.channels) for item in ([x] if single else x)]
        maps = self._label_maps(images, single)
        counts = [int(labels.max()) + 1 for labels in maps]
        for image, labels in zip(images, maps, strict=True):
            image.prepare(labels, self.fill)
        starts = np.cumsum([0, *counts])
        columns = [slice(a, b) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
        owner = self._regions(images[0], maps[0]) if single else np.repeat(np.arange(len(maps)), counts)
        structure = Structure((owner,), _names(owner, counts, single, named))
        removes = self.absent == "remove" and not single
        stacks = not removes and all(image.stackable(images[0]) for image in images)

        def inputs(masks: BoolArray, level: int) -> Any:
            if removes and structure.level(level) == 0:
                checked = structure.check_masks(masks, level)
                return Rows(len(checked), lambda i: [images[j].given for j in np.flatnonzero(checked[i])])
            leaves = structure.expand(masks, level)
            if stacks:
                batch = images[0].empty(len(leaves), len(images))
                for j, image in enumerate(images):
                    image.paint(leaves[:, columns[j]], batch[:, j])
                return batch[:, 0] if single else batch
            if single:
                return Rows(len(leaves), lambda i: images[0].shown(leaves[i]))
            return Rows(
                len(leaves),
                lambda i: [image.shown(leaves[i, c]) for image, c in zip(images, columns, strict=True)],
            )

        view = {
            "kind": "images",
            "levels": ["regions" if single else "images", "super-pixels"],
            "images": [image.rgb for image in images],
            "labels": maps,
        }

        def neighbours() -> Graph:
            graph = join([alike(image.rgb, labels) for image, labels in zip(images, maps, strict=True)], counts)
            same = owner[graph.edges[:, 0]] == owner[graph.edges[:, 1]]  # regions of a single image divide its graph
            return Graph(graph.edges[same], graph.weights[same])

        return Masked(
            structure,
            inputs,
            nested=not removes,
            allows_empty=not removes,
            view=view,
            neighbours=neighbours,
            alike=True,
        )

    def _label_maps(self, images: list[Picture], single: bool) -> list[IntArray]:
        """One label map for each image, with labels 0, 1, 2, ... none of which is unused."""
        if isinstance(self.segment, str):
            find = getattr(need("skimage.segmentation", "images"), self.segment)
            options = {**_DEFAULTS[self.segment], **self.options}
            found = [find(image.rgb, **options) for image in images]
        elif callable(self.segment):
            found = [self.segment(image.rgb) for image in images]
        else:
            alone = single and getattr(self.segment, "ndim", 3) == 2
            found = [self.segment] if alone else list(self.segment)
            if len(found) != len(images):
                raise ValueError(f"{len(found)} label maps for {len(images)} images: give one for each image")
        return [_labels(labels, image.size, k) for k, (labels, image) in enumerate(zip(found, images, strict=True))]

    def _regions(self, image: Picture, labels: IntArray) -> IntArray:
        """The region of each super-pixel of a single image."""
        if callable(self.regions):
            found = self.regions(image.rgb)
        elif isinstance(self.regions, int):
            slic = need("skimage.segmentation", "images").slic
            found = slic(image.rgb, n_segments=self.regions, compactness=20.0, start_label=0)
        else:
            found = self.regions
        region = _labels(found, image.size, 0)
        overlap = np.zeros((labels.max() + 1, region.max() + 1), dtype=np.intp)
        np.add.at(overlap, (labels.ravel(), region.ravel()), 1)
        owner: IntArray = np.unique(overlap.argmax(axis=1), return_inverse=True)[1]
        return owner


def _labels(found: Any, size: tuple[int, int], k: int) -> IntArray:
    labels = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found)
    if labels.shape != size or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"the label map of image {k} must hold integers of shape {size}; got {labels.dtype} of shape {labels.shape}"
        )
    compact: IntArray = np.unique(labels, return_inverse=True)[1].reshape(size)
    return compact


def _names(
    owner: IntArray, counts: list[int], single: bool, named: list[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    part = "region" if single else "image"
    parts = tuple(named or (f"{part} {j + 1}" for j in range(int(owner.max()) + 1)))
    if single:
        return parts, tuple(f"segment {i + 1}" for i in range(counts[0]))
    return parts, tuple(f"{j + 1}.{i + 1}" for j, count in enumerate(counts) for i in range(count))
