"""A photo of 3000 x 2000 pixels, from its file to its saved explanation: ``python benchmarks/photo.py [FOLDER]``.

It prints how long segmenting and explaining take and how large the files are, which stay in FOLDER where one is given.
The network is small and untrained: what it sees does not matter here, only that it is asked as a real one is. It takes
the masked photos at full size and resizes them itself.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from skimage import data

import c2fa

SIZE = 3000, 2000
ROWS = 200


def write_photo(path: Path) -> None:
    """A photograph that comes with scikit-image, at the size and with the noise of a camera's."""
    large = np.asarray(Image.fromarray(data.coffee()).resize(SIZE, Image.Resampling.BICUBIC), dtype=np.float32)
    noise = np.random.default_rng(0).normal(0, 5, large.shape).astype(np.float32)
    Image.fromarray(np.clip(large + noise, 0, 255).astype(np.uint8)).save(path, quality=92)


class Network:
    """Three convolutions over photos that were resized to 224 x 224."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers: list[torch.nn.Module] = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            layers += [torch.nn.Conv2d(before, after, 3, stride=2, padding=1), torch.nn.ReLU()]
        self.net = torch.nn.Sequential(
            *layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)
        )

    def __call__(self, photos: Sequence[Any]) -> np.ndarray[Any, Any]:
        small = [np.asarray(photo.resize((224, 224), Image.Resampling.BILINEAR, reducing_gap=2.0)) for photo in photos]
        batch = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            return torch.softmax(40 * self.net(batch), dim=1).numpy()  # so that masking moves the probabilities


def timed(work: Callable[[], Any]) -> tuple[Any, str]:
    """What it returns, and what it takes: by the clock, and of the processor where other processes want it too."""
    clock, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, f"{time.perf_counter() - clock:.1f} s ({time.process_time() - processor:.1f} s of CPU)"


def main(folder: Path) -> None:
    photo = folder / "photo.jpg"
    write_photo(photo)
    masker = c2fa.maskers.ImageBag(fill="mean")
    structure, segmenting = timed(lambda: masker(photo).structure)
    explainer = c2fa.Explainer(Network(), masker, budget=ROWS, outputs="target", progress=False)
    e, explaining = timed(lambda: explainer(photo))
    (heat,) = e.heatmap()
    print(f"{SIZE[0]} x {SIZE[1]} pixels, {structure.leaves} super-pixels, a heat map of {heat.shape}")
    print(f"read, segmented and ready to be masked in {segmenting}")
    print(f"explained with {e.queries} rows, from the file on, in {explaining}")
    for warning in e.diagnostics.warnings:
        print(f"! {warning}")
    e.save(folder / "photo.json")
    e.to_html(folder / "photo.html")
    for name in ("photo.jpg", "photo.json", "photo.html"):
        print(f"{name:<11} {(folder / name).stat().st_size / 1e6:5.2f} MB")
    e.plot().savefig(folder / "photo.png", dpi=130)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
