"""Bags of Pascal VOC images: which of them hold a cat, and where.

The paper makes its bags of three to five images "randomly selected", positive where at least one image holds a cat,
half of each kind: 5,000 for training and 1,000 for validation from VOC's train images, 2,000 for testing from its val
images. What it leaves open is decided here:

- Validation bags are made of a quarter of VOC's train images (a quarter of those with a cat, a quarter of the rest)
  that no training bag holds. A network can know every training image by heart, so a choice made on bags of the same
  images would say nothing of new ones.
- A bag's size is drawn first (three, four or five, equally often under either label); then that many distinct images
  at random, drawn again until the bag has the label it should have. So the number of cats in a positive bag is what
  chance makes of it given that there is one: mostly one, sometimes two or more.
- Every second bag is positive, so any beginning of even length is balanced, and each kind of bag has random
  numbers of its own: other counts give longer or shorter lists of the same bags.
- Images and masks are resized to 224 x 224 without padding (masks by nearest neighbour). Void pixels, the borders of
  objects, stay 255 and are neither cat nor not.

Instance labels (``Voc.cats``) and pixel labels (``Voc.masks``) are for scoring alone; training sees the bags' labels.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import tarfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

SIDE = 224
CAT, VOID = 8, 255
SIZES = (3, 4, 5)
ARCHIVE = "voc2012_seg_256.tar.xz"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
QUICKSHIFT: dict[str, Any] = {"kernel_size": 4, "max_dist": 200, "ratio": 0.2}  # LIME's

UInt8: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Voc:
    """The images and what is known of each.

    Parameters
    ----------
    images
        (N, 224, 224, 3), RGB.
    masks
        (N, 224, 224), the class of each pixel: 8 is cat, 0 background, 255 void.
    names
        VOC's own names, such as ``"2007_000033"``.
    training
        Which images VOC calls train; the others it calls val.
    """

    images: UInt8
    masks: UInt8
    names: tuple[str, ...]
    training: Bools

    @property
    def cats(self) -> Bools:
        """Which images hold a cat, (N,)."""
        return np.array([bool((mask == CAT).any()) for mask in self.masks])


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of images: whose they are, which images each holds, and whether one of them shows a cat.

    Parameters
    ----------
    images, masks
        Those of all of VOC; every kind of bag points into the same arrays.
    cats
        Which of the images hold a cat, (N,).
    members
        For each bag the indices of its images.
    labels
        For each bag 1 where an image of it holds a cat, else 0.
    """

    images: UInt8
    masks: UInt8
    cats: Bools
    members: tuple[Ints, ...]
    labels: Ints

    def __len__(self) -> int:
        return len(self.members)

    @property
    def used(self) -> Ints:
        """The indices of the images that any bag holds, each once and in order."""
        return np.unique(np.concatenate(self.members))

    def first(self, n: int) -> Bags:
        """The first n bags."""
        return Bags(self.images, self.masks, self.cats, self.members[:n], self.labels[:n])

    def pixels(self, bag: int) -> tuple[Bools, Bools]:
        """Where the images of a bag show a cat and where they are not void, both (images, 224, 224)."""
        masks = self.masks[self.members[bag]]
        return masks == CAT, masks != VOID


class Split(NamedTuple):
    """The three kinds of bags."""

    training: Bags
    validation: Bags
    test: Bags


def read_voc(path: str | Path = DATA / ARCHIVE, cache: str | Path | None = None) -> Voc:
    """Read the archive of images, masks and lists.

    Parameters
    ----------
    path
        The archive, or the folder that holds it.
    cache
        Where the decoded arrays are kept (about 600 MB); read instead of the archive where it exists.
    """
    cache = None if cache is None else Path(cache)
    if cache is not None and cache.exists():
        with np.load(cache) as kept:
            return Voc(kept["images"], kept["masks"], tuple(kept["names"].tolist()), kept["training"])
    path = Path(path)
    path = path / ARCHIVE if path.is_dir() else path
    if not path.exists():
        raise FileNotFoundError(f"there is no archive of images at {path}; give the folder that holds {ARCHIVE}")
    voc = _decode(path)
    if cache is not None:
        _write(cache, images=voc.images, masks=voc.masks, names=np.array(voc.names), training=voc.training)
    return voc


def _decode(path: Path) -> Voc:
    from PIL import Image

    with tarfile.open(path) as archive:
        files: dict[str, bytes] = {}
        for member in archive:
            held = archive.extractfile(member) if member.isfile() else None
            if held is not None:
                files[member.name.removeprefix("./")] = held.read()
    lists = {kind: files[f"ImageSets/{kind}.txt"].decode().split() for kind in ("train", "val")}
    names = sorted((*lists["train"], *lists["val"]))
    images = np.empty((len(names), SIDE, SIDE, 3), np.uint8)
    masks = np.empty((len(names), SIDE, SIDE), np.uint8)
    for i, name in enumerate(names):
        image = Image.open(io.BytesIO(files[f"JPEGImages/{name}.jpg"])).convert("RGB")
        images[i] = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        mask = Image.open(io.BytesIO(files[f"SegmentationClass/{name}.png"]))
        masks[i] = np.asarray(mask.resize((SIDE, SIDE), Image.Resampling.NEAREST))
    return Voc(images, masks, tuple(names), np.isin(names, lists["train"]))


