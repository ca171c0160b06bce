"""Explanations in files, and back: JSON with a checksum, and nothing in it that could run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike, fsencode, fspath
from pathlib import Path
from typing import Any

from c2fa._system import atomic
from c2fa.asking.links import ensure
from c2fa.explanation import Explanation
from c2fa.showing.codec import check_unpacked, decode, dumps, encode, hints, read, seal, unseal
from c2fa.views.descriptors import pack, unpack

SCHEMA = 2


def save(e: Explanation, path: str | PathLike[str]) -> None:
    """Write an explanation to a ``.json`` file, whole or not at all."""
    path = _as_path(path)
    data = to_json(e).encode()
    with atomic(path) as file:
        file.write(data)


def load(path: str | PathLike[str]) -> Explanation:
    """Read an explanation from a ``.json`` file.

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
    path = Path(path)
    if path.suffix.lower() != ".json":
        raise ValueError(f"an explanation is kept in a file that ends in .json, not {path.name!r}")
    return path


def to_json(e: Explanation, indent: int | None = None) -> str:
    """The whole explanation as JSON."""
    return dumps(seal({"schema": SCHEMA, **encode(fields_of(e))}), indent)


def fields_of(e: Explanation) -> dict[str, Any]:
    """What is kept of an explanation, by name; ``made`` makes it of them again."""
    fields = {name: getattr(e, name) for name in hints(Explanation)}
    return {**fields, "descriptors": None if e.descriptors is None else pack(e.descriptors, e.structure)}


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


def _read(document: Any) -> Explanation:
    """The explanation of a document of JSON."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"this c2fa reads schema version {SCHEMA}; it says {schema!r:.50}")
    check_unpacked(document)
    plain = decode(unseal(document))
    del plain["schema"]
    return made(plain)


def made(plain: dict[str, Any]) -> Explanation:
    """An explanation of its fields, which must fit together: what does not would fail later, and far from the file."""
    table = plain.get("descriptors")
    e = read(Explanation, {**plain, "descriptors": None})
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
