"""``c2fa evaluate``: methods, budgets and seeds on the same inputs, scored."""

from __future__ import annotations

import dataclasses
import json as json_
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from c2fa import evaluation
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.errors import USAGE, RefusedError, as_usage
from c2fa.cli.inputs import Inputs, Prepared, Request
from c2fa.cli.session import Stop, guarded
from c2fa.evaluation.scoring import as_scores
from c2fa.model import describe

_MASKS = "20:50,20:100"
_NEED_TRUTH = ("ndcg", "top1", "auroc", "auroc-within", "coverage")


def evaluate(
    files: o.Files,
    model: o.Model,
    model_option: o.ModelOption = [],  # noqa: B006
    allow_pickle: o.AllowPickle = False,
    methods: Annotated[
        str, o.flag(o.ASKING, metavar="NAMES", help="The methods to compare.", show_default=True)
    ] = "c2fa,lime",
    masks: Annotated[
        str | None,
        o.flag(
            o.ASKING,
            metavar="LIST",
            help="Masks for each level, the prediction's row on top: 20:50,20:100.",
            show_default=_MASKS,
        ),
    ] = None,
    budgets: Annotated[
        str | None,
        o.flag(o.ASKING, metavar="LIST", help="In place of --masks, model rows in all: 100,200."),
    ] = None,
    seeds: Annotated[int, o.flag(o.ASKING, min=1, help="How many seeds.", show_default=True)] = 3,
    metrics: Annotated[
        str,
        o.flag(
            o.ASKING,
            metavar="NAMES",
            help="Some of insertion, deletion, faithfulness, aopc-r, infidelity, consistency, mihl and stability; "
            "deletion@0 is deletion at level 0.",
            show_default=True,
        ),
    ] = "insertion,deletion,consistency,mihl",
    target: o.Target = None,
    batch_size: o.BatchSize = None,
    on_error: o.OnError = "raise",
    row: o.Row = [],  # noqa: B006
    drop: o.Drop = [],  # noqa: B006
    masker: o.Masker = [],  # noqa: B006
    out: Annotated[
        Path | None,
        o.flag(o.OUTPUT, "--out", "-o", metavar="FILE", help="Write every score (.csv, .json or .parquet)."),
    ] = None,
    plot: Annotated[
        Path | None,
        o.flag(
            o.OUTPUT, metavar="FILE", help="Draw scores over budgets (.png, .svg or .pdf), one file for each metric."
        ),
    ] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    store: Annotated[
        Path | None,
        o.flag(o.KEEPING, metavar="DIR", help="Keep every answer and score in this folder; none is asked again."),
    ] = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
) -> None:
    """Compare methods on the same inputs; no question is asked twice.

    \bExamples:
      c2fa evaluate reviews/*.txt --model demo --methods c2fa,lime,bu-lime
      c2fa evaluate rows.csv -m sklearn:model.skops --row 0:20 \\
        --masker groups=groups.json --metrics deletion,stability --seeds 5 \\
        --out scores.csv --plot scores.png

    \bThe table shows means over inputs and seeds, and each method's difference
    to the reference with its 95 % interval. 'c2fa explain --help' lists what
    --masker takes.
    """
    with guarded(debug):
        _evaluate(
            Grid(
                Request(files, model, model_option, allow_pickle, model_name, row, drop, masker),
                methods=o.words(methods),
                **_sizes(masks, budgets),
                seeds=seeds,
                metrics=o.words(metrics),
                settings={"target": target, "batch_size": batch_size, "on_error": on_error},
                out=out,
                plot=plot,
                json=json,
                quiet=quiet,
                store=store,
                resume=resume,
            )
        )


@dataclass(frozen=True)
class Grid:
    """What is compared on what, and where it goes."""

    request: Request
    methods: Sequence[str]
    seeds: int
    metrics: Sequence[str]
    settings: Mapping[str, Any]
    out: Path | None
    plot: Path | None
    json: bool
    quiet: bool
    store: Path | None
    resume: bool
    masks: Sequence[tuple[int, ...]] | None = None
    budgets: Sequence[int | tuple[int, ...]] | None = None


def _sizes(masks: str | None, budgets: str | None) -> dict[str, Any]:
    """The sizes that were given, under their name."""
    if masks is not None and budgets is not None:
        raise RefusedError(f"--masks {masks} and --budgets {budgets} say the same thing twice; give one of them", USAGE)
    if budgets is not None:
        return {"budgets": o.budgets(budgets)}
    return {"masks": o.masks(_MASKS if masks is None else masks)}


def _evaluate(grid: Grid) -> None:
    """Run the grid, write what is to be written, print the summary."""
    _check(grid)
    request = grid.request
    inputs = request.read()
    with Stop() as stop:
        model = request.load()
        ready = request.prepare(inputs, model, stop, None if grid.store is None else "--store")
        with request.resume(grid.resume and grid.store is None, inputs, ".evaluation") as resume:
            folder = grid.store or resume.path
            kept = "no answers are kept" if folder is None else "its answers are kept, and the same command continues"
            with stop.keeping(lambda: kept):
                result = _run(grid, inputs, ready, folder)
                _print(grid, result, _write(grid, result))
            resume.finish()


def _check(grid: Grid) -> None:
    """Refuse what cannot be done before anything is asked."""
    output.need(("pandas",), "evaluate")
    if grid.out is not None:
        output.check(grid.out, (".csv", ".json", ".parquet"))
    if grid.plot is not None:
        output.check(grid.plot, output.PICTURES, "--plot")
    if grid.store is not None and grid.store.exists() and not grid.store.is_dir():
        raise RefusedError(f"--store {str(grid.store)!r} is a file; give a folder")
    for name in grid.metrics:
        if name.partition("@")[0] in _NEED_TRUTH:
            raise RefusedError(
                f"the metric {name!r} needs the true attributions, which only c2fa.evaluate(..., truths=...) in Python "
                "takes",
                USAGE,
            )
    with as_usage():
        as_scores(grid.metrics)


def _run(grid: Grid, inputs: Inputs, ready: Prepared, folder: Path | None) -> evaluation.Result:
    with as_usage():
        return evaluation.evaluate(
            grid.methods,
            inputs.values,
            ready.model,
            ready.masker,
            masks=grid.masks,
            budgets=grid.budgets,
            seeds=grid.seeds,
            metrics=grid.metrics,
            store=folder,
            model_name=ready.model_name,
            progress=output.interactive(grid.quiet),
            target=o.target(grid.settings["target"], ready.output_names),
            batch_size=grid.settings["batch_size"] or describe(ready.model).batch_size or 64,
            on_error=grid.settings["on_error"],
        )


def _write(grid: Grid, result: evaluation.Result) -> list[Path]:
    written = []
    if grid.out is not None:
        output.write(grid.out, partial(output.write_frame, result.frame))
        written.append(grid.out)
    if grid.plot is not None:
        metrics = list(result.higher_is_better)
        for metric in metrics:
            path = grid.plot if len(metrics) == 1 else grid.plot.with_stem(f"{grid.plot.stem}-{metric}")
            output.write(path, partial(result.plot(metric).savefig, dpi=150))
            written.append(path)
    return written


def _print(grid: Grid, result: evaluation.Result, written: Sequence[Path]) -> None:
    if not grid.quiet:
        for path in written:
            output.say(f"wrote {path}")
    if grid.json:
        facts = {
            "summary": output.records(result.summary()),
            "reference": result.reference,
            "rows": dataclasses.asdict(result.rows),
            "notes": list(result.notes),
        }
        output.out_json(json_.dumps(facts))
    elif not (grid.quiet and grid.out is not None):
        output.out(result.to_text())
