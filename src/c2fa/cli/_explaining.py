"""The steps of ``c2fa explain``: check all there is to check, ask, write, print."""

from __future__ import annotations

import dataclasses
import signal
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2fa.cli import _outputs as outputs
from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import USAGE, InterruptedRun, RefusedError, as_usage
from c2fa.cli._inputs import Choices, Inputs, masker_for, read
from c2fa.cli._model import load, names_of
from c2fa.cli._resume import Resume
from c2fa.cli._saying import interactive, out, out_json, say, show
from c2fa.cli._stopping import Stop, Stoppable

if TYPE_CHECKING:
    from c2fa.explainer import Explainer
    from c2fa.explanation import Explanation


@dataclass(frozen=True)
class Order:
    """What a person asked for."""

    files: Sequence[Path]
    spec: str
    model_options: Mapping[str, Any]
    allow_pickle: bool
    settings: Mapping[str, Any]
    choices: Choices
    outs: Sequence[Path]
    title: str | None
    json: bool
    quiet: bool
    ledger: Path | None
    model_name: str | None
    resume: bool

    def places(self, inputs: Inputs) -> list[str]:
        """What names the inputs of this command in the cache: where they lie, or what standard input said."""
        at = [str(f.resolve()) if str(f) != "-" else str(inputs.values[i]) for i, f in enumerate(self.files)]
        return [*at, *self.choices.rows]


def explain_all(order: Order) -> None:
    """Explain every input, write what is to be written, print the rest."""
    for path in order.outs:
        outputs.check(path, outputs.EXPLANATIONS)
    inputs = read(order.files, order.choices)
    if len(inputs) > 1 and any(path.suffix.lower() == ".npz" for path in order.outs):
        raise RefusedError(
            f"an .npz file holds one explanation, and these are {len(inputs)} inputs: give .html, .json or .parquet",
            USAGE,
        )
    with Stop() as stop:
        model = load(order.spec, order.model_options, order.allow_pickle)
        wanted = order.resume and order.ledger is None
        options = [dict(order.model_options), order.model_name]
        with Resume(wanted, order.spec, options, order.places(inputs), ".sqlite") as resume:
            keep = order.ledger or resume.ledger()
            explainer = _explainer(order, inputs, model, stop, keep)
            _precheck(explainer, inputs)
            found: list[tuple[str, Explanation]] = []
            try:
                found = _ask(order, explainer, inputs, stop)
                for path in order.outs:
                    outputs.write_explanations(path, found, order.title)
                _print(order, found)
            except KeyboardInterrupt:
                raise InterruptedRun(stop.asked or signal.SIGINT, _kept("interrupted", explainer)) from None
            except Exception as error:
                if stop.asked is not None:  # Ctrl-C reached the model's own processes as well
                    raise InterruptedRun(stop.asked, _kept("interrupted", explainer)) from error
                error.add_note(_kept("stopped", explainer))
                raise
            else:
                resume.finish()
            finally:
                if explainer.ledger is not None:
                    if not _count(explainer):
                        resume.finish()
                    explainer.ledger.close()


def _explainer(order: Order, inputs: Inputs, model: Any, stop: Stop, keep: Path | None) -> Explainer:
    from c2fa import Explainer
    from c2fa.maskers import over_background

    with as_usage():
        masker = masker_for(inputs.kind, inputs.frame, order.choices, model)
    call = over_background(model) if order.choices.strategy == "average" else None
    name = order.model_name or getattr(model, "name", None)
    if name is None and order.ledger is not None:
        raise RefusedError(
            f"--ledger keeps answers under the model's name, and {order.spec!r} has none; give --model-name NAME and "
            "change it whenever the model changes",
            USAGE,
        )
    with as_usage():
        return Explainer(
            Stoppable(model, stop, call),
            masker,
            ledger=keep,
            model_name=name or order.spec,
            progress=interactive(order.quiet),
            **{**order.settings, "target": parsing.target(order.settings["target"], names_of(model))},
        )


def _precheck(explainer: Explainer, inputs: Inputs) -> None:
    """Refuse a budget or groups that do not fit an input before the first question; images would cost too much."""
    if inputs.kind == "images":
        return
    from c2fa.explainer import rows_per_level

    for name, x in list(zip(inputs.names, inputs.values, strict=True))[:1000]:
        try:
            rows_per_level(explainer.budget, explainer.masker(x).structure)
        except (ValueError, TypeError, KeyError) as error:
            raise RefusedError(f"{name!r} cannot be explained: {error}") from error


def _ask(order: Order, explainer: Explainer, inputs: Inputs, stop: Stop) -> list[tuple[str, Explanation]]:
    found = []
    pairs: Iterable[tuple[str, Any]] = list(zip(inputs.names, inputs.values, strict=True))
    if len(inputs) > 1 and interactive(order.quiet):
        from tqdm.auto import tqdm

        pairs = tqdm(pairs, desc="explaining", unit="input", leave=False)
    for name, x in pairs:
        try:
            e = explainer(x)
        except Exception as error:
            if len(inputs) > 1:
                error.add_note(f"this happened in {name!r}")
            raise
        stop.settle()
        found.append((name, dataclasses.replace(e, provenance={**e.provenance, "input": name})))
    return found


def _kept(ended: str, explainer: Explainer) -> str:
    """What is kept of a run that ends early."""
    ledger, count = explainer.ledger, _count(explainer)
    if ledger is None:
        return f"{ended}; no answers are kept"
    if not count:
        return f"{ended}; there were no answers yet to keep"
    answers = "1 answer is" if count == 1 else f"{count:,} answers are"
    return f"{ended}; {answers} kept in {ledger.path!r}, and the same command continues without asking again"


def _count(explainer: Explainer) -> int:
    try:
        return 0 if explainer.ledger is None else len(explainer.ledger)
    except sqlite3.Error:  # a full disk, a file that was taken away
        return 0


def _print(order: Order, found: Sequence[tuple[str, Explanation]]) -> None:
    for path in order.outs:
        if not order.quiet:
            say(f"wrote {path}")
    if order.json:
        for _, e in found:
            out_json(e.to_json())
    elif not (order.quiet and order.outs):
        for k, (name, e) in enumerate(found):
            if k:
                out("")
            show(e, name if len(found) > 1 else "")
