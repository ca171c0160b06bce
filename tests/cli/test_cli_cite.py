"""``c2fa cite``: documents in all forms, what is refused and how, questions in files, and a run that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
from c2fa.cli import app
from running import RUNNER, pdf
from servers.fake import Server, reply
from servers.scoring import LM

pytest.importorskip("httpx2")

MODULE = """
import pathlib


class Reader:
    name = "reader"

    def generate(self, prompt):
        return "Bern is the capital. Zermatt bans cars."

    def pieces(self, answer):
        return answer.replace(" ", "| ").split("|")

    def score(self, prompts, answer):
        with pathlib.Path("asked").open("a") as file:
            file.writelines(prompt.replace(chr(10), "/") + chr(10) for prompt in prompts)
        return [[-0.2 if piece.strip(" .") in prompt else -3.0 for piece in self.pieces(answer)] for prompt in prompts]


class Unnamed(Reader):
    name = None


reader, unnamed = Reader(), Unnamed()
"""
CITIES = "Basel has a port. Bern is the capital. Bern has bears."
ASK = ("--query", "What is the capital?", "--model", "python:mine:reader", "--budget", "30")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rivers.txt").write_text("The Rhine flows through Basel. It is long.")
    (tmp_path / "docs" / "cities.md").write_text(CITIES)
    (tmp_path / "docs" / "notes.csv").write_text("a,b")
    return tmp_path


def cite(*args: object, code: int = 0, **options: Any) -> Any:
    result = RUNNER.invoke(app, ["cite", *map(str, args)], **options)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def asked(folder: Path) -> list[str]:
    file = folder / "asked"
    return file.read_text().splitlines() if file.exists() else []


def test_a_folder_is_cited_into_text_json_and_a_page(folder: Path) -> None:
    text = cite("--docs", "docs", *ASK, "--out", "cited.html", "--out", "cited.json").stdout
    assert text.index("[1] Bern is the capital.") < text.index("cities.md: Bern is the capital.")
    assert "rests on nothing in these documents" in text
    assert "by one request beside the rows" in text
    assert len(asked(folder)) <= 30
    assert (folder / "cited.html").stat().st_size > 1000
    assert c2fa.load(folder / "cited.json").structure.names[0] == ("cities.md", "rivers.txt")
    found = json.loads(cite("--docs", "docs", *ASK, "--answer", "Bern is the capital.", "--json").stdout)
    assert found["answer"]["text"] == "Bern is the capital."


def test_a_smaller_model_scores_the_answer_first(folder: Path) -> None:
    found = json.loads(cite("--docs", "docs", *ASK, "--scout", "python:mine:unnamed", "--json").stdout)
    assert found["prior"]["scouted"] > 0
    refused = cite("--docs", "docs", *ASK, "--scout", "attention", code=2)
    assert "Reader does not tell of its attention" in refused.stderr


def test_a_scout_is_named_as_the_language_model_is(folder: Path) -> None:
    refused = cite("--docs", "docs", *ASK, "--scout", "demo", code=2)
    assert "'demo' names no language model; write hf:folder" in refused.stderr
    missing = cite("--docs", "docs", *ASK, "--scout", "hf:nowhere", code=3)
    assert "the scout, hf-lm:nowhere: " in missing.stderr, "a folder may hold a classifier too"
    assert not (folder / "asked").exists()


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("d.json", json.dumps([{"id": "c", "text": CITIES}, {"text": "It rains."}]), ("c", "d.json 2")),
        ("d.json", json.dumps({"c": CITIES, "r": "It rains."}), ("c", "r")),
        ("d.jsonl", "\n".join(json.dumps({"id": k, "text": CITIES}) for k in "ab"), ("a", "b")),
        ("d.rst", CITIES, ("d.rst",)),
    ],
)
def test_documents_come_in_files(folder: Path, name: str, content: str, ids: tuple[str, ...]) -> None:
    (folder / name).write_text(content)
    found = json.loads(cite("--docs", name, *ASK, "--json").stdout)
    assert tuple(found["structure"]["names"][0]) == ids


def test_pages_and_their_paragraphs_come_in_a_folder(folder: Path) -> None:
    (folder / "docs" / "bern.html").write_text("<h1>Bern</h1><p>Bern has bears.</p><p>It is <b>old</b>. It is far.</p>")
    levels = ("--levels", "documents,paragraphs,sentences")
    found = json.loads(cite("--docs", "docs/bern.html", *ASK, *levels, "--json").stdout)["structure"]
    assert [len(names) for names in found["names"]] == [1, 3, 4]
    assert found["names"][2][-2:] == ["It is old.", "It is far."]
    pytest.importorskip("pypdf")
    (folder / "docs" / "town.pdf").write_bytes(pdf("Bern is the capital.", "It rains."))
    found = json.loads(cite("--docs", "docs", *ASK, *levels, "--json").stdout)
    pages = ["town.pdf page 1", "town.pdf page 2"]
    assert found["structure"]["names"][0] == ["bern.html", "cities.md", "rivers.txt", *pages]
    known = {document["id"]: json.loads(document["known"]) for document in found["answer"]["documents"]}
    assert known["town.pdf page 2"] == {"file": "town.pdf", "page": 2}


def test_standard_input_is_a_document_among_others(folder: Path) -> None:
    found = json.loads(cite("--docs", "-", "--docs", "docs/rivers.txt", *ASK, "--json", input=CITIES).stdout)
    assert found["structure"]["names"][0] == ["standard input", "rivers.txt"]


def test_how_the_model_is_asked(folder: Path) -> None:
    how = ("--prompt", r"Read.\n{context}\n{query}", "--system", "Be brief.", "--separator", r"\n--\n")
    cite("--docs", "docs", *ASK, *how, "--levels", "documents", "--seed", 3)
    assert f"Be brief.//Read./{CITIES}/--/The Rhine flows through Basel. It is long./What is the capital?" in asked(
        folder
    )


@pytest.mark.parametrize(
    ("flags", "method"),
    [
        (("--levels", "documents,sentences"), "c2fa"),
        (("--levels", "sentences,words"), "c2fa-focused"),
        (("--levels", "words"), "c2fa"),
        (("--levels", "sentences,words", "--until", "top1"), "c2fa"),
        (("--levels", "sentences,words", "--method", "c2fa"), "c2fa"),
    ],
)
def test_words_are_asked_about_inside_the_sentences_that_matter(
    folder: Path, flags: tuple[str, ...], method: str
) -> None:
    found = json.loads(cite("--docs", "docs", *ASK, *flags, "--json").stdout)
    assert found["provenance"]["method"] == method


def test_answers_are_kept_in_a_ledger_and_for_the_next_prompt_asked_anew(folder: Path) -> None:
    cite("--docs", "docs", *ASK, "--ledger", "answers.sqlite")
    first = len(asked(folder))
    cite("--docs", "docs", *ASK, "--ledger", "answers.sqlite")
    assert len(asked(folder)) == first
    cite("--docs", "docs", *ASK, "--ledger", "answers.sqlite", "--prompt", "{query} {context}")
    assert len(asked(folder)) == 2 * first


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--docs", "nix", *ASK), 3, "there is no file or folder 'nix'"),
        (("--docs", "cache", *ASK), 3, "the folder 'cache' holds no texts (.txt, .md, .html"),
        (("--docs", "empty.txt", *ASK), 3, "'empty.txt' is empty"),
        (("--docs", "bad.json", *ASK), 3, "'bad.json' is not JSON"),
        (("--docs", "odd.json", *ASK), 3, "document 'odd.json 1' must be a text"),
        (("--docs", "docs", "--docs", "docs", *ASK), 3, "two documents have one id"),
        (ASK, 2, "give the documents with --docs"),
        (("--docs", "docs", *ASK[2:]), 2, 'give the question with --query "…"'),
        (
            ("--docs", "docs", *ASK, "--answer", " "),
            3,
            "the answer is empty, so there is nothing to attribute; give --answer …",
        ),
        (("--docs", "docs", *ASK, "--prompt", "{query}"), 2, "the prompt has no {context}"),
        (("--docs", "docs", *ASK, "--levels", "letters"), 2, "levels must be some of"),
        (("--docs", "docs", *ASK, "--budget", "3"), 2, "a budget of 3 rows is too small"),
        (("--docs", "docs", *ASK, "--similarity", "letters"), 2, "similarity must be 'words'"),
        (("--docs", "docs", *ASK, "--model", "onnx:file"), 2, "'onnx:file' names no language model; write hf:folder"),
        (("--docs", "docs", *ASK, "--model", "hf:nix"), 3, "nix"),
        (
            ("--docs", "docs", *ASK, "--model", "openai:http://127.0.0.1:9/v1#m", "--model-option", "kind=chat"),
            2,
            "give --similarity words",
        ),
        (("--docs", "docs", *ASK, "--model", "llama:http://127.0.0.1:9", "--model-option", "model=a"), 2, "is unknown"),
        (("--docs", "docs", *ASK, "--workers", "2"), 2, "--workers goes with --store DIR"),
        (("--docs", "docs", *ASK, "--store", "st"), 2, "--questions FILE.jsonl and --store DIR go together"),
        (("--questions", "q.jsonl", "--store", "st", *ASK), 2, "--query is for one question"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(folder: Path, args: tuple[str, ...], code: int, said: str) -> None:
    (folder / "cache").mkdir()
    (folder / "empty.txt").write_text(" \n")
    (folder / "bad.json").write_text("{")
    (folder / "odd.json").write_text("[3]")
    result = cite(*args, code=code)
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert not asked(folder)


def test_questions_go_into_a_store_and_one_that_is_bad_costs_one_line(folder: Path) -> None:
    lines = [
        {"query": "What is the capital?", "docs": "docs"},
        {"query": "What?", "documents": {"c": CITIES}, "answer": "Bern is the capital."},
        {"query": "What?", "docs": "nix"},
        {"question": "What?"},
        {"query": "What of it?"},
    ]
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = ("--questions", "q.jsonl", "--store", "cited", "--docs", "docs/cities.md", *ASK[2:], "--workers", 1)
    result = cite(*run)
    assert "5 inputs are in 'cited'; 5 of them were explained now" in result.stdout
    assert "input 2 was set aside: there is no file or folder" in result.stderr
    assert "input 3 was set aside: the question has 'question'" in result.stderr
    store = c2fa.batch.Store.open(folder / "cited")
    assert [store[k].structure.widths[0] for k in (0, 1, 4)] == [2, 1, 1]
    assert store[0].answer.statements == ("Bern is the capital.", "Zermatt bans cars.")
    assert store[1].answer.written_by_the_model is False
    before = len(asked(folder))
    assert "0 of them were explained now" in cite(*run).stdout
    assert len(asked(folder)) == before
    assert "other settings" in cite(*run, "--system", "Be brief.", code=3).stderr
    result = RUNNER.invoke(app, ["report", "cited", "--out", "report.html"])
    assert result.exit_code == 0, result.stderr


def test_workers_ask_a_language_model_in_a_process_of_its_own(folder: Path) -> None:
    (folder / "q.jsonl").write_text("\n".join(json.dumps({"query": q}) for q in ("What?", "Which?")))
    run = ("--questions", "q.jsonl", "--docs", "docs", *ASK[2:], "--workers", 1, "--store-option", "precision=float64")
    cite(*run, "--store", "own")
    said = json.loads(cite(*run, "--store", "shared", "--store-option", "models=1", "--json").stdout)
    assert said["loads"]
    own, shared = (c2fa.batch.Store.open(folder / name) for name in ("own", "shared"))
    for one, other in zip(own, shared, strict=True):
        assert one.output_names == other.output_names
        np.testing.assert_array_equal(one.low, other.low)


ECHO = (
    MODULE
    + """

