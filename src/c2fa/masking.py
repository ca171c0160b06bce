"""One input, ready to be masked: what every masker makes of the input it is given."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Protocol, TypeAlias

import numpy as np

from c2fa.graph import Graph
from c2fa.structure import BoolArray, Structure

Inputs: TypeAlias = Any
"""A batch as the model takes it: anything with a length (a list, an array, a tensor, a frame)."""


@dataclass(frozen=True, eq=False)
class Masked:
    """An input with its structure and the function that masks it.

    Parameters
    ----------
    structure
        The tree of this input's features.
    inputs
        ``inputs(masks, level)`` gives the batch of masked inputs, one for each row of the boolean masks,
        (n, structure.widths[level]); True keeps a feature. A full mask gives the input itself.
    nested
        Whether masking a part is the same input as masking all of its leaves. Where it is, an input that
        two levels share is asked once.
    allows_empty
        Whether an input with everything masked still is one that the model can take.
    view
        What a report needs to draw the input: ``kind`` and plain values or arrays.
    neighbours
        Gives the graph of leaves that are expected to matter about equally, for explanations that are to be smooth;
        called when it is needed. None where leaves have no neighbours.
    alike
        Whether neighbours are alike by nature, as super-pixels of one object are and words of a sentence are not, so
        that explanations are smooth unless told otherwise.
    """

    structure: Structure
    inputs: Callable[[BoolArray, int], Inputs]
    nested: bool = True
    allows_empty: bool = True
    view: Mapping[str, Any] = field(default_factory=dict)
    neighbours: Callable[[], Graph] | None = None
    alike: bool = False


class Masker(Protocol):
    """A domain's answer to: what is the structure of this input, and what does it look like under masks?"""

    def __call__(self, x: Any) -> Masked:
        """Prepare one input; the costly part (splitting, segmenting) happens here, once."""
        ...


def fingerprint(*things: Any) -> str:
    """Return a hash that is the same for equal inputs in every process.

    >>> fingerprint("a review") == fingerprint("a review"), fingerprint([1, 2]) == fingerprint([12])
    (True, False)
    """
    digest = hashlib.sha256()
    for thing in things:
        _feed(digest.update, thing)
    return digest.hexdigest()


@dataclass(frozen=True)
class Identity:
    """What tells an input from others.

    Attributes
    ----------
    number
        What its masks depend on besides the seed. It is a hash of the input alone, so that two maskers, methods or
        models are asked about one input under the same masks; of the key where the input has no hash; 0 where it has
        neither, and then masks depend on the seed alone.
    key
        The name under which its answers are kept: one that was given, else a hash of the input and of its masker.
    """

    number: int = 0
    key: str = ""


def identify(x: Any, key: str | None = None, masker: Masker | None = None) -> Identity:
    """Tell an input from others; the masker counts only for a key that is not given.

    >>> identify("a review") == identify("a review"), identify("a review").number == identify("another").number
    (True, False)
    """
    digest = hashlib.sha256()
    try:
        _feed(digest.update, x)
        number = int(digest.hexdigest(), 16)
    except Exception:  # whatever a stranger's type does when it is read; a ledger without a key says what to do
        if masker is not None and key is None:
            raise
        number = 0 if key is None else int(fingerprint(key), 16)
    if masker is not None and key is None:  # goes on from the input's hash, which may be of many megabytes
        _feed(digest.update, masker)
        key = digest.hexdigest()
    return Identity(number, key or "")


def _feed(update: Callable[[bytes], None], thing: Any) -> None:
    def tag(kind: str, payload: bytes) -> None:
        update(f"{kind}:{len(payload)}:".encode())
        update(payload)

    if thing is None or isinstance(thing, bool | int | float | complex | str | Path | np.generic):
        tag(type(thing).__name__, str(thing).encode())
    elif isinstance(thing, bytes | bytearray):
        tag("bytes", bytes(thing))
    elif isinstance(thing, np.ndarray):
        if thing.dtype.hasobject:
            tag("objects", str(thing.shape).encode())
            for item in thing.ravel():
                _feed(update, item)
        else:
            tag(f"array{thing.dtype.str}{thing.shape}", np.ascontiguousarray(thing).tobytes())
    elif isinstance(thing, Mapping):
        tag("map", str(len(thing)).encode())
        for key, value in thing.items():  # in their order, which is the order of the features
            _feed(update, key)
            _feed(update, value)
    elif isinstance(thing, Sequence | set | frozenset):
        tag("list", str(len(thing)).encode())
        for item in sorted(thing, key=str) if isinstance(thing, set | frozenset) else thing:
            _feed(update, item)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        tag("object", type(thing).__qualname__.encode())
        for f in dataclasses.fields(thing):
            if f.repr:
                _feed(update, getattr(thing, f.name))
    elif hasattr(thing, "detach"):  # torch tensors
        _feed(update, thing.detach().cpu().numpy())
    elif hasattr(thing, "to_numpy"):  # pandas and polars objects
        _feed(update, [str(c) for c in getattr(thing, "columns", getattr(thing, "index", ()))])
        _feed(update, thing.to_numpy())
    elif getattr(thing, "mode", None) == "P" and hasattr(thing, "convert"):  # an image whose numbers point into colours
        _feed(update, np.asarray(thing.convert("RGBA")))
    elif hasattr(thing, "__array_interface__") or hasattr(thing, "__array__"):  # PIL images and the like
        _feed(update, np.asarray(thing))
    elif callable(thing) and hasattr(thing, "__qualname__"):
        tag("function", f"{thing.__module__}.{thing.__qualname__}".encode())
        if "<" in thing.__qualname__:  # lambdas and inner functions share their names: what they do tells them apart
            _feed_code(update, thing.__code__)
            _feed(update, [thing.__defaults__, thing.__kwdefaults__])
            _feed(update, [cell.cell_contents for cell in thing.__closure__ or ()])
    else:
        raise TypeError(
            f"cannot tell two inputs of type {type(thing).__name__} apart for the ledger; "
            "pass key='...' with a name that is different for every input"
        )


def _feed_code(update: Callable[[bytes], None], code: CodeType) -> None:
    _feed(update, [code.co_code, code.co_names])
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed_code(update, constant)
        else:
            _feed(update, constant)
