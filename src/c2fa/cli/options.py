"""How a command is declared, with a field for each of its flags; and how the flags' values are read."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Annotated, Any, get_type_hints

import typer

from c2fa._system import did_you_mean
from c2fa.asking.spending import Money
from c2fa.cli.output import USAGE, RefusedError
from c2fa.cli.session import guarded

PANELS = ASKING, INPUTS, OUTPUT, KEEPING, DATASETS = (
    "Model and method",
    "Inputs",
    "Output",
    "Keeping answers",
    "Datasets",
)
MODELS = {
    "demo": "the sentiment classifier that comes with c2fa",
    "python:package.module:function": "a Python function; the current folder is searched first",
    "sklearn:file.skops": "a scikit-learn estimator (a pickle only with --allow-pickle)",
    "hf:folder": "a Hugging Face text classifier, as save_pretrained writes it",
    "onnx:file": "an ONNX model",
    "oip:http://host:port#model": "an Open Inference Protocol server (Triton, KServe, MLServer)",
    "mlflow:http://host:port": "an MLflow scoring server",
    "openai:http://host:port/v1#model": "an OpenAI-compatible server (vLLM, llama.cpp, Ollama)",
}
LANGUAGE_MODELS = {
    "hf:folder": "a Hugging Face language model, or a .gguf file",
    "llama:http://host:port": "a llama.cpp server",
    "vllm:http://host:port#model": "a vLLM server",
    "openai:http://host:port/v1#model": "an OpenAI-style server; one that cannot score goes with --similarity words",
    "python:package.module:object": "an object that writes or scores answers",
}


# ---------------------------------------------------------------------------------- declaring commands


def flag(panel: str, help: str, *names: str, default: Any = None, **more: Any) -> Any:
    """A field of a command: an option in a panel of ``--help``, which shows a default that is a number or a text.

    ``names`` are those beside the field's own, such as "-b", or in place of it, such as "--resume/--no-resume".
    """
    more.setdefault("show_default", isinstance(default, int | str) and not isinstance(default, bool))
    return _field(default, panel, names, help=help, rich_help_panel=panel, **more)


def pairs(panel: str, help: str) -> Any:
    """A field of a command: options of something else, as ``read`` reads them."""
    return flag(panel, f"{help}. Repeatable.", default=[], metavar="KEY=VALUE")


def argument(metavar: str, help: str, default: Any = MISSING) -> Any:
    """A field of a command that has no name before it."""
    return _field(default, ASKING, None, metavar=metavar, help=help, show_default=False)


def _field(default: Any, panel: str, names: Sequence[str] | None, **shown: Any) -> Any:
    metadata = {"panel": PANELS.index(panel), "names": names, "shown": shown}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True, eq=False)
class Command:
    """A command: its fields are its flags, its docstring is its help."""

    debug: bool = flag(OUTPUT, "Show the traceback of an error.", default=False)

    def run(self) -> None:
        """Do what the command is for."""
        raise NotImplementedError


def callback(kind: type[Command]) -> Callable[..., None]:
    """The function of a command that typer calls, with a parameter for each field."""

    def call(**given: Any) -> None:
        with guarded(given["debug"]):
            kind(**given).run()

    known, hints = {each.name: each for each in fields(kind)}, get_type_hints(kind)
    first = ["model", "method", "option", "budget", "until", "docs", "query"]
    # Its own flags stand before those that it shares with others.
    own_first = [name for each in kind.__mro__ for name in inspect.get_annotations(each)]
    names = [name for name in dict.fromkeys([*first, *own_first]) if name in known]
    names.sort(key=lambda name: known[name].metadata["panel"])
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(known[name], hints[name]) for name in names]
    )
    call.__name__, call.__doc__ = kind.__name__.lower(), kind.__doc__
    return call


def _parameter(of: Field[Any], hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if of.default is MISSING else of.default
    if of.default_factory is not MISSING:
        default = of.default_factory()
    names, shown = of.metadata["names"], of.metadata["shown"]
    if names is None:
        declared = typer.Argument(**shown)
    elif names and "/" in names[0]:
        declared = typer.Option(*names, **shown)
    else:
        declared = typer.Option(f"--{of.name.replace('_', '-')}", *names, **shown)
    annotation = Annotated[hint, declared]
    return inspect.Parameter(of.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# ---------------------------------------------------------------------------------- reading values

Readers = Mapping[str, Callable[[str], Any]]


def value(text: str) -> Any:
    """Read a value as JSON, or else as text.

    >>> value("0.5"), value("true"), value("[1, 2]"), value("shap")
    (0.5, True, [1, 2], 'shap')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def read(flag: str, texts: Sequence[str], readers: Readers, owner: str) -> dict[str, Any]:
    """Read KEY=VALUE texts; a key that its owner does not take is refused.

    >>> read("--option", ["intercept=false", "kernel=shap"], {"intercept": value, "kernel": value}, "the method")
    {'intercept': False, 'kernel': 'shap'}
    >>> read("--masker", ["fill=0"], {"levels": words, "language": str}, "masking texts")
    Traceback (most recent call last):
        ...
    c2fa.cli.output.RefusedError: --masker 'fill' is unknown: masking texts takes levels, language
    """
    values = {}
    for text in texts:
        key, equals, typed = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise RefusedError(f"{flag} {text!r} must read KEY=VALUE", USAGE)
        if key not in readers:
            names = ", ".join(readers) or "no options"
            raise RefusedError(f"{flag} {key!r} is unknown: {owner} takes {names}{did_you_mean(key, readers)}", USAGE)
        try:
            values[key] = readers[key](typed)
        except ValueError as error:
            raise RefusedError(f"{flag} {text} {error}", USAGE) from None
    return values


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError("must be a whole number above 0")
    return int(text)


