"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from c2fa.cli.demo import demo
from c2fa.cli.evaluate import evaluate
from c2fa.cli.explain import explain
from c2fa.cli.info import info
from c2fa.cli.report import report
from c2fa.cli.reproduce import reproduce

app = typer.Typer(
    name="c2fa",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from c2fa._version import __version__

        typer.echo(f"c2fa {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Explain any model's prediction on a nested input, at every level.

    \bA review of sentences of words, a bag of images of super-pixels, a row of
    groups of columns: a part's attribution is the sum of its children's, and
    how many questions the model is asked is yours to set.

    \bBegin here:
      c2fa demo                                an explanation in seconds
      c2fa explain review.txt --model demo     a text of yours
      c2fa explain rows.csv -m sklearn:model.skops --out report.html
      c2fa explain scans/ -m python:mine:classify --out report.html
      c2fa COMMAND --help                      more examples

    \bExit codes:
        0  done
        1  a fault in c2fa itself (--debug shows where)
        2  the command is not written as it must be
        3  an input, a model or an output cannot be used
        4  the model failed
      130  interrupted with Ctrl-C; the same command continues
      143  terminated (SIGTERM); the same command continues
    """


app.command()(demo)
app.command()(explain)
app.command()(evaluate)
app.command()(report)
app.command()(info)
app.add_typer(reproduce, name="reproduce")
