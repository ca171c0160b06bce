"""The one way to write a file: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO

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
