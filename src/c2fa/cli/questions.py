"""What ``cite`` and ``verify`` share: how questions, documents and a language model are named, and read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2fa.asking.model import describe
from c2fa.citing import PROMPT, Citer, Document, Question, documents_of
from c2fa.citing.documents import read_html, read_pdf
from c2fa.cli import output
from c2fa.cli.commands import Storing
from c2fa.cli.inputs import must_exist, read_text
from c2fa.cli.options import ASKING, INPUTS, flag, pairs
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import Stop, Stoppable
from c2fa.explainer import Explainer
from c2fa.models.loading import Lazy, language_model_spec

if TYPE_CHECKING:
    from c2fa.batch import Store


def with_breaks(text: str) -> str:
    return text.replace("\\n", "\n")


@dataclass(frozen=True, kw_only=True, eq=False)
class Questioning(Storing):
    """A command that asks a language model about documents."""

    model: str = flag(
        ASKING,
        "The language model: hf:folder (or a .gguf file), llama:URL, vllm:URL#model, "
        "openai:URL#model (with --similarity where it cannot score) or python:module:object.",
        "-m",
        default=dataclasses.MISSING,
        metavar="SPEC",
    )
    model_option: list[str] = pairs(ASKING, "Set a model option: max_new_tokens=64")
    similarity: str | None = flag(
        ASKING,
        "Compare answers written anew by their words, for a model that cannot score one: words.",
        metavar="words",
    )
    docs: list[Path] = flag(
        INPUTS,
        'A folder of .txt, .md, .html and .pdf files, a file, a .json or .jsonl of {"id", "text"}, or - for '
        "standard input. Repeatable.",
        default=[],
        metavar="PATH",
    )
    query: str | None = flag(INPUTS, "The question that the model is asked.", metavar="TEXT")
    prompt: str = flag(
        INPUTS,
        r"The text with {context} and {query}; \n is a line break.",
        default=PROMPT,
        metavar="TEXT",
        show_default="Context: … Query: …",
    )
    system: str | None = flag(INPUTS, "The system's text before the prompt.", metavar="TEXT")
    document: str | None = flag(
        INPUTS,
        r"Each document in the prompt, as [{id}] {title}\n{text}; what is not {text} stays while a sentence does.",
        metavar="TEXT",
        show_default="its text alone",
    )
    separator: str = flag(
        INPUTS, "What stands between two documents.", default="\n\n", metavar="TEXT", show_default="a blank line"
    )
    language: str = flag(INPUTS, "The language, for splitting sentences.", default="en", metavar="CODE")

    @property
    def spec(self) -> str:
        with as_usage():
            return language_model_spec(self.model)

    def prompting(self) -> dict[str, Any]:
        return {
            "prompt": with_breaks(self.prompt),
            "system": self.system,
            "document": self.document and with_breaks(self.document),
            "separator": with_breaks(self.separator),
            **{name: vars(self)[name] for name in ("language", "similarity", "seed", "batch_size")},
        }

    def question(self, answer: str | None) -> Question:
        if self.query is None:
            raise RefusedError('give the question with --query "…", or many with --questions FILE.jsonl', USAGE)
        if not self.docs:
            raise RefusedError("give the documents with --docs: a folder, or files", USAGE)
        try:
            return Question(read_documents(self.docs), self.query, answer)
        except (ValueError, TypeError) as error:
            raise RefusedError(str(error)) from error

    def question_file(self, path: Path, *more: str) -> QuestionFile:
        """The questions of a file, whose lines may have ``more`` fields than the usual ones."""
        must_exist(path)
        documents = read_documents(self.docs) if self.docs else None
        return QuestionFile(path.resolve().parent, documents, (*QuestionFile.fields, *more))

    def citer(self, lm: Any, ledger: Path | None, settings: Mapping[str, Any]) -> Citer:
        """The citer around a language model; one of a user's own module is called as it is loaded."""
        name = self.model_name
        if ledger is not None and name is None and self.spec.startswith("python:"):
            name = self.spec if isinstance(lm, Lazy) else describe(lm).name or self.spec
        with as_usage():
            return Citer(lm, ledger=ledger, model_name=name, **settings)

    def stoppable(self, settings: Mapping[str, Any]) -> Callable[[Any, Stop, Path | None], tuple[Explainer, Citer]]:
        def make(lm: Any, stop: Stop, ledger: Path | None) -> tuple[Explainer, Citer]:
            citer = self.citer(lm, ledger, settings)
            citer.explainer.progress = output.interactive(self.quiet)
            citer.explainer.model = Stoppable(citer.scorer, stop)
            return citer.explainer, citer

        return make

    def explain_questions(
        self, path: Path, file: QuestionFile, settings: Mapping[str, Any], verifies: bool = False
    ) -> Store:
        from c2fa.batch import Recipe

        citer = self.citer(Lazy(self.load), self.ledger, settings)
        make = Recipe.of(citer.verifier if verifies else citer.explainer, self.load)
        return self.explain_into_store(make, str(path), column=file, views="all")


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
                    "files; put it there"
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
    """Reads the lines of a .jsonl of questions; paths in it are below the file's folder.

    Called with a line, it gives the fields of a question. ``documents`` are those of lines that have none.
    """

    folder: Path
    documents: Sequence[Document] | None
    fields: Sequence[str] = ("query", "documents", "docs", "answer", "messages")

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
                documents = read_documents([self.folder / path for path in given], below=self.folder)
            if documents is None and "messages" not in row:
                raise ValueError('the question has no documents: give it "documents" or "docs", or all of them --docs')
        except (RefusedError, ValueError, TypeError, OSError) as error:
            return Unreadable(error)  # one bad question costs one line
        return {**row, "documents": documents}
