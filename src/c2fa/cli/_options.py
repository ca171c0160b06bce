"""Options that several commands share, with what ``--help`` says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ASKING, READING, MASKING = "What is asked", "Reading the inputs", "Masking"
WRITING, KEEPING, MANY = "What comes out", "Keeping answers", "Many inputs"


def _methods(incomplete: str) -> list[str]:
    from c2fa.methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def _specs(incomplete: str) -> list[str]:
    from c2fa.cli._model import SPECS

    kinds = [spec.partition(":")[0] + (":" if ":" in spec else "") for spec in SPECS]
    return [kind for kind in kinds if kind.startswith(incomplete)]


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Texts ('-' is standard input), CSV or TSV files (each row an input), images, or folders of images "
        "(each folder a bag).",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="SPEC",
        help="The model: demo, python:module:function, sklearn:file, hf:folder, onnx:file, oip:URL#model, "
        "mlflow:URL or openai:URL#model.",
        autocompletion=_specs,
        show_default=False,
        rich_help_panel=ASKING,
    ),
]
ModelOptions = Annotated[
    list[str],
    typer.Option(
        "--model-option",
        metavar="KEY=VALUE",
        help='An option of the model, the value as in JSON: classes=\'["good", "bad"]\'. May be repeated.',
        show_default=False,
        rich_help_panel=ASKING,
    ),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Let sklearn: read a pickle or joblib file. Such a file can run any code: only where you made it.",
        rich_help_panel=ASKING,
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The name under which the model's answers are kept; change it when the model changes.",
        show_default=False,
        rich_help_panel=KEEPING,
    ),
]
Method = Annotated[
    str,
    typer.Option(metavar="NAME", help="The method.", autocompletion=_methods, rich_help_panel=ASKING),
]
Budget = Annotated[
    str,
    typer.Option(
        "--budget",
        "-b",
        metavar="ROWS",
        help="Model rows for one input, never exceeded: a number, or one for each level, coarse to fine.",
        rich_help_panel=ASKING,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="Stop before the budget is spent: top3 once the three most important leaves are settled (top3:0.9 with "
        "90 % confidence, top2@0 at level 0), stderr:0.01 once no standard error is larger.",
        show_default=False,
        rich_help_panel=ASKING,
    ),
]
Link = Annotated[
    str,
    typer.Option(
        metavar="identity|logit|log",
        help="The scale that attributions add up on: the output itself, a probability's log-odds, or its logarithm.",
        rich_help_panel=ASKING,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        help="The output to explain, by its name, or by its place counted from 0.",
        show_default="the predicted class",
        rich_help_panel=ASKING,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed asks the same questions.", rich_help_panel=ASKING)]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rows sent to the model at a time.",
        show_default="64, or what keeps a server's connections busy",
        rich_help_panel=ASKING,
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        metavar="raise|drop", help="Stop at an unusable answer, or leave such rows out.", rich_help_panel=ASKING
    ),
]
Rows = Annotated[
    list[str],
    typer.Option(
        "--row",
        metavar="N",
        help="Rows of a table, counted from 0: 3, or 2:10 for several. May be repeated.",
        show_default="all",
        rich_help_panel=READING,
    ),
]
Drop = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN",
        help="A column that the model does not take, such as the label. May be repeated.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Groups = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='Which columns belong together, in JSON: {"size": ["height", "weight"]}; nested to any depth.',
        show_default=False,
        rich_help_panel=READING,
    ),
]
Background = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Rows that the model is used to, as CSV; masked columns take their values.",
        show_default="the table itself",
        rich_help_panel=MASKING,
    ),
]
Strategy = Annotated[
    str | None,
    typer.Option(
        metavar="mean|row|average",
        help="What a masked column becomes; average asks once for every row of the background.",
        show_default="mean",
        rich_help_panel=MASKING,
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Levels of a text, coarse to fine: paragraphs,sentences,words.",
        show_default="sentences,words",
        rich_help_panel=MASKING,
    ),
]
Mask = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        help="What stands for a masked word; 'none' removes it.",
        show_default="the model's own token, or MASK in brackets",
        rich_help_panel=MASKING,
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        metavar="CODE", help="The language, for splitting sentences.", show_default="en", rich_help_panel=MASKING
    ),
]
Segment = Annotated[
    str | None,
    typer.Option(
        metavar="quickshift|slic",
        help="How super-pixels are found; slic is faster.",
        show_default="quickshift",
        rich_help_panel=MASKING,
    ),
]
Absent = Annotated[
    str | None,
    typer.Option(
        metavar="remove|fill",
        help="What becomes of an image that is masked as a whole.",
        show_default="remove",
        rich_help_panel=MASKING,
    ),
]
Fill = Annotated[
    str | None,
    typer.Option(
        metavar="COLOUR",
        help="What masked super-pixels show: a number, mean, segments or blur.",
        show_default="0",
        rich_help_panel=MASKING,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--no-resume",
        help="Keep the answers of a run that stops in the cache, until the same command succeeds.",
        rich_help_panel=KEEPING,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.", rich_help_panel=WRITING)]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress and no remarks; no tree either where --out is given.",
        rich_help_panel=WRITING,
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.", rich_help_panel=WRITING)]
