"""Where a worker is, on disk: what the next one must know when this one dies."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from c2fa.batch.packing import Outcome
from c2fa.batch.records import arrow, decode, encode, provenance

_SPLIT = 8  # a range in which a worker died is tried again in this many pieces


class Diary:
    """A side file that says which inputs a worker is at, so that the next one knows where the last one died.

    A shard begins as one range. Where a worker died, the range is tried again in smaller pieces, down to the
    single input that kills; that one is set aside after the stated number of deaths. Pieces that are done are kept
    beside it, so that even workers that are killed all the time get on. No engine needs to know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None
        self._lines: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # a line that a dying worker wrote half
                    self._lines.append(json.loads(line))

    def __enter__(self) -> Diary:
        self._file = self.path.open("a", encoding="utf-8")
        self._file.write("\n")  # the last line may be half a line
        self.note({"life": os.getpid()})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:  # it failed in an orderly way: no one died in the last range
            with contextlib.suppress(OSError):
                self.note({"over": True})
        self._file.close()

    def note(self, line: Mapping[str, Any]) -> None:
        """Write a line at once, so that it is there whatever happens next."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def begin(self, start: int, stop: int) -> None:
        """Say which inputs are tried next."""
        self.note({"try": [start, stop]})

    def remove(self) -> None:
        """The shard is written: forget its history."""
        self.path.unlink(missing_ok=True)
        for kept in self.path.parent.glob(f"{self.path.stem}-*.kept"):
            kept.unlink(missing_ok=True)

    def keep(self, start: int, stop: int, outcomes: list[Outcome]) -> list[Outcome]:
        """Keep what became of a range until the shard is whole, exactly; return it."""
        table = encode(outcomes, "float64", "all")
        shared = json.dumps(provenance(outcomes)).encode()
        half = self._kept(start, stop).with_suffix(".tmp")
        arrow("parquet").write_table(table.replace_schema_metadata({b"c2fa": shared}), half)
        half.replace(self._kept(start, stop))
        return outcomes

    def recall(self, start: int, stop: int) -> list[Outcome] | None:
        """What an earlier worker kept of a range, or None."""
        file = self._kept(start, stop)
        if not file.exists():
            return None
        table = arrow("parquet").read_table(file, partitioning=None)
        shared = json.loads(table.schema.metadata[b"c2fa"])
        return [
            Outcome(row["index"], row["key"], None if row["error"] else decode(row, shared), row["error"])
            for row in table.to_pylist()
        ]

    def _kept(self, start: int, stop: int) -> Path:
        return self.path.with_name(f"{self.path.stem}-{start}-{stop}.kept")

    def deaths(self) -> dict[tuple[int, int], list[str]]:
        """For each range that a worker did not survive, the reasons, one for each death since it last survived.

        A worker that goes from one range to the next has survived the first, so only the last range of a life counts.
        """
        found: dict[tuple[int, int], list[str]] = {}
        current: tuple[int, int] | None = None
        why = "the worker died"
        for line in [*self._lines, {"life": os.getpid()}]:
            if "why" in line:
                why = str(line["why"])
            elif "over" in line:
                current = None
            elif "try" in line:
                if current is not None:
                    found.pop(current, None)
                start, stop = line["try"]
                current = (start, stop)
            elif "life" in line:
                if current is not None:
                    found.setdefault(current, []).append(why)
                current, why = None, "the worker died"
        return found

    def plan(self, count: int, tries: int) -> list[tuple[int, int | None]]:
        """The ranges to try; (i, None) stands for an input that is to be set aside.

        Those in which no one died come first: workers that are killed by something else then die in different
        ranges, and only an input that kills each time collects its deaths.
        """
        deaths = self.deaths()
        ranges: list[tuple[int, int | None]] = []

        def cut(start: int, stop: int) -> None:
            died = len(deaths.get((start, stop), ()))
            if stop - start == 1 and died >= tries:
                ranges.append((start, None))
            elif died and stop - start > 1:
                size = -(-(stop - start) // _SPLIT)
                for at in range(start, stop, size):
                    cut(at, min(at + size, stop))
            else:
                ranges.append((start, stop))

        cut(0, count)
        return sorted(ranges, key=lambda r: len(deaths.get((r[0], r[1] or 0), ())))

    def verdict(self, index: int) -> str:
        """Why an input is set aside."""
        reasons = self.deaths()[index, index + 1]
        return f"{reasons[-1]} while this input was explained alone ({len(reasons)} times)"
