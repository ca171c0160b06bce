"""Commands run in this process, with standard error apart from standard output."""

from __future__ import annotations

from inspect import signature

from typer.testing import CliRunner

# Before version 8.2, click joins the two unless it is told not to.
RUNNER = CliRunner(mix_stderr=False) if "mix_stderr" in signature(CliRunner).parameters else CliRunner()
