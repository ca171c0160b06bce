"""Bags of images, and single images: a masked image is left out of its bag or filled, a masked super-pixel filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import host_array, is_tensor
from c2fa.asking.masking import Masked
from c2fa.graph import Graph, disjoint_union
from c2fa.maskers._pictures import LazyBatch, Picture, Placed, is_path, is_pil, picture, read_image
from c2fa.maskers._segmenting import label_maps, looks, places, superpixel_graph
from c2fa.maskers.arrays import left_in_bag
from c2fa.structure import BoolArray, IntArray, Structure
from c2fa.views.images import enlarge

_DEFAULTS: dict[str, dict[str, Any]] = {
    "quickshift": {"kernel_size": 4, "max_dist": 200, "ratio": 0.2},  # LIME's
    "slic": {"n_segments": 50, "compactness": 10.0, "start_label": 0},
}


@dataclass(frozen=True)
class ImageBag:
    """Masks a bag of images: its parts are the images, its leaves their super-pixels.

    A bag is a list, a tuple, a four-dimensional array or a dict, whose keys name the images. Its images may differ in
    size and be PIL images, numpy arrays, torch tensors or paths of files, which are read with Pillow and turned as the
    camera was held. Of a single image, the parts are regions, and the leaves the super-pixels inside them.

    The model receives images of the input's type, order of channels and (for tensors) device. Where absent images are
    filled and all have one size, it receives one array, (n, images, ...); for a single image, (n, ...). In every other
    case it receives a sequence of lists of images, each built when it is read; an image with nothing masked is the
    input's own object (a PIL image with a palette or in inks becomes RGB).

    Parameters
    ----------
    segment
        ``"quickshift"`` (the paper's, with LIME's parameters, on the GPU where torch is loaded and has one),
        ``"slic"``, a function from an image, (H, W, 3) uint8, to an integer label map, (H, W), or the label maps
        themselves, one for each image. The first two segment a copy of at most 512 pixels a side, whose pixels are
        blocks of the image; the model always gets images of full size.
    absent
        What becomes of an image whose super-pixels are all masked: ``"remove"`` leaves it out of the bag, ``"fill"``
        fills it. In place of a bag without any image the model is asked about the first image alone, filled.
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
        if isinstance(self.regions, int | np.integer) and self.regions < 1:
            raise ValueError(f"regions must be at least 1, not {self.regions}")
        if self.options and not isinstance(self.segment, str):
            raise ValueError("options are for segment='quickshift' or 'slic'; a function of yours has its own")

    def __call__(self, x: Any) -> Masked:
        names, items = _named(x)
        single = names is None
        contents = [read_image(item) if is_path(item) else item for item in items]
        images = [picture(content, self.channels) for content in contents]
        maps = self._label_maps(images, single)
        for image, labels in zip(images, maps, strict=True):
            image.prepare(labels, self.fill)
        counts = [int(labels.max()) + 1 for labels in maps]
        owner = self._regions(images[0], maps[0]) if single else np.repeat(np.arange(len(maps)), counts)
        parts = names or _region_names(maps[0], owner)
        structure = Structure((owner,), (tuple(parts), _leaf_names(maps, names)))
        removes = self.absent == "remove" and not single

        def neighbours() -> Graph:
            # The looks of an image at the size of its label map.
            rgb = [
                im.small if labels.shape == im.small.shape[:2] else im.rgb
                for im, labels in zip(images, maps, strict=True)
            ]
            graph = disjoint_union(list(map(superpixel_graph, rgb, maps)), counts)
            same = owner[graph.edges[:, 0]] == owner[graph.edges[:, 1]]  # regions of a single image divide its graph
            return Graph(graph.edges[same], graph.weights[same])

        # An explanation keeps these alone, not images of full size.
        small, small_maps = [image.small for image in images], [labels.astype(np.int32) for labels in maps]

        def descriptors() -> dict[str, list[float]]:
            tables = [looks(image, labels) for image, labels in zip(small, small_maps, strict=True)]
            return {name: [entry for table in tables for entry in table[name]] for name in tables[0]}

        view = views.Images(
            images=tuple(small),
            labels=tuple(small_maps),
            sizes=tuple(image.size for image in images),
            name=Path(x).name if is_path(x) else "",
            levels=("regions" if single else "images", "super-pixels"),
        )
        inputs = _MaskedImages(images, counts, structure, single, removes)
        notes, hint = self._notes(counts, names), ""
        shape = tuple(images[0].values.shape)
        if single and images[0].is_plain and len(shape) == 3:
            here, there, axes = ("first", "last", (1, 2, 0)) if images[0].channel == 0 else ("last", "first", (2, 0, 1))
            turn = "permute" if images[0].is_tensor else "transpose"
            hint = f"the channels of the image {shape} are {here}: where the model wants them {there}, x.{turn}{axes}"
        elif not single and len(images) == 1 and (isinstance(x, np.ndarray) or is_tensor(x)):
            hint = f"an array of shape {(1, *shape)} is a bag of one image: give x[0] for the image itself"
            notes = (hint, *notes)

        def apart() -> Masked:
            by_level = replace(inputs, by_level=True)
            return replace(masked, inputs=by_level, allows_empty=False, apart=None, by_level=True)

        masked = Masked(
            structure,
            inputs,
            view=view,
            neighbours=neighbours,
            smooth_by_default=True,
            # Inputs are told apart by the contents of files, not by their names.
            content=contents if any(map(is_path, items)) else None,
            notes=notes,
            hint=hint,
            descriptors=descriptors,
            apart=apart if removes else None,
        )
        return masked

    def _notes(self, counts: list[int], parts: Sequence[str] | None) -> tuple[str, ...]:
        """A note on an image with more super-pixels than an explanation can tell apart."""
        most = int(np.argmax(counts))
        if counts[most] <= 300:
            return ()
        fewer = "a coarser segment="
        if isinstance(self.segment, str):
            coarser = "options={'n_segments': 50}"
            fewer = coarser if self.segment == "slic" else "segment='slic', or options={'kernel_size': 6}"
        return (
            f"{'the image' if parts is None else parts[most]} has {counts[most]:,} super-pixels, too many to look at "
            f"or to tell apart with a few hundred rows: take fewer with {fewer}",
        )

    def _label_maps(self, images: list[Picture], single: bool) -> list[IntArray]:
        """One label map for each image, with labels 0, 1, 2, ... none of which is unused."""
        if isinstance(self.segment, str):
            options = {**_DEFAULTS[self.segment], **self.options}
            return label_maps([image.small for image in images], self.segment, options)
        if callable(self.segment):
            maps = [self.segment(image.rgb) for image in images]
        else:
            is_one_map = single and getattr(self.segment, "ndim", 3) == 2
            maps = [self.segment] if is_one_map else list(self.segment)
            if len(maps) != len(images):
                raise ValueError(f"{len(maps)} label maps for {len(images)} images: give one for each image")
        return [_label_map(labels, images[k].size, k) for k, labels in enumerate(maps)]

    def _regions(self, image: Picture, labels: IntArray) -> IntArray:
        if isinstance(self.regions, int | np.integer):
            options = {"n_segments": self.regions, "compactness": 20.0, "start_label": 0}
            [region] = label_maps([image.small], "slic", options)
        else:
            regions = self.regions(image.rgb) if callable(self.regions) else self.regions
            region = _label_map(regions, image.size, 0)
        if region.shape != labels.shape:  # one of them is of a reduced copy
            region, labels = enlarge(region, image.size), enlarge(labels, image.size)
        overlap = np.zeros((labels.max() + 1, region.max() + 1), dtype=np.intp)
        np.add.at(overlap, (labels.ravel(), region.ravel()), 1)
        owner: IntArray = np.unique(overlap.argmax(axis=1), return_inverse=True)[1]
        return owner


