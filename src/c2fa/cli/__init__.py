"""The command line: ``c2fa demo``, ``explain``, ``evaluate``, ``report`` and ``info``."""

from __future__ import annotations

import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any

from c2fa.cli._saying import say
from c2fa.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without a letter must not end a paid run
            stream.reconfigure(errors="replace")
    warnings.showwarning = _warn
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # bars of loading would mix with what is said here
    app(prog_name="c2fa")


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A library's warning in one line, without the place in its code."""
    say(f"warning: {message}")
