"""Answers of a run that did not end well, kept in the user's cache until the same command succeeds."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from c2fa.cli._saying import say
from c2fa.ledger import Ledger, LedgerError
from c2fa.masking import fingerprint

_KEEP_SECONDS = 30 * 24 * 3600


def cache_folder() -> Path:
    """Where this user's cache is."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification says to pass over relative ones
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "c2fa"


def model_stamp(spec: str) -> list[Any]:
    """What tells two states of a local model apart: the size and time of its file, or of a folder's files."""
    kind, _, rest = spec.partition(":")
    if kind == "python":
        found = getattr(sys.modules.get(rest.partition(":")[0]), "__file__", None)
        path = Path(found) if found else Path()
    else:
        path = Path(rest or ".")
    if not rest or "://" in rest or not path.exists():
        return []
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())[:1000]
    return [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files]


class Resume:
    """A file (or folder) in the cache that belongs to one model and its inputs, one command at a time.

    ``path`` is None where it cannot be used; why was said. After ``finish()`` it is removed, so that the answers of a
    model that has changed since are never used after a success.
    """

    def __init__(self, wanted: bool, spec: str, options: Any, inputs: Sequence[str], suffix: str) -> None:
        self.path: Path | None = None
        self._lock: int | None = None
        self._finished = False
        if not wanted:
            return
        name = fingerprint(spec, options, model_stamp(spec), list(inputs))[:24]
        folder = cache_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _sweep(folder)
            self._lock = _lock(folder / f"resume-{name}.lock")
        except BlockingIOError:
            say("the same inputs are being explained by another command; this one cannot be continued if it stops")
            return
        except OSError as error:
            say(
                f"cannot keep answers in {str(folder)!r} ({error.strerror}); going on, but a run that stops begins "
                "anew (--ledger FILE keeps them elsewhere, --no-resume switches this off)"
            )
            return
        self.path = folder / f"resume-{name}{suffix}"

    def ledger(self) -> Path | None:
        """The file, once it is certain that answers can be kept in it; one that is broken begins anew."""
        if self.path is None:
            return None
        for last in (False, True):
            try:
                Ledger(self.path).close()
                return self.path
            except LedgerError as error:
                _remove(self.path)
                if last:
                    say(f"{error}; going on, but a run that stops begins anew")
        return None

    def finish(self) -> None:
        """The command succeeded, or there is nothing to keep: forget the answers once their file is closed."""
        self._finished = True

    def __enter__(self) -> Resume:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path is not None and self._finished:
            _remove(self.path)
            _remove(self.path.with_suffix(".lock"))
        if self._lock is not None:
            os.close(self._lock)


def _lock(path: Path) -> int:
    """Hold a lock until the process ends; BlockingIOError where another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl
    except ImportError:  # Windows: a file that is open there cannot be removed under its user anyway
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            for name in (path, *(Path(f"{path}{tail}") for tail in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what nobody came back for."""
    for old in folder.glob("resume-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _KEEP_SECONDS:
                _remove(old)
