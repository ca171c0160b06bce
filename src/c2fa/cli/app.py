"""The commands, put together, and the short ones: ``c2fa demo``, ``report``, ``learn`` and ``info``."""

from __future__ import annotations

import json as json_
import platform
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from c2fa import Explainer, maskers, models
from c2fa._version import __version__
from c2fa.citing import Citer, Question
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.cite import cite
from c2fa.cli.evaluate import evaluate
from c2fa.cli.explain import explain
from c2fa.cli.inputs import must_exist, read_text
from c2fa.cli.output import USAGE, RefusedError, as_usage, check, out, out_json, say, write
from c2fa.cli.session import guarded
from c2fa.cli.verify import verify
from c2fa.explanation import Explanation
from c2fa.methods import METHODS, PEERS
from c2fa.models.lm.demo import DOCUMENTS, QUERY, demo_language_model
from c2fa.priors.prior import Prior
from c2fa.showing.files import load_all

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


def info(json: o.Json = False, debug: o.Debug = False) -> None:
    """Show what is installed, and list the commands, extras, methods and models.

    \bExamples:
      c2fa info
      c2fa info --json
    """
    with guarded(debug):
        facts = {
            "c2fa": __version__,
            "python": platform.python_version(),
            "packages": {name: metadata.version(name) for name in ("numpy", "scipy")},
            "commands": {name: str(command.__doc__).partition("\n")[0] for name, command in COMMANDS.items()},
            "extras": _extras(),
            "methods": list(METHODS),
            "models": o.MODELS,
            "language_models": o.LANGUAGE_MODELS,
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
        "demo-cite": "c2fa demo cite",
    }
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    lines = [f"c2fa {facts['c2fa']}, Python {facts['python']}, {packages}", "", "Commands"]
    lines += [f"  {name:9}{what}" for name, what in facts["commands"].items()]
    lines += ["", "Extras"]
    for extra, state in facts["extras"].items():
        status = "installed"
        if state["missing"]:
            status = f"{state['install']}   (missing: {', '.join(state['missing'])})"
        lines.append(f"  {extra:10}{purposes.get(extra, ''):30}{status}")
    own = [name for name in METHODS if name not in PEERS]
    lines += ["", "Methods", f"  {', '.join(own)}", f"  of other libraries: {', '.join(PEERS)}"]
    for title, models_ in (("Models", o.MODELS), ("Language models, for cite and verify", o.LANGUAGE_MODELS)):
        lines += ["", title, *(f"  {form:34}{what}" for form, what in models_.items())]
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


REVIEW = (
    "I have used this backpack every day for six months. "
    "The straps are comfortable and I love the many pockets. "
    "However, the zipper broke after only two weeks. "
    "Customer service was friendly and sent me a new one within days. "
    "It is a little heavier than I expected. "
    "All in all a great bag that I would happily recommend to a friend."
)


