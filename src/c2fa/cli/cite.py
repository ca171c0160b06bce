"""``c2fa cite``: what a language model's answer rests on; ``c2fa verify``: whether the sources it cites were used."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2fa.citing import Verification, Verifications, method_for
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.commands import Explaining
from c2fa.cli.inputs import Inputs, read_text
from c2fa.cli.options import ASKING, DATASETS, INPUTS, flag
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.questions import Questioning
from c2fa.models.loading import language_model_spec
from c2fa.priors import scout


@dataclass(frozen=True, kw_only=True, eq=False)
class Cite(Questioning, Explaining):
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

    \bEvery row is one prompt from which documents and sentences are left out. The
    answer that the model writes is one request beside them. Ctrl-C finishes the
    batch under way, and the same command continues: answers stay in your cache
    until it succeeds, or in --ledger for good.
    """

    method: str | None = flag(
        ASKING,
        "The method; 'c2fa info' lists them.",
        metavar="NAME",
        show_default="c2fa, and for words c2fa-focused",
    )
    budget: str | None = flag(
        ASKING,
        "Most rows for a question: a number, one for each level, or money ('$0.50').",
        "-b",
        default="64",
        metavar="ROWS",
    )
    answer: str | None = flag(INPUTS, "The answer to explain.", metavar="TEXT", show_default="the model writes it")
    levels: str = flag(
        INPUTS, "Some of documents, paragraphs, sentences and words.", default="documents,sentences", metavar="NAMES"
    )
    questions: Path | None = flag(
        DATASETS,
        'A .jsonl of {"query" or "messages", "documents" or "docs": PATH, "answer"}, explained into --store.',
        metavar="FILE",
    )

    def run(self) -> None:
        levels = o.words(self.levels)
        method = self.method or method_for(levels, self.until)
        settings = {"levels": levels, **self.prompting(), **self.settings_for(method)}
        if self.scout not in (None, "attention"):
            with as_usage():
                settings["prior"] = scout(language_model_spec(self.scout))
        if self.questions is not None and self.store is not None:
            for name, given in (("--query", self.query), ("--answer", self.answer)):
                if given is not None:
                    raise RefusedError(
                        f"{name} is for one question, and --questions has its own: leave {name} out", USAGE
                    )
            self.explain_questions(self.questions, self.question_file(self.questions), settings)
        elif self.questions is not None or self.store is not None:
            raise RefusedError(
                "--questions FILE.jsonl and --store DIR go together: the questions, and the folder of what is found",
                USAGE,
            )
        else:
            question = self.question(self.answer)
            places = [json.dumps(question.texts), question.query, self.answer or ""]
            self.explain(Inputs("text", [question.query], [question]), places, self.stoppable(settings))


@dataclass(frozen=True, kw_only=True, eq=False)
class Verify(Questioning):
    """Say of each citation of an answer whether its source was used.

    \bThe citations in an answer, by a document's number or its name:
      c2fa verify --docs folder/ --query "Who built it?" -m hf:my-model \\
        --answer "Ada Morn built it [2]. It is old [notes.txt]."

    \bAn answer with the citations that a model's interface gave:
      c2fa verify --docs folder/ --query "Who built it?" -m hf:my-model \\
        --answer "Ada built it." --citations citations.json --out page.html

    \bMany answers, with the share of citations that were used:
      c2fa verify --questions answers.jsonl -m hf:my-model --out page.html

    \bThousands, into a folder that the same command continues:
      c2fa verify --questions answers.jsonl -m hf:my-model --store verified

    \bA verdict is one of used, not used (and what the statement rests on), known
    without, one of several, against, and not settled (and how many rows would
    tell). Ctrl-C finishes the batch under way, and the same command continues.
    """

    budget: str = flag(ASKING, "Most rows for an answer.", "-b", default="64", metavar="ROWS")
    answer: str | None = flag(INPUTS, "The answer with its citations, such as [1].", metavar="TEXT")
    citations: Path | None = flag(
        INPUTS,
        "A .json of citations that are not in the text: pairs of a statement and a source, or a model's own.",
        metavar="FILE",
        show_default="read from the answer",
    )
    questions: Path | None = flag(
        INPUTS,
        'A .jsonl of {"query" or "messages", "documents" or "docs": PATH, "answer", "citations"}: many, with scores.',
        metavar="FILE",
    )

    def run(self) -> None:
        rows = o.budget(self.budget)
        if not isinstance(rows, int):
            raise RefusedError(f"verify splits its rows by itself: give --budget one number, not {self.budget}", USAGE)
        settings = {**self.prompting(), "method": "owen", "budget": rows}
        if self.questions is None:
            if self.store is not None:
                raise RefusedError("--store goes with --questions FILE.jsonl", USAGE)
            self._verify_one(settings)
            return
        one = {"--query": self.query, "--answer": self.answer, "--citations": self.citations}
        for name in (name for name, value in one.items() if value is not None):
            raise RefusedError(f"{name} is for one answer, and --questions has its own: leave {name} out", USAGE)
        file = self.question_file(self.questions, "citations")
        if self.store is not None:
            found = Verifications(self.explain_questions(self.questions, file, settings, verifies=True))
            self._write(found)
            if not (self.json or self.quiet):
                output.out(found.to_text())
            return
        places = [read_text(self.questions).values[0], json.dumps(file.documents, default=str)]
        with self.session(places, self.stoppable(settings)) as (citer, stop), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* could not be explained")  # which is said below
            found = citer.verify_many(str(self.questions), column=file)
            stop.settle()
            self._write(found)
            self._print(found, "\n".join([*(v.to_text() for _, v in found.items()), found.to_text()]))
            self.say_set_aside(found.errors())

    def _verify_one(self, settings: Mapping[str, Any]) -> None:
        question = self.question(None)
        if self.answer is None:
            raise RefusedError("give the answer with --answer", USAGE)
        given = None
        if self.citations is not None:
            try:
                given = json.loads(read_text(self.citations).values[0])
            except ValueError as error:
                raise RefusedError(f"{str(self.citations)!r} is not JSON: {error}") from None
        places = [json.dumps([question.texts, question.query, self.answer, given])]
        with self.session(places, self.stoppable(settings)) as (citer, stop):
            found = citer.verify(question, self.answer, given)
            stop.settle()
            self._write(found)
            self._print(found, found.to_text())

    def _print(self, found: Verification | Verifications, text: str) -> None:
        if self.json:
            output.out_json(found.to_json().replace("\n", " "))
        elif not (self.quiet and self.out):
            output.out(text)

    def _write(self, found: Verification | Verifications) -> None:
        for path in self.out:
            if path.suffix.lower() == ".html":
                output.write(path, found.to_html().encode())
            elif path.suffix.lower() == ".json":
                output.write(path, f"{found.to_json()}\n".encode())
            else:
                frame = found.to_frame()
                structured = ["place", "passage_place", "others", "carriers", "metadata"]
                for name in (name for name in structured if name in frame):
                    frame[name] = frame[name].map(lambda cell: json.dumps(cell, ensure_ascii=False, default=str))
                output.write_frame(path, frame)
            self.remark(f"wrote {path}")
