"""Hashes of inputs and maskers, the same in every process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, EllipsisType, MethodType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import host_array, is_tensor
from c2fa.asking.masking import Masker

_PACKAGE = __name__.partition(".")[0]
_PLAIN = (bool, int, float, complex, str, Path, np.generic, EllipsisType, slice)


def fingerprint(*things: Any) -> str:
    """Return a hash that is the same for equal inputs in every process.

    >>> fingerprint("a review") == fingerprint("a review"), fingerprint([1, 2]) == fingerprint([12])
    (True, False)
    """
    digest = _Digest()
    for thing in things:
        digest.add(thing)
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Identity:
    """The identity of an input, for its masks and its place in a ledger.

    The masks depend on ``number`` and the seed. It is a hash of the input alone, so that all maskers, methods and
    models get the same masks; a hash of the given key if the input cannot be hashed; 0 if there is neither. A ledger
    keeps outputs under ``key``: a hash of the input if it can be hashed, of the given key if any, and of the masker.
    Without a ledger it is the given key itself.
    """

    number: int = 0
    key: str = ""


def identify(x: Any, key: str | None = None, masker: Masker | None = None) -> Identity:
    """Return the identity of an input; give the masker where a ledger keeps its answers.

    >>> identify("a review") == identify("a review"), identify("a review").number == identify("another").number
    (True, False)
    """
    digest = _Digest()
    try:
        digest.add(x)
        number = int(digest.hexdigest(), 16)
    except Exception:  # reading a user's type may raise anything
        if masker is not None and key is None:
            raise
        digest = _Digest()  # the old one holds the part of the input before the failure, which may vary
        number = 0 if key is None else int(fingerprint(key), 16)
    if masker is None:
        return Identity(number, key or "")
    # The digest of the input is continued, because hashing many megabytes again is slow. The key alone would not do: an
    # input edited under its old key, or masked in another way, must never get the old answers.
    if key is not None:
        digest.add(key)
    _add_masker(digest, masker)
    return Identity(number, digest.hexdigest())


def check_masker(masker: Masker) -> None:
    """Refuse a masker that cannot be hashed for a ledger."""
    _add_masker(_Digest(), masker)


def _add_masker(digest: _Digest, masker: Masker) -> None:
    try:
        digest.add(masker)
    except Exception as error:  # reading a user's masker may raise anything
        raise TypeError(
            f"the ledger cannot tell the masker {type(masker).__name__} from others; make it a function or a frozen "
            "dataclass of plain values, or leave the ledger out"
        ) from error


class _Digest:
    """A hash of values, each with its kind and size, so that 1 and "1" differ, and so do [1, 2] and [12]."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._functions: list[Any] = []  # those under way, because a function may hold itself

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def add(self, thing: Any) -> None:
        """Add a value; a TypeError says what to do about one that cannot be hashed."""
        if thing is None or isinstance(thing, _PLAIN):
            self._add_bytes(type(thing).__name__, _encode(str(thing)))
        elif isinstance(thing, bytes | bytearray):
            self._add_bytes("bytes", bytes(thing))
        elif isinstance(thing, np.ndarray):
            self._add_array(thing)
        elif isinstance(thing, Mapping):
            # Not sorted: the order of the keys is the order of the features.
            self._add_bytes("map", _encode(str(len(thing))))
            self._add_all([part for item in thing.items() for part in item])
        elif isinstance(thing, Sequence | set | frozenset):
            self._add_bytes("list", _encode(str(len(thing))))
            self._add_all(sorted(thing, key=str) if isinstance(thing, set | frozenset) else thing)
        elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            self._add_object(thing)
        elif isinstance(thing, MethodType):
            self._add_all([thing.__func__, thing.__self__])
        elif isinstance(thing, functools.partial):
            self._add_all([thing.func, thing.args, thing.keywords])
        elif isinstance(thing, ModuleType):
            self._add_bytes("module", _encode(thing.__name__))
        elif callable(thing) and hasattr(thing, "__qualname__"):
            self._add_function(thing)
        else:
            self._add_all(_as_arrays(thing))

    def _add_all(self, things: Sequence[Any]) -> None:
        for thing in things:
            self.add(thing)

    def _add_bytes(self, kind: str, payload: bytes) -> None:
        self._hash.update(_encode(f"{kind}:{len(payload)}:"))
        self._hash.update(payload)

    def _add_array(self, array: npt.NDArray[Any]) -> None:
        if array.dtype.hasobject:
            self._add_bytes("objects", _encode(str(array.shape)))
            for item in array.ravel():
                self.add(item)
        else:
            self._add_bytes(f"array{array.dtype.str}{array.shape}", np.ascontiguousarray(array).tobytes())

    def _add_object(self, thing: Any) -> None:
        """Add a dataclass by its fields, and a user's callable one also by its ``__call__``.

        Without those that this package has no repr of, and a user neither a repr nor a comparison.
        """
        kind = type(thing)
        ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == _PACKAGE]
        silent = {
            f.name for base in ours if dataclasses.is_dataclass(base) for f in dataclasses.fields(base) if not f.repr
        }
        fields = [f.name for f in dataclasses.fields(thing) if (f.repr or f.compare) and f.name not in silent]
        self._add_bytes("object", _encode(kind.__qualname__))
        self._add_all([getattr(thing, name) for name in fields])
        if callable(thing) and kind not in ours:
            self.add(kind.__call__)

    def _add_function(self, function: Any) -> None:
        """Add a function by its code, because its name stays when it is edited."""
        self._add_bytes("function", _encode(f"{function.__module__}.{function.__qualname__}"))
        if any(function is other for other in self._functions):
            return
        self._functions.append(function)
        if hasattr(function, "__code__"):
            self._add_code(function.__code__)
            self.add([function.__defaults__, function.__kwdefaults__])
            self.add([cell.cell_contents for cell in function.__closure__ or ()])
        elif hasattr(function, "__wrapped__"):  # made by functools.cache
            self.add(function.__wrapped__)
        self._functions.pop()

    def _add_code(self, code: CodeType) -> None:
        self.add([code.co_code, code.co_names])
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_code(constant)
            else:
                self.add(constant)


def _encode(text: str) -> bytes:
    """A text in bytes; a cut text may end in half of a surrogate pair."""
    return text.encode(errors="surrogatepass")


def _as_arrays(thing: Any) -> list[Any]:
    """Another library's array, frame or image as numpy arrays."""
    if is_tensor(thing):
        return [host_array(thing)]
    if hasattr(thing, "to_numpy"):  # pandas and polars objects
        labels = getattr(thing, "columns", getattr(thing, "index", ()))
        return [[str(label) for label in labels], thing.to_numpy()]
    if getattr(thing, "mode", None) == "P" and hasattr(thing, "convert"):  # an image whose numbers index a palette
        return [np.asarray(thing.convert("RGBA"))]
    if hasattr(thing, "__array_interface__") or hasattr(thing, "__array__"):  # PIL images and the like
        return [np.asarray(thing)]
    raise TypeError(
        f"cannot tell two inputs of type {type(thing).__name__} apart for the ledger; "
        "pass key='...' with a name that is different for every input"
    )
