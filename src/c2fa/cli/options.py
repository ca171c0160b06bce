"""The flags that commands share, and how their values are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from c2fa import penalties, samplers
from c2fa._system import did_you_mean
from c2fa.asking.spending import Money
from c2fa.cli.output import USAGE, RefusedError
from c2fa.methods import METHODS

ASKING, INPUTS, OUTPUT = "Model and method", "Inputs", "Output"
KEEPING, DATASETS = "Keeping answers", "Datasets"
DEFAULT_MASKS = ("20,50", "20,100")
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
    "sglang:http://host:port": "an SGLang server",
    "tgi:http://host:port": "a Text Generation Inference server",
    "openai:http://host:port/v1#model": "an OpenAI-style server that repeats a prompt with its log-probabilities",
    "chat:http://host:port/v1#model": "a chat server, which writes but does not score",
    "python:package.module:object": "an object that writes or scores answers",
}


def flag(panel: str | None, help: str, *names: str, **more: Any) -> Any:
    """An option in a panel of ``--help``; its default is shown only where ``show_default`` says so."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **{"show_default": False, **more})


def complete_methods(incomplete: str) -> list[str]:
    return [name for name in METHODS if name.startswith(incomplete)]


def _complete_models(incomplete: str) -> list[str]:
    kinds = [form.partition(":")[0] + (":" if ":" in form else "") for form in MODELS]
    return [kind for kind in kinds if kind.startswith(incomplete)]


# ---------------------------------------------------------------------------------- inputs

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Text files ('-' for standard input), CSV, TSV, Parquet or JSONL, images, or folders of images.",
        show_default=False,
    ),
]
Row = Annotated[
    list[str],
    flag(
        INPUTS, "Rows of a file, counted from 0: 3, or 2:10 for several. Repeatable.", metavar="N", show_default="all"
    ),
]
Field = Annotated[
    str | None, flag(INPUTS, "The column or field that holds the text: of a CSV, Parquet or JSONL.", metavar="NAME")
]
Drop = Annotated[
    list[str], flag(INPUTS, "A column that the model does not take, such as the label. Repeatable.", metavar="COLUMN")
]
Masker = Annotated[
    list[str], flag(INPUTS, "Set a masking option: levels=sentences,words. Repeatable.", metavar="KEY=VALUE")
]

# ---------------------------------------------------------------------------------- model and method

Model = Annotated[
    str,
    flag(
        ASKING,
        "The model: demo, python:module:function, sklearn:file, hf:folder, onnx:file, oip:URL#model, mlflow:URL or "
        "openai:URL#model.",
        "--model",
        "-m",
        metavar="SPEC",
        autocompletion=_complete_models,
    ),
]
ModelOption = Annotated[
    list[str], flag(ASKING, 'Set a model option: classes=\'["good", "bad"]\'. Repeatable.', metavar="KEY=VALUE")
]
AllowPickle = Annotated[
    bool, flag(ASKING, "Let sklearn: load a pickle, which can run any code in it.", "--allow-pickle")
]
METHOD = "The method, by default owen; 'c2fa info' lists them."
Method = Annotated[str | None, flag(ASKING, METHOD, metavar="NAME", autocompletion=complete_methods)]
Methods = Annotated[str, flag(ASKING, "The methods to compare.", metavar="NAMES", show_default=True)]
Option = Annotated[
    list[str], flag(ASKING, "Set a method option: intercept=false, preset=paper. Repeatable.", metavar="KEY=VALUE")
]
Budget = Annotated[
    str | None,
    flag(
        ASKING,
        "Most model rows for an input: a number, one for each level, or money ('$2.00').",
        "--budget",
        "-b",
        metavar="ROWS",
        show_default="200, split over the levels",
    ),
]
Masks = Annotated[
    list[str],
    flag(
        ASKING,
        "Masks of each level, the prediction's row on top: 20,50. Repeatable.",
        metavar="COUNTS",
        show_default=" and ".join(DEFAULT_MASKS),
    ),
]
Budgets = Annotated[
    list[str],
    flag(
        ASKING,
        "In place of --masks, model rows: a number, or one for each level. Repeatable.",
        "--budget",
        "-b",
        metavar="ROWS",
    ),
]
Until = Annotated[
    str | None, flag(ASKING, "Stop early: top3 (top 3 settled) or stderr:0.01 (small standard errors).", metavar="RULE")
]
Link = Annotated[str, flag(ASKING, "Explain the output, its log-odds or its logarithm.", metavar="identity|logit|log")]
Target = Annotated[
    str | None,
    flag(
        ASKING,
        "The output to explain: a name, or a number counted from 0.",
        metavar="CLASS",
        show_default="the predicted class",
    ),
]
Explanations = Annotated[
    list[Path],
    typer.Argument(
        metavar="EXPLANATION",
        help="Files that 'c2fa explain' wrote (.json), folders of them, or stores.",
        show_default=False,
    ),
]
Prior = Annotated[
    Path | None, flag(ASKING, "What other inputs taught: a file of c2fa.Prior.save, or of c2fa learn.", metavar="FILE")
]
Seed = Annotated[int, flag(ASKING, "The same seed asks the same questions.", min=0, show_default=True)]
Seeds = Annotated[int, flag(ASKING, "How many seeds.", min=1, show_default=True)]
Metrics = Annotated[
    str,
    flag(
        ASKING,
        "Some of insertion, deletion, faithfulness, infidelity, lds, top1-drop, top3-drop, consistency, mihl and "
        "stability; deletion@0 is deletion of the coarsest parts.",
        metavar="NAMES",
        show_default=True,
    ),
]
BatchSize = Annotated[
    int | None, flag(ASKING, "Rows sent to the model at a time.", min=1, show_default="64, or the server's own")
]
OnError = Annotated[
    str, flag(ASKING, "Stop at an unusable answer, or drop that row.", metavar="raise|drop", show_default=True)
]

