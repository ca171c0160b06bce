"""Explanations in files, and back: JSON or numpy's archive, with a checksum, and nothing in them that could run."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from os import PathLike, fsencode, fspath
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from c2fa._system import atomic, host_array
from c2fa.asking.links import ensure
from c2fa.explanation import Diagnostics, Explanation, Interaction, LevelReport
from c2fa.structure import Structure
from c2fa.views.descriptors import pack, unpack

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

SCHEMA = 1
_INLINE = 20_000  # arrays of more numbers (images) are packed: a tenth of the size or less, a hundredth of the time
_BOMB = 2**30, 200  # bytes, and how many times the file's own size, that no explanation unpacks to
# Between two halves of a pair of 16-bit units, which JSON would read back as the one character that they make together.
_BETWEEN_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
_NUMBERS: Mapping[str, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float}


def save(e: Explanation, path: str | PathLike[str]) -> None:
    """Write an explanation to a ``.json`` or ``.npz`` file, whole or not at all."""
    path = _as_path(path)
    suffix = path.suffix.lower()
    if suffix not in (".json", ".npz"):
        raise ValueError(f"save to a file that ends in .json or .npz, not {path.name!r}")
    if suffix == ".json":
        data = to_json(e).encode()
        with atomic(path) as file:
            file.write(data)
        return
    arrays: dict[str, npt.NDArray[Any]] = {}
    head = _dumps(seal(encode(_fields(e), arrays), arrays)).encode()
    with atomic(path) as file:
        np.savez_compressed(file, head=np.frombuffer(head, dtype=np.uint8), **arrays)  # type: ignore[arg-type]


def load(path: str | PathLike[str]) -> Explanation:
    """Read an explanation from a ``.json`` or ``.npz`` file.

    A file that is damaged, or that ``save`` did not write, is a ValueError that names it. Nothing in a file is run.
    """
    several = load_all(path)
    if len(several) != 1:
        raise ValueError(f"{path} holds {len(several)} explanations; c2fa.showing.files.load_all reads them all")
    return several[0]


def load_all(path: str | PathLike[str]) -> list[Explanation]:
    """Read all explanations of a file: one, or the list of them that ``c2fa explain`` writes for several inputs."""
    path = _as_path(path)
    data = path.read_bytes()
    with _refusing(str(path), "save()"):
        if path.suffix.lower() == ".npz":
            return [_unpack(data)]
        document = json.loads(data)
        return [_read(one) for one in (document if isinstance(document, list) else [document])]


def _as_path(path: str | PathLike[str]) -> Path:
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be the name of a file, such as 'explained.json'; got {path!r}")
    try:
        if "\0" in fspath(path) or not fsencode(path):
            raise ValueError
    except ValueError:  # half of a surrogate pair is no letter
        raise ValueError(f"path must be the name of a file, and no file can have this one: {path!r}") from None
    return Path(path)


def to_json(e: Explanation, indent: int | None = None) -> str:
    """The whole explanation as JSON."""
    return _dumps(seal(encode(_fields(e))), indent)


def from_json(text: str) -> Explanation:
    """Read what ``to_json`` wrote."""
    with _refusing("this text", "to_json()"):
        return _read(json.loads(text))


@contextmanager
def _refusing(what: str, writer: str) -> Iterator[None]:
    """Turn whatever goes wrong into one kind of error: a stranger's file may be broken in any way."""
    try:
        yield
    except Exception as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}".rstrip()
        raise ValueError(
            f"{what} is not an explanation that {writer} wrote, or it is damaged: {said}; take a copy of it, or "
            "explain the input again"
        ) from error


# -- the fields of an explanation, and what they must be ---------------------------------------------


def _fields(e: Explanation) -> dict[str, Any]:
    d = e.diagnostics
    fields = {name: getattr(e, name) for name in Explanation.__dataclass_fields__}
    fields["structure"] = {"parents": e.structure.parents, "names": e.structure.names}
    pairs = [pair.__dict__ for pair in d.interactions]
    fields["diagnostics"] = {**d.__dict__, "levels": [level.__dict__ for level in d.levels], "interactions": pairs}
    fields["descriptors"] = None if e.descriptors is None else pack(e.descriptors, e.structure)
    return {"schema": SCHEMA, **fields}