def number(text: str) -> float:
    if not re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.ASCII):
        raise ValueError("must be a number of at least 0")
    return float(text)


def budget(text: str | None) -> int | tuple[int, ...] | str | None:
    """Read rows in all, rows for each level, or money, which the explainer reads; None is left to it too.

    >>> budget("200"), budget("50,150"), budget("$2.00"), budget(None)
    (200, (50, 150), '$2.00', None)
    """
    if text is None or Money.of(text) is not None:
        return text
    wrong = f"--budget {text!r} is not a number of model rows: write 200, 50,150 with one for each level, or '$2.00'"
    rows = counts(text, wrong)
    return rows[0] if len(rows) == 1 else rows


def counts(text: str, wrong: str) -> tuple[int, ...]:
    try:
        return tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise RefusedError(wrong, USAGE) from None


def words(text: str) -> list[str]:
    """Split names at commas.

    >>> words("c2fa, lime")
    ['c2fa', 'lime']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def rows(texts: Sequence[str], count: int, where: str) -> list[int]:
    """Read rows of a table, counted from 0: one, or a range as Python writes it.

    >>> rows(["0", "4:6", "8:"], 10, "x.csv")
    [0, 4, 5, 8, 9]
    """
    if not texts:
        return list(range(count))
    chosen: list[int] = []
    for text in texts:
        if not re.fullmatch(r"-?\d+|-?\d*:-?\d*", text):
            raise RefusedError(f"--row {text!r} is not a row: write 3, or 2:10 for several", USAGE)
        start, colon, stop = text.partition(":")
        if colon:
            chosen += range(count)[slice(int(start) if start else None, int(stop) if stop else None)]
        elif -count <= int(start) < count:
            chosen.append(int(start) % count)
        else:
            raise RefusedError(f"{where!r} has no row {start}; its {count} rows are counted from 0")
    if not chosen:
        raise RefusedError(f"--row {' '.join(texts)} chooses none of the {count} rows of {where!r}")
    return list(dict.fromkeys(chosen))
