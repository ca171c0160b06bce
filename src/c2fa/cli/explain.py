"""``c2fa explain``: files in, explanations out."""

from __future__ import annotations

import dataclasses
import json as json_
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2fa import Explainer
from c2fa.asking.ledger import LedgerError
from c2fa.asking.model import describe
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Inputs, Kind, Request, check_masked, is_dataset, make_masker, must_exist
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, guarded
from c2fa.methods import METHODS, options_of

_EXPLAINER_OPTIONS = ("preset", "outputs", "output_names")  # of Explainer; its others have flags of their own
STORE_OPTIONS: o.Readers = {
    "engine": str,
    "shard_size": o.whole,
    "gpus": o.whole,
    "models": o.whole,
    "learn": o.whole,
    "budget_after": o.budget,
    "key": str,
    "tries": o.whole,
    "timeout": o.number,
    "patience": o.number,
    "in_flight": o.whole,
    "precision": str,
    "views": str,
}
_SHOWN_FAILURES = 5


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
        order = Order(request, settings, out, json, quiet, ledger, resume)
        if store is None:
            refuse_dataset_flags(
                {
                    "--workers": workers,
                    "--retry-failed": retry_failed or None,
                    "--store-option": store_option or None,
                }
            )
            _explain_files(order)
        else:
            chosen = o.read("--store-option", store_option, STORE_OPTIONS, "a store")
            _explain_dataset(order, store, {"workers": workers, "retry_failed": retry_failed, **chosen})


@dataclass(frozen=True)
class Order:
    """What is to be explained, how, and where it goes."""

    request: Request
    settings: Mapping[str, Any]
    outs: Sequence[Path]
    json: bool
    quiet: bool
    ledger: Path | None
    resume: bool


def refuse_dataset_flags(given: Mapping[str, Any]) -> None:
    """Refuse flags of a store where there is none."""
    for flag, value in given.items():
        if value is not None:
            raise RefusedError(f"{flag} goes with --store DIR, the folder of a dataset's explanations", USAGE)


def method_options(method: str | None, texts: Sequence[str]) -> dict[str, Any]:
    """Read the options of a method, and those of the explainer that have no flag."""
    if method is not None and method not in METHODS:
        return {}  # the explainer refuses the method and lists those there are
    known = [*options_of("owen"), *options_of("c2fa")] if method is None else options_of(method)
    readers = dict.fromkeys([*known, *_EXPLAINER_OPTIONS], o.value)
    return o.read("--option", texts, readers, "the explainer" if method is None else f"the method {method!r}")


# ---------------------------------------------------------------------------------- files


def _explain_files(order: Order) -> None:
    """Explain every input, write what is to be written, print the rest."""
    request = order.request
    for path in order.outs:
        output.check(path, output.EXPLANATIONS)
    inputs = request.read()
    with Stop() as stop:
        model = request.load()
        with request.resume(order.resume and order.ledger is None, inputs, ".sqlite") as resume:
            explainer = _explainer(order, inputs, model, stop, order.ledger or resume.ledger())
            try:
                check_masked(inputs, lambda x: _check_budget(explainer, x))
                with stop.keeping(lambda: kept(explainer)):
                    named = _ask(order, explainer, inputs, stop)
                    for path in order.outs:
                        output.write_explanations(path, named)
                    _print(order, named)
                resume.finish()
            finally:
                if explainer.ledger is not None:
                    if not _count(explainer):
                        resume.finish()
                    explainer.ledger.close()


def _explainer(order: Order, inputs: Inputs, model: Any, stop: Stop, ledger: Path | None) -> Explainer:
    ready = order.request.prepare(inputs, model, stop, None if order.ledger is None else "--ledger")
    settings = {**order.settings, "target": o.target(order.settings["target"], ready.output_names)}
    with as_usage():
        return Explainer(
            ready.model,
            ready.masker,
            ledger=ledger,
            model_name=ready.model_name,
            progress=output.interactive(order.quiet),
            **settings,
        )


def _check_budget(explainer: Explainer, x: Any) -> None:
    masked = explainer.masker(x)
    explainer.rows(masked.structure, masked.rows_per_mask)


def _ask(order: Order, explainer: Explainer, inputs: Inputs, stop: Stop) -> output.Named:
    named = []
    pairs: Iterable[tuple[str, Any]] = list(zip(inputs.names, inputs.values, strict=True))
    if len(inputs) > 1 and output.interactive(order.quiet):
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
        named.append((name, dataclasses.replace(e, provenance={**e.provenance, "input": name})))
    return named


