"""Pictures inside a page: small, inline, without a library where none is installed."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from c2fa.views.pixels import SIDE, Pixels, shrink

_SIDES = (SIDE, 384, 288, 224, 160, 112, 80, 56)


def b64(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")


def png(image: Pixels) -> bytes:
    """An image, (H, W, 3), as a PNG file."""
    height, width = image.shape[:2]
    lines = np.concatenate(
        (np.zeros((height, 1), dtype=np.uint8), np.ascontiguousarray(image).reshape(height, -1)), axis=1
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def data_uri(image: Pixels) -> str:
    """An image as an address that holds it: JPEG where Pillow is installed and saves room, else PNG."""
    found = png(image)
    best = "image/png", found
    if len(found) > 3000:
        try:
            from PIL import Image
        except ImportError:
            pass
        else:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "JPEG", quality=82, optimize=True)
            best = min(best, ("image/jpeg", file.getvalue()), key=lambda pair: len(pair[1]))
    return f"data:{best[0]};base64,{b64(best[1])}"


def fitting_side(images: Sequence[Pixels], room: int) -> int:
    """The largest side at which all images together take about ``room`` bytes, judged by a few of them."""
    sample = images[:: max(1, len(images) // 4)][:4]
    for side in _SIDES:
        mean = sum(len(data_uri(shrink(image, side))) for image in sample) / max(len(sample), 1)
        if mean * len(images) <= room:
            return side
    return _SIDES[-1]


def runs(labels: npt.NDArray[np.intp]) -> str:
    """A label map as runs of equal labels, (label, length) in variable-length bytes."""
    flat = labels.ravel()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(flat)) + 1))
    lengths = np.diff(np.append(starts, len(flat)))
    out = bytearray()
    for label, length in zip(flat[starts].tolist(), lengths.tolist(), strict=True):
        for number in (label, length):
            while number > 127:
                out.append(number & 127 | 128)
                number >>= 7
            out.append(number)
    return b64(bytes(out))
