"""``c2fa verify``: answers and citations from flags and files, what comes out, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from c2fa.cli import app
from running import RUNNER

MODULE = """
import pathlib


class Reader:
    name = "reader"

    def pieces(self, answer):
        return answer.replace(" ", "| ").split("|")

    def score(self, prompts, answer):
        with pathlib.Path("asked").open("a") as file:
            file.write("row" * len(prompts))
        return [[-0.2 if piece.strip(" .") in prompt else -3.0 for piece in self.pieces(answer)] for prompt in prompts]


reader = Reader()
"""
ANSWER = "Bern is the capital [1]. The Rhine flows through Basel [cities.html]."
ASK = ("--docs", "docs", "--query", "What is the capital?", "--model", "python:mine:reader", "--budget", "40")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rivers.txt").write_text("The Rhine flows through Basel. It is long.")
    (tmp_path / "docs" / "cities.html").write_text("<h1>Cities</h1><p>Bern is the capital. Bern has bears.")
    return tmp_path


def verify(*args: object, code: int = 0, **options: Any) -> Any:
    result = RUNNER.invoke(app, ["verify", *map(str, args)], **options)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def test_an_answer_is_verified_into_text_a_page_json_and_a_table(folder: Path) -> None:
    text = verify(*ASK, "--answer", ANSWER, *(f"--out=v.{suffix}" for suffix in ("html", "json", "csv"))).stdout
    assert "cities.html: used: removing it takes" in text
    assert "cities.html: not used" in text
    assert "rivers.txt, not cited: used" in text
    assert "not used" in (folder / "v.html").read_text()
    found = json.loads((folder / "v.json").read_text())
    assert [c["verdict"] for s in found["statements"] for c in s["citations"]] == ["used", "not used"]
    assert (folder / "v.csv").read_text().startswith("statement,source,verdict,")
    assert json.loads(verify(*ASK, "--answer", ANSWER, "--json").stdout) == found


def test_citations_come_in_a_file(folder: Path) -> None:
    answer = "Bern is the capital. The Rhine flows through Basel."
    (folder / "citations.json").write_text(json.dumps([["Bern is the capital.", "rivers.txt"]]))
    found = json.loads(verify(*ASK, "--answer", answer, "--citations", "citations.json", "--json").stdout)
    [citation] = found["statements"][0]["citations"]
    assert (citation["source"], citation["verdict"], citation["carriers"]) == (
        "rivers.txt",
        "not used",
        ["cities.html"],
    )


def test_many_answers_have_scores(folder: Path) -> None:
    lines = [
        {"query": "?", "docs": "docs", "answer": ANSWER},
        {
            "query": "?",
            "documents": {"a": "Bern is the capital."},
            "answer": "Bern is the capital.",
            "citations": [["Bern", "a"]],
        },
    ]
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    text = verify("--questions", "answers.jsonl", *ASK[4:], "--out", "v.html").stdout
    assert "citations used: 2 of 3" in text
    assert "statements supported: 2 of 3" in text
    assert (folder / "v.html").read_text().count("<h2") == 2


LINES = [
    {"query": "Which?", "docs": "docs", "answer": ANSWER},
    {"query": "Why?", "docs": "docs"},
    {"query": "What?", "docs": "nix", "answer": ANSWER},
    {"question": "What?"},
    {"query": "What?", "docs": "docs", "answer": "Bern is the capital [rivers.txt]."},
]
ASIDE = (
    "input 1 was set aside: verify needs the answer whose citations are to be checked",
    "input 2 was set aside: there is no file or folder",
    "input 3 was set aside: the question has 'question'; it may have query, documents, docs, answer, messages",
)


@pytest.mark.parametrize("store", [(), ("--store", "verified", "--workers", "1")])
def test_a_bad_question_costs_one_line(folder: Path, store: tuple[str, ...]) -> None:
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    run = ("--questions", "answers.jsonl", *ASK[4:], *store)
    result = verify(*run, "--out", "v.html", "--out", "v.json", "--out", "v.csv")
    assert all(sentence in result.stderr for sentence in ASIDE)
    assert "warning" not in result.stderr
    assert "citations used: 1 of 3 (33%, 6% to 79%)" in result.stdout
    assert "set aside: 3 of 5 questions" in result.stdout
    assert [len(v["statements"]) for v in json.loads((folder / "v.json").read_text())] == [2, 1]
    assert "set aside: 3 of 5" in (folder / "v.html").read_text()
    assert len((folder / "v.csv").read_text().splitlines()) == 1 + 3 + 2, "what is cited, and what should be"
    if store:
        asked = (folder / "asked").stat().st_size
        assert "0 of them were explained now" in verify(*run).stdout
        assert (folder / "asked").stat().st_size == asked
        facts = json.loads(verify(*run, "--json").stdout)
        assert (facts["in_store"], facts["set_aside"]) == (5, 3)
        report = RUNNER.invoke(app, ["report", "verified", "--out", "report.html"])
        assert report.exit_code == 0, report.stderr


SLOW = (
    MODULE
    + """