def kept(explainer: Explainer) -> str:
    """What is kept of a run that ends early."""
    if explainer.ledger is None:
        return "no answers are kept"
    count = _count(explainer)
    if not count:
        return "there were no answers yet to keep"
    answers = "1 answer is" if count == 1 else f"{count:,} answers are"
    return f"{answers} kept in {explainer.ledger.path!r}, and the same command continues without asking again"


def _count(explainer: Explainer) -> int:
    try:
        return 0 if explainer.ledger is None else len(explainer.ledger)
    except LedgerError:  # a full disk, or a file that was removed
        return 0


def _print(order: Order, named: output.Named) -> None:
    if not order.quiet:
        for path in order.outs:
            output.say(f"wrote {path}")
    if order.json:
        for _, e in named:
            output.out_json(e.to_json())
    elif not (order.quiet and order.outs):
        for k, (name, e) in enumerate(named):
            if k:
                output.out("")
            output.show(e, name if len(named) > 1 else "")


# ---------------------------------------------------------------------------------- datasets


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

    def divided(self) -> tuple[Callable[[], Any], Callable[[Any], Explainer]]:
        """What makes the model, for its own process, and what makes an explainer around it, for workers."""
        return self.request.load, self


def _explain_dataset(order: Order, store: Path, crew: Mapping[str, Any]) -> None:
    """Explain a dataset into a store; the same command continues one that stopped."""
    from c2fa.batch import many

    if order.outs:
        raise RefusedError(
            f"--store and --out do not go together: make a page of a store with 'c2fa report {store} --out PAGE.html'",
            USAGE,
        )
    output.check_folder(store, "--store")
    request = order.request
    request.model_settings()  # refused here, not in every worker
    dataset = _dataset(request)
    inputs = request.read() if dataset is None else Inputs("text", [], [], masking=request.masker_options("text"))
    make = MakeExplainer(request, inputs.kind, inputs.masking, _worker_settings(order))
    _check_store(make, store)
    done = many(
        make,
        inputs.values if dataset is None else str(dataset),
        store,
        column=None if dataset is None else request.field,
        batch_size=order.settings["batch_size"],
        progress=output.interactive(order.quiet),
        **crew,
    )
    print_store(done, store, order.json, order.quiet)


def _dataset(request: Request) -> Path | None:
    """The dataset that is streamed; None where the inputs are read first: other files, or some rows."""
    first = request.files[0]
    if not is_dataset(first) or request.rows:
        return None
    if len(request.files) > 1:
        raise RefusedError("give one dataset at a time: a file, or a folder of files", USAGE)
    must_exist(first)
    return first


def _worker_settings(order: Order) -> dict[str, Any]:
    name = order.request.model_name
    if name is None and order.ledger is None and order.request.spec.startswith("python:"):
        name = order.request.spec  # a function has no name; with a ledger the user must say which version it is
    target = o.target(order.settings["target"])
    return {**order.settings, "target": target, "ledger": order.ledger, "model_name": name}


def _check_store(make: MakeExplainer, store: Path) -> None:
    """Refuse what an explainer or the store would refuse, before workers start and load a model each.

    A complete store starts no worker, so nobody else would notice that it was made with other settings.
    """
    from c2fa.batch import Store
    from c2fa.batch.recipe import settings_of

    with as_usage():
        masker = make_masker(make.kind, make.masking)
        explainer = Explainer(len, masker, **{**make.settings, "ledger": None})
    unknown = {"model"} if make.settings["model_name"] is None else set()
    if make.request.spec.startswith("hf:") and "mask" not in make.masking:  # only the tokenizer knows its mask
        unknown |= {"masker", "masker_digest"}
    there = Store(store).settings
    ours = {k: v for k, v in settings_of(explainer).items() if k in there and k not in unknown}
    Store(store).check({**there, **ours})


def print_store(done: Any, store: Path, json: bool, quiet: bool) -> None:
    """Print what a run has left in a store, and what it set aside."""
    failed = done.errors()
    if json:
        run = dataclasses.asdict(done.run)
        facts = {**run, "store": str(store), "in_store": len(done), "set_aside": len(failed)}
        output.out_json(json_.dumps(facts))
    if quiet:
        return
    if not json:
        by = "" if done.run.workers < 2 else f", by {done.run.workers} workers"
        output.out(f"{len(done):,} inputs are in {str(store)!r}; {done.run.inputs:,} of them were explained now{by}")
    for failure in failed[:_SHOWN_FAILURES]:
        output.say(f"input {failure.index} was set aside: {failure.error}")
    if len(failed) > _SHOWN_FAILURES:
        output.say(f"and {len(failed) - _SHOWN_FAILURES:,} more")
    if failed:
        output.say("the same command with --retry-failed asks about them again")
