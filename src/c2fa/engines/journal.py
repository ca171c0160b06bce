"""A side file in which processes say what they are at, so that the next one knows where the last one died."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Death:
    """The end of a process at a place: why, where it could still say so; what it knew; whether its run died too."""

    reason: str
    known: int
    with_its_run: bool


class Journal:
    """Lines of JSON, in one file for all processes that do the same work one after another.

    ``deaths`` are those of earlier ones: for each place those since a process was there and went on to another. A
    process is given a place by ``at``; it has no more of one after ``leave``, and its end is then no death. Whoever
    dies with its ``run`` was killed with it, which is no place's doing.
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
        """A process begins."""
        self._note({"begins": self.run})

    def at(self, *place: Any, known: int = 0) -> None:
        """The process comes to a place, and knows so many answers about it; it has survived where it was."""
        self._note({"at": place, "known": known})

    def leave(self) -> None:
        """The process ends in order, and has not survived where it was."""
        self._note({"left": True})

    def late(self, reason: str) -> None:
        """Say why this process is about to end itself."""
        with contextlib.suppress(OSError):
            self._note({"reason": reason})

    def reasons(self, place: Sequence[Any], default: str) -> list[str]:
        """Why processes died at a place."""
        return [death.reason or default for death in self.deaths.get(tuple(place), [])]

    def _lines(self) -> Iterator[Any]:
        """What was noted, but for lines that a dying process wrote half, or that were damaged."""
        with contextlib.suppress(FileNotFoundError):
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    yield json.loads(line)

    def _note(self, line: Any) -> None:
        """Write a line at once, so that it is there whatever happens next; the one before may be half a line."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(line)}\n")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
