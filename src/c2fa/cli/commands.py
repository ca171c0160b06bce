"""What the commands share that ask a model: how it is loaded, how a run stops and continues, where answers go."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from c2fa.asking.ledger import LedgerError
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.options import ASKING, DATASETS, KEEPING, OUTPUT, Command, flag, pairs
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Resume, Stop
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.methods import METHODS, options_of
from c2fa.models import loading
from c2fa.models.http._settings import shown
from c2fa.priors import scout

if TYPE_CHECKING:
    from c2fa.batch import Recipe, Store
    from c2fa.batch.overview import Failure
    from c2fa.cli.inputs import Inputs

T = TypeVar("T")
Make = Callable[[Any, Stop, Path | None], tuple[Explainer, T]]
"""Makes an explainer, and what a session is entered for, of a model, what stops it and the file of its answers."""

STORE_OPTIONS: o.Readers = {
    **dict.fromkeys(("engine", "key", "precision", "views"), str),
    **dict.fromkeys(("shard_size", "gpus", "models", "tries", "in_flight"), o.whole),
    **dict.fromkeys(("timeout", "patience"), o.number),
    "learn": lambda text: o.counts(
        text, f"learn={text!r} are no numbers of inputs: write learn=500, or learn=50,200,1000"
    ),
    "budget_after": o.budget,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking(Command):
    """A command that asks a model."""

    model: str = flag(
        ASKING,
        "The model: demo, python:module:function, sklearn:file, hf:folder, onnx:file, oip:URL#model, mlflow:URL or "
        "openai:URL#model.",
        "-m",
        default=dataclasses.MISSING,
        metavar="SPEC",
    )
    model_option: list[str] = pairs(ASKING, 'Set a model option: classes=\'["good", "bad"]\'')
    batch_size: int | None = flag(
        ASKING, "Rows sent to the model at a time.", min=1, show_default="64, or the server's own"
    )
    json: bool = flag(OUTPUT, "Print JSON and nothing else to stdout.", default=False)
    quiet: bool = flag(OUTPUT, "Print no progress and no remarks; with --out, no result either.", "-q", default=False)
    model_name: str | None = flag(
        KEEPING, "Keep answers under this name; change it when the model changes.", metavar="NAME"
    )
    resume: bool = flag(
        KEEPING,
        "Keep the answers of a run that stops until the same command succeeds.",
        "--resume/--no-resume",
        default=True,
        show_default=True,
    )

    @property
    def spec(self) -> str:
        """The line of text that names the model for ``c2fa.models.load``."""
        return self.model

    def model_settings(self) -> dict[str, Any]:
        """Read the model's options; what it does not take is refused without loading it."""
        if not self.model_option:
            return {}
        readers = dict.fromkeys(loading.options_of(self.spec), o.value)
        return o.read("--model-option", self.model_option, readers, f"the model {shown(self.spec)!r}")

    def load(self) -> Any:
        """Load the model; whatever a stranger's module or file raises becomes one sentence."""
        try:
            return loading.load(self.spec, **self.model_settings())
        except RefusedError:
            raise
        except (Exception, SystemExit) as error:
            text = str(error) or type(error).__name__
            text = text.replace("(allow_pickle=True)", "(--allow-pickle)")
            if not isinstance(error, ValueError | ImportError | OSError):
                text = f"{type(error).__name__}: {text}"
            if shown(self.spec) not in text:
                text = f"cannot load the model {shown(self.spec)!r}: {text}"
            raise RefusedError(text) from error

    def remark(self, text: str) -> None:
        if not self.quiet:
            output.say(text)

    @contextlib.contextmanager
    def loaded(self, places: Sequence[str], kept: Path | None, suffix: str) -> Iterator[tuple[Any, Stop, Resume]]:
        """The model, what stops it, and what the cache has of a run that stopped, unless answers are kept elsewhere.

        ``places`` tell these inputs from others that a run which stopped was about.
        """
        options = [self.model_option, self.model_name]
        with Stop() as stop:
            model = self.load()
            with Resume(self.resume and kept is None, self.spec, options, places, suffix) as resume:
                yield model, stop, resume
                resume.finish()


