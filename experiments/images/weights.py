"""Reads and writes tensors in the safetensors format, in one file or in parts, with nothing but numpy.

The format is eight bytes with the length of a header, the header (JSON: of each tensor its type, its shape and where
its bytes lie), then the bytes. A file too large for the place it has to go through is written as parts, ``NAME.00``,
``NAME.01``, …, which are read as if they were one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

_TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8")}
_CODES = {dtype: code for code, dtype in _TYPES.items()}


def read(path: str | Path) -> Arrays:
    """The tensors of a file, or of its parts where the file itself is not there."""
    data = _bytes(Path(path))
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        if entry["dtype"] not in _TYPES:
            raise ValueError(f"{name} in {path} has the type {entry['dtype']}; this reader knows {sorted(_TYPES)}")
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[start + begin : start + end], _TYPES[entry["dtype"]])
        arrays[name] = flat.reshape(entry["shape"]).copy()
    return arrays


def write(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], part: int | None = None) -> list[Path]:
    """Write tensors to a file, or to parts of at most so many bytes; return what was written."""
    path = Path(path)
    header, chunks, at = {}, [], 0
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):  # wide types first: aligned
        array = np.ascontiguousarray(arrays[name])
        chunks.append(array.tobytes())
        where = [at, at := at + len(chunks[-1])]
        header[name] = {"dtype": _CODES[array.dtype], "shape": list(array.shape), "data_offsets": where}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join((len(text).to_bytes(8, "little"), text, *chunks))
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in (path, *_parts(path)):
        old.unlink(missing_ok=True)
    if part is None:
        path.write_bytes(data)
        return [path]
    written = []
    for k, begin in enumerate(range(0, len(data), part)):
        written.append(path.with_name(f"{path.name}.{k:02d}"))
        written[-1].write_bytes(data[begin : begin + part])
    return written


def _bytes(path: Path) -> bytes:
    if path.exists():
        return path.read_bytes()
    parts = _parts(path)
    if not parts:
        raise FileNotFoundError(f"there are no weights at {path}, and no parts of them such as {path.name}.00")
    return b"".join(part.read_bytes() for part in parts)


def _parts(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.[0-9][0-9]"))
