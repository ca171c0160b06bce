"""``c2fa verify``: answers and citations from flags and files, what comes out, and what is refused."""

from __future__ import annotations

import json
import sys
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


def test_an_answer_and_its_citations_come_in_files(folder: Path) -> None:
    (folder / "answer.txt").write_text("Bern is the capital. The Rhine flows through Basel.")
    (folder / "citations.json").write_text(json.dumps([["Bern is the capital.", "rivers.txt"]]))
    found = json.loads(verify(*ASK, "--answer-file", "answer.txt", "--citations", "citations.json", "--json").stdout)
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
    assert (folder / "v.html").read_text().count("<h1") == 2


def test_a_ledger_repeats_no_row(folder: Path) -> None:
    verify(*ASK, "--answer", ANSWER, "--ledger", "rows.sqlite")
    asked = (folder / "asked").stat().st_size
    verify(*ASK, "--answer", ANSWER, "--ledger", "rows.sqlite")
    assert (folder / "asked").stat().st_size == asked


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (ASK, 2, "give the answer with --answer or with --answer-file"),
        (ASK[2:], 2, "give the documents with --docs"),
        ((*ASK[:2], *ASK[4:]), 2, 'give the question with --query "…"'),
        ((*ASK, "--answer", " "), 3, "the answer is empty"),
        ((*ASK, "--answer", ANSWER, "--out", "v.txt"), 2, "must end in .html, .json, .csv, .parquet"),
        ((*ASK, "--answer", ANSWER, "--citations", "mine.py"), 3, "'mine.py' is not JSON"),
        ((*ASK, "--answer", ANSWER, "--prompt", "{context}"), 2, "no {query}"),
        ((*ASK, "--answer", ANSWER, "--document", "{title} {text}"), 3, "asks for {title}"),
        ((*ASK, "--questions", "mine.py"), 2, "leave --query out"),
        ((*ASK[4:], "--questions", "mine.py"), 3, "line 2 of 'mine.py'"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(folder: Path, args: tuple[str, ...], code: int, said: str) -> None:
    result = verify(*args, code=code)
    assert said in " ".join(result.stderr.split())
    assert not (folder / "asked").exists()
