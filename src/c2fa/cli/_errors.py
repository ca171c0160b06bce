"""What a script can rely on: one sentence on stderr and an exit code for each kind of failure."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from c2fa.cli._saying import error_line, say

_PYTHON = re.compile(r"\b(on_error|ledger|model_name|strategy|mask|absent)='([^']*)'")
BUG, USAGE, UNUSABLE, MODEL = 1, 2, 3, 4


class RefusedError(Exception):
    """The command cannot go on; the message is for people, the code for scripts."""

    def __init__(self, message: str, code: int = UNUSABLE) -> None:
        super().__init__(message)
        self.code = code


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or a signal that ends the command; the exit code is 128 and the signal's number."""

    def __init__(self, number: int, message: str = "interrupted; nothing was asked yet") -> None:
        super().__init__(message)
        self.code = 128 + number


@contextmanager
def guarded(debug: bool) -> Iterator[None]:
    """Turn whatever goes wrong inside into one sentence on stderr and an exit code."""
    try:
        yield
    except KeyboardInterrupt as stop:
        say(str(stop) or "interrupted")
        raise typer.Exit(getattr(stop, "code", 130)) from None
    except Exception as error:
        if isinstance(error, BrokenPipeError) or _typers_own(error):
            raise
        if debug:
            say("".join(traceback.format_exception(error)).rstrip())
        code = _code(error)
        error_line(_as_flags(_sentence(error, code)))
        for note in getattr(error, "__notes__", ()):
            say(_as_flags(note))
        raise typer.Exit(code) from None


@contextmanager
def as_usage() -> Iterator[None]:
    """What the package refuses inside is about an option's value, and so about how the command is written."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error), USAGE) from error


def _typers_own(error: Exception) -> bool:
    """Whether typer itself knows what to do with it: leaving, a wrong option."""
    return isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "format_message")


def _code(error: Exception) -> int:
    from c2fa.ledger import LedgerError
    from c2fa.querying import QueryError

    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, QueryError) or type(error).__name__ in (
        "EndpointError",
        "ModelDownError",
        "WorkerError",
        "BatchError",
    ):
        return MODEL
    # What our own rooms refuse in words, and what the machine refuses.
    known = (ValueError, TypeError, KeyError, ImportError, OSError, LedgerError)
    if isinstance(error, known) or type(error).__name__ == "StoreError":
        return UNUSABLE
    return BUG


def _as_flags(text: str) -> str:
    """What an error tells people to write in Python, as the command line has it.

    >>> _as_flags("use on_error='drop' to leave such rows out")
    'use --on-error drop to leave such rows out'
    """
    return _PYTHON.sub(lambda m: f"--{m[1].replace('_', '-')} {m[2]}", text)


def _sentence(error: Exception, code: int) -> str:
    if isinstance(error, KeyError) and error.args:
        text = str(error.args[0])
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {str(error.filename)!r}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    if code == BUG:
        text = f"unexpected {type(error).__name__}: {text}; run again with --debug to see where"
    return text
