"""``c2fa explain --store``: a dataset into a folder of explanations, on workers that load their own model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import USAGE, RefusedError, as_usage
from c2fa.cli._explaining import Order
from c2fa.cli._inputs import DATASETS, Choices, Inputs, Kind, masker_for, read
from c2fa.cli._model import load, names_of
from c2fa.cli._saying import interactive, out, out_json, say

if TYPE_CHECKING:
    from c2fa.explainer import Explainer

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Make:
    """Makes the explainer where a worker runs: the masker may depend on the model, which stays there."""

    spec: str
    model_options: Mapping[str, Any]
    allow_pickle: bool
    kind: Kind
    frame: Any
    choices: Choices
    settings: Mapping[str, Any]

    def __call__(self) -> Explainer:
        from c2fa import Explainer

        model = load(self.spec, self.model_options, self.allow_pickle)
        target, names = self.settings["target"], names_of(model)
        if isinstance(target, int) and str(target) in names[:target] + names[target + 1 :]:
            raise ValueError(
                f"--target {target} is the name of one output and the place of another; the outputs are {names}"
            )
        masker = masker_for(self.kind, self.frame, self.choices, model)
        return Explainer(model, masker, **self.settings)


def explain_dataset(order: Order, store: Path, field: str | None, key: str | None, crew: Mapping[str, Any]) -> None:
    """Explain a dataset into a store, with workers as ``crew`` says; a second run continues with the store."""
    if order.outs:
        raise RefusedError(
            f"--store and --out do not go together: make a page of a store with 'c2fa report {store} --out PAGE.html'",
            USAGE,
        )
    if order.choices.strategy == "average":
        raise RefusedError("--strategy average does not go with --store; take mean or row", USAGE)
    if store.exists() and not store.is_dir():
        raise RefusedError(f"--store {str(store)!r} is a file; give a folder")
    inputs = _inputs(order, field)
    kind: Kind = "text" if isinstance(inputs, Path) else inputs.kind
    frame = None if isinstance(inputs, Path) else inputs.frame
    order.choices.check(kind)
    name = order.model_name
    if name is None and order.ledger is None and order.spec.startswith("python:"):
        name = order.spec  # functions have no name of their own; a ledger asks for one that says which version
    settings = {
        **order.settings,
        "target": parsing.target(order.settings["target"]),
        "ledger": order.ledger,
        "model_name": name,
    }
    _same_settings(order, kind, frame, store, settings)
    from c2fa.batch import many

    done = many(
        Make(order.spec, order.model_options, order.allow_pickle, kind, frame, order.choices, settings),
        str(inputs) if isinstance(inputs, Path) else inputs.values,
        store,
        column=field,
        key=key,
        batch_size=order.settings["batch_size"],
        progress=interactive(order.quiet),
        **crew,
    )
    failed = done.errors()
    facts = {**dataclasses.asdict(done.run), "store": str(store), "in_store": len(done), "set_aside": len(failed)}
    if order.json:
        out_json(json.dumps(facts))
    elif not order.quiet:
        out(f"{len(done):,} inputs are in {str(store)!r}; {done.run.inputs:,} of them were explained now")
    if not order.quiet:
        for failure in failed[:_SHOWN]:
            say(f"input {failure.index} was set aside: {failure.error}")
        if len(failed) > _SHOWN:
            say(f"and {len(failed) - _SHOWN:,} more")


def _inputs(order: Order, field: str | None) -> Inputs | Path:
    """A file or folder that is streamed, or what was read here."""
    first = order.files[0]
    holds = first.is_dir() and any(f.name.endswith(DATASETS) for f in first.iterdir())
    if not holds and not first.name.endswith(DATASETS):
        if field is not None:
            raise RefusedError("--field is for datasets in .parquet or .jsonl", USAGE)
        return read(order.files, order.choices)
    if len(order.files) > 1:
        raise RefusedError("give one dataset at a time: a file, or a folder of files", USAGE)
    if not first.exists():
        raise RefusedError(f"there is no file or folder {str(first)!r}")
    return first


def _same_settings(order: Order, kind: Kind, frame: Any, store: Path, settings: Mapping[str, Any]) -> None:
    """Refuse what an explainer or the store would refuse, before workers start and load a model each.

    A store that is complete starts no worker, so nobody else would notice that it was made with other settings.
    """
    from c2fa import Explainer
    from c2fa.batch import Store
    from c2fa.batch.recipe import settings_of

    with as_usage():
        masker = masker_for(kind, frame, order.choices)
        explainer = Explainer(len, masker, **{**settings, "ledger": None})
    ours = settings_of(explainer)
    unknown = {"model"} if settings["model_name"] is None else set()
    if order.spec.startswith("hf:") and order.choices.mask is None:  # the tokenizer's own mask, which only it knows
        unknown |= {"masker", "masker_digest"}
    there = Store(store).settings
    Store(store).check({**there, **{k: v for k, v in ours.items() if k not in unknown and k in there}})
