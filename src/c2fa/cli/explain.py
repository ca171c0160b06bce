"""``c2fa explain``: files in, explanations out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2fa.cli import _options as o
from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import USAGE, RefusedError, guarded
from c2fa.cli._inputs import Choices


def explain(
    files: o.Files,
    model: o.Model,
    method: o.Method = "c2fa",
    budget: o.Budget = "50,150",
    until: o.Until = None,
    link: o.Link = "identity",
    target: o.Target = None,
    seed: o.Seed = 0,
    batch_size: o.BatchSize = None,
    on_error: o.OnError = "raise",
    option: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE",
            help="An option of the method: intercept=false, kernel=shap, penalty='L2(0.5)'. May be repeated.",
            show_default=False,
            rich_help_panel=o.ASKING,
        ),
    ] = [],  # noqa: B006
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="paper", help="What the paper does, to the letter.", show_default=False, rich_help_panel=o.ASKING
        ),
    ] = None,
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
        list[Path],
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write a page (.html), the explanations (.json, .npz) or a tidy table (.parquet, .csv). "
            "May be repeated.",
            show_default=False,
            rich_help_panel=o.WRITING,
        ),
    ] = [],  # noqa: B006
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The page's title.", show_default=False, rich_help_panel=o.WRITING),
    ] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep every answer in this file for ever; no question in it is paid for twice.",
            show_default=False,
            rich_help_panel=o.KEEPING,
        ),
    ] = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Explain a dataset (.parquet, .jsonl or a folder of them; or any inputs) into this folder.",
            show_default=False,
            rich_help_panel=o.MANY,
        ),
    ] = None,
    text_field: Annotated[
        str | None,
        typer.Option(
            "--field",
            metavar="NAME",
            help="The field of a dataset that is the input.",
            show_default="the only one",
            rich_help_panel=o.MANY,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The field that names an input, different for each.",
            show_default=False,
            rich_help_panel=o.MANY,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="processes|ray|dask|serial",
            help="What runs the workers.",
            show_default="processes",
            rich_help_panel=o.MANY,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="How many.", show_default="one for each core", rich_help_panel=o.MANY),
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Inputs in one file of the store; Ctrl-C finishes those under way.",
            show_default="up to 256",
            rich_help_panel=o.MANY,
        ),
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(min=0, help="GPUs that each worker holds.", show_default="0", rich_help_panel=o.MANY),
    ] = None,
) -> None:
    """Explain predictions on texts, rows of tables or images, at every level.

    \bTexts:
      c2fa explain review.txt --model demo
      cat review.txt | c2fa explain - -m hf:my-model --out review.html
      c2fa explain reviews/*.txt -m openai:http://localhost:8000/v1#llama \\
        --model-option 'classes=["good", "bad"]' --budget 20,80 \\
        --ledger answers.sqlite --out all.html

    \bRows of a table; groups.json says which columns belong together:
      c2fa explain rows.csv -m sklearn:model.skops --drop label --row 0:5 \\
        --groups groups.json --out rows.html

    \bA folder of images is one bag; the model gets lists of arrays:
      c2fa explain scans/ -m python:mine:classify --segment slic -o scans.html

    \bThousands of inputs, on many processes, continued where it stopped:
      c2fa explain reviews.jsonl --field text -m demo --store explained
      c2fa report explained --out report.html

    \bCtrl-C finishes the batch under way, and the same command continues: the
    answers of a run that stops stay in the user's cache until it succeeds,
    and with --ledger in a file of yours for ever.
    """
    with guarded(debug):
        from c2fa.cli._dataset import explain_dataset
        from c2fa.cli._explaining import Order, explain_all

        order = Order(
            files=files,
            spec=model,
            model_options=parsing.pairs(model_option, "--model-option"),
            allow_pickle=allow_pickle,
            settings={
                "method": method,
                "budget": parsing.budget(budget),
                "until": until,
                "link": link,
                "target": target,
                "seed": seed,
                "batch_size": batch_size,
                "on_error": on_error,
                "preset": preset,
                **parsing.pairs(option, "--option", parsing.method_value),
            },
            choices=Choices(row, drop, groups, background, strategy, levels, mask, language, segment, absent, fill),
            outs=out,
            title=title,
            json=json,
            quiet=quiet,
            ledger=ledger,
            model_name=model_name,
            resume=resume,
        )
        many = {
            "--field": text_field,
            "--key": key,
            "--engine": engine,
            "--workers": workers,
            "--shard-size": shard_size,
            "--gpus-per-worker": gpus_per_worker,
        }
        if store is None:
            stray = [flag for flag, given in many.items() if given is not None]
            if stray:
                raise RefusedError(f"{stray[0]} goes with --store DIR, the folder of a dataset's explanations", USAGE)
            explain_all(order)
        else:
            crew = {
                "engine": engine or "processes",
                "workers": workers,
                "shard_size": shard_size,
                "gpus_per_worker": gpus_per_worker or 0.0,
            }
            explain_dataset(order, store, text_field, key, crew)
