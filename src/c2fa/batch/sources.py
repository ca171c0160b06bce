"""Where inputs come from: a list, an iterable, a table, a folder of Parquet or JSONL; always read as a stream."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from c2fa._system import did_you_mean, is_frame
from c2fa.asking.fingerprint import fingerprint
from c2fa.batch.packing import Item, Unreadable
from c2fa.batch.records import arrow

Pick: TypeAlias = str | Callable[[Any], Any] | None
_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".jsonl.xz")


@dataclass(frozen=True, eq=False)
class Source:
    """Inputs in their order, and how many there are where that is known; ``rows`` begins a new pass over them.

    Of a row ``column`` is the input, None being the only one there is, or the row itself; ``key`` is its name.
    """

    rows: Callable[[], Iterator[Any]]
    total: int | None
    column: Pick = None
    key: Pick = None

    def items(self) -> Iterator[Item]:
        """The inputs with their places and names."""
        for index, row in enumerate(self.rows()):
            try:
                name = None if self.key is None else _pick(row, self.key, "key")
                item = Item(index, self._input(row), None if name is None else str(name))
            except Exception as error:
                if index == 0:  # a misspelt column, not a bad row
                    raise
                item = Item(index, Unreadable(f"cannot read the input: {type(error).__name__}: {error}"))
            yield item

    def shards(self, size: int) -> Iterator[list[Item]]:
        """The inputs in pieces of one size; the last may be smaller."""
        items = self.items()
        while piece := list(islice(items, size)):
            yield piece

    def _input(self, row: Any) -> Any:
        if isinstance(row, Unreadable):
            return row
        if self.column is not None:
            return _pick(row, self.column, "column")
        if isinstance(row, _Row):
            return next(iter(row.values())) if len(row) == 1 else dict(row)
        return row


class _Row(dict[str, Any]):
    """A row of a table, as opposed to an input that happens to be a dict."""


def source(inputs: Any, column: Pick = None, key: Pick = None) -> Source:
    """Return the stream behind whatever a person holds.

    >>> [item.x for item in source(["a", "b"]).items()]
    ['a', 'b']
    """
    if isinstance(inputs, str | PathLike):
        return _files(Path(inputs), column, key)
    if is_frame(inputs):
        if hasattr(inputs, "iloc"):  # of pandas, whose rows may be inputs themselves
            return _frame(inputs, column, key)
        table = arrow().table(inputs)
        return Source(lambda: _arrow_rows(table.to_batches(max_chunksize=1024)), table.num_rows, column, key)
    if hasattr(inputs, "tocsr"):  # a sparse array, of which some kinds have no rows
        sparse = inputs.tocsr()
        return Source(lambda: iter(sparse), sparse.shape[0], column, key)
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        raise TypeError(
            f"inputs must be a list, an iterable, a table or a folder of Parquet or JSONL, not "
            f"{type(inputs).__name__}; for one input, call the explainer itself"
        )
    total = len(inputs) if isinstance(inputs, Sized) else None
    return Source(lambda: iter(inputs), total, column, key)


def digest(items: Sequence[Item]) -> str | None:
    """A hash of a shard's inputs, or None where they cannot be told apart."""
    try:
        return fingerprint([item.x for item in items])[:32]
    except TypeError:
        return None


def _pick(row: Any, pick: Pick, what: str) -> Any:
    if isinstance(row, Unreadable):
        return None
    if callable(pick):
        return pick(row)
    try:
        return row[pick]
    except (KeyError, TypeError, IndexError, OverflowError):
        names = list(map(str, row)) if isinstance(row, Mapping) else [type(row).__name__]
        near = did_you_mean(pick, names)
        raise KeyError(f"{what}={pick!r} is not in the rows; they have {', '.join(names)}{near}") from None


def _frame(frame: Any, column: Pick, key: Pick) -> Source:
    """A pandas frame: one column of it, or its rows as frames of one row, which keep every column's type."""
    names = [str(c) for c in frame.columns]
    if column is None and len(names) == 1:
        column = frame.columns[0]
    if isinstance(column, str) and key is None:
        if column not in frame.columns:
            near = did_you_mean(column, names)
            raise KeyError(f"column={column!r} is not in the frame; it has {', '.join(names)}{near}")
        series = frame[column]
        return Source(lambda: iter(series), len(frame))
    places = range(len(frame))
    if column is not None:
        return Source(lambda: (frame.iloc[i] for i in places), len(frame), column, key)
    name = key if callable(key) or key is None else lambda row: row[key].iloc[0]
    return Source(lambda: (frame.iloc[i : i + 1] for i in places), len(frame), lambda row: row, name)


def _arrow_rows(batches: Iterable[Any]) -> Iterator[_Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield _Row(row)


def _files(path: Path, column: Pick, key: Pick) -> Source:
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.name.endswith(_SUFFIXES) and not f.name.startswith((".", "_")))
    elif path.is_file():
        files = [path]
    else:
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; give a list of inputs, or Parquet or JSONL")
    wrong = [f.name for f in files if not f.name.endswith(_SUFFIXES)]
    if wrong or not files:
        there = repr(wrong[0]) if wrong else "none"
        raise ValueError(f"{str(path)!r} must hold .parquet or .jsonl files; found {there}")
    total = None
    if all(f.suffix == ".parquet" for f in files):
        pq = arrow("parquet")
        total = sum(pq.read_metadata(f).num_rows for f in files)
    return Source(lambda: (row for f in files for row in _rows_of(f)), total, column, key)


def _rows_of(file: Path) -> Iterator[Any]:
    if file.suffix == ".parquet":
        pq = arrow("parquet")
        with pq.ParquetFile(file) as parquet:
            yield from _arrow_rows(parquet.iter_batches(batch_size=1024))
        return
    open_text: Any = {".gz": gzip.open, ".xz": lzma.open}.get(file.suffix, open)
    with open_text(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                yield Unreadable(f"line {number} of {str(file)!r} is not JSON: {error}")
                continue
            yield _Row(value) if isinstance(value, dict) else value