def _read(document: Any, arrays: Arrays | None = None) -> Explanation:
    """The explanation of a document of JSON and the arrays that it refers to."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"this c2fa reads schema version {SCHEMA}; it says {schema!r:.50}")
    if arrays is None:
        _check_unpacked(document)
    fields = decode(unseal(document, arrays), arrays)
    del fields["schema"]
    for name in ("descriptors", "all_without_prior"):  # an older file has none
        fields.setdefault(name, None)
    missing = set(Explanation.__dataclass_fields__) - set(fields)
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    for name in ("output_names", "columns", "all_values", "all_intercepts", "all_stderr", "all_without_prior"):
        if fields[name] is not None:
            fields[name] = tuple(fields[name])
    d, s = fields["diagnostics"], fields["structure"]
    levels = tuple(LevelReport(**level) for level in d["levels"])
    told = {"levels": levels, "warnings": tuple(d["warnings"]), "exact": tuple(d.get("exact", ()))}
    pairs = tuple(Interaction(**pair) for pair in d.get("interactions", ()))
    fields["diagnostics"] = Diagnostics(**{**d, **told, "interactions": pairs})
    fields["structure"] = Structure(tuple(s["parents"]), tuple(map(tuple, s["names"])))
    if fields["descriptors"] is not None:
        fields["descriptors"] = unpack(fields["descriptors"], fields["structure"])
    e = Explanation(**fields)
    _check(e)
    return e


def _check(e: Explanation) -> None:
    """Refuse fields that do not fit together, which would fail later and far from the file."""
    d, widths, columns = e.diagnostics, e.structure.widths, len(e.columns)
    _check_shapes("outputs", (e.outputs,), [(len(e.output_names),)])
    _check_shapes("all_values", e.all_values, [(width, columns) for width in widths])
    _check_shapes("all_intercepts", e.all_intercepts, [(columns,)] * len(widths))
    for name, arrays in (("all_stderr", e.all_stderr), ("all_without_prior", e.all_without_prior)):
        if arrays is not None:
            _check_shapes(name, arrays, [(width, columns) for width in widths])
    _check_kind("names and warnings", str, [*e.output_names, *d.warnings, d.stop, d.contradiction, *chain(*e.names)])
    _check_kind("target, columns and rows", int, [e.target, *e.columns, e.queries, d.sent, d.recalled, d.dropped])
    told = [value for level in d.levels for value in vars(level).values() if value is not None]
    _check_kind("diagnostics", int | float, [*told, d.consistency, *chain(*(vars(p).values() for p in d.interactions))])
    for pair in d.interactions:
        if not (0 <= pair.level < len(widths) and max(pair.first, pair.second) < widths[pair.level]):
            raise ValueError(f"{pair} names features that are not there")
    _check_kind("view and provenance", Mapping, [e.view, e.provenance])
    if e.descriptors is not None:
        len(e.descriptors)  # a look at the table checks it
    if e.target not in e.columns or not set(e.columns) <= set(range(len(e.outputs))):
        raise ValueError(f"target {e.target} and columns {e.columns} do not fit {len(e.outputs)} outputs")
    if len(d.levels) != len(widths):
        raise ValueError(f"it has {len(widths)} levels, and diagnostics of {len(d.levels)}")
    ensure(e.provenance.get("link", "identity"))


def _check_kind(name: str, kind: Any, values: Iterable[Any]) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise ValueError(f"{name} cannot be {value!r:.100}")


def _check_shapes(name: str, arrays: tuple[Any, ...], wanted: list[tuple[int, ...]]) -> None:
    _check_kind(name, np.ndarray, arrays)
    found = [array.shape for array in arrays]
    if found != wanted:
        raise ValueError(f"{name} has shapes {found}, and the structure needs {wanted}")
    if not all(array.dtype.kind in _NUMBERS for array in arrays):
        raise ValueError(f"{name} must be numbers")


# -- archives ----------------------------------------------------------------------------------------


def _unpack(data: bytes) -> Explanation:
    """Read an archive: its head, and those of its arrays that the head refers to."""
    with ZipFile(io.BytesIO(data)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}

        def read(name: str) -> npt.NDArray[Any]:
            member = f"{name}.npy"
            taken[member] = sizes[member]
            most, times = _BOMB
            if sum(taken.values()) > max(most, times * len(data)):
                raise ValueError(f"it would unpack to more than {sum(taken.values()):,} bytes")
            # All of the member is read, because only then does the archive compare it with its own checksum.
            array: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(archive.read(member)), allow_pickle=False)
            return array

        taken: dict[str, int] = {}
        head = json.loads(read("head").tobytes())
        arrays = {name: read(name) for name in dict.fromkeys(array["__array__"] for array in _packed(head))}
    return _read(head, arrays)


def _packed(value: Any) -> Iterator[dict[str, Any]]:
    """What a document says of the arrays that were packed or put aside when it was encoded."""
    if isinstance(value, dict):
        if isinstance(value.get("__array__"), str):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _packed(item)


def _check_unpacked(document: Any) -> None:
    """Refuse a document of JSON whose packed arrays would take memory that nobody has."""
    most, times = _BOMB
    size = sum(np.dtype(array["dtype"]).itemsize * math.prod(array["shape"]) for array in _packed(document))
    if size > max(most, times * sum(len(array["__array__"]) for array in _packed(document))):
        raise ValueError(f"it would unpack to {size:,} bytes")


# -- checksums ---------------------------------------------------------------------------------------


def seal(document: Mapping[str, Any], arrays: Arrays | None = None) -> dict[str, Any]:
    """A document of JSON, and the arrays that it refers to, with their checksum.

    >>> unseal(seal({"a": 1})), unseal({**seal({"a": 1}), "a": 2})
    Traceback (most recent call last):
    ValueError: its content does not fit its checksum
    """
    return {**document, "checksum": _checksum(document, arrays or {})}


def unseal(document: Any, arrays: Arrays | None = None) -> dict[str, Any]:
    """The document without its checksum, which must fit."""
    if not isinstance(document, dict):
        raise ValueError(f"it holds {type(document).__name__} in the place of an object")
    content = {name: value for name, value in document.items() if name != "checksum"}
    if document.get("checksum") != _checksum(content, arrays or {}):
        raise ValueError("its content does not fit its checksum")
    return content


def _checksum(document: Mapping[str, Any], arrays: Arrays) -> str:
    """A hash of what JSON says, however it is laid out, and of arrays."""
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# -- values ------------------------------------------------------------------------------------------


def _dumps(plain: Any, indent: int | None = None) -> str:
    text = json.dumps(plain, indent=indent, allow_nan=False, ensure_ascii=False)
    # Half a pair of 16-bit units cannot be written to a file; JSON has an escape for it.
    return text.encode("utf-8", "backslashreplace").decode()


def encode(value: Any, arrays: dict[str, npt.NDArray[Any]] | None = None) -> Any:
    """Turn a value into what JSON can hold; arrays go inline, or into ``arrays`` and leave their name behind.

    What JSON has no word for, such as a date or a Decimal, becomes the text that people are shown of it.

    >>> from datetime import date
    >>> encode({"day": date(2024, 2, 29), "n": np.int64(3), "x": float("nan")})
    {'day': '2024-02-29', 'n': 3, 'x': {'__float__': 'nan'}}
    """
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, np.generic):
        return encode(_NUMBERS.get(value.dtype.kind, str)(value))
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else {"__float__": repr(float(value))}
    if isinstance(value, Mapping):
        return {str(k): encode(v, arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v, arrays) for v in value]
    if hasattr(value, "__array__"):
        return _encode_array(host_array(value), arrays)
    pieces = _BETWEEN_HALVES.split(str(value))
    return pieces[0] if len(pieces) == 1 else {"__pieces__": pieces}


def _encode_array(array: npt.NDArray[Any], arrays: dict[str, npt.NDArray[Any]] | None) -> dict[str, Any]:
    about = {"dtype": array.dtype.str, "shape": list(array.shape)}
    if array.dtype.hasobject:  # numpy would pickle them
        return {"__array__": [encode(item) for item in array.ravel().tolist()], **about}
    if arrays is not None:
        name = f"a{len(arrays)}"
        arrays[name] = array
        return {"__array__": name}
    if array.size > _INLINE or array.dtype.kind not in (*_NUMBERS, "U") or array.dtype.char == "g":  # a long double
        packed = zlib.compress(np.ascontiguousarray(array).tobytes())
        return {"__array__": b64encode(packed).decode(), **about}
    plain = array.dtype.kind in "biu" or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))
    return {"__array__": array.tolist() if plain else encode(array.tolist()), **about}


def decode(value: Any, arrays: Arrays | None = None) -> Any:
    """Give back what ``encode`` was given; tuples are lists, and what became a text stays one."""
    if isinstance(value, list):
        return [decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "__float__" in value:
        return float(value["__float__"])
    if "__pieces__" in value:
        return "".join(value["__pieces__"])
    if "__array__" in value:
        return _decode_array(value, arrays)
    return {k: decode(v, arrays) for k, v in value.items()}


def _decode_array(value: Mapping[str, Any], arrays: Arrays | None) -> npt.NDArray[Any]:
    content = value["__array__"]
    if arrays is not None and isinstance(content, str):
        return arrays[content]
    dtype, shape = np.dtype(value["dtype"]), value["shape"]
    if isinstance(content, str):
        # One byte more than it says it has, so that a longer one is refused for its length and not unpacked.
        data = zlib.decompressobj().decompress(b64decode(content), dtype.itemsize * math.prod(shape) + 1)
        return np.frombuffer(data, dtype=dtype).reshape(shape)
    items = decode(content)
    if dtype.hasobject:
        found = np.empty(len(items), dtype=object)
        found[:] = items
        return found.reshape(shape)
    if dtype.kind == "U":
        return np.array(items, dtype=np.str_).reshape(shape)  # as wide as its texts, whatever the file says
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"an array of {dtype} cannot be written as a list")
    return np.array(items, dtype=dtype).reshape(shape)
