"""The two costly steps of quickshift as Triton kernels: all neighbours of a block of pixels in one launch.

Multiplications and additions are not fused into one rounding, since ties between distances are decided in the last bit.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from c2fa.maskers._segmenting import Quickshift, shifts

_BLOCK = 64  # pixels of one program of the densities
_FEW = 32  # pixels that search together: all go on until the last has found its parent
_STEP = 8  # neighbours between two looks at whether to go on


def density(colours: Tensor, how: Quickshift, block: int = _BLOCK, warps: int = 2) -> Tensor:
    """The densities of all pixels, (n, H, W)."""
    height, width = _size(colours, how)
    total = torch.empty((len(colours), height, width), dtype=colours.dtype, device=colours.device)
    grid = (triton.cdiv(height * width, block), len(colours))
    _density[grid](
        colours, _numbers(how, colours.device), total, height, width,
        REACH=how.reach, BLOCK=block, num_warps=warps, enable_fp_fusion=False,
    )  # fmt: skip
    return total


def parent(colours: Tensor, densities: Tensor, how: Quickshift, block: int = _FEW, warps: int = 1) -> Tensor:
    """For each pixel the nearest of higher density within reach and ``max_dist``, or itself, (n, H W)."""
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
    """What kernels need of the options; a number that is handed to a kernel as such loses half of its digits."""
    return torch.tensor([how.falloff, how.max_dist], dtype=torch.float64, device=device)


@lru_cache(maxsize=16)
def _shifts(reach: int, device: torch.device) -> Tensor:
    """Squared distance, rows and columns to each neighbour, the nearest first; the last is repeated to full steps."""
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
    # No neighbour that is not seen yet is nearer than this; one just as near may still come first in the photo.
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
