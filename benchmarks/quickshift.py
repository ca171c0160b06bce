"""Milliseconds a photo that quickshift takes, and whether its segments are scikit-image's.

    python benchmarks/quickshift.py [--photos photos.npz] [--device cuda] [--check 50]

The archive holds one array of bytes, (n, 224, 224, 3), under any name; without it photos are made up. The candidates
are numpy and scikit-image on one core, and on the device torch's plain operations, Triton's kernels and the plain
operations compiled. Times are the best of three, of label maps on the host from photos on the host.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from skimage.segmentation import quickshift

from c2fa.maskers import _quickshift_gpu as gpu
from c2fa.maskers import _segmenting as segmenting

OPTIONS = {"kernel_size": 4, "max_dist": 200, "ratio": 0.2}  # LIME's
HOW = segmenting.Quickshift(**OPTIONS)
BATCHES = (4, 32, 128)


def made_up(count: int) -> np.ndarray:
    """Photos of soft blobs and grain."""
    rng = np.random.default_rng(0)
    blobs = gaussian_filter(rng.normal(size=(count, 224, 224, 3)), (0, 12, 12, 0))
    blobs = 128 + 60 * blobs / blobs.std() + rng.normal(scale=6, size=blobs.shape)
    return blobs.clip(0, 255).astype(np.uint8)


def triton_passes(block: int, warps: int, few: int, few_warps: int = 1) -> gpu.Passes:
    from c2fa.maskers import _quickshift_triton as kernels

    return gpu.Passes(
        lambda colours, how: kernels.density(colours, how, block, warps),
        lambda colours, densities, how: kernels.parent(colours, densities, how, few, few_warps),
    )


@cache
def compiled_passes() -> gpu.Passes:
    """The plain operations, each row of the window in one kernel that torch.compile makes."""
    gpu.density_of_row = torch.compile(gpu.density_of_row, dynamic=True)
    gpu.parent_in_row = torch.compile(gpu.parent_in_row, dynamic=True)
    return gpu.EAGER


def segment(photos: np.ndarray, passes: gpu.Passes, dtype: torch.dtype, device: str) -> np.ndarray:
    return gpu.segments(torch.from_numpy(photos).to(device), HOW, passes, dtype).cpu().numpy()


def timed(*arguments: Any) -> float:
    start = time.perf_counter()
    segment(*arguments)
    return time.perf_counter() - start


def race(
    name: str,
    make: Callable[[], gpu.Passes],
    photos: np.ndarray,
    right: np.ndarray,
    device: str,
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32),
) -> None:
    """Print a line for each type of number; a candidate that fails says so, and the next one starts."""
    for dtype in dtypes:
        label = f"{name}, {str(dtype).removeprefix('torch.')}"
        try:
            how = make(), dtype, device
            first = timed(photos[:4], *how)
            times = []
            for batch in BATCHES:
                timed(photos[:batch], *how)
                times.append(1e3 * min(timed(photos[:batch], *how) for _ in range(3)) / batch)
            found = np.concatenate([segment(part, *how) for part in chunks(photos[: len(right)])])
        except Exception as error:
            print(f"{label:42} failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        print(
            f"{label:42} {' '.join(f'{each:8.3f}' for each in times)}   first {first:6.2f} s   "
            f"{np.mean(found == right):.6f} of pixels, {same(found, right)} of {len(right)} maps",
            flush=True,
        )


def chunks(photos: np.ndarray) -> list[np.ndarray]:
    return [photos[start : start + 16] for start in range(0, len(photos), 16)]


def same(found: np.ndarray, right: np.ndarray) -> int:
    return int((found == right).all(axis=(1, 2)).sum())


def steps(photos: np.ndarray, device: str) -> None:
    """Where the time of a batch of four goes, kernel by kernel."""
    from torch.profiler import ProfilerActivity, profile

    segment(photos[:4], gpu.fused(HOW, device) or gpu.EAGER, torch.float64, device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        segment(photos[:4], gpu.fused(HOW, device) or gpu.EAGER, torch.float64, device)
    print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=50))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", help="an .npz with bytes of shape (n, 224, 224, 3)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--check", type=int, default=50, help="photos compared with scikit-image")
    parser.add_argument("--steps", action="store_true", help="also print where the time of a batch of four goes")
    a = parser.parse_args()
    photos = next(iter(np.load(a.photos).values())) if a.photos else made_up(max(BATCHES))
    if len(photos) < max(BATCHES):
        photos = np.concatenate([photos] * (max(BATCHES) // len(photos) + 1))[: max(BATCHES)]
    photos = np.ascontiguousarray(photos)
    print(f"{'ms a photo, in batches of':42} {' '.join(f'{batch:>8}' for batch in BATCHES)}")

    start = time.perf_counter()
    right = np.stack([quickshift(photo, **OPTIONS) for photo in photos[: a.check]])
    print(f"{'scikit-image, one core':42} {1e3 * (time.perf_counter() - start) / len(right):8.1f}", flush=True)
    start = time.perf_counter()
    found = np.stack([segmenting.quickshift(photo, HOW) for photo in photos[: a.check]])
    spent = 1e3 * (time.perf_counter() - start) / len(right)
    print(f"{'numpy, one core':42} {spent:8.1f}   {same(found, right)} of {len(right)} maps", flush=True)

    if a.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: the other candidates are left out")
        return
    race("Triton", lambda: triton_passes(128, 4, 32), photos, right, a.device)
    race("Triton, blocks of 64 and 32", lambda: triton_passes(64, 2, 32), photos, right, a.device)
    race("Triton, blocks of 256 and 64", lambda: triton_passes(256, 4, 64), photos, right, a.device)
    race("Triton, blocks of 256 and 128", lambda: triton_passes(256, 8, 128, 4), photos, right, a.device)
    race("plain operations", lambda: gpu.EAGER, photos, right, a.device)
    race("plain operations, compiled", compiled_passes, photos, right, a.device, (torch.float64,))
    if a.steps:
        steps(photos, a.device)


if __name__ == "__main__":
    main()
