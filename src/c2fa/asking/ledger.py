"""A file that keeps every answer the model ever gave, so that none is paid for twice."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from c2fa._system import is_gone, this_process
from c2fa.structure import FloatArray

Name: TypeAlias = tuple[str, str, int, bytes]
"""What names an answer: the model, the input, the level and the mask."""
Row: TypeAlias = tuple[str, str, int, bytes, bytes, int]
"""A name, its answer in bytes, and a checksum of both."""

COST = 1 << 13  # added to the level of a row, it is that of what the row cost
_SCHEMA = 2
_TEXT = -1  # the level of a text, which is an answer to no mask
_APPLICATION = int.from_bytes(b"c2fa", "big")
_LEASE_SECONDS = 300.0  # longer than a batch takes, with retries; a dead process of this machine is noticed at once
_CREATE = f"""
BEGIN EXCLUSIVE;
CREATE TABLE IF NOT EXISTS answers (
    model TEXT, input TEXT, level INTEGER, mask BLOB, output BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (model, input, level, mask)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS under_way (
    model TEXT, input TEXT, level INTEGER, mask BLOB, owner TEXT NOT NULL, expires REAL NOT NULL,
    PRIMARY KEY (model, input, level, mask)
) WITHOUT ROWID;
PRAGMA application_id={_APPLICATION};
PRAGMA user_version={_SCHEMA};
COMMIT;
"""
_THIS_ROW = "model=? AND input=? AND level=? AND mask=?"
_NO_COST = f"(level < 0 OR level & {COST} = 0)"  # a text is an answer too


class LedgerError(RuntimeError):
    """The file is not a ledger, or cannot be read or written."""


class DamagedTextError(LedgerError):
    """A text that is kept does not fit its checksum."""


class Connection(sqlite3.Connection):
    """A connection that several threads may use, each while it holds the lock."""

    def __init__(self, path: str) -> None:
        super().__init__(path, timeout=60.0, isolation_level=None, check_same_thread=False)
        self.lock = threading.RLock()

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # a file that could not be opened cannot be closed either
            self.close()  # from Python 3.13 on, a connection that is left to the collector warns


class Ledger:
    """Answers in an SQLite file, keyed by the model's name, the input with its masker, the level and the mask.

    Every batch is committed as soon as it is answered. Several processes may use one file, several threads one
    ledger; one that is sent to another process opens the file anew there. The file is closed when the ledger is no
    longer used, or by ``close``.

    Rows that are being asked are marked in the file, so that another process or thread waits for their answers instead
    of asking too. A mark is set when a batch is about to be sent and taken away when the batch is back, answered or
    not, and whoever waits has no batch under way: nobody waits for another in a circle. A mark whose process or thread
    has ended does not count, nor does one older than five minutes, so that nobody waits for long.

    >>> ledger = Ledger(":memory:")
    >>> ledger.put("m", "x", 1, [b"a"], np.array([[0.25, 0.75]]))
    >>> ledger.get("m", "x", 1, [b"a", b"b"])
    {b'a': array([0.25, 0.75])}
    >>> ledger.close()
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = _checked_path(path)
        in_memory = self.path == ":memory:"
        try:
            new = in_memory or _is_new(self.path)
            self._db = Connection(self.path)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error
        self._close = weakref.finalize(self, self._db.close)
        self._owner = this_process()
        self._threads: set[int] = set()  # those that have set marks
        try:
            if new:
                self._db.executescript(_CREATE)
            if not in_memory:
                try:  # let processes read while one writes
                    self._db.execute("PRAGMA journal_mode=WAL")
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # else another gets it done
                        raise
            self._file = None if in_memory else _file(self.path)
            self._version = self._data_version()
        except sqlite3.Error as error:
            self.close()
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> LedgerError:
        what = error.strerror if isinstance(error, OSError) else error
        return LedgerError(f"cannot open {self.path} as a ledger: {what}; give a new file name or an existing ledger")

    # -- answers

    def get(self, model: str, key: str, level: int, masks: Sequence[bytes]) -> dict[bytes, FloatArray | None]:
        """Return what is known of these masks; None for an answer that is damaged."""
        known: dict[bytes, FloatArray | None] = {}
        with self._telling("read answers from", "; give another ledger, or move this one away"):
            for chunk in (masks[i : i + 500] for i in range(0, len(masks), 500)):
                marks = ",".join("?" * len(chunk))
                with self._db.lock:
                    # Damage may change the type of a value too, and text that is no text cannot be read.
                    rows = self._db.execute(
                        "SELECT mask, CAST(output AS BLOB), CAST(checksum AS INTEGER) FROM answers "
                        f"WHERE model=? AND input=? AND level=? AND mask IN ({marks})",
                        (model, key, level, *chunk),
                    ).fetchall()
                for mask, blob, checksum in rows:
                    whole = len(blob) % 8 == 0 and checksum == _checksum((model, key, level, mask), blob)
                    known[mask] = np.frombuffer(blob, dtype="<f8") if whole else None
        return known

    def get_text(self, model: str, key: str) -> str | None:
        """Return the text that is kept of an input, or None; one that is damaged raises DamagedTextError."""
        name = (model, key, _TEXT, b"")
        with self._telling("read a text from", "; give another ledger"):
            row = self._text(name)
        if row is None:
            return None
        if row[1] != _checksum(name, row[0]):
            raise DamagedTextError(f"a text in {self.path} is damaged")
        return str(row[0], "utf-8", "surrogatepass")

    def _text(self, name: Name) -> tuple[bytes, int] | None:
        query = f"SELECT CAST(output AS BLOB), CAST(checksum AS INTEGER) FROM answers WHERE {_THIS_ROW}"
        with self._db.lock:
            row: tuple[bytes, int] | None = self._db.execute(query, name).fetchone()
        return row

    def keep_text(self, model: str, key: str, text: str) -> str:
        """Keep a text of an input, such as the answer that a language model wrote; return the one that is kept.

        Rows go with it, so that the first one stays. One that is damaged is written anew if it is the same again: its
        checksum tells.
        """
        name, blob = (model, key, _TEXT, b""), text.encode(errors="surrogatepass")
        checksum = _checksum(name, blob)
        with self._telling("write a text to"):
            self._check_file()
            with self._transaction() as db:
                kept = self._text(name)
                if kept is None or kept[0] == blob or kept[1] == checksum:
                    db.execute("INSERT OR REPLACE INTO answers VALUES (?,?,?,?,?,?)", (*name, blob, checksum))
                    return text
        try:
            return self.get_text(model, key) or text
        except DamagedTextError as error:
            raise LedgerError(
                f"{error}, and another one was written in its place, with which the rows there do not go; give another "
                "ledger"
            ) from error

    def count(self, model: str, key: str) -> int:
        """How many answers about an input are kept."""
        with self._telling("count the answers in"), self._db.lock:
            query = f"SELECT COUNT(*) FROM answers WHERE {_NO_COST} AND model=? AND input=?"
            (count,) = self._db.execute(query, (model, key)).fetchone()
        return int(count)

    def put(self, model: str, key: str, level: int, masks: Sequence[bytes], outputs: FloatArray) -> None:
        """Keep one batch of answers, all or none; a full disk raises LedgerError."""
        if not all(isinstance(name, str) for name in (model, key)) or not all(isinstance(m, bytes) for m in masks):
            raise TypeError("a ledger names answers by the model's and the input's name, texts, and by masks, bytes")
        if not isinstance(level, int) or abs(level) >= 2**63:
            raise TypeError(f"a level is a whole number, such as 0 for the coarsest; got {level!r}")
        if np.asarray(outputs).dtype.kind not in "fiub":
            raise TypeError(f"a ledger keeps numbers, not outputs of type {np.asarray(outputs).dtype}")
        self.write([as_row((model, key, level, mask), row) for mask, row in zip(masks, outputs, strict=True)])

    def write(self, rows: Sequence[Row], back: Sequence[Name] = ()) -> None:
        """Commit answers, all or none, and take away the marks of rows that are back."""
        if not rows:
            self._unmark(back)
            return
        try:
            with self._telling(f"write {len(rows)} answers to"):
                self._check_file()
                with self._transaction() as db:
                    db.executemany("INSERT OR REPLACE INTO answers VALUES (?,?,?,?,?,?)", rows)
                    db.executemany(f"DELETE FROM under_way WHERE {_THIS_ROW} AND owner=?", self._owned(back))
        except LedgerError:
            self._unmark(back)
            raise

    @contextlib.contextmanager
    def _telling(self, task: str, advice: str = "") -> Iterator[None]:
        """What SQLite refuses is told with the file's name."""
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(f"cannot {task} {self.path}: {error}{advice}") from error

    def _check_file(self) -> None:
        """SQLite itself goes on with a file that has no name any more, until nobody uses it and it is gone."""
        if self._file is not None and _file(self.path) != self._file:
            raise sqlite3.OperationalError("the file was deleted or replaced while it was in use")

    # -- rows under way

    @property
    def is_shared(self) -> bool:
        """Whether anyone else has written since the ledger was opened: then answers may come from elsewhere."""
        try:
            return len(self._threads) > 1 or self._data_version() != self._version
        except sqlite3.Error:  # whoever then looks for answers says what is wrong
            return True

    def _data_version(self) -> int:
        with self._db.lock:
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def mark(self, names: Sequence[Name]) -> set[Name]:
        """Mark rows as under way; return those that are already, for another process or thread, and were not marked.

        Where the ledger is shared, an answer may have come since the caller looked, who has to look again.
        """
        self._threads.add(threading.get_ident())
        try:
            with self._transaction(durable=False) as db:
                now = time.time()
                # One that expires later than any that is set now is of a clock that was ahead.
                db.execute("DELETE FROM under_way WHERE expires NOT BETWEEN ? AND ?", (now, now + 1.1 * _LEASE_SECONDS))
                others = db.execute("SELECT DISTINCT owner FROM under_way WHERE owner<>?", (self._me,)).fetchall()
                gone = [owner for owner in others if self._is_gone(*owner)]
                db.executemany("DELETE FROM under_way WHERE owner=?", gone)
                taken: set[Name] = set()
                if len(others) > len(gone):
                    query = f"SELECT 1 FROM under_way WHERE {_THIS_ROW} AND owner<>?"
                    taken = {name for name in names if db.execute(query, (*name, self._me)).fetchone() is not None}
                free = [(*name, self._me, now + _LEASE_SECONDS) for name in names if name not in taken]
                db.executemany("INSERT OR REPLACE INTO under_way VALUES (?,?,?,?,?,?)", free)
        except sqlite3.Error:  # without marks a row may be asked twice; that answers cannot be written is said then
            return set()
        return taken

    def _is_gone(self, owner: str) -> bool:
        """Whether the process or thread that set a mark has ended; a mark that is damaged is nobody's."""
        process, token, thread = ["", "", *owner.rsplit("~", 2)][-3:]
        if process == self._owner.rpartition("~")[0]:
            return thread not in map(str, sys._current_frames())
        return not token or is_gone(owner)

    def _unmark(self, names: Sequence[Name]) -> None:
        if names:
            with contextlib.suppress(sqlite3.Error), self._transaction(durable=False) as db:
                db.executemany(f"DELETE FROM under_way WHERE {_THIS_ROW} AND owner=?", self._owned(names))

    def _owned(self, names: Sequence[Name]) -> list[tuple[Any, ...]]:
        return [(*name, self._me) for name in names]

    @property
    def _me(self) -> str:
        """Who sets marks: this thread of this process."""
        return f"{self._owner}~{threading.get_ident()}"

    @contextlib.contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[Connection]:
        """All or nothing; one that is not durable does not wait for the disk, and may be lost with the machine."""
        with self._db.lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        if self.path == ":memory:":
            raise TypeError("a ledger in memory cannot be copied or sent to another process; give it a file")
        return Ledger, (self.path,)

    def __len__(self) -> int:
        with self._telling("count the answers in"), self._db.lock:
            self._check_file()
            (count,) = self._db.execute(f"SELECT COUNT(*) FROM answers WHERE {_NO_COST}").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._close()


def as_row(name: Name, output: FloatArray) -> Row:
    """Return an answer as a row of the table."""
    blob = np.ascontiguousarray(output, dtype="<f8").tobytes()
    return *name, blob, _checksum(name, blob)


def _checksum(name: Name, blob: bytes) -> int:
    """Tells a row that was damaged on the disk, the answer or what it belongs to."""
    model, key, level, mask = name
    return crc32(blob, crc32(mask, crc32(f"{model}\0{key}\0{level}".encode(errors="surrogatepass"))))


def _checked_path(path: Any) -> str:
    if not isinstance(path, str | PathLike):
        raise TypeError(f"a ledger must be a file name, such as 'answers.sqlite', or a c2fa.Ledger; got {path!r}")
    name = os.fsdecode(path)
    try:
        os.stat(name)
    except ValueError:  # a null character, or half of a surrogate pair
        raise LedgerError(f"no file can have the name {name!r}; give another, such as 'answers.sqlite'") from None
    except OSError:
        pass  # it may be made, or what is wrong is said when it is opened
    if not name:
        raise LedgerError("the ledger's file name is empty; give one, such as 'answers.sqlite'")
    return name


def _is_new(path: str) -> bool:
    """Whether a ledger is yet to be made of a file; one that is something else is refused before SQLite touches it."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return True
    if not header:
        return True
    # Where SQLite has the numbers that tell whose file it is, and of which version.
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if not header.startswith(b"SQLite format 3\0") or application != _APPLICATION:
        raise LedgerError(
            f"cannot open {path} as a ledger: it is something else; give a new file name or an existing ledger"
        )
    if version != _SCHEMA:
        raise LedgerError(f"{path} is a ledger of version {version}, and this is version {_SCHEMA}; use another file")
    return False


def _file(path: str) -> tuple[int, int] | None:
    """Which file lies at a path, or None."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
