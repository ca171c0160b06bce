"""A file that keeps every answer the model ever gave, so that none is paid for twice."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import TypeAlias

import numpy as np

from c2fa.structure import FloatArray

Row: TypeAlias = tuple[str, str, int, bytes, bytes]

_SCHEMA = 1
_CREATE = """
CREATE TABLE IF NOT EXISTS answers (
    model TEXT, input TEXT, level INTEGER, mask BLOB, output BLOB NOT NULL,
    PRIMARY KEY (model, input, level, mask)
) WITHOUT ROWID
"""


class LedgerError(RuntimeError):
    """The file is not a ledger, or cannot be read or written."""


class Connection(sqlite3.Connection):
    """A connection that several threads may use, each while it holds the lock."""

    def __init__(self, path: str) -> None:
        super().__init__(path, timeout=60.0, isolation_level=None, check_same_thread=False)
        self.lock = threading.RLock()


class Ledger:
    """Answers in an SQLite file, keyed by the model's name, the input, the level and the mask.

    Every batch is committed as soon as it is answered. Several processes may use one file, several threads one
    ledger; one that is sent to another process opens the file anew there.

    >>> ledger = Ledger(":memory:")
    >>> ledger.put("m", "x", 1, [b"a"], np.array([[0.25, 0.75]]))
    >>> ledger.get("m", "x", 1, [b"a", b"b"])
    {b'a': array([0.25, 0.75])}
    >>> ledger.close()
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        try:
            self._db = Connection(self.path)
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, _SCHEMA):
                raise LedgerError(
                    f"{self.path} is a ledger of version {version}, and this is version {_SCHEMA}; use another file"
                )
            if self.path != ":memory:":
                self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(_CREATE)
            self._db.execute(f"PRAGMA user_version={_SCHEMA}")
        except sqlite3.Error as error:
            raise LedgerError(
                f"cannot open {self.path} as a ledger: {error}; give a new file name or an existing ledger"
            ) from error

    def get(self, model: str, key: str, level: int, masks: Sequence[bytes]) -> dict[bytes, FloatArray]:
        """Return what is known of these masks."""
        known = {}
        try:
            for chunk in _chunks(masks, 500):
                marks = ",".join("?" * len(chunk))
                with self._db.lock:
                    rows = self._db.execute(
                        f"SELECT mask, output FROM answers WHERE model=? AND input=? AND level=? AND mask IN ({marks})",
                        (model, key, level, *chunk),
                    ).fetchall()
                known.update({mask: np.frombuffer(blob, dtype="<f8") for mask, blob in rows})
        except sqlite3.Error as error:
            raise LedgerError(f"cannot read answers from {self.path}: {error}") from error
        return known

    def put(self, model: str, key: str, level: int, masks: Sequence[bytes], outputs: FloatArray) -> None:
        """Keep one batch of answers, all or none; a full disk raises LedgerError."""
        self.write([as_row(model, key, level, mask, row) for mask, row in zip(masks, outputs, strict=True)])

    def write(self, rows: Sequence[Row]) -> None:
        """Commit rows of the table, all or none."""
        with self._db.lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO answers VALUES (?,?,?,?,?)", rows)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise LedgerError(f"cannot write {len(rows)} answers to {self.path}: {error}") from error

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        if self.path == ":memory:":
            raise TypeError("a ledger in memory cannot be copied or sent to another process; give it a file")
        return Ledger, (self.path,)

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT COUNT(*) FROM answers").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def as_row(model: str, key: str, level: int, mask: bytes, output: FloatArray) -> Row:
    """Return an answer as a row of the table."""
    return model, key, level, mask, np.ascontiguousarray(output, dtype="<f8").tobytes()


def _chunks(items: Sequence[bytes], size: int) -> Iterable[Sequence[bytes]]:
    return (items[i : i + size] for i in range(0, len(items), size))
