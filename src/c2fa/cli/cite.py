"""``c2fa cite``: documents and a question in, what the answer rests on out."""

from __future__ import annotations

import json as json_
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from c2fa._system import atomic
from c2fa.citing import PROMPT, Citer, Question, method_for
from c2fa.citing.documents import TEXT_FIELDS, read_html, read_pdf
from c2fa.citing.traces import questions_of, read_spans, scored
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Inputs, Request, must_exist, read_text
from c2fa.cli.order import Order, method_options
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, Stoppable, guarded
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.models.loading import language_model_spec

Docs = Annotated[
    list[Path],
    o.flag(
        o.INPUTS,
        'A folder of .txt, .md, .html and .pdf files, a file, a .json or .jsonl of {"id", "text"}, or - for '
        "standard input. Repeatable.",
        "--docs",
        metavar="PATH",
    ),
]
Query = Annotated[str | None, o.flag(o.INPUTS, "The question that the model is asked.", metavar="TEXT")]
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
DocsBelow = Annotated[
    Path | None,
    o.flag(o.DATASETS, 'Where the "docs" of a question may be.', metavar="DIR", show_default="beside the file"),
]
LanguageModel = Annotated[
    str,
    o.flag(
        o.ASKING,
        "The language model: hf:folder (or a .gguf file), llama:URL, vllm:URL#model, sglang:URL, tgi:URL, "
        "openai:URL#model (with --similarity) or python:module:object.",
        "--model",
        "-m",
        metavar="SPEC",
    ),
]
ModelOption = Annotated[
    list[str], o.flag(o.ASKING, "Set a model option: max_new_tokens=64. Repeatable.", metavar="KEY=VALUE")
]
Levels = Annotated[
    str, o.flag(o.INPUTS, "Some of documents, paragraphs, sentences and words.", metavar="NAMES", show_default=True)
]
Budget = Annotated[
    str,
    o.flag(
        o.ASKING,
        "Most rows for a question: a number, or one for each level.",
        "--budget",
        "-b",
        metavar="ROWS",
        show_default=True,
    ),
]
Prompt = Annotated[
    str,
    o.flag(
        o.INPUTS,
        r"The text with {context} and {query}; \n is a line break.",
        metavar="TEXT",
        show_default="Context: … Query: …",
    ),
]
System = Annotated[str | None, o.flag(o.INPUTS, "The system's text before the prompt.", metavar="TEXT")]
Header = Annotated[
    str | None,
    o.flag(
        o.INPUTS,
        r"Each document in the prompt, as [{id}] {title}\n{text}; what is not {text} stays while a sentence does.",
        "--document",
        metavar="TEXT",
        show_default="its text alone",
    ),
]
Separator = Annotated[
    str, o.flag(o.INPUTS, "What stands between two documents.", metavar="TEXT", show_default="a blank line")
]
Language = Annotated[str, o.flag(o.INPUTS, "The language, for splitting sentences.", metavar="CODE", show_default=True)]
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
Similarity = Annotated[
    str | None,
    o.flag(
        o.ASKING,
        "Compare answers written anew by their words, for a model that cannot score one: words.",
        metavar="words",
    ),
]


def cite(
    model: LanguageModel,
    docs: Docs = [],  # noqa: B006
    query: Query = None,
    answer: Answer = None,
    trace: Trace = None,
    levels: Levels = "documents,sentences",
    prompt: Prompt = PROMPT,
    system: System = None,
    document: Header = None,
    separator: Separator = "\n\n",
    language: Language = "en",
    model_option: ModelOption = [],  # noqa: B006
    similarity: Similarity = None,
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
    docs_below: DocsBelow = None,
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
        -m openai:http://127.0.0.1:11434/v1#llama3.2

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
            "prompt": with_breaks(prompt),
            "system": system,
            "document": document and with_breaks(document),
            "separator": with_breaks(separator),
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
        must_exist(questions)
        folder = questions.resolve().parent
        as_question = AsQuestion(folder, read_documents(docs) if docs else None, docs_below or folder)
        make = MakeCiter(request, settings, ledger)
        with as_usage():
            bare = Citer(_NoModel(), model_name=model_name, **settings).explainer
        order.explain_into_store(make, bare, {"model"}, str(questions), column=as_question, views="all")


def with_breaks(text: str) -> str:
    r"""A text in which \n, as a shell passes it on, is a line break."""
    return text.replace("\\n", "\n")


# ---------------------------------------------------------------------------------- one question


def _cite_one(order: Order, docs: Sequence[Path], query: str | None, answer: str | None) -> None:
    if query is None:
        raise RefusedError('give the question with --query "…", or many with --questions FILE.jsonl', USAGE)
    if not docs:
        raise RefusedError("give the documents with --docs: a folder, or files", USAGE)
    try:
        question = Question(read_documents(docs), query, answer)
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error)) from error

    _explain(order, {query: question}, [json_.dumps(question.texts), query, answer or ""])


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
    found: list[Explanation] = []

    def make(lm: Any, stop: Stop, ledger: Path | None) -> tuple[Explainer, Callable[[Any], Explanation]]:
        citer = citer_of(order.settings, lm, ledger, order.request)
        citer.explainer.progress = output.interactive(order.quiet)
        citer.explainer.model = Stoppable(citer.scorer, stop)

        def explain(question: Question) -> Explanation:
            found.append(citer(question))
            return found[-1]

        return citer.explainer, explain

    order.explain(Inputs("text", list(questions), list(questions.values())), places, make)
    return dict(zip(questions, found, strict=True))