@dataclass(frozen=True, kw_only=True, eq=False)
class Storing(Asking):
    """A command that keeps answers in a ledger, and explains a dataset into a store."""

    seed: int = flag(ASKING, "The same seed asks the same questions.", default=0, min=0)
    out: list[Path] = flag(
        OUTPUT,
        "Write a page (.html), explanations (.json) or a table (.parquet, .csv). Repeatable.",
        "-o",
        default=[],
        metavar="FILE",
    )
    ledger: Path | None = flag(KEEPING, "Keep every answer in this file; it is never asked again.", metavar="FILE")
    store: Path | None = flag(
        DATASETS, "Explain a dataset (.parquet, .jsonl) or any inputs into this folder.", metavar="DIR"
    )
    workers: int | None = flag(DATASETS, "Worker processes.", min=1, show_default="as many as pay")
    retry_failed: bool = flag(DATASETS, "Ask again about inputs that were set aside.", default=False)
    store_option: list[str] = pairs(DATASETS, "Set a store option: engine=ray, shard_size=64")

    def __post_init__(self) -> None:
        for path in self.out:
            output.check(path, output.EXPLANATIONS)
        if self.store is None:
            dataset = {"workers": self.workers, "retry-failed": self.retry_failed, "store-option": self.store_option}
            for name in (name for name, given in dataset.items() if given):
                raise RefusedError(f"--{name} goes with --store DIR, the folder of a dataset's explanations", USAGE)

    @contextlib.contextmanager
    def session(
        self, places: Sequence[str], make: Make[T], check: Callable[[Explainer], object] = lambda explainer: None
    ) -> Iterator[tuple[T, Stop]]:
        """What ``make`` makes of the loaded model, with the answers of a run that stopped, and those of this one kept.

        ``check`` refuses inputs before anything is asked.
        """
        with self.loaded(places, self.ledger, ".sqlite") as (model, stop, resume):
            explainer, made = make(model, stop, self.ledger or resume.ledger())
            try:
                check(explainer)
                with stop.keeping(lambda: _kept(explainer)):
                    yield made, stop
            finally:
                if explainer.ledger is not None:
                    if not _count(explainer):
                        resume.finish()
                    explainer.ledger.close()

    def explain_into_store(self, make: Recipe, inputs: Any, **options: Any) -> Store:
        from c2fa.batch import many

        assert self.store is not None
        output.check_folder(self.store, "--store")
        self.model_settings()  # refused here, not in every worker
        with as_usage():
            make.bare()
        done = many(
            make,
            inputs,
            self.store,
            workers=self.workers,
            retry_failed=self.retry_failed,
            batch_size=self.batch_size,
            progress=output.interactive(self.quiet),
            **{**options, **o.read("--store-option", self.store_option, STORE_OPTIONS, "a store")},
        )
        failed = done.errors()
        if self.json:
            facts = dataclasses.asdict(done.run)
            facts |= {"store": str(self.store), "in_store": len(done), "set_aside": len(failed)}
            output.out_json(json.dumps(facts))
        elif not self.quiet:
            by = "" if done.run.workers < 2 else f", by {done.run.workers} workers"
            output.out(
                f"{len(done):,} inputs are in {str(self.store)!r}; {done.run.inputs:,} of them were explained now{by}"
            )
        self.say_set_aside(failed)
        if failed:
            self.remark("the same command with --retry-failed asks about them again")
        return done

    def say_set_aside(self, failed: Sequence[Failure]) -> None:
        for failure in failed[:5]:
            self.remark(f"input {failure.index} was set aside: {failure.error}")
        if len(failed) > 5:
            self.remark(f"and {len(failed) - 5:,} more")


@dataclass(frozen=True, kw_only=True, eq=False)
class Explaining(Storing):
    """A command that explains inputs by a method."""

    method: str | None = flag(ASKING, "The method, by default owen; 'c2fa info' lists them.", metavar="NAME")
    option: list[str] = pairs(ASKING, "Set a method option: intercept=false, preset=paper")
    budget: str | None = flag(
        ASKING,
        "Most model rows for an input: a number, one for each level, or money ('$2.00').",
        "-b",
        metavar="ROWS",
        show_default="200, split over the levels",
    )
    until: str | None = flag(
        ASKING, "Stop early: top3 (top 3 settled) or stderr:0.01 (small standard errors).", metavar="RULE"
    )
    on_error: str = flag(ASKING, "Stop at an unusable answer, or drop that row.", default="raise", metavar="raise|drop")
    scout: str | None = flag(
        ASKING, "A cheap model that is asked first, as --model takes it; 'attention' is cite's own.", metavar="MODEL"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store is not None and self.out:
            raise RefusedError(
                f"--store and --out do not go together: make a page of a store with 'c2fa report {self.store} "
                "--out PAGE.html'",
                USAGE,
            )

    def settings_for(self, method: str | None) -> dict[str, Any]:
        told = {name: vars(self)[name] for name in ("until", "seed", "batch_size", "on_error")}
        settings = {"method": method, "budget": o.budget(self.budget), **told}
        if self.scout is not None:
            settings["prior"] = scout(self.scout)
        if method is not None and method not in METHODS:
            return settings  # the explainer refuses the method and lists those there are
        known = [*options_of("owen"), *options_of("c2fa")] if method is None else options_of(method)
        readers = dict.fromkeys([*known, "preset", "outputs", "output_names"], o.value)
        owner = "the explainer" if method is None else f"the method {method!r}"
        return {**settings, **o.read("--option", self.option, readers, owner)}

    def explain(self, inputs: Inputs, places: Sequence[str], make: Make[Callable[[Any], Explanation]]) -> None:
        """Explain every input, write what is to be written, print the rest; ``make`` gives what is called with each."""

        def check(explainer: Explainer) -> None:
            inputs.check_masked(lambda x: explainer.rows(explainer.masker(x)))

        with self.session(places, make, check) as (explain, stop):
            named = self._ask(explain, inputs, stop)
            for path in self.out:
                output.write_explanations(path, named)
                self.remark(f"wrote {path}")
            if self.json:
                for _, e in named:
                    output.out_json(e.to_json())
            elif not (self.quiet and self.out):
                for k, (name, e) in enumerate(named):
                    if k:
                        output.out("")
                    output.show(e, name if len(named) > 1 else "")

    def _ask(self, explain: Callable[[Any], Explanation], inputs: Inputs, stop: Stop) -> output.Named:
        named = []
        pairs: Iterable[tuple[str, Any]] = list(zip(inputs.names, inputs.values, strict=True))
        if len(inputs) > 1 and output.interactive(self.quiet):
            from tqdm.auto import tqdm

            pairs = tqdm(pairs, desc="explaining", unit="input", leave=False)
        for name, x in pairs:
            try:
                e = explain(x)
            except Exception as error:
                if len(inputs) > 1:
                    error.add_note(f"this happened in {name!r}")
                raise
            stop.settle()
            named.append((name, dataclasses.replace(e, provenance={**e.provenance, "input": name})))
        return named


def _kept(explainer: Explainer) -> str:
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
