"""A folder of Parquet shards, one row for each input. A shard is complete if and only if its file exists."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from c2fa._system import is_gone
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.model import describe
from c2fa.batch.overview import Brief, Failure, Flat, NotExplainedError, Overview
from c2fa.batch.packing import Outcome
from c2fa.batch.records import (
    META,
    Precision,
    StoreError,
    Table,
    Views,
    arrow,
    decode,
    opened,
    read_table,
    write,
)
from c2fa.explanation import Explanation

if TYPE_CHECKING:
    import pandas as pd

    from c2fa.explainer import Explainer

_SCHEMA = 2
_SHARD_FILE = re.compile(r"part-(\d+)\.parquet")
_SIDE_FILE = re.compile(r"_part-(\d+)-.*\.(?:tmp|journal|kept|answers.*)|_answered-.*|_model-.*")


@dataclass(frozen=True)
class Shard:
    """What a shard says of itself: number, rows, the settings it was made with, and a digest of its inputs."""

    number: int
    rows: int
    settings: Mapping[str, Any]
    shared: Mapping[str, Any]
    digest: str | None


class Store(Overview):
    """Explanations of a dataset, in a folder, read when they are asked for.

    ``store[i]`` is the explanation of input ``i`` of the dataset, or ``NotExplainedError`` where that input was set
    aside; iterating passes over those, and ``errors()`` lists them. The length is the number of inputs in the store.
    pandas, polars and DuckDB read ``part-*.parquet`` as they are.

    Parameters
    ----------
    path
        The folder. ``Store.open`` refuses one that does not exist.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.run: Any = None  # what the call of many() that returned this store did
        self._shards: dict[int, Shard] = {}
        self._held: tuple[int, Any] | None = None

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Store:
        """Open a store for reading; shards that are written later are seen too."""
        if not Path(path).is_dir():
            raise StoreError(f"there is no store at {os.fspath(path)!r}; give the folder that many() wrote")
        return cls(path)

    def __repr__(self) -> str:
        shards = len(self.finished())
        return f"<Store at {str(self.path)!r}: {len(self)} inputs in {shards} shard{'s' * (shards != 1)}>"

    # -- shards ------------------------------------------------------------------------------------

    def file(self, number: int) -> Path:
        """The file of a shard; the shard is finished when it exists."""
        return self.path / f"part-{number:08d}.parquet"

    def finished(self) -> list[int]:
        """The numbers of the finished shards, in order."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in map(_SHARD_FILE.fullmatch, names) if match is not None)

    def shard(self, number: int) -> Shard:
        """What a finished shard says of itself; only the end of its file is read."""
        known = self._shards.get(number)
        if known is not None:
            return known
        with opened(self.file(number)) as parquet:
            footer = parquet.metadata
            meta = json.loads((footer.metadata or {}).get(META, b"{}"))
        if meta.get("schema") != _SCHEMA:
            raise StoreError(
                f"{self.file(number)} is not a shard of version {_SCHEMA} (it says {meta.get('schema')!r}); "
                "give another folder"
            )
        shard = Shard(number, footer.num_rows, meta["settings"], meta["provenance"], meta["digest"])
        self._shards[number] = shard
        return shard

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that every shard was made with; empty before the first is written."""
        first = next(iter(self.finished()), None)
        return {} if first is None else self.shard(first).settings

    def table(self, columns: Sequence[str] | None = None) -> Table:
        """The rows of the whole store, or some columns of them, as an Arrow table."""
        pa = arrow()
        tables = list(self.tables(columns))
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[Table]:
        """One Arrow table for each shard, in order; columns that a shard does not have are left out."""
        return (read_table(self.file(number), columns) for number in self.finished())

    def to_frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows of the store as a pandas frame."""
        made: pd.DataFrame = self.table(columns).to_pandas()
        return made

    # -- explanations ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(self.shard(n).rows for n in self.finished())

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Explanation]: ...
    def __getitem__(self, index: int | slice) -> Explanation | list[Explanation]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        size = self.settings.get("shard_size")
        if at < 0 or not size:
            raise IndexError(f"the store holds {len(self)} inputs, and none at {index}")
        number, row = divmod(at, size)
        if self._held is None or self._held[0] != number:
            if not self.file(number).exists():
                raise IndexError(f"input {index} is not in the store: its shard {number} is not finished")
            self._held = (number, read_table(self.file(number)))
        table = self._held[1]
        if row >= table.num_rows:
            raise IndexError(f"the store holds {len(self)} inputs, and none at {index}")
        return self._explanation(table.slice(row, 1).to_pylist()[0], number)

    def __iter__(self) -> Iterator[Explanation]:
        return (e for _, e in self.items())

    def items(self) -> Iterator[tuple[int, Explanation]]:
        """Each explained input's place in the dataset and its explanation."""
        for number, table in zip(self.finished(), self.tables(), strict=False):
            for start in range(0, table.num_rows, 256):
                for row in table.slice(start, 256).to_pylist():
                    if row["error"] is None:
                        yield row["index"], self._explanation(row, number)

    def briefs(self) -> Iterator[Brief]:
        """A line about each input, explained or not."""
        for table in self.tables(["index", "key", "prediction", "target_name", "warnings", "error"]):
            for row in table.to_pylist():
                warnings = tuple(row["warnings"] or ())
                yield Brief(row["index"], row["key"], row["prediction"], row["target_name"], warnings, row["error"])

    def flat(self, level: int, target: str | None = None) -> Iterator[Flat]:
        """The features of a level of the inputs that were explained for a target, shard by shard."""
        pc, level = arrow("compute"), self._level(level)
        for table in self.tables(["index", "target_name", f"names_{level}", f"values_{level}"]):
            keep = pc.is_valid(table["target_name"])
            if target is not None:
                keep = pc.and_kleene(keep, pc.equal(table["target_name"], target))
            kept = table.filter(pc.fill_null(keep, False)).combine_chunks()
            names, values = kept[f"names_{level}"], kept[f"values_{level}"]
            coded = pc.dictionary_encode(pc.list_flatten(names)).combine_chunks()
            rows = np.asarray(pc.list_parent_indices(values.combine_chunks()), dtype=np.int64)
            flat = np.asarray(pc.list_flatten(values), dtype=np.float64)
            yield np.asarray(kept["index"])[rows], coded.dictionary.to_pylist(), np.asarray(coded.indices), flat

    def _level(self, level: int) -> int:
        """Turn a level that may be negative into its number, or say which levels there are."""
        first = next(iter(self.finished()), None)
        if first is None:
            return max(level, 0)
        with opened(self.file(first)) as parquet:
            depth = sum(1 for column in parquet.schema_arrow.names if column.startswith("values_"))
        if not -depth <= level < depth:
            raise IndexError(f"level {level} does not exist: the store has levels 0..{depth - 1}")
        return level % depth

    def errors(self) -> list[Failure]:
        """The inputs that were set aside."""
        return [failure for number in self.finished() for failure in self.failures(number)]

    def failures(self, number: int) -> list[Failure]:
        """The inputs of a shard that were set aside."""
        table = read_table(self.file(number), ["index", "key", "error"])
        bad = table.filter(arrow("compute").is_valid(table["error"]))
        return [Failure(**row) for row in bad.to_pylist()]

    def _explanation(self, row: Mapping[str, Any], number: int) -> Explanation:
        if row["error"] is not None:
            raise NotExplainedError(f"input {row['index']} was set aside: {row['error']}")
        return decode(row, self.shard(number).shared)

    # -- writing -----------------------------------------------------------------------------------

    def check(self, settings: Mapping[str, Any], except_for: Sequence[str] = ()) -> None:
        """Refuse settings that are not those of the store, and name the difference."""
        there = self.settings
        if not there:
            return
        names = [k for k in dict.fromkeys([*there, *settings]) if there.get(k) != settings.get(k)]
        names = [k for k in names if k not in except_for]
        if names:
            said = "; ".join(f"{k} is {there.get(k)!r} there and {settings.get(k)!r} now" for k in names)
            raise StoreError(
                f"the store at {str(self.path)!r} was made with other settings: {said}. Give the same settings, or "
                "another folder"
            )

    def write(
        self,
        number: int,
        outcomes: Sequence[Outcome],
        settings: Mapping[str, Any],
        *,
        digest: str | None = None,
        precision: Precision = "float32",
        views: Views = "auto",
    ) -> Path:
        """Write one shard, whole or not at all; rows of other inputs that it has already stay in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        file, kept = self.file(number), None
        if file.exists():
            pc, kept = arrow("compute"), read_table(file)
            again = arrow().array([outcome.index for outcome in outcomes], arrow().int64())
            kept = kept.filter(pc.invert(pc.is_in(kept["index"], again)))
        meta = {"schema": _SCHEMA, "settings": dict(settings), "digest": digest}
        write(file, outcomes, precision, views, meta, kept)
        return file

    def sign_of_life(self, run: str) -> Path:
        """A file that is there once the model has answered any worker of a run."""
        return self.path / f"_answered-{run}"

    def sweep(self) -> None:
        """Remove what runs that were killed left behind, once it is of no use to anyone."""
        for left in self.path.glob("_*"):
            side = _SIDE_FILE.fullmatch(left.name)
            with contextlib.suppress(OSError):
                if side is not None and (
                    (side[1] and self.file(int(side[1])).exists())
                    or is_gone(left.name)
                    or time.time() - left.stat().st_mtime > 3600.0  # of another machine, or by a file of no process
                ):
                    left.unlink()


def settings_of(explainer: Explainer, **of_the_store: Any) -> dict[str, Any]:
    """What the answers of an explainer depend on, in plain values, which bind a store; batch sizes are not among it."""
    model = explainer.model
    name = explainer.model_name or describe(model).name
    name = name or getattr(model, "__qualname__", type(model).__qualname__)
    try:
        masker: str = fingerprint(explainer.masker)[:16]
    except TypeError:
        masker = ""

    def text(thing: object) -> str:
        """Its text without addresses, which are others in every process."""
        return re.sub(r" at 0x[0-9a-fA-F]+", "", str(thing))

    shown = text(repr(explainer.masker))
    return {
        "method": explainer.method_name,
        "options": text(explainer.method),
        "budget": list(explainer.budget) if isinstance(explainer.budget, tuple) else explainer.budget,
        "money": explainer.money and explainer.money.text,
        "target": int(explainer.target) if isinstance(explainer.target, np.integer) else explainer.target,
        "seed": explainer.seed,
        "until": None if explainer.until is None else text(explainer.until),
        "link": explainer.link.name if explainer.link.unit else None,  # as in stores from before there were links
        "masks": "the paper's" if explainer.preset == "paper" else None,
        "prior": None if explainer.prior is None else explainer.prior.fingerprint,
        "on_error": explainer.on_error,
        "outputs": explainer.outputs,
        "model": str(name),
        "masker": shown if len(shown) <= 300 else f"{shown[:299]}…",
        "masker_digest": masker,
        **of_the_store,
    }
