"""``c2fa cite``: documents and a question in, what the answer rests on out."""

from __future__ import annotations

import json as json_
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from c2fa._system import atomic
from c2fa.citing import PROMPT, Question, method_for
from c2fa.citing.traces import questions_of, read_spans, scored
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli import questions as q
from c2fa.cli.inputs import Inputs, Request, must_exist, read_text
from c2fa.cli.order import Order, method_options
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import guarded
from c2fa.explanation import Explanation
from c2fa.models.loading import language_model_spec

Answer = Annotated[
    str | None, o.flag(o.INPUTS, "The answer to explain.", metavar="TEXT", show_default="the model writes it")
]
Questions = Annotated[
    Path | None,
    o.flag(
        o.DATASETS,
        'A .jsonl of {"query" or "messages", "documents" or "docs": PATH, "answer"}, explained into --store.',
        metavar="FILE",
    ),
]
Trace = Annotated[
    Path | None,
    o.flag(
        o.INPUTS,
        "A trace in OpenInference's words, as lines of JSON: every answer in it is explained.",
        metavar="FILE",
    ),
]
Scores = Annotated[
    Path | None,
    o.flag(
        o.OUTPUT,
        "Write the spans of --trace to this .jsonl, each answer with a new span of scores below it.",
        metavar="FILE",
    ),
]
Levels = Annotated[
    str, o.flag(o.INPUTS, "Some of documents, paragraphs, sentences and words.", metavar="NAMES", show_default=True)
]
Budget = Annotated[
    str,
    o.flag(
        o.ASKING,
        "Most rows for a question: a number, one for each level, or money ('$0.50').",
        "--budget",
        "-b",
        metavar="ROWS",
        show_default=True,
    ),
]
Method = Annotated[
    str | None,
    o.flag(
        o.ASKING,
        o.METHOD,
        metavar="NAME",
        autocompletion=o.complete_methods,
        show_default="c2fa, and for words c2fa-focused",
    ),
]


def cite(
    model: q.LanguageModel,
    docs: q.Docs = [],  # noqa: B006
    query: q.Query = None,
    answer: Answer = None,
    trace: Trace = None,
    levels: Levels = "documents,sentences",
    prompt: q.Prompt = PROMPT,
    system: q.System = None,
    document: q.Header = None,
    separator: q.Separator = "\n\n",
    language: q.Language = "en",
    model_option: q.ModelOption = [],  # noqa: B006
    similarity: q.Similarity = None,
    method: Method = None,
    option: o.Option = [],  # noqa: B006
    budget: Budget = "64",
    until: o.Until = None,
    seed: o.Seed = 0,
    batch_size: o.BatchSize = None,
    on_error: o.OnError = "raise",
    out: o.Outs = [],  # noqa: B006
    json: o.Json = False,
    scores: Scores = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
    ledger: o.Ledger = None,
    model_name: o.ModelName = None,
    resume: o.Resume = True,
    questions: Questions = None,
    docs_below: q.DocsBelow = None,
    store: o.Store = None,
    workers: o.Workers = None,
    retry_failed: o.RetryFailed = False,
    store_option: o.StoreOption = [],  # noqa: B006
) -> None:
    """Say which documents and sentences a language model's answer rests on.

    \bAn answer that the model writes from a folder of texts:
      c2fa cite --docs folder/ --query "Who built it?" -m hf:my-model \\
        --out cited.html

    \bAn answer that you have, with a model behind a server:
      c2fa cite --docs a.txt --docs b.txt --query "Who built it?" \\
        --answer "Ada Morn built it." -m llama:http://127.0.0.1:8080 \\
        --ledger answers.sqlite

    \bA server that cannot score a given answer (OpenAI, Ollama):
      c2fa cite --docs folder/ --query "Who?" --similarity words \\
        -m chat:http://127.0.0.1:11434/v1#llama3.2

    \bA file of questions, each with documents of its own or those of --docs:
      c2fa cite --questions questions.jsonl --store cited -m hf:my-model
      c2fa report cited --out report.html

    \bAn agent's answers, from a trace of what it retrieved, read and said:
      c2fa cite --trace spans.jsonl -m hf:my-model --scores scored.jsonl

    \bEvery row is one prompt from which documents and sentences are left out. The
    answer that the model writes is one request beside them. Ctrl-C finishes the
    batch under way, and the same command continues: answers stay in your cache
    until it succeeds, or in --ledger for good.
    """
    with guarded(debug):
        with as_usage():
            spec = language_model_spec(model)
        method = method or method_for(o.words(levels), until)
        settings = {
            "levels": o.words(levels),
            "prompt": q.with_breaks(prompt),
            "system": system,
            "document": document and q.with_breaks(document),
            "separator": q.with_breaks(separator),
            "language": language,
            "similarity": similarity,
            "method": method,
            "budget": o.budget(budget),
            "until": until,
            "seed": seed,
            "batch_size": batch_size,
            "on_error": on_error,
            **method_options(method, option),
        }
        request = Request([], spec, model_option, model_name=model_name)
        kept = (ledger, resume, store, workers, retry_failed, store_option)
        order = Order(request, settings, out, json, quiet, *kept)
        if trace is not None or scores is not None:
            if trace is None or docs or query or answer or questions or store:
                raise RefusedError(
                    "--trace FILE has the documents, the queries and the answers: give it without --docs, --query, "
                    "--answer, --questions and --store, and --scores only with it",
                    USAGE,
                )
            _cite_trace(order, trace, scores)
            return
        if questions is None and store is None:
            if docs_below is not None:
                raise RefusedError("--docs-below goes with --questions FILE.jsonl, whose lines name documents", USAGE)
            _cite_one(order, docs, query, answer)
            return
        if questions is None or store is None:
            raise RefusedError(
                "--questions FILE.jsonl and --store DIR go together: the questions, and the folder of what is found",
                USAGE,
            )
        for name, given in (("--query", query), ("--answer", answer)):
            if given is not None:
                raise RefusedError(f"{name} is for one question, and --questions has its own: leave {name} out", USAGE)
        file = q.QuestionFile.of(questions, docs, docs_below)
        make = q.MakeCiter(request, settings, ledger)
        order.explain_into_store(make, make.without_model(), {"model"}, str(questions), column=file, views="all")


def _cite_one(order: Order, docs: Sequence[Path], query: str | None, answer: str | None) -> None:
    question = q.one_question(docs, query, answer)
    _explain(order, {question.query: question}, [json_.dumps(question.texts), question.query, answer or ""])


def _cite_trace(order: Order, file: Path, scores: Path | None) -> None:
    must_exist(file)
    if scores is not None:
        output.check(scores, (".jsonl",), "--scores")
    text = read_text(file).values[0]
    try:
        spans = read_spans(text)
        questions = questions_of(spans)
    except (ValueError, TypeError) as error:
        raise RefusedError(f"{str(file)!r}: {error}") from error
    cited = _explain(order, questions, [text])
    if scores is not None:
        lines = [json_.dumps(span, ensure_ascii=False) + "\n" for span in scored(spans, cited)]
        with atomic(scores) as handle:
            handle.write("".join(lines).encode())


def _explain(order: Order, questions: Mapping[str, Question], places: Sequence[str]) -> dict[str, Explanation]:
    """Explain questions by their names, and give what is found back, too."""
    inputs = Inputs("text", list(questions), list(questions.values()))
    return dict(zip(questions, order.explain(inputs, places, q.in_session(order)), strict=True))
