"""Arrays in safetensors files, with numpy alone: read, written, squeezed and cut into parts.

The format is eight bytes with the length of a header, the header (JSON: of each array its type, its shape and where its
bytes lie), then the bytes. Asked for ``x.safetensors``, ``read`` takes whichever spelling of it there is, in this
order:

- ``x.safetensors``, the plain format, as everyone else reads it;
- ``x.safetensors.part0``, ``.part1`` and so on (or ``.00``, ``.01``, …), the same bytes in parts, small enough to be
  sent;
- ``x.npz``, the same bytes squeezed without loss (the high bytes of half-precision numbers are alike).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

_KINDS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "<u1", "U16": "<u2"}
_CODES = {np.dtype(kind): code for code, kind in _KINDS.items()}
_PARTS = (re.compile(r"\.part(\d+)"), re.compile(r"\.(\d\d)"))


def present(path: str | Path) -> bool:
    """Whether there are weights at a path, in any spelling."""
    path = Path(path)
    return path.exists() or bool(_parts(path)) or path.with_suffix(".npz").exists()


def read(path: str | Path, how: str = "give the path of a safetensors file") -> tuple[Arrays, dict[str, str]]:
    """The arrays at a path, be they plain, in parts or squeezed, and the words about them.

    Parameters
    ----------
    path
        The file, without the number of a part.
    how
        What to do where there is none, for the error.
    """
    path = Path(path)
    if path.exists():
        return _unsqueezed(path) if path.suffix == ".npz" else from_bytes(path.read_bytes())
    if parts := _parts(path):
        return from_bytes(b"".join(part.read_bytes() for part in parts))
    if (squeezed := path.with_suffix(".npz")).exists():
        return _unsqueezed(squeezed)
    raise FileNotFoundError(f"there are no weights at {path}, nor parts of them such as {path.name}.part0: {how}")


def write(
    path: str | Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    about: Mapping[str, str] | None = None,
    part_mib: float | None = None,
) -> list[Path]:
    """Write arrays as the path's ending asks, in parts of at most ``part_mib`` MiB if that is given.

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
    while old := [*([path] if path.exists() else []), *_parts(path)]:
        for one in old:
            one.unlink()
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


def to_bytes(arrays: Mapping[str, npt.NDArray[Any]], about: Mapping[str, str] | None = None) -> bytes:
    """Arrays, and a few words about them, in the safetensors format.

    >>> arrays, about = from_bytes(to_bytes({"a": np.arange(3, dtype=np.float16)}, {"heads": "2"}))
    >>> arrays["a"], about
    (array([0., 1., 2.], dtype=float16), {'heads': '2'})
    """
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    blobs, at = [], 0
    for name in sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n)):  # widest first: all stay aligned
        array = np.asarray(arrays[name], order="C")
        if array.dtype not in _CODES:
            raise ValueError(f"{name} holds {array.dtype}, which is not written here: turn it into {', '.join(_KINDS)}")
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
        if entry["dtype"] not in _KINDS:
            raise ValueError(f"{name} has the type {entry['dtype']}, which is not read here: give {', '.join(_KINDS)}")
        begin, end = (8 + size + at for at in entry["data_offsets"])
        if end > len(data):
            raise ValueError(f"the file ends inside {name}: copy or join it again")
        arrays[name] = np.frombuffer(data[begin:end], _KINDS[entry["dtype"]]).reshape(entry["shape"]).copy()
    return arrays, about


def _unsqueezed(path: Path) -> tuple[Arrays, dict[str, str]]:
    with np.load(path) as planes:
        return from_bytes(np.stack([planes["low"], planes["high"]], 1).tobytes()[: int(planes["size"])])


def _parts(path: Path) -> list[Path]:
    """The parts of a file, in order and of one spelling, should there be both."""
    beside = [p for p in path.parent.glob("*") if p.name.startswith(path.name)]
    for spelling in _PARTS:
        numbers = {p: spelling.fullmatch(p.name.removeprefix(path.name)) for p in beside}
        parts = {p: int(match[1]) for p, match in numbers.items() if match}
        if parts:
            return sorted(parts, key=lambda p: parts[p])
    return []