def demo(
    what: Annotated[
        str, typer.Argument(metavar="[cite]", help="cite: what a language model's answer rests on.", show_default=False)
    ] = "",
    text: Annotated[
        str | None, o.flag(o.INPUTS, "A text of your own.", "--text", "-t", show_default="a review of a backpack")
    ] = None,
    file: Annotated[Path | None, o.flag(o.INPUTS, "A file with a text of your own.", "--file", "-f")] = None,
    method: o.Method = None,
    budget: o.Budget = None,
    seed: o.Seed = 0,
    html: Annotated[Path | None, o.flag(o.OUTPUT, "Write a page (.html).", metavar="FILE")] = None,
    plot: Annotated[Path | None, o.flag(o.OUTPUT, "Draw it (.png, .svg or .pdf).", metavar="FILE")] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Explain a review by its sentences and words, with the model that comes with c2fa.

    \bExamples:
      c2fa demo
      c2fa demo --text "The food was great. The waiter was rude."
      c2fa demo --file review.txt --html review.html
      c2fa demo --plot review.png
      c2fa demo --method lime --budget 300
      c2fa demo cite --html cited.html
    """
    with guarded(debug):
        if html is not None:
            output.check(html, (".html",), "--html")
        if plot is not None:
            output.check(plot, output.PICTURES, "--plot")
        if what not in ("", "cite"):
            raise RefusedError(f"there is no demo {what!r}; write c2fa demo, or c2fa demo cite", USAGE)
        if what == "cite":
            if text is not None or file is not None or method is not None or plot is not None:
                raise RefusedError("c2fa demo cite takes --budget, --seed, --html and --json alone", USAGE)
            _demo_cite(budget, seed, html, json)
            return
        if text is not None and file is not None:
            raise RefusedError("give --text or --file, not both", USAGE)
        if file is not None:
            text = str(read_text(file).values[0])
        with as_usage():
            explainer = Explainer(
                models.DemoSentiment(),
                maskers.Text(),
                method=method,
                budget=o.budget(budget),
                seed=seed,
                progress=output.interactive(),
            )
        e = explainer(REVIEW if text is None else text)
        if html is not None:
            output.write_explanations(html, [("", e)])
            output.say(f"wrote {html}")
        if plot is not None:
            output.write_figure(plot, e.plot(), dpi=110)
            output.say(f"wrote {plot}")
        if json:
            output.out_json(e.to_json())
        else:
            output.out(
                "The model: a small transformer that comes with c2fa and tells whether a review is negative or "
                "positive (numpy alone, no network).\n"
                "Each sentence's number is the sum of its words'; together they say what the prediction is made of.\n"
            )
            output.show(e)


def _demo_cite(budget: str | None, seed: int, html: Path | None, json: bool) -> None:
    watched = output.interactive()
    try:
        lm = demo_language_model(progress=watched)
    except ImportError as error:
        raise RefusedError(str(error)) from error
    say("the model has been read; it now answers from four documents, and is then asked without some of them")
    with as_usage():
        citer = Citer(lm, budget=o.budget(budget) or 24, seed=seed, progress=watched)
    c = citer(Question(DOCUMENTS, QUERY))
    if html is not None:
        output.write_explanations(html, [("", c)])
        say(f"wrote {html}")
    if json:
        out_json(c.to_json())
        return
    assert c.answer is not None
    lines = [f"{name}: {text}" for name, text in DOCUMENTS.items()]
    out("\n".join(["The documents", *lines, "", f"The question: {QUERY}", f"The answer: {c.answer.text.strip()}", ""]))
    output.show(c)


def report(
    explanations: o.Explanations,
    out: Annotated[Path, o.flag(o.OUTPUT, "The page to write (.html).", "--out", "-o", metavar="FILE")],
    title: Annotated[str | None, o.flag(o.OUTPUT, "The page's title.", metavar="TEXT")] = None,
    limit: Annotated[int, o.flag(o.OUTPUT, "Most cards on the page.", min=1, show_default=True)] = 1000,
    quiet: Annotated[bool, o.flag(o.OUTPUT, "Print no remarks.", "--quiet", "-q")] = False,
    debug: o.Debug = False,
) -> None:
    """Write one self-contained page: an explanation; or of many a summary, and cards to sort and filter.

    \bExamples:
      c2fa report review.json --out review.html
      c2fa report run1.json run2.json --out both.html --title "Two runs"
      c2fa report explained/ --out report.html --limit 50
    """
    with guarded(debug):
        check(out, (".html",))
        from c2fa.batch import Explanations, Store

        is_store = len(explanations) == 1 and _is_store(explanations[0])
        found = Store.open(explanations[0]) if is_store else Explanations.of(read(explanations))
        if not any(True for _ in found.items()):
            raise RefusedError(f"there are no explanations in {', '.join(map(str, explanations))}")
        write(out, found.to_html(title=title, limit=limit).encode())
        if len(found) > limit and not quiet:
            say(f"the page sums up {len(found):,} inputs and has cards of the first {limit:,}; --limit N shows more")
        if not quiet:
            say(f"wrote {out}")


def learn(
    explanations: o.Explanations,
    out: Annotated[Path, o.flag(o.OUTPUT, "Where it goes (.json).", "--out", "-o", metavar="FILE")],
    debug: o.Debug = False,
) -> None:
    """Learn from explained inputs, so that others need fewer rows.

    \bExamples:
      c2fa explain first.jsonl --field text -m demo --store explained
      c2fa learn explained --out prior.json
      c2fa explain others.jsonl --field text -m demo --prior prior.json \\
        --budget 60 --store more
    """
    with guarded(debug):
        check(out, (".json",))
        prior = Prior.learn(explanation for _, explanation in read(explanations))
        prior.save(out)
        worth = ", ".join(f"{value:.2f} of {name!r}" for name, value in prior.worth.items())
        say(f"wrote {out}: learned from {prior.inputs} inputs; correlation with effects on others: {worth}")


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Explanation]]:
    """Explanations of files, folders and stores, with their names."""
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


COMMANDS = {each.__name__: each for each in (demo, explain, cite, verify, learn, evaluate, report, info)}
for command in COMMANDS.values():
    app.command()(command)
