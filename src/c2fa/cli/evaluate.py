"""``c2fa evaluate``: methods, budgets and seeds on the same inputs, scored."""

from __future__ import annotations

import dataclasses
import json as json_
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from c2fa import evaluation
from c2fa.asking.model import describe
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Inputs, Prepared, Request, check_masked
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, guarded
from c2fa.evaluation.scoring import as_scores
from c2fa.models import Lazy


def evaluate(
    files: o.Files,
    model: o.Model,
    model_option: o.ModelOption = [],  # noqa: B006
    allow_pickle: o.AllowPickle = False,
    methods: o.Methods = "owen,c2fa,lime",
    masks: o.Masks = [],  # noqa: B006
    budget: o.Budgets = [],  # noqa: B006
    seeds: o.Seeds = 3,
    metrics: o.Metrics = "insertion,deletion,consistency,mihl",
    target: o.Target = None,
    batch_size: o.BatchSize = None,
    on_error: o.OnError = "raise",
    workers: o.InputWorkers = 0,
    row: o.Row = [],  # noqa: B006
    field: o.Field = None,
    drop: o.Drop = [],  # noqa: B006
    masker: o.Masker = [],  # noqa: B006
    out: o.Scores = None,
    plot: o.Plot = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    store: o.ScoreStore = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
) -> None:
    """Compare methods on the same inputs; no question is asked twice.

    \bExamples:
      c2fa evaluate reviews/*.txt --model demo --methods owen,lime,bu-lime
      c2fa evaluate reviews.jsonl --field text --row 0:20 -m demo \\
        --budget 100 --budget 200
      c2fa evaluate rows.csv -m sklearn:model.skops --row 0:20 \\
        --masker groups=groups.json --metrics deletion,stability --seeds 5 \\
        --out scores.csv --plot scores.png

    \bThe table shows means over inputs and seeds, and each method's difference
    to the reference with its 95 % interval. 'c2fa explain --help' lists what
    --masker takes.
    """
    with guarded(debug):
        sizes, scores = _sizes(masks, budget), o.words(metrics)
        output.need(("pandas",), "evaluate")
        if out is not None:
            output.check(out, (".csv", ".json", ".parquet"))
        if plot is not None:
            output.check(plot, output.PICTURES, "--plot")
        if store is not None:
            output.check_folder(store, "--store")
        for name in scores:
            if name.partition("@")[0] in ("ndcg", "top1", "auroc", "auroc-within", "coverage"):
                raise RefusedError(
                    f"the metric {name!r} needs the true attributions, which only c2fa.evaluate(..., truths=...) in "
                    "Python takes",
                    USAGE,
                )
        with as_usage():
            as_scores(scores)
        request = Request(files, model, model_option, allow_pickle, model_name, row, field, drop, masker)
        inputs = request.read()
        with request.naming_columns(inputs), _asking(request, inputs, store, resume) as (ready, folder):
            check_masked(inputs, ready.masker)
            settings: dict[str, Any] = {
                "target": o.target(target, ready.output_names),
                "batch_size": batch_size or describe(ready.model).batch_size or 64,
                "on_error": on_error,
            }
            with as_usage():
                result = evaluation.evaluate(
                    o.words(methods),
                    inputs.values,
                    Lazy(request.load) if workers else ready.model,
                    ready.masker,
                    **sizes,
                    seeds=seeds,
                    metrics=scores,
                    store=folder,
                    model_name=ready.model_name,
                    progress=output.interactive(quiet),
                    workers=workers,
                    **settings,
                )
            for path in _write(result, out, plot):
                if not quiet:
                    output.say(f"wrote {path}")
            if json:
                facts = {
                    "summary": output.records(result.summary()),
                    "levels": list(result.level_names),
                    "reference": result.reference,
                    "rows": dataclasses.asdict(result.rows),
                    "notes": list(result.notes),
                }
                output.out_json(json_.dumps(facts))
            elif not (quiet and out is not None):
                output.out(result.to_text())


def _sizes(masks: Sequence[str], budgets: Sequence[str]) -> dict[str, Any]:
    """The sizes that were given, under their name."""
    if masks and budgets:
        raise RefusedError(
            f"--masks {masks[0]} and --budget {budgets[0]} say the same thing twice; give one of them", USAGE
        )
    if budgets:
        return {"budgets": [o.budget(each) for each in budgets]}
    return {"masks": [o.masks(each) for each in masks or o.DEFAULT_MASKS]}


@contextmanager
def _asking(
    request: Request, inputs: Inputs, store: Path | None, resume: bool
) -> Iterator[tuple[Prepared, Path | None]]:
    """The model and masker, and the folder that keeps answers; Ctrl-C and errors say what is kept."""
    with Stop() as stop:
        model = request.load()
        ready = request.prepare(inputs, model, stop, None if store is None else "--store")
        with request.resume(resume and store is None, request.places(inputs), ".evaluation") as resumed:
            folder = store or resumed.path
            kept = "no answers are kept" if folder is None else "its answers are kept, and the same command continues"
            with stop.keeping(lambda: kept):
                yield ready, folder
            resumed.finish()


def _write(result: evaluation.Result, out: Path | None, plot: Path | None) -> Iterator[Path]:
    """Write the scores, and a plot of each metric."""
    if out is not None:
        output.write_frame(out, result.frame)
        yield out
    if plot is not None:
        metrics = list(result.higher_is_better)
        for metric in metrics:
            path = plot if len(metrics) == 1 else plot.with_stem(f"{plot.stem}-{metric}")
            output.write_figure(path, result.plot(metric), dpi=150)
            yield path