@dataclass(frozen=True, eq=False)
class _MaskedImages:
    """Turns masks into a batch of images if the input is a single one, else of bags.

    ``by_level`` is the paper's way to remove images: masks of images remove them, masks of super-pixels never do.
    Of images that are ``placed`` on a model's device, rows are one tensor there, or one for each bag that lost some.
    """

    images: list[Picture]
    counts: list[int]
    structure: Structure
    single: bool
    removes: bool
    by_level: bool = False
    placed: Placed | None = None

    @property
    def stacks(self) -> bool:
        """Whether all images fit into one array."""
        kinds = {(im.is_tensor, im.channel, tuple(im.values.shape), im.values.dtype) for im in self.images}
        return len(kinds) == 1

    def on(self, device: Any) -> _MaskedImages:
        return replace(self, placed=Placed.of(self.images, device))

    def __call__(self, masks: BoolArray, level: int) -> Any:
        images, leaves = self.images, self.structure.expand(masks, level)
        left = np.ones((len(leaves), len(images)), dtype=np.bool_)
        if self.removes and not (self.by_level and self.structure.level(level) > 0):
            left = left_in_bag(leaves, self.structure)
        if self.placed is not None:
            rows = self.placed(leaves)
            if self.single or left.all():
                return rows[:, 0] if self.single else rows
            import torch

            return [torch.stack([bag[j] for j in np.flatnonzero(row)]) for bag, row in zip(rows, left, strict=True)]
        segments = np.split(leaves, np.cumsum(self.counts)[:-1], axis=1)
        if not self.removes and images[0].is_plain and self.stacks:
            if images[0].is_tensor:
                return self.on(images[0].values.device)(masks, level)
            batch = np.empty((len(leaves), len(images), *images[0].values.shape), dtype=images[0].values.dtype)
            for j, image in enumerate(images):
                image.paint(segments[j], batch[:, j])
            return batch[:, 0] if self.single else batch
        if self.single:
            return LazyBatch(len(leaves), lambda i: images[0].shown(leaves[i]))
        return LazyBatch(len(leaves), lambda i: [images[j].shown(segments[j][i]) for j in np.flatnonzero(left[i])])