def make_bags(
    voc: Voc, seed: int = 0, counts: tuple[int, int, int] = (5000, 1000, 2000), held_out: float = 0.25
) -> Split:
    """Draw the bags; the same seed gives the same bags.

    Parameters
    ----------
    voc
        The images.
    seed
        Seed of the images held out and of all draws.
    counts
        How many bags for training, for validation and for testing; each even.
    held_out
        The share of VOC's train images that only validation bags hold.
    """
    if any(count % 2 for count in counts):
        raise ValueError(f"counts={counts} cannot be half positive; give even numbers")
    cats = voc.cats
    rng = np.random.default_rng([seed, 0])
    pools: dict[str, list[Ints]] = {"training": [], "validation": []}
    for kind in (True, False):
        those = rng.permutation(np.flatnonzero(voc.training & (cats == kind)))
        held = round(held_out * len(those))
        pools["validation"].append(those[:held])
        pools["training"].append(those[held:])
    pool = {name: np.sort(np.concatenate(parts)) for name, parts in pools.items()}
    pool["test"] = np.flatnonzero(~voc.training)
    bags = []
    for k, (name, count) in enumerate(zip(Split._fields, counts, strict=True), start=1):
        members, labels = _draw(np.random.default_rng([seed, k]), pool[name], cats, count, name)
        bags.append(Bags(voc.images, voc.masks, cats, members, labels))
    return Split(*bags)


def _draw(rng: np.random.Generator, pool: Ints, cats: Bools, count: int, name: str) -> tuple[tuple[Ints, ...], Ints]:
    plain = int((~cats[pool]).sum())
    if plain == len(pool) or plain < max(SIZES):
        raise ValueError(
            f"{name} bags need an image with a cat and {max(SIZES)} without, and their {len(pool)} images "
            f"have {len(pool) - plain} and {plain}; give more images or another held_out"
        )
    members, labels = [], np.arange(1, count + 1, dtype=np.int64) % 2
    for label in labels:
        size = rng.choice(SIZES)
        while True:
            bag = rng.choice(pool, size, replace=False)
            if cats[bag].any() == bool(label):
                members.append(bag)
                break
    return tuple(members), labels


def superpixels(images: UInt8, cache: str | Path | None = None, workers: int | None = None) -> npt.NDArray[Any]:
    """The super-pixels of each image, (n, H, W): quickshift's, with LIME's parameters, numbered from 0.

    Parameters
    ----------
    images
        (n, H, W, 3) uint8. Each image is segmented once, so give it once, not once per bag.
    cache
        An npz file that keeps the maps by their image's content: what it holds is not computed again, what it lacks
        is added to it.
    workers
        How many processes; None takes one per core.
    """
    keys = [hashlib.sha256(image.tobytes()).hexdigest()[:32] for image in images]
    cache = None if cache is None else Path(cache)
    known = _kept(cache)
    missing = {key: image for key, image in zip(keys, images, strict=True) if key not in known}
    if missing:
        known.update(zip(missing, _segment_all(list(missing.values()), workers), strict=True))
        if cache is not None:
            every = {**_kept(cache), **known}  # another process may have added to it in the meantime
            _write(cache, compressed=True, keys=np.array(list(every)), maps=_narrow(list(every.values())))
    return _narrow([known[key] for key in keys])


def _kept(cache: Path | None) -> dict[str, npt.NDArray[Any]]:
    """The maps that a cache holds, by their image's key."""
    if cache is None or not cache.exists():
        return {}
    with np.load(cache) as kept:
        return dict(zip(kept["keys"].tolist(), kept["maps"], strict=True))


def _segment_all(images: Sequence[UInt8], workers: int | None) -> list[npt.NDArray[Any]]:
    workers = min(workers or os.cpu_count() or 1, len(images))
    if workers == 1:
        return [segment(image) for image in images]
    # Spawned, not forked: a fork of a process in which torch has started threads may hang.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(segment, images, chunksize=4))


def segment(image: UInt8) -> npt.NDArray[np.uint16]:
    """The super-pixels of one image as a map of numbers from 0."""
    from skimage.segmentation import quickshift

    found: Ints = quickshift(image, **QUICKSHIFT)  # type: ignore[no-untyped-call]
    _, labels = np.unique(found, return_inverse=True)
    return labels.reshape(image.shape[:2]).astype(np.uint16)


def _narrow(maps: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    stacked = np.stack(maps)
    return stacked.astype(np.uint8) if stacked.max() < 256 else stacked


def _write(path: Path, compressed: bool = False, **arrays: npt.NDArray[Any]) -> None:
    """Write an npz whole or not at all: an interrupted run leaves no half a file that looks like a cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}.half")
    with half.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]
    half.replace(path)
