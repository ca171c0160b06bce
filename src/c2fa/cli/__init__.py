"""The command line: its long commands, from modules of their own, and ``demo``, ``report``, ``learn`` and ``info``."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from c2fa import Explainer, maskers, models
from c2fa._version import __version__
from c2fa.citing import Citer, Question
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.cite import Cite, Verify
from c2fa.cli.explain import Evaluate, Explain
from c2fa.cli.inputs import must_exist
from c2fa.cli.options import ASKING, INPUTS, OUTPUT, Command, argument, flag
from c2fa.cli.output import CLOSED_PIPE, USAGE, RefusedError, as_usage, say
from c2fa.explanation import Explanation, load_all
from c2fa.methods import METHODS, PEERS
from c2fa.models.lm.demo import DOCUMENTS, QUERY, demo_language_model
from c2fa.priors.prior import Prior

__all__ = ["app", "main", "run"]

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
      c2fa demo cite                           what an answer rests on
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


def main() -> None:
    run(app, "c2fa")


def run(commands: typer.Typer, name: str) -> None:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Info(Command):
    """Show what is installed, and list the commands, extras, methods and models.

    \bExamples:
      c2fa info
    """

    def run(self) -> None:
        packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "scipy"))
        lines = [f"c2fa {__version__}, Python {platform.python_version()}, {packages}", "", "Commands"]
        lines += [f"  {name:9}{str(command.__doc__).splitlines()[0]}" for name, command in COMMANDS.items()]
        lines += ["", "Extras"]
        for extra, missing in _missing().items():
            status = f"pip install 'c2fa[{extra}]'   (missing: {', '.join(missing)})" if missing else "installed"
            lines.append(f"  {extra:10}{PURPOSES.get(extra, ''):30}{status}")
        own = [name for name in METHODS if name not in PEERS]
        lines += ["", "Methods", f"  {', '.join(own)}", f"  of other libraries: {', '.join(PEERS)}"]
        for title, forms in (("Models", o.MODELS), ("Language models, for cite and verify", o.LANGUAGE_MODELS)):
            lines += ["", title, *(f"  {form:34}{what}" for form, what in forms.items())]
        output.out("\n".join(lines))


PURPOSES = {
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
    "demo-cite": "c2fa demo cite",
}


def _missing() -> dict[str, list[str]]:
    """For each extra of the package, which of its packages are missing."""
    extras: dict[str, list[str]] = {}
    for line in metadata.requires("c2fa") or []:
        match = re.match(r"""([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['"]([^'"]+)['"]""", line)
        if match is None or match[2] in ("dev", "docs") or match[1] == "c2fa":
            continue
        name, extra = match.groups()
        missing = extras.setdefault(extra, [])
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    return extras


REVIEW = (
    "I have used this backpack every day for six months. "
    "The straps are comfortable and I love the many pockets. "
    "However, the zipper broke after only two weeks. "
    "Customer service was friendly and sent me a new one within days. "
    "It is a little heavier than I expected. "
    "All in all a great bag that I would happily recommend to a friend."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Demo(Command):
    """Explain a review by its sentences and words, with the model that comes with c2fa.

    \bExamples:
      c2fa demo
      c2fa demo --text "The food was great. The waiter was rude."
      c2fa demo --html review.html
      c2fa demo --plot review.png
      c2fa demo cite --html cited.html
    """

    what: str = argument("cite", "cite: what a language model's answer rests on.", "")
    text: str | None = flag(INPUTS, "A text of your own.", "-t", show_default="a review of a backpack")
    budget: str | None = flag(ASKING, "Most model rows: a number, or one for each level.", "-b", metavar="ROWS")
    html: Path | None = flag(OUTPUT, "Write a page (.html).", metavar="FILE")
    plot: Path | None = flag(OUTPUT, "Draw it (.png, .svg or .pdf).", metavar="FILE")
    json: bool = flag(OUTPUT, "Print JSON and nothing else to stdout.", default=False)

    def run(self) -> None:
        if self.html is not None:
            output.check(self.html, (".html",), "--html")
        if self.plot is not None:
            output.check(self.plot, output.PICTURES, "--plot")
        if self.what not in ("", "cite"):
            raise RefusedError(f"there is no demo {self.what!r}; write c2fa demo, or c2fa demo cite", USAGE)
        if self.what and (self.text is not None or self.plot is not None):
            raise RefusedError("c2fa demo cite takes --budget, --html and --json alone", USAGE)
        e, introduction = self._cited() if self.what else self._explained()
        if self.html is not None:
            output.write_explanations(self.html, [("", e)])
            say(f"wrote {self.html}")
        if self.plot is not None:
            output.write_figure(self.plot, e.plot(), dpi=110)
            say(f"wrote {self.plot}")
        if self.json:
            output.out_json(e.to_json())
        else:
            output.out(introduction)
            output.show(e)

    def _explained(self) -> tuple[Explanation, str]:
        budget, watched = o.budget(self.budget), output.interactive()
        with as_usage():
            explainer = Explainer(models.DemoSentiment(), maskers.Text(), budget=budget, progress=watched)
        return explainer(REVIEW if self.text is None else self.text), (
            "The model: a small transformer that comes with c2fa and tells whether a review is negative or "
            "positive (numpy alone, no network).\n"
            "Each sentence's number is the sum of its words'; together they say what the prediction is made of.\n"
        )

    def _cited(self) -> tuple[Explanation, str]:
        watched = output.interactive()
        try:
            lm = demo_language_model(progress=watched)
        except ImportError as error:
            raise RefusedError(str(error)) from error
        say("the model has been read; it now answers from four documents, and is then asked without some of them")
        with as_usage():
            citer = Citer(lm, budget=o.budget(self.budget) or 24, progress=watched)
        e = citer(Question(DOCUMENTS, QUERY))
        assert e.answer is not None
        documents = "\n".join(f"{name}: {text}" for name, text in DOCUMENTS.items())
        return e, f"The documents\n{documents}\n\nThe question: {QUERY}\nThe answer: {e.answer.text.strip()}\n"


@dataclass(frozen=True, kw_only=True, eq=False)
class OfExplanations(Command):
    """A command about explanations that were written before."""

    explanations: list[Path] = argument(
        "EXPLANATION", "Files that 'c2fa explain' wrote (.json), folders of them, or stores."
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Report(OfExplanations):
    """Write one self-contained page: an explanation; or of many a summary, and cards to sort and filter.

    \bExamples:
      c2fa report review.json --out review.html
      c2fa report run1.json run2.json --out both.html --title "Two runs"
      c2fa report explained/ --out report.html --limit 50
    """

    out: Path = flag(OUTPUT, "The page to write (.html).", "-o", default=dataclasses.MISSING, metavar="FILE")
    title: str | None = flag(OUTPUT, "The page's title.", metavar="TEXT")
    limit: int = flag(OUTPUT, "Most cards on the page.", default=1000, min=1)
    quiet: bool = flag(OUTPUT, "Print no remarks.", "-q", default=False)

    def run(self) -> None:
        output.check(self.out, (".html",))
        from c2fa.batch import Explanations, Store

        first = self.explanations[0]
        is_store = len(self.explanations) == 1 and _is_store(first)
        found = Store.open(first) if is_store else Explanations.of(read(self.explanations))
        if not any(True for _ in found.items()):
            raise RefusedError(f"there are no explanations in {', '.join(map(str, self.explanations))}")
        output.write(self.out, found.to_html(title=self.title, limit=self.limit).encode())
        if self.quiet:
            return
        if len(found) > self.limit:
            shown = f"the page sums up {len(found):,} inputs and has cards of the first {self.limit:,}"
            say(f"{shown}; --limit N shows more")
        say(f"wrote {self.out}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Learn(OfExplanations):
    """Learn from explained inputs, so that others need fewer rows.

    \bExamples:
      c2fa explain first.jsonl --field text -m demo --store explained
      c2fa learn explained --out prior.json
      c2fa explain others.jsonl --field text -m demo --prior prior.json \\
        --budget 60 --store more
    """

    out: Path = flag(OUTPUT, "Where it goes (.json).", "-o", default=dataclasses.MISSING, metavar="FILE")

    def run(self) -> None:
        output.check(self.out, (".json",))
        prior = Prior.learn(explanation for _, explanation in read(self.explanations))
        prior.save(self.out)
        worth = ", ".join(f"{value:.2f} of {name!r}" for name, value in prior.worth.items())
        say(f"wrote {self.out}: learned from {prior.inputs} inputs; correlation with effects on others: {worth}")


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Explanation]]:
    for path in paths:
        must_exist(path)
        if not path.is_dir():
            yield from _read_file(path)
        elif _is_store(path):
            from c2fa.batch import Store

            for index, e in Store.open(path).items():
                yield f"{path.name} {index}", e
        else:
            files = sorted(f for f in path.iterdir() if f.suffix.lower() == ".json")
            if not files:
                raise RefusedError(f"the folder {str(path)!r} holds neither a store nor .json files")
            for file in files:
                yield from _read_file(file)


def _is_store(path: Path) -> bool:
    return any(path.glob("part-*.parquet"))


def _read_file(path: Path) -> Iterator[tuple[str, Explanation]]:
    try:
        several = load_all(path)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    for k, e in enumerate(several):
        number = f" {k + 1}" if len(several) > 1 else ""
        yield str(e.provenance.get("input") or f"{path.stem}{number}"), e


COMMANDS = {each.__name__.lower(): each for each in (Demo, Explain, Cite, Verify, Learn, Evaluate, Report, Info)}
for _command in COMMANDS.values():
    app.command()(o.callback(_command))