def citer_of(settings: Mapping[str, Any], lm: Any, ledger: Path | None, request: Request) -> Citer:
    name = request.model_name
    if ledger is not None and name is None and request.spec.startswith("python:"):
        name = request.spec if getattr(lm, "name", None) is None else None
    with as_usage():
        return Citer(lm, ledger=ledger, model_name=name, **settings)


def read_documents(paths: Sequence[Path], below: Path | None = None) -> list[dict[str, Any]]:
    """Read documents from folders, files and standard input, each with its name; with ``below``, of that folder alone.

    Links count as what they lead to.
    """
    found: list[dict[str, Any]] = []
    for path in paths:
        if str(path) != "-":
            must_exist(path)
        files = [path]
        if path.is_dir():
            texts = (".txt", ".md", ".html", ".htm", ".pdf")
            files = sorted(f for f in path.iterdir() if f.suffix.lower() in texts and not f.name.startswith("."))
            if not files:
                raise RefusedError(f"the folder {str(path)!r} holds no texts ({', '.join(texts)}); give one that does")
        for file in files:
            if below is not None and not file.resolve().is_relative_to(below.resolve()):
                raise RefusedError(
                    f"{str(file)!r} is not in the folder {str(below)!r}, and a line of questions may name no other "
                    "files; put it there, or name a folder that holds it with --docs-below"
                )
            suffix = file.suffix.lower()
            if suffix in (".json", ".jsonl"):
                found += _records(file)
            elif suffix == ".pdf":
                found += read_pdf(file)
            else:
                read = read_text(file)
                text = read_html(read.values[0]) if suffix in (".html", ".htm") else read.values[0]
                found.append({"id": read.names[0], "text": text})
    return found


def _records(file: Path) -> list[dict[str, Any]]:
    """The documents of a JSON or JSONL file: objects with id and text, texts, or one object of ids and texts."""
    text = read_text(file).values[0]
    try:
        if file.suffix.lower() == ".json":
            listed = json_.loads(text)
        else:
            listed = [json_.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise RefusedError(f"{str(file)!r} is not {file.suffix[1:].upper()}: {error}") from None
    if isinstance(listed, dict) and not {"id", "text"} & listed.keys():
        listed = [{"id": name, "text": text} for name, text in listed.items()]
    listed = listed if isinstance(listed, list) else [listed]
    documents = []
    for k, item in enumerate(listed):
        item = {"text": item} if isinstance(item, str) else item
        if not isinstance(item, dict) or not any(isinstance(item.get(name), str) for name in TEXT_FIELDS):
            raise RefusedError(f'document {k} of {str(file)!r} must be {{"id": …, "text": …}}, not {str(item)[:80]}')
        documents.append({"id": f"{file.name} {k + 1}", **item})
    return documents


# ---------------------------------------------------------------------------------- a file of questions


@dataclass(frozen=True, eq=False)
class MakeCiter:
    """Makes the citer in a worker: each loads its own model."""

    request: Request
    settings: Mapping[str, Any]
    ledger: Path | None

    def __call__(self, lm: Any = None) -> Explainer:
        lm = self.request.load() if lm is None else lm
        return citer_of(self.settings, lm, self.ledger, self.request).explainer

    def divided(self) -> tuple[Callable[[], Any], Callable[[Any], Explainer]]:
        """What makes the model, for its own process, and what makes an explainer around it, for workers."""
        return self.request.load, self


@dataclass(frozen=True, eq=False)
class AsQuestion:
    """Makes a question of a line of the file; paths in it are beside the file, and below a folder."""

    folder: Path
    documents: Sequence[Mapping[str, Any]] | None
    below: Path

    def __call__(self, row: Any) -> Any:
        from c2fa.batch.packing import Unreadable

        try:
            return self.question(row)
        except (RefusedError, ValueError, TypeError, OSError) as error:
            return Unreadable(error)  # one bad question costs one line

    def question(self, row: Any) -> Question:
        """The question of a line, or an error that says what is wrong with it."""
        if not isinstance(row, Mapping):
            raise ValueError(f'a line must be {{"query": …, "documents": …}}, not {str(row)[:80]}')
        fields = ("query", "documents", "docs", "answer", "messages")
        unknown = [name for name in row if name not in (*fields, "id")]
        if unknown:
            raise ValueError(f"the question has {unknown[0]!r}; it may have {', '.join(fields)} and id")
        documents = row.get("documents", self.documents)
        if "docs" in row:
            given = [row["docs"]] if isinstance(row["docs"], str) else row["docs"]
            documents = read_documents([self.folder / path for path in given], self.below)
        if documents is None and "messages" not in row:
            raise ValueError('the question has no documents: give it "documents" or "docs", or all of them --docs')
        return Question.of({**row, "documents": documents})


class _NoModel:
    """Stands for a language model that is not loaded, to see what the settings refuse."""

    def generate(self, prompt: str) -> str:
        raise AssertionError("the model is not loaded here")

    pieces: Any = generate
    score: Any = generate
