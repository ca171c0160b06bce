"""A ledger that is written once for each batch of the model, however many inputs share it."""

from __future__ import annotations

from collections.abc import Sequence

from c2fa.ledger import Ledger, Row


class BatchLedger(Ledger):
    """Another ledger's file, in which answers wait for ``flush`` and are then committed all at once.

    A commit waits for the disk. One for each input of a packed batch would take longer than some models do, and a
    process that is killed in between would lose answers that it had.

    >>> import numpy as np
    >>> kept = Ledger(":memory:")
    >>> batch = BatchLedger(kept)
    >>> batch.put("m", "x", 1, [b"a"], np.array([[0.5]]))
    >>> len(kept), batch.flush(), len(kept)
    (0, None, 1)
    >>> kept.close()
    """

    def __init__(self, ledger: Ledger) -> None:
        self.path, self._db = ledger.path, ledger._db
        self._rows: list[Row] = []

    def write(self, rows: Sequence[Row]) -> None:
        """Keep rows until the next flush."""
        self._rows += rows

    def flush(self) -> None:
        """Write what waits, all or none; a full disk raises LedgerError."""
        rows, self._rows = self._rows, []
        if rows:
            super().write(rows)
