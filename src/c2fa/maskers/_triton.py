"""Quickshift on a GPU, by Triton's kernels. Import this only where torch is loaded.

One launch covers all neighbours of all pixels of many photos, and nothing waits for the device until the labels are
copied back. Products and sums are rounded one by one (no fused multiply-add), because the last bit decides ties.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from c2fa.maskers._quickshift import LINEAR, WHITE, XYZ, Photo, Quickshift, noise, shifts
from c2fa.structure import IntArray

_STEP = 8  # neighbours between two checks of whether to go on


@lru_cache(maxsize=16)
def runs(how: Quickshift) -> bool:
    """Whether the kernels run here: some systems have no compiler for them. Photos of all sizes share them."""
    try:
        segments(torch.zeros((1, 1, 1, 3), dtype=torch.uint8, device="cuda"), how)
    except Exception:  # Triton raises whatever its compiler and driver do
        return False
    return True


def quickshift(images: Sequence[Photo], how: Quickshift, pixels: int = 2**21) -> list[IntArray]:
    """The label map of each photo; photos of one size are segmented together, up to so many ``pixels`` at a time.

    A pixel takes 200 bytes of the GPU's memory.
    """
    maps: dict[int, IntArray] = {}
    for height, width in dict.fromkeys(image.shape[:2] for image in images):
        alike = [k for k, image in enumerate(images) if image.shape[:2] == (height, width)]
        many = max(1, pixels // (height * width))
        for start in range(0, len(alike), many):
            chunk = alike[start : start + many]
            stack = torch.from_numpy(np.stack([images[k] for k in chunk]))
            with torch.cuda.stream(_stream()):
                labels = segments(stack.to("cuda"), how).cpu().numpy()
            maps.update(zip(chunk, labels.astype(np.intp), strict=True))
    return [maps[k] for k in range(len(images))]


@lru_cache(maxsize=1)
def _stream() -> torch.cuda.Stream:
    """A stream with priority, because a network may have filled the common one with long work."""
    return torch.cuda.Stream(priority=-1)


def segments(images: Tensor, how: Quickshift) -> Tensor:
    """The label maps, (n, H, W), of photos of one size, (n, H, W, 3) bytes, on their device."""
    count, height, width = images.shape[:3]
    colours = torch.nn.functional.pad(_features(images, how), (how.reach,) * 4, value=float("inf"))
    densities = density(colours, how) + _noise(height, width, images.device)
    return _labels(parent(colours, densities, how)).view(count, height, width)


def _features(images: Tensor, how: Quickshift) -> Tensor:
    """The colours between which distances are taken, (n, 3, H, W)."""
    linear, xyz = _constants(images.device)
    red, green, blue = linear[images.long()].unbind(-1)
    light = red[:, None] * xyz[0] + green[:, None] * xyz[1] + blue[:, None] * xyz[2]
    light = torch.where(light > 0.008856, light.pow(1.0 / 3.0), 7.787 * light + 16.0 / 116.0)
    x, y, z = light.unbind(1)
    return torch.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], dim=1) * how.ratio


@lru_cache(maxsize=4)
def _constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """The light of each byte, and the X, Y and Z of red, green and blue light relative to white, (3, 3, 1, 1)."""
    xyz = XYZ.T / WHITE
    return torch.from_numpy(LINEAR).to(device), torch.from_numpy(xyz).to(device)[:, :, None, None]


@lru_cache(maxsize=4)
def _noise(height: int, width: int, device: torch.device) -> Tensor:
    return torch.from_numpy(noise(height, width).copy()).to(device)


def _labels(parent: Tensor) -> Tensor:
    """The number of each pixel's tree, (n, H W); trees are numbered in the order of their roots."""
    pixels = parent.shape[1]
    for _ in range((pixels - 1).bit_length()):  # enough for a path through all pixels; to check would be to wait
        parent = parent.gather(1, parent)
    is_root = parent == torch.arange(pixels, device=parent.device)
    numbers = is_root.cumsum(dim=1, dtype=torch.int32) - 1
    return numbers.gather(1, parent)


def density(colours: Tensor, how: Quickshift, block: int = 64, warps: int = 2) -> Tensor:
    height, width = _size(colours, how)
    total = torch.empty((len(colours), height, width), dtype=colours.dtype, device=colours.device)
    grid = (triton.cdiv(height * width, block), len(colours))
    _density[grid](
        colours, _numbers(how, colours.device), total, height, width,
        REACH=how.reach, BLOCK=block, num_warps=warps, enable_fp_fusion=False,
    )  # fmt: skip
    return total


