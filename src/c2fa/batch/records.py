"""Explanations as rows of a table, and back: one row for each input, list columns for each level."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, cast, get_args, get_origin

import numpy as np

from c2fa._system import atomic
from c2fa.batch.packing import Outcome
from c2fa.explanation import Explanation
from c2fa.showing import codec
from c2fa.showing.codec import dumps, hints
from c2fa.showing.printing import printable
from c2fa.solution import Diagnostics
from c2fa.structure import FloatArray
from c2fa.views import Cited, FromPrior, View
from c2fa.views.descriptors import pack

Table: TypeAlias = Any
"""A pyarrow table."""
Precision: TypeAlias = Literal["float32", "float64"]
Views: TypeAlias = Literal["auto", "all", "none"]


class StoreError(RuntimeError):
    """The folder is not a store, does not fit what is to be written, or cannot be read or written."""


META = b"c2fa"  # the key of what is said of a whole table
_TAIL = 8  # bytes at the end of a Parquet file: the length of the footer before them, and "PAR1"
PARTS: Mapping[str, type] = {"": Diagnostics, "prior_": FromPrior, "answer_": Cited}
"""What an explanation is made of beside its numbers and its view, by what the names of its columns begin with."""


def arrow(module: str = "") -> Any:
    """Return pyarrow or a module of it, or say how to install it."""
    try:
        return import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError as error:
        raise ImportError("a store of explanations needs pyarrow: pip install 'c2fa[store]'") from error


def schema(levels: int, precision: Precision) -> Any:
    """The columns of a shard whose deepest structure has this many levels: fields of explanations, by their types."""
    pa = arrow()
    numbers, texts = pa.list_(pa.float64() if precision == "float64" else pa.float32()), pa.list_(pa.string())
    counts = pa.list_(pa.int32())
    columns: dict[str, Any] = {
        "index": pa.int64(),
        "key": pa.string(),
        "error": pa.string(),
        "prediction": pa.float64(),
        "target": pa.int32(),
        "target_name": pa.string(),
        "outputs": numbers,
        "output_names": texts,
        "queries": pa.int32(),
        "budget": counts,
        **{f"{part}{name}": _type(hint) for part, kind in PARTS.items() for name, hint in _own(kind).items()},
        "intercepts": numbers,
        "columns": counts,
        "other_intercepts": numbers,
        "view": pa.string(),
        "descriptors": pa.string(),
    }
    for k in range(levels):
        columns |= {f"names_{k}": texts, f"values_{k}": numbers, f"stderr_{k}": numbers}
        columns |= {f"other_values_{k}": numbers, f"other_stderr_{k}": numbers}
        columns |= {f"without_prior_{k}": numbers, f"other_without_prior_{k}": numbers}
        if k:
            columns[f"parents_{k}"] = counts
    return pa.schema(list(columns.items()))


def _own(kind: type) -> dict[str, Any]:
    """The fields of a part that are columns by themselves; values without a prior are columns of levels."""
    return {name: hint for name, hint in hints(kind).items() if name != "without"}


def _type(hint: Any) -> Any:
    """The column that holds values of a type; a dataclass is a struct of its fields."""
    pa = arrow()
    if isinstance(hint, type) and is_dataclass(hint):
        return pa.struct([(name, _type(own)) for name, own in hints(hint).items()])
    if get_origin(hint) is tuple:
        return pa.list_(_type(get_args(hint)[0]))
    if get_origin(hint) is UnionType:
        return _type(next(arm for arm in get_args(hint) if arm is not NoneType))
    if get_origin(hint) is Literal:
        hint = str
    return {bool: pa.bool_(), int: pa.int32(), float: pa.float64(), str: pa.string()}[hint]


def encode(outcomes: Sequence[Outcome], precision: Precision, views: Views) -> Table:
    """The table of a shard, in the order of the inputs."""
    pa = arrow()
    rows = [_row(o, views) for o in sorted(outcomes, key=lambda o: o.index)]
    levels = max((o.explanation.structure.depth for o in outcomes if o.explanation is not None), default=2)
    made = schema(levels, precision)
    arrays = [pa.array([_printable(row.get(f.name)) for row in rows], type=f.type) for f in made]
    return pa.Table.from_arrays(arrays, schema=made)


def _printable(value: Any) -> Any:
    """A text, or several, as a table can hold them; dataclasses as structs, anything else as it is."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple):
        return [_printable(item) for item in value]
    return {name: _printable(own) for name, own in vars(value).items()} if is_dataclass(value) else value


