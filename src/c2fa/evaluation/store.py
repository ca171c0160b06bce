"""A folder from which an evaluation goes on after a crash: finished inputs, and a ledger of answers."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

from c2fa._system import atomic
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.ledger import Ledger
from c2fa.evaluation.results import Record
from c2fa.showing.codec import seal, unseal


class Store:
    """Finished inputs, one file of JSON each: an input is finished if and only if its file exists.

    Files of one grid lie in a folder that is named by a hash of its settings. Another grid begins another folder, on
    the same ledger, so that no question is repeated there either. Several processes may use one store.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: str, keep_answers: bool = True) -> None:
        self.folder = Path(folder) / f"results-{settings[:12]}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(Path(folder) / "answers.sqlite") if keep_answers else None

    def read(self, cell: str) -> Record | None:
        """What is kept of an input; None where it is not finished, or its file is damaged and is to be made anew."""
        path = self._path(cell)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return unseal(json.loads(data))
        except (ValueError, RecursionError) as error:
            said = f"{path} is damaged ({error}): its input counts as not finished, and the same call does it again"
            warnings.warn(said, stacklevel=2)
            return None

    def write(self, cell: str, record: Record) -> None:
        """Keep a finished input; it is on the disk when this returns."""
        with atomic(self._path(cell)) as file:
            file.write(json.dumps(seal(record)).encode())

    def close(self) -> None:
        """Close the ledger."""
        if self.ledger is not None:
            self.ledger.close()

    def _path(self, cell: str) -> Path:
        return self.folder / f"{fingerprint(cell)[:32]}.json"
