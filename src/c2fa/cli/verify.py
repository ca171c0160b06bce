"""``c2fa verify``: an answer with its citations in, whether each source was used out."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated, Any

from c2fa.citing import PROMPT, Question, Verifications
from c2fa.citing.verifying import verified
from c2fa.cli import cite as c
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Request, must_exist, read_text
from c2fa.cli.order import kept
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, Stoppable, guarded
from c2fa.models.loading import language_model_spec

_TABLES = (".csv", ".parquet")

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
        'A .jsonl of {"query", "documents" or "docs": PATH, "answer", "citations"}: many answers, with scores.',
        metavar="FILE",
    ),
]
Outs = Annotated[
    list[Path],
    o.flag(
        o.OUTPUT,
        "Write a page (.html), everything (.json) or a table (.csv, .parquet). Repeatable.",
        "--out",
        "-o",
        metavar="FILE",
    ),
]
Budget = Annotated[int, o.flag(o.ASKING, "Most rows for an answer.", "--budget", "-b", min=1, show_default=True)]


def verify(
    model: c.LanguageModel,
    docs: c.Docs = [],  # noqa: B006
    query: c.Query = None,
    answer: Answer = None,
    answer_file: AnswerFile = None,
    citations: Citations = None,
    questions: Questions = None,
    prompt: c.Prompt = PROMPT,
    system: c.System = None,
    document: c.Header = None,
    separator: c.Separator = "\n\n",
    language: c.Language = "en",
    model_option: c.ModelOption = [],  # noqa: B006
    similarity: c.Similarity = None,
    budget: Budget = 64,
    seed: o.Seed = 0,
    batch_size: o.BatchSize = None,
    out: Outs = [],  # noqa: B006
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    ledger: o.Ledger = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
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

    \bA verdict is one of used, not used (and what the statement rests on), known
    without, one of several, against, and not settled (and how many rows would
    tell). Ctrl-C finishes the batch under way, and the same command continues.
    """
    with guarded(debug):
        for path in out:
            output.check(path, (".html", ".json", *_TABLES))
        with as_usage():
            spec = language_model_spec(model)
        found = _inputs(docs, query, answer, answer_file, citations, questions)
        request = Request([], spec, model_option, model_name=model_name)
        settings = {
            "prompt": c.with_breaks(prompt),
            "system": system,
            "document": document and c.with_breaks(document),
            "separator": c.with_breaks(separator),
            "language": language,
            "similarity": similarity,
            "method": "owen",
            "budget": budget,
            "seed": seed,
            "batch_size": batch_size,
        }
        with Stop() as stop:
            lm = request.load()
            asked = [json_.dumps([question.texts, question.query, said, given]) for question, said, given in found]
            with request.resume(resume and ledger is None, asked, ".sqlite") as again:
                citer = c.citer_of(settings, lm, ledger or again.ledger(), request)
                explainer = citer.explainer
                explainer.model = Stoppable(citer.scorer, stop)
                try:
                    with stop.keeping(lambda: kept(explainer)):
                        verifications = verified(citer, found, output.interactive(quiet))
                        stop.settle()
                        _show(verifications, out, json, quiet)
                    again.finish()
                finally:
                    if explainer.ledger is not None:
                        explainer.ledger.close()


def _inputs(
    docs: list[Path],
    query: str | None,
    answer: str | None,
    answer_file: Path | None,
    citations: Path | None,
    questions: Path | None,
) -> list[tuple[Question, Any, Any]]:
    """Questions with their answers and citations: one by flags, or many from a file."""
    if questions is not None:
        for name, value in (("--query", query), ("--answer", answer), ("--answer-file", answer_file)):
            if value is not None:
                raise RefusedError(f"{name} is for one answer, and --questions has its own: leave {name} out", USAGE)
        must_exist(questions)
        folder = questions.resolve().parent
        own = c.read_documents(docs) if docs else None
        found = []
        for k, line in enumerate(read_text(questions).values[0].splitlines(), start=1):
            try:
                row = json_.loads(line) if line.strip() else None
                if row is not None:
                    about = {name: value for name, value in row.items() if name not in ("answer", "citations")}
                    found.append(
                        (c.AsQuestion(folder, own, folder).question(about), row.get("answer"), row.get("citations"))
                    )
            except (RefusedError, ValueError, TypeError, AttributeError, OSError) as error:
                raise RefusedError(f"line {k} of {str(questions)!r}: {error}") from None
        return found
    if query is None:
        raise RefusedError('give the question with --query "…", or many with --questions FILE.jsonl', USAGE)
    if not docs:
        raise RefusedError("give the documents with --docs: a folder, or files", USAGE)
    if (answer is None) == (answer_file is None):
        raise RefusedError("give the answer with --answer or with --answer-file", USAGE)
    said = read_text(answer_file).values[0] if answer_file is not None else answer
    given = None
    if citations is not None:
        try:
            given = json_.loads(read_text(citations).values[0])
        except ValueError as error:
            raise RefusedError(f"{str(citations)!r} is not JSON: {error}") from None
    try:
        return [(Question(c.read_documents(docs), query), said, given)]
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error)) from error


def _show(found: Verifications, outs: list[Path], json: bool, quiet: bool) -> None:
    """Write what is to be written, and print the rest."""
    one = found[0] if len(found) == 1 else None
    documents = ",\n".join(v.to_json() for v in found)
    as_json = documents if one else f"[{documents}]"
    for path in outs:
        if path.suffix.lower() == ".html":
            output.write(path, (one or found).to_html().encode())
        elif path.suffix.lower() == ".json":
            output.write(path, f"{as_json}\n".encode())
        else:
            frame = found.to_frame()
            structured = [
                name for name in ("place", "passage_place", "others", "carriers", "metadata") if name in frame
            ]
            frame[structured] = frame[structured].map(lambda cell: json_.dumps(cell, ensure_ascii=False, default=str))
            output.write_frame(path, frame)
        if not quiet:
            output.say(f"wrote {path}")
    if json:
        output.out_json(as_json.replace("\n", " "))
    elif not (quiet and outs):
        output.out("\n".join([*(v.to_text() for v in found), *([] if one else [found.to_text()])]))