def write(
    file: Path,
    outcomes: Sequence[Outcome],
    precision: Precision,
    views: Views,
    meta: Mapping[str, Any],
    kept: Table | None = None,
) -> None:
    """Write a table, whole or not at all.

    The footer holds ``meta``, and what all explanations share. Rows that are ``kept`` of an earlier table stay as they
    are.
    """
    table, shared = encode(outcomes, precision, views), provenance(outcomes)
    if kept is not None and kept.num_rows:
        shared = said_of(kept)["provenance"]
        table = arrow().concat_tables([kept, table], promote_options="default").sort_by("index")
    table = table.replace_schema_metadata({META: json.dumps({**meta, "provenance": shared}).encode()})
    split, dictionary = _encodings(table.schema)
    content = io.BytesIO()
    arrow("parquet").write_table(
        table,
        content,
        compression="zstd",
        use_dictionary=dictionary,
        use_byte_stream_split=split,
        write_page_checksum=True,
    )
    with atomic(file) as handle:
        handle.write(_sealed(content.getvalue()))


def _sealed(content: bytes) -> bytes:
    """A Parquet file with a checksum of its footer in front of that: only pages have theirs, and readers look there."""
    start = len(content) - _TAIL - int.from_bytes(content[-_TAIL:-4], "little")
    return content[:start] + sha256(content[start:]).digest() + content[start:]


def _check_seal(file: Path) -> None:
    seal = sha256().digest_size
    with file.open("rb") as handle:
        handle.seek(-_TAIL, os.SEEK_END)
        footer = int.from_bytes(handle.read(4), "little")
        handle.seek(-_TAIL - footer - seal, os.SEEK_END)
        if handle.read(seal) != sha256(handle.read()).digest():
            raise ValueError("its footer does not match its checksum")


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Any]:
    """A table that ``write`` wrote, open for reading; damage in its footer, or in a page that is read, is refused."""
    try:
        _check_seal(file)
        with arrow("parquet").ParquetFile(file, page_checksum_verification=True) as parquet:
            yield parquet
    except (arrow().ArrowException, OSError, ValueError) as error:
        raise StoreError(
            f"cannot read {file}: {' '.join(str(error).split())}; delete it and run the same command again"
        ) from error


def read_table(file: Path, columns: Sequence[str] | None = None) -> Table:
    """The rows of a table, or some columns of them; columns that it does not have are left out."""
    with opened(file) as parquet:
        return parquet.read(None if columns is None else [c for c in columns if c in parquet.schema_arrow.names])


def said_of(table: Table) -> dict[str, Any]:
    """What the footer says of a whole table."""
    said: dict[str, Any] = json.loads((table.schema.metadata or {}).get(META, b"{}"))
    return said


def read(file: Path) -> list[Outcome]:
    """Read back what ``write`` wrote."""
    table = read_table(file)
    shared = said_of(table)["provenance"]
    return [
        Outcome(row["index"], row["key"], None if row["error"] else decode(row, shared), row["error"])
        for row in table.to_pylist()
    ]


def _encodings(schema: Any) -> tuple[list[str], list[str]]:
    """The columns of numbers, whose bytes are split into streams, and those of words, which repeat."""
    pa = arrow()
    split, dictionary = [], []
    for column in schema:
        nested = pa.types.is_list(column.type)
        kind = column.type.value_type if nested else column.type
        path = f"{column.name}.list.element" if nested else column.name
        if pa.types.is_floating(kind):
            split.append(path)
        elif not pa.types.is_binary(kind):
            dictionary.append(path)
    return split, dictionary