class Echo(Reader):
    def generate(self, prompt):
        return "Brief." if "briefly" in prompt else "Bern is the capital."

    def score(self, prompts, answer):
        if len(prompts) > 1 and not pathlib.Path("calm").exists():
            raise ConnectionError("gone")
        return super().score(prompts, answer)


echo = Echo()
"""
)


@pytest.mark.parametrize("change", [("--prompt", "{context} Say briefly: {query}"), ("--system", "Answer briefly.")])
def test_a_stopped_run_that_is_continued_with_another_prompt_explains_its_own_answer(
    folder: Path, change: tuple[str, str]
) -> None:
    (folder / "mine.py").write_text(ECHO)
    run = ("--docs", "docs", *ASK[:2], "--model", "python:mine:echo", "--budget", 30, "--json")
    cite(*run, code=4)
    (folder / "calm").touch()
    assert json.loads(cite(*run, *change).stdout)["answer"]["text"] == "Brief."


def test_a_line_of_questions_names_no_files_elsewhere(folder: Path) -> None:
    (folder / "lines" / "texts").mkdir(parents=True)
    (folder / "lines" / "texts" / "b.txt").write_text("Bern is the capital.")
    (folder / "secret.txt").write_text("A password.")
    (folder / "lines" / "link.txt").symlink_to(folder / "secret.txt")
    (folder / "lines" / "folder").mkdir()
    (folder / "lines" / "folder" / "link.txt").symlink_to(folder / "secret.txt")
    named = [
        str(folder / "secret.txt"),
        "../secret.txt",
        "link.txt",
        "folder",
        "/etc",
        "texts/../../secret.txt",
        "texts",
    ]
    lines = [json.dumps({"query": "What?", "docs": docs, "answer": "Bern is the capital."}) for docs in named]
    (folder / "lines" / "q.jsonl").write_text("\n".join(lines))
    run = ("--questions", "lines/q.jsonl", "--store", "cited", *ASK[2:], "--workers", 1)
    cite(*run)
    failures = {failure.index: failure.error for failure in c2fa.batch.Store.open(folder / "cited").errors()}
    assert failures.keys() == {0, 1, 2, 3, 4, 5}
    for k in (0, 1, 2, 3, 5):
        assert "may name no other files; put it there" in failures[k]
    assert "password" not in json.dumps(asked(folder))


# Servers.


class Chats(Server):
    """An OpenAI-compatible server that answers with the sentence on the capital, where it reads it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        super().__init__()

    def handle(self, handler: Any, body: bytes) -> None:
        data = json.loads(body)
        self.asked.append((handler.path, data))
        said = "Bern is the capital." if "Bern is the capital." in data["messages"][0]["content"] else "I cannot say."
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        reply(handler, 200, {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})


