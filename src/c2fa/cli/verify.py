"""``c2fa verify``: an answer with its citations in, whether each source was used out."""

from __future__ import annotations

import json as json_
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from c2fa.citing import PROMPT, Question, Verification, Verifications
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli import questions as q
from c2fa.cli.inputs import Request, read_text
from c2fa.cli.order import Order
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import guarded
from c2fa.models.loading import language_model_spec

Answer = Annotated[str | None, o.flag(o.INPUTS, "The answer with its citations, such as [1].", metavar="TEXT")]
AnswerFile = Annotated[Path | None, o.flag(o.INPUTS, "The same from a file, or - for standard input.", metavar="FILE")]
Citations = Annotated[
    Path | None,
    o.flag(
        o.INPUTS,
        "A .json of citations that are not in the text: pairs of a statement and a source, or a model's own.",
        metavar="FILE",
        show_default="read from the answer",
    ),
]
Questions = Annotated[
    Path | None,
    o.flag(
        o.INPUTS,
        'A .jsonl of {"query" or "messages", "documents" or "docs": PATH, "answer", "citations"}: many, with scores.',
        metavar="FILE",
    ),
]
Budget = Annotated[int, o.flag(o.ASKING, "Most rows for an answer.", "--budget", "-b", min=1, show_default=True)]


def verify(
    model: q.LanguageModel,
    docs: q.Docs = [],  # noqa: B006
    query: q.Query = None,
    answer: Answer = None,
    answer_file: AnswerFile = None,
    citations: Citations = None,
    questions: Questions = None,
    prompt: q.Prompt = PROMPT,
    system: q.System = None,
    document: q.Header = None,
    separator: q.Separator = "\n\n",
    language: q.Language = "en",
    model_option: q.ModelOption = [],  # noqa: B006
    similarity: q.Similarity = None,
    budget: Budget = 64,
    seed: o.Seed = 0,
    batch_size: o.BatchSize = None,
    out: o.Outs = [],  # noqa: B006
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    ledger: o.Ledger = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
    docs_below: q.DocsBelow = None,
    store: o.Store = None,
    workers: o.Workers = None,
    retry_failed: o.RetryFailed = False,
    store_option: o.StoreOption = [],  # noqa: B006
) -> None:
    """Say of each citation of an answer whether its source was used.

    \bThe citations in an answer, by a document's number or its name:
      c2fa verify --docs folder/ --query "Who built it?" -m hf:my-model \\
        --answer "Ada Morn built it [2]. It is old [notes.txt]."

    \bAn answer in a file, with the citations that a model's interface gave:
      c2fa verify --docs folder/ --query "Who built it?" -m hf:my-model \\
        --answer-file answer.txt --citations citations.json --out page.html

    \bMany answers, with the share of citations that were used:
      c2fa verify --questions answers.jsonl -m hf:my-model --out page.html

    \bThousands, into a folder that the same command continues:
      c2fa verify --questions answers.jsonl -m hf:my-model --store verified

    \bA verdict is one of used, not used (and what the statement rests on), known
    without, one of several, against, and not settled (and how many rows would
    tell). Ctrl-C finishes the batch under way, and the same command continues.
    """
    with guarded(debug):
        with as_usage():
            spec = language_model_spec(model)
        request = Request([], spec, model_option, model_name=model_name)
        settings = {
            "prompt": q.with_breaks(prompt),
            "system": system,
            "document": document and q.with_breaks(document),
            "separator": q.with_breaks(separator),
            "language": language,
            "similarity": similarity,
            "method": "owen",
            "budget": budget,
            "seed": seed,
            "batch_size": batch_size,
        }
        for path in out:
            output.check(path, output.EXPLANATIONS)
        kept = (ledger, resume, store, workers, retry_failed, store_option)
        order = Order(request, settings, [], json, quiet, *kept)
        if questions is None:
            if store is not None or docs_below is not None:
                raise RefusedError("--store and --docs-below go with --questions FILE.jsonl", USAGE)
            _verify_one(order, out, q.one_question(docs, query), answer, answer_file, citations)
            return
        one = {"--query": query, "--answer": answer, "--answer-file": answer_file, "--citations": citations}
        for name in (name for name, value in one.items() if value is not None):
            raise RefusedError(f"{name} is for one answer, and --questions has its own: leave {name} out", USAGE)
        file = q.QuestionFile.of(questions, docs, docs_below, "citations")
        if store is not None:
            make = q.MakeCiter(request, settings, ledger, verifies=True)
            how = {"column": file, "views": "all"}
            done = order.explain_into_store(make, make.without_model(), {"model"}, str(questions), **how)
            found = Verifications(done)
            _write(found, out, quiet)
            if not (json or quiet):
                output.out(found.to_text())
            return
        places = [read_text(questions).values[0], json_.dumps(file.documents, default=str)]
        with order.session(places, q.in_session(order)) as (citer, stop), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* could not be explained")  # which is said below
            found = citer.verify_many(str(questions), column=file)
            stop.settle()
            _write(found, out, quiet)
            if json:
                output.out_json(found.to_json().replace("\n", " "))
            elif not (quiet and out):
                output.out("\n".join([*(v.to_text() for _, v in found.items()), found.to_text()]))
            order.say_set_aside(found.errors())


def _verify_one(
    order: Order,
    outs: Sequence[Path],
    question: Question,
    answer: str | None,
    answer_file: Path | None,
    citations: Path | None,
) -> None:
    if (answer is None) == (answer_file is None):
        raise RefusedError("give the answer with --answer or with --answer-file", USAGE)
    text = answer if answer_file is None else read_text(answer_file).values[0]
    given = None
    if citations is not None:
        try:
            given = json_.loads(read_text(citations).values[0])
        except ValueError as error:
            raise RefusedError(f"{str(citations)!r} is not JSON: {error}") from None
    places = [json_.dumps([question.texts, question.query, text, given])]
    with order.session(places, q.in_session(order)) as (citer, stop):
        found = citer.verify(question, text, given)
        stop.settle()
        _write(found, outs, order.quiet)
        if order.json:
            output.out_json(found.to_json())
        elif not (order.quiet and outs):
            output.out(found.to_text())


def _write(found: Verification | Verifications, outs: Sequence[Path], quiet: bool) -> None:
    for path in outs:
        if path.suffix.lower() == ".html":
            output.write(path, found.to_html().encode())
        elif path.suffix.lower() == ".json":
            output.write(path, f"{found.to_json()}\n".encode())
        else:
            frame = found.to_frame()
            structured = [
                name for name in ("place", "passage_place", "others", "carriers", "metadata") if name in frame
            ]
            frame[structured] = frame[structured].map(lambda cell: json_.dumps(cell, ensure_ascii=False, default=str))
            output.write_frame(path, frame)
        if not quiet:
            output.say(f"wrote {path}")
