"""The steps of ``c2fa evaluate``: check all there is to check, ask, write, print."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from c2fa.cli import _outputs as outputs
from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import USAGE, InterruptedRun, RefusedError, as_usage
from c2fa.cli._inputs import Choices, masker_for, read
from c2fa.cli._model import load, names_of
from c2fa.cli._resume import Resume
from c2fa.cli._saying import interactive, out, out_json, say
from c2fa.cli._stopping import Stop, Stoppable

_NEED_TRUTH = ("ndcg", "top1", "auroc", "auroc-within", "coverage")


@dataclass(frozen=True)
class Grid:
    """What a person asked for."""

    files: Sequence[Path]
    spec: str
    model_options: Mapping[str, Any]
    allow_pickle: bool
    methods: Sequence[str]
    budgets: Sequence[int | tuple[int, ...]]
    seeds: int
    metrics: Sequence[str]
    settings: Mapping[str, Any]
    choices: Choices
    out: Path | None
    plot: Path | None
    json: bool
    quiet: bool
    store: Path | None
    model_name: str | None
    resume: bool


def evaluate_all(grid: Grid) -> None:
    """Run the grid, write what is to be written, print the summary."""
    _check(grid)
    inputs = read(grid.files, grid.choices)
    with Stop() as stop:
        model = load(grid.spec, grid.model_options, grid.allow_pickle)
        with as_usage():
            masker = masker_for(inputs.kind, inputs.frame, grid.choices, model)
        wanted = grid.resume and grid.store is None
        places = [str(f.resolve()) if str(f) != "-" else str(inputs.values[i]) for i, f in enumerate(grid.files)]
        options = ["evaluate", dict(grid.model_options), grid.model_name]
        with Resume(wanted, grid.spec, options, [*places, *grid.choices.rows], ".evaluation") as resume:
            keep = grid.store or resume.path
            result = _run(grid, inputs.values, model, masker, stop, keep)
            if grid.out is not None:
                outputs.write(grid.out, lambda half: outputs.write_frame(result.frame, half))
            if grid.plot is not None:
                for metric, path in _pictures(grid.plot, list(result.higher_is_better)).items():
                    outputs.write(path, partial(result.plot(metric).savefig, dpi=150))
            _print(grid, result)
            resume.finish()


def _check(grid: Grid) -> None:
    """Refuse what cannot be done before anything is asked."""
    from c2fa.evaluation.scoring import as_scores

    outputs.need(("pandas",), "evaluate")
    if grid.out is not None:
        outputs.check(grid.out, (".csv", ".json", ".parquet"))
    if grid.plot is not None:
        outputs.check(grid.plot, outputs.PICTURES, "--plot")
    if grid.store is not None and grid.store.exists() and not grid.store.is_dir():
        raise RefusedError(f"--store {str(grid.store)!r} is a file; give a folder")
    for name in grid.metrics:
        if name.partition("@")[0] in _NEED_TRUTH:
            raise RefusedError(
                f"the metric {name!r} needs to know the truth, which c2fa.evaluate(..., truths=...) takes in Python",
                USAGE,
            )
    with as_usage():
        as_scores(grid.metrics)


def _run(grid: Grid, inputs: Sequence[Any], model: Any, masker: Any, stop: Stop, keep: Path | None) -> Any:
    from c2fa.evaluation import evaluate
    from c2fa.maskers import over_background
    from c2fa.querying import QueryError

    call = over_background(model) if grid.choices.strategy == "average" else None
    name = grid.model_name or getattr(model, "name", None)
    if name is None and grid.store is not None:
        raise RefusedError(
            f"--store keeps answers under the model's name, and {grid.spec!r} has none; give --model-name NAME and "
            "change it whenever the model changes",
            USAGE,
        )
    kept = "no answers are kept" if keep is None else "its answers are kept, and the same command continues"
    try:
        return evaluate(
            grid.methods,
            inputs,
            Stoppable(model, stop, call),
            masker,
            grid.budgets,
            seeds=grid.seeds,
            metrics=grid.metrics,
            store=keep,
            model_name=name or grid.spec,
            progress=interactive(grid.quiet),
            target=parsing.target(grid.settings["target"], names_of(model)),
            batch_size=grid.settings["batch_size"] or getattr(model, "batch_size", 64),
            on_error=grid.settings["on_error"],
        )
    except KeyboardInterrupt:
        raise InterruptedRun(stop.asked or signal.SIGINT, f"interrupted; {kept}") from None
    except QueryError as error:
        if stop.asked is not None:  # Ctrl-C reached the model's own processes as well
            raise InterruptedRun(stop.asked, f"interrupted; {kept}") from error
        error.add_note(f"stopped; {kept}")
        raise
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error), USAGE) from error


def _pictures(path: Path, metrics: Sequence[str]) -> dict[str, Path]:
    """A file for each metric: the one that was asked for, or that with the metric's name in its own."""
    if len(metrics) == 1:
        return {metrics[0]: path}
    return {metric: path.with_stem(f"{path.stem}-{metric}") for metric in metrics}


def _print(grid: Grid, result: Any) -> None:
    if not grid.quiet:
        if grid.out is not None:
            say(f"wrote {grid.out}")
        if grid.plot is not None:
            for path in _pictures(grid.plot, list(result.higher_is_better)).values():
                say(f"wrote {path}")
    if grid.json:
        facts = {
            "summary": outputs.records(result.summary()),
            "reference": result.reference,
            "rows": dataclasses.asdict(result.rows),
            "notes": list(result.notes),
        }
        out_json(json.dumps(facts))
    elif not (grid.quiet and grid.out is not None):
        out(result.to_text())