def test_a_chat_is_compared_by_its_words(folder: Path) -> None:
    with Chats() as server:
        spec = f"openai:{server.url}/v1#tiny"
        prices = ("--model-option", "price_per_token=1.0")
        cite("--docs", "docs", *ASK, "-m", spec, "--similarity", "words", *prices, "--out", "cited.json")
    found = c2fa.load(folder / "cited.json")
    assert {path for path, _ in server.asked} == {"/v1/chat/completions"}
    assert all(body["temperature"] == 0 and body["model"] == "tiny" for _, body in server.asked)
    assert len(server.asked) == found.queries + 1
    assert found.answer.scored_by == "similarity"
    assert found.diagnostics.cost == 15.0 * len(server.asked)
    assert found.structure.names[1][found.low.argmax()] == "Bern is the capital."


class Sampling(LM):
    """llama-server that writes another answer each time, and may wait for ever in the middle of the rows."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at, self.stopped, self.written = stop_at, threading.Event(), 0
        self.answered: Counter[str] = Counter()
        super().__init__()

    def handle(self, handler: Any, body: bytes) -> None:
        asked = json.loads(body) if body else {}
        if "grammar" in asked:
            if sum(self.answered.values()) == self.stop_at:
                self.stopped.set()
                threading.Event().wait(20)
                return
            self.answered[asked["prompt"]] += 1
        super().handle(handler, body)

    def _v1_completions(self, asked: Any) -> Any:
        data = super()._v1_completions(asked)
        if "grammar" not in asked:
            self.written += 1
            words = ["Bern", "Basel", "Brig"]
            data["choices"][0]["text"] = f"{words[self.written - 1]} is the capital. It rains."
        return data


def test_after_kill_9_no_answered_row_is_asked_twice_and_the_answer_is_the_same(folder: Path) -> None:
    with Sampling(stop_at=13) as server:
        command = [sys.executable, "-m", "c2fa", "cite", "--docs", "docs", "--query", "What?", "--budget", "30"]
        command += ["--model", f"llama:{server.url}", "--ledger", "answers.sqlite", "--json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        killed = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert server.stopped.wait(60)
        killed.send_signal(signal.SIGKILL)
        killed.wait(20)
        killed.stdout.close()  # type: ignore[union-attr]
        before = server.answered.copy()
        server.stop_at = 10**6
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        found = json.loads(done.stdout)
    after = server.answered - before
    assert len(before) == 12  # the first row of a run is asked twice, to see that the server repeats itself
    assert not before.keys() & after.keys()
    assert sorted(after.values())[-2:] == [1, 2]
    assert len(server.answered) == found["queries"] <= 30
    assert server.written == 1
    assert found["answer"]["generations"] == 1
    assert found["answer"]["text"] == "Bern is the capital. It rains."
    assert found["diagnostics"]["recalled"] == 12
