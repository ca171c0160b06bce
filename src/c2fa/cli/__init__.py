"""The command line: ``c2fa demo``, ``explain``, ``cite``, ``evaluate``, ``report`` and ``info``."""

from __future__ import annotations

import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any

from typer import Typer

from c2fa.cli.app import app
from c2fa.cli.output import CLOSED_PIPE, say

__all__ = ["app", "main", "run"]


def main() -> None:
    """Run ``c2fa``."""
    run(app, "c2fa")


def run(commands: Typer, name: str) -> None:
    """Run a command line whose output may go to any terminal, file or pipe."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a letter that the terminal lacks must not end a paid run
            stream.reconfigure(errors="replace")
    warnings.showwarning = _warn
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they would mix with our own progress
    try:
        commands(prog_name=name)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of --help, which rich prints; rich ends with 1
            raise SystemExit(CLOSED_PIPE) from None
        raise


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a library's warning in one line, without the place in its code."""
    say(f"warning: {message}")