def provenance(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What all explanations of a shard share: method, settings, versions, seed, model."""
    first = next((o.explanation for o in outcomes if o.explanation is not None), None)
    constant = ("c2fa", "numpy", "method", "settings", "seed", "model", "until", "link", "prior", "money")
    return {} if first is None else {k: first.provenance[k] for k in constant if k in first.provenance}


def _row(outcome: Outcome, views: Views) -> dict[str, Any]:
    row: dict[str, Any] = {"index": outcome.index, "key": outcome.key, "error": outcome.error}
    e = outcome.explanation
    if e is None:
        return row
    at = e.columns.index(e.target)
    others = [i for i in range(len(e.columns)) if i != at]
    for begin, part in zip(PARTS, (e.diagnostics, e.prior, e.answer), strict=True):
        if part is not None:
            row |= {f"{begin}{name}": getattr(part, name) for name in _own(type(part))}
    row |= {
        "prediction": e.prediction,
        "target": e.target,
        "target_name": e.target_name,
        "outputs": e.outputs,
        "output_names": e.output_names,
        "queries": e.queries,
        "budget": e.provenance.get("budget"),
        "columns": e.columns,
        "intercepts": e.intercepts,
    }
    view = dumps(codec.encode(e.view)) if views != "none" else ""
    # A picture of the input in every row would outweigh its attributions by far.
    if view and (views == "all" or len(view) <= 16_384):
        row["view"] = view
    try:
        if e.descriptors is not None:
            row["descriptors"] = json.dumps(pack(e.descriptors, e.structure), ensure_ascii=False)
    except Exception as error:  # a masker of one's own; what was paid for is kept all the same
        row["warnings"] = (
            *e.diagnostics.warnings,
            f"the masker's descriptors are left out: {type(error).__name__}: {error}",
        )
    if others:
        row["other_intercepts"] = np.array([b[others] for b in e.all_intercepts]).ravel()
    for k, names in enumerate(e.names):
        row[f"names_{k}"] = names
        if k:
            row[f"parents_{k}"] = e.structure.parents[k - 1]
        without = None if e.prior is None else e.prior.without
        for name, values in (("values", e.all_values), ("stderr", e.all_stderr), ("without_prior", without)):
            if values is not None:
                row[f"{name}_{k}"] = values[k][:, at]
                if others:
                    row[f"other_{name}_{k}"] = values[k][:, others].ravel()
    return row


def decode(row: Mapping[str, Any], shared: Mapping[str, Any]) -> Explanation:
    """The explanation of a row (columns without an error), with what the shard's explanations share."""
    depth = sum(1 for name in row if name.startswith("names_") and row[name] is not None)
    columns = tuple(row["columns"])
    at = columns.index(row["target"])

    def both(own: Any, others: Any) -> FloatArray:
        """Put the target's column back between those of the other outputs."""
        own = np.asarray(own, dtype=np.float64)[:, None]
        if others is None:
            return cast(FloatArray, own)
        rest = np.asarray(others, dtype=np.float64).reshape(len(own), len(columns) - 1)
        return np.concatenate([rest[:, :at], own, rest[:, at:]], axis=1)

    def levels(name: str) -> tuple[FloatArray, ...] | None:
        if row.get(f"{name}_0") is None:
            return None
        return tuple(both(row[f"{name}_{k}"], row.get(f"other_{name}_{k}")) for k in range(depth))

    parts = [{name: row.get(f"{begin}{name}") for name in _own(kind)} for begin, kind in PARTS.items()]
    diagnostics, prior, answer = (None if all(v is None for v in part.values()) else part for part in parts)
    view, table = row.get("view"), row.get("descriptors")
    return codec.made(
        Explanation,
        {
            "structure": {
                "parents": [np.asarray(row[f"parents_{k}"], dtype=np.intp) for k in range(1, depth)],
                "names": [row[f"names_{k}"] for k in range(depth)],
            },
            "outputs": np.asarray(row["outputs"], dtype=np.float64),
            "output_names": row["output_names"],
            "target": row["target"],
            "columns": columns,
            "all_values": levels("values"),
            "all_intercepts": tuple(both(row["intercepts"], row.get("other_intercepts"))),
            "all_stderr": levels("stderr"),
            "queries": row["queries"],
            "diagnostics": diagnostics,
            "view": codec.encode(View()) if view is None else codec.decode(json.loads(view)),
            "prior": None if prior is None else {**prior, "without": levels("without_prior")},
            "answer": answer,
            "provenance": {**shared, "budget": row["budget"], "index": row["index"], "key": row["key"]},
            "descriptors": None if table is None else json.loads(table),
        },
    )
