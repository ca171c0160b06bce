"""What is kept of an explanation as JSON can hold it, and back: dataclasses by their fields, checked by their types.

Files have a checksum, and nothing in them can run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import cache
from os import PathLike, fsencode, fspath
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from c2fa._system import atomic, host_array
from c2fa.asking.links import ensure
from c2fa.asking.masking import View
from c2fa.views.descriptors import pack, unpack

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

T = TypeVar("T")
SCHEMA = 2  # of files

# Between two halves of a pair of 16-bit units, which JSON would read back as the one character that they make together.
_BETWEEN_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
_NUMBERS: Mapping[str, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float}


# -- there -------------------------------------------------------------------------------------------


def walk(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A value as plain dicts and lists; ``leaf`` says what becomes of numbers that are not finite, arrays and others.

    A view says which class it is of.

    >>> from c2fa.views import Table
    >>> walk({"n": np.int64(3), "view": Table((1.5,))}, str)
    {'n': 3, 'view': {'class': 'Table', 'levels': [], 'values': [1.5], 'at_baseline': []}}
    """
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, np.generic):
        return walk(_NUMBERS.get(value.dtype.kind, str)(value), leaf)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else leaf(value)
    if isinstance(value, Mapping):
        return {str(k): walk(v, leaf) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [walk(v, leaf) for v in value]
    if is_dataclass(value):
        own = {"class": type(value).__name__} if isinstance(value, View) else {}
        return own | {f.name: walk(vars(value)[f.name], leaf) for f in fields(value) if f.init}
    return leaf(value)


def encode(value: Any) -> Any:
    """A value as JSON can hold it, which ``decode`` gives back.

    What JSON has no word for, such as a date or a Decimal, becomes the text that people are shown of it.

    >>> from datetime import date
    >>> encode({"day": date(2024, 2, 29), "x": float("nan")})
    {'day': '2024-02-29', 'x': {'__float__': 'nan'}}
    """
    return walk(value, _leaf)


def _leaf(value: Any) -> Any:
    if isinstance(value, float):
        return {"__float__": repr(float(value))}
    if not isinstance(value, str) and hasattr(value, "__array__"):
        array = host_array(value)
        about = {"dtype": array.dtype.str, "shape": list(array.shape)}
        plain = array.dtype.kind in (*_NUMBERS, "U", "O") and array.dtype.char != "g"  # a long double
        if plain and (array.size <= 20_000 or array.dtype.hasobject):  # numpy would pickle objects
            return {"__array__": encode(array.ravel().tolist()), **about}
        # Of images a tenth of the size or less, in a hundredth of the time.
        packed = zlib.compress(np.ascontiguousarray(array).tobytes())
        return {"__array__": b64encode(packed).decode(), **about}
    pieces = _BETWEEN_HALVES.split(str(value))
    return pieces[0] if len(pieces) == 1 else {"__pieces__": pieces}


def dumps(plain: Any, indent: int | None = None) -> str:
    """JSON that every file can hold: half a pair of 16-bit units is written as JSON's escape for it."""
    text = json.dumps(plain, indent=indent, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


# -- and back ----------------------------------------------------------------------------------------


def decode(value: Any) -> Any:
    """What ``encode`` was given; tuples are lists, dataclasses dicts, and what became a text stays one."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "__float__" in value:
        return float(value["__float__"])
    if "__pieces__" in value:
        return "".join(value["__pieces__"])
    if "__array__" not in value:
        return {k: decode(v) for k, v in value.items()}
    content, dtype, shape = value["__array__"], np.dtype(value["dtype"]), value["shape"]
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


def check_unpacked(document: Any, most: int = 2**30, times: int = 200) -> None:
    """Refuse a document whose packed arrays would take memory that nobody has.

    No explanation unpacks to more than ``most`` bytes that are ``times`` its own size.
    """
    packed = list(_packed(document))
    size = sum(np.dtype(array["dtype"]).itemsize * math.prod(array["shape"]) for array in packed)
    if size > max(most, times * sum(len(array["__array__"]) for array in packed)):
        raise ValueError(f"it would unpack to {size:,} bytes")


def _packed(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("__array__"), str):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _packed(item)


@cache
def hints(cls: Any) -> dict[str, Any]:
    """The fields that a dataclass is made of, and their types."""
    types = get_type_hints(cls)
    return {f.name: types[f.name] for f in fields(cls) if f.init}


def read(kind: type[T], value: Any, where: str = "") -> T:
    """A value of a type, made of what ``decode`` gave; a ValueError says where it is anything else.

    >>> read(tuple[float, ...], [1, "two"], "costs")
    Traceback (most recent call last):
    ValueError: costs[1] cannot be 'two'
    """
    return cast(T, _read(kind, value, where))


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        [kind] = [arm for arm in args if arm is not type(None)]
        return _read(kind, value, where)
    if kind is Any or (origin is Literal and value in args) or (kind is float and type(value) is int):
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_read(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is np.ndarray and isinstance(value, np.ndarray):
        # Arrays of numbers are declared as such; of those without a type of their own, anything goes.
        [declared] = get_args(args[1]) or (Any,)
        wanted = {np.float64: "biuf", Any: value.dtype.kind}.get(declared, "biu")
        if value.dtype.kind not in wanted:
            raise ValueError(f"{where} must be numbers")
        return value
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return value
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        return _made(kind, value, where)
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise ValueError(f"{where} cannot be {value!r:.100}")


def _made(kind: Any, value: Mapping[str, Any], where: str) -> Any:
    """A dataclass of its fields, all of which must be there, and no other."""
    own = dict(value)
    if issubclass(kind, View):
        name = str(own.pop("class", ""))
        if name not in View.classes:
            raise ValueError(
                f"it shows its input by {name!r}, a class that is not known here: import the module that defines it"
            )
        kind = View.classes[name]
    types = hints(kind)
    prefix = f"{where}." if where else ""
    for what, names in (("lacks", types.keys() - own.keys()), ("has the unknown", own.keys() - types.keys())):
        if names:
            raise ValueError(f"it {what} {', '.join(prefix + name for name in sorted(names))}")
    return kind(**{name: _read(hint, own[name], f"{prefix}{name}") for name, hint in types.items()})


# -- checksums ---------------------------------------------------------------------------------------


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of JSON with its checksum.

    >>> unseal(seal({"a": 1})), unseal({**seal({"a": 1}), "a": 2})
    Traceback (most recent call last):
    ValueError: its content does not fit its checksum
    """
    # Of what JSON says, however it is laid out.
    return {**document, "checksum": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()}


def unseal(document: Any) -> dict[str, Any]:
    """The document without its checksum, which must fit."""
    if not isinstance(document, dict):
        raise ValueError(f"it holds {type(document).__name__} in the place of an object")
    content = {name: value for name, value in document.items() if name != "checksum"}
    if seal(content) != document:
        raise ValueError("its content does not fit its checksum")
    return content


# -- explanations ------------------------------------------------------------------------------------


def save(e: Explanation, path: str | PathLike[str]) -> None:
    path = _as_path(path)
    data = to_json(e).encode()
    with atomic(path) as file:
        file.write(data)


def to_json(e: Explanation, indent: int | None = None) -> str:
    kind: Any = type(e)
    own = {name: vars(e)[name] for name in hints(kind)}
    packed = None if e.descriptors is None else pack(e.descriptors, e.structure)
    return dumps(seal({"schema": SCHEMA, **encode({**own, "descriptors": packed})}), indent)


def load_all(kind: type[Explanation], path: str | PathLike[str]) -> list[Explanation]:
    path = _as_path(path)
    data = path.read_bytes()
    with _refusing(str(path), "save()"):
        document = json.loads(data)
        return [_opened(kind, one) for one in (document if isinstance(document, list) else [document])]


def from_json(kind: type[Explanation], text: str) -> Explanation:
    with _refusing("this text", "to_json()"):
        return _opened(kind, json.loads(text))


def _as_path(path: str | PathLike[str]) -> Path:
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be the name of a file, such as 'explained.json'; got {path!r}")
    try:
        if "\0" in fspath(path) or not fsencode(path):
            raise ValueError
    except ValueError:  # half of a surrogate pair is no letter
        raise ValueError(f"path must be the name of a file, and no file can have this one: {path!r}") from None
    path = Path(path)
    if path.suffix.lower() != ".json":
        raise ValueError(f"an explanation is kept in a file that ends in .json, not {path.name!r}")
    return path


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


def _opened(kind: type[Explanation], document: Any) -> Explanation:
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"this c2fa reads schema version {SCHEMA}; it says {schema!r:.50}")
    check_unpacked(document)
    plain = decode(unseal(document))
    del plain["schema"]
    return made(kind, plain)


def made(kind: type[Explanation], plain: dict[str, Any]) -> Explanation:
    """An explanation of its fields, which must fit together: what does not would fail later, and far from the file."""
    table = plain.get("descriptors")
    e = read(kind, {**plain, "descriptors": None})
    if table is not None:
        e = replace(e, descriptors=unpack(table, e.structure))
        len(e.descriptors or ())  # a look at the table checks it
    d, widths, columns = e.diagnostics, e.structure.widths, len(e.columns)
    wanted = [(width, columns) for width in widths]
    for name, arrays, needed in (
        ("outputs", (e.outputs,), [(len(e.output_names),)]),
        ("all_values", e.all_values, wanted),
        ("all_intercepts", e.all_intercepts, [(columns,)] * len(widths)),
        ("all_stderr", e.all_stderr, wanted),
        ("prior.without", None if e.prior is None else e.prior.without, wanted),
    ):
        found = None if arrays is None else [array.shape for array in arrays]
        if found is not None and found != needed:
            raise ValueError(f"{name} has shapes {found}, and the structure needs {needed}")
    for pair in d.interactions:
        if not (0 <= pair.level < len(widths) and max(pair.first, pair.second) < widths[pair.level]):
            raise ValueError(f"{pair} names features that are not there")
    if e.target not in e.columns or not set(e.columns) <= set(range(len(e.outputs))):
        raise ValueError(f"target {e.target} and columns {e.columns} do not fit {len(e.outputs)} outputs")
    if len(d.levels) != len(widths):
        raise ValueError(f"it has {len(widths)} levels, and diagnostics of {len(d.levels)}")
    if e.answer is not None:
        e.answer.check(len(e.outputs))
    e.view.check(e.structure)
    ensure(e.provenance.get("link", "identity"))
    return e
