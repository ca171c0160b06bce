"""Exit codes, and the exceptions that carry them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

BUG, USAGE, UNUSABLE, MODEL = 1, 2, 3, 4
CLOSED_PIPE = 128 + 13  # what a shell reports for a command that SIGPIPE ended


class RefusedError(Exception):
    """The command cannot go on; the message is for people, the code for scripts."""

    def __init__(self, message: str, code: int = UNUSABLE) -> None:
        super().__init__(message)
        self.code = code


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM; the exit code is 128 plus the signal's number."""

    def __init__(self, number: int, message: str = "interrupted; nothing was asked yet") -> None:
        super().__init__(message)
        self.code = 128 + number


class ClosedPipeError(Exception):
    """Nobody reads stdout any more, as in ``c2fa demo | head -1``."""


@contextmanager
def as_usage() -> Iterator[None]:
    """Report what the package refuses inside as a usage error: it is about an option's value."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error), USAGE) from error
