"""``c2fa explain``: files in, explanations out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2fa import Explainer
from c2fa.asking.model import describe
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Inputs, Kind, Request, is_dataset, make_masker, must_exist
from c2fa.cli.order import Order, method_options
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, guarded


def explain(
    files: o.Files,
    model: o.Model,
    model_option: o.ModelOption = [],  # noqa: B006
    allow_pickle: o.AllowPickle = False,
    method: o.Method = None,
    option: o.Option = [],  # noqa: B006
    budget: o.Budget = None,
    until: o.Until = None,
    link: o.Link = "identity",
    target: o.Target = None,
    prior: o.Prior = None,
    seed: o.Seed = 0,
    batch_size: o.BatchSize = None,
    on_error: o.OnError = "raise",
    row: o.Row = [],  # noqa: B006
    field: o.Field = None,
    drop: o.Drop = [],  # noqa: B006
    masker: o.Masker = [],  # noqa: B006
    out: o.Outs = [],  # noqa: B006
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    ledger: o.Ledger = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
    store: o.Store = None,
    workers: o.Workers = None,
    retry_failed: o.RetryFailed = False,
    store_option: o.StoreOption = [],  # noqa: B006
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
        --masker groups=groups.json --out rows.html

    \bA folder of images is one bag; the model gets lists of arrays:
      c2fa explain scans/ -m python:mine:classify --masker segment=slic \\
        --out scans.html

    \bRows of a file that hold texts, in a CSV, Parquet or JSONL:
      c2fa explain reviews.csv --field text --row 0:5 -m demo

    \bThousands of inputs on many processes:
      c2fa explain reviews.jsonl --field text -m demo --store explained
      c2fa report explained --out report.html

    \bWhat --masker takes:
      texts    levels=sentences,words  mask=TOKEN|none  language=en
      tables   groups=FILE.json  background=FILE.csv  strategy=mean|row|average
      images   segment=quickshift|slic  absent=remove|fill
               fill=NUMBER|mean|segments|blur  regions=8  channels=first|last
               options=JSON (of quickshift or slic)

    \bCtrl-C finishes the batch under way, and the same command continues: the
    answers stay in your cache until it succeeds, or in --ledger for good.
    """
    with guarded(debug):
        request = Request(files, model, model_option, allow_pickle, model_name, row, field, drop, masker)
        settings = {
            "method": method,
            "budget": o.budget(budget),
            "until": until,
            "link": link,
            "target": target,
            "prior": prior,
            "seed": seed,
            "batch_size": batch_size,
            "on_error": on_error,
            **method_options(method, option),
        }
        kept = (ledger, resume, store, workers, retry_failed, store_option)
        order = Order(request, settings, out, json, quiet, *kept)
        if store is None:
            _explain_files(order)
        else:
            _explain_dataset(order)


def _explain_files(order: Order) -> None:
    request = order.request
    inputs = request.read()

    def make(model: Any, stop: Stop, ledger: Path | None) -> tuple[Explainer, Explainer]:
        ready = request.prepare(inputs, model, stop, None if order.ledger is None else "--ledger")
        settings = {**order.settings, "target": o.target(order.settings["target"], ready.output_names)}
        with as_usage():
            explainer = Explainer(
                ready.model,
                ready.masker,
                ledger=ledger,
                model_name=ready.model_name,
                progress=output.interactive(order.quiet),
                **settings,
            )
        return explainer, explainer

    with request.naming_columns(inputs):
        order.explain(inputs, request.places(inputs), make)


@dataclass(frozen=True, eq=False)
class MakeExplainer:
    """Makes the explainer in a worker: each loads its own model, and the masker may depend on it."""

    request: Request
    kind: Kind
    masking: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __call__(self, model: Any = None) -> Explainer:
        model = self.request.load() if model is None else model
        target, names = self.settings["target"], describe(model).output_names
        if isinstance(target, int) and str(target) in names[:target] + names[target + 1 :]:
            raise ValueError(
                f"--target {target} is the name of one output and the place of another; the outputs are {names}"
            )
        return Explainer(model, make_masker(self.kind, self.masking, model), **self.settings)

    def bare(self) -> Explainer:
        """An explainer without its model, to see its settings before one is loaded."""
        return Explainer(len, make_masker(self.kind, self.masking), **{**self.settings, "ledger": None})

    def divided(self) -> tuple[Callable[[], Any], Callable[[Any], Explainer]]:
        """What makes the model, for its own process, and what makes an explainer around it, for workers."""
        return self.request.load, self


def _explain_dataset(order: Order) -> None:
    request = order.request
    first = request.files[0]
    streamed = is_dataset(first) and not request.rows  # else the inputs are read first: other files, or some rows
    if streamed and len(request.files) > 1:
        raise RefusedError("give one dataset at a time: a file, or a folder of files", USAGE)
    if streamed:
        must_exist(first)
        inputs = Inputs("text", [], [], masking=request.masker_options("text"))
    else:
        inputs = request.read()
    name = request.model_name
    if name is None and order.ledger is None and request.spec.startswith("python:"):
        name = request.spec  # a function has no name; with a ledger the user must say which version it is
    own = {"target": o.target(order.settings["target"]), "ledger": order.ledger, "model_name": name}
    make = MakeExplainer(request, inputs.kind, inputs.masking, {**order.settings, **own})
    with as_usage():
        bare = make.bare()
    unknown = {"model"} if name is None else set()
    if request.spec.startswith("hf:") and "mask" not in make.masking:  # only the tokenizer knows its mask
        unknown |= {"masker", "masker_digest"}
    with request.naming_columns(inputs):
        if streamed:
            order.explain_into_store(make, bare, unknown, str(first), column=request.field)
        else:
            order.explain_into_store(make, bare, unknown, inputs.values)
