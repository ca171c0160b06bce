"""Quickshift of many photos at once by torch: fused kernels on a GPU that Triton knows, plain operations elsewhere.

Nothing waits for the device until the labels are copied back. Import this only where torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2fa.maskers._segmenting import LINEAR, WHITE, XYZ, Photo, Quickshift, features, noise
from c2fa.maskers._segmenting import quickshift as quickshift_on_host
from c2fa.structure import IntArray

_PIXELS = {True: 2**21, False: 2**17}  # in one go; fused kernels need 200 bytes for each, plain operations 2,000


class Passes(NamedTuple):
    """The two costly steps.

    Both take colours, (n, 3, H + 2 reach, W + 2 reach), with infinity around each photo.
    """

    density: Callable[[Tensor, Quickshift], Tensor]  # (n, H, W)
    parent: Callable[[Tensor, Tensor, Quickshift], Tensor]  # of colours and densities: (n, H W), places in the photo


def quickshift(images: Sequence[Photo], how: Quickshift, device: str = "cuda") -> list[IntArray]:
    """The label map of each photo; those of one size are segmented together."""
    try:
        return _by_size(images, how, device)
    except torch.OutOfMemoryError:  # others have filled the device
        return [quickshift_on_host(image, how) for image in images]


def _by_size(images: Sequence[Photo], how: Quickshift, device: str) -> list[IntArray]:
    maps: dict[int, IntArray] = {}
    passes = fused(how, device) or EAGER
    for height, width in dict.fromkeys(image.shape[:2] for image in images):
        alike = [k for k, image in enumerate(images) if image.shape[:2] == (height, width)]
        many = max(1, _PIXELS[passes is not EAGER] // (height * width))
        for some in (alike[start : start + many] for start in range(0, len(alike), many)):
            stack = torch.from_numpy(np.stack([images[k] for k in some]))
            with _own_stream(device):
                labels = segments(stack.to(device), how, passes).cpu().numpy()
            maps.update(zip(some, labels.astype(np.intp), strict=True))
    return [maps[k] for k in range(len(images))]


def _own_stream(device: str) -> AbstractContextManager[object]:
    """A queue of its own on a GPU, before others: a network may have filled the common one for a long time."""
    return torch.cuda.stream(_stream(device)) if device.startswith("cuda") else nullcontext()


@lru_cache(maxsize=4)
def _stream(device: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def segments(images: Tensor, how: Quickshift, passes: Passes, dtype: torch.dtype = torch.float64) -> Tensor:
    """The label maps, (n, H, W), of photos of one size, (n, H, W, 3) bytes, on their device."""
    count, height, width = images.shape[:3]
    colours = _padded(_features(images, how).to(dtype), how.reach, float("inf"))
    densities = passes.density(colours, how) + _noise(how.rng, height, width, images.device, dtype)
    return _labels(passes.parent(colours, densities, how)).view(count, height, width)


def _padded(values: Tensor, reach: int, value: float) -> Tensor:
    return torch.nn.functional.pad(values, (reach,) * 4, value=value)


def _features(images: Tensor, how: Quickshift) -> Tensor:
    """The colours between which distances are taken, (n, 3, H, W)."""
    if how.sigma or not how.convert2lab:
        host = images.cpu().numpy()
        return torch.from_numpy(np.stack([features(image, how) for image in host])).to(images.device)
    linear, xyz = _constants(images.device)
    red, green, blue = linear[images.long()].unbind(-1)
    light = red[:, None] * xyz[0] + green[:, None] * xyz[1] + blue[:, None] * xyz[2]
    light = torch.where(light > 0.008856, light.pow(1.0 / 3.0), 7.787 * light + 16.0 / 116.0)
    x, y, z = light.unbind(1)
    return torch.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], dim=1) * how.ratio


@lru_cache(maxsize=4)
def _constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """Light of a byte, and what red, green and blue light add to X, Y and Z, relative to white, (3, 3, 1, 1)."""
    xyz = XYZ.T / WHITE
    return torch.from_numpy(LINEAR).to(device), torch.from_numpy(xyz).to(device)[:, :, None, None]


@lru_cache(maxsize=4)
def _noise(rng: int, height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(noise(rng, height, width).copy()).to(device, dtype)


def _labels(parent: Tensor) -> Tensor:
    """The number of each pixel's tree, (n, H W); trees are numbered in the order of their roots."""
    pixels = parent.shape[1]
    for _ in range((pixels - 1).bit_length()):  # enough for a path through all pixels: to ask would be to wait
        parent = parent.gather(1, parent)
    is_root = parent == torch.arange(pixels, device=parent.device)
    numbers = is_root.cumsum(dim=1, dtype=torch.int32) - 1
    return numbers.gather(1, parent)


