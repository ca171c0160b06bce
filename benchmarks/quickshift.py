"""Milliseconds a photo that quickshift takes, and whether its segments are scikit-image's.

    python benchmarks/quickshift.py [--photos photos.npz] [--device cuda] [--check 50]

The archive holds one array of bytes, (n, 224, 224, 3), under any name; without it photos are made up. The candidates
are numpy and scikit-image on one core, and on the device Triton's kernels and torch's plain operations. Times are the
best of three, of label maps on the host from photos on the host.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from scipy.optimize import linear_sum_assignment
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


def segment(photos: np.ndarray, passes: gpu.Passes, dtype: torch.dtype, device: str) -> np.ndarray:
    return gpu.segments(torch.from_numpy(photos).to(device), HOW, passes, dtype).cpu().numpy()


def timed(*arguments: Any) -> float:
    start = time.perf_counter()
    segment(*arguments)
    return time.perf_counter() - start


def race(name: str, passes: gpu.Passes, photos: np.ndarray, right: np.ndarray, device: str) -> None:
    """Print a line for each type of number; the package takes the first."""
    for dtype in (torch.float64, torch.float32):
        how = passes, dtype, device
        first = timed(photos[:4], *how)
        times = []
        for batch in BATCHES:
            timed(photos[:batch], *how)
            times.append(1e3 * min(timed(photos[:batch], *how) for _ in range(3)) / batch)
        found = np.concatenate([segment(part, *how) for part in chunks(photos[: len(right)])])
        label = f"{name}, {str(dtype).removeprefix('torch.')}"
        print(
            f"{label:32} {' '.join(f'{each:8.3f}' for each in times)}   first {first:6.2f} s   "
            f"{np.mean(list(map(agreement, found, right))):.4f} of pixels, {same(found, right)} of {len(right)} maps",
            flush=True,
        )


def agreement(found: np.ndarray, right: np.ndarray) -> float:
    """The share of pixels that are in the same segments, whatever the segments' numbers."""
    overlap = np.zeros((found.max() + 1, right.max() + 1), dtype=int)
    np.add.at(overlap, (found.ravel(), right.ravel()), 1)
    rows, columns = linear_sum_assignment(-overlap)
    return float(overlap[rows, columns].sum() / found.size)


def chunks(photos: np.ndarray) -> list[np.ndarray]:
    return [photos[start : start + 16] for start in range(0, len(photos), 16)]


def same(found: np.ndarray, right: np.ndarray) -> int:
    return int((found == right).all(axis=(1, 2)).sum())


def compare(photos: np.ndarray, device: str = "cuda", check: int = 50) -> None:
    """Print a line for each candidate."""
    if len(photos) < max(BATCHES):
        photos = np.concatenate([photos] * (max(BATCHES) // len(photos) + 1))[: max(BATCHES)]
    photos = np.ascontiguousarray(photos)
    print(f"{'ms a photo, in batches of':32} {' '.join(f'{batch:>8}' for batch in BATCHES)}")
    start = time.perf_counter()
    right = np.stack([quickshift(photo, **OPTIONS) for photo in photos[:check]])
    print(f"{'scikit-image, one core':32} {1e3 * (time.perf_counter() - start) / len(right):8.1f}", flush=True)
    start = time.perf_counter()
    found = np.stack([segmenting.quickshift(photo, HOW) for photo in photos[:check]])
    spent = 1e3 * (time.perf_counter() - start) / len(right)
    print(f"{'numpy, one core':32} {spent:8.1f}   {same(found, right)} of {len(right)} maps", flush=True)
    fused = gpu.fused(HOW, device)
    if fused is not None:
        race("fused kernels", fused, photos, right, device)
    race("plain operations", gpu.EAGER, photos, right, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", help="an .npz with bytes of shape (n, 224, 224, 3)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--check", type=int, default=50, help="photos compared with scikit-image")
    a = parser.parse_args()
    photos = next(iter(np.load(a.photos).values())) if a.photos else made_up(max(BATCHES))
    compare(photos, a.device, a.check)


if __name__ == "__main__":
    main()
