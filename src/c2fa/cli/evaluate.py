"""``c2fa evaluate``: methods, budgets and seeds on the same inputs, scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2fa.cli import _options as o
from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import guarded
from c2fa.cli._inputs import Choices


def evaluate(
    files: o.Files,
    model: o.Model,
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Methods to compare.", rich_help_panel=o.ASKING)
    ] = "c2fa,lime",
    budgets: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Masks for each level, coarse to fine, for each budget: 20:50,20:100; or rows in all: 100,200.",
            rich_help_panel=o.ASKING,
        ),
    ] = "20:50,20:100",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.", rich_help_panel=o.ASKING)] = 3,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Among insertion, deletion, faithfulness, aopc-r, infidelity, consistency, mihl and stability; "
            "at one level as deletion@0.",
            rich_help_panel=o.ASKING,
        ),
    ] = "insertion,deletion,consistency,mihl",
    target: o.Target = None,
    batch_size: o.BatchSize = None,
    on_error: o.OnError = "raise",
    model_option: o.ModelOptions = [],  # noqa: B006
    allow_pickle: o.AllowPickle = False,
    row: o.Rows = [],  # noqa: B006
    drop: o.Drop = [],  # noqa: B006
    groups: o.Groups = None,
    background: o.Background = None,
    strategy: o.Strategy = None,
    levels: o.Levels = None,
    mask: o.Mask = None,
    language: o.Language = None,
    segment: o.Segment = None,
    absent: o.Absent = None,
    fill: o.Fill = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write every score: .csv, .json or .parquet.",
            show_default=False,
            rich_help_panel=o.WRITING,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw scores over budgets: .png, .svg or .pdf, one file for each metric.",
            show_default=False,
            rich_help_panel=o.WRITING,
        ),
    ] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep every answer and every score in this folder; other settings repeat no question in it.",
            show_default=False,
            rich_help_panel=o.KEEPING,
        ),
    ] = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
) -> None:
    """Compare methods on the same inputs; no question is asked twice.

    \bExamples:
      c2fa evaluate reviews/*.txt --model demo --methods c2fa,lime,bu-lime
      c2fa evaluate rows.csv -m sklearn:model.skops --row 0:20 \\
        --groups groups.json --metrics deletion,stability --seeds 5 \\
        --out scores.csv --plot scores.png

    \bThe table shows means over inputs and seeds, and each method's difference
    to the reference with its 95 % interval.
    """
    with guarded(debug):
        from c2fa.cli._evaluating import Grid, evaluate_all

        evaluate_all(
            Grid(
                files=files,
                spec=model,
                model_options=parsing.pairs(model_option, "--model-option"),
                allow_pickle=allow_pickle,
                methods=parsing.words(methods),
                budgets=parsing.budgets(budgets),
                seeds=seeds,
                metrics=parsing.words(metrics),
                settings={"target": target, "batch_size": batch_size, "on_error": on_error},
                choices=Choices(row, drop, groups, background, strategy, levels, mask, language, segment, absent, fill),
                out=out,
                plot=plot,
                json=json,
                quiet=quiet,
                store=store,
                model_name=model_name,
                resume=resume,
            )
        )
