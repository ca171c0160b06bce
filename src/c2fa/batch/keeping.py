"""A ledger that is written once for each batch of the model, however many inputs share it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from c2fa.ledger import Ledger, LedgerError
from c2fa.structure import FloatArray


class BatchLedger(Ledger):
    """Another ledger's file, in which answers wait for ``flush`` and are then committed all at once.

    A commit waits for the disk. One for each input of a packed batch would take longer than some models do, and a
    process that is killed in between would lose answers that it had.

    >>> kept = Ledger(":memory:")
    >>> batch = BatchLedger(kept)
    >>> batch.put("m", "x", 1, [b"a"], np.array([[0.5]]))
    >>> len(kept), batch.flush(), len(kept)
    (0, None, 1)
    >>> kept.close()
    """

    def __init__(self, ledger: Ledger) -> None:
        self.path, self._db = ledger.path, ledger._db
        self._rows: list[tuple[str, str, int, bytes, bytes]] = []

    def put(self, model: str, key: str, level: int, masks: Sequence[bytes], outputs: FloatArray) -> None:
        """Keep answers until the next flush."""
        self._rows += [
            (model, key, level, mask, np.ascontiguousarray(row, dtype="<f8").tobytes())
            for mask, row in zip(masks, outputs, strict=True)
        ]

    def flush(self) -> None:
        """Write what waits, all or none; a full disk raises LedgerError."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO answers VALUES (?,?,?,?,?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise LedgerError(f"cannot write {len(rows)} answers to {self.path}: {error}") from error
