"""What ``explain``, ``cite`` and ``verify`` share: what is to be explained, how, where it goes, how that is done."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from c2fa.asking.ledger import LedgerError
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Inputs, Request, check_masked
from c2fa.cli.output import USAGE, RefusedError
from c2fa.cli.session import Stop
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.methods import METHODS, options_of

if TYPE_CHECKING:
    from c2fa.batch import Store
    from c2fa.batch.overview import Failure

T = TypeVar("T")
STORE_OPTIONS: o.Readers = {
    **dict.fromkeys(("engine", "key", "precision", "views"), str),
    **dict.fromkeys(("shard_size", "gpus", "models", "tries", "in_flight"), o.whole),
    **dict.fromkeys(("timeout", "patience"), o.number),
    "learn": lambda text: o.counts(
        text, f"learn={text!r} are no numbers of inputs: write learn=500, or learn=50,200,1000"
    ),
    "budget_after": o.budget,
}


def method_options(method: str | None, texts: Sequence[str]) -> dict[str, Any]:
    """Read the options of a method, and those of the explainer that have no flag."""
    if method is not None and method not in METHODS:
        return {}  # the explainer refuses the method and lists those there are
    known = [*options_of("owen"), *options_of("c2fa")] if method is None else options_of(method)
    readers = dict.fromkeys([*known, "preset", "outputs", "output_names"], o.value)
    return o.read("--option", texts, readers, "the explainer" if method is None else f"the method {method!r}")


@dataclass(frozen=True)
class Order:
    """What is to be explained, how, and where it goes; flags that do not go together are refused."""

    request: Request
    settings: Mapping[str, Any]
    outs: Sequence[Path]
    json: bool
    quiet: bool
    ledger: Path | None
    resume: bool
    store: Path | None
    workers: int | None
    retry_failed: bool
    store_option: Sequence[str]

    def __post_init__(self) -> None:
        if self.store is None:
            dataset = {"workers": self.workers, "retry-failed": self.retry_failed, "store-option": self.store_option}
            for name in (name for name, given in dataset.items() if given):
                raise RefusedError(f"--{name} goes with --store DIR, the folder of a dataset's explanations", USAGE)
            for path in self.outs:
                output.check(path, output.EXPLANATIONS)
        elif self.outs:
            raise RefusedError(
                f"--store and --out do not go together: make a page of a store with 'c2fa report {self.store} "
                "--out PAGE.html'",
                USAGE,
            )

    # -- here and now

    @contextlib.contextmanager
    def session(
        self,
        places: Sequence[str],
        make: Callable[[Any, Stop, Path | None], tuple[Explainer, T]],
        check: Callable[[Explainer], object] = lambda explainer: None,
    ) -> Iterator[tuple[T, Stop]]:
        """The model loaded, the answers of a run that stopped at hand, and those of this one kept if it does.

        ``places`` tell these inputs from others that a run which stopped was about. ``make`` gets the model, what stops
        it and the file of its answers; it gives an explainer, and what the session is entered for. ``check`` refuses
        inputs before anything is asked.
        """
        with Stop() as stop:
            model = self.request.load()
            with self.request.resume(self.resume and self.ledger is None, places, ".sqlite") as resume:
                explainer, made = make(model, stop, self.ledger or resume.ledger())
                try:
                    check(explainer)
                    with stop.keeping(lambda: _kept(explainer)):
                        yield made, stop
                    resume.finish()
                finally:
                    if explainer.ledger is not None:
                        if not _count(explainer):
                            resume.finish()
                        explainer.ledger.close()

    def explain(
        self,
        inputs: Inputs,
        places: Sequence[str],
        make: Callable[[Any, Stop, Path | None], tuple[Explainer, Callable[[Any], Explanation]]],
    ) -> list[Explanation]:
        """Explain every input, write what is to be written, print the rest; ``make`` gives what is called with each."""

        def check(explainer: Explainer) -> None:
            check_masked(inputs, lambda x: explainer.rows(explainer.masker(x)))

        with self.session(places, make, check) as (explain, stop):
            named = self._ask(explain, inputs, stop)
            for path in self.outs:
                output.write_explanations(path, named)
            self._print(named)
        return [e for _, e in named]

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

    def _print(self, named: output.Named) -> None:
        if not self.quiet:
            for path in self.outs:
                output.say(f"wrote {path}")
        if self.json:
            for _, e in named:
                output.out_json(e.to_json())
        elif not (self.quiet and self.outs):
            for k, (name, e) in enumerate(named):
                if k:
                    output.out("")
                output.show(e, name if len(named) > 1 else "")

    # -- into a store

    def explain_into_store(
        self,
        make: Callable[..., Explainer],
        bare: Explainer,
        unknown: set[str],
        inputs: Any,
        **options: Any,
    ) -> Store:
        """Explain a dataset into a store; the same command continues one that stopped.

        ``bare`` is an explainer without its model, of which the settings in ``unknown`` are not known yet.
        """
        from c2fa.batch import Store, many
        from c2fa.batch.store import settings_of

        assert self.store is not None
        output.check_folder(self.store, "--store")
        self.request.model_settings()  # refused here, not in every worker
        # A complete store starts no worker, so nobody else would notice that it was made with other settings.
        earlier = Store(self.store).settings
        ours = {k: v for k, v in settings_of(bare).items() if k in earlier and k not in unknown}
        Store(self.store).check({**earlier, **ours})
        done = many(
            make,
            inputs,
            self.store,
            workers=self.workers,
            retry_failed=self.retry_failed,
            batch_size=self.settings["batch_size"],
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
        if failed and not self.quiet:
            output.say("the same command with --retry-failed asks about them again")
        return done

    def say_set_aside(self, failed: Sequence[Failure]) -> None:
        """Name the inputs that could not be explained, or the first of many."""
        if self.quiet:
            return
        for failure in failed[:5]:
            output.say(f"input {failure.index} was set aside: {failure.error}")
        if len(failed) > 5:
            output.say(f"and {len(failed) - 5:,} more")


def _kept(explainer: Explainer) -> str:
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
