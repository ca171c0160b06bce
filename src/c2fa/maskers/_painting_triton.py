"""Masked images as one Triton kernel: a single launch reads and writes each entry of all rows once."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def paint(bits: Tensor, labels: Tensor, values: Tensor, baseline: Tensor, out: Tensor, block: int = 2048) -> None:
    """Write an image into each row of out, with the baseline where the segment of an entry is masked.

    Labels, values and baseline have one shape; they are contiguous, as are bits, (n, segments), and each row of out,
    while rows may lie apart. A block has the entries of one program: each of its 128 threads writes 16, at once where
    they are bytes.
    """
    # To copy is not to calculate: one kernel serves all types of one width, also those that Triton does not know.
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    blocks = triton.cdiv(values.numel(), block)
    with torch.cuda.device_of(out):  # Triton launches on the current device, which may be another
        # The grid has one axis, since the others end at 65,535.
        _paint[(len(bits) * blocks,)](
            bits.view(torch.uint8), labels, values.view(kind), baseline.view(kind), out.view(kind),
            bits.shape[1], values.numel(), out.stride(0), blocks, BLOCK=block, num_warps=4,
        )  # fmt: skip


# Sizes and strides are specialised, since multiples of 16 make for wide reads and writes.
@triton.jit(do_not_specialize=["segments", "blocks"])
def _paint(bits, labels, values, baseline, out, segments, size, stride, blocks, BLOCK: tl.constexpr) -> Any:
    row = (tl.program_id(0) // blocks).to(tl.int64)  # 32 bits cannot count the entries of a large batch
    entry = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = entry < size
    label = tl.load(labels + entry, mask=inside, other=0)
    kept = tl.load(bits + row * segments + label, mask=inside, other=0) != 0
    value = tl.load(values + entry, mask=inside)
    masked = tl.load(baseline + entry, mask=inside)
    tl.store(out + row * stride + entry, tl.where(kept, value, masked), mask=inside)
