"""``c2fa explain``: files in, explanations out; ``c2fa evaluate``: methods, budgets and seeds on them, scored."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2fa import Explainer, evaluation
from c2fa.asking.model import describe
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.commands import Explaining
from c2fa.cli.inputs import Inputs, Reading, is_dataset, mask_token, must_exist
from c2fa.cli.options import ASKING, KEEPING, OUTPUT, flag
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop
from c2fa.evaluation.scoring import as_scores
from c2fa.models import Lazy


@dataclass(frozen=True, kw_only=True, eq=False)
class Explain(Explaining, Reading):
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

    link: str = flag(
        ASKING, "Explain the output, its log-odds or its logarithm.", default="identity", metavar="identity|logit|log"
    )
    prior: Path | None = flag(
        ASKING, "What other inputs taught: a file of c2fa.Prior.save, or of c2fa learn.", metavar="FILE"
    )

    def run(self) -> None:
        settings = {**self.settings_for(self.method), "target": self.target, "link": self.link}
        if self.prior is not None:
            if self.scout is not None:
                raise RefusedError("--prior and --scout both say what to expect: give one of them", USAGE)
            settings["prior"] = self.prior
        if self.store is None:
            self._explain_files(settings)
        else:
            self._explain_dataset(settings)

    def _explain_files(self, settings: Mapping[str, Any]) -> None:
        inputs = self.read()

        def make(model: Any, stop: Stop, ledger: Path | None) -> tuple[Explainer, Explainer]:
            model, masker, name = self.prepare(inputs, model, stop, None if self.ledger is None else "--ledger")
            progress = output.interactive(self.quiet)
            with as_usage():
                explainer = Explainer(model, masker, ledger=ledger, model_name=name, progress=progress, **settings)
            return explainer, explainer

        with self.naming_columns(inputs):
            self.explain(inputs, self.places(inputs), make)

    def _explain_dataset(self, settings: Mapping[str, Any]) -> None:
        from c2fa.batch import Recipe

        first = self.files[0]
        streamed = is_dataset(first) and not self.row  # else the inputs are read first: other files, or some rows
        if streamed and len(self.files) > 1:
            raise RefusedError("give one dataset at a time: a file, or a folder of files", USAGE)
        if streamed:
            must_exist(first)
            inputs = Inputs("text", [], [], masking=self.masking("text"))
        else:
            inputs = self.read()
        name = self.model_name
        if name is None and self.ledger is None and self.spec.startswith("python:"):
            name = self.spec  # a function has no name; with a ledger the user must say which version it is
        told = {**settings, "ledger": self.ledger, "model_name": name}
        make = Recipe(self.load, inputs.masker(mask_token(self.spec)), told)
        with self.naming_columns(inputs):
            if streamed:
                self.explain_into_store(make, str(first), column=self.field)
            else:
                self.explain_into_store(make, inputs.values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluate(Reading):
    """Compare methods on the same inputs; no question is asked twice.

    \bExamples:
      c2fa evaluate reviews/*.txt --model demo --methods owen,lime,bu-lime
      c2fa evaluate reviews.jsonl --field text --row 0:20 -m demo \\
        --budget 100 --budget 200
      c2fa evaluate rows.csv -m sklearn:model.skops --row 0:20 \\
        --masker groups=groups.json --metrics deletion,stability --seeds 5 \\
        --out scores.csv

    \bThe table shows means over inputs and seeds, and each method's difference
    to the reference with its 95 % interval. 'c2fa explain --help' lists what
    --masker takes.
    """

    methods: str = flag(ASKING, "The methods to compare.", default="owen,c2fa,lime", metavar="NAMES")
    budget: list[str] = flag(
        ASKING,
        "Model rows for an input: a number, or one for each level. Repeatable.",
        "-b",
        default=[],
        metavar="ROWS",
        show_default="20,50 and 20,100",
    )
    seeds: int = flag(ASKING, "How many seeds.", default=3, min=1)
    metrics: str = flag(
        ASKING,
        "Some of insertion, deletion, faithfulness, infidelity, lds, top1-drop, top3-drop, consistency, mihl and "
        "stability; deletion@0 is deletion of the coarsest parts.",
        default="insertion,deletion,consistency,mihl",
        metavar="NAMES",
    )
    workers: int = flag(ASKING, "Processes that share the inputs; 0: this one.", default=0, min=0)
    out: Path | None = flag(OUTPUT, "Write every score (.csv, .json or .parquet).", "-o", metavar="FILE")
    store: Path | None = flag(
        KEEPING, "Keep every answer and score in this folder; none is asked again.", metavar="DIR"
    )

    def run(self) -> None:
        budgets = [o.budget(each) for each in self.budget or ("20,50", "20,100")]
        scores = o.words(self.metrics)
        output.need(("pandas",), "evaluate")
        if self.out is not None:
            output.check(self.out, (".csv", ".json", ".parquet"))
        if self.store is not None:
            output.check_folder(self.store, "--store")
        for name in scores:
            if name.partition("@")[0] in ("ndcg", "top1", "auroc", "auroc-within", "coverage"):
                raise RefusedError(
                    f"the metric {name!r} needs the true attributions, which only c2fa.evaluate(..., truths=...) in "
                    "Python takes",
                    USAGE,
                )
        with as_usage():
            as_scores(scores)
        inputs = self.read()
        with self.naming_columns(inputs), self._session(inputs) as (model, masker, name, folder):
            inputs.check_masked(masker)
            with as_usage():
                result = evaluation.evaluate(
                    o.words(self.methods),
                    inputs.values,
                    Lazy(self.load) if self.workers else model,
                    masker,
                    budgets=budgets,  # type: ignore[arg-type]
                    seeds=self.seeds,
                    metrics=scores,
                    store=folder,
                    model_name=name,
                    progress=output.interactive(self.quiet),
                    workers=self.workers,
                    target=self.target,
                    batch_size=self.batch_size or describe(model).batch_size or 64,
                )
            if self.out is not None:
                output.write_frame(self.out, result.frame)
                self.remark(f"wrote {self.out}")
            if self.json:
                facts = {
                    "summary": output.records(result.summary()),
                    "levels": list(result.level_names),
                    "reference": result.reference,
                    "rows": dataclasses.asdict(result.rows),
                    "notes": list(result.notes),
                }
                output.out_json(json.dumps(facts))
            elif not (self.quiet and self.out is not None):
                output.out(result.to_text())

    @contextmanager
    def _session(self, inputs: Inputs) -> Iterator[tuple[Any, Any, str, Path | None]]:
        """The model, masker and name, and the folder that keeps answers; Ctrl-C and errors say what is kept."""
        with self.loaded(self.places(inputs), self.store, ".evaluation") as (model, stop, resume):
            ready = self.prepare(inputs, model, stop, None if self.store is None else "--store")
            folder = self.store or resume.path
            kept = "no answers are kept" if folder is None else "its answers are kept, and the same command continues"
            with stop.keeping(lambda: kept):
                yield *ready, folder
