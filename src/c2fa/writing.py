"""The one way to write a file: whole, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from c2fa.owners import this_process


@contextmanager
def atomic(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Give a file to write to, which takes its place only when all of it is on the disk.

    Until then it has another name in the same folder, so that a crash, a full disk or Ctrl-C leaves an older file as it
    was. A link stays a link, and an older file's permissions stay; until then its owner alone can read the new one.
    """
    given = Path(path)
    if given.exists() and not given.is_file():  # a pipe or a device has no older content, and no other name
        with given.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(given))
    half = target.with_name(f"_{target.stem.lstrip('_')[:32]}-{this_process()}.tmp")
    try:
        mode = 0o666
        with contextlib.suppress(FileNotFoundError):  # links in a circle are another error
            mode = stat.S_IMODE(target.stat().st_mode) & 0o700
            target.open("r+b").close()  # a rename would replace a file that is write-protected
        with open(half, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, half)
        half.replace(target)
    except OSError as error:
        if error.errno is None:
            raise
        said = f"{error.strerror}; nothing was written, and an older file is as it was"
        raise OSError(error.errno, said, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink()
    _sync(target.parent)


def _sync(folder: Path) -> None:
    """Make a rename in a folder outlive a power cut, where the system can."""
    with contextlib.suppress(OSError):  # Windows cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Lines:
    """A file of lines of JSON in which a process says what it is at, so that the next knows where it died."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[Any]:
        """What was noted, but for lines that a dying process wrote half, or that were damaged."""
        with contextlib.suppress(FileNotFoundError):
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    yield json.loads(line)

    def note(self, line: Any) -> None:
        """Write a line at once, so that it is there whatever happens next; the one before may be half a line."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(line)}\n")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def late(self, reason: str) -> None:
        """Say why this process is about to end itself."""
        with contextlib.suppress(OSError):
            self.note({"reason": reason})
