"""The command line: ``c2fa demo``, ``explain``, ``evaluate``, ``report`` and ``info``."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from c2fa.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without a letter must not end a paid run
            stream.reconfigure(errors="replace")
    app(prog_name="c2fa")