# ---------------------------------------------------------------------------------- output

Outs = Annotated[
    list[Path],
    flag(
        OUTPUT,
        "Write a page (.html), explanations (.json) or a table (.parquet, .csv). Repeatable.",
        "--out",
        "-o",
        metavar="FILE",
    ),
]
Scores = Annotated[
    Path | None, flag(OUTPUT, "Write every score (.csv, .json or .parquet).", "--out", "-o", metavar="FILE")
]
Plot = Annotated[
    Path | None,
    flag(OUTPUT, "Draw scores over budgets (.png, .svg or .pdf), one file for each metric.", metavar="FILE"),
]
Json = Annotated[bool, flag(OUTPUT, "Print JSON and nothing else to stdout.", "--json")]
Quiet = Annotated[
    bool, flag(OUTPUT, "Print no progress and no remarks; with --out, no result either.", "--quiet", "-q")
]
Debug = Annotated[bool, flag(OUTPUT, "Show the traceback of an error.", "--debug")]

# ---------------------------------------------------------------------------------- keeping answers, datasets

Ledger = Annotated[
    Path | None, flag(KEEPING, "Keep every answer in this file; it is never asked again.", metavar="FILE")
]
InputWorkers = Annotated[int, flag(ASKING, "Processes that share the inputs; 0: this one.", "--workers", min=0)]
ScoreStore = Annotated[
    Path | None, flag(KEEPING, "Keep every answer and score in this folder; none is asked again.", metavar="DIR")
]
ModelName = Annotated[
    str | None, flag(KEEPING, "Keep answers under this name; change it when the model changes.", metavar="NAME")
]
Resume = Annotated[
    bool,
    flag(
        KEEPING,
        "Keep the answers of a run that stops until the same command succeeds.",
        "--resume/--no-resume",
        show_default=True,
    ),
]
Store = Annotated[
    Path | None, flag(DATASETS, "Explain a dataset (.parquet, .jsonl) or any inputs into this folder.", metavar="DIR")
]
Workers = Annotated[int | None, flag(DATASETS, "Worker processes.", min=1, show_default="as many as pay")]
RetryFailed = Annotated[bool, flag(DATASETS, "Ask again about inputs that were set aside.", "--retry-failed")]
StoreOption = Annotated[
    list[str], flag(DATASETS, "Set a store option: engine=ray, shard_size=64. Repeatable.", metavar="KEY=VALUE")
]

# ---------------------------------------------------------------------------------- reading values

Readers = Mapping[str, Callable[[str], Any]]


def value(text: str) -> Any:
    """Read a value as JSON, as a penalty or sampler as Python writes it, or else as text.

    >>> value("0.5"), value("true"), value("[1, 2]"), value("shap")
    (0.5, True, [1, 2], 'shap')
    >>> value("L2(0.5)"), value("Keep(0.8)")
    (L2(lam=0.5, positive=False), Keep(share=0.8))
    """
    call = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if call and call[1] in ("L1", "L2", "ElasticNet", "NonNegative"):
        return _call(text, getattr(penalties, call[1]), map(float, words(call[2])), "penalty such as L2(0.1)")
    if call and call[1] in ("Exhaustive", "Keep", "Planned"):
        return _call(text, getattr(samplers, call[1]), map(value, words(call[2])), "sampler such as Keep(0.8)")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _call(text: str, kind: Callable[..., Any], arguments: Iterable[Any], what: str) -> Any:
    try:
        return kind(*arguments)
    except (TypeError, ValueError) as error:
        raise RefusedError(f"{text!r} is not a {what}: {error}", USAGE) from None


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
    """Read a whole number above 0."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError("must be a whole number above 0")
    return int(text)


def number(text: str) -> float:
    """Read a number of at least 0."""
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


def masks(text: str) -> tuple[int, ...]:
    """Read the masks of each level.

    >>> masks("20,50")
    (20, 50)
    """
    return counts(text, f"--masks {text!r} are not numbers of masks: write 20,50 with one for each level")


def counts(text: str, wrong: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them, or refuse the text in these words."""
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


def target(text: str | None, names: Sequence[str] = ()) -> int | str | None:
    """Read an output's name, or its number where no output has that name.

    >>> target("1"), target("positive"), target(None), target("1", ["1", "2"])
    (1, 'positive', None, '1')
    """
    if text is None or text in names or not (text.isascii() and text.isdigit()):
        return text
    return int(text)


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
