"""What ``cite`` and ``verify`` share: how questions, documents and a language model are named, and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from c2fa.citing import Citer, Document, Question, documents_of
from c2fa.citing.documents import read_html, read_pdf
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import Request, must_exist, read_text
from c2fa.cli.order import Order
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, Stoppable
from c2fa.explainer import Explainer

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
DocsBelow = Annotated[
    Path | None,
    o.flag(o.DATASETS, 'Where the "docs" of a question may be.', metavar="DIR", show_default="beside the file"),
]
LanguageModel = Annotated[
    str,
    o.flag(
        o.ASKING,
        "The language model: hf:folder (or a .gguf file), llama:URL, vllm:URL#model, sglang:URL, tgi:URL, "
        "openai:URL#model, chat:URL#model (with --similarity) or python:module:object.",
        "--model",
        "-m",
        metavar="SPEC",
    ),
]
ModelOption = Annotated[
    list[str], o.flag(o.ASKING, "Set a model option: max_new_tokens=64. Repeatable.", metavar="KEY=VALUE")
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
Similarity = Annotated[
    str | None,
    o.flag(
        o.ASKING,
        "Compare answers written anew by their words, for a model that cannot score one: words.",
        metavar="words",
    ),
]


def with_breaks(text: str) -> str:
    r"""A text in which \n, as a shell passes it on, is a line break."""
    return text.replace("\\n", "\n")


def read_documents(paths: Sequence[Path], below: Path | None = None) -> list[Document]:
    """Read documents from folders, files and standard input, each with its name; with ``below``, of that folder alone.

    Links count as what they lead to.
    """
    found: list[Document] = []
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
            if suffix == ".pdf":
                found += read_pdf(file)
                continue
            read = read_text(file)
            [name], [text] = read.names, read.values
            if suffix in (".json", ".jsonl"):
                try:
                    lines = [text] if suffix == ".json" else [line for line in text.splitlines() if line.strip()]
                    listed = list(map(json.loads, lines))
                except ValueError as error:
                    raise RefusedError(f"{str(file)!r} is not {suffix[1:].upper()}: {error}") from None
                found += documents_of(listed[0] if suffix == ".json" else listed, called=file.name).values()
            else:
                found.append(Document(name, read_html(text) if suffix in (".html", ".htm") else text))
    return found


@dataclass(frozen=True, eq=False)
class QuestionFile:
    """A .jsonl of questions; paths in it are beside the file, and below a folder.

    Called with a line, it gives the fields of a question. ``documents`` are those of lines that have none.
    """

    path: Path
    documents: Sequence[Document] | None
    below: Path
    fields: Sequence[str] = ("query", "documents", "docs", "answer", "messages")

    @classmethod
    def of(cls, path: Path, docs: Sequence[Path], below: Path | None, *more: str) -> QuestionFile:
        """The file that a command names; lines may have ``more`` fields than the usual ones."""
        must_exist(path)
        folder = path.resolve().parent
        return cls(path.resolve(), read_documents(docs) if docs else None, below or folder, (*cls.fields, *more))

    def __call__(self, row: Any) -> Any:
        from c2fa.batch.packing import Unreadable

        try:
            if not isinstance(row, Mapping):
                raise ValueError(f'a line must be {{"query": …, "documents": …}}, not {str(row)[:80]}')
            unknown = [name for name in row if name not in (*self.fields, "id")]
            if unknown:
                raise ValueError(f"the question has {unknown[0]!r}; it may have {', '.join(self.fields)} and id")
            documents = row.get("documents", self.documents)
            if "docs" in row:
                given = [row["docs"]] if isinstance(row["docs"], str) else row["docs"]
                documents = read_documents([self.path.parent / path for path in given], self.below)
            if documents is None and "messages" not in row:
                raise ValueError('the question has no documents: give it "documents" or "docs", or all of them --docs')
        except (RefusedError, ValueError, TypeError, OSError) as error:
            return Unreadable(error)  # one bad question costs one line
        return {**row, "documents": documents}


def one_question(docs: Sequence[Path], query: str | None, answer: str | None = None) -> Question:
    """The question that flags ask."""
    if query is None:
        raise RefusedError('give the question with --query "…", or many with --questions FILE.jsonl', USAGE)
    if not docs:
        raise RefusedError("give the documents with --docs: a folder, or files", USAGE)
    try:
        return Question(read_documents(docs), query, answer)
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error)) from error


def citer_of(settings: Mapping[str, Any], lm: Any, ledger: Path | None, request: Request) -> Citer:
    """The citer around a language model; one of a user's own module is called as it is loaded."""
    name = request.model_name
    if ledger is not None and name is None and request.spec.startswith("python:"):
        name = request.spec if getattr(lm, "name", None) is None else None
    with as_usage():
        return Citer(lm, ledger=ledger, model_name=name, **settings)


def in_session(order: Order) -> Callable[[Any, Stop, Path | None], tuple[Explainer, Citer]]:
    """What makes the citer of a session, which can be stopped."""

    def make(lm: Any, stop: Stop, ledger: Path | None) -> tuple[Explainer, Citer]:
        citer = citer_of(order.settings, lm, ledger, order.request)
        citer.explainer.progress = output.interactive(order.quiet)
        citer.explainer.model = Stoppable(citer.scorer, stop)
        return citer.explainer, citer

    return make


@dataclass(frozen=True, eq=False)
class MakeCiter:
    """Makes what explains answers, or verifies them, in a worker: each loads its own model."""

    request: Request
    settings: Mapping[str, Any]
    ledger: Path | None
    verifies: bool = False

    def __call__(self, lm: Any = None) -> Explainer:
        citer = citer_of(self.settings, self.request.load() if lm is None else lm, self.ledger, self.request)
        return citer.verifier if self.verifies else citer.explainer

    def divided(self) -> tuple[Callable[[], Any], Callable[[Any], Explainer]]:
        """What makes the model, for its own process, and what makes an explainer around it, for workers."""
        return self.request.load, self

    def without_model(self) -> Explainer:
        """The same without a language model, to see what the settings refuse before one is loaded."""
        with as_usage():
            citer = Citer(_NoModel(), model_name=self.request.model_name, **self.settings)
            return citer.verifier if self.verifies else citer.explainer


class _NoModel:
    """Stands for a language model that is not loaded, to see what the settings refuse."""

    def generate(self, prompt: str) -> str:
        raise AssertionError("the model is not loaded here")

    pieces: Any = generate
    score: Any = generate
