"""Whether masking keeps a GPU busy: images a second of whole explanations beside the bare network's.

    python benchmarks/gpu.py [--device cuda] [--rows 2000] [--batch 256]

A bag of four images, a ResNet-50 (untrained: the figures do not depend on its weights) whose features are added up,
masks and masked images made on the network's own device. The bare network is timed on as many images of the same
shape, in the same batches, made beforehand.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torchvision.models import resnet50

import c2fa


class DeepSets(torch.nn.Module):
    """A sum over a bag's images of a convolutional network's features, then two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = resnet50()
        self.phi.fc = torch.nn.Identity()
        self.rho = torch.nn.Sequential(torch.nn.Linear(2048, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 2))

    def forward(self, bags: torch.Tensor) -> torch.Tensor:
        n, images = bags.shape[:2]
        flat = bags.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return self.rho(self.phi(flat).view(n, images, -1).sum(dim=1)).float().softmax(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=256)
    a = parser.parse_args()
    half = a.device != "cpu"
    model = DeepSets().to(a.device, memory_format=torch.channels_last).eval()
    model = model.half() if half else model
    bag = [torch.rand(3, 224, 224, device=a.device, dtype=torch.half if half else torch.float) for _ in range(4)]
    grid = np.arange(224) // 28
    labels = [grid[:, None] * 8 + grid for _ in bag]
    masker = c2fa.maskers.ImageBag(segment=labels, absent="fill")
    wrapped = c2fa.models.Torch(model, device=a.device, batch=a.batch)
    explainer = c2fa.Explainer(wrapped, masker, budget=(20, a.rows), batch_size=a.batch)
    batch = torch.stack([torch.stack(bag)] * a.batch)

    def wait() -> None:
        if half:
            torch.cuda.synchronize()

    def bare(rows: int) -> None:
        with torch.inference_mode():
            for start in range(0, rows, a.batch):
                model(batch[: min(a.batch, rows - start)])
        wait()

    def clock(run: object, *args: object) -> tuple[float, object]:
        wait()
        start = time.perf_counter()
        result = run(*args)  # type: ignore[operator]
        wait()
        return time.perf_counter() - start, result

    bare(4 * a.batch)
    explainer(bag)
    for _ in range(3):
        whole, e = clock(explainer, bag)
        alone, _ = clock(bare, e.queries)  # type: ignore[attr-defined]
        rows = e.queries  # type: ignore[attr-defined]
        print(
            f"{rows} rows of 4 images, batches of {a.batch}: bare {4 * rows / alone:,.0f} images/s, whole explanation "
            f"{4 * rows / whole:,.0f} images/s, {alone / whole:.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