class Stalls(Reader):
    def score(self, prompts, answer):
        if pathlib.Path("stall").exists() and pathlib.Path("asked").exists():
            pathlib.Path("stalled").touch()
            import time

            time.sleep(60)
        return super().score(prompts, answer)


stalls = Stalls()
"""
)


@pytest.mark.parametrize("many", [False, True])
def test_after_kill_9_the_same_command_asks_only_for_the_rest(folder: Path, many: bool) -> None:
    (folder / "mine.py").write_text(SLOW)
    (folder / "answers.jsonl").write_text(json.dumps({"query": ASK[3], "docs": "docs", "answer": ANSWER}))
    question = ("--questions", "answers.jsonl") if many else (*ASK[:4], "--answer", ANSWER)
    command = [sys.executable, "-m", "c2fa", "verify", *question, "--model", "python:mine:stalls"]
    command += ["--budget", "40", "--batch-size", "4", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    (folder / "stall").touch()
    killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    for _ in range(600):
        if (folder / "stalled").exists():
            break
        time.sleep(0.1)
    killed.send_signal(signal.SIGKILL)
    killed.wait(20)
    before = (folder / "asked").read_text().count("row")
    assert before
    (folder / "stall").unlink()
    whole = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    found = whole[0] if many else whole
    assert (folder / "asked").read_text().count("row") == found["queries"] <= 40
    assert [c["verdict"] for s in found["statements"] for c in s["citations"]] == ["used", "not used"]


def test_a_ledger_repeats_no_row(folder: Path) -> None:
    verify(*ASK, "--answer", ANSWER, "--ledger", "rows.sqlite")
    asked = (folder / "asked").stat().st_size
    verify(*ASK, "--answer", ANSWER, "--ledger", "rows.sqlite")
    assert (folder / "asked").stat().st_size == asked


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (ASK, 2, "give the answer with --answer"),
        (ASK[2:], 2, "give the documents with --docs"),
        ((*ASK[:2], *ASK[4:]), 2, 'give the question with --query "…"'),
        ((*ASK, "--answer", " "), 3, "the answer is empty"),
        ((*ASK, "--answer", ANSWER, "--out", "v.txt"), 2, "must end in .html, .json, .parquet, .csv"),
        ((*ASK, "--answer", ANSWER, "--citations", "mine.py"), 3, "'mine.py' is not JSON"),
        ((*ASK, "--answer", ANSWER, "--prompt", "{context}"), 2, "no {query}"),
        ((*ASK, "--answer", ANSWER, "--document", "{title} {text}"), 3, "asks for {title}"),
        ((*ASK, "--questions", "mine.py"), 2, "leave --query out"),
        ((*ASK[4:], "--questions", "mine.py"), 3, "must hold .parquet or .jsonl files"),
        ((*ASK[4:], "--questions", "bad.jsonl"), 3, "none of the 1 inputs could be explained (input 0: line 1 of"),
        ((*ASK[4:], "--questions", "none.jsonl"), 3, "there is no file or folder 'none.jsonl'"),
        ((*ASK[4:], "--questions", "bad.jsonl", "--citations", "mine.py"), 2, "leave --citations out"),
        ((*ASK, "--answer", ANSWER, "--store", "verified"), 2, "--store goes with --questions"),
        ((*ASK, "--answer", ANSWER, "--workers", "2"), 2, "--workers goes with --store"),
        ((*ASK, "--answer", ANSWER, "--budget", "5"), 3, "a budget of 5 rows is too small"),
        ((*ASK, "--answer", ANSWER, "--budget", "$0.20"), 2, "by itself: give --budget one number, not $0.20"),
        ((*ASK, "--answer", ANSWER, "--budget", "0"), 2, "budget must be at least 1 row"),
        ((*ASK, "--answer", ANSWER, "--budget", "60 rows"), 2, "--budget '60 rows' is not a number of model rows"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(folder: Path, args: tuple[str, ...], code: int, said: str) -> None:
    (folder / "bad.jsonl").write_text("{")
    result = verify(*args, code=code)
    assert said in " ".join(result.stderr.split())
    assert not (folder / "asked").exists()
