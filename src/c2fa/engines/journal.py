"""A file in which a process notes what it works on, so that its successor knows of what it died."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Death:
    """The end of a process at a place: its reason, if it wrote one; what it knew; whether its run ended with it."""

    reason: str
    known: int
    with_its_run: bool


class Journal:
    """Lines of JSON, in one file for all processes that do the same work one after another.

    A process comes to a place by ``at`` and has none after ``leave``; if it ends at a place, that is a death there.
    ``deaths`` are those of earlier processes at each place since one survived it, by going on to another place. A
    process that ends together with its ``run`` was killed with it, for which the place is not to blame.
    """

    def __init__(self, path: Path, run: str = "") -> None:
        self.path, self.run = path, run
        self.deaths: dict[Place, list[Death]] = {}
        place: Place | None = None
        reason, known, of_run = "", 0, ""
        for line in [*self._lines(), {"begins": run}]:
            match line:
                case {"begins": next_run}:
                    if place is not None:
                        death = Death(reason, known, with_its_run=next_run != of_run)
                        self.deaths.setdefault(place, []).append(death)
                    place, reason, of_run = None, "", next_run
                case {"at": [*at], "known": int(answers)} if all(isinstance(each, str | int) for each in at):
                    if place is not None:
                        self.deaths.pop(place, None)
                    place, known = tuple(at), answers
                case {"left": _}:
                    place = None
                case {"reason": text}:
                    reason = str(text)

    def begin(self) -> None:
        """Note that a process begins."""
        self._note({"begins": self.run})

    def at(self, *place: Any, known: int = 0) -> None:
        """Note that the process comes to a place, with ``known`` answers about it; it has survived its last place."""
        self._note({"at": place, "known": known})

    def leave(self) -> None:
        """Note that the process ends in order, without having survived its place."""
        self._note({"left": True})

    def late(self, reason: str) -> None:
        """Note why this process is about to end itself."""
        with contextlib.suppress(OSError):
            self._note({"reason": reason})

    def _lines(self) -> Iterator[Any]:
        """The notes, without lines that are damaged or that a dying process left half written."""
        with contextlib.suppress(FileNotFoundError):
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    yield json.loads(line)

    def _note(self, line: Any) -> None:
        """Write a line at once, so that a crash cannot lose it; the file may end with half a line."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(line)}\n")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
