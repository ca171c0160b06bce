"""How a command ends: Ctrl-C and SIGTERM, answers kept for the next run, errors as one sentence and an exit code."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import typer

from c2fa._system import Signals
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.ledger import Ledger, LedgerError
from c2fa.asking.model import ModelProxy
from c2fa.asking.replies import QueryError
from c2fa.cli import output
from c2fa.cli.output import ClosedPipeError, RefusedError, say

if TYPE_CHECKING:
    from filelock import BaseFileLock


# ---------------------------------------------------------------------------------- errors


@contextlib.contextmanager
def guarded(debug: bool) -> Iterator[None]:
    """Turn whatever goes wrong inside into one sentence on stderr and an exit code."""
    try:
        yield
    except InterruptedRun as stop:
        say(str(stop))
        raise typer.Exit(stop.code) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(128 + signal.SIGINT) from None
    except ClosedPipeError:
        raise typer.Exit(output.CLOSED_PIPE) from None
    except Exception as error:
        if isinstance(error, typer.Exit):
            raise
        if debug:
            say("".join(traceback.format_exception(error)).rstrip())
        kind, code, text = type(error).__name__, output.BUG, str(error) or type(error).__name__
        # By name, because their modules are loaded only where a server or a store is used.
        of_the_model = ("EndpointError", "ModelDownError", "NoAnswerError", "WorkerError", "BatchError")
        known = (ValueError, TypeError, KeyError, ImportError, OSError, LedgerError)
        if isinstance(error, RefusedError):
            code = error.code
        elif isinstance(error, QueryError) or kind in of_the_model:
            code = output.MODEL
        elif isinstance(error, known) or kind in (
            "StoreError",
            "NotExplainedError",
        ):  # what the package or the machine refuses in words
            code = output.UNUSABLE
        if isinstance(error, KeyError) and error.args:
            text = str(error.args[0])
        elif isinstance(error, OSError) and error.strerror:
            text = f"{error.strerror}: {str(error.filename)!r}" if error.filename else error.strerror
        if code == output.BUG:
            text = f"unexpected {kind}: {text}; run again with --debug to see where"
        output.say_error(_as_flags(text))
        for note in getattr(error, "__notes__", ()):
            say(_as_flags(note))
        raise typer.Exit(code) from None


def _as_flags(text: str) -> str:
    """Replace the Python arguments that an error recommends by flags.

    >>> _as_flags("use on_error='drop' to leave such rows out, or take strategy='mean'")
    'use --on-error drop to leave such rows out, or take --masker strategy=mean'
    """
    flags = r"\b(on_error|ledger|model_name|similarity|answer)='([^']*)'"
    text = re.sub(flags, lambda m: f"--{m[1].replace('_', '-')} {m[2]}", text)
    text = re.sub(r"\bcolumn='([^']*)'", r"--field '\1'", text)
    text = re.sub(r"\btrusted='([^']*)'", r"--model-option trusted=\1", text)
    return re.sub(r"\b(strategy|mask|absent)='([^']*)'", r"--masker \1=\2", text)


# ---------------------------------------------------------------------------------- Ctrl-C


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM; the exit code is 128 plus the signal's number."""

    def __init__(self, number: int, message: str = "interrupted; nothing was asked yet") -> None:
        super().__init__(message)
        self.code = 128 + number


