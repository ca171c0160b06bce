"""The commands, put together, and ``c2fa info``: what is installed, what is missing, what there is to choose from."""

from __future__ import annotations

import json as json_
import platform
import re
from importlib import metadata
from typing import Annotated, Any

import typer

from c2fa._version import __version__
from c2fa.cli import options as o
from c2fa.cli.cite import cite
from c2fa.cli.demo import demo
from c2fa.cli.evaluate import evaluate
from c2fa.cli.explain import explain
from c2fa.cli.output import out, out_json
from c2fa.cli.report import learn, report
from c2fa.cli.session import guarded
from c2fa.cli.verify import verify
from c2fa.methods import METHODS, PEERS

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
      c2fa verify --docs texts/ --query "Who?" --answer "Ada [1]." -m hf:my-model
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


def info(json: o.Json = False, debug: o.Debug = False) -> None:
    """Show what is installed, and list the extras, methods and models.

    \bExamples:
      c2fa info
      c2fa info --json
    """
    with guarded(debug):
        facts = {
            "c2fa": __version__,
            "python": platform.python_version(),
            "packages": {name: metadata.version(name) for name in ("numpy", "scipy")},
            "extras": _extras(),
            "methods": list(METHODS),
            "models": o.MODELS,
        }
        if json:
            out_json(json_.dumps(facts))
        else:
            out("\n".join(_lines(facts)))


def _lines(facts: dict[str, Any]) -> list[str]:
    purposes = {
        "frame": "tables of results",
        "text": "Hugging Face models",
        "images": "images",
        "tabular": "tables, scikit-learn models",
        "torch": "torch models",
        "onnx": "ONNX models",
        "http": "models behind a server",
        "plots": "plots",
        "live": "pages that answer back",
        "peers": "other libraries' methods",
        "store": "stores of many inputs",
        "ray": "stores made on Ray",
        "dask": "stores made on Dask",
        "pdf": "documents in PDF files",
    }
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    lines = [f"c2fa {facts['c2fa']}, Python {facts['python']}, {packages}", "", "Extras"]
    for extra, state in facts["extras"].items():
        status = "installed"
        if state["missing"]:
            status = f"{state['install']}   (missing: {', '.join(state['missing'])})"
        lines.append(f"  {extra:9}{purposes.get(extra, ''):30}{status}")
    own = [name for name in METHODS if name not in PEERS]
    lines += ["", "Methods", f"  {', '.join(own)}", f"  of other libraries: {', '.join(PEERS)}"]
    lines += ["", "Models", *(f"  {form:34}{what}" for form, what in o.MODELS.items())]
    return lines


def _extras() -> dict[str, dict[str, Any]]:
    """For each extra of the package, which of its packages are missing and the command that installs them."""
    extras: dict[str, dict[str, Any]] = {}
    for line in metadata.requires("c2fa") or []:
        match = re.match(r"""([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['"]([^'"]+)['"]""", line)
        if match is None or match[2] in ("dev", "docs") or match[1] == "c2fa":
            continue
        name, extra = match.groups()
        state = extras.setdefault(extra, {"installed": True, "missing": [], "install": f"pip install 'c2fa[{extra}]'"})
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            state["missing"].append(name)
            state["installed"] = False
    return extras


for command in (demo, explain, cite, verify, learn, evaluate, report, info):
    app.command()(command)