def parent(colours: Tensor, densities: Tensor, how: Quickshift, block: int = 32, warps: int = 1) -> Tensor:
    """For each pixel the nearest pixel of higher density within reach and ``max_dist``, or itself, (n, H W).

    The pixels of a block search together, until the last one has found its parent.
    """
    height, width = _size(colours, how)
    around = torch.nn.functional.pad(densities, (how.reach,) * 4, value=float("-inf"))
    found = torch.empty((len(colours), height * width), dtype=torch.int64, device=colours.device)
    grid = (triton.cdiv(height * width, block), len(colours))
    _parent[grid](
        colours, around, _numbers(how, colours.device), _shifts(how.reach, colours.device), found, height, width,
        REACH=how.reach, STEP=_STEP, BLOCK=block, num_warps=warps, enable_fp_fusion=False,
    )  # fmt: skip
    return found


def _size(colours: Tensor, how: Quickshift) -> tuple[int, int]:
    return colours.shape[-2] - 2 * how.reach, colours.shape[-1] - 2 * how.reach


@lru_cache(maxsize=16)
def _numbers(how: Quickshift, device: torch.device) -> Tensor:
    """The options that kernels need, as a tensor: a plain number reaches a kernel with half of its digits."""
    return torch.tensor([how.falloff, how.max_dist], dtype=torch.float64, device=device)


@lru_cache(maxsize=16)
def _shifts(reach: int, device: torch.device) -> Tensor:
    """``shifts`` as a tensor, in which the last neighbour is repeated to fill the last step."""
    window = list(shifts(reach, reach + 1, reach + 1))
    window += window[-1:] * (-len(window) % _STEP + 1)
    return torch.tensor(window, dtype=torch.int32, device=device)


@triton.jit(do_not_specialize=["height", "width"])  # photos of all sizes share one compiled kernel
def _density(colours, numbers, total, height, width, REACH: tl.constexpr, BLOCK: tl.constexpr) -> Any:
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    photo = tl.program_id(1).to(tl.int64)
    inside = pixel < height * width
    pixel = tl.where(inside, pixel, 0)
    stride = width + 2 * REACH
    plane = stride * (height + 2 * REACH)
    here = colours + photo * 3 * plane + (pixel // width + REACH) * stride + pixel % width + REACH
    first = tl.load(here)
    second = tl.load(here + plane)
    third = tl.load(here + 2 * plane)
    falloff = tl.load(numbers).to(first.dtype)
    added = tl.zeros_like(first)
    for down in range(-REACH, REACH + 1):
        for right in range(-REACH, REACH + 1):
            there = here + (down * stride + right)
            a = first - tl.load(there)
            b = second - tl.load(there + plane)
            c = third - tl.load(there + 2 * plane)
            distance = a * a + b * b + c * c + down * down + right * right
            added += tl.exp(distance * falloff)
    tl.store(total + photo * height * width + pixel, added, mask=inside)


@triton.jit(do_not_specialize=["height", "width"])  # photos of all sizes share one compiled kernel
def _parent(
    colours, around, numbers, window, found, height, width,
    REACH: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr,
) -> Any:  # fmt: skip
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    photo = tl.program_id(1).to(tl.int64)
    inside = pixel < height * width
    pixel = tl.where(inside, pixel, 0)
    stride = width + 2 * REACH
    plane = stride * (height + 2 * REACH)
    place = (pixel // width + REACH) * stride + pixel % width + REACH
    here = colours + photo * 3 * plane + place
    densities = around + photo * plane + place
    first = tl.load(here)
    second = tl.load(here + plane)
    third = tl.load(here + 2 * plane)
    own = tl.load(densities)
    closest = tl.where(inside, float("inf"), -1.0).to(first.dtype)
    best = pixel
    seen = 0
    nearest = tl.load(window)
    # No later neighbour is nearer than ``nearest``; one that is just as near may come first in the photo.
    while (seen < (2 * REACH + 1) * (2 * REACH + 1) - 1) & (nearest <= tl.max(closest)):
        for k in range(STEP):
            down = tl.load(window + 3 * (seen + k) + 1)
            right = tl.load(window + 3 * (seen + k) + 2)
            there = here + (down * stride + right)
            a = first - tl.load(there)
            b = second - tl.load(there + plane)
            c = third - tl.load(there + 2 * plane)
            distance = a * a + b * b + c * c + down * down + right * right
            other = pixel + (down * width + right)
            nearer = (distance < closest) | ((distance == closest) & (other < best))
            better = nearer & (tl.load(densities + (down * stride + right)) > own)
            closest = tl.where(better, distance, closest)
            best = tl.where(better, other, best)
        seen += STEP
        nearest = tl.load(window + 3 * seen)
    max_dist = tl.load(numbers + 1).to(first.dtype)
    best = tl.where(tl.sqrt(closest) > max_dist, pixel, best)
    tl.store(found + photo * height * width + pixel, best.to(tl.int64), mask=inside)