class Stop:
    """Turns Ctrl-C and SIGTERM into an end between two batches; a second one ends the run at once.

    Where no batch is under way (a model is loaded, an image segmented) the first one ends the run at once too.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._under_way = False
        self._signals = Signals(self._on)

    def __enter__(self) -> Stop:
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__()

    def begin(self) -> None:
        """A batch is about to be sent: all earlier answers are kept, so a run may end here."""
        self.settle()
        self._under_way = True

    def settle(self) -> None:
        """No batch is under way: end here if that was asked for."""
        self._under_way = False
        if self.asked is not None:
            raise InterruptedRun(self.asked)

    @contextlib.contextmanager
    def keeping(self, kept: Callable[[], str]) -> Iterator[None]:
        """Say what is kept of a run that ends early: as its last line when interrupted, as a note on an error."""
        try:
            yield
        except KeyboardInterrupt:
            raise InterruptedRun(self.asked or signal.SIGINT, f"interrupted; {kept()}") from None
        except Exception as error:
            if self.asked is not None:  # Ctrl-C reached the model's own processes too, and broke them
                raise InterruptedRun(self.asked, f"interrupted; {kept()}") from error
            if not (isinstance(error, RefusedError) and error.code == output.USAGE):
                error.add_note(f"stopped; {kept()}")
            raise

    def _on(self, number: int) -> None:
        first, self.asked = self.asked is None, number
        if not (first and self._under_way):
            raise InterruptedRun(number)
        # Not by print(), in the middle of which the signal may have come.
        os.write(2, b"\nfinishing the batch under way so that its answers are kept; Ctrl-C again stops at once\n")


class Stoppable(ModelProxy):
    """A model that can be stopped between two batches; its name, outputs, cost and notes are the model's own."""

    def __init__(self, model: Callable[[Any], Any], stop: Stop) -> None:
        super().__init__(model)
        self._stop = stop

    def __call__(self, batch: Any) -> Any:
        self._stop.begin()
        return self.model(batch)


# ---------------------------------------------------------------------------------- resuming


class Resume:
    """A file (or folder) in the user's cache that belongs to one model and its inputs, one command at a time.

    ``path`` is None where it cannot be used, and the reason was said. ``finish()`` removes it at the end, so that
    after a success nothing is answered from a model that may have changed since.
    """

    def __init__(self, wanted: bool, spec: str, options: Any, inputs: Sequence[str], suffix: str) -> None:
        self.path: Path | None = None
        self._lock: BaseFileLock | None = None
        self._finished = False
        if not wanted:
            return
        from filelock import FileLock, Timeout  # loads asyncio, which no other command needs

        name = fingerprint(spec, options, _model_state(spec), list(inputs), suffix)[:24]
        folder = cache_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("resume-*"):  # that nobody came back for in a month
                with contextlib.suppress(OSError):
                    if time.time() - old.stat().st_mtime > 30 * 24 * 3600:
                        _remove(old)
            self._lock = FileLock(folder / f"resume-{name}.lock")
            self._lock.acquire(blocking=False)
        except Timeout:
            say("another command is explaining the same inputs; this one cannot be continued if it stops")
            return
        except OSError as error:
            say(
                f"cannot keep answers in {str(folder)!r} ({error.strerror}); going on, but a run that stops starts "
                "over (--ledger FILE keeps them elsewhere, --no-resume switches this off)"
            )
            return
        self.path = folder / f"resume-{name}{suffix}"

    def ledger(self) -> Path | None:
        """The file, once it is certain that it can hold answers; a broken one is replaced."""
        if self.path is None:
            return None
        for last in (False, True):
            try:
                Ledger(self.path).close()
                return self.path
            except LedgerError as error:
                _remove(self.path)
                if last:
                    say(f"{error}; going on, but a run that stops starts over")
        return None

    def finish(self) -> None:
        """Forget the answers at the end: the command succeeded, or there is nothing to keep."""
        self._finished = True

    def __enter__(self) -> Resume:
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None and self._finished:
            _remove(self.path)
            _remove(self.path.with_suffix(".lock"))
        if self._lock is not None:
            self._lock.release()


def cache_folder() -> Path:
    """This user's cache, where the system has it: ``~/.cache/c2fa`` on Linux."""
    return platformdirs.user_cache_path("c2fa", appauthor=False)


def _model_state(spec: str) -> list[Any]:
    """What tells two states of a local model apart: the size and time of its file, or of a folder's files."""
    kind, _, rest = spec.partition(":")
    if kind == "python":
        rest = getattr(sys.modules.get(rest.partition(":")[0]), "__file__", None) or ""
    path = Path(rest)
    if not rest or "://" in rest or not path.exists():
        return []
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())[:1000]
    return [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files]


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            for name in (path, *(Path(f"{path}{tail}") for tail in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)