def _named(x: Any) -> tuple[list[str] | None, list[Any]]:
    """The names of a bag's images, or None for a single image, and the images."""
    if isinstance(x, Mapping):
        names, images = [str(name) for name in x], list(x.values())
    elif isinstance(x, list | tuple) or (not is_pil(x) and np.ndim(x) == 4):
        images = list(x)
        # A file goes by its name, or its path where two have the same name; other images are numbered.
        short = [Path(item).name if is_path(item) else f"image {j + 1}" for j, item in enumerate(images)]
        names = [str(images[j]) if short.count(name) > 1 else name for j, name in enumerate(short)]
    else:
        return None, [x]
    if not images:
        raise ValueError("the bag is empty: give at least one image")
    return names, images


def _label_map(given: Any, size: tuple[int, int], k: int) -> IntArray:
    """A label map with labels 0, 1, 2, ..., or a sentence about what is wrong with it."""
    labels = host_array(given)
    if labels.shape != size or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"the label map of image {k} must hold integers of shape {size}; got {labels.dtype} of shape {labels.shape}"
        )
    compact: IntArray = np.unique(labels, return_inverse=True)[1].reshape(size)
    return compact


def _region_names(labels: IntArray, owner: IntArray) -> list[str]:
    """The place of each region, with a number where several share one."""
    names = places(owner[labels])
    numbers = [names[: j + 1].count(name) for j, name in enumerate(names)]
    return [f"{name} {n}" if names.count(name) > 1 else name for name, n in zip(names, numbers, strict=True)]


def _leaf_names(maps: Sequence[IntArray], parts: Sequence[str] | None) -> tuple[str, ...]:
    """Each super-pixel's number, which pictures show, and its place."""
    heads = ["#"] if parts is None else [f"{part} #" for part in parts]
    return tuple(
        f"{head}{i + 1}, {place}"
        for head, labels in zip(heads, maps, strict=True)
        for i, place in enumerate(places(labels))
    )
