"""Arrays in safetensors files, with numpy alone: read, written, squeezed and cut into parts.

Asked for `x.safetensors`, `read_arrays` takes whichever spelling of it there is, in this order:

- `x.safetensors`, the plain format, as everyone else reads it;
- `x.safetensors.part0`, `.part1` and so on, the same bytes cut into parts that are small enough to be sent;
- `x.npz`, the same bytes squeezed without loss (the high bytes of half-precision numbers are alike).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]

_KINDS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "<u1", "U16": "<u2"}
_CODES = {np.dtype(kind): code for code, kind in _KINDS.items()}


def to_bytes(arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, str] | None = None) -> bytes:
    """Arrays, and a few words about them, in the safetensors format.

    >>> arrays, about = from_bytes(to_bytes({"a": np.arange(3, dtype=np.float16)}, {"heads": "2"}))
    >>> arrays["a"], about
    (array([0., 1., 2.], dtype=float16), {'heads': '2'})
    """
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    blobs, at = [], 0
    for name in sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n)):  # widest first: all stay aligned
        array = np.ascontiguousarray(arrays[name])
        if array.dtype not in _CODES:
            raise ValueError(f"{name} holds {array.dtype}, which is not written here: turn it into one of {_KINDS}")
        end = at + array.nbytes
        header[name] = {"dtype": _CODES[array.dtype], "shape": list(array.shape), "data_offsets": [at, end]}
        blobs.append(array.tobytes())
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *blobs])


def from_bytes(data: bytes) -> tuple[Arrays, dict[str, str]]:
    """The arrays of safetensors bytes, and the words about them."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise ValueError(f"{len(data)} bytes are no whole safetensors file: copy or join it again")
    header = json.loads(data[8 : 8 + size])
    about = header.pop("__metadata__", {})
    arrays: Arrays = {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        if end > len(data):
            raise ValueError(f"the file ends inside {name}: copy or join it again")
        arrays[name] = np.frombuffer(data[begin:end], _KINDS[entry["dtype"]]).reshape(entry["shape"])
    return arrays, about


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays at a path, be they plain, squeezed (`.npz`) or in parts, and the words about them."""
    path = Path(path)
    if not path.exists():
        parts = sorted(path.parent.glob(path.name + ".part*"), key=lambda p: int(p.name.rpartition("part")[2]))
        if not parts and path.with_suffix(".npz").exists():
            return read_arrays(path.with_suffix(".npz"))
        if not parts:
            raise FileNotFoundError(f"there are no weights at {path}, nor parts of them: train or prepare them first")
        return from_bytes(b"".join(part.read_bytes() for part in parts))
    if path.suffix == ".npz":
        with np.load(path) as planes:
            return from_bytes(np.stack([planes["low"], planes["high"]], 1).tobytes()[: int(planes["size"])])
    return from_bytes(path.read_bytes())


def write_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    about: Mapping[str, str] | None = None,
    part_mib: float | None = None,
) -> list[Path]:
    """Writes arrays as the path's ending asks, in parts of at most `part_mib` MiB if that is given.

    Returns
    -------
    list of Path
        The files written. What an earlier call left at the path, whole or in parts, is removed.
    """
    path = Path(path)
    if path.suffix == ".npz" and part_mib:
        raise ValueError(f"{path.name} cannot be cut into parts: end its name in .safetensors")
    data = to_bytes(arrays, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in (path, *path.parent.glob(path.name + ".part*")):
        old.unlink(missing_ok=True)
    if path.suffix == ".npz":
        pairs = np.frombuffer(data + b"\0" * (len(data) % 2), np.uint8).reshape(-1, 2)
        np.savez_compressed(path, low=pairs[:, 0], high=pairs[:, 1], size=np.array(len(data)))
        return [path]
    if not part_mib:
        path.write_bytes(data)
        return [path]
    step = max(1, int(part_mib * 2**20))
    parts = [path.with_name(f"{path.name}.part{i}") for i in range(-(-len(data) // step))]
    for i, part in enumerate(parts):
        part.write_bytes(data[i * step : (i + 1) * step])
    return parts