# -- plain operations: all neighbours in one row of the window at a time -----------------------------


def _eager_density(colours: Tensor, how: Quickshift) -> Tensor:
    shape = _size(colours, how.reach)
    total = torch.zeros((len(colours), *shape), dtype=colours.dtype, device=colours.device)
    for down in range(-how.reach, how.reach + 1):
        total = density_of_row(total, colours, down, how.reach, how.falloff)
    return total


def _eager_parent(colours: Tensor, densities: Tensor, how: Quickshift) -> Tensor:
    height, width = _size(colours, how.reach)
    around = _padded(densities, how.reach, float("-inf"))
    closest = torch.full_like(densities, float("inf"))
    itself = torch.arange(height * width, device=colours.device).view(height, width)
    parent = itself.expand(densities.shape)
    for down in range(-how.reach, how.reach + 1):
        closest, parent = parent_in_row(closest, parent, colours, around, down, how.reach)
    return torch.where(closest.sqrt() > how.max_dist, itself, parent).flatten(1)


def density_of_row(total: Tensor, colours: Tensor, down: int, reach: int, falloff: float) -> Tensor:
    """The densities with what neighbours ``down`` rows below add."""
    return total + (_distances(colours, down, reach) * falloff).exp().sum(dim=-1)


def parent_in_row(
    closest: Tensor, parent: Tensor, colours: Tensor, around: Tensor, down: int, reach: int
) -> tuple[Tensor, Tensor]:
    """The squared distance and place of the nearest of higher density, up to ``down`` rows below."""
    height, width = closest.shape[1:]
    others = _row_of_window(around, down, reach, height)
    own = around[:, reach : reach + height, reach : reach + width, None]
    distances = torch.where(others > own, _distances(colours, down, reach), float("inf"))
    right = distances.argmin(dim=-1, keepdim=True)  # the first of several
    nearest = distances.gather(-1, right)[..., 0]
    itself = torch.arange(height * width, device=closest.device).view(height, width)
    place = itself + (down * width - reach) + right[..., 0]
    better = nearest < closest
    return torch.where(better, nearest, closest), torch.where(better, place, parent)


def _distances(colours: Tensor, down: int, reach: int) -> Tensor:
    """The squared distances to all neighbours ``down`` rows below, (n, H, W, 2 reach + 1)."""
    height, width = _size(colours, reach)
    own = colours[:, :, reach : reach + height, reach : reach + width, None]
    between = own - _row_of_window(colours, down, reach, height)
    first, second, third = (between * between).unbind(1)
    right = torch.arange(-reach, reach + 1, device=colours.device)
    return first + second + third + down * down + right * right  # in the order in which scikit-image adds


def _row_of_window(padded: Tensor, down: int, reach: int, height: int) -> Tensor:
    return padded[..., reach + down : reach + down + height, :].unfold(-1, 2 * reach + 1, 1)


def _size(colours: Tensor, reach: int) -> tuple[int, int]:
    return colours.shape[-2] - 2 * reach, colours.shape[-1] - 2 * reach


EAGER = Passes(_eager_density, _eager_parent)


# -- fused kernels -----------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def fused(how: Quickshift, device: str = "cuda") -> Passes | None:
    """Triton's kernels, or None where they do not run: some systems have no Triton, or no compiler for it."""
    try:
        from c2fa.maskers._quickshift_triton import density, parent

        one_pixel = _padded(torch.zeros((1, 3, 1, 1), dtype=torch.float64, device=device), how.reach, float("inf"))
        parent(one_pixel, density(one_pixel, how), how)  # compiles them; photos of all sizes are segmented by the same
    except Exception:  # Triton raises whatever its compiler and driver do
        return None
    return Passes(density, parent)
