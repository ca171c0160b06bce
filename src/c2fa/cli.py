"""The command line."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, add_completion=True, help="Attributions that add up, at every level.")


@app.callback()
def _root() -> None:
    """Attributions that add up, at every level of a nested input."""


@app.command()
def info() -> None:
    """Print the version."""
    import c2fa

    typer.echo(f"c2fa {c2fa.__version__}")


def main() -> None:
    """Run the command line."""
    app()
