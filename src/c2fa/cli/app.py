"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from c2fa._version import __version__
from c2fa.cli.cite import cite
from c2fa.cli.demo import demo
from c2fa.cli.evaluate import evaluate
from c2fa.cli.explain import explain
from c2fa.cli.info import info
from c2fa.cli.learn import learn
from c2fa.cli.report import report

app = typer.Typer(
    name="c2fa",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"c2fa {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Explain any model's prediction on a nested input, at every level.

    \bA nested input is a review of sentences of words, a bag of images of
    super-pixels, or a row of groups of columns. A part's attribution is the sum
    of its children's. You set how many rows the model is asked.

    \bStart here:
      c2fa demo                                an explanation in seconds
      c2fa explain review.txt --model demo     a text of your own
      c2fa explain rows.csv -m sklearn:model.skops --out report.html
      c2fa explain scans/ -m python:mine:classify --out report.html
      c2fa cite --docs texts/ --query "Who?" -m hf:my-model
      c2fa COMMAND --help                      more examples

    \bExit codes:
        0  done
        1  a bug in c2fa (--debug shows where)
        2  usage error
        3  an input, a model or an output cannot be used
        4  the model failed
      130  interrupted with Ctrl-C; the same command continues
      141  stdout was closed, as by | head
      143  terminated (SIGTERM); the same command continues
    """


for command in (demo, explain, cite, learn, evaluate, report, info):
    app.command()(command)
