"""A folder from which an evaluation goes on after a crash: a ledger of answers and a file of finished inputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from c2fa.ledger import Ledger


class Store:
    """Finished inputs, one line of JSON each, written to disk before the next input begins.

    The file's name carries a hash of the grid's settings: another grid begins another file, on the same ledger, so
    that no question is repeated there either.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.folder / "answers.sqlite")
        self.path = self.folder / f"results-{settings[:12]}.jsonl"
        self.done: dict[str, dict[str, Any]] = {}
        good = 0
        if self.path.exists():
            for line in self.path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break  # the process died while it wrote this line: the input is done again
                record = json.loads(line)
                self.done[record["key"]] = record
                good += len(line)
            os.truncate(self.path, good)

    def write(self, record: dict[str, Any]) -> None:
        """Add one finished input; it is on the disk when this returns."""
        with self.path.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.done[record["key"]] = record

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()
